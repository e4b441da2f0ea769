# SPDX-License-Identifier: LGPL-3.0-or-later
"""Backfilling with a latest start for every job: sched-backfill with ``promise=all``.

Promises follow from time limits, the order from ranks. An arriving job is promised a latest start:
the first time, not before its submission plus ``within=`` (`Backfill.latest_start`), at which it
fits by limits beside all other promises. A job starts now only if all other promises still hold by
limits. So while limits are enforced and nodes stay up, no promise is ever broken: each start and
each end leaves a plan in which all can be kept. Ranks and predictions only determine the order of
examination: a wrong prediction may delay a job, but breaks no promise.

A pass (`BackfillByLatestStart.one_pass`):

1. new jobs are promised their latest starts, in queue order;
2. jobs whose latest start has come start;
3. the others are examined in order of ranks. Until one is blocked, each job that fits now and
   breaks no promise starts. The first that does not fit the free resources is the head, as in EASY:
   a separate plan promises it the time at which running jobs make room for it, by their limits, and
   no later job may delay that. Jobs ahead of the head that fitted but would have broken a promise
   are then examined again, in their places: another start may have removed that promise.

`VOID_CAUSES` lists the causes of void promises.

Latest starts survive a reload: after loading, no job starts until the promised jobs have been
requested again and their promises restored (`StoredLatestStarts`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from math import inf
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InsufficientResources
from flux.scheduler.policies.by_rank import (
    COMPARED_PER_TURN,
    PROMISED_PER_TURN,
    TRIED_PER_TURN,
    BackfillByRank,
    Steps,
    enter_head,
)
from flux.scheduler.policies.latest_starts import VOID_CAUSES, LatestStarts, StoredLatestStarts
from flux.scheduler.queue import in_steps
from flux.scheduler.times import iso_time
from flux.scheduler.walk import entry_of

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.scheduler.admission import JobDeferred
    from flux.scheduler.checkpoint import Checkpoints
    from flux.scheduler.policies.ranks import BackfillPolicy
    from flux.scheduler.queue import Backlog
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.walk import JobGroup

#: Number of jobs readmitted at once when the limit or licence that they wait for has room: any of
#: them may start. Twice as many follow if it still has room when these were examined.
READMITTED_AT_ONCE = 64

#: Orders in which stored latest starts are entered into the plan, until one of them loses none.
ORDERS_TRIED = 4

#: Tolerated delay of a start after the latest start, in seconds: a running job ends exactly at its
#: limit, and its resources are freed a little later; so it may be that late itself.
GRACE_S = 1.0


class BackfillByLatestStart(BackfillByRank):
    """Promises every job a latest start on arrival, and starts jobs in order of ranks."""

    asks_in_order = True
    keeps_times = True
    only_heads_block = True

    def __init__(self, policy: BackfillPolicy, backlog: Backlog, checkpoints: Checkpoints) -> None:
        super().__init__(policy, backlog)
        self.latest = LatestStarts()
        #: the cause for promises that do not fit a new plan, into which all must be entered; None:
        #: all are in the plan
        self._void: str | None = None
        #: job id -> job whose new promise has not been sent yet
        self._untold: dict[int, PendingJob] = {}
        # the plan of heads (`plan_of_heads`; None: not made), its heads, and the last pass's heads
        self._head_plan: Plan | None = None
        self._planned_heads: list[PendingJob] = []
        self._heads: list[PendingJob] = []
        #: pending jobs without a latest start: no time at which they fit is known
        self._without_promise: dict[int, PendingJob] = {}
        #: readmitted groups -> number of their jobs that are queued again
        self._readmitted: dict[JobGroup, int] = {}
        #: the head that a job starting now overtakes; None: none
        self._overtaken: PendingJob | None = None
        self._stored = StoredLatestStarts(self.latest, checkpoints)

    # -- a pass ------------------------------------------------------------------------------------

    def one_pass(self) -> Steps:
        policy = self.policy
        if self._void is not None:
            cause, self._void = self._void, None
            if policy.admission.pins is not None:
                policy.admission.pins.renew(self.plan)
            yield from self.put_back((yield from in_queue_order(self.latest)), cause)
            self.released()  # jobs that lost theirs may be promised an earlier one
        now = policy.now()
        # Their promised time has passed as a whole: they wait for a late one.
        over = [one for one in self.latest.before(now) if self.latest.when(one) + one.limit <= now]
        for job in over:
            self.plan.cancel(job.jobid)
        yield from self.put_back((yield from in_queue_order(over)), "late")
        if self._stored.awaits_jobs(policy, len(self.backlog)):
            return
        yield from self.keep_stored()
        for number, job in enumerate(self.backlog.take_unexamined(), 1):
            if job not in self.latest and not self.is_kept_for(job):
                if not self.let_rules_defer(job, policy.admission.check):
                    yield from self.promise_latest(job)
                    if policy.admission.engaged and not self.plan.has_free(job.resource_request):
                        self.let_rules_defer(job, policy.admission.defer_without_room)
            if number % PROMISED_PER_TURN == 0:
                yield
            if self.plan_is_void():
                return
        self._has_free.clear()
        self._overtaken = None
        for number, job in enumerate(self.latest.due(policy.now()), 1):
            if not job.request.finalized:
                self.start_due(job)
            if self.plan_is_void():
                return
            if number % PROMISED_PER_TURN == 0:
                yield
        yield from self.start_by_rank()
        readmitted, self._readmitted = self._readmitted, {}
        for group, number in readmitted.items():
            if group.is_readmitted:
                self.another_pass = True
                self.readmit_group(group, 2 * number)
        yield from self.tell()
        self._stored.save()
        self.wake_when_due()

    def start_by_rank(self) -> Steps:
        """Make step 3 of a pass."""
        could_start = yield from self.could_start()
        if not could_start and not self.any_kept_for():
            return
        heads: list[PendingJob] = []
        behind = 0  # mask of ranks that heads could use
        rest: list[PendingJob] = []
        for job in self.still_queued((yield from self.in_order())):
            if job is None:
                yield
                continue
            is_kept_for = self.is_kept_for(job)
            if not (could_start or is_kept_for):
                continue
            if self.let_rules_defer(job, self.policy.admission.check):
                continue
            if is_kept_for:
                self.try_to_start(job)
                continue
            ranks = self.policy.queue_order.ranks_of(job)
            free = self.has_free(job.signature, job.resource_request)
            if ranks & behind:
                if free:  # otherwise it will not be free in this pass
                    rest.append(job)
            elif not free:
                if not self.park_if_down(job) and not self.let_rules_defer(
                    job, self.policy.admission.defer_without_room
                ):
                    heads.append(job)
                    behind |= ranks
            elif self.may_start(job) and self.try_to_start(job):
                pass
            elif not (self.backlog.has_priorities and (yield from self.goes_before(job))):
                rest.append(job)
        self._heads = heads
        self._overtaken = heads[0] if heads else None
        head_plan = None
        # signature -> shortest limit with which a job would delay a head; a longer one would too
        refused: dict[Any, float] = {}
        for job in self.still_queued((yield from self.by_candidate_rank(rest))):
            if job is None:
                yield
                continue
            if not self.has_free(job.signature, job.resource_request):
                continue
            shortest = refused.get(job.signature)
            if shortest is not None and job.limit >= shortest:
                continue
            if head_plan is None or self._planned_heads is not heads:  # a question has others
                head_plan = self.plan_of_heads(heads)
            if head_plan is not None and not head_plan.fits(job.resource_request):
                refused[job.signature] = job.limit
                continue
            if not (self.may_start(job) and self.try_to_start(job)):
                continue
            if head_plan is not None and job.jobid in self.policy.running:
                head_plan.note_started(job.jobid, job.resource_request)
                if not head_plan.is_counted and head_plan.breaks_a_promise():
                    # The job took ranks that only a head could use.
                    head_plan = self.plan_of_heads(heads)

    def could_start(self) -> Generator[None, None, bool]:
        certainly = self.policy.admission.engaged or self.backlog.has_priorities
        tried = 0
        for group in (yield from self.free_groups()):
            for job in group:
                if not (job.request.finalized or self.is_kept_for(job)):
                    if certainly or self.may_start(job):
                        return True
                    tried += 1
                    if tried % TRIED_PER_TURN == 0:
                        yield
        return False

    def may_start(self, job: PendingJob) -> bool:
        """Whether a job that fits the free resources may start: all other promises can be kept, or a
        rule may have it start in the time of one."""
        asks_each = self.policy.admission.asks_each
        return asks_each or self.plan.fits(job.resource_request, jobid=job.jobid)

    def plan_of_heads(self, heads: list[PendingJob]) -> Plan | None:
        """Return a plan of the resources that running jobs leave, with each head promised the first
        time at which it fits; None if there is no head."""
        if not heads:
            return None
        policy, head_plan = self.policy, self._head_plan
        engaged = policy.admission.engaged
        if head_plan is None or (engaged and not head_plan.is_counted):
            head_plan = self._head_plan = policy.resources.plan()
        for jobid in list(head_plan):
            head_plan.cancel(jobid)
        head_plan.share_rules(self.plan)
        if engaged:
            # The resources that rules keep from jobs are in the main plan, under ids below 0.
            head_plan.take_over(self.plan, [jobid for jobid in self.plan if jobid < 0])
        self._planned_heads = heads
        for head in heads:
            enter_head(head_plan, head)
        return head_plan

    def start_due(self, job: PendingJob) -> None:
        """Start a job whose latest start has come, or void its promise."""
        if self.try_to_start(job) or job not in self.latest or self.plan_is_void():
            return
        latest, policy, now = self.latest, self.policy, self.policy.now()
        when = latest.when(job)
        ends = policy.resources.jobs_by_end()
        if ends and ends[0][0] <= now + GRACE_S:
            # It keeps its place in the plan, and starts when the late job has ended: an event, at
            # an unknown time.
            if now > when + GRACE_S:
                if not latest.overdue.get(job.jobid):
                    self.void(job, when, "late")
                    latest.overdue[job.jobid] = True
            elif job.jobid not in latest.overdue:
                latest.overdue[job.jobid] = False
                policy.call_at(when + 2 * GRACE_S, policy.look_again)
            return
        if not latest.overdue.get(job.jobid):
            latest.counts["violated"] += 1
            policy.log.error(
                f"{job.name} was promised to start by {when:.0f}, and cannot: this is a bug"
            )
        self.promise_anew(job)

    def begin(self, job: PendingJob, alloc: Any) -> None:
        """Start a job that has been allocated resources."""
        policy, now = self.policy, self.policy.now()
        told: dict[str, Any] = {}
        when = inf
        if job in self.latest:
            told["t_latest"] = when = self.latest.when(job)
            self.latest.started(job, now, GRACE_S)
        self.forget(job)
        if when <= now:
            told["selection_type"] = "reserved"
        elif self._overtaken is not None:
            told.update(selection_type="backfilled", backfill=self._overtaken.name)
        policy.start_or_deny(job, alloc, **told)
        if now > when + GRACE_S and self._void is None:
            # It will end later than promised, which may delay others. The new plan needs the entries
            # of rules at the start.
            self._void = "late"
            policy.planning.renew()

    # -- promises ----------------------------------------------------------------------------------

    def promise_latest(self, job: PendingJob) -> Steps:
        """Promise a job its latest start, beside all other promises."""
        policy = self.policy
        wanted = policy.ranks.value_of("latest_start", policy.latest_start, job)
        if wanted < job.t_submit:
            policy.ranks.warn(
                "latest_start",
                f"latest_start of {job.name} is {wanted!r}: expected seconds since the epoch",
            )
        wanted = max(wanted if wanted < inf else job.t_submit + policy.within, policy.now())
        try:
            when = self.plan.earliest(job.resource_request, after=wanted)
        except (Exception, SystemExit) as exc:  # of a hook of the pool
            self.handle_refusal(job, exc)
            return
        if self.backlog.has_priorities and (when is None or when > wanted):
            until = inf if when is None else when + job.limit

            def promise(lower: list[PendingJob]) -> bool:
                self.enter(job, self.plan.earliest(job.resource_request, after=wanted))
                return True

            if not (yield from self.before_lower(job, wanted, until, promise)):
                self.backlog.again(job)
        else:
            self.enter(job, when)

    def enter(self, job: PendingJob, when: float | None) -> None:
        """Promise a job to start by `when`; None if its possible start is unknown."""
        if when is None:
            self._without_promise[job.jobid] = job
            return
        self.plan.reserve(job.jobid, job.resource_request, when)
        self.latest.make(job, when)
        self._without_promise.pop(job.jobid, None)
        self._untold[job.jobid] = job

    def goes_before(self, job: PendingJob) -> Generator[None, None, bool]:
        """Start a job at the expense of jobs of lower priority, if possible. Return whether it has
        left the queue."""

        def start(lower: list[PendingJob]) -> bool:
            fits = bool(lower) and self.plan.fits(job.resource_request, jobid=job.jobid)
            return fits and self.try_to_start(job)

        now = self.policy.now()
        left = yield from self.before_lower(job, now, now + job.limit, start)
        self._plan_unchecked = True
        return left

    def before_lower(
        self,
        job: PendingJob,
        start: float,
        end: float,
        act: Callable[[list[PendingJob]], bool],
    ) -> Generator[None, None, bool]:
        """Act for a job without the promises between `start` and `end` to competing jobs of lower
        priority, which it is given. Those that cannot be kept afterwards become void. Return the
        result of the act; False if the job or the plan is gone."""
        policy, pins = self.policy, self.policy.admission.pins
        by_share = policy.queue_order.by_share  # a share decides nothing here
        lower = []
        for number, other in enumerate(self.latest.before(end), 1):
            if number % COMPARED_PER_TURN == 0:
                yield
            if (
                (job.by_priority < other.by_priority if by_share else job.order < other.order)
                and other in self.latest
                and self.latest.when(other) + other.limit > start
                and self.compete(job, other)
                and not (pins is not None and pins.stays(other))
            ):
                lower.append(other)
        taken: list[PendingJob] = []
        for other in (yield from in_queue_order(lower)):
            self.plan.cancel(other.jobid)
            taken.append(other)
            if len(taken) % PROMISED_PER_TURN == 0:
                yield
        result = not self.plan_is_void() and not job.request.finalized and act(taken)
        yield from self.put_back(taken, "priority")
        return result

    def put_back(self, jobs: Iterable[PendingJob], cause: str, orders: int = 1) -> Steps:
        """Enter removed promises into the plan again, in this order. A promise that does not fit is
        void, and made anew when all others are in. `orders`: the number of orders to try, where the
        choice of ranks matters; with more than one, `jobs` is a list."""
        plan = self.plan
        for others in reversed(range(orders)):
            lost = []
            for number, job in enumerate(jobs, 1):
                if number % PROMISED_PER_TURN == 0:
                    yield
                if self.plan_is_void():
                    return  # all are entered into the new plan
                if job in self.latest and not (job.request.finalized or plan.has(job.jobid)):
                    when = self.latest.put_off(job, self.policy.now())
                    try:
                        plan.reserve(job.jobid, job.resource_request, when)
                    except InsufficientResources:
                        lost.append(job)
            if not (lost and others) or plan.is_counted:
                break
            for job in jobs:
                plan.cancel(job.jobid)
            jobs = lost + [job for job in jobs if job not in lost]  # bound first, they may fit
        for number, job in enumerate(lost, 1):
            if number % PROMISED_PER_TURN == 0:
                yield
            if self.plan_is_void():
                return
            if job in self.latest and not job.request.finalized:
                self.void(job, self.latest.when(job), cause)
                self.promise_anew(job)
        if self.policy.admission.pins is not None:
            self.policy.admission.pins.review()  # perhaps no job is examined

    def park_if_down(self, job: PendingJob) -> bool:
        latest = self.latest.when(job) if job in self.latest else None
        aside = super().park_if_down(job)
        if aside and latest is not None:
            self.take_back(job, latest, "resources")
        return aside

    def defer(self, job: PendingJob, why: JobDeferred) -> None:
        latest = self.latest.when(job) if job in self.latest else None
        super().defer(job, why)
        pins = self.policy.admission.pins
        if pins is not None:
            pins.review()  # before others are promised its time
        if latest is not None:
            self.another_pass = True  # jobs ahead of it may start as well
            self.released()
            self.take_back(job, latest, "deferred")

    def take_back(self, job: PendingJob, latest: float, cause: str) -> None:
        """Tell a job's user that it has lost its latest start."""
        if self._untold.pop(job.jobid, None) is None:
            self.void(job, latest, cause)
            self.show_latest_start(job, None)

    def void(self, job: PendingJob, latest: float, cause: str) -> None:
        """Count and log a promise that cannot be kept, by one of `VOID_CAUSES`."""
        self.latest.void[cause] += 1
        self.policy.log.info(
            f"{job.name}: the promise to start by {iso_time(latest)} is void: {VOID_CAUSES[cause]}"
        )

    def promise_anew(self, job: PendingJob) -> None:
        """Promise a job a new latest start: the first time after the lost one at which it fits."""
        policy, plan = self.policy, self.plan
        plan.cancel(job.jobid)
        when = plan.earliest(job.resource_request, after=max(self.latest.when(job), policy.now()))
        if when is None:
            self.latest.drop(job)
            self._without_promise[job.jobid] = job
        else:
            plan.reserve(job.jobid, job.resource_request, when)
            if when <= policy.now():
                self.latest.overdue[job.jobid] = True  # it can start now
                return
            self.latest.make(job, when)
        self._untold.pop(job.jobid, None)  # it is told now
        self.show_latest_start(job, when)

    def show_latest_start(self, job: PendingJob, when: float | None) -> None:
        """Annotate a job with its latest start (seconds since the epoch); None removes it.

        Also sent in a simulation without estimates, which checks that promises are kept.
        """
        job.request.annotate({"sched": {"t_latest": when}})

    def tell(self) -> Steps:
        """Annotate waiting jobs with their latest starts; those of started jobs were sent with the
        start."""
        untold, self._untold = self._untold, {}
        for number, job in enumerate(untold.values(), 1):
            if job in self.latest and not job.request.finalized:
                self.show_latest_start(job, self.latest.when(job))
            if number % PROMISED_PER_TURN == 0:
                yield

    def wake_when_due(self) -> None:
        self.wake_at(self.latest.next_due())

    def has_due(self) -> bool:
        when = self.latest.next_due()
        return when is not None and when <= self.policy.now()

    # -- over a reload -----------------------------------------------------------------------------

    def pool_made(self) -> None:
        self._stored.read()

    def keep_stored(self) -> Steps:
        """Enter the latest starts of returned jobs into the plan, in order; a latest start in the
        past is void."""
        known = self._stored.take_returned()
        if not known:
            return

        kept: list[PendingJob] = []
        passed: list[PendingJob] = []
        for job in (yield from in_queue_order(known)):
            self.latest.make(job, known[job], "restored")
            (kept if known[job] >= self.policy.now() else passed).append(job)
        yield from self.put_back(kept, "unloaded", ORDERS_TRIED)
        for number, job in enumerate(kept, 1):
            # Their users were told before the reload, and must be told of a loss.
            if job in self.latest and self.latest.when(job) == known[job]:
                self.show_latest_start(job, known[job])
            if number % PROMISED_PER_TURN == 0:
                yield
        for job in passed:
            if job in self.latest and not job.request.finalized:
                self.void(job, self.latest.when(job), "unloaded")
                self.promise_anew(job)
                yield

    # -- events ------------------------------------------------------------------------------------

    def readmit_group(self, group: JobGroup, most: int) -> None:
        self._readmitted[group] = most = max(most, READMITTED_AT_ONCE)
        super().readmit_group(group, most)

    def arrives(self, job: PendingJob) -> None:
        super().arrives(job)
        self._stored.arrives(job)

    def leaves(self, job: PendingJob) -> None:
        # Its request is withdrawn: it was canceled, or its queue was stopped and it returns.
        when = self.latest.when(job) if job in self.latest else self._stored.when(job)
        super().leaves(job)
        if when is not None:
            self._stored.withdrawn(job, when)

    def forget(self, job: PendingJob) -> None:
        plan = self.policy.planning.current()
        if plan is not None:
            plan.cancel(job.jobid)
        self.latest.drop(job)
        self._without_promise.pop(job.jobid, None)
        self._stored.forget(job)

    def is_promised(self, job: PendingJob) -> bool:
        return job in self.latest

    def starts_out_of_turn(self, job: PendingJob) -> None:
        if job in self.latest:
            self.latest.started(job, self.policy.now(), GRACE_S)
        self.forget(job)

    def moves(self, job: PendingJob) -> None:
        """A promise holds regardless of priority; only jobs without one are promised anew: this one,
        and others if it takes a promise without end from a job of lower priority."""
        self.released()

    def released(self) -> None:
        # A job that waited for one without a limit may be promised a latest start now.
        for job in self._without_promise.values():
            self.backlog.again(job)

    def plan_void(self) -> None:
        self._void = self._void or "resources"
        self._head_plan = None
        self._planned_heads = []
        self._heads = []

    def ranks_changed(self, lost: bool) -> None:
        super().ranks_changed(lost)
        # A counted plan would count all promises again in one turn; a new one takes a few per turn.
        # Bound promises need no new plan, in which another binding might not be found.
        plan = self.policy.planning.current()
        if not lost and plan is not None and plan.is_counted:
            self.policy.planning.renew()

    def extended(self) -> None:
        # Promises that cannot be kept are found when all are made again, a few per turn.
        self._void = "extended"
        self.policy.planning.renew()

    def heads(self) -> list[PendingJob]:
        return self._heads

    def plans(self, plan: Plan, job: PendingJob | None = None) -> Generator[None, None, list[Plan]]:
        head_plan = self.plan_of_heads((yield from self.present_heads(plan, job)))
        return [plan] if head_plan is None else [plan, head_plan]

    def why(self, job: PendingJob) -> str | None:
        return "it would keep another job from its latest start"

    def facts(self, job: PendingJob) -> dict[str, Any]:
        latest = self.latest.when(job) if job in self.latest else None
        return {**super().facts(job), "t_latest": latest}

    def stats(self) -> dict[str, Any]:
        stats = {**super().stats(), "reserved": len(self.latest)}
        return {**stats, "latest_starts": self.latest.stats()}


def in_queue_order(jobs: Iterable[PendingJob]) -> Generator[None, None, Iterable[PendingJob]]:
    """Return jobs in queue order; a generator that yields at intervals."""
    return in_steps(list(jobs), entry_of)
