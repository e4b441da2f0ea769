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
from typing import Any

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.plan.plan import Plan
from flux.resource.pool.masks import popcount, take
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.requests import PendingJob
from flux.scheduler.site_policy.preemption.state import (
    DECIDED,
    ENDING,
    LENT,
    WARNED,
    Part,
    PreemptionTerms,
    Victim,
    as_end,
)
from flux.scheduler.site_policy.preemption.under_way import Preemption

#: Maximum number of promises tried for a job that may start into one, the latest first; each costs
#: a search of the plan up to its time.
MOST_TRIED = 8

#: Seconds after the promised time for which an ended borrower's resources are kept, while the job
#: that it was ended for waits for jobs that outlived their limits.
KEPT_S = 60.0

#: Seconds after the promised time in which the job starts on its own ranks only: of several jobs
#: that end at that time, the one whose message arrives first may leave room on other ranks.
OWN_RANKS_ONLY_S = 0.5


class Loan(Preemption):
    """Running jobs, the borrowers, in time promised to a pending one, the taker: they were started
    although they may run past its start, and end before it.

    The promise keeps the taker's resources; only those freed by victims are its place, and no
    others are chosen if it cannot start on them. `expected` is the promised start, and `state` is
    `LENT` until the borrowers are to be warned.
    """

    in_promise = True

    def __post_init__(self) -> None:
        super().__post_init__()
        #: id of a borrower -> id of the promise that keeps its resources after the promised time
        self.rests: dict[int, int] = {}
        #: mask of the ranks of the promise; 0: it is counted, or they are unknown after a reload
        self._promised_ranks = 0
        #: generation of the pool in which the promise was found to need the borrowers' resources
        self._needed_in: int | None = None

    def enter_record(self, record: dict[str, Any]) -> None:
        for jobid in sorted(self.held):
            stored = {**self.victims[jobid].to_dict(), "taker": self.taker, "queue": self.queue}
            stored |= {"until": self.expected, "warned": self.state != LENT}
            record.setdefault("borrowers", []).append(stored)

    # -- starting a borrower -----------------------------------------------------------------------

    def lend(
        self, job: PendingJob, terms: PreemptionTerms, plan: Plan, end: float, limit: float
    ) -> ResourcePool | None:
        """Allocate resources to a job, without a promise, that the plan has for the taker until
        `end`; or return None. `limit`: its own end."""
        now, pool, jobid, cls = self._host.now(), self._host.resources, job.jobid, terms.cls
        assert cls is not None, "it has the class that lets it start there"
        start, request = self.expected, job.resource_request
        limited = copy.copy(request)
        limited.duration = start - now
        if not plan.is_counted:
            limited = limited.on_ranks(plan.ranks_of(self.taker) or 0)
        try:
            # Others must not move into a promise of its own, which it keeps if this fails.
            alloc: ResourcePool = plan.alloc(jobid, limited, may_move=False)
        except (InsufficientResources, InfeasibleRequest):
            return None
        nodes = popcount(pool.held_ranks(jobid))
        victim = Victim(jobid, cls.name, nodes, now, job.userid, cls.rank, request)
        of_class = [one for one in self.victims.values() if one.cls == cls.name]
        self._host.admission.check_allocation(job, pool)
        if (
            not plan.contains(self.taker, [*self.victims, jobid])
            or self._beyond([*of_class, victim], start) is not None
            or not self._keep_rest(victim, limit, plan, end)
        ):
            pool.free(jobid)
            return None
        self._pin(plan)
        self.victims[jobid] = victim
        self.held.add(jobid)
        self._running.enter(job, terms).gives_way_to = self
        self._active[self.taker] = self
        return alloc

    def borrower_started(self, jobid: int) -> float:
        """Note the start of a borrower. Return when it is to be ended, seconds since the epoch."""
        self._needed_in = None
        self.shared.engage()
        self.shared.store()
        self.await_step()
        self._counts.of(self.victims[jobid])["borrowing"] += 1
        return self.deadline

    def _keep_rest(self, victim: Victim, limit: float, plan: Plan, end: float) -> bool:
        """Keep a borrower's resources from the end of the promised time, `end`, to its own limit.
        Return whether they are free."""
        jobid, rest = victim.jobid, copy.copy(victim.request)
        if limit <= end or rest is None:
            return True
        # Its licences are counted to its own limit.
        rest.duration, rest.tokens = as_end(limit - end), None
        if not plan.is_counted:
            rest = rest.on_ranks(self._host.resources.held_ranks(jobid))
        placeholder = self._host.placeholders.next_id()
        try:
            plan.reserve(placeholder, rest, end)
        except InsufficientResources:
            return False
        if not plan.contains(placeholder, [jobid]):
            plan.cancel(placeholder)
            return False
        plan.pin(placeholder)
        self.rests[jobid] = placeholder
        return True

    def _drop_rest(self, jobid: int) -> None:
        """Keep a borrower's resources no longer after the promised time."""
        self._needed_in = None
        placeholder, plan = self.rests.pop(jobid, None), self._host.planning.current()
        if placeholder is not None and plan is not None:
            plan.cancel(placeholder)

    # -- its promise -------------------------------------------------------------------------------

    def _pin(self, plan: Plan) -> None:
        """Keep the promise on the ranks that it is bound to: the borrowers are there."""
        plan.pin(self.taker)
        self._promised_ranks = plan.ranks_of(self.taker) or 0

    def review(self, plan: Plan) -> None:
        """Follow changes of the promise. Costs a look-up."""
        now, has_promise = self._host.now(), plan.has(self.taker)
        if self.state == ENDING:
            if not has_promise or plan.start_of(self.taker) > max(now, self.expected):
                self._let_go()  # they would be idle for that long
        elif has_promise:
            if self.job is None:
                self.job = self._host.pending(self.taker)
                self.await_step()
            start = plan.start_of(self.taker)
            has_moved = start != self.expected and start > now
            if has_moved and self.taker not in plan.open_ids():
                self._promise_moved(plan, start)
        elif self.job is not None and not self._host.decision.is_promised(self.job):
            self.end("the job of that time is promised another")

    def _promise_moved(self, plan: Plan, start: float) -> None:
        """Update the borrowers: those run on that end before the promise, or have resources that are
        not part of it."""
        self._pin(plan)
        self.expected, end, within = start, plan.promises()[self.taker][1], list[int]()
        for jobid in self.held:
            self._drop_rest(jobid)
        for jobid in sorted(self.held):
            own = self._running.own_end(jobid)
            if own > start and plan.contains(self.taker, [*within, jobid]):
                within.append(jobid)
                self._host.resources.update_expiration(jobid, start)
                self._keep_rest(self.victims[jobid], own, plan, end)
        self.await_step()
        self.let_run(sorted(self.held.difference(within)), "the promised time has moved")
        self.shared.store()
        if plan.breaks_a_promise():
            self._host.decision.extended()

    def renew(self, plan: Plan) -> None:
        """Make the promise again in a new plan, at its time and on its ranks, if possible."""
        if self.job is None or not self.is_lent:
            return
        request = self.job.resource_request
        if self._promised_ranks:
            request = request.on_ranks(self._promised_ranks)
        try:
            plan.reserve(self.taker, request, self.expected)
        except InsufficientResources:
            return
        self._promise_moved(plan, self.expected)

    def keeps_promise(self, plan: Plan) -> bool:
        """Whether the promise keeps its time, since it needs its borrowers' resources. If not, they
        run to their limits."""
        if not self.held or self.taker in plan.stale():
            return False  # it cannot keep its time
        if self.state != ENDING and self._needed_in != plan.pool.generation:
            if not self._are_needed(self.held, plan):
                self.end("others have made room")
                return False
            self._needed_in = plan.pool.generation
        return True

    def _are_needed(self, borrowers: Collection[int], plan: Plan) -> bool:
        """Whether a promise that can be kept now would break if some borrowers ran to their
        limits. The promise to their taker may move to other ranks for all of them."""
        ends = {jobid: as_end(self._running.own_end(jobid)) for jobid in borrowers}
        rests = [self.rests[jobid] for jobid in borrowers if jobid in self.rests]
        taker = [self.taker] if self.held <= set(borrowers) else []
        return self._would_break(plan, ends, rests, unpinned=taker)

    def _objection(self, job: PendingJob) -> str | None:
        # What counts is its promised time: other jobs have ended by then, also its borrowers.
        ended = [j for end, j in self._host.resources.jobs_by_end() if end <= self.expected]
        return self._host.admission.why_not(job, self._host.now(), ended)

    def _spare_unneeded(self) -> None:
        """Let borrowers run to their limits if the promise can still be kept together with these, or
        is none any more."""
        plan, spared = self._host.planning.current(), list[int]()
        has_promise = plan is not None and plan.has(self.taker)
        if not has_promise and self.job and self._host.decision.is_promised(self.job):
            return
        if (
            plan is None
            or not has_promise
            or self.taker in self._host.admission.deferred
            or not self._are_needed(self.held, plan)
        ):
            spared += self.victims
        else:
            for jobid, victim in self.victims.items():
                cls = self._classes.entries.get(victim.cls)
                if cls is None or cls.log_only or not self._are_needed([*spared, jobid], plan):
                    spared.append(jobid)
        self.let_run(spared, "others have made room")

    # -- warning and ending ------------------------------------------------------------------------

    def await_step(self) -> None:
        """Schedule the warning of the borrowers, or the end of warned ones."""
        if self.job is not None and self.state in (LENT, WARNED):
            self.deadline = self.expected - self._running.kill_time()
            if self.state == LENT:
                grace = self._classes.grace(one.cls for one in self.victims.values())
                self._set_timer(self.deadline - grace, self._warn)
            else:
                super().await_step()

    def _warn(self) -> None:
        """Warn the borrowers, once that is recorded."""
        if self._is_still_wanted():
            self.state = DECIDED
            self.shared.store(self._recorded)

    def _note_ended(self, jobid: int) -> None:
        super()._note_ended(jobid)
        # Its resources are added to the place of the taker.
        self.places.append((self._host.resources.held(jobid), 0))
        self.ranks |= self._host.resources.held_ranks(jobid)

    def _refused(self, jobid: int, why: str) -> None:
        self.let_run([jobid], why)

    def _restore_end(self, jobid: int) -> None:
        self._drop_rest(jobid)
        super()._restore_end(jobid)

    # -- running jobs ------------------------------------------------------------------------------

    def freed(self, jobid: int, final: bool) -> None:
        if final:
            self._drop_rest(jobid)
            if jobid not in self.ended:
                self.held.discard(jobid)
                self.let_run([jobid], "")
        super().freed(jobid, final)

    def extended(self, jobid: int, end: float) -> None:
        if self.is_lent and end <= self.expected:
            self.let_run([jobid], "it ends before that")
        else:
            super().extended(jobid, end)

    def ranks_changed(self) -> None:
        self.keep()
        self.try_to_start()

    def restore(self) -> None:
        before = self.state
        self.held &= self._running.jobs.keys()
        self.victims = {jobid: self.victims[jobid] for jobid in self.held}
        if not self.held or not self._host.decision.keeps_times:
            del self._active[self.taker]
            return
        super().restore()
        if not self.ended:
            self.state = before

    # -- the start of the taker --------------------------------------------------------------------

    def _planned_end(self, end: float) -> float:
        return min(end, self.expected)

    def _kept_until(self) -> float:
        return max(self.expected, self._host.now())

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        if self.is_lent and self._host.now() < self.expected:
            return self._alloc_early(job, plan)
        if not self.ended - self.held:
            return None
        is_kept, only_there = bool(self.placeholders), self.expected + OWN_RANKS_ONLY_S
        alloc, now = self._alloc_checked(job, plan), self._host.now()
        if alloc is None and is_kept and now < only_there:
            if now >= self.expected:
                self._host.call_at(only_there, self._host.look_again)
            raise InsufficientResources("it starts on the nodes kept for it")
        return alloc

    def _alloc_early(self, job: PendingJob, plan: Plan) -> ResourcePool:
        """Allocate resources to the taker before its promised time, if promises to others can be
        kept although its borrowers run to their limits. Raises InsufficientResources."""
        pool = self._host.resources
        restore = plan.withdraw(self.rests.values())
        for jobid in self.held:
            pool.update_expiration(jobid, as_end(self._running.own_end(jobid)))
        try:
            alloc: ResourcePool = plan.alloc(job.jobid, job.resource_request)
            return alloc
        except Exception:
            for jobid in self.held:
                pool.update_expiration(jobid, self.expected)
            restore()
            raise

    def _alloc(self, job: PendingJob, plan: Plan) -> ResourcePool:
        """Allocate resources to the taker, as many as possible on the ranks of ended borrowers:
        otherwise they would have been ended for nothing. Raises InsufficientResources if it does not
        fit."""
        pool, request, there = self._host.resources, job.resource_request, self.ranks
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

    def try_to_start(self) -> None:
        # Without placeholders, passes see all that is for it.
        if self.job and self.placeholders and self.taker not in self._host.admission.deferred:
            now = self._host.now()  # a limit may have room only at the promised time
            if now >= self.expected or not self._host.admission.why_not(self.job, now):
                self._start_out_of_turn(self.job)

    def retry_start(self) -> None:
        """Keep the resources for the taker only until its other ones should have become free."""
        if self.state == ENDING:
            self._set_timer(self._kept_until() + KEPT_S, self._let_go)

    def _let_go(self) -> None:
        """Keep no resources for the taker any more; a deferred one will not start there."""
        if self.taker in self._host.admission.deferred:
            self.give_up("a rule keeps it from starting", "rule")
            return
        self.places.clear()
        if self.placeholders:
            self._host.placeholders.free(self.placeholders)
            self._host.look_again()


