# SPDX-License-Identifier: LGPL-3.0-or-later
"""Who was promised a start, and who waits for a promise, in the order of the queue."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Callable

from flux.scheduler.requests import PendingJob

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan


class PromiseBook:
    """The pending jobs that have a promise in a plan.

    Each promise is either for a time, or *open*: since nobody knows when the job can start, what it
    needs is kept free from now on.

    Args:
        changed: ``changed(job, promised)`` is called when a job gets its first promise, or has none any
            more
        drops (int): promises dropped before

    Attributes:
        plan (Plan): the pool's plan, in which the promises are reserved; to be set before the first
            is made
    """

    plan: Plan

    def __init__(
        self, changed: Callable[[PendingJob, bool], None] | None = None, drops: int = 0
    ) -> None:
        self._changed = changed
        self._jobs: list[PendingJob] = []  # in the order of the queue
        self._ids: list[int] = []  # of these
        self._by_id: dict[int, PendingJob] = {}
        # Mask of ranks to the jobs that could want these, in order; None: it is to be made.
        self._by_ranks: dict[int, list[PendingJob]] | None = None
        #: ids of the jobs whose promise is open
        self.open_ids: set[int] = set()
        # No promise has come due since it was looked before this, seconds since the epoch.
        self._first = math.inf
        #: grows when a job has no promise any more
        self.drops = drops

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[PendingJob]:
        return iter(self._jobs)

    def __contains__(self, job: PendingJob) -> bool:
        return job.jobid in self._by_id

    @property
    def in_order(self) -> list[PendingJob]:
        """The jobs in the order of the queue; not to be changed."""
        return self._jobs

    def when(self, job: PendingJob) -> float | None:
        """The time a job was promised, seconds since the epoch; None: its promise is open.

        Raises:
            KeyError: it was promised nothing
        """
        return None if job.jobid in self.open_ids else self.plan.start_of(job.jobid)

    def after(self, job: PendingJob) -> list[PendingJob]:
        """The jobs with a promise that come after `job` in the queue."""
        jobs = self._jobs
        if not jobs or not job < jobs[-1]:
            return []
        return [other for other in jobs[bisect_left(jobs, job) :] if other is not job]

    def first_since(self, place: tuple[Any, int] | None) -> PendingJob | None:
        """The first job from a place in the queue, ``(order, job id)``, on; None: there is none."""
        jobs, low = self._jobs, 0
        if place is not None and jobs:
            order, jobid = place
            high = len(jobs)
            while low < high:  # bisect_left() takes no key before Python 3.10
                middle = (low + high) // 2
                job = jobs[middle]
                if job.order < order or (job.order == order and job.jobid < jobid):
                    low = middle + 1
                else:
                    high = middle
        return jobs[low] if low < len(jobs) else None

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
        if job not in self:
            if self._changed is not None:
                self._changed(job, True)
            place = bisect_left(self._jobs, job)
            self._jobs.insert(place, job)
            self._ids.insert(place, job.jobid)
            self._by_id[job.jobid] = job
            self._by_ranks = None

    def advance(self, job: PendingJob) -> float | None:
        """Let a promise move to the earliest time that keeps all others.

        Returns:
            when it is due now, seconds since the epoch; None: it is open

        Raises:
            InsufficientResources: it cannot be kept any more, since a running job was given more
                time, or ended late, or ranks were lost
        """
        if job.jobid in self.open_ids:
            return None
        when = self.plan.advance(job.jobid)
        self._first = min(self._first, when)
        return when

    def advance_following(
        self, job: PendingJob, pending: Iterable[PendingJob] | None = None
    ) -> tuple[list[PendingJob], list[PendingJob], float]:
        """Let the promises of the jobs right behind `job`, which has one, move as `advance` does, as
        long as they can surely be kept (`Plan.advance_in_turn`), of as many jobs as may be moved in
        a turn of the reactor. None may be open.

        Args:
            job (PendingJob): the job
            pending (iterable): the pending jobs behind `job`, in order: none is moved that is behind
                one without a promise; None: that does not matter

        Returns:
            the jobs that were looked at; of these those whose promises moved; and the first start of
            these, seconds since the epoch, or infinity. If that has come, it is that of the last of both.
        """
        first = bisect_left(self._jobs, job) + 1
        behind = self._jobs[first : first + self.plan.moves_per_turn]
        if pending is not None:
            pairs = takewhile(lambda pair: pair[0] is pair[1], zip(behind, pending))
            behind = [other for other, _ in pairs]
        count, places, when = self.plan.advance_in_turn(self._ids[first : first + len(behind)])
        self._first = min(self._first, when)
        return behind[:count], [behind[place] for place in places], when

    def drop(self, job: PendingJob) -> None:
        """A job has no promise any more: it has started, or the promise is revoked."""
        if job in self:
            del self._by_id[job.jobid]
            self.open_ids.discard(job.jobid)
            place = bisect_left(self._jobs, job)
            del self._jobs[place], self._ids[place]
            self._by_ranks = None
            self.drops += 1
            if self._changed is not None:
                self._changed(job, False)
            self.plan.cancel(job.jobid)

    def reorder(self) -> None:
        """The order of the jobs has changed: sort them again."""
        self._jobs.sort()
        self._ids = [job.jobid for job in self._jobs]
        self._by_ranks = None

    def ranks_changed(self) -> None:
        """Which ranks jobs could want has changed."""
        self._by_ranks = None

    def count_before(self, job: PendingJob, ranks_of: Callable[[PendingJob], int]) -> int:
        """How many jobs with a promise come before `job` in the queue and could want some of the
        same ranks.

        The first call after a change costs a look at each promise, the others one for each
        different mask of ranks.

        Args:
            job (PendingJob): the job
            ranks_of: gives the mask of the ranks that a job could want
        """
        if not self._jobs or not self._jobs[0] < job:
            return 0
        if self._by_ranks is None:
            self._by_ranks = {}
            for other in self._jobs:
                self._by_ranks.setdefault(ranks_of(other), []).append(other)
        ranks = ranks_of(job)
        return sum(
            [bisect_left(jobs, job) for mask, jobs in self._by_ranks.items() if mask & ranks]
        )

    def next_after(self, now: float) -> float | None:
        """When the first promise after `now` comes due; None: none does. O(promises)."""
        _, when = self.plan.due(now)
        return None if when == math.inf else when

    def has_due(self, now: float) -> bool:
        """Whether the promised time of a job has come. O(promises)."""
        return bool(self._jobs) and any(id in self._by_id for id in self.plan.due(now)[0])

    def due(self, now: float) -> list[PendingJob]:
        """The jobs whose promised time has come, in order, if one has since this was asked last; and those
        whose promises are open. O(promises) then."""
        jobs, found = self._by_id, self.open_ids.copy()
        if self._first <= now:
            due, self._first = self.plan.due(now)
            found.update(due)
        return sorted([jobs[jobid] for jobid in found if jobid in jobs])


class LatestStarts:
    """The latest starts that pending jobs were promised, and what became of all that were promised.

    What the plan has to keep for them is in the plan, by job id.

    Attributes:
        made (int): promises made
        restored (int): promises made before the scheduler was loaded
        changes (int): grows with each promise that is made or over
        kept (int): jobs that started by the time they were promised
        void_by (dict): how many were void, by cause; see `policies.bounded.VOID_CAUSES`
        violated (int): promises that were broken without a cause, which is a bug
        spare (float): by how much jobs started before their latest starts, in seconds, all together
    """

    def __init__(self) -> None:
        self._times: dict[int, tuple[float, PendingJob]] = {}
        self._order: list[tuple[float, int]] = []  # latest starts with job ids, ascending
        #: ids of jobs that were to have started by now, which any pass may start; whether their
        #: promises are void
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
            KeyError: it was promised none
        """
        return self._times[job.jobid][0]

    def make(self, job: PendingJob, when: float) -> None:
        """Promise a job to start by `when`, seconds since the epoch. What it was promised is
        replaced."""
        self.made += 1
        self._enter(job, when)

    def bring_back(self, job: PendingJob, when: float) -> None:
        """A job was promised to start by `when` before the scheduler was loaded."""
        self.restored += 1
        self._enter(job, when)

    def _enter(self, job: PendingJob, when: float) -> None:
        self._leave(job)
        self._times[job.jobid] = (when, job)
        insort(self._order, (when, job.jobid))

    def _leave(self, job: PendingJob) -> float | None:
        """Take out the promise of a job; returns its latest start, None if it had none."""
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

    def drop(self, job: PendingJob) -> None:
        """A job has no promise any more."""
        self._leave(job)

    def started(self, job: PendingJob, now: float, grace: float) -> None:
        """A job has started. Its promise was kept if it is not void and the job is not later than
        promised by more than `grace` seconds."""
        void = self.overdue.get(job.jobid, False)
        when = self._leave(job)
        if when is not None and not void and now <= when + grace:
            self.kept += 1
            self.spare += max(0.0, when - now)

    def void(self, job: PendingJob, cause: str) -> None:
        """The promise to a job cannot be kept."""
        self.void_by[cause] = self.void_by.get(cause, 0) + 1

    def next_due(self) -> float | None:
        """The first latest start of all that is still to come; None: there is none."""
        for when, jobid in self._order:
            if jobid not in self.overdue:
                return when
        return None

    def due(self, now: float) -> list[PendingJob]:
        """The jobs whose latest start has come, in order of the queue."""
        if not self._order or self._order[0][0] > now:
            return []
        found = self._order[: bisect_right(self._order, (now, math.inf))]
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
