# SPDX-License-Identifier: LGPL-3.0-or-later
"""Which promises stay where they are when units come free, without a look at each.

A *run* is a span of time in which so many units are free throughout. A promise moves to an earlier
time if a run begins before its start and lasts for as long as it takes, or up to its start, from
where on it has units of its own. When a job ends early, few promises of a long queue can move, and
a search of the timeline for each would cost time that grows with the square of their number.

So a promise that was looked at is *settled*: it stays where it is until units come free. Such an
*opening* can only make runs that have a part in common with it. A run up to the start of a promise
is one only if the opening comes just before that start, so promises are found by their starts. A
run that is over before is mostly too short or too narrow for most promises. Those for which it may
be enough are found by classes of number and length; and when it is the turn of such a promise, only
the part of the timeline around the opening is searched for it.

What is not settled is only ever looked at in vain. What is settled must not be able to move.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flux.resource.plan.count_timeline import CountTimeline

#: More than the error of a sum of two times, in seconds.
ROUNDING_S = 1e-3
#: Openings around which runs for a promise are searched one by one. Where there are more, one search
#: begins at the first of them.
MAX_LOOKS = 8
#: Openings of a class after which it is seen which of them every promise of the class was looked at
#: for; and how many are kept for promises that were not, which cost each of these a whole search.
OPENINGS_PER_REVIEW = 16
MAX_OPENINGS = 64
#: Openings that are kept until somebody asks.
MAX_WAITING = 4096


def least_alike(length: float) -> float:
    """The least of the lengths (seconds) that are of one class, an eighth of a power of two or
    less."""
    if length == inf:
        return inf
    part, power = math.frexp(length)
    return math.ldexp(math.floor(part * 16), power - 4)


class _Opening:
    """A span in which units came free, and the runs that may have a part in common with it.

    Attributes:
        start, end (float): such runs neither begin nor end beyond these
        last (float): they begin before this, where the span ends
        before, most (int): they are of more units than ``before``, which were free already, and of
            ``most`` at most
        too_small (list): ``(count, length)`` for which there is no such run: nor is there for more
            or longer ones
    """

    __slots__ = ("start", "end", "last", "before", "most", "too_small")

    def __init__(self, start: float, end: float, last: float, before: int, most: int) -> None:
        self.start = start
        self.end = end
        self.last = last
        self.before = before
        self.most = most
        self.too_small: list[tuple[int, float]] = []

    def is_too_small(self, count: int, length: float) -> bool:
        """Whether it is known that there is no run of so many units for so long."""
        for few, short in self.too_small:
            if few <= count and short <= length:
                return True
        return False


class _Known:
    """A promise that was looked at.

    Attributes:
        count (int): of so many units
        length (float): for so long
        start (float): when it begins
        alike (_Class): its class
        seen (int): how many openings of the class it was looked at for
    """

    __slots__ = ("count", "length", "start", "alike", "seen")

    def __init__(self, count: int, length: float, start: float, alike: _Class) -> None:
        self.count = count
        self.length = length
        self.start = start
        self.alike = alike
        self.seen = len(alike.openings)


class _Class:
    """Promises of about as many units for about as long.

    Attributes:
        least (float): the least length of the class
        openings (list): those that may be enough for one of these promises, in the order in which
            they were seen
        known (dict): what is known of the promises, by job id
        latest_settled (float): none of those that are settled starts later than this
        review_at (int): number of openings at which it is time for `review`
    """

    __slots__ = ("least", "openings", "known", "latest_settled", "review_at")

    def __init__(self, least: float) -> None:
        self.least = least
        self.openings: list[_Opening] = []
        self.known: dict[int, _Known] = {}
        self.latest_settled = -inf
        self.review_at = OPENINGS_PER_REVIEW

    def unsettle(self, settled: set[int]) -> None:
        """Those of the promises that are settled are so no longer for which the last of the openings
        may be enough. O(promises of the class)."""
        opening = self.openings[-1]
        seen = len(self.openings) - 1
        begin, longest = opening.start - ROUNDING_S, opening.end - opening.start
        latest = -inf
        for jobid, one in self.known.items():
            if jobid not in settled:
                continue
            if (
                begin + one.length <= one.start
                and one.length <= longest
                and opening.before < one.count <= opening.most
            ):
                settled.discard(jobid)
                one.seen = seen
            elif one.start > latest:
                latest = one.start
        self.latest_settled = latest

    def review(self, settled: set[int]) -> list[int]:
        """Drop the openings that all promises were looked at for. O(promises of the class).

        Args:
            settled (set): ids of jobs whose promises the openings do not matter to

        Returns:
            ids of jobs for whose promises too many openings would have to be kept
        """
        known, openings = self.known, self.openings
        late: list[int] = []
        for jobid, one in known.items():
            if jobid in settled:
                one.seen = len(openings)
        if len(openings) > MAX_OPENINGS:
            half = len(openings) // 2
            late = [jobid for jobid, one in known.items() if one.seen < half]
            for jobid in late:
                del known[jobid]
        done = min([one.seen for one in known.values()], default=len(openings))
        del openings[:done]
        for one in known.values():
            one.seen -= done
        self.review_at = len(openings) + OPENINGS_PER_REVIEW
        return late


class _Size:
    """The classes of about as many units.

    Attributes:
        least, most (int): how many that are
        lengths (list): the classes, the shortest first
        leasts (list): the least length of each
        latest (list): no promise of the class starts later
        last (float): nor does one of all of them
    """

    __slots__ = ("least", "most", "lengths", "leasts", "latest", "last")

    def __init__(self, least: int) -> None:
        self.least = least
        self.most = 2 * least - 1
        self.lengths: list[_Class] = []
        self.leasts: list[float] = []
        self.latest: list[float] = []
        self.last = -inf

    def of(self, length: float) -> _Class:
        """The class of a length in seconds, made if there is none."""
        least = least_alike(length)
        place = bisect_left(self.leasts, least)
        if place == len(self.leasts) or self.leasts[place] != least:
            self.lengths.insert(place, _Class(least))
            self.leasts.insert(place, least)
            self.latest.insert(place, -inf)
        return self.lengths[place]

    def raise_latest(self, alike: _Class, start: float) -> None:
        """A promise of a class starts at a time."""
        place = bisect_left(self.leasts, alike.least)
        self.latest[place] = max(self.latest[place], start)
        self.last = max(self.last, start)

    def find_latest(self, alike: _Class) -> None:
        """See when the latest of the promises of a class starts by now."""
        starts = [one.start for one in alike.known.values()]
        self.latest[bisect_left(self.leasts, alike.least)] = max(starts, default=-inf)
        self.last = max(self.latest)

    def may_run(self, start: float, end: float) -> bool:
        """Whether a run between two times could be long enough for a promise that starts later."""
        count = bisect_right(self.leasts, end - start)
        return bool(count) and start + self.leasts[0] <= max(self.latest[:count]) + ROUNDING_S

    def that_may_run(self, start: float, end: float) -> list[_Class]:
        """The classes for which a run between two times could be long enough, for a promise that
        starts later."""
        count = bisect_right(self.leasts, end - start)
        begin = start - ROUNDING_S
        return [
            alike
            for alike, least, latest in zip(self.lengths[:count], self.leasts, self.latest)
            if begin + least <= latest
        ]


class _Starts:
    """Ids of jobs by the starts of their promises."""

    __slots__ = ("times", "_at")

    def __init__(self) -> None:
        self.times: list[float] = []  # ascending, each once
        self._at: dict[float, set[int]] = {}

    def add(self, jobid: int, start: float) -> None:
        there = self._at.get(start)
        if there is None:
            self._at[start] = {jobid}
            insort(self.times, start)
        else:
            there.add(jobid)

    def drop(self, jobid: int, start: float) -> None:
        there = self._at[start]
        there.discard(jobid)
        if not there:
            del self._at[start], self.times[bisect_left(self.times, start)]

    def between(self, low: float, high: float) -> list[set[int]]:
        """Those that start later than a time and not later than another one."""
        times = self.times
        first = bisect_right(times, low)
        return [self._at[time] for time in times[first : bisect_right(times, high, first)]]


class SettledPromises:
    """Which promises of a timeline are known to stay where they are.

    Args:
        line (CountTimeline): the units that are free, less all promises
        settled (set): ids of the jobs whose promises are settled, of this timeline and others

    Attributes:
        settled (set): the same
    """

    __slots__ = ("line", "settled", "_since", "_known", "_starts", "_sizes", "_opened")

    def __init__(self, line: CountTimeline, settled: set[int]) -> None:
        self.line = line
        self.settled = settled
        self._since = -inf  # when a promise was settled last
        self._known: dict[int, _Known] = {}  # by job id
        self._starts = _Starts()  # of these
        self._sizes: list[_Size] = []  # ascending
        # Spans in which units came free that were not looked at yet: mostly they are in use again
        # when somebody asks.
        self._opened: list[tuple[float, float, int]] = []

    def forget(self) -> None:
        """Nothing is known any more."""
        self.settled.difference_update(self._known)
        self._known.clear()
        self._starts = _Starts()
        self._sizes.clear()
        self._opened.clear()

    # -- promises -----------------------------------------------------------

    def settle(self, jobid: int, count: int, length: float, start: float, now: float) -> None:
        """A promise of so many units for so long was looked at just now, and cannot move to an
        earlier time than a start that is later than now."""
        known = self._known.get(jobid)
        if known is None:
            size = self._size_of(count)
            alike = size.of(length)
            known = self._known[jobid] = alike.known[jobid] = _Known(count, length, start, alike)
            self._starts.add(jobid, start)
            size.raise_latest(alike, start)
        else:
            alike = known.alike
            known.seen = len(alike.openings)
            if known.start != start:
                self._starts.drop(jobid, known.start)
                self._starts.add(jobid, start)
                known.start = start
        if start > alike.latest_settled:
            alike.latest_settled = start
        self.settled.add(jobid)
        self._since = now

    def gone(self, jobid: int) -> None:
        """Nothing is known any more of the promise of a job, or it has none."""
        known = self._known.pop(jobid, None)
        if known is not None:
            self.settled.discard(jobid)
            self._starts.drop(jobid, known.start)
            known.alike.known.pop(jobid, None)

    def look_again(self, now: float) -> None:
        """See which promises may not be settled any more. Those that are due are not."""
        self._take_in(now)
        times = self._starts.times
        if times and times[0] <= now:
            for jobids in self._starts.between(-inf, now):
                self._unsettle(jobids)

    def earlier(
        self, jobid: int, count: int, beside: int, length: float, before: float, now: float
    ) -> float:
        """The first time from now on to which a promise could move; infinity if it stays.

        Args:
            count (int): of so many units
            beside (int): so many more have to be free
            length (float): for so long
            before (float): its start, later than now
        """
        if self._opened or now < self._since or now < self.line.heads[0]:
            self._take_in(now)
        line = self.line
        wanted = count + beside
        known = self._known.get(jobid)
        if known is None or known.start != before:
            return line.first(wanted, length, now, before)
        since = line.since(wanted, before)
        found = inf if since >= before else max(now, since)
        openings = known.alike.openings
        if known.seen == len(openings):
            return found
        looks = []
        for one in openings[known.seen :]:
            if one.before < count <= one.most:
                start = one.start if one.start > now else now
                if (
                    start < found
                    and start + length <= before + ROUNDING_S
                    and one.end - start >= length
                    and not (one.too_small and one.is_too_small(wanted, length))
                ):
                    looks.append((start, one))
        if len(looks) > MAX_LOOKS:
            start = min([start for start, _ in looks])
            return min(found, line.first(wanted, length, start, before))
        for start, one in looks:
            if start < found:
                run = line.first(wanted, length, start, before, one.last)
                if run >= one.last and one.last <= before:
                    one.too_small.append((wanted, length))
                found = min(found, run)
        return found

    def _size_of(self, count: int) -> _Size:
        """The class of a number of units, made if there is none."""
        least = 1 << count.bit_length() >> 1
        place = bisect_left([one.least for one in self._sizes], least)
        if place == len(self._sizes) or self._sizes[place].least != least:
            self._sizes.insert(place, _Size(least))
        return self._sizes[place]

    def _unsettle(self, jobids: Iterable[int]) -> None:
        """Promises are to be looked at for another reason than openings of their class."""
        settled, known = self.settled, self._known
        for jobid in jobids:
            if jobid in settled:
                settled.discard(jobid)
                one = known[jobid]
                one.seen = len(one.alike.openings)

    # -- openings -----------------------------------------------------------

    def opened(self, start: float, end: float, count: int) -> None:
        """So many units have just come free in a span."""
        if self._known:
            # Runs of as many as were free there before do not become longer.
            self._opened.append((start, end, self.line.least(start, end) - count))
            if len(self._opened) > MAX_WAITING:
                self.forget()

    def vacated(self, start: float, end: float, count: int) -> None:
        """As `opened`, where it matters at once: a promise moved, and others have their turn."""
        if self._known:
            least, most = self.line.extremes(start, end)
            self._consider(start, end, least - count, most)

    def _take_in(self, now: float) -> None:
        """See what the openings there were may be enough for."""
        line = self.line
        begin = line.heads[0]
        if now < self._since or now < begin:  # the clock was set back
            self.forget()
        if self._opened:
            opened, self._opened = self._opened, []
            for low, high, before in opened:
                if high > begin:
                    low = max(low, begin)
                    self._consider(low, high, before, line.extremes(low, high)[1])

    def _consider(self, low: float, high: float, before: int, most: int) -> None:
        """See which promises an opening may be enough for: a span in which as many as ``before``
        were free throughout, and ``most`` are now at some moment."""
        if most <= before:
            return  # in use again
        for jobids in self._starts.between(low, high):
            self._unsettle(jobids)
        line, settled = self.line, self.settled
        start, end = line.heads[0], inf
        for size in self._sizes:
            if size.least > most:
                break
            # A run has a moment in common with the opening, so that it ends later than that. And
            # more units are free for a part of the time at most for which fewer are.
            if size.most <= before or size.last <= low or not size.may_run(start, end):
                continue
            least = max(size.least, before + 1)
            start, end = max(start, line.since(least, low)), line.below(least, high)
            found = size.that_may_run(start, end)
            if not found:
                continue
            opening = _Opening(start, end, high, before, most)
            for alike in found:
                alike.openings.append(opening)
                if start + alike.least <= alike.latest_settled + ROUNDING_S:
                    alike.unsettle(settled)
                if len(alike.openings) >= alike.review_at:
                    for jobid in alike.review(settled):
                        self._starts.drop(jobid, self._known.pop(jobid).start)
                    size.find_latest(alike)
