# SPDX-License-Identifier: LGPL-3.0-or-later
"""The scheduler's handle in a fake instance: the engine's handle, with the part of ``flux.Flux``
used by schedulers.

Arguments and errors are the same. Functions of the bindings that take a handle, such as those in
``flux.kvs``, do not accept this one; those used by `flux.scheduler` are methods here
(`flux.scheduler.host`).
"""

from __future__ import annotations

import errno
import importlib
import json
import os
from typing import Any, Callable

from flux_engine.kernel import reactor
from flux_engine.kernel.direct import DirectReactor
from flux_engine.kernel.handle import Flux
from flux_engine.kernel.listener import Listener
from flux_engine.kernel.message import Message
from flux_engine.kernel.reactor import CALL, Call

#: Initial time in seconds since the epoch: fixed, so that all runs have the same times.
START_TIME = 1_700_000_000.0


class FakeMessage(Message):
    """A request sent by the test, with a payload as text or None, or an event."""

    __slots__ = ("answered",)

    def __init__(
        self,
        topic: str,
        text: str | None,
        answered: Callable[[int, str | None], Any] | None = None,
        type: int = 1,
        userid: int = 0,
        rolemask: int = 1,
        sender: Any = None,
    ) -> None:
        super().__init__(type, topic, text, flags=0 if answered is not None else 4)
        self.userid = userid  # the sender
        self.rolemask = rolemask  # the sender's roles (RFC 12)
        self.sender = sender  # identifies the client; compared by identity
        #: ``answered(errnum, text)`` receives each response; None: there is no sender to receive it
        self.answered = answered


class Reactor(DirectReactor):
    """Calls timers and callbacks that are due, turn by turn; the clock stands still until all else is done.

    Services answer at once. Messages and callbacks of the scheduler wait for the next turn; while it waits for an answer,
    only services run. The order is fixed, so that equal tests have equal runs.
    """

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.calls = 0  # number of messages and callbacks of the scheduler so far

    def respond(self, msg: Message, answer: Message, responder: Any = None) -> None:
        if isinstance(msg, FakeMessage):
            if msg.answered is not None:
                msg.answered(answer.errnum, answer.payload_str)
        else:
            super().respond(msg, answer, responder)

    def undeliverable(self, msg: Any) -> None:
        """Ignored: requests to a scheduler are answered when it ends."""

    def _poll(self) -> None:
        self.time = self.clock.now()

    # -- turning -----------------------------------------------------------------------------------

    def run_until_idle(self) -> None:
        """Turn until no event is due without time passing. Raises RuntimeError if events do not
        end."""
        self._poll()
        first = self.turns
        while not self.is_idle():
            if self.turns - first > reactor.MAX_TURNS_AT_ONE_TIME:
                raise reactor.restless()
            self.turn()

    def advance(self, seconds: float) -> None:
        """Let time pass, and process all events due meanwhile."""
        self._poll()
        end = self.time + seconds
        self.run_until_idle()
        while True:
            when = self.next_timer()
            if when is None or when > end:
                break
            self.set_time(when)
            self.run_until_idle()
        self.set_time(end)
        self.run_until_idle()

    def switch_to_hub(self) -> None:
        """Process one event of a service, and advance the time if necessary: the scheduler waits
        for an answer. Raises RuntimeError if no service will answer."""
        for place, (endpoint, item) in enumerate(self.ready):
            if not isinstance(endpoint, _Door):
                del self.ready[place]
                if endpoint is CALL:
                    item()
                else:
                    endpoint.receive(item)
                return
        entry = min((entry for entry in self._timers if isinstance(entry[2], Call)), default=None)
        if entry is None:
            raise RuntimeError("the scheduler waits for an answer that will never come")
        self.set_time(entry[0])
        entry[2].expired(entry)


class _Door:
    """The endpoint for a scheduler's messages, which passes one per turn."""

    def __init__(self, task: SchedulerTask) -> None:
        self._task = task

    @property
    def closed(self) -> bool:
        return bool(self._task.closed)

    def receive(self, item: Any) -> None:
        self._task.kernel.calls += 1
        self._task.dispatch(item)


