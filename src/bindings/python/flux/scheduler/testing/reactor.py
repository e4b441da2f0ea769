# SPDX-License-Identifier: LGPL-3.0-or-later
"""Time and turns: the engine's reactor, with a clock that stands still until all else is done.

Services answer at once. Messages and callbacks of the scheduler wait for the next turn; while the
scheduler waits for an answer, only services run. The order is fixed, so that equal tests have equal
runs.
"""

from __future__ import annotations

from typing import Any, Callable

from flux_engine.kernel import reactor
from flux_engine.kernel.direct import DirectReactor
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
    """Calls timers and callbacks that are due, turn by turn."""

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
