# SPDX-License-Identifier: LGPL-3.0-or-later
"""The compiled part of plans, ``_flux_plan``: timelines of counts, moves of promises in them, and room
on ranks.

With thousands of promises, each end of a job lets hundreds move, each because of the one before. A
move is a few additions and comparisons, so most of the time is the interpreter's. ``_flux_plan``
does the same in C, more than ten times as fast; ``make`` builds it if there is a compiler.
Otherwise ``CountTimeline`` and ``PromiseMoves`` replace it, with the same results:
``t/python/resource/test_compiled.py``.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from math import inf
from typing import Any

from flux.resource.plan.availability import Amounts, Demand
from flux.resource.plan.plain_availability import PlainAvailability
from flux.resource.plan.strategy import Promise, UnitKind
from flux.resource.plan.timeline import CountTimeline
from flux.resource.pool.masks import members
from flux.resource.request import Claimant, length_of

try:
    from _flux_plan import ffi as ffi  # type: ignore[attr-defined]
    from _flux_plan import lib as lib  # type: ignore[attr-defined]
except ImportError:  # not built, or for another Python
    ffi = lib = None

#: Told at the start of a scheduler and of a simulation that plan without the compiled part.
NOT_BUILT = (
    "_flux_plan is not built for this Python: plans with many promises are several times slower"
)
#: Maximum number of promises moved in one reactor turn.
MOVES_PER_TURN = 2048
#: Returned in place of a number if there is no memory.
NO_MEMORY = -1
#: Returned in place of a time if there is no memory.
NO_TIME = -inf
#: Maximum number of demands and claims kept in C.
MAX_DEMANDS = 1024


def is_built() -> bool:
    """Return whether the compiled part can be used."""
    return lib is not None


def timeline(start: float, value: int) -> CountTimeline:
    """Return a step function of time, compiled if possible."""
    kind: Any = CompiledTimeline if is_built() else CountTimeline
    return kind(start, value)  # type: ignore[no-any-return]


def availability(totals: Mapping[int, Amounts]) -> PlainAvailability | CompiledAvailability:
    """Return room on ranks, whose totals are given; compiled if possible."""
    return CompiledAvailability(totals) if is_built() else PlainAvailability(totals)


class CompiledTimeline:
    """A `CountTimeline` in C; see there for the methods.

    Args:
        start (float): first moment, seconds since the epoch
        value (int): its value from then on
    """

    __slots__ = ("cdata", "forget", "least", "below")

    def __init__(self, start: float, value: int) -> None:
        self._wrap(lib.timeline_create(start, value))

    def copy(self) -> CompiledTimeline:
        new = object.__new__(type(self))
        new._wrap(lib.timeline_copy(self.cdata))
        return new

    def _wrap(self, line: Any) -> None:
        cdata = self.cdata = owned(line, lib.timeline_destroy)
        self.forget = partial(lib.timeline_forget, cdata)
        self.least = partial(lib.timeline_least, cdata)
        self.below = partial(lib.timeline_below, cdata)

    def add(self, start: float, end: float, delta: int) -> None:
        if lib.timeline_add(self.cdata, start, end, delta):
            raise MemoryError

    def first(self, value: int, length: float, start: float, limit: float = inf) -> float:
        return lib.timeline_first(  # type: ignore[no-any-return]
            self.cdata, value, length, start, limit, inf
        )


class CompiledMoves:
    """`PromiseMoves` in C, which examine the promises of a row one after another."""

    timeline = CompiledTimeline
    per_turn = MOVES_PER_TURN

    def __init__(self, promises: dict[int, Promise], profiles: dict[UnitKind, Any]) -> None:
        self._promises, self._profiles = promises, profiles
        self._cdata = owned(lib.promises_create(), lib.promises_destroy)
        #: timelines with promises in C, with these there
        self._lines: dict[CompiledTimeline, Any] = {}
        # Whether C has all promises. It gets them when the first is to move: in most copies of a
        # plan none is.
        self._has_all = False
        self._indices = ffi.new("int64_t[]", MOVES_PER_TURN)
        self._first = ffi.new("double *")
        self._spans: dict[int, Any] = {}  # by job id, the spans of promises that C writes to
        self._moved = ffi.new("size_t *")

    def drop_line(self, line: CompiledTimeline) -> None:
        if line in self._lines:
            lib.promises_drop_line(self._cdata, self._lines.pop(line))

    def opened(self, line: CompiledTimeline, start: float, end: float, count: int) -> None:
        known = self._lines.get(line)
        if known is not None and lib.promises_opened(self._cdata, known, start, end, count):
            raise MemoryError

    def enter(self, jobid: int, promise: Promise) -> None:
        if self._has_all:
            self._pass_to_c(jobid, promise)

    def leave(self, jobid: int) -> None:
        if self._has_all:
            lib.promises_drop(self._cdata, jobid)
            self._spans.pop(jobid, None)

    def due(self, now: float) -> tuple[list[int], float]:
        if not self._has_all:
            self._pass_all()
        jobids = ffi.new("int64_t[]", len(self._spans) + 1)
        count = lib.promises_due(self._cdata, now, jobids, self._first)
        return ffi.unpack(jobids, count) if count else [], self._first[0]

    def advance(self, jobid: int, now: float) -> float:
        self._advance([jobid], now, False)
        return self._promises[jobid].start

    def advance_in_turn(self, jobids: Sequence[int], now: float) -> tuple[int, list[int], float]:
        return self._advance(ffi.from_buffer("int64_t[]", array("q", jobids)), now, True)

    def _advance(self, row: Any, now: float, overdrawn: bool) -> tuple[int, list[int], float]:
        """Move the promises of a row of jobs, whose ids are in a list or in C; `overdrawn`: check
        that promises add up to no more than there is."""
        if not self._has_all:
            self._pass_all()
        cdata = self._cdata
        for profile in self._profiles.values():
            known = self._lines.get(profile.line)
            if known is not None:
                overdrawn_here = overdrawn and profile.maybe_overdrawn
                lib.promises_set_line(known, profile.kept, overdrawn_here)
        length = len(row)
        if len(self._indices) < length:
            self._indices = ffi.new("int64_t[]", length)
        done = lib.promises_advance(
            cdata, row, length, now, self._indices, self._moved, self._first
        )
        if done < 0:
            raise MemoryError
        count = self._moved[0]
        if not count:
            return done, [], inf
        return done, ffi.unpack(self._indices, count), self._first[0]

    def _pass_all(self) -> None:
        self._has_all = True
        for jobid, promise in self._promises.items():
            self._pass_to_c(jobid, promise)

    def _pass_to_c(self, jobid: int, promise: Promise) -> None:
        if promise.is_open:
            return
        line = self._profiles[promise.demand.kind].line
        known = self._lines.get(line)
        if known is None:
            known = self._lines[line] = _made(lib.promises_add_line(self._cdata, line.cdata))
        promise.span = self._spans[jobid] = ffi.new("double[2]", (promise.start, promise.end))
        count, length = promise.demand.count, length_of(promise.request)
        if lib.promises_put(self._cdata, jobid, known, count, promise.span, length):
            raise MemoryError


class CompiledAvailability:
    """`flux.resource.plan.plain_availability.PlainAvailability` in C; see there for the methods."""

    def __init__(self, totals: Mapping[int, Amounts]) -> None:
        ranks = max(totals, default=-1) + 1
        self._kinds = kinds = len(next(iter(totals.values()), (0,)))
        self._bytes = ranks // 8 + 1
        self._keys: dict[Hashable, int] = {}  # of claims: their numbers in C
        none = (0,) * kinds
        amounts = list(chain.from_iterable(totals.get(rank, none) for rank in range(ranks)))
        least = list(map(min, zip(*totals.values()))) or none
        self._own(lib.availability_create(ranks, kinds, amounts, least))

    def _own(self, cdata: Any) -> None:
        self._all = owned(cdata, lib.availability_destroy)
        # By id, demands and claims, and these in C.
        self._demands: dict[int, tuple[Any, Any]] = {}

    def copy(self) -> CompiledAvailability:
        new = object.__new__(type(self))
        new._kinds, new._bytes, new._keys = self._kinds, self._bytes, self._keys
        new._own(lib.availability_copy(self._all))
        return new

    def _mask(self, ranks: int) -> bytes:
        return (ranks & ((1 << 8 * self._bytes) - 1)).to_bytes(self._bytes, "little")

    def _in_c(self, demand: Demand | None, claim: Claimant | None = None) -> Any:
        """Return a demand, or a claim alone, in C; valid until the next call with another."""
        key = demand or claim
        if key is None:
            return ffi.NULL
        entry = self._demands.get(id(key))
        if entry is None:
            if len(self._demands) >= MAX_DEMANDS:
                self._demands.clear()
            demand = demand or Demand(0, (0,) * self._kinds, False, False, 0, claim)
            keys, where = demand.claim or ((), ())
            numbers = [self._keys.setdefault(one, len(self._keys)) for one in keys]
            ranks = b"".join(map(self._mask, (demand.ranks, *where)))
            made = lib.demand_create(self._all, *demand[:4], len(keys), numbers, ranks)
            entry = self._demands[id(key)] = key, owned(made, lib.demand_release)
        return entry[1]

    def _read(self, ranks: Any) -> int:
        return int.from_bytes(ffi.buffer(ranks), "little")

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
        made = self._in_c(demand, claim)
        use = lib.availability_use
        return _known(use(self._all, start, end, made, len(where), ranks, amounts))

    def enter(self, number: int) -> None:
        _known(lib.availability_enter(self._all, number))

    def leave(self, number: int) -> None:
        _known(lib.availability_leave(self._all, number))

    def drop(self, number: int) -> None:
        _known(lib.availability_drop(self._all, number))

    def amounts_of(self, number: int) -> list[tuple[int, Amounts]]:
        new, unpack, kinds = ffi.new, ffi.unpack, self._kinds
        read, none = lib.availability_amounts_of, ffi.NULL
        count = read(self._all, number, none, none)
        ranks, amounts = new("int64_t[]", count), new("int64_t[]", count * kinds)
        read(self._all, number, ranks, amounts)
        flat = iter(unpack(amounts, count * kinds))
        return sorted(zip(unpack(ranks, count), zip(*[flat] * kinds)))

    def room(self, demand: Demand, start: float, end: float) -> tuple[int, int]:
        ranks = ffi.new("unsigned char[]", self._bytes)
        made = self._in_c(demand)
        units = lib.availability_room(self._all, made, start, end, ranks, ffi.NULL)
        return units, self._read(ranks)

    def room_by_rank(self, demand: Demand, start: float, end: float) -> list[tuple[int, int]]:
        each = ffi.new("int64_t[]", 8 * self._bytes)
        made = self._in_c(demand)
        lib.availability_room(self._all, made, start, end, ffi.NULL, each)
        return [(rank, each[rank]) for rank in members(demand.ranks)]

    def overdrawn(self, number: int, since: float) -> bool:
        return lib.availability_overdrawn(self._all, number, since)  # type: ignore[no-any-return]

    def taken(self, start: float, end: float, claim: Claimant | None = None) -> int:
        ranks = ffi.new("unsigned char[]", self._bytes)
        lib.availability_taken(self._all, self._in_c(None, claim), start, end, ranks)
        return self._read(ranks)

    def earliest(
        self, demand: Demand, length: float, after: float, now: float, may_move: bool
    ) -> float:
        find, made = lib.availability_earliest, self._in_c(demand)
        return _known_time(find(self._all, made, length, after, now, may_move))

    def book(self, demand: Demand, start: float, end: float, now: float, may_move: bool) -> int:
        bind, made = lib.availability_book, self._in_c(demand)
        return _known(bind(self._all, made, start, end, now, may_move, True))

    def enough_until(self, demand: Demand, since: float) -> float:
        made = self._in_c(demand)
        return _known_time(lib.availability_enough_until(self._all, made, since))

    def can_start(self, demand: Demand, now: float, end: float, may_move: bool) -> bool:
        can, made = lib.availability_can_start, self._in_c(demand)
        return bool(_known(can(self._all, made, now, end, may_move)))

    def first_to_start(
        self,
        numbers: Sequence[int],
        now: float,
        may_move: bool,
        summed: bool,
        most: int,
    ) -> tuple[int, bool]:
        find, can = lib.availability_first_to_start, ffi.new("bool *")
        index = find(self._all, len(numbers), numbers, now, may_move, summed, most, can)
        return _known(index), can[0]


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


def _made(cdata: Any) -> Any:
    """Return an object made in C. Raises MemoryError if there was no memory."""
    if cdata == ffi.NULL:
        raise MemoryError
    return cdata


def owned(cdata: Any, destroy: Any) -> Any:
    """Wrap an object made in C, which is destroyed with its last reference."""
    return ffi.gc(_made(cdata), destroy)
