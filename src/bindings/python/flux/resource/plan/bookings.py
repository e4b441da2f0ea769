# SPDX-License-Identifier: LGPL-3.0-or-later
"""What is booked on the ranks of a pool, and what that leaves of them.

A booking takes counts of cores and GPUs on certain ranks for a span of time (see ``promise.py``):
it is a bound promise, or a job that was started lately. Where a booking leaves no core of a rank,
the rank is of no use to any request then, and a single timeline of masks has all such ranks. Of the
other ranks it depends on the request whether what is left is enough: for each kind of need there is
a timeline of the ranks where it is not, made when it was asked for often enough to be worth it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from flux.resource.plan.mask_timeline import INFINITY, MaskTimeline, SortedTimes
from flux.resource.pool.masks import lowest, mask_of, members, popcount

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.plan.promise import Booking
    from flux.resource.plan.running_profile import Need, RunningProfile


#: Ranks that are asked one by one what they have left, for each part of a booking that came since:
#: to enter a part for a need costs about as much. Beyond that all parts are entered.
RANKS_ASKED_PER_PART = 4
#: Parts of bookings that are entered at once for a need where somebody wants to know no more than
#: whether there are enough ranks: with hundreds of promises, all of them would take a long turn.
PARTS_AT_ONCE = 64
#: Up to so many ranks are asked without having it shown by masks which of them have bookings in a
#: span: over a long span that costs a mask for each block of times.
MAX_ASKED_WITHOUT_MASKS = 64

#: ``(time, cores, gpus)``: what is free from a time on.
Step = tuple[float, int, int]


class Bookings:
    """Bookings beside what running jobs leave (a RunningProfile)."""

    def __init__(self, profile: RunningProfile) -> None:
        self.profile = profile
        self.ends = SortedTimes()
        self.starts = SortedTimes()
        self._full = MaskTimeline()  # ranks of which no core is left
        # Whether a rank was entered there twice for one moment. One of the two cannot be removed
        # then, since a mask does not tell how often a rank is in it.
        self._overlap = False
        self._touched = MaskTimeline()  # ranks with other bookings; removed ones stay in
        # (mask, start, end, key) of these bookings; None once removed. The ranks of each are of one kind.
        self._parts: list[tuple[int, float, float, int] | None] = []
        # Where each of them is there: jobs that were started together are removed together. Tuples, as
        # below.
        self._places: dict[tuple[int, float, float], tuple[int, ...]] = {}
        # By rank, (start, end, key) of these. Tuples, so that a copy shares them.
        self._on_rank: dict[int, tuple[tuple[float, float, int], ...]] = {}
        self._timelines: dict[int, _RankTimeline] = {}  # by rank, made when first asked for
        self._shortages: dict[Need, _Shortage] = {}
        #: looks at single ranks and at parts of bookings so far: what searches cost most
        self.work = 0

    def copy(self, profile: RunningProfile) -> Self:
        """Independent bookings, beside a profile of the same ranks. O(ranks + bookings), without a
        look at any of them."""
        new = object.__new__(type(self))
        new.__dict__.update(
            self.__dict__,
            profile=profile,
            ends=self.ends.copy(),
            starts=self.starts.copy(),
            _full=self._full.copy(),
            _touched=self._touched.copy(),
            _parts=self._parts[:],
            _places=self._places.copy(),
            _on_rank=self._on_rank.copy(),
            _timelines={},
            _shortages={},
        )
        if profile is self.profile:
            shortages = {need: one.copy() for need, one in self._shortages.items()}
            new._shortages = shortages
        return new

    def follow(self, profile: RunningProfile) -> None:
        """Use a profile of the same ranks that has just followed the pool: the same one, or another.

        What is left of ranks on which nothing has changed still holds, and is kept if no booking was
        taken out there: each step that is left of such a one costs `pack()` some of its effort. What
        is short for a need is not known any more: single ranks are asked again, at first.
        """
        changed = profile.changed_ranks
        if changed is None:
            self._timelines = {}
        else:
            for rank in members(changed):
                self._timelines.pop(rank, None)
            self._timelines = {
                rank: one for rank, one in self._timelines.items() if not one.has_idle_steps
            }
        if profile is not self.profile:
            self.profile = profile
            for timeline in self._timelines.values():
                timeline.profile = profile
        self._shortages = {}

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
                part = (mask, start, end)
                self._places[part] = (*self._places.get(part, ()), len(self._parts))
                self._parts.append((*part, key))
                for rank in members(mask):
                    self._on_rank[rank] = (*self._on_rank.get(rank, ()), (start, end, key))
                    timeline = self._timelines.get(rank)
                    if timeline is not None:
                        timeline.book(start, end, *divmod(key, self.profile.inventory.key_base))

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
            at, *same = self._places.pop((mask, start, end))
            self._parts[at] = None
            if same:
                self._places[mask, start, end] = tuple(same)
            for rank in members(mask):
                left = list(self._on_rank[rank])
                left.remove((start, end, key))
                self._on_rank[rank] = tuple(left)
                timeline = self._timelines.get(rank)
                if timeline is not None:
                    cores, gpus = divmod(key, self.profile.inventory.key_base)
                    timeline.take(start, end, -cores, -gpus)
                    timeline.has_idle_steps = True
            others = [rank for rank in members(mask) if self._on_rank[rank]]
            for need, shortage in self._shortages.items():
                if shortage.seen:
                    shortage.masks.remove(start, end, mask)
                    self._enter_short(shortage.masks, others, start, end, need)
        return True

    def leaving(self, room: int, need: Need, start: float, end: float, least: int = 0) -> int:
        """The ranks of a mask on which bookings leave enough for a need all through a span.

        The mask is of ranks that would have enough without any booking.

        Args:
            least (int): who asks has no use for fewer ranks. If there are fewer, the answer may have
                ranks in it that do not belong there, but fewer than this.
        """
        room &= ~self._full.union(start, end)
        count = popcount(room)
        if count < least or not room or not self._parts:
            return room
        shortage = self._shortages.get(need)
        if shortage is None:
            shortage = self._shortages[need] = _Shortage()
        behind = len(self._parts) - shortage.seen
        if behind and not least:
            ranks = room & self._touched.union(start, end)
            if shortage.asked + popcount(ranks) <= RANKS_ASKED_PER_PART * behind:
                return room & ~self._short_among(ranks, need, start, end, shortage)
            self._catch_up(shortage, need, behind)
        elif behind:
            if shortage.asked > RANKS_ASKED_PER_PART * min(behind, PARTS_AT_ONCE):
                self._catch_up(shortage, need, PARTS_AT_ONCE)
            if shortage.seen:
                room &= ~shortage.masks.union(start, end)
                count = popcount(room)
                if count < least:
                    return room
            if shortage.seen < len(self._parts):
                ranks = room
                if count > MAX_ASKED_WITHOUT_MASKS:
                    ranks = room & self._touched.union(start, end)
                spare = count - least
                room &= ~self._short_among(ranks, need, start, end, shortage, spare)
            return room
        return room & ~shortage.masks.union(start, end)

    def _short_among(
        self,
        ranks: int,
        need: Need,
        start: float,
        end: float,
        shortage: _Shortage,
        spare: float = INFINITY,
    ) -> int:
        """Those of some ranks (a mask) that at some moment of a span have too little for a need.

        Args:
            shortage (_Shortage): of the need: which notes how many ranks are asked
            spare (float): if they are more than so many, it does not matter which others there are
        """
        inventory = self.profile.inventory
        timelines = self._timelines
        on_rank = self._on_rank
        short = found = asked = 0
        # Promises are bound to the highest ranks there are, so that these are the first to be short.
        for rank in reversed(members(ranks)):
            if not on_rank.get(rank):
                continue
            asked += 1
            cores, gpus = need.cores, need.gpus
            if need.whole:
                cores, gpus = divmod(inventory.keys[inventory.full[rank]], inventory.key_base)
            timeline = timelines.get(rank)
            if timeline is None:
                timeline = self._timeline(rank)
            if timeline.is_short(start, end, cores, gpus):
                short |= 1 << rank
                found += 1
                if found > spare:
                    break
        shortage.asked += asked
        self.work += asked
        return short

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

    def _timeline(self, rank: int) -> _RankTimeline:
        timeline = self._timelines.get(rank)
        if timeline is None:
            timeline = _RankTimeline(self.profile, rank, self._on_rank.get(rank, ()))
            self._timelines[rank] = timeline
        return timeline

    def least(self, rank: int, start: float, end: float) -> tuple[int, int]:
        """The least counts that a rank has left in a span: ``(cores, gpus)``.

        Bookings that leave no core do not count here.
        """
        cores, gpus = self._timeline(rank).least(start, end)
        # Ranks that are kept for a job without a time may be in use still: less than nothing is
        # left.
        return max(0, cores), max(0, gpus)

    @property
    def removable(self) -> bool:
        """Whether `remove()` can be done for all: none takes what another one has taken."""
        return not self._overlap

    def steps(self, rank: int, start: float, end: float) -> list[Step]:
        """List of ``(time, cores, gpus)``: what a rank has left in a span, from its start on.

        Bookings that leave no core do not count here.
        """
        return list(self._timeline(rank).steps(start, end))

    def is_shared(self, rank: int) -> bool:
        """Whether a rank has two bookings or more, at any times, that leave some cores. O(1)."""
        return len(self._on_rank.get(rank, ())) > 1

    def overdrawn(self, rank: int, time: float) -> bool:
        """True if more is booked on a rank at a time than it has."""
        return min(self._timeline(rank).at(time)) < 0

    def _catch_up(self, shortage: _Shortage, need: Need, most: int) -> None:
        """Take the bookings into account of which a shortage does not know yet, at most so many."""
        masks = shortage.masks
        inventory = self.profile.inventory
        base = inventory.key_base
        parts = self._parts[shortage.seen : shortage.seen + most]
        for part in parts:
            if part is None:
                continue
            mask, start, end, key = part
            self.work += 1
            full = inventory.keys[inventory.full[lowest(mask)]]
            if need.whole or not need.fits(full - key, base):
                # Without any other booking too little is left of each of its ranks.
                masks.add(start, end, mask)
            else:
                ranks = members(mask)
                self._enter_short(masks, ranks, start, end, need)
                self.work += len(ranks)
        shortage.seen += len(parts)
        shortage.asked = 0

    def _enter_short(
        self, masks: MaskTimeline, ranks: list[int], start: float, end: float, need: Need
    ) -> None:
        """Enter when, within a span, some ranks have too little left for a need."""
        spans: dict[tuple[float, float], list[int]] = {}
        for rank in ranks:
            for span in self._short_spans(rank, start, end, need):
                spans.setdefault(span, []).append(rank)
        for (low, high), same in spans.items():
            masks.add(low, high, mask_of(same))

    def _short_spans(
        self, rank: int, start: float, end: float, need: Need
    ) -> Iterator[tuple[float, float]]:
        """Spans, within a span, in which a rank has too little left for a need."""
        inventory = self.profile.inventory
        full = None
        if need.whole:
            full = divmod(inventory.keys[inventory.full[rank]], inventory.key_base)
        since: float | None = None
        for time, cores, gpus in self._timeline(rank).steps(start, end):
            if cores < need.cores or gpus < need.gpus or (full and (cores, gpus) != full):
                if since is None:
                    since = time
            elif since is not None:
                yield since, time
                since = None
        if since is not None:
            yield since, end


class _Shortage:
    """The ranks on which bookings leave too little for one kind of need.

    Attributes:
        masks (MaskTimeline): these ranks, by time.
        seen (int): how many parts of bookings are taken into account.
        asked (int): how many ranks were asked one by one since others came.
    """

    __slots__ = ("asked", "masks", "seen")

    def __init__(self) -> None:
        self.masks = MaskTimeline()
        self.seen = 0
        self.asked = 0

    def copy(self) -> _Shortage:
        new = _Shortage()
        new.masks = self.masks.copy()
        new.seen = self.seen
        new.asked = self.asked
        return new


class _RankTimeline:
    """What one rank has left, step by step: running jobs and partial bookings.

    What comes free as jobs end is counted in as far as somebody asks.

    Attributes:
        booked_from, booked_until (float): it has no booking before and after these
        has_idle_steps (bool): whether nothing may change at some of its steps
        last_start (float): no booking begins after this: from then on, what is left only grows
    """

    __slots__ = (
        "booked_from",
        "booked_until",
        "cores",
        "gpus",
        "has_idle_steps",
        "last_start",
        "profile",
        "rank",
        "times",
        "_until",
    )

    def __init__(
        self, profile: RunningProfile, rank: int, booked: Iterable[tuple[float, float, int]]
    ) -> None:
        self.profile = profile
        self.rank = rank
        base = profile.inventory.key_base
        self.booked_from, self.booked_until = INFINITY, -INFINITY
        self.last_start = -INFINITY
        self.has_idle_steps = False
        more_cores: dict[float, int] = {}
        more_gpus: dict[float, int] = {}
        for start, end, key in booked:
            self.last_start = max(self.last_start, start)
            cores, gpus = divmod(key, base)
            more_cores[start] = more_cores.get(start, 0) - cores
            more_gpus[start] = more_gpus.get(start, 0) - gpus
            if end == INFINITY:
                self.booked_until = INFINITY
            else:
                more_cores[end] = more_cores.get(end, 0) + cores
                more_gpus[end] = more_gpus.get(end, 0) + gpus
        cores, gpus = divmod(profile.key_now(rank), base)
        times = sorted(more_cores)
        if times:
            self.booked_from = times[0]
            self.booked_until = max(self.booked_until, times[-1])
        self.times = [-INFINITY, *times]
        self.cores = list(accumulate([cores, *[more_cores[time] for time in times]]))
        self.gpus = list(accumulate([gpus, *[more_gpus[time] for time in times]]))
        self._until = -INFINITY  # what comes free by then is counted in

    def _reach(self, time: float) -> None:
        """Count in what comes free up to a time."""
        if time <= self._until:
            return
        gained = self.profile.gains(self.rank, self._until, time)
        self._until = time
        base = self.profile.inventory.key_base
        for since, key in gained:
            cores, gpus = divmod(key, base)
            self.take(since, INFINITY, -cores, -gpus)

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

    def book(self, start: float, end: float, cores: int, gpus: int) -> None:
        """Count in a booking."""
        self.booked_from = min(self.booked_from, start)
        self.booked_until = max(self.booked_until, end)
        self.last_start = max(self.last_start, start)
        self.take(start, end, cores, gpus)

    def at(self, time: float) -> tuple[int, int]:
        self._reach(time)
        at = bisect_right(self.times, time) - 1
        return self.cores[at], self.gpus[at]

    def least(self, start: float, end: float) -> tuple[int, int]:
        first, last = self._places(start, end)
        return min(self.cores[first:last]), min(self.gpus[first:last])

    def _places(self, start: float, end: float) -> tuple[int, int]:
        """The steps of a span, as a slice, but those at the end of which it is known that there is no
        less left than before: ends of running jobs need not be swept over as far as that."""
        falls_until = self.last_start
        if falls_until < start:
            falls_until = start
        times = self.times
        if falls_until < end:
            if falls_until > self._until:
                self._reach(falls_until)
            last = bisect_right(times, falls_until)
        else:
            if end > self._until:
                self._reach(end)
            last = bisect_left(times, end)
        first = bisect_right(times, start) - 1
        # A span may be shorter than a clock tells.
        return first, last if last > first else first + 1

    def is_short(self, start: float, end: float, cores: int, gpus: int) -> bool:
        """Whether bookings leave less than this at some moment from ``start`` to before ``end``, where
        there would be enough without any: running jobs only give back."""
        if start >= self.booked_until or end <= self.booked_from:
            return False
        if start < self.booked_from:
            start = self.booked_from
        if end > self.booked_until:
            end = self.booked_until
        first, last = self._places(start, end)
        return min(self.cores[first:last]) < cores or min(self.gpus[first:last]) < gpus

    def steps(self, start: float, end: float) -> Iterator[Step]:
        """Iterate over ``(time, cores, gpus)`` in a span; the first time is its start."""
        self._reach(end)
        at = bisect_right(self.times, start) - 1
        yield start, self.cores[at], self.gpus[at]
        for place in range(at + 1, bisect_left(self.times, end)):
            yield self.times[place], self.cores[place], self.gpus[place]
