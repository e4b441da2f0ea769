"""Who was promised resources, and who waits for a promise, in order of the queue.

What sched-backfill is made of, for the schedulers of a site to use as well.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any, Optional

from flux.scheduler.requests import PendingJob


class Promises:
    """The pending jobs that have a promise in a plan.

    Args:
        plan (Plan): the pool's plan, which keeps what was promised
    """

    def __init__(self, plan: Any = None) -> None:
        self.plan = plan
        self._jobs: list[PendingJob] = []
        self._times: dict[int, Optional[float]] = {}
        #: ids of the jobs whose time nobody knows
        self.held: set[int] = set()
        #: no promise comes due before this, seconds since the epoch
        self._first = math.inf

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[PendingJob]:
        return iter(self._jobs)

    def __contains__(self, job: PendingJob) -> bool:
        return job.jobid in self._times

    def when(self, job: PendingJob) -> Optional[float]:
        """The time a job was promised, seconds since the epoch; None: nobody knows it.

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

    def make(self, job: PendingJob, when: Optional[float]) -> None:
        """Promise a job the time `when`, or None: what it will need, since nobody knows when.

        What it was promised before is replaced.

        Raises:
            InsufficientResources: it does not fit then
        """
        if when is None:
            self.plan.hold(job.jobid, job.resource_request)
            self.held.add(job.jobid)
        else:
            self.plan.reserve(job.jobid, job.resource_request, when)
            self.held.discard(job.jobid)
            self._first = min(self._first, when)
        job.special = True
        if job not in self:
            insort(self._jobs, job)
        self._times[job.jobid] = when

    def advance(self, job: PendingJob) -> Optional[float]:
        """Let a promise move to the earliest time that keeps all others.

        Returns:
            float: when it is due now; None: nobody knows
        """
        when = self._times[job.jobid]
        if when is not None:
            self._times[job.jobid] = when = self.plan.advance(job.jobid)
            self._first = min(self._first, when)
        return when

    def drop(self, job: PendingJob) -> None:
        """A job needs its promise no more: it has started, or the promise is taken back."""
        if job in self:
            del self._times[job.jobid]
            self.held.discard(job.jobid)
            del self._jobs[bisect_left(self._jobs, job)]
            job.special = False
            self.plan.cancel(job.jobid)

    def next_after(self, now: float) -> Optional[float]:
        """When the first promise after `now` comes due; None: none does. O(promises)."""
        times = [when for when in self._times.values() if when is not None and when > now]
        return min(times, default=None)

    def due(self, now: float) -> list[PendingJob]:
        """The jobs whose time has come, in order."""
        if self._first > now:
            return []
        times = [when for when in self._times.values() if when is not None]
        self._first = min([when for when in times if when > now], default=math.inf)
        if len(times) == 0:
            return []
        return [job for job in self._jobs if (self._times[job.jobid] or math.inf) <= now]


class Waiting:
    """Blocked jobs without a promise: quickly, the first of those that want some of certain ranks.

    A job behind such a one must not be promised what it wants: the promise would have to be broken
    as soon as its own turn comes.
    """

    def __init__(self) -> None:
        self._ranks: dict[int, int] = {}  # job id to the mask it waits for
        self._jobs: dict[int, list[PendingJob]] = {}  # mask to jobs, in order

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
