# SPDX-License-Identifier: LGPL-3.0-or-later
"""The decision of backfilling: a plan with promises in which jobs start.

`Backfilling` is the common base of the three decisions, `PromiseBook` has the promised jobs in
queue order. `BackfillInOrder` is the decision in queue order: EASY, conservative backfill, and the
range between. Its pass (`BackfillInOrder.schedule`) examines jobs one by one
(`BackfillInOrder.examine`), in the order of a `flux.scheduler.walk.Walk`. A promised job whose time
has not come keeps waiting (`BackfillInOrder.advance`). Any other job starts if it can
(`Backfilling.try_to_start`), or if only promises to jobs behind it are in its way
(`BackfillInOrder.take_precedence`); otherwise it waits, and is promised a time if it is its turn
(`BackfillInOrder.wait`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from math import inf
from syslog import LOG_DEBUG
from typing import TYPE_CHECKING, Callable

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.scheduler.admission import JobDeferred
from flux.scheduler.decision import Decision
from flux.scheduler.host import NO_TIMER
from flux.scheduler.walk import EFFORT_PER_TURN

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan, Suspended
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.policies.ranks import BackfillPolicy
    from flux.scheduler.queue import Backlog
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.walk import JobGroup, Position

#: Effort of making a promise, relative to examining a job (`Backlog.effort`).
PROMISE_EFFORT = 12

#: Minimum number of promises to examine together; effort of a full row (the maximum number of moves
#: per turn) if all move; and the cost of a promise that stays, relative to a moved one.
MIN_IN_A_ROW = 8
ROW_EFFORT = 128
STAYING_PART = 0.1

#: Delay of the pass for a promised time, in seconds: a job that ends at that time has ended by
#: then.
LATE_S = 1e-3


class Backfilling(Decision):
    """Base class of the backfilling decisions.

    Attributes:
        plan (Plan): the plan with the promises, valid during a pass
        promises (PromiseBook): the promises to pending jobs
        kind (str): the kind of promised times: "planned" if the next pass may promise the time to
            another job, else "promised"
    """

    looks_past_heads = True
    policy: BackfillPolicy
    plan: Plan
    kind = "promised"

    def __init__(self, policy: BackfillPolicy, backlog: Backlog) -> None:
        super().__init__(policy)
        self.backlog = backlog
        self.promises = PromiseBook()
        self._timer = NO_TIMER

    def begin_pass(self) -> bool:
        """Set `plan`. Return whether there is one."""
        plan = self.policy.planning.plan or self.policy.planning.require()
        if plan is not None:
            self.plan = self.promises.plan = plan
        return plan is not None

    # -- one job -----------------------------------------------------------------------------------

    def try_to_start(self, job: PendingJob) -> bool:
        """Start a job, unless it does not fit now or would delay a promised job. Return whether it
        has left the queue: it started, can never run, or was deferred."""
        try:
            alloc = self.policy.allocate(job, self.plan)
        except (Exception, SystemExit) as exc:
            return self.handle_refusal(job, exc)
        self.begin(job, alloc)
        return True

    def compete(self, job: PendingJob, other: PendingJob) -> bool:
        """Whether two jobs could use the same ranks, or planned licences."""
        tokens = getattr(job.resource_request, "tokens", None)
        return self.policy.queue_order.share_ranks(job, other) or bool(
            tokens and not tokens.keys().isdisjoint(other.resource_request.tokens or {})
        )

    def handle_refusal(self, job: PendingJob, why: BaseException) -> bool:
        """Handle an exception from the pool or an admission rule for a job. Return whether it has
        left the queue: it can never run, or was deferred."""
        if isinstance(why, JobDeferred):
            self.defer(job, why)
        elif isinstance(why, InsufficientResources):
            return False
        else:
            self.forget(job)
            self.policy.refuse(job, why)
        return True

    def would_be_deferred(self, job: PendingJob) -> bool:
        """Whether a rule keeps a job from starting, or it has started, so that no other waits for
        it."""
        if job.request.finalized:
            return True  # its own resources would count against it
        admission = self.policy.admission
        return bool(admission.engaged and admission.defers(job))

    def park_if_down(self, job: PendingJob) -> bool:
        """Park a job if it waits for ranks that are down. Return whether it does."""
        policy, request = self.policy, job.resource_request
        if not policy.facts.waits_for_down_ranks(request):
            return False
        if not policy.facts.ranks_of(request) & ~policy.resources.eligible_ranks(request):
            try:
                policy.resources.check_feasibility(request)
            except InfeasibleRequest as exc:  # the plan lacked a token, and did not ask the pool
                return self.handle_refusal(job, exc)
            policy.planning.tell_of_no_place(job)
        self.forget(job)
        self.backlog.park(job)
        return True

    def begin(self, job: PendingJob, alloc: ResourcePool) -> None:
        policy, head, was_promised = self.policy, None, False
        if self.promises.jobs:
            head, was_promised = self.ahead_of(job), job in self.promises
        self.forget(job)
        if was_promised:
            policy.start_or_deny(job, alloc, selection_type="reserved")
        elif head is None:
            policy.start_or_deny(job, alloc, selection_type="immediate")
        else:
            ahead = {"backfill": head.name} if policy.forecasts.are_read else {}
            policy.start_or_deny(job, alloc, selection_type="backfilled", **ahead)
            if policy.log.level >= LOG_DEBUG:
                when = self.promises.when(head) or 0
                policy.log.debug(f"backfill: {job.name} (shadow={int(when)})")

    def promise(self, job: PendingJob, when: float | None) -> None:
        """Promise a job the time `when` (seconds since the epoch); None makes an open promise."""
        self.promises.make(job, when)
        self.show_promise(job, when)

    def show_promise(self, job: PendingJob, when: float | None) -> None:
        """Tell a job's user the promised time, or None for an open promise."""
        self.policy.forecasts.promised(job, when, self.kind_of_promise(job))

    def kind_of_promise(self, job: PendingJob) -> str:
        """Return the kind of a job's promise, for its user: `kind`, or "planned" if an admission
        rule may keep the job from starting then."""
        admission = self.policy.admission
        certain = not admission.engaged or admission.keeps_promise(job)
        return self.kind if certain else "planned"

    def forget(self, job: PendingJob) -> None:
        """Called before a job leaves the queue, or its place in it."""
        self.promises.drop(job)

    # -- promises that come due --------------------------------------------------------------------

    def wake_when_due(self) -> None:
        """Request a pass for the next promise that comes due, unless another event will.
        O(promises)."""

    def has_due(self) -> bool:
        """Whether a promised time has come.  O(promises)."""
        return False

    def wake_at(self, when: float | None) -> None:
        """Request a pass at a promised time; None: no pass. Only the earliest time is kept; the next
        is determined then."""
        if when is not None and when < self._timer.when:
            self._timer.cancel()
            self._timer = self.policy.call_at(when, self._is_due)

    def _is_due(self) -> None:
        self._timer = NO_TIMER
        if self.has_due():
            self.policy.look_again()
        else:
            self.wake_when_due()  # that job has started

    # -- events ------------------------------------------------------------------------------------

    def defer(self, job: PendingJob, why: JobDeferred) -> None:
        if not self.policy.estimate_depth:
            self.policy.forecasts.show_estimate(job, None)  # no projection replaces it
        self.forget(job)
        super().defer(job, why)

    def released(self) -> None:
        if self.policy.admission.at_release:
            self.policy.admission.released()

    def reordered(self) -> None:
        self.promises.reorder()
        self.released()

    def ranks_changed(self, lost: bool) -> None:
        self.promises.ranks_changed()
        self.backlog.unpark()
        self.backlog.regroup()
        self.released()

    # -- questions ---------------------------------------------------------------------------------

    def goes_first(self, job: PendingJob) -> bool:
        return True

    def why(self, job: PendingJob) -> str | None:
        plan = self.policy.planning.current()
        if plan is None or plan.fits(job.resource_request, jobid=job.jobid):
            return None
        return "it would keep another job from its promised start"

    def promised_start(self, job: PendingJob) -> float | None:
        if job in self.promises and self.kind_of_promise(job) == "promised":
            return self.promises.when(job)
        return None

    def stats(self) -> dict[str, object]:
        return {**self.backlog.stats(self.policy.now()), "reserved": len(self.promises)}


