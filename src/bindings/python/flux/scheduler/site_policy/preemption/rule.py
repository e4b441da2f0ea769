# SPDX-License-Identifier: LGPL-3.0-or-later
"""Preemption: ending running jobs of a low class so that a waiting job of a higher one can start.

How it goes
===========

*Looking.* Something has changed, or a job has waited long enough: for the first waiting jobs that
may take from others it is found out whom (`chooser`, `victims`). The job manager is asked whether
these jobs still run, since one that is being cleaned up is seen by nobody else; if one does not, it
is chosen again.

*Deciding.* What is free of the ranks that the job is to have is given to a placeholder, an
allocation that belongs to no job. To the plan that and the resources of the victims are in use
until the job will have ended, so that nobody is promised what a kill may not free after all. All
this is recorded in the KVS, and nothing is done before that is stored.

*Warning.* The victims are told, by an exception of severity 1 and a signal. While the grace lasts
the job starts elsewhere if it can, and if it does, or is gone, nobody is ended.

*Ending.* At the deadline, victims that are not needed any more, since others have made room
meanwhile, are told that they are spared; the rest get an exception of severity 0. As their
resources come back the placeholder takes them, and when the job fits into it it starts there. What
other jobs free on the same ranks from then on is not for it: it would start before, or beside, what
was cleared for it, and a job would have been ended for nothing. A second placeholder keeps that
until the job has started.

After a reload of the scheduler the record says how far it was. Without a record nobody is ended.

Where a class has ``into-promises``, its jobs may also start into time that is promised to jobs of a
higher class, and are ended before it: `borrowed_time`.

Who does what: `classes` reads the table, `record` is one preemption and how it is stored,
`messenger` talks to the job manager, `counts` counts, `answers` is what ``flux sched`` asks.
"""

from __future__ import annotations

import heapq
import itertools
import json
import time
from collections.abc import Callable, Hashable, Iterable
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.scheduler.admission import Deferral, JobDeferred
from flux.scheduler.checkpoint import read_stored
from flux.scheduler.disclosure import Reason, is_private
from flux.scheduler.host import ask_job_attributes, name_of
from flux.scheduler.reservations.times import duration_text
from flux.scheduler.site_policy.holdings import part_of
from flux.scheduler.site_policy.preemption.answers import PreemptionAnswers
from flux.scheduler.site_policy.preemption.borrowed_time import BorrowedTime, Borrower
from flux.scheduler.site_policy.preemption.chooser import (
    Choice,
    Chooser,
    Running,
    jobs_of_classes,
)
from flux.scheduler.site_policy.preemption.classes import (
    Classes,
    PreemptionClass,
    Standing,
    kill_timeout_of,
    read_class,
)
from flux.scheduler.site_policy.preemption.counts import PreemptionCounts
from flux.scheduler.site_policy.preemption.messenger import EXCEPTION, Messenger
from flux.scheduler.site_policy.preemption.record import (
    DECIDED,
    ENDING,
    KEY,
    OVER,
    VERSION,
    WARNED,
    Preemption,
    Victim,
)
from flux.scheduler.site_policy.preemption.trial import KeptTrial
from flux.scheduler.site_policy.preemption.victims import needed
from flux.scheduler.site_policy.table_rule import TableRule

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.attributes import SystemAttributes
    from flux.scheduler.host import ErrorReporter, Timer
    from flux.scheduler.requests import PendingJob, RunningJob
    from flux.scheduler.rule_host import RuleHost

#: Seconds between two looks: what happens meanwhile is looked at together, after the pass that may
#: start jobs without ending others.
LOOK_INTERVAL_S = 1.0

#: Jobs that different requests make in one look, each of which costs a copy of the pool.
JOBS_PER_LOOK = 8

#: How often a job takes: once, and again twice if its ranks are lost or a victim cannot be ended.
MOST_TRIES = 3

#: Seconds for which a job that is being cleaned up is waited for before others are ended.
CLEAN_UP_WAIT_S = 60.0

#: Seconds after the start in which a job of a record has to come back.
COME_BACK_S = 5.0

#: Weight of a new sample in the average time that cleaning up takes.
CLEAN_UP_WEIGHT = 0.25

#: Ids in the pool and the plan that are no job's, downwards from here; reservations have others.
FIRST_ID = -(1 << 40)


