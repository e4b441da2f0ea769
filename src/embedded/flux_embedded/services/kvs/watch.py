# SPDX-License-Identifier: LGPL-3.0-or-later
"""Watching keys of the KVS."""

import errno
import os

from flux_embedded.services.kvs.tree import split


class Watch:
    """One streaming request of `watch`."""

    __slots__ = ("msg", "home", "key", "append", "wait", "repeat", "place", "sent")

    def __init__(self, msg, home, key, append, wait, repeat):
        self.msg = msg
        self.home = home  # the namespace it was asked for
        self.key = key
        self.append = append
        self.wait = wait
        self.repeat = repeat  # tell it the value again when that is put again
        self.place = None  # (namespace name, key), links followed
        self.sent = None  # the value it was last told


class Watches:
    """All streaming requests of `watch`.

    Args:
        tree (Tree): what is watched
        respond, respond_error: the service's
    """

    def __init__(self, tree, respond, respond_error):
        self.tree = tree
        self.respond = respond
        self.respond_error = respond_error
        self.watches = {}  # (sender, matchtag) -> Watch
        self.places = {}  # (namespace name, key) -> list of Watch

    def add(self, msg):
        """Take a request."""
        body = msg.body or {}
        key = body.get("key")
        split(key)
        ns = self.tree.namespace(body.get("namespace"))
        watch = Watch(
            msg, ns, key, *(bool(body.get(k)) for k in ("append", "waitcreate", "repeat"))
        )
        self.watches[msg.sender, msg.matchtag] = watch
        self._place(watch)
        if not watch.wait and self.tree.find(ns, key) is None:
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
        place = (watch.home.name, watch.key)
        try:
            ns, _, _, key = self.tree.resolve(watch.home, watch.key)
            place = (ns.name, key)
        except OSError:
            pass  # it will be found when what is missing is made
        if watch.place != place:
            self._displace(watch)
            watch.place = place
            self.places.setdefault(place, []).append(watch)

    def _displace(self, watch):
        here = self.places.get(watch.place)
        if here is not None:
            here.remove(watch)
            if not here:
                del self.places[watch.place]

    def _forget(self, watch):
        del self.watches[watch.msg.sender, watch.msg.matchtag]
        self._displace(watch)

    def _end(self, watch, errnum):
        self._forget(watch)
        self.respond_error(
            watch.msg, errnum, None if errnum == errno.ENODATA else os.strerror(errnum)
        )

    def notify(self, touched):
        """Tell the watches that a commit concerns, in the order of its changes."""
        for name, key, below in touched:
            if below:
                self._notify_below(name, key)
            else:
                for watch in list(self.places.get((name, key), ())):
                    self._tell(watch)

    def _notify_below(self, name, key):
        """A directory or link changed: watches may lead elsewhere from now on."""
        prefix = None if key is None else key + "."
        for watch in list(self.watches.values()):
            if key is None and watch.home.name == name:
                self._end(watch, errno.ENODATA)
                continue
            ways = (watch.place, (watch.home.name, watch.key))
            if any(
                way[0] == name and (key is None or way[1] == key or way[1].startswith(prefix))
                for way in ways
            ):
                self._place(watch)
                self._tell(watch)

    def _tell(self, watch):
        """Send a watch what is new to it."""
        try:
            value = self.tree.find(watch.home, watch.key)
        except FileNotFoundError:
            value = None  # the namespace of a link is gone
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
            self.respond(watch.msg, {"value": value})
