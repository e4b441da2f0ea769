# SPDX-License-Identifier: LGPL-3.0-or-later
"""What promises leave of all ranks together: the quickest proof that a request does not fit.

If at some moment the ranks together have fewer cores or GPUs free than the promises and the request
take, the request does not fit, however promises are bound. On a busy machine that answers most
questions. It takes a look at each time at which a promise begins, and none at a rank.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

from flux.resource.plan.mask_timeline import INFINITY

if TYPE_CHECKING:
    from flux.resource.plan.running_profile import RunningProfile

#: What a promise takes: ``(start, end, cores, GPUs)``.
Span = tuple[float, float, int, int]
#: Times of which it is known together how much is left at least.
TIMES_TOGETHER = 32


class Sums:
    """Cores and GPUs that all ranks together have left, over time.

    Args:
        profile (RunningProfile): what running jobs leave
        ranks (int): mask of the ranks that count

    Attributes:
        ranks (int): the same
    """

    def __init__(self, profile: RunningProfile, ranks: int) -> None:
        self._profile = profile
        self.ranks = ranks
        self._starts: list[float] = []  # of promises, ascending
        # What promises take from each of these times on, at which some begin or end, and how many do.
        self._times: list[float] = [-INFINITY]
        self._uses: list[int] = [1]
        self._taken_cores: list[int] = [0]
        self._taken_gpus: list[int] = [0]
        self._forget_left()

    def _forget_left(self) -> None:
        # What is left at the first of the times: the others are beyond what anybody asked for, and to
        # know them, ends of running jobs would have to be gone through for nothing.
        self._left_cores: list[int] = [0]
        self._left_gpus: list[int] = [0]
        # The least of these, of so many together.
        self._least_cores: list[int] = []
        self._least_gpus: list[int] = []

    def _free(self, time: float) -> tuple[int, int]:
        """What running jobs leave at a time."""
        return self._profile.total_at(time, self.ranks)

    # -- promises -----------------------------------------------------------

    def follow(self, profile: RunningProfile) -> None:
        """Use a profile that has just followed the pool: the same one, or another."""
        self._profile = profile
        self._forget_left()

    def book(self, promises: Iterable[Span]) -> None:
        """Count promises, and no others. O(p log p)."""
        changes: dict[float, tuple[int, int, int]] = {}
        self._starts = []
        for start, end, cores, gpus in promises:
            self._starts.append(start)
            more = changes.get(start, (0, 0, 0))
            changes[start] = (more[0] + cores, more[1] + gpus, more[2] + 1)
            if end != INFINITY:
                less = changes.get(end, (0, 0, 0))
                changes[end] = (less[0] - cores, less[1] - gpus, less[2] + 1)
        self._starts.sort()
        times = sorted(changes)
        self._times = [-INFINITY, *times]
        self._uses = [1, *[changes[time][2] for time in times]]
        self._taken_cores = list(accumulate([0, *[changes[time][0] for time in times]]))
        self._taken_gpus = list(accumulate([0, *[changes[time][1] for time in times]]))
        self._forget_left()

    def add(self, promise: Span) -> None:
        """Count one promise more. O(times in its span)."""
        start, end, cores, gpus = promise
        insort(self._starts, start)
        self._take(self._cut(start), self._cut(end), cores, gpus)

    def remove(self, promise: Span) -> None:
        """Count a promise no longer, which was counted. O(times in its span)."""
        start, end, cores, gpus = promise
        del self._starts[bisect_left(self._starts, start)]
        self._take(self._place(start), self._place(end), -cores, -gpus)
        for time in (end, start):
            self._mend(time)

    def _place(self, time: float) -> int:
        return bisect_left(self._times, time)

    def _cut(self, time: float) -> int:
        """The place of a time at which a promise begins or ends, made if it is not there."""
        at = self._place(time)
        if time == INFINITY:
            return at
        if at < len(self._times) and self._times[at] == time:
            self._uses[at] += 1
            return at
        self._times.insert(at, time)
        self._uses.insert(at, 1)
        cores, gpus = self._taken_cores[at - 1], self._taken_gpus[at - 1]
        self._taken_cores.insert(at, cores)
        self._taken_gpus.insert(at, gpus)
        if at < len(self._left_cores):
            free = self._free(time)
            self._left_cores.insert(at, free[0] - cores)
            self._left_gpus.insert(at, free[1] - gpus)
            self._forget_least(at)
        return at

    def _mend(self, time: float) -> None:
        """A promise no longer begins or ends at a time."""
        if time == INFINITY:
            return
        at = self._place(time)
        self._uses[at] -= 1
        if not self._uses[at]:
            del self._times[at], self._uses[at], self._taken_cores[at], self._taken_gpus[at]
            if at < len(self._left_cores):
                del self._left_cores[at], self._left_gpus[at]
                self._forget_least(at)

    def _take(self, first: int, last: int, cores: int, gpus: int) -> None:
        """Take so many at some places of the times (or, below 0, give them back)."""
        known = min(last, len(self._left_cores))
        for amounts, stop, amount in (
            (self._taken_cores, last, cores),
            (self._taken_gpus, last, gpus),
            (self._left_cores, known, -cores),
            (self._left_gpus, known, -gpus),
        ):
            if amount:
                amounts[first:stop] = [one + amount for one in amounts[first:stop]]
        self._forget_least(first)

    def _forget_least(self, first: int) -> None:
        """Something has changed from a place in the times on."""
        del (
            self._least_cores[first // TIMES_TOGETHER :],
            self._least_gpus[first // TIMES_TOGETHER :],
        )

    # -- what is left -------------------------------------------------------

    def _know_left(self, count: int) -> None:
        """Find what is left at the first so many times at which promises begin or end."""
        left_cores, left_gpus = self._left_cores, self._left_gpus
        for place in range(len(left_cores), count):
            cores, gpus = self._free(self._times[place])
            left_cores.append(cores - self._taken_cores[place])
            left_gpus.append(gpus - self._taken_gpus[place])
        for at in range(len(self._least_cores), len(left_cores) // TIMES_TOGETHER):
            first, last = at * TIMES_TOGETHER, (at + 1) * TIMES_TOGETHER
            self._least_cores.append(min(left_cores[first:last]))
            self._least_gpus.append(min(left_gpus[first:last]))

    def _falling(self) -> int:
        """So many of the times, from the first on, are up to the last start: behind that it only becomes
        more."""
        return bisect_right(self._times, self._starts[-1]) if self._starts else 1

    def _last_short(self, cores: int, gpus: int, first: int, last: int) -> int:
        """The last of some places in the times at which less is left; ``first - 1``: there is none."""
        self._know_left(last)
        at = last
        while at > first:
            # Where all of many blocks have enough, that is one look.
            block = at // TIMES_TOGETHER
            begin = -(-first // TIMES_TOGETHER)
            if at % TIMES_TOGETHER == 0 and begin < block:
                if (
                    min(self._least_cores[begin:block]) >= cores
                    and min(self._least_gpus[begin:block]) >= gpus
                ):
                    at = begin * TIMES_TOGETHER
                    continue
                while self._least_cores[block - 1] >= cores and self._least_gpus[block - 1] >= gpus:
                    block -= 1
                at = block * TIMES_TOGETHER
            low = max(first, (at - 1) // TIMES_TOGETHER * TIMES_TOGETHER)
            left_cores, left_gpus = self._left_cores[low:at], self._left_gpus[low:at]
            if min(left_cores) < cores or min(left_gpus) < gpus:
                while self._left_cores[at - 1] >= cores and self._left_gpus[at - 1] >= gpus:
                    at -= 1
                return at - 1
            at = low
        return first - 1

    def _enough_at(self, cores: int, gpus: int, time: float) -> bool:
        """Whether so many more are left at a moment."""
        free, at = self._free(time), bisect_right(self._times, time) - 1
        return free[0] - self._taken_cores[at] >= cores and free[1] - self._taken_gpus[at] >= gpus

    def enough(self, cores: int, gpus: int, start: float, end: float) -> bool:
        """Whether so many more are left all through a span.

        That is necessary for a request to fit, and not sufficient: it does not matter here on which
        ranks they are.
        """
        if not self._enough_at(cores, gpus, start):
            return False
        first = bisect_right(self._times, start)
        last = min(bisect_left(self._times, end), self._falling())
        return self._last_short(cores, gpus, first, last) < first

    def room_ends(self, cores: int, gpus: int, start: float) -> float:
        """The first moment from ``start`` on at which not so many more are left; infinity: there is
        none."""
        if not self._enough_at(cores, gpus, start):
            return start
        times = self._times
        for at in range(bisect_right(times, start), self._falling()):
            self._know_left(at + 1)
            if self._left_cores[at] < cores or self._left_gpus[at] < gpus:
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
        profile, times = self._profile, self._times
        falling = self._falling()
        while start < before:
            following = bisect_right(times, start)
            if self._enough_at(cores, gpus, start):
                end = min(start + length, until)
                last = min(bisect_left(times, end), falling)
                short = self._last_short(cores, gpus, following, last)
                if short < following:
                    return start
                start = times[short]
                following = short + 1
            start = profile.next_end_after(start)
            if following < len(times):
                start = min(start, times[following])
        return INFINITY
