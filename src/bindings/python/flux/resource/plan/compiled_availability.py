# SPDX-License-Identifier: LGPL-3.0-or-later
"""The compiled `Availability` (``_flux_plan/availability.c``), if built."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from flux.resource.plan import compiled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from flux.resource.plan.availability import Amounts, Demand

#: Returned in place of a use's number if there is no room.
NO_ROOM = -2


class CompiledAvailability:
    """`flux.resource.plan.plain_availability.PlainAvailability` in C; see there for the methods."""

    #: The compiled part, which tests replace.
    _lib: Any
    _ffi: Any

    def __init__(self, totals: Mapping[int, Amounts], up: int = -1) -> None:
        self._lib, self._ffi = compiled.lib, compiled.ffi  # type: ignore[attr-defined]
        ranks = max(totals, default=-1) + 1
        self._kinds = kinds = len(next(iter(totals.values()), (0,)))
        self._bytes = ranks // 8 + 1
        none = (0,) * kinds
        amounts = list(chain.from_iterable(totals.get(rank, none) for rank in range(ranks)))
        self._own(self._lib.availability_create(ranks, kinds, amounts, self._mask(up)))

    def _own(self, cdata: Any) -> None:
        if cdata == self._ffi.NULL:
            raise MemoryError
        self._all = self._ffi.gc(cdata, self._lib.availability_destroy)
        # The struct that passes each demand to C, made once.
        self._asked = self._ffi.new("struct demand *")
        self._told_last: Demand | None = None
        self._each = self._ffi.new("int64_t[]", self._kinds)
        self._asked.each, self._asked.length = self._each, self._bytes

    def copy(self) -> Self:
        new = object.__new__(type(self))
        new._lib, new._ffi = self._lib, self._ffi
        new._kinds, new._bytes = self._kinds, self._bytes
        new._own(self._lib.availability_copy(self._all))
        return new

    def _mask(self, ranks: int) -> bytes:
        return (ranks & ((1 << 8 * self._bytes) - 1)).to_bytes(self._bytes, "little")

    def _told(self, demand: Demand) -> Any:
        """Return the demand as a C struct, valid until the next call."""
        made = self._asked
        if demand is self._told_last:
            return made
        self._told_last = demand
        for kind, need in enumerate(demand.each):
            self._each[kind] = need
        self._ranks = ranks = self._ffi.from_buffer(self._mask(demand.ranks))
        made.count, made.per_node, made.whole = demand.count, demand.per_node, demand.whole
        made.ranks = ranks
        return made

    def _read(self, ranks: Any) -> int:
        return int.from_bytes(self._ffi.buffer(ranks), "little")

    def _number(self, number: int) -> int:
        if number == -1:
            raise MemoryError
        return number

    def create(self, start: float, end: float, demand: Demand | None = None) -> int:
        made = self._ffi.NULL if demand is None else self._told(demand)
        return self._number(self._lib.availability_use(self._all, start, end, made))

    def take(self, number: int, ranks: int, amounts: Amounts) -> None:
        if ranks & (ranks - 1) == 0:
            rank = ranks.bit_length() - 1
            failed = self._lib.availability_take_one(self._all, number, rank, amounts)
        else:
            mask = self._mask(ranks)
            failed = self._lib.availability_take(self._all, number, mask, len(mask), amounts)
        self._number(failed)

    def enter(self, number: int) -> None:
        self._number(self._lib.availability_enter(self._all, number))

    def leave(self, number: int) -> None:
        self._number(self._lib.availability_leave(self._all, number))

    def drop(self, number: int) -> None:
        self._lib.availability_drop(self._all, number)

    def pin(self, number: int) -> None:
        self._number(self._lib.availability_pin(self._all, number))

    def ranks_of(self, number: int) -> int:
        ranks = self._ffi.new("unsigned char[]", self._bytes)
        self._lib.availability_ranks_of(self._all, number, ranks)
        return self._read(ranks)

    def amounts_of(self, number: int) -> list[tuple[int, Amounts]]:
        count, kinds = self._lib.availability_parts(self._all, number), self._kinds
        ranks, amounts = (
            self._ffi.new("int64_t[]", count),
            self._ffi.new("int64_t[]", count * kinds),
        )
        self._lib.availability_amounts_of(self._all, number, ranks, amounts)
        flat = self._ffi.unpack(amounts, count * kinds)
        return sorted(
            (rank, tuple(flat[at * kinds : (at + 1) * kinds]))
            for at, rank in enumerate(self._ffi.unpack(ranks, count))
        )

    def room(self, demand: Demand, start: float, end: float) -> tuple[int, int]:
        ranks = self._ffi.new("unsigned char[]", self._bytes)
        made = self._told(demand)
        units = self._lib.availability_room(self._all, made, start, end, ranks)
        return units, self._read(ranks)

    def overdrawn(self, number: int, since: float) -> bool:
        return self._lib.availability_overdrawn(self._all, number, since)  # type: ignore[no-any-return]

    def booked(self, start: float, end: float) -> int:
        ranks = self._ffi.new("unsigned char[]", self._bytes)
        self._lib.availability_booked(self._all, start, end, ranks)
        return self._read(ranks)

    def earliest(
        self, demand: Demand, length: float, after: float, now: float, may_move: bool
    ) -> float:
        made = self._told(demand)
        found = self._lib.availability_earliest(self._all, made, length, after, now, may_move)
        return _time(found)

    def can_book(self, demand: Demand, start: float, end: float, now: float) -> bool:
        made = self._told(demand)
        return bool(self._number(self._lib.availability_can_book(self._all, made, start, end, now)))

    def book(
        self, demand: Demand, start: float, end: float, now: float, may_move: bool
    ) -> int | None:
        made = self._told(demand)
        number = self._lib.availability_book(self._all, made, start, end, now, may_move)
        return None if number == NO_ROOM else self._number(number)

    def enough_until(self, amounts: Amounts, since: float) -> float:
        return _time(self._lib.availability_enough_until(self._all, amounts, since))

    def can_start(
        self,
        number: int | None,
        demand: Demand,
        least: Amounts | None,
        now: float,
        end: float,
        may_move: bool,
    ) -> bool:
        made, ffi = self._told(demand), self._ffi
        own, bound = -1 if number is None else number, ffi.NULL if least is None else least
        can = self._lib.availability_can_start(self._all, own, made, bound, now, end, may_move)
        return bool(self._number(can))


def _time(time: float) -> float:
    """Return a time found by C."""
    if time == float("-inf"):
        raise MemoryError
    return time
