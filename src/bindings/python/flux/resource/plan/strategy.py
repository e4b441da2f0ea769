# SPDX-License-Identifier: LGPL-3.0-or-later
"""The common interface of the two ways to keep promises.

``CountedStrategy`` counts units, ``BoundStrategy`` binds promises to ranks; the theory is in
``plan.py``, with the switch between them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING, TypeVar

from flux.resource.pool.inventory import selected_ranks
from flux.resource.request import length_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from typing_extensions import Self

    from flux.resource.pool.inventory import Selection
    from flux.resource.pool.placement import RoomCounts
    from flux.resource.pool.view import PoolWithView
    from flux.resource.request import Claimant, ResourceRequest


OnePromise = TypeVar("OnePromise", bound="Promise")


class Promise:
    """Resources kept for a waiting job.

    Attributes:
        start, end (float): seconds since the epoch; the end is infinity for a job without a limit.
        request (ResourceRequest): the job's request.
        is_open (bool): kept from now on, since the possible start of the job is unknown.
    """

    __slots__ = ()

    start: float
    end: float
    request: ResourceRequest
    is_open: bool

    def is_overdue(self, now: float) -> bool:
        """Return whether its job is late: the start has come, and the end has not."""
        return not self.is_open and self.start <= now < self.end


class Strategy(ABC):
    """A way to keep the promises of a plan.

    A plan calls ``sync()`` when the pool's generation is not ``seen``, and ``Plan._accepting()``
    before any method with a request. Times are seconds since the epoch, ``now`` is the present time, and
    the end of a request without a duration is infinity.

    Attributes:
        counts (RoomCounts): counts of the free resources
        promises (Mapping): job id to Promise, in the order in which they were made.
        seen (int or None): generation of the pool for which this is valid; None: none yet.
        is_blank (bool): whether it knows nothing of running jobs, so that `started` has no effect.
        is_counted (bool): whether promises are counted; else they are bound to ranks.
        moves_per_turn (int): the maximum number of jobs for `advance_in_turn()` in one reactor
            turn, even if all of their promises move.
        is_short (bool): as `Plan.is_short`
    """

    counts: RoomCounts
    promises: Mapping[int, Promise]
    seen: int | None
    moves_per_turn: int
    is_blank = False
    is_counted = False
    is_short = False

    @abstractmethod
    def copy(self) -> Self:
        """Return an independent copy, for a plan that only looks ahead."""

    # -- following the pool -------------------------------------------------

    @abstractmethod
    def sync(self) -> bool:
        """Take in the changes of the pool since the generation last seen.

        Returns:
            bool: False if its promises can no longer be kept in this way.
        """

    @abstractmethod
    def started(
        self, jobid: int, claimant: Claimant | None, planned_end: float | None = None
    ) -> None:
        """Count a job that the pool just started, so that the next ``sync()`` need not.
        `planned_end`: as for ``Plan.note_started()``."""

    # -- questions ----------------------------------------------------------

    def end_of_start(self, jobid: int, request: ResourceRequest, now: float) -> float:
        """Return the end of a job that starts now. For a late job it is the end of its promise: the
        promises after it must not keep it from starting, although it delays them."""
        own = self.promises.get(jobid)
        return own.end if own is not None and own.is_overdue(now) else now + length_of(request)

    @abstractmethod
    def earliest(self, request: ResourceRequest, start: float, now: float) -> float:
        """Return the first time from ``start`` on at which a request fits for its duration, or
        infinity."""

    @abstractmethod
    def fits_without(
        self, jobid: int | None, request: ResourceRequest, now: float, end: float
    ) -> bool:
        """Return whether a request could run from now to `end`, beside all promises but that of a
        job."""

    @abstractmethod
    def is_free(self, request: ResourceRequest) -> bool:
        """Return whether a request could start now without promises."""

    def closed(self, request: ResourceRequest) -> int:
        """Return a mask of the ranks that running jobs' claims keep from a job that starts now."""
        return 0

    def room(self, request: ResourceRequest) -> float:
        """As `Plan.room`."""
        return self.counts.count(request.shape)

    def may_start(self, request: ResourceRequest) -> bool:
        """Return False if counts of the free resources show that a request cannot start."""
        return self.counts.count(request.shape) >= request.shape.least_count

    def has_one_promise(self, request: ResourceRequest) -> bool:
        """Return whether just one promise, which is not open, may keep a request from starting: as
        running jobs only give units back, the room for the request then ends with its start, and
        never later if it moves to an earlier time. Return False if that is unknown."""
        return False

    @abstractmethod
    def room_ends(self, request: ResourceRequest, now: float, end: float = inf) -> float:
        """Return an upper bound of the time until which a request that starts now has room, beside
        all promises: ``now`` if it does not fit at all, infinity if none is known. A bound that is
        not exact is at most ``end`` if it has no room until then."""

    @abstractmethod
    def count(self, request: ResourceRequest, start: float, end: float) -> int:
        """Return the number of nodes (slots, if it asks for no nodes) of a request that fit
        throughout a span."""

    @abstractmethod
    def stale(self, now: float) -> list[int]:
        """Return the jobs whose promises can no longer be kept, in the order of promises."""

    # -- promises -----------------------------------------------------------

    @abstractmethod
    def reserve(self, jobid: int, request: ResourceRequest, start: float, end: float) -> bool:
        """Promise resources to a job without a promise, for a span; return False if they do not
        fit."""

    @abstractmethod
    def keep(self, key: int, request: ResourceRequest, start: float, end: float) -> bool:
        """Keep resources for no job, for a span; as ``Plan.keep()``."""

    @abstractmethod
    def hold(self, jobid: int, request: ResourceRequest, now: float) -> bool:
        """Make an open promise to a job without a promise; return False if it never fits."""

    @abstractmethod
    def trial(self) -> Callable[[], None]:
        """Begin a trial, in which promises may move to other ranks; return a function that takes
        the moves back, to be called when the pool is as before."""

    def ranks_of(self, jobid: int) -> int | None:
        """As ``Plan.ranks_of()``, for a job with a promise."""
        return None

    @abstractmethod
    def contains(self, jobid: int, held: Iterable[Selection]) -> bool:
        """Return whether some selections together are part of the units of a job's promise."""

    @abstractmethod
    def pin(self, jobid: int, stays: bool = True) -> None:
        """Keep a promise on its ranks; with ``stays`` false, no longer. No effect while ranks are
        not chosen."""

    @abstractmethod
    def keeps(self, jobid: int, now: float) -> bool:
        """Return whether the promise of a job can be kept, if all before it can."""

    @abstractmethod
    def advance(self, jobid: int, now: float) -> float:
        """Move the promise of a job, which can be kept, to the earliest time that keeps all others.

        Returns:
            float: the new start, no later than before.
        """

    @abstractmethod
    def advance_in_turn(self, jobids: Sequence[int], now: float) -> tuple[int, list[int], float]:
        """Advance the promises of several jobs, which start later than now, one after another, as
        ``advance()``; most stay.

        Returns:
            the number of jobs examined, from the first on; the indices of those that moved; and the
            earliest of their new starts, or infinity. The last one examined starts now; or the next
            may have a promise that cannot be kept, or needs a longer search.
        """

    def due(self, now: float) -> tuple[list[int], float]:
        """As ``Plan.due()``."""
        return due_of(self.promises, now)

    @abstractmethod
    def withdraw(self, jobid: int) -> Promise | None:
        """Take out the promise of a job and return it; None if it has none."""

    @abstractmethod
    def restore(self, jobid: int, promise: Promise) -> None:
        """Put back a promise from ``withdraw()``, of this strategy or the one before."""

    # -- starting now -------------------------------------------------------

    @abstractmethod
    def place(
        self, request: ResourceRequest, now: float, end: float, overdue: bool = False
    ) -> tuple[Selection, int] | None:
        """Return a placement for a request from now to `end`, beside all promises.

        Args:
            overdue (bool): the job's own promise has begun, and it starts in its place: jobs
                promised the time after it may be delayed.

        Returns:
            as ``place_request()`` of the pool: ``(selection, nslots)``, or None if there is no
            placement.
        """


def due_of(promises: Mapping[int, Promise], now: float) -> tuple[list[int], float]:
    """Return the jobs with a promised start at or before `now`, without open promises, and the
    first start after it, or infinity."""
    due, first = [], inf
    for jobid, one in promises.items():
        start = one.start
        if now < start < first:
            first = start
        elif start <= now and not one.is_open:
            due.append(jobid)
    return due, first


def jobs_last(promises: Mapping[int, OnePromise]) -> list[tuple[int, OnePromise]]:
    """Return ``(id, promise)``, those of `Plan.keep` first: they go before those to jobs."""
    return sorted(promises.items(), key=lambda one: one[0] >= 0)


def held_by_endless(pool: PoolWithView, ranks: int) -> Selection | None:
    """Return the selection of the only job without an end on some ranks (a mask); None if there is
    none, or if there are several."""
    held = [pool.held(jobid) for jobid, end in pool.job_end_times() if not end]
    found = [one for one in held if selected_ranks(one) & ranks]
    return found[0] if len(found) == 1 else None
