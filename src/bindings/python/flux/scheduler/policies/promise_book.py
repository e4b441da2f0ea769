# SPDX-License-Identifier: LGPL-3.0-or-later
"""Who was promised a start, and who waits for a promise, in the order of the queue."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flux.scheduler.requests import PendingJob

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan


class PromiseBook:
    """The pending jobs that have a promise in a plan.

    Each promise is either for a time, or *open*: since nobody knows when the job can start, what it
    needs is kept free from now on.

    Attributes:
        plan (Plan): the pool's plan, in which the promises are reserved; to be set before the first
            is made
    """

    plan: Plan

    def __init__(self) -> None:
        self._jobs: list[PendingJob] = []  # in the order of the queue
        self._times: dict[int, float | None] = {}
        #: ids of the jobs whose promise is open
        self.open_ids: set[int] = set()
        #: no promise comes due before this, seconds since the epoch
        self._first = math.inf

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[PendingJob]:
        return iter(self._jobs)

    def __contains__(self, job: PendingJob) -> bool:
        return job.jobid in self._times

    def when(self, job: PendingJob) -> float | None:
        """The time a job was promised, seconds since the epoch; None: its promise is open.

        Raises:
            KeyError: it was promised nothing
        """
        return self._times[job.jobid]

    def after(self, job: PendingJob) -> list[PendingJob]:
        """The jobs with a promise that come after `job` in the queue."""
        jobs = self._jobs
        if not jobs or not job < jobs[-1]:
            return []
        return [other for other in jobs[bisect_left(jobs, job) :] if other is not job]

    def make(self, job: PendingJob, when: float | None) -> None:
        """Promise a job the time `when`, or None: what it needs is kept free, since nobody knows
        when it can start. What it was promised before is replaced.

        Raises:
            InsufficientResources: it does not fit then
        """
        if when is None:
            self.plan.hold(job.jobid, job.resource_request)
            self.open_ids.add(job.jobid)
        else:
            self.plan.reserve(job.jobid, job.resource_request, when)
            self.open_ids.discard(job.jobid)
            self._first = min(self._first, when)
        job.exempt = True
        if job not in self:
            insort(self._jobs, job)
        self._times[job.jobid] = when

    def advance(self, job: PendingJob) -> float | None:
        """Let a promise move to the earliest time that keeps all others.

        Returns:
            when it is due now, seconds since the epoch; None: it is open

        Raises:
            InsufficientResources: it cannot be kept any more, since a running job was given more
                time, or ended late, or ranks were lost
        """
        when = self._times[job.jobid]
        if when is not None:
            self._times[job.jobid] = when = self.plan.advance(job.jobid)
            self._first = min(self._first, when)
        return when

    def drop(self, job: PendingJob) -> None:
        """A job has no promise any more: it has started, or the promise is revoked."""
        if job in self:
            del self._times[job.jobid]
            self.open_ids.discard(job.jobid)
            del self._jobs[bisect_left(self._jobs, job)]
            job.exempt = False
            self.plan.cancel(job.jobid)

    def reorder(self) -> None:
        """The order of the jobs has changed: sort them again."""
        self._jobs.sort()

    def next_after(self, now: float) -> float | None:
        """When the first promise after `now` comes due; None: none does. O(promises)."""
        times = [when for when in self._times.values() if when is not None and when > now]
        return min(times, default=None)

    def due(self, now: float) -> list[PendingJob]:
        """The jobs whose promised time has come, in order."""
        if self._first > now:
            return []
        self._first = self.next_after(now) or math.inf
        return [job for job in self._jobs if (self._times[job.jobid] or math.inf) <= now]


class BlockedByRanks:
    """Blocked jobs without a promise: quickly, the first of those that want some of certain ranks.

    A job behind such a one must not be promised what it wants: the promise would have to be broken
    as soon as its own turn comes.
    """

    def __init__(self) -> None:
        self._ranks: dict[int, int] = {}  # job id to the mask it waits for
        self._jobs: dict[int, list[PendingJob]] = {}  # mask to jobs, in the order of the queue

    def __len__(self) -> int:
        return len(self._ranks)

    def add(self, job: PendingJob, ranks: int) -> None:
        """`job` waits for some of `ranks` (a mask)."""
        if self._ranks.get(job.jobid) != ranks:
            self.drop(job)
            self._ranks[job.jobid] = ranks
            insort(self._jobs.setdefault(ranks, []), job)

    def drop(self, job: PendingJob) -> None:
        """`job` has a promise now, or left the queue, or is about to change its place there."""
        ranks = self._ranks.pop(job.jobid, None)
        if ranks is not None:
            jobs = self._jobs[ranks]
            del jobs[bisect_left(jobs, job)]
            if not jobs:
                del self._jobs[ranks]

    def reorder(self) -> None:
        """The order of the jobs has changed: sort them anew."""
        for jobs in self._jobs.values():
            jobs.sort()

    def clear(self) -> None:
        """Forget all: which ranks jobs could want has changed."""
        self._ranks.clear()
        self._jobs.clear()

    def is_before(self, job: PendingJob, ranks: int) -> bool:
        """Whether a job ahead of `job` waits for some of `ranks` (a mask)."""
        return any(
            mask & ranks and jobs[0] < job and jobs[0] is not job
            for mask, jobs in self._jobs.items()
        )
