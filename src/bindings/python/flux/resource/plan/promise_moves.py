# SPDX-License-Identifier: LGPL-3.0-or-later
"""Moves of counted promises to earlier times, one after another.

This is the definition. ``compiled.py``, used if built, has the same results with fewer searches.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from flux.resource.plan.count_timeline import CountTimeline
from flux.resource.plan.promise import CountedPromise, due_of, length_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flux.resource.plan.promise import UnitKind


class PromiseMoves:
    """Moves promises, with the timelines that count them: each is searched for from now on.

    Args:
        promises (dict): job id to promise, in the order in which they were made
        profiles (dict): kind of units to the `CountedProfile` made with this object

    Attributes:
        timeline (type): the class of the timelines
        per_turn (int): the maximum number of jobs for `advance_in_turn` in one reactor turn
    """

    timeline: Any = CountTimeline
    per_turn = 128

    def __init__(self, promises: dict[int, CountedPromise], profiles: dict[UnitKind, Any]) -> None:
        self._promises = promises
        self._profiles = profiles

    def add_line(self, line: Any) -> int:
        """Register a timeline for promises; return its number."""
        return 0

    def drop_line(self, number: int) -> None:
        """Unregister a timeline that has no promises any more."""

    def opened(self, number: int, start: float, end: float, count: int) -> None:
        """Note that units came free in a span of a timeline."""

    def enter(self, jobid: int, promise: CountedPromise) -> None:
        """Note that a job's new promise is counted."""

    def leave(self, jobid: int) -> None:
        """Note that a job's promise is gone, or about to be replaced."""

    def due(self, now: float) -> tuple[list[int], float]:
        """As ``Plan.due()``."""
        return due_of(self._promises, now)

    def advance(self, jobid: int, now: float) -> float:
        """Move a promise that starts later than now to the earliest time at which it fits.

        Returns:
            float: its new start, in seconds since the epoch
        """
        promise = self._promises[jobid]
        start, length, count = promise.start, promise.end - promise.start, promise.demand.count
        profile = self._profiles[promise.demand.kind]
        earlier: float = profile.line.first(count + profile.kept, length, now, start)
        if earlier >= start:
            return start
        end = earlier + length_of(promise.request)
        profile.move(start, promise.end, earlier, end, count)
        promise.span[:] = earlier, end
        return earlier

    def advance_in_turn(self, jobids: Sequence[int], now: float) -> tuple[int, list[int], float]:
        """Move the promises of several jobs; as `Strategy.advance_in_turn`."""
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
