# SPDX-License-Identifier: LGPL-3.0-or-later
"""Trying on a copy of the pool whether a job would fit if others were gone."""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InsufficientResources
from flux.resource.request import ResourceRequest

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan


class PoolTrial:
    """A copy of a pool and of the promises in its plan, from which running jobs can be taken.

    Args:
        plan (Plan): through which jobs are started
        jobid (int): the job that is to start
        request: what it asks for
        longer (float): seconds by which it holds its resources longer than it runs, since they are
            kept for it before
        yielding: ids of the jobs whose promises do not count: its own

    Raises:
        NotImplementedError: the pool cannot plan
    """

    def __init__(
        self,
        plan: Plan,
        jobid: int,
        request: Any,
        longer: float,
        yielding: Container[int],
    ) -> None:
        self._plan = plan.on_copy(yielding)
        self._pool = self._plan.pool
        self._jobid = jobid
        self._request = request
        if request.duration > 0 and longer > 0:
            self._request = copy.copy(request)
            self._request.duration = request.duration + longer
        self._out: dict[int, tuple[Any, float]] = {}

    def take_out(self, jobid: int) -> None:
        """A running job is gone."""
        self._out[jobid] = (self._pool.held(jobid), self._pool.job_end(jobid))
        self._pool.free(jobid)

    def put_back(self, jobid: int) -> None:
        """A job that was taken out runs on."""
        held, end = self._out.pop(jobid)
        _give(self._pool, jobid, held)
        self._pool.update_expiration(jobid, end)

    def offer(self, ask: Callable[[Any, int], Any] | None = None) -> int | None:
        """Mask of the ranks that the job would get, if it keeps all promises to others; None: it
        does not fit. It is allocated, and freed again.

        Args:
            ask: called with the pool and the id under which it holds that, before it is freed
        """
        try:
            self._plan.alloc(self._jobid, self._request)
        except InsufficientResources:
            return None
        ranks: int = self._pool.held_ranks(self._jobid)
        if ask is not None:
            ask(self._pool, self._jobid)
        self._pool.free(self._jobid)
        return ranks

    def fits(self) -> bool:
        """Whether the job could start now."""
        return self.offer() is not None


def not_needed(
    pool: Any, request: Any, ranks: int, kept: Iterable[int], victims: Sequence[int]
) -> set[int] | None:
    """Of jobs that are to end for another, those without whose resources it fits by now.

    Args:
        pool: a copy, which is changed
        request: what the job asks for
        ranks (int): mask of the ranks that are kept for it
        kept: ids of the allocations that keep what is free of them
        victims: ids of the jobs that are to end; the last one is spared first

    Returns:
        None: it does not fit even if all end
    """
    for jobid in kept:
        pool.free(jobid)
    held = {jobid: pool.held(jobid) for jobid in victims}
    for jobid in victims:
        pool.free(jobid)
    if not pool.fits_on(request, ranks):
        return None
    spared = set()
    for jobid in reversed(victims):
        _give(pool, jobid, held[jobid])
        if pool.fits_on(request, ranks):
            spared.add(jobid)
        else:
            pool.free(jobid)
    return spared


def _give(pool: Any, jobid: int, held: Any) -> None:
    """Give a job again what it held in a pool; its end is another matter."""
    # grant() reads nothing but the duration.
    pool.grant(jobid, ResourceRequest(duration=1.0), held, 0)
