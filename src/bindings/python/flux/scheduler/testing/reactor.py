# SPDX-License-Identifier: LGPL-3.0-or-later
"""Time and turns: the engine's reactor, with a clock that stands still until nothing else is left to do.

Services answer at once. Messages and callbacks of the scheduler wait for the next turn, and while the scheduler waits for
an answer, only the services go on. All of it comes in one fixed order, so that the same test gives the same run.
"""

from __future__ import annotations

from typing import Any, Callable

from flux_engine.kernel import clock as engine_clock
from flux_engine.kernel import reactor
from flux_engine.kernel.direct import DirectReactor
from flux_engine.kernel.listener import Listener
from flux_engine.kernel.message import Message
from flux_engine.kernel.reactor import CALL, Call

#: Where the clock starts, seconds since the epoch: a fixed time, so that every run has the same
#: times.
START_TIME = 1_700_000_000.0


class VirtualClock(engine_clock.VirtualClock):
    """A clock that moves only when it is told to.

    Args:
        start: where it starts, seconds since the epoch
    """

    def __init__(self, start: float = START_TIME) -> None:
        super().__init__(start)

    def stopwatch(self) -> float:
        """Seconds to time code with: none pass, so that the speed of the machine decides nothing."""
        return float(self.now())


class FakeMessage(Message):
    """A request of the test's, or an event.

    Args:
        topic (str): service and method
        text (str): the payload; None: there is none
        answered: ``answered(errnum, text)`` takes each response; None: no sender waits for one
        userid (int): of the sender
        rolemask (int): with which roles (RFC 12)
        sender: stands for the client that sends it; compared by identity
    """

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
        self.userid = userid
        self.rolemask = rolemask
        self.sender = sender
        self.answered = answered


class Reactor(DirectReactor):
    """Calls due timers and callbacks, turn by turn.

    Args:
        clock: gives the time: `VirtualClock`, or anything with its methods

    Attributes:
        turns (int): turns so far
        calls (int): messages and callbacks of the scheduler so far
    """

    def __init__(self, clock: Any = None) -> None:
        super().__init__(VirtualClock() if clock is None else clock)
        self.calls = 0

    def respond(self, msg: Message, answer: Message, responder: Any = None) -> None:
        if isinstance(msg, FakeMessage):
            if msg.answered is not None:
                msg.answered(answer.errnum, answer.payload_str)
        else:
            super().respond(msg, answer, responder)

    def undeliverable(self, msg: Any) -> None:
        """Requests to a scheduler are answered when it ends."""

    def _poll(self) -> None:
        self.time = self.clock.now()

    # -- turning -----------------------------------------------------------------------------------

    def run_until_idle(self) -> None:
        """Turn until nothing can happen before time passes.

        Raises:
            RuntimeError: that does not come
        """
        self._poll()
        first = self.turns
        while not self.is_idle():
            if self.turns - first > reactor.MAX_TURNS_AT_ONE_TIME:
                raise reactor.restless()
            self.turn()

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due meanwhile.

        Args:
            seconds: how long, 0 or more
        """
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
        """The scheduler waits for an answer: let a service do one thing, and time go on if need be.

        Raises:
            RuntimeError: no service will ever answer
        """
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
            raise RuntimeError("the scheduler waits for an answer that nobody will give")
        self.set_time(entry[0])
        entry[2].expired(entry)


class _Door:
    """The endpoint that brings a scheduler its messages, one a turn."""

    def __init__(self, task: SchedulerTask) -> None:
        self._task = task

    @property
    def closed(self) -> bool:
        return bool(self._task.closed)

    def receive(self, item: Any) -> None:
        self._task.kernel.calls += 1
        self._task.dispatch(item)


class SchedulerTask(Listener):
    """The scheduler as its peers see it. An exception in its callbacks leaves the reactor."""

    def __init__(self, reactor: Reactor, name: str) -> None:
        super().__init__(reactor, name)
        self._door = _Door(self)

    def post(self, item: Any) -> None:
        self.kernel.ready.append((self._door, item))

    def interrupt(self, function: Callable[[], Any]) -> None:
        self.kernel.calls += 1
        function()

    def guard(self, function: Callable[..., Any], *args: Any) -> None:
        function(*args)
