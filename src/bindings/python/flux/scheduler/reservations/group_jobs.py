"""The jobs of a reservation's group: which they are, and where they wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.scheduler.requests import PendingJob, system_attributes
from flux.scheduler.reservations.future_windows import FutureWindows
from flux.scheduler.reservations.reservation import Asker
from flux.scheduler.reservations.state import ReservationState


class GroupJobs:
    """Knows the jobs that name a reservation, and keeps those *aside* that wait for it.

    Such a job waits for its window, and nobody behind it waits for it: it is not in the queue.

    Args:
        entries (dict): the reservations, by name
        future (FutureWindows): their windows to come
    """

    def __init__(self, entries: dict[str, ReservationState], future: FutureWindows) -> None:
        self._entries = entries
        self._future = future
        #: jobs of a group that wait for its window, by id
        self.aside: dict[int, PendingJob] = {}

    def standing(self, job: PendingJob) -> tuple[Optional[ReservationState], Optional[str]]:
        """The reservation to whose group a job belongs, and why it cannot run for now.

        Returns:
            the `ReservationState` or None, and a reason or None

        Raises:
            InfeasibleRequest: the job names a reservation that is not for it
        """
        if job.reservation is None:
            return None, None
        userid = job.request.userid
        system = system_attributes(job)
        asker = Asker(-1 if userid is None else userid, system.get("queue"), system.get("bank"))
        return self.find(job.reservation, asker)

    def find(self, name: str, asker: Asker) -> tuple[Optional[ReservationState], Optional[str]]:
        """As `standing`, of whoever names a reservation."""
        entry = self._entries.get(name)
        if entry is None:
            return None, f"reservation {name} does not exist"
        if not entry.reservation.admits(asker):
            raise InfeasibleRequest(
                f"reservation {name} is not for this job's user, queue and bank"
            )
        if entry.window is None:
            return entry, f"reservation {name} is over"
        return entry, None

    def set_aside(self, job: PendingJob) -> None:
        """A job of the group waits for its window, and nobody behind it."""
        self.aside[job.jobid] = job

    def is_aside(self, job: PendingJob) -> bool:
        """Whether a job waits for its window, and so for no other job."""
        return job.jobid in self.aside

    def take_back(self, most: Optional[int] = None) -> Iterator[PendingJob]:
        """Jobs to be put back into the queue, in order: all, or so many."""
        jobs = sorted(self.aside.values())[:most]
        for job in jobs:
            del self.aside[job.jobid]
            if not job.request.finalized:
                yield job

    def estimates(self, most: int) -> Iterator[tuple[PendingJob, Optional[float]]]:
        """When the first of the jobs that are aside are expected to start; None: nobody knows.

        That is said of a window to come, in which they are planned in order, beside what runs then.
        """
        plans: dict[str, Any] = {}
        for job in sorted(self.aside.values())[:most]:
            if not job.request.finalized:
                yield job, self._estimate(job, plans)

    def _estimate(self, job: PendingJob, plans: dict[str, Any]) -> Optional[float]:
        try:
            entry, reason = self.standing(job)
        except InfeasibleRequest:
            return None
        if entry is None or reason is not None or entry.active or entry.window is None:
            return None
        plan = plans.get(entry.name)
        if plan is None:
            plan = plans[entry.name] = self._inside(entry)
        return _enter(plan, entry, job.jobid, job.resource_request)

    def start_in_window(self, entry: ReservationState, request: Any) -> Optional[float]:
        """When a newcomer would start in a window to come, behind the jobs that wait for it; None:
        nobody knows."""
        plan = self._inside(entry)
        for job in sorted(self.aside.values()):
            if job.reservation == entry.name and not job.request.finalized:
                _enter(plan, entry, job.jobid, job.resource_request)
        return _enter(plan, entry, 0, request)

    def _inside(self, entry: ReservationState) -> Any:
        """A copy of the plan in which what a reservation keeps is free."""
        plan = self._future.plan.copy()
        for key in entry.keys:
            plan.cancel(key)
        return plan


def _enter(plan: Any, entry: ReservationState, jobid: int, request: Any) -> Optional[float]:
    """Enter a job of the group into the next window; its start, or None if there is none."""
    assert entry.window is not None
    try:
        when: Optional[float] = plan.earliest(request, after=entry.window.start)
        if when is None or when >= entry.window.end:
            return None
        plan.reserve(jobid, request, when)
    except (InfeasibleRequest, InsufficientResources):
        return None
    return when
