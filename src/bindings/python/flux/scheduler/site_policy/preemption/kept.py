# SPDX-License-Identifier: LGPL-3.0-or-later
"""The resources kept for takers: the free part of their places, the planned ends of victims, and the
allocation to the taker."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from flux.resource.errors import InsufficientResources
from flux.resource.pool.inventory import selected_ranks
from flux.resource.pool.masks import popcount, take
from flux.scheduler.site_policy.preemption.state import Part, Preemption, as_end

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.requests import PendingJob


class KeptPlaces(Part):
    """Keeps the free part of takers' places in placeholders."""

    def planned_end(self, preemption: Preemption, end: float) -> float:
        """Return the planned end of a victim, from its own `end` (infinite: none); 0: none.

        If promises are made, they must hold whether the victim ends or not: its resources are in
        use until the later of its own end and the taker's. In strict order there are no promises,
        and the estimate of the taker's start must be right. In promised time, `Lending` looks after
        other promises.
        """
        if preemption.in_promise or not self._host.decision.looks_past_heads:
            return min(end, preemption.expected)
        return as_end(max(end, preemption.end_of_taker(self._host.now())))

    def until(self, preemption: Preemption) -> float:
        """Return the planned end of the free resources kept for the taker; 0: none."""
        now = self._host.now()
        if preemption.in_promise:
            return max(preemption.expected, now)
        if not self._host.decision.looks_past_heads or preemption.request is None:
            return max(preemption.expected, now + 1.0)
        return as_end(max(preemption.end_of_taker(now), now + 1.0))

    def delays_others(self, preemption: Preemption, lent: Preemption | None) -> bool:
        """Whether a present promise would break if the victims did not end. `lent`: the taker's
        preemption in promised time, which would be over."""
        ends = {}
        for jobid in preemption.held | (set() if lent is None else lent.held):
            end, is_held = self._own_end(jobid), jobid in preemption.held
            ends[jobid] = self.planned_end(preemption, end) if is_held else as_end(end)
        rests = () if lent is None else lent.rests.values()
        return self.breaks_a_promise(preemption, ends, [preemption.taker, *rests])

    def breaks_a_promise(
        self,
        preemption: Preemption,
        ends: dict[int, float] | None = None,
        without: Collection[int] = (),
    ) -> bool:
        """Whether a present promise would break if the free part of a taker's place was kept for
        it; arguments are those of `_would_break`."""
        plan = self._host.planning.current()
        if plan is None or not self._host.decision.looks_past_heads:
            return False
        return self._would_break(plan, ends or {}, without, lambda: self._hold(preemption))

    def _hold(self, preemption: Preemption) -> list[int]:
        """Allocate the free part of a taker's place to placeholders: that of all its ranks if the
        place is unknown, after a reload, or the taker shares ranks only with some jobs, so that
        others stay off them. Return their ids."""
        until, hold = self.until(preemption), self._placeholders.hold_free
        if preemption.keeps_ranks:
            return hold(preemption.ranks, until)
        places = (selection for selection, _ in preemption.places)
        return [jobid for place in places for jobid in hold(preemption.ranks, until, place)]

    def keep(self, preemption: Preemption) -> None:
        """Keep the free part of a taker's place for it."""
        self._placeholders.free(preemption.placeholders)
        preemption.placeholders = self._hold(preemption)
        if not preemption.in_promise and self._host.now() > preemption.expected:
            self._host.planning.check_promises()  # the taker will end later than planned

    def let_go(self, preemption: Preemption) -> None:
        """Keep no resources for a taker any more."""
        preemption.places.clear()
        if preemption.placeholders:
            self._placeholders.free(preemption.placeholders)
            self._host.look_again()

    def add(self, preemption: Preemption, jobid: int) -> None:
        """Add the resources of a job that is being ended to the place of the promised job."""
        pool = self._host.resources
        preemption.places.append((pool.held(jobid), 0))
        preemption.ranks |= pool.held_ranks(jobid)

    # -- starting the taker ------------------------------------------------------------------------

    def alloc(
        self, job: PendingJob, plan: Plan, preemption: Preemption, others_too: bool
    ) -> ResourcePool:
        """Allocate its place to a job or, with `others_too`, any resources. Raises
        InsufficientResources if they are not free."""
        pool, request = self._host.resources, job.resource_request
        usable = pool.eligible_ranks(request) & ~plan.closed_now(request)
        for place in preemption.places:
            if not selected_ranks(place[0]) & ~usable and pool.index.is_free(place[0]):
                alloc = pool.grant(job.jobid, request, *place)
                end = preemption.end_of_taker(preemption.expected)
                plan.note_started(job.jobid, request, as_end(end) or None)
                return alloc
        if not others_too:
            raise InsufficientResources("its place is not free")
        granted: ResourcePool = plan.alloc(job.jobid, request)
        return granted

    def alloc_beside(self, job: PendingJob, plan: Plan, lent: Preemption) -> ResourcePool:
        """Allocate resources to a job for which borrowers were ended, as many as possible on their
        ranks: otherwise they would have been ended for nothing. Raises InsufficientResources if it
        does not fit."""
        pool, request, there = self._host.resources, job.resource_request, lent.ranks
        alloc: ResourcePool
        if not plan.is_counted:
            # It stays on the ranks that its promise is bound to, since they had borrowers.
            ranks = plan.ranks_of(job.jobid) if plan.has(job.jobid) else None
            if not ranks:
                raise InsufficientResources("no ranks are promised to it")
            alloc = plan.alloc(job.jobid, request.on_ranks(ranks))
            return alloc
        if not plan.fits(request, jobid=job.jobid):
            raise InsufficientResources("it would delay others")
        others = self._host.facts.ranks_of(request) & ~there
        # With the minimum number of other ranks, so that it gets the idle part of those ranks.
        low, high = 0, popcount(others)
        while low < high:
            middle = (low + high) // 2
            if pool.fits_on(request, there | take(others, middle)):
                high = middle
            else:
                low = middle + 1
        alloc = pool.alloc_on(job.jobid, request, there | take(others, low))
        plan.note_started(job.jobid, request)
        return alloc
