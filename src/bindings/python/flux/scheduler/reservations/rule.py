# SPDX-License-Identifier: LGPL-3.0-or-later
"""Reservations as an admission rule: the scheduler's only interface to them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Callable

from flux.scheduler.admission import AdmissionRule, Deferral
from flux.scheduler.reservations.manager import ReservationManager
from flux.scheduler.reservations.reservation import Asker
from flux.scheduler.reservations.service import ReservationService

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.attributes import SystemAttributes
    from flux.scheduler.host import Committer, ErrorReporter
    from flux.scheduler.requests import PendingJob, RunningJob
    from flux.scheduler.rule_host import RuleHost


#: Maximum number of deferred jobs examined again after a release. Each costs a search of the pool,
#: and the cost of a release must not grow with the number of jobs that wait for a reservation.
DEFERRED_JOBS_RETRIED = 32


class ReservationRule(AdmissionRule):
    """Keeps reserved resources from jobs outside the group, and allocates them to jobs of the
    group.

    Args:
        host (RuleHost): the scheduler
        parse: returns the pool's request for a jobspec
        commits (Committer): writes to the KVS
        errors (ErrorReporter): logs errors

    Attributes:
        service (ReservationService): answers requests about reservations
    """

    name = "reservation"
    attributes = ("reservation",)
    engaged = False  # there are no reservations yet

    host: RuleHost

    def __init__(
        self,
        host: RuleHost,
        parse: Callable[[Any], Any],
        commits: Committer,
        errors: ErrorReporter,
    ) -> None:
        super().__init__(host)
        self._manager = ReservationManager(host, parse, self._changed, self._engage)
        self.service = ReservationService(host, self._manager, commits, errors)

    def _engage(self) -> None:
        """Update `engaged` after the reservations, or the pending jobs that name one, have
        changed."""
        engaged = bool(self._manager.entries or self._manager.group_jobs)
        self.host.admission.engage(self, engaged)

    def _changed(self) -> None:
        """Let deferred jobs be examined after a window began or ended, or a reservation was made or
        given up."""
        self.host.readmit(self)
        self.host.look_again()

    # -- a job that waits --------------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        name = attributes.reservation
        if name is not None:
            userid = -1 if job.userid is None else job.userid
            self._manager.group_jobs.add(
                job, name, Asker(userid, attributes.queue, attributes.bank)
            )
            self._engage()

    def signature(self, job: PendingJob) -> Hashable:
        return self._manager.group_jobs.reservation_of(job)

    def check(self, job: PendingJob) -> Deferral | None:
        entry, reason = self._manager.group_jobs.standing(job)
        if reason is not None:
            return Deferral(reason)
        return None

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        return self._manager.allocate(job, plan)

    def taken_back(self, jobid: int) -> None:
        self._manager.active.ended(jobid)
        self._manager.refill()

    def kept_jobs(self) -> Iterable[int]:
        return self._manager.group_jobs.jobids()

    def why(self, job: PendingJob) -> str | None:
        return self._manager.answers.why(job)

    def cancel(self, jobid: int) -> None:
        if self._manager.group_jobs.forget(jobid):
            self._engage()

    def start(self, job: PendingJob, alloc: ResourcePool) -> None:
        self.cancel(job.jobid)
        self._manager.started(job.jobid)

    # -- a job that runs ---------------------------------------------------------------------------

    def wants_attributes(self) -> bool:
        return any(
            not self._manager.entries[name].reservation.for_nobody
            for name in self._manager.lasting()
        )

    def hello(self, job: RunningJob) -> None:
        name = job.attributes.reservation
        if name is not None and name in self._manager.lasting():
            if not self._manager.entries[name].reservation.for_nobody:
                self._manager.active.found_inside(job.jobid, name)

    def free(self, jobid: int, R: Any, final: bool) -> None:
        if final:
            self._manager.active.ended(jobid)
        if self._manager.entries:
            self._manager.refill()
            self.host.readmit(self, most=DEFERRED_JOBS_RETRIED)

    def extended(self, jobid: int, expiration: float) -> bool:
        self._manager.extended(jobid, expiration)
        return True

    # -- the start, resources and plans ------------------------------------------------------------

    def pool_made(self) -> None:
        self.service.load()

    def ready(self) -> None:
        # Windows may begin only now: until all running jobs were found, the pool showed their nodes
        # as free.
        self._manager.open()
        self.service.arm()

    def config_changed(self, config: dict[str, Any]) -> None:
        self.service.reconfigure(config)

    def ranks_changed(self, lost: bool) -> None:
        if self._manager.entries:
            self._manager.ranks_changed()

    def enter_plan(self, plan: Plan | None) -> None:
        self._manager.future.attach(plan)

    # -- answers -----------------------------------------------------------------------------------

    def end_of(self, jobid: int, end: float) -> float:
        return self._manager.active.own_end_of(jobid, end)

    def facts(self, job: PendingJob, expected_start: float | None, first: bool) -> dict[str, Any]:
        """Return name, start and end of the reservation that `job` waits for, must not run into, or
        is to start after, or None."""
        answers = self._manager.answers
        found = answers.blamed(job) if first else None
        if found is None and expected_start is not None:
            found = answers.before(job, expected_start)
        return {"reservation": found}

    def spans(self, until: float) -> Iterator[dict[str, Any]]:
        return self._manager.answers.spans(until)

    def stats(self) -> dict[str, Iterable[Any]]:
        entries = list(self._manager.entries.values())
        return {"reservations": (self._manager.answers.describe(entry) for entry in entries)}
