# SPDX-License-Identifier: LGPL-3.0-or-later
"""What comes free when the running jobs of a pool end.

Plans work with counts: on each rank so many cores and GPUs are free, as one key (see
``pool/rank_index.py``). Which of them a job gets is decided when it starts. Counts are enough to
promise that it will find some: if nothing else starts, what is free only grows until then, and
every job that starts earlier is counted.

The ends of running jobs are swept over once, in their order and only as far as somebody asks. For
each end the profile has the ranks that gain by it. A ``Track`` tells from that which ranks have
room for one kind of need.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flux.resource.plan.mask_timeline import INFINITY
from flux.resource.pool.masks import members, popcount

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.pool.inventory import Inventory, Selection
    from flux.resource.pool.rank_index import RankIndex
    from flux.resource.request import Shape

#: Ranks of a job up to which each is looked up by itself; for more it is cheaper to go through all
#: groups of ranks, of which there are a few dozen.
MAX_RANKS_ONE_BY_ONE = 4
#: Ends swept over before the ranks with room are counted again: counting costs a mask as long as
#: the cluster, an end little more than its job's ranks.
ENDS_PER_CHECK = 15
#: Ranks asked for their gains until it is worth to sort all moves by rank: that costs as much as so
#: many walks over the moves.
RANKS_BEFORE_SORTING = 8


#: ``(mask of ranks, before, after)``: what these have free until then and from then on, as keys.
Move = tuple[int, int, int]


class RunningProfile:
    """What is free on each rank of a pool from now on, as counts, if nothing else starts.

    Args:
        inventory, index: of the pool; the index is copied.
        ends: ascending ``(end, jobid)`` of the running jobs that end.
        held: callable that tells what one of these jobs holds as of now; called during the sweep, which
            may go on after the pool has changed.
        now (float): ends before it count as now.

    Attributes:
        unswept (float): the next end that the sweep has not come to; infinity if there is none
    """

    def __init__(
        self,
        inventory: Inventory,
        index: RankIndex,
        ends: list[tuple[float, int]],
        held: Callable[[int], Selection],
        now: float,
    ) -> None:
        self.inventory = inventory
        self.index = index.copy()
        late = bisect_right(ends, (now, INFINITY))
        self._ends = [(now, jobid) for _, jobid in ends[:late]] + ends[late:]
        self._held = held
        self._next = 0
        self.unswept = self._ends[0][0] if self._ends else INFINITY
        # How far the sweep is: the key of each rank that was released in parts, and ranks by key.
        self._keys: dict[int, int] = {}
        self._known_keys: dict[int, int] = {}  # by units
        # What single ranks gained since the groups were used, which only the release of many needs.
        self._ungrouped: list[Move] = []
        self._groups = index.groups.copy()
        rest = inventory.ranks
        for mask in self._groups.values():
            rest &= ~mask
        self._groups[0] = rest
        self.times = [now]
        #: for each time, what changes then
        self.moves: list[list[Move]] = [[]]
        # By rank, what it gains: (place in times, key); of the first so many times.
        self._gains: dict[int, list[tuple[int, int]]] = {}
        self._sorted = 1
        self._asked = 0  # how many ranks were asked about before
        self._kept: list[int] = []  # steps, ascending, of which the groups are kept
        self._kept_groups: list[dict[int, int]] = []
        self._tracks: dict[Need, Track] = {}
        self._tracks_of: dict[Shape, Track] = {}  # by shape, what is in _tracks by need

    def next_end_after(self, time: float) -> float:
        """The first end later than a time; infinity if there is none."""
        if time >= self.unswept:
            self.extend(time)
        at = bisect_right(self.times, time)
        return self.times[at] if at < len(self.times) else self.unswept

    def step(self) -> bool:
        """Sweep over the next end and all jobs that share it; False if there is none."""
        ends = self._ends
        at = self._next
        if at == len(ends):
            return False
        time = ends[at][0]
        moves: list[Move] = []
        while at < len(ends) and ends[at][0] == time:
            selection = iter(self._held(ends[at][1]))
            for ranks in selection:
                units = next(selection)
                key = self.inventory.keys.get(units)
                if key is None and ranks >= 0:
                    if units:
                        self._release_of(ranks, units, moves)
                    continue
                mask = 1 << ranks if ranks >= 0 else ~ranks
                if key is not None and mask & ~self.inventory.kinds[units] == 0:
                    moves.append((mask, 0, key))  # all that these ranks have
                elif units:
                    self._release(mask, units, moves)
            at += 1
        self._next = at
        self.unswept = ends[at][0] if at < len(ends) else INFINITY
        self.times.append(time)
        self.moves.append(moves)
        return True

    def extend(self, time: float) -> None:
        """Sweep over every end up to a time."""
        while self.unswept <= time and self.step():
            pass

    def _key(self, units: int) -> int:
        """The key of a mask of units. Most jobs have one of a few masks."""
        key = self._known_keys.get(units)
        if key is None:
            key = self._known_keys[units] = self.inventory.key(units)
        return key

    def _release_of(self, rank: int, units: int, moves: list[Move]) -> None:
        """A job returns units of a single rank."""
        keys = self._keys
        before = keys.get(rank)
        if before is None:
            before = self._key(self.index.free(rank))
        keys[rank] = after = before + self._key(units)
        move = (1 << rank, before, after)
        moves.append(move)
        self._ungrouped.append(move)

    def _release(self, mask: int, units: int, moves: list[Move]) -> None:
        """A job returns the same units of each of some ranks."""
        if popcount(mask) <= MAX_RANKS_ONE_BY_ONE:
            while mask:
                bit = mask & -mask
                mask ^= bit
                self._release_of(bit.bit_length() - 1, units, moves)
            return
        delta = self._key(units)
        groups = self._groups
        keys = self._keys
        for moved, before, after in self._ungrouped:
            groups[before] ^= moved
            groups[after] = groups.get(after, 0) | moved
        self._ungrouped.clear()
        gained = []
        for key, ranks in groups.items():
            part = ranks & mask
            if part:
                gained.append((part, key))
        for part, before in gained:
            after = before + delta
            groups[before] ^= part
            groups[after] = groups.get(after, 0) | part
            moves.append((part, before, after))
            for rank in members(part):
                keys[rank] = after

    def groups_at(self, time: float) -> dict[int, int]:
        """Key to mask of ranks at a time: what each rank has free then."""
        self.extend(time)
        step = bisect_right(self.times, time) - 1
        near = bisect_right(self._kept, step) - 1
        if near < 0:
            groups = self.index.groups.copy()
            done = 0
        else:
            done = self._kept[near]
            groups = self._kept_groups[near].copy()
        for number in range(done + 1, step + 1):
            for mask, before, after in self.moves[number]:
                if before:
                    groups[before] ^= mask
                groups[after] = groups.get(after, 0) | mask
        if step - done >= ENDS_PER_CHECK:
            self._kept.insert(near + 1, step)
            self._kept_groups.insert(near + 1, groups)
        return groups

    def key_now(self, rank: int) -> int:
        """What a rank has free now, as a key."""
        return self.inventory.key(self.index.free(rank))

    def gains(self, rank: int, done: int, until: float) -> tuple[list[tuple[float, int]], int]:
        """What a rank gains as jobs end. O(jobs that end meanwhile) for the first ranks that are asked
        about, then O(what it gains).

        Args:
            rank (int): which
            done (int): how many of `times` were taken into account; at first 1
            until (float): up to this time, and no farther

        Returns:
            list of ``(time, key)``: so much more it has free from then on; and the new ``done``
        """
        self.extend(until)
        times = self.times
        last = max(done, bisect_right(times, until))
        if self._asked < RANKS_BEFORE_SORTING:
            self._asked += 1
            bit = 1 << rank
            found = [
                (number, after - before)
                for number in range(done, last)
                for mask, before, after in self.moves[number]
                if mask & bit
            ]
        else:
            self._sort_moves(last)
            found = self._gains.get(rank, [])
            found = found[bisect_left(found, (done,)) : bisect_left(found, (last,))]
        return [(times[number], key) for number, key in found], last

    def _sort_moves(self, last: int) -> None:
        """Have what ranks gain up to a place in `times` by rank."""
        gains = self._gains
        for number in range(self._sorted, last):
            for mask, before, after in self.moves[number]:
                for rank in members(mask):
                    gains.setdefault(rank, []).append((number, after - before))
        self._sorted = max(self._sorted, last)

    def track(self, need: Need) -> Track:
        """The Track of a need (see ``Need``)."""
        track = self._tracks.get(need)
        if track is None:
            track = self._tracks[need] = Track(self, need)
        return track

    def track_of(self, shape: Shape) -> Track:
        """The Track of what each node of a shape needs, or one slot of it."""
        track = self._tracks_of.get(shape)
        if track is None:
            track = self._tracks_of[shape] = self.track(Need.of(shape))
        return track

    def index_at(self, time: float) -> RankIndex:
        """A RankIndex with the units that are free at a time, ids and all."""
        index = self.index.copy()
        for end, jobid in self._ends:
            if end > time:
                break
            index.give(self._held(jobid))
        return index


class Track:
    """The ranks with room for a need, from each end of a running job on. They only become more."""

    __slots__ = ("profile", "need", "room")

    def __init__(self, profile: RunningProfile, need: Need) -> None:
        self.profile = profile
        self.need = need
        room = 0
        for key, mask in profile.index.groups.items():
            room |= need.among(mask, key, profile.inventory)
        self.room = [room]

    def _follow(self, count: int) -> list[int]:
        """Take the first so many times into account that the profile has swept over."""
        profile, room = self.profile, self.room
        if len(room) < count:
            need, inventory = self.need, profile.inventory
            enough: dict[int, bool] = {}  # by key: whether ranks with so much free have room
            mask = room[-1]
            for moves in profile.moves[len(room) : count]:
                for ranks, _, key in moves:
                    fits = enough.get(key)
                    if fits is None:
                        fits = enough[key] = need.fits(key, inventory.key_base)
                    if fits:
                        mask |= need.among(ranks, key, inventory) if need.whole else ranks
                room.append(mask)
        return room

    def at(self, time: float) -> int:
        """Mask of the ranks that have room from a time on."""
        profile = self.profile
        if time >= profile.unswept:
            profile.extend(time)
        # A clock that was set back asks for times before the first one.
        count = max(1, bisect_right(profile.times, time))
        # Others may have swept much farther: a mask for each end is what costs most here.
        return self.room[count - 1] if count <= len(self.room) else self._follow(count)[-1]

    def first(self, count: int, ranks: int, start: float) -> float:
        """First time, from ``start`` on, with room on so many of a mask of ranks.

        Infinity if there is none.
        """
        profile = self.profile
        profile.extend(start)
        room, times = self.room, profile.times
        known = max(len(room), bisect_right(times, start))
        while popcount(self._follow(known)[-1] & ranks) < count:
            if known == len(times):
                if not profile.step():
                    return INFINITY
                for _ in range(ENDS_PER_CHECK):
                    profile.step()
            known = min(known + ENDS_PER_CHECK + 1, len(times))
        # The ranks with room only become more, so the first time is found by halving.
        low, high = max(0, bisect_right(times, start) - 1), len(room) - 1
        while low < high:
            middle = (low + high) // 2
            if popcount(room[middle] & ranks) < count:
                low = middle + 1
            else:
                high = middle
        return max(start, times[low])


class Need:
    """What one rank must have free: counts of cores and GPUs, or all of it.

    Equal needs are equal as keys of a dict.
    """

    __slots__ = ("cores", "gpus", "whole", "_hash")

    def __init__(self, cores: int, gpus: int, whole: bool) -> None:
        self.cores = cores
        self.gpus = gpus
        self.whole = whole
        self._hash = hash((cores, gpus, whole))

    @classmethod
    def of(cls, shape: Shape) -> Self:
        """The need of each node of a shape, or of one slot of it."""
        if shape.node_count is not None:
            return cls(shape.node_cores, shape.node_gpus, shape.exclusive)
        return cls(shape.slot_size, shape.gpu_per_slot, False)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: Any) -> bool:
        return (self.cores, self.gpus, self.whole) == (other.cores, other.gpus, other.whole)

    def fits(self, key: int, base: int) -> bool:
        """True if a rank with so much free has room, not counting ``whole``."""
        cores, gpus = divmod(key, base)
        return cores >= self.cores and gpus >= self.gpus

    def among(self, mask: int, key: int, inventory: Inventory) -> int:
        """The part of a mask of ranks, all with the same free counts, that has room."""
        if not self.fits(key, inventory.key_base):
            return 0
        if not self.whole:
            return mask
        room = 0
        for units, ranks in inventory.kinds.items():
            if inventory.keys[units] == key:
                room |= mask & ranks
        return room
