# SPDX-License-Identifier: LGPL-3.0-or-later
"""The base class of the library's schedulers, and of a site's own.

`PolicyScheduler` adds to `Scheduler` admission rules (`flux.scheduler.admission`), estimates and
reasons for users, and the services behind ``flux sched`` (`flux.scheduler.query`).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from itertools import islice
from math import inf
from syslog import LOG_DEBUG
from typing import TYPE_CHECKING, Any, Callable

from flux.brokermod import request_handler
from flux.constants import FLUX_RPC_NORESPONSE
from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.pool.masks import quote
from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation
from flux.scheduler.admission import AdmissionRule, JobDeferred
from flux.scheduler.admission_control import AdmissionControl
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.base import Scheduler
from flux.scheduler.decision import Decision, Planning
from flux.scheduler.disclosure import is_private
from flux.scheduler.forecasts import Forecasts
from flux.scheduler.forecasts import describe as describe  # documented under this name
from flux.scheduler.history import RunTimes, RunTimeService
from flux.scheduler.host import job_attributes
from flux.scheduler.messages import error_note, served_by
from flux.scheduler.misspelled import tell_mistakes
from flux.scheduler.odds_service import OddsService
from flux.scheduler.options import parse_number
from flux.scheduler.pools import RequestFacts
from flux.scheduler.projection.fork import Projections
from flux.scheduler.query.answering import Answering, Caller, Steps, payload_of
from flux.scheduler.query.service import QueryService
from flux.scheduler.query.source import QuerySource
from flux.scheduler.queue import JOBS_PER_TURN, Backlog, QueueOrder
from flux.scheduler.requests import RunningJob
from flux.scheduler.reservations.rule import ReservationRule
from flux.scheduler.rule_answers import WrongAnswer, check_answers
from flux.scheduler.rule_host import RuleHost, signature_of
from flux.scheduler.site_policy.fairshare import FairShareRule
from flux.scheduler.site_policy.in_force import RulesInForce
from flux.scheduler.site_policy.placement import PlacementRule
from flux.scheduler.site_policy.preemption.rule import PreemptionRule
from flux.scheduler.site_policy.tables import QueueNames
from flux.scheduler.wait_limits import WaitLimits

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.requests import AllocRequest, PendingJob


def _answered_by(
    topic: str, query: Callable[[Any], Callable[[Any, Caller], Steps]], guests: bool = False
) -> Callable[[Any, Any], None]:
    """Return the handler of a request that is answered in steps. `query` maps the scheduler to the
    function that computes the answer; `guests`: they may send it, not only callers that see all
    (`messages.sees_all`)."""

    return served_by(
        topic,
        lambda self, msg: self._answering.answer(msg, query(self)),
        guests=guests,
        sees_all=not guests,
    )


class PolicyScheduler(Scheduler):
    """Base class of schedulers that share the ways to start jobs, estimate starts and give reasons.

    Args:
        h: the Flux handle
        *args (str): module arguments; in addition to those of `Scheduler`: ``reason-depth=N``, the
            number of pending jobs with a reason (default 32, 0: none); ``estimate-depth=N``, with
            an estimate (default 4096); ``odds-depth=N``, with the odds of a start (default 64)

    Attributes:
        admission (AdmissionControl): the admission rules, and the jobs that they deferred
        decision (Decision): decides on starts
        facts (RequestFacts): the pool's answers about requests
        forecasts (Forecasts): annotations for users
        planning (Planning): the plan through which jobs start
        queue_order (QueueOrder): which jobs wait for which
        queue_names (QueueNames): the queues that a name covers
        loaded_at (float): time at which this scheduler was loaded, seconds since the epoch
        started_jobs (dict): selection type (RFC 27) -> number of jobs started since then
        running (dict): job id -> `RunningJob` that holds resources
        wait_limits (WaitLimits): gives up jobs at the end of their maximum waits
        odds (OddsService): likely starts of pending jobs
        predictions (PredictionScore): accuracy of predicted run times
        has_virtual_time (bool): whether the host's clock is not the machine's
        is_mature, show_estimate, show_reason, reasons: those of `forecasts`

    Raises:
        ValueError: an argument has a bad value, or is unknown
    """

    #: Number of pending jobs, from the head of the queue, that are told a reason.
    reason_depth = 32

    #: Number of pending jobs, from the head of the queue, that are told an estimated start.
    estimate_depth = 4096

    #: Number of pending jobs, from the head of the queue, that are told the odds of their starts.
    #: With 0, queries get none either.
    odds_depth = 64

    #: System attributes (RFC 14) to keep for running jobs, such as ``("bank", "queue")``; see
    #: `RunningJob.attributes`. A pending job has all.
    keep_attributes: tuple[str, ...] = ()

    #: Whether this is a forked copy in a projection.
    _is_projection = False

    #: Whether only jobs ahead that could use some of the same ranks block a job, so that queues with
    #: separate nodes never block each other; see ``order=``.
    by_queue = False

    def __init__(self, h: Any, *args: str) -> None:
        super().__init__(h, *args)
        self._passes.keeps_going = isinstance(self._backlog, Backlog)
        self.decision = Decision(self)
        self.loaded_at = self.now()
        self.started_jobs: dict[str, int] = Counter()
        self.running: dict[int, RunningJob] = {}
        # A rule may have set an earlier end than the instance's for a job without a limit.
        self._has_no_limit = lambda jobid: (
            jobid in self.running and self.running[jobid].limit == inf
        )
        self._run_times = RunTimeService(
            self._host,
            self._checkpoints,
            lambda *job: self.ended(*job),
            type(self).ended is not PolicyScheduler.ended,
        )
        self.predictions = self._run_times.predictions
        self._predicts = type(self).predicted is not PolicyScheduler.predicted
        self.facts = RequestFacts(lambda: self.resources)
        self.queue_order = QueueOrder(self, self._backlog)
        self.admission = AdmissionControl(self._requests, self.facts)

        self.planning = Planning(self, self.stop)
        self._projections = Projections(self, waits=self._host.has_virtual_time)
        self.forecasts = Forecasts(self._host, self, self._projections, self._passes.forecast)
        self.is_mature, self.reasons = self.forecasts.is_mature, self.forecasts.reasons
        self.show_estimate = self.forecasts.show_estimate
        self.show_reason = self.forecasts.show_reason
        self._requests.on_answer, self._requests.on_queue = self._answered, self._queued
        self.has_virtual_time = self._host.has_virtual_time
        self._answering = Answering(self._host, self._responder)

        def parse(*jobspec: Any) -> Any:
            return self._parser.parse(*jobspec)  # no cache before there is a pool

        self.odds = OddsService(self, self._projections, self._checkpoints)
        self.queue_names = QueueNames()
        host = RuleHost(self, self._host, self._passes, self._checkpoints, parse)
        self._reservations = ReservationRule(host)
        self.planning.attached = [self._reservations.attach, host.placeholders.attach]
        self.add_rule(self._reservations)
        self.wait_limits = WaitLimits(host)
        self.add_rule(self.wait_limits)
        own: dict[str, str] = {}
        for text in self.take_argument("rule"):
            name = text.rpartition(":")[2]
            own[name if own.get(name, text) == text else text] = text
        self._site_policy = RulesInForce(host, self._reservations, own)
        self._queries = QueryService(
            QuerySource(
                self,
                parse=lambda jobspec: self._parser.parse_unsubmitted(jobspec),
                events=lambda: self._passes.events,
                host=self._host,
                ask=self._projections.ask,
                reserved=self._reservations.answers.spans,
                levels=self._site_policy.rule(PlacementRule).levels,
                victim_ends=self._site_policy.rule(PreemptionRule).answers.victim_ends,
            )
        )
        given = {}
        for name in ("reason_depth", "estimate_depth", "odds_depth"):
            option = name.replace("_", "-")
            given[name] = self.take_argument(option)
            for text in (str(getattr(self, name)), *given[name]):
                setattr(self, name, parse_number(option, text, 0, "a number of jobs, 0 for none"))
        if not (given["odds_depth"] or self._host.wants_odds):
            self.odds_depth = 0
        # In virtual time a scheduler waits for its projections, and pauses between them have no
        # effect.
        asked = bool(given["odds_depth"]) and self.odds_depth > 0
        self.odds.tells = asked or not self._host.has_virtual_time

    def take_argument(self, name: str) -> list[str]:
        """Remove ``name=value`` from the remaining arguments. Return the values, in order; the last
        one counts."""
        self.own_options += (name,)
        prefix = name + "="
        values = [arg[len(prefix) :] for arg in self._pending_args if arg.startswith(prefix)]
        self._pending_args = [arg for arg in self._pending_args if not arg.startswith(prefix)]
        return values

    def schedule(self) -> Iterable[float | None] | None:
        return self.decision.schedule()

    # -- run times ---------------------------------------------------------------------------------

    @property
    def history(self) -> RunTimes:
        """The run times of ended jobs, collected since the first access. They are kept across
        reloads and restarts (`flux.scheduler.history`)."""
        return self._run_times.history

    def predicted(self, job: PendingJob) -> float | None:
        """Return the expected run time of a pending job in seconds, or None. Overridden by policies
        that predict; the value is kept with the running job (`RunningJob.predicted`)."""
        return None

    def ended(self, job: RunningJob, run: float, result: str | None) -> None:
        """Learn the run time of an ended job; called when it is known: in a simulation before the
        next pass, in an instance after the answer of ``job-list``.

        Args:
            job (RunningJob): the job
            run (float): its run time in seconds, without clean-up. Without ``job-list``, the time
                to its final free, at most its limit
            result (str): "completed", "failed", "canceled" or "timeout"; None: unknown
        """
        self._run_times.learn(job, run)

    # -- resources ---------------------------------------------------------------------------------

    def _update(self, update: dict[str, Any]) -> None:
        if update.get("shrink"):
            for jobid in self.running:
                self.admission.note_holding(jobid, self.admission.held_by(jobid))
        super()._update(update)

    def _ranks_changed(self, lost: bool) -> None:
        self.facts.clear()
        if lost:
            self.planning.renew()
        self.admission.ranks_changed(lost)
        self.odds.outdated()
        self.decision.ranks_changed(lost)
        for job, _, _, group in list(self.admission.deferred.by_id.values()) if lost else ():
            if group.count and group.first is job:
                try:
                    self.resources.check_feasibility(job.resource_request)
                except InfeasibleRequest as exc:  # too few ranks are left
                    for one in group.to_list():
                        self.give_up(one, str(exc))

    # -- admission ---------------------------------------------------------------------------------

    def add_rule(self, rule: AdmissionRule) -> None:
        """Append an admission rule. Call this from ``__init__``: a rule must be told of every
        job."""
        if not isinstance(rule, AdmissionRule):
            raise TypeError(f"add_rule(): expected an AdmissionRule, got {quote(rule)}")
        tell_mistakes(type(rule), self.log)
        check_answers(rule, self._errors)
        self.admission.add(rule)

    def readmit(self, rule: AdmissionRule, key: Hashable = None, most: int | None = None) -> None:
        """Queue jobs deferred by a rule again, since they may be able to start, and request a pass:
        those deferred with a key (`Deferral.key`; None: all), at most `most`, the first in queue
        order; the others stay deferred until the next call."""
        if not isinstance(rule, AdmissionRule):
            raise TypeError(f"readmit({quote(rule)}): expected the rule itself, then the key")
        if self.admission.asked is rule:
            raise RuntimeError(
                f"rule {rule.name}: readmit() in an answer: jobs would be asked about for ever; call it in free(), or by call_at()"
            )
        jobs = self.admission.deferred.readmit(
            rule, key, most if self.decision.asks_in_order else None
        )
        for job in jobs:
            self._backlog.push(job)
        if jobs and not self._passes.pending:
            self.start_schedule()

    def look_again(self) -> None:
        """Request a pass that examines blocked jobs again, for an event other than a message."""
        self._errors.guard("released", self.released)
        self._request_schedule()

    def defer(self, job: PendingJob, why: JobDeferred) -> None:
        """Take `job` out of the queue until the rule that deferred it (`why`, from `allocate`)
        readmits it. If another rule had readmitted it, the next job with the same deferral returns
        in its place."""
        self._backlog.remove(job)
        if job.signature is None:  # a queue without groups: those in one line return together
            job.signature = self.queue_order.ranks_of(job)
        self.admission.defer(job, why)
        _take_all(self)  # deferred jobs would keep others from being sent
        if self.decision.deferred(job):
            self._request_schedule()  # the current pass may not reach it
        self._passes.forecast()  # there may be no job left for a pass

    def _queued(self, job: PendingJob, jobspec: Any) -> None:
        admission = self.admission
        packed = type(jobspec) is bytes
        try:
            names = (
                self._parser.system_names(jobspec) if packed else jobspec["attributes"]["system"]
            )
            tells = not admission.attributes.isdisjoint(names)
        except (KeyError, TypeError):
            tells = False  # a jobspec without system attributes
        if tells or admission.tells_of_all:
            jobspec = job.request.read_jobspec() if packed else jobspec
            attributes = SystemAttributes.from_jobspec(jobspec)
            marks = admission.tell_of_pending(job, attributes, admission.rules)
            if marks is not None:
                job.signature = signature_of(job.resource_request, marks)
        if self.decision.notes_arrivals:
            self.decision.arrives(job)
        if self.queue_order.by_share:
            job.priority = job.priority  # the rule knows the job's user by now

    def _answered(self, jobid: int, event: str) -> None:
        """Drop the record of a pending job whose request was answered."""
        if jobid in self.forecasts.sent:
            del self.forecasts.sent[jobid]
        if jobid in self.odds.first:
            self.odds.left(jobid, event == "success")
        admission = self.admission
        if jobid in admission.deferred.by_id:
            admission.deferred.discard(jobid)
        if jobid in admission.told:
            admission.told.remove(jobid)
            if event != "success":
                admission.tell(AdmissionRule.cancel, jobid)
                admission.counted.pop(jobid, None)
        admission.deferred.requeued.discard(jobid)

    def _pool_made(self) -> None:
        self._parser.as_queued = self.admission.as_queued
        self.by_queue = self.by_queue and self.planning.pool_can("match_mask")
        self._site_policy.load(self._host.config.get())
        # Before hello: the job manager sends no frees between hello and ready.
        self._run_times.load()
        self.odds.load()
        self.decision.pool_made()

    def _before_ready(self, jobs: list[RunningJob]) -> None:
        for jobid, lost in self._lost_at_hello.items():
            held = self.admission.held_by(jobid).plus(lost.R)
            self.admission.note_holding(jobid, held)
        rules = self.admission.rules
        names = self._site_policy.needed(rules)
        if self.keep_attributes and "jobspec" not in names:
            names += ("jobspec",)
        if names:
            by_id = {job.jobid: job for job in jobs}
            for jobid, known in job_attributes(self.handle, sorted(by_id), names, self.log):
                by_id[jobid].know(known)
        for job in jobs:
            self.running[job.jobid] = job
            self.admission.tell(AdmissionRule.hello, job)
            job.keep(self.keep_attributes)
        self._errors.guard("reservations", self._reservations.open)
        self._site_policy.ready()

    # -- starting jobs -----------------------------------------------------------------------------

    def pending(self, jobid: int) -> PendingJob | None:
        """Return the pending job with this id, deferred or not, or None."""
        request = self._requests.get(jobid)
        return None if request is None else request.job

    def pending_jobs(self, deferred: bool = True, most: int | None = None) -> Iterator[PendingJob]:
        """Yield the pending jobs, deferred ones included unless told otherwise, in order; at most
        `most`."""
        held = self.admission.deferred
        deferred_jobs = held.jobs.to_list() if deferred and held else []
        queued = self._backlog.in_order(most)
        jobs = heapq.merge(queued, deferred_jobs) if deferred_jobs else queued
        for job in islice(jobs, most):
            if not job.request.finalized:
                yield job

    def allocate(self, job: PendingJob, plan: Plan | None = None) -> ResourcePool:
        """Allocate resources to `job` now, if all admission rules let it start.

        Args:
            job (PendingJob): the job
            plan (Plan): the plan with the policy's promises; None: there are none

        Returns:
            ResourcePool: its allocation

        Raises:
            JobDeferred: an admission rule keeps it from starting; see `defer`
            InsufficientResources: it does not fit now, or would break a promise or a reservation
            InfeasibleRequest, ValueError: from ``ResourcePool.alloc()``
        """
        admission = self.admission
        if not admission.engaged:
            alloc: ResourcePool = (plan or self.resources).alloc(job.jobid, job.resource_request)
            return alloc
        planning = self.planning
        if plan is None and (
            planning.claims is not None
            or planning.tokens is not None
            or self._reservations.entries
            or admission.asks_each
        ):
            plan = planning.plan or planning.current()
        return admission.allocate(job, plan, self.resources)

    def start(self, job: PendingJob, alloc: ResourcePool, **annotations: Any) -> None:
        """Answer a job's request with `alloc`.

        The start in R is now, the end now plus the job's duration, or else the instance's end.

        Args:
            job (PendingJob): the job
            alloc (ResourcePool): its allocation
            **annotations: keys under ``sched``, in addition to ``resource_summary``, which is
                omitted if no client reads it
        """
        if not isinstance(alloc, ResourcePoolImplementation):
            raise TypeError(f"start(): expected an allocation of the pool, got {quote(alloc)}")
        now = self.now()
        duration = getattr(job.resource_request, "duration", 0)
        end = now + duration if duration > 0 else self.resources.expiration
        admission = self.admission
        if admission.engaged and admission.own_ends:
            end = admission.own_ends.get(job.jobid) or end
        predicted = None
        if self._predicts:
            try:
                predicted = self.predicted(job)
            except (Exception, SystemExit) as exc:  # it starts anyway
                self._errors.report(f"predicted: {job.name}", exc)
        self.running[job.jobid] = started = RunningJob(
            job.jobid,
            job.userid,
            job.size,
            duration or inf,
            now,
            end or inf,
            predicted,
        )
        if admission.engaged:
            admission.start(job, alloc, now, annotations)
            if self.planning.in_doubt:
                self.planning.check_promises()
        if self.keep_attributes:
            started.attributes = job.attributes.only(self.keep_attributes)
        if self.forecasts.are_read:
            annotations["resource_summary"] = alloc.dumps()
        if self.log.level >= LOG_DEBUG:
            self.log.debug(f"alloc: {job.name}: {alloc.dumps()}")
        if "backfill" in annotations and is_private(self._host.config.get()):
            del annotations["backfill"]  # the job ahead may be another user's
        self.started_jobs[annotations.get("selection_type", "immediate")] += 1
        R = alloc.to_dict()
        R["execution"] = {**R["execution"], "starttime": now, "expiration": end}
        job.request.success(R, {"sched": annotations})

    def start_or_deny(self, job: PendingJob, alloc: ResourcePool, **annotations: Any) -> None:
        """Call `start`. If it raises, the job is denied, unless it has started."""
        try:
            self.start(job, alloc, **annotations)
        except (Exception, SystemExit) as exc:
            self._errors.report(f"start: {job.name}", exc)
            if not job.request.finalized:
                job.request.deny(error_note(exc))

    def start_in_order(self) -> Iterator[None]:
        """Start jobs in order; behind a waiting job, none that could use some of the same ranks.
        For `schedule`; a generator that yields after each job that leaves the queue.

        In strict order only the head is examined; by queue, each job that is first for some of its
        ranks: no job waits for one that a rule keeps from starting. The rest cost a comparison of
        masks. Jobs of a reservation start in its window also behind a waiting job, which may not
        use its resources.
        """
        blocked = 0
        inside: set[PendingJob] = set()  # to start in their windows
        if self._reservations.entries:
            _take_all(self)  # whichever belong to a group
            inside = self._reservations.jobs_in_windows()
        for examined, job in enumerate(self._backlog.in_order(), 1):
            if job.request.finalized:
                continue
            ranks = self.queue_order.ranks_of(job)
            is_first = not ranks & blocked
            is_asked = is_first or ranks & ~blocked or job in inside
            inside.discard(job)
            if is_asked and self._leaves(job, is_first):
                yield
                continue
            # It blocks the jobs behind it, whether it waits for resources or is itself blocked.
            blocked |= ranks
            if self.queue_order.all_blocked(blocked):
                break
            if examined % JOBS_PER_TURN == 0:
                yield
        for examined, job in enumerate(sorted(inside), 1):
            if not job.request.finalized and job.jobid not in self.admission.deferred:
                if self._leaves(job, False):
                    yield
            if examined % JOBS_PER_TURN == 0:
                yield

    def _leaves(self, job: PendingJob, is_first: bool) -> bool:
        """Start a job if it can start now. Return whether it leaves the queue. `is_first`: it may
        start anywhere; else only on what a rule keeps for it."""
        try:
            if is_first:
                alloc: Any = self.allocate(job)
            elif job.jobid in self.admission.kept_for:
                plan = self.planning.current()
                alloc = self.admission.allocate(job, plan, self.resources, only_kept=True)
            else:
                self.admission.check(job)
                return False
        except JobDeferred as why:
            self._backlog.remove(job)  # before it is deferred, which may bring it back at once
            self.defer(job, why)
            return True
        except InsufficientResources:
            return False
        except (Exception, SystemExit) as exc:
            self.refuse(job, exc)  # it can never run
        else:
            self.start_or_deny(job, alloc)
        self._backlog.remove(job)
        return True

    def refuse(self, job: PendingJob, error: BaseException) -> None:
        """Deny a job that the pool rejects. `error`, from `allocate`, is the reason, or a bug of
        the pool, which is logged: it fails this job, not the scheduler."""
        note = str(error)
        if not isinstance(error, (OSError, WrongAnswer)):
            self._errors.report(f"alloc: {job.name}", error)
            note = f"internal error: {type(error).__name__}: {note}"
        job.request.deny(note)

    def give_up(self, job: PendingJob, note: str) -> None:
        """Deny a pending job, deferred or not, with the reason `note` for its user. Call this
        between steps of passes, such as from a timer; a pass itself uses `refuse`."""
        self._passes.events += 1
        self.decision.leaves(job)
        self._requests.take_out(job.request)
        job.request.deny(note)
        self._request_schedule()

    def start_schedule(self) -> None:
        self.decision.another_pass = True
        self._passes.begin()

    # -- events ------------------------------------------------------------------------------------

    def cancel(self, jobid: int) -> None:
        job = self.pending(jobid)
        if job is not None:
            self.decision.leaves(job)
        super().cancel(jobid)

    def released(self) -> None:
        if self._requests:  # a job waits
            self.decision.released()

    def _end_moved(self, jobid: int, expiration: float) -> None:
        job, end = self.running.get(jobid), expiration or inf
        is_later = job is not None and end > job.end
        if job is not None:
            job.end = end
        super()._end_moved(jobid, expiration)
        if self.admission.engaged:
            self.admission.tell(AdmissionRule.extended, jobid, expiration)
        if is_later:
            self.decision.extended()

    def prioritize(self, jobs: list[Any]) -> None:
        for jobid, _ in jobs:
            job = self.pending(jobid)
            if job is not None:
                self.decision.moves(job)
        deferred = self.admission.deferred
        if deferred:
            deferred.move({jobid: priority for jobid, priority in jobs if jobid in deferred})
            jobs = [one for one in jobs if one[0] not in deferred]
        super().prioritize(jobs)
        self.admission.moved()

    def reorder(self) -> None:
        deferred = self.admission.deferred
        deferred.move({jobid: found[0].priority for jobid, found in deferred.by_id.items()})
        super().reorder()
        self.admission.moved()
        self.decision.reordered()

    def _release(self, jobid: int, R: Any, final: bool) -> None:
        super()._release(jobid, R, final)
        job = self.running.pop(jobid, None) if final else self.running.get(jobid)
        if job is not None and not final:
            job.ending = self.now()  # it has ended, and is being cleaned up
        elif job is not None:
            if self.odds_depth and not self._is_projection:
                self.odds.ended(job)
            self._run_times.job_ended(job)
        if self.admission.engaged or self.admission.counted:
            self.admission.free(jobid, R, final, self.now)

    def _success_failed(self, request: AllocRequest, R: Any, error: Exception) -> None:
        super()._success_failed(request, R, error)
        if self.admission.engaged and not self._requests.is_running(request.jobid):
            # The rules were told of the start.
            self.admission.free(request.jobid, R, True, self.now)

    def stats_get(self) -> dict[str, Any]:
        stats = super().stats_get()
        stats["pending_jobs"] += len(self.admission.deferred)
        stats.update(self.decision.stats())
        return stats

    # -- estimates ---------------------------------------------------------------------------------

    def estimates(self) -> Iterator[float | None]:
        """Annotate each pending job with its expected start, if all jobs run to their limits and no
        other arrives (`flux.scheduler.projection`), and its likely start (`odds`); for `forecast`.

        A generator that yields after each job, and yields seconds when it has to wait.
        """
        yield from self.forecasts.estimates()
        if self.odds.tells:
            yield from self.odds.tell()

    def finish(self) -> None:
        self._projections.stop()
        super().finish()

    # -- projections -------------------------------------------------------------------------------

    def enter_projection(self) -> None:
        """Continue in the host of a forked process, to which the handle now belongs: as in a
        simulation, nothing is stored, sent or read."""
        self._is_projection = True
        self._host.takes_objects = True
        self._responder.limits = None
        self.forecasts.are_read = False
        self._passes.move()
        self._host.timers.move()
        self._commits.store_nothing()
        self._run_times.forget_service()
        self._site_policy.rule(PreemptionRule).enter_projection()

    def take_in_projection(self, msg: Any) -> None:
        """Handle a ``sched.alloc`` or ``sched.free`` message; the latter's R may be None."""
        if msg.topic == "sched.alloc":
            self._handle_alloc(msg)
        else:
            self._passes.events += 1
            self._release(msg.payload["id"], msg.payload["R"], True)
            self._request_schedule()

    # -- reasons -----------------------------------------------------------------------------------

    def why(self, job: PendingJob, facts: dict[str, Any] | None = None) -> str | None:
        """Return the reason of a job's wait, in one sentence; None if it could start now. `facts`
        are those of ``ResourcePool.explain()``, if already computed."""
        return self.forecasts.kind_of_wait(job, facts)[1]

    # -- requests ----------------------------------------------------------------------------------

    @request_handler("config-reload")
    def _handle_config_reload(self, msg: Any) -> None:
        def serve() -> None:
            self._host.config.replace(payload_of(msg))
            self._site_policy.reload(self._host.config.get())
            self.odds.outdated()
            self.handle.respond(msg, None)

        self._responder.serve(msg, serve)

    _handle_explain = _answered_by("sched.explain", lambda self: self._queries.explain, guests=True)
    _handle_when = _answered_by("sched.when", lambda self: self._queries.when, guests=True)
    _handle_windows = _answered_by("sched.windows", lambda self: self._queries.windows, guests=True)
    _handle_plan = _answered_by("sched.plan", lambda self: self._queries.plan)
    _handle_sched_stats = _answered_by("sched.stats", lambda self: self._queries.stats)
    _handle_reservations = _answered_by(
        "sched.reservations", lambda self: self._reservations.service.list, guests=True
    )

    _handle_preempt = _answered_by(
        "sched.preempt",
        lambda self: self._site_policy.rule(PreemptionRule).answers.preempt,
        guests=True,
    )
    _handle_preemptions = _answered_by(
        "sched.preemptions",
        lambda self: self._site_policy.rule(PreemptionRule).answers.list,
        guests=True,
    )
    _handle_limits = _answered_by(
        "sched.limits", lambda self: self._site_policy.in_use, guests=True
    )

    _handle_shares = _answered_by(
        "sched.shares", lambda self: self._site_policy.rule(FairShareRule).shares, guests=True
    )

    _handle_check_config = _answered_by("sched.check-config", lambda self: self._site_policy.check)

    _handle_disconnect = served_by(
        "sched.disconnect",
        lambda self, msg: self._errors.guard("disconnect", self._answering.forget, msg),
        guests=True,
    )
    _handle_reserve = served_by(
        "sched.reserve", lambda self, msg: self._reservations.service.reserve(msg)
    )
    _handle_unreserve = served_by(
        "sched.unreserve", lambda self, msg: self._reservations.service.unreserve(msg)
    )


