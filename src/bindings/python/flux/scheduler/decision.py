# SPDX-License-Identifier: LGPL-3.0-or-later
"""The part of a policy that selects the pending jobs to start, and makes promises.

A `PolicyScheduler` has three loosely coupled parts: `Scheduler` speaks the protocols, its
`Decision` decides, and `flux.scheduler.forecasts` informs users. A scheduler passes each event to
its decision, and queries it with the methods below. This base class is for a policy that starts
jobs in its own ``schedule()``, as `Fifo` does: it makes no promises and keeps no state. `Planning`
has the plan through which jobs start, made on demand.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Callable, Protocol
from weakref import WeakKeyDictionary

from flux.resource.plan.claims import Claims
from flux.resource.plan.plan import Plan
from flux.resource.plan.tokens import TokenPlan
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.admission import AdmissionHost
from flux.scheduler.queue import OrderingPolicy, QueueOrder
from flux.scheduler.requests import PendingJob, RunningJob
from flux.scheduler.site_policy.tables import QueueNames
from flux.scheduler.walk import JobGroup


class PolicyView(OrderingPolicy, AdmissionHost, Protocol):
    """The interface of a `PolicyScheduler` for its other parts."""

    estimate_depth: int
    reason_depth: int
    odds_depth: int
    queue_depth: int | str
    has_virtual_time: bool
    planning: Planning
    queue_names: QueueNames
    queue_order: QueueOrder
    running: dict[int, RunningJob]
    started_jobs: dict[str, int]
    loaded_at: float

    @property
    def name(self) -> str: ...

    @property
    def handle(self) -> Any: ...

    @property
    def decision(self) -> Decision: ...

    @property
    def forecasts(self) -> Any: ...  # a `Forecasts`, which reads this file

    @property
    def odds(self) -> Any: ...  # likewise an `OddsService`

    @property
    def wait_limits(self) -> Any: ...  # and a `WaitLimits`

    def order(self, job: PendingJob) -> Any: ...

    def reorder(self) -> None: ...

    def look_again(self) -> None: ...

    def start_schedule(self) -> None: ...

    def allocate(self, job: PendingJob, plan: Plan | None = None) -> ResourcePool: ...

    def refuse(self, job: PendingJob, error: BaseException) -> None: ...

    def give_up(self, job: PendingJob, note: str) -> None: ...

    def pending_jobs(
        self, deferred: bool = True, most: int | None = None
    ) -> Iterator[PendingJob]: ...

    def start_or_deny(self, job: PendingJob, alloc: ResourcePool, **annotations: Any) -> None: ...

    def defer(self, job: PendingJob, why: Any) -> None: ...

    def why(self, job: PendingJob, facts: dict[str, Any] | None = None) -> str | None: ...

    def stats_get(self) -> dict[str, Any]: ...

    def enter_projection(self) -> None: ...

    def take_in_projection(self, msg: Any) -> None: ...


class Decision:
    """The decision of a policy.

    Attributes:
        looks_past_heads (bool): whether a job may start before a waiting one ahead of it
        plans_tokens (bool): whether licences with ``plan = true`` are promised together with nodes
        notes_arrivals (bool): whether `arrives` is called for each job
        asks_in_order (bool): whether jobs are examined in order, beginning with the first
        keeps_times (bool): whether a promise keeps its time or an earlier one to the job's start
        another_pass (bool): set when a pass was requested, for a decision that goes on instead
    """

    looks_past_heads = False
    plans_tokens = False
    notes_arrivals = False
    asks_in_order = True
    keeps_times = False
    another_pass = False

    def __init__(self, policy: PolicyView) -> None:
        self.policy = policy
        # readmitted job -> its group
        self._readmitted_from: WeakKeyDictionary[PendingJob, JobGroup] = WeakKeyDictionary()

    # -- events ------------------------------------------------------------------------------------

    def pool_made(self) -> None:
        """Called when there is a pool, before jobs arrive."""

    def arrives(self, job: PendingJob) -> None:
        """Called before a job is queued, if `notes_arrivals`."""

    def defer(self, job: PendingJob, why: Any) -> None:
        """Take a job out of the queue that a rule defers; it loses its promise."""
        self.policy.defer(job, why)

    def leaves(self, job: PendingJob) -> None:
        """Called before a job leaves the queue other than by a pass's decision."""

    def is_promised(self, job: PendingJob) -> bool:
        """Whether a job that is not in the plan is about to be promised its time again."""
        return False

    def starts_out_of_turn(self, job: PendingJob) -> None:
        """Called before a rule starts a job regardless of its place in the queue."""
        self.leaves(job)

    def moves(self, job: PendingJob) -> None:
        """Called before a job's priority or request changes."""

    def reordered(self) -> None:
        """Called when the queue was sorted again."""

    def released(self) -> None:
        """Called when resources were released, came up or changed: blocked jobs may start."""

    def ranks_changed(self, lost: bool) -> None:
        """Called when ranks came up or, if `lost`, went down, left or changed."""

    def plan_void(self) -> None:
        """Called when the plan is void, with all promises in it."""

    def extended(self) -> None:
        """Called when a running job was given more time."""

    def readmit_group(self, group: JobGroup, most: int) -> None:
        """Readmit a group of deferred jobs. By counts of free resources, at most `most` of them can
        have room; the counts may miss one."""
        for job in group.head(max(1, most) if self.asks_in_order else None):
            self._readmitted_from[job] = group
            self.policy.admission.deferred.requeue(job)

    def deferred(self, job: PendingJob) -> bool:
        """Called when a rule has deferred a job. If another rule had readmitted it, readmit the next
        job of its group. Return whether there is one."""
        group = self._readmitted_from.pop(job, None)
        if group is None or not group.is_readmitted:
            return False
        self.readmit_group(group, 1)
        return True

    # -- questions ---------------------------------------------------------------------------------

    def goes_first(self, job: PendingJob) -> bool:
        """Return whether a job would start if there were room for it beside all promises."""
        return self.policy.queue_order.first_ahead_of(job) is None

    def ahead_of(self, job: PendingJob) -> PendingJob | None:
        """Return the job that a pending job waits for, or None."""
        if job.jobid in self.policy.admission.deferred:
            return None
        return self.policy.queue_order.first_ahead_of(job)

    def why(self, job: PendingJob) -> str | None:
        """Return why a job waits although there is room for it, in a sentence, or None."""
        return None

    def promised_start(self, job: PendingJob) -> float | None:
        """Return the time of a job's firm promise (seconds since the epoch), or None."""
        return None

    def facts(self, job: PendingJob) -> dict[str, Any]:
        """Return a job's additions to the answer of ``sched.explain``: ``rank``, ``expected_run``
        (seconds), ``t_latest`` (seconds since the epoch, or None)."""
        return {}

    def yielding(self, job: PendingJob) -> set[int]:
        """Return the ids of the jobs whose promises do not count for a job that starts now: its
        own, and others that give way."""
        return {job.jobid}

    def plans(self, plan: Plan, job: PendingJob | None = None) -> Generator[None, None, list[Plan]]:
        """Return the plans into which a job fits that starts now, pending or (None) a new one:
        ``plan``, and others; a generator that yields at intervals."""
        yield from ()
        return [plan]

    def stats(self) -> dict[str, Any]:
        """Return additions to ``flux module stats``."""
        return {}

    # -- actions -----------------------------------------------------------------------------------

    def schedule(self) -> Iterable[float | None]:
        """Make a pass, in steps. A policy without a decision of its own has a ``schedule()``."""
        return ()


