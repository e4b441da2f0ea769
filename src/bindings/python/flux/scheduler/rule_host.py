# SPDX-License-Identifier: LGPL-3.0-or-later
"""The interface of a scheduler to the library's admission rules."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Callable

from flux.resource.errors import InsufficientResources
from flux.resource.plan.plan import Plan
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.admission import AdmissionRule, JobDeferred
from flux.scheduler.admission_control import AdmissionControl
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.base import Scheduler
from flux.scheduler.checkpoint import Checkpoints
from flux.scheduler.decision import Decision, PolicyView
from flux.scheduler.host import Host
from flux.scheduler.passes import Passes
from flux.scheduler.queue import JOBS_PER_TURN, Backlog
from flux.scheduler.requests import PendingJob
from flux.scheduler.site_policy.holdings import Placeholders


def signature_of(request: Any, marks: Any) -> Any:
    """Return the `PendingJob.signature` of a job: jobs with equal ones differ only in their limits.
    `marks`: the parts added by admission rules, or None."""
    shape = getattr(request, "shape", None)
    return shape if marks is None or shape is None else (shape, marks)


class RuleHost:
    """A scheduler, for the library's rules: the members of
    `flux.scheduler.admission.AdmissionHost`, which a site's rules may use too, and others.

    Attributes:
        admission, facts, forecasts, planning, queue_order, running: those of the scheduler
        now, call_at, pending, pending_jobs, readmit, look_again, prioritize,
            start, refuse, give_up, start_schedule: its methods
        all_pending, go_ahead: those of its `Requests` and its passes
        checkpoint: makes a checkpoint (`Checkpoints.make`)
        reads_files (bool): whether the site's files describe the present; not in a simulation
        handle, log, errors: the scheduler's
        configuration: returns the instance's configuration, as last loaded
        parse: makes a request of the pool from a jobspec
        queue_names (QueueNames): resolves queue names
        placeholders (Placeholders): keeps resources from jobs
    """

    def __init__(
        self,
        scheduler: PolicyView,
        host: Host,
        passes: Passes,
        checkpoints: Checkpoints,
        parse: Callable[..., Any],
    ) -> None:
        self.parse = parse
        self._scheduler = scheduler
        self._requests, self._queue = passes.requests, passes.requests.queue
        self._passes = passes
        self._commits = host.commits
        self.configuration = host.config.get
        self.handle, self.log, self.errors = scheduler.handle, scheduler.log, host.errors
        self.admission: AdmissionControl = scheduler.admission
        self.facts, self.forecasts = scheduler.facts, scheduler.forecasts
        self.placeholders = Placeholders(scheduler)
        self.queue_order, self.queue_names = scheduler.queue_order, scheduler.queue_names
        self.running = scheduler.running
        self.now, self.call_at = scheduler.now, scheduler.call_at
        self.pending, self.prioritize = scheduler.pending, scheduler.prioritize
        self.planning = scheduler.planning
        self.readmit = scheduler.readmit
        self.look_again, self.start_schedule = scheduler.look_again, scheduler.start_schedule
        self.start = scheduler.start_or_deny
        self.all_pending, self.go_ahead = passes.requests.jobs, passes.main.go_ahead
        self.refuse, self.give_up = scheduler.refuse, scheduler.give_up
        self.pending_jobs = scheduler.pending_jobs
        self.checkpoint = checkpoints.make
        self.reads_files = not host.takes_objects

    @property
    def resources(self) -> ResourcePool:
        """The scheduler's pool."""
        return self._scheduler.resources

    @property
    def decision(self) -> Decision:
        """The scheduler's decision."""
        return self._scheduler.decision

    @property
    def events_seen(self) -> int:
        """Return a number that grows with every event followed by a pass."""
        return self._passes.events

    def tell_of_passes(self, completed: Callable[[int], None], tell: bool = True) -> None:
        """Have ``completed(events)`` called when a pass that began after that number of events
        (`events_seen`) has completed; `tell` false: stop."""
        told = self._passes.completed
        if (completed in told) != tell:
            (told.append if tell else told.remove)(completed)

    def store(self, key: str, text: str, stored: Callable[[], None]) -> None:
        """Store JSON text under a KVS key, then call ``stored()``. Calls during a commit join the
        next one, in order."""
        self._commits.put(key, text, stored)

    # -- pending jobs ------------------------------------------------------------------------------

    def defer(self, job: PendingJob, why: JobDeferred) -> None:
        """Defer a pending job on a rule's own initiative rather than in answer to a check: the job
        loses its promise. A pass must follow (`look_again`)."""
        self.decision.defer(job, why)

    def readmit_in_turn(self, rule: AdmissionRule, key: Hashable, most: float) -> None:
        """Readmit the jobs that a rule deferred with a key until it defers one again: one by one,
        in queue order, as the pass examines them. With a policy in strict order, `most` per
        signature return at once, for which there can be room."""
        groups = list(self.admission.deferred.groups(rule, key))
        for group in groups:
            group.is_deferred = False
            self.decision.readmit_group(group, int(min(most, group.count)))
        if groups and not self._passes.pending:
            self.start_schedule()

    def allocate(self, job: PendingJob, plan: Plan | None = None) -> ResourcePool:
        """Allocate resources to a job outside passes; as `PolicyScheduler.allocate`.  Raises
        InsufficientResources while rules are still to be told of jobs (`go_ahead`), too."""
        if self._passes.main.ahead:
            raise InsufficientResources("tables of the configuration are coming into force")
        return self._scheduler.allocate(job, plan)

    def start_out_of_turn(
        self, rule: AdmissionRule, job: PendingJob, alloc: ResourcePool, **annotations: Any
    ) -> None:
        """Start a job regardless of its place in the queue: a queued job, or one that a rule has
        deferred with the job's id as key. Arguments are those of `PolicyScheduler.start`."""
        if not self.admission.deferred.readmit(rule, job.jobid):
            self._queue.remove(job)
        self.start(job, alloc, **annotations)

    def order_by_share(self, level: Callable[[PendingJob], tuple[float, ...]] | None) -> None:
        """Sort jobs of equal priority by a rule's key, a tuple, the lowest first; None: by
        submission. The queue is sorted again, and a pass follows. If the scheduler overrides
        `order`, that takes precedence."""
        scheduler, requests = self._scheduler, self._requests
        order: Any = type(scheduler).order
        if order is not Scheduler.order:
            self.log.warning(f"{scheduler.name} has an order() of its own: shares do not change it")
            return
        self.queue_order.by_share = level is not None
        requests.order = level and (lambda job: (job.by_priority, *level(job)))
        scheduler.reorder()  # the queue may contain jobs that have left, in the previous order
        if requests:
            self.look_again()

    # -- rules that come into force ----------------------------------------------------------------

    def tell_pending(
        self, rules: Sequence[AdmissionRule], jobs: Sequence[PendingJob]
    ) -> Iterator[None]:
        """Tell some rules, which do not know them, of pending jobs, without those that have left
        meanwhile; a rule that was removed loses its part of their signatures, and the jobs that one
        of them has deferred are readmitted.

        If one of the rules changes requests, the requests are made again. For all other rules, a
        job whose request is another then has been withdrawn and requested again; it loses its
        promise, and a pass follows. Costs parsing each jobspec. A generator, for `go_ahead`, that
        yields at intervals."""
        for at in range(0, len(jobs), JOBS_PER_TURN):
            if at:
                yield
            some = [job for job in jobs[at : at + JOBS_PER_TURN] if not job.request.finalized]
            anew = [[job.jobid, job.priority] for job in some if self._tell(rules, job)]
            if anew:
                self._passes.events += 1
                self.prioritize(anew)  # so that they lose their promises
                self.look_again()

    def ask_promised(self) -> Iterator[None]:
        """Defer the promised jobs that a rule keeps waiting now, after a change of tables; they
        lose their promises. A generator that yields at intervals."""
        for number, job in enumerate(map(self.pending, list(self.planning.made() or ())), 1):
            if number % JOBS_PER_TURN == 0:
                yield
            if job is None or not job.queued or job.request.finalized:
                continue
            try:
                self.admission.check(job)
            except JobDeferred as why:
                self.defer(job, why)
            except Exception:
                pass  # it is told when the job is examined

    def _tell(self, rules: Sequence[AdmissionRule], job: PendingJob) -> bool:
        """Tell some rules of a pending job. Return whether its request is another."""
        admission, deferred = self.admission, self.admission.deferred
        remakes = any(rule.changes_requests for rule in rules)
        jobspec, is_another = job.request.read_jobspec(), False
        attributes = SystemAttributes.from_jobspec(jobspec)
        try:
            if remakes:
                request = self.parse(jobspec, job.request.read_jobspec)
                is_another = admission.ask_anew(job, attributes, request, rules)
            told = admission.rules if is_another else rules
            told = [rule for rule in told if not (remakes and rule.changes_requests)]
            marks = admission.tell_of_pending(job, attributes, told)
        except Exception as exc:
            if not isinstance(exc, (TypeError, ValueError)):
                self.log.error(f"{job.name}: {type(exc).__name__}: {exc}")
            self.give_up(job, str(exc))
            return False
        if job.jobid in deferred and (is_another or deferred.by_id[job.jobid][1] in rules):
            deferred.take(job)
            job.signature = signature_of(job.resource_request, marks)
            self._queue.push(job)
        else:
            self._requeue(job, signature_of(job.resource_request, marks))
        job.demoted = job.demoted and not is_another
        return is_another

    def _requeue(self, job: PendingJob, signature: Any) -> None:
        """Set a pending job's signature, and queue it again if the queue depends on signatures."""
        if job.signature == signature:
            return
        queued = isinstance(self._queue, Backlog) and job.jobid not in self.admission.deferred
        if queued:
            self._queue.remove(job)
        job.signature = signature
        if job.jobid in self.admission.deferred:
            self.admission.deferred.regroup(job)
        if queued:
            self._queue.push(job)
