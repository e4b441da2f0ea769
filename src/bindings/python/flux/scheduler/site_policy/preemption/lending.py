# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs of a low class that start in time promised to a job of a higher one (``into-promises``).

Such a job, a *borrower*, is not an obstacle to the promise: in the plan it ends when the promised time
begins, and it is a victim of the promised job from its start on. If the promise can be kept without
its end, it runs to the limit of its request.

The promise may be withdrawn, so promises to others must not depend on the borrower's end: the units
of all borrowers of a job must be among the promised ones (``Plan.contains()``), and a promise
bound to ranks stays on these meanwhile. If a borrower's limit is later than the end of the promised
time, its units must be free then too, and a promise with an id that no job has keeps them. For the
same reason the promise keeps its time while it needs a borrower's resources: an earlier one would
leave part of the borrower's time to others.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.pool.masks import popcount
from flux.scheduler.site_policy.preemption.state import (
    LENT,
    Part,
    Preemption,
    Victim,
    as_end,
)

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.site_policy.preemption.classes import PreemptionTerms

#: Maximum number of promises tried for a job that may start into one, the latest first; each costs
#: a search of the plan up to its time.
MOST_TRIED = 8


class Lending(Part):
    """Starts jobs in time promised to others, and keeps resources for them after it."""

    def offer(self, job: PendingJob, terms: PreemptionTerms, plan: Plan) -> ResourcePool | None:
        """Allocate resources in promised time to a job, or return None.

        Call this if the job does not fit otherwise. Costs O(promises), and a few searches of the
        plan.
        """
        cls, request, now = terms.cls, job.resource_request, self._host.now()
        if cls is None or not cls.into_promises or cls.log_only:
            return None
        if not self._host.decision.keeps_times or request.tokens or request.claimant is not None:
            return None
        first = now + terms.after + cls.grace + self._running.kill_time()
        limit = now + request.duration if request.duration > 0 else inf
        promises = sorted(
            [
                (start, end, taker)
                for taker, (start, end) in plan.promises().items()
                # a rest to keep must have an end
                if first < start < end and (limit < inf or end == inf)
            ],
            reverse=True,
        )
        lenders = (one for one in promises if self._may_borrow(terms, one[2]))
        for start, end, taker in islice(lenders, MOST_TRIED):
            if plan.fits(request, duration=start - now):
                restore, alloc = plan.withdraw([job.jobid]), None
                try:
                    alloc = self._start(job, terms, plan, taker, start, end, limit)
                finally:
                    if alloc is None:
                        restore()
                if alloc is not None:
                    return alloc
        return None

    def _may_borrow(self, terms: PreemptionTerms, taker: int) -> bool:
        """Whether a job on these terms may run in the time promised to `taker`."""
        other, lent = self._waiting.get(taker), self._record.active.get(taker)
        if other is None or other.job.resource_request.claimant is not None:
            return False
        if not terms.rank < other.terms.rank or self._host.pending(taker) is None:
            return False
        return lent is None or (lent.state == LENT and lent.victims.keys() <= lent.requests.keys())

    def _start(
        self,
        job: PendingJob,
        terms: PreemptionTerms,
        plan: Plan,
        taker: int,
        start: float,
        end: float,
        limit: float,
    ) -> ResourcePool | None:
        """Allocate resources to a job, without a promise, that the plan has for `taker` from
        `start` to `end`; or return None. `limit`: its own end."""
        now, pool, jobid, cls = self._host.now(), self._host.resources, job.jobid, terms.cls
        other, lent = self._waiting[taker], self._record.active.get(taker)
        assert cls is not None, "it has the class that lets it start there"
        if lent is None:
            queue, asked = other.terms.queue, other.job.resource_request
            lent = Preemption(taker, queue, other.job.userid, {}, 0, now, start, start, LENT, asked)
            lent.in_promise = True
        limited = copy.copy(job.resource_request)
        limited.duration = start - now
        if not plan.is_counted:
            limited = limited.on_ranks(plan.ranks_of(taker) or 0)
        try:
            alloc: ResourcePool = plan.alloc(jobid, limited)
        except (InsufficientResources, InfeasibleRequest):
            return None
        victim = Victim(
            jobid, cls.name, popcount(pool.held_ranks(jobid)), now, job.userid, cls.rank
        )
        of_class = [one for one in lent.victims.values() if one.cls == cls.name]
        self._host.admission.check_allocation(job, pool)
        if (
            not plan.contains(taker, [*lent.victims, jobid])
            or self._beyond([*of_class, victim], start) is not None
            or not self.keep_rest(lent, jobid, job.resource_request, limit, plan, end)
        ):
            pool.free(jobid)
            return None
        plan.pin(taker)
        lent.victims[jobid], lent.requests[jobid] = victim, job.resource_request
        lent.held.add(jobid)
        self._running.enter(job, terms).gives_way_to = lent
        self._record.active[taker] = lent
        return alloc

    def keep_rest(
        self, lent: Preemption, jobid: int, request: Any, limit: float, plan: Plan, end: float
    ) -> bool:
        """Keep a borrower's resources from the end of the promised time, `end`, to its own limit.
        Return whether they are free."""
        if limit <= end or request is None:
            return True
        rest = copy.copy(request)
        rest.duration = as_end(limit - end)
        if not plan.is_counted:
            rest = rest.on_ranks(self._host.resources.held_ranks(jobid))
        placeholder = self._placeholders.next_id()
        try:
            plan.reserve(placeholder, rest, end)
        except InsufficientResources:
            return False
        if not plan.contains(placeholder, [jobid]):
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

    def not_needed(self, lent: Preemption) -> Collection[int]:
        """Return the borrowers that may run to their limits: together with these, the promise can
        still be kept, or is none any more."""
        plan, spared = self._host.planning.current(), list[int]()
        if (
            plan is None
            or not plan.has(lent.taker)
            or lent.taker in self._host.admission.deferred
            or not self.are_needed(lent, lent.held, plan)
        ):
            return list(lent.victims)
        for jobid, victim in lent.victims.items():
            cls = self._classes.entries.get(victim.cls)
            if cls is None or cls.log_only or not self.are_needed(lent, [*spared, jobid], plan):
                spared.append(jobid)
        return spared

    def are_needed(self, lent: Preemption, borrowers: Collection[int], plan: Plan) -> bool:
        """Whether a promise that can be kept now would break if some borrowers ran to their
        limits. The promise to their taker may move to other ranks for all of them."""
        ends = {jobid: as_end(self._own_end(jobid)) for jobid in borrowers}
        rests = [lent.rests[jobid] for jobid in borrowers if jobid in lent.rests]
        taker = [lent.taker] if lent.held <= set(borrowers) else []
        return self._would_break(plan, ends, rests, unpinned=taker)
