# SPDX-License-Identifier: LGPL-3.0-or-later
"""The base class of the two strategies to keep promises.

``CountedStrategy``, where each method is documented, counts units, ``BoundStrategy`` binds promises
to ranks; the theory is in ``plan.py``, with the switch between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, NamedTuple

from flux.resource.pool.placement import RoomCounts
from flux.resource.request import ResourceRequest, length_of


class UnitKind(NamedTuple):
    """Units that are counted together.

    Attributes:
        ranks (int): mask of the ranks of the units.
        whole (bool): the units are whole nodes; else single cores.
    """

    ranks: int
    whole: bool


class CountedDemand(NamedTuple):
    """The demand of a shape, in units."""

    kind: UnitKind
    count: int  # type: ignore[assignment]  # the minimum number of units


class Promise:
    """Resources kept for a waiting job. Its span changes when it moves.

    Attributes:
        span: its start and end, in a list, or an array that compiled code writes to
        start, end (float): seconds since the epoch; the end is infinity for a job without a limit.
        request (ResourceRequest): the job's request.
        is_open (bool): the possible start of the job is unknown.
        demand (CountedDemand): kind and number of its units, while it is counted
        number (int): the number of its use of ranks, while it is bound; 0 if it has no ranks, since
            it cannot be kept
        pinned (bool): whether it stays on its ranks
    """

    __slots__ = ("span", "request", "is_open", "demand", "number", "pinned")

    demand: CountedDemand

    def __init__(
        self,
        start: float,
        end: float,
        request: ResourceRequest,
        is_open: bool = False,
        demand: CountedDemand | None = None,
    ) -> None:
        self.span: Any = [start, end]
        self.request = request
        self.is_open = is_open
        self.demand = demand  # type: ignore[assignment]
        self.number = 0
        self.pinned = False

    @property
    def start(self) -> float:
        return self.span[0]  # type: ignore[no-any-return]

    @property
    def end(self) -> float:
        return self.span[1]  # type: ignore[no-any-return]

    def copy(self) -> Promise:
        """Return an independent copy."""
        new = Promise(self.start, self.end, self.request, self.is_open, self.demand)
        new.number, new.pinned = self.number, self.pinned
        return new

    def is_overdue(self, now: float) -> bool:
        """Return whether its job is late: the start has come, and the end has not."""
        return not self.is_open and self.start <= now < self.end


#: More than the relative error of a sum of two floats.
ROUNDING = 1e-15


def too_long_until(end: float, now: float) -> float:
    """Return a duration from now on, in seconds, that is too long for room which ends at `end`."""
    # A sum of now and a duration is rounded: a duration that ends with the room may fit.
    return (end - now) * (1 + ROUNDING) + now * ROUNDING if end > now else 0.0


class Strategy:
    """Base class of a way to keep the promises of a plan.

    A plan calls ``sync()`` when the pool's generation is not ``seen``, and ``Plan._strategy_for()``
    before any method with a request. Times are seconds since the epoch, ``now`` is the present time, and
    the end of a request without a duration is infinity.

    Attributes:
        counts (RoomCounts): counts of the free resources
        promises (Mapping): job id to Promise, in the order in which they were made.
        seen (int or None): generation of the pool for which this is valid; None: none yet.
        is_blank (bool): whether it knows nothing of running jobs, so that `started` has no effect.
        moves_per_turn (int): the maximum number of jobs for `advance_in_turn()` in one reactor
            turn, even if all of their promises move.
        is_short (bool): as `Plan.is_short`
    """

    counts: RoomCounts
    promises: Mapping[int, Promise]
    seen: int | None
    moves_per_turn: int
    is_blank = False
    is_short = False

    def end_of_start(self, jobid: int, request: ResourceRequest, now: float) -> float:
        """Return the end of a job that starts now. For a late job it is the end of its promise: the
        promises after it must not keep it from starting, although it delays them."""
        own = self.promises.get(jobid)
        return own.end if own is not None and own.is_overdue(now) else now + length_of(request)

    def closed(self, request: ResourceRequest) -> int:
        """Return a mask of the ranks that running jobs' claims keep from a job that starts now."""
        return 0

    def room(self, request: ResourceRequest) -> float:
        """As `Plan.room`."""
        return self.counts.count(request.shape)

    def may_start(self, request: ResourceRequest) -> bool:
        """Return False if counts of the free resources show that a request cannot start."""
        return self.counts.count(request.shape) >= request.shape.least_count

    def beside_promise(self, request: ResourceRequest, now: float) -> tuple[float, float]:
        """As `Plan.too_long_until_dropped`. It is known if just one promise, which is not open, may
        keep requests of the kind from starting: as running jobs only give units back, the room for
        more than that leaves ends with its start, and never later if it moves to an earlier time."""
        return inf, inf

    def ranks_of(self, jobid: int) -> int | None:
        """As ``Plan.ranks_of()``, for a job with a promise."""
        return None

    def due(self, now: float) -> tuple[list[int], float]:
        """As ``Plan.due()``."""
        return due_of(self.promises, now)

    def pin(self, jobid: int, stays: bool = True) -> None:
        """Keep a promise on its ranks, if they are chosen; with ``stays`` false, no longer."""

    def trial(self) -> Callable[[], None]:
        """Begin a trial, in which promises may move to other ranks; return a function that takes
        the moves back, to be called when the pool is as before."""
        return lambda: None


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


def jobs_last(promises: Mapping[int, Promise]) -> list[tuple[int, Promise]]:
    """Return ``(id, promise)``, first the promises of `Plan.keep_free`, which precede jobs."""
    return sorted(promises.items(), key=lambda one: one[0] >= 0)
