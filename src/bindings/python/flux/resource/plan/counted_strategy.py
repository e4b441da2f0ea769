# SPDX-License-Identifier: LGPL-3.0-or-later
"""Promises kept as counts of interchangeable units.

A *unit* is a whole node, if nodes are of one kind and jobs take whole nodes, or a single core on
any node. A promise is then a number of units and a span of time, without a choice of units. All
promises can be kept, beside the running jobs, if and only if they never add up to more units than
there are. That suffices: let each job choose its units when it starts, in the order of starts. All
jobs that hold units then have started before, so at least as many units are free as the sum leaves,
and any of them will do. (Conservative backfill has such a profile, too: Mu'alem and Feitelson
2001.)

Requests for the same units are counted together, in one `CountedProfile`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import inf
from typing import Any, Callable

from flux.resource.plan import compiled
from flux.resource.plan.strategy import (
    CountedDemand,
    Promise,
    Strategy,
    UnitKind,
    jobs_last,
    too_long_until,
)
from flux.resource.plan.timeline import CountTimeline, PromiseMoves
from flux.resource.pool.contract import JobRecord
from flux.resource.pool.inventory import Inventory, Selection, pairs, selected_ranks
from flux.resource.pool.masks import popcount, take
from flux.resource.pool.placement import RoomCounts
from flux.resource.pool.view import PoolWithView, StateOfPool
from flux.resource.request import Claimant, Remembered, ResourceRequest, Shape, length_of
from flux.resource.ResourceCount import ResourceCount


class CountedProfile:
    """Number of free units of one kind over time: those left by running jobs, less the promises.

    A job that ran past its end is assumed to end now.

    Args:
        moves: mover of promises in this profile and others

    Raises:
        ValueError: running jobs on the ranks hold parts of units.

    Attributes:
        line (CountTimeline): free units over time.
        free (int): units free now, regardless of promises.
        promises (int): number of promises counted.
        open_units (dict): job id to the units of its open promise (``Plan.hold()``); 0 if that
            began later when it was made.
        kept (int): units of open promises, which no other job gets.
        total (int): all units.
        maybe_overdrawn (bool): whether promises may add up to more than there is, after an
            unplanned change; if not, no search for such moments is needed.
    """

    def __init__(self, pool: PoolWithView, kind: UnitKind, now: float, moves: PromiseMoves) -> None:
        self.ranks, self.whole = kind.ranks, kind.whole
        state = pool.pool_state
        inventory = state.inventory
        free = self._free(state)
        if free is None:
            raise ValueError("a node is used in part")
        self.free = free
        self.total = popcount(self.ranks)
        if not self.whole:
            self.total = sum(
                [
                    popcount(kind & inventory.core_mask) * popcount(mask & self.ranks)
                    for kind, mask in inventory.kinds.items()
                ]
            )
        self.promises = self.kept = 0
        self.maybe_overdrawn = False
        self.open_units: dict[int, int] = {}
        self._open = 0  # the sum of these
        #: job id -> start and units of an open promise that began later when it was made; and
        #: these starts, ascending
        self._later: dict[int, tuple[float, int]] = {}
        self.later_starts: list[float] = []
        self.endless_ids: set[int] = set()  # ids of jobs promised a time without an end
        self.jobs: dict[int, tuple[float, int]] = {}  # running jobs with an end: (end, units)
        self.endless: list[int] = []  # the units of those without
        self.line = moves.timeline(now, free)
        for jobid, end in pool.job_end_times():
            count = self.units(state, state.held(jobid))
            if count is None:
                raise ValueError("a job holds parts of units")
            if count and end:
                self.jobs[jobid] = (end, count)
                self.line.add(end, inf, count)
            elif count:
                self.endless.append(count)
        self._moves = moves

    def copy(self, moves: PromiseMoves) -> CountedProfile:
        """Return an independent copy, whose promises another object moves."""
        new = object.__new__(type(self))
        new.__dict__.update(
            self.__dict__,
            line=self.line.copy(),
            open_units=self.open_units.copy(),
            _later=self._later.copy(),
            later_starts=self.later_starts.copy(),
            endless_ids=self.endless_ids.copy(),
            jobs=self.jobs.copy(),
            endless=self.endless.copy(),
            _moves=moves,
        )
        return new

    # -- running jobs -------------------------------------------------------

    def _free(self, state: StateOfPool) -> int | None:
        """Return the number of units free now; None if nodes are units and one is partly free."""
        index = state.index
        base = index.inventory.key_base
        ranks = self.ranks
        if not self.whole:
            return sum([key // base * popcount(m & ranks) for key, m in index.groups.items()])
        busy = ranks & ~index.idle
        if busy:
            for key, mask in index.groups.items():
                if mask & busy and key >= base:
                    return None
        return popcount(ranks & index.idle)

    def units(self, state: StateOfPool, held: Selection) -> int | None:
        """Return the number of units in a selection (of a running job); None if it has parts of
        units."""
        inventory = state.inventory
        cores = inventory.core_mask
        count = 0
        for mask, units in pairs(held):
            mask &= self.ranks
            if not mask:
                continue
            if not self.whole:
                count += popcount(mask) * popcount(units & cores)
                continue
            full = inventory.kinds.get(units, 0)
            if mask & ~full:
                for kind, ranks in inventory.kinds.items():
                    if mask & ranks and (kind ^ units) & cores:
                        return None
            count += popcount(mask)
        return count

    def started(self, state: StateOfPool, jobid: int, now: float, end: float) -> bool:
        """Count a job that just started; return False if it holds parts of units."""
        count = self.units(state, state.held(jobid))
        if count is None:
            return False
        if count:
            self.free -= count
            if end != inf:
                self.jobs[jobid] = (end, count)
            else:
                self.endless.append(count)
            self.line.add(now, end, -count)
        return True

    def follow(
        self,
        state: StateOfPool,
        changes: Mapping[int, JobRecord | None],
        now: float,
    ) -> bool:
        """Update the running jobs from the records of those that may have changed (only their ends
        are read; None: the job is gone). Return False if they do not explain the units free now:
        make the profile anew."""
        line, jobs = self.line, self.jobs
        line.forget(now)
        come = []
        for jobid, record in changes.items():
            known = jobs.get(jobid)
            end = record[0] if record is not None else 0.0
            if known is None:
                if end:
                    come.append((end, jobid))
                elif record is not None and self.units(state, state.held(jobid)) is None:
                    return False  # amounts without cores: as many nodes are free
                continue
            until, count = known
            if end == until:
                continue
            if end:
                come.append((end, jobid))
            del jobs[jobid]
            self.free += count
            if until > now:
                line.add(now, until, count)
                self._moves.opened(line, now, until, count)
        for end, jobid in come:
            self.maybe_overdrawn = True
            if not self.started(state, jobid, now, end):
                return False
        return self.free == self._free(state)

    # -- promises -----------------------------------------------------------

    def hold(self, jobid: int, units: int, start: float, now: float) -> None:
        """Keep units for a job with an open promise that begins at `start`, if that is later than
        now."""
        if start > now:
            self._later[jobid] = start, units
            insort(self.later_starts, start)
            self.line.add(start, inf, -units)
            self.maybe_overdrawn = True  # with promises for a time that it overlaps
            units = 0
        self.open_units[jobid] = units
        self._open += units
        self.kept = min(self._open, self.total)

    def let_go(self, jobid: int) -> None:
        """Keep no units for a job any more that had an open promise."""
        self._open -= self.open_units.pop(jobid)
        self.kept = min(self._open, self.total)
        if jobid in self._later:
            start, units = self._later.pop(jobid)
            del self.later_starts[bisect_left(self.later_starts, start)]
            self.line.add(start, inf, units)
            self._moves.opened(self.line, start, inf, units)

    def room(self, start: float, end: float) -> int:
        """Return the number of units free throughout a span."""
        return self.line.least(start, end) - self.kept

    def to_hold(self, count: int) -> int:
        """Return the number of units to keep for a job that waits for jobs without an end.

        The units of a single such job come free together when it ends, so only the rest are kept.
        """
        return max(0, count - (self.endless[0] if len(self.endless) == 1 else 0))


class CountedStrategy(Strategy):
    """Promises as counts of units; see `Strategy` for the methods of both strategies.

    Args:
        pool (PoolWithView): with a view.
        counts (RoomCounts): counts of its free resources
    """

    promises: dict[int, Promise]
    #: as of `PromiseMoves`, for promises that can be kept
    advance: Callable[[int, float], float]
    advance_in_turn: Callable[[Sequence[int], float], tuple[int, list[int], float]]

    def __init__(self, pool: PoolWithView, counts: RoomCounts) -> None:
        self._pool, self._state, self.counts = pool, pool.pool_state, counts
        self.promises = {}
        self.seen: int | None = None
        # None if not countable
        self._demands: Remembered[Shape, CountedDemand | None] = Remembered()
        #: the profile and units of accepted requests
        self.found: Remembered[Shape, tuple[CountedProfile, CountedDemand]] = Remembered()
        self._forget_profiles()
        self._inventory: Inventory | None = None  # the pool's, when last seen
        self._up = 0  # mask of the ranks up then

    def on_copy(self, pool: PoolWithView, counts: RoomCounts) -> CountedStrategy:
        """Return an independent copy for a copy of the pool, whose state is that last seen."""
        new = self.copy()
        new.__dict__.update(_pool=pool, _state=pool.pool_state, counts=counts)
        pool.changes_since(pool.generation)  # from now on they are noted
        return new

    def copy(self) -> CountedStrategy:
        """Return an independent copy, for a plan that only looks ahead."""
        new = object.__new__(type(self))
        new.__dict__.update(
            self.__dict__,
            promises={jobid: one.copy() for jobid, one in self.promises.items()},
            _profiles={},
            _demands=self._demands.copy(),
            found=Remembered(),
        )
        new._make_moves()
        for kind, profile in self._profiles.items():
            new._profiles[kind] = profile.copy(new._moves)
        return new

    def _forget_profiles(self) -> None:
        self._profiles: dict[UnitKind, CountedProfile] = {}  # no two share a rank
        self.is_blank = True
        self.found.clear()
        self._make_moves()

    def _make_moves(self) -> None:
        """Make a mover for the promises, in profiles yet to be made."""
        kind: Any = compiled.CompiledMoves if compiled.is_built() else PromiseMoves
        moves: PromiseMoves = kind(self.promises, self._profiles)
        self._moves, self.moves_per_turn = moves, moves.per_turn
        self.advance, self.advance_in_turn = moves.advance, moves.advance_in_turn

    # -- following the pool -------------------------------------------------

    def sync(self) -> bool:
        """Take in the changes of the pool since the generation last seen. Return False if its
        promises can no longer be kept in this way."""
        pool, state = self._pool, self._state
        seen, self.seen = self.seen, state.generation
        inventory, up = state.inventory, pool.eligible(None)
        if inventory is not self._inventory or up != self._up:
            self._inventory, self._up = inventory, up
            self._demands.clear()
            return self._count_anew()
        if not self._profiles:
            return True
        changes = None if seen is None else pool.changes_since(seen)
        if changes is None:
            changes = dict.fromkeys(chain(*[one.jobs for one in self._profiles.values()]))
            changes.update((jobid, (end,)) for jobid, end in pool.job_end_times())
        now = pool.clock()
        for profile in self._profiles.values():
            if not profile.follow(state, changes, now):
                return self._count_anew()
        return True

    def _count_anew(self) -> bool:
        """Make all profiles anew; return False if a promise cannot be counted."""
        self._forget_profiles()
        for jobid, promise in self.promises.items():
            if not self.accepts(promise.request):
                return False
            profile, promise.demand = self.found[promise.request.shape]
            self.restore(jobid, promise)
            profile.maybe_overdrawn = True  # it may no longer fit
        return True

    def started(
        self, jobid: int, claimant: Claimant | None, planned_end: float | None = None
    ) -> None:
        """Count a job that the pool just started, so that the next ``sync()`` need not.
        `planned_end`: as for ``Plan.note_started()``."""
        pool, state = self._pool, self._state
        if self.seen is None or state.generation != self.seen + 1:
            return  # there were other changes as well
        now, end = pool.clock(), pool.job_end(jobid)
        for profile in self._profiles.values():
            if not profile.started(state, jobid, now, end or inf):
                return  # the next call counts anew
        self.seen = state.generation

    def give_up(self) -> dict[int, Promise]:
        """Stop counting; return the promises, now the caller's."""
        promises, self.promises = self.promises, {}
        self._forget_profiles()
        return promises

    # -- units of requests --------------------------------------------------

    def accepts(self, request: ResourceRequest) -> bool:
        """Return whether a request can be counted, beside the present promises."""
        shape = request.shape
        try:
            demand = self._demands[shape]
        except KeyError:
            demand = self._demands[shape] = demand_of(self._pool, request)
        if demand is None or not (demand.kind in self._profiles or self._count(demand.kind)):
            return False
        self.found[shape] = self._profiles[demand.kind], demand
        return True

    def _count(self, kind: UnitKind) -> bool:
        """Begin to count units; return False if units of another kind are promised on their
        ranks."""
        for which, other in list(self._profiles.items()):
            if which.ranks & kind.ranks:
                if other.promises or other.open_units:
                    return False
                self._moves.drop_line(other.line)
                del self._profiles[which]
                self.found.clear()
        try:
            self._profiles[kind] = CountedProfile(self._pool, kind, self._pool.clock(), self._moves)
        except ValueError:
            return False
        self.is_blank = False
        return True

    # -- questions ----------------------------------------------------------

    def earliest(self, request: ResourceRequest, start: float, now: float) -> float:
        """Return the first time from ``start`` on at which a request fits for its duration, or
        infinity."""
        profile, demand = self.found[request.shape]
        return profile.line.first(demand.count + profile.kept, length_of(request), start)

    def fits_without(
        self, jobid: int | None, request: ResourceRequest, now: float, end: float
    ) -> bool:
        """Return whether a request could run from now to `end`, beside all promises but that of a
        job."""
        profile, demand = self.found[request.shape]
        count = demand.count
        if profile.free < count:
            return False
        own = self.promises.get(jobid) if jobid is not None else None
        if own is None or jobid is None or self._profiles[own.demand.kind] is not profile:
            return profile.room(now, end) >= count
        if own.is_open:
            self.withdraw(jobid)
            fits = profile.room(now, end) >= count
            self.restore(jobid, own)
            return fits
        profile.line.add(own.start, own.end, own.demand.count)
        fits = profile.room(now, end) >= count
        profile.line.add(own.start, own.end, -own.demand.count)
        return fits

    def may_start(self, request: ResourceRequest) -> bool:
        profile, (_, count) = self.found[request.shape]
        return profile.free >= count

    is_free = may_start

    def room(self, request: ResourceRequest) -> float:
        shape = request.shape
        return self.found[shape][0].free if shape in self.found else self.counts.count(shape)

    def beside_promise(self, request: ResourceRequest, now: float) -> tuple[float, float]:
        profile, _ = self.found[request.shape]
        if profile.promises != 1 or profile.open_units:
            return inf, inf
        end = profile.line.below(profile.free, now)  # only the promise takes units away
        if end == inf:
            return inf, inf
        return profile.line.least(end, inf), too_long_until(end, now)

    def too_long(self, request: ResourceRequest, now: float, limit: float) -> float:
        """As `Plan.too_long`."""
        profile, (_, count) = self.found[request.shape]
        if profile.free < count:
            return 0.0
        return too_long_until(profile.line.below(count + profile.kept, now), now)

    def count(self, request: ResourceRequest, start: float, end: float) -> int:
        """Return the number of nodes (slots, if it asks for no nodes) of a request that fit
        throughout a span."""
        return self.found[request.shape][0].room(start, end)

    def stale(self, now: float) -> list[int]:
        """Return the jobs whose promises can no longer be kept, in the order of promises."""
        lines: dict[UnitKind, CountTimeline] = {}
        stale = []
        for jobid, promise in jobs_last(self.promises):
            kind, count = promise.demand.kind, promise.demand.count
            if promise.is_open:
                if count > self._profiles[kind].total:
                    stale.append(jobid)
                continue
            line = lines.get(kind)
            if line is None:
                line = lines[kind] = CountedProfile(self._pool, kind, now, self._moves).line
            start = max(promise.start, now)
            if start >= promise.end or line.least(start, promise.end) < count:
                stale.append(jobid)
                if jobid >= 0:
                    continue
            line.add(start, promise.end, -count)
        return stale

    # -- promises -----------------------------------------------------------

    def reserve(self, jobid: int, request: ResourceRequest, start: float, end: float) -> bool:
        """Promise resources to a job without a promise, for a span; return False if they do not
        fit."""
        profile, demand = self.found[request.shape]
        if profile.room(start, end) < demand.count:
            return False
        self.restore(jobid, Promise(start, end, request, demand=demand))
        return True

    def keep_free(self, key: int, request: ResourceRequest, start: float, end: float) -> bool:
        """Keep resources for no job, for a span; as ``Plan.keep_free()``."""
        profile, demand = self.found[request.shape]
        fits: bool = profile.line.least(start, end) >= demand.count
        profile.maybe_overdrawn |= not fits
        self.restore(key, Promise(start, end, request, demand=demand))
        return fits

    def since(self, request: ResourceRequest, search: Callable[[], float], now: float) -> float:
        """Return the time that a search finds without the running jobs without an end that are in
        the way of a request; if that is infinity, the first start after now of the promises without
        an end in its way.  O(promises for a time without an end)."""
        profile, _ = self.found[request.shape]
        kept, profile.kept = profile.kept, profile.kept - sum(profile.endless)
        try:
            first = search()
        finally:
            profile.kept = kept
        if first < inf:
            return first
        later, promises = profile.later_starts, self.promises
        at = bisect_right(later, now)
        starts = [*later[at : at + 1], *(promises[one].start for one in profile.endless_ids)]
        return min([start for start in starts if start > now], default=inf)

    def hold(self, jobid: int, request: ResourceRequest, start: float) -> bool:
        """Make an open promise, from `start` on, to a job without a promise; return False if it
        never fits."""
        profile, demand = self.found[request.shape]
        if demand.count > profile.total:
            return False
        self.restore(jobid, Promise(start, inf, request, True, demand))
        return True

    def contains(self, jobid: int, held: Iterable[Selection]) -> bool:
        """Return whether some selections together are part of the units of a job's promise."""
        demand = self.promises[jobid].demand
        profile = self._profiles[demand.kind]
        left = demand.count
        for selection in held:
            units = profile.units(self._state, selection)
            if units is None or selected_ranks(selection) & ~profile.ranks:
                return False
            left -= units
        return left >= 0

    def can_keep(self, jobid: int, now: float) -> bool:
        """Return whether the promise of a job can be kept, if all before it can."""
        promise = self.promises[jobid]
        profile = self._profiles[promise.demand.kind]
        if profile.maybe_overdrawn:
            profile.maybe_overdrawn = profile.line.least(-inf, inf) < 0
        if not (profile.maybe_overdrawn or profile.kept):
            return True
        return profile.room(max(promise.start, now), promise.end) >= 0

    def due(self, now: float) -> tuple[list[int], float]:
        return self._moves.due(now)

    def withdraw(self, jobid: int) -> Promise | None:
        """Take out the promise of a job and return it; None if it has none."""
        promise = self.promises.pop(jobid, None)
        if promise is None:
            return None
        profile = self._profiles[promise.demand.kind]
        if promise.is_open:
            profile.let_go(jobid)
        else:
            self._moves.leave(jobid)
            profile.promises -= 1
            profile.endless_ids.discard(jobid)
            start, end = max(promise.start, self._pool.clock()), promise.end
            if start < end:
                profile.line.add(start, end, promise.demand.count)
                self._moves.opened(profile.line, start, end, promise.demand.count)
        return promise

    def restore(self, jobid: int, promise: Promise) -> None:
        """Put back a promise from ``withdraw()``, of this strategy or the one before."""
        self.promises[jobid] = promise
        profile = self._profiles[promise.demand.kind]
        if promise.is_open:
            units = profile.to_hold(promise.demand.count)
            profile.hold(jobid, units, promise.start, self._pool.clock())
        else:
            profile.promises += 1
            if promise.end == inf and jobid >= 0:
                profile.endless_ids.add(jobid)
            # Less the part that is over, if its job is late; even if it can no longer be kept.
            profile.line.add(promise.start, promise.end, -promise.demand.count)
            self._moves.enter(jobid, promise)

    # -- starting now -------------------------------------------------------

    def place(
        self, request: ResourceRequest, now: float, end: float, overdue: bool, may_move: bool
    ) -> tuple[Selection, int] | None:
        """Return a placement as ``place_request()`` of the pool, ``(selection, nslots)`` or None,
        for a request from now to `end`, beside all promises, which move to other ranks if
        `may_move`. `overdue`: the job's own promise has begun, and it starts in its place: jobs
        promised the time after it may be delayed."""
        profile, (_, count) = self.found[request.shape]
        if overdue:
            profile.maybe_overdrawn = True
        room = profile.room(now, end)
        if room < count:
            return None
        # Any ranks will do. A request that accepts more units gets those left by promises.
        pool, index = self._pool, self._state.index
        shape = request.shape
        ranks = profile.ranks
        if profile.whole:
            if not (shape.node_count or shape.slot_count).fixed:
                free = ranks & index.idle
                ranks = take(free, min(room, popcount(free)))
        elif not shape.slot_count.fixed:
            most = shape.slot_count.floor(min(room, profile.free))
            shape = shape.replace(slot_count=ResourceCount.parse(most))
        return pool.place_shape(index, shape, ranks)


def demand_of(pool: PoolWithView, request: ResourceRequest) -> CountedDemand | None:
    """Return the demand of a request; None unless it asks for whole nodes or single cores."""
    shape = request.shape
    if not pool.countable(shape):
        return None
    inventory = pool.inventory
    ranks = pool.match_mask(request) & pool.eligible(shape.match)
    base = inventory.key_base
    sizes = {inventory.keys[units] // base for units, m in inventory.kinds.items() if m & ranks}
    if shape.node_count is not None:
        if shape.exclusive or sizes == {shape.node_cores}:
            return CountedDemand(UnitKind(ranks, True), shape.node_count.min)
    elif not shape.exclusive and shape.slot_size:
        if sizes == {shape.slot_size}:
            return CountedDemand(UnitKind(ranks, True), shape.slot_count.min)
        if shape.slot_size == 1 and not any(shape.need[1:]):
            return CountedDemand(UnitKind(ranks, False), shape.slot_count.min)
    return None
