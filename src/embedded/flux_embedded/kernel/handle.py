"""The handle: what ``flux.Flux()`` returns and a module's ``mod_main(h)`` is given.

Its methods, errors and oddities are those of the real bindings, so that the same module runs on
both. It is the same class inside the instance, on the task of a module, and in an outside
program, on a task that is linked to the broker's socket (see `link`).
"""

import contextlib
import errno
import os
import time

from greenlet import getcurrent

from flux_embedded.formats.dotted import lookup_path
from flux_embedded.kernel import message, watchers
from flux_embedded.kernel.future import RPC, RPC_NORESPONSE, RPC_STREAMING, PlainRPC, unsent
from flux_embedded.kernel.message import Message, payload_text

#: FLUX_O_NONBLOCK
O_NONBLOCK = 4


def _state():
    """What whoever calls keeps: how deep it is in reactors, and what to raise at their end."""
    return getcurrent().__dict__


class Flux:
    """A handle on the task `task`. Nobody but the kernel's own code constructs one.

    Attributes:
        rpc_class: class of the futures of `rpc`
    """

    __module__ = "flux.core.handle"
    rpc_class = RPC

    #: How many refer to it, as the C API counts them (`_flux.handle`): the kernel itself is the first.
    refs = 1

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
            OSError: topic is None, or no such flags (EINVAL)
            TypeError: topic is no string, or the payload is not serialisable
            ValueError: nodeid is no integer
            OverflowError: nodeid is negative
        """
        return self.rpc_class(self, topic, payload, nodeid, flags)

    def rpc_object(self, topic, obj=None, flags=0):
        """`rpc` for builtin services: the object itself goes along, to be read only."""
        return self.send_request(unsent(self.rpc_class), topic, None, obj, flags=flags)

    def send_request(self, future, topic, text, obj, nodeid=message.NODEID_ANY, flags=0):
        """Send the request of a future that is `unsent`, as text or as an object; returns it."""
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
            future.expect(self, 0)
        else:
            if flags & RPC_STREAMING:
                msg.flags = message.FLAG_STREAMING
            tag = msg.matchtag = task.new_matchtag()
            future.expect(self, tag, bool(flags & RPC_STREAMING))
            task.futures[tag] = future
        self.kernel.request(msg)
        return future

    def forward(self, msg):
        """Send a request message that somebody else has made."""
        copy = Message(message.REQUEST, msg.topic, msg.payload_str, None, msg.matchtag, msg.flags)
        copy.nodeid = msg.nodeid
        copy.sender = self.task
        copy.userid = self.task.userid
        copy.rolemask = self.task.rolemask
        self.kernel.request(copy)

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
        self.kernel.respond(msg, _c_message(msg).response(payload_text(payload)), self.task)
        return 0

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
        return PlainRPC(self, "service.add", {"service": _c_string("service", name)})

    def service_unregister(self, name):
        return PlainRPC(self, "service.remove", {"service": _c_string("service", name)})

    def event_subscribe(self, topic):
        """Receive every event whose topic begins with `topic`; waits for the broker's answer."""
        self.rpc("event.subscribe", {"topic": message.topic_text(topic)}).get()
        return 0

    def event_unsubscribe(self, topic):
        """Receive them no more; FileNotFoundError if there is no such subscription."""
        if topic is None:
            raise OSError(errno.EINVAL, message.strerror(errno.EINVAL))
        _as_in_c(self.rpc("event.unsubscribe", {"topic": message.topic_text(topic)}).get)
        return 0

    def event_create(self, topic, payload=None):
        """An event message, for `send`."""
        return Message(message.EVENT, _c_string("topic", topic), payload_text(payload))

    def send(self, msg, flags=0):
        """Send a message made by `event_create`."""
        payload = {"topic": _c_message(msg).topic}
        if msg.payload_str is not None:
            payload["payload"] = msg.payload
        self.rpc("event.publish", payload).get()
        return 0

    def event_send(self, topic, payload=None):
        """Publish an event."""
        return self.send(self.event_create(topic, payload))

    def recv(self, type_mask=15, match_tag=message.MATCHTAG_NONE, topic_glob=None, flags=0):
        """Wait for the next message of a type and return it; others stay for the reactor.

        Args:
            type_mask (int): FLUX_MSGTYPE_* bits
            match_tag (int): accepted for the sake of the signature
            topic_glob: None; the bindings of a real Flux cannot take one either
            flags (int): FLUX_O_NONBLOCK: do not wait

        Raises:
            BlockingIOError: there is none yet, with FLUX_O_NONBLOCK
            TypeError: there is a topic_glob
        """
        if topic_glob is not None:
            raise TypeError(
                "initializer for ctype 'char *' must be a cdata pointer, "
                f"not {type(topic_glob).__name__}"
            )
        return self.task.take_message(lambda msg: msg.type & type_mask, wait=not flags & O_NONBLOCK)

    def event_recv(self, topic=None):
        """Wait for the next event and return its message (see `recv`)."""
        return self.recv(message.EVENT, topic_glob=topic)

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
        return watchers.IdleWatcher(self, callback, args)

    def prepare_watcher_create(self, callback, args=None):
        return watchers.PrepareWatcher(self, callback, args)

    def check_watcher_create(self, callback, args=None):
        return watchers.CheckWatcher(self, callback, args)

    def fd_watcher_create(self, fd, callback, events=None, args=None):
        return watchers.FDWatcher(self, fd, callback, events, args)

    def signal_watcher_create(self, signum, callback, args=None):
        return watchers.SignalWatcher(self, signum, callback, args)

    # -- the reactor ---------------------------------------------------------------------------

    @classmethod
    def reactor_running(cls):
        """Whether whoever calls is in a reactor."""
        return _state().get("depth", 0) > 0

    @classmethod
    def reactor_enter(cls):
        _state()["depth"] = _state().get("depth", 0) + 1

    @classmethod
    def reactor_exit(cls):
        _state()["depth"] -= 1

    @contextlib.contextmanager
    def in_reactor(self):
        """A block that counts as part of the reactor."""
        self.reactor_enter()
        try:
            yield
        finally:
            self.reactor_exit()

    @classmethod
    def set_exception(cls, exception):
        """Have the reactor that runs raise `exception` when it ends; returns the one before."""
        former = _state().get("exception")
        _state()["exception"] = exception
        return former

    @classmethod
    def raise_if_exception(cls):
        """Raise what `set_exception` was given, once."""
        exception = cls.set_exception(None)
        if exception is not None:
            raise exception

    def reactor_run(self, reactor=None, flags=0):
        """Handle messages, timers and the rest until stopped.

        Args:
            reactor: accepted for the sake of the signature
            flags (int): FLUX_REACTOR_NOWAIT: only what is there; FLUX_REACTOR_ONCE: the first thing

        Returns:
            int: watchers still active; -1 after `reactor_stop_error`

        Raises:
            whatever leaves a callback, SystemExit excepted
        """
        with self.in_reactor():
            left = self.task.reactor_run(flags)
        self.raise_if_exception()
        return left

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
            TypeError: level is not an integer, or text is neither str nor bytes
        """
        if not isinstance(level, int):
            raise TypeError("an integer is required")
        if not isinstance(text, (str, bytes)):
            raise TypeError(f"log: text must be str or bytes, not {type(text).__name__}")
        self.rpc(
            "log.append",
            {"level": level, "name": self.task.log_name, "text": payload_text(text)},
            flags=RPC_NORESPONSE,
        )

    def get_rank(self):
        return int(self.attr_get("rank"))

    def attr_get(self, name):
        """A broker attribute.

        Raises:
            FileNotFoundError: there is none of that name
        """
        name = _c_string("attribute name", name)
        return _as_in_c(self.rpc("attr.get", {"name": name}).get)["value"]

    def attr_set(self, name, value):
        """Set a broker attribute.

        Raises:
            ValueError: name or value is not a string
            OSError: it cannot be set (EINVAL, ENOENT)
        """
        for what, text in (("name", name), ("value", value)):
            if not isinstance(text, str):
                raise ValueError(f"Attribute {what} must be a string")
        _as_in_c(self.rpc("attr.set", {"name": name, "value": value}).get)

    def attr_remove(self, name):
        """Remove a broker attribute; a missing one is no error."""
        if not isinstance(name, str):
            raise ValueError("Attribute name must be a string")
        self.rpc("attr.rm", {"name": name}).get()

    def conf_get(self, key=None, default=None, update=False):
        """The configuration, or the value of a dotted `key`, or `default`.

        It is fetched once and kept in the task; `update` fetches it again.
        """
        conf = self.task.aux.get("conf")
        if conf is None or update:
            conf = self.task.aux["conf"] = self.rpc("config.get").get()
        if key is None:
            return conf
        return lookup_path(conf, key, default)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.task.close()

    @property
    def handle(self):
        """Itself: what the bindings call the handle of a handle."""
        return self

    def about_to_wait(self, future):
        """Called before somebody waits for an answer; may raise."""

    def disconnect(self):
        """Close it: an outside program's connection ends, and a task's requests find nobody any more."""
        self.task.close()
        if self.kernel.uplink is not None:
            self.kernel.uplink.close()
            self.kernel.dispose()

    def pollfd(self):
        """The descriptor that becomes readable when something arrives, of an outside program."""
        if self.kernel.uplink is None:
            raise OSError(errno.ENOSYS, message.strerror(errno.ENOSYS))
        return self.kernel.uplink.fileno()

    def incref(self):
        """Keep it alive for somebody else: here whoever refers to it does."""

    def close(self):
        raise RuntimeError(
            "a Flux handle closes itself when it is no longer used; do not call close()"
        )


def _c_string(what, value):
    """A string for a function that in the real bindings is one of the C library's."""
    if value is None:
        raise OSError(errno.EINVAL, message.strerror(errno.EINVAL))
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise message.InvalidArguments(f"{what} must be a string, not {value!r}")
    return value


def _c_message(msg):
    """A message for such a function."""
    if msg is None:
        raise OSError(errno.EINVAL, message.strerror(errno.EINVAL))
    if not isinstance(msg, Message):
        raise message.InvalidArguments(f"not a message: {msg!r}")
    return msg


def _as_in_c(function):
    """Call a function that in the real bindings is one of the C library's, whose errors have no text."""
    try:
        return function()
    except OSError as exc:
        raise OSError(exc.errno, message.strerror(exc.errno)) from None
