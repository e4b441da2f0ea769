# SPDX-License-Identifier: LGPL-3.0-or-later
"""The common interface of the two ways to keep promises.

``CountedStrategy`` counts units, ``BoundStrategy`` binds promises to ranks; the theory is in
``plan.py``, the switch between them in ``strategies.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING

from flux.resource.plan.promise import due_of, length_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from typing_extensions import Self

    from flux.resource.plan.promise import Promise
    from flux.resource.plan.room_counts import RoomCounts
    from flux.resource.pool.inventory import Selection
    from flux.resource.request import Claimant, ResourceRequest


class Strategy(ABC):
    """A way to keep the promises of a plan.

    A plan calls ``sync()`` when the pool's generation is not ``seen``, and ``Strategies.accepting()``
    before any method with a request. Times are seconds since the epoch, ``now`` is the present time, and
    the end of a request without a duration is infinity.

    Attributes:
        promises (Mapping): job id to Promise, in the order in which they were made.
        seen (int or None): generation of the pool for which this is valid; None: none yet.
        is_counted (bool): whether promises are counted; else they are bound to ranks.
        moves_per_turn (int): the maximum number of jobs for `advance_in_turn()` in one reactor
            turn, even if all of their promises move.
    """

    promises: Mapping[int, Promise]
    seen: int | None
    moves_per_turn: int
    is_counted = False

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
    def started(self, jobid: int, claimant: Claimant | None) -> None:
        """Count a job that the pool just started, so that the next ``sync()`` need not."""

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
    def is_free(self, request: ResourceRequest, counts: RoomCounts) -> bool:
        """Return whether a request could start now without promises; `counts` are those of the
        plan."""

    def closed(self, request: ResourceRequest) -> int:
        """Return a mask of the ranks that running jobs' claims keep from a job that starts now."""
        return 0

    def room(self, request: ResourceRequest, counts: RoomCounts) -> float:
        """Return the number of nodes or slots of a request with room now, as `Plan.room`; `counts`
        are those of the plan."""
        return counts.count(request.shape)

    def may_start(self, request: ResourceRequest, counts: RoomCounts) -> bool:
        """Return False if counts of the free resources show that a request cannot start; `counts`
        are those of the plan."""
        return counts.count(request.shape) >= request.shape.least_count

    def has_one_promise(self, request: ResourceRequest) -> bool:
        """Return whether just one promise, which is not open, may keep a request from starting: as
        running jobs only give units back, the room for the request then ends with its start, and
        never later if it moves to an earlier time. Return False if that is unknown."""
        return False

    @abstractmethod
    def room_ends(
        self, request: ResourceRequest, counts: RoomCounts, now: float, end: float = inf
    ) -> float:
        """Return an upper bound of the time until which a request that starts now has room, beside
        all promises: ``now`` if it does not fit at all, infinity if none is known. A bound that is
        not exact is at most ``end`` if it has no room until then. `counts` are those of the
        plan."""

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
    def hold(self, jobid: int, request: ResourceRequest, now: float) -> bool:
        """Make an open promise to a job without a promise; return False if it never fits."""

    @abstractmethod
    def trial(self) -> Callable[[], None]:
        """Begin a trial, in which promises may move to other ranks; return a function that takes
        the moves back, to be called when the pool is as before."""

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
    def advance_in_turn(
        self, jobids: Sequence[int], now: float, counts: RoomCounts
    ) -> tuple[int, list[int], float]:
        """Advance the promises of several jobs, which start later than now, one after another, as
        ``advance()``; most stay. `counts` are those of the plan.

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
