# SPDX-License-Identifier: LGPL-3.0-or-later
"""The interface of a scheduler for the query service."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Any, Callable

from flux.resource.plan.plan import Plan
from flux.scheduler.decision import PolicyView
from flux.scheduler.host import Host
from flux.scheduler.requests import PendingJob

#: Maximum age of the copy of the plan in seconds.
MAX_COPY_AGE_S = 1.0

#: Once the queue has changed, maximum age of the copy as a multiple of the time it took to make:
#: otherwise a stream of queries would take the time that passes need. A copy made in 1 ms is out of
#: date after 20 ms; one that took 50 ms or more, after `MAX_COPY_AGE_S`.
AGE_PER_COST = 20.0


@dataclass(eq=False)
class QuerySource:
    """A scheduler, for the query service."""

    policy: PolicyView  # the scheduler
    # returns the pool's request for a jobspec; raises ValueError if that is invalid
    parse: Callable[[Any], Any]
    events: Callable[[], int]  # returns a number that grows with every event
    host: Host  # its host
    # queries a projection (`flux.scheduler.projection.fork.Projections.ask`)
    ask: Callable[..., Generator[float, None, dict[str, Any]]]
    # return the windows of reservations up to a time, and the figures of groups of nodes by level
    reserved: Callable[[float], Iterator[dict[str, Any]]]
    levels: Callable[[], list[dict[str, Any]]]
    # returns the expected ends of jobs that give way to others, whose resources are kept for longer
    victim_ends: Callable[[], dict[int, float]]
    made: float = 0.0  # time of the copy of the plan, seconds since the epoch
    _copy: Plan | None = None
    _copied: Any = None  # state of the scheduler at the copy
    _took: float = 0.0  # duration of copying

    def plan(self) -> Plan | None:
        """Return a copy of the plan, with its promises; None if the pool cannot plan. Not to be
        changed for longer than a step."""
        now, pool = self.policy.now(), self.policy.resources
        present = (id(pool), pool.generation, self.events())
        most = MAX_COPY_AGE_S
        if present != self._copied:
            most = min(most, AGE_PER_COST * self._took)
        if self._copy is None or not 0 <= now - self.made < most:
            began = self.host.stopwatch()
            plan = self.policy.planning.current()
            self._copy = None if plan is None else plan.copy()
            self._took = self.host.stopwatch() - began
            self._copied, self.made = present, now
        return self._copy

    def windows(
        self, requests: list[Any], horizon: float, job: PendingJob | None = None
    ) -> Generator[None, None, list[list[tuple[int, float]]]]:
        """Return the ``steps`` of `Plan.windows` for each request, beside all promises and heads;
        with a pending `job`, beside those to others. A generator that yields at intervals."""
        plan = self.plan()
        assert plan is not None, "the pool can plan"
        plans = yield from self.policy.decision.plans(plan, job)
        restore = plan.withdraw(() if job is None else self.policy.decision.yielding(job))
        try:
            return [
                fewest([one["steps"] for one in found])
                for found in zip(*(one.windows(requests, horizon) for one in plans))
            ]
        finally:
            restore()

    def ending_by(self, limit: float) -> Iterator[tuple[int, float]]:
        """Yield the jobs that hold resources and end by `limit`, each with its end, the last to end
        first, jobs with equal ends in order of id; if `limit` is infinite, jobs without an end (0)
        come first."""
        pool = self.policy.resources
        own_ends = {**self.policy.admission.own_ends, **self.victim_ends()}
        if limit == inf:
            endless = [jobid for jobid, end in pool.job_end_times() if not end and jobid >= 0]
            yield from ((jobid, 0.0) for jobid in sorted(endless) if not own_ends.get(jobid))
        ends = pool.jobs_by_end()
        del ends[bisect_right(ends, (limit, inf)) :]
        others = (one for one in reversed(ends) if one[1] >= 0 and one[1] not in own_ends)
        own = [(end, jobid) for jobid, end in own_ends.items() if 0 < end <= limit]
        last_first = heapq.merge(others, sorted(own, reverse=True), reverse=True)
        for end, some in groupby(last_first, itemgetter(0)):
            yield from ((jobid, end) for jobid in sorted(map(itemgetter(1), some)))


def fewest(found: list[list[tuple[int, float]]]) -> list[tuple[int, float]]:
    """Return the steps of the resources free in all of several plans."""
    steps: list[tuple[int, float]] = []
    for time in sorted({until for some in found for _, until in some}):
        count = min(max([n for n, until in some if until >= time], default=0) for some in found)
        if steps and steps[-1][0] == count:
            steps.pop()
        steps += [(count, time)] if count else []
    return steps
