# SPDX-License-Identifier: LGPL-3.0-or-later
"""Room that running jobs leave on the ranks of a pool over time, and the demands of requests on it.

Room is an `Availability`, plain or compiled. This module turns the pool's jobs into uses of ranks,
shapes into demands, and ranks into placements of the pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from flux.resource.plan import compiled
from flux.resource.plan.availability import Demand
from flux.resource.plan.plain_availability import PlainAvailability
from flux.resource.plan.strategy import length_of
from flux.resource.pool.inventory import pairs
from flux.resource.pool.masks import members, popcount, take
from flux.resource.pool.remembered import Remembered

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.plan.availability import Amounts
    from flux.resource.plan.claims import Claims
    from flux.resource.plan.compiled import CompiledAvailability
    from flux.resource.pool.contract import JobRecord
    from flux.resource.pool.inventory import Inventory, Selection
    from flux.resource.pool.rank_index import RankIndex
    from flux.resource.pool.view import PoolWithView
    from flux.resource.request import Claimant, ResourceRequest, Shape

#: More units than any pool has.
ALL_UNITS = 1 << 40


class RoomOnRanks:
    """Availability of a pool's ranks, with its running jobs entered.

    Args:
        pool (PoolWithView): with a view
        claims (Claims): the claims of running jobs on ranks, or None

    Attributes:
        room: the availability; `make` replaces it
        up (int): mask of the ranks up when it was made
        inventory (Inventory): the pool's at that time
    """

    room: PlainAvailability | CompiledAvailability
    inventory: Inventory

    def __init__(self, pool: PoolWithView, claims: Claims | None) -> None:
        self._pool = pool
        self._claims = claims
        self.make()

    def copy(self) -> Self:
        """Return an independent copy."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__, room=self.room.copy(), _jobs=self._jobs.copy())
        return new

    # -- following the pool -------------------------------------------------

    def make(self) -> None:
        """Begin anew, with the pool's inventory and running jobs."""
        pool = self._pool
        self.inventory = inventory = pool.inventory
        self.up = pool.eligible(None)
        totals = {}
        for units, mask in inventory.kinds.items():
            amounts = inventory.counts_of(units)
            totals.update(dict.fromkeys(members(mask), amounts))
        self.room = _availability(totals, self.up)
        self._areas: Remembered[tuple[Shape, Claimant | None], list[Demand]] = Remembered()
        # By job id, its record, and the number of its use.
        self._jobs: dict[int, tuple[object, int]] = {}
        pool.changes_since(pool.generation)  # notes changes from now on
        ends = {jobid: end for end, jobid in pool.jobs_by_end()}
        for jobid, record in pool.records_now().items():
            self.come(jobid, record, ends.get(jobid, 0.0))

    def come(
        self, jobid: int, record: JobRecord, end: float, claimant: Claimant | None = None
    ) -> None:
        """Enter a job that holds resources until a time; 0: unknown."""
        inventory, room = self.inventory, self.room
        if self._claims is not None and jobid in self._claims.running:
            claimant = self._claims.running[jobid][0]
        where = [(mask, inventory.counts_of(units)) for mask, units in pairs(record[1:]) if units]
        number = room.use(-inf, end or inf, where, None, claimant)
        self._jobs[jobid] = record, number

    def changes_since(self, generation: int) -> Mapping[int, JobRecord | None] | None:
        """Return, by job id, the record of each job that may have changed since a generation of the
        pool (None if it is gone); None if everything must be made again."""
        pool = self._pool
        if pool.inventory is not self.inventory or pool.eligible(None) != self.up:
            return None
        return pool.changes_since(generation)

    def follow(self, jobid: int, record: JobRecord | None, end: float) -> bool:
        """Update a job, with its believed end (0: unknown); return whether it now holds something,
        or until another time."""
        known = self._jobs.get(jobid)
        if known is not None:
            if known[0] == record:
                return False
            _, number = self._jobs.pop(jobid)
            self.room.drop(number)
        if record is not None:
            self.come(jobid, record, end)
        return record is not None

    # -- demands ------------------------------------------------------------

    def demand(self, request: ResourceRequest, among: int = -1) -> Demand:
        """Return the least demand of a request, on the ranks among some (a mask) that are up."""
        shape, claimant = request.shape, request.claimant
        each, ranks = self.inventory.padded(shape.need), self._pool.eligible(shape.match) & among
        if shape.node_count is not None:
            return Demand(shape.node_count.min, each, True, shape.exclusive, ranks, claimant)
        return Demand(shape.slot_count.min, each, not any(each), False, ranks, claimant)

    def areas(self, request: ResourceRequest) -> list[Demand]:
        """Return the alternative demands, one of which must be met; none if only the pool can find a
        placement. Not to be changed."""
        shape = request.shape
        areas = self._areas.get((shape, request.claimant))
        if areas is None:
            groups = [-1] if self._pool.countable(shape) else self._groups(shape)
            areas = [self.demand(request, mask) for mask in groups]
            self._areas[shape, request.claimant] = areas
        return areas

    def _groups(self, shape: Shape) -> Sequence[int]:
        """Return masks of the groups, one of which must hold all of a shape, if counts decide in
        each."""
        within = shape.within
        if within is not None and within.segment == within.most == 1:
            if self._pool.countable(shape.replace(within=None)):
                return within.groups.masks
        return ()

    # -- what is free -------------------------------------------------------

    def closed(self, claimant: Claimant | None, start: float, end: float) -> int:
        """Return a mask of the ranks that other jobs' claims keep from a claimant at some moment of
        a span; from minus infinity on: also those of jobs past their ends."""
        return 0 if claimant is None else self.room.taken(start, end, claimant)

    def all_of(self, ranks: int) -> list[tuple[int, Amounts]]:
        """Return ``(rank, total amounts)`` of some ranks (a mask)."""
        inventory = self.inventory
        return [
            (rank, inventory.counts_of(units))
            for units, mask in inventory.kinds.items()
            for rank in members(mask & ranks)
        ]

    # -- placements ---------------------------------------------------------

    def index_beside(self, shape: Shape, ranks: int, now: float, end: float) -> RankIndex:
        """Return the pool's index, less the needs of promises on some ranks."""
        index = self._pool.index
        if exact(shape):
            return index
        touched = ranks & self.room.taken(now, end)
        if touched:
            index = index.copy()
            each = self.inventory.padded((shape.slot_size, shape.gpu_per_slot, *shape.slot_amounts))
            once = self.inventory.padded((0, 0, *shape.node_amounts))
            demand = Demand(ALL_UNITS, each, False, False, touched)
            for rank, slots in self.room.room_by_rank(demand, now, end):
                reduce(index, rank, tuple([slots * e + o for e, o in zip(each, once)]))
        return index

    def place_at(
        self, request: ResourceRequest, index: RankIndex, start: float, end: float
    ) -> tuple[Selection, int] | None:
        """Return the pool's placement of a request by an index, on ranks without a promise in a
        span, and open to it."""
        eligible = self._pool.eligible(request.shape.match) & ~self.room.taken(start, end)
        since = start if start > self._pool.clock() else -inf
        eligible &= ~self.closed(request.claimant, since, end)
        return self._pool.place_request(request, index, eligible)

    def index_at(self, time: float) -> RankIndex:
        """Return an index of the units free at a time, with ids."""
        pool = self._pool
        index = pool.index.copy()
        if time > pool.clock():
            for end, jobid in pool.jobs_by_end():
                if end > time:
                    break
                index.release(pool.held(jobid))
        return index

    def first_placed(self, request: ResourceRequest, start: float, ends: Iterable[float]) -> float:
        """Return the first time from `start` on at which the pool finds a placement; infinity if
        there is none.

        Args:
            ends: ends of the promises, seconds since the epoch
        """
        pool, length = self._pool, length_of(request)
        index = self.index_at(start)
        releases = [(end, pool.held(jobid)) for end, jobid in pool.jobs_by_end() if end > start]
        releases += [(end, ()) for end in ends if start < end < inf]  # a promise gives nothing back
        releases.sort(key=lambda one: one[0], reverse=True)
        time = start
        while True:
            if self.place_at(request, index, time, time + length) is not None:
                return time
            if not releases:
                return inf
            time = releases[-1][0]
            while releases and releases[-1][0] == time:
                index.release(releases.pop()[1])


def _availability(
    totals: Mapping[int, Amounts], up: int
) -> PlainAvailability | CompiledAvailability:
    if not compiled.is_built():
        return PlainAvailability(totals, up)
    from flux.resource.plan.compiled import CompiledAvailability

    return CompiledAvailability(totals, up)


def reduce(index: RankIndex, rank: int, kept: tuple[int, ...]) -> None:
    """Leave at most some cores, GPUs and steps of amounts of a rank free in an index."""
    inventory = index.inventory
    free = index.free(rank)
    cores, gpus = free & inventory.core_mask, inventory.gpus(free)
    keep = take(cores, min(kept[0], popcount(cores)))
    keep |= take(gpus, min(kept[1], popcount(gpus))) << inventory.shift
    keep |= inventory.take_amounts(free, kept[2:])
    if keep != free:
        index.take((rank, free ^ keep))


def exact(shape: Shape) -> bool:
    """Return whether room for the need of one node or slot is all that matters on a rank."""
    if shape.node_count is None:
        return shape.slot_count.max == 1
    return shape.slot_count.fixed
