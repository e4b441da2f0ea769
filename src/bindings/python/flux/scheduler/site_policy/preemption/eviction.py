# SPDX-License-Identifier: LGPL-3.0-or-later
"""The preemption for a job without a promise: victims are chosen for it, and its place is kept by
placeholders until it starts."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InsufficientResources
from flux.resource.pool.inventory import selected_ranks
from flux.resource.pool.masks import idset_text
from flux.scheduler.admission import Deferral, JobDeferred
from flux.scheduler.disclosure import Reason
from flux.scheduler.host import name_of
from flux.scheduler.site_policy.preemption.state import (
    ENDING,
    OVER,
    SEARCH_INTERVAL_S,
    as_end,
    jobs_of_classes,
)
from flux.scheduler.site_policy.preemption.under_way import Preemption, clock
from flux.scheduler.trial import Trial

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.site_policy.preemption.state import Waiting


class Eviction(Preemption):
    """Running jobs that end, after a grace, for a pending one without a promise."""

    def enter_record(self, record: dict[str, Any]) -> None:
        """Add it to the stored record."""
        kept = ("queue", "userid", "decided", "deadline", "expected", "taker")
        stored: dict[str, Any] = {key: getattr(self, key) for key in kept}
        stored["ranks"] = idset_text(self.ranks)
        stored["victims"] = [one.to_dict() for one in self.victims.values()]
        record["preemptions"].append(stored)

    def reason(self) -> Reason:
        classes = jobs_of_classes(self.victims.values())
        if self.state == ENDING and not self.held:
            return Reason(
                f"{classes} ended for it; waits for what others hold there",
                "waits for resources that are given back",
            )
        if self.state == ENDING:
            return Reason(f"waits for {classes} to end", "waits for resources that are given back")
        when = clock(self.deadline)
        end = "ends" if len(self.victims) == 1 else "end"
        return Reason(
            f"{classes} {end} for it at {when}", f"resources are given back for it at {when}"
        )

    def begin(self, one: Waiting, text: str) -> None:
        """Record it, unless a present promise would break if the victims did not end. `text`:
        describes these."""
        host, lent = self._host, self._active.get(self.taker)
        # Without the ends of the victims, and of a loan, which would be over, promises must hold.
        running, ends, without = self._running, dict[int, float](), [self.taker]
        if lent is not None:
            ends = {jobid: as_end(running.own_end(jobid)) for jobid in lent.held}
            without += lent.rests.values()
        ends |= {jobid: self._planned_end(running.own_end(jobid)) for jobid in self.held}
        if self._breaks_a_promise(ends, without):
            return
        one.tries += 1
        if lent is not None:
            lent.end("the job of that time starts earlier")
        self.enter()
        plan = host.planning.current()
        if plan is not None:
            plan.stale()  # promises on ranks kept from now on move, as in the trial, before a job starts
        # From now on the plan has another time for this job.
        self.defer_taker()
        names = ", ".join(map(name_of, self.victims))
        host.log.info(f"preemption: {one.job.name} is to start by ending {names}: {text}")
        self.shared.store(self._recorded)
        host.look_again()

    # -- the place of the taker --------------------------------------------------------------------

    @property
    def keeps_ranks(self) -> bool:
        """Whether all that is free on its ranks is kept for the taker, not only its place: this is
        unknown, after a reload, or the taker shares ranks only with some jobs, so that others stay
        off them."""
        request = self.job and self.job.resource_request
        return getattr(request, "claimant", None) is not None or not self.places

    def _end_of_taker(self, now: float) -> float:
        """Return the end of the taker; infinite: unknown."""
        length = 0.0 if self.job is None else getattr(self.job.resource_request, "duration", 0.0)
        # It may start later than expected: a clean-up or a reload of the scheduler takes time.
        return max(self.expected, now) + length if length > 0 else inf

    def _planned_end(self, end: float) -> float:
        """Return the planned end of a victim, from its own `end` (infinite: none); 0: none.

        If promises are made, they must hold whether the victim ends or not: its resources are in
        use until the later of its own end and the taker's. In strict order there are no promises,
        and the estimate of the taker's start must be right.
        """
        if not self._host.decision.looks_past_heads:
            return min(end, self.expected)
        return as_end(max(end, self._end_of_taker(self._host.now())))

    def _kept_until(self) -> float:
        """Return the planned end of the free resources kept for the taker; 0: none."""
        now = self._host.now()
        if not self._host.decision.looks_past_heads or self.job is None:
            return max(self.expected, now + 1.0)
        return as_end(max(self._end_of_taker(now), now + 1.0))

    def _choose_place(self, at_deadline: bool = False) -> bool:
        """Choose the place of the taker again, on its ranks: among what is kept for it, what victims
        hold and, unless one of these was ended, what is free there. Return False if it does not
        fit.

        Args:
            at_deadline: spare victims that need not end then, since others have made room; and give
                up if a rule would keep the taker from starting there
        """
        host, plan, before, job = self._host, self._host.planning.current(), self.places, self.job
        assert plan is not None and job is not None, "the pool can plan, and the job is pending"
        victims = [jobid for jobid in self.victims if jobid in self.held]
        there = job.resource_request.on_ranks(self.ranks)
        trial = Trial(plan, there, yielding=plan.promises())
        if self.ended and victims:
            host.placeholders.hold_free(self.ranks, self._kept_until(), pool=trial.pool)
        for jobid in (*self.placeholders, *victims):
            trial.take_out(jobid)
        if not trial.fits():
            return False
        left = trial.needed(victims) if at_deadline else set(victims)
        offer = trial.offer(partial(host.admission.second_look, job))
        if offer is None:
            return False
        self.places = [offer[0]]
        if at_deadline and offer[1] is not None:
            self.give_up(offer[1].deferral.text, "rule")
            return True  # given up for that reason
        if self._breaks_a_promise():
            self.places = before
            return bool(before)
        self.let_run([jobid for jobid in victims if jobid not in left], "others have made room")
        self.keep()
        plan.stale()
        return True

    def ranks_changed(self) -> None:
        """Choose the taker's place again, as after a reload, and try to start it; or victims, if a
        node kept for it is down."""
        if self.state == OVER or self.job is None:
            return
        if self.ranks & ~self._host.resources.eligible_ranks(self.job.resource_request):
            self._choose_anew("a node kept for it went down", "node")
            return
        self._choose_place()
        self.try_to_start()
        self.retry_start()

    def _spare_unneeded(self) -> None:
        # Resources may have been freed without a notice to this rule, for example when a node came up.
        self.try_to_start()
        if self.state != OVER and not self._choose_place(at_deadline=True):
            self._choose_anew("it would not fit there any more", "node")
        if self.state != OVER and not self.held:
            self._choose_anew("nobody has to end for it, and it does not start", "node")

    def _choose_anew(self, why: str, cause: str) -> None:
        """Choose victims again, unless that was done too often: the resources kept for the taker are
        lost. Done at once, before another job gets the remaining ones."""
        self.give_up(why, cause)
        self.shared.takers.consider(self.taker)

    def _refused(self, jobid: int, why: str) -> None:
        """The job manager has refused to end a victim, which continues."""
        self._choose_anew(why, "refused")

    # -- the start of the taker --------------------------------------------------------------------

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        """Implement `GivingRule.allocate` for the taker: allocate its place or, until victims are
        ended, any resources."""
        alloc = self._alloc_checked(job, plan)
        if alloc is None and self._host.decision.looks_past_heads:
            raise JobDeferred(self.shared.rule, self._deferral())
        if alloc is None:
            # In strict order the jobs behind it wait for it, as before.
            raise InsufficientResources(self._deferral().text)
        return alloc

    def _alloc(self, job: PendingJob, plan: Plan) -> ResourcePool:
        pool, request = self._host.resources, job.resource_request
        usable = pool.eligible_ranks(request) & ~plan.closed_now(request)
        for place in self.places:
            if not selected_ranks(place[0]) & ~usable and pool.index.is_free(place[0]):
                alloc = pool.grant(job.jobid, request, *place)
                end = self._end_of_taker(self.expected)
                plan.note_started(job.jobid, request, as_end(end) or None)
                return alloc
        past_heads = self._host.decision.looks_past_heads
        if self.state == ENDING or (self._out_of_turn and not past_heads):
            raise InsufficientResources("its place is not free")
        granted: ResourcePool = plan.alloc(job.jobid, request)
        return granted

    def defer_taker(self) -> None:
        """Defer the taker, unless jobs start in strict order: then those behind it wait for it, as
        before."""
        host, job = self._host, self.job
        if job and host.decision.looks_past_heads and job.jobid not in host.admission.deferred:
            host.defer(job, JobDeferred(self.shared.rule, self._deferral()))

    def try_to_start(self) -> None:
        """Start the taker if it fits now; a queued one is started from the queue."""
        if self.job is not None and self.state != OVER:
            self.defer_taker()
            self._start_out_of_turn(self.job)

    def retry_start(self) -> None:
        """Try at intervals to start a taker that did not start when its last victim had ended, also
        elsewhere on its ranks: the release of resources that no job holds, such as a reservation's,
        is not reported."""
        if self.state == ENDING and not self.held:
            self._set_timer(self._host.now() + SEARCH_INTERVAL_S, self.ranks_changed)

    def _deferral(self) -> Deferral:
        return Deferral(self.reason() or "", key=self.taker)

    def resume(self, one: Waiting) -> None:
        """Continue after the taker has come back after a reload."""
        self.job, one.tries = one.job, 1
        self.enter()  # its run time, and so the end of the kept resources, is known now
        # in another reactor turn, when it is in the queue
        self._host.call_at(self._host.now(), self.ranks_changed)
        self.await_step()