class PromiseBook:
    """The pending jobs with a promise in a plan.

    A promise is either for a time, or *open*: the job's possible start is unknown, and the
    resources it needs are kept free (`Plan.hold`).

    Args:
        changed: ``changed(job, promised)`` is called when a job gets its first promise, or has lost
            its promise

    Attributes:
        plan (Plan): the pool's plan, in which the promises are entered; set before the first is
            made
    """

    plan: Plan

    def __init__(self, changed: Callable[[PendingJob, bool], None] = lambda *_: None) -> None:
        self._changed = changed
        self.jobs: list[PendingJob] = []  # in queue order; not to be changed by others
        self._ids = array("q")  # of these
        self._positions: list[Position] = []  # of these
        self._by_id: dict[int, PendingJob] = {}
        # mask of ranks -> positions of jobs that could use them, ascending; None: not computed
        self._by_ranks: dict[int, list[Position]] | None = None
        #: ids of the jobs with open promises
        self.open_ids: set[int] = set()
        # no promised time after the last look is earlier, in seconds since the epoch
        self._first = inf

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[PendingJob]:
        return iter(self.jobs)

    def __contains__(self, job: PendingJob) -> bool:
        return job.jobid in self._by_id

    def when(self, job: PendingJob) -> float | None:
        """Return the promised time of a job, seconds since the epoch; None if the promise is open.
        Raises KeyError if the job has no promise."""
        return None if job.jobid in self.open_ids else self.plan.start_of(job.jobid)

    def after(self, job: PendingJob) -> list[PendingJob]:
        """Return the promised jobs behind `job` in the queue."""
        jobs = self.jobs
        if not jobs or not job < jobs[-1]:
            return []
        begin = bisect_left(self._positions, (job.order, job.jobid))
        return [other for other in jobs[begin:] if other is not job]

    def first_since(self, position: Position | None) -> PendingJob | None:
        """Return the first job from a position in the queue on, or None."""
        begin = 0 if position is None else bisect_left(self._positions, position)
        return self.jobs[begin] if begin < len(self.jobs) else None

    def make(self, job: PendingJob, when: float | None) -> None:
        """Promise a job the time `when`; None makes an open promise. Replaces a previous promise.
        Raises InsufficientResources if the job does not fit then."""
        if when is None:
            self.plan.hold(job.jobid, job.resource_request)
            self.open_ids.add(job.jobid)
        else:
            self.plan.reserve(job.jobid, job.resource_request, when)
            self.open_ids.discard(job.jobid)
            self._first = min(self._first, when)
        if job not in self:
            self._changed(job, True)
            position = job.order, job.jobid
            index = bisect_left(self._positions, position)
            self.jobs.insert(index, job)
            self._ids.insert(index, job.jobid)
            self._positions.insert(index, position)
            self._by_id[job.jobid] = job
            self._by_ranks = None

    def advance(self, job: PendingJob, may_move: bool) -> float | None:
        """Move a promise, if it may, to the earliest time that keeps all others. Return the time at
        which it is due, seconds since the epoch; None if it is open. Raises InsufficientResources
        if the promise cannot be kept: a running job was given more time or ended late, or ranks
        were lost."""
        if job.jobid in self.open_ids:
            return None
        when = self.plan.advance(job.jobid, may_move)
        if when < self._first:  # a promise bound to ranks keeps its time
            self._first = min(self._first, self.plan.start_of(job.jobid))
        return when

    def advance_following(
        self, job: PendingJob, stop: PendingJob | None
    ) -> tuple[list[PendingJob], list[PendingJob], float]:
        """Advance the promises of the jobs right behind the promised job `job`, while they can
        certainly be kept (`Plan.advance_in_turn`), up to the number of moves allowed per reactor
        turn. No promise may be open.

        Args:
            stop (PendingJob): the last job whose promise may move; None: no bound

        Returns:
            the jobs examined; those whose promises moved; and the earliest start of the latter,
            seconds since the epoch, or infinity. If that time has come, it is the start of the last
            job of both lists.
        """
        first = bisect_left(self._positions, (job.order, job.jobid)) + 1
        last = len(self.jobs)
        if stop is not None:
            last = bisect_left(self._positions, (stop.order, stop.jobid), first)
        last = min(last, first + self.plan.moves_per_turn)
        count, indices, when = self.plan.advance_in_turn(self._ids[first:last])
        if when < self._first and self.plan.is_counted:
            self._first = when
        looked = self.jobs[first : first + count]
        return looked, [looked[index] for index in indices], when

    def drop(self, job: PendingJob) -> None:
        """Remove a job's promise: it has started, or the promise is revoked."""
        if job.jobid in self._by_id:
            del self._by_id[job.jobid]
            self.open_ids.discard(job.jobid)
            index = bisect_left(self._positions, (job.order, job.jobid))
            del self.jobs[index], self._ids[index], self._positions[index]
            self._by_ranks = None
            self._changed(job, False)
            self.plan.cancel(job.jobid)

    def reorder(self) -> list[PendingJob]:
        """Sort the jobs again after their order changed. Return the jobs that moved ahead of
        others."""
        before = {jobid: index for index, jobid in enumerate(self._ids)}
        self.jobs.sort()
        self._ids = array("q", [job.jobid for job in self.jobs])
        self._positions = [(job.order, job.jobid) for job in self.jobs]
        self._by_ranks = None
        risen, first = [], len(before)
        for job in reversed(self.jobs):
            index = before[job.jobid]
            if index > first:
                risen.append(job)
            first = min(first, index)
        return risen

    def ranks_changed(self) -> None:
        """Note that the ranks that jobs could use have changed."""
        self._by_ranks = None

    def count_before(self, job: PendingJob, ranks: int, ranks_of: Callable[..., int]) -> int:
        """Return the number of promised jobs ahead of `job` in the queue that could use some of its
        ranks.

        The first call after a change looks at each promise, later ones at each different mask of
        ranks.

        Args:
            ranks (int): mask of the ranks that the job could use
            ranks_of: returns that of a promised job
        """
        if not self.jobs:
            return 0
        if self._by_ranks is None:
            self._by_ranks = {}
            for other in self.jobs:
                positions = self._by_ranks.setdefault(ranks_of(other), [])
                positions.append((other.order, other.jobid))
        found, position = 0, (job.order, job.jobid)
        for mask in self._by_ranks:
            if mask & ranks:
                found += bisect_left(self._by_ranks[mask], position)
        return found

    def next_after(self, now: float) -> float | None:
        """Return a time after `now` before which no promise comes due, or None if there is none.
        O(promises) if one may have come due since the last look."""
        when = self._first if self._first > now else self.plan.due(now)[1]
        return None if when == inf else when

    def has_due(self, now: float) -> bool:
        """Whether a job's promised time has come.  O(promises)."""
        return bool(self.jobs) and any(id in self._by_id for id in self.plan.due(now)[0])

    def due(self, now: float) -> list[PendingJob]:
        """Return the jobs whose promised times have come, if one has since the last call, in order.
        O(promises) then."""
        if self._first > now:
            return []
        due, self._first = self.plan.due(now)
        return sorted([self._by_id[jobid] for jobid in due if jobid in self._by_id])


