# SPDX-License-Identifier: LGPL-3.0-or-later
"""What all ways to backfill have in common: a plan with promises, in which jobs start."""

from __future__ import annotations

from syslog import LOG_DEBUG
from typing import TYPE_CHECKING, Protocol

from flux.resource.errors import InsufficientResources
from flux.scheduler.admission import JobDeferred
from flux.scheduler.decision import Decision
from flux.scheduler.policies.promise_book import PromiseBook
from flux.scheduler.rule_host import HostedPolicy

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.history import PredictionScore, RunTimes
    from flux.scheduler.policies.ranks import JobRanks
    from flux.scheduler.queue import Backlog
    from flux.scheduler.requests import PendingJob


class BackfillPolicy(HostedPolicy, Protocol):
    """What a decision uses of a `Backfill`."""

    promises_limit: int | None
    guarantee: str
    predict: str
    ranks: JobRanks
    waiting_at_start: int

    @property
    def history(self) -> RunTimes: ...

    @property
    def predictions(self) -> PredictionScore: ...

    def rank(self, job: PendingJob) -> float: ...

    def candidate_rank(self, job: PendingJob) -> float: ...

    def expected_run(self, job: PendingJob) -> float: ...

    def latest_start(self, job: PendingJob) -> float: ...


class Backfilling(Decision):
    """Base of the decisions that backfill.

    Args:
        policy (Backfill): whose jobs they are
        backlog (Backlog): its queue

    Attributes:
        plan (Plan): in which promises are made, during a pass
        promises (PromiseBook): the promises to jobs that wait
        kind (str): how users are told of promised times: "planned" where the next pass may promise
            another job the time, else "promised"
    """

    looks_past_heads = True
    policy: BackfillPolicy
    plan: Plan
    kind = "promised"

    def __init__(self, policy: BackfillPolicy, backlog: Backlog) -> None:
        super().__init__(policy)
        self.backlog = backlog
        self.promises = PromiseBook()

    def begin_pass(self) -> bool:
        """Take the plan; return whether there is one."""
        plan = self.policy.planning.require()
        if plan is not None:
            self.plan = self.promises.plan = plan
        return plan is not None

    # -- one job -----------------------------------------------------------------------------------

    def try_to_start(self, job: PendingJob) -> bool:
        """Start a job, unless it does not fit now or would delay one with a promise.

        Returns:
            whether it has left the queue: it started, can never run, or was deferred
        """
        try:
            alloc = self.policy.allocate(job, self.plan)
        except Exception as exc:
            return self.has_left(job, exc)
        self.begin(job, alloc)
        return True

    def has_left(self, job: PendingJob, why: Exception) -> bool:
        """Do what the pool or an admission rule said of a job by raising.

        Returns:
            whether it has left the queue: it can never run, or was deferred
        """
        if isinstance(why, JobDeferred):
            self.set_apart(job)
            self.policy.defer(job, why)
        elif isinstance(why, InsufficientResources):
            return False
        else:
            self.forget(job)
            self.policy.refuse(job, why)
        return True

    def begin(self, job: PendingJob, alloc: ResourcePool) -> None:
        policy = self.policy
        head, was_promised = self.ahead_of(job), job in self.promises
        self.forget(job)
        if was_promised:
            self.backlog.allow()  # another job may be promised a start now
            policy.start(job, alloc, selection_type="reserved")
        elif head is None:
            policy.start(job, alloc, selection_type="immediate")
        else:
            ahead = {"backfill": head.name} if policy.forecasts.are_read else {}
            policy.start(job, alloc, selection_type="backfilled", **ahead)
            if policy.log.level >= LOG_DEBUG:
                when = self.promises.when(head) or 0
                policy.log.debug(f"backfill: {job.name} (shadow={int(when)})")

    def promise(self, job: PendingJob, when: float | None) -> None:
        """Promise a job the time `when` (seconds since the epoch); None: an open promise."""
        self.promises.make(job, when)
        self.show_promise(job, when)

    def show_promise(self, job: PendingJob, when: float | None) -> None:
        """Tell a job's user the time that it was promised (None: it is an open promise)."""
        self.policy.forecasts.promised(job, when, self.kind_of_promise(job))

    def kind_of_promise(self, job: PendingJob) -> str:
        """What users are told that the promise to a job is: "planned", if an admission rule may keep it
        from starting then."""
        admission = self.policy.admission
        certain = not admission.engaged or admission.keeps_promise(job)
        return self.kind if certain else "planned"

    def forget(self, job: PendingJob) -> None:
        """A job is about to leave the queue, or its place there."""
        self.promises.drop(job)

    # -- what has happened -------------------------------------------------------------------------

    def set_apart(self, job: PendingJob) -> None:
        self.forget(job)

    def reordered(self) -> None:
        self.promises.reorder()
        self.released()

    def ranks_changed(self, lost: bool) -> None:
        self.promises.ranks_changed()
        self.backlog.unpark()
        self.backlog.regroup()
        self.released()

    # -- what is asked -----------------------------------------------------------------------------

    def goes_first(self, job: PendingJob) -> bool:
        return True

    def promised_start(self, job: PendingJob) -> float | None:
        if job in self.promises and self.kind_of_promise(job) == "promised":
            return self.promises.when(job)
        return None

    def stats(self) -> dict[str, object]:
        return {**self.backlog.stats(self.policy.now()), "reserved": len(self.promises)}
