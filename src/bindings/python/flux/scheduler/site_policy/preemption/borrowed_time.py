# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs of a low class that run in time promised to a job of a higher class, and are ended before
that starts.

A class with ``into-promises = true`` permits this. Such a job, the *borrower*, starts although it
may overlap a promise, if that is a promise to a job of a higher class and nothing else is in the
way. In the plan it ends when the promised time begins, so that the promise is kept; its user sees
the limit of its request. When the time left is just enough for its grace, ``exec.kill-timeout`` and
the usual clean-up, it is warned, and then ended; if the promise can be kept without that by then,
it continues to its limit.

Promises to others must not depend on the borrower's end, since the promise that it is ended for may
be withdrawn. So the units of all borrowers of a job must be among the promised ones
(``Plan.alloc_within()``); a promise bound to ranks stays on these meanwhile. If a borrower's limit
is later than the end of the promised time, its units must be free then too, and are kept by a
promise in the plan with an id that no job has. If the promise is withdrawn, the borrower thus uses
no resources promised to others.

Resources freed by an ended borrower are held for the job that it was ended for, by an allocation
that belongs to no job, until that job starts on them. Otherwise another job could run there beyond
the promised time, and the job start elsewhere.

For the same reason the promise keeps its time while it needs a borrower's resources: an earlier one
would leave part of the borrower's time to others.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InsufficientResources
from flux.resource.pool.masks import popcount, take
from flux.scheduler.host import name_of
from flux.scheduler.site_policy.holdings import amounts_held
from flux.scheduler.site_policy.preemption.state import (
    ENDED,
    RUNS,
    WARNED,
    Borrower,
    Part,
    Victim,
    as_end,
    rests_of,
)

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.admission import AdmissionRule
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.site_policy.preemption.classes import PreemptionClass, PreemptionTerms
    from flux.scheduler.site_policy.preemption.state import Messenger, PreemptionState

#: Maximum number of promises tried for a job that may start into one, the latest first; each costs
#: a search of the plan up to its time.
MOST_TRIED = 8

#: Seconds after the promised time for which an ended borrower's resources are kept, while the job
#: that it was ended for waits for jobs that outlived their limits.
KEPT_S = 60.0

#: Seconds after the promised time in which the job starts on its own ranks only: of several jobs
#: that end at that time, the one whose message arrives first may leave room on other ranks.
OWN_RANKS_ONLY_S = 0.5


