# SPDX-License-Identifier: LGPL-3.0-or-later
"""Promises kept as counts of interchangeable units.

Requests for the same units are counted together, in one CountedProfile; ``counted_profile.py``
explains when counting is enough.
"""

from __future__ import annotations

from itertools import chain
from math import inf
from typing import TYPE_CHECKING

from flux.resource.plan import compiled
from flux.resource.plan.counted_profile import CountedProfile
from flux.resource.plan.promise import CountedDemand, CountedPromise, UnitKind, length_of
from flux.resource.plan.promise_moves import PromiseMoves
from flux.resource.plan.strategy import Strategy
from flux.resource.pool.inventory import selected_ranks
from flux.resource.pool.masks import popcount, take
from flux.resource.pool.remembered import Remembered
from flux.resource.ResourceCount import ResourceCount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from typing_extensions import Self

    from flux.resource.plan.count_timeline import CountTimeline
    from flux.resource.plan.promise import Promise
    from flux.resource.plan.room_counts import RoomCounts
    from flux.resource.pool.inventory import Inventory, Selection
    from flux.resource.pool.view import PoolWithView
    from flux.resource.request import Claimant, ResourceRequest, Shape


class CountedStrategy(Strategy):
    """Promises as counts of units; see Strategy.

    Args:
        pool (PoolWithView): with a view.
    """

    promises: dict[int, CountedPromise]
    is_counted = True

    def __init__(self, pool: PoolWithView) -> None:
        self._pool, self._state = pool, pool.pool_state
        self.promises = {}
        self.seen: int | None = None
        self._profiles: dict[UnitKind, CountedProfile] = {}  # no two share a rank
        self._moves = self._new_moves()
        # None if not countable
        self._demands: Remembered[Shape, CountedDemand | None] = Remembered()
        #: the profile and units of accepted requests
        self.found: Remembered[Shape, tuple[CountedProfile, CountedDemand]] = Remembered()
        self._inventory: Inventory | None = None  # the pool's, when last seen
        self._up = 0  # mask of the ranks up then

    def copy(self) -> Self:
        new = object.__new__(type(self))
        new.__dict__.update(
            self.__dict__,
            promises={jobid: one.copy() for jobid, one in self.promises.items()},
            _profiles={},
            _demands=self._demands.copy(),
            found=Remembered(),
        )
        new._moves = new._new_moves()
        for kind, profile in self._profiles.items():
            new._profiles[kind] = profile.copy(new._moves)
        return new

    def _new_moves(self) -> PromiseMoves:
        """Return a mover for the promises, in profiles yet to be made."""
        moves = compiled.CompiledMoves if compiled.is_built() else PromiseMoves
        return moves(self.promises, self._profiles)

    # -- following the pool -------------------------------------------------

    def sync(self) -> bool:
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
            changes.update((jobid, (end,)) for end, jobid in pool.jobs_by_end())
        now = pool.clock()
        for profile in self._profiles.values():
            if not profile.follow(state, changes, now):
                return self._count_anew()
        return True

    def _count_anew(self) -> bool:
        """Make all profiles anew; return False if a promise cannot be counted."""
        self._profiles = {}
        self.found.clear()
        self._moves = self._new_moves()
        for jobid, promise in self.promises.items():
            if not self.accepts(promise.request):
                return False
            _, demand = self.found[promise.request.shape]
            promise = CountedPromise(
                promise.start, promise.end, promise.request, demand, promise.is_open
            )
            self.restore(jobid, promise)
            self._profiles[demand.kind].maybe_overdrawn = True  # it may no longer fit
        return True

    def started(self, jobid: int, claimant: Claimant | None) -> None:
        pool, state = self._pool, self._state
        if self.seen is None or state.generation != self.seen + 1:
            return  # there were other changes as well
        now, end = pool.clock(), pool.job_end(jobid)
        for profile in self._profiles.values():
            if not profile.started(state, jobid, now, end or inf):
                return  # the next call counts anew
        self.seen = state.generation

    def give_up(self) -> dict[int, CountedPromise]:
        """Stop counting; return the promises, now the caller's."""
        promises, self.promises = self.promises, {}
        self._profiles = {}
        self.found.clear()
        self._moves = self._new_moves()
        return promises

    # -- units of requests --------------------------------------------------

    def accepts(self, request: ResourceRequest) -> bool:
        """Return whether a request can be counted, beside the present promises."""
        shape = request.shape
        try:
            demand = self._demands[shape]
        except KeyError:
            demand = self._demands[shape] = CountedDemand.from_request(self._pool, request)
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
                self._moves.drop_line(other.number)
                del self._profiles[which]
                self.found.clear()
        profile = CountedProfile.from_pool(self._pool, kind, self._pool.clock(), self._moves)
        if profile is None:
            return False
        self._profiles[kind] = profile
        return True

    # -- questions ----------------------------------------------------------

    def earliest(self, request: ResourceRequest, start: float, now: float) -> float:
        profile, demand = self.found[request.shape]
        return profile.line.first(demand.count + profile.kept, length_of(request), start)

    def fits_without(
        self, jobid: int | None, request: ResourceRequest, now: float, end: float
    ) -> bool:
        profile, demand = self.found[request.shape]
        count = demand.count
        if profile.free < count:
            return False
        own = self.promises.get(jobid) if jobid is not None else None
        if (
            own is None
            or jobid is None
            or own.start >= end
            or self._profiles[own.demand.kind] is not profile
        ):
            return profile.room(now, end) >= count
        if own.is_open:
            self.withdraw(jobid)
            fits = profile.room(now, end) >= count
            self.restore(jobid, own)
            return fits
        if own.end <= now:  # its job is late, and its time has passed
            return profile.room(now, end) >= count
        # Before its own promise the request needs all of its units; then those beyond the
        # promise's.
        if own.start > now and profile.room(now, own.start) < count:
            return False
        if profile.room(max(own.start, now), min(end, own.end)) + own.demand.count < count:
            return False
        return end <= own.end or profile.room(own.end, end) >= count

    def may_start(self, request: ResourceRequest, counts: RoomCounts) -> bool:
        profile, demand = self.found[request.shape]
        return profile.free >= demand.count

    is_free = may_start

    def room(self, request: ResourceRequest, counts: RoomCounts) -> float:
        shape = request.shape
        return self.found[shape][0].free if shape in self.found else counts.count(shape)

    def has_one_promise(self, request: ResourceRequest) -> bool:
        profile, _ = self.found[request.shape]
        return profile.promises == 1 and not profile.open_units

    def room_ends(
        self, request: ResourceRequest, counts: RoomCounts, now: float, end: float = inf
    ) -> float:
        profile, demand = self.found[request.shape]
        if profile.free < demand.count:
            return now
        return profile.line.below(demand.count + profile.kept, now)

    def count(self, request: ResourceRequest, start: float, end: float) -> int:
        return self.found[request.shape][0].room(start, end)

    def stale(self, now: float) -> list[int]:
        lines: dict[UnitKind, CountTimeline] = {}
        moves = self._new_moves()  # nothing moves: the lines are discarded
        stale = []
        for jobid, promise in self.promises.items():
            kind, count = promise.demand.kind, promise.demand.count
            if promise.is_open:
                if count > self._profiles[kind].total:
                    stale.append(jobid)
                continue
            line = lines.get(kind)
            if line is None:
                fresh = CountedProfile.from_pool(self._pool, kind, now, moves)
                assert fresh is not None
                line = lines[kind] = fresh.line
            start = max(promise.start, now)
            if start >= promise.end or line.least(start, promise.end) < count:
                stale.append(jobid)
            else:
                line.add(start, promise.end, -count)
        return stale

    # -- promises -----------------------------------------------------------

    def reserve(self, jobid: int, request: ResourceRequest, start: float, end: float) -> bool:
        profile, demand = self.found[request.shape]
        if profile.room(start, end) < demand.count:
            return False
        self.restore(jobid, CountedPromise(start, end, request, demand))
        return True

    def hold(self, jobid: int, request: ResourceRequest, now: float) -> bool:
        profile, demand = self.found[request.shape]
        if demand.count > profile.total:
            return False
        self.restore(jobid, CountedPromise(now, inf, request, demand, is_open=True))
        return True

    def pin(self, jobid: int, stays: bool = True) -> None:
        pass

    def trial(self) -> Callable[[], None]:
        return lambda: None  # none has ranks

    def contains(self, jobid: int, held: Iterable[Selection]) -> bool:
        demand = self.promises[jobid].demand
        profile = self._profiles[demand.kind]
        left = demand.count
        for selection in held:
            units = profile.units(self._state, selection)
            if units is None or selected_ranks(selection) & ~profile.ranks:
                return False
            left -= units
        return left >= 0

    def keeps(self, jobid: int, now: float) -> bool:
        promise = self.promises[jobid]
        profile = self._profiles[promise.demand.kind]
        if not (profile.maybe_overdrawn or profile.kept):
            return True
        return not profile.overdrawn(max(promise.start, now), promise.end)

    def advance(self, jobid: int, now: float) -> float:
        return self._moves.advance(jobid, now)

    def advance_in_turn(
        self, jobids: Sequence[int], now: float, counts: RoomCounts
    ) -> tuple[int, list[int], float]:
        return self._moves.advance_in_turn(jobids, now)

    def due(self, now: float) -> tuple[list[int], float]:
        return self._moves.due(now)

    @property
    def moves_per_turn(self) -> int:  # type: ignore[override]
        return self._moves.per_turn

    def withdraw(self, jobid: int) -> CountedPromise | None:
        promise = self.promises.pop(jobid, None)
        if promise is None:
            return None
        profile = self._profiles[promise.demand.kind]
        if promise.is_open:
            profile.hold(jobid, None)
        else:
            self._moves.leave(jobid)
            count = promise.demand.count
            profile.remove(promise.start, promise.end, count, self._pool.clock())
        return promise

    def restore(self, jobid: int, promise: Promise) -> None:
        assert isinstance(promise, CountedPromise)
        self.promises[jobid] = promise
        profile = self._profiles[promise.demand.kind]
        if promise.is_open:
            profile.hold(jobid, profile.to_hold(self._pool, promise.demand.count))
        else:
            profile.enter(promise.start, promise.end, promise.demand.count)
            self._moves.enter(jobid, promise)

    # -- starting now -------------------------------------------------------

    def place(
        self, request: ResourceRequest, now: float, end: float, overdue: bool = False
    ) -> tuple[Selection, int] | None:
        profile, demand = self.found[request.shape]
        if overdue:
            profile.maybe_overdrawn = True
        room = profile.room(now, end)
        if room < demand.count:
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
