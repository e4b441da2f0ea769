# SPDX-License-Identifier: LGPL-3.0-or-later
"""The compiled `Availability` (``_flux_plan/availability.c``), where it was built."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from flux.resource.plan import compiled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from flux.resource.plan.availability import Amounts, Demand

#: What the number of a use is where there is no room.
NO_ROOM = -2


def lib() -> Any:
    """The functions of the compiled part that is used, which tests exchange."""
    return compiled.lib  # type: ignore[attr-defined]


def ffi() -> Any:
    return compiled.ffi  # type: ignore[attr-defined]


class CompiledAvailability:
    """As `flux.resource.plan.availability.Availability`, which describes the methods."""

    def __init__(self, totals: Mapping[int, Amounts]) -> None:
        ranks = max(totals, default=-1) + 1
        self._kinds = kinds = len(next(iter(totals.values()), (0,)))
        self._bytes = ranks // 8 + 1
        none = (0,) * kinds
        amounts = list(chain.from_iterable(totals.get(rank, none) for rank in range(ranks)))
        self._own(lib().availability_create(ranks, kinds, amounts))

    def _own(self, cdata: Any) -> None:
        if cdata == ffi().NULL:
            raise MemoryError
        self._all = ffi().gc(cdata, lib().availability_destroy)

    def copy(self) -> Self:
        new = object.__new__(type(self))
        new._kinds, new._bytes = self._kinds, self._bytes
        new._own(lib().availability_copy(self._all))
        return new

    def _mask(self, ranks: int) -> bytes:
        return (ranks & ((1 << 8 * self._bytes) - 1)).to_bytes(self._bytes, "little")

    def _demand(self, demand: Demand) -> tuple[Any, Any]:
        """A demand for C; the second object keeps alive what it points to."""
        each = ffi().new("int64_t[]", demand.each)
        ranks = ffi().from_buffer(self._mask(demand.ranks))
        made = ffi().new("struct demand *")
        made.count, made.each, made.per_node = demand.count, each, demand.per_node
        made.whole, made.ranks, made.length = demand.whole, ranks, self._bytes
        return made, (each, ranks)

    def _read(self, ranks: Any) -> int:
        return int.from_bytes(ffi().buffer(ranks), "little")

    def _number(self, number: int) -> int:
        if number == -1:
            raise MemoryError
        return number

    def create(self, start: float, end: float, demand: Demand | None = None) -> int:
        made, kept = (ffi().NULL, None) if demand is None else self._demand(demand)
        return self._number(lib().availability_use(self._all, start, end, made))

    def take(self, number: int, ranks: int, amounts: Amounts) -> None:
        if ranks & (ranks - 1) == 0:
            rank = ranks.bit_length() - 1
            failed = lib().availability_take_one(self._all, number, rank, amounts)
        else:
            mask = self._mask(ranks)
            failed = lib().availability_take(self._all, number, mask, len(mask), amounts)
        self._number(failed)

    def enter(self, number: int) -> None:
        self._number(lib().availability_enter(self._all, number))

    def leave(self, number: int) -> None:
        self._number(lib().availability_leave(self._all, number))

    def drop(self, number: int) -> None:
        lib().availability_drop(self._all, number)

    def ranks_of(self, number: int) -> int:
        ranks = ffi().new("unsigned char[]", self._bytes)
        lib().availability_ranks_of(self._all, number, ranks)
        return self._read(ranks)

    def amounts_of(self, number: int) -> list[tuple[int, Amounts]]:
        count, kinds = lib().availability_parts(self._all, number), self._kinds
        ranks, amounts = (
            ffi().new("int64_t[]", count),
            ffi().new("int64_t[]", count * kinds),
        )
        lib().availability_amounts_of(self._all, number, ranks, amounts)
        flat = ffi().unpack(amounts, count * kinds)
        return sorted(
            (rank, tuple(flat[at * kinds : (at + 1) * kinds]))
            for at, rank in enumerate(ffi().unpack(ranks, count))
        )

    def room(self, demand: Demand, start: float, end: float) -> tuple[int, int]:
        ranks = ffi().new("unsigned char[]", self._bytes)
        made, kept = self._demand(demand)
        units = lib().availability_room(self._all, made, start, end, ranks)
        return units, self._read(ranks)

    def overdrawn(self, number: int, since: float) -> bool:
        return lib().availability_overdrawn(self._all, number, since)  # type: ignore[no-any-return]

    def booked(self, start: float, end: float) -> int:
        ranks = ffi().new("unsigned char[]", self._bytes)
        lib().availability_booked(self._all, start, end, ranks)
        return self._read(ranks)

    def earliest(
        self, demand: Demand, length: float, after: float, now: float, may_move: bool
    ) -> float:
        made, kept = self._demand(demand)
        found = lib().availability_earliest(self._all, made, length, after, now, may_move)
        return _told(found)

    def can_book(self, demand: Demand, start: float, end: float, now: float) -> bool:
        made, kept = self._demand(demand)
        return bool(self._number(lib().availability_can_book(self._all, made, start, end, now)))

    def book(
        self, demand: Demand, start: float, end: float, now: float, may_move: bool
    ) -> int | None:
        made, kept = self._demand(demand)
        number = lib().availability_book(self._all, made, start, end, now, may_move)
        return None if number == NO_ROOM else self._number(number)

    def enough_until(self, amounts: Amounts, ranks: int, since: float) -> float:
        mask = self._mask(ranks)
        return _told(lib().availability_enough_until(self._all, amounts, mask, len(mask), since))


def _told(time: float) -> float:
    """A time that C found."""
    if time == float("-inf"):
        raise MemoryError
    return time
