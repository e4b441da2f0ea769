# SPDX-License-Identifier: LGPL-3.0-or-later
"""Promises that are bound to ranks, where it matters which ranks a job gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from flux.resource.plan.mask_timeline import INFINITY
from flux.resource.plan.promise import BoundPromise, length_of, ranks_of
from flux.resource.plan.rank_profile import RankProfile
from flux.resource.plan.strategy import Strategy

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.plan.promise import Part, Promise
    from flux.resource.plan.running_profile import RunningProfile
    from flux.resource.pool.inventory import Selection
    from flux.resource.request import ResourceRequest
    from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation

#: Blocks of ends of running jobs that are swept over at once, each in a sixth of a millisecond.
BLOCKS_AT_ONCE = 12
#: Promises in a row of which it is not known that they stay: after a long quiet time, or a sweep that
#: was begun anew, each may be the first with its need, and take some tenths of a millisecond.
LOOKS_IN_A_ROW = 24


class BoundStrategy(Strategy):
    """Keeps promises as bookings of parts of ranks; see Strategy.

    Args:
        pool (ResourcePoolImplementation): with a view.
        promises (Mapping): job id to Promise: what is to be kept, in whatever way it was before.
            They are bound in the order of their starts, which succeeds for all that can be kept.
        seen (int or None): generation of the pool as of which they are true.
        frozen (bool): never bind a promise again to make room for another one.
        running (RunningProfile): of the pool as it was, to be followed; None: there is none
    """

    moves_per_turn = 128
    promises: dict[int, BoundPromise]

    def __init__(
        self,
        pool: ResourcePoolImplementation,
        promises: Mapping[int, Promise],
        seen: int | None,
        frozen: bool,
        running: RunningProfile | None = None,
    ) -> None:
        self._pool = pool
        self.seen = seen
        # All of them from the start: what is yet to be bound must not be forgotten meanwhile.
        self.promises = {
            jobid: BoundPromise(one.start, one.end, one.request, None, one.is_open)
            for jobid, one in promises.items()
        }
        self._profile = RankProfile(pool, self.promises, frozen, running)
        for promise in sorted(self.promises.values(), key=lambda one: one.start):
            promise.parts = self._parts_for(promise)
            self._profile.enter(promise)

    def copy(self) -> Self:
        new = object.__new__(type(self))
        new._pool = self._pool
        new.seen = self.seen
        # Promises that are bound again have other parts: each plan has its own.
        new.promises = {
            jobid: BoundPromise(one.start, one.end, one.request, one.parts, one.is_open)
            for jobid, one in self.promises.items()
        }
        new._profile = self._profile.copy(new.promises)
        return new

    def _parts_for(self, promise: Promise) -> list[Part]:
        """Parts to bind a promise to that was counted, or withdrawn."""
        parts = None
        if not promise.is_open:
            parts = self._profile.bind(promise.request, promise.start, promise.end)
        # What cannot be kept any more stays a promise, for its job to be told.
        return parts or self._profile.bind_ever(promise.request) or []

    @property
    def running(self) -> RunningProfile:
        """What running jobs leave."""
        return self._profile.running

    # -- following the pool -------------------------------------------------

    def sync(self) -> bool:
        self.seen = self._pool.generation
        self._profile.sync()
        return True

    def started(self, jobid: int) -> None:
        if self.seen is None or self._pool.generation != self.seen + 1:
            return  # something else happened as well
        self._profile.started(jobid, self._pool.clock())
        self.seen = self._pool.generation

    # -- questions ----------------------------------------------------------

    def accepts(self, request: ResourceRequest) -> bool:
        return True

    def earliest(
        self, request: ResourceRequest, start: float, now: float, until: float = INFINITY
    ) -> float:
        return self._profile.earliest(request, start, until)

    def fits(self, request: ResourceRequest, start: float, end: float) -> bool:
        return self._profile.fits(request, start, end)

    def fits_without(
        self, jobid: int | None, request: ResourceRequest, now: float, end: float
    ) -> bool:
        own = self.withdraw(jobid) if jobid is not None else None
        try:
            return self.place(request, now, end) is not None
        finally:
            if own is not None and jobid is not None:
                self.restore(jobid, own)

    def is_free(self, request: ResourceRequest) -> bool:
        pool = self._pool
        return pool.place_request(request, pool.index, pool.eligible_ranks(request)) is not None

    def room_ends(self, request: ResourceRequest, now: float) -> float:
        return self._profile.room_ends(request.shape, now)

    def count(self, request: ResourceRequest, start: float, end: float) -> int:
        return self._profile.count(request.shape, start, end)

    def next_change(self, request: ResourceRequest, time: float) -> float:
        return self._profile.next_change(time)

    def ranks_at(self, request: ResourceRequest, start: float, end: float) -> int | None:
        parts = self._profile.bind(request, start, end)
        return None if parts is None else ranks_of(parts)

    def stale(self, now: float) -> list[int]:
        profile = self._profile
        profile.renew_profile()
        return [jobid for jobid, one in self.promises.items() if profile.lost(one, now)]

    # -- promises -----------------------------------------------------------

    def reserve(self, jobid: int, request: ResourceRequest, start: float, end: float) -> bool:
        parts = self._profile.bind(request, start, end)
        if parts is None:
            return False
        self._enter(jobid, BoundPromise(start, end, request, parts), True)
        return True

    def hold(self, jobid: int, request: ResourceRequest, now: float) -> bool:
        parts = self._profile.bind_ever(request)
        if parts is None:
            return False
        self._enter(jobid, BoundPromise(now, INFINITY, request, parts, is_open=True))
        return True

    def keeps(self, jobid: int, now: float) -> bool:
        return not self._profile.lost(self.promises[jobid], now)

    def advance(self, jobid: int, now: float) -> float:
        promise = self.promises[jobid]
        profile, request = self._profile, promise.request
        found = profile.earlier(promise, now)
        profile.end_search()
        if found is None or found >= promise.start:  # None only where looks are limited
            return promise.start
        self.withdraw(jobid)
        start = profile.search_anew(request, found)
        if start < promise.start:
            end = start + length_of(request)
            promise = BoundPromise(start, end, request, profile.bind(request, start, end))
        self._enter(jobid, promise, True)  # where it was, it fits as before
        return promise.start

    def search_on(self, jobid: int, now: float, looks: int) -> bool:
        profile, promise = self._profile, self.promises[jobid]
        if profile.is_unswept(promise) and profile.running.extend_in_parts(
            promise.start, BLOCKS_AT_ONCE
        ):
            return True
        return profile.earlier(promise, now, looks) is None

    def advance_in_turn(
        self, jobids: Iterable[int], now: float
    ) -> tuple[int, list[tuple[int, float]]]:
        promises, profile = self.promises, self._profile
        if not profile.is_renewed:
            return 0, []
        count = 0
        last_look = profile.looks + LOOKS_IN_A_ROW
        for jobid in jobids:
            if profile.looks >= last_look:
                break
            promise = promises.get(jobid)
            if (
                promise is None
                or promise.is_open
                or promise.start <= now
                or not profile.is_kept(promise)
                or profile.is_unswept(promise)
                or profile.earlier(promise, now, 0) != promise.start
            ):
                break  # it may move, or be lost, and to find that out takes longer
            count += 1
        return count, []

    def withdraw(self, jobid: int) -> BoundPromise | None:
        promise = self.promises.pop(jobid, None)
        if promise is not None:
            self._profile.remove(promise)
        self._profile.rebound.clear()
        return promise

    def restore(self, jobid: int, promise: Promise) -> None:
        if not isinstance(promise, BoundPromise):
            # It was withdrawn when promises were counted; meanwhile all others were bound.
            parts = self._parts_for(promise)
            promise = BoundPromise(
                promise.start, promise.end, promise.request, parts, promise.is_open
            )
        else:
            # Since it was withdrawn, others may have been bound to what it was bound to.
            self._profile.bind_as_before()
        self._enter(jobid, promise)

    def _enter(self, jobid: int, promise: BoundPromise, fits: bool = False) -> None:
        """Count a promise in; ``fits`` says that it was just bound where it fits."""
        self.promises[jobid] = promise
        self._profile.enter(promise, fits)

    # -- starting now -------------------------------------------------------

    def may_start(self, request: ResourceRequest) -> bool:
        return self._profile.is_free(request.shape)

    def place(
        self, request: ResourceRequest, now: float, end: float, overdue: bool = False
    ) -> tuple[Selection, int] | None:
        return self._profile.place_now(request, now, end)
