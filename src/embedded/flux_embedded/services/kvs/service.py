# SPDX-License-Identifier: LGPL-3.0-or-later
"""The service; the table of its methods is in the package's docstring."""

import base64
import errno
import os

from flux_embedded.kernel import message
from flux_embedded.kernel.service import Malformed, Service, check_form, request
from flux_embedded.services.kvs.tree import PRIMARY, Link, Namespace, Tree, error
from flux_embedded.services.kvs.watch import Watches
from flux_embedded.services.kvs.writer import Writer


class Kvs(Service):
    """The KVS."""

    name = "kvs"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.tree = Tree(message.OWNER)
        self.writer = Writer(self.tree)
        self.watches = Watches(self.tree, self.respond, self.respond_error)
        self.waiting = []  # (namespace, sequence number, request) of wait-version
        self.counts = {"commits": 0, "ops": 0, "lookups": 0, "faults": 0}
        self._fault = None

    @request("commit")
    def commit(self, msg):
        body = msg.body
        try:
            name = body.get("namespace")
            ns = self.tree.primary if name is None else self.tree.namespace(name)
            ops = body["ops"]
            if self._fault is not None:
                self._check_fault(ops)
            touched = self.writer.apply(ns, ops)
        except (KeyError, TypeError, AttributeError, IndexError) as exc:
            raise Malformed(f"kvs.commit: {exc!r}") from None
        ns.seq += 1
        counts = self.counts
        counts["commits"] += 1
        counts["ops"] += len(ops)
        self.respond(msg, {"rootseq": ns.seq})
        if self.watches.watches:
            self.watches.notify(touched)
        if self.waiting:
            self._release(ns)

    def _check_fault(self, ops):
        fault = self._fault
        if fault["match"] and not any(fault["match"] in op[1] for op in ops):
            return
        fault["left"] -= 1
        if fault["left"] <= 0:
            self._fault = None
        self.counts["faults"] += 1
        raise OSError(fault["errnum"], os.strerror(fault["errnum"]))

    # -- reading ---------------------------------------------------------------

    @request("lookup")
    def lookup(self, msg):
        body = msg.body or {}
        ns = self.tree.namespace(body.get("namespace"))
        self.counts["lookups"] += 1
        if "keys" in body:
            if type(body["keys"]) is not list:
                raise Malformed("kvs.lookup: 'keys' must be an array")
            answer = {"values": {key: self._value(ns, key) for key in body["keys"]}}
        elif "flags" in body:
            answer = {"val": self._object(ns, body)}
        else:
            answer = {"value": self._value(ns, body.get("key"))}
        self.respond(msg, answer)

    def _value(self, ns, key):
        """A value; what cannot be a key is none that is there."""
        try:
            return self.tree.value(ns, key)
        except OSError as exc:
            raise error(errno.ENOENT) if exc.errno == errno.EINVAL else exc from None

    def _object(self, ns, body):
        """A value in the form of a real KVS (RFC 11), for requests in the form of one."""
        check_form(body, {"namespace": str, "key": str, "flags": int}, "kvs.lookup")
        data = self._value(ns, body["key"]).encode("utf-8", "surrogateescape")
        if body["flags"]:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return {"ver": 1, "type": "val", "data": base64.b64encode(data).decode()}

    @request("readlink")
    def readlink(self, msg):
        body = msg.body or {}
        key = body.get("key")
        ns = self.tree.namespace(body.get("namespace"))
        _, directory, name, _ = self.tree.resolve(ns, key, last=False)
        link = directory.get(name)
        if link is None:
            raise error(errno.ENOENT)
        if type(link) is not Link:
            raise error(errno.EINVAL)
        answer = {"target": link.target}
        if link.namespace is not None:
            answer["namespace"] = link.namespace
        self.respond(msg, answer)

    @request("dir")
    def dir(self, msg):
        body = msg.body or {}
        ns = self.tree.namespace(body.get("namespace"))
        key = body.get("key") or "."
        directory = self.tree.find(ns, key)
        if directory is None:
            raise error(errno.ENOENT)
        if type(directory) is not dict:
            raise error(errno.ENOTDIR)
        recursive, values = bool(body.get("recursive")), bool(body.get("values"))
        self.respond(msg, {"entries": list(self.tree.entries(directory, "", recursive, values))})

    # -- watching --------------------------------------------------------------

    @request("watch", streaming=True)
    def watch(self, msg):
        self.watches.add(msg)

    @request("watch-cancel")
    def watch_cancel(self, msg):
        self.watches.cancel(msg)

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        self.watches.disconnect(msg.sender)
        self.waiting = [entry for entry in self.waiting if entry[2].sender is not msg.sender]

    # -- namespaces and the rest -------------------------------------------------

    @request("getroot", form={"namespace": str})
    def getroot(self, msg):
        ns = self.tree.namespace(msg.body["namespace"])
        self.respond(msg, {**_describe(ns), "rootseq": ns.seq})

    @request("wait-version")
    def wait_version(self, msg):
        body = msg.body or {}
        ns = self.tree.namespace(body.get("namespace"))
        if type(body.get("rootseq")) is not int:
            raise OSError(errno.EPROTO, "rootseq must be an integer")
        self.waiting.append((ns, body["rootseq"], msg))
        self._release(ns)

    def _release(self, ns):
        """Answer who waits for what `ns` has reached."""
        waiting, self.waiting = self.waiting, []
        for entry in waiting:
            if entry[0] is ns and entry[1] <= ns.seq:
                self.respond(entry[2], {"rootseq": ns.seq})
            else:
                self.waiting.append(entry)

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
        if name in self.tree.namespaces:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        self.tree.namespaces[name] = Namespace(name, owner)
        self.respond(msg)

    @request("namespace-remove")
    def namespace_remove(self, msg):
        name = (msg.body or {}).get("namespace")
        if type(name) is not str:
            raise Malformed("kvs.namespace-remove: 'namespace' must be a string")
        ns = self.tree.namespaces.get(name)
        if ns is None:
            self.respond(msg)  # as a real KVS: it is gone
            return
        if name == PRIMARY:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
        del self.tree.namespaces[name]
        for entry in [entry for entry in self.waiting if entry[0] is ns]:
            self.waiting.remove(entry)
            self.respond_error(entry[2], errno.ENOTSUP)
        self.respond(msg)
        self.watches.notify([(name, None, True)])

    @request("namespace-list")
    def namespace_list(self, msg):
        self.respond(msg, {"namespaces": [_describe(ns) for ns in self.tree.namespaces.values()]})

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
        seqs = {ns.name: ns.seq for ns in self.tree.namespaces.values()}
        self.respond(
            msg, {**self.counts, "watchers": len(self.watches.watches), "namespaces": seqs}
        )


def _describe(ns):
    return {"namespace": ns.name, "owner": ns.owner, "flags": 0}
