# SPDX-License-Identifier: LGPL-3.0-or-later
"""The compiled `Availability` (``_flux_plan/availability.c``), where it was built."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from flux.resource.plan import compiled

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.plan.availability import Amounts, Demand

#: What the number of a use is where there is no room.
NO_ROOM = -2


class CompiledAvailability:
    """As `flux.resource.plan.availability.Availability`, which describes the methods."""

    def __init__(self, totals: dict[int, Amounts]) -> None:
        ranks = max(totals, default=-1) + 1
        self._kinds = kinds = len(next(iter(totals.values()), (0,)))
        self._bytes = ranks // 8 + 1
        none = (0,) * kinds
        amounts = list(chain.from_iterable(totals.get(rank, none) for rank in range(ranks)))
        self._own(compiled.lib.availability_create(ranks, kinds, amounts))

    def _own(self, cdata: Any) -> None:
        if cdata == compiled.ffi.NULL:
            raise MemoryError
        self._all = compiled.ffi.gc(cdata, compiled.lib.availability_destroy)

    def copy(self) -> Self:
        new = object.__new__(type(self))
        new._kinds, new._bytes = self._kinds, self._bytes
        new._own(compiled.lib.availability_copy(self._all))
        return new

    def _mask(self, ranks: int) -> bytes:
        return (ranks & ((1 << 8 * self._bytes) - 1)).to_bytes(self._bytes, "little")

    def _demand(self, demand: Demand) -> tuple[Any, Any]:
        """A demand for C; the second object keeps alive what it points to."""
        each = compiled.ffi.new("int64_t[]", demand.each)
        ranks = compiled.ffi.from_buffer(self._mask(demand.ranks))
        made = compiled.ffi.new("struct demand *")
        made.count, made.each, made.per_node = demand.count, each, demand.per_node
        made.whole, made.ranks, made.length = demand.whole, ranks, self._bytes
        return made, (each, ranks)

    def _read(self, ranks: Any) -> int:
        return int.from_bytes(compiled.ffi.buffer(ranks), "little")

    def _number(self, number: int) -> int:
        if number == -1:
            raise MemoryError
        return number

    def create(self, start: float, end: float) -> int:
        return self._number(compiled.lib.availability_use(self._all, start, end))

    def take(self, number: int, ranks: int, amounts: Amounts) -> None:
        if ranks & (ranks - 1) == 0:
            rank = ranks.bit_length() - 1
            failed = compiled.lib.availability_take_one(self._all, number, rank, amounts)
        else:
            mask = self._mask(ranks)
            failed = compiled.lib.availability_take(self._all, number, mask, len(mask), amounts)
        self._number(failed)

    def enter(self, number: int) -> None:
        self._number(compiled.lib.availability_enter(self._all, number))

    def leave(self, number: int) -> None:
        self._number(compiled.lib.availability_leave(self._all, number))

    def drop(self, number: int) -> None:
        compiled.lib.availability_drop(self._all, number)

    def ranks_of(self, number: int) -> int:
        ranks = compiled.ffi.new("unsigned char[]", self._bytes)
        compiled.lib.availability_ranks_of(self._all, number, ranks)
        return self._read(ranks)

    def amounts_of(self, number: int) -> list[tuple[int, Amounts]]:
        count, kinds = compiled.lib.availability_parts(self._all, number), self._kinds
        ranks, amounts = compiled.ffi.new("int64_t[]", count), compiled.ffi.new("int64_t[]", count * kinds)
        compiled.lib.availability_amounts_of(self._all, number, ranks, amounts)
        flat = compiled.ffi.unpack(amounts, count * kinds)
        return sorted(
            (rank, tuple(flat[at * kinds : (at + 1) * kinds]))
            for at, rank in enumerate(compiled.ffi.unpack(ranks, count))
        )

    def room(self, demand: Demand, start: float, end: float) -> tuple[int, int]:
        ranks = compiled.ffi.new("unsigned char[]", self._bytes)
        made, kept = self._demand(demand)
        units = compiled.lib.availability_room(self._all, made, start, end, ranks)
        return units, self._read(ranks)

    def overdrawn(self, number: int, since: float) -> bool:
        return compiled.lib.availability_overdrawn(self._all, number, since)  # type: ignore[no-any-return]

    def booked(self, start: float, end: float) -> int:
        ranks = compiled.ffi.new("unsigned char[]", self._bytes)
        compiled.lib.availability_booked(self._all, start, end, ranks)
        return self._read(ranks)

    def earliest(
        self, demand: Demand, length: float, after: float, now: float, may_move: bool
    ) -> float:
        made, kept = self._demand(demand)
        found = compiled.lib.availability_earliest(self._all, made, length, after, now, may_move)
        return _told(found)

    def can_book(self, demand: Demand, start: float, end: float, now: float) -> bool:
        made, kept = self._demand(demand)
        return bool(self._number(compiled.lib.availability_can_book(self._all, made, start, end, now)))

    def book(
        self, demand: Demand, start: float, end: float, now: float, may_move: bool
    ) -> int | None:
        made, kept = self._demand(demand)
        number = compiled.lib.availability_book(self._all, made, start, end, now, may_move)
        return None if number == NO_ROOM else self._number(number)

    def enough_until(self, amounts: Amounts, ranks: int, since: float) -> float:
        mask = self._mask(ranks)
        return _told(compiled.lib.availability_enough_until(self._all, amounts, mask, len(mask), since))


def _told(time: float) -> float:
    """A time that C found."""
    if time == float("-inf"):
        raise MemoryError
    return time
