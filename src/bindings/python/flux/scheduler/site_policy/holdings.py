# SPDX-License-Identifier: LGPL-3.0-or-later
"""The resources that jobs hold by their R; and placeholders, which keep resources from jobs."""

from __future__ import annotations

import itertools
from copy import copy
from math import inf
from typing import Any, NamedTuple

from flux.resource.plan.plan import Plan
from flux.resource.pool.inventory import Selection
from flux.resource.pool.masks import popcount
from flux.resource.pool.rv1 import object_of, read_lite
from flux.resource.request import Claimant
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.decision import PolicyView


class Holding(NamedTuple):
    """The resources held by a job."""

    ranks: int = 0  # mask of its ranks
    nodes: int = 0  # total numbers of these and the following
    cores: int = 0
    gpus: int = 0

    def plus(self, R: Any) -> Holding:
        """Return the sum with the resources in `R` (an object), on other ranks."""
        ranks, nodes, cores, gpus = self
        for mask, core_mask, gpu_mask in read_lite(R):
            count = popcount(mask)
            ranks |= mask
            nodes += count
            cores += count * popcount(core_mask)
            gpus += count * popcount(gpu_mask)
        return Holding(ranks, nodes, cores, gpus)

    def left_of(self, R: Any) -> Holding:
        """Return the remainder after the ranks in `R` (an object, or a ResourcePool) are freed.
        Ranks that it does not hold are ignored."""
        ranks, nodes, cores, gpus = self
        for mask, core_mask, gpu_mask in read_lite(object_of(R)):
            count = popcount(mask & ranks)
            ranks &= ~mask
            nodes -= count
            cores -= count * popcount(core_mask)
            gpus -= count * popcount(gpu_mask)
        return Holding(ranks, nodes, cores, gpus)


NOTHING = Holding()


class Tally:
    """How a job with some needs is counted, pending or running. Jobs with equal needs share it.

    Args:
        needs: each use in which it counts (`counting.Use`), with its needs of it
        held (Holding): its resources, or of a pending job the minimum

    Attributes:
        uses (list): the uses
        dropped (list): the uses that are dropped when they have no jobs
        told (list): ``(use, noted)``, the uses whose `Use.note_held` is called with `noted`
        pending (list): ``(numbers, index, number)``: ``numbers[index]`` falls when it starts
        steps (list): ``(use, numbers, index, number)``: ``numbers[index]`` grows until it ends
        is_exact (bool): whether a pending job takes `held` on any ranks
        bounds (list): ``(numbers, index, maximum)``: a pending job may start while no
            ``numbers[index]`` is above its maximum
        together (list): ``(use, used, pending, index, maximum)``: all pending jobs must fit together,
            ``used[index] + pending[index]`` at most the maximum, for a promise to be certain
        assured (list): the limits in which jobs behind a promised one then leave it its share
        is_certain (bool): whether a promise can be certain
        version (int): number of the last change of rules that is in `bounds` and those below
    """

    is_exact, is_certain, version = False, True, -1

    def __init__(self, needs: tuple[tuple[Any, Any], ...], held: Holding) -> None:
        self.needs, self.held, self.uses = needs, held, [use for use, _ in needs]
        self.dropped = [use for use in self.uses if not use.is_kept]
        noted = [(use, use.notes(each, held)) for use, each in needs]
        self.told = [one for one in noted if one[1] is not None]
        self.pending = [
            (use.pending, *one) for use, each in needs for one in use.needs_pending(each)
        ]
        self.steps = [
            (use, use.used, *one) for use, each in needs for one in use.counts(each, held)
        ]
        self.bounds: list[tuple[list[Any], int, float]] = []
        self.together: list[Any] = []
        self.assured: list[Any] = []
        self._others: dict[Any, Tally] = {}

    def of(self, held: Holding) -> Tally:
        """Return how the job is counted if it holds `held`."""
        numbers = held[1:]
        if numbers not in self._others:
            self._others[numbers] = Tally(self.needs, held)
        return self._others[numbers]


