# SPDX-License-Identifier: LGPL-3.0-or-later
"""The scheduler's handle in a fake instance: requests, responses, watchers and futures without a
broker.

It has what schedulers use of ``flux.Flux``, with the same arguments and errors. A function of the
bindings that takes a handle, such as those of ``flux.kvs``, does not take this one; what
`flux.scheduler` needs of them are methods here (`flux.scheduler.handle_functions`).
"""

from __future__ import annotations

import errno
import fnmatch
import importlib
import json
import os
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from flux.scheduler.testing.instance import FakeInstance
    from flux.scheduler.testing.reactor import Reactor, Timer

#: Types of messages, flags of RPCs, and roles, as in flux.constants.
REQUEST, RESPONSE, EVENT = 1, 2, 4
RPC_NORESPONSE, RPC_STREAMING = 1, 2
ROLE_OWNER, ROLE_USER = 1, 2


def payload_text(payload: Any) -> str | None:
    """The text that a payload is sent as: None, str and bytes as they are, anything else as JSON.

    Raises:
        TypeError: it cannot be JSON
    """
    if payload is None or isinstance(payload, str):
        return payload
    if isinstance(payload, bytes):
        return payload.decode("utf-8", "surrogateescape")
    return json.dumps(payload)


class FakeMessage:
    """A request or a response, with the attributes of ``flux.message.Message``.

    Attributes:
        type (int): REQUEST or RESPONSE
        topic (str): service and method
        payload_str (str): the payload as text; None: there is none
        userid (int): who sent it
        rolemask (int): with which roles: ROLE_OWNER, ROLE_USER
        errnum (int): of a response: 0, or a POSIX errno
        streaming (bool): any number of responses may follow
        sender: stands for the client that sent it; compared by identity
        noresponse (bool): nobody waits for a response
        answered: ``answered(errnum, text)`` takes each response; None: nobody does
    """

    __slots__ = (
        "answered",
        "errnum",
        "noresponse",
        "payload_str",
        "rolemask",
        "sender",
        "streaming",
        "topic",
        "type",
        "userid",
    )

    def __init__(
        self,
        topic: str,
        text: str | None,
        answered: Callable[[int, str | None], Any] | None = None,
        type: int = REQUEST,
        userid: int = 0,
        rolemask: int = ROLE_OWNER,
        streaming: bool = False,
    ) -> None:
        self.type = type
        self.topic = topic
        self.payload_str = text
        self.userid = userid
        self.rolemask = rolemask
        self.errnum = 0
        self.streaming = streaming
        self.sender: Any = None
        self.noresponse = answered is None
        self.answered = answered

    @property
    def payload(self) -> Any:
        """The payload, parsed anew at each access: whoever takes it may change it.

        Raises:
            TypeError: there is none
            ValueError: it is not JSON
        """
        return json.loads(self.payload_str)  # type: ignore[arg-type]  # None is the TypeError

    def answer(self, errnum: int, text: str | None) -> None:
        """Hand a response to who waits for it."""
        if self.answered is not None:
            self.answered(errnum, text)

    def __repr__(self) -> str:
        return f"<{self.topic} {self.payload_str}>"