class Loans(Part):
    """Starts jobs in time promised to others, and follows these promises
    (`AdmissionControl.pins`)."""

    def offer(self, job: PendingJob, terms: PreemptionTerms, plan: Plan) -> ResourcePool | None:
        """Allocate resources in promised time to a job, or return None.

        Call this if the job does not fit otherwise. Costs O(promises), and a few searches of the
        plan.
        """
        cls, request, now = terms.cls, job.resource_request, self._host.now()
        if cls is None or not cls.into_promises or cls.log_only:
            return None
        if not self._host.decision.keeps_times or not plan.has_tokens(job.jobid, request):
            return None
        first = now + terms.after + cls.grace + self._running.kill_time()
        limit = now + request.duration if request.duration > 0 else inf
        promises = sorted(
            [
                (start, end, taker)
                for taker, (start, end) in plan.promises(with_open=False).items()
                # a rest to keep must have an end
                if first < start < end and (limit < inf or end == inf)
            ],
            reverse=True,
        )
        lenders = (one for one in promises if self._may_borrow(job, terms, one[2]))
        for start, end, taker in islice(lenders, MOST_TRIED):
            if plan.fits(request, duration=start - now, jobid=job.jobid):
                loan: Loan | None = self._active.get(taker)
                if loan is None:
                    other = self._waiting[taker]
                    whose = other.terms.queue, other.job.userid
                    loan = Loan(
                        self.shared, taker, *whose, {}, 0, now, start, start, LENT, other.job
                    )
                restore, alloc = plan.withdraw([job.jobid]), None
                try:
                    alloc = loan.lend(job, terms, plan, end, limit)
                finally:
                    if alloc is None:
                        restore()
                if alloc is not None:
                    return alloc
        return None

    def _may_borrow(self, job: PendingJob, terms: PreemptionTerms, taker: int) -> bool:
        """Whether a job on these terms may run in the time promised to `taker`."""
        other, lent = self._waiting.get(taker), self._active.get(taker)
        if other is None:
            return False
        own, promised = job.resource_request, other.job.resource_request
        if own.claimant not in (None, promised.claimant) and not promised.shape.exclusive:
            return False  # it would exclude others from ranks that they may share with the promised job
        if not terms.rank < other.terms.rank or self._host.pending(taker) is None:
            return False
        if not self._host.admission.fit_together(job, other.job):
            return False  # it leaves the promised job its share of limits
        # After a reload the requests of borrowers are unknown.
        return lent is None or (
            lent.state == LENT and None not in [one.request for one in lent.victims.values()]
        )

    def review(self) -> None:
        """Follow changes of promises. Called before any other promise is made. Costs a look-up per
        promise with borrowers."""
        plan = self._host.planning.current()
        for loan in list(self._active.values()):
            if plan is not None and isinstance(loan, Loan):
                loan.review(plan)

    def renew(self, plan: Plan) -> None:
        """Make the promises with borrowers again in a new plan, before others."""
        for loan in list(self._active.values()):
            if isinstance(loan, Loan):
                loan.renew(plan)

    def stays(self, job: PendingJob) -> bool:
        """Whether the promise to a job keeps its time, since it needs its borrowers' resources. If
        not, they run to their limits."""
        self.review()
        plan, loan = self._host.planning.current(), self._active.get(job.jobid)
        return plan is not None and isinstance(loan, Loan) and loan.keeps_promise(plan)
