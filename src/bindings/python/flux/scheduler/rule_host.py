# SPDX-License-Identifier: LGPL-3.0-or-later
"""What the rules of the library may use of their scheduler."""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from typing import TYPE_CHECKING, Any, Callable, Protocol

from flux.scheduler.admission import AdmissionRule
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.base import Scheduler
from flux.scheduler.decision import PolicyView
from flux.scheduler.queue import Backlog

if TYPE_CHECKING:
    from collections.abc import Hashable

    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.admission import JobDeferred
    from flux.scheduler.admission_control import AdmissionControl
    from flux.scheduler.checkpoint import Checkpoints
    from flux.scheduler.decision import Decision, Planning
    from flux.scheduler.forecasts import Forecasts
    from flux.scheduler.host import Committer, InstanceConfig, Timer
    from flux.scheduler.passes import Passes
    from flux.scheduler.pools import RequestFacts
    from flux.scheduler.queue import QueueOrder
    from flux.scheduler.requests import PendingJob, Requests, RunningJob
    from flux.scheduler.site_policy.holdings import Holdings
    from flux.scheduler.site_policy.queue_names import QueueNames


def signature_of(request: Any, marks: Any) -> Any:
    """The `PendingJob.signature` of a job: jobs of one signature differ in their limits alone.

    Args:
        request: what the job asks for
        marks: what admission rules have to tell of it; None: nothing
    """
    shape = getattr(request, "shape", None)
    return shape if marks is None or shape is None else (shape, marks)


class HostedPolicy(PolicyView, Protocol):
    """What rules use of their scheduler, a `PolicyScheduler`, through a `RuleHost`."""

    admission: AdmissionControl
    facts: RequestFacts
    holdings: Holdings
    planning: Planning
    queue_names: QueueNames
    queue_order: QueueOrder
    running: dict[int, RunningJob]
    forecasts: Forecasts

    def call_at(self, when: float, function: Callable[[], Any] | None = None) -> Timer: ...

    def prioritize(self, jobs: list[Any]) -> None: ...

    def readmit(
        self, rule: AdmissionRule, key: Hashable = None, most: int | None = None
    ) -> None: ...

    def defer(self, job: PendingJob, why: JobDeferred) -> None: ...

    def order(self, job: PendingJob) -> Any: ...

    def reorder(self) -> None: ...

    def look_again(self) -> None: ...

    def start_schedule(self) -> None: ...

    def allocate(self, job: PendingJob, plan: Plan | None = None) -> ResourcePool: ...

    def start(self, job: PendingJob, alloc: ResourcePool, **annotations: Any) -> None: ...

    def refuse(self, job: PendingJob, error: Exception) -> None: ...

    def give_up(self, job: PendingJob, note: str) -> None: ...