class FakeFuture:
    """An answer to come, with the methods of ``flux.rpc.RPC``.

    Args:
        reactor: which calls back
        topic: what was asked
        streaming: more than one response may come
        plain: `get` returns None whatever the response carries
    """

    def __init__(
        self, reactor: Reactor, topic: str, streaming: bool = False, plain: bool = False
    ) -> None:
        self.topic = topic
        self.streaming = streaming
        self._reactor = reactor
        self._plain = plain
        self._answers: deque[tuple[int, str | None]] = deque()
        self._callback: Callable[[], Any] | None = None

    def arrive(self, errnum: int, text: str | None) -> None:
        """A response has come."""
        self._answers.append((errnum, text))
        self._post()

    def is_ready(self) -> bool:
        """Whether `get` returns, or raises, at once."""
        return bool(self._answers)

    def wait_for(self, timeout: float = -1.0) -> FakeFuture:
        """Wait for at most `timeout` seconds; without end if it is negative.

        Raises:
            TimeoutError: nothing has come
        """
        if not self._reactor.wait(self.is_ready, None if timeout < 0 else timeout):
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        return self

    def get_str(self) -> str | None:
        """Wait for the response; returns its payload as text, None if it has none.

        Raises:
            OSError: the request failed
            RuntimeError: nobody will ever answer
        """
        self._reactor.wait(self.is_ready)
        errnum, text = self._answers[0]
        if errnum:
            raise OSError(errnum, text or os.strerror(errnum))
        return text

    def get(self) -> Any:
        """Wait for the response; returns its payload, None if it has none. Raises as `get_str`."""
        text = self.get_str()
        return None if text is None or self._plain else json.loads(text)

    def reset(self) -> None:
        """Done with this response of a stream: `get` waits for the next."""
        if self._answers:
            self._answers.popleft()

    def then(
        self, callback: Callable[..., Any], *args: Any, timeout: float = -1.0, **kwargs: Any
    ) -> FakeFuture:
        """Have the reactor call ``callback(future, *args, **kwargs)`` for each response; returns
        the future."""
        if self._callback is not None:
            raise FileExistsError(errno.EEXIST, "then callback already exists for this future")
        self._callback = lambda: callback(self, *args, **kwargs)
        for _ in self._answers:
            self._post()
        if timeout >= 0:
            self._reactor.call_later(timeout, self._expire)
        return self

    def _expire(self) -> None:
        if not self._answers and self._callback is not None:
            self.arrive(errno.ETIMEDOUT, None)

    def _post(self) -> None:
        if self._callback is not None:
            self._reactor.post(self._call, of_scheduler=True)

    def _call(self) -> None:
        if self._callback is not None and self._answers:
            callback = self._callback
            if not self.streaming:
                self._callback = None
            callback()

    def stop(self) -> None:
        """No more callbacks."""
        self._callback = None

    def cancel(self, stop: bool = False) -> None:
        """The caller has lost interest: the same as `stop` here."""
        self.stop()

    def __enter__(self) -> FakeFuture:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


class _Watcher:
    """What all watchers share: ``callback(handle, watcher, revents, args)`` is called by the
    reactor."""

    def __init__(self, handle: FakeHandle, callback: Callable[..., Any] | None, args: Any) -> None:
        self.flux_handle = handle
        self.callback = callback
        self.args = args
        self.active = False

    def start(self) -> Any:
        if not self.active:
            self.active = True
            self.flux_handle.watchers.add(self)
            self._arm()
        return self

    def stop(self) -> Any:
        if self.active:
            self.active = False
            self.flux_handle.watchers.discard(self)
            self._disarm()
        return self

    def destroy(self) -> None:
        self.stop()

    def is_active(self) -> bool:
        return self.active

    def __enter__(self) -> Any:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _arm(self) -> None:
        raise NotImplementedError

    def _disarm(self) -> None:
        raise NotImplementedError


class TimerWatcher(_Watcher):
    """Calls back after a time, and then again and again if it repeats.

    As in the bindings, a timer that was stopped goes on with what was left, and `reset` of one that
    runs does nothing.
    """

    def __init__(
        self,
        handle: FakeHandle,
        after: float,
        callback: Callable[..., Any] | None,
        repeat: float,
        args: Any,
    ) -> None:
        super().__init__(handle, callback, args)
        if after < 0 or repeat < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self.after = after
        self.repeat = repeat
        self._left, self._every = float(after), float(repeat)
        self._timer: Timer | None = None

    def _arm(self) -> None:
        reactor = self.flux_handle.reactor
        when = reactor.now() + max(0.0, self._left)
        self._timer = reactor.call_at(when, self._expired, of_scheduler=True)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._left = self._timer.when - self.flux_handle.reactor.now()
            self._timer.cancel()
            self._timer = None

    def reset(self, after: float | None = None, repeat: float | None = None) -> Any:
        """Start a timer that does not run, for the full time.

        Args:
            after (float): seconds; default: as it was made
            repeat (float): seconds; default: as it was made
        """
        if not self.active:
            self._left = float(self.after if after is None else after)
            self._every = float(self.repeat if repeat is None else repeat)
            self.start()
        return self

    def _expired(self) -> None:
        timer, self._timer = self._timer, None
        if self._every > 0 and timer is not None:
            when = timer.when + self._every
            self._timer = self.flux_handle.reactor.call_at(when, self._expired, of_scheduler=True)
        else:
            self.active = False
            self.flux_handle.watchers.discard(self)
            self._left = 0.0
        if self.callback is not None:
            self.callback(self.flux_handle, self, 0, self.args)