class SchedulerTask(Listener):
    """The scheduler, for its peers. An exception in its callbacks leaves the reactor."""

    def __init__(self, reactor: Reactor, name: str) -> None:
        super().__init__(reactor, name)
        self._door = _Door(self)

    def post(self, item: Any) -> None:
        self.kernel.ready.append((self._door, item))

    def interrupt(self, function: Callable[..., Any], *args: Any) -> None:
        self.kernel.calls += 1
        function(*args)

    def guard(self, function: Callable[..., Any], *args: Any) -> None:
        function(*args)


class FakeTransaction:
    """Changes to the key-value store, as ``flux.kvs.KVSTxn``."""

    def __init__(self, handle: FakeHandle) -> None:
        self._handle = handle
        self._changes: list[list[Any]] = []

    def put(self, key: str, value: Any, raw: bool = False) -> None:
        """Store a JSON value, or a text unchanged if `raw`."""
        self._changes.append([key, value if raw else json.dumps(value)])

    def commit_async(self) -> Any:
        return self._handle.rpc("kvs.commit", {"changes": self._changes})


def _bindings_handle(name: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a ``flux_t`` that leads nowhere (``loop://``), and the objects that must live as long.
    The host's BrokerModule reads the module's name from it, and reports the module's state to it.
    """
    import flux.core.handle

    core = importlib.import_module("_flux._core")
    handle: Any = flux.core.handle.Flux("loop://")
    text = core.ffi.new("char[]", name.encode())
    core.lib.flux_aux_set(handle.handle, b"flux::name", text, core.ffi.NULL)
    return handle.handle, (handle, text)


class FakeHandle(Flux):
    """The handle of a scheduler in a `FakeInstance`."""

    def __init__(self, instance: Any, name: str) -> None:
        super().__init__(SchedulerTask(instance.reactor, name))
        self.instance = instance
        self.watchers = self.task.watchers  # the active watchers
        self.stopped: int | None = None  # None while its reactor runs, then 0, or -1 after an error
        self.in_reactor = False  # whether the scheduler's reactor runs, or has run
        self._bindings, self._kept = _bindings_handle(name)

    @property
    def handle(self) -> Any:
        return self._bindings

    @property
    def closed(self) -> bool:
        return bool(self.task.closed)

    def close(self) -> None:
        """Destroy the watchers: the module is gone."""
        self.task.close()

    # -- the reactor -------------------------------------------------------------------------------

    def reactor_run(self, reactor: Any = None, flags: int = 0) -> int:
        """Return at once: the test turns the reactor, unlike in a real instance, where a module's
        ``run()`` blocks here."""
        self.in_reactor = True
        return 0

    def reactor_stop(self, reactor: Any = None) -> None:
        self._stop(0)

    def reactor_stop_error(self, reactor: Any = None) -> None:
        self._stop(-1)

    def _stop(self, code: int) -> None:
        # Before the reactor runs there is nothing to stop.
        if self.in_reactor and self.stopped is None:
            self.stopped = code
            self.instance.scheduler_stops()

    def scheduler_runs(self, scheduler: Any) -> None:
        """Note the scheduler, which begins to run (`flux.scheduler.host.Host`)."""
        self.instance.scheduler_runs(scheduler)

    def log(self, level: int, text: str) -> None:
        self.instance.log.append((level, text))

    # -- functions of the bindings that take a handle (flux.scheduler.host) ------------

    def kvs_get(self, key: str) -> Any:
        """Return the value of a key: parsed as JSON if possible, else the text. Raises
        FileNotFoundError if the key does not exist."""
        text = self.instance.kvs.values.get(key)
        if text is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        try:
            return json.loads(text)
        except ValueError:
            return text

    def kvs_transaction(self) -> FakeTransaction:
        return FakeTransaction(self)


class HandleWithoutEstimates(FakeHandle):
    """A handle whose scheduler sends users no estimates and reasons."""

    #: see `flux.scheduler.host.Host`
    wants_forecast = False
