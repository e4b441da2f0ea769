# SPDX-License-Identifier: LGPL-3.0-or-later
"""Watching keys of the KVS."""

import errno

from flux_embedded.services.kvs.tree import split


class Watch:
    """One streaming request of ``kvs.watch``."""

    __slots__ = ("msg", "key", "append", "sent")

    def __init__(self, msg):
        self.msg = msg
        self.key = msg.body["key"]
        self.append = msg.body.get("append")
        self.sent = None  # the last value sent


class Watches:
    """All streaming requests of ``kvs.watch``.

    Args:
        service (Kvs): the KVS
    """

    def __init__(self, service):
        self.service = service
        self.watches = {}  # (sender, matchtag) -> Watch
        self._of_key = {}  # key -> list of Watch

    def add(self, msg):
        """Take a request."""
        body = msg.body or {}
        split(body.get("key"))
        watch = Watch(msg)
        self.watches[msg.sender, msg.matchtag] = watch
        self._of_key.setdefault(watch.key, []).append(watch)
        if not body.get("waitcreate") and self.service.tree.find(watch.key) is None:
            self._end(watch, errno.ENOENT)
        else:
            self._tell(watch)

    def cancel(self, msg):
        """End the watch that a request names, if it exists."""
        tag = (msg.body or {}).get("matchtag")
        watch = self.watches.get((msg.sender, tag)) if type(tag) is int else None
        if watch is not None:
            self._end(watch, errno.ENODATA)

    def disconnect(self, sender):
        """Forget a sender's watches."""
        for watch in [w for (owner, _), w in self.watches.items() if owner is sender]:
            self._forget(watch)

    def _forget(self, watch):
        del self.watches[watch.msg.sender, watch.msg.matchtag]
        here = self._of_key[watch.key]
        here.remove(watch)
        if not here:
            del self._of_key[watch.key]

    def _end(self, watch, errnum):
        self._forget(watch)
        self.service.respond_error(watch.msg, errnum)

    def notify(self, touched):
        """Notify the watches affected by a commit, in the order of its changes."""
        for key, below in touched:
            found = list(self._of_key.get(key, ()))
            if below:
                found += [w for w in self.watches.values() if w.key.startswith(key + ".")]
            for watch in found:
                self._tell(watch)

    def _tell(self, watch):
        """Send a watch the change since its last response."""
        value = self.service.tree.find(watch.key)
        sent = watch.sent
        if value is None:
            if sent is not None:
                self._end(watch, errno.ENOENT)
        elif type(value) is dict:
            self._end(watch, errno.EISDIR)
        elif value != sent:
            watch.sent = value
            if watch.append and sent and value.startswith(sent):
                value = value[len(sent) :]
            self.service.respond(watch.msg, {"value": value})
