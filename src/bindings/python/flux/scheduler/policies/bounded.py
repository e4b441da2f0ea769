# SPDX-License-Identifier: LGPL-3.0-or-later
"""Passes in which every job has a latest start, as sched-backfill makes them with ``promise=all``.

Promises come from limits, the order from ranks. When a job comes it is promised a latest start: the
first time, not before its submission and ``within=`` (`Backfill.latest_start`), at which it fits by
limits beside all other promises. A job starts now only if all other promises still hold by limits.
So while limits are enforced and nodes stay up, none is ever broken: each start leaves a plan in
which all can be kept, and so does each end. Ranks, and what is predicted, only decide who is asked
first: a wrong prediction costs somebody time, and breaks nothing.

A pass (`LatestStartPasses.one_pass`):

1. newcomers are promised their latest starts, in order of the queue;
2. jobs whose latest start has come start;
3. the others are asked in order of ranks. Until one is blocked, each starts that fits now and
   breaks no promise. The first that does not fit what is free is the head: the time at which
   running jobs will have made room for it, by their limits, is kept in a plan of its own, and
   whoever starts after it leaves it that time. Jobs that fit before the head was met but would have
   broken a promise are asked once more then, in their place: a job that started since has taken its
   own promise out of their way.

What makes a promise void is told in `VOID_CAUSES`.

Latest starts are kept over a reload: when the scheduler is loaded, nobody starts until the jobs
that were promised something have come again, and have got it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InsufficientResources
from flux.scheduler.policies.promise_book import LatestStarts
from flux.scheduler.policies.ranked import TRIED_PER_TURN, RankedPasses, Steps

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.scheduler.host import Timer
    from flux.scheduler.policies.backfill import Backfill
    from flux.scheduler.queue import Backlog
    from flux.scheduler.requests import PendingJob

#: Promises that are made in one reactor turn, at 20 to 50 microseconds each.
PROMISED_PER_TURN = 16

#: Why a promise cannot be kept. Whoever loses one is promised another time, and told so.
VOID_CAUSES = {
    "resources": "nodes went down, were drained or left, or were reserved",
    "extended": "a running job was given more time",
    "late": "a running job has outlived its limit",
    "priority": "a job of higher priority went before",
    "unloaded": "it could not be kept over a time without a scheduler",
}

#: Where latest starts are stored, the version of what is there, and at most how often it is
#: written, in seconds: what was promised in the last minute before a crash is forgotten.
KEY = "checkpoint.sched-promises"
VERSION = 1
SAVE_INTERVAL_S = 60.0

#: Latest starts that are written as one part.
TIMES_PER_PART = 1024

#: Seconds after the start in which jobs with a latest start are waited for, before another job may
#: start in their place.
WAIT_FOR_KNOWN_S = 5.0


class LatestStartPasses(RankedPasses):
    """Makes the passes of a `Backfill` in which every job has a latest start.

    Args:
        policy (Backfill): whose jobs and plan
        backlog (Backlog): its queue
    """

    def __init__(self, policy: Backfill, backlog: Backlog) -> None:
        super().__init__(policy, backlog)
        self.latest = LatestStarts()
        #: jobs whose promises are to be made again in a plan, with the cause if they cannot be kept
        self._remake: dict[int, tuple[PendingJob, str]] = {}
        #: why promises in the plan may not be kept any more; None: they can
        self._doubt: str | None = None
        # what the heads keep, and for whom; None: it is to be made
        self._beside: Plan | None = None
        self._heads: list[PendingJob] = []
        #: pending jobs without a latest start: they came in, or wait for jobs that have no limit
        self._without: dict[int, PendingJob] = {}
        self._timer: Timer | None = None
        #: whom a job goes ahead of that starts now
        self._ahead_of: PendingJob | None = None
        self._store = policy.checkpoint(KEY, SAVE_INTERVAL_S, self.text)
        self._stored_changes = 0
        #: job ids with the latest starts they had before the scheduler was loaded, until they come
        self._known: dict[int, float] = {}
        self._wait_until = 0.0

    # -- a pass ------------------------------------------------------------------------------------

    def one_pass(self) -> Steps:
        policy = self.policy
        if self._known and self.wait_for_known():
            return
        newcomers = self.backlog.take_newcomers()
        self._without.update((job.jobid, job) for job in newcomers if job not in self.latest)
        if self._known:
            yield from self.keep_known(newcomers)
        yield from self.keep_or_remake()
        for number, job in enumerate(newcomers, 1):
            if not job.request.finalized and job.queued and job not in self.latest:
                self.promise(job)
            if number % PROMISED_PER_TURN == 0:
                yield
        self._free.clear()
        self._ahead_of = None
        for job in self.latest.due(policy.now()):
            if not job.request.finalized:
                self.start_due(job)
        yield from self.start_by_rank()
        for job in newcomers:
            if job in self.latest and not job.request.finalized:
                policy.show_latest_start(job, self.latest.when(job))
        if self.latest.changes != self._stored_changes:
            self._stored_changes = self.latest.changes
            self._store.changed()
        self.wake_up()

    def start_by_rank(self) -> Steps:
        """Step 3 of a pass."""
        policy, plan = self.policy, self.policy.plan
        if not self.any_could_start(plan):
            return
        ordered = yield from self.in_order()
        self._ahead_of = None
        heads: list[PendingJob] = []
        behind = 0  # mask of the ranks that heads want
        rest: list[PendingJob] = []
        for looked, job in enumerate(ordered, 1):
            if looked % TRIED_PER_TURN == 0:
                yield
            if self.must_begin_anew():
                return
            if job.request.finalized or not job.queued:
                continue
            ranks = policy.queue_order.turn_of(job)
            if ranks & behind:
                rest.append(job)
            elif not self.is_free(job):
                if not self.set_aside(job):
                    heads.append(job)
                    behind |= ranks
            elif self.keeps_promises(job):
                if self.try_to_start(job):
                    yield
            elif self.goes_before(job):
                yield
            else:
                rest.append(job)
        beside = self.plan_for(heads)
        self._ahead_of = heads[0] if heads else None
        for looked, job in enumerate(self.by_candidate_rank(rest), 1):
            if looked % TRIED_PER_TURN == 0:
                yield
            if self.must_begin_anew():
                return
            if job.request.finalized or not job.queued or not self.is_free(job):
                continue
            if beside is not None and not beside.fits(job.resource_request):
                continue
            if self.keeps_promises(job) and self.try_to_start(job):
                if beside is not None:
                    beside.note_started(job.jobid)
                yield

    def any_could_start(self, plan: Plan) -> bool:
        fitting = set()
        for signature, request in self.backlog.signatures():
            if signature is None or plan.has_free(request):
                fitting.add(signature)
        if not fitting:
            return False
        jobs = [job for job in self.backlog.heap if job.signature in fitting]
        if len(jobs) > TRIED_PER_TURN or self.policy.has_priorities:
            return True
        return any(map(self.keeps_promises, jobs))

    def keeps_promises(self, job: PendingJob) -> bool:
        """Whether all promises but a job's own can be kept if it starts now."""
        return self.policy.plan.fits(job.resource_request, jobid=job.jobid)

    def plan_for(self, heads: list[PendingJob]) -> Plan | None:
        """A plan of what running jobs leave, in which each head keeps the first time it fits; None:
        there is no head."""
        if not heads:
            return None
        policy, beside = self.policy, self._beside
        if beside is None or policy.admission.engaged:
            # What admission rules keep from jobs is in the one plan, and counts in the other.
            beside = policy.plan.copy() if policy.admission.engaged else policy.resources.plan()
            for jobid in list(beside.promises()):
                if jobid in self.latest:
                    beside.cancel(jobid)
            self._beside = beside
        else:
            for head in self._heads:
                beside.cancel(head.jobid)
        self._heads = heads
        for head in heads:
            request = head.resource_request
            when = beside.earliest(request)
            try:
                if when is None:
                    beside.hold(head.jobid, request)
                else:
                    beside.reserve(head.jobid, request, when)
            except InsufficientResources:
                pass  # it waits for ranks that are down
        return beside

    def must_begin_anew(self) -> bool:
        """Whether promises have to be made anew before another job may start."""
        if self._remake or self._doubt is not None:
            self.again = True
            return True
        return super().must_begin_anew()

    def start_due(self, job: PendingJob) -> None:
        """The latest start of a job has come: it starts, or its promise is void."""
        if self.try_to_start(job):
            return
        if job.jobid not in self.latest.overdue:
            now = self.policy.now()
            ends = self.policy.resources.jobs_by_end()
            if ends and ends[0][0] <= now:
                self.void(job, "late")
            else:
                self.latest.violated += 1
                self.policy.log.error(
                    f"{job.name} was promised to start by {self.latest.when(job):.0f}, and cannot: "
                    "this is a bug"
                )
        self.promise_anew(job)

    def begin(self, job: PendingJob, alloc: Any) -> None:
        """Start a job that was given resources."""
        policy, now = self.policy, self.policy.now()
        told: dict[str, Any] = {}
        if job in self.latest:
            told["t_latest"] = when = self.latest.when(job)
            self.latest.started(job, now)
        self.forget(job)
        if told and when <= now:
            told["selection_type"] = "reserved"
        elif self._ahead_of is not None:
            told.update(selection_type="backfilled", backfill=self._ahead_of.name)
        policy.start(job, alloc, **told)

    # -- promises ----------------------------------------------------------------------------------

    def promise(self, job: PendingJob) -> None:
        """Promise a job its latest start, beside all other promises."""
        policy, plan = self.policy, self.policy.plan
        wanted = max(policy.latest_start(job), policy.now())
        request = job.resource_request
        when = plan.earliest(request, after=wanted)
        if policy.has_priorities and (when is None or when > wanted):
            when = self.promise_before_others(job, wanted)
        if when is not None:
            plan.reserve(job.jobid, request, when)
            self.latest.make(job, when)
            self._without.pop(job.jobid, None)

    def promise_before_others(self, job: PendingJob, wanted: float) -> float | None:
        """When a job fits beside the promises to jobs of its priority and of higher ones. Those of
        lower ones that cannot be kept beside it are void."""
        plan = self.policy.plan
        lower = self.lower_than(job)
        for other in lower:
            plan.cancel(other.jobid)
        when = plan.earliest(job.resource_request, after=wanted)
        if when is not None:
            plan.reserve(job.jobid, job.resource_request, when)
        self.restore(lower, "priority")
        return when

    def goes_before(self, job: PendingJob) -> bool:
        """Start a job at the expense of jobs of lower priority, if that is possible: their promises
        are void then if they cannot be kept. Returns whether it has left the queue."""
        policy, plan = self.policy, self.policy.plan
        lower = self.lower_than(job) if policy.has_priorities else []
        if not lower:
            return False
        for other in lower:
            plan.cancel(other.jobid)
        left = self.keeps_promises(job) and self.try_to_start(job)
        self.restore(lower, "priority")
        return left

    def lower_than(self, job: PendingJob) -> list[PendingJob]:
        """Jobs with a promise, of lower priority, that could want the same ranks; in order of the
        queue."""
        policy = self.policy
        return sorted(
            other
            for other in self.latest
            if job.order < other.order and policy.shares_ranks(job, other)
        )

    def restore(self, jobs: list[PendingJob], cause: str) -> None:
        """Put promises back into the plan that were taken out of it; those that do not fit are
        void."""
        plan = self.policy.plan
        lost = []
        for job in jobs:
            when = self.latest.when(job)
            try:
                plan.reserve(job.jobid, job.resource_request, when)
            except InsufficientResources:
                lost.append(job)
        for job in lost:
            self.void(job, cause)
            self.promise_anew(job)

    def keep_or_remake(self) -> Steps:
        """See which promises can still be kept, if something gave cause for doubt, and make
        others."""
        plan = self.policy.plan
        if self._doubt is not None:
            cause, self._doubt = self._doubt, None
            by_id = {job.jobid: job for job in self.latest}
            lost = [by_id[jobid] for jobid in plan.stale() if jobid in by_id]
            for job in lost:
                plan.cancel(job.jobid)
            self.restore(sorted(lost), cause)
        number = 0
        while self._remake:
            jobid = next(iter(self._remake))
            job, cause = self._remake.pop(jobid)
            if job in self.latest and not job.request.finalized:
                self.restore([job], cause)
                number += 1
                if number % PROMISED_PER_TURN == 0:
                    yield

    def void(self, job: PendingJob, cause: str) -> None:
        """A promise cannot be kept, by one of `VOID_CAUSES`."""
        self.latest.void(job, cause)
        self.policy.log.info(
            f"{job.name}: the promise to start by {self.latest.when(job):.0f} is void: {VOID_CAUSES[cause]}"
        )

    def promise_anew(self, job: PendingJob) -> None:
        """Promise a job another latest start, as soon after the one it lost as it fits."""
        policy, plan = self.policy, self.policy.plan
        plan.cancel(job.jobid)
        when = plan.earliest(job.resource_request, after=max(self.latest.when(job), policy.now()))
        if when is None:
            self.latest.drop(job)
            self._without[job.jobid] = job
        else:
            plan.reserve(job.jobid, job.resource_request, when)
            if when <= policy.now():
                # What it waits for is overdue: its end is an event, and there is no time for a timer.
                self.latest.overdue.add(job.jobid)
                return
            self.latest.make(job, when)
        policy.show_latest_start(job, when)

    def wake_up(self) -> None:
        """Have a pass at the next latest start: no other event need come then."""
        when, timer = self.latest.next_due(), self._timer
        if when is None or (timer is not None and timer.when <= when):
            return
        if timer is not None:
            timer.cancel()
        self._timer = self.policy.call_at(when, self._time_has_come)

    def _time_has_come(self) -> None:
        self._timer = None
        when = self.latest.next_due()
        if when is None:
            return
        if when <= self.policy.now():
            self.policy.look_again()
        else:
            self.wake_up()  # that job has started

    # -- over a reload -----------------------------------------------------------------------------

    def text(self) -> Iterator[str]:
        """The latest starts as JSON, in parts."""
        times = list({**self._known, **self.latest.times()}.items())
        yield json.dumps({"version": VERSION})[:-1] + ', "latest": ['
        for at in range(0, len(times), TIMES_PER_PART):
            yield (", " if at else "") + json.dumps(times[at : at + TIMES_PER_PART])[1:-1]
        yield "]}"

    def load(self) -> None:
        stored = self._store.read()
        if stored is None:
            return
        try:
            if stored["version"] == VERSION:
                self._known = {int(jobid): float(when) for jobid, when in stored["latest"]}
        except (KeyError, TypeError, ValueError) as exc:
            self.policy.log.error(f"{KEY} in the KVS cannot be read: {exc!r}")
        if self._known:
            self._wait_until = self.policy.now() + WAIT_FOR_KNOWN_S
            self.policy.call_at(self._wait_until, self.policy.look_again)

    def wait_for_known(self) -> bool:
        """Whether jobs with a latest start are still to come: another job could start in their
        place. Those that were canceled meanwhile never come."""
        policy = self.policy
        if policy.now() >= self._wait_until:
            return False
        pending = list(policy.pending_jobs())
        if len(pending) >= policy.waiting_at_start:
            return False
        return not self._known.keys() <= {job.jobid for job in pending}

    def keep_known(self, newcomers: list[PendingJob]) -> Steps:
        """Enter the latest starts of jobs that had one into the plan, in their order; first those
        that have not passed."""
        known, self._known = self._known, {}
        now = self.policy.now()
        jobs = sorted(
            (known[job.jobid] < now, known[job.jobid], job)
            for job in newcomers
            if job.jobid in known and job not in self.latest
        )
        for number, (passed, when, job) in enumerate(jobs, 1):
            if job.request.finalized:
                continue
            self._without.pop(job.jobid, None)
            self.latest.bring_back(job, when)
            if passed:
                self.void(job, "unloaded")
                self.promise_anew(job)
            else:
                self.restore([job], "unloaded")
            if number % PROMISED_PER_TURN == 0:
                yield

    # -- what happens ------------------------------------------------------------------------------

    def forget(self, job: PendingJob) -> None:
        plan = self.policy.current_plan()
        if plan is not None:
            plan.cancel(job.jobid)
        self.latest.drop(job)
        self._remake.pop(job.jobid, None)
        self._without.pop(job.jobid, None)

    def released(self) -> None:
        # A job that waited for one without a limit may have a latest start now.
        for job in self._without.values():
            self.backlog.again(job)

    def plan_void(self) -> None:
        for job in sorted(self.latest):
            self._remake[job.jobid] = (job, "resources")
        self._beside = None
        self._heads = []

    def doubt(self, cause: str) -> None:
        """Something happened to a running job for which promises may not be kept any more."""
        self._doubt = cause

    def heads(self) -> list[PendingJob]:
        return self._heads

    def facts(self, job: PendingJob) -> dict[str, Any]:
        return {"t_latest": self.latest.when(job) if job in self.latest else None}

    def stats(self) -> dict[str, Any]:
        return {"reserved": len(self.latest), "latest_starts": self.latest.stats()}