class MessageWatcher(_Watcher):
    """Calls ``callback(handle, watcher, message, args)`` for requests that match."""

    def __init__(
        self,
        handle: FakeHandle,
        callback: Callable[..., Any] | None,
        type_mask: int,
        topic_glob: str,
        args: Any,
        rolemask: int | None,
    ) -> None:
        super().__init__(handle, callback, args)
        self.type_mask = type_mask
        self.topic_glob = topic_glob or "*"
        self._is_pattern = any(char in "*?[" for char in self.topic_glob)
        self.rolemask = ROLE_OWNER | (rolemask or 0)

    def _arm(self) -> None:
        # The newest is asked first.
        self.flux_handle.message_watchers.insert(0, self)
        self.flux_handle.forget_found()

    def _disarm(self) -> None:
        self.flux_handle.message_watchers.remove(self)
        self.flux_handle.forget_found()

    def matches(self, msg: FakeMessage) -> bool:
        if not self.type_mask & msg.type:
            return False
        if self._is_pattern:
            return fnmatch.fnmatchcase(msg.topic, self.topic_glob)
        return msg.topic == self.topic_glob


class LoopWatcher(_Watcher):
    """Calls back once a turn: at its beginning (prepare, check), or at its end (idle)."""

    def __init__(
        self,
        handle: FakeHandle,
        callback: Callable[..., Any] | None,
        args: Any,
        calls: list[Callable[[], Any]],
    ) -> None:
        super().__init__(handle, callback, args)
        self._calls = calls

    def _arm(self) -> None:
        self._calls.append(self._fire)

    def _disarm(self) -> None:
        self._calls.remove(self._fire)

    def _fire(self) -> None:
        if self.callback is not None:
            self.callback(self.flux_handle, self, 0, self.args)


class FakeTransaction:
    """Changes of the key-value store, with the methods of ``flux.kvs.KVSTxn``."""

    def __init__(self, handle: FakeHandle) -> None:
        self._handle = handle
        self._changes: list[list[Any]] = []

    def put(self, key: str, value: Any, raw: bool = False) -> None:
        """Store a value: what JSON can hold, or text as it is if `raw`."""
        self._changes.append([key, value if raw else json.dumps(value)])

    def unlink(self, key: str) -> None:
        """Remove a key."""
        self._changes.append([key, None])

    def commit_async(self, flags: int = 0) -> FakeFuture:
        """Make the changes; returns a future."""
        return self._handle.rpc("kvs.commit", {"changes": self._changes})

    def commit(self, flags: int = 0) -> int:
        """Make the changes, and wait until they are made."""
        self.commit_async(flags).get()
        return 0


def _bindings_handle(name: str) -> tuple[Any, tuple[Any, ...]]:
    """The ``flux_t`` that the host's BrokerModule asks for the module's name, and that it tells of
    the module's state, and what has to be kept with it. It leads nowhere (``loop://``).
    """
    import flux.core.handle

    core = importlib.import_module("_flux._core")
    handle: Any = flux.core.handle.Flux("loop://")
    text = core.ffi.new("char[]", name.encode())
    core.lib.flux_aux_set(handle.handle, b"flux::name", text, core.ffi.NULL)
    return handle.handle, (handle, text)


