# SPDX-License-Identifier: LGPL-3.0-or-later
"""The copy of the plan that answers queries, at most a second old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.scheduler.query.source import QuerySource

#: Maximum age of the copy in seconds.
MAX_SNAPSHOT_AGE_S = 1.0

#: Once the queue has changed, maximum age of the copy as a multiple of the time it took to make:
#: otherwise a stream of queries would take the time that passes need. A copy made in 1 ms is out of
#: date after 20 ms; one that took 50 ms or more, after `MAX_SNAPSHOT_AGE_S`.
AGE_PER_COST = 20.0


class PlanSnapshot:
    """A copy of a scheduler's plan."""

    def __init__(self, source: QuerySource) -> None:
        self._source = source
        self.made = 0.0  # time of the copy, seconds since the epoch
        #: state of the scheduler at the copy, and maximum duration of a copy
        self._seen: Any = None
        self._took = 0.0
        self._plan: Plan | None = None

    def plan(self) -> Plan | None:
        """Return a copy of the plan, with its promises; None if the pool cannot plan. Not to be
        changed."""
        source = self._source
        now = source.now()
        pool = source.pool
        seen = (id(pool), pool.generation, source.events())
        most = MAX_SNAPSHOT_AGE_S
        if seen != self._seen:
            most = min(most, AGE_PER_COST * self._took)
        if self._plan is None or not 0 <= now - self.made < most:
            began = source.stopwatch()
            plan = source.policy.planning.current()
            self._plan = None if plan is None else plan.copy()
            self._took = source.stopwatch() - began
            self._seen = seen
            self.made = now
        return self._plan
