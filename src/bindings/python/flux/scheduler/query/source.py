# SPDX-License-Identifier: LGPL-3.0-or-later
"""The interface of a scheduler for the query service."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.decision import PolicyView
    from flux.scheduler.host import InstanceConfig
    from flux.scheduler.odds_service import OddsService
    from flux.scheduler.requests import PendingJob


#: Running jobs whose ends are determined per step of an answer.
ENDS_PER_STEP = 256


@dataclass(eq=False)
class QuerySource:
    """A scheduler, for the query service."""

    policy: PolicyView  # the scheduler
    # returns the pool's request for a jobspec; raises ValueError if that is invalid
    parse: Callable[[Any], Any]
    events: Callable[[], int]  # returns a number that grows with every event
    # returns the expected start that a job was told, and its kind
    estimate_of: Callable[[PendingJob], tuple[float | None, str | None]]
    config: InstanceConfig  # the instance's configuration
    stopwatch: Callable[[], float]  # returns seconds of real time
    # queries a projection (`flux.scheduler.projection.fork.Projections.ask`)
    ask: Callable[..., Generator[float, None, dict[str, Any]]]
    odds: OddsService  # likely starts of jobs

    @property
    def pool(self) -> ResourcePool:
        """The scheduler's pool."""
        return self.policy.resources

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return self.policy.now()

    def running_jobs(self) -> Iterator[tuple[int, float]]:
        """Yield (job id, end) of the jobs that hold resources; the end is 0 if unknown."""
        for jobid, end in self.pool.job_end_times():
            if jobid >= 0:
                yield jobid, self.policy.admission.own_ends.get(jobid, end)

    def end_of(self, jobid: int) -> float:
        """Return the end of a job that holds resources; 0 if unknown. Raises KeyError if it holds
        none."""
        end: float = self.policy.admission.own_ends.get(jobid, self.pool.job_end(jobid))
        return end

    def ending_by(self, limit: float) -> Generator[None, None, Iterator[int]]:
        """Return the ids of the jobs that hold resources and end by `limit`, the last to end first;
        if `limit` is infinite, jobs without an end come first.

        O(log running jobs) until the result is iterated. If some have ends of their own, O(running
        jobs), with a yield after each `ENDS_PER_STEP`.
        """
        pool, admission = self.pool, self.policy.admission
        if not admission.own_ends:
            ends = pool.jobs_by_end()
            endless = []
            if limit == math.inf:
                endless = sorted(pool.endless_jobs())
        else:
            ends, endless = [], []
            for examined, (jobid, end) in enumerate(self.running_jobs(), 1):
                if end:
                    ends.append((end, jobid))
                elif limit == math.inf:
                    endless.append(jobid)
                if examined % ENDS_PER_STEP == 0:
                    yield
            ends.sort()
            endless.sort()
        return self._last_first(ends, endless, limit)

    @staticmethod
    def _last_first(
        ends: list[tuple[float, int]], endless: list[int], limit: float
    ) -> Iterator[int]:
        """Yield ids from ascending ``(end, id)``, backwards from `limit`; jobs with equal ends in
        order of id."""
        for jobid in endless:
            if jobid >= 0:
                yield jobid
        behind = bisect_right(ends, (limit, math.inf))
        while behind:
            first = bisect_left(ends, (ends[behind - 1][0], -math.inf), 0, behind)
            for _, jobid in ends[first:behind]:
                if jobid >= 0:
                    yield jobid
            behind = first

    def kind_of_wait(self, job: PendingJob) -> str:
        """Return the kind of a job's wait: the name of an admission rule such as ``reservation``,
        or ``order``, ``down``, ``resources``."""
        policy = self.policy
        cause = policy.admission.why(job)
        if cause is not None:
            return str(cause.rule)
        if policy.decision.ahead_of(job) is not None:
            return "order"
        waits = policy.facts.waits_for_down_ranks(job.resource_request)
        return "down" if waits else "resources"