class FakeHandle:
    """The handle that a scheduler in a `FakeInstance` is given.

    Args:
        instance: where it is
        name: the module's name

    Attributes:
        watchers (set): those that are active
        stopped (int): None while its reactor runs, then 0, or -1 after an error
        subscriptions (list): topics of events subscribed to
        in_reactor (bool): the scheduler's reactor runs, or has run
        closed (bool): the scheduler has ended
    """

    #: `reactor_run` comes back at once (`flux.scheduler.host.HostCapabilities`)
    runs_later = True

    def __init__(self, instance: FakeInstance, name: str) -> None:
        self.instance = instance
        self.reactor = instance.reactor
        self.watchers: set[_Watcher] = set()
        self.message_watchers: list[MessageWatcher] = []
        #: by type and topic of a message, the watchers that take such
        self._found: dict[tuple[int, str], list[MessageWatcher]] = {}
        self.subscriptions: list[str] = []
        self.stopped: int | None = None
        self.in_reactor = False
        self.closed = False
        self.handle, self._kept = _bindings_handle(name)

    # -- requests and responses --------------------------------------------------------------------

    def rpc(
        self, topic: str, payload: Any = None, nodeid: int = 0xFFFFFFFF, flags: int = 0
    ) -> FakeFuture:
        """Send a request to a service of the instance; returns its future.

        Args:
            topic (str): service and method
            payload: None, str or bytes as they are, else what JSON can hold
            nodeid (int): ignored: there is one broker
            flags (int): FLUX_RPC_STREAMING, FLUX_RPC_NORESPONSE

        Raises:
            TypeError: the payload cannot be JSON
        """
        future = FakeFuture(self.reactor, topic, bool(flags & RPC_STREAMING))
        answered = None if flags & RPC_NORESPONSE else future.arrive
        msg = FakeMessage(
            topic, payload_text(payload), answered, streaming=bool(flags & RPC_STREAMING)
        )
        self.instance.deliver_request(msg)
        return future

    def respond(self, msg: FakeMessage, payload: Any = None) -> int:
        """Answer a request.

        Raises:
            TypeError: the payload cannot be JSON
        """
        msg.answer(0, payload_text(payload))
        return 0

    def respond_error(self, msg: FakeMessage, errnum: int, errmsg: str | None = None) -> int:
        """Answer a request with an error.

        Args:
            errnum (int): a POSIX errno
            errmsg (str): one line for a person
        """
        msg.answer(errnum, errmsg or os.strerror(errnum))
        return 0

    def service_register(self, name: str) -> FakeFuture:
        """Take the requests to a service; the future fails with EEXIST if somebody does already."""
        return self._plain("service.add", name)

    def service_unregister(self, name: str) -> FakeFuture:
        """Give up a service."""
        return self._plain("service.remove", name)

    def _plain(self, topic: str, name: str) -> FakeFuture:
        future = FakeFuture(self.reactor, topic, plain=True)
        self.instance.deliver_request(
            FakeMessage(topic, json.dumps({"service": name}), future.arrive)
        )
        return future

    def event_subscribe(self, topic: str) -> int:
        """Take events whose topics begin with `topic`."""
        self.subscriptions.append(topic)
        return 0

    def event_unsubscribe(self, topic: str) -> int:
        """Undo `event_subscribe`."""
        self.subscriptions.remove(topic)
        return 0

    def event_send(self, topic: str, payload: Any = None) -> int:
        """Publish an event: only the scheduler itself takes any here."""
        self.instance.publish(topic, payload)
        return 0

    def forget_found(self) -> None:
        """The watchers of messages have changed."""
        self._found.clear()

    def dispatch(self, msg: FakeMessage) -> None:
        """Call the watcher of a request, or all those of an event."""
        # In one step, as in C: it is part of the time that a test measures of a scheduler.
        found = self._found.get((msg.type, msg.topic))
        if found is None:
            found = [watcher for watcher in self.message_watchers if watcher.matches(msg)]
            self._found[msg.type, msg.topic] = found
        if msg.type == EVENT:
            for watcher in found:
                self._call(watcher, msg)
        elif not found:
            msg.answer(errno.ENOSYS, f"Unknown service method '{msg.topic}'")
        elif not found[0].rolemask & msg.rolemask:
            msg.answer(errno.EPERM, "Request requires owner credentials")
        else:
            self._call(found[0], msg)

    def _call(self, watcher: MessageWatcher, msg: FakeMessage) -> None:
        if watcher.callback is not None:
            watcher.callback(self, watcher, msg, watcher.args)

    # -- watchers ----------------------------------------------------------------------------------

    def msg_watcher_create(
        self,
        callback: Callable[..., Any] | None,
        type_mask: int = 15,
        topic_glob: str = "*",
        args: Any = None,
        match_tag: int = 0,
        rolemask: int | None = None,
    ) -> MessageWatcher:
        """A watcher of requests and events; the newest that matches a request takes it."""
        return MessageWatcher(self, callback, type_mask, topic_glob, args, rolemask)

    def timer_watcher_create(
        self,
        after: float,
        callback: Callable[..., Any] | None,
        repeat: float = 0.0,
        args: Any = None,
    ) -> TimerWatcher:
        """A timer; times are in seconds of the instance's clock."""
        return TimerWatcher(self, after, callback, repeat, args)

    def prepare_watcher_create(
        self, callback: Callable[..., Any] | None = None, args: Any = None
    ) -> LoopWatcher:
        """A watcher called at the beginning of each turn."""
        return LoopWatcher(self, callback, args, self.reactor.every_turn)

    def check_watcher_create(
        self, callback: Callable[..., Any] | None = None, args: Any = None
    ) -> LoopWatcher:
        """A watcher called at the beginning of each turn, after those that prepare."""
        return LoopWatcher(self, callback, args, self.reactor.every_turn)

    def idle_watcher_create(
        self, callback: Callable[..., Any] | None = None, args: Any = None
    ) -> LoopWatcher:
        """A watcher called at the end of each turn; while there is one, no time passes."""
        return LoopWatcher(self, callback, args, self.reactor.idle)

    def close(self) -> None:
        """The module is gone: its watchers are destroyed."""
        self.closed = True
        for watcher in list(self.watchers):
            watcher.destroy()

    # -- the reactor -------------------------------------------------------------------------------

    def reactor_run(self, reactor: Any = None, flags: int = 0) -> int:
        """Where a module's ``run()`` stays on a real instance. Here it comes back at once, since it
        is the test that has the reactor turn."""
        self.in_reactor = True
        return 0

    def reactor_stop(self, reactor: Any = None) -> None:
        """End the scheduler."""
        self._stop(0)

    def reactor_stop_error(self, reactor: Any = None) -> None:
        """End the scheduler, with an error."""
        self._stop(-1)

    def _stop(self, code: int) -> None:
        # Before the reactor runs there is nothing to stop.
        if self.in_reactor and self.stopped is None:
            self.stopped = code
            self.instance.scheduler_stops()

    def get_reactor(self) -> Reactor:
        return self.reactor

    def reactor_now(self, reactor: Any = None) -> float:
        """Seconds since the epoch."""
        return self.reactor.now()

    def stopwatch(self) -> float:
        """Seconds to time code with; see `VirtualClock.stopwatch`."""
        return float(self.reactor.clock.stopwatch())

    # -- the broker --------------------------------------------------------------------------------

    def log(self, level: int, text: str) -> None:
        """Log a line at a syslog level, 0 to 7."""
        self.instance.log.append((level, text))

    def attr_get(self, name: str) -> str:
        """A broker attribute.

        Raises:
            FileNotFoundError: there is none of that name
        """
        try:
            return self.instance.attributes[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None

    def get_rank(self) -> int:
        return 0

    def conf_get(self, key: str | None = None, default: Any = None, update: bool = False) -> Any:
        """The configuration, or the value of a dotted key, or `default`."""
        value: Any = self.instance.config
        for part in () if key is None else key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return default
            value = value[part]
        return json.loads(json.dumps(value))

    # -- functions of the bindings that take a handle (flux.scheduler.handle_functions) ------------

    def kvs_get(self, key: str) -> Any:
        """What is stored under a key: parsed as JSON where it can be, else the text.

        Raises:
            FileNotFoundError: nothing is
        """
        text = self.instance.kvs.values.get(key)
        if text is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        try:
            return json.loads(text)
        except ValueError:
            return text

    def kvs_transaction(self) -> FakeTransaction:
        """A new transaction of the key-value store."""
        return FakeTransaction(self)

    def raise_job_exception(self, jobid: int, type: str, severity: int, note: str) -> FakeFuture:
        """Raise an exception on a job."""
        payload = {"id": jobid, "type": type, "severity": severity, "note": note}
        return self.rpc("job-manager.raise", payload)


class HandleWithoutEstimates(FakeHandle):
    """A handle whose scheduler tells users of pending jobs nothing."""

    #: see `flux.scheduler.host.HostCapabilities`
    wants_forecast = False
