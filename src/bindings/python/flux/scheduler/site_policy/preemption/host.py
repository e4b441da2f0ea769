# SPDX-License-Identifier: LGPL-3.0-or-later
"""What preemption may use of its scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Protocol

from flux.scheduler.site_policy.table_rule import SitePolicyHost

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.admission import AdmissionControl, AdmissionRule, JobDeferred
    from flux.scheduler.history import StartedJob
    from flux.scheduler.order import QueueOrder
    from flux.scheduler.requests import PendingJob


class PreemptionHost(SitePolicyHost, Protocol):
    """A scheduler as preemption sees it."""

    admission: AdmissionControl
    queue_order: QueueOrder
    running: dict[int, StartedJob]

    @property
    def keeps_promised_times(self) -> bool: ...

    def pending(self, jobid: int) -> PendingJob | None: ...

    def goes_first(self, job: PendingJob) -> bool: ...

    def set_apart(self, job: PendingJob, why: JobDeferred) -> None: ...

    def start_set_apart(
        self, rule: AdmissionRule, job: PendingJob, alloc: ResourcePool, **annotations: Any
    ) -> None: ...

    def allocate(self, job: PendingJob, plan: Plan | None = None) -> ResourcePool: ...

    def refuse(self, job: PendingJob, error: Exception) -> None: ...

    def store(self, key: str, text: str, stored: Callable[[], None]) -> None: ...

    def configuration(self) -> dict[str, Any]: ...
