# SPDX-License-Identifier: LGPL-3.0-or-later
"""The current preemptions, from the decision to the start of the taker, the job for which victims
end."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.scheduler.admission import Deferral, JobDeferred
from flux.scheduler.host import name_of
from flux.scheduler.site_policy.holdings import amounts_held
from flux.scheduler.site_policy.preemption.state import (
    DECIDED,
    ENDING,
    OVER,
    WARNED,
    Part,
    Preemption,
    as_end,
    by_id,
    rests_of,
)
from flux.scheduler.site_policy.preemption.takers import LOOK_INTERVAL_S, Trial, needed

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.admission import AdmissionRule
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.site_policy.preemption.borrowed_time import BorrowedTime
    from flux.scheduler.site_policy.preemption.state import (
        Messenger,
        PreemptionState,
        Running,
        Victim,
        Waiting,
    )
    from flux.scheduler.site_policy.preemption.takers import Choice, Takers


class PreemptionsUnderWay(Part):
    """Ends victims for takers, and keeps the freed resources for the latter."""

    def __init__(
        self,
        state: PreemptionState,
        rule: AdmissionRule,
        messenger: Messenger,
        takers: Takers,
        borrowed: BorrowedTime,
    ) -> None:
        super().__init__(state)
        self._rule, self._messenger = rule, messenger
        self._takers, self._borrowed = takers, borrowed
        #: whether a job is being started regardless of its place in the queue
        self._out_of_turn = False

    def _is_active(self, preemption: Preemption) -> bool:
        return self._record.active.get(preemption.taker) is preemption

    def _all(self) -> list[Preemption]:
        return list(self._record.active.values())

    # -- deciding ----------------------------------------------------------------------------------

    def decide(self, one: Waiting, choice: Choice) -> None:
        """Begin a preemption of the chosen victims."""
        host, now, job = self._host, self._host.now(), one.job
        deadline = now + self._classes.grace(one.cls for one in choice.victims)
        preemption = Preemption(
            job.jobid,
            one.terms.queue,
            job.userid,
            by_id(choice.victims),
            choice.ranks,
            now,
            deadline,
            deadline + self._running.clean_up(),
            request=job.resource_request,
        )
        if self._delays_others(preemption):
            return
        one.tries += 1
        self._borrowed.give_back_all(job.jobid, "the job of that time starts earlier")
        self._enter(preemption)
        # From now on the plan has another time for this job.
        self.defer_taker(preemption)
        names = ", ".join(name_of(victim.jobid) for victim in choice.victims)
        host.log.info(f"preemption: {names} are to end for {job.name}: {choice.text()}")
        self._record.store(lambda: self._recorded(preemption))
        host.look_again()

    def _planned_end(self, preemption: Preemption, end: float) -> float:
        """Return the planned end of a victim, from its own `end` (infinite: none); 0: none.

        If promises are made, they must hold whether the victim ends or not: its resources are in
        use until the later of its own end and the taker's. In strict order there are no promises,
        and the estimate of the taker's start must be right.
        """
        if not self._host.decision.looks_past_heads:
            return min(end, preemption.expected)
        return as_end(max(end, preemption.end_of_taker(self._host.now())))

    def _kept_until(self, preemption: Preemption) -> float:
        """Return the planned end of the free resources kept for the taker; 0: none."""
        now = self._host.now()
        if not self._host.decision.looks_past_heads or preemption.request is None:
            return max(preemption.expected, now + 1.0)
        return as_end(max(preemption.end_of_taker(now), now + 1.0))

    def _delays_others(self, preemption: Preemption) -> bool:
        """Whether a present promise would break if the victims did not end."""
        pool, borrowers = self._host.resources, self._borrowed.by_taker(preemption.taker)
        limits = {one.victim.jobid: one.limit for one in borrowers}
        ends = {}
        for jobid in {*preemption.held, *limits}:
            end = limits.get(jobid, pool.job_end(jobid) or inf)
            is_held = jobid in preemption.held
            ends[jobid] = self._planned_end(preemption, end) if is_held else as_end(end)
        return self._breaks_a_promise(preemption, ends, [preemption.taker, *rests_of(borrowers)])

    def _breaks_a_promise(
        self,
        preemption: Preemption,
        ends: dict[int, float] | None = None,
        without: Collection[int] = (),
    ) -> bool:
        """Whether a present promise would break if the free part of a preemption's ranks was kept;
        arguments are those of `_would_break`."""
        plan = self._host.planning.current()
        if plan is None or not self._host.decision.looks_past_heads:
            return False
        return self._would_break(plan, ends or {}, without, lambda: self._hold(preemption))

    def _enter(self, preemption: Preemption) -> None:
        """Enter a preemption into the record."""
        self._record.active[preemption.taker] = preemption
        self._borrowed.engage()
        pool = self._host.resources
        for jobid in preemption.held:
            running = self._running.jobs[jobid]
            running.gives_way_to = preemption
            running.scheduling = amounts_held(pool, jobid)
            if preemption.request is not None:
                end = self._planned_end(preemption, pool.job_end(jobid) or inf)
                pool.update_expiration(jobid, end)
        self.keep(preemption)

    # -- resources kept for a taker ----------------------------------------------------------------

    def _hold(self, preemption: Preemption) -> list[int]:
        """Allocate the free part of a preemption's ranks to a placeholder. Return its id, in a list
        that is empty if none is free."""
        return self._placeholders.hold_free(preemption.ranks, self._kept_until(preemption))

    def keep(self, preemption: Preemption) -> None:
        """Keep the free part of a preemption's ranks for its taker."""
        self._placeholders.free(preemption.placeholders)
        preemption.placeholders = self._hold(preemption)

    def _keep_from_victim(self, preemption: Preemption, victim: Running, R: Any) -> None:
        """Keep the resources freed by a victim: `R`, and its memory there. While victims are being
        ended, other resources freed on their ranks were promised to others, or are withheld
        (`_keep_again`): with these the taker might not need all victims."""
        if preemption.state != ENDING:
            self.keep(preemption)
            return
        part = victim.part_of(R, preemption.ranks & self._host.resources.eligible_ranks())
        if part is None:
            return
        jobid = self._placeholders.hold(part, self._kept_until(preemption))
        if jobid is None:
            self.keep(preemption)
        else:
            preemption.placeholders.append(jobid)

    def _keep_again(self, preemption: Preemption) -> None:
        """Keep resources that may have been freed by other jobs than victims: during the grace for
        the taker, unless they were promised to others; later from all jobs, so that the taker
        starts on the kept ones: otherwise the victims might have been ended for nothing."""
        if self._breaks_a_promise(preemption):
            return
        if preemption.withholds:
            preemption.withheld += self._hold(preemption)
        else:
            self.keep(preemption)

    def freed(self, running: Running | None, R: Any, final: bool) -> None:
        """Keep `R`, freed by a running job, for the victim's taker, and only the rest for other
        takers on the same ranks; called before any job is examined."""
        preemption = None if running is None else running.gives_way_to
        if running is not None and preemption is not None:
            if final:
                preemption.held.discard(running.jobid)
                if running.jobid in preemption.ended:
                    self._running.was_cleaned_up(preemption.deadline)
            self._keep_from_victim(preemption, running, R)
        for one in self._all():
            if one is not preemption:
                self._keep_again(one)
        for one in self._all():
            self._try_to_start(one)
        if preemption is not None:
            self._await_rest(preemption)

    def _await_rest(self, preemption: Preemption) -> None:
        """Try at intervals to start a taker that did not start when its last victim had ended, also
        on resources freed by others: the release of those that no job holds, such as a
        reservation's, is not reported."""
        if preemption.state != ENDING or preemption.held or not self._is_active(preemption):
            return

        def retry() -> None:
            preemption.needs_more = True
            preemption.placeholders += preemption.withheld
            preemption.withheld = []
            self._take_up(preemption)

        preemption.timer = self._host.call_at(self._host.now() + LOOK_INTERVAL_S, retry)

    def extended(self, jobid: int, expiration: float) -> bool:
        """Set the new end of a running job. Return whether it is a victim: its end is then set in
        the pool."""
        running = self._running.jobs.get(jobid)
        if running is None or running.gives_way_to is None:
            return False
        end = self._planned_end(running.gives_way_to, expiration or inf)
        self._host.resources.update_expiration(jobid, end)
        return True

    def ranks_changed(self) -> None:
        """Update all preemptions after ranks came up or went down."""
        for preemption in self._all():
            if preemption.request is not None and not self._lost_a_node(preemption):
                self._keep_again(preemption)

    def _lost_a_node(self, preemption: Preemption) -> bool:
        """Whether a node kept for a taker went down; victims are then chosen again."""
        lost = preemption.ranks & ~self._host.resources.eligible_ranks(preemption.request)
        if lost:
            self._again(preemption, "a node kept for it went down", "node")
        return bool(lost)

    # -- warning and ending ------------------------------------------------------------------------

    def _recorded(self, preemption: Preemption) -> None:
        """Warn the victims: the record is stored."""
        if preemption.state != DECIDED:
            return
        now = self._host.now()
        grace = self._classes.grace(one.cls for one in preemption.victims.values())
        if now - preemption.decided > LOOK_INTERVAL_S and grace > 0:
            # Storing took a while, and victims must get their full grace.
            preemption.expected += now - preemption.decided
            preemption.decided, preemption.deadline = now, now + grace
            self._record.store(lambda: self._recorded(preemption))
            return
        preemption.state = WARNED
        if preemption.deadline > now:
            for jobid in sorted(preemption.held):
                victim = preemption.victims[jobid]
                self._messenger.warn(victim, preemption.deadline, preemption.queue)
            self._await_deadline(preemption)
        else:
            self._deadline(preemption)

    def _await_deadline(self, preemption: Preemption) -> None:
        when = max(preemption.deadline, self._host.now())
        preemption.timer = self._host.call_at(when, lambda: self._deadline(preemption))

    def _deadline(self, preemption: Preemption) -> None:
        """End the victims: the grace is over."""
        if preemption.state != WARNED or not self._is_active(preemption):
            return
        if preemption.request is None:
            return  # after a reload, the taker has not come back yet
        job = self._host.pending(preemption.taker)
        if job is None:
            self.taker_is_gone(preemption)
            return
        objection = self._objection(job)
        if objection is not None:
            self.give_up(preemption, objection, "rule")
            return
        # Resources may have been freed without a notice to this rule, for example when a node came
        # up.
        self._try_to_start(preemption)
        if not self._is_active(preemption):
            return
        if not self._spare(preemption):
            self._again(preemption, "it would not fit there any more", "node")
            return
        if not preemption.held:
            self._again(preemption, "nobody has to end for it, and it does not start", "node")
            return
        preemption.state = ENDING
        for jobid in sorted(preemption.held - preemption.ended):
            self._end(preemption, preemption.victims[jobid])

    def _spare(self, preemption: Preemption) -> bool:
        """Spare victims that need not end, since others have made room during the grace. Return
        False if the job would not fit even if all ended."""
        plan = self._host.planning.current()
        if plan is None:
            return True
        victims = [jobid for jobid in preemption.victims if jobid in preemption.held]
        there = preemption.request.on_ranks(preemption.ranks)
        trial = Trial(plan, there, yielding=plan.promises())
        if self._breaks_a_promise(preemption):
            # The taker will not get other free resources there.
            self._placeholders.hold_free(preemption.ranks, self._kept_until(preemption), trial.pool)
        for jobid in (*preemption.placeholders, *victims):
            trial.take_out(jobid)
        if not trial.fits():
            return False
        spared = set(victims) - needed(victims, trial)
        for jobid in sorted(spared):
            self._runs_on(jobid)
            self._messenger.spare(jobid, "others have made room")
            preemption.held.discard(jobid)
            del preemption.victims[jobid]
        if spared:
            self._record.store()
        return True

    def _runs_on(self, jobid: int) -> None:
        """Restore the planned end of a victim that no longer gives way."""
        self._running.jobs[jobid].gives_way_to = None
        running = self._host.running.get(jobid)
        if running is not None:
            self._host.resources.update_expiration(jobid, as_end(running.end))

    def _end(self, preemption: Preemption, victim: Victim) -> None:
        preemption.ended.add(victim.jobid)

        def refused() -> None:
            if self._is_active(preemption):
                self._again(preemption, f"{name_of(victim.jobid)} cannot be ended", "refused")

        def failed() -> None:
            preemption.ended.discard(victim.jobid)

        self._messenger.end(victim, preemption.taker, preemption.queue, refused, failed)

    # -- its end -----------------------------------------------------------------------------------

    def taker_starts(self, preemption: Preemption) -> None:
        """End the preemption: the taker starts."""
        self._counts.takers += bool(preemption.ended)
        self._over(preemption, f"{self._taker_text(preemption)} has started without that")
        # If it starts later than planned, it also ends later.
        self._host.planning.doubt()

    def taker_is_gone(self, preemption: Preemption) -> None:
        """End the preemption: the taker will not start."""
        self.give_up(preemption, f"{self._taker_text(preemption)} is gone", "gone")

    def give_up(self, preemption: Preemption, why: str, cause: str) -> None:
        """End the preemption: the taker does not start on the kept resources."""
        ended = [preemption.victims[jobid] for jobid in preemption.ended]
        self._counts.ended_uselessly(ended, cause)
        self._host.log.info(f"preemption for {name_of(preemption.taker)} is given up: {why}")
        self._over(preemption, why)

    def _over(self, preemption: Preemption, why: str) -> None:
        """End the preemption, and notify victims that were warned but not ended."""
        was, preemption.state = preemption.state, OVER
        if preemption.timer is not None:
            preemption.timer.cancel()
        del self._record.active[preemption.taker]
        self._borrowed.engage()
        kept = bool(preemption.placeholders or preemption.withheld)
        self._placeholders.free(preemption.placeholders)
        self._placeholders.free(preemption.withheld)
        for other in self._all():
            if other.state == ENDING:
                self._keep_again(other)
        if kept:
            self._host.look_again()  # no pass would follow if this is not due to a message
        for jobid in sorted(preemption.held):
            self._runs_on(jobid)
            if jobid in preemption.ended:
                self._running.ends(jobid)
            elif was == WARNED:
                self._messenger.spare(jobid, why)
        self._record.store()
        if self._classes.entries:
            self._host.readmit(self._rule, preemption.taker)
            self._takers.look_soon()

    def _again(self, preemption: Preemption, why: str, cause: str) -> None:
        """Choose victims again, unless that was done too often: the resources kept for a taker are
        lost. Done at once, before another job gets the remaining ones."""
        self.give_up(preemption, why, cause)
        self._takers.consider(preemption.taker)

    def _taker_text(self, preemption: Preemption) -> str:
        return self._messenger.name_for_users(preemption.taker, preemption.queue)

    # -- the taker ---------------------------------------------------------------------------------

    def allocate(self, job: PendingJob, plan: Plan, preemption: Preemption) -> ResourcePool:
        """Implement `AdmissionRule.allocate` for a taker."""
        looks_past_heads = self._host.decision.looks_past_heads
        withheld: list[int] = []
        if preemption.withholds or self._breaks_a_promise(preemption):
            withheld = self._hold(preemption)
        self._placeholders.free(preemption.placeholders)
        others_too = preemption.state != ENDING and (looks_past_heads or not self._out_of_turn)
        alloc = self._alloc(job, plan, preemption.ranks, others_too)
        pool, refused = self._host.resources, None
        if alloc is not None:
            refused = self._host.admission.second_look(job, pool, job.jobid)
            if refused is None:
                preemption.withheld += withheld
                return alloc
            pool.free(job.jobid)
        self.keep(preemption)
        if withheld:
            self._placeholders.free(withheld)
            self._keep_again(preemption)
        if refused is not None:
            raise refused
        deferral = self._deferral(preemption)
        if looks_past_heads:
            raise JobDeferred(self._rule, deferral)
        # In strict order the jobs behind it wait for it, as before.
        raise InsufficientResources(deferral.text)

    def _alloc(
        self, job: PendingJob, plan: Plan, ranks: int, others_too: bool
    ) -> ResourcePool | None:
        """Allocate to a job on some ranks (a mask), or with `others_too` on any. Return None if it
        does not fit."""
        jobid, request = job.jobid, job.resource_request
        try:
            alloc = self._host.resources.alloc_on(jobid, request, ranks & ~plan.closed_now(request))
            plan.note_started(jobid, request)
            return alloc
        except InsufficientResources:
            pass
        try:
            return plan.alloc(jobid, request) if others_too else None
        except InsufficientResources:
            return None

    def defer_taker(self, preemption: Preemption) -> None:
        """Defer a taker, unless jobs start in strict order: then those behind it wait for it, as
        before."""
        host, job = self._host, self._host.pending(preemption.taker)
        if (
            job is not None
            and host.decision.looks_past_heads
            and job.jobid not in host.admission.deferred
        ):
            host.defer(job, JobDeferred(self._rule, self._deferral(preemption)))

    def _try_to_start(self, preemption: Preemption) -> None:
        """Start the taker if it fits now; a queued one is started from the queue."""
        job = self._host.pending(preemption.taker)
        if job is None or not self._is_active(preemption) or preemption.request is None:
            return
        self.defer_taker(preemption)
        why = self.start_out_of_turn(job)
        if why is not None and why.rule is not self._rule:
            self.give_up(preemption, str(why), "rule")

    def start_out_of_turn(self, job: PendingJob) -> JobDeferred | None:
        """Start a job if it fits now, regardless of others ahead of it. Return its deferral, or
        None."""
        host, rule = self._host, self._rule
        self._out_of_turn = True
        try:
            alloc = host.allocate(job, host.planning.current())
        except InfeasibleRequest as exc:
            host.refuse(job, exc)
        except JobDeferred as why:
            return why
        except InsufficientResources:
            pass  # retried at the next event
        else:
            if host.decision.keeps_times and job.jobid not in host.admission.deferred:
                # so that it loses its promise
                host.defer(job, JobDeferred(rule, Deferral("it starts", key=job.jobid)))
            host.start_out_of_turn(rule, job, alloc, selection_type="reserved")
        finally:
            self._out_of_turn = False
        return None

    def _deferral(self, preemption: Preemption) -> Deferral:
        return Deferral(preemption.reason(), key=preemption.taker)

    # -- after a reload ----------------------------------------------------------------------------

    def restore(self) -> None:
        """Continue from the record."""
        for preemption in self._all():
            running = self._running.jobs
            preemption.held &= set(running)
            preemption.ended = {jobid for jobid in preemption.held if running[jobid].was_ended}
            preemption.state = ENDING if preemption.held <= preemption.ended else WARNED
            for jobid in preemption.ended:
                running[jobid].ending = None
            self._enter(preemption)

    def came_back(self, preemption: Preemption, one: Waiting) -> None:
        """Continue after the taker has come back after a reload."""
        preemption.request = one.job.resource_request
        one.tries = 1
        self._enter(preemption)  # its run time, and so the end of the kept resources, is known now
        # in another reactor turn, when it is in the queue
        self._host.call_at(self._host.now(), lambda: self._take_up(preemption))
        if preemption.state == WARNED:
            self._await_deadline(preemption)

    def _take_up(self, preemption: Preemption) -> None:
        """Try to start the taker, as after a reload, during which a node kept for it may have gone
        down."""
        if self._is_active(preemption) and not self._lost_a_node(preemption):
            self._keep_again(preemption)
            self._try_to_start(preemption)
            self._await_rest(preemption)

    def drop_missing(self) -> None:
        """End the preemptions whose takers have not come back."""
        for preemption in self._all():
            if preemption.request is None:
                self.taker_is_gone(preemption)
