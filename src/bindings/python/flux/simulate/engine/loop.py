# SPDX-License-Identifier: LGPL-3.0-or-later
"""A kernel without turns: the scheduler is the only task, and all others answer at once.

In an instance each service is a task, and messages wait for its turn. Here a request to a peer is a
function call, and time advances while the scheduler's reactor waits. The scheduler sees the same
handle, messages and timers.
"""

import errno
import itertools
import marshal
from collections import deque
from syslog import LOG_WARNING

from flux_engine.kernel import direct, message
from flux_engine.kernel.clock import VirtualClock
from flux_engine.kernel.direct import Names
from flux_engine.kernel.handle import Flux
from flux_engine.kernel.message import Message
from flux_engine.modules.pymodule import ModuleTask
from flux_engine.resource.acquire import ResourcePeer


class ObjectMessage(Message):
    """A message within one process: its object is copied, never encoded as JSON."""

    __slots__ = ()

    @property
    def payload(self):
        # The receiver may change the object, as with any message.
        if self._obj is None:
            return super().payload
        return marshal.loads(marshal.dumps(self._obj))


class LastMessage(Message):
    """A request, or a response that a function takes, that hands its object over without a copy: the sender no
    longer uses it."""

    __slots__ = ()
    type, matchtag, flags, errnum, nodeid = message.REQUEST, 0, 0, 0, message.NODEID_ANY
    userid, rolemask = message.OWNER, message.OWNER_ROLES

    def __init__(self, topic, obj, sender):
        self.topic = topic
        self.sender = sender
        self._text = None
        self._obj = obj

    @property
    def payload(self):
        return self._obj


class AllocMessage(LastMessage):
    """A ``sched.alloc`` request with a marshalled jobspec, which is decoded at each access of the
    payload: each reader gets its own object, and may change it. The body has it as it is."""

    __slots__ = ()

    @property
    def payload(self):
        return {**self._obj, "jobspec": marshal.loads(self._obj["jobspec"])}

    @property
    def payload_str(self):
        return message.encode(self.payload)


class Loop(direct.DirectReactor):
    """Delivers messages at once, and asks a driver for the next event.

    Args:
        start (float): initial time, seconds since the epoch
        advance: ``advance(timer)`` processes the next event; it returns False if there is none. `timer` is the time of the
            next timer, or None

    Attributes:
        flush: None, or ``flush()`` sends the messages that a peer has queued
    """

    def __init__(self, start, advance):
        super().__init__(VirtualClock(start))
        self.advance = advance
        self.flush = None
        #: functions of the scheduler to call when it has read its messages
        self.soon = deque()
        self.task = None
        #: number of times that the scheduler was idle
        self.steps = 0
        #: first exception raised in a peer
        self.failure = None

    def respond(self, msg, answer, responder=None):
        if msg.flags & message.FLAG_NORESPONSE:
            return
        try:
            msg.sender.receive(answer)
        except Exception as exc:
            # A bug in a peer. It must not reach the scheduler, which would log it and go on.
            self.failure = self.failure or exc
            self.task.reactor_stop(0)

    def switch_to_hub(self):
        """Process the next event; called when the scheduler is idle or waits for an answer."""
        # The scheduler looks for its answer; other messages stay in its inbox.
        self.steps += 1
        timers = self._timers
        if self.flush is None:
            if timers and timers[0][0] <= self.time:
                self.expire()
            elif self.soon:
                self.count_turn()
                self.task.interrupt(self.soon.popleft())
            elif not self.advance(self.next_timer() if timers else None):
                self.task.end()
        if self.flush is not None:
            flush, self.flush = self.flush, None
            flush()


class Handle(Flux):
    """A handle whose host asks for no estimates, reasons and odds."""

    #: See `flux.scheduler.host.Host`.
    wants_forecast = wants_odds = False


class DirectHandle(Handle):
    """A handle whose job manager is in the same process, accepts objects, and sends jobspecs that are
    marshalled."""

    takes_objects = True

    @property
    def call_soon(self):
        """``call_soon(function)`` calls it when the messages at hand are read, and the timers that are due have been called."""
        return self.kernel.soon.append

    def kvs_get(self, key):
        """Raise FileNotFoundError: a simulation keeps no KVS. The bindings, which would ask for the key, take long to import."""
        raise FileNotFoundError(errno.ENOENT, f"{key}: a simulation keeps no KVS")

    def respond_object(self, msg, obj=None):
        self.kernel.respond(msg, LastMessage(msg.topic, obj, None))


