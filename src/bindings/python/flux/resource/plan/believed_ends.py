# SPDX-License-Identifier: LGPL-3.0-or-later
"""A pool whose running jobs end at believed times, for a plan by these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from flux.resource.pool.view import PoolWithView


class PoolWithBelievedEnds:
    """A pool as a `Plan` sees it, except for the ends of its jobs.

    Nothing is copied: a job that the plan starts is started in the pool, and ends there by its
    limit.

    Args:
        pool (PoolWithView): the pool; it has a view
        ends: function giving, for a job id, the believed end of the job (seconds since the epoch);
            None: the end that the pool has
    """

    def __init__(self, pool: PoolWithView, ends: Callable[[int], float | None]) -> None:
        self._pool = pool
        self._ends = ends

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def job_end(self, jobid: int) -> float:
        """The believed end of a job, in seconds since the epoch; 0: unknown."""
        believed = self._ends(jobid)
        return self._pool.job_end(jobid) if believed is None else believed

    def changes_since(self, generation: int) -> None:
        """Unknown: beliefs change without a change of the pool."""
        return None

    def jobs_by_end(self) -> list[tuple[float, int]]:
        """Jobs by their believed ends. O(jobs log jobs)."""
        ends = []
        for jobid, end in self._pool.job_end_times():
            believed = self._ends(jobid)
            end = end if believed is None else believed
            if end:
                ends.append((end, jobid))
        return sorted(ends)
