# SPDX-License-Identifier: LGPL-3.0-or-later
"""The service; the table of its methods is in the package's docstring."""

import errno

from flux_embedded.services.kvs.tree import Tree, error
from flux_engine.kernel.service import Malformed, Service, request


class Kvs(Service):
    """The KVS."""

    name = "kvs"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.tree = ctx.kvs = Tree()
        self._fault = None

    @request("commit")
    def commit(self, msg):
        body = msg.body
        try:
            ops = body["ops"]
            if self._fault is not None:
                self._check_fault(ops)
            self.tree.commit(ops)
        except (KeyError, TypeError, AttributeError, IndexError) as exc:
            raise Malformed(f"kvs.commit: {exc!r}") from None
        self.respond(msg, {"rootseq": self.tree.commits})

    def stop(self):
        self.ctx.kvs = Tree()

    def _check_fault(self, ops):
        fault = self._fault
        if fault["match"] and not any(fault["match"] in op[1] for op in ops):
            return
        fault["left"] -= 1
        if fault["left"] <= 0:
            self._fault = None
        raise error(fault["errnum"])

    @request("lookup")
    def lookup(self, msg):
        self.respond(msg, {"value": self.tree.value((msg.body or {}).get("key"))})

    @request("fault", form={"fail_commits": int, "errnum?": int, "match?": str})
    def fault(self, msg):
        body = msg.body
        count, number = body["fail_commits"], body.get("errnum", errno.EIO)
        if count < 0 or number not in errno.errorcode:
            raise OSError(errno.EINVAL, f"fail_commits={count}, errnum={number}")
        fault = {"left": count, "errnum": number, "match": body.get("match", "")}
        self._fault = fault if count else None
        self.respond(msg)
