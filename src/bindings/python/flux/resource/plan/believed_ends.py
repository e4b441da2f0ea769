# SPDX-License-Identifier: LGPL-3.0-or-later
"""A pool with the scheduler's believed ends of jobs, for planning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from flux.resource.pool.view import PoolWithView


class PoolWithBelievedEnds:
    """The pool of a `Plan`, with believed ends of its jobs.

    Nothing is copied: a job started by the plan starts in the pool, and ends there by its limit.

    Args:
        pool (PoolWithView): the pool; it has a view
        ends: function giving the believed end of a job id (seconds since the epoch); None: its end
            in the pool
    """

    def __init__(self, pool: PoolWithView, ends: Callable[[int], float | None]) -> None:
        self._pool = pool
        self._ends = ends

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def job_end(self, jobid: int) -> float:
        """Return the believed end of a job, in seconds since the epoch; 0: unknown."""
        believed = self._ends(jobid)
        return self._pool.job_end(jobid) if believed is None else believed

    def changes_since(self, generation: int) -> None:
        """Return None, unknown: beliefs change without a change of the pool."""
        return None

    def jobs_by_end(self) -> list[tuple[float, int]]:
        """Return ``(believed end, job id)``, sorted. O(jobs log jobs)."""
        ends = []
        for jobid, end in self._pool.job_end_times():
            believed = self._ends(jobid)
            end = end if believed is None else believed
            if end:
                ends.append((end, jobid))
        return sorted(ends)
