# SPDX-License-Identifier: LGPL-3.0-or-later
"""The service; the table of its methods is in the package's docstring."""

from flux_embedded.services.kvs.tree import Tree
from flux_engine.kernel.service import Malformed, Service, request


class Kvs(Service):
    """The KVS."""

    name = "kvs"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.tree = ctx.kvs = Tree()

    @request("commit")
    def commit(self, msg):
        try:
            self.tree.commit(msg.body["ops"])
        except (KeyError, TypeError, AttributeError, IndexError) as exc:
            raise Malformed(f"kvs.commit: {exc!r}") from None
        self.respond(msg, {"rootseq": self.tree.commits})

    def stop(self):
        self.ctx.kvs = Tree()

    @request("lookup")
    def lookup(self, msg):
        self.respond(msg, {"value": self.tree.value((msg.body or {}).get("key"))})

    @request("readdir")
    def readdir(self, msg):
        directory = self.tree.directory((msg.body or {}).get("key"))
        names = {name: type(directory[name]) is dict for name in sorted(directory)}
        self.respond(msg, {"names": names})
