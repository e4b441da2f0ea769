# SPDX-License-Identifier: LGPL-3.0-or-later
"""The broker's own services: log, attributes, service names and events.

====================  ============================================================================
method                payload -> response
====================  ============================================================================
log.append            ``{level, name, text}`` -> nothing
log.dmesg (S)         ``{follow?}`` -> one ``{timestamp, name, rank, level, text}`` an
                      entry, oldest first; with ``follow`` later ones too, else ENODATA
log.clear             -> nothing
attr.get              ``{name}`` -> ``{value, flags}``; flags 1: never changes
attr.set              ``{name, value}`` -> nothing
service.add, .remove  ``{service}`` -> nothing (RFC 5); the sender is the holder
event.publish         ``{topic, payload?}`` -> ``{seq}``
event.subscribe       ``{topic}`` -> nothing: every event whose topic begins so; event.unsubscribe
broker.now            -> ``{now}``: the instance's time, which may be virtual
====================  ============================================================================
"""

import errno
import os
from collections import Counter
from syslog import LOG_INFO

from flux_engine.kernel import message
from flux_engine.kernel.message import Message
from flux_engine.kernel.service import Service, request
from flux_engine.modules.pymodule import ModuleTask

#: An entry of the log.
ENTRY = {"level?": int, "name?": str, "text": str, "rank?": int}


class LogService(Service):
    """``log``: appending to the ring and reading it."""

    name = "log"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self._followers = self.keep()
        ctx.ring.follow(self._tell)

    @request("append", form=ENTRY)
    def append(self, msg):
        body = msg.body
        self.ctx.ring.append(
            body.get("level", LOG_INFO), body.get("name", "?"), body["text"], body.get("rank", 0)
        )
        self.respond(msg)

    @request("dmesg", streaming=True)
    def dmesg(self, msg):
        for entry in self.ctx.ring.entries():
            self.respond(msg, entry._asdict())
        if (msg.body or {}).get("follow"):
            self._followers.append(msg)
        else:
            self.respond_error(msg, errno.ENODATA)

    def _tell(self, entry):
        for msg in self._followers:
            self.respond(msg, entry._asdict())

    @request("clear")
    def clear(self, msg):
        self.ctx.ring.clear()
        self.respond(msg)


class AttrService(Service):
    """``attr``: broker attributes."""

    name = "attr"

    @request("get", guest=True, form={"name": str})
    def get(self, msg):
        name = msg.body["name"]
        value = self.ctx.attrs.get(name)
        if value is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        self.respond(msg, {"value": value, "flags": self.ctx.attrs.flags(name)})

    @request("set", form={"name": str, "value": str})
    def set(self, msg):
        self.ctx.attrs.set(msg.body["name"], msg.body["value"])
        self.respond(msg)


class BrokerService(Service):
    """``broker``: requests about the instance as a whole."""

    name = "broker"

    @request("now", guest=True)
    def tell_time(self, msg):
        self.respond(msg, {"now": self.now()})


class NameService(Service):
    """``service``: the holders of service names (RFC 5)."""

    name = "service"

    @request("add", form={"service": str})
    def add(self, msg):
        name = msg.body["service"]
        if not name or "." in name:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        try:
            self.kernel.add_service(name, msg.sender)
        except FileExistsError as exc:
            text = exc.strerror
            if isinstance(msg.sender, ModuleTask):
                text = f"could not register service {name} for module {msg.sender.name}: {text}"
            raise FileExistsError(errno.EEXIST, text) from None
        self.respond(msg)

    @request("remove", form={"service": str})
    def remove(self, msg):
        self.kernel.remove_service(msg.body["service"], msg.sender)
        self.respond(msg)


class EventService(Service):
    """``event``: publishing, in one order for all subscribers (RFC 3)."""

    name = "event"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.seq = 0
        self.subscribers = {}  # endpoint -> {topic prefix: count}, in order of first subscription

    @request("publish", guest=True, form={"topic": str, "flags?": int, "payload?": object})
    def publish(self, msg):
        topic, payload = msg.body["topic"], msg.body.get("payload")
        self.seq += 1
        for endpoint, topics in self.subscribers.items():
            if any(topic.startswith(prefix) for prefix in topics):
                event = Message(message.EVENT, topic, None, payload)
                event.userid, event.rolemask = msg.userid, msg.rolemask
                event.sender = msg.sender
                self.kernel.send(endpoint, event)
        self.respond(msg, {"seq": self.seq})

    @request("subscribe", guest=True, form={"topic": str})
    def subscribe(self, msg):
        self.subscribers.setdefault(msg.sender, Counter())[msg.body["topic"]] += 1
        self.respond(msg)

    @request("unsubscribe", guest=True, form={"topic": str})
    def unsubscribe(self, msg):
        topics = self.subscribers.get(msg.sender, {})
        topic = msg.body["topic"]
        if topic not in topics:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        topics[topic] -= 1
        if not topics[topic]:
            del topics[topic]
        self.respond(msg)

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        self.subscribers.pop(msg.sender, None)
