# SPDX-License-Identifier: LGPL-3.0-or-later
"""The definition of room on ranks over time, and of when promises can be kept.

A *use* takes amounts (cores, GPUs, ...) of ranks for a span of time: a running job, or a promise. A
*demand* is for a number of units of given amounts, each on one rank. A demand fits from t on if its
units find room on ranks at each moment of the span, beside all uses.

Promises can be kept if they find room one after the other in the order of their starts, each at its own
start: on the ranks it was given last if possible, otherwise on others. The ranks of a promise only
prove this; they are replaced only by another complete proof.

Every method examines all ranks and all uses again. ``flux/scheduler/definition.py`` decides with
it. ``_flux_plan/availability.c`` has the same functions under the same names, and gives the same
answers (``t/python/resource/test_availability.py``); where it was not built, this runs
(``plain_availability.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Callable, NamedTuple

from flux.resource.pool.masks import members, popcount

#: Amounts of each kind of resource on a rank: (cores, GPUs).
Amounts = tuple[int, ...]
#: Amounts by rank.
Where = dict[int, Amounts]

#: With more promises than this none is moved to make a new one earlier.
MAX_PROMISES = 32
#: Promises that may be moved to other ranks to make room for one demand.
MAX_MOVED = 16
#: Times before the first with clear room at which moving promises is tried, in one search.
MAX_TRIES = 4


class Demand(NamedTuple):
    """The demand of a job on ranks."""

    count: int  # type: ignore[assignment]  # units: nodes, or slots anywhere
    each: Amounts  # amounts of one unit
    per_node: bool  # at most one unit on a rank
    whole: bool  # a unit takes the rank whole, which has to be idle
    ranks: int  # mask of the ranks that may be used

    @property
    def takes_all(self) -> bool:
        """Whether it takes all ranks that may be used: a promise of it cannot be moved."""
        return self.whole and self.count == popcount(self.ranks)


class Use:
    """Amounts taken of ranks from a start to an end, in seconds since the epoch.

    Attributes:
        where (dict): rank to amounts
        demand (Demand or None): of a promise that may be moved to other ranks
    """

    __slots__ = ("start", "end", "demand", "where", "entered")

    def __init__(
        self, start: float, end: float, demand: Demand | None = None, where: Where | None = None
    ) -> None:
        self.start, self.end, self.demand = start, end, demand
        self.where = {} if where is None else where
        self.entered = False  # for `plain_availability.py`


class Availability:
    """The amounts of each rank that running jobs and promises leave, from now on.

    Args:
        totals (dict): rank to the amounts it has
        uses (iterable): all uses
    """

    def __init__(self, totals: Mapping[int, Amounts], uses: Iterable[Use] = ()) -> None:
        self.totals = totals
        self.uses = list(uses)

    def free(self, rank: int, time: float, uses: Iterable[Use]) -> Amounts:
        """The amounts of a rank that some uses leave at a time."""
        used = [u.where[rank] for u in uses if rank in u.where and u.start <= time < u.end]
        return tuple(have - sum(one[k] for one in used) for k, have in enumerate(self.totals[rank]))

    def units_on(
        self, rank: int, demand: Demand, start: float, end: float, beside: Iterable[Use]
    ) -> int:
        """Units of a demand that a rank can hold at each moment of a span, beside some uses."""
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
        """The number of units of a demand that fit throughout a span beside some uses (None: all),
        and the mask of the ranks with room. A rank counts for no more units than the demand asks
        for."""
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
        """The first time from `after` on at which one of some demands fits; infinity: none.

        Args:
            demands: gives the demands for a start
            length (float): seconds
            may_move (bool): whether promises may be moved to other ranks; earlier times than the
                first with clear room are then tried, up to `MAX_TRIES` for each demand
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
        """Ranks for a promise; None: no way was found.

        Ranks with clear room come first. Where these are too few and `may_move` is set, it takes
        ranks of promises that begin no earlier, and these are given others, in the order of their
        starts: they follow in the answer.
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
        """Whether a promise has room beside some uses on those of its ranks that were taken from
        promises."""
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
        """Ranks for a promise beside some uses; first those with room beside others as well. The
        ranks that are not among the first are added to `taken`.

        Of these, ranks come first that the fewest other jobs need (`_preference`).
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
        """The amounts of a rank that some units of a demand take."""
        if demand.whole:
            return self.totals[rank]
        return tuple(units * need for need in demand.each)

    def _preference(
        self, rank: int, demand: Demand, start: float, now: float, jobs: list[Use]
    ) -> tuple[int, ...]:
        """The sort key of ranks, the smallest first: those with the least resources that the
        promise does not need, then those that are busy now, then the fullest (best fit), then the
        highest. Only running jobs count."""
        total, free = self.totals[rank], self.free(rank, start, jobs)
        each = total if demand.whole else demand.each
        unwanted = sum(have for have, need in zip(total, demand.each) if not need)
        busy = any(have < need for have, need in zip(self.free(rank, now, jobs), each))
        wanted = [have for have, need in zip(free, demand.each) if need]
        return unwanted, int(not busy), *reversed(wanted), -rank
