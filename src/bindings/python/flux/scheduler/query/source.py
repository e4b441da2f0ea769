# SPDX-License-Identifier: LGPL-3.0-or-later
"""The interface of a scheduler for the query service, which uses nothing else of it."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Callable, Protocol

from flux.scheduler.decision import PolicyView

if TYPE_CHECKING:
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.admission_control import AdmissionControl
    from flux.scheduler.decision import Planning, QueueOrder
    from flux.scheduler.host import InstanceConfig
    from flux.scheduler.odds_service import OddsService
    from flux.scheduler.pools import RequestFacts
    from flux.scheduler.requests import PendingJob


#: Running jobs whose ends are asked for in one step of an answer.
ENDS_PER_STEP = 256


class QueriedPolicy(PolicyView, Protocol):
    """A policy's description of itself."""

    admission: AdmissionControl
    facts: RequestFacts
    planning: Planning
    queue_order: QueueOrder
    started_jobs: dict[str, int]
    loaded_at: float

    @property
    def by_queue(self) -> bool: ...

    def stats_get(self) -> dict[str, Any]: ...


class QuerySource:
    """A scheduler as the query service sees it.

    Args:
        policy (QueriedPolicy): the scheduler
        parse: function giving the pool's request for a jobspec (ValueError: it cannot be read)
        events: function giving a number that grows with every event
        estimate_of: function giving the expected start that a job was told, and its kind
        config (InstanceConfig): the configuration of the instance
        stopwatch: function giving seconds of real time
        ask: asks a projection (`flux.scheduler.projection.fork.Projections.ask`)
        odds (OddsService): when jobs are likely to start

    Attributes:
        policy, parse, events, estimate_of, config, stopwatch, ask, odds: as given
    """

    def __init__(
        self,
        policy: QueriedPolicy,
        parse: Callable[[Any], Any],
        events: Callable[[], int],
        estimate_of: Callable[[PendingJob], tuple[float | None, str | None]],
        config: InstanceConfig,
        stopwatch: Callable[[], float],
        ask: Callable[..., Generator[float, None, dict[str, Any]]],
        odds: OddsService,
    ) -> None:
        self.policy = policy
        self.parse = parse
        self.events = events
        self.estimate_of = estimate_of
        self.config = config
        self.stopwatch = stopwatch
        self.ask = ask
        self.odds = odds

    @property
    def pool(self) -> ResourcePool:
        """The scheduler's pool."""
        return self.policy.resources

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.policy.now()

    def running_jobs(self) -> Iterator[tuple[int, float]]:
        """The ids of the jobs that hold resources, and when each ends (0 if that is not known)."""
        for jobid, end in self.pool.job_end_times():
            if jobid >= 0:
                yield jobid, self.policy.admission.end_of(jobid, end)

    def end_of(self, jobid: int) -> float:
        """When a job that holds resources ends; 0 if that is not known. KeyError: it holds none."""
        return self.policy.admission.end_of(jobid, self.pool.job_end(jobid))

    def ending_by(self, limit: float) -> Generator[None, None, Iterator[int]]:
        """The ids of the jobs that hold resources and end by a time, the last first; those that have no
        end are the last, if the time is infinite.

        O(log running jobs) until some are asked for; where a rule may say that jobs end at other times
        than the pool says, O(running jobs), and it yields after each `ENDS_PER_STEP`.
        """
        pool, admission = self.pool, self.policy.admission
        if not admission.sets_ends:
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
        """Ids of jobs by ascending ``(end, id)``, from a time back; jobs of one end by their ids."""
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
        """The reason of a job's wait, in a word: the name of an admission rule such as ``reservation``,
        or ``order``, ``down``, ``resources``."""
        policy = self.policy
        cause = policy.admission.why(job)
        if cause is not None:
            return cause.rule
        if policy.decision.ahead_of(job) is not None:
            return "order"
        waits = policy.facts.waits_for_down_ranks(job.resource_request)
        return "down" if waits else "resources"
