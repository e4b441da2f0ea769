# SPDX-License-Identifier: LGPL-3.0-or-later
"""The plan that questions are answered from: a copy, at most a second old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.scheduler.query.source import QuerySource

#: Age of a copy of the plan up to which questions are answered from it, seconds.
MAX_SNAPSHOT_AGE_S = 1.0

#: A copy that the queue has changed since is used until it is this many times as old as it took to
#: make: or a stream of questions would take the time that passes need. A copy made in 1 ms is old
#: after 20 ms; one that took 50 ms, or more, after `MAX_SNAPSHOT_AGE_S`.
AGE_PER_COST = 20.0


class PlanSnapshot:
    """A copy of a scheduler's plan.

    Args:
        source (QuerySource): the scheduler

    Attributes:
        made (float): when the copy was made, seconds since the epoch
    """

    def __init__(self, source: QuerySource) -> None:
        self._source = source
        self.made = 0.0
        #: the source of the copies, and the longest time that one took
        self._seen: Any = None
        self._took = 0.0
        self._plan: Plan | None = None

    def plan(self) -> Plan | None:
        """A copy of the plan with the promises; None if the pool cannot plan.

        A caller that changes it restores it, or calls `spoil`.
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
            plan = source.policy.planning.current()
            self._plan = None if plan is None else plan.copy()
            self._took = source.stopwatch() - began
            self._seen = seen
            self.made = now
        return self._plan

    def spoil(self) -> None:
        """Do not use the copy any more: the next question makes a new one."""
        self._plan = None