class HiddenPromises:
    """The open promises behind the promised job that a pass examines: they are removed from the plan.
    They have no end: two of them could keep each other without a time for good, and both block a job
    whose time has come."""

    def __init__(self, decision: BackfillInOrder) -> None:
        self._decision = decision
        self._suspended: dict[int, Suspended] = {}
        self._were_shown = False

    def beside_those_ahead(self, jobs: Iterable[PendingJob]) -> Iterator[PendingJob]:
        """Yield some promised jobs, in order; the open promises of those behind are hidden."""
        decision, later = self._decision, deque(jobs)
        self._were_shown = True
        while later:
            if self._were_shown:
                open_ids = decision.promises.open_ids
                behind = [job.jobid for job in later if job.jobid in open_ids]
                self._suspended, self._were_shown = decision.plan.suspend(behind), False
            job = later.popleft()
            own = self._suspended.pop(job.jobid, None)
            if job in decision.promises:  # one ahead may have revoked it
                if own is not None:
                    decision.plan.resume({job.jobid: own})
                yield job

    def show(self) -> None:
        """Restore all, since another event uses the plan, or the pass ends."""
        decision, suspended = self._decision, self._suspended
        decision.policy.planning.before_use, self._were_shown = None, True
        if suspended:
            self._suspended, open_ids = {}, decision.promises.open_ids
            decision.plan.resume({one: kept for one, kept in suspended.items() if one in open_ids})


