# SPDX-License-Identifier: LGPL-3.0-or-later
"""The broker's own services: log, attributes, service names, events, the configuration, and the ranks that are online.

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
config.get            -> the whole configuration
config.load           the table -> nothing: replaces the whole configuration; every module is
                      told by ``NAME.config-reload``. If one refuses, the former configuration comes
                      back and its reason is the answer
config.reload         -> nothing: reads the files given at start again
overlay.monitor (S)   -> ``{online: IDSET}`` now, then ``{online}`` or ``{offline}`` with the ranks
                      that changed
overlay.disconnect    ``{rank}`` -> nothing
overlay.join          ``{ranks: IDSET}`` -> nothing: the ranks are online now
====================  ============================================================================

One process plays every rank, so a rank is online when the instance says so: rank 0 once the start scripts are done, then the others.
``flux overlay disconnect`` takes one offline for good.
"""

import errno
import os
from collections import Counter
from syslog import LOG_ERR, LOG_INFO

from flux_engine.formats import config, idset
from flux_engine.kernel import message
from flux_engine.kernel.handle import Flux
from flux_engine.kernel.message import NO_SERVICE, Message
from flux_engine.kernel.service import Service, refusing, request
from flux_engine.kernel.task import Task
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


class AttrService(Service):
    """``attr``: broker attributes."""

    name = "attr"

    @request("get", guest=True, form={"name": str})
    def get(self, msg):
        name = msg.body["name"]
        value = self.ctx.attrs.get(name)
        if value is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return {"value": value, "flags": self.ctx.attrs.flags(name)}

    @request("set", form={"name": str, "value": str})
    def set(self, msg):
        self.ctx.attrs.set(msg.body["name"], msg.body["value"])


class BrokerService(Service):
    """``broker``: requests about the instance as a whole."""

    name = "broker"

    @request("now", guest=True)
    def tell_time(self, msg):
        return {"now": self.kernel.time}


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

    @request("remove", form={"service": str})
    def remove(self, msg):
        self.kernel.remove_service(msg.body["service"], msg.sender)


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
        return {"seq": self.seq}

    @request("subscribe", guest=True, form={"topic": str})
    def subscribe(self, msg):
        self.subscribers.setdefault(msg.sender, Counter())[msg.body["topic"]] += 1

    @request("unsubscribe", guest=True, form={"topic": str})
    def unsubscribe(self, msg):
        topics = self.subscribers.get(msg.sender, {})
        topic = msg.body["topic"]
        if topic not in topics:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        topics[topic] -= 1
        if not topics[topic]:
            del topics[topic]

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        self.subscribers.pop(msg.sender, None)


class ConfigService(Service):
    """``config``: get, load and reload. Loads are done one after the other."""

    name = "config"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self._loads = []  # (request, new configuration)

    @request("get", guest=True)
    def get(self, msg):
        return self.ctx.config

    @request("load", form={}, later=True)
    def load(self, msg):
        self._begin(msg, msg.body or {})

    @request("reload", later=True)
    def reload(self, msg):
        path = self.ctx.attrs.get("config.path")
        table = {}
        try:
            for part in (path or "").split(":") if path else ():
                table = config.merge(table, config.load_path(part))
        except config.ConfigError as exc:
            raise OSError(errno.EINVAL, str(exc)) from None
        self._begin(msg, table if path else self.ctx.config)

    def _begin(self, msg, table):
        self._loads.append((msg, table))
        if len(self._loads) == 1:
            # In a task of its own: modules may read the configuration meanwhile.
            task = Task(self.kernel, self.name, lambda: self._work(task.handle))
            task.on_exit = lambda task, exc: task.close()
            Flux(task)
            task.start()

    def _work(self, h):
        while self._loads:
            msg, table = self._loads[0]
            try:
                self._replace(h, table)
            except OSError as exc:
                self.respond_error(msg, exc.errno, exc.strerror)
            else:
                self.respond(msg)
            del self._loads[0]

    def _replace(self, h, table):
        """Tell one module after the other, so that the first refusal ends the load."""
        former, self.ctx.config, told = self.ctx.config, table, []
        modules = h.rpc_object("module.list").body["mods"]
        # By name: flux-core tells all at once.
        for name in sorted(mod["name"] for mod in modules if mod["name"] != self.name):
            try:
                h.rpc_object(f"{name}.config-reload", table).response()
            except OSError as exc:
                if exc.errno in NO_SERVICE:
                    continue  # it is gone meanwhile
                self.ctx.config = former
                for other in told:
                    self.notify(f"{other}.config-reload", former)
                raise OSError(exc.errno, f"error updating {name}: {exc.strerror}") from None
            told.append(name)


class OverlayService(Service):
    """``overlay``: ranks come and go."""

    name = "overlay"

    def __init__(self, ctx, *args):
        super().__init__(ctx, *args)
        self.online = []
        self._monitors = self.keep()

    @request("monitor", streaming=True)
    def monitor(self, msg):
        self._monitors.append(msg)
        self.respond(msg, {"online": idset.encode(self.online)})

    def _tell(self, update):
        for msg in self._monitors:
            self.respond(msg, update)

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        # The notice of a client's disconnect has no payload; the command to disconnect a rank has.
        if msg.body is None:
            super().disconnect(msg)
            return
        if msg.is_guest:
            raise OSError(errno.EPERM, "Request requires owner credentials")
        rank = msg.body.get("rank")
        # Rank 0 is the instance.
        if type(rank) is not int or rank < 1 or not idset.intersect([rank, rank + 1], self.online):
            raise OSError(errno.EINVAL, f"rank {rank!r}: expected a rank above 0 that is online")
        self.online = idset.difference(self.online, [rank, rank + 1])
        self.ctx.log(LOG_ERR, f"{self.ctx.hosts[rank]} (rank {rank}) disconnected", "overlay")
        self._tell({"offline": str(rank)})

    @request("join", form={"ranks": str})
    def join(self, msg):
        with refusing():
            ranks = idset.decode(msg.body["ranks"])
        if ranks and ranks[-1] > self.kernel.size:
            raise OSError(errno.EINVAL, f"ranks: expected ranks below {self.kernel.size}")
        new = idset.difference(ranks, self.online)
        if new:
            self.online = idset.union(self.online, new)
            self._tell({"online": idset.encode(new)})
