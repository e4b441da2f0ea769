# SPDX-License-Identifier: LGPL-3.0-or-later
"""The plan that questions are answered from: a copy, at most a second old."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.scheduler.queue import ALL, Turns

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.scheduler.query.source import QuerySource
    from flux.scheduler.requests import PendingJob

#: Age of a copy of the plan up to which questions are answered from it, seconds.
MAX_SNAPSHOT_AGE_S = 1.0

#: Seconds of real time that planning all pending jobs for one answer may take; what is left is
#: reported as unplanned.
PLANNING_BUDGET_S = 0.1

#: Pending jobs examined in one step of an answer, where each costs a comparison.
JOBS_PER_STEP = 256

#: A copy that the queue has changed since is used until it is this many times as old as it took to
#: make: or a stream of questions would take the time that passes need. A copy made in 1 ms is old
#: after 20 ms; one that took 50 ms, or more, after `MAX_SNAPSHOT_AGE_S`.
AGE_PER_COST = 20.0


class PlanSnapshot:
    """A copy of a scheduler's plan, and another in which every pending job has a place.

    Args:
        source (QuerySource): the scheduler

    Attributes:
        made (float): when the copy was made, seconds since the epoch
        unplanned (int): pending jobs for which `with_queue` had no time left
    """

    def __init__(self, source: QuerySource) -> None:
        self._source = source
        self.made = 0.0
        self.unplanned = 0
        #: what the copies were made of, and how long the one took that took longest
        self._seen: Any = None
        self._took = 0.0
        self._plan: Plan | None = None
        self._full: Plan | None = None
        self._turns = Turns()

    def plan(self) -> Plan | None:
        """A copy of the plan with the promises; None if the pool cannot plan.

        Whoever changes it puts back what was there, or calls `spoil`.
        """
        source = self._source
        now = source.now()
        pool = source.pool
        seen = (id(pool), pool.generation, source.events())
        most = MAX_SNAPSHOT_AGE_S
        if seen != self._seen:
            most = min(most, AGE_PER_COST * self._took)
        if self._plan is None or not 0 <= now - self.made < most:
            began = source.stopwatch()
            plan = source.policy.current_plan()
            self._plan = None if plan is None else plan.copy()
            self._took = source.stopwatch() - began
            self._seen = seen
            self.made = now
            self._full = None
        return self._plan

    def spoil(self) -> None:
        """Do not use the copy any more: the next question makes a new one."""
        self._plan = None

    def with_queue(self) -> Generator[None, None, tuple[Plan | None, Turns]]:
        """A copy of the plan in which every pending job has a place, as far as `PLANNING_BUDGET_S`
        goes: those without a promise are planned behind all that have one.

        Returns:
            the copy, and when a newcomer may have its turn; the copy is None if the pool cannot
            plan
        """
        plan = self.plan()
        if plan is None or self._full is not None:
            return self._full, self._turns
        yield
        full, turns, made = plan.copy(), Turns(), self.made
        source = self._source
        spent, unplanned = 0.0, 0
        for examined, job in enumerate(source.policy.pending_jobs(deferred=False), 1):
            if examined % JOBS_PER_STEP == 0:
                yield
            if unplanned:
                unplanned += not job.request.finalized
            elif not job.request.finalized and not full.has(job.jobid):
                began = source.stopwatch()
                if not self._enter(job, full, turns):
                    break
                spent += source.stopwatch() - began
                unplanned = int(spent > PLANNING_BUDGET_S)
                yield
        if made == self.made and self._plan is plan:
            self._full, self._turns, self.unplanned = full, turns, unplanned
            self._took = max(self._took, spent)
        return full, turns

    def _enter(self, job: PendingJob, plan: Plan, turns: Turns) -> bool:
        """Give a pending job a place; whether those behind it can have one."""
        policy = self._source.policy
        if not policy.looks_past_heads:
            ranks = policy.queue_order.turn_of(job)
            policy.queue_order.plan_in_turn(job, plan, turns)
            return not (ranks == ALL and turns.after(ranks) == math.inf)
        request = job.resource_request
        try:
            when: float | None = plan.earliest(request)
            if when is None or request.duration <= 0:
                plan.hold(job.jobid, request)
            else:
                plan.reserve(job.jobid, request, when)
        except (InfeasibleRequest, InsufficientResources):
            pass
        return True
