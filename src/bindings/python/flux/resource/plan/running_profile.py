# SPDX-License-Identifier: LGPL-3.0-or-later
"""What comes free when the running jobs of a pool end.

Plans work with counts: on each rank so many cores and GPUs are free, as one key (see
``pool/rank_index.py``). Which of them a job gets is decided when it starts. Counts are enough to
promise that it will find some: if nothing else starts, what is free only grows until then, and
every job that starts earlier is counted.

The ends of running jobs are swept over in their order, a block of them at a time
(``end_block.py``), and only as far as somebody asks. When jobs come and go, what was swept over is
corrected on their ranks alone. A ``Track`` tells which ranks have room for one kind of need.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from flux.resource.plan.end_block import ENDS_PER_BLOCK, EndBlock
from flux.resource.plan.mask_timeline import INFINITY
from flux.resource.pool.inventory import pairs
from flux.resource.pool.masks import mask_of, members, popcount

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.plan.end_block import End, Move
    from flux.resource.pool.inventory import Inventory
    from flux.resource.pool.rank_index import RankIndex
    from flux.resource.request import Shape
    from flux.resource.ResourcePoolImplementation import JobRecord, ResourcePoolImplementation

#: A profile is made anew when more than one job in so many has come or gone. To correct it for one
#: costs as much as to sweep over eight ends or more; and a new one is swept over no farther than
#: somebody asks, mostly in parts, while corrections are made all at once, by each who has a copy.
JOBS_PER_CHANGE = 32

#: Needs whose Track is kept, and shapes of which it is known which: as many as a queue has at a time.
MAX_TRACKS = 256
MAX_SHAPES = 4096
#: Blocks of which a Track keeps a mask for each time.
MAX_BLOCKS_WITHIN = 8
#: Searches of which a Track keeps the result.
MAX_FIRSTS = 1024

#: ``(end, job id, key)``: so much more a rank has free from then on.
Gain = tuple[float, int, int]


class RunningProfile:
    """What is free on each rank of a pool from now on, as counts, if nothing else starts.

    It is of the pool as it was when the profile was made, or followed it. Jobs that ran past their
    ends count as ending now.

    Args:
        pool (ResourcePoolImplementation): with a view

    Attributes:
        inventory (Inventory), index (RankIndex): those of the pool; the index is a copy
        generation (int): of the pool, as of which all this is true
        now (float): the time then, in seconds since the epoch
        shared (bool): others have it as well, so that it may not be changed
        unswept (float): the next end that the sweep has not come to; infinity if there is none
        blocks (list): the ends that it has come to, as EndBlock
        heads (list): for each block, ``(end, job id)``: none of it is before that
        changes (int): how often it has followed the pool
        swept (int): how many ends were swept over
        changed_ranks (int or None): mask of the ranks on which something changed when it followed the
            pool last; None: it was made anew since
    """

    def __init__(self, pool: ResourcePoolImplementation) -> None:
        self.inventory: Inventory = pool.inventory
        self.index: RankIndex = pool.index.copy()
        self.generation = pool.generation
        pool.changes_since(self.generation)  # from now on it notes them
        self.now = pool.clock()
        self.shared = False
        self.blocks: list[EndBlock] = []
        self.heads: list[End] = []
        self.changes = 0
        self.swept = 0
        self.changed_ranks: int | None = None
        self._owner = object()
        self._records = pool.records_now()
        self._coming = pool.jobs_by_end()  # the ends not swept over, from the next one on
        self._next = 0
        # By rank, what it gains at ends that were swept over, in their order.
        self._gains: dict[int, tuple[Gain, ...]] = {}
        self._known_keys: dict[int, int] = {}  # by units
        # By job id, as far as somebody asked: its parts; the moves at its end, which hold until jobs
        # come or go on its ranks; and what it gives back on the ranks that are counted. On a small
        # pool all ends are in one block, of which otherwise all would be found anew at each change.
        self._parts_by_job: dict[int, list[tuple[int, int, bool]]] = {}
        self._moves_by_job: dict[int, list[Move]] = {}
        self._totals_by_job: dict[int, tuple[int, int]] = {}
        self._tracks: dict[Need, Track] = {}
        self._tracks_of: dict[Shape, Track] = {}  # by shape, what is in _tracks by need
        self._totals_of = 0
        self._begin()

    def _begin(self) -> None:
        """Forget what is worked out anew after each change."""
        if self._next > len(self._coming) // 2:
            del self._coming[: self._next]
            self._next = 0
        self._tell_unswept()
        self._groups: list[dict[int, int]] = []  # behind each of the first blocks
        # What comes free before each of the first blocks, and on which ranks that is counted.
        self._totals: list[tuple[int, int]] = []

    def _tell_unswept(self) -> None:
        coming = self._coming
        self.unswept = coming[self._next][0] if self._next < len(coming) else INFINITY

    def copy(self) -> Self:
        """An independent one. O(jobs): a copy of two dicts and some lists, with a look at none."""
        new = object.__new__(type(self))
        new.__dict__.update(
            self.__dict__,
            shared=False,
            blocks=self.blocks[:],
            heads=self.heads[:],
            _owner=object(),
            _records=self._records.copy(),
            _coming=self._coming[:],
            _gains=self._gains.copy(),
            _parts_by_job=self._parts_by_job.copy(),
            _moves_by_job=self._moves_by_job.copy(),
            _totals_by_job={},
            _tracks={},
            _tracks_of={},
        )
        self._owner = object()  # neither may change the blocks that both have
        new._begin()
        return new

    # -- following the pool -------------------------------------------------

    def followed(self, pool: ResourcePoolImplementation) -> RunningProfile:
        """The profile of the pool as it is now: this one, unless it is shared, or too much has
        changed. O(log jobs) for each job that came or went, and a look at what else runs on its ranks.
        """
        changes = None
        if pool.inventory is self.inventory:
            changes = pool.changes_since(self.generation)
        if changes is None or len(changes) > ENDS_PER_BLOCK + len(self._records) / JOBS_PER_CHANGE:
            return RunningProfile(pool)
        profile = self.copy() if self.shared else self
        profile.take_in(pool, changes)
        return profile

    def take_in(
        self, pool: ResourcePoolImplementation, changes: dict[int, JobRecord | None]
    ) -> None:
        """Become the profile of the pool as it is now; it may not be shared.

        Args:
            pool: the pool, with the same inventory as before
            changes: the jobs that changed since, as ``changes_since()`` of the pool has them
        """
        gone, come = [], []
        for jobid, record in changes.items():
            before = self._records.get(jobid)
            if before != record:
                if before is not None:
                    gone.append((jobid, before))
                if record is not None:
                    come.append((jobid, record))
        # Ranks that jobs have a part of: what others leave free there changes at all their ends.
        parted = changed = 0
        for _, record in gone + come:
            for mask, _, whole in self._parts(record):
                changed |= mask
                if not whole:
                    parted |= mask
        self.changed_ranks = changed
        self._flip(parted)
        for jobid, record in gone:
            self._leave(jobid, record, parted)
        for jobid, record in come:
            self._come(jobid, record, parted)
        self.index = pool.index.copy()
        self._flip(parted)
        for at in range(len(self.blocks) - 1, -1, -1):
            if len(self.blocks[at].ends) > 2 * ENDS_PER_BLOCK:
                self._divide(at)
        self.generation = pool.generation
        self.now = pool.clock()
        self.changes += 1
        self._begin()

    def _flip(self, ranks: int) -> None:
        """Enter what a mask of ranks comes to have free at ends swept over; or take it out, if it was
        entered."""
        alike: dict[tuple[int, tuple[Gain, ...]], list[int]] = {}
        for rank in members(ranks):
            gains = self._gains.get(rank)
            if gains:
                alike.setdefault((self.key_now(rank), gains), []).append(rank)
                for _, jobid, _ in gains:
                    self._moves_by_job.pop(jobid, None)
        for (key, gains), same in alike.items():
            mask = mask_of(same)
            for end, jobid, more in gains:
                key += more
                self._own_block((end, jobid)).flip(key, mask)

    def _leave(self, jobid: int, record: JobRecord, parted: int) -> None:
        """Take out a job. Of the ranks that somebody has a part of (a mask), the keys are out."""
        del self._records[jobid]
        self._parts_by_job.pop(jobid, None)
        self._moves_by_job.pop(jobid, None)
        self._totals_by_job.pop(jobid, None)
        end = (record[0], jobid)
        if not end[0]:
            return
        coming, gains = self._coming, self._gains
        if self._next < len(coming) and end >= coming[self._next]:
            del coming[bisect_left(coming, end, self._next)]
            return
        block = self._own_block(end)
        block.remove(end)
        self.swept -= 1
        for mask, key, whole in self._parts(record):
            alone = mask & ~parted if whole else 0
            if alone:
                block.flip(key, alone)
                for rank in members(alone):
                    del gains[rank]
            for rank in members(mask ^ alone):
                left = tuple([one for one in gains[rank] if one[1] != jobid])
                if left:
                    gains[rank] = left
                else:
                    del gains[rank]
        if not block.ends:
            at = self.blocks.index(block)
            del self.blocks[at], self.heads[at]

    def _come(self, jobid: int, record: JobRecord, parted: int) -> None:
        """Enter a job, but for the keys of the ranks that somebody has a part of (a mask)."""
        self._records[jobid] = record
        end = (record[0], jobid)
        if not end[0]:
            return
        if not self.blocks or end > self.blocks[-1].ends[-1]:
            insort(self._coming, end, self._next)
            return
        block = self._own_block(end)
        block.add(end)
        self.heads[0] = min(self.heads[0], end)
        self.swept += 1
        gains = self._gains
        for mask, key, whole in self._parts(record):
            gain = (*end, key)
            alone = mask & ~parted if whole else 0
            if alone:
                block.flip(key, alone)
                gains.update(dict.fromkeys(members(alone), (gain,)))
            for rank in members(mask ^ alone):
                gains[rank] = tuple(sorted([*gains.get(rank, ()), gain]))

    def _own_block(self, end: End) -> EndBlock:
        """The block that an end is in, or belongs in, to be changed."""
        at = max(0, bisect_right(self.heads, end) - 1)
        block = self.blocks[at]
        if block.owner is not self._owner:
            block = self.blocks[at] = block.copy(self._owner)
        return block

    def _divide(self, at: int) -> None:
        """Make two blocks of one."""
        ends = self.blocks[at].ends
        half = len(ends) // 2
        halves = []
        for some in (ends[:half], ends[half:]):
            reached: dict[int, int] = {}
            for end in some:
                for mask, key in self._moves_of(end):
                    reached[key] = reached.get(key, 0) | mask
            halves.append(EndBlock(self._owner, some, reached))
        self.blocks[at : at + 1] = halves
        self.heads.insert(at + 1, ends[half])

    # -- sweeping -----------------------------------------------------------

    def _parts(self, record: JobRecord) -> Iterator[tuple[int, int, bool]]:
        """What a job holds: mask of ranks, key, whether that is all that each of these has."""
        keys, kinds = self.inventory.keys, self.inventory.kinds
        for mask, units in pairs(record[1:]):
            key = keys.get(units)
            if key is not None and mask & ~kinds[units] == 0:
                yield mask, key, True
            elif units:
                yield mask, self._key(units), False

    def _parts_of(self, jobid: int) -> list[tuple[int, int, bool]]:
        """What a job holds, as `_parts()` says it. O(1) when it was asked for before."""
        parts = self._parts_by_job.get(jobid)
        if parts is None:
            parts = self._parts_by_job[jobid] = list(self._parts(self._records[jobid]))
        return parts

    def _key(self, units: int) -> int:
        """The key of a mask of units. Most jobs have one of a few masks."""
        key = self._known_keys.get(units)
        if key is None:
            key = self._known_keys[units] = self.inventory.key(units)
        return key

    def step(self) -> bool:
        """Sweep over the ends of another block; False if there is none."""
        ends = self._coming[self._next : self._next + ENDS_PER_BLOCK]
        if not ends:
            return False
        all_gains = self._gains
        reached: dict[int, list[int]] = {}
        for end in ends:
            for mask, key, whole in self._parts_of(end[1]):
                gain = (*end, key)
                ranks = members(mask)
                if whole:
                    all_gains.update(dict.fromkeys(ranks, (gain,)))
                    reached.setdefault(key, []).extend(ranks)
                    continue
                for rank in ranks:
                    gains = all_gains.get(rank, ())
                    after = self.key_now(rank) + key
                    for one in gains:
                        after += one[2]
                    all_gains[rank] = (*gains, gain)
                    reached.setdefault(after, []).append(rank)
        masks = {key: mask_of(sorted(ranks)) for key, ranks in reached.items()}
        self.blocks.append(EndBlock(self._owner, ends, masks))
        self.heads.append(ends[0])
        self._next += len(ends)
        self.swept += len(ends)
        self._tell_unswept()
        return True

    def extend(self, time: float) -> None:
        """Sweep over every end up to a time."""
        while self.unswept <= time and self.step():
            pass

    def extend_in_parts(self, time: float, blocks: int) -> bool:
        """Sweep over ends up to a time, at most so many blocks of them; whether some are left."""
        while self.unswept <= time and blocks > 0:
            self.step()
            blocks -= 1
        return self.unswept <= time

    def _moves_of(self, end: End) -> list[Move]:
        """What ranks have free from an end on that was swept over."""
        known = self._moves_by_job.get(end[1])
        if known is not None:
            return known
        moves = self._moves_by_job[end[1]] = []
        for mask, key, whole in self._parts_of(end[1]):
            if whole:
                moves.append((mask, key))
                continue
            reached: dict[int, list[int]] = {}
            for rank in members(mask):
                after = self.key_now(rank)
                for gain in self._gains[rank]:
                    after += gain[2]
                    if gain[1] == end[1]:
                        break
                reached.setdefault(after, []).append(rank)
            moves += [(mask_of(ranks), key) for key, ranks in reached.items()]
        return moves

    # -- questions ----------------------------------------------------------

    def end_of(self, jobid: int) -> float | None:
        """When a job ends, 0: not known; None: there is no such job."""
        record = self._records.get(jobid)
        return None if record is None else record[0]

    def next_end_after(self, time: float) -> float:
        """The first end later than a time; infinity if there is none."""
        if time < self.now:
            return self.now  # where those that are late end
        self.extend(time)
        at = bisect_right(self.heads, (time, INFINITY)) - 1
        if at >= 0:
            ends = self.blocks[at].ends
            place = bisect_right(ends, (time, INFINITY))
            if place < len(ends):
                return ends[place][0]
        return self.blocks[at + 1].ends[0][0] if at + 1 < len(self.blocks) else self.unswept

    def key_now(self, rank: int) -> int:
        """What a rank has free now, as a key."""
        return self._key(self.index.free(rank))

    def gains(self, rank: int, since: float, until: float) -> list[tuple[float, int]]:
        """What a rank gains as jobs end after a time, up to another one: list of ``(time, key)``, so
        much more from then on. O(jobs on the rank)."""
        self.extend(until)
        return [(end, key) for end, _, key in self._gains.get(rank, ()) if since < end <= until]

    def groups_at(self, time: float) -> dict[int, int]:
        """Key to mask of ranks at a time: what each rank has free then."""
        self.extend(time)
        at = bisect_right(self.heads, (time, INFINITY)) - 1 if time >= self.now else -1
        known = self._groups
        if not known:
            known.append(self.index.groups.copy())
        while len(known) <= at:
            block, groups = self.blocks[len(known) - 1], known[-1].copy()
            _enter_keys(groups, block.steps(self._moves_of)[1])
            _move(groups, [(mask, key) for key, mask in block.reached.items()])
            known.append(groups)
        groups = known[max(0, at)].copy()
        if at >= 0:
            times, moves = self.blocks[at].steps(self._moves_of)
            moves = moves[: bisect_right(times, time)]
            _enter_keys(groups, moves)
            for some in moves:
                _move(groups, some)
        return groups

    def total_at(self, time: float, ranks: int) -> tuple[int, int]:
        """Cores and GPUs that a mask of ranks has free at a time, together."""
        self.extend(time)
        totals, base = self._totals, self.inventory.key_base
        if self._totals_of != ranks:
            self._totals_by_job.clear()
            totals.clear()
        if not totals:
            cores = gpus = 0
            for key, mask in self.index.groups.items():
                count = popcount(mask & ranks)
                cores += count * (key // base)
                gpus += count * (key % base)
            totals = self._totals = [(cores, gpus)]
            self._totals_of = ranks
        at = bisect_right(self.heads, (time, INFINITY)) - 1 if time >= self.now else -1
        if at < 0:
            return totals[0]

        def gain_of(end: End) -> tuple[int, int]:
            known = self._totals_by_job.get(end[1])
            if known is None:
                cores = gpus = 0
                for mask, key, _ in self._parts_of(end[1]):
                    count = popcount(mask & ranks)
                    cores += count * (key // base)
                    gpus += count * (key % base)
                known = self._totals_by_job[end[1]] = cores, gpus
            return known

        while len(totals) <= at:
            cores, gpus = self.blocks[len(totals) - 1].sums(ranks, gain_of)[-1]
            totals.append((totals[-1][0] + cores, totals[-1][1] + gpus))
        block = self.blocks[at]
        cores, gpus = block.sums(ranks, gain_of)[bisect_right(block.ends, (time, INFINITY))]
        return totals[at][0] + cores, totals[at][1] + gpus

    def moves(self, block: EndBlock) -> tuple[list[float], list[list[Move]]]:
        """The different times in a block, and what ranks have free from each on."""
        return block.steps(self._moves_of)

    def track(self, need: Need) -> Track:
        """The Track of a need (see ``Need``)."""
        track = self._tracks.get(need)
        if track is None:
            if len(self._tracks) >= MAX_TRACKS:
                self._tracks.clear()
                self._tracks_of.clear()
            track = self._tracks[need] = Track(self, need)
        return track

    def track_of(self, shape: Shape) -> Track:
        """The Track of what each node of a shape needs, or one slot of it."""
        track = self._tracks_of.get(shape)
        if track is None:
            track = self.track(Need.of(shape))
            if len(self._tracks_of) >= MAX_SHAPES:
                self._tracks_of.clear()
            self._tracks_of[shape] = track
        return track

    def index_at(self, time: float) -> RankIndex:
        """A RankIndex with the units that are free at a time, ids and all."""
        index = self.index.copy()
        if time < self.now:
            return index
        self.extend(time)
        for block in self.blocks:
            for end, jobid in block.ends:
                if end > time:
                    return index
                index.give(self._records[jobid][1:])
        return index


def _enter_keys(groups: dict[int, int], steps: list[list[Move]]) -> None:
    """Have groups for all keys that ranks come to have. Placements try groups in the order in which
    they are met, so that it has to be the same however often the profile has changed."""
    for moves in steps:
        for _, key in moves:
            groups.setdefault(key, 0)


def _move(groups: dict[int, int], moves: list[Move]) -> None:
    """Have ranks in other groups. A rank that is in several moves has the largest key at the end."""
    moved = 0
    for mask, _ in moves:
        moved |= mask
    for key in groups:
        groups[key] &= ~moved
    for mask, key in sorted(moves, key=_key_of, reverse=True):
        part = mask & moved
        moved ^= part
        groups[key] |= part


def _key_of(move: Move) -> int:
    return move[1]


class Track:
    """The ranks with room for a need, from each end of a running job on. They only become more."""

    __slots__ = (
        "profile",
        "need",
        "_changes",
        "_enough",
        "_now",
        "_own",
        "_behind",
        "_blocks",
        "_within",
        "_firsts",
    )

    def __init__(self, profile: RunningProfile, need: Need) -> None:
        self.profile = profile
        self.need = need
        self._changes = -1  # those of the profile that are taken into account
        self._enough: dict[int, bool] = {}  # by key: whether ranks with so much free have room
        self._now = 0  # ranks with room before any end
        self._own: dict[int, int] = {}  # by stamp of a block: those that come to have room in it
        self._behind: list[int] = []  # ranks with room behind each of the first blocks
        self._blocks: list[int] = []  # of these blocks, those that come to have room in it
        # By number of a block: its stamp, times, and the ranks with room from each on.
        self._within: dict[int, tuple[int, list[float], list[int]]] = {}
        # By count and mask of ranks: the first time with room on so many, and the block and stamp.
        self._firsts: dict[tuple[int, int], tuple[float, int, int]] = {}

    def _follow(self) -> None:
        """Keep what is known of the first blocks as far as there is as much room as before."""
        profile, blocks = self.profile, self.profile.blocks
        self._changes = profile.changes
        now = self._among(profile.index.groups.items())
        same = -1  # so many blocks; not even the room before the first one
        if now == self._now:
            same = 0
            there = min(len(self._behind), len(blocks))
            while same < there and self._own_of(blocks[same]) == self._blocks[same]:
                same += 1
        self._now = now
        del self._behind[max(0, same) :], self._blocks[max(0, same) :]

        def holds(number: int, stamp: int) -> bool:
            return number <= same and number < len(blocks) and blocks[number].stamp == stamp

        self._within = {at: one for at, one in self._within.items() if holds(at, one[0])}
        self._firsts = {one: found for one, found in self._firsts.items() if holds(*found[1:])}
        if len(self._own) > 2 * len(blocks) + 16:
            here = {block.stamp for block in blocks}
            self._own = {stamp: mask for stamp, mask in self._own.items() if stamp in here}

    def _own_of(self, block: EndBlock) -> int:
        """The ranks that come to have room in a block; some may have had it before."""
        own = self._own.get(block.stamp)
        if own is None:
            own = self._own[block.stamp] = self._among(block.reached.items())
        return own

    def _among(self, keys: Iterable[tuple[int, int]]) -> int:
        """The ranks with room among some masks, of ranks with so much free."""
        need, inventory, enough = self.need, self.profile.inventory, self._enough
        room = 0
        for key, mask in keys:
            fits = enough.get(key)
            if fits is None:
                fits = enough[key] = need.fits(key, inventory.key_base)
            if fits:
                room |= need.among(mask, key, inventory) if need.whole else mask
        return room

    def _before(self, number: int) -> int:
        """The ranks with room before a block, one swept over."""
        if not number:
            return self._now
        behind = self._behind
        while len(behind) < number:
            own = self._own_of(self.profile.blocks[len(behind)])
            self._blocks.append(own)
            behind.append((behind[-1] if behind else self._now) | own)
        return behind[number - 1]

    def _in(self, number: int) -> tuple[list[float], list[int]]:
        """The times in a block, and the ranks with room from each on."""
        within = self._within.get(number)
        if within is None:
            if len(self._within) >= MAX_BLOCKS_WITHIN:
                self._within.clear()
            block = self.profile.blocks[number]
            times, moves = self.profile.moves(block)
            room = self._before(number)
            rooms = []
            for some in moves:
                for mask, key in some:
                    if mask & ~room and self._enough.get(key) is not False:
                        room |= self._among(((key, mask),))
                rooms.append(room)
            within = self._within[number] = block.stamp, times, rooms
        return within[1], within[2]

    def at(self, time: float) -> int:
        """Mask of the ranks that have room from a time on."""
        profile = self.profile
        if self._changes != profile.changes:
            self._follow()
        if time < profile.now:
            return self._now
        if time >= profile.unswept:
            profile.extend(time)
        number = bisect_right(profile.heads, (time, INFINITY)) - 1
        if number < 0:
            return self._now
        ends = profile.blocks[number].ends
        if ends[-1][0] <= time:
            return self._before(number + 1)
        if ends[0][0] > time:
            return self._before(number)
        times, rooms = self._in(number)
        return rooms[bisect_right(times, time) - 1]

    def first(self, count: int, ranks: int, start: float) -> float:
        """First time, from ``start`` on, with room on so many of a mask of ranks.

        Infinity if there is none.
        """
        profile = self.profile
        start = max(start, profile.now)
        if self._changes != profile.changes:
            self._follow()
        known = self._firsts.get((count, ranks))
        if known is not None:
            return max(start, known[0])
        if popcount(self.at(start) & ranks) >= count:
            return start
        low = max(0, bisect_right(profile.heads, (start, INFINITY)) - 1)
        # The ranks with room only become more: what is known is halved, then it goes on.
        high = len(self._behind)
        if high > low and popcount(self._behind[-1] & ranks) >= count:
            high -= 1
            while low < high:
                middle = (low + high) // 2
                if popcount(self._behind[middle] & ranks) < count:
                    low = middle + 1
                else:
                    high = middle
        else:
            low = max(low, high)
            while True:
                if low == len(profile.blocks) and not profile.step():
                    return INFINITY
                if popcount(self._before(low + 1) & ranks) >= count:
                    break
                low += 1
        times, rooms = self._in(low)
        first, last = 0, len(rooms) - 1
        while first < last:
            middle = (first + last) // 2
            if popcount(rooms[middle] & ranks) < count:
                first = middle + 1
            else:
                last = middle
        if len(self._firsts) >= MAX_FIRSTS:
            self._firsts.clear()
        self._firsts[count, ranks] = times[first], low, profile.blocks[low].stamp
        return max(start, times[first])


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