class Counted:
    """The record of a job that rules count, or that holds resources on ranks that have left.

    Attributes:
        needs (tuple): each `flux.scheduler.site_policy.counting.Use` in which the job counts, with its
            needs of it; the same object for jobs with one `Tally`
        held (Holding or None): its resources; None while it is pending; without `ranks` if their
            numbers were known beforehand (`AdmissionControl.held_by`)
        end (float or None): its latest end, as budgets count it, seconds since the epoch
        tally (Tally or None): how it is counted; None: to be made
    """

    __slots__ = ("end", "held", "needs", "tally")

    def __init__(self) -> None:
        self.needs: tuple[tuple[Any, Any], ...] = ()
        self.held: Any = None
        self.end: float | None = None
        self.tally: Tally | None = None


def holding_of(pool: ResourcePool, jobid: int) -> Holding:
    """Return the present holding of a job in a pool.  O(different holdings per rank)."""
    try:
        return Holding(*pool.held_counts(jobid))
    except KeyError:
        return NOTHING


#: First id of placeholders and of promises to no job, downwards from here.
FIRST_ID = -(1 << 40)


class Placeholders:
    """Allocations that belong to no job, in a scheduler's pool, and promises to no job, in its plan.
    Their ids are negative."""

    def __init__(self, scheduler: PolicyView) -> None:
        self._scheduler = scheduler
        self._ids = itertools.count(FIRST_ID, -1)
        # id of a promise -> its request, start and end, in seconds since the epoch
        self._later: dict[int, tuple[Any, float, float]] = {}

    def next_id(self) -> int:
        """Return an id in the pool and the plan that no job has."""
        return next(self._ids)

    def hold_free(
        self,
        ranks: int,
        until: float,
        of: Selection | None = None,
        claimant: Claimant | None = None,
        pool: Any = None,
    ) -> list[int]:
        """Allocate the free part of some ranks (a mask), or of a selection on them, until a time
        (0: no end), with a claim on these ranks if `claimant` is given. Return the id of the
        allocation, in a list that is empty if none is free. `pool`: a copy of the scheduler's pool
        to use instead, without claims."""
        jobid, claims = self.next_id(), self._scheduler.planning.claims
        held = (pool or self._scheduler.resources).hold_free(jobid, ranks, until, of)
        if claimant is not None and claims is not None and pool is None:
            claims.enter(jobid, claimant, held)
        return [jobid] if held else []

    def keep_later(self, request: Any, start: float, end: float) -> int:
        """Keep resources that are in use until `start` from then to `end`, in the plan and in those
        that follow it. Return the id of the promise."""
        jobid, plan = self.next_id(), self._scheduler.planning.made()
        self._later[jobid] = request, start, end
        if plan is not None:
            self._enter(plan, jobid)
        return jobid

    def _enter(self, plan: Plan, jobid: int) -> None:
        request, start, end = self._later[jobid]
        request, start = copy(request), max(start, plan.pool.clock())
        request.duration = end - start if end < inf else 0.0
        if start < end:
            plan.keep_free(jobid, request, start)
            plan.pin(jobid)

    def attach(self, plan: Plan | None) -> None:
        """Enter the promises into the plan, which is new; None: the previous one is void."""
        if plan is not None:
            for jobid in self._later:
                self._enter(plan, jobid)

    def free(self, jobids: list[int]) -> None:
        """Free allocations and withdraw promises, and clear the list of their ids."""
        claims, plan = self._scheduler.planning.claims, self._scheduler.planning.made()
        for jobid in jobids:
            if self._later.pop(jobid, None) is not None:
                if plan is not None:
                    plan.cancel(jobid)
                continue
            self._scheduler.resources.free(jobid)
            if claims is not None and jobid in claims.running:
                claims.leave(jobid, -1)
        jobids.clear()
