# SPDX-License-Identifier: LGPL-3.0-or-later
"""What is promised on a pool's ranks, and what that leaves of them.

A booking takes counts of cores and GPUs on concrete ranks for a span of time (see ``promise.py``):
a promise that is bound, or a job started lately.  One that leaves no core of a rank is kept in a
timeline of masks, the same for every request.  For the others, each kind of need has a timeline of
the ranks where what is left is too little for it, made when it is first asked for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flux.resource.plan.mask_timeline import INFINITY, MaskTimeline, SortedTimes
from flux.resource.pool.masks import mask_of, members

if TYPE_CHECKING:
    from flux.resource.plan.promise import Booking
    from flux.resource.plan.running_profile import Need, RunningProfile


#: ``(time, cores, gpus)``: what is free from a time on.
Step = tuple[float, int, int]


class Bookings:
    """Bookings beside what running jobs leave (a RunningProfile)."""

    def __init__(self, profile: RunningProfile) -> None:
        self.profile = profile
        self.ends = SortedTimes()
        self.starts = SortedTimes()
        self._full = MaskTimeline()  # ranks of which no core is left
        self._overlap = False  # some rank is in it twice at a time
        self._touched = MaskTimeline()  # ranks with other bookings; removed ones stay in
        # (mask, start, end) of these bookings; None once removed
        self._parts: list[tuple[int, float, float] | None] = []
        self._on_rank: dict[int, list[tuple[float, float, int]]] = {}  # (start, end, key) of these
        self._lines: dict[int, _Line] = {}  # by rank, made when first asked for
        self._lacks: dict[Need, _Lack] = {}

    def rebase(self, profile: RunningProfile) -> None:
        """Go on with another profile of the same ranks."""
        self.profile = profile
        self._lines = {}
        self._lacks = {}

    def _split(self, booking: Booking) -> Iterator[tuple[int, int, bool]]:
        """Iterate over ``(mask, key, True if no core is left)``."""
        inventory = self.profile.inventory
        base = inventory.key_base
        for mask, key in booking.parts or ():
            for units, ranks in inventory.kinds.items():
                if mask & ranks:
                    yield mask & ranks, key, key // base >= inventory.keys[units] // base

    def enter(self, booking: Booking) -> None:
        """Count a booking in."""
        start, end = booking.start, booking.end
        self.starts.add(start)
        if end != INFINITY:
            self.ends.add(end)
        for mask, key, full in self._split(booking):
            if full:
                self._overlap = self._overlap or bool(self._full.union(start, end) & mask)
                self._full.add(start, end, mask)
            else:
                self._touched.add(start, end, mask)
                self._parts.append((mask, start, end))
                for rank in members(mask):
                    self._on_rank.setdefault(rank, []).append((start, end, key))
                    line = self._lines.get(rank)
                    if line is not None:
                        line.take(start, end, *divmod(key, self.profile.inventory.key_base))

    def remove(self, booking: Booking) -> bool:
        """Count a booking out again.

        Returns:
            False if that cannot be done: then all must be entered anew.
        """
        if self._overlap:
            return False
        start, end = booking.start, booking.end
        for mask, key, full in self._split(booking):
            if full:
                self._full.remove(start, end, mask)
                continue
            self._parts[self._parts.index((mask, start, end))] = None
            for rank in members(mask):
                self._on_rank[rank].remove((start, end, key))
                line = self._lines.get(rank)
                if line is None:
                    continue  # then no need has looked at the rank
                cores, gpus = divmod(key, self.profile.inventory.key_base)
                line.take(start, end, -cores, -gpus)
                for need, lack in self._lacks.items():
                    lack.timeline.remove(start, end, 1 << rank)
                    for low, high in self._lacking(rank, start, end, need):
                        lack.timeline.add(low, high, 1 << rank)
        return True

    def leaving(self, room: int, need: Need, start: float, end: float) -> int:
        """The ranks of a mask on which bookings leave enough for a need all through a span.

        The mask is of ranks that would have enough without any booking.
        """
        room &= ~self._full.union(start, end)
        if room and self._parts:
            room &= ~self._lack(need).union(start, end)
        return room

    def touched(self, start: float, end: float) -> int:
        """Mask of ranks that may have a booking in a span that leaves some cores."""
        return self._touched.union(start, end)

    def booked(self, start: float = -INFINITY, end: float = INFINITY) -> int:
        """Mask of the ranks that have any booking in a span."""
        mask = self._full.union(start, end)
        for part in self._parts:
            if part is not None and part[1] < end and part[2] > start:
                mask |= part[0]
        return mask

    def _line(self, rank: int) -> _Line:
        line = self._lines.get(rank)
        if line is None:
            base = self.profile.inventory.key_base
            line = self._lines[rank] = _Line(self.profile, rank)
            for start, end, key in self._on_rank.get(rank, ()):
                line.take(start, end, *divmod(key, base))
        return line

    def least(self, rank: int, start: float, end: float) -> tuple[int, int]:
        """The least counts that a rank has left in a span: ``(cores, gpus)``.

        Bookings that leave no core do not count here.
        """
        cores, gpus = self._line(rank).least(start, end)
        # What is held for a job may be in use yet.
        return max(0, cores), max(0, gpus)

    @property
    def removable(self) -> bool:
        """Whether `remove()` can be done for all: none takes what another one has taken."""
        return not self._overlap

    def steps(self, rank: int, start: float, end: float) -> list[Step]:
        """List of ``(time, cores, gpus)``: what a rank has left in a span, from its start on.

        Bookings that leave no core do not count here.
        """
        return list(self._line(rank).steps(start, end))

    def overdrawn(self, rank: int, time: float) -> bool:
        """True if more is booked on a rank at a time than it has."""
        return min(self._line(rank).at(time)) < 0

    def _lack(self, need: Need) -> MaskTimeline:
        """Timeline of the ranks where bookings leave too little for a need."""
        lack = self._lacks.get(need)
        if lack is None:
            lack = self._lacks[need] = _Lack()
        timeline = lack.timeline
        for part in self._parts[lack.seen :]:
            if part is None:
                continue
            mask, start, end = part
            spans: dict[tuple[float, float], list[int]] = {}
            for rank in members(mask):
                for span in self._lacking(rank, start, end, need):
                    spans.setdefault(span, []).append(rank)
            for (low, high), ranks in spans.items():
                timeline.add(low, high, mask_of(ranks))
        lack.seen = len(self._parts)
        return timeline

    def _lacking(
        self, rank: int, start: float, end: float, need: Need
    ) -> Iterator[tuple[float, float]]:
        """Spans, within a span, in which a rank has too little left for a need."""
        inventory = self.profile.inventory
        full = None
        if need.whole:
            full = divmod(inventory.keys[inventory.full[rank]], inventory.key_base)
        since: float | None = None
        for time, cores, gpus in self._line(rank).steps(start, end):
            if cores < need.cores or gpus < need.gpus or (full and (cores, gpus) != full):
                if since is None:
                    since = time
            elif since is not None:
                yield since, time
                since = None
        if since is not None:
            yield since, end


class _Lack:
    """The ranks where bookings leave too little for a need, by time, and how many parts of bookings
    are counted in."""

    __slots__ = ("timeline", "seen")

    def __init__(self) -> None:
        self.timeline = MaskTimeline()
        self.seen = 0


class _Line:
    """What one rank has left, step by step: running jobs and partial bookings."""

    __slots__ = ("times", "cores", "gpus")

    def __init__(self, profile: RunningProfile, rank: int) -> None:
        base = profile.inventory.key_base
        keys = [profile.key_now(rank)]
        self.times = [-INFINITY]
        for time, key in profile.gains(rank):
            if time == self.times[-1]:
                keys[-1] = key  # several jobs end at once: no step lies between them
                continue
            self.times.append(time)
            keys.append(key)
        self.cores = [key // base for key in keys]
        self.gpus = [key % base for key in keys]

    def _cut(self, time: float) -> int:
        """Place of the step that starts at a time, made if it is not there."""
        at = bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:
            self.times.insert(at, time)
            self.cores.insert(at, self.cores[at - 1])
            self.gpus.insert(at, self.gpus[at - 1])
        return at

    def take(self, start: float, end: float, cores: int, gpus: int) -> None:
        """Take counts for a span (or, below 0, give them back)."""
        first = self._cut(start)
        last = len(self.times) if end == INFINITY else self._cut(end)
        for at in range(first, last):
            self.cores[at] -= cores
            self.gpus[at] -= gpus

    def at(self, time: float) -> tuple[int, int]:
        at = bisect_right(self.times, time) - 1
        return self.cores[at], self.gpus[at]

    def least(self, start: float, end: float) -> tuple[int, int]:
        first = bisect_right(self.times, start) - 1
        last = bisect_left(self.times, end)
        return min(self.cores[first:last]), min(self.gpus[first:last])

    def steps(self, start: float, end: float) -> Iterator[Step]:
        """Iterate over ``(time, cores, gpus)`` in a span; the first time is its start."""
        at = bisect_right(self.times, start) - 1
        yield start, self.cores[at], self.gpus[at]
        for place in range(at + 1, bisect_left(self.times, end)):
            yield self.times[place], self.cores[place], self.gpus[place]
