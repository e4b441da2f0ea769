"""What the schedulers of this project share, for the schedulers of a site to use as well.

`PolicyScheduler` adds to `Scheduler`:

- `start`: stamp an allocation with its times, and answer the request with it;
- `estimates`: annotate pending jobs with the time at which they are expected to start;
- `reasons`: annotate pending jobs with what they wait for;
- the services that ``flux sched`` asks (`query.service.QueryService` finds the answers).

Both are told once a second at most, and not in a job's first second (`PolicyScheduler.is_mature`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from syslog import LOG_DEBUG
from typing import Any, Callable, Optional

from flux.brokermod import request_handler
from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation
from flux.scheduler.annotator import Annotator
from flux.scheduler.base import Scheduler
from flux.scheduler.host import name_of, stopwatch
from flux.scheduler.query.answering import Answering, Caller, Steps, payload_of
from flux.scheduler.query.service import QueryService
from flux.scheduler.queue import ALL, Turns, in_order
from flux.scheduler.requests import PendingJob
from flux.scheduler.reservations.manager import ReservationManager
from flux.scheduler.reservations.reservation import Asker
from flux.scheduler.reservations.service import ReservationService

#: Jobs examined per reactor turn where one costs a comparison of masks: some tens of microseconds in all.
JOBS_PER_TURN = 64

#: Deferred jobs that are tried again at once when something is released; a look at each costs a search of
#: the pool, and a release must not take longer the more jobs wait for a reservation.
DEFERRED_JOBS_RETRIED = 32

#: Shapes of requests whose answers of the pool are remembered. Past that the cache is cleared, so that
#: its memory is bounded whatever users ask for.
MAX_REMEMBERED_SHAPES = 1024


def describe(facts: dict[str, Any]) -> Optional[str]:
    """PendingReason a job is pending, in its user's terms.

    Args:
        facts (dict): what ``ResourcePool.explain()`` found

    Returns:
        str: what the job waits for: nodes that are down if it could not start without them, else
        what the pool says; None if it could start now
    """
    matching, up = facts["matching"], facts["up"]
    if facts["unit"] == "nodes" and up < facts["needed"] <= matching:
        return f"{matching - up} of {matching} matching nodes are down"
    return facts["reason"] or None


class PolicyScheduler(Scheduler):
    """Scheduler with the common ways of starting, estimating and explaining.

    Args:
        h: the Flux handle
        *args (str): module arguments; beyond those of `Scheduler`, ``reason-depth=N``: how many
            pending jobs are told why they wait (default 32, 0: none)

    Raises:
        ValueError: an argument has a bad value, or nobody took it
    """

    #: How many pending jobs, from the head of the queue, are told why they wait.
    reason_depth = 32

    #: Whether a job that comes later may start before one that waits.
    looks_past_heads = False

    #: Of those that could want some of the same ranks, how many blocked jobs are promised a start;
    #: None: all.
    promises_limit: Optional[int] = 0

    #: Whether a job waits only for those ahead of it that could want some of the same ranks, so that
    #: queues with nodes of their own never hold up each other; see `take_order`.
    by_queue = False

    def __init__(self, h: Any, *args: str) -> None:
        super().__init__(h, *args)
        #: by shape of request: the ranks that match it; whether it waits for ranks that are down
        self._matching: dict[Any, int] = {}
        self._down: dict[Any, bool] = {}
        #: by shape of request: what explain() said since the pool has changed
        self._facts: dict[Any, dict[str, Any]] = {}
        self._facts_generation = -1
        #: when this scheduler was loaded, seconds since the epoch
        self.loaded_at = self.now()
        #: jobs started since, by how they were chosen
        self.started_jobs: dict[str, int] = {}
        #: what `heads` found, and what it was found of
        self._heads_found: list[tuple[PendingJob, int]] = []
        self._heads_seen: Any = None
        self._stopwatch = stopwatch(h)
        #: for `look_again_at`: when there is to be a pass
        self._look_due = math.inf
        self._look_timer = h.timer_watcher_create(0.0, self._looks_again)
        self._queries = QueryService(self)
        self._answering = Answering(h, self._stopwatch)
        #: the configuration of the instance; None: not read yet
        self._config: Optional[dict[str, Any]] = None
        self._reservations = ReservationManager(self)
        self._reservation_service = ReservationService(
            self, self._reservations, self._commits, self._errors
        )
        self._annotator = Annotator(h, self._clock, self._passes.forecast, self._errors)
        for value in self.take_argument("reason-depth"):
            if not (value.isascii() and value.isdigit()):
                raise ValueError(
                    f"reason-depth={value!r} is invalid: expected a number of jobs, 0 for none"
                )
            self.reason_depth = int(value)

    def take_argument(self, name: str) -> list[str]:
        """Take ``name=value`` out of the arguments nobody has taken yet.

        Args:
            name (str): name of the argument

        Returns:
            list of str: its values, the last one given last
        """
        self.own_options += (name,)
        prefix = name + "="
        values = [arg[len(prefix) :] for arg in self._pending_args if arg.startswith(prefix)]
        self._pending_args = [arg for arg in self._pending_args if not arg.startswith(prefix)]
        return values

    def take_order(self) -> None:
        """Take ``order=queue|strict`` out of the arguments; it sets `by_queue`.

        By queue no limited queue depth may hide the jobs of one behind those of another: it is
        unlimited then, unless it was given.

        Raises:
            ValueError: it is neither
        """
        for value in self.take_argument("order"):
            if value not in ("queue", "strict"):
                raise ValueError(f"order={value!r} is invalid: expected 'queue' or 'strict'")
            self.by_queue = value == "queue"
        if self.by_queue and "queue_depth" not in self.__dict__:
            self.queue_depth = "unlimited"

    # -- the pool --------------------------------------------------------------------------------------

    def pool_can(self, operation: str) -> bool:
        """Whether the pool has an operation that the guide does not ask of every pool.

        Args:
            operation (str): name of a method, as ``"plan"``; that one is missing is logged once
        """
        pool = self.resources
        impl = getattr(pool, "impl", pool)
        if isinstance(impl, ResourcePoolImplementation):
            if impl.can(operation):
                return True
        elif callable(getattr(impl, operation, None)):
            return True
        if operation not in self._warned:
            self._warned.add(operation)
            self.log.warning(f"pool class {type(pool).__name__} has no {operation}(): done without")
        return False

    def require_plan(self) -> Any:
        """The pool's plan, for a policy that can do nothing without one.

        Returns:
            the `Plan`, or None: the pool has none, which is logged, and the scheduler is ending
        """
        if self.pool_can("plan"):
            plan = self.resources.plan()
            self._reservations.future.attach(plan)
            return plan
        self.log.critical(
            f"{self.name} needs a pool that can plan(), which {type(self.resources).__name__} "
            "cannot: it ends here"
        )
        self.stop()
        return None

    #: The name that `require_plan` had first.
    plan_or_end = require_plan

    def shares_ranks(self, one: PendingJob, other: PendingJob) -> bool:
        """Whether two pending jobs could want the same rank, whatever is up or free; all do unless
        order is `by_queue`."""
        return not self.by_queue or self.ranks_of(one) & self.ranks_of(other) != 0

    def ranks_of(self, job: PendingJob) -> int:
        """Mask of the ranks a pending job could want, whatever is up or free.

        Costs a look-up for all jobs of one shape but the first.
        """
        request = job.resource_request
        shape = getattr(request, "shape", request)
        mask = self._matching.get(shape)
        if mask is None:
            mask = self.resources.match_mask(request)
            _remember(self._matching, shape, mask)
        return mask

    def waits_for_down_ranks(self, job: PendingJob) -> bool:
        """Whether a job could not start on the ranks that are up if all jobs had ended.

        Costs a look-up for all jobs of one shape but the first.
        """
        request = job.resource_request
        shape = getattr(request, "shape", request)
        waits = self._down.get(shape)
        if waits is None:
            waits = self.resources.waits_for_ranks(request)
            _remember(self._down, shape, waits)
        return waits

    def _ranks_changed(self, lost: bool) -> None:
        if self._reservations:
            self._reservations.ranks_changed(lost)
        self._matching.clear()
        self._down.clear()
        if lost:
            self.ranks_lost()

    def ranks_lost(self) -> None:
        """Called when ranks went down, left or changed, before `resource_update`: plans that count on
        them are void."""

    def turn_of(self, job: PendingJob) -> int:
        """Mask of the ranks for which `job` and others wait for each other: those it could want, all
        ranks unless order is `by_queue`."""
        return self.ranks_of(job) if self.by_queue else ALL

    # -- jobs ------------------------------------------------------------------------------------------

    def name_of(self, job: PendingJob) -> str:
        """A job's id as users write it."""
        return name_of(job.jobid)

    def pending(self, jobid: int) -> Optional[PendingJob]:
        """The pending job of this id, or None."""
        request = self._requests.get(jobid)
        return None if request is None else request.job

    def start(self, job: PendingJob, alloc: Any, **annotations: Any) -> None:
        """Answer a job's request with `alloc`.

        R gets the time now as its start, and as its end now plus the job's duration, or the end of
        the instance for a job without one.

        Args:
            job (PendingJob): the job
            alloc (ResourcePool): what the pool allocated for it
            **annotations: keys to set under ``sched``, beside ``resource_summary``
        """
        now = self.now()
        duration = getattr(job.resource_request, "duration", 0)
        end = now + duration if duration > 0 else self.resources.expiration
        if self._reservations.entries:
            cut = self._reservations.active.end_of(job.jobid)
            if cut is not None:
                end = min(end or cut, cut)
        alloc.set_starttime(now)
        alloc.set_expiration(end)
        summary = alloc.dumps()
        if self.log.level >= LOG_DEBUG:
            self.log.debug(f"alloc: {self.name_of(job)}: {summary}")
        chosen = annotations.get("selection_type", "immediate")
        self.started_jobs[chosen] = self.started_jobs.get(chosen, 0) + 1
        job.request.success(alloc, {"sched": {"resource_summary": summary, **annotations}})

    def start_in_order(self) -> Iterator[None]:
        """For `schedule`: start jobs in order; behind one that waits nothing starts that could want
        some of the same ranks. A generator that yields after each job that leaves the queue.

        In strict order that costs a look at the head, by queue one at each job that no other is in
        front of, and a comparison of masks for the rest.
        """
        if not self.by_queue:
            queue = self._queue
            while queue and self._leaves(queue[0]):
                heapq.heappop(self._queue)
                yield
                queue = self._queue
            return
        blocked = looked = 0
        for job in in_order(self._queue):
            looked += 1
            if job.request.finalized:
                continue
            ranks = self.ranks_of(job)
            if not ranks & blocked and self._leaves(job):
                self._backlog.remove(job)
                yield
                continue
            # Whether it waits for resources or for another job, those behind it wait for it.
            blocked |= ranks
            if not self.resources.impl.inventory.ranks & ~blocked:
                return
            if looked % JOBS_PER_TURN == 0:
                yield

    def _leaves(self, job: PendingJob) -> bool:
        """Start a job if it can start now; whether the queue is done with it."""
        try:
            alloc = self.allocate(job)
        except InsufficientResources:
            return self.set_aside(job)
        except Exception as exc:
            self.refuse(job, exc)  # it could never run
        else:
            self.start(job, alloc)
        return True

    def refuse(self, job: PendingJob, error: Exception) -> None:
        """Deny a job that the pool will not have.

        Args:
            job (PendingJob): the job
            error (Exception): what ``alloc()`` raised: the reason, or a bug of the pool, which is
                logged and costs this job, not the scheduler
        """
        if not isinstance(error, OSError):
            self._errors.report(f"alloc: {self.name_of(job)}", error)
        job.request.deny(str(error))

    # -- reservations ----------------------------------------------------------------------------------

    def _queued(self, job: PendingJob, jobspec: Any) -> None:
        try:
            name = jobspec["attributes"]["system"].get("reservation")
        except (AttributeError, KeyError, TypeError):
            return  # there are none, or no attributes at all
        if name is not None:
            job.reservation = str(name)

    def allocate(self, job: PendingJob, plan: Any = None) -> Any:
        """Allocate to `job` now; takes nothing that is reserved for others.

        Args:
            job (PendingJob): the job
            plan (Plan): where the policy keeps promises; None: it makes none

        Returns:
            ResourcePool: what it got

        Raises:
            InsufficientResources: it does not fit now, would break a promise or hold what is
                reserved, or waits for its own reservation
            InfeasibleRequest, ValueError: as ``ResourcePool.alloc()``
        """
        if self._reservations.entries or job.reservation is not None:
            return self._reservations.allocate(
                job, self._reservations.future.plan if plan is None else plan
            )
        return (plan or self.resources).alloc(job.jobid, job.resource_request)

    def set_aside(self, job: PendingJob) -> bool:
        """Let a job that cannot start wait for its reservation, if it names one, and for nothing else.

        The caller takes it out of the queue; it comes back when it is worth a look.

        Returns:
            bool: whether it names one
        """
        if job.reservation is None:
            return False
        self._reservations.group_jobs.set_aside(job)
        self._passes.forecast()  # there may be nothing left to make a pass for
        return True

    def reserved_spans(self, until: float) -> Iterator[dict[str, Any]]:
        """The windows of reservations up to a time, as ``sched.plan`` shows them."""
        return self._reservations.report.spans(until)

    def reservation_figures(self) -> Iterator[dict[str, Any]]:
        """The reservations, as ``sched.reservations`` shows them."""
        for entry in list(self._reservations.entries.values()):
            yield self._reservations.report.describe(entry)

    def reservations_changed(self) -> None:
        """Called when a window began or ended, or a reservation was made or given up."""
        for job in self._reservations.group_jobs.take_back():
            self._backlog.push(job)
        self._arm_look()
        self.released()
        self._request_schedule()

    def look_again_at(self, when: float) -> None:
        """Have a pass at a time that depends on a reservation: then no job need end, so that nothing
        else would ask for one. Costs nothing while there are no reservations.

        Only the earliest time is kept; those after it are `next_look`'s to say.
        """
        if self._reservations and when < self._look_due:
            self._look_due = when
            self._look_timer.stop()
            self._look_timer.reset(after=max(0.0, when - self.now()) + 1e-3)

    def next_look(self) -> Optional[float]:
        """The next time, after now, for which `look_again_at` was or would be asked; None: there is
        none."""
        return None

    def _arm_look(self) -> None:
        when = self.next_look() if self._reservations else None
        if when is not None:
            self.look_again_at(when)

    def _looks_again(self, handle: Any, watcher: Any, revents: int, args: Any) -> None:
        self._look_due = math.inf
        self._arm_look()
        self.released()
        self._request_schedule()

    def replan(self) -> None:
        """Called when a reservation cannot be kept beside the promises there are: they are void."""
        self._reservations.future.forget()
        self.ranks_lost()

    def running_jobs(self) -> Iterator[tuple[int, float]]:
        """The ids of the jobs that hold resources, and when each ends (0: nobody knows)."""
        return self._reservations.active.running()

    def expiration(self, msg: Any, jobid: int, expiration: float) -> None:
        if self._reservations and jobid in self._requests.holding:
            self._reservations.extended(jobid, expiration)
            self.handle.respond(msg, None)
        else:
            super().expiration(msg, jobid, expiration)

    def prioritize(self, jobs: list[Any]) -> None:
        if self._reservations.group_jobs.aside:
            for job in self._reservations.group_jobs.take_back():
                self._backlog.push(job)
        super().prioritize(jobs)

    def _take_back(self, jobid: int, R: Any, final: bool) -> None:
        super()._take_back(jobid, R, final)
        if self._reservations.entries:
            if final:
                self._reservations.active.ended(jobid)
            self._reservations.refill()
            for job in self._reservations.group_jobs.take_back(DEFERRED_JOBS_RETRIED):
                self._backlog.push(job)

    def _pool_made(self) -> None:
        self._reservation_service.load()

    def stats_get(self) -> dict[str, Any]:
        stats = super().stats_get()
        stats["pending_jobs"] += len(self._reservations.group_jobs.aside)
        return stats

    def stand_ins(self) -> list[int]:
        """Ids in the pool that are no job's: what reservations keep."""
        return self._reservations.active.stand_ins()

    def _allocated(self) -> Any:
        stand_ins = self.stand_ins()
        if not stand_ins:
            return super()._allocated()
        pool = self.resources.copy()
        for jobid in stand_ins:
            pool.free(jobid)
        return pool.copy_allocated()

    def _before_ready(self, holding: set[int]) -> None:
        self._reservation_service.recognise(holding)

    @request_handler("sched.reserve", prefix=False)
    def _handle_reserve(self, msg: Any) -> None:
        self._serve(msg, lambda: self._reservation_service.reserve(msg))

    @request_handler("sched.unreserve", prefix=False)
    def _handle_unreserve(self, msg: Any) -> None:
        self._serve(msg, lambda: self._reservation_service.unreserve(msg))

    @request_handler("sched.reservations", prefix=False, allow_guest=True)
    def _handle_reservations(self, msg: Any) -> None:
        self._answer(msg, self._reservation_service.list)

    @request_handler("config-reload")
    def _handle_config_reload(self, msg: Any) -> None:
        def serve() -> None:
            config = payload_of(msg)
            self._config = config if isinstance(config, dict) else {}
            self._reservation_service.reconfigure(msg)

        self._serve(msg, serve)

    # -- estimates -------------------------------------------------------------------------------------

    def is_mature(self, job: PendingJob) -> bool:
        """Whether it is time to tell a job's user of estimates and reasons.

        If it is not, `forecast` is called again when it is.
        """
        return self._annotator.is_mature(job)

    def show_estimate(
        self, job: PendingJob, when: Optional[float], kind: Optional[str] = None
    ) -> None:
        """Annotate `job` with its estimated start (seconds since the epoch); None removes it.

        What is not told now, since the job is not `is_mature`, is told when it is.

        Args:
            job (PendingJob): the job
            when (float): when it is expected to start; None: nobody knows
            kind (str): what the estimate is, for ``sched.t_estimate_kind``: "promised", or "planned"
        """
        self._annotator.estimate(job, when, kind)

    def estimates(self) -> Iterator[None]:
        """For `forecast`: estimate when each job starts if they start strictly in order.

        No job is estimated to start before one ahead of it. What comes after a job without a
        duration, or one that no end of a running job lets start, cannot be told. A generator that
        yields after each job.
        """
        if not self.pool_can("plan"):
            return
        if not any(self.is_mature(job) for job in self._queue):
            return
        plan = (
            self._reservations.future.plan if self._reservations else self.resources.plan()
        ).copy()
        turns = Turns()
        for job in in_order(self._queue):
            if job.request.finalized:
                continue
            ranks = self.turn_of(job)
            when = self.plan_in_turn(job, ranks, plan, turns)
            self.show_estimate(job, when)
            yield

    def plan_in_turn(self, job: PendingJob, ranks: int, plan: Any, turns: Turns) -> Optional[float]:
        """Find the start of a job that waits for its turn, and enter it into `plan` and `turns`.

        Args:
            job (PendingJob): the job
            ranks (int): `turn_of` it
            plan (Plan): with all that goes before it
            turns (Turns): likewise

        Returns:
            float: when it starts; None: nobody knows
        """
        after = turns.after(ranks)
        if after == math.inf:
            turns.give(ranks, math.inf)
            return None
        request = job.resource_request
        when: Optional[float] = None
        try:
            when = plan.earliest(request, after=after)
            if when is not None and request.duration > 0:
                plan.reserve(job.jobid, request, when)
                turns.give(ranks, when)
            else:
                self.resources.check_feasibility(request)
                turns.give(ranks, math.inf)
        except InfeasibleRequest:
            return None  # it is denied when its turn comes
        except InsufficientResources:
            turns.give(ranks, math.inf)
            return None
        return when

    # -- reasons ---------------------------------------------------------------------------------------

    def first_pending(self) -> Iterator[PendingJob]:
        """The first pending jobs in order, as many as are told why they wait.

        Jobs that are not `is_mature` are among them: their reason is not sent.
        """
        for job, _ in zip(in_order(self._queue), range(self.reason_depth)):
            if not job.request.finalized:
                yield job

    def facts_of(self, job: PendingJob) -> dict[str, Any]:
        """What ``ResourcePool.explain()`` finds for a job.

        Costs a look-up for all jobs of one shape but the first, until the pool changes.
        """
        generation = self.resources.generation
        if generation != self._facts_generation:
            self._facts_generation = generation
            self._facts.clear()
        request = job.resource_request
        shape = getattr(request, "shape", request)
        facts = self._facts.get(shape)
        if facts is None:
            facts = self.resources.explain(request)
            _remember(self._facts, shape, facts)
        return facts

    def show_reason(self, job: PendingJob, reason: Optional[str]) -> None:
        """Annotate `job` with what it waits for; None removes it. One that is not `is_mature` is told
        by a later forecast."""
        self._annotator.reason(job, reason)

    def behind(self, head: PendingJob) -> str:
        """The reason of a job that could start but for `head`."""
        return f"behind {self.name_of(head)}"

    def reasons(self) -> Iterator[None]:
        """For `forecast`: tell the first pending jobs why they wait if they start strictly in order.

        The head waits for resources, the others for the head. A generator that yields after each
        job for which something had to be done.
        """
        if not self.pool_can("explain") or not self._annotator.wants_reasons():
            return
        for job, when in self._reservations.group_jobs.estimates(self.reason_depth):
            self.show_reason(job, self._reservations.reasons.why(job))
            self.show_estimate(job, when)
            yield
        for job in self.first_pending():
            if self.is_mature(job):
                shown, found = job.reason_shown, len(self._facts)
                self.show_reason(job, self.why(job))
                if job.reason_shown != shown or len(self._facts) != found:
                    yield

    # -- what may be asked -----------------------------------------------------------------------------

    def pending_jobs(self, aside: bool = True) -> Iterator[PendingJob]:
        """All pending jobs, in order; those that wait for their reservation (`set_aside`) if `aside`."""
        waiting = list(self._reservations.group_jobs.aside.values()) if aside else []
        for job in in_order([*self._queue, *waiting] if waiting else self._queue):
            if not job.request.finalized:
                yield job

    def ahead_of(self, job: PendingJob) -> list[PendingJob]:
        """The pending jobs that `job` has to wait for by the order of the queue: here, the first."""
        if self._reservations.group_jobs.is_aside(job):
            return []
        ranks = self.turn_of(job)
        for head, mask in self.heads():
            if head is job:
                return []
            if mask & ranks:
                return [head]
        return []

    def heads(self) -> list[tuple[PendingJob, int]]:
        """The first pending jobs that want some rank which none ahead of them wants, with all ranks
        that they could want: whoever comes later and waits for a job waits for one of these.

        Costs a walk over the queue by queue, once for each event; in strict order next to nothing.
        """
        for _ in self.find_heads():
            pass
        return self._heads_found

    def find_heads(self) -> Iterator[None]:
        """Have ready what `heads` says, which is nothing where `looks_past_heads`; a generator that
        yields after every `JOBS_PER_TURN` jobs."""
        seen = (self.requests_seen, self.resources.generation, len(self._queue))
        if self.looks_past_heads or (
            seen == self._heads_seen
            and not any(job.request.finalized for job, _ in self._heads_found)
        ):
            return
        found = []
        blocked = 0
        for looked, job in enumerate(in_order(self._queue), 1):
            if looked % JOBS_PER_TURN == 0:
                yield
            if job.request.finalized:
                continue
            ranks = self.turn_of(job)
            if ranks & ~blocked:
                found.append((job, ranks))
                blocked |= ranks
                if not self.by_queue or not self.resources.impl.inventory.ranks & ~blocked:
                    break
        self._heads_seen, self._heads_found = seen, found

    def why(self, job: PendingJob, facts: Optional[dict[str, Any]] = None) -> Optional[str]:
        """What `job` waits for, in one sentence; None if it could start now.

        Args:
            job (PendingJob): the job
            facts (dict): what ``ResourcePool.explain()`` found for it, if it was asked already
        """
        heads = self.ahead_of(job)
        reserved = None if heads else self.why_reserved(job)
        if reserved is not None:
            return reserved
        if heads:
            return self.behind(heads[0])
        return describe(facts or self.facts_of(job))

    def why_reserved(self, job: PendingJob) -> Optional[str]:
        """What `job` waits for on account of a reservation; None if it does not."""
        return self._reservations.reasons.why(job)

    def start_in_reservation(
        self, name: str, request: Any, system: dict[str, Any], userid: int
    ) -> tuple[Optional[float], Optional[str]]:
        """When a newcomer that names a reservation would start in its window.

        Args:
            name: of the reservation
            request: of the pool's ``parse_resource_request()``
            system (dict): the system attributes of its jobspec
            userid: whose job it would be

        Returns:
            seconds since the epoch, or None; and if that is not known, why

        Raises:
            InfeasibleRequest: the reservation is not for it
        """
        asker = Asker(userid, system.get("queue"), system.get("bank"))
        return self._reservations.newcomer(name, request, asker)

    def reservation_of(self, job: PendingJob, first: bool) -> Optional[dict[str, Any]]:
        """The reservation that `job` waits for, has to keep off, or is to start after: name, start and
        end; or None. `first` says that it is behind no other job (`ahead_of`)."""
        reasons = self._reservations.reasons
        found = reasons.blamed(job) if first else None
        start, _ = self.estimate_of(job)
        if found is None and start is not None:
            found = reasons.before(job, start)
        return found

    def waits_aside(self, job: PendingJob) -> bool:
        """Whether `job` waits for its reservation, and so for no other job."""
        return self._reservations.group_jobs.is_aside(job)

    def kind_of_wait(self, job: PendingJob) -> str:
        """What `job` waits for, in a word: ``reservation``, ``order``, ``down`` or ``resources``."""
        if self._reservations.reasons.why(job) is not None:
            return "reservation"
        if self.ahead_of(job):
            return "order"
        return "down" if self.waits_for_down_ranks(job) else "resources"

    def estimate_of(self, job: PendingJob) -> tuple[Optional[float], Optional[str]]:
        """The estimated start of `job` that is shown, and its kind: "promised" or "planned"."""
        when = job._last_annotation
        return when, None if when is None else job.estimate_kind or "planned"

    def current_plan(self) -> Any:
        """The plan as it stands, with the promises made; None if the pool cannot plan.

        It is the policy's own: to be copied, not changed.
        """
        if not self.pool_can("plan"):
            return None
        return self._reservations.future.plan if self._reservations else self.resources.plan()

    @property
    def requests_seen(self) -> int:
        """A number that grows with every message that may change what is pending or free."""
        return self._passes.events

    def stopwatch(self) -> float:
        """Seconds of real time, for bounding what an answer costs."""
        return self._stopwatch()

    def parse_request(self, jobspec: Any) -> Any:
        """What a jobspec asks for, as the pool reads it.

        Raises:
            ValueError: it cannot be read
        """
        return self._parser.parse(jobspec)

    def _answer(self, msg: Any, question: Callable[[Any, Caller], Steps]) -> None:
        def failed(error: Exception) -> None:
            self._serve(msg, lambda: _raise(error))

        def done(answer: str) -> None:
            self._serve(msg, lambda: self.handle.respond(msg, answer))

        def serve() -> None:
            access = self.instance_config.get("access")
            private = isinstance(access, dict) and bool(access.get("private-mode", False))
            caller = Caller(msg, private)
            self._answering.begin(question(payload_of(msg), caller), done, failed)

        self._serve(msg, serve)

    @property
    def instance_config(self) -> dict[str, Any]:
        """The configuration of the instance, as it was loaded last."""
        if self._config is None:
            try:
                self._config = self.handle.conf_get(None, {}) or {}
            except OSError:
                return {}
        return self._config

    @request_handler("sched.explain", prefix=False, allow_guest=True)
    def _handle_explain(self, msg: Any) -> None:
        self._answer(msg, self._queries.explain)

    @request_handler("sched.when", prefix=False, allow_guest=True)
    def _handle_when(self, msg: Any) -> None:
        self._answer(msg, self._queries.when)

    @request_handler("sched.windows", prefix=False, allow_guest=True)
    def _handle_windows(self, msg: Any) -> None:
        self._answer(msg, self._queries.windows)

    @request_handler("sched.plan", prefix=False)
    def _handle_plan(self, msg: Any) -> None:
        self._answer(msg, self._queries.plan)

    @request_handler("sched.stats", prefix=False)
    def _handle_sched_stats(self, msg: Any) -> None:
        self._answer(msg, self._queries.stats)


def _raise(error: Exception) -> None:
    raise error


def _remember(table: dict[Any, Any], shape: Any, what: Any) -> None:
    if len(table) >= MAX_REMEMBERED_SHAPES:
        table.clear()
    table[shape] = what
