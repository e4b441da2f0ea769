# SPDX-License-Identifier: LGPL-3.0-or-later
"""What promises leave of all ranks together: the quickest proof that a request does not fit.

If at some moment the ranks together have fewer cores or GPUs free than the promises and the request
take, the request does not fit, however promises are bound. On a busy machine that answers most
questions. It takes a look at each time at which a promise begins, and none at a rank.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING

from flux.resource.plan.mask_timeline import INFINITY

if TYPE_CHECKING:
    from flux.resource.plan.running_profile import RunningProfile


class Sums:
    """Cores and GPUs that all ranks together have left, over time.

    Args:
        profile (RunningProfile): what running jobs leave
        ranks (int): mask of the ranks that count
    """

    def __init__(self, profile: RunningProfile, ranks: int) -> None:
        self._profile = profile
        self._ranks = ranks
        # What promises take from each of these times on.
        self._times: list[float] = [-INFINITY]
        self._taken: list[tuple[int, int]] = [(0, 0)]
        # So many of them, from the first on, are up to the last start: then it only becomes more.
        self._falling = 1
        # What is left at the first of them: the others are beyond what anybody asked for, and to
        # know them, ends of running jobs would have to be gone through for nothing.
        self._left: list[tuple[int, int]] = [(0, 0)]

    def _free(self, time: float) -> tuple[int, int]:
        """What running jobs leave at a time."""
        return self._profile.total_at(time, self._ranks)

    def book(self, promises: Iterable[tuple[float, float, int, int]]) -> None:
        """Count promises, and no others. O(p log p).

        Args:
            promises: ``(start, end, cores, GPUs)`` of each
        """
        changes: dict[float, tuple[int, int]] = {}
        last = -INFINITY
        for start, end, cores, gpus in promises:
            last = max(last, start)
            more = changes.get(start, (0, 0))
            changes[start] = (more[0] + cores, more[1] + gpus)
            less = changes.get(end, (0, 0))
            changes[end] = (less[0] - cores, less[1] - gpus)
        self._times, self._taken, self._left = [-INFINITY], [(0, 0)], [(0, 0)]
        cores = gpus = 0
        changes.pop(INFINITY, None)
        for time, change in sorted(changes.items()):
            cores += change[0]
            gpus += change[1]
            self._times.append(time)
            self._taken.append((cores, gpus))
        self._falling = bisect_right(self._times, last)

    def _left_at(self, count: int) -> list[tuple[int, int]]:
        """What is left at the first so many times at which promises begin or end."""
        left = self._left
        for place in range(len(left), count):
            free, (cores, gpus) = self._free(self._times[place]), self._taken[place]
            left.append((free[0] - cores, free[1] - gpus))
        return left

    def enough(self, cores: int, gpus: int, start: float, end: float) -> bool:
        """Whether so many more are left all through a span.

        That is necessary for a request to fit, and not sufficient: it does not matter here on which
        ranks they are.
        """
        free, taken = self._free(start), self._taken[bisect_right(self._times, start) - 1]
        if free[0] - taken[0] < cores or free[1] - taken[1] < gpus:
            return False
        first = bisect_right(self._times, start)
        last = min(bisect_left(self._times, end), self._falling)
        for left in self._left_at(last)[first:last]:
            if left[0] < cores or left[1] < gpus:
                return False
        return True

    def room_ends(self, cores: int, gpus: int, start: float) -> float:
        """The first moment from ``start`` on at which not so many more are left; infinity: there is
        none."""
        if not self.enough(cores, gpus, start, start):
            return start
        times = self._times
        for at in range(bisect_right(times, start), self._falling):
            left = self._left_at(at + 1)[at]
            if left[0] < cores or left[1] < gpus:
                return times[at]
        return INFINITY

    def first(
        self, cores: int, gpus: int, start: float, length: float, before: float, until: float
    ) -> float:
        """First time from ``start`` on at which so many more are left for so long; infinity if
        there is none before a time.

        Only ends of jobs and promises are looked at: nothing else makes it more. Where too little is
        left at the beginning of a promise, no span fits that includes it, so the search goes on
        behind the last of those in a span.

        Args:
            length (float): of the span, in seconds
            before (float): the time
            until (float): where spans end at the latest: what comes later does not matter
        """
        profile = self._profile
        times, taken = self._times, self._taken
        while start < before:
            following = bisect_right(times, start)
            free, booked = self._free(start), taken[following - 1]
            if free[0] - booked[0] >= cores and free[1] - booked[1] >= gpus:
                end = min(start + length, until)
                last = min(bisect_left(times, end), self._falling)
                left = self._left_at(last)
                for at in range(last - 1, following - 1, -1):
                    one = left[at]
                    if one[0] < cores or one[1] < gpus:
                        start = times[at]
                        following = at + 1
                        break
                else:
                    return start
            start = profile.next_end_after(start)
            if following < len(times):
                start = min(start, times[following])
        return INFINITY
