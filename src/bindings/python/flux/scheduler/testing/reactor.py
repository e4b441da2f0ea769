# SPDX-License-Identifier: LGPL-3.0-or-later
"""Time and turns: a reactor whose clock stands still until nothing else is left to do.

What happens is either a call that was posted, or a timer that is due. Both are taken in one fixed
order, so that the same test gives the same run. Each belongs to the scheduler or to one of the
services around it: while the scheduler waits for an answer, only the services go on.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Any, Callable

#: Where the clock starts, seconds since the epoch: a fixed time, so that every run has the same
#: times.
START_TIME = 1_700_000_000.0

#: Turns at one moment after which nobody believes that the scheduler comes to rest. A pass over
#: 10,000 jobs that yields after each takes 10,000 turns.
MAX_TURNS_AT_ONE_TIME = 1_000_000


class VirtualClock:
    """A clock that moves only when it is told to.

    Args:
        start: where it starts, seconds since the epoch
    """

    def __init__(self, start: float = START_TIME) -> None:
        self._now = float(start)

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._now

    def advance_to(self, when: float) -> None:
        """Move to `when`; a time in the past is ignored."""
        self._now = max(self._now, when)

    def stopwatch(self) -> float:
        """Seconds to time code with: none pass, so that the speed of the machine decides nothing."""
        return self._now


class Timer:
    """A call that is due at a time; see `Reactor.call_at`.

    Attributes:
        when (float): seconds since the epoch
        cancelled (bool): it will not be called
    """

    __slots__ = ("cancelled", "function", "of_scheduler", "when")

    def __init__(self, when: float, function: Callable[[], Any], of_scheduler: bool) -> None:
        self.when = when
        self.function = function
        self.of_scheduler = of_scheduler
        self.cancelled = False

    def cancel(self) -> None:
        """Do not call it."""
        self.cancelled = True


class Reactor:
    """Calls what is due, turn by turn.

    In a turn, timers come first, then what was posted before the turn began.

    Args:
        clock: gives the time: `VirtualClock`, or anything with its methods

    Attributes:
        turns (int): turns so far
        calls (int): calls of what was due or posted so far
        every_turn (list): functions called at the beginning of each turn
        idle (list): functions called at the end of each turn; while there are any, the reactor has
            something to do
    """

    def __init__(self, clock: Any = None) -> None:
        self.clock = VirtualClock() if clock is None else clock
        self.turns = 0
        self.calls = 0
        self.every_turn: list[Callable[[], Any]] = []
        self.idle: list[Callable[[], Any]] = []
        self._timers: list[tuple[float, int, Timer]] = []
        self._serial = 0
        self._posted: deque[tuple[Callable[[], Any], bool]] = deque()

    def now(self) -> float:
        """Seconds since the epoch."""
        return float(self.clock.now())

    # -- what is to be called ----------------------------------------------------------------------

    def post(self, function: Callable[[], Any], of_scheduler: bool = False) -> None:
        """Have ``function()`` called in the next turn.

        Args:
            function: what is called
            of_scheduler: it is the scheduler's, and does not happen while the scheduler waits for
                an answer
        """
        self._posted.append((function, of_scheduler))

    def call_at(
        self, when: float, function: Callable[[], Any], of_scheduler: bool = False
    ) -> Timer:
        """Have ``function()`` called at a time.

        Args:
            when: seconds since the epoch
            function, of_scheduler: as for `post`

        Returns:
            Timer: to cancel it with
        """
        timer = Timer(when, function, of_scheduler)
        self._serial += 1
        heapq.heappush(self._timers, (when, self._serial, timer))
        return timer

    def call_later(
        self, seconds: float, function: Callable[[], Any], of_scheduler: bool = False
    ) -> Timer:
        """Have ``function()`` called after so many seconds; see `call_at`."""
        return self.call_at(self.now() + seconds, function, of_scheduler)

    def drop_scheduler(self) -> None:
        """The scheduler is gone: nothing of it is called any more."""
        self._posted = deque(entry for entry in self._posted if not entry[1])
        for _, _, timer in self._timers:
            timer.cancelled |= timer.of_scheduler

    # -- turning -----------------------------------------------------------------------------------

    def turn(self) -> None:
        """Let one turn pass."""
        self.turns += 1
        self.calls += 1
        idle = list(self.idle)
        for function in list(self.every_turn):
            function()
        # Timers that these start are for the next turn, or a timer of 0 s could hold the reactor.
        for timer in self._take_due(self.now()):
            if not timer.cancelled:
                self.calls += 1
                timer.function()
        for _ in range(len(self._posted)):
            if self._posted:
                self.calls += 1
                self._posted.popleft()[0]()
        for function in idle:
            if function in self.idle:
                function()

    def is_idle(self) -> bool:
        """Whether nothing can happen before time passes."""
        when = self.next_timer()
        return not self._posted and not self.idle and (when is None or when > self.now())

    def run_until_idle(self) -> None:
        """Turn until nothing can happen before time passes.

        Raises:
            RuntimeError: that does not come
        """
        first = self.turns
        while not self.is_idle():
            if self.turns - first > MAX_TURNS_AT_ONE_TIME:
                raise RuntimeError(
                    f"the scheduler does not come to rest: {MAX_TURNS_AT_ONE_TIME} turns of the reactor "
                    "at one time"
                )
            self.turn()

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due meanwhile.

        Args:
            seconds: how long, 0 or more
        """
        end = self.now() + seconds
        self.run_until_idle()
        while True:
            when = self.next_timer()
            if when is None or when > end:
                break
            self.clock.advance_to(when)
            self.run_until_idle()
        self.clock.advance_to(end)
        self.run_until_idle()

    def wait(self, is_ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """The scheduler waits: let the services go on, and time if need be, until ``is_ready()``.

        Args:
            is_ready: whether it has what it waits for
            timeout: seconds after which it gives up; None: never

        Returns:
            bool: whether it is ready; False: the time is up

        Raises:
            RuntimeError: nobody will ever answer
        """
        end = None if timeout is None else self.now() + timeout
        while not is_ready():
            if self._run_one_of_services():
                continue
            when = self._next_timer_of_services()
            if end is not None and (when is None or when > end):
                self.clock.advance_to(end)
                return is_ready()
            if when is None:
                raise RuntimeError("the scheduler waits for an answer that nobody will give")
            self.clock.advance_to(when)
            for timer in self._take_due(when, services_only=True):
                if not timer.cancelled:
                    timer.function()
        return True

    def next_timer(self) -> float | None:
        """When the next timer is due, seconds since the epoch; None if there is none."""
        timers = self._timers
        while timers and timers[0][2].cancelled:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def _take_due(self, now: float, services_only: bool = False) -> list[Timer]:
        """Take out the timers that are due, in their order."""
        due, others = [], []
        while self._timers and self._timers[0][0] <= now:
            entry = heapq.heappop(self._timers)
            if services_only and entry[2].of_scheduler:
                others.append(entry)
            else:
                due.append(entry[2])
        for entry in others:
            heapq.heappush(self._timers, entry)
        return due

    def _run_one_of_services(self) -> bool:
        """Call the first thing posted that is not the scheduler's; returns whether there was any."""
        for index, (function, of_scheduler) in enumerate(self._posted):
            if not of_scheduler:
                del self._posted[index]
                function()
                return True
        return False

    def _next_timer_of_services(self) -> float | None:
        return min(
            (
                when
                for when, _, timer in self._timers
                if not timer.of_scheduler and not timer.cancelled
            ),
            default=None,
        )
