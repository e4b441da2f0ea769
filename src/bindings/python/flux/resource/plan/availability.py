# SPDX-License-Identifier: LGPL-3.0-or-later
"""The definition of room on ranks over time, and of when promises can be kept.

Read this file to know which ranks a job could have at a time to come. It is plain Python: every
question looks at all ranks and all uses again. ``_flux_plan/availability.c`` has the same functions
under the same names and gives the same answers (``t/python/resource/test_availability.py``); where it
was not built, this module is what runs.

A *use* takes amounts (cores, GPUs, ...) of ranks for a span of time: a running job, or a promise. A
*demand* asks for so many units of given amounts, each on one rank. A demand fits from t on if its
units find room on ranks at each moment of the span, beside all uses.

Promises can be kept if they find room one after the other in the order of their starts, each at its own
start: on the ranks it was given last if possible, otherwise on others. The ranks of a promise are a
proof and nothing more; they are replaced only by another complete proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from flux.resource.pool.masks import mask_of, members

if TYPE_CHECKING:
    from typing_extensions import Self

#: Amounts of each kind of resource on a rank: (cores, GPUs).
Amounts = tuple[int, ...]

#: Promises that may be moved to other ranks to make room for one demand.
MAX_MOVED = 16
#: Times before the first with clear room at which moving promises is tried, in one search.
MAX_TRIES = 4


class Demand(NamedTuple):
    """What a job asks of ranks.

    Attributes:
        count (int): units: nodes, or slots anywhere
        each (tuple): amounts of one unit
        per_node (bool): at most one unit on a rank
        whole (bool): a unit takes the rank whole, which has to be idle
        ranks (int): mask of the ranks that may be used
    """

    count: int  # type: ignore[assignment]  # tuples have a method of this name
    each: Amounts
    per_node: bool
    whole: bool
    ranks: int


class Use:
    """Amounts taken of ranks from a start to an end, in seconds since the epoch.

    Attributes:
        where (dict): rank to amounts
        demand (Demand or None): of a promise that may be moved to other ranks
        entered (bool): whether it counts
    """

    __slots__ = ("where", "start", "end", "demand", "entered")

    def __init__(self, start: float, end: float, demand: Demand | None = None) -> None:
        self.where: dict[int, Amounts] = {}
        self.start = start
        self.end = end
        self.demand = demand
        self.entered = False


class Availability:
    """What running jobs and promises leave of each rank, from now on.

    Args:
        totals (dict): rank to the amounts it has
    """

    def __init__(self, totals: Mapping[int, Amounts]) -> None:
        self._totals = totals
        self._uses: dict[int, Use] = {}
        self._next = 0

    def copy(self) -> Self:
        """An independent copy with the same uses under the same numbers."""
        new = type(self)(self._totals)
        new.__dict__.update(
            _uses={number: copy(use) for number, use in self._uses.items()}, _next=self._next
        )
        return new

    # -- uses ---------------------------------------------------------------

    def create(self, start: float, end: float, demand: Demand | None = None) -> int:
        """A new use without ranks, which does not count yet; its number.

        Args:
            demand (Demand): of a promise that may be moved; None: it stays where it is
        """
        return self._add(Use(start, end, demand))

    def _add(self, use: Use) -> int:
        self._next += 1
        self._uses[self._next] = use
        return self._next

    def take(self, number: int, ranks: int, amounts: Amounts) -> None:
        """Have a use that does not count yet take amounts of each of some ranks (a mask)."""
        use = self._uses[number]
        for rank in members(ranks):
            use.where[rank] = amounts

    def enter(self, number: int) -> None:
        """Have a use count."""
        self._uses[number].entered = True

    def leave(self, number: int) -> None:
        """Have a use count no more; it can be entered again."""
        self._uses[number].entered = False

    def drop(self, number: int) -> None:
        """Forget a use."""
        del self._uses[number]

    def pin(self, number: int) -> None:
        """Have a use stay on its ranks."""
        self._uses[number].demand = None

    def ranks_of(self, number: int) -> int:
        """Mask of the ranks of a use."""
        return mask_of(sorted(self._uses[number].where))

    def amounts_of(self, number: int) -> list[tuple[int, Amounts]]:
        """``(rank, amounts)`` of a use, by rank."""
        return sorted(self._uses[number].where.items())

    def _entered(self) -> Iterator[tuple[int, Use]]:
        return ((number, use) for number, use in self._uses.items() if use.entered)

    def _units_on(
        self, rank: int, demand: Demand, start: float, end: float, beside: list[Use]
    ) -> int:
        """Units of a demand that a rank can hold at each moment of a span, beside some uses."""
        total = self._totals[rank]
        if any(have < need for have, need in zip(total, demand.each)):
            return 0
        each = total if demand.whole else demand.each
        units = 1 if demand.per_node or demand.whole else demand.count
        there = [use for use in beside if rank in use.where and use.start < end]
        for moment in {start, *(use.start for use in there if use.start > start)}:
            free = self._free(rank, moment, there)
            units = min([units, *(have // need for have, need in zip(free, each) if need)])
        return max(0, units)

    # -- questions ----------------------------------------------------------

    def room(self, demand: Demand, start: float, end: float) -> tuple[int, int]:
        """How many units of a demand fit all through a span, and the mask of the ranks with room.

        A rank counts for no more units than the demand asks for.
        """
        beside = [use for _, use in self._entered()]
        units = {
            rank: self._units_on(rank, demand, start, end, beside) for rank in self._ranks(demand)
        }
        ranks = [rank for rank in units if units[rank]]
        return sum(units.values()), mask_of(ranks) if ranks else 0

    def _ranks(self, demand: Demand) -> list[int]:
        return [rank for rank in members(demand.ranks) if rank in self._totals]

    def overdrawn(self, number: int, since: float) -> bool:
        """Whether a rank of a use has less than all uses take of it, at some moment of the use from
        a time on."""
        use = self._uses[number]
        uses = [other for _, other in self._entered()]
        start = max(use.start, since)
        moments = {start, *(other.start for other in uses if start < other.start < use.end)}
        return any(
            min(self._free(rank, moment, uses)) < 0 for rank in use.where for moment in moments
        )

    def booked(self, start: float, end: float) -> int:
        """Mask of the ranks of promises that count at some moment of a span."""
        ranks = {
            rank
            for _, use in self._entered()
            if use.start > -inf and use.start < end and start < use.end
            for rank in use.where
        }
        return mask_of(sorted(ranks)) if ranks else 0

    def earliest(
        self, demand: Demand, length: float, after: float, now: float, may_move: bool
    ) -> float:
        """The first time from `after` on at which a demand fits for so many seconds; infinity: none.

        Args:
            may_move (bool): whether promises may be moved to other ranks for it; earlier times
                than the first with clear room are then tried, up to `MAX_TRIES`
        """
        ends = {use.end for _, use in self._entered() if after < use.end < inf}
        tries = MAX_TRIES if may_move and self._movable(-inf) else 0
        for time in sorted({after, *ends}):
            if self.room(demand, time, time + length)[0] >= demand.count:
                return time
            if tries and self._fits_beside_jobs(demand, time, time + length):
                tries -= 1
                if self.can_book(demand, time, time + length, now):
                    return time
        return inf

    def _fits_beside_jobs(self, demand: Demand, start: float, end: float) -> bool:
        """Whether a demand would fit if all promises that may be moved were gone."""
        beside = [use for _, use in self._entered() if use.demand is None]
        ranks = self._ranks(demand)
        return sum(self._units_on(r, demand, start, end, beside) for r in ranks) >= demand.count

    # -- promises -----------------------------------------------------------

    def can_book(self, demand: Demand, start: float, end: float, now: float) -> bool:
        """Whether `book` would find ranks; nothing changes."""
        return self.copy().book(demand, start, end, now, True) is not None

    def book(
        self, demand: Demand, start: float, end: float, now: float, may_move: bool
    ) -> int | None:
        """Give a promise ranks at a time, and enter it.

        Ranks with clear room come first. Where these are too few and `may_move` is set, it takes
        ranks of promises that begin no earlier, and these are given others, in the order of their
        starts.

        Returns:
            The number of the use; None: no way was found, and nothing has changed.
        """
        waiting = self._movable(start) if may_move else []
        placed = [use for number, use in self._entered() if number not in waiting]
        rest = [self._uses[number] for number in waiting]
        use = Use(start, end, demand)
        taken: set[int] = set()
        where = self._place(use, now, placed, rest, taken)
        if where is None:
            return None
        use.where = where
        placed.append(use)
        moved: dict[int, Use] = {}
        for number in waiting:
            promise = rest.pop(0)
            if not self._holds(promise, placed, taken):
                where = self._place(promise, now, placed, rest, taken)
                if where is None or len(moved) == MAX_MOVED:
                    return None
                promise = moved[number] = copy(promise)
                promise.where = where
            placed.append(promise)
        self._uses.update(moved)
        use.entered = True
        return self._add(use)

    def _movable(self, start: float) -> list[int]:
        """Numbers of the promises that may be moved and begin at a time or later, in order of their
        starts."""
        found = [n for n, use in self._entered() if use.demand is not None and use.start >= start]
        return sorted(found, key=lambda number: (self._uses[number].start, number))

    def _holds(self, promise: Use, beside: list[Use], taken: set[int]) -> bool:
        """Whether a promise has room beside some uses on those of its ranks that were taken from
        promises."""
        for rank in taken & set(promise.where):
            amounts = promise.where[rank]
            there = [use for use in beside if rank in use.where and use.start < promise.end]
            for moment in {promise.start, *(u.start for u in there if u.start > promise.start)}:
                free = self._free(rank, moment, there)
                if any(have < need for have, need in zip(free, amounts)):
                    return False
        return True

    def _place(
        self, promise: Use, now: float, beside: list[Use], avoid: list[Use], taken: set[int]
    ) -> dict[int, Amounts] | None:
        """Ranks for a promise beside some uses; first those with room beside others as well. The
        ranks that are not among the first are added to `taken`.

        Of these, ranks come first that fewest other jobs want: those that have least of what the
        promise does not need, then those that are busy now, then the fullest (best fit), then the
        highest. Only running jobs count for that.
        """
        demand = promise.demand
        assert demand is not None, "running jobs stay where they are"
        jobs = [use for _, use in self._entered() if use.demand is None]
        left = demand.count
        units: dict[int, int] = {}
        for uses in ([*beside, *avoid], beside) if avoid else (beside,):
            candidates = []
            for rank in self._ranks(demand):
                room = self._units_on(rank, demand, promise.start, promise.end, uses)
                if room > units.get(rank, 0):
                    key = self._preference(rank, demand, promise.start, now, jobs)
                    candidates.append((key, rank, room - units.get(rank, 0)))
            for _, rank, room in sorted(candidates):
                if uses is beside and avoid:
                    taken.add(rank)
                units[rank] = units.get(rank, 0) + min(room, left)
                left -= min(room, left)
                if not left:
                    return {rank: self._taken(rank, demand, units[rank]) for rank in units}
        return None

    def _taken(self, rank: int, demand: Demand, units: int) -> Amounts:
        """What so many units of a demand take of a rank."""
        if demand.whole:
            return self._totals[rank]
        return tuple(units * need for need in demand.each)

    def _preference(
        self, rank: int, demand: Demand, start: float, now: float, jobs: list[Use]
    ) -> tuple[int, ...]:
        """By what ranks are chosen, the smallest first."""
        total, free = self._totals[rank], self._free(rank, start, jobs)
        each = total if demand.whole else demand.each
        unwanted = sum(have for have, need in zip(total, demand.each) if not need)
        busy = any(have < need for have, need in zip(self._free(rank, now, jobs), each))
        wanted = [have for have, need in zip(free, demand.each) if need]
        return unwanted, int(not busy), *reversed(wanted), -rank

    def _free(self, rank: int, time: float, uses: list[Use]) -> Amounts:
        """What some uses leave of a rank at a time."""
        used = [u.where[rank] for u in uses if rank in u.where and u.start <= time < u.end]
        return tuple(
            have - sum(one[k] for one in used) for k, have in enumerate(self._totals[rank])
        )

    # -- all ranks together -------------------------------------------------

    def enough_until(self, amounts: Amounts, ranks: int, since: float) -> float:
        """The first time from `since` on at which some ranks (a mask) together have less free than
        some amounts; infinity: never. A rank of which too much is taken counts as less than
        nothing."""
        uses = [use for _, use in self._entered()]
        chosen = [rank for rank in members(ranks) if rank in self._totals]
        for moment in sorted({since, *(use.start for use in uses if use.start > since)}):
            free = [self._free(rank, moment, uses) for rank in chosen]
            if any(sum(one[k] for one in free) < need for k, need in enumerate(amounts)):
                return moment
        return inf
