"""sched-backfill: a job that has to wait is promised a start, and others may go first if they keep it.

Jobs are looked at in order of priority, among equals in order of submission. One that does not fit
gets a reservation: the earliest time at which enough running jobs will have ended, on ranks chosen
for it. A job further down may start now if it ends by then, or stays off those ranks (the two
conditions of EASY; Mu'alem and Feitelson 2001).

A job that waits behind jobs without a time limit has no such time: what it will need is kept free
for it. A job that waits for ranks that are down keeps nothing from others.

Arguments: reservations=N|unlimited, how many blocked jobs get one (default 1, which is EASY;
unlimited is conservative backfill); jobs without a rank in common do not count against each other,
so that queues with ranks of their own do not stop one another. And queue-depth=N|unlimited (default
unlimited), log-level=LEVEL, pool-class=URI, reason-depth=N.
"""

import math
from bisect import bisect_left, insort

from flux.resource import InsufficientResources
from flux.scheduler.backlog import Backlog
from flux.scheduler.policy import PolicyScheduler
from flux.scheduler.reasons import describe

#: With more reservations than this, only those due are renewed, the others stand as they are.
RENEWED = 64


class BackfillScheduler(PolicyScheduler):
    _queue_class = Backlog
    reservations = 1

    def __init__(self, h, *args):
        super().__init__(h, *args)
        for value in self.take_argument("reservations"):
            if value != "unlimited" and not (value.isascii() and value.isdigit() and int(value) > 0):
                raise ValueError(
                    "reservations={!r} is invalid: expected a positive integer or 'unlimited'".format(value)
                )
            self.reservations = None if value == "unlimited" else int(value)
        self._plan = None
        self._promised = []  # jobs with a reservation, in order
        self._due = math.inf  # when the first reservation comes due

    # -- a pass -----------------------------------------------------------------------------------------

    def schedule(self):
        if self._plan is None:
            self._plan = self.resources.plan()
        if self._due <= self.now():
            self.renew_due()
        for job in self._backlog.to_look_at(self.now):
            if job is None:
                yield
                continue
            self.let_pass(job)
            try:
                alloc = self._plan.alloc(job.jobid, job.resource_request)
            except InsufficientResources:
                self.wait(job)
            except Exception as exc:
                self.forget(job)
                self.refuse(job, exc)
            else:
                self.begin(job, alloc)

    def let_pass(self, job):
        """A job that comes in ahead of promised ones takes precedence: they are promised anew."""
        if self._promised and job < self._promised[-1] and not self.is_promised(job):
            for other in self._promised[bisect_left(self._promised, job) :]:
                if self.shares_ranks(job, other):
                    self.forget(other)

    def begin(self, job, alloc):
        """Start a job."""
        head = self.head_of(job)
        if self.is_promised(job):
            self._promised.remove(job)
            self.start(job, alloc, selection_type="reserved")
        elif head is None:
            self.start(job, alloc, selection_type="immediate")
        else:
            self.start(job, alloc, backfill=self.name_of(head), selection_type="backfilled")
            self.log.debug("backfill: {} (shadow={})".format(self.name_of(job), int(head._shadow or 0)))

    def wait(self, job):
        """A job cannot start now: promise it a time, if it is its turn."""
        self._backlog.block(job)
        if self.waits_for_down_ranks(job):
            self.forget(job)
            self._backlog.park(job)
        elif self.is_promised(job):
            self.renew(job)
        elif self.reservations is None or sum(self.shares_ranks(job, other) for other in self._promised) < self.reservations:
            self.promise(job, self._plan.earliest(job.resource_request))

    def promise(self, job, when):
        """Reserve `when` for a job; None: keep what it will need, since nobody knows when."""
        if when is None:
            self._plan.hold(job.jobid, job.resource_request)
        else:
            self._plan.reserve(job.jobid, job.resource_request, when)
        job._shadow = when
        self._due = min(self._due, when or math.inf)
        if not self.is_promised(job):
            insort(self._promised, job)
        self.show_estimate(job, when)

    def renew(self, job):
        """Things changed: a reservation may move to an earlier time, or has come due in vain."""
        before = job._shadow
        due = before is None or before <= self.now()
        if not due and len(self._promised) > RENEWED:
            return
        self._plan.cancel(job.jobid)
        when = self._plan.earliest(job.resource_request)
        if not due and (when is None or when > before):
            when = before  # what was promised to others since must not push it back
        try:
            self.promise(job, when)
        except InsufficientResources:
            for other in self._promised[bisect_left(self._promised, job) :]:
                self.forget(other)
            self.promise(job, self._plan.earliest(job.resource_request))

    def renew_due(self):
        """Jobs ran longer than they said: what was promised for now has to wait for them."""
        for job in [job for job in self._promised if (job._shadow or math.inf) <= self.now()]:
            self.renew(job)
        self._due = min([job._shadow or math.inf for job in self._promised], default=math.inf)

    # -- promises ---------------------------------------------------------------------------------------

    def is_promised(self, job):
        index = bisect_left(self._promised, job)
        return index < len(self._promised) and self._promised[index] is job

    def forget(self, job):
        """A job loses its promise, and its estimate with it."""
        if self.is_promised(job):
            self._promised.remove(job)
            self._plan.cancel(job.jobid)
            self.show_estimate(job, None)
            job._blocked = 0
            self._released()

    def head_of(self, job):
        """The first promised job ahead of this one that it could delay."""
        for other in self._promised:
            if not other < job:
                return None
            if self.shares_ranks(job, other):
                return other
        return None

    # -- events -----------------------------------------------------------------------------------------

    def cancel(self, jobid):
        self.forget_id(jobid)
        super().cancel(jobid)

    def prioritize(self, jobs):
        for jobid, _ in jobs:
            self.forget_id(jobid)
        super().prioritize(jobs)

    def forget_id(self, jobid):
        job = self.pending(jobid)
        if job is not None:
            self.forget(job)

    def resource_update(self):
        self._backlog.unpark()
        self._released()

    def _released(self):
        self._backlog.wake(self.now())

    # -- what users see ---------------------------------------------------------------------------------

    def forecast(self):
        for job in self.first_pending():
            facts = self.resources.explain(job.resource_request)
            head = self.head_of(job)
            fits = facts["available"] >= facts["needed"]
            self.show_reason(job, self.behind(head) if fits and head is not None else describe(facts))
            yield

    def stats_get(self):
        stats = super().stats_get()
        stats.update(self._backlog.stats(self.now()), reserved=len(self._promised))
        return stats


def mod_main(h, *args):
    BackfillScheduler(h, *args).run()