class BorrowedTime(Part):
    """The jobs that run in time promised to others. `active`: whether there are any, or jobs that
    they were ended for."""

    active = False

    def __init__(self, state: PreemptionState, rule: AdmissionRule, messenger: Messenger) -> None:
        super().__init__(state)
        self._rule, self._messenger = rule, messenger
        #: id of a pending job -> borrowers of its time that were ended and have freed all resources
        self._gone: dict[int, list[Borrower]] = {}
        #: id of a pending job -> a generation of the pool in which it needed the resources of its
        #: borrowers
        self._needed_in: dict[int, int] = {}

    @property
    def borrowers(self) -> dict[int, Borrower]:
        """The running borrowers, {id: borrower}."""
        return self._record.borrowers

    def engage(self) -> None:
        """Have promises stay while there are borrowers, or jobs that borrowers were ended for; and
        have `AdmissionRule.allocate` called while these, or preemptions, need it."""
        self.active = bool(self._record.borrowers or self._gone)
        self._host.admission.pins = self if self.active else None
        lends = any(cls.into_promises for cls in self._classes.entries.values())
        self._host.admission.engage(
            self._rule, True, adds=bool(lends or self._record.active or self.active)
        )

    def by_taker(self, taker: int) -> list[Borrower]:
        """Return the running borrowers of a pending job's time."""
        return [one for one in self.borrowers.values() if one.taker == taker]

    def margin(self, cls: PreemptionClass | None) -> float:
        """Return the seconds before a promised time at which a job of a class is first warned or
        ended."""
        return (0.0 if cls is None else cls.grace) + self._running.kill_time()

    # -- starting ----------------------------------------------------------------------------------

    def offer(self, job: PendingJob, terms: PreemptionTerms, plan: Plan) -> ResourcePool | None:
        """Allocate resources in promised time to a job, or return None.

        Call this if the job does not fit otherwise. Costs O(promises), and a few searches of the
        plan.
        """
        cls, request, now = terms.cls, job.resource_request, self._host.now()
        if cls is None or not cls.into_promises or cls.log_only:
            return None
        if not self._host.decision.keeps_times or getattr(request, "tokens", None):
            return None
        first = now + terms.after + self.margin(cls)
        promises = sorted(
            [
                (start, end, jobid)
                for jobid, (start, end) in plan.promises().items()
                if jobid >= 0 and first < start < end
            ],
            reverse=True,
        )
        lenders = (one for one in promises if self._may_borrow(terms, one[2]))
        for start, end, taker in islice(lenders, MOST_TRIED):
            if plan.fits(request, duration=start - now):
                alloc = self._start(job, cls, plan, taker, start, end)
                if alloc is not None:
                    return alloc
        return None

    def _may_borrow(self, terms: PreemptionTerms, taker: int) -> bool:
        """Whether a job on these terms may run in the time promised to `taker`."""
        other = self._waiting.get(taker)
        if other is None or self._host.pending(taker) is None or terms.cls is None:
            return False
        if not terms.rank < other.terms.rank or taker in self._gone:
            return False
        others = self.by_taker(taker)
        if any(one.request is None or one.state != RUNS for one in others):
            return False
        return sum(one.victim.cls == terms.cls.name for one in others) < terms.cls.max_jobs

    def _start(
        self,
        job: PendingJob,
        cls: PreemptionClass,
        plan: Plan,
        taker: int,
        start: float,
        end: float,
    ) -> ResourcePool | None:
        now, pool, request = self._host.now(), self._host.resources, job.resource_request
        limit = now + request.duration if request.duration > 0 else inf
        if limit == inf and end != inf:
            return None  # the rest to keep would have no end
        others = [one.victim for one in self.by_taker(taker)]
        try:
            alloc: ResourcePool = plan.alloc_within(
                job.jobid, request, taker, [one.jobid for one in others]
            )
        except InsufficientResources:
            return None
        refused = self._host.admission.second_look(job, pool, job.jobid)
        if refused is not None:
            pool.free(job.jobid)
            raise refused
        pool.update_expiration(job.jobid, start)
        nodes = popcount(pool.held_ranks(job.jobid))
        victim = Victim(job.jobid, cls.name, nodes, now, job.userid)
        queue = self._waiting[taker].terms.queue
        borrower = Borrower(victim, taker, queue, start, limit, request)
        lost = sum(one.node_hours(start) for one in (*others, victim) if one.cls == cls.name)
        if lost <= cls.max_node_hours and self._keep_rest(borrower, plan, end):
            plan.pin(taker)
            self.borrowers[job.jobid] = borrower
            self.engage()
            return alloc
        pool.free(job.jobid)
        return None

    def _keep_rest(self, borrower: Borrower, plan: Plan, end: float) -> bool:
        """Keep a borrower's resources after the promised time, which ends at `end`. Return whether
        they are free."""
        if borrower.limit <= end or borrower.request is None:
            return True
        rest = copy.copy(borrower.request)
        rest.duration = as_end(borrower.limit - end)
        if not plan.is_counted:
            rest = rest.on_ranks(self._host.resources.held_ranks(borrower.victim.jobid))
        placeholder = self._placeholders.next_id()
        try:
            plan.reserve(placeholder, rest, end)
        except InsufficientResources:
            return False
        if not plan.contains(placeholder, borrower.victim.jobid):
            plan.cancel(placeholder)
            return False
        plan.pin(placeholder)
        borrower.rest = placeholder
        return True

    def _drop_rest(self, borrower: Borrower) -> None:
        plan = self._host.planning.current()
        if borrower.rest is not None and plan is not None:
            plan.cancel(borrower.rest)
        borrower.rest = None

    def started(self, jobid: int) -> None:
        """Note the start of a job, which may be a borrower, or the job whose promised time was
        borrowed."""
        borrower = self.borrowers.get(jobid)
        if borrower is not None:
            self._needed_in.pop(borrower.taker, None)
            self._store(borrower)
            self._next_step(borrower)
            self._counts.add(borrower.victim, "borrowing")
        if self._taker_leaves(jobid, "the job of that time has started without that"):
            self._counts.takers += 1

    def _store(self, borrower: Borrower) -> None:
        def stored() -> None:
            borrower.stored = True
            if borrower.timer is None and self.borrowers.get(borrower.victim.jobid) is borrower:
                self._next_step(borrower)  # it was due before it was recorded

        self._record.store(stored)

    # -- ending ------------------------------------------------------------------------------------

    def deadline(self, borrower: Borrower) -> float:
        """Return the time at which a borrower is ended, seconds since the epoch."""
        return borrower.until - self._running.kill_time()

    def _next_step(self, borrower: Borrower) -> None:
        """Schedule the warning or the end of a borrower."""
        if borrower.timer is not None:
            borrower.timer.cancel()
            borrower.timer = None
        if borrower.state == ENDED or borrower.awaits:
            return
        when = self.deadline(borrower)
        if borrower.state == RUNS:
            when = borrower.until - self.margin(self._classes.entries.get(borrower.victim.cls))
        when = max(when, self._host.now())
        borrower.timer = self._host.call_at(when, lambda: self._step(borrower))

    def _step(self, borrower: Borrower) -> None:
        """Warn or end a borrower that is due."""
        borrower.timer = None
        if self.borrowers.get(borrower.victim.jobid) is not borrower or not borrower.stored:
            return
        plan = self._host.planning.current()
        if plan is None or not self._may_end(borrower, plan):
            self.give_back(borrower, "others have made room")
        elif borrower.state == RUNS:
            borrower.state = WARNED
            deadline = max(self.deadline(borrower), self._host.now())
            self._messenger.warn(borrower.victim, deadline, borrower.queue)
            self._record.store()
            self._next_step(borrower)
        else:
            self._end(borrower)

    def _may_end(self, borrower: Borrower, plan: Plan) -> bool:
        """Whether the job that was promised the time is pending and needs a borrower's
        resources."""
        job = self._host.pending(borrower.taker)
        cls = self._classes.entries.get(borrower.victim.cls)
        if job is None or cls is None or cls.log_only or not plan.has(borrower.taker):
            return False
        if borrower.taker in self._host.admission.deferred or self._objection(job) is not None:
            return False
        if self.borrowers.get(borrower.victim.jobid) is not borrower:
            return False  # the promise has just been found to be gone
        return self._are_needed([borrower], plan)

    def _ends(self, borrower: Borrower) -> None:
        """Note that a borrower is being ended."""
        jobid, pool = borrower.victim.jobid, self._host.resources
        borrower.state, borrower.began = ENDED, self._host.now()
        borrower.ranks = pool.held_ranks(jobid)
        self._running.jobs[jobid].scheduling = amounts_held(pool, jobid)

    def _end(self, borrower: Borrower) -> None:
        jobid = borrower.victim.jobid
        self._ends(borrower)

        def refused() -> None:
            if self.borrowers.get(jobid) is borrower:
                borrower.state = WARNED
                self.give_back(borrower, "it cannot be ended")

        self._messenger.end(borrower.victim, borrower.taker, borrower.queue, refused)

    def _are_needed(self, borrowers: list[Borrower], plan: Plan) -> bool:
        """Whether a promise that can be kept now would break if some borrowers ran to their
        limits."""
        ends = {one.victim.jobid: as_end(one.limit) for one in borrowers}
        return self._would_break(plan, ends, rests_of(borrowers))

    def give_back(self, borrower: Borrower, why: str) -> None:
        """Let a borrower run to its limit."""
        if borrower.state == ENDED or borrower.victim.jobid not in self.borrowers:
            return  # it is being ended, or is no longer a borrower
        self._over(borrower)
        plan = self._host.planning.current()
        taker = borrower.taker
        if plan is not None and not self.by_taker(taker) and taker not in self._gone:
            plan.pin(taker, stays=False)
        pool = self._host.resources
        pool.update_expiration(borrower.victim.jobid, as_end(borrower.limit))
        if borrower.state == WARNED:
            self._messenger.spare(borrower.victim.jobid, why)

    def give_back_all(self, taker: int, why: str) -> None:
        """Let all borrowers of a job's time run to their limits."""
        for one in self.by_taker(taker):
            self.give_back(one, why)

    def _over(self, borrower: Borrower) -> None:
        """Remove a job from the borrowers."""
        del self.borrowers[borrower.victim.jobid]
        self.engage()
        self._needed_in.pop(borrower.taker, None)
        self._drop_rest(borrower)
        if borrower.timer is not None:
            borrower.timer.cancel()
            borrower.timer = None
        self._record.store()

    # -- events of jobs ----------------------------------------------------------------------------

    def freed(self, jobid: int, R: Any) -> None:
        """Handle a running job's final free, of `R`."""
        borrower = self.borrowers.get(jobid)
        if borrower is None:
            return
        self._over(borrower)
        if borrower.state != ENDED:
            return
        if self._host.pending(borrower.taker) is not None:
            self._gone.setdefault(borrower.taker, []).append(borrower)
            self.engage()
            ranks = self._host.resources.eligible_ranks()
            part = self._running.jobs[jobid].part_of(R, ranks)
            if part is not None:
                self._keep(borrower, part)
                when = max(borrower.until, self._host.now()) + KEPT_S
                self._host.call_at(when, lambda: self._kept_long_enough(borrower.taker))
        self._running.was_cleaned_up(borrower.began)

    def _keep(self, borrower: Borrower, R: dict[str, Any]) -> None:
        """Keep the resources freed by a borrower for the taker."""
        placeholder = self._placeholders.hold(R, max(borrower.until, self._host.now()))
        borrower.kept = None if placeholder is None else (placeholder, R)

    def waited_for(self) -> list[int]:
        """Return the ids of the jobs for which resources are kept."""
        return [
            taker for taker, gone in self._gone.items() if any(one.kept is not None for one in gone)
        ]

    def _kept_long_enough(self, taker: int) -> None:
        """Keep no resources for a job any more: the time is over in which its other resources
        should have become free."""
        if taker in self.waited_for():
            self._let_go(self._gone[taker])
            self._host.look_again()

    def _let_go(self, borrowers: Iterable[Borrower]) -> Callable[[], None]:
        """Free the resources kept from ended borrowers. Return a function that keeps them again."""
        kept = [(one, one.kept) for one in borrowers if one.kept is not None]
        for one, (placeholder, _) in kept:
            self._host.resources.free(placeholder)
            one.kept = None

        def keep_again() -> None:
            for one, (_, R) in kept:
                self._keep(one, R)

        return keep_again

    def extended(self, jobid: int, expiration: float) -> None:
        """Set a running job's new end (seconds since the epoch; 0: none). A borrower's end in the
        pool remains the start of the promised time."""
        borrower = self.borrowers.get(jobid)
        if borrower is not None:
            borrower.limit = expiration or inf
            if borrower.limit > borrower.until:
                self._host.resources.update_expiration(jobid, borrower.until)
            else:
                self._over(borrower)

    def gone(self, taker: int) -> None:
        """Handle a pending job that will not start."""
        if self.active:
            ended = self._taker_leaves(taker, "the job of that time is gone")
            self._counts.ended_uselessly(ended, "gone")

    def _taker_leaves(self, taker: int, why: str) -> list[Victim]:
        """Let the borrowers of a job run to their limits: it starts, or is gone. Return the jobs
        that were ended for it."""
        self.give_back_all(taker, why)
        gone = self._gone.pop(taker, [])
        self.engage()
        self._let_go(gone)
        return [one.victim for one in [*self.by_taker(taker), *gone]]

    def start_taker(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        """Start a job on the resources of the borrowers that were ended for it: otherwise they
        would have been ended for nothing. Return None if it is to start like others. Raises
        InsufficientResources if it is to wait for jobs that are ending on the same ranks."""
        gone = self._gone.get(job.jobid)
        if gone is None:
            return None
        is_kept = any(one.kept is not None for one in gone)
        keep_again = self._let_go(gone)
        alloc = self._start_where(gone, job, plan)
        if alloc is None:
            keep_again()
            until = max(one.until for one in gone)
            if is_kept and until <= self._host.now() < until + OWN_RANKS_ONLY_S:
                self._host.call_at(until + OWN_RANKS_ONLY_S, self._host.look_again)
                raise InsufficientResources("the jobs on the nodes kept for it end now")
        return alloc

    def _start_where(
        self, gone: list[Borrower], job: PendingJob, plan: Plan
    ) -> ResourcePool | None:
        pool, request = self._host.resources, job.resource_request
        if not plan.is_counted:
            # It stays on the ranks that its promise is bound to, since they had borrowers.
            ranks = plan.ranks_of(job.jobid) if plan.has(job.jobid) else 0
            try:
                return plan.alloc(job.jobid, request.on_ranks(ranks)) if ranks else None
            except InsufficientResources:
                return None
        if not plan.fits(request, jobid=job.jobid):
            return None
        there = 0
        for one in gone:
            there |= one.ranks
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

    # -- the promise -------------------------------------------------------------------------------

    def review(self) -> None:
        """Follow changes of promises. Called before any other promise is made. Costs a look-up per
        borrower."""
        plan = self._host.planning.current()
        if plan is None:
            return
        for taker, gone in self._gone.items():
            until = max(self._host.now(), *[one.until for one in gone])
            if not plan.has(taker) or plan.start_of(taker) > until:
                self._let_go(gone)  # they would be idle for that long
        for one in list(self.borrowers.values()):
            if one.state == ENDED or self.borrowers.get(one.victim.jobid) is not one:
                continue
            if plan.has(one.taker):
                if one.awaits:
                    one.awaits = False
                    self._next_step(one)
                start = plan.start_of(one.taker)
                if start != one.until and start > self._host.now():
                    self._follow(one, plan, start)
            elif not one.awaits:
                self.give_back(one, f"{name_of(one.taker)} is promised another time")

    def _follow(self, borrower: Borrower, plan: Plan, start: float) -> None:
        """Update a borrower after the promise has moved."""
        self._drop_rest(borrower)
        borrower.until = start
        if borrower.limit <= start:
            self.give_back(borrower, "it ends before that")
            return
        self._host.resources.update_expiration(borrower.victim.jobid, start)
        self._keep_rest(borrower, plan, plan.promises()[borrower.taker][1])
        self._next_step(borrower)
        self._store(borrower)

    def stays(self, job: PendingJob) -> bool:
        """Whether the promise to a job keeps its time, since it needs its borrowers' resources. If
        not, they run to their limits."""
        self.review()
        plan, borrowers = self._host.planning.current(), self.by_taker(job.jobid)
        if plan is None or not borrowers:
            return False
        if job.jobid in plan.stale():
            return False  # it cannot keep its time
        if any(one.state == ENDED for one in borrowers):
            return True
        if self._needed_in.get(job.jobid) != plan.pool.generation:
            if not self._are_needed(borrowers, plan):
                self.give_back_all(job.jobid, "others have made room")
                return False
            self._needed_in[job.jobid] = plan.pool.generation
        return True

    def void(self, why: str) -> None:
        """Let all borrowers run to their limits: all promises are void, or no job is to be ended
        any more."""
        for one in list(self.borrowers.values()):
            self.give_back(one, why)
        for gone in self._gone.values():
            self._let_go(gone)

    # -- over a reload -----------------------------------------------------------------------------

    def restore(self) -> None:
        """Continue from the record."""
        for jobid, one in list(self.borrowers.items()):
            running = self._running.jobs.get(jobid)
            if running is None or not self._host.decision.keeps_times:
                del self.borrowers[jobid]
            elif running.was_ended:
                self._ends(one)
            else:
                self._host.resources.update_expiration(jobid, one.until)
        self.engage()

    def drop_missing(self) -> None:
        """Give up waiting for jobs that have not come back."""
        for one in list(self.borrowers.values()):
            if one.awaits:
                self.give_back(one, f"{name_of(one.taker)} is gone")
