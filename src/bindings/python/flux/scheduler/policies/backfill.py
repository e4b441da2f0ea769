# SPDX-License-Identifier: LGPL-3.0-or-later
"""Backfill: a job that has to wait is promised a start, and others may go ahead if they keep it.

Jobs are examined in order of priority, among equals in order of submission. One that does not fit
is promised the earliest time at which enough running jobs will have ended. A job further down may
start now if that keeps all promises: it ends by then, or uses what they leave (the two conditions
of EASY; Mu'alem and Feitelson 2001). A promise is so many nodes at a time, not these or those:
which they are is settled when the job starts.

How the file is laid out: a pass (`Backfill.schedule`) examines jobs one by one
(`Backfill.examine`). A promised job whose time has not come waits on (`Backfill.has_come`). Any
other job starts if it can (`Backfill.try_to_start`), or if only promises to jobs behind it are in
its way (`Backfill.overtake`); otherwise it waits, and is promised a time if it is its turn
(`Backfill.wait`). Who has which promise is in a `PromiseBook`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InsufficientResources
from flux.scheduler.admission import JobDeferred
from flux.scheduler.policies.promise_book import BlockedByRanks, PromiseBook
from flux.scheduler.policy import PolicyScheduler, describe
from flux.scheduler.queue import Backlog, in_order

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.host import Timer
    from flux.scheduler.requests import PendingJob

#: Effort of making a promise, where examining a job is 1 (`Backlog.spend`).
PROMISE_EFFORT = 12

#: Jobs without a promise whose starts are estimated: each costs a search of the plan.
MAX_JOBS_PLANNED = 4096

#: Jobs examined per reactor turn while estimates are made.
JOBS_PER_TURN = 64

#: Seconds after a promised time at which a pass begins for it: a job that ends at that time has
#: ended then.
LATE_S = 1e-3


class Backfill(PolicyScheduler):
    """Backfilling with promises: EASY with one, conservative backfill with all jobs promised a
    start.

    When a job ends earlier than it said, each promise may, once and in order of the queue, move to
    an earlier time that keeps all others (``guarantee=kept``); or all are made anew
    (``guarantee=none``).

    A job that waits behind jobs without a time limit has no time that it could be promised: what it
    will need is kept free for it, which is an *open* promise. A job that waits for ranks that are
    down keeps nothing from others.

    Jobs without a rank in common do not count against each other, so that queues with ranks of
    their own do not stop one another; with ``order=strict`` all do.

    Args:
        h: the Flux handle
        *args (str): module arguments: ``promises=N|unlimited``, how many blocked jobs get a promise
            (default 1, which is EASY; 0 lets any job start that fits; unlimited is conservative
            backfill; ``reservations=`` is the older name); ``guarantee=kept|none`` (default kept);
            ``order=queue|strict`` (default queue); ``reason-depth=N``; and those of `Scheduler`

    Attributes:
        promises_limit (int or None): as ``promises=``; None: unlimited
        guarantee (str): as ``guarantee=``
        promises (PromiseBook): the promises there are
    """

    _queue_class = Backlog
    _backlog: Backlog
    #: The plan that promises are made in, during a pass.
    plan: Plan
    promises_limit: int | None = 1
    guarantee = "kept"
    looks_past_heads = True
    by_queue = True

    def __init__(self, h: Any, *args: str) -> None:
        super().__init__(h, *args)
        self.take_order()
        for name in ("reservations", "promises"):
            for value in self.take_argument(name):
                if value != "unlimited" and not (value.isascii() and value.isdigit()):
                    raise ValueError(
                        f"{name}={value!r} is invalid: expected a number or 'unlimited'"
                    )
                self.promises_limit = None if value == "unlimited" else int(value)
        for value in self.take_argument("guarantee"):
            if value not in ("kept", "none"):
                raise ValueError(f"guarantee={value!r} is invalid: expected 'kept' or 'none'")
            self.guarantee = value
        self.promises = PromiseBook()
        self.blocked = BlockedByRanks()
        self._backlog.exempt_jobs = lambda: self.promises
        self._promise_timer: Timer | None = None

    # -- a pass ------------------------------------------------------------------------------------

    def schedule(self) -> Iterator[float | None]:
        plan = self.require_plan()
        if plan is None:
            return
        self.plan = self.promises.plan = plan
        if self.guarantee == "kept":
            for job in self.promises.due(self.now()):
                self.examine(job)
        for candidate in self._backlog.to_examine(self.now):
            if candidate is None:
                yield None
            else:
                self.examine(candidate)

    def examine(self, job: PendingJob) -> None:
        """Start a job if it can start now; else promise it a time, if it is its turn."""
        if self.guarantee == "none":
            self.plan_anew_from(job)
        elif job in self.promises and not self.has_come(job):
            return
        if not self.try_to_start(job) and not self.overtake(job):
            self.wait(job)

    def has_come(self, job: PendingJob) -> bool:
        """Whether the time of a promised job has come, or its promise is open.

        Its promise may move to an earlier time. If it cannot be kept any more, since a running job
        was given more time or ended late, it is made anew.
        """
        open_ones = self.open_promises_after(job)
        for other in open_ones:
            self.plan.cancel(other.jobid)  # for a moment: it must not keep this one from moving
        try:
            when = self.promises.advance(job)
        except InsufficientResources:
            self.renew(job)
            when = self.promises.when(job)
        self.restore_open(open_ones)
        if when is None or when <= self.now():
            return True
        self._backlog.block(job)
        self.show_estimate(job, when, "promised")
        return False

    def try_to_start(self, job: PendingJob) -> bool:
        """Start a job, unless it does not fit now or would delay one with a promise.

        Returns:
            whether it has left the queue: it started, can never run, or was deferred
        """
        try:
            alloc = self.allocate(job, self.plan)
        except JobDeferred as why:
            if job in self.promises:
                self._backlog.allow()  # what was kept for it may let others start
            self.forget(job)
            self.defer(job, why)
        except InsufficientResources:
            return False
        except Exception as exc:
            self.forget(job)
            self.refuse(job, exc)
        else:
            self.begin(job, alloc)
        return True

    def begin(self, job: PendingJob, alloc: ResourcePool) -> None:
        """Start a job."""
        head = self.head_of(job)
        promised = job in self.promises
        self.forget(job)
        if promised:
            self._backlog.allow()  # another job may be promised something now
            self.start(job, alloc, selection_type="reserved")
        elif head is None:
            self.start(job, alloc, selection_type="immediate")
        else:
            self.start(job, alloc, backfill=head.name, selection_type="backfilled")
            when = self.promises.when(head) or 0
            self.log.debug(f"backfill: {job.name} (shadow={int(when)})")

    def overtake(self, job: PendingJob) -> bool:
        """Start a job that only promises to jobs behind it keep from starting, or clear the way for
        its own promise.

        A job that comes in ahead of promised ones takes precedence: their promises are revoked, and
        made anew behind it. Nor may an open promise stop a job that is ahead of it.

        Returns:
            whether the job has left the queue
        """
        others = [other for other in self.promises.after(job) if self.shares_ranks(job, other)]
        if job not in self.promises:
            if not others or not self.may_have_promise(job):
                return False
            for other in others:
                self.revoke(other)
            self.released()  # what was kept for them may let others start
            return self.try_to_start(job)
        open_ones = self.open_promises_after(job)
        for other in open_ones:
            self.plan.cancel(other.jobid)
        left = bool(open_ones) and self.try_to_start(job)
        self.restore_open(open_ones)
        return left

    def wait(self, job: PendingJob) -> None:
        """A job cannot start now: promise it a time, if it is its turn."""
        if self.facts.waits_for_down_ranks(job.resource_request):
            self.revoke(job)
            self.blocked.drop(job)
            self._backlog.block(job)
            self._backlog.park(job)
            return
        if job in self.promises:
            if self.promises.when(job) is None:
                self.plan.cancel(job.jobid)
                self.promise(job, self.plan.earliest(job.resource_request))
        elif self.may_have_promise(job):
            self.promise(job, self.plan.earliest(job.resource_request))
        else:
            self.blocked.add(job, self.ranks_of(job))
        self._backlog.block(job, alike=job not in self.promises)

    # -- promises ----------------------------------------------------------------------------------

    def may_have_promise(self, job: PendingJob) -> bool:
        """Whether fewer jobs ahead than `promises_limit` have one for ranks that this job could
        want, and none ahead of it still waits for one."""
        if self.promises_limit is None:
            return True
        ahead = 0
        for other in self.promises:
            if not other < job:
                break
            ahead += self.shares_ranks(job, other)
        if ahead >= self.promises_limit:
            return False
        return not self.blocked.is_before(job, self.ranks_of(job))

    def promise(self, job: PendingJob, when: float | None) -> None:
        """Promise a job the time `when` (seconds since the epoch); None: an open promise."""
        self.promises.make(job, when)
        if when is not None:
            self.wake_at(when)
        self.blocked.drop(job)
        self._backlog.spend(PROMISE_EFFORT)
        self.show_estimate(job, when, "promised")

    def renew(self, job: PendingJob) -> None:
        """A promise cannot be kept: make another, ahead of all promises to jobs behind this one."""
        self.plan.cancel(job.jobid)
        when = self.plan.earliest(job.resource_request)
        if when is None or when > self.now():
            others = [other for other in self.promises.after(job) if self.shares_ranks(job, other)]
            for other in others:
                self.revoke(other)
            if others:
                self.released()
                when = self.plan.earliest(job.resource_request)
        self.promise(job, when)

    def plan_anew_from(self, job: PendingJob) -> None:
        """Drop the promises of a job and of all behind it; each is made again in its turn."""
        for other in self.promises.after(job):
            if self.shares_ranks(job, other):
                self.promises.drop(other)
                self._backlog.again(other)
        self.promises.drop(job)

    def revoke(self, job: PendingJob) -> None:
        """A job loses its promise, and its estimate with it."""
        if job in self.promises:
            self.promises.drop(job)
            self.show_estimate(job, None)
            self._backlog.again(job)

    def forget(self, job: PendingJob) -> None:
        """A job is about to leave the queue, or its place there."""
        self.promises.drop(job)
        self.blocked.drop(job)

    def open_promises_after(self, job: PendingJob) -> list[PendingJob]:
        """The jobs after this one with an open promise of resources that it could want, too."""
        if not self.promises.open_ids:
            return []
        return [
            other
            for other in self.promises.after(job)
            if self.promises.when(other) is None and self.shares_ranks(job, other)
        ]

    def restore_open(self, jobs: list[PendingJob]) -> None:
        """Make open promises again that were taken out of the plan for a moment."""
        for job in jobs:
            if job in self.promises:
                try:
                    self.promises.make(job, None)
                except InsufficientResources:
                    self.revoke(job)

    def head_of(self, job: PendingJob) -> PendingJob | None:
        """The first job ahead of this one that has a promise it could delay."""
        for other in self.promises:
            if not other < job:
                return None
            if self.shares_ranks(job, other):
                return other
        return None

    # -- events ------------------------------------------------------------------------------------

    def cancel(self, jobid: int) -> None:
        self.leave_place(jobid)
        super().cancel(jobid)

    def prioritize(self, jobs: list[Any]) -> None:
        for jobid, _ in jobs:
            self.leave_place(jobid)
        super().prioritize(jobs)

    def leave_place(self, jobid: int) -> None:
        """A pending job is about to leave its place in the queue, and gives up its promise."""
        job = self.pending(jobid)
        if job is not None:
            self.blocked.drop(job)
            if job in self.promises:
                self.revoke(job)
                self.released()  # what was kept for it may let others start

    def reorder(self) -> None:
        super().reorder()
        self.promises.reorder()
        self.blocked.reorder()
        self.released()

    def ranks_lost(self) -> None:
        # A new plan is cheaper than to see which promises can still be kept.
        lost, self.promises = self.promises, PromiseBook()
        for job in lost:
            job.exempt = False
            self.show_estimate(job, None)
            self._backlog.again(job)

    def resource_update(self) -> None:
        self.blocked.clear()
        self._backlog.unpark()
        self.released()

    def released(self) -> None:
        self._backlog.wake(self.now())
        if self.promises and self._promise_timer is None:
            self.wake_at(self.promises.next_after(self.now()))

    def wake_at(self, when: float | None) -> None:
        """Have a pass at a promised time. It comes due when a running job ends, which makes a pass
        of itself, unless an admission rule keeps resources until then. Only the earliest time is
        kept: when it has come, the next is looked for."""
        timer = self._promise_timer
        if when is None or not self.admission.engaged or (timer and timer.when <= when + LATE_S):
            return
        if timer is not None:
            timer.cancel()
        self._promise_timer = self.call_at(when + LATE_S, self._promise_is_due)

    def _promise_is_due(self) -> None:
        self._promise_timer = None
        self.look_again()

    # -- what users see ----------------------------------------------------------------------------

    def ahead_of(self, job: PendingJob) -> list[PendingJob]:
        head = self.head_of(job)
        return [] if head is None else [head]

    def why(self, job: PendingJob, facts: dict[str, Any] | None = None) -> str | None:
        cause = self.admission.why(job)
        if cause is not None:
            return cause.reason
        facts = facts or self.facts.explain(job.resource_request)
        head = self.head_of(job)
        if head is not None and facts["available"] >= facts["needed"]:
            return f"behind {head.name}"
        return describe(facts)

    def forecast(self) -> Iterator[None]:
        yield from self.reasons()
        yield from self.plan_the_rest()

    def plan_the_rest(self) -> Iterator[None]:
        """Estimate when jobs without a promise start: the same plan, continued behind the promises.

        It promises nothing: the next end or job may change it. What comes behind a job without a
        limit, or one that waits for such, cannot be told. A generator that yields after each
        estimate.
        """
        plan: Plan | None = None
        planned = 0
        endless = 0  # mask of ranks that jobs without a limit, or an expected start, could want
        for examined, job in enumerate(in_order(self._queue), 1):
            if examined % JOBS_PER_TURN == 0:
                yield
            if job.request.finalized:
                continue
            ranks = self.ranks_of(job)
            request = job.resource_request
            limited = request.duration > 0
            if job in self.promises:
                if self.promises.when(job) is None or not limited:
                    endless |= ranks
                continue
            if (
                planned >= MAX_JOBS_PLANNED
                or ranks & endless
                or self.facts.waits_for_down_ranks(request)
            ):
                self.show_estimate(job, None)
                continue
            if plan is None:
                current = self.current_plan()
                if current is None:
                    return
                plan = current.copy()
            planned += 1
            when = self.planned_start(plan, job)
            if when is None or not limited:
                endless |= ranks
            self.show_estimate(job, when, "planned")
            yield

    def planned_start(self, plan: Plan, job: PendingJob) -> float | None:
        """Enter a job into a plan behind all that is there, and return when it would start; None if
        that is not known."""
        try:
            when = plan.earliest(job.resource_request)
            if when is not None:
                plan.reserve(job.jobid, job.resource_request, when)
            return when
        except OSError:
            return None

    def stats_get(self) -> dict[str, Any]:
        stats = super().stats_get()
        stats.update(self._backlog.stats(self.now()), reserved=len(self.promises))
        return stats
