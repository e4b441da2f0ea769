"""sched-backfill: a job that has to wait is promised a start, and others may go first if they keep it.

Jobs are looked at in order of priority, among equals in order of submission. One that does not fit
gets a reservation: the earliest time at which enough running jobs will have ended, on ranks chosen
for it. A job further down may start now if it ends by then, or stays off those ranks (the two
conditions of EASY; Mu'alem and Feitelson 2001).

A job that waits behind jobs without a time limit has no such time: what it will need is kept free
for it. A job that waits for ranks that are down keeps nothing from others.

Arguments: reservations=N|unlimited, how many blocked jobs get one (default 1, which is EASY; 0 lets
any job start that fits; unlimited is conservative backfill); jobs without a rank in common do not count against each other,
so that queues with ranks of their own do not stop one another. And queue-depth=N|unlimited (default
unlimited), log-level=LEVEL, pool-class=URI, reason-depth=N.
"""

from flux.resource import InsufficientResources
from flux.scheduler.backfill import Promises, Waiting
from flux.scheduler.policy import PolicyScheduler, describe
from flux.scheduler.queue import Backlog

#: With more reservations than this, only those due are renewed, the others stand as they are.
RENEWED = 64


class BackfillScheduler(PolicyScheduler):
    _queue_class = Backlog
    reservations = 1

    def __init__(self, h, *args):
        super().__init__(h, *args)
        for value in self.take_argument("reservations"):
            if value != "unlimited" and not (value.isascii() and value.isdigit()):
                raise ValueError(
                    f"reservations={value!r} is invalid: expected a number or 'unlimited'"
                )
            self.reservations = None if value == "unlimited" else int(value)
        self.plan, self.promises = None, Promises(None)
        self.waiting = Waiting()

    # -- a pass -----------------------------------------------------------------------------------------

    def schedule(self):
        if self.plan is None:
            self.plan = self.promises.plan = self.require_plan()
            if self.plan is None:
                return
        for job in self.promises.overdue(self.now()):
            self.renew(job)
        for job in self._backlog.to_look_at(self.now):
            if job is None:
                yield
                continue
            self.let_pass(job)
            try:
                alloc = self.plan.alloc(job.jobid, job.resource_request)
            except InsufficientResources:
                self.wait(job)
            except Exception as exc:
                self.promises.drop(job)
                self.refuse(job, exc)
            else:
                self.begin(job, alloc)

    def let_pass(self, job):
        """Take back promises that would keep a job from its place.

        A job that comes in ahead of promised ones takes precedence. What is kept for a job whose
        time nobody knows must not stop one that is ahead of it.
        """
        new = job not in self.promises
        for other in self.promises.after(job) if new or self.promises.held else ():
            if (new or other in self.promises.held) and self.shares_ranks(job, other):
                self.take_back(other)

    def begin(self, job, alloc):
        """Start a job."""
        head = self.head_of(job)
        if job in self.promises:
            self.promises.drop(job)
            self._backlog.allow()  # its promise kept others from starting
            self.start(job, alloc, selection_type="reserved")
        elif head is None:
            self.start(job, alloc, selection_type="immediate")
        else:
            self.start(job, alloc, backfill=self.name_of(head), selection_type="backfilled")
            self.log.debug(f"backfill: {self.name_of(job)} (shadow={int(head.shadow or 0)})")

    def wait(self, job):
        """A job cannot start now: promise it a time, if it is its turn."""
        self._backlog.block(job)
        if self.waits_for_down_ranks(job):
            self.take_back(job)
            self._backlog.park(job)
        elif job in self.promises:
            self.renew(job)
        elif self.may_have_promise(job):
            self.promise(job, self.plan.earliest(job.resource_request))
        else:
            self.waiting.add(job, self.ranks_of(job))
            self._backlog.block(job, alike=True)

    def may_have_promise(self, job):
        """Whether fewer jobs than ``reservations`` have one for ranks that this job could want, and
        none ahead of it still waits for one."""
        if self.reservations is None:
            return True
        if sum(self.shares_ranks(job, other) for other in self.promises) >= self.reservations:
            return False
        return not self.waiting.is_before(job, self.ranks_of(job), self.has_no_promise)

    def has_no_promise(self, job):
        return job.queued and not job.request.finalized and job not in self.promises

    def promise(self, job, when):
        """Promise a job the time `when`, or what it will need if that is None."""
        self.promises.make(job, when)
        self._backlog.spend(12)
        self.show_estimate(job, when)

    def renew(self, job):
        """Things changed: a reservation may move to an earlier time, or has come due in vain."""
        before = job.shadow
        due = before is None or before <= self.now()
        if not due and len(self.promises) > RENEWED:
            return
        self.plan.cancel(job.jobid)
        when = self.plan.earliest(job.resource_request)
        if not due and (when is None or when > before):
            when = before  # what was promised to others since must not push it back
        try:
            self.promise(job, when)
        except InsufficientResources:
            for other in self.promises.after(job):
                self.take_back(other)
            self.promise(job, self.plan.earliest(job.resource_request))

    def take_back(self, job):
        """A job loses its promise, and its estimate with it."""
        if job in self.promises:
            self.promises.drop(job)
            self.show_estimate(job, None)
            self._backlog.again(job)

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
        if job is not None and job in self.promises:
            self.take_back(job)
            self.released()  # what was kept for it may let others start

    def ranks_lost(self):
        lost, self.promises, self.plan = (
            self.promises,
            Promises(None),
            None,
        )  # a new plan is cheaper
        for job in lost:
            self.show_estimate(job, None)
            self._backlog.again(job)

    def resource_update(self):
        self.waiting.clear()
        self._backlog.unpark()
        self.released()

    def released(self):
        self._backlog.wake(self.now())

    # -- what users see ---------------------------------------------------------------------------------

    def forecast(self):
        for job in self.first_pending():
            facts = self.resources.explain(job.resource_request)
            head = self.head_of(job)
            fits = facts["available"] >= facts["needed"]
            self.show_reason(
                job, self.behind(head) if fits and head is not None else describe(facts)
            )
            yield

    def stats_get(self):
        stats = super().stats_get()
        stats.update(self._backlog.stats(self.now()), reserved=len(self.promises))
        return stats


def mod_main(h, *args):
    BackfillScheduler(h, *args).run()
