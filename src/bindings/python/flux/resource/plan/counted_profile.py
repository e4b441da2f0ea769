# SPDX-License-Identifier: LGPL-3.0-or-later
"""Availability of interchangeable units: the number of free units over time.

A *unit* is a whole node, if nodes are of one kind and jobs take whole nodes, or a single core on
any node. A promise is then a number of units and a span of time, without a choice of units. All
promises can be kept, beside the running jobs, if and only if they never add up to more units than
there are. That suffices: let each job choose its units when it starts, in the order of starts. All
jobs that hold units then have started before, so at least as many units are free as the sum leaves,
and any of them will do. (Conservative backfill has such a profile, too: Mu'alem and Feitelson
2001.)
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from flux.resource.pool.inventory import pairs
from flux.resource.pool.masks import popcount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from flux.resource.plan.count_timeline import CountTimeline
    from flux.resource.plan.promise import UnitKind
    from flux.resource.plan.promise_moves import PromiseMoves
    from flux.resource.pool.contract import JobRecord
    from flux.resource.pool.inventory import Selection
    from flux.resource.pool.view import PoolWithView, StateOfPool


class CountedProfile:
    """Number of free units of one kind over time: those left by running jobs, less the promises.

    A job that ran past its end is assumed to end now. Made by `CountedProfile.from_pool()`.

    Attributes:
        line (CountTimeline): free units over time.
        number (int): that of the line in the mover of promises.
        free (int): units free now, regardless of promises.
        promises (int): number of promises counted.
        open_units (dict): job id to the units of its open promise (``Plan.hold()``).
        kept (int): units of open promises, which no other job gets.
        total (int): all units.
        maybe_overdrawn (bool): whether promises may add up to more than there is, after an
            unplanned change; if not, no search for such moments is needed.
    """

    __slots__ = (
        "ranks",
        "whole",
        "line",
        "number",
        "_moves",
        "free",
        "promises",
        "open_units",
        "kept",
        "total",
        "jobs",
        "maybe_overdrawn",
        "_uniform",
    )
    ranks: int
    whole: bool
    line: CountTimeline
    number: int
    _moves: PromiseMoves
    free: int
    promises: int
    open_units: dict[int, int]
    kept: int
    total: int
    maybe_overdrawn: bool
    jobs: dict[int, tuple[float, int]]  # running jobs with an end: (end, units)
    _uniform: bool  # all nodes of the pool are of one kind, and are counted here

    @classmethod
    def from_pool(
        cls, pool: PoolWithView, kind: UnitKind, now: float, moves: PromiseMoves
    ) -> Self | None:
        """Return the profile of a kind of units; None if running jobs on its ranks hold parts of
        units.

        Args:
            moves (PromiseMoves): mover of promises in this profile and others
        """
        self = cls.__new__(cls)
        self.ranks = kind.ranks
        self.whole = kind.whole
        state = pool.pool_state
        inventory = state.inventory
        self._uniform = len(inventory.kinds) == 1 and inventory.ranks == self.ranks
        free = self._free(state)
        if free is None:
            return None
        self.free = free
        self.total = popcount(self.ranks)
        if not self.whole:
            self.total = sum(
                [
                    popcount(kind & inventory.core_mask) * popcount(mask & self.ranks)
                    for kind, mask in inventory.kinds.items()
                ]
            )
        self.promises = 0
        self.maybe_overdrawn = False
        self.open_units = {}
        self.kept = 0
        self.jobs = {}
        self.line = line = moves.timeline(now, free)
        for end, jobid in pool.jobs_by_end():
            count = self.units(state, state.held(jobid))
            if count is None:
                return None
            if not count:
                continue
            self.jobs[jobid] = (end, count)
            line.add(end, inf, count)
        self._moves, self.number = moves, moves.add_line(line)
        return self

    def copy(self, moves: PromiseMoves) -> Self:
        """Return an independent copy; `moves` as for `from_pool`."""
        new = object.__new__(type(self))
        for name in (
            "ranks", "whole", "free", "promises", "kept", "total", "maybe_overdrawn", "_uniform",
        ):  # fmt: skip
            setattr(new, name, getattr(self, name))
        new.line = self.line.copy()
        new.open_units = self.open_units.copy()
        new.jobs = self.jobs.copy()
        new._moves, new.number = moves, moves.add_line(new.line)
        return new

    # -- running jobs -------------------------------------------------------

    def _free(self, state: StateOfPool) -> int | None:
        """Return the number of units free now; None if nodes are units and one is partly free."""
        index = state.index
        base = index.inventory.key_base
        ranks = self.ranks
        if not self.whole:
            return sum([key // base * popcount(m & ranks) for key, m in index.groups.items()])
        busy = ranks & ~index.idle
        if busy:
            for key, mask in index.groups.items():
                if mask & busy and key >= base:
                    return None
        return popcount(ranks & index.idle)

    def units(self, state: StateOfPool, held: Selection) -> int | None:
        """Return the number of units in a selection (of a running job); None if it has parts of
        units."""
        inventory = state.inventory
        if self.whole and len(held) == 2:
            # The fast path for most jobs: whole nodes, all of one kind.
            ranks, units = held
            mask = 1 << ranks if ranks >= 0 else ~ranks
            if self._uniform and units in inventory.kinds:
                return popcount(mask)
        cores = inventory.core_mask
        count = 0
        for mask, units in pairs(held):
            mask &= self.ranks
            if not mask:
                continue
            if not self.whole:
                count += popcount(mask) * popcount(units & cores)
                continue
            full = inventory.kinds.get(units, 0)
            if mask & ~full:
                for kind, ranks in inventory.kinds.items():
                    if mask & ranks and (kind ^ units) & cores:
                        return None
            count += popcount(mask)
        return count

    def started(self, state: StateOfPool, jobid: int, now: float, end: float) -> bool:
        """Count a job that just started; return False if it holds parts of units."""
        count = self.units(state, state.held(jobid))
        if count is None:
            return False
        if count:
            self.free -= count
            if end != inf:
                self.jobs[jobid] = (end, count)
            self.line.add(now, end, -count)
        return True

    def follow(
        self,
        state: StateOfPool,
        changes: Mapping[int, JobRecord | None],
        now: float,
    ) -> bool:
        """Update the running jobs from the pool.

        Args:
            changes: job id to the record of each job that may have changed (only its end is read);
                None if the job is gone

        Returns:
            bool: False if these jobs do not explain the units free now: make the profile anew
        """
        line, jobs = self.line, self.jobs
        line.forget(now)
        come = []
        for jobid, record in changes.items():
            known = jobs.get(jobid)
            end = record[0] if record is not None else 0.0
            if known is None:
                if end:
                    come.append((end, jobid))
                continue
            until, count = known
            if end == until:
                continue
            if end:
                come.append((end, jobid))
            del jobs[jobid]
            self.free += count
            if until > now:
                line.add(now, until, count)
                self._moves.opened(self.number, now, until, count)
        for end, jobid in come:
            self.maybe_overdrawn = True
            if not self.started(state, jobid, now, end):
                return False
        return self.free == self._free(state)

    # -- promises -----------------------------------------------------------

    def hold(self, jobid: int, units: int | None) -> None:
        """Keep units for a job with an open promise; None: it has none any more."""
        if units is not None:
            self.open_units[jobid] = units
        else:
            self.open_units.pop(jobid, None)
        self.kept = min(sum(self.open_units.values()), self.total)

    def enter(self, start: float, end: float, count: int) -> None:
        """Count a promise, even one that can no longer be kept."""
        self.promises += 1
        self.line.add(start, end, -count)  # less the part that is over, if its job is late

    def remove(self, start: float, end: float, count: int, now: float) -> None:
        """Remove a promise from the count."""
        self.promises -= 1
        start = max(start, now)
        if start < end:
            self.line.add(start, end, count)
            self._moves.opened(self.number, start, end, count)

    def move(self, start: float, end: float, to: float, until: float, count: int) -> None:
        """Move a promise to an earlier time.

        Args:
            start, end (float): its present span
            to, until (float): its new span, which begins earlier, but not before now
        """
        line = self.line
        if until < start:
            line.add(to, until, -count)
            line.add(start, end, count)
        else:
            line.add(to, start, -count)
            if until < end:
                line.add(until, end, count)
            elif until > end:  # by the rounding of a sum
                line.add(end, until, -count)

    def overdrawn(self, start: float, end: float) -> bool:
        """Return whether the promises in a span exceed the units that are not kept."""
        if self.maybe_overdrawn:
            self.maybe_overdrawn = self.line.least(-inf, inf) < 0
        kept = self.kept
        return (self.maybe_overdrawn or kept > 0) and self.line.least(start, end) < kept

    def room(self, start: float, end: float) -> int:
        """Return the number of units free throughout a span."""
        return self.line.least(start, end) - self.kept

    def to_hold(self, pool: PoolWithView, count: int) -> int:
        """Return the number of units to keep for a job that waits for jobs without an end.

        The units of a single such job come free together when it ends, so only the rest are kept.
        """
        endless = None
        for jobid, end in pool.job_end_times():
            if not end:
                units = self.units(pool.pool_state, pool.held(jobid))
                if units:
                    if endless is not None:
                        return count
                    endless = units
        return max(0, count - (endless or 0))
