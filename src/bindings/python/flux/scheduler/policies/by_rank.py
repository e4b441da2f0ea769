# SPDX-License-Identifier: LGPL-3.0-or-later
"""Backfilling in order of ranks: sched-backfill with ``rank=`` or ``candidates=``.

A pass examines jobs in order of priority, then of rank (`Backfill.rank`). Each starts if it fits.
The first that does not fit is the head: it is promised the earliest time at which enough running
jobs will have ended (EASY, Lifka 1995). The others may start now if they do not delay it; with
``candidates=`` they are examined in order of `Backfill.candidate_rank`.

Ranks change with waiting times and predictions, so only facts of a request itself are kept between
passes: heads are determined anew, and keep their times until the next pass. Most passes need no
order, since no job that fits the free resources may start: finding out costs a check of each of
these, and ranks are computed only if one may. A pass over a long queue is made in steps, and
finished before another begins, so that every job has its turn.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InsufficientResources
from flux.scheduler.policies.backfilling import Backfilling, PromiseBook
from flux.scheduler.queue import in_steps

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.scheduler.policies.ranks import BackfillPolicy
    from flux.scheduler.queue import Backlog
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.walk import JobGroup

#: Jobs tried per reactor turn, at 1 to 5 microseconds each; and the effort of a start, in tried
#: jobs.
TRIED_PER_TURN = 128
START_EFFORT = 32

#: Jobs compared, or signatures checked, per reactor turn.
COMPARED_PER_TURN = 256

#: Promises made, or taken back, per reactor turn, at 20 to 50 microseconds each.
PROMISED_PER_TURN = 16

#: Steps of a pass, which yield to the reactor.
Steps = Iterator[None]


class BackfillByRank(Backfilling):
    """EASY in order of ranks, with ``promise=`` heads."""

    plans_tokens = True
    notes_arrivals = True
    asks_in_order = False

    #: Whether each rank has one head at most, and jobs behind it keep no job from being another
    only_heads_block = False

    def __init__(self, policy: BackfillPolicy, backlog: Backlog) -> None:
        super().__init__(policy, backlog)
        self.kind = "planned" if policy.ranks.is_used else "promised"
        # number of the present check of which groups could run if all ranks were up and free
        self._check = 1
        # jobs whose promises a void plan had
        self._lost_promises: list[PendingJob] = []
        # the effort of this turn, in tried jobs; whether the plan may have become void unnoticed
        self._effort = 0
        self._plan_unchecked = False
        # signature -> `has_free`; until a job starts
        self._has_free: dict[Any, bool] = {}

    def schedule(self) -> Steps:
        """Make passes until no event arrives during one."""
        while True:
            self.another_pass = False
            self._effort = 0
            if not self.begin_pass():
                return
            yield from self.one_pass()
            if not self.another_pass:
                return

    def plan_is_void(self) -> bool:
        """Whether the plan has become void since this pass began; another pass then follows."""
        if self.policy.planning.current() is self.plan:
            return False
        self.another_pass = True
        return True

    def one_pass(self) -> Steps:
        policy = self.policy
        lost, self._lost_promises = self._lost_promises, []
        for number, loser in enumerate(lost, 1):
            if not loser.request.finalized:
                policy.forecasts.show_estimate(loser, None)
            if number % PROMISED_PER_TURN == 0:
                yield
        for number, _ in enumerate(self.backlog.take_unexamined(), 1):
            if number % COMPARED_PER_TURN == 0:
                yield
        self._has_free.clear()
        if not (yield from self.could_start()):
            return
        for number, head in enumerate(list(self.promises), 1):
            self.promises.drop(head)
            if number % PROMISED_PER_TURN == 0:
                yield
        covered = 0  # mask of the ranks with the maximum number of heads
        beyond = 0  # mask of the ranks that jobs behind heads could use
        candidates: list[PendingJob] = []
        for job in self.still_queued((yield from self.in_order())):
            if job is None:
                yield
                continue
            ranks = policy.queue_order.ranks_of(job)
            if self.let_rules_defer(job, policy.admission.check):
                continue
            if ranks & covered and policy.ranks.has_candidates:
                candidates.append(job)
                if not self.is_kept_for(job):  # no job waits for one that may start elsewhere
                    beyond |= ranks  # it also precedes those behind it on these ranks
            elif self.start_or_defer(job) or self.park_if_down(job):
                pass
            elif not ranks & (covered | beyond) and self.may_be_head(job, self.promises):
                self.promise(job, self.plan.earliest(job.resource_request))
                if not self.may_be_head(job, self.promises):
                    covered |= ranks
                if policy.promises_limit != 1:
                    yield
                    self._plan_unchecked = True
            elif policy.promises_limit != 0:
                beyond |= ranks
        for job in self.still_queued((yield from self.by_candidate_rank(candidates))):
            if job is None:
                yield
            else:
                self.start_or_defer(job)

    def start_or_defer(self, job: PendingJob) -> bool:
        """Start a job that fits beside the heads. Return whether it gets no promise: it has left the
        queue, or the plan has become void."""
        request = job.resource_request
        if self.is_kept_for(job) or (
            self.has_free(job.signature, request) and self.plan.fits(request)
        ):
            return self.try_to_start(job) or self.plan_is_void()
        return self.let_rules_defer(job, self.policy.admission.defer_without_room)

    def let_rules_defer(self, job: PendingJob, ask: Callable[[PendingJob], None]) -> bool:
        """Let rules defer or deny a job: by `ask`, in any case (`AdmissionControl.check`), or since
        it does not fit (`AdmissionControl.defer_without_room`). Return whether it has left the
        queue: it gets no promise, and no job waits behind it."""
        if not self.policy.admission.engaged:
            return False
        try:
            ask(job)
        except (Exception, SystemExit) as exc:
            return self.handle_refusal(job, exc)
        return False

    def is_kept_for(self, job: PendingJob) -> bool:
        """Whether a rule keeps resources for a job, so that the free ones do not decide. If neither
        suffice, the rule defers it."""
        return job.jobid in self.policy.admission.kept_for

    def may_be_head(self, job: PendingJob, heads: Iterable[PendingJob]) -> bool:
        """Whether a head beside `heads` may be promised a time on ranks that a job could use."""
        limit, share_ranks = self.policy.promises_limit, self.policy.queue_order.share_ranks
        return limit is None or sum(1 for head in heads if share_ranks(job, head)) < limit

    # -- common to passes by rank ------------------------------------------------------------------

    def still_queued(self, jobs: Iterable[PendingJob]) -> Iterator[PendingJob | None]:
        """Yield the jobs that are still queued at their turn, until the plan is void; None to yield
        to the reactor."""
        self._plan_unchecked = True
        for job in jobs:
            self._effort += 1
            if self._effort >= TRIED_PER_TURN:
                self._effort = 0
                yield None
                self._plan_unchecked = True
            if self._plan_unchecked:
                self._plan_unchecked = False
                if self.plan_is_void():
                    return
            if job.queued and not job.request.finalized:
                yield job

    def has_free(self, signature: Any, request: Any) -> bool:
        """Whether a job of this signature would fit now without any promises."""
        free = self._has_free.get(signature)
        if free is None:
            free = self._has_free[signature] = self.plan.has_free(request)
        return free

    def free_groups(self) -> Generator[None, None, list[JobGroup]]:
        """Return the groups of pending jobs that would fit now without any promises. Deny those
        that could never run."""
        check, groups = self._check, self.backlog.groups.values()
        for number, group in enumerate([g for g in groups if g.known_possible != check], 1):
            yield from self.deny_impossible(group)
            if number % COMPARED_PER_TURN == 0:
                yield
        found = []
        for number, group in enumerate(self.backlog.rooms.with_room(self.plan)[0], 1):
            if group.count and group.known_possible == check:
                try:
                    if self.has_free(group.signature, group.request):
                        found.append(group)
                except (Exception, SystemExit) as exc:  # of a hook of the pool
                    yield from self.deny_all(group, exc)
            if number % COMPARED_PER_TURN == 0:
                yield
        return found

    def deny_impossible(self, group: JobGroup) -> Steps:
        """Deny the jobs of a group if they could never run, or the pool fails: as they are not
        tried, it would not refuse them."""
        policy = self.policy
        try:
            policy.resources.check_feasibility(group.request)
            if not policy.resources.countable(group.request.shape):
                self.has_free(group.signature, group.request)  # a hook of the pool may raise
        except (Exception, SystemExit) as exc:
            yield from self.deny_all(group, exc)
        else:
            group.known_possible = self._check

    def deny_all(self, group: JobGroup, why: BaseException) -> Steps:
        """Deny the jobs of a group."""
        for number, job in enumerate(group.to_list(), 1):
            if job.queued and not job.request.finalized:
                self.handle_refusal(job, why)
            if number % PROMISED_PER_TURN == 0:
                yield

    def could_start(self) -> Generator[None, None, bool]:
        """Whether a job may start in this pass: one that fits the free resources, or for which a
        rule keeps resources."""
        return bool((yield from self.free_groups())) or self.any_kept_for()

    def any_kept_for(self) -> bool:
        """Whether a rule keeps resources for a queued job.  O(jobs with such resources)."""
        found = map(self.policy.pending, self.policy.admission.kept_for)
        return any(job is not None and job.queued for job in found)

    def try_to_start(self, job: PendingJob) -> bool:
        """Start a job that fits, or let an admission rule defer it. Return whether it has left the
        queue."""
        left = super().try_to_start(job)
        self._plan_unchecked = True
        if left:
            self._effort += START_EFFORT
            self._has_free.clear()
        return left

    def in_order(self) -> Generator[None, None, Iterable[PendingJob]]:
        """Return the pending jobs in order of priority, then of rank; a generator that yields at
        intervals."""
        return (yield from in_steps(self.backlog.jobs.to_list(), self.policy.ranks.key()))

    def by_candidate_rank(
        self, jobs: list[PendingJob]
    ) -> Generator[None, None, Iterable[PendingJob]]:
        """Return jobs in the order in which they may go ahead of heads."""
        policy = self.policy
        if not policy.ranks.has_candidates:
            return jobs

        def key(job: PendingJob) -> Any:
            rank = policy.ranks.value_of("candidates", policy.candidate_rank, job)
            return rank, job.order, job.jobid, job

        return (yield from in_steps(jobs, key))

    # -- events ------------------------------------------------------------------------------------

    def arrives(self, job: PendingJob) -> None:
        self.policy.ranks.arrives(job)

    def leaves(self, job: PendingJob) -> None:
        self.forget(job)
        self.released()  # others may be promised a start

    def moves(self, job: PendingJob) -> None:
        self.forget(job)

    def plan_void(self) -> None:
        self._lost_promises += self.promises
        self.promises = PromiseBook()

    def ranks_changed(self, lost: bool) -> None:
        self._check += 1
        super().ranks_changed(lost)

    # -- questions ---------------------------------------------------------------------------------

    def goes_first(self, job: PendingJob) -> bool:
        # Heads are planned only in passes in which a job can start, so the plan may lack their
        # promises.
        waiting = [other for other in self.backlog.jobs.to_list() if not other.request.finalized]
        return min(waiting, key=self.policy.ranks.key(), default=job) is job

    def yielding(self, job: PendingJob) -> set[int]:
        key = self.policy.ranks.key()
        behind = (head.jobid for head in self.promises if key(job) < key(head))
        return super().yielding(job).union(behind)

    def ahead_of(self, job: PendingJob) -> PendingJob | None:
        """Return the head that a job may not delay; None if the job is a head, or there is none."""
        heads = self.heads()
        if job in heads:
            return None
        for head in heads:
            if not head.request.finalized and self.policy.queue_order.share_ranks(job, head):
                return head
        return None

    def heads(self) -> list[PendingJob]:
        """Return the heads of the last pass that determined them."""
        return list(self.promises)

    def present_heads(
        self, plan: Plan, job: PendingJob | None
    ) -> Generator[None, None, list[PendingJob]]:
        """Return the heads of a pass that begins now, those ahead of `job` (None: all): the last one
        has determined none if no job could start in it. A generator that yields at intervals.
        O(pending jobs), and a sort."""
        policy, behind = self.policy, 0
        heads: list[PendingJob] = []
        free: dict[Any, bool] = {}
        for number, other in enumerate((yield from self.in_order()), 1):
            if number % COMPARED_PER_TURN == 0:
                yield
            if other is job:
                break
            has_left = other.request.finalized or not other.queued
            if has_left or other.jobid in policy.admission.kept_for:
                continue
            ranks, request = policy.queue_order.ranks_of(other), other.resource_request
            is_head = not ranks & behind and self.may_be_head(other, heads)
            if is_head:
                if other.signature not in free:
                    is_down = policy.facts.waits_for_down_ranks(request)
                    # With latest starts, one with room may wait without being a head.
                    has_room = self.only_heads_block and plan.has_free(request)
                    free[other.signature] = is_down or has_room
                if free[other.signature] or self.would_be_deferred(other):
                    continue
                heads.append(other)
            if self.only_heads_block:
                behind |= ranks if is_head else 0
            elif not (is_head and self.may_be_head(other, heads)):
                behind |= ranks
            if policy.queue_order.all_blocked(behind):
                break
        return heads

    def plans(self, plan: Plan, job: PendingJob | None = None) -> Generator[None, None, list[Plan]]:
        heads, plan = (yield from self.present_heads(plan, job)), plan.copy()
        for head in self.promises:
            plan.cancel(head.jobid)
        for number, head in enumerate(heads, 1):
            enter_head(plan, head)
            if number % PROMISED_PER_TURN == 0:
                yield
        return [plan]

    def facts(self, job: PendingJob) -> dict[str, Any]:
        policy = self.policy
        rank = policy.ranks.usable(policy.rank(job), job)
        return {"rank": rank, "expected_run": policy.expected_run(job)}

    def stats(self) -> dict[str, Any]:
        stats = super().stats()
        if self.policy.ranks.predicts:
            stats["predictions"] = self.policy.predictions.stats()
        return stats


def enter_head(plan: Plan, head: PendingJob) -> None:
    """Promise a head the first time at which it fits in a plan, unless it waits for ranks that are
    down."""
    when = plan.earliest(head.resource_request)
    try:
        if when is None:
            plan.hold(head.jobid, head.resource_request)
        else:
            plan.reserve(head.jobid, head.resource_request, when)
    except InsufficientResources:
        pass
