# SPDX-License-Identifier: LGPL-3.0-or-later
"""The jobs of a reservation's group that wait: which they are, and whether they may run inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flux.resource.errors import InfeasibleRequest
from flux.scheduler.requests import PendingJob
from flux.scheduler.reservations.reservation import Asker
from flux.scheduler.reservations.state import ReservationState

if TYPE_CHECKING:
    from flux.scheduler.site_policy.queue_names import QueueNames


class GroupJobs:
    """Knows the pending jobs that name a reservation.

    Args:
        entries (dict): the reservations, by name
        queue_names (QueueNames): which queues a name covers
    """

    def __init__(
        self,
        entries: dict[str, ReservationState],
        queue_names: QueueNames,
    ) -> None:
        self._entries = entries
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
        if found is None:
            return None, None
        name, asker = found
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