class Scheduler(ModuleTask):
    """The scheduler's module, on the caller's stack; `entry` as for `LeanEngine`."""

    def __init__(self, kernel, name, path, args, entry):
        super().__init__(kernel, name, path, args)
        self.entry = entry
        kernel.task = self
        kernel.add_service(name, self)

    def load(self):
        return self.entry or super().load()

    def run(self):
        """Execute the module's file; return when its reactor ends."""
        self._main()

    def post(self, item):
        self.inbox.append(item)

    def interrupt(self, function, *args):
        if self._listening:  # its inbox is empty
            self._listening = False
            self.guard(function, *args)
            self._listening = True
        else:
            super().interrupt(function, *args)

    def dispatch(self, item):
        # All messages come from the engine: no guests, and seldom more than one watcher.
        watchers = () if callable(item) else self.matching.get((item.type, item.topic), ())
        if len(watchers) != 1:
            super().dispatch(item)
            return
        watcher = watchers[0]
        self.guard(watcher.callback, watcher.handle, watcher, item, watcher.args)

    def _listen(self):
        inbox, stopped, go_on = self.inbox, self._reactor, self.kernel.switch_to_hub
        self._listening = True
        while not (inbox or stopped):
            go_on()
        self._listening = False

    def end(self):
        """Stop the reactor: no event is left. Raises RuntimeError if the scheduler waits for an
        answer."""
        if not self._listening:  # its code waits for an answer
            raise RuntimeError("the scheduler waits for an answer that no service has")
        self.reactor_stop(0)


class Peer(direct.Peer):
    """A service of a simulation."""

    def respond(self, msg, obj=None):
        tags = msg.matchtag, msg.flags & message.FLAG_STREAMING
        answer = ObjectMessage(message.RESPONSE, msg.topic, None, obj, *tags)
        self.kernel.respond(msg, answer)

    def tell(self, topic, obj, flags=0):
        """Send a request without matchtag."""
        self.send_message(ObjectMessage(message.REQUEST, topic, None, obj, 0, flags))


class Resource(Peer, ResourcePeer):
    """``resource``, with a history of the available ranks."""

    def __init__(self, kernel, R, config):
        super().__init__(kernel, R, config, patience=0.0)
        #: [(seconds since the epoch, bounds of the ranks available from then on)]
        self.history = [(kernel.time, self.state.up)]

    def changed(self, gone=()):
        self.history.append((self.kernel.time, self.state.up))
        super().changed(gone)

    def drain(self, ranks, reason=None):
        """Drain ranks (bounds); jobs on them continue."""
        self.state.drains.drain(ranks, self.kernel.time, reason)
        self.changed()

    def undrain(self, ranks):
        """Undrain ranks (bounds)."""
        self.state.drains.undrain(ranks)
        self.changed()


class Lookup(Peer):
    """The service `name`, made of functions (`Peer.serve`)."""

    def __init__(self, kernel, name, **functions):
        self.name = name
        super().__init__(kernel)
        self.serve(functions)


def start_broker(kernel, attributes, config, manager):
    """Start the broker's services that a module uses, and ``job-info``, which has R and jobspec of
    active jobs; `attributes` is {name: value}."""

    def attribute(payload):
        name = payload["name"]
        if name not in attributes:
            raise OSError(errno.ENOENT, f"attribute {name} is not set")
        return {"value": attributes[name], "flags": 0}

    def nothing(payload):
        return {}

    def no_key(payload):
        raise OSError(errno.ENOENT, f"{payload.get('key')}: a simulation keeps no KVS")

    def commit(payload):
        return {"rootseq": next(version), "rootref": ""}

    def lookup(payload):
        active = manager.jobs.get(payload["id"])
        known = {} if active is None else manager.known_of(active)
        for key in payload["keys"]:
            if known.get(key) is None:
                raise OSError(errno.ENOENT, "invalid key")
        return {"id": payload["id"], **{key: known[key] for key in payload["keys"]}}

    version = itertools.count(1)
    Names(kernel)
    Lookup(kernel, "attr", get=attribute)
    Lookup(kernel, "config", get=lambda payload: config)
    # Events are not published.
    Lookup(kernel, "event", subscribe=nothing, unsubscribe=nothing, publish=nothing)
    # Nothing is stored: R is read from job-info.
    Lookup(kernel, "kvs", commit=commit, lookup=no_key)
    Lookup(kernel, "job-info", lookup=lookup)


class Log(Peer):
    """``log``: keeps entries of level warning and worse as `lines`: (seconds since the epoch, level, text)."""

    name = "log"

    def __init__(self, kernel):
        super().__init__(kernel)
        self.lines = []
        self.methods = {"append": lambda msg: self.add(msg.body["level"], msg.body["text"])}

    def add(self, level, text):
        """Add an entry of the present time."""
        if level <= LOG_WARNING:
            self.lines.append((self.kernel.time, level, text))
