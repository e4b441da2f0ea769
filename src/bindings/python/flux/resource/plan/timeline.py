# SPDX-License-Identifier: LGPL-3.0-or-later
"""Numbers of free units over time, and moves of the promises counted in them to earlier times.

This is the definition; ``_flux_plan`` has the same functions in C with fewer searches, and is used
if built (``compiled.py``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import inf
from typing import Any

from flux.resource.plan.strategy import Promise, UnitKind, due_of
from flux.resource.request import length_of


class CountTimeline:
    """A step function of time, such as the number of free units.  Each method examines O(steps).

    Args:
        start (float): first moment, seconds since the epoch
        value (int): its value from then on
    """

    __slots__ = ("starts", "values")

    def __init__(self, start: float, value: int) -> None:
        self.starts = [start]
        self.values = [value]

    def copy(self) -> CountTimeline:
        """Return an independent copy."""
        new = type(self)(0.0, 0)
        new.starts, new.values = self.starts[:], self.values[:]
        return new

    def _index_at(self, time: float) -> int:
        """Return the index of the step at a time; before the first step, 0."""
        return max(0, bisect_right(self.starts, time) - 1)

    # -- changes ------------------------------------------------------------

    def add(self, start: float, end: float, delta: int) -> None:
        """Add ``delta`` from ``start`` (at the earliest the first step) to before ``end``."""
        if end <= max(start, self.starts[0]):
            return
        first = self._step_from(max(start, self.starts[0]))
        last = self._step_from(end) if end < inf else len(self.starts)
        for index in range(first, last):
            self.values[index] += delta
        self._join(last)
        self._join(first)

    def _step_from(self, time: float) -> int:
        """Return the index of the step that begins at a time; split a step if needed."""
        index = self._index_at(time)
        if self.starts[index] == time:
            return index
        self.starts.insert(index + 1, time)
        self.values.insert(index + 1, self.values[index])
        return index + 1

    def _join(self, index: int) -> None:
        """Drop a step with the value of the one before."""
        if 0 < index < len(self.starts) and self.values[index - 1] == self.values[index]:
            del self.starts[index], self.values[index]

    def forget(self, time: float) -> None:
        """Drop the steps that are over at a time."""
        index = self._index_at(time)
        del self.starts[:index], self.values[:index]

    # -- questions ----------------------------------------------------------

    def least(self, start: float, end: float) -> int:
        """Return the least value from ``start`` to before ``end``, which is later."""
        first = self._index_at(start)
        return min(self.values[first : bisect_left(self.starts, end, first + 1)])

    def below(self, value: int, start: float) -> float:
        """Return the first moment, from ``start`` on, at which the value is less than ``value``;
        infinity if there is none."""
        for index in range(self._index_at(start), len(self.starts)):
            if self.values[index] < value:
                return max(start, self.starts[index])
        return inf

    def first(self, value: int, length: float, start: float, limit: float = inf) -> float:
        """Return the first moment from `start` on from which the value is at least ``value`` for
        `length` seconds; infinity if there is none. Values from `limit` on suffice, and the result
        is earlier."""
        since = None
        first = self._index_at(start)
        for index in range(first, len(self.starts)):
            time = start if index == first else self.starts[index]
            if time >= limit or (since is not None and since + length <= time):
                break
            if self.values[index] < value:
                since = None
            elif since is None:
                since = time
        return inf if since is None else since


class PromiseMoves:
    """Moves promises, with the timelines that count them: each is searched for from now on.

    Args:
        promises (dict): job id to promise, in the order in which they were made
        profiles (dict): kind of units to the `CountedProfile` made with this object

    Attributes:
        timeline (type): the class of the timelines
        per_turn (int): the maximum number of jobs for `advance_in_turn` in one reactor turn
    """

    timeline = CountTimeline
    per_turn = 128

    def __init__(self, promises: dict[int, Promise], profiles: dict[UnitKind, Any]) -> None:
        self._promises = promises
        self._profiles = profiles

    def drop_line(self, line: Any) -> None:
        """Forget a timeline, which has no promises any more."""

    def opened(self, line: Any, start: float, end: float, count: int) -> None:
        """Note that units came free in a span of a timeline."""

    def enter(self, jobid: int, promise: Promise) -> None:
        """Note that a job's new promise is counted."""

    def leave(self, jobid: int) -> None:
        """Note that a job's promise is gone, or about to be replaced."""

    def due(self, now: float) -> tuple[list[int], float]:
        """As ``Plan.due()``."""
        return due_of(self._promises, now)

    def advance(self, jobid: int, now: float) -> float:
        """Move a promise that starts later than now to the earliest time at which it fits. Return
        its new start, in seconds since the epoch."""
        promise = self._promises[jobid]
        start, length, count = promise.start, promise.end - promise.start, promise.demand.count
        profile = self._profiles[promise.demand.kind]
        earlier: float = profile.line.first(count + profile.kept, length, now, start)
        if earlier >= start:
            return start
        end = earlier + length_of(promise.request)
        profile.line.add(start, promise.end, count)
        profile.line.add(earlier, end, -count)
        promise.span[:] = earlier, end
        return earlier

    def advance_in_turn(self, jobids: Sequence[int], now: float) -> tuple[int, list[int], float]:
        """Advance the promises of several jobs, which start later than now, one after another, as
        ``advance()``; most stay. Return the number of jobs examined, from the first on; the indices
        of the moved ones; and the earliest of their new starts, or infinity. The last one examined
        starts now; or the next may have a promise that cannot be kept, or needs a longer search."""
        count, first = 0, inf
        moved = []
        for jobid in jobids:
            promise = self._promises.get(jobid)
            if promise is None or promise.is_open or promise.start <= now:
                break
            if self._profiles[promise.demand.kind].maybe_overdrawn:
                break
            before, start = promise.start, self.advance(jobid, now)
            count += 1
            if start < before:
                moved.append(count - 1)
                first = min(first, start)
                if start <= now:
                    break
        return count, moved, first
