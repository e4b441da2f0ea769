"""The plan that questions are answered from: a copy, at most a second old."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Optional

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.scheduler.queue import ALL, Turns

if TYPE_CHECKING:
    from flux.scheduler.policy import PolicyScheduler
    from flux.scheduler.requests import PendingJob

#: Age of a copy of the plan up to which questions are answered from it, seconds.
MAX_SNAPSHOT_AGE_S = 1.0

#: Seconds of real time that planning all pending jobs for one answer may take; what is left is reported as
#: unplanned.
PLANNING_BUDGET_S = 0.1

#: Pending jobs examined in one step of an answer, where each costs a comparison.
JOBS_PER_STEP = 256

#: A copy that took longer than this to make, seconds, is used until it is `MAX_SNAPSHOT_AGE_S` old, even if
#: the queue changes meanwhile: or questions would take the time that passes need.
COSTLY_COPY_S = 0.01


class PlanSnapshot:
    """A copy of a scheduler's plan, and another in which every pending job has a place.

    Args:
        scheduler (PolicyScheduler): whose

    Attributes:
        made (float): when the copy was made, seconds since the epoch
        unplanned (int): pending jobs for which `with_queue` had no time left
    """

    def __init__(self, scheduler: PolicyScheduler) -> None:
        self._scheduler = scheduler
        self.made = 0.0
        self.unplanned = 0
        #: what the copies were made of, and how long the one took that took longest
        self._seen: Any = None
        self._took = 0.0
        self._plan: Any = None
        self._full: Any = None
        self._turns = Turns()

    def plan(self) -> Any:
        """A copy of the plan with the promises; None if the pool cannot plan.

        Whoever changes it puts back what was there, or calls `spoil`.
        """
        scheduler = self._scheduler
        now = scheduler.now()
        pool = scheduler.resources
        seen = (id(pool), pool.generation, scheduler.requests_seen)
        fresh = 0 <= now - self.made < MAX_SNAPSHOT_AGE_S
        if self._plan is None or not fresh or (seen != self._seen and self._took <= COSTLY_COPY_S):
            began = scheduler.stopwatch()
            source = scheduler.current_plan()
            self._plan = None if source is None else source.copy()
            self._took = scheduler.stopwatch() - began
            self._seen = seen
            self.made = now
            self._full = None
        return self._plan

    def spoil(self) -> None:
        """The copy is not what it was: the next question has a new one."""
        self._plan = None

    def with_queue(self) -> Generator[None, None, tuple[Any, Turns]]:
        """A copy of the plan in which every pending job has a place, as far as `PLANNING_BUDGET_S` goes: those
        without a promise are planned behind all that have one.

        Returns:
            the copy, and when a newcomer may have its turn; the copy is None if the pool cannot plan
        """
        plan = self.plan()
        if plan is None or self._full is not None:
            return self._full, self._turns
        yield
        full, turns, made = plan.copy(), Turns(), self.made
        scheduler = self._scheduler
        spent, unplanned = 0.0, 0
        for looked, job in enumerate(scheduler.pending_jobs(aside=False), 1):
            if looked % JOBS_PER_STEP == 0:
                yield
            if unplanned:
                unplanned += not job.request.finalized
            elif not job.request.finalized and not full.has(job.jobid):
                began = scheduler.stopwatch()
                if not self._enter(job, full, turns):
                    break
                spent += scheduler.stopwatch() - began
                unplanned = int(spent > PLANNING_BUDGET_S)
                yield
        if made == self.made and self._plan is plan:
            self._full, self._turns, self.unplanned = full, turns, unplanned
            self._took = max(self._took, spent)
        return full, turns

    def _enter(self, job: PendingJob, plan: Any, turns: Turns) -> bool:
        """Give a pending job a place; whether those behind it can have one."""
        scheduler = self._scheduler
        if not scheduler.looks_past_heads:
            ranks = scheduler.turn_of(job)
            scheduler.plan_in_turn(job, ranks, plan, turns)
            return not (ranks == ALL and turns.after(ranks) == math.inf)
        request = job.resource_request
        try:
            when: Optional[float] = plan.earliest(request)
            if when is None or request.duration <= 0:
                plan.hold(job.jobid, request)
            else:
                plan.reserve(job.jobid, request, when)
        except (InfeasibleRequest, InsufficientResources):
            pass
        return True
