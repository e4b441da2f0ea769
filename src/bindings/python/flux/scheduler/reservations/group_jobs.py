# SPDX-License-Identifier: LGPL-3.0-or-later
"""The jobs of a reservation's group that wait: which they are, and whether they may run inside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.scheduler.requests import PendingJob
from flux.scheduler.reservations.reservation import Asker
from flux.scheduler.reservations.state import ReservationState

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.scheduler.site_policy.queue_names import QueueNames


class GroupJobs:
    """Knows the pending jobs that name a reservation.

    Args:
        entries (dict): the reservations, by name
        plan: function giving the plan in which their windows to come are entered
        queue_names (QueueNames): which queues a name covers
    """

    def __init__(
        self,
        entries: dict[str, ReservationState],
        plan: Callable[[], Plan | None],
        queue_names: QueueNames,
    ) -> None:
        self._entries = entries
        self._plan = plan
        self._queue_names = queue_names
        #: by job id, the reservation that a pending job names, and who asks
        self._askers: dict[int, tuple[str, Asker]] = {}

    def add(self, job: PendingJob, name: str, asker: Asker) -> None:
        """A job that names a reservation has come."""
        self._askers[job.jobid] = (name, asker)

    def __len__(self) -> int:
        return len(self._askers)

    def jobids(self) -> list[int]:
        """Their ids."""
        return list(self._askers)

    def forget(self, jobid: int) -> bool:
        """A job does not wait any more; whether it named a reservation."""
        return self._askers.pop(jobid, None) is not None

    def reservation_of(self, job: PendingJob) -> str | None:
        """The name of the reservation that a pending job is to run in; None: of none."""
        found = self._askers.get(job.jobid)
        return None if found is None else found[0]

    def standing(self, job: PendingJob) -> tuple[ReservationState | None, str | None]:
        """The reservation to whose group a job belongs, and why it cannot run for now.

        Returns:
            the `ReservationState` or None, and a reason or None

        Raises:
            InfeasibleRequest: the job names a reservation that is not for it
        """
        found = self._askers.get(job.jobid)
        return (None, None) if found is None else self.find(*found)

    def find(self, name: str, asker: Asker) -> tuple[ReservationState | None, str | None]:
        """As `standing`, of whoever names a reservation."""
        entry = self._entries.get(name)
        if entry is None:
            return None, f"reservation {name} does not exist"
        if not entry.reservation.admits(asker, self._queue_names):
            raise InfeasibleRequest(
                f"reservation {name} is not for this job's user, queue and bank"
            )
        if entry.window is None:
            return entry, f"reservation {name} is over"
        return entry, None

    def expected_starts(
        self, jobs: Iterable[PendingJob]
    ) -> Iterator[tuple[PendingJob, float | None]]:
        """When jobs that wait for a reservation are expected to start; None if that is not known.

        That is told of a window to come, in which they are planned in order, beside what runs then.
        """
        plans: dict[str, Plan] = {}
        for job in jobs:
            if not job.request.finalized:
                yield job, self._expected_start(job, plans)

    def _expected_start(self, job: PendingJob, plans: dict[str, Plan]) -> float | None:
        try:
            entry, reason = self.standing(job)
        except InfeasibleRequest:
            return None
        if entry is None or reason is not None or entry.active or entry.window is None:
            return None
        plan = plans.get(entry.name) or self._plan_inside(entry)
        if plan is None:
            return None
        plans[entry.name] = plan
        return _enter(plan, entry, job.jobid, job.resource_request)

    def start_in_window(
        self, entry: ReservationState, request: Any, waiting: Iterable[PendingJob]
    ) -> float | None:
        """When a new job would start in a window to come, behind the jobs that wait for it; None if
        that is not known.

        Args:
            waiting: the deferred jobs, in the order of the queue
        """
        plan = self._plan_inside(entry)
        if plan is None:
            return None
        for job in waiting:
            if self.reservation_of(job) == entry.name and not job.request.finalized:
                _enter(plan, entry, job.jobid, job.resource_request)
        return _enter(plan, entry, 0, request)

    def _plan_inside(self, entry: ReservationState) -> Plan | None:
        """A copy of the plan in which what a reservation keeps is free."""
        source = self._plan()
        if source is None:
            return None
        plan = source.copy()
        for key in entry.keys:
            plan.cancel(key)
        return plan


def _enter(plan: Plan, entry: ReservationState, jobid: int, request: Any) -> float | None:
    """Enter a job of the group into the next window; its start, or None if there is none."""
    assert entry.window is not None
    try:
        when = plan.earliest(request, after=entry.window.start)
        if when is None or when >= entry.window.end:
            return None
        plan.reserve(jobid, request, when)
    except (InfeasibleRequest, InsufficientResources):
        return None
    return when
