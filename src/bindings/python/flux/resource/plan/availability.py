# SPDX-License-Identifier: LGPL-3.0-or-later
"""Definition of room on ranks over time, and of whether promises can be kept.

A *use* takes amounts (cores, GPUs, ...) of ranks for a span of time: a running job, or a promise. A
*demand* is for a number of units of given amounts, each on one rank. A demand fits from t on if its
units find room on ranks at each moment of the span, beside all uses.

Promises can be kept if each, in the order of their starts, finds room at its own start: on its
latest ranks if possible, else on others. The ranks of a promise are only the proof of this, and are
replaced only by another complete proof.

Each method examines all ranks and uses anew. ``flux/scheduler/definition.py`` decides with it.
``_flux_plan/availability.c`` has the same functions with the same names and results
(``t/python/resource/test_availability.py``); if that is not built, this runs
(``plain_availability.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Callable, NamedTuple

from flux.resource.pool.masks import members, popcount

#: Amount of each resource on a rank: (cores, GPUs).
Amounts = tuple[int, ...]
#: Amounts by rank.
Where = dict[int, Amounts]

#: With more promises than this, none is moved to make a new one earlier.
MAX_PROMISES = 32
#: Maximum number of promises moved to other ranks for one demand.
MAX_MOVED = 16
#: Maximum number of times at which one search tries to move promises, before the first with clear
#: room.
MAX_TRIES = 4


class Demand(NamedTuple):
    """The demand of a job on ranks."""

    count: int  # type: ignore[assignment]  # units: nodes, or slots anywhere
    each: Amounts  # amounts of one unit
    per_node: bool  # at most one unit on a rank
    whole: bool  # a unit takes the whole rank, which must be idle
    ranks: int  # mask of usable ranks

    @property
    def takes_all(self) -> bool:
        """Whether it takes all usable ranks, so that its promise cannot be moved."""
        return self.whole and self.count == popcount(self.ranks)


class Use:
    """Amounts of ranks in use from `start` to `end`, in seconds since the epoch.

    Attributes:
        where (dict): rank to amounts
        demand (Demand or None): of a promise that may be moved to other ranks; else None
    """

    __slots__ = ("start", "end", "demand", "where", "entered")

    def __init__(
        self, start: float, end: float, demand: Demand | None = None, where: Where | None = None
    ) -> None:
        self.start, self.end, self.demand = start, end, demand
        self.where = {} if where is None else where
        self.entered = False  # for `plain_availability.py`


class Availability:
    """Amounts that running jobs and promises leave on each rank, from now on.

    Args:
        totals (dict): rank to its amounts
        uses (iterable): all uses
    """

    def __init__(self, totals: Mapping[int, Amounts], uses: Iterable[Use] = ()) -> None:
        self.totals = totals
        self.uses = list(uses)

    def free(self, rank: int, time: float, uses: Iterable[Use]) -> Amounts:
        """Return the amounts that some uses leave on a rank at a time."""
        used = [u.where[rank] for u in uses if rank in u.where and u.start <= time < u.end]
        return tuple(have - sum(one[k] for one in used) for k, have in enumerate(self.totals[rank]))

    def units_on(
        self, rank: int, demand: Demand, start: float, end: float, beside: Iterable[Use]
    ) -> int:
        """Return the number of units that a rank can hold throughout a span, beside some uses."""
        total = self.totals[rank]
        if any(have < need for have, need in zip(total, demand.each)):
            return 0
        each = total if demand.whole else demand.each
        units = 1 if demand.per_node or demand.whole else demand.count
        there = [use for use in beside if rank in use.where and use.start < end]
        for moment in {start, *(use.start for use in there if use.start > start)}:
            free = self.free(rank, moment, there)
            units = min([units, *(have // need for have, need in zip(free, each) if need)])
        return max(0, units)

    def room(
        self, demand: Demand, start: float, end: float, beside: Iterable[Use] | None = None
    ) -> tuple[int, int]:
        """Return (units that fit throughout a span, mask of the ranks with room), beside some uses
        (None: all). Each rank counts for at most the units of the demand."""
        uses = self.uses if beside is None else beside
        ranks = [rank for rank in members(demand.ranks) if rank in self.totals]
        units = {rank: self.units_on(rank, demand, start, end, uses) for rank in ranks}
        return sum(units.values()), sum(1 << rank for rank in ranks if units[rank])

    def first(
        self,
        demands: Callable[[float], list[Demand]],
        length: float,
        after: float,
        now: float,
        may_move: bool,
    ) -> float:
        """Return the first time, from `after` on, at which one of the demands fits; infinity if
        none does.

        Args:
            demands: function giving the demands for a start
            length (float): seconds
            may_move (bool): whether promises may move to other ranks; up to `MAX_TRIES` times
                before the first with clear room are then tried for each demand
        """
        tried: dict[int, int] = {}
        movable = may_move and any(use.demand for use in self.uses)
        fixed = [use for use in self.uses if use.demand is None]
        for time in sorted({after, *(use.end for use in self.uses if after < use.end < inf)}):
            for which, demand in enumerate(demands(time)):
                if self.room(demand, time, time + length)[0] >= demand.count:
                    return time
                if not movable or tried.get(which, 0) == MAX_TRIES:
                    continue
                if self.room(demand, time, time + length, fixed)[0] >= demand.count:
                    tried[which] = tried.get(which, 0) + 1
                    if self.proof(Use(time, time + length, demand), now, True) is not None:
                        return time
        return inf

    # -- promises -----------------------------------------------------------

    def proof(self, promise: Use, now: float, may_move: bool) -> list[tuple[Use, Where]] | None:
        """Return ``(use, ranks)`` of the promise, then of each promise moved for it; None if there
        is no way.

        Ranks with clear room come first. If these do not suffice and `may_move` is set, the promise
        takes ranks of promises that start no earlier; those get other ranks, in the order of their
        starts.
        """
        begin = promise.start if may_move else inf
        rest = [use for use in self.uses if use.demand is not None and use.start >= begin]
        rest.sort(key=lambda use: use.start)
        placed = [use for use in self.uses if use not in rest]
        taken: set[int] = set()
        found: list[tuple[Use, Where]] = []
        for one in [promise, *rest]:
            rest = [use for use in rest if use is not one]
            if one is promise or not self._holds(one, placed, taken):
                where = self._place(one, now, placed, rest, taken)
                if where is None or len(found) > MAX_MOVED:
                    return None
                found.append((one, where))
                one = Use(one.start, one.end, one.demand, where)
            placed.append(one)
        return found

    def _holds(self, promise: Use, beside: list[Use], taken: set[int]) -> bool:
        """Return whether a promise has room, beside some uses, on its ranks in `taken`: those that
        moved promises took from others."""
        for rank in taken & set(promise.where):
            there = [use for use in beside if rank in use.where and use.start < promise.end]
            for moment in {promise.start, *(u.start for u in there if u.start > promise.start)}:
                free = self.free(rank, moment, there)
                if any(have < need for have, need in zip(free, promise.where[rank])):
                    return False
        return True

    def _place(
        self, promise: Use, now: float, beside: list[Use], avoid: list[Use], taken: set[int]
    ) -> Where | None:
        """Return ranks for a promise beside `beside`, or None; ranks with room beside `avoid` too
        come first.

        The others are added to `taken`. Within each group, the ranks least needed by other jobs
        come first (`_preference`).
        """
        demand = promise.demand
        assert demand is not None, "running jobs stay where they are"
        jobs = [use for use in self.uses if use.demand is None]
        left, units = demand.count, dict.fromkeys(members(demand.ranks), 0)
        for uses in ([*beside, *avoid], beside) if avoid else (beside,):
            candidates = []
            for rank in units:
                if rank in self.totals:
                    room = self.units_on(rank, demand, promise.start, promise.end, uses)
                    key = self._preference(rank, demand, promise.start, now, jobs)
                    candidates.append((key, rank, room - units[rank]))
            for _, rank, room in sorted(candidates):
                if left and room > 0:
                    if uses is beside and avoid:
                        taken.add(rank)
                    units[rank] += min(room, left)
                    left -= min(room, left)
            if not left:
                return {rank: self.amounts(rank, demand, n) for rank, n in units.items() if n}
        return None

    def amounts(self, rank: int, demand: Demand, units: int) -> Amounts:
        """Return the amounts that some units of a demand take of a rank."""
        if demand.whole:
            return self.totals[rank]
        return tuple(units * need for need in demand.each)

    def _preference(
        self, rank: int, demand: Demand, start: float, now: float, jobs: list[Use]
    ) -> tuple[int, ...]:
        """Return the sort key of a rank; the smallest is preferred: fewest resources that the
        promise does not need, then busy now, then fullest (best fit), then highest rank. Only
        running jobs count."""
        total, free = self.totals[rank], self.free(rank, start, jobs)
        each = total if demand.whole else demand.each
        unwanted = sum(have for have, need in zip(total, demand.each) if not need)
        busy = any(have < need for have, need in zip(self.free(rank, now, jobs), each))
        wanted = [have for have, need in zip(free, demand.each) if need]
        return unwanted, int(not busy), *reversed(wanted), -rank
