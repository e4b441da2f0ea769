"""sched-backfill: a job that has to wait is promised a start, and others may go first if they keep it.

Jobs are looked at in order of priority, among equals in order of submission. One that does not fit
is promised the earliest time at which enough running jobs will have ended. A job further down may
start now if that keeps all promises: it ends by then, or uses what they leave (the two conditions of
EASY; Mu'alem and Feitelson 2001). A promise is so many nodes at a time, not these or those: which
they are is settled when the job starts.

When a job ends earlier than it said, each promise may, once and in order of the queue, move to an
earlier time that keeps all others (guarantee=kept); or all are made anew (guarantee=none).

A job that waits behind jobs without a time limit has no such time: what it will need is kept free
for it. A job that waits for ranks that are down keeps nothing from others.

Arguments: reservations=N|unlimited, how many blocked jobs get a promise (default 1, which is EASY; 0
lets any job start that fits; unlimited is conservative backfill); jobs without a rank in common do
not count against each other, so that queues with ranks of their own do not stop one another.
guarantee=kept|none (default kept). order=queue|strict (default queue): strict counts all jobs
against each other. And queue-depth=N|unlimited (default unlimited),
log-level=LEVEL, pool-class=URI, reason-depth=N.
"""

from flux.resource import InsufficientResources
from flux.scheduler.backfill import Promises, Waiting
from flux.scheduler.policy import PolicyScheduler, describe
from flux.scheduler.queue import Backlog

#: Effort of making a promise, where examining a job is 1 (`Backlog.spend`).
PROMISE_EFFORT = 12

#: Jobs without a promise whose starts are estimated: each costs a search of the plan.
MAX_JOBS_PLANNED = 4096

#: Jobs examined per reactor turn while estimates are made.
JOBS_PER_TURN = 64