class Planning:
    """A scheduler's plan, with the resources that admission rules keep from jobs, and the promises.

    Only the policy and admission rules may change it; others use copies.

    Attributes:
        attached: called with each new plan, while it is empty, and with None when the plan is void
        before_use: called once before the plan is next used, if set: a pass that was interrupted
            restores the promises that it had withdrawn
        claims (Claims): the claims of running jobs on ranks, in each plan; None: there are none
        tokens (TokenPlan): the tokens in each plan, without promises; None: there are none
    """

    claims: Claims | None = None
    tokens: TokenPlan | None = None
    attached: Sequence[Callable[[Plan | None], None]] = ()
    before_use: Callable[[], None] | None = None

    def __init__(self, scheduler: PolicyView, stop: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._stop = stop
        self.plan: Plan | None = None  # the plan, if it was made, for passes; others use `made`
        self.in_doubt = False  # whether a starting job may break promises
        self._missing: set[str] = set()  # operations that the pool lacks

    def pool_can(self, operation: str) -> bool:
        """Return whether the pool has an optional operation, a method such as ``"plan"``; a missing
        one is logged once."""
        pool = self._scheduler.resources
        if pool.can(operation):
            return True
        if operation not in self._missing:
            self._missing.add(operation)
            name = type(pool).__name__
            self._scheduler.log.warning(
                f"pool class {name} has no {operation}(): going on without it"
            )
        return False

    def tell_of_no_place(self, job: PendingJob) -> None:
        """Log, once, that the pool finds no place for a job although none of its ranks is down, all
        count as free, and its check has passed."""
        if "place" not in self._missing:
            self._missing.add("place")
            self._scheduler.log.error(
                f"pool class {type(self._scheduler.resources).__name__}: no place for {job.name} even with all resources"
                " free, though its check has let the job pass: a hook or placement may depend on its arguments alone"
            )

    def made(self) -> Plan | None:
        """Return the plan, or None if it was not made."""
        if self.before_use is not None:
            self.before_use()
        return self.plan

    def current(self) -> Plan | None:
        """Return the plan, or None if the pool cannot plan."""
        if self.made() is None and self.pool_can("plan"):
            pool = self._scheduler.resources
            plan = self.plan = pool.plan()
            if self.tokens is not None:
                plan.tokens = self.tokens.blank()
            plan.claims = self.claims
            for attach in self.attached:
                attach(plan)
        return self.plan

    def require(self) -> Plan | None:
        """Return the plan, for a policy that requires one. If the pool cannot plan, log that, end
        the scheduler and return None."""
        plan = self.current()
        if plan is None:
            scheduler = self._scheduler
            scheduler.log.critical(
                f"{scheduler.name} needs a pool that can plan(), which {type(scheduler.resources).__name__} "
                "cannot: it ends here"
            )
            self._stop()
        return plan

    def renew(self) -> None:
        """Drop the plan with all its promises: ranks were lost, or the resources kept by an
        admission rule do not fit beside the promises. The next pass makes a new plan."""
        self.plan, self.in_doubt = None, False
        for attach in self.attached:
            attach(None)
        self._scheduler.decision.plan_void()

    def doubt(self) -> None:
        """Note that a starting job may break promises; `check_promises` follows when all rules have
        been told."""
        self.in_doubt = True

    def check_promises(self) -> None:
        """Check promises in doubt: all rules have entered a starting job's use of the resources
        that they keep."""
        self.in_doubt, plan = False, self.made()
        if plan is not None and plan.breaks_a_promise():
            self.renew()
