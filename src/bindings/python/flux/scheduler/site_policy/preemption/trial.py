# SPDX-License-Identifier: LGPL-3.0-or-later
"""Trying on a copy of the pool whether a job would fit if others were gone."""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.request import ResourceRequest

if TYPE_CHECKING:
    from flux.resource.plan.claims import ClaimPlan
    from flux.resource.plan.plan import Plan


class Trial:
    """A copy of a pool, from which running jobs can be taken.

    Args:
        pool: the copy, which is changed
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._out: dict[int, tuple[Any, float]] = {}

    def take_out(self, jobid: int) -> None:
        """A running job is gone."""
        self._out[jobid] = (self._pool.held(jobid), self._pool.job_end(jobid))
        self._pool.free(jobid)

    def put_back(self, jobid: int) -> None:
        """A job that was taken out runs on."""
        held, end = self._out.pop(jobid)
        # grant() reads nothing but the duration.
        self._pool.grant(jobid, ResourceRequest(duration=1.0), held, 0)
        self._pool.update_expiration(jobid, end)

    def fits(self) -> bool:
        """Whether the job could start now."""
        raise NotImplementedError


class PoolTrial(Trial):
    """A trial with the promises in the plan.

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
        super().__init__(self._plan.pool)
        self._jobid = jobid
        self._request = request
        if request.duration > 0 and longer > 0:
            self._request = copy.copy(request)
            self._request.duration = request.duration + longer

    def offer(self, ask: Callable[[Any, int], Any] | None = None) -> int | None:
        """Mask of the ranks that the job would get, if it keeps all promises to others; None: it
        does not fit. It is allocated, and freed again.

        Args:
            ask: called with the pool and the id under which it holds that, before it is freed
        """
        try:
            self._plan.alloc(self._jobid, self._request)
        except (InsufficientResources, InfeasibleRequest):
            # Since the job was queued ranks may have left that it cannot do without.
            return None
        ranks: int = self._pool.held_ranks(self._jobid)
        if ask is not None:
            ask(self._pool, self._jobid)
        self._pool.free(self._jobid)
        return ranks

    def fits(self) -> bool:
        return self.offer() is not None


class KeptTrial(Trial):
    """A trial on the ranks that are kept for a job, whatever was promised.

    Args:
        pool: a copy, which is changed
        request: what the job asks for
        ranks (int): mask of the ranks that are kept for it
        kept: ids of the allocations that keep what is free of them
        claims (ClaimPlan): who keeps the job off ranks; None: nobody
    """

    def __init__(
        self, pool: Any, request: Any, ranks: int, kept: Iterable[int], claims: ClaimPlan | None
    ) -> None:
        super().__init__(pool)
        self._request = request
        self._ranks = ranks
        self._claims = None if claims is None else claims.copy(pool)
        for jobid in kept:
            pool.free(jobid)

    def fits(self) -> bool:
        ranks, claimant = self._ranks, getattr(self._request, "claimant", None)
        if self._claims is not None and claimant is not None:
            now = self._pool.clock()
            ranks &= ~self._claims.closed_now(claimant, now, now, {})
        return bool(ranks) and bool(self._pool.fits_on(self._request, ranks))
