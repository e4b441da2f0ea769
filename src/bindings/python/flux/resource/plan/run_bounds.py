# SPDX-License-Identifier: LGPL-3.0-or-later
"""What is known of the runs of free units in a timeline, kept up while promises move in it.

A *run* is a span of time in which so many units are free throughout. A promise moves to an earlier
time if a run begins before its start and lasts for as long as it takes, or up to its start, from
where on it has units of its own. When a job ends early, few promises of a long queue can move, and
a search of the timeline for each would cost time that grows with the square of their number.

So a search that found no run is remembered, by the number of units and the length: up to which time
there is none. It stays true until units come free. Such an *opening* can only make runs that have a
part in common with it, and most are too short or too narrow for most shapes. Those for which it may
be enough are looked up by classes of number and length, powers of two, and only the part of the
timeline around the opening is searched for them.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from flux.resource.plan.mask_timeline import INFINITY

if TYPE_CHECKING:
    from flux.resource.plan.count_timeline import CountTimeline

#: More than the error of a sum of two times, in seconds: what is known is taken to end so much
#: earlier.
ROUNDING_S = 1e-3
#: Openings around which a shape's runs are searched one by one. Where there are more, it is not
#: known any more that there is no run behind the first of them, and the next search begins there.
MAX_LOOKS = 8
#: Shapes that are remembered, and openings for each class: then all is forgotten, which costs each
#: shape a search.
MAX_REMEMBERED = 4096


def least_alike(length: float) -> float:
    """The least of the lengths (seconds) that are of one class: half a power of two to the next."""
    return INFINITY if length == INFINITY else float(1 << int(length).bit_length() >> 1)


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


class _Class:
    """What is known for the shapes of a class of lengths and of numbers of units.

    Attributes:
        least (float): the least length of the class
        openings (list): those that may be enough for one of these shapes, in the order in which
            they were seen
        latest (float): for none of these shapes it is known that there is no run by a later time
    """

    __slots__ = ("least", "openings", "latest")

    def __init__(self, least: float) -> None:
        self.least = least
        self.openings: list[_Opening] = []
        self.latest = -INFINITY


class _Size:
    """A class of numbers of units.

    Attributes:
        least, most (int): numbers of the class
        lengths (list): what is known for lengths, as _Class, the shortest first
        latest (float): the latest time of these
    """

    __slots__ = ("least", "most", "lengths", "latest")

    def __init__(self, bits: int) -> None:
        self.least = 1 << bits >> 1
        self.most = (1 << bits) - 1
        self.lengths: list[_Class] = []
        self.latest = -INFINITY

    def of(self, length: float) -> _Class:
        """The class of a length in seconds, made if there is none."""
        least = least_alike(length)
        place = bisect_left([one.least for one in self.lengths], least)
        if place == len(self.lengths) or self.lengths[place].least != least:
            self.lengths.insert(place, _Class(least))
        return self.lengths[place]


class RunBounds:
    """Up to which times a timeline has no run of so many units for so long.

    Args:
        line (CountTimeline): the timeline
    """

    __slots__ = ("line", "_since", "_none_by", "_opened", "_sizes")

    def __init__(self, line: CountTimeline) -> None:
        self.line = line
        self._since = -INFINITY  # when something was learned last
        # (count, length) to: no such run ends by this time; and how many openings of the class were
        # taken into account.
        self._none_by: dict[tuple[int, float], tuple[float, int, _Class]] = {}
        # Spans in which units came free that were not looked at yet: mostly they are in use again
        # when somebody asks.
        self._opened: list[tuple[float, float, int]] = []
        self._sizes: dict[int, _Size] = {}  # by the bits of the number of units

    def forget(self) -> None:
        """Nothing is known any more."""
        self._none_by.clear()
        self._opened.clear()
        self._sizes.clear()

    def opened(self, start: float, end: float, count: int) -> None:
        """So many units have just come free in a span."""
        if self._none_by:
            # Runs of as many as were free there before do not become longer.
            before = self.line.least(start, end) - count
            self._opened.append((start, end, before))
            if len(self._opened) > MAX_REMEMBERED:
                self.forget()

    def none_by(self, count: int, length: float, now: float) -> float:
        """A time by which no run of so many units for so long ends, of those that begin now or
        later; minus infinity if nothing is known."""
        if now < self._since:  # the clock was set back
            self.forget()
        if self._opened:
            self._classify()
        known = self._none_by.get((count, length))
        if known is None:
            return -INFINITY
        time, seen, alike = known
        openings = alike.openings
        if seen < len(openings):
            time = self._beside(openings[seen:], count, length, time, now)
            self._none_by[count, length] = time, len(openings), alike
        return time

    def _beside(
        self, openings: list[_Opening], count: int, length: float, time: float, now: float
    ) -> float:
        """What is left of a time by which there was no run, now that there are some openings."""
        looks = 0
        for one in openings:
            if not one.before < count <= one.most:
                continue
            start = max(one.start, now)
            if start + length > time or one.end - start < length or one.is_too_small(count, length):
                continue
            looks += 1
            if looks <= MAX_LOOKS:
                start = self.line.first(count, length, start, until=one.last)
                if start >= one.last:
                    one.too_small.append((count, length))
            time = min(time, start + length - ROUNDING_S)
        return time

    def learn(self, count: int, length: float, time: float, now: float) -> None:
        """A search found that no run of so many units for so long, that begins now or later, ends
        by a time; `none_by` was asked for these before."""
        if len(self._none_by) >= MAX_REMEMBERED:
            self.forget()
        bits = count.bit_length()
        size = self._sizes.get(bits)
        if size is None:
            size = self._sizes[bits] = _Size(bits)
        alike = size.of(length)
        alike.latest = max(alike.latest, time)
        size.latest = max(size.latest, time)
        self._none_by[count, length] = time, len(alike.openings), alike
        self._since = now

    def _classify(self) -> None:
        """See for which classes of shapes the openings there were may be enough."""
        line = self.line
        opened, self._opened = self._opened, []
        for low, high, before in opened:
            if high <= line.heads[0]:
                continue
            low = max(low, line.heads[0])
            most = line.most(low, high)
            for size in self._sizes.values():
                # A run has a moment in common with the opening, so that it ends later than that.
                if most < size.least or size.most <= before or size.latest <= low:
                    continue
                start, end = line.since(size.least, low), line.below(size.least, high)
                longest = end - start
                opening = _Opening(start, end, high, before, most)
                for alike in size.lengths:
                    if alike.least > longest:
                        break
                    if start + alike.least <= alike.latest:
                        alike.openings.append(opening)
                        if len(alike.openings) > MAX_REMEMBERED:
                            self.forget()
                            return
