# SPDX-License-Identifier: LGPL-3.0-or-later
"""Bounds of start times, learned from earlier searches.

A request cannot start before another of the same kind could that is no larger and no longer: if
four nodes for an hour fit at noon at the earliest, eight nodes for two hours do not fit before
noon. This holds as long as bookings are only added. So in a long queue of jobs of many sizes,
searches do not all begin at now.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Hashable
from math import inf

from flux.resource.pool.remembered import Remembered

#: Lengths are rounded up to powers of this, which limits a queue of jobs of all lengths to a few
#: hundred stairs (1.1 ** 200 seconds are six years); a tenth costs a search little.
LENGTH_RATIO = 1.1
#: Maximum number of families (kinds of need and constraint), and of lengths of each: more than a
#: queue has at a time.
MAX_REMEMBERED = 1024


def _rounded(length: float) -> float:
    """Return the least power of LENGTH_RATIO not below a length."""
    if length == inf:
        return inf
    power = math.ceil(math.log(max(length, 1e-3)) / math.log(LENGTH_RATIO))
    bound = LENGTH_RATIO**power
    return bound if bound >= length else bound * LENGTH_RATIO


class _Stair:
    """For one length of time, ascending counts, and the times before which they do not fit.

    The times ascend as well, which makes a staircase.
    """

    __slots__ = ("counts", "times")

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.times: list[float] = []

    def at(self, count: int) -> float:
        place = bisect_right(self.counts, count) - 1
        return self.times[place] if place >= 0 else -inf

    def learn(self, count: int, time: float) -> None:
        place = bisect_right(self.counts, count)
        if place and self.times[place - 1] >= time:
            return
        if place and self.counts[place - 1] == count:
            place -= 1
            del self.counts[place], self.times[place]
        end = place
        while end < len(self.times) and self.times[end] <= time:
            end += 1
        self.counts[place:end] = [count]
        self.times[place:end] = [time]

    def lower(self, time: float) -> None:
        """Drop the bounds beyond a time."""
        place = bisect_right(self.times, time)
        if place < len(self.times):
            self.counts[place:] = [self.counts[place]]
            self.times[place:] = [time]


class StartBounds:
    """Lower bounds of start times, for searches that begin now."""

    def __init__(self) -> None:
        # family to ({length: _Stair}, [rounded lengths ascending], [their _Stairs])
        self._families: Remembered[
            Hashable, tuple[dict[float, _Stair], list[float], list[_Stair]]
        ] = Remembered()

    def clear(self) -> None:
        """Forget all bounds."""
        self._families.clear()

    def least(self, family: Hashable, count: int, length: float) -> float:
        """Return a time before which `count` units of a family do not fit for `length` seconds."""
        known = self._families.get(family)
        if known is None:
            return -inf
        exact, lengths, stairs = known
        stair = exact.get(length)
        best = stair.at(count) if stair is not None else -inf
        for stair in stairs[: bisect_right(lengths, length)]:
            counts = stair.counts
            place = bisect_right(counts, count)
            if place and stair.times[place - 1] > best:
                best = stair.times[place - 1]
        return best

    def learn(self, family: Hashable, count: int, length: float, time: float) -> None:
        """Learn the earliest time at which `count` units of a family fit for `length` seconds."""
        known = self._families.get(family)
        if known is None:
            if len(self._families) >= MAX_REMEMBERED:
                self._families.clear()
            known = self._families[family] = ({}, [], [])
        exact, lengths, stairs = known
        stair = exact.get(length)
        if stair is None and len(exact) < MAX_REMEMBERED:
            stair = exact[length] = _Stair()
        if stair is not None:
            stair.learn(count, time)
        bound = _rounded(length)
        place = bisect_right(lengths, bound)
        if not place or lengths[place - 1] != bound:
            lengths.insert(place, bound)
            stairs.insert(place, _Stair())
            place += 1
        stairs[place - 1].learn(count, time)

    def released(self, start: float) -> None:
        """Drop the bounds that a removed booking may have caused.

        Args:
            start (float): its start; it did not delay requests that end before.
        """
        for exact, lengths, stairs in self._families.values():
            for length, stair in exact.items():
                stair.lower(start - length)
            for length, stair in zip(lengths, stairs):
                stair.lower(start - length)
