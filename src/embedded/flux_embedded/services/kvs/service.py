# SPDX-License-Identifier: LGPL-3.0-or-later
"""The service; the table of its methods is in the package's docstring."""

import base64
import errno

from flux_embedded.services.kvs.tree import Namespace, entries, error
from flux_embedded.services.kvs.watch import Watches
from flux_engine.kernel import message
from flux_engine.kernel.service import Malformed, Service, check_form, request

PRIMARY = "primary"


class Kvs(Service):
    """The KVS."""

    name = "kvs"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.primary = Namespace(PRIMARY, message.OWNER)
        self.namespaces = {PRIMARY: self.primary}
        self.watches = Watches(self)
        self.counts = {"commits": 0, "ops": 0, "lookups": 0, "faults": 0}
        self._fault = None

    def _namespace(self, body):
        """The namespace that a request names, or the primary one."""
        name = body.get("namespace")
        if name is None:
            return self.primary
        if type(name) is not str:
            raise Malformed("kvs: 'namespace' must be a string")
        if name not in self.namespaces:
            raise error(errno.ENOTSUP)
        return self.namespaces[name]

    @request("commit")
    def commit(self, msg):
        body = msg.body
        try:
            ns = self._namespace(body)
            ops = body["ops"]
            if self._fault is not None:
                self._check_fault(ops)
            touched = ns.commit(ops)
        except (KeyError, TypeError, AttributeError, IndexError) as exc:
            raise Malformed(f"kvs.commit: {exc!r}") from None
        counts = self.counts
        counts["commits"] += 1
        counts["ops"] += len(ops)
        self.respond(msg, {"rootseq": ns.seq})
        if self.watches.watches:
            self.watches.notify(ns, touched)

    def _check_fault(self, ops):
        fault = self._fault
        if fault["match"] and not any(fault["match"] in op[1] for op in ops):
            return
        fault["left"] -= 1
        if fault["left"] <= 0:
            self._fault = None
        self.counts["faults"] += 1
        raise error(fault["errnum"])

    # -- reading ---------------------------------------------------------------

    @request("lookup")
    def lookup(self, msg):
        body = msg.body or {}
        ns = self._namespace(body)
        self.counts["lookups"] += 1
        if "keys" in body:
            if type(body["keys"]) is not list:
                raise Malformed("kvs.lookup: 'keys' must be an array")
            answer = {"values": {key: ns.value(key) for key in body["keys"]}}
        elif "flags" in body:
            answer = {"val": self._object(ns, body)}
        else:
            answer = {"value": ns.value(body.get("key"))}
        self.respond(msg, answer)

    def _object(self, ns, body):
        """A value in the form of a real KVS (RFC 11), for requests in the form of one."""
        check_form(body, {"namespace": str, "key": str, "flags": int}, "kvs.lookup")
        data = ns.value(body["key"]).encode("utf-8", "surrogateescape")
        if body["flags"]:
            raise error(errno.EINVAL)
        return {"ver": 1, "type": "val", "data": base64.b64encode(data).decode()}

    @request("dir")
    def dir(self, msg):
        body = msg.body or {}
        directory = self._namespace(body).find(body.get("key") or ".")
        if directory is None:
            raise error(errno.ENOENT)
        if type(directory) is not dict:
            raise error(errno.ENOTDIR)
        recursive, values = bool(body.get("recursive")), bool(body.get("values"))
        self.respond(msg, {"entries": list(entries(directory, "", recursive, values))})

    # -- watching --------------------------------------------------------------

    @request("watch", streaming=True)
    def watch(self, msg):
        self.watches.add(msg, self._namespace(msg.body or {}))

    @request("watch-cancel")
    def watch_cancel(self, msg):
        self.watches.cancel(msg)

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        self.watches.disconnect(msg.sender)

    # -- namespaces and the rest -------------------------------------------------

    @request("getroot", form={"namespace": str})
    def getroot(self, msg):
        ns = self._namespace(msg.body)
        self.respond(msg, {**_describe(ns), "rootseq": ns.seq})

    @request("namespace-create")
    def namespace_create(self, msg):
        body = msg.body or {}
        name = body.get("namespace")
        if type(name) is not str or not name:
            raise Malformed("kvs.namespace-create: 'namespace' must be a name")
        owner = body.get("owner", message.OWNER)
        if type(owner) is not int:
            raise Malformed("kvs.namespace-create: 'owner' must be a userid")
        if "flags" in body and "rootref" not in body:
            raise Malformed("kvs.namespace-create: flags come with 'rootref'")
        if name in self.namespaces:
            raise error(errno.EEXIST)
        self.namespaces[name] = Namespace(name, owner)
        self.respond(msg)

    @request("namespace-remove")
    def namespace_remove(self, msg):
        name = (msg.body or {}).get("namespace")
        if type(name) is not str:
            raise Malformed("kvs.namespace-remove: 'namespace' must be a string")
        if name == PRIMARY:
            raise error(errno.ENOTSUP)
        ns = self.namespaces.pop(name, None)
        self.respond(msg)  # as a real KVS, also if it is gone
        if ns is not None:
            self.watches.end_all(ns)

    @request("namespace-list")
    def namespace_list(self, msg):
        self.respond(msg, {"namespaces": [_describe(ns) for ns in self.namespaces.values()]})

    @request("fault")
    def fault(self, msg):
        body = msg.body or {}
        count = body.get("fail_commits")
        if type(count) is not int or count < 0:
            raise OSError(errno.EINVAL, f"fail_commits={count!r}: expected a count of commits")
        number, match = body.get("errnum", errno.EIO), body.get("match", "")
        if type(number) is not int or number not in errno.errorcode:
            raise OSError(errno.EINVAL, f"errnum={number!r}: expected an error number")
        if type(match) is not str:
            raise OSError(errno.EINVAL, f"match={match!r}: expected a part of a key")
        self._fault = {"left": count, "errnum": number, "match": match} if count else None
        self.respond(msg)

    @request("stats-get")
    def stats(self, msg):
        seqs = {ns.name: ns.seq for ns in self.namespaces.values()}
        self.respond(
            msg, {**self.counts, "watchers": len(self.watches.watches), "namespaces": seqs}
        )


def _describe(ns):
    return {"namespace": ns.name, "owner": ns.owner, "flags": 0}
