# SPDX-License-Identifier: LGPL-3.0-or-later
"""Promises bound to ranks, used where the choice of ranks matters.

This is the case with nodes of several kinds, GPUs, constraints, and shared nodes.
``availability.py`` defines the free amounts of a rank at a time, and whether all promises can be
kept. `RoomOnRanks` enters the pool's jobs as uses of ranks, and turns requests into demands and
ranks into placements. `BoundStrategy` has the promises.

A promise keeps its time until its job can start at once, or until it is lost. Requests that counts
cannot decide (containers, a site's hooks) are placed by the pool, with its index at that time, on
ranks without a promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, takewhile
from math import inf
from operator import attrgetter

from flux.resource.plan import compiled
from flux.resource.plan.availability import MAX_PROMISES, Amounts, Demand
from flux.resource.plan.claims import Claims
from flux.resource.plan.compiled import CompiledAvailability
from flux.resource.plan.plain_availability import PlainAvailability
from flux.resource.plan.strategy import Promise, Strategy, jobs_last, too_long_until
from flux.resource.pool.contract import JobRecord
from flux.resource.pool.inventory import Inventory, Selection, pairs, selected_ranks
from flux.resource.pool.masks import mask_of, members, popcount, take
from flux.resource.pool.placement import RoomCounts
from flux.resource.pool.state import RankIndex, unused
from flux.resource.pool.view import PoolWithView
from flux.resource.request import Claimant, Remembered, ResourceRequest, Shape, length_of

#: Maximum number of promises compared with the free resources per reactor turn.
COMPARED_PER_TURN = 128
#: Maximum number of ranks that the searches of a row examine together, each some ten times.
RANKS_PER_TURN = 1024
#: With fewer ranks, a search costs less than a count: `t/bench/depth` blocked, `t/bench/large` gpus.
MANY_RANKS = 256
#: Maximum lateness of a start, in seconds, that leaves the promised end unchanged: timers are late by
#: a millisecond, and the next promise on the ranks begins at that end.
LATE_START_S = 1.0
#: Later than all ends except those of endless jobs.
LAST = 1e300
#: More units than any pool has.
ALL_UNITS = 1 << 40


class RoomOnRanks:
    """Availability of a pool's ranks, with its running jobs entered.

    Args:
        pool (PoolWithView): with a view
        claims (Claims): the claims of running jobs on ranks, or None

    Attributes:
        room: the availability; `rebuild` replaces it
        up (int): mask of the ranks up when it was made
        inventory (Inventory): the pool's at that time
    """

    room: PlainAvailability | CompiledAvailability
    inventory: Inventory

    def __init__(self, pool: PoolWithView, claims: Claims | None) -> None:
        self._pool = pool
        self._claims = claims
        self.rebuild()

    def copy(self) -> RoomOnRanks:
        """Return an independent copy."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__, room=self.room.copy(), _jobs=self._jobs.copy())
        return new

    def on_copy(self, pool: PoolWithView) -> RoomOnRanks:
        """Return an independent copy that follows a copy of the pool."""
        new = self.copy()
        new.__dict__.update(_pool=pool)
        pool.changes_since(pool.generation)  # from now on they are noted
        return new

    # -- following the pool -------------------------------------------------

    def rebuild(self) -> None:
        """Begin anew, with the pool's inventory and running jobs."""
        pool = self._pool
        self.inventory = inventory = pool.inventory
        self.up = pool.eligible(None)
        totals = {}
        for units, mask in inventory.kinds.items():
            amounts = inventory.counts_of(units)
            totals.update(dict.fromkeys(members(mask & self.up), amounts))
        self.room = compiled.availability(totals)
        self._demands: Remembered[tuple[Shape, Claimant | None], list[Demand]] = Remembered()
        # By job id, its record, and the number of its use.
        self._jobs: dict[int, tuple[object, int]] = {}
        pool.changes_since(pool.generation)  # notes changes from now on
        ends = {jobid: end for end, jobid in pool.jobs_by_end()}
        for jobid, record in pool.records_now().items():
            self.enter_job(jobid, record, ends.get(jobid, 0.0))

    def enter_job(
        self, jobid: int, record: JobRecord, end: float, claimant: Claimant | None = None
    ) -> None:
        """Enter a job that holds resources until a time; 0: unknown."""
        inventory, room = self.inventory, self.room
        if self._claims is not None and jobid in self._claims.running:
            claimant = self._claims.running[jobid][0]
        held = [(mask & self.up, units) for mask, units in pairs(record[1:]) if units]
        where = [(mask, inventory.counts_of(units)) for mask, units in held]
        number = room.use(-inf, end or inf, where, None, claimant)
        self._jobs[jobid] = record, number

    def changes_since(self, generation: int) -> Mapping[int, JobRecord | None] | None:
        """Return, by job id, the record of each job that may have changed since a generation of the
        pool (None if it is gone); None if everything must be made again."""
        pool = self._pool
        if pool.inventory is not self.inventory or pool.eligible(None) != self.up:
            return None
        return pool.changes_since(generation)

    def update_job(self, jobid: int, record: JobRecord | None, end: float) -> bool:
        """Update a job, with its believed end (0: unknown); return whether it now holds something,
        or until another time."""
        known = self._jobs.get(jobid)
        if known is not None:
            if known[0] == record:
                return False
            _, number = self._jobs.pop(jobid)
            self.room.drop(number)
        if record is not None:
            self.enter_job(jobid, record, end)
        return record is not None

    def endless(self) -> list[int]:
        """Return the ids of running jobs without an end.  O(running jobs)."""
        return [jobid for jobid, end in self._pool.job_end_times() if not end]

    def numbers_of_endless(self) -> list[int]:
        """Return the numbers of their uses."""
        return [self._jobs[jobid][1] for jobid in self.endless() if jobid in self._jobs]

    # -- demands ------------------------------------------------------------

    def demand(self, request: ResourceRequest, among: int = -1) -> Demand:
        """Return the least demand of a request, on the ranks among some (a mask) that are up."""
        shape, claimant = request.shape, request.claimant
        each, ranks = self.inventory.padded(shape.need), self._pool.eligible(shape.match) & among
        if shape.node_count is not None:
            return Demand(shape.node_count.min, each, True, shape.exclusive, ranks, claimant)
        return Demand(shape.slot_count.min, each, not any(each), False, ranks, claimant)

    def demands(self, request: ResourceRequest) -> list[Demand]:
        """Return the alternative demands, one of which must be met; none if only the pool can find a
        placement. Not to be changed."""
        shape = request.shape
        demands = self._demands.get((shape, request.claimant))
        if demands is None:
            groups = [-1] if self._pool.countable(shape) else self._groups(shape)
            demands = [self.demand(request, mask) for mask in groups]
            self._demands[shape, request.claimant] = demands
        return demands

    def _groups(self, shape: Shape) -> Sequence[int]:
        """Return masks of the groups, one of which must hold all of a shape, if counts decide in
        each."""
        within = shape.within
        if within is not None and within.segment == within.most == 1:
            if self._pool.countable(shape.replace(within=None)):
                return within.groups.masks
        return ()

    # -- free resources -----------------------------------------------------

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

    def book(
        self, demands: Iterable[Demand], start: float, end: float, now: float, may_move: bool
    ) -> int:
        """Bind a promise by the first of some demands for which there are ranks. Return the
        number of its use; 0: there are none."""
        book = self.room.book
        return next(filter(None, (book(one, start, end, now, may_move) for one in demands)), 0)

    # -- ranks to keep where there is too little room -----------------------

    def to_hold(
        self, request: ResourceRequest, ends: Iterable[float]
    ) -> list[tuple[int, Amounts]] | None:
        """Return the ``(rank, amounts)`` to keep for a job whose possible start is unknown; None if
        it does not fit on the ranks that are up even when they are idle. Ranks closed to it by the
        claims of jobs without an end come last. Of alternative demands, the one with room forever
        from the earliest time on is chosen. `ends`: of the promises, seconds since the epoch."""
        pool, shape, room, now = self._pool, request.shape, self.room, self._pool.clock()
        demands = self.demands(request)
        closed = self.closed(request.claimant, LAST, inf)
        choices = (~closed, -1) if closed else (-1,)
        if not demands:
            all_free, up = unused(self.inventory), pool.eligible(shape.match)
            clear = up & ~room.taken(-inf, inf) & ~closed
            for eligible in (clear, *(up & among for among in choices)):
                placed = pool.place_request(request, all_free, eligible)
                if placed is not None:
                    return self.all_of(selected_ranks(placed[0]))
            return None
        last = max(
            [now, *(end for end, _ in pool.jobs_by_end()[-1:]), *(e for e in ends if e < inf)]
        )
        for among in choices:
            some = [demand.on(among)._replace(claim=None) for demand in demands]
            if len(some) > 1:
                some.sort(key=lambda demand: room.earliest(demand, inf, now, now, False))
            for demand in some:
                kept = self._to_hold_for(demand, now, last)
                if kept is not None:
                    return kept
        return None

    def _to_hold_for(
        self, demand: Demand, now: float, last: float
    ) -> list[tuple[int, Amounts]] | None:
        """Return the ``(rank, amounts)`` to keep for a demand; None if its ranks do not suffice even
        when they are idle.

        If a single job without an end is in its way, its ranks come first: less is then kept of the
        ranks free now. Next come ranks that stay free forever, from now or from the time at which
        they suffice (or the last end, `last`), then any.
        """
        room = self.room
        kept: list[tuple[int, Amounts]] = []

        def keep(ranks: int) -> None:
            nonlocal demand
            chosen = take(ranks & demand.ranks, min(demand.count, popcount(ranks & demand.ranks)))
            for rank, total in sorted(self.all_of(chosen)):
                units = [have // need for have, need in zip(total, demand.each) if need]
                count = min(demand.count, 1 if demand.per_node or demand.whole else min(units))
                if count:
                    each = tuple(count * need for need in demand.each)
                    kept.append((rank, total if demand.whole else each))
                demand = demand._replace(count=demand.count - count)
            demand = demand._replace(ranks=demand.ranks & ~chosen)

        enough = min(room.earliest(demand, inf, now, now, False), last)
        endless = [self._pool.held(jobid) for jobid in self.endless()]
        endless = [one for one in endless if selected_ranks(one) & demand.ranks]
        keep(selected_ranks(endless[0]) if len(endless) == 1 else 0)
        keep(room.room(demand, now, inf)[1])
        keep(room.room(demand, enough, inf)[1])
        while demand.count and demand.ranks:  # some ranks may be too small for a slot
            keep(demand.ranks)
        return None if demand.count else kept

    def least_used(
        self, demand: Demand, start: float, kept: Iterable[tuple[float, int]]
    ) -> list[tuple[int, Amounts]]:
        """Return the ``(rank, amounts)`` to keep for a demand of whole ranks: the ranks in use for
        the shortest time from a start on, by running jobs or others. `kept`: ``(end, mask of
        ranks)`` of the others."""
        pool = self._pool
        running = [(end or inf, one) for one, end in pool.job_end_times()]
        uses = [(end, selected_ranks(pool.held(one))) for end, one in running]
        until = dict.fromkeys(members(demand.ranks), 0.0)
        for end, ranks in sorted([*uses, *kept]):
            if end > start:
                until.update(dict.fromkeys(members(ranks & demand.ranks), end))
        return self.all_of(mask_of(sorted(sorted(until, key=until.__getitem__)[: demand.count])))

    # -- placements ---------------------------------------------------------

    def index_beside(self, shape: Shape, ranks: int, now: float, end: float) -> RankIndex:
        """Return the pool's index, less the needs of promises on some ranks."""
        index = self._pool.index
        if counts_suffice(shape):
            return index
        touched = ranks & self.room.taken(now, end)
        if touched:
            index = index.copy()
            each = self.inventory.padded((shape.slot_size, shape.gpu_per_slot, *shape.slot_amounts))
            once = self.inventory.padded((0, 0, *shape.node_amounts))
            demand = Demand(ALL_UNITS, each, False, False, touched)
            for rank, slots in self.room.room_by_rank(demand, now, end):
                leave_free(index, rank, tuple([slots * e + o for e, o in zip(each, once)]))
        return index

    def place_at(
        self, request: ResourceRequest, index: RankIndex, start: float, end: float
    ) -> tuple[Selection, int] | None:
        """Return the pool's placement of a request by an index, on ranks without a promise in a
        span, and open to it."""
        eligible = self.clear_of_promises(request, start, end)
        return self._pool.place_request(request, index, eligible)

    def clear_of_promises(self, request: ResourceRequest, start: float, end: float) -> int:
        """Return a mask of the ranks that are up, match a request, are open to it and have no
        promise in a span."""
        eligible = self._pool.eligible(request.shape.match) & ~self.room.taken(start, end)
        since = start if start > self._pool.clock() else -inf
        return eligible & ~self.closed(request.claimant, since, end)

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
        there is none. `ends`: of the promises, seconds since the epoch."""
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


def leave_free(index: RankIndex, rank: int, most: tuple[int, ...]) -> None:
    """Take units of a rank in an index, so that at most these numbers of cores, GPUs and steps of
    amounts are free."""
    inventory = index.inventory
    free = index.free(rank)
    cores, gpus = free & inventory.core_mask, inventory.gpus(free)
    keep = take(cores, min(most[0], popcount(cores)))
    keep |= take(gpus, min(most[1], popcount(gpus))) << inventory.shift
    keep |= inventory.take_amounts(free, most[2:])
    if keep != free:
        index.take((rank, free ^ keep))


def counts_suffice(shape: Shape) -> bool:
    """Return whether a request fits on a rank if and only if one of its nodes or slots does."""
    if shape.node_count is None:
        return shape.slot_count.max == 1
    return shape.slot_count.fixed


class BoundStrategy(Strategy):
    """Promises as uses of ranks; see `CountedStrategy` for the methods.

    Args:
        pool (PoolWithView): with a view.
        counts (RoomCounts): counts of its free resources
        claims (Claims): the claims of running jobs on ranks, or None
    """

    moves_per_turn = COMPARED_PER_TURN
    promises: dict[int, Promise]

    def __init__(
        self, pool: PoolWithView, counts: RoomCounts, claims: Claims | None = None
    ) -> None:
        self._pool, self.counts = pool, counts
        self.seen: int | None = pool.generation
        self.promises = {}
        #: whether promises stay on their ranks, as in a copy for looking ahead
        self.frozen = False
        self._ranks = RoomOnRanks(pool, claims)
        #: whether all promises can be kept: all were checked since the last change for the worse
        self._sound = True
        # Promises that may take units in use, so that the free amount of a rank becomes negative:
        # open ones, promises to no job with too little room, and promises of all the ranks of
        # a placement by the pool.
        self._overdrawing: set[int] = set()
        self._kept_ids: set[int] = set()  # ids of the promises to no job
        self._in_groups: set[int] = set()  # ids of the promises within groups of ranks
        self._withdrawn: list[Promise] = []  # restorable until the pool changes
        # The placement found for a job and its planned end, until the job starts.
        self._placed: tuple[int, float] | None = None
        self._promised_end: dict[int, float] = {}

    def adopt(self, promises: Mapping[int, Promise]) -> None:
        """Keep promises that were counted: bind them in the order of their starts, which succeeds
        for all that can be kept. The others stay until their jobs are told."""
        if self.seen != self._pool.generation:
            self.sync()
        for jobid, promise in promises.items():
            self._add(jobid, promise)
        for jobid, bound in sorted(self.promises.items(), key=lambda one: one[1].start):
            if jobid < 0:
                self._bind_kept(jobid, bound)
            else:
                self._bind_somewhere(bound)

    def clear(self) -> None:
        """Forget all promises."""
        for jobid in list(self.promises):
            self.withdraw(jobid)

    def copy(self) -> BoundStrategy:
        new = object.__new__(type(self))
        new.__dict__.update(
            self.__dict__,
            promises={jobid: one.copy() for jobid, one in self.promises.items()},
            frozen=True,
            _ranks=self._ranks.copy(),
            _overdrawing=self._overdrawing.copy(),
            _kept_ids=self._kept_ids.copy(),
            _in_groups=self._in_groups.copy(),
            _withdrawn=[],
            _promised_end={},
        )
        return new

    def on_copy(self, pool: PoolWithView, counts: RoomCounts) -> BoundStrategy:
        """Return an independent copy for a copy of the pool, whose state is that last seen."""
        new, ranks, seen = self.copy(), self._ranks.on_copy(pool), pool.generation
        new.__dict__.update(_pool=pool, counts=counts, frozen=self.frozen, _ranks=ranks, seen=seen)
        return new

    # -- following the pool -------------------------------------------------

    def sync(self) -> bool:
        pool = self._pool
        self._forget_withdrawn()
        changes = self._ranks.changes_since(self.seen or 0)
        if changes is None:
            self._make_again()
            return True
        self.seen = pool.generation
        for jobid, record in changes.items():
            end = self._believed_end(jobid, record[0]) if record else 0.0
            if self._ranks.update_job(jobid, record, end):
                self._sound = False
        return True

    def _make_again(self) -> None:
        """Begin anew, with the promises on their former ranks."""
        kept = [
            (promise, self._ranks.room.amounts_of(promise.number))
            for promise in self.promises.values()
            if promise.number
        ]
        self._ranks.rebuild()
        self.seen = self._pool.generation
        for promise, amounts in kept:
            promise.number = 0
            if all(self._ranks.up >> rank & 1 for rank, _ in amounts):
                self._enter_on(promise, amounts)
        self._sound = False

    def _enter_on(self, promise: Promise, amounts: Iterable[tuple[int, Amounts]]) -> None:
        """Bind a promise to given amounts of ranks, free or not."""
        with_amounts: dict[Amounts, list[int]] = {}
        for rank, taken in sorted(amounts):
            with_amounts.setdefault(taken, []).append(rank)
        where = [(mask_of(ranks), taken) for taken, ranks in with_amounts.items()]
        demand = None  # by which it may be moved; None: it stays where it is
        if not (promise.is_open or promise.pinned):
            on = sum(ranks for ranks, _ in where)
            demands = self._ranks.demands(promise.request)
            demand = next((one for one in demands if not on & ~one.ranks), None)
        start, end, claimant = promise.start, promise.end, promise.request.claimant
        promise.number = self._ranks.room.use(start, end, where, demand, claimant)

    def _believed_end(self, jobid: int, end: float) -> float:
        """Return the believed end of a job that has started, by its end in the pool."""
        planned = self._promised_end.pop(jobid, None)
        is_on_time = planned is not None and 0 <= end - planned <= LATE_START_S
        return planned if planned is not None and is_on_time else end

    def started(
        self, jobid: int, claimant: Claimant | None, planned_end: float | None = None
    ) -> None:
        pool = self._pool
        placed, self._placed = self._placed, None
        if planned_end is not None:
            self._promised_end = {jobid: planned_end}
        if self.seen is None or pool.generation != self.seen + 1:
            return  # there were other changes as well
        end, held = pool.job_end(jobid), pool.held(jobid)
        believed = self._believed_end(jobid, end)
        if placed is None or selected_ranks(held) & ~placed[0] or (believed or inf) > placed[1]:
            self._sound = False
        self._ranks.enter_job(jobid, (end, *held), believed, claimant)
        self.seen = pool.generation

    # -- questions ----------------------------------------------------------

    def earliest(self, request: ResourceRequest, start: float, now: float) -> float:
        length = length_of(request)
        # Promises move to make a new one earlier, unless jobs have many.
        jobs = len(self.promises) - len(self._kept_ids)
        may_move = not self.frozen and jobs <= MAX_PROMISES
        demands = self._ranks.demands(request)
        if demands:
            find = self._ranks.room.earliest
            return min([find(demand, length, start, now, may_move) for demand in demands])
        ends = [one.end for one in self.promises.values()]
        return self._ranks.first_placed(request, start, ends)

    def fits_without(
        self, jobid: int | None, request: ResourceRequest, now: float, end: float
    ) -> bool:
        own = self.promises.get(jobid) if jobid is not None else None
        number = 0 if own is None else own.number
        room, may_move = self._ranks.room, not self.frozen
        demands = self._ranks.demands(request)
        if demands:
            until = self._enough_until(demands, now)
            if until < end and (own is None or own.start > until):
                return False
        if number:
            room.leave(number)
        try:
            if demands:
                return any(room.can_start(one, now, end, may_move) for one in demands)
            return self._ranks.place_at(request, self._pool.index, now, end) is not None
        finally:
            if number:
                room.enter(number)

    def is_free(self, request: ResourceRequest) -> bool:
        """Return whether a request could start now without promises to jobs."""
        if not self.may_start(request):
            return False
        pool, promises = self._pool, self.promises
        eligible, now = pool.eligible_ranks(request) & ~self.closed(request), pool.clock()
        for key in self._kept_ids:  # the free part of a rank in use may be a reservation's
            if promises[key].start <= now and promises[key].request.shape.exclusive:
                eligible &= ~self.ranks_of(key)
        return pool.place_request(request, pool.index, eligible) is not None

    def closed(self, request: ResourceRequest) -> int:
        return self._ranks.closed(request.claimant, -inf, -inf)

    def too_long(self, request: ResourceRequest, now: float, limit: float) -> float:
        if not self.may_start(request):
            return 0.0
        end, until = now + limit, self._enough_until(self._ranks.demands(request), now)
        if end == inf or until < end:
            return too_long_until(until, now)
        if self.fits_without(None, request, now, end):
            return inf
        # Only a use that begins takes room: shorter spans have none, down to the last start.
        starts = [p.start for p in self.promises.values() if now < p.start < end]
        return too_long_until(max(starts), now) if starts else limit

    def _enough_until(self, demands: list[Demand], now: float) -> float:
        """Return an upper bound of the time until which all ranks together have enough for any of
        these demands."""
        if not demands or not self._sound or self._overdrawing:
            return inf  # a shortage on all ranks together proves nothing
        return self._ranks.room.enough_until(demands[0], now)

    def count(self, request: ResourceRequest, start: float, end: float) -> int:
        shape, pool = request.shape, self._pool
        if shape.container_level is not None:
            eligible = self._ranks.clear_of_promises(request, start, end)
            rooms = pool.rooms(pool.index, shape, eligible)
            units = sum([number * popcount(ranks) for number, ranks in rooms])
        else:
            demand = self._ranks.demand(request)._replace(count=ALL_UNITS)
            units, ranks = self._ranks.room.room(demand, start, end)
            rooms = [(1, ranks)] if shape.node_count is not None else []
        return shape.within.best(rooms, units) if shape.within is not None and rooms else units

    @property
    def is_short(self) -> bool:  # type: ignore[override]
        return not self._kept_ids.isdisjoint(self._overdrawing)

    def stale(self, now: float) -> list[int]:
        lost = [jobid for jobid, _ in jobs_last(self.promises) if not self.can_keep(jobid, now)]
        self._sound = self._sound or not any(jobid >= 0 for jobid in lost)
        return lost

    # -- promises -----------------------------------------------------------

    def _bind(self, promise: Promise, may_move: bool) -> bool:
        """Bind a promise to ranks at its time, moving others if `may_move`; return whether there
        are any."""
        now, request = self._pool.clock(), promise.request
        promise.number = 0
        demands = self._ranks.demands(request)
        if demands:
            promise.number = self._ranks.book(demands, promise.start, promise.end, now, may_move)
        else:
            index = self._ranks.index_at(promise.start)
            placed = self._ranks.place_at(request, index, promise.start, promise.end)
            if placed is not None:
                self._enter_on(promise, self._ranks.all_of(selected_ranks(placed[0])))
        return promise.number > 0

    def _bind_somewhere(self, promise: Promise) -> None:
        """Bind a promise at its time; if that fails, keep ranks for it until its job is told."""
        if promise.is_open or not self._bind(promise, not self.frozen):
            ends = [one.end for one in self.promises.values()]
            amounts = self._ranks.to_hold(promise.request, ends)
            if amounts:
                self._enter_on(promise, amounts)
            self._sound = False

    def keep_free(self, key: int, request: ResourceRequest, start: float, end: float) -> bool:
        promise = Promise(start, end, request)
        self._add(key, promise)
        return self._bind_kept(key, promise)

    def _bind_kept(self, key: int, promise: Promise) -> bool:
        """Bind a promise to no job at its time, regardless of open promises; if that fails, to the
        ranks that running jobs and others of its kind use for the shortest time. Return whether it
        has room."""
        room, demand = self._ranks.room, self._ranks.demand(promise.request)
        if key in self._overdrawing and self.ranks_of(key) == demand.ranks:
            return False  # there are no others
        if promise.number:
            room.drop(promise.number)
        open_ones = [one.number for one in self.promises.values() if one.is_open and one.number]
        for number in open_ones:
            room.leave(number)
        fits = self._bind(promise, not self.frozen)
        for number in open_ones:
            room.enter(number)
        if fits:
            self._overdrawing.discard(key)
            return True
        others = [(self.promises[one], self.ranks_of(one)) for one in self._kept_ids - {key}]
        uses = [(one.end, ranks) for one, ranks in others if one.start < promise.end]
        self._enter_on(promise, self._ranks.least_used(demand, promise.start, uses))
        self._overdrawing.add(key)
        self._sound = False
        return False

    def reserve(self, jobid: int, request: ResourceRequest, start: float, end: float) -> bool:
        promise = Promise(start, end, request, False)
        if not self._bind(promise, not self.frozen):
            return False
        self._add(jobid, promise)
        return True

    def _add(self, jobid: int, promise: Promise) -> None:
        self._sound = self._sound or not self.promises
        self.promises[jobid] = promise
        if jobid < 0:
            self._kept_ids.add(jobid)
        if promise.is_open or not self._ranks.demands(promise.request):
            self._overdrawing.add(jobid)
        if promise.request.shape.within is not None:
            self._in_groups.add(jobid)

    def pin(self, jobid: int, stays: bool = True) -> None:
        promise = self.promises[jobid]
        promise.pinned = stays
        if promise.number:
            amounts = self._ranks.room.amounts_of(promise.number)
            self._ranks.room.drop(promise.number)
            self._enter_on(promise, amounts)

    def trial(self) -> Callable[[], None]:
        if self.frozen:
            return super().trial()  # nothing moves in it
        self._forget_withdrawn()
        ranks = self._ranks.copy()
        numbers, seen = {jobid: one.number for jobid, one in self.promises.items()}, self.seen

        def take_back() -> None:
            if (
                self._ranks.inventory is not ranks.inventory
                or numbers.keys() != self.promises.keys()
            ):
                return
            self._ranks, self.seen, self._sound = ranks, seen, False
            for jobid, one in self.promises.items():
                one.number = numbers[jobid]
            for one in self._withdrawn:
                one.number = 0  # it was promised in the trial
            self._withdrawn.clear()

        return take_back

    def ranks_of(self, jobid: int) -> int:
        number = self.promises[jobid].number
        amounts = self._ranks.room.amounts_of(number) if number else []
        return mask_of([rank for rank, _ in amounts])

    def contains(self, jobid: int, held: Iterable[Selection]) -> bool:
        number = self.promises[jobid].number
        left = dict(self._ranks.room.amounts_of(number)) if number else {}
        for mask, units in chain.from_iterable(map(pairs, held)):
            taken = self._ranks.inventory.counts_of(units)
            for rank in members(mask):
                rest = tuple(have - one for have, one in zip(left.get(rank, ()), taken))
                if not rest or min(rest) < 0:
                    return False
                left[rank] = rest
        return True

    def since(self, request: ResourceRequest, search: Callable[[], float], now: float) -> float:
        room, endless = self._ranks.room, self._ranks.numbers_of_endless()
        for number in endless:
            room.leave(number)
        try:
            first = search()
        finally:
            for number in endless:
                room.enter(number)
        if first < inf:
            return first
        ranks = self._pool.match_mask(request) & self._pool.eligible(request.shape.match)
        starts = [
            (one.start, jobid)
            for jobid, one in self.promises.items()
            if one.end == inf and one.start > now and jobid >= 0
        ]
        return next((start for start, one in sorted(starts) if self.ranks_of(one) & ranks), inf)

    def hold(self, jobid: int, request: ResourceRequest, start: float) -> bool:
        amounts = self._ranks.to_hold(request, [one.end for one in self.promises.values()])
        if amounts is None:
            return False
        promise = Promise(start, inf, request, True)
        self._add(jobid, promise)
        self._enter_on(promise, amounts)
        return True

    def can_keep(self, jobid: int, now: float) -> bool:
        promise, up = self.promises[jobid], self._ranks.up
        if promise.is_open:
            return promise.number > 0 and not self.ranks_of(jobid) & ~up
        if promise.end <= now:
            return False
        if promise.number:
            if self._sound and not self._overdrawing:
                return True
            request = promise.request
            if not self._ranks.demands(request):
                room, start, ranks = self._ranks.room, max(promise.start, now), self.ranks_of(jobid)
                room.leave(promise.number)
                ranks &= self._ranks.clear_of_promises(request, start, promise.end)
                room.enter(promise.number)
                index = self._ranks.index_at(start)
                return self._pool.place_request(request, index, ranks) is not None
            ranks, least = self.ranks_of(jobid), 0
            if jobid < 0:  # others may have been down when it was bound
                demand = self._ranks.demand(request)
                least = min(demand.count, popcount(demand.ranks))
            is_up = not ranks & ~up and popcount(ranks) >= least
            if is_up and not self._ranks.room.overdrawn(promise.number, now):
                self._overdrawing.discard(jobid)
                return True
        if self.frozen or promise.pinned:
            return False
        return self._bind_kept(jobid, promise) if jobid < 0 else self._bind_again(promise)

    def _bind_again(self, promise: Promise) -> bool:
        """Bind a promise to other ranks at its time; return whether there are any. If not, it keeps
        its own."""
        before = promise.number
        if before:
            self._ranks.room.leave(before)
        found = self._bind(promise, True)
        if not found:
            promise.number = before
        if before:
            if found:
                self._ranks.room.drop(before)
            else:
                self._ranks.room.enter(before)
        return found

    def advance(self, jobid: int, now: float) -> float:
        promise = self.promises[jobid]
        if popcount(self._ranks.up) >= MANY_RANKS and not self.may_start(promise.request):
            return promise.start
        can_start = self.fits_without(jobid, promise.request, now, now + length_of(promise.request))
        return now if can_start else promise.start

    def advance_in_turn(self, jobids: Sequence[int], now: float) -> tuple[int, list[int], float]:
        if not self._sound and not self._overdrawing:
            self._sound = all(
                one.number > 0 and not self._ranks.room.overdrawn(one.number, now)
                for one in self.promises.values()
            )
        if not self._sound:
            return 0, [], inf
        if self._in_groups:  # a use has one demand, these requests have several
            jobids = list(takewhile(lambda jobid: jobid not in self._in_groups, jobids))
        row = list(map(self.promises.__getitem__, jobids))
        numbers = list(map(attrgetter("number"), row))
        indices: Sequence[int] = range(len(row))
        ranks = popcount(self._ranks.up)
        if ranks >= MANY_RANKS:
            indices = [
                index
                for index, one in enumerate(row)
                if self.may_start(one.request) or one.start <= now or not one.number
            ]
            numbers = [numbers[index] for index in indices]
        most = max(1, RANKS_PER_TURN // max(1, ranks))
        found, can_start = self._ranks.room.first_to_start(
            numbers, now, not self.frozen, not self._overdrawing, most
        )
        index = indices[found] if found < len(indices) else len(row)
        return (index + 1, [index], now) if can_start else (index, [], inf)

    def withdraw(self, jobid: int) -> Promise | None:
        promise = self.promises.pop(jobid, None)
        if promise is None:
            return None
        self._overdrawing.discard(jobid)
        self._kept_ids.discard(jobid)
        self._in_groups.discard(jobid)
        if promise.number:
            self._ranks.room.leave(promise.number)
            self._withdrawn.append(promise)
            if not promise.is_open:
                self._promised_end = {jobid: promise.end}
        return promise

    def _forget_withdrawn(self) -> None:
        for promise in self._withdrawn:
            if promise.number:
                self._ranks.room.drop(promise.number)
                promise.number = 0
        self._withdrawn.clear()

    def restore(self, jobid: int, promise: Promise) -> None:
        self._add(jobid, promise)
        if not promise.number:  # it may have been counted, and all others have been bound since
            self._bind_somewhere(promise)
            return
        self._withdrawn.remove(promise)
        self._ranks.room.enter(promise.number)
        if self._ranks.room.overdrawn(promise.number, self._pool.clock()):
            self._sound = False  # another promise took its ranks meanwhile

    # -- starting now -------------------------------------------------------

    def place(
        self, request: ResourceRequest, now: float, end: float, overdue: bool, may_move: bool
    ) -> tuple[Selection, int] | None:
        found = self._place(request, now, end, may_move and not self.frozen)
        self._placed = None if found is None else (selected_ranks(found[0]), end)
        return found

    def _place(
        self, request: ResourceRequest, now: float, end: float, may_move: bool
    ) -> tuple[Selection, int] | None:
        pool, shape, room = self._pool, request.shape, self._ranks.room
        demands = self._ranks.demands(request)
        if not demands:
            return self._ranks.place_at(request, pool.index, now, end)
        if self.promises and self._enough_until(demands, now) < end:
            return None
        clear = 0  # ranks of demands with enough clear room
        for demand in demands:
            units, ranks = room.room(demand, -inf, end)
            if units >= demand.count:
                clear |= ranks
        if clear:
            return pool.place_request(
                request, self._ranks.index_beside(shape, clear, now, end), clear
            )
        if not may_move:
            return None
        number = self._ranks.book(demands, -inf, end, now, True)
        if not number:
            return None
        index, amounts = pool.index, room.amounts_of(number)
        ranks = mask_of([rank for rank, _ in amounts])
        room.drop(number)
        if not counts_suffice(shape):
            index = index.copy()
            for rank, kept in amounts:
                leave_free(index, rank, kept)
        return pool.place_request(request, index, ranks)
