# SPDX-License-Identifier: LGPL-3.0-or-later
"""The latest starts promised to jobs by sched-backfill with ``promise=all``, and the outcomes of these
promises."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flux.scheduler.requests import PendingJob

#: Why a promise cannot be kept. A job that loses its promise gets another, and its user is told.
VOID_CAUSES = {
    "resources": "nodes went down, were drained or left, or a reservation or preemption took them",
    "extended": "a running job was given more time",
    "late": "a running job has outlived its limit",
    "priority": "a job of higher priority went before",
    "deferred": "an admission rule keeps the job itself from starting",
    "unloaded": "it could not be kept over a time without a scheduler",
}


class LatestStarts:
    """The latest starts promised to pending jobs, and the outcomes of all promises.

    Their resources are in the plan, by job id.

    Attributes:
        made (int): promises made
        restored (int): promises made before the scheduler was loaded
        changes (int): grows with each promise that is made or over
        kept (int): jobs that started by the time they were promised
        void_by (dict): number of void promises by cause; see `VOID_CAUSES`
        violated (int): promises that were broken without a cause, which is a bug
        spare (float): seconds by which jobs started before their latest starts, in total
    """

    def __init__(self) -> None:
        self._times: dict[int, tuple[float, PendingJob]] = {}
        self._order: list[tuple[float, int]] = []  # latest starts with job ids, ascending
        #: by id of a job that was to start by now, which any pass may start: whether its promise is
        #: void
        self.overdue: dict[int, bool] = {}
        self.made = 0
        self.restored = 0
        self.changes = 0
        self.kept = 0
        self.void_by: dict[str, int] = {}
        self.violated = 0
        self.spare = 0.0

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[PendingJob]:
        """The jobs, in no order."""
        return iter([job for _, job in self._times.values()])

    def __contains__(self, job: object) -> bool:
        """Whether a job (or job id) has a latest start."""
        return getattr(job, "jobid", job) in self._times

    def when(self, job: PendingJob) -> float:
        """The latest start of a job, seconds since the epoch.

        Raises:
            KeyError: it has none
        """
        return self._times[job.jobid][0]

    def make(self, job: PendingJob, when: float) -> None:
        """Promise a job to start by `when`, seconds since the epoch. A previous promise is
        replaced."""
        self.made += 1
        self._enter(job, when)

    def bring_back(self, job: PendingJob, when: float) -> None:
        """A job was promised to start by `when` before the scheduler was loaded."""
        self.restored += 1
        self._enter(job, when)

    def _enter(self, job: PendingJob, when: float) -> None:
        self.drop(job)
        self._times[job.jobid] = (when, job)
        insort(self._order, (when, job.jobid))

    def drop(self, job: PendingJob) -> float | None:
        """Remove the promise of a job; return its latest start, None if it had none."""
        self.changes += 1
        self.overdue.pop(job.jobid, None)
        found = self._times.pop(job.jobid, None)
        if found is None:
            return None
        del self._order[bisect_left(self._order, (found[0], job.jobid))]
        return found[0]

    def by_time(self) -> list[tuple[float, int]]:
        """Latest starts (seconds since the epoch) with job ids, ascending: a copy."""
        return self._order[:]

    def before(self, time: float) -> list[PendingJob]:
        """The jobs whose latest start is before a time (seconds since the epoch)."""
        found = self._order[: bisect_left(self._order, (time, -1))]
        return [self._times[jobid][1] for _, jobid in found]

    def started(self, job: PendingJob, now: float, grace: float) -> None:
        """A job has started. Its promise was kept if it is not void and the job is not later than
        promised by more than `grace` seconds."""
        void = self.overdue.get(job.jobid, False)
        when = self.drop(job)
        if when is not None and not void and now <= when + grace:
            self.kept += 1
            self.spare += max(0.0, when - now)

    def void(self, job: PendingJob, cause: str) -> None:
        """The promise to a job cannot be kept."""
        self.void_by[cause] = self.void_by.get(cause, 0) + 1

    def next_due(self) -> float | None:
        """The first latest start that is still to come; None: there is none."""
        for when, jobid in self._order:
            if jobid not in self.overdue:
                return when
        return None

    def due(self, now: float) -> list[PendingJob]:
        """The jobs whose latest start has come, in order of the queue."""
        if not self._order or self._order[0][0] > now:
            return []
        found = self._order[: bisect_right(self._order, (now, inf))]
        return sorted(self._times[jobid][1] for _, jobid in found)

    def stats(self) -> dict[str, Any]:
        """Counts for ``stats``: made, kept, void by cause, violated, and the mean time to spare in
        seconds."""
        return {
            "made": self.made,
            "restored": self.restored,
            "kept": self.kept,
            "void": dict(self.void_by),
            "violated": self.violated,
            "mean_spare": self.spare / self.kept if self.kept else 0.0,
        }
