# SPDX-License-Identifier: LGPL-3.0-or-later
"""The common interface of the two ways to keep promises.

``CountedStrategy`` counts units, ``BoundStrategy`` binds promises to ranks; the theory is in
``plan.py``, the switch between them in ``strategies.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from flux.resource.pool.inventory import selected_ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from typing_extensions import Self

    from flux.resource.pool.inventory import Selection
    from flux.resource.pool.placement import RoomCounts
    from flux.resource.pool.view import PoolWithView
    from flux.resource.request import Claimant, ResourceRequest


class UnitKind:
    """Units that are counted together. Equal kinds are one object, made by `for_ranks()`.

    Attributes:
        ranks (int): mask of the ranks of the units.
        whole (bool): the units are whole nodes; else single cores.
    """

    __slots__ = ("ranks", "whole", "__weakref__")

    def __init__(self, ranks: int, whole: bool) -> None:
        self.ranks = ranks
        self.whole = whole

    @classmethod
    def for_ranks(cls, ranks: int, whole: bool) -> UnitKind:
        """Return the kind with these attributes, the existing object if any.

        Each call of a plan looks up a kind. An object is found by identity, while a mask of all
        ranks of the cluster would be hashed each time.
        """
        kind = _kinds.get((ranks, whole))
        if kind is None:
            kind = _kinds[ranks, whole] = cls(ranks, whole)
        return kind


_kinds: WeakValueDictionary[tuple[int, bool], UnitKind] = WeakValueDictionary()


class CountedDemand(NamedTuple):
    """The demand of a shape, in units."""

    kind: UnitKind
    count: int  # type: ignore[assignment]  # the minimum number of units

    @classmethod
    def from_request(cls, pool: PoolWithView, request: ResourceRequest) -> Self | None:
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
                return cls(UnitKind.for_ranks(ranks, True), shape.node_count.min)
        elif not shape.exclusive and shape.slot_size:
            if sizes == {shape.slot_size}:
                return cls(UnitKind.for_ranks(ranks, True), shape.slot_count.min)
            if shape.slot_size == 1 and not any(shape.need[1:]):
                return cls(UnitKind.for_ranks(ranks, False), shape.slot_count.min)
        return None


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


class CountedPromise(Promise):
    """A promise of a number of units; its span changes when it moves.

    Attributes:
        demand (CountedDemand): kind and number of units.
        span: its start and end, in a list, or an array that compiled code writes to.
    """

    __slots__ = ("span", "request", "is_open", "demand")

    def __init__(
        self,
        start: float,
        end: float,
        request: ResourceRequest,
        demand: CountedDemand,
        is_open: bool = False,
    ) -> None:
        self.span: Any = [start, end]
        self.request = request
        self.is_open = is_open
        self.demand = demand

    @property
    def start(self) -> float:  # type: ignore[override]
        return self.span[0]  # type: ignore[no-any-return]

    @property
    def end(self) -> float:  # type: ignore[override]
        return self.span[1]  # type: ignore[no-any-return]

    def copy(self) -> CountedPromise:
        """Return an independent copy."""
        return CountedPromise(self.start, self.end, self.request, self.demand, self.is_open)


class BoundPromise(Promise):
    """A promise bound to ranks.

    Attributes:
        shape, length: of its request
        number (int or None): the number of its use of ranks; None if it has no ranks, since it cannot be
            kept
        pinned (bool): whether it stays on its ranks
    """

    def __init__(
        self, start: float, end: float, request: ResourceRequest, is_open: bool = False
    ) -> None:
        self.start = start
        self.end = end
        self.request = request
        self.shape = request.shape
        self.length = length_of(request)
        self.is_open = is_open
        self.number: int | None = None
        self.pinned = False


class Strategy(ABC):
    """A way to keep the promises of a plan.

    A plan calls ``sync()`` when the pool's generation is not ``seen``, and ``Strategies.accepting()``
    before any method with a request. Times are seconds since the epoch, ``now`` is the present time, and
    the end of a request without a duration is infinity.

    Attributes:
        counts (RoomCounts): counts of the free resources
        promises (Mapping): job id to Promise, in the order in which they were made.
        seen (int or None): generation of the pool for which this is valid; None: none yet.
        is_counted (bool): whether promises are counted; else they are bound to ranks.
        moves_per_turn (int): the maximum number of jobs for `advance_in_turn()` in one reactor
            turn, even if all of their promises move.
    """

    counts: RoomCounts
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


def length_of(request: ResourceRequest) -> float:
    """Return the duration of a request in seconds; infinity if it has none."""
    return request.duration if request.duration > 0 else inf


def held_by_endless(pool: PoolWithView, ranks: int) -> Selection | None:
    """Return the selection of the only job without an end on some ranks (a mask); None if there is
    none, or if there are several."""
    held = [pool.held(jobid) for jobid, end in pool.job_end_times() if not end]
    found = [one for one in held if selected_ranks(one) & ranks]
    return found[0] if len(found) == 1 else None
