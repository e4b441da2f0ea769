# SPDX-License-Identifier: LGPL-3.0-or-later
"""Allocations that belong to no job: they keep resources for the job that others end for."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flux.scheduler.rule_host import RuleHost

#: Ids in the pool and the plan that are no job's, downwards from here; reservations have others.
FIRST_ID = -(1 << 40)


class Placeholders:
    """Allocates resources to nobody.

    Args:
        host (RuleHost): the scheduler
    """

    def __init__(self, host: RuleHost) -> None:
        self._host = host
        self._ids = itertools.count(FIRST_ID, -1)

    def next_id(self) -> int:
        """Return an id in the pool and the plan that is no job's."""
        return next(self._ids)

    def hold(self, R: dict[str, Any], until: float) -> int | None:
        """Allocate R, which has just come back, until a time in seconds since the epoch. Returns the
        id of the allocation; None: a reservation that was short of nodes has taken some of it."""
        jobid, pool = self.next_id(), self._host.resources
        try:
            pool.register_alloc(jobid, R)
        except ValueError:
            return None
        pool.update_expiration(jobid, until)
        return jobid

    def hold_free(self, ranks: int, until: float, pool: Any = None) -> int | None:
        """Allocate what is free of some ranks (a mask) until a time (0: none). Returns the id of the
        allocation; None: nothing is free.

        Args:
            pool: a copy of the scheduler's pool, in the place of that
        """
        jobid, pool = self.next_id(), pool or self._host.resources
        return jobid if pool.hold_free(jobid, ranks, until) else None

    def free(self, jobids: list[int]) -> None:
        """Give back allocations, and empty the list of their ids."""
        for jobid in jobids:
            self._host.resources.free(jobid)
        jobids.clear()
