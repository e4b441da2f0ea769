# SPDX-License-Identifier: LGPL-3.0-or-later
"""Preemption: ending running jobs of a low class so that a waiting job of a higher one can start.

How it goes
===========

*Looking.* Something has changed, or a job has waited long enough: for the first waiting jobs that
may take from others it is found out whom. The job manager is asked whether these jobs still run,
since one that is being cleaned up is seen by nobody else; if one does not, it is chosen again.

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
higher class, and are ended before it.

Who does what
=============

What is known: `state` has the jobs that run and what was done, `classes` reads the table, `record` is
what is under way, and how it is stored.

What is done: `takers` looks for jobs that may take, and `chooser` finds whom from, by `victims`;
`under_way` carries a preemption out, `borrowed_time` starts jobs into promised time and ends them.
Both keep resources by placeholders (`state`), and speak to jobs by the `messenger`.

What is told: `answers` is what ``flux sched`` asks.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InsufficientResources
from flux.scheduler.disclosure import is_private
from flux.scheduler.site_policy.preemption.answers import PreemptionAnswers
from flux.scheduler.site_policy.preemption.borrowed_time import BorrowedTime
from flux.scheduler.site_policy.preemption.chooser import Chooser
from flux.scheduler.site_policy.preemption.classes import (
    PreemptionClass,
    kill_timeout_of,
    read_class,
)
from flux.scheduler.site_policy.preemption.messenger import Messenger
from flux.scheduler.site_policy.preemption.state import PreemptionState
from flux.scheduler.site_policy.preemption.takers import Takers
from flux.scheduler.site_policy.preemption.under_way import PreemptionsUnderWay
from flux.scheduler.site_policy.table_rule import TableRule

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.admission import Deferral
    from flux.scheduler.attributes import SystemAttributes
    from flux.scheduler.host import ErrorReporter
    from flux.scheduler.requests import PendingJob, RunningJob
    from flux.scheduler.rule_host import RuleHost

#: Seconds after the start in which a job of a record has to come back.
COME_BACK_S = 5.0


class PreemptionRule(TableRule):
    """Ends running jobs for waiting ones, as the table ``[preemption]`` says.

    Args:
        host (RuleHost): the scheduler
        errors (ErrorReporter): where trouble is reported

    Attributes:
        classes (Classes): the classes in force
        borrowed (BorrowedTime): the jobs that run in time which was promised to others
        answers (PreemptionAnswers): answers questions
    """

    name = "preemption"
    table = "preemption"

    host: RuleHost

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        state = PreemptionState(host, errors)
        self.classes, self._running = state.classes, state.running
        self._record, self._counts = state.record, state.counts
        chooser = Chooser(state)
        self._messenger = messenger = Messenger(state)
        self._takers = takers = Takers(
            state, chooser, lambda job, choice: self._under_way.decide(job, choice)
        )
        self.borrowed = BorrowedTime(state, messenger, takers)
        self._under_way = PreemptionsUnderWay(state, self, messenger, takers, self.borrowed)
        self.answers = PreemptionAnswers(state, takers, chooser, self.borrowed)
        self._restored = False

    # -- the table ---------------------------------------------------------------------------------

    def parse(self, key: str, value: Any) -> PreemptionClass:
        return read_class(key, value)

    def needs(self, entries: dict[str, Any]) -> tuple[str, ...]:
        return ("jobspec", "eventlog")

    def configure(self, entries: dict[str, Any]) -> None:
        self.classes.entries = entries
        #: whether jobs may start into promised time
        self._lends = any(cls.into_promises for cls in entries.values())
        self.config_changed(self.host.configuration())
        if not entries:
            for preemption in list(self._record.active.values()):
                self._under_way.give_up(preemption, "the table was removed", "configuration")
            self.borrowed.void("the table was removed")
            self._takers.waiting.clear()
            self._running.jobs.clear()

    def config_changed(self, config: dict[str, Any]) -> None:
        self._running.kill_timeout = kill_timeout_of(config)
        self._messenger.is_private = is_private(config)

    # -- a job that waits --------------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        waiting = self._takers.enter(job, self.classes.standing(attributes))
        preemption = self._record.active.get(job.jobid)
        if preemption is not None and preemption.request is None:
            self._under_way.came_back(preemption, waiting)
        elif self.classes.may_take(waiting.standing):
            self._takers.look_soon()

    def signature(self, job: PendingJob) -> Hashable:
        standing = self._takers.standing_of(job.jobid)
        if standing is None or standing.of is None:
            return None
        cls = standing.of
        # How long it runs undisturbed is a part of whether it may start into promised time.
        return (cls.name, standing.after) if cls.into_promises else cls.name

    def cancel(self, jobid: int) -> None:
        self._takers.waiting.pop(jobid, None)
        preemption = self._record.active.get(jobid)
        if preemption is not None:
            self._under_way.taker_is_gone(preemption)
        self.borrowed.gone(jobid)

    def check(self, job: PendingJob) -> Deferral | None:
        if self.borrowed:
            self.borrowed.review()
        return None

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        preemption = self._record.active.get(job.jobid)
        if preemption is not None:
            return self._under_way.allocate(job, plan, preemption)
        standing = self._takers.standing_of(job.jobid)
        if standing is None:
            return None
        alloc = self.borrowed.start_taker(job, plan) if self.borrowed else None
        if alloc is None and standing.of is not None and standing.of.into_promises:
            try:
                alloc = plan.alloc(job.jobid, job.resource_request)
            except InsufficientResources:
                alloc = self.borrowed.offer(job, standing, plan)
        return alloc

    @property
    def adds(self) -> bool:  # type: ignore[override]
        return bool(self._lends or self._record.active or self.borrowed)

    def taken_back(self, jobid: int) -> None:
        self.borrowed.taken_back(jobid)
        preemption = self._record.active.get(jobid)
        if preemption is not None:
            self._under_way.keep(preemption)

    @property
    def pins_promises(self) -> bool:  # type: ignore[override]
        return bool(self.borrowed)

    def promise_stays(self, job: PendingJob) -> bool:
        self.borrowed.review()
        plan = self.host.planning.current()
        return plan is not None and self.borrowed.stays(job, plan)

    def why(self, job: PendingJob) -> str | None:
        preemption = self._record.active.get(job.jobid)
        return None if preemption is None else preemption.reason()

    # -- a job that runs ---------------------------------------------------------------------------

    def start(self, job: PendingJob, alloc: ResourcePool) -> dict[str, Any] | None:
        waited = self._takers.waiting.pop(job.jobid, None)
        if waited is not None:
            self._running.start(job, waited.standing)
            if waited.standing.of is not None:
                self._takers.look_soon()
        preemption = self._record.active.get(job.jobid)
        if preemption is not None:
            self._under_way.taker_starts(preemption)
        self.borrowed.started(job.jobid)
        borrower = self._record.borrowers.get(job.jobid)
        return None if borrower is None else {"t_preempt": self.borrowed.deadline(borrower)}

    def hello(self, job: RunningJob) -> None:
        self._running.hello(job, self.classes.standing(job.attributes))

    def free(self, jobid: int, R: Any, final: bool) -> None:
        running = self._running.jobs.get(jobid)
        if final:
            self.borrowed.freed(jobid, R)
            self._running.jobs.pop(jobid, None)
        else:
            self._running.ends(jobid)
        self._under_way.freed(running, R, final)
        self._start_takers()
        self._takers.look_soon()

    def _start_takers(self) -> None:
        """Start the jobs for which others have given up promised time, as soon as they fit: what is kept
        for them is free to no pass."""
        for jobid in self.borrowed.waited_for():
            job = self.host.pending(jobid)
            if job is not None and jobid not in self.host.admission.deferred:
                self._under_way.start_out_of_turn(job)

    def extended(self, jobid: int, expiration: float) -> bool:
        is_victim = self._under_way.extended(jobid, expiration)
        return is_victim or self.borrowed.extended(jobid, expiration)

    # -- the start, resources and plans ------------------------------------------------------------

    def pool_made(self) -> None:
        try:
            self._record.load()
        except ValueError as exc:
            self.errors.report(f"nobody is ended: {exc}")

    def ready(self) -> None:
        if self._restored:
            for preemption in self._record.active.values():
                self._under_way.set_apart(preemption)  # it is among those that wait again
        else:
            self._restored = True
            if self._record.active or self._record.borrowers:
                self.host.call_at(self.host.now() + COME_BACK_S, self._not_come_back)
            self._under_way.restore()
            self.borrowed.restore()
        self._takers.look_soon()

    def _not_come_back(self) -> None:
        self._under_way.not_come_back()
        self.borrowed.not_come_back()

    def ranks_changed(self, lost: bool) -> None:
        self._under_way.ranks_changed()
        self._start_takers()
        self._takers.look_soon()

    def enter_plan(self, plan: Plan | None) -> None:
        if plan is None:
            self.borrowed.void("promises were made anew")

    # -- answers -----------------------------------------------------------------------------------

    def facts(self, job: PendingJob, expected_start: float | None, first: bool) -> dict[str, Any]:
        """What the job could take, and who runs in the time that it was promised; or None."""
        return {
            "preemption": self.answers.could_take(job),
            "borrowers": self.answers.borrowers(job),
        }

    def stats(self) -> dict[str, Iterable[Any]]:
        return {"preemptions": self._counts.by_class()}
