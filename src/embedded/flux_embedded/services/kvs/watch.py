# SPDX-License-Identifier: LGPL-3.0-or-later
"""Watching keys of the KVS."""

import errno

from flux_embedded.services.kvs.tree import split


class Watch:
    """One streaming request of ``kvs.watch``."""

    __slots__ = ("msg", "ns", "key", "append", "repeat", "place", "sent")

    def __init__(self, msg, ns, body):
        self.msg = msg
        self.ns = ns
        self.key = body["key"]
        self.append = body.get("append")
        self.repeat = body.get("repeat")  # tell it the value again when that is put again
        self.place = None  # (namespace, key), links followed
        self.sent = None  # the value it was last told


class Watches:
    """All streaming requests of ``kvs.watch``.

    Args:
        service (Service): the KVS, to answer with
    """

    def __init__(self, service):
        self.service = service
        self.watches = {}  # (sender, matchtag) -> Watch
        self._places = {}  # (namespace, key) -> list of Watch

    def add(self, msg, ns):
        """Take a request for a key of the namespace `ns`."""
        body = msg.body or {}
        split(body.get("key"))
        watch = Watch(msg, ns, body)
        self.watches[msg.sender, msg.matchtag] = watch
        self._place(watch)
        if not body.get("waitcreate") and ns.find(watch.key) is None:
            self._end(watch, errno.ENOENT)
        else:
            self._tell(watch)

    def cancel(self, msg):
        """End the watch a request names, if it is there."""
        tag = (msg.body or {}).get("matchtag")
        watch = self.watches.get((msg.sender, tag)) if type(tag) is int else None
        if watch is not None:
            self._end(watch, errno.ENODATA)

    def disconnect(self, sender):
        """Forget a sender's watches."""
        for watch in [w for (owner, _), w in self.watches.items() if owner is sender]:
            self._forget(watch)

    def _place(self, watch):
        """Enter a watch where its key leads to now."""
        try:
            key = watch.ns.resolve(watch.key)[2]
        except OSError:
            key = watch.key  # it will be found when what is missing is made
        if watch.place != (watch.ns, key):
            self._displace(watch)
            watch.place = (watch.ns, key)
            self._places.setdefault(watch.place, []).append(watch)

    def _displace(self, watch):
        here = self._places.get(watch.place)
        if here is not None:
            here.remove(watch)
            if not here:
                del self._places[watch.place]

    def _forget(self, watch):
        del self.watches[watch.msg.sender, watch.msg.matchtag]
        self._displace(watch)

    def _end(self, watch, errnum):
        self._forget(watch)
        self.service.respond_error(watch.msg, errnum)

    def notify(self, ns, touched):
        """Tell the watches that a commit concerns, in the order of its changes."""
        for key, below in touched:
            if below:
                self._notify_below(ns, key)
            else:
                for watch in list(self._places.get((ns, key), ())):
                    self._tell(watch)

    def _notify_below(self, ns, key):
        """A directory or link changed: watches may lead elsewhere from now on."""
        for watch in [watch for watch in self.watches.values() if watch.ns is ns]:
            ways = (watch.place[1], watch.key)
            if any(way == key or way.startswith(key + ".") for way in ways):
                self._place(watch)
                self._tell(watch)

    def end_all(self, ns):
        """The namespace `ns` is gone."""
        for watch in [watch for watch in self.watches.values() if watch.ns is ns]:
            self._end(watch, errno.ENODATA)

    def _tell(self, watch):
        """Send a watch what is new to it."""
        value = watch.ns.find(watch.key)
        sent = watch.sent
        if value is None:
            if sent is not None:
                self._end(watch, errno.ENOENT)
        elif type(value) is dict:
            self._end(watch, errno.EISDIR)
        elif value != sent or watch.repeat:
            watch.sent = value
            if watch.append and sent and value.startswith(sent):
                value = value[len(sent) :]
            self.service.respond(watch.msg, {"value": value})
