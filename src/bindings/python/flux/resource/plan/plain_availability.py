# SPDX-License-Identifier: LGPL-3.0-or-later
"""`Availability` with the interface of the compiled one, for use if that is not built.

Uses have numbers, and count while they are entered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from math import inf

from flux.resource.plan.availability import Amounts, Availability, Demand, Use
from flux.resource.pool.masks import mask_of, members
from flux.resource.request import Claimant


class PlainAvailability(Availability):
    """Amounts that running jobs and promises leave on each rank, from now on.

    Args:
        totals (dict): rank to its amounts; uses are of these ranks only
    """

    def __init__(self, totals: Mapping[int, Amounts]) -> None:
        super().__init__(totals)
        self._uses: dict[int, Use] = {}
        self._left: set[int] = set()  # numbers of the uses left out
        self._next = 0

    def copy(self) -> PlainAvailability:
        """Return an independent copy with the same uses and numbers."""
        new = type(self)(self.totals)
        uses = {number: copy(use) for number, use in self._uses.items()}
        entered = [use for number, use in uses.items() if number not in self._left]
        new.__dict__.update(_uses=uses, _left=self._left.copy(), _next=self._next, uses=entered)
        return new

    # -- uses ---------------------------------------------------------------

    def use(
        self,
        start: float,
        end: float,
        where: Iterable[tuple[int, Amounts]],
        demand: Demand | None = None,
        claim: Claimant | None = None,
    ) -> int:
        """Enter a use of ranks, free or not, ``(mask of ranks, amounts of each)``; return its
        number. `demand`: of a promise, which may be moved unless it `stays`; None if the use stays
        where it is; `claim`: of a use without a demand."""
        use = demand.use(start, end) if demand else Use(start, end, claim=claim)
        use.where = {rank: amounts for ranks, amounts in where for rank in members(ranks)}
        return self._enter(use)

    def _enter(self, use: Use) -> int:
        if use.demand is not None and use.demand.stays:
            use.demand = None
        self._next += 1
        self._uses[self._next] = use
        self._enter_all()
        return self._next

    def _enter_all(self) -> None:
        """Count the entered uses."""
        self.uses = [use for number, use in self._uses.items() if number not in self._left]

    def enter(self, number: int) -> None:
        """Count a use."""
        self._left.discard(number)
        self._enter_all()

    def leave(self, number: int) -> None:
        """Stop counting a use; it can be entered again."""
        self._left.add(number)
        self._enter_all()

    def drop(self, number: int) -> None:
        """Forget a use."""
        del self._uses[number]
        self._left.discard(number)
        self._enter_all()

    def amounts_of(self, number: int) -> list[tuple[int, Amounts]]:
        """Return ``(rank, amounts)`` of a use, by rank."""
        return sorted(self._uses[number].where.items())

    # -- questions ----------------------------------------------------------

    def room_by_rank(self, demand: Demand, start: float, end: float) -> list[tuple[int, int]]:
        """Return ``(rank, units)``: the units that fit throughout a span on each rank of a demand,
        all of which exist."""
        units = partial(self.units_on, demand=demand, start=start, end=end, beside=self.uses)
        return [(rank, units(rank)) for rank in members(demand.ranks)]

    def book(self, demand: Demand, start: float, end: float, now: float, may_move: bool) -> int:
        """Bind a promise to ranks at a time, and enter it. Return the number of the use; 0 if there
        is no way, and nothing changed. See `Availability.proof`."""
        promise = demand.use(start, end)
        found = self.proof(promise, now, may_move)
        if found is None:
            return 0
        for use, where in found:
            use.where = where
        return self._enter(promise)

    def overdrawn(self, number: int, since: float) -> bool:
        """Return whether, at some moment of a use from `since` on, a rank of it has less than all
        uses take."""
        use = self._uses[number]
        start = max(use.start, since)
        return any(
            min(self.free(rank, start, use.end, self.uses, use.claim)) < 0 for rank in use.where
        )

    def taken(self, start: float, end: float, claim: Claimant | None = None) -> int:
        """Return a mask of the ranks of promises that count at some moment of a span, or at `start`
        if that is its end; with a claim, of the ranks that uses close to it then."""
        ranks = 0
        for use in self.uses:
            if use.end <= start or end <= use.start > start:
                continue
            if claim is None and use.start > -inf:
                ranks |= mask_of(sorted(use.where))
            elif claim is not None and use.claim is not None:
                ranks |= mask_of(sorted(use.where)) & claim.apart_from(use.claim)
        return ranks

    def enough_until(self, demand: Demand, since: float) -> float:
        """Return the first time, from `since` on, at which all ranks together have less free than a
        demand takes at least; infinity if never. Overdrawn ranks count negative."""
        each: Iterable[int] = demand.each
        if demand.whole:
            each = map(min, zip(*self.totals.values()))
        least = [demand.count * need for need in each]
        for moment in sorted({since, *(use.start for use in self.uses if use.start > since)}):
            free = [self.free(rank, moment, moment, self.uses) for rank in self.totals]
            if any(sum(one[k] for one in free) < need for k, need in enumerate(least)):
                return moment
        return inf

    def can_start(self, demand: Demand, now: float, end: float, may_move: bool) -> bool:
        """Return whether a demand can start now: it fits until `end`, beside all uses, and jobs
        past their ends; if `may_move`, promises may be moved for it, as by `book`. Change
        nothing."""
        return self.room(demand, -inf, end)[0] >= demand.count or (
            may_move and self.proof(demand.use(-inf, end), now, True) is not None
        )

    def first_to_start(
        self,
        numbers: Sequence[int],
        now: float,
        may_move: bool,
        summed: bool,
        most: int,
    ) -> tuple[int, bool]:
        """Return the index in a row of promises of the first that can start now, or at which the row
        ends; and whether that can start. Change nothing.

        The row ends before a promise that stays on its ranks, or starts now or earlier.

        Args:
            numbers: of the uses of promises; the row ends before 0, which is none
            may_move: as for `can_start`
            summed: whether all promises can be kept, so that a shortage of all ranks together
                proves that one cannot start
            most: maximum number of promises that are searched for; the row ends before the next
        """
        for index, number in enumerate(numbers):
            use = self._uses.get(number)
            if use is None or use.demand is None or use.start <= now:
                return index, False
            demand, end = use.demand, now + (use.end - use.start)
            if self.room(demand, -inf, -inf)[0] < demand.count:
                continue
            if summed and self.enough_until(demand, now) < min(use.start, end):
                continue
            if not most:
                return index, False
            most -= 1
            self.leave(number)
            can = self.can_start(demand, now, end, may_move)
            self.enter(number)
            if can:
                return index, True
        return len(numbers), False