class RuleHost:
    """A scheduler as the rules of the library see it: what `flux.scheduler.admission.AdmissionHost`
    has, which a site's own rule may use as well, and what takes more care.

    Args:
        scheduler (PolicyScheduler): the scheduler
        requests (Requests): its requests, with the queue
        passes (Passes): when it decides
        commits (Committer): what it stores
        config (InstanceConfig): the configuration of the instance
        checkpoints (Checkpoints): what is kept over a reload
        reads_files (bool): whether files of the site say how things are now; not in a simulation, whose
            time is another

    Attributes:
        admission, facts, holdings, planning, queue_order, running: those of the scheduler
        now, call_at, pending, pending_jobs, readmit, look_again, prioritize,
            allocate, start, refuse, give_up, start_schedule: its methods
        checkpoint: makes a checkpoint (`Checkpoints.make`)
        reads_files (bool): as given
        handle, log: its own
        configuration: gives the configuration of the instance, as it was loaded last
        queue_names (QueueNames): which queues a name covers
    """

    def __init__(
        self,
        scheduler: HostedPolicy,
        requests: Requests,
        passes: Passes,
        commits: Committer,
        config: InstanceConfig,
        checkpoints: Checkpoints,
        reads_files: bool,
    ) -> None:
        self._scheduler = scheduler
        self._requests, self._queue = requests, requests.queue
        self._passes = passes
        self._commits = commits
        self.configuration = config.get
        self.handle, self.log = scheduler.handle, scheduler.log
        self.admission: AdmissionControl = scheduler.admission
        self.facts, self.holdings = scheduler.facts, scheduler.holdings
        self.queue_order, self.queue_names = scheduler.queue_order, scheduler.queue_names
        self.running = scheduler.running
        self.now, self.call_at = scheduler.now, scheduler.call_at
        self.pending, self.prioritize = scheduler.pending, scheduler.prioritize
        self.planning = scheduler.planning
        self.readmit = scheduler.readmit
        self.look_again, self.start_schedule = scheduler.look_again, scheduler.start_schedule
        self.allocate, self.start = scheduler.allocate, scheduler.start
        self.refuse, self.give_up = scheduler.refuse, scheduler.give_up
        self.pending_jobs = scheduler.pending_jobs
        self.checkpoint = checkpoints.make
        self.reads_files = reads_files
        #: whether a rule says in which order jobs of equal priority are
        self.orders_by_share = False

    @property
    def resources(self) -> ResourcePool:
        """The scheduler's pool."""
        return self._scheduler.resources

    @property
    def decision(self) -> Decision:
        """How the scheduler decides."""
        return self._scheduler.decision

    @property
    def forecasts(self) -> Forecasts:
        """What users are told."""
        return self._scheduler.forecasts

    @property
    def events_seen(self) -> int:
        """A number that grows with every event that a pass follows."""
        return self._passes.events

    def tell_of_passes(self, completed: Callable[[int], None] | None) -> None:
        """Have ``completed(events)`` called when a pass has come to its end that had seen that number of
        events (`events_seen`); None: no more. For one rule."""
        self._passes.completed = completed

    def store(self, key: str, text: str, stored: Callable[[], None]) -> None:
        """Store JSON text under a key of the KVS, then call ``stored()``. What becomes due while
        something is being stored goes along, in this order."""
        self._commits.put(key, text, stored)

    # -- jobs that wait ----------------------------------------------------------------------------

    def set_apart(self, job: PendingJob, why: JobDeferred) -> None:
        """Defer a pending job of a rule's own accord, not because the rule was asked about it: the job
        gives up what it was promised. A pass has to follow (`look_again`)."""
        self.decision.set_apart(job)
        self._scheduler.defer(job, why)

    def let_in(self, rule: AdmissionRule, key: Hashable, most: int) -> None:
        """Jobs that a rule has deferred may come back as long as it does not defer one of them again: a
        pass that looks past jobs that wait takes them one by one, in their turn. Where jobs are not
        asked so, they come back at once.

        Args:
            rule (AdmissionRule): which
            key: the jobs that wait for this (`Deferral.key`)
            most (int): how many that ask for the same there can be room for: so many come back at once
                where jobs start strictly in order
        """
        groups = list(self.admission.deferred.groups(rule, key))
        for group in groups:
            group.is_shut = False
            self.decision.let_in(group, most)
        if groups and not self._passes.pending:
            self.start_schedule()

    def start_set_apart(
        self, rule: AdmissionRule, job: PendingJob, alloc: ResourcePool, **annotations: Any
    ) -> None:
        """Start a job whatever its place in the queue: one that a rule has `set_apart` under its id
        as the key, or one that is in the queue. Arguments are those of `PolicyScheduler.start`."""
        if not self.admission.deferred.readmit(rule, job.jobid):
            self._queue.remove(job)
        self.start(job, alloc, **annotations)

    def order_by_share(self, level: Callable[[PendingJob], tuple[float, ...]] | None) -> None:
        """Sort jobs of equal priority by what a rule says of each, the lowest first, from now on: the
        queue is sorted again, and a pass follows. An `order` of the scheduler's own counts instead.

        Args:
            level: gives a tuple for a pending job; None: such jobs are in the order of submission
        """
        scheduler, requests = self._scheduler, self._requests
        order: Any = type(scheduler).order
        if order is not Scheduler.order:
            self.log.warning(f"{scheduler.name} has an order() of its own: shares do not change it")
            return
        self.orders_by_share = level is not None
        requests.order = level and (lambda job: (job.by_priority, *level(job)))
        if requests:
            scheduler.reorder()
            self.look_again()

    def ask_for(self, job: PendingJob, request: Any) -> None:
        """Have a pending job ask for something else from now on: what it was promised is dropped, and
        a pass follows. To be called between the steps of passes, as from a timer.

        Args:
            job (PendingJob): the job
            request: what takes the place of its ``resource_request``
        """
        self._passes.events += 1
        _, marks = job.signature if isinstance(job.signature, tuple) else (None, None)
        self._requeue(job, signature_of(request, marks), request)
        self.prioritize([[job.jobid, job.priority]])  # so that it gives up what it was promised
        self.look_again()

    def _requeue(self, job: PendingJob, signature: Any, request: Any) -> None:
        """Give a pending job another signature and request. Where jobs are queued by their signatures
        it is queued anew."""
        queued = isinstance(self._queue, Backlog) and job.jobid not in self.admission.deferred
        if queued:
            self._queue.remove(job)
        job.signature, job.resource_request = signature, request
        if job.jobid in self.admission.deferred:
            self.admission.deferred.regroup(job)
        if queued:
            self._queue.push(job)

    # -- rules that come into force ----------------------------------------------------------------

    def jobs_running(self) -> list[RunningJob]:
        """The jobs that hold resources, as an admission rule is told of them: copies, of which attributes and
        eventlogs can be looked up and are not kept.  O(jobs)."""
        return [copy(job) for job in self.running.values()]

    def tell_pending(self, rule: AdmissionRule) -> None:
        """Tell a rule of all pending jobs, or that it is not asked about them any more. None of
        them may be deferred by it. Costs parsing each jobspec."""
        for job in list(self._scheduler.pending_jobs()):
            attributes = SystemAttributes.of_job(job)
            try:
                marks = self.admission.tell_of_pending(job, attributes, [rule])
            except (TypeError, ValueError) as exc:
                self.give_up(job, str(exc))
                continue
            signature = signature_of(job.resource_request, marks)
            if job.signature != signature:
                self._requeue(job, signature, job.resource_request)
