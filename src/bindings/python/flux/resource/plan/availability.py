# SPDX-License-Identifier: LGPL-3.0-or-later
"""Definition of room on ranks over time, and of whether promises can be kept.

A *use* takes amounts (cores, GPUs, ...) of ranks for a span of time: a running job, or a promise. A
*demand* is for a number of units of given amounts, each on one rank. It fits from t on if its units
find room at each moment of the span, beside all uses.

Promises can be kept if each, in the order of their starts, finds room at its own start: on its
latest ranks if possible, else on others. The ranks of a promise are only the proof of this, and are
replaced only by another complete proof.

Each method examines all ranks and uses anew. ``flux/scheduler/definition.py`` decides with it.
``_flux_plan/availability.c`` does the same faster (``t/python/resource/test_availability.py``); if
that is not built, this runs (``plain_availability.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from operator import sub
from typing import NamedTuple, Optional

from flux.resource.pool.masks import members, popcount
from flux.resource.request import Claimant

#: Amount of each resource on a rank: (cores, GPUs).
Amounts = tuple[int, ...]
#: Amounts by rank.
Where = dict[int, Amounts]

#: With more promises than this, none is moved to make a new one earlier.
MAX_PROMISES = 32
#: Maximum number of promises moved to other ranks for one demand. On 1,024 nodes that jobs share, 8
#: lengthened mean waits by 4 %, and 32 did not shorten them.
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
    claim: Optional[Claimant] = None  # may keep uses with another claim off its ranks

    @property
    def stays(self) -> bool:
        """Whether its promise stays on its ranks: it takes all usable ones, or has a claim. Moves
        of claims to other ranks lengthened mean waits by 2 to 5 %."""
        return self.claim is not None or (self.whole and self.count == popcount(self.ranks))

    def on(self, ranks: int) -> Demand:
        """Return the demand, limited to the ranks of a mask."""
        return self._replace(ranks=self.ranks & ranks)

    def use(self, start: float, end: float) -> Use:
        """Return the use of a promise, without ranks."""
        return Use(start, end, self, {}, self.claim)


@dataclass(eq=False)
class Use:
    """Amounts of ranks (`where`) in use from `start` to `end`, in seconds since the epoch. `demand`
    is that of a promise that may move to other ranks, else None."""

    start: float
    end: float
    demand: Optional[Demand] = None
    where: Where = field(default_factory=dict)
    claim: Optional[Claimant] = None


class Availability:
    """Amounts that uses leave on each rank, whose `totals` are given, from now on."""

    def __init__(self, totals: Mapping[int, Amounts], uses: Iterable[Use] = ()) -> None:
        self.totals, self.uses = totals, list(uses)

    def free(
        self,
        rank: int,
        start: float,
        end: float,
        beside: Iterable[Use],
        claim: Optional[Claimant] = None,
    ) -> Amounts:
        """Return the amounts that some uses leave on a rank throughout a span; at `start` alone if
        that is its end. Less than nothing if one of them excludes the claim."""
        there = [use for use in beside if start < use.end and rank in use.where]
        least = total = self.totals[rank]
        if not there:
            return total
        for time in {start, *(use.start for use in there if start < use.start < end)}:
            free = total
            for use in there:
                if use.start <= time < use.end:
                    if claim and use.claim and claim.apart_from(use.claim) >> rank & 1:
                        return (-1,) * len(total)
                    free = tuple(map(sub, free, use.where[rank]))
            least = tuple(map(min, least, free))
        return least

    def units_on(
        self, rank: int, demand: Demand, start: float, end: float, beside: Iterable[Use]
    ) -> int:
        """Return the number of the demand's units that a rank can hold throughout a span, beside some
        uses."""
        total = self.totals[rank]
        each = total if demand.whole else demand.each
        free = self.free(rank, start, end, beside, demand.claim)
        if not fits(demand.each, total) or not fits(each, free):
            return 0
        units = 1 if demand.per_node or demand.whole else demand.count
        return min([units, *(have // need for have, need in zip(free, each) if need)])

    def room(
        self, demand: Demand, start: float, end: float, beside: Iterable[Use] | None = None
    ) -> tuple[int, int]:
        """Return (units that fit throughout a span, mask of the ranks with room), beside some uses
        (None: all)."""
        uses = self.uses if beside is None else beside
        ranks = [rank for rank in members(demand.ranks) if rank in self.totals]
        units = {rank: self.units_on(rank, demand, start, end, uses) for rank in ranks}
        return sum(units.values()), sum(1 << rank for rank in ranks if units[rank])

    def earliest(
        self, demand: Demand, length: float, after: float, now: float, may_move: bool
    ) -> float:
        """Return the first time, from `after` on, at which a demand fits for `length` seconds;
        infinity if there is none.

        With `may_move`, promises may move to other ranks for it: up to `MAX_TRIES` times before the
        first with clear room are tried.
        """
        movable = may_move and any(use.demand for use in self.uses)
        fixed = [use for use in self.uses if use.demand is None]
        times = sorted({after, *(use.end for use in self.uses if after < use.end < inf)})
        tries = MAX_TRIES if movable else 0
        for time in times:
            end = time + length
            fits = self.room(demand, time, end)[0] >= demand.count
            if not fits and tries and self.room(demand, time, end, fixed)[0] >= demand.count:
                tries -= 1
                fits = self.proof(demand.use(time, end), now, True) is not None
            if fits:
                return time
        return inf

    # -- promises -----------------------------------------------------------

    def proof(self, promise: Use, now: float, may_move: bool) -> list[tuple[Use, Where]] | None:
        """Return ``(use, ranks)`` of the promise, then of each promise moved for it; None if there
        is no way.

        Ranks with clear room come first. If these do not suffice and `may_move` is set, the promise
        takes ranks of promises that start no earlier; those get other ranks, in the order of their
        starts. One that starts at minus infinity is a start now, beside jobs past their ends too.
        """
        begin = _begin(promise, now) if may_move else inf
        rest = [use for use in self.uses if use.demand is not None and use.start >= begin]
        rest.sort(key=lambda use: use.start)
        placed = [use for use in self.uses if use not in rest]
        taken: dict[int, float] = {}  # ranks taken from others, and until when
        found: list[tuple[Use, Where]] = []
        for one in [promise, *rest]:
            rest = [use for use in rest if use is not one]
            on = taken.keys() & one.where.keys()
            is_hit = any(one.start < taken[rank] for rank in on)
            if one is promise or (is_hit and not self.holds(one, one.start, on, placed)):
                where = self._place(one, now, placed, rest, taken)
                if where is None or len(found) > MAX_MOVED:
                    return None
                found.append((one, where))
                one = Use(one.start, one.end, one.demand, where, one.claim)
            placed.append(one)
        return found

    def holds(self, use: Use, start: float, ranks: Iterable[int], beside: Iterable[Use]) -> bool:
        """Whether a use has room on some of its ranks from `start` on, beside some uses."""
        return all(
            fits(use.where[rank], self.free(rank, start, use.end, beside, use.claim))
            for rank in ranks
        )

    def _place(
        self, promise: Use, now: float, beside: list[Use], avoid: list[Use], taken: dict[int, float]
    ) -> Where | None:
        """Return ranks for a promise beside `beside`, or None. Ranks with room beside `avoid` too come
        first; the others are added to `taken`. Within each group, the ranks least needed by other
        jobs come first (`_preference`)."""
        demand = promise.demand
        assert demand is not None, "running jobs stay where they are"
        ranks = [rank for rank in members(demand.ranks) if rank in self.totals]
        begin = _begin(promise, now)
        ranks.sort(key=lambda rank: self._preference(rank, demand, begin, now))
        left, units = demand.count, dict.fromkeys(ranks, 0)
        for uses in ([*beside, *avoid], beside):
            for rank in ranks:
                if not left:
                    break
                room = self.units_on(rank, demand, promise.start, promise.end, uses) - units[rank]
                if room > 0:
                    if (uses is beside and avoid) or rank in taken:
                        taken[rank] = max(promise.end, taken.get(rank, promise.end))
                    units[rank] += min(room, left)
                    left -= min(room, left)
        found = {rank: self.amounts(rank, demand, n) for rank, n in units.items() if n}
        return None if left else found

    def amounts(self, rank: int, demand: Demand, units: int) -> Amounts:
        """Return the amounts that some units of a demand take of a rank."""
        if demand.whole:
            return self.totals[rank]
        return tuple(units * need for need in demand.each)

    def _preference(self, rank: int, demand: Demand, start: float, now: float) -> tuple[int, ...]:
        """Return the sort key of a rank; the smallest is preferred: fewest resources that the
        promise does not need, then busy now, then fullest (best fit), then highest rank. Only
        running jobs count."""
        jobs = [use for use in self.uses if use.demand is None]
        total = self.totals[rank]
        each = total if demand.whole else demand.each
        unwanted = sum(have for have, need in zip(total, demand.each) if not need)
        idle = fits(each, self.free(rank, now, now, jobs))
        free = self.free(rank, start, start, jobs)
        wanted = [have for have, need in zip(free, demand.each) if need]
        return unwanted, int(idle), *reversed(wanted), -rank


def _begin(promise: Use, now: float) -> float:
    """Return the start of a promise; now, if it is minus infinity."""
    return promise.start if promise.start > -inf else now


def fits(amounts: Iterable[int], free: Iterable[int]) -> bool:
    """Whether amounts are free."""
    return all(need <= have for need, have in zip(amounts, free))
