# SPDX-License-Identifier: LGPL-3.0-or-later
"""The current preemptions, from the decision to the start of the taker, the job for which victims
end.

The free part of the taker's *place* is kept for it, and more as victims free theirs, until it starts
there. Others may use the rest of the same ranks.

In promised time the taker's promise keeps its resources; only those freed by victims are its place,
and no others are chosen if it cannot start on them.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Callable

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.pool.inventory import selected_ranks
from flux.scheduler.admission import Deferral, JobDeferred
from flux.scheduler.host import name_of
from flux.scheduler.site_policy.preemption.kept import KeptPlaces
from flux.scheduler.site_policy.preemption.lending import Lending
from flux.scheduler.site_policy.preemption.state import (
    DECIDED,
    ENDING,
    LENT,
    OVER,
    TOO_LATE,
    WARNED,
    Part,
    Preemption,
    as_end,
)
from flux.scheduler.site_policy.preemption.takers import SEARCH_INTERVAL_S, needed
from flux.scheduler.trial import Trial

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.admission import AdmissionRule
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.site_policy.preemption.state import (
        Messenger,
        PreemptionState,
        Running,
        Victim,
        Waiting,
    )
    from flux.scheduler.site_policy.preemption.takers import Choice, Takers

#: Seconds after the promised time for which an ended borrower's resources are kept, while the job
#: that it was ended for waits for jobs that outlived their limits.
KEPT_S = 60.0

#: Seconds after the promised time in which the job starts on its own ranks only: of several jobs
#: that end at that time, the one whose message arrives first may leave room on other ranks.
OWN_RANKS_ONLY_S = 0.5


class PreemptionsUnderWay(Part):
    """Ends victims for takers, keeps the freed resources for the latter, and follows the promises of
    jobs with borrowers.

    Attributes:
        lending (Lending): starts jobs in promised time
    """

    def __init__(
        self, state: PreemptionState, rule: AdmissionRule, messenger: Messenger, takers: Takers
    ) -> None:
        super().__init__(state)
        self._rule, self._messenger, self._takers = rule, messenger, takers
        self._kept = KeptPlaces(state)
        self.lending = Lending(state)
        #: whether a job is being started regardless of its place in the queue
        self._out_of_turn = False

    def engage(self) -> None:
        """Have promises stay while there are borrowers, or jobs that borrowers were ended for; and
        have `GivingRule.allocate` called while preemptions or classes need it."""
        active = self._record.active
        self._host.admission.pins = self if self._record.in_promises() else None
        lends = any(cls.into_promises for cls in self._classes.entries.values())
        self._host.admission.engage(self._rule, True, lends or bool(active))

    # -- deciding ----------------------------------------------------------------------------------

    def decide(self, one: Waiting, choice: Choice) -> None:
        """Begin a preemption of the chosen victims."""
        host, now, job = self._host, self._host.now(), one.job
        deadline = now + self._classes.grace(one.cls for one in choice.victims)
        preemption = Preemption(
            job.jobid,
            one.terms.queue,
            job.userid,
            {victim.jobid: victim for victim in choice.victims},
            selected_ranks(choice.place[0]),
            now,
            deadline,
            deadline + self._running.clean_up(),
            request=job.resource_request,
            places=[choice.place],
        )
        lent = self._record.active.get(job.jobid)
        if self._kept.delays_others(preemption, lent):
            return
        one.tries += 1
        if lent is not None:
            self.end(lent, "the job of that time starts earlier")
        self.enter(preemption)
        plan = host.planning.current()
        if plan is not None:
            plan.stale()  # promises on ranks kept from now on move, as in the trial, before a job starts
        # From now on the plan has another time for this job.
        self.defer_taker(preemption)
        names = ", ".join(name_of(victim.jobid) for victim in choice.victims)
        host.log.info(f"preemption: {job.name} is to start by ending {names}: {choice.text()}")
        self._record.store(lambda: self._recorded(preemption))
        host.look_again()

    def enter(self, preemption: Preemption) -> None:
        """Enter a preemption into the record."""
        self._record.active[preemption.taker] = preemption
        self.engage()
        pool = self._host.resources
        for jobid in preemption.held:
            self._running.jobs[jobid].gives_way_to = preemption
            if preemption.in_promise or preemption.request is not None:
                end = self._kept.planned_end(preemption, self._own_end(jobid))
                pool.update_expiration(jobid, end)
        self._kept.keep(preemption)

    # -- the place of a taker ----------------------------------------------------------------------

    def _choose_place(self, preemption: Preemption, at_deadline: bool = False) -> bool:
        """Choose the place of a taker again, on its ranks: among what is kept for it, what victims
        hold and, unless one of these was ended, what is free there. Return False if it does not
        fit.

        Args:
            at_deadline: spare victims that need not end then, since others have made room; and give
                up if a rule would keep the taker from starting there
        """
        host, plan, before = self._host, self._host.planning.current(), preemption.places
        job = host.pending(preemption.taker)
        assert plan is not None and job is not None, "the pool can plan, and the job is pending"
        victims = [jobid for jobid in preemption.victims if jobid in preemption.held]
        there = preemption.request.on_ranks(preemption.ranks)
        trial = Trial(plan, there, yielding=plan.promises())
        if preemption.ended and victims:
            until = self._kept.until(preemption)
            self._placeholders.hold_free(preemption.ranks, until, pool=trial.pool)
        for jobid in (*preemption.placeholders, *victims):
            trial.take_out(jobid)
        if not trial.fits():
            return False
        left = needed(victims, trial) if at_deadline else set(victims)
        offer = trial.offer(partial(host.admission.second_look, job))
        if offer is None:
            return False
        preemption.places = [offer[0]]
        if at_deadline and offer[1] is not None:
            self.give_up(preemption, offer[1].deferral.text, "rule")
            return True  # given up for that reason
        if self._kept.breaks_a_promise(preemption):
            preemption.places = before
            return bool(before)
        spared = [jobid for jobid in victims if jobid not in left]
        self.let_run(preemption, spared, "others have made room")
        self._kept.keep(preemption)
        plan.stale()
        return True

    def freed(self, running: Running | None, final: bool) -> None:
        """Keep what a running job has freed for the victim's taker; called before any job is
        examined."""
        preemption = None if running is None else running.gives_way_to
        if running is not None and preemption is not None:
            jobid = running.jobid
            if final:
                preemption.held.discard(jobid)
                self.lending.drop_rest(preemption, jobid)
                if jobid in preemption.ended:
                    self._running.was_cleaned_up(preemption.deadline)
                elif preemption.in_promise:
                    self.let_run(preemption, [jobid], "")
            if preemption.state != OVER:
                self._kept.keep(preemption)
        for one in list(self._record.active.values()):
            if one.keeps_ranks and one is not preemption and not self._kept.breaks_a_promise(one):
                self._kept.keep(one)
        for one in list(self._record.active.values()):
            self._try_to_start(one)
        if preemption is not None:
            self._retry_start(preemption)

    def _retry_start(self, preemption: Preemption) -> None:
        """Try at intervals to start a taker that did not start when its last victim had ended, also
        elsewhere on its ranks: the release of resources that no job holds, such as a reservation's,
        is not reported. In promised time, keep the resources for it only until its other ones
        should have become free."""
        if preemption.state != ENDING:
            return
        if preemption.in_promise:
            when, step = self._kept.until(preemption) + KEPT_S, self._let_go
        elif not preemption.held:
            when, step = self._host.now() + SEARCH_INTERVAL_S, self._place_again
        else:
            return
        self._set_timer(preemption, when, step)

    def _let_go(self, preemption: Preemption) -> None:
        """Keep no resources for a promised job any more; a deferred one will not start there."""
        if preemption.taker in self._host.admission.deferred:
            self.give_up(preemption, "a rule keeps it from starting", "rule")
        else:
            self._kept.let_go(preemption)

    def _set_timer(
        self, preemption: Preemption, when: float, step: Callable[[Preemption], None]
    ) -> None:
        if preemption.timer is not None:
            preemption.timer.cancel()
        when = max(when, self._host.now())
        preemption.timer = self._host.call_at(when, lambda: step(preemption))

    def extended(self, jobid: int, expiration: float) -> None:
        """Set the new end of a running job (seconds since the epoch; 0: none): that of a victim in
        the pool remains the planned one."""
        running = self._running.jobs.get(jobid)
        preemption = None if running is None else running.gives_way_to
        if preemption is None:
            return
        end = expiration or inf
        if preemption.is_lent and end <= preemption.expected:
            self.let_run(preemption, [jobid], "it ends before that")
        else:
            self._host.resources.update_expiration(jobid, self._kept.planned_end(preemption, end))

    def ranks_changed(self) -> None:
        """Update all preemptions after ranks came up or went down."""
        for preemption in list(self._record.active.values()):
            if preemption.in_promise:
                self._kept.keep(preemption)
                self._try_to_start(preemption)
            elif preemption.request is not None:
                self._place_again(preemption)

    # -- warning and ending ------------------------------------------------------------------------

    def await_step(self, preemption: Preemption) -> None:
        """Schedule the warning of victims in promised time, or the end of warned ones."""
        is_lent = preemption.state == LENT
        if preemption.request is None or not (is_lent or preemption.state == WARNED):
            return
        if preemption.in_promise:
            preemption.deadline = preemption.expected - self._running.kill_time()
        when = preemption.deadline - (self._grace(preemption) if is_lent else 0.0)
        self._set_timer(preemption, when, self._warn if is_lent else self._end_victims)

    def _grace(self, preemption: Preemption) -> float:
        return self._classes.grace(one.cls for one in preemption.victims.values())

    def _warn(self, preemption: Preemption) -> None:
        """Warn victims in promised time, once that is recorded."""
        if self._is_still_wanted(preemption):
            preemption.state = DECIDED
            self._record.store(lambda: self._recorded(preemption))

    def _recorded(self, preemption: Preemption) -> None:
        """Warn the victims: the record is stored."""
        if preemption.state != DECIDED:
            return
        now = self._host.now()
        grace = self._grace(preemption)
        is_late = not preemption.in_promise and now - preemption.decided > SEARCH_INTERVAL_S
        if is_late and grace > 0:
            # Storing took a while, and victims must get their full grace.
            preemption.expected += now - preemption.decided
            preemption.decided, preemption.deadline = now, now + grace
            self._record.store(lambda: self._recorded(preemption))
            return
        preemption.state = WARNED
        self.await_step(preemption)
        if preemption.deadline > now:
            for jobid in sorted(preemption.held):
                self._messenger.warn(preemption.victims[jobid], preemption)

    def _end_victims(self, preemption: Preemption) -> None:
        """End the victims: the grace is over."""
        if self._is_still_wanted(preemption):
            preemption.state = ENDING
            for jobid in sorted(preemption.held - preemption.ended):
                self._end(preemption, preemption.victims[jobid])

    def _is_still_wanted(self, preemption: Preemption) -> bool:
        """Whether some victims must still end for the taker; others are spared. If none must, the
        preemption is over."""
        job = self._host.pending(preemption.taker)
        assert job is not None, "its preemption ends with it"
        objection = TOO_LATE if preemption.expected >= job.latest else self._objection(job)
        if objection is not None:
            self.give_up(preemption, objection, "rule")
        elif preemption.in_promise:
            self.let_run(preemption, self.lending.not_needed(preemption), "others have made room")
        else:
            # Resources may have been freed without a notice to this rule, for example when a node
            # came up.
            self._try_to_start(preemption)
            if preemption.state != OVER and not self._choose_place(preemption, at_deadline=True):
                self._choose_anew(preemption, "it would not fit there any more", "node")
            if preemption.state != OVER and not preemption.held:
                self._choose_anew(
                    preemption, "nobody has to end for it, and it does not start", "node"
                )
        return preemption.state != OVER

    def let_run(self, preemption: Preemption, jobids: Collection[int], why: str) -> None:
        """Let some victims run to their own ends: they need not end for the taker, or have
        ended."""
        for jobid in jobids:
            self._restore_end(preemption, jobid)
            if preemption.state in (WARNED, ENDING) and jobid in preemption.held:
                self._messenger.spare(jobid, why)
            preemption.held.discard(jobid)
            del preemption.victims[jobid]
        if preemption.in_promise and not preemption.victims:
            self.end(preemption, why)
        elif jobids:
            self._record.store()

    def _restore_end(self, preemption: Preemption, jobid: int) -> None:
        """Restore the planned end of a victim that no longer gives way."""
        self.lending.drop_rest(preemption, jobid)
        one = self._running.jobs.get(jobid)
        if one is not None:
            one.gives_way_to = None
            self._host.resources.update_expiration(jobid, as_end(self._own_end(jobid)))

    def _end(self, preemption: Preemption, victim: Victim) -> None:
        jobid, job = victim.jobid, self._host.running[victim.jobid]
        preemption.ended.add(jobid)
        job.ending = preemption.expected
        if preemption.in_promise:
            self._kept.add(preemption, jobid)

        def failed(refused: bool) -> None:
            preemption.ended.discard(jobid)
            job.ending = None
            if refused and preemption.state != OVER:
                why = f"{name_of(jobid)} cannot be ended"
                if preemption.in_promise:
                    self.let_run(preemption, [jobid], why)
                else:
                    self._choose_anew(preemption, why, "refused")

        self._messenger.end(victim, preemption, failed)

    # -- its end -----------------------------------------------------------------------------------

    def taker_starts(self, preemption: Preemption) -> None:
        """End the preemption: the taker starts."""
        self._counts.takers += bool(preemption.ended)
        self.end(preemption, f"{self._messenger.taker_of(preemption)} has started without that")
        if not preemption.in_promise:
            # If it starts later than planned, it also ends later.
            self._host.planning.doubt()

    def taker_is_gone(self, preemption: Preemption) -> None:
        """End the preemption: the taker will not start or, if it is still pending, a change of the
        configuration has changed its request."""
        taker = self._messenger.taker_of(preemption)
        if self._host.pending(preemption.taker) is None:
            self.give_up(preemption, f"{taker} is gone", "gone")
        else:
            self.give_up(preemption, f"the request of {taker} has changed", "configuration")

    def give_up(self, preemption: Preemption, why: str, cause: str) -> None:
        """End the preemption: the taker does not start on the kept resources."""
        ended = [preemption.victims[jobid] for jobid in preemption.ended]
        self._counts.ended_uselessly(ended, cause)
        self._host.log.info(f"preemption for {name_of(preemption.taker)} is given up: {why}")
        self.end(preemption, why)

    def end(self, preemption: Preemption, why: str) -> None:
        """End a preemption, and notify victims that were warned but not ended."""
        was, preemption.state = preemption.state, OVER
        if preemption.timer is not None:
            preemption.timer.cancel()
        del self._record.active[preemption.taker]
        self.engage()
        if preemption.placeholders:
            self._placeholders.free(preemption.placeholders)
            self._host.look_again()  # no pass would follow if this is not due to a message
        for jobid in sorted(preemption.held):
            self._restore_end(preemption, jobid)
            if jobid in preemption.ended:
                self._running.ends(jobid)
            elif was == WARNED:
                self._messenger.spare(jobid, why)
        if preemption.in_promise:
            plan = self._host.planning.current()
            if plan is not None:
                plan.pin(preemption.taker, stays=False)
                plan.stale()  # it moves now if it has to, before a job starts
        self._record.store()
        if self._classes.entries:
            self._host.readmit(self._rule, preemption.taker)
            self._takers.search_soon()

    def _choose_anew(self, preemption: Preemption, why: str, cause: str) -> None:
        """Choose victims again, unless that was done too often: the resources kept for a taker are
        lost. Done at once, before another job gets the remaining ones."""
        self.give_up(preemption, why, cause)
        self._takers.consider(preemption.taker)

    # -- promises with borrowers (`AdmissionControl.pins`) ------------------------------------------

    def borrower_started(self, jobid: int, lent: Preemption) -> float:
        """Note the start of a borrower. Return when it is to be ended, seconds since the epoch."""
        lent.needed_in = None
        self.engage()
        self._record.store()
        self.await_step(lent)
        self._counts.of(lent.victims[jobid])["borrowing"] += 1
        return lent.deadline

    def review(self) -> None:
        """Follow changes of promises. Called before any other promise is made. Costs a look-up per
        promise with borrowers."""
        plan, now = self._host.planning.current(), self._host.now()
        if plan is None:
            return
        for lent in self._record.in_promises():
            has_promise = plan.has(lent.taker)
            if lent.state == ENDING:
                if not has_promise or plan.start_of(lent.taker) > max(now, lent.expected):
                    self._let_go(lent)  # they would be idle for that long
            elif has_promise:
                if lent.request is None:
                    job = self._host.pending(lent.taker)
                    lent.request = None if job is None else job.resource_request
                    self.await_step(lent)
                start = plan.start_of(lent.taker)
                if start != lent.expected and start > now:
                    self._update_borrowers(lent, plan, start)
            elif lent.request is not None:
                self.end(lent, "the job of that time is promised another")

    def _update_borrowers(self, lent: Preemption, plan: Plan, start: float) -> None:
        """Update the borrowers of a promise that has moved: those run on that end before it, or
        have resources that are not part of it."""
        lent.expected, end, within = start, plan.promises()[lent.taker][1], list[int]()
        for jobid in lent.held:
            self.lending.drop_rest(lent, jobid)
        for jobid in sorted(lent.held):
            own = self._own_end(jobid)
            if own > start and plan.contains(lent.taker, [*within, jobid]):
                within.append(jobid)
                self._host.resources.update_expiration(jobid, start)
                self.lending.keep_rest(lent, jobid, lent.requests.get(jobid), own, plan, end)
        self.await_step(lent)
        self.let_run(lent, sorted(lent.held.difference(within)), "the promised time has moved")
        self._record.store()

    def stays(self, job: PendingJob) -> bool:
        """Whether the promise to a job keeps its time, since it needs its borrowers' resources. If
        not, they run to their limits."""
        self.review()
        plan, lent = self._host.planning.current(), self._record.active.get(job.jobid)
        if plan is None or lent is None or not lent.in_promise or not lent.held:
            return False
        if job.jobid in plan.stale():
            return False  # it cannot keep its time
        if lent.state != ENDING and lent.needed_in != plan.pool.generation:
            if not self.lending.are_needed(lent, lent.held, plan):
                self.end(lent, "others have made room")
                return False
            lent.needed_in = plan.pool.generation
        return True

    # -- the taker ---------------------------------------------------------------------------------

    def allocate(self, job: PendingJob, plan: Plan, preemption: Preemption) -> ResourcePool | None:
        """Implement `GivingRule.allocate` for a taker: allocate its place or, until victims are
        ended, any resources."""
        in_promise, is_kept = preemption.in_promise, bool(preemption.placeholders)
        if in_promise and not preemption.ended - preemption.held:
            return None
        past_heads = self._host.decision.looks_past_heads
        others_too = preemption.state != ENDING and (past_heads or not self._out_of_turn)
        self._placeholders.free(preemption.placeholders)
        try:
            if in_promise:
                alloc = self._kept.alloc_beside(job, plan, preemption)
            else:
                alloc = self._kept.alloc(job, plan, preemption, others_too)
            self._host.admission.check_allocation(job, self._host.resources)
            return alloc
        except InsufficientResources as exc:
            self._kept.keep(preemption)  # what is free of it is kept on
            if isinstance(exc, JobDeferred):
                raise
        if in_promise:
            until, now = preemption.expected, self._host.now()
            if is_kept and now < until + OWN_RANKS_ONLY_S:
                if now >= until:
                    self._host.call_at(until + OWN_RANKS_ONLY_S, self._host.look_again)
                raise InsufficientResources("it starts on the nodes kept for it")
            return None
        deferral = self._deferral(preemption)
        if past_heads:
            raise JobDeferred(self._rule, deferral)
        # In strict order the jobs behind it wait for it, as before.
        raise InsufficientResources(deferral.text)

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
        if job is None or preemption.state == OVER or preemption.request is None:
            return
        if not preemption.in_promise:
            self.defer_taker(preemption)
        elif not preemption.placeholders or job.jobid in self._host.admission.deferred:
            return  # passes see all that is for it
        why = self._start_out_of_turn(job)
        if why is not None and why.rule is not self._rule:
            if preemption.in_promise:
                self._host.defer(job, why)  # its promise was lost in the trial
            self.give_up(preemption, str(why), "rule")

    def _start_out_of_turn(self, job: PendingJob) -> JobDeferred | None:
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
        return Deferral(preemption.reason() or "", key=preemption.taker)

    # -- after a reload ----------------------------------------------------------------------------

    def restore(self) -> None:
        """Continue from the record."""
        running = self._running.jobs
        for preemption in list(self._record.active.values()):
            preemption.held &= set(running)
            preemption.ended = {jobid for jobid in preemption.held if running[jobid].was_ended}
            if preemption.in_promise:
                if not preemption.held or not self._host.decision.keeps_times:
                    del self._record.active[preemption.taker]
                    continue
                preemption.victims = {
                    jobid: one for jobid, one in preemption.victims.items() if jobid in running
                }
            if preemption.held <= preemption.ended:
                preemption.state = ENDING
            elif not preemption.in_promise or preemption.ended:
                preemption.state = WARNED
            for jobid in preemption.ended:
                running[jobid].ending = None
                self._host.running[jobid].ending = preemption.expected
                if preemption.in_promise:
                    self._kept.add(preemption, jobid)
            self.enter(preemption)
        self.engage()

    def resume(self, preemption: Preemption, one: Waiting) -> None:
        """Continue after the taker has come back after a reload."""
        preemption.request = one.job.resource_request
        one.tries = 1
        self.enter(preemption)  # its run time, and so the end of the kept resources, is known now
        # in another reactor turn, when it is in the queue
        self._host.call_at(self._host.now(), lambda: self._place_again(preemption))
        self.await_step(preemption)

    def _place_again(self, preemption: Preemption) -> None:
        """Choose the taker's place again, as after a reload, and try to start it; or victims, if a
        node kept for it is down."""
        if preemption.state == OVER:
            return
        if preemption.ranks & ~self._host.resources.eligible_ranks(preemption.request):
            self._choose_anew(preemption, "a node kept for it went down", "node")
            return
        self._choose_place(preemption)
        self._try_to_start(preemption)
        self._retry_start(preemption)

    def drop_missing(self) -> None:
        """End the preemptions whose takers have not come back."""
        for preemption in list(self._record.active.values()):
            is_kept = preemption.in_promise and preemption.state == ENDING
            if preemption.request is None and not is_kept:
                self.taker_is_gone(preemption)
