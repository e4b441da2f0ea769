# SPDX-License-Identifier: LGPL-3.0-or-later
"""What questions are answered from: all that the query service may use of a scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Callable, Protocol

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.admission import AdmissionControl
    from flux.scheduler.host import InstanceConfig
    from flux.scheduler.order import QueueOrder
    from flux.scheduler.request_facts import RequestFacts
    from flux.scheduler.requests import PendingJob


class QueriedPolicy(Protocol):
    """What a policy says of itself."""

    admission: AdmissionControl
    facts: RequestFacts
    queue_order: QueueOrder
    started_jobs: dict[str, int]
    loaded_at: float

    @property
    def name(self) -> str: ...

    @property
    def resources(self) -> ResourcePool: ...

    @property
    def by_queue(self) -> bool: ...

    @property
    def looks_past_heads(self) -> bool: ...

    @property
    def promises_limit(self) -> int | None: ...

    def now(self) -> float: ...

    def pool_can(self, operation: str) -> bool: ...

    def current_plan(self) -> Plan | None: ...

    def pending(self, jobid: int) -> PendingJob | None: ...

    def pending_jobs(self, deferred: bool = True) -> Iterator[PendingJob]: ...

    def ahead_of(self, job: PendingJob) -> list[PendingJob]: ...

    def why(self, job: PendingJob, facts: dict[str, Any] | None = None) -> str | None: ...

    def asked_order(self, job: PendingJob) -> tuple[Any, ...]: ...

    def rank_facts(self, job: PendingJob) -> dict[str, Any]: ...

    def latest_start_of_newcomer(self, request: Any, plan: Plan) -> float | None: ...

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

    Attributes:
        policy, parse, events, estimate_of, config, stopwatch: as given
    """

    def __init__(
        self,
        policy: QueriedPolicy,
        parse: Callable[[Any], Any],
        events: Callable[[], int],
        estimate_of: Callable[[PendingJob], tuple[float | None, str | None]],
        config: InstanceConfig,
        stopwatch: Callable[[], float],
    ) -> None:
        self.policy = policy
        self.parse = parse
        self.events = events
        self.estimate_of = estimate_of
        self.config = config
        self.stopwatch = stopwatch

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

    def kind_of_wait(self, job: PendingJob) -> str:
        """What `job` waits for, in a word: the name of an admission rule such as ``reservation``,
        or ``order``, ``down``, ``resources``."""
        policy = self.policy
        cause = policy.admission.why(job)
        if cause is not None:
            return cause.rule
        if policy.ahead_of(job):
            return "order"
        waits = policy.facts.waits_for_down_ranks(job.resource_request)
        return "down" if waits else "resources"
