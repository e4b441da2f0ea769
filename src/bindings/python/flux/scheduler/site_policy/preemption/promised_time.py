# SPDX-License-Identifier: LGPL-3.0-or-later
"""The resources of promises with borrowers: the units that these need beyond the promised time, and
those that the promised job starts on."""

from __future__ import annotations

import copy
from collections.abc import Collection
from math import inf
from typing import TYPE_CHECKING

from flux.resource.errors import InsufficientResources
from flux.resource.pool.masks import popcount, take
from flux.scheduler.site_policy.preemption.state import Part, Preemption, as_end

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.requests import PendingJob


class PromisedTime(Part):
    """Changes the plan for jobs that run in promised time, and for those that were promised it."""

    def own_end(self, jobid: int) -> float:
        """Return the end of a running job by its own limit; infinite: none."""
        running = self._host.running.get(jobid)
        return inf if running is None else running.end

    def keep_rest(self, lent: Preemption, jobid: int, limit: float, plan: Plan, end: float) -> bool:
        """Keep a borrower's resources from the end of the promised time, `end`, to its own limit.
        Return whether they are free."""
        if limit <= end or jobid not in lent.requests:
            return True
        rest = copy.copy(lent.requests[jobid])
        rest.duration = as_end(limit - end)
        if not plan.is_counted:
            rest = rest.on_ranks(self._host.resources.held_ranks(jobid))
        placeholder = self._placeholders.next_id()
        try:
            plan.reserve(placeholder, rest, end)
        except InsufficientResources:
            return False
        if not plan.contains(placeholder, jobid):
            plan.cancel(placeholder)
            return False
        plan.pin(placeholder)
        lent.rests[jobid] = placeholder
        return True

    def drop_rest(self, lent: Preemption, jobid: int) -> None:
        """Keep a borrower's resources no longer after the promised time."""
        lent.needed_in = None
        placeholder, plan = lent.rests.pop(jobid, None), self._host.planning.current()
        if placeholder is not None and plan is not None:
            plan.cancel(placeholder)

    def withdraw(self, lent: Preemption) -> None:
        """Let the promise to a job with borrowers move: they are none any more."""
        for jobid in list(lent.rests):
            self.drop_rest(lent, jobid)
        plan = self._host.planning.current()
        if plan is not None:
            plan.pin(lent.taker, stays=False)

    def not_needed(self, lent: Preemption) -> Collection[int]:
        """Return the borrowers that may run to their limits: together with these, the promise can
        still be kept, or is none any more."""
        plan, spared = self._host.planning.current(), list[int]()
        if plan is None or not plan.has(lent.taker) or lent.taker in self._host.admission.deferred:
            return list(lent.victims)
        for jobid, victim in lent.victims.items():
            cls = self._classes.entries.get(victim.cls)
            if cls is None or cls.log_only or not self.are_needed(lent, [*spared, jobid], plan):
                spared.append(jobid)
        return spared

    def are_needed(self, lent: Preemption, borrowers: Collection[int], plan: Plan) -> bool:
        """Whether a promise that can be kept now would break if some borrowers ran to their
        limits."""
        ends = {jobid: as_end(self.own_end(jobid)) for jobid in borrowers}
        rests = [lent.rests[jobid] for jobid in borrowers if jobid in lent.rests]
        return self._would_break(plan, ends, rests)

    def alloc_beside(self, lent: Preemption, job: PendingJob, plan: Plan) -> ResourcePool | None:
        """Allocate resources to a job for which borrowers were ended, as many as possible on their
        ranks: otherwise they would have been ended for nothing. Return None if it does not fit."""
        pool, request, there = self._host.resources, job.resource_request, lent.ranks
        if not plan.is_counted:
            # It stays on the ranks that its promise is bound to, since they had borrowers.
            ranks = plan.ranks_of(job.jobid) if plan.has(job.jobid) else 0
            try:
                return plan.alloc(job.jobid, request.on_ranks(ranks)) if ranks else None
            except InsufficientResources:
                return None
        if not plan.fits(request, jobid=job.jobid):
            return None
        others = self._host.facts.ranks_of(request) & ~there
        # With the minimum number of other ranks, so that it gets the idle part of those ranks.
        low, high = 0, popcount(others)
        while low < high:
            middle = (low + high) // 2
            if pool.fits_on(request, there | take(others, middle)):
                high = middle
            else:
                low = middle + 1
        try:
            alloc = pool.alloc_on(job.jobid, request, there | take(others, low))
        except InsufficientResources:
            return None
        plan.note_started(job.jobid, request)
        return alloc
