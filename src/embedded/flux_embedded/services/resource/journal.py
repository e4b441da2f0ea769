# SPDX-License-Identifier: LGPL-3.0-or-later
"""The resource eventlog and the ``resource.journal`` stream (RFC 44)."""

import errno

from flux_engine.formats import eventlog

#: Events that are kept out of the KVS: they are of this run of the service only.
_VOLATILE = frozenset(("restart", "online", "offline", "torpid", "lively"))


class Journal:
    """Posts events, keeps them, and streams them to whoever asks.

    Args:
        service (Service): sends on its behalf
        store: ``store(ops)`` commits KVS operations, in order
    """

    def __init__(self, service, store):
        self.service = service
        self.store = store
        self.events = []
        self.requests = []

    def replay(self, text):
        """Take over what a former run of the service left in the KVS; returns its events."""
        self.events = eventlog.parse(text)
        return self.events

    def post(self, name, context, R=None, ops=()):
        """Post an event now.

        Arguments: name and context (dict) of the event; R (dict), given with resource-define; ops
        (list), KVS operations that go before the event in the same commit.
        """
        now = self.service.now()
        event = {"timestamp": now, "name": name}
        if context:
            event["context"] = context
        ops = list(ops)
        if name not in _VOLATILE:
            ops.append(["append", "resource.eventlog", eventlog.encode(now, name, context)])
        if ops:
            self.store(ops)
        self.events.append(event)
        for msg in self.requests:
            self.service.respond(
                msg, {"events": [event], "R": R} if R is not None else {"events": [event]}
            )

    def open(self, msg, R):
        """Begin a stream: history, an empty marker, then live events.

        An event ``resource-define`` comes alone, with R.
        """
        batch = []
        for event in self.events:
            if R is not None and event["name"] == "resource-define":
                self._flush(msg, batch)
                batch = []
                self.service.respond(msg, {"events": [event], "R": R})
            else:
                batch.append(event)
        self._flush(msg, batch)
        self.service.respond(msg, {"events": []})
        self.requests.append(msg)

    def _flush(self, msg, batch):
        if batch:
            self.service.respond(msg, {"events": batch})

    def cancel(self, sender, matchtag):
        """End the stream of `sender` with this matchtag."""
        for msg in [m for m in self.requests if m.sender is sender and m.matchtag == matchtag]:
            self.requests.remove(msg)
            self.service.respond_error(msg, errno.ENODATA)

    def disconnect(self, sender):
        """Forget the streams of a sender that has gone."""
        self.requests = [msg for msg in self.requests if msg.sender is not sender]
