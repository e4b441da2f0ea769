# SPDX-License-Identifier: LGPL-3.0-or-later
"""The common interface of the two ways to keep promises, by which a Plan works with either.

``CountedStrategy`` counts units, ``BoundStrategy`` binds promises to ranks; the theory is in
``plan.py``, the switch between them in ``strategies.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING

from flux.resource.plan.promise import due_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from typing_extensions import Self

    from flux.resource.plan.promise import Promise
    from flux.resource.pool.inventory import Selection
    from flux.resource.request import ResourceRequest


class Strategy(ABC):
    """How the promises of a plan are kept.

    A plan calls ``sync()`` when the pool's generation is not ``seen``, and ``accepts()`` before any
    other method that takes a request. Times are seconds since the epoch, ``now`` is the time now,
    and an end is infinity where a request has no duration.

    Attributes:
        promises (Mapping): job id to Promise, in the order in which they were made.
        seen (int or None): generation of the pool for which all this is valid; None: of none yet.
        moves_per_turn (int): the maximum number of jobs for `advance_in_turn()` in a reactor turn,
            even if all of their promises move.
    """

    promises: Mapping[int, Promise]
    seen: int | None
    moves_per_turn: int

    @abstractmethod
    def copy(self) -> Self:
        """An independent copy, for a plan that only looks ahead."""

    # -- following the pool -------------------------------------------------

    @abstractmethod
    def sync(self) -> bool:
        """Take in the changes of the pool since the generation that was seen last.

        Returns:
            bool: False if its promises cannot be kept in this way any more.
        """

    @abstractmethod
    def started(self, jobid: int) -> None:
        """Count in a job that the pool has just started, so that the next ``sync()`` need not."""

    # -- questions ----------------------------------------------------------

    @abstractmethod
    def accepts(self, request: ResourceRequest) -> bool:
        """Whether a request can be planned in this way, beside the promises there are."""

    @abstractmethod
    def earliest(
        self, request: ResourceRequest, start: float, now: float, until: float = inf
    ) -> float:
        """First time from ``start`` on at which a request fits for its duration, or infinity. One
        from ``until`` on need not be found."""

    @abstractmethod
    def fits(self, request: ResourceRequest, start: float, end: float) -> bool:
        """Whether a request fits throughout a span."""

    @abstractmethod
    def fits_without(
        self, jobid: int | None, request: ResourceRequest, now: float, end: float
    ) -> bool:
        """Whether a request could start now and end at a time, beside all promises but that of a
        job."""

    @abstractmethod
    def is_free(self, request: ResourceRequest) -> bool:
        """Whether a request could start now if nothing were promised."""

    @abstractmethod
    def room_ends(self, request: ResourceRequest, now: float) -> float:
        """An upper bound of the time until which there is room for a request that starts now,
        beside all promises: ``now`` if it does not fit at all, infinity if none is known."""

    @abstractmethod
    def count(self, request: ResourceRequest, start: float, end: float) -> int:
        """The number of nodes (slots, if it asks for no nodes) of a request that fit throughout a
        span."""

    @abstractmethod
    def next_change(self, request: ResourceRequest, time: float) -> float:
        """The first moment after a time at which ``count()`` may change; infinity: none."""

    @abstractmethod
    def stale(self, now: float) -> list[int]:
        """Ids of the jobs whose promises cannot be kept any more, in the order of promises."""

    # -- promises -----------------------------------------------------------

    @abstractmethod
    def reserve(self, jobid: int, request: ResourceRequest, start: float, end: float) -> bool:
        """Promise resources to a job, which has no promise, for a span; False: they do not fit."""

    @abstractmethod
    def hold(self, jobid: int, request: ResourceRequest, now: float) -> bool:
        """Make an open promise to a job, which has no promise; False if the job never fits."""

    @abstractmethod
    def trial(self) -> Callable[[], None]:
        """Begin a trial, in which promises may be moved to other ranks; returns a function that
        takes the moves back, to be called when the pool is as before."""

    @abstractmethod
    def contains(self, jobid: int, held: Iterable[Selection]) -> bool:
        """Whether some selections together are a part of the units of a job's promise."""

    @abstractmethod
    def pin(self, jobid: int, stays: bool = True) -> None:
        """Keep a promise on its ranks, or (``stays`` false) no longer. No effect where ranks are
        not chosen yet."""

    @abstractmethod
    def keeps(self, jobid: int, now: float) -> bool:
        """Whether the promise of a job can be kept, if all before it can."""

    @abstractmethod
    def advance(self, jobid: int, now: float) -> float:
        """Move the promise of a job, which can be kept, to the earliest time that keeps all others.

        Returns:
            float: when it starts now; no later than before.
        """

    @abstractmethod
    def advance_in_turn(self, jobids: Iterable[int], now: float) -> tuple[int, list[int], float]:
        """As ``advance()``, for the promises of several jobs that are for later than now, one after
        another, where most stay where they are.

        Returns:
            the number of jobs, from the first on, that were examined; the places among these of
            those that moved; and the first start of those, or infinity. The last is the first that
            starts now; or the next may have a promise that cannot be kept, or takes a longer
            search.
        """

    def due(self, now: float) -> tuple[list[int], float]:
        """As ``Plan.due()``."""
        return due_of(self.promises, now)

    @abstractmethod
    def withdraw(self, jobid: int) -> Promise | None:
        """Take out the promise of a job, and return it; None if it has none."""

    @abstractmethod
    def restore(self, jobid: int, promise: Promise) -> None:
        """Put back the result of ``withdraw()``, of this strategy or the one before."""

    # -- starting now -------------------------------------------------------

    @abstractmethod
    def may_start(self, request: ResourceRequest) -> bool:
        """False if a quick check of the free resources shows that a request cannot start."""

    @abstractmethod
    def place(
        self, request: ResourceRequest, now: float, end: float, overdue: bool = False
    ) -> tuple[Selection, int] | None:
        """The placement of a request now, to end at a time, beside all promises.

        Args:
            overdue (bool): the job's own promise has begun, and it starts in its place: jobs
                promised the time after it may be delayed with it.

        Returns:
            as ``place_request()`` of the pool: ``(selection, nslots)``, or None if there is no
            place.
        """