class BackfillInOrder(Backfilling):
    """Promises starts in queue order, to the first `Backfill.promises_limit` jobs that wait for the
    same ranks, and starts other jobs that keep these promises."""

    def __init__(self, policy: BackfillPolicy, backlog: Backlog) -> None:
        super().__init__(policy, backlog)
        self.promises = PromiseBook(backlog.set_promised)
        self.plans_tokens = policy.promises_limit != 0
        self.made_anew = policy.guarantee == "none"
        self.keeps_times = self.plans_tokens and not self.made_anew
        backlog.requeue, backlog.waits = self.requeue, self.waits
        self._updates = 0  # of ranks
        self._hidden = HiddenPromises(self)

    def pool_made(self) -> None:
        if self.plans_tokens and self.policy.resources.can("plan"):
            self.backlog.ranks_of = self.policy.queue_order.ranks_of

    def schedule(self) -> Iterator[float | None]:
        if not self.begin_pass():
            return
        if self.made_anew and (self.policy.admission.engaged or not self.plan.is_counted):
            # If promises are counted and there is no rule, none moves unless units were freed.
            self.backlog.wake(self.policy.now())
        try:
            for job in self.backlog.to_examine(self.policy.now, self):
                if job is None:
                    self.policy.planning.before_use = self._hidden.show
                    yield None
                    self.policy.planning.before_use = None
                else:
                    try:
                        self.examine(job)
                    except (Exception, SystemExit) as exc:  # of a hook of the pool
                        self.handle_refusal(job, exc)
                if self.policy.planning.plan is not self.plan:
                    self.use_current_plan()
        finally:
            self._hidden.show()
        self.wake_when_due()

    # -- jobs to examine (`flux.scheduler.walk.PromisedJobs`) --------------------------------------

    def first_since(self, position: Position | None) -> PendingJob | None:
        return self.promises.first_since(position)

    def due(self, freed: bool) -> Iterator[PendingJob]:
        promises = self.promises
        if not promises.jobs or self.made_anew:
            return
        if freed and promises.open_ids:
            jobs = promises.jobs.copy()
            yield from self._hidden.beside_those_ahead(jobs)
            self.backlog.walk.skip_promised(jobs[-1])
            return
        due = promises.due(self.policy.now())
        yield from (job for job in due if job in promises)  # one ahead may have revoked some

    def groups_with_room(self) -> tuple[list[JobGroup], dict[JobGroup, float]] | None:
        # A rule that defers jobs that do not fit must be asked about each.
        rooms, admission = self.backlog.rooms, self.policy.admission
        if admission.kept_for:
            return None
        # Readmitted jobs are examined once.
        asks_each = bool(self.backlog.readmitted) or (admission.engaged and admission.asks_each)
        return rooms.with_room(self.plan, beside_promises=not (asks_each or self.made_anew))

    def may_be_promised(self, job: PendingJob) -> bool:
        """Whether fewer than `Backfill.promises_limit` jobs ahead have a promise for ranks that
        this job could use, and none ahead still waits for one."""
        limit, ranks_of = self.policy.promises_limit, self.policy.queue_order.ranks_of
        if limit is None:
            return True
        ranks = ranks_of(job)
        ahead = self.promises.count_before(job, ranks, ranks_of)
        return ahead < limit and not self.backlog.is_behind_another(job, ranks)

    def is_past_promise_limit(self, job: PendingJob, ranks: int) -> bool:
        limit, ranks_of = self.policy.promises_limit, self.policy.queue_order.ranks_of
        if limit is None or self.policy.admission.engaged:
            return False
        return self.promises.count_before(job, ranks, ranks_of) >= limit

    def too_long(self, job: PendingJob) -> float | None:
        admission = self.policy.admission
        if job.tried != self._updates or self.made_anew:
            return None
        if admission.engaged and admission.asks_each:
            return None
        # Only the first job of each line is checked for a possible promise.
        try:
            too_long = self.plan.too_long(job.resource_request, job.limit)
        except (Exception, SystemExit):  # of a hook of the pool
            return None
        if too_long and not self.plan.is_counted:
            self.backlog.effort += 1  # a search on ranks
        return too_long if too_long <= job.limit and too_long < inf else None

    def waits(self, job: PendingJob) -> bool:
        policy, request = self.policy, job.resource_request
        plan = policy.planning.plan
        if not self.promises.jobs or self.made_anew or policy.admission.engaged:
            return False
        if plan is None or plan is not self.plan:
            return False
        too_long = plan.too_long(request, job.limit)
        if too_long > job.limit or too_long == inf or self.promises.after(job):
            return False
        if self.may_be_promised(job):
            return False
        if job.signature not in self.backlog.groups:  # else another one has passed these
            try:
                policy.resources.check_feasibility(request)
            except (Exception, SystemExit):
                return False  # the pass refuses it
            if policy.facts.waits_for_down_ranks(request):
                return False
        job.tried = self._updates
        return True

    def requeue(self, job: PendingJob) -> None:
        """Queue a readmitted job again in its turn, unless it would be deferred again."""
        request, plan, fits = job.resource_request, self.plan, False
        shape = getattr(request, "shape", None)
        if shape is not None and not (shape.within or request.tokens or self.promises.jobs):
            if plan.claims is None and not plan.promises():  # nor windows of reservations
                fits = shape.least_count <= plan.room(request) < inf
        self.policy.admission.requeue(job, fits)

    # -- one job -----------------------------------------------------------------------------------

    def use_current_plan(self) -> None:
        """Switch to a new plan if this pass's plan has become void: a job that started or was given
        up has broken promises."""
        if self.policy.planning.plan is not self.plan:
            plan = self.policy.planning.current()
            assert plan is not None, "the pool could plan when this pass began"
            self.plan = self.promises.plan = plan

    def examine(self, job: PendingJob) -> None:
        """Start a job if it can start now; otherwise promise it a time, if it is its turn."""
        if self.made_anew:  # the promises of this job and its competitors behind it
            for other in self.promised_after(job):
                self.promises.drop(other)
                self.backlog.again(other)
            self.promises.drop(job)
        if not job.promised:
            if not (self.try_to_start(job) or self.park_if_down(job) or self.take_precedence(job)):
                self.wait(job)
            return
        is_due = self.advance(job)
        if is_due and not self.try_to_start(job):
            self.wait(job)
        if not is_due:
            self.advance_following(job)

    def advance(self, job: PendingJob) -> bool:
        """Move a job's promise to an earlier time, if possible. Return whether it is due, or open.

        If it cannot be kept, since a running job was given more time or ended late, it is made
        anew. It keeps its time if an admission rule needs that.
        """
        if self.policy.admission.pins is not None and self.stays(job):
            return False
        # Those behind it may leave it its share of a limit only from its promised time on.
        is_early = job.jobid in self.policy.admission.assured and self.would_be_deferred(job)
        try:
            when = self.promises.advance(job, not is_early)
        except InsufficientResources:
            self.renew(job)
            when = self.promises.when(job)
        if when is None or when <= self.policy.now():
            return True
        if self.policy.forecasts.shows_changes or self.policy.admission.engaged:
            self.show_promise(job, when)
        return False

    def stays(self, job: PendingJob) -> bool:
        """Whether an admission rule needs a job's future promise to keep its time; the job then
        keeps waiting."""
        when = self.promises.when(job)
        if when is None or when <= self.policy.now():
            return False
        if not self.policy.admission.pins.stays(job):
            return False
        self.show_promise(job, when)
        return True

    def advance_following(self, job: PendingJob) -> None:
        """Advance the promises right behind that of an examined, waiting job.

        The result is that of examining these jobs in order. It stops at the first that needs
        examination: its time has come, or its promise may be broken.
        """
        promises, backlog, admission = self.promises, self.backlog, self.policy.admission
        if promises.open_ids or len(promises.jobs) < MIN_IN_A_ROW or backlog.has_readmitted:
            return
        if admission.pins is not None or (admission.assured and admission.watched):
            return  # each is checked at its turn
        looked, moved, first = promises.advance_following(job, backlog.first_behind(job))
        # A promise bound to ranks costs a look even if it stays.
        staying = (len(looked) - len(moved)) * (STAYING_PART if self.plan.is_counted else 1)
        backlog.effort += (len(moved) + staying) * ROW_EFFORT / self.plan.moves_per_turn
        if looked and looked[-1] is not promises.jobs[-1] and not self.plan.is_counted:
            backlog.effort += EFFORT_PER_TURN  # the row took the searches of a turn
        if first <= self.policy.now():
            looked.pop()
            moved.pop()
        if looked and backlog.walk.in_order:
            backlog.walk.skip_promised(looked[-1])
        if self.policy.forecasts.shows_changes:
            for other in moved:
                self.show_promise(other, promises.when(other))
        if admission.engaged:
            for other in looked:
                self.show_promise(other, promises.when(other))

    def handle_refusal(self, job: PendingJob, why: BaseException) -> bool:
        left = super().handle_refusal(job, why)
        if not left:
            self.use_current_plan()
        return left

    def take_precedence(self, job: PendingJob) -> bool:
        """Start a job without a promise that is blocked only by promises to jobs behind it, or
        clear the way for its promise.

        A job that arrives ahead of promised ones takes precedence: their promises are revoked, and
        made anew behind it. A job that returns from a deferral does not. Return whether the job has
        left the queue.
        """
        others = self.promised_after(job)
        if not others or job.was_deferred or not self.may_be_promised(job):
            return False
        for other in others:
            self.revoke(other)
        self.released()  # resources kept for them may let others start
        return self.try_to_start(job)

    def wait(self, job: PendingJob) -> None:
        """Promise a job that cannot start now a time, if it is its turn."""
        admission, request = self.policy.admission, job.resource_request
        if job.promised:
            if self.promises.when(job) is None:
                self.plan.cancel(job.jobid)
                when = self.plan.earliest(request)
                self.promise(job, when)
                if when is not None:
                    self.released()  # resources kept from now on may let others start
            return
        if self.may_be_promised(job):
            when = self.plan.earliest(request)
            self.promise(job, when)
            if when is None and self.open_promises_after(job):
                self.released()  # the next pass examines it without these
            return
        limit = inf
        if not (admission.engaged and admission.asks_each):
            job.tried = self._updates
            limit = self.plan.too_long(request)
        self.backlog.block(job, True, limit)

    # -- promises ----------------------------------------------------------------------------------

    def promise(self, job: PendingJob, when: float | None) -> None:
        super().promise(job, when)
        self.wake_at(when)
        self.backlog.effort += PROMISE_EFFORT

    def renew(self, job: PendingJob) -> None:
        """Replace a promise that cannot be kept, ahead of all promises to jobs behind this one."""
        self.backlog.walk.promise_was_dropped = True
        self.plan.cancel(job.jobid)
        when = self.plan.earliest(job.resource_request)
        if when is None or when > self.policy.now():
            others = self.promised_after(job)
            for other in others:
                self.revoke(other)
            if others:
                self.released()
                when = self.plan.earliest(job.resource_request)
        self.promise(job, when)

    def revoke(self, job: PendingJob) -> None:
        """Revoke a job's promise, and its estimate."""
        if job in self.promises:
            self.promises.drop(job)
            self.policy.forecasts.show_estimate(job, None)
            self.backlog.again(job)

    def kind_of_promise(self, job: PendingJob) -> str:
        kind = super().kind_of_promise(job)
        for jobid in self.promises.open_ids:  # what these keep free is chosen anew in each pass
            other = self.policy.pending(jobid)
            if other is not None and other < job and self.compete(job, other):
                return "planned"
        return kind

    def promised_after(self, job: PendingJob) -> list[PendingJob]:
        """Return the promised jobs behind this one that could use the same ranks, or planned
        licences."""
        return [other for other in self.promises.after(job) if self.compete(job, other)]

    def open_promises_after(self, job: PendingJob) -> list[PendingJob]:
        """Return the jobs of `promised_after` that have open promises."""
        return [one for one in self.promised_after(job) if self.promises.when(one) is None]

    def yielding(self, job: PendingJob) -> set[int]:
        others = self.open_promises_after(job) if job.promised else []
        if self.made_anew:
            others = self.promised_after(job)
        return super().yielding(job).union(one.jobid for one in others)

    # -- events ------------------------------------------------------------------------------------

    def defer(self, job: PendingJob, why: JobDeferred) -> None:
        was_promised = job in self.promises
        super().defer(job, why)
        if was_promised:
            self.released()  # its resources may let others start, including jobs ahead of it

    def leaves(self, job: PendingJob) -> None:
        if job in self.promises:
            self.moves(job)
        else:
            self.backlog.wake(self.policy.now())  # others may be promised a start in its turn

    def moves(self, job: PendingJob) -> None:
        self.revoke(job)
        self.released()  # others may start

    def reordered(self) -> None:
        for job in self.promises.reorder():
            self.revoke(job)  # it now precedes jobs that preceded it
        self.released()

    def plan_void(self) -> None:
        # A new plan is cheaper than checking which promises can still be kept.
        lost = self.promises
        self.promises = PromiseBook(self.backlog.set_promised)
        self.backlog.walk.promise_was_dropped = True
        for job in lost:
            self.backlog.set_promised(job, False)
            self.policy.forecasts.show_estimate(job, None)
            self.backlog.again(job)

    def readmit_group(self, group: JobGroup, most: int) -> None:
        self.backlog.readmit_group(group, self.policy.now())

    def ranks_changed(self, lost: bool) -> None:
        self._updates += 1
        super().ranks_changed(lost)
        self.backlog.wake(self.policy.now(), all=True)  # some may wait for ranks now

    def released(self) -> None:
        super().released()
        self.backlog.wake(self.policy.now())

    # -- promises that come due --------------------------------------------------------------------

    def wake_when_due(self) -> None:
        if self.promises.jobs and self.may_come_due_alone():
            self.wake_at(self.promises.next_after(self.policy.now()))

    def may_come_due_alone(self) -> bool:
        """Whether a promise may come due without the end of a running job, which would itself
        request a pass. An admission rule or an open promise may keep resources until then; and a
        promise bound to ranks keeps its time when the job that it waits for ends early. O(1)."""
        policy = self.policy
        return bool(
            (policy.admission.engaged and policy.admission.asks_each)
            or self.promises.open_ids
            or not policy.running
            or not self.plan.is_counted
        )

    def wake_at(self, when: float | None) -> None:
        """Request a pass at a promised time, unless another event will. A promise for now waits for
        a late job, whose end is an event: a timer would cause one pass after another."""
        if when is not None and when > self.policy.now() and self.may_come_due_alone():
            super().wake_at(when + LATE_S)

    def has_due(self) -> bool:
        return self.promises.has_due(self.policy.now())

    # -- questions ---------------------------------------------------------------------------------

    def ahead_of(self, job: PendingJob) -> PendingJob | None:
        """Return the first job ahead whose promise this one could delay, or None."""
        for other in self.promises.jobs:
            if not other < job:
                return None
            if self.policy.queue_order.share_ranks(job, other):
                return other
        return None