class BackfillScheduler(PolicyScheduler):
    _queue_class = Backlog
    reservations = 1
    guarantee = "kept"
    looks_past_heads = True
    by_queue = True

    def __init__(self, h, *args):
        super().__init__(h, *args)
        self.take_order()
        for value in self.take_argument("reservations"):
            if value != "unlimited" and not (value.isascii() and value.isdigit()):
                raise ValueError(
                    f"reservations={value!r} is invalid: expected a number or 'unlimited'"
                )
            self.reservations = None if value == "unlimited" else int(value)
        for value in self.take_argument("guarantee"):
            if value not in ("kept", "none"):
                raise ValueError(f"guarantee={value!r} is invalid: expected 'kept' or 'none'")
            self.guarantee = value
        self.plan, self.promises = None, Promises()
        self._backlog.specials = lambda: self.promises
        self.waiting = Waiting()

    # -- a pass -----------------------------------------------------------------------------------------

    def schedule(self):
        if self.plan is None:
            self.plan = self.promises.plan = self.require_plan()
            if self.plan is None:
                return
        if self.guarantee == "kept":
            for job in self.promises.due(self.now()):
                self.look_at(job)
        for job in self._backlog.to_look_at(self.now):
            if job is None:
                yield
            else:
                self.look_at(job)

    def look_at(self, job):
        """Start a job if it can start now; else promise it a time, if it is its turn."""
        if self.guarantee == "none":
            self.plan_anew_from(job)
        elif job in self.promises and not self.has_come(job):
            return
        if self.try_to_start(job):
            return
        if self.set_aside(job):
            self.forget(job)
            self._backlog.remove(job)
        elif not self.overtake(job):
            self.wait(job)

    def has_come(self, job):
        """Whether the time of a promised job has come, or is not known.

        Its promise may move to an earlier time. If it cannot be kept any more, since a running job
        was given more time or ended late, it is made anew.
        """
        held = self.held_after(job)
        for other in held:
            self.plan.cancel(other.jobid)  # for a moment: it must not keep this one from moving
        try:
            when = self.promises.advance(job)
        except InsufficientResources:
            self.renew(job)
            when = self.promises.when(job)
        self.hold_again(held)
        if when is None or when <= self.now():
            return True
        self._backlog.block(job)
        self.show_estimate(job, when, "promised")
        return False

    def try_to_start(self, job):
        """Start a job, unless it does not fit now or would delay one with a promise."""
        try:
            alloc = self.allocate(job, self.plan)
        except InsufficientResources:
            return False
        except Exception as exc:
            self.forget(job)
            self.refuse(job, exc)
        else:
            self.begin(job, alloc)
        return True

    def begin(self, job, alloc):
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
            self.start(job, alloc, backfill=self.name_of(head), selection_type="backfilled")
            when = self.promises.when(head) or 0
            self.log.debug(f"backfill: {self.name_of(job)} (shadow={int(when)})")

    def overtake(self, job):
        """Start a job that only promises to jobs after it keep from starting, or make way for its own.

        A job that comes in ahead of promised ones takes precedence: they lose their promises, and
        are made others behind it. What is kept for a job whose time nobody knows must not stop one
        that is ahead of it either.

        Returns:
            bool: whether the job has started
        """
        others = [other for other in self.promises.after(job) if self.shares_ranks(job, other)]
        if job not in self.promises:
            if not others or not self.may_have_promise(job):
                return False
            for other in others:
                self.take_back(other)
            self.released()  # what was kept for them may let others start
            return self.try_to_start(job)
        held = self.held_after(job)
        for other in held:
            self.plan.cancel(other.jobid)
        started = bool(held) and self.try_to_start(job)
        self.hold_again(held)
        return started

    def held_after(self, job):
        """The jobs after this one for which resources are kept that it could want, too."""
        if not self.promises.held:
            return []
        return [
            other
            for other in self.promises.after(job)
            if self.promises.when(other) is None and self.shares_ranks(job, other)
        ]

    def hold_again(self, jobs):
        """Keep again what was kept for jobs whose time nobody knows."""
        for job in jobs:
            if job in self.promises:
                try:
                    self.promises.make(job, None)
                except InsufficientResources:
                    self.take_back(job)

    def wait(self, job):
        """A job cannot start now: promise it a time, if it is its turn."""
        if self.waits_for_down_ranks(job):
            self.take_back(job)
            self.waiting.drop(job)
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
            self.waiting.add(job, self.ranks_of(job))
        self._backlog.block(job, alike=job not in self.promises)

    def may_have_promise(self, job):
        """Whether fewer jobs ahead than ``reservations`` have one for ranks that this job could want,
        and none ahead of it still waits for one."""
        if self.reservations is None:
            return True
        ahead = 0
        for other in self.promises:
            if not other < job:
                break
            ahead += self.shares_ranks(job, other)
        if ahead >= self.reservations:
            return False
        return not self.waiting.is_before(job, self.ranks_of(job))

    def promise(self, job, when):
        """Promise a job the time `when`, or what it will need if that is None."""
        self.promises.make(job, when)
        if when is not None:
            self.look_again_at(when)
        self.waiting.drop(job)
        self._backlog.spend(PROMISE_EFFORT)
        self.show_estimate(job, when, "promised")

    def renew(self, job):
        """A promise cannot be kept: make it anew, before all that come after it."""
        self.plan.cancel(job.jobid)
        when = self.plan.earliest(job.resource_request)
        if when is None or when > self.now():
            others = [other for other in self.promises.after(job) if self.shares_ranks(job, other)]
            for other in others:
                self.take_back(other)
            if others:
                self.released()
                when = self.plan.earliest(job.resource_request)
        self.promise(job, when)

    def plan_anew_from(self, job):
        """Take back the promises of a job and of all after it: they are made anew in their turn."""
        for other in self.promises.after(job):
            if self.shares_ranks(job, other):
                self.promises.drop(other)
                self._backlog.again(other)
        self.promises.drop(job)

    def take_back(self, job):
        """A job loses its promise, and its estimate with it."""
        if job in self.promises:
            self.promises.drop(job)
            self.show_estimate(job, None)
            self._backlog.again(job)

    def forget(self, job):
        """A job is about to leave the queue, or its place there."""
        self.promises.drop(job)
        self.waiting.drop(job)

    def head_of(self, job):
        """The first job ahead of this one that has a promise it could delay."""
        for other in self.promises:
            if not other < job:
                return None
            if self.shares_ranks(job, other):
                return other
        return None

    # -- events -----------------------------------------------------------------------------------------

    def cancel(self, jobid):
        self.take_back_from(jobid)
        super().cancel(jobid)

    def prioritize(self, jobs):
        for jobid, _ in jobs:
            self.take_back_from(jobid)
        super().prioritize(jobs)

    def take_back_from(self, jobid):
        job = self.pending(jobid)
        if job is not None:
            self.waiting.drop(job)
            if job in self.promises:
                self.take_back(job)
                self.released()  # what was kept for it may let others start

    def ranks_lost(self):
        # A new plan is cheaper than to see which promises can still be kept.
        lost, self.promises, self.plan = self.promises, Promises(), None
        for job in lost:
            self.show_estimate(job, None)
            self._backlog.again(job)

    def resource_update(self):
        self.waiting.clear()
        self._backlog.unpark()
        self.released()

    def next_look(self):
        return self.promises.next_after(self.now())

    def released(self):
        self._backlog.wake(self.now())

    # -- what users see ---------------------------------------------------------------------------------

    def ahead_of(self, job):
        head = self.head_of(job)
        return [] if head is None else [head]

    def why(self, job, facts=None):
        reserved = self.why_reserved(job)
        if reserved is not None:
            return reserved
        facts = facts or self.facts_of(job)
        head = self.head_of(job)
        if head is not None and facts["available"] >= facts["needed"]:
            return self.behind(head)
        return describe(facts)

    @property
    def promises_limit(self):
        return self.reservations

    def current_plan(self):
        return self.plan or super().current_plan()

    def forecast(self):
        yield from self.reasons()
        yield from self.plan_the_rest()

    def plan_the_rest(self):
        """Estimate when jobs without a promise start: the same plan, continued behind the promises.

        It promises nothing: the next end or job may change it. What comes behind a job without a
        limit, or one that waits for such, cannot be told. A generator that yields after each estimate.
        """
        plan = None
        planned = 0
        endless = 0  # mask of ranks that such jobs could want
        for passed, job in enumerate(self.pending_jobs(aside=False), 1):
            if passed % JOBS_PER_TURN == 0:
                yield
            ranks = self.ranks_of(job)
            limited = job.resource_request.duration > 0
            if job in self.promises:
                if self.promises.when(job) is None or not limited:
                    endless |= ranks
                continue
            if planned >= MAX_JOBS_PLANNED or ranks & endless or self.waits_for_down_ranks(job):
                self.show_estimate(job, None)
                continue
            if plan is None:
                if self.plan is None:
                    return
                plan = self.plan.copy()
            planned += 1
            when = self.planned_start(plan, job)
            if when is None or not limited:
                endless |= ranks
            self.show_estimate(job, when, "planned")
            yield

    def planned_start(self, plan, job):
        """When a job would start behind all that is in a plan, and enter it there; None: nobody knows."""
        try:
            when = plan.earliest(job.resource_request)
            if when is not None:
                plan.reserve(job.jobid, job.resource_request, when)
            return when
        except OSError:
            return None

    def stats_get(self):
        stats = super().stats_get()
        stats.update(self._backlog.stats(self.now()), reserved=len(self.promises))
        return stats


def mod_main(h, *args):
    BackfillScheduler(h, *args).run()
