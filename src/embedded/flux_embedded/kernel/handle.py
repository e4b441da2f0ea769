"""The handle: what ``flux.Flux()`` returns and a module's ``mod_main(h)`` is given.

Its methods, errors and oddities are those of the real bindings, so that the same module runs on
both. It is the same class inside the instance, on the task of a module, and in an outside
program, on a task that is linked to the broker's socket (see `link`).
"""

import errno
import os
import time

from flux_embedded.kernel import message, watchers
from flux_embedded.kernel.future import RPC, PlainRPC
from flux_embedded.kernel.message import Message

RPC_NORESPONSE = 1
RPC_STREAMING = 2


class Flux:
    """A handle on the task `task`. Nobody but the kernel's own code constructs one."""

    def __init__(self, task):
        self.task = task
        self.kernel = task.kernel
        task.handle = self

    # -- requests ------------------------------------------------------------------------------

    def rpc(self, topic, payload=None, nodeid=message.NODEID_ANY, flags=0):
        """Send a request; returns its future at once.

        Args:
            topic (str): service and method
            payload: None for none, str or bytes sent as they are, else what JSON can hold
            nodeid (int): a broker rank; any by default
            flags (int): FLUX_RPC_STREAMING, FLUX_RPC_NORESPONSE

        Raises:
            OSError: topic is None (EINVAL)
            TypeError: topic is no string, or the payload is not serialisable
        """
        if topic is None:
            raise OSError(errno.EINVAL, "Topic must not be None/NULL")
        if not isinstance(topic, str):
            raise TypeError(f"rpc: topic must be a string, not {type(topic).__name__}")
        if flags & ~(RPC_NORESPONSE | RPC_STREAMING):
            raise OSError(errno.EINVAL, message.strerror(errno.EINVAL))
        return self.send_rpc(RPC, topic, _text(payload), None, nodeid, flags)

    def rpc_object(self, topic, obj=None, flags=0):
        """`rpc` for builtin services: the object itself goes along, to be read only."""
        return self.send_rpc(RPC, topic, None, obj, message.NODEID_ANY, flags)

    def send_rpc(self, future_class, topic, text, obj, nodeid, flags):
        task = self.task
        if task.closed:
            raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
        msg = Message(message.REQUEST, topic, text, obj)
        msg.nodeid = nodeid
        msg.sender = task
        msg.userid = task.userid
        msg.rolemask = task.rolemask
        if flags & RPC_NORESPONSE:
            msg.flags = message.FLAG_NORESPONSE
            future = future_class(self, 0)
        else:
            if flags & RPC_STREAMING:
                msg.flags = message.FLAG_STREAMING
            tag = msg.matchtag = task.new_matchtag()
            future = future_class(self, tag, bool(flags & RPC_STREAMING))
            task.futures[tag] = future
        self.kernel.request(msg)
        return future

    def send_untagged(self, topic, obj):
        """Send a request with matchtag 0: its responses come to a response watcher (RFC 27)."""
        task = self.task
        msg = Message(message.REQUEST, topic, None, obj)
        msg.sender = task
        msg.userid = task.userid
        msg.rolemask = task.rolemask
        self.kernel.request(msg)

    # -- responses -----------------------------------------------------------------------------

    def respond(self, msg, payload=None):
        """Answer a request; any number of times for a streaming one.

        Raises:
            TypeError: the payload is not serialisable
        """
        self.kernel.respond(msg, msg.response(_text(payload)), self.task)

    def respond_object(self, msg, obj=None):
        """`respond` for builtin services: the object itself goes along, to be read only."""
        self.kernel.respond(msg, msg.response(None, obj), self.task)

    def respond_error(self, msg, errnum, text=None):
        """Answer with an error: a POSIX errno and a line for a person. Returns 0."""
        self.kernel.respond(msg, msg.error_response(errnum, text or os.strerror(errnum)), self.task)
        return 0

    # -- services, events ------------------------------------------------------------------------

    def service_register(self, name):
        """Become the holder of service `name`; returns a future that fails with EEXIST if taken."""
        return self.send_rpc(
            PlainRPC, "service.add", _text({"service": name}), None, message.NODEID_ANY, 0
        )

    def service_unregister(self, name):
        return self.send_rpc(
            PlainRPC, "service.remove", _text({"service": name}), None, message.NODEID_ANY, 0
        )

    def event_subscribe(self, topic):
        """Receive every event whose topic begins with `topic`; waits for the broker's answer."""
        if topic is None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self.rpc("event.subscribe", {"topic": topic}).get()

    def event_unsubscribe(self, topic):
        self.rpc("event.unsubscribe", {"topic": topic}).get()

    def event_create(self, topic, payload=None):
        """An event message, for `send`."""
        return Message(message.EVENT, topic, _text(payload))

    def send(self, msg):
        """Send a message made by `event_create`."""
        payload = {"topic": msg.topic}
        if msg.payload_str is not None:
            payload["payload"] = msg.payload
        self.rpc("event.publish", payload).get()

    def event_send(self, topic, payload=None):
        """Publish an event."""
        self.send(self.event_create(topic, payload))

    def event_recv(self, topic=None):
        """Wait for the next event (of this topic) and return its message."""
        found = []

        def take(handle, watcher, msg, args):
            found.append(msg)
            watcher.stop()
            self.reactor_stop()

        self.msg_watcher_create(take, message.EVENT, topic or "*").start()
        self.reactor_run()
        return found[0]

    # -- watchers ------------------------------------------------------------------------------

    def msg_watcher_create(
        self, callback, type_mask=15, topic_glob="*", args=None, match_tag=0, rolemask=None
    ):
        return watchers.MessageWatcher(
            self, callback, type_mask, topic_glob, args, match_tag, rolemask
        )

    def timer_watcher_create(self, after, callback, repeat=0.0, args=None):
        return watchers.TimerWatcher(self, after, callback, repeat, args)

    def idle_watcher_create(self, callback=None, args=None):
        return watchers.LoopWatcher(self, "idle", callback, args)

    def prepare_watcher_create(self, callback=None, args=None):
        return watchers.LoopWatcher(self, "prepare", callback, args)

    def check_watcher_create(self, callback=None, args=None):
        return watchers.LoopWatcher(self, "check", callback, args)

    def fd_watcher_create(self, fd, callback, events=None, args=None):
        return watchers.FDWatcher(self, fd, callback, events, args)

    def signal_watcher_create(self, signum, callback, args=None):
        return watchers.SignalWatcher(self, signum, callback, args)

    # -- the reactor ---------------------------------------------------------------------------

    def reactor_run(self, reactor=None, flags=0):
        """Handle messages, timers and the rest until stopped.

        Returns:
            int: watchers still active; -1 after `reactor_stop_error`

        Raises:
            whatever leaves a callback, SystemExit excepted
        """
        return self.task.reactor_run()

    def reactor_stop(self, reactor=None):
        self.task.reactor_stop(0)

    def reactor_stop_error(self, reactor=None):
        self.task.reactor_stop(-1)

    def get_reactor(self):
        return self.kernel

    flux_get_reactor = get_reactor

    def reactor_now(self, reactor=None):
        """Seconds since the epoch, as the loop last saw them."""
        return self.kernel.now()

    flux_reactor_now = reactor_now

    def stopwatch(self):
        """Seconds from an arbitrary start, to time a piece of code with.

        Under the virtual clock code takes no time, so that how fast this machine is changes
        nothing that is decided in the instance.
        """
        return self.kernel.time if self.kernel.clock.virtual else time.perf_counter()

    # -- the broker ------------------------------------------------------------------------------

    def log(self, level, text):
        """Log `text` at a syslog `level` (0..7).

        Raises:
            TypeError: level is not an integer
        """
        if not isinstance(level, int):
            raise TypeError(f"log: level must be an integer from 0 to 7, not {level!r}")
        self.rpc(
            "log.append",
            {"level": level, "name": self.task.name, "text": str(text)},
            flags=RPC_NORESPONSE,
        )

    def get_rank(self):
        return int(self.attr_get("rank"))

    def attr_get(self, name):
        """A broker attribute.

        Raises:
            FileNotFoundError: there is none of that name
        """
        return _as_in_c(self.rpc("attr.get", {"name": name}).get)["value"]

    def attr_set(self, name, value):
        if not isinstance(name, str) or not isinstance(value, str):
            raise ValueError("attr_set: name and value must be strings")
        _as_in_c(self.rpc("attr.set", {"name": name, "value": value}).get)

    def conf_get(self, key=None, default=None, update=False):
        """The configuration, or the value of a dotted `key`, or `default`.

        It is fetched once and kept in the task; `update` fetches it again.
        """
        conf = self.task.aux.get("conf")
        if conf is None or update:
            conf = self.task.aux["conf"] = self.rpc("config.get").get()
        if key is None:
            return conf
        for part in key.split("."):
            if not isinstance(conf, dict) or part not in conf:
                return default
            conf = conf[part]
        return conf

    def close(self):
        raise RuntimeError(
            "a Flux handle closes itself when it is no longer used; do not call close()"
        )


def _as_in_c(function):
    """Call a function that in the real bindings is one of the C library's, whose errors have no text."""
    try:
        return function()
    except OSError as exc:
        raise OSError(exc.errno, message.strerror(exc.errno)) from None


def _text(payload):
    if payload is None or isinstance(payload, str):
        return payload
    if isinstance(payload, bytes):
        return payload.decode("utf-8", "surrogateescape")
    return message.encode(payload)