class PreemptionRule(TableRule):
    """Ends running jobs for waiting ones, as the table ``[preemption]`` says.

    Args:
        host (RuleHost): the scheduler
        errors (ErrorReporter): where trouble is reported

    Attributes:
        active (dict): by the id of the job that takes, the preemptions under way
        counts (PreemptionCounts): what was done so far
        chooser (Chooser): finds whom a job would take from
        borrowed (BorrowedTime): the jobs that run in time which was promised to others
    """

    name = "preemption"
    table = "preemption"

    host: RuleHost

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        self._classes = Classes({}, host.queue_names)
        #: by id, the jobs that wait and what their classes mean for them
        self._waiting: dict[int, tuple[PendingJob, Standing]] = {}
        #: by id, the jobs that run
        self._running: dict[int, Running] = {}
        #: ids of running jobs that are ending by themselves, with when that was noticed
        self._ending: dict[int, float] = {}
        #: ids of running jobs that could not be asked about or ended: they are left alone
        self._left_alone: set[int] = set()
        #: ids of running jobs that are being ended for another by an exception, found at the start
        self._found_ended: set[int] = set()
        self.active: dict[int, Preemption] = {}
        #: by the id of a victim, the preemption that it gives way to
        self._giving_way: dict[int, Preemption] = {}
        self._tries: dict[int, int] = {}
        #: by id, what was logged of a job that would have taken
        self._logged: dict[int, tuple[int, ...]] = {}
        self._stored_ones: list[Preemption] = []  # that the KVS had at the start
        self._stored_borrowers: list[Borrower] = []
        self.borrowed = BorrowedTime(host, self)
        self.counts = PreemptionCounts()
        self.chooser = Chooser(host, self)
        self._messenger = Messenger(host.handle, errors)
        self.answers = PreemptionAnswers(host, self)
        self._ids = itertools.count(FIRST_ID, -1)
        self._clean_up: float | None = None
        self._private = False
        self._timer: Timer | None = None
        self._looked_at = -inf
        #: whether it is tried to start a job that need not be the next to start
        self._out_of_turn = False
        #: jobs still to be considered in the look under way
        self._left: list[tuple[Any, int, PendingJob]] = []

    # -- the table ---------------------------------------------------------------------------------

    def parse(self, key: str, value: Any) -> PreemptionClass:
        return read_class(key, value)

    def needs(self, entries: dict[str, Any]) -> tuple[str, ...]:
        return ("jobspec", "eventlog")

    def configure(self, entries: dict[str, Any]) -> None:
        self._classes = Classes(entries, self.host.queue_names)
        self._waiting.clear()
        self._running.clear()
        self._read_settings(self.host.configuration())
        if not entries:
            for preemption in list(self.active.values()):
                self._give_up(preemption, "the table was removed", "configuration")
            self.borrowed.void("the table was removed")

    def configured(self) -> None:
        for preemption in self.active.values():
            self._set_apart(preemption)  # it is among those that wait again
        self._look_soon()

    def config_changed(self, config: dict[str, Any]) -> None:
        self._read_settings(config)

    def _read_settings(self, config: dict[str, Any]) -> None:
        self.chooser.kill_timeout = kill_timeout_of(config)
        self._private = is_private(config)

    # -- what is known of jobs ---------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        standing = self._classes.standing(attributes)
        self._waiting[job.jobid] = (job, standing)
        preemption = self.active.get(job.jobid)
        if preemption is not None and preemption.request is None:
            self._came_back(preemption, job)
        elif self._may_take(standing):
            self._look_soon()

    def request_changed(self, job: PendingJob) -> None:
        found = self._waiting.get(job.jobid)
        if found is not None and self._may_take(found[1]):
            self._look_soon()

    def signature(self, job: PendingJob) -> Hashable:
        found = self._waiting.get(job.jobid)
        if found is None or found[1].of is None:
            return None
        cls = found[1].of
        # How long it runs undisturbed is a part of whether it may start into promised time.
        return (cls.name, found[1].after) if cls.into_promises else cls.name

    def cancel(self, jobid: int) -> None:
        self._waiting.pop(jobid, None)
        self._tries.pop(jobid, None)
        self._logged.pop(jobid, None)
        preemption = self.active.get(jobid)
        if preemption is not None:
            self._give_up(preemption, f"{self._taker_text(preemption)} is gone", "gone")
        if self.borrowed:
            gone = self.borrowed.taker_leaves(jobid, "the job of that time is gone")
            self.counts.ended_uselessly(gone, "gone")

    def start(self, job: PendingJob, alloc: ResourcePool) -> None:
        found = self._waiting.pop(job.jobid, None)
        self._tries.pop(job.jobid, None)
        self._logged.pop(job.jobid, None)
        if found is not None:
            running = Running(job.jobid, found[1], self.host.now(), job.userid)
            self._running[job.jobid] = running
            if found[1].of is not None:
                self._look_soon()
        preemption = self.active.get(job.jobid)
        if preemption is not None:
            self._taker_starts(preemption)
        borrower = self.borrowed.started(job.jobid)
        if borrower is not None:
            self.counts.borrows(borrower.victim)
        if self.borrowed and self.borrowed.taker_leaves(
            job.jobid, "the job of that time has started without that"
        ):
            self.counts.takers += 1

    def annotations(self, job: PendingJob) -> dict[str, Any]:
        borrower = self.borrowed.borrowers.get(job.jobid)
        return {} if borrower is None else {"t_preempt": self.borrowed.deadline(borrower)}

    def hello(self, job: RunningJob) -> None:
        found = self.host.running.get(job.jobid)
        start = self.host.now() if found is None else found.start
        standing = self._classes.standing(job.attributes)
        self._running[job.jobid] = Running(job.jobid, standing, start, job.userid)
        if job.unreadable:
            self._left_alone.add(job.jobid)
        for event in job.eventlog:
            context = event.get("context") or {}
            if event.get("name") == "exception" and context.get("severity") == 0:
                self._ending.setdefault(job.jobid, self.host.now())
                if context.get("type") == EXCEPTION:
                    self._found_ended.add(job.jobid)
            elif event.get("name") == "finish":
                self._ending.setdefault(job.jobid, self.host.now())

    def free(self, jobid: int, R: Any, final: bool) -> None:
        if final:
            ended_at = self.borrowed.freed(jobid, R)
            if ended_at is not None:
                self._learn_clean_up(self.host.now() - ended_at)
            self._running.pop(jobid, None)
            self._ending.pop(jobid, None)
            self._left_alone.discard(jobid)
        else:
            self._ending.setdefault(jobid, self.host.now())
        preemption = self._giving_way.get(jobid)
        if preemption is not None and final:
            del self._giving_way[jobid]
            preemption.held.discard(jobid)
            if jobid in preemption.ended:
                self._learn_clean_up(self.host.now() - preemption.deadline)
        # Before anybody looks at what has come back: it is kept for who it was taken for, and only
        # what is left of it for others that have taken on the same ranks.
        if preemption is not None:
            self._keep_from_victim(preemption, R)
        for one in list(self.active.values()):
            if one is not preemption:
                self._keep_again(one)
        for one in list(self.active.values()):
            self._try_to_start(one)
        self._start_takers()
        self._look_soon()

    def extended(self, jobid: int, expiration: float) -> bool:
        preemption = self._giving_way.get(jobid)
        if preemption is not None:
            end = self._planned_end(preemption, expiration or inf)
            self.host.resources.update_expiration(jobid, end)
            return True
        return self.borrowed.extended(jobid, expiration)

    def plan_void(self) -> None:
        self.borrowed.void("promises were made anew")

    def check(self, job: PendingJob) -> Deferral | None:
        if self.borrowed:
            self.borrowed.review()
        return None

    def pins_promises(self) -> bool:
        return bool(self.borrowed)

    def promise_stays(self, job: PendingJob) -> bool:
        if not self.borrowed:
            return False
        self.borrowed.review()
        plan = self.host.planning.current()
        return plan is not None and self.borrowed.stays(job, plan)

    def ranks_changed(self, lost: bool) -> None:
        for preemption in list(self.active.values()):
            if preemption.request is not None and not self._lost_a_node(preemption):
                self._keep_again(preemption)
        self._start_takers()
        self._look_soon()

    def _lost_a_node(self, preemption: Preemption) -> bool:
        """Whether a node that is kept for a job went down: then the job looks again."""
        lost = preemption.ranks & ~self.host.resources.eligible_ranks(preemption.request)
        if lost:
            self._again(preemption, "a node kept for it went down", "node")
        return bool(lost)

    # -- as grounds for a choice -------------------------------------------------------------------

    def running(self) -> Iterable[Running]:
        """The running jobs."""
        return self._running.values()

    def about_to_end(self) -> list[int]:
        """Ids of running jobs that are being cleaned up, and not for long yet."""
        since = self.host.now() - CLEAN_UP_WAIT_S
        return [
            jobid
            for jobid, noticed in self._ending.items()
            if noticed >= since and jobid not in self._giving_way and jobid in self._running
        ]

    def is_spared(self, jobid: int) -> bool:
        """Whether a running job cannot give way: it ends already, or cannot be ended."""
        return jobid in self._giving_way or jobid in self._ending or jobid in self._left_alone

    def clean_up(self) -> float:
        """How long it takes, after the deadline, until the resources of an ended job come back,
        in seconds: an average, at first the time that its tasks have before they are killed."""
        return self.chooser.kill_timeout if self._clean_up is None else self._clean_up

    def kill_time(self) -> float:
        """How long before a promised time a job is to be ended that is in the way, in seconds: the time
        that its tasks have, and what cleaning up has taken so far."""
        return self.chooser.kill_timeout + (self._clean_up or 0.0)

    def is_borrowing_from_another(self, jobid: int, taker: int) -> bool:
        """Whether a running job is in time that was promised to another job than `taker`."""
        borrower = self.borrowed.borrowers.get(jobid)
        return borrower is not None and borrower.taker != taker

    def _learn_clean_up(self, seconds: float) -> None:
        seconds = max(0.0, seconds)
        before = self._clean_up
        self._clean_up = (
            seconds if before is None else before + CLEAN_UP_WEIGHT * (seconds - before)
        )

    def standing_of(self, jobid: int) -> Standing | None:
        """What the class of a waiting job means for it; None: it does not wait."""
        found = self._waiting.get(jobid)
        return None if found is None else found[1]

    def class_of(self, name: str) -> PreemptionClass | None:
        """A class by its name; None: there is none any more."""
        return self._classes.entries.get(name)

    def next_id(self) -> int:
        """An id in the pool and the plan that is no job's."""
        return next(self._ids)

    # -- looking -----------------------------------------------------------------------------------

    def _may_take(self, standing: Standing) -> bool:
        return standing.rank > self._classes.lowest() and not standing.in_reservation

    def _look_soon(self) -> None:
        self._look_at(max(self.host.now(), self._looked_at) + LOOK_INTERVAL_S)

    def _look_at(self, when: float) -> None:
        timer = self._timer
        if timer is not None:
            if timer.when <= when:
                return
            timer.cancel()
        self._timer = self.host.call_at(when, self._look)

    def _look(self) -> None:
        """Look for jobs that may take."""
        self._timer = None
        if not self.entries:
            return
        self._looked_at = now = self.host.now()
        classes, aging = self._classes_running(now)
        if not classes and aging == inf:
            return  # nobody could give way, whoever waits
        lowest = min([one.rank for one in classes.values()], default=inf)
        next_look = aging
        takers = []
        for job in self._who_could_start():
            found = self._waiting.get(job.jobid)
            if found is None or not self._is_free_to_take(job, found[1]):
                continue
            standing = found[1]
            if not standing.rank > lowest:
                continue
            waits = [one.wait for one in classes.values() if one.rank < standing.rank]
            due = job.came + min(waits)
            if now < due:
                next_look = min(next_look, due)
            else:
                takers.append((job.order, job.jobid, job))
                later = [job.came + wait for wait in waits if job.came + wait > now]
                next_look = min([next_look, *later])
        if next_look < inf:
            self._look_at(max(next_look, now + LOOK_INTERVAL_S))
        self._left = self._different(heapq.nsmallest(16 * JOBS_PER_LOOK, takers))
        self._consider_next()

    def _who_could_start(self) -> Iterable[PendingJob]:
        """The waiting jobs that would start if there were room: where nobody goes ahead of those
        that wait, the first."""
        if self.host.decision.looks_past_heads:
            return [job for job, _ in self._waiting.values()]
        return [job for job, _ in self.host.queue_order.heads()]

    def _is_free_to_take(self, job: PendingJob, standing: Standing) -> bool:
        return (
            self._may_take(standing)
            and job.jobid not in self.active
            and not job.request.finalized
            and self._tries.get(job.jobid, 0) < MOST_TRIES
            and not self.host.admission.is_deferred(job.jobid)
        )

    def _classes_running(self, now: float) -> tuple[dict[str, PreemptionClass], float]:
        """The classes of running jobs that may give way now, and when the next one may."""
        classes: dict[str, PreemptionClass] = {}
        aging = inf
        for one in self._running.values():
            cls = one.standing.of
            if cls is None or self.is_spared(one.jobid) or one.standing.in_reservation:
                continue
            ripe = one.start + one.standing.after
            if ripe > now:
                aging = min(aging, ripe)
            else:
                classes[cls.name] = cls
        return classes, aging

    def _different(
        self, takers: list[tuple[Any, int, PendingJob]]
    ) -> list[tuple[Any, int, PendingJob]]:
        """Of jobs in their order, the first of each request: what is found of it holds for the
        others."""
        seen = set()
        different = []
        for one in takers:
            job = one[2]
            key = (job.signature, job.limit)
            if job.signature is None or key not in seen:
                seen.add(key)
                different.append(one)
        return different[:JOBS_PER_LOOK]

    def _consider_next(self) -> None:
        """Consider one job; the next one in another turn of the reactor."""
        if not self._left:
            return
        _, _, job = self._left.pop(0)
        if self._left:
            self.host.call_at(self.host.now(), self._consider_next)
        found = self._waiting.get(job.jobid)
        if found is not None and self._is_free_to_take(job, found[1]):
            self._consider(job, found[1], frozenset())

    def _consider(self, job: PendingJob, standing: Standing, alive: frozenset[int]) -> None:
        """Find out whom a job has to take from, and do it once it is known that they run.

        Args:
            alive: ids of jobs that run, as the job manager has just said
        """
        choice = self.chooser.consider(job, standing, self.host.now() - job.came)
        if choice.reason is not None:
            return
        if any(self._classes.entries[one.cls].log_only for one in choice.victims):
            self._log_only(job, choice)
            return
        # Of jobs that could as well have been chosen one may be about to make room by itself.
        wanted = dict.fromkeys([*(one.jobid for one in choice.victims), *choice.others])
        unknown = [jobid for jobid in wanted if jobid not in alive]
        if not unknown:
            self._decide(job, standing, choice)
            return

        def told(found: dict[int, dict[str, Any] | None]) -> None:
            running = alive
            for jobid, answer in found.items():
                if answer is None:
                    self._left_alone.add(jobid)
                elif _has_ended(answer["eventlog"]):
                    self._ending.setdefault(jobid, self.host.now())
                else:
                    running |= {jobid}
            now_waiting = self._waiting.get(job.jobid)
            if now_waiting is not None and self._is_free_to_take(job, now_waiting[1]):
                self.errors.guard(
                    f"preemption for {job.name}", self._consider, job, now_waiting[1], running
                )

        ask_job_attributes(self.host.handle, unknown, ("eventlog",), self.host.log, told)

    def _log_only(self, job: PendingJob, choice: Choice) -> None:
        victims = tuple(one.jobid for one in choice.victims)
        if self._logged.get(job.jobid) == victims:
            return
        self._logged[job.jobid] = victims
        self.counts.only_logged(choice.victims)
        names = ", ".join(name_of(jobid) for jobid in victims)
        self.host.log.info(
            f"preemption (mode=log): {job.name} could start by ending {names}: {choice.text()}"
        )

    # -- deciding ----------------------------------------------------------------------------------

    def _decide(self, job: PendingJob, standing: Standing, choice: Choice) -> None:
        """Jobs are going to give way."""
        host, now = self.host, self.host.now()
        deadline = now + self._grace(choice.victims)
        preemption = Preemption(
            job.jobid,
            standing.queue,
            job.userid,
            choice.victims,
            choice.ranks,
            now,
            deadline,
            deadline + self.clean_up(),
        )
        preemption.request = job.resource_request
        if not self._keeps_promises(preemption, job):
            return
        self._tries[job.jobid] = self._tries.get(job.jobid, 0) + 1
        self.borrowed.give_back_all(job.jobid, "the job of that time starts earlier")
        self._enter(preemption)
        # What the plan has of this job is another time from now on.
        self._set_apart(preemption)
        names = ", ".join(name_of(one.jobid) for one in choice.victims)
        host.log.info(f"preemption: {names} are to end for {job.name}: {choice.text()}")
        self.store_record(lambda: self._recorded(preemption))
        host.look_again()

    def _grace(self, victims: Iterable[Victim]) -> float:
        entries = self._classes.entries
        return max([entries[one.cls].grace for one in victims if one.cls in entries], default=0.0)

    def _planned_end(self, preemption: Preemption, end: float) -> float:
        """The end that the plan is told of a victim, whose own is `end` (infinite: it has none); 0:
        none.

        Where promises are made, they must hold whether the victim ends or not: its resources are in
        use until it would end by itself or the job would that takes them, whichever is later. In
        strict order nobody is promised anything, and the estimate of the job is to be right.
        """
        if not self.host.decision.looks_past_heads:
            return min(end, preemption.expected)
        end = max(end, self._end_of_taker(preemption))
        return end if isfinite(end) else 0.0

    def _end_of_taker(self, preemption: Preemption) -> float:
        """When the job will end that takes; infinite: nobody knows."""
        length = getattr(preemption.request, "duration", 0.0)
        # It may start later than was expected: a clean-up takes its time, and a scheduler its reload.
        return max(preemption.expected, self.host.now()) + length if length > 0 else inf

    def _kept_until(self, preemption: Preemption) -> float:
        """The end that the plan is told of what is free and kept for the job; 0: none."""
        if not self.host.decision.looks_past_heads or preemption.request is None:
            return max(preemption.expected, self.host.now() + 1.0)
        end = self._end_of_taker(preemption)
        return max(end, self.host.now() + 1.0) if isfinite(end) else 0.0

    def _keeps_promises(self, preemption: Preemption, job: PendingJob) -> bool:
        """Whether no promise is broken that would be kept otherwise, if the victims do not end: the
        decision is tried and taken back."""
        plan, pool = self.host.planning.current(), self.host.resources
        if plan is None or not self.host.decision.looks_past_heads:
            return True
        promised = plan.promises().get(job.jobid)
        plan.cancel(job.jobid)
        borrowers = self.borrowed.of(job.jobid)
        rests = [self.borrowed.lift_rest(one) for one in borrowers]
        others = {one.victim.jobid: one.limit for one in borrowers}
        ends = {jobid: pool.job_end(jobid) for jobid in {*preemption.held, *others}}

        def victims_may_stay() -> None:
            for jobid, end in ends.items():
                own = others.get(jobid, end or inf)
                if jobid in preemption.held:
                    pool.update_expiration(jobid, self._planned_end(preemption, own))
                else:
                    pool.update_expiration(jobid, own if isfinite(own) else 0.0)

        kept = not self._breaks_a_promise(preemption, victims_may_stay)
        for jobid, end in ends.items():
            pool.update_expiration(jobid, end)
        for put_back in rests:
            put_back()
        if promised is not None:
            try:
                if promised[1] == inf and promised[0] <= self.host.now():
                    plan.hold(job.jobid, job.resource_request)
                else:
                    plan.reserve(job.jobid, job.resource_request, promised[0])
            except InsufficientResources:
                self.host.planning.renew()
        return kept

    def _is_promised(self, preemption: Preemption) -> bool:
        """Whether what is free of a preemption's ranks, and not kept yet, is promised to others: to
        keep it would break that."""
        return self._breaks_a_promise(preemption, lambda: None)

    def _breaks_a_promise(self, preemption: Preemption, prepare: Callable[[], None]) -> bool:
        """Whether a promise that can be kept now cannot be if something is prepared and what is free
        of a preemption's ranks is kept. What was prepared is not taken back."""
        plan, pool = self.host.planning.current(), self.host.resources
        if plan is None or not self.host.decision.looks_past_heads:
            return False
        held: list[int | None] = []

        def hold() -> None:
            prepare()
            held.append(self._hold(preemption))

        def free() -> None:
            for jobid in held:
                if jobid is not None:
                    pool.free(jobid)

        return plan.would_break(hold, free)

    def _enter(self, preemption: Preemption) -> None:
        """A preemption is under way."""
        self.active[preemption.taker] = preemption
        pool = self.host.resources
        for jobid in preemption.held:
            self._giving_way[jobid] = preemption
            if preemption.request is not None:
                end = self._planned_end(preemption, pool.job_end(jobid) or inf)
                pool.update_expiration(jobid, end)
        self._keep(preemption)

    # -- what is kept for a job --------------------------------------------------------------------

    def _keep(self, preemption: Preemption) -> None:
        """Keep what is free of a preemption's ranks for its job."""
        self._let_go(preemption)
        jobid = self._hold(preemption)
        if jobid is not None:
            preemption.placeholders.append(jobid)

    def _keep_from_victim(self, preemption: Preemption, R: Any) -> None:
        """Keep what a victim gives back, R. Once victims are being ended, what else has become free on
        their ranks was promised to others, or is withheld (`_keep_again`): with that the job might do
        without some of them."""
        if preemption.state != ENDING:
            self._keep(preemption)
            return
        part = part_of(R, preemption.ranks & self.host.resources.eligible_ranks())
        if part is None:
            return
        jobid = self.hold_R(part, self._kept_until(preemption))
        if jobid is None:
            self._keep(preemption)
        else:
            preemption.placeholders.append(jobid)

    def hold_R(self, R: dict[str, Any], until: float) -> int | None:
        """Allocate R, which has just come back, to nobody, until a time in seconds since the epoch.
        Returns the id of that allocation; None: a reservation that was short of nodes has taken some
        of it."""
        jobid, pool = next(self._ids), self.host.resources
        try:
            pool.register_alloc(jobid, R)
        except ValueError:
            return None
        pool.update_expiration(jobid, until)
        return jobid

    def _hold(self, preemption: Preemption) -> int | None:
        """Allocate what is free of a preemption's ranks to nobody. Returns the id of that allocation;
        None: nothing is free."""
        jobid = next(self._ids)
        until = self._kept_until(preemption)
        return jobid if self.host.resources.hold_free(jobid, preemption.ranks, until) else None

    def _keep_again(self, preemption: Preemption) -> None:
        """Something is free that may not come from a victim: in the grace the job may have it,
        unless it was promised to others."""
        if self._is_promised(preemption):
            return
        if preemption.state == ENDING:
            self._withhold(preemption)
        else:
            self._keep(preemption)

    def _withhold(self, preemption: Preemption) -> int | None:
        """Allocate what is free of a preemption's ranks, and not kept for its job, to nobody, so that
        the job starts on what is kept. Otherwise those that were ended for it might not have needed
        to be. Returns the id of that allocation; None: nothing is free."""
        jobid = self._hold(preemption)
        if jobid is not None:
            preemption.withheld.append(jobid)
        return jobid

    def _let_go(self, preemption: Preemption) -> None:
        for placeholder in preemption.placeholders:
            self.host.resources.free(placeholder)
        preemption.placeholders.clear()

    # -- telling the victims -----------------------------------------------------------------------

    def _recorded(self, preemption: Preemption) -> None:
        """The record is stored: from now on something may be done."""
        if preemption.state != DECIDED:
            return
        now = self.host.now()
        grace = self._grace(preemption.victims.values())
        if now - preemption.decided > LOOK_INTERVAL_S and grace > 0:
            # Storing it took long, and the grace was promised in full.
            preemption.expected += now - preemption.decided
            preemption.decided, preemption.deadline = now, now + grace
            self.store_record(lambda: self._recorded(preemption))
            return
        preemption.move("stored")
        if preemption.deadline > now:
            for jobid in sorted(preemption.held):
                self.warn(preemption.victims[jobid], preemption.deadline, preemption.queue)
            preemption.timer = self.host.call_at(
                preemption.deadline, lambda: self._deadline(preemption)
            )
        else:
            self._deadline(preemption)

    def warn(self, victim: Victim, deadline: float, queue: str | None) -> None:
        """Tell a job that it will be ended, for a job of a queue."""
        when = time.strftime("%H:%M:%S", time.localtime(deadline))
        self._messenger.warn(victim.jobid, f"will end at {when} for a job{_of(queue)}")
        cls = self._classes.entries.get(victim.cls)
        if cls is not None and cls.signal:
            self._messenger.signal(victim.jobid, cls.signal)

    def spare(self, jobid: int, why: str) -> None:
        """Tell a job that was warned that it runs on."""
        self._messenger.warn(jobid, f"will not be ended now: {why}")

    def _deadline(self, preemption: Preemption) -> None:
        """The grace is over."""
        if preemption.state != WARNED or self.active.get(preemption.taker) is not preemption:
            return
        if preemption.request is None:
            return  # after a reload, the job itself has not come back yet
        job = self.host.pending(preemption.taker)
        if job is None:
            self._give_up(preemption, f"{self._taker_text(preemption)} is gone", "gone")
            return
        try:
            self.host.admission.check(job)
        except (InsufficientResources, InfeasibleRequest) as why:  # the first, if it is deferred
            self._give_up(preemption, str(why), "rule")
            return
        # Something may have become free of which nobody has told this rule, such as a node.
        self._try_to_start(preemption)
        if self.active.get(preemption.taker) is not preemption:
            return
        if not self._spare(preemption):
            self._again(preemption, "it would not fit there any more", "node")
            return
        if not preemption.held:
            self._again(preemption, "nobody has to end for it, and it does not start", "node")
            return
        preemption.move("deadline")
        for jobid in sorted(preemption.held - preemption.ended):
            self._end(preemption, preemption.victims[jobid])

    def _spare(self, preemption: Preemption) -> bool:
        """Leave alone those that need not end, since others have made room in the grace.

        Returns:
            False: the job would not fit even if all ended
        """
        plan = self.host.planning.current()
        if plan is None:
            return True
        kept = preemption.placeholders
        victims = [jobid for jobid in preemption.victims if jobid in preemption.held]
        pool = plan.pool.copy()
        if self._is_promised(preemption):
            # What else is free there the job will not get.
            pool.hold_free(next(self._ids), preemption.ranks, self._kept_until(preemption))
        trial = KeptTrial(pool, preemption.request, preemption.ranks, kept, plan.claims)
        for jobid in victims:
            trial.take_out(jobid)
        if not trial.fits():
            return False
        spared = set(victims) - needed(victims, trial)
        for jobid in sorted(spared):
            self._runs_on(jobid)
            self.spare(jobid, "others have made room")
            preemption.held.discard(jobid)
            del preemption.victims[jobid]
        if spared:
            self.store_record(lambda: None)
        return True

    def _runs_on(self, jobid: int) -> None:
        """A victim does not give way any more: the plan is told its own end again."""
        self._giving_way.pop(jobid, None)
        running = self.host.running.get(jobid)
        if running is not None:
            end = running.end if isfinite(running.end) else 0.0
            self.host.resources.update_expiration(jobid, end)

    def _end(self, preemption: Preemption, victim: Victim) -> None:
        preemption.ended.add(victim.jobid)

        def refused() -> None:
            if self.active.get(preemption.taker) is preemption:
                self._again(preemption, f"{name_of(victim.jobid)} cannot be ended", "refused")

        self.end_one(
            victim,
            preemption.taker,
            preemption.queue,
            refused,
            lambda: preemption.ended.discard(victim.jobid),
        )

    def end_one(
        self,
        victim: Victim,
        taker: int,
        queue: str | None,
        refused: Callable[[], None],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """End a job for another, and count it.

        Args:
            taker: id of the job for which
            queue: of that job
            refused: called if the job manager refuses, and the job runs on
            failed: called before, also if the job has ended by itself meanwhile
        """
        now = self.host.now()
        ran = duration_text(max(0.0, now - victim.start), 2)
        for_whom = self._text_of(taker, queue)
        of_queue = f" ({queue})" if queue and not self._private else ""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        self._messenger.mark(victim.jobid, f"{stamp} for {for_whom}, class {victim.cls}")

        def done(error: int) -> None:
            if error == 0:
                self.counts.ended(victim, now)
                return
            failed()
            if victim.jobid in self._running and error not in (0, 2):
                self._left_alone.add(victim.jobid)
                refused()

        self._messenger.end(victim.jobid, f"preempted for {for_whom}{of_queue}; ran {ran}", done)

    def _taker_text(self, preemption: Preemption) -> str:
        return self._text_of(preemption.taker, preemption.queue)

    def _text_of(self, taker: int, queue: str | None) -> str:
        return f"a job{_of(queue)}" if self._private else name_of(taker)

    # -- its end -----------------------------------------------------------------------------------

    def _taker_starts(self, preemption: Preemption) -> None:
        """The job for whom it is starts."""
        self.counts.served(preemption)
        self._over(preemption, f"{self._taker_text(preemption)} has started without that")
        # Where it started later than the plan was told, it ends later, too.
        plan = self.host.planning.current() if self.host.decision.looks_past_heads else None
        if plan is not None and plan.breaks_a_promise():
            self.host.planning.renew()

    def _give_up(self, preemption: Preemption, why: str, cause: str) -> None:
        """The job does not start on what was kept for it."""
        self.counts.useless(preemption, cause)
        self.host.log.info(f"preemption for {name_of(preemption.taker)} is given up: {why}")
        self._over(preemption, why)

    def _over(self, preemption: Preemption, why: str) -> None:
        """A preemption is over; victims that were warned and not ended are told so."""
        was = preemption.state
        preemption.move("withdraw")
        if preemption.timer is not None:
            preemption.timer.cancel()
        del self.active[preemption.taker]
        kept = bool(preemption.placeholders or preemption.withheld)
        self._let_go(preemption)
        for withheld in preemption.withheld:
            self.host.resources.free(withheld)
        preemption.withheld.clear()
        for other in self.active.values():
            if other.state == ENDING:
                self._keep_again(other)
        if kept:
            self.host.look_again()  # no message need have led to this, after which a pass would follow
        for jobid in sorted(preemption.held):
            self._runs_on(jobid)
            if jobid in preemption.ended:
                self._ending.setdefault(jobid, self.host.now())
            elif was == WARNED:
                self.spare(jobid, why)
        self.store_record(lambda: None)
        if self.entries:
            self.host.readmit(self, preemption.taker)
            self._look_soon()

    def _again(self, preemption: Preemption, why: str, cause: str) -> None:
        """What was kept for a job is lost: it looks again, unless it has done so too often."""
        self._give_up(preemption, why, cause)
        found = self._waiting.get(preemption.taker)
        if found is not None and self._is_free_to_take(*found):
            # At once, before somebody else has what was kept.
            self._consider(found[0], found[1], frozenset())

    # -- the job that takes ------------------------------------------------------------------------

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        preemption = self.active.get(job.jobid)
        if preemption is None:
            return self._allocate_in_promises(job, plan)
        pool = self.host.resources
        withheld = None
        if preemption.state == ENDING or self._is_promised(preemption):
            withheld = self._withhold(preemption)
        self._let_go(preemption)
        try:
            ranks = preemption.ranks & ~plan.closed_now(job.jobid, job.resource_request)
            alloc = pool.alloc_on(job.jobid, job.resource_request, ranks)
            plan.note_started(job.jobid)
            return alloc
        except InsufficientResources:
            pass
        if preemption.state != ENDING and (
            self.host.decision.looks_past_heads or not self._out_of_turn
        ):
            try:
                return plan.alloc(job.jobid, job.resource_request)
            except InsufficientResources:
                pass
        self._keep(preemption)
        if withheld is not None:
            preemption.withheld.remove(withheld)
            pool.free(withheld)
            self._keep_again(preemption)
        deferral = self._deferral(preemption)
        if self.host.decision.looks_past_heads:
            raise JobDeferred(self, deferral)
        # In strict order the jobs behind it wait for it, as before.
        raise InsufficientResources(deferral.reason)

    def _allocate_in_promises(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        """What a job has of time that is, or was, promised; None: it takes what is there for all."""
        found = self._waiting.get(job.jobid)
        if found is None:
            return None
        alloc = self.borrowed.start_taker(job, plan) if self.borrowed else None
        if alloc is None and found[1].of is not None and found[1].of.into_promises:
            try:
                alloc = plan.alloc(job.jobid, job.resource_request)
            except InsufficientResources:
                alloc = self.borrowed.offer(job, found[1], plan)
        return alloc

    def taken_back(self, jobid: int) -> None:
        self.borrowed.taken_back(jobid)
        preemption = self.active.get(jobid)
        if preemption is not None:
            self._keep(preemption)  # another rule does not let the job start

    def _set_apart(self, preemption: Preemption) -> None:
        """A job for which others end waits apart from the queue, unless jobs start in strict order:
        there those behind it wait for it, as before."""
        host, job = self.host, self.host.pending(preemption.taker)
        if (
            job is not None
            and host.decision.looks_past_heads
            and not host.admission.is_deferred(job.jobid)
        ):
            host.set_apart(job, JobDeferred(self, self._deferral(preemption)))

    def _try_to_start(self, preemption: Preemption) -> None:
        """Start the job if it fits now; one that waits in the queue is started from there."""
        job = self.host.pending(preemption.taker)
        if (
            job is None
            or self.active.get(preemption.taker) is not preemption
            or preemption.request is None
        ):
            return
        self._set_apart(preemption)
        why = self._start_out_of_turn(job)
        if why is not None and why.rule is not self:
            self._give_up(preemption, str(why), "rule")

    def _start_takers(self) -> None:
        """Start the jobs for which others have given up promised time, as soon as they fit: what is kept
        for them is free to no pass."""
        for jobid in self.borrowed.waited_for():
            job = self.host.pending(jobid)
            if job is not None and not self.host.admission.is_deferred(jobid):
                self._start_out_of_turn(job)

    def _start_out_of_turn(self, job: PendingJob) -> JobDeferred | None:
        """Start a job if it fits now, be others before it in the queue or not. Returns why it is
        deferred, if it is."""
        host = self.host
        self._out_of_turn = True
        try:
            alloc = host.allocate(job, host.planning.current())
        except InfeasibleRequest as exc:
            host.refuse(job, exc)
        except JobDeferred as why:
            return why
        except InsufficientResources:
            pass  # it is tried again at the next event
        else:
            if host.decision.keeps_times and not host.admission.is_deferred(job.jobid):
                # So that it gives up what it was promised.
                host.set_apart(job, JobDeferred(self, Deferral("it starts", key=job.jobid)))
            host.start_set_apart(self, job, alloc, selection_type="reserved")
        finally:
            self._out_of_turn = False
        return None

    def _deferral(self, preemption: Preemption) -> Deferral:
        return Deferral(self._reason(preemption), preemption.expected, preemption.taker)

    def _reason(self, preemption: Preemption) -> Reason:
        classes = jobs_of_classes(preemption.victims.values())
        if preemption.state == ENDING:
            return Reason(f"waits for {classes} to end", "waits for resources that are given back")
        when = time.strftime("%H:%M:%S", time.localtime(preemption.deadline))
        return Reason(
            f"{classes} end for it at {when}", f"resources are given back for it at {when}"
        )

    def why(self, job: PendingJob) -> str | None:
        preemption = self.active.get(job.jobid)
        return None if preemption is None else self._reason(preemption)

    # -- over a reload -----------------------------------------------------------------------------

    def pool_made(self) -> None:
        def parse(stored: Any) -> tuple[list[Preemption], list[Borrower]]:
            if stored["version"] != VERSION:
                raise ValueError(f"version {stored['version']!r}")
            preemptions = [Preemption.from_dict(one) for one in stored["preemptions"]]
            return preemptions, [Borrower.from_dict(one) for one in stored.get("borrowers", ())]

        try:
            found = read_stored(self.host.handle, KEY, parse)
        except OSError:
            return  # without a record nobody is ended
        except ValueError as exc:
            self.errors.report(f"nobody is ended: {exc}")
            return
        if found is not None:
            self._stored_ones, self._stored_borrowers = found

    def ready(self) -> None:
        for preemption in self._stored_ones:
            preemption.held &= set(self._running)
            preemption.ended = preemption.held & self._found_ended
            preemption.move("stored")
            if preemption.held <= preemption.ended:
                preemption.move("deadline")
            for jobid in preemption.ended:
                self._ending.pop(jobid, None)
            self._enter(preemption)
        if self.host.decision.keeps_times:
            there = [one for one in self._stored_borrowers if one.victim.jobid in self._running]
            self.borrowed.restore(there, self._found_ended)
        if self._stored_ones or self._stored_borrowers:
            self.host.call_at(self.host.now() + COME_BACK_S, self._not_come_back)
        self._stored_ones, self._stored_borrowers = [], []
        self._look_soon()

    def _came_back(self, preemption: Preemption, job: PendingJob) -> None:
        """The job that takes is here again after a reload."""
        preemption.request = job.resource_request
        self._tries[job.jobid] = 1
        self._enter(preemption)  # it is known now for how long it will have what is kept
        # In a turn of its own, when it is in the queue.
        self.host.call_at(self.host.now(), lambda: self._take_up(preemption))
        if preemption.state == WARNED:
            when = max(preemption.deadline, self.host.now())
            preemption.timer = self.host.call_at(when, lambda: self._deadline(preemption))

    def _take_up(self, preemption: Preemption) -> None:
        """Go on after a reload, in which a node that is kept for the job may have gone down."""
        if self.active.get(preemption.taker) is preemption and not self._lost_a_node(preemption):
            self._try_to_start(preemption)

    def _not_come_back(self) -> None:
        for preemption in list(self.active.values()):
            if preemption.request is None:
                self._give_up(preemption, f"{self._taker_text(preemption)} is gone", "gone")
        self.borrowed.not_come_back()

    def store_record(self, stored: Callable[[], None]) -> None:
        """Record what is under way, then call ``stored()``."""
        entries = [one.to_dict() for one in self.active.values() if one.state != OVER]
        record = {"version": VERSION, "preemptions": entries}
        borrowers = self.borrowed.to_dict()
        if borrowers:
            record["borrowers"] = borrowers
        self.host.store(KEY, json.dumps(record), stored)

    # -- answers -----------------------------------------------------------------------------------

    def facts(self, job: PendingJob, expected_start: float | None, first: bool) -> dict[str, Any]:
        """What the job could take, and who runs in the time that it was promised; or None."""
        return {
            "preemption": self.answers.could_take(job),
            "borrowers": self.answers.borrowers(job),
        }

    def stats(self) -> dict[str, Iterable[Any]]:
        return {"preemptions": self.counts.by_class()}


def _has_ended(eventlog: list[dict[str, Any]]) -> bool:
    """Whether a job's events say that it has ended, or was ended."""
    for event in eventlog:
        name, context = event.get("name"), event.get("context") or {}
        if name in ("finish", "free", "clean") or (
            name == "exception" and context.get("severity") == 0
        ):
            return True
    return False


def _of(queue: str | None) -> str:
    return "" if queue is None else f" of {queue}"
