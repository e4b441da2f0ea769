# SPDX-License-Identifier: LGPL-3.0-or-later
"""The compiled part of plans: timelines of counts, and moves of promises in them.

With thousands of promises, each end of a job lets hundreds move, each because of the one before. A
move is a few additions and comparisons, so most of the time is the interpreter's. ``_flux_plan``
does the same in C, more than ten times as fast; ``make`` builds it if there is a compiler.
Otherwise ``CountTimeline`` and ``PromiseMoves`` replace it, with the same results:
``t/python/resource/test_compiled.py``.
"""

from __future__ import annotations

from array import array
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from flux.resource.plan.promise import CountedPromise, length_of
from flux.resource.plan.promise_moves import PromiseMoves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from flux.resource.plan.counted_profile import CountedProfile
    from flux.resource.plan.promise import UnitKind

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
MOVES_PER_TURN = 512


def is_built() -> bool:
    """Return whether the compiled part can be used."""
    return lib is not None


class CompiledTimeline:
    """A `CountTimeline` in C; see there for the methods.

    Args:
        start (float): first moment, seconds since the epoch
        value (int): its value from then on
    """

    __slots__ = ("cdata", "forget", "least", "below")

    def __init__(self, start: float, value: int) -> None:
        self._wrap(lib.timeline_create(start, value))

    def copy(self) -> Self:
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


class CompiledMoves(PromiseMoves):
    """Moves in C, which examine the promises of a row one after another."""

    timeline = CompiledTimeline
    per_turn = MOVES_PER_TURN

    def __init__(
        self, promises: dict[int, CountedPromise], profiles: dict[UnitKind, CountedProfile]
    ) -> None:
        super().__init__(promises, profiles)
        self._cdata = owned(lib.promises_create(), lib.promises_destroy)
        # Whether C has all promises. It gets them when the first is to move: in most copies of a
        # plan none is.
        self._is_told = False
        self._places = ffi.new("int64_t[]", MOVES_PER_TURN)
        self._first = ffi.new("double *")
        self._told: dict[int, Any] = {}  # by job id, the spans of promises that C writes to
        self._moved = ffi.new("size_t *")

    @property
    def searches(self) -> int:
        """Number of searches of timelines, for complexity tests."""
        return int(lib.promises_searches(self._cdata))

    def add_line(self, line: CompiledTimeline) -> int:
        number: int = lib.promises_add_line(self._cdata, line.cdata)
        if number < 0:
            raise MemoryError
        return number

    def drop_line(self, number: int) -> None:
        lib.promises_drop_line(self._cdata, number)

    def opened(self, number: int, start: float, end: float, count: int) -> None:
        if lib.promises_opened(self._cdata, number, start, end, count):
            raise MemoryError

    def enter(self, jobid: int, promise: CountedPromise) -> None:
        if self._is_told:
            self._tell(jobid, promise)

    def leave(self, jobid: int) -> None:
        if self._is_told:
            lib.promises_drop(self._cdata, jobid)
            self._told.pop(jobid, None)

    def due(self, now: float) -> tuple[list[int], float]:
        if not self._is_told:
            self._tell_all()
        jobids = ffi.new("int64_t[]", len(self._told) + 1)
        count = lib.promises_due(self._cdata, now, jobids, self._first)
        return ffi.unpack(jobids, count) if count else [], self._first[0]

    def advance(self, jobid: int, now: float) -> float:
        self._advance(array("q", (jobid,)), now, False)
        return self._promises[jobid].start

    def advance_in_turn(self, jobids: Sequence[int], now: float) -> tuple[int, list[int], float]:
        return self._advance(array("q", jobids), now, True)

    def _advance(
        self, row: array[int], now: float, overdrawn: bool
    ) -> tuple[int, list[int], float]:
        """Move the promises of a row of jobs.

        Args:
            overdrawn (bool): whether to check that promises add up to no more than there is
        """
        if not self._is_told:
            self._tell_all()
        cdata = self._cdata
        profiles = self._profiles.values()
        for profile in profiles:
            overdrawn_here = overdrawn and profile.maybe_overdrawn
            lib.promises_set_line(cdata, profile.number, profile.kept, overdrawn_here)
        jobids, length = ffi.from_buffer("int64_t[]", row), len(row)
        if len(self._places) < length:
            self._places = ffi.new("int64_t[]", length)
        done = lib.promises_advance(
            cdata, jobids, length, now, self._places, self._moved, self._first
        )
        if done < 0:
            raise MemoryError
        count = self._moved[0]
        if not count:
            return done, [], inf
        return done, ffi.unpack(self._places, count), self._first[0]

    def _tell_all(self) -> None:
        self._is_told = True
        for jobid, promise in self._promises.items():
            self._tell(jobid, promise)

    def _tell(self, jobid: int, promise: CountedPromise) -> None:
        if promise.is_open:
            return
        number = self._profiles[promise.demand.kind].number
        promise.span = self._told[jobid] = ffi.new("double[2]", (promise.start, promise.end))
        count, length = promise.demand.count, length_of(promise.request)
        if lib.promises_put(self._cdata, jobid, number, count, promise.span, length):
            raise MemoryError


def owned(cdata: Any, destroy: Any) -> Any:
    """Wrap an object made in C, which is destroyed with its last reference."""
    if cdata == ffi.NULL:
        raise MemoryError
    return ffi.gc(cdata, destroy)
