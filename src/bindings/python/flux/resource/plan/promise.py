# SPDX-License-Identifier: LGPL-3.0-or-later
"""The promises of a plan to waiting jobs.

A promise is counted, or bound to ranks (see ``strategy.py``).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from flux.resource.pool.masks import mask_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from flux.resource.pool.view import PoolWithView
    from flux.resource.request import ResourceRequest


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


class CountedDemand:
    """The demand of a shape, in units.

    Attributes:
        kind (UnitKind): the kind of units.
        count (int): the minimum number of units.
    """

    __slots__ = ("kind", "count")

    def __init__(self, kind: UnitKind, count: int) -> None:
        self.kind = kind
        self.count = count

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

    @property
    def ranks(self) -> int | None:
        """Mask of its ranks; None while ranks are not chosen."""
        return None

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
        room: the availability with its use
        number (int or None): the number of that use; None if it has no ranks, since it cannot be
            kept
        pinned (bool): whether it stays on its ranks
    """

    __slots__ = (
        "start",
        "end",
        "request",
        "shape",
        "length",
        "is_open",
        "room",
        "number",
        "pinned",
    )

    def __init__(
        self, start: float, end: float, request: ResourceRequest, is_open: bool = False
    ) -> None:
        self.start = start
        self.end = end
        self.request = request
        self.shape = request.shape
        self.length = length_of(request)
        self.is_open = is_open
        self.room: Any = None
        self.number: int | None = None
        self.pinned = False

    @property
    def ranks(self) -> int:
        """Mask of its ranks.  O(ranks)."""
        if self.number is None or self.room is None:
            return 0
        return mask_of([rank for rank, _ in self.room.amounts_of(self.number)])


def due_of(promises: Mapping[int, Promise], now: float) -> tuple[list[int], float]:
    """Return the jobs with a promised start at or before `now`, without open promises, and the
    first start after it, or infinity."""
    later = [one.start for one in promises.values() if one.start > now]
    due = []
    if len(later) < len(promises):
        due = [jobid for jobid, one in promises.items() if one.start <= now and not one.is_open]
    return due, min(later, default=inf)


def length_of(request: ResourceRequest) -> float:
    """Return the duration of a request in seconds; infinity if it has none."""
    return request.duration if request.duration > 0 else inf
