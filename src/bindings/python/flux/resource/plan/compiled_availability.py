# SPDX-License-Identifier: LGPL-3.0-or-later
"""The compiled `Availability` (``_flux_plan/availability.c``), if built."""

from __future__ import annotations

from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

from flux.resource.plan import compiled
from flux.resource.pool.masks import mask_of, members

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from typing_extensions import Self

    from flux.resource.plan.availability import Amounts, Demand
    from flux.resource.request import Claimant

#: Returned in place of a use's number, or another, if there is no room; and if there is no memory.
NO_ROOM, NO_MEMORY = -2, -1
#: Returned in place of a time if there is no memory.
NO_TIME = -inf
#: Number of demands known in C, beside the claims of the last ones.
MAX_TOLD = 1024


class CompiledAvailability:
    """`flux.resource.plan.plain_availability.PlainAvailability` in C; see there for the methods."""

    def __init__(self, totals: Mapping[int, Amounts], up: int = -1) -> None:
        ranks = max(totals, default=-1) + 1
        self._kinds = kinds = len(next(iter(totals.values()), (0,)))
        self._bytes = ranks // 8 + 1
        self._keys: dict[Hashable, int] = {}  # of claims: their numbers in C
        none = (0,) * kinds
        amounts = list(chain.from_iterable(totals.get(rank, none) for rank in range(ranks)))
        there = self._mask(up & mask_of(sorted(totals)))
        self._own(compiled.lib.availability_create(ranks, kinds, amounts, there))

    def _own(self, cdata: Any) -> None:
        self._all = compiled.owned(cdata, compiled.lib.availability_destroy)
        # By id, demands and claims, and these in C.
        self._told: dict[int, tuple[Demand | Claimant, Any]] = {}

    def copy(self) -> Self:
        new = object.__new__(type(self))
        new._kinds, new._bytes, new._keys = self._kinds, self._bytes, self._keys
        new._own(compiled.lib.availability_copy(self._all))
        return new

    def _mask(self, ranks: int) -> bytes:
        return (ranks & ((1 << 8 * self._bytes) - 1)).to_bytes(self._bytes, "little")

    def _tell(self, demand: Demand) -> Any:
        """Return a demand in C, valid until the next call with another."""
        told = self._told.get(id(demand))
        if told is None:
            if len(self._told) >= MAX_TOLD:
                self._told.clear()
            ranks, claim = self._mask(demand.ranks), self._tell_claim(demand.claim)
            made = compiled.lib.demand_create(self._all, *demand[:4], demand.stays, ranks, claim)
            told = demand, compiled.owned(made, compiled.lib.demand_release)
            self._told[id(demand)] = told
        return told[1]

    def _tell_claim(self, claim: Claimant | None) -> Any:
        """Return a claim in C; as `_tell`."""
        if claim is None:
            return compiled.ffi.NULL
        told = self._told.get(id(claim))
        if told is None:
            keys = [self._keys.setdefault(key, len(self._keys)) for key in claim.keys]
            where = b"".join(map(self._mask, claim.where))
            made = compiled.lib.claim_create(self._all, len(keys), keys, where)
            told = self._told[id(claim)] = claim, compiled.owned(made, compiled.lib.claim_release)
        return told[1]

    def _read(self, ranks: Any) -> int:
        return int.from_bytes(compiled.ffi.buffer(ranks), "little")

    def use(
        self,
        start: float,
        end: float,
        where: Iterable[tuple[int, Amounts]],
        demand: Demand | None = None,
        claim: Claimant | None = None,
    ) -> int:
        where = list(where)
        ranks = b"".join([self._mask(mask) for mask, _ in where])
        amounts = list(chain.from_iterable([one for _, one in where]))
        told = compiled.ffi.NULL if demand is None else self._tell(demand)
        claimed = self._tell_claim(claim)
        use = compiled.lib.availability_use
        return _known(use(self._all, start, end, told, claimed, len(where), ranks, amounts))

    def enter(self, number: int) -> None:
        _known(compiled.lib.availability_enter(self._all, number))

    def leave(self, number: int) -> None:
        _known(compiled.lib.availability_leave(self._all, number))

    def drop(self, number: int) -> None:
        _known(compiled.lib.availability_drop(self._all, number))

    def amounts_of(self, number: int) -> list[tuple[int, Amounts]]:
        new, unpack, kinds = compiled.ffi.new, compiled.ffi.unpack, self._kinds
        read, none = compiled.lib.availability_amounts_of, compiled.ffi.NULL
        count = read(self._all, number, none, none)
        ranks, amounts = new("int64_t[]", count), new("int64_t[]", count * kinds)
        read(self._all, number, ranks, amounts)
        flat = iter(unpack(amounts, count * kinds))
        return sorted(zip(unpack(ranks, count), zip(*[flat] * kinds)))

    def room(self, demand: Demand, start: float, end: float) -> tuple[int, int]:
        ranks = compiled.ffi.new("unsigned char[]", self._bytes)
        made = self._tell(demand)
        units = compiled.lib.availability_room(
            self._all, made, start, end, ranks, compiled.ffi.NULL
        )
        return units, self._read(ranks)

    def room_by_rank(self, demand: Demand, start: float, end: float) -> list[tuple[int, int]]:
        ranks, ffi = members(demand.ranks), compiled.ffi
        each = ffi.new("int64_t[]", len(ranks))
        made = self._tell(demand)
        compiled.lib.availability_room(self._all, made, start, end, ffi.NULL, each)
        return list(zip(ranks, each))

    def overdrawn(self, number: int, since: float) -> bool:
        return compiled.lib.availability_overdrawn(self._all, number, since)  # type: ignore[no-any-return]

    def taken(self, start: float, end: float, claim: Claimant | None = None) -> int:
        ranks = compiled.ffi.new("unsigned char[]", self._bytes)
        compiled.lib.availability_taken(self._all, self._tell_claim(claim), start, end, ranks)
        return self._read(ranks)

    def earliest(
        self, demand: Demand, length: float, after: float, now: float, may_move: bool
    ) -> float:
        made = self._tell(demand)
        find = compiled.lib.availability_earliest
        return _known_time(find(self._all, made, length, after, now, may_move))

    def book(
        self, demand: Demand, start: float, end: float, now: float, may_move: bool
    ) -> int | None:
        made = self._tell(demand)
        number = compiled.lib.availability_book(self._all, made, start, end, now, may_move)
        return None if number == NO_ROOM else _known(number)

    def enough_until(self, demand: Demand, since: float) -> float:
        made = self._tell(demand)
        return _known_time(compiled.lib.availability_enough_until(self._all, made, since))

    def can_start(
        self, number: int | None, demand: Demand, now: float, end: float, may_move: bool
    ) -> bool:
        made = self._tell(demand)
        number = -1 if number is None else number
        can = compiled.lib.availability_can_start(self._all, number, made, now, end, may_move)
        return _known(can) == 1

    def first_to_start(
        self,
        numbers: Sequence[int],
        now: float,
        may_move: bool,
        summed: bool,
        most: int,
    ) -> int:
        find = compiled.lib.availability_first_to_start
        return _known(find(self._all, len(numbers), numbers, now, may_move, summed, most))


def _known(number: int) -> int:
    """Return a number from C. Raises MemoryError if there was no memory."""
    if number == NO_MEMORY:
        raise MemoryError
    return number


def _known_time(time: float) -> float:
    """Return a time from C. Raises MemoryError if there was no memory."""
    if time == NO_TIME:
        raise MemoryError
    return time