def reasons_and_estimates(policy: PolicyScheduler) -> Iterator[float | None]:
    """Annotate pending jobs with ``reasons``, then ``estimates``; a ``forecast`` of policies."""
    yield from policy.reasons()
    yield from policy.estimates()


def _take_all(policy: PolicyScheduler) -> None:
    """Have the job manager send all requests, unless the site has limited their number."""
    if policy.queue_depth != "unlimited" and "queue_depth" not in policy.__dict__:
        policy.queue_depth = "unlimited"  # the job manager takes a new depth
        topic, depth = "job-manager.sched-ready", {"mode": policy.queue_depth}
        policy.handle.rpc(topic, depth, flags=FLUX_RPC_NORESPONSE)


def take_order(policy: PolicyScheduler) -> None:
    """Parse a policy's argument ``order=queue|strict``; sets `PolicyScheduler.by_queue`.

    By queue, a limited queue depth could hide the jobs of one queue behind another's, so it is
    unlimited unless given. Raises ValueError if the value is neither.
    """
    for value in policy.take_argument("order"):
        if value not in ("queue", "strict"):
            raise ValueError(f"order={value!r} is invalid: expected 'queue' or 'strict'")
        policy.by_queue = value == "queue"
    if policy.by_queue and "queue_depth" not in policy.__dict__:
        policy.queue_depth = "unlimited"
