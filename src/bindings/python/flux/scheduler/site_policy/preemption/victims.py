# SPDX-License-Identifier: LGPL-3.0-or-later
"""Selection of the running jobs that must end for a pending one to start.

The rule is deterministic:

1. jobs are added one by one until the waiting job fits: the lowest rank first, then the smallest
   loss (nodes x time run), the youngest, the highest id;
2. then, from the last added to the first, each is spared if the waiting job still fits.

No chosen job can be left out, so the choice is *minimal*. It need not have the minimum number of
jobs or the minimum loss: finding that is as hard as set cover. Whether the job fits is determined
by the pool's own allocation on a copy.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.request import ResourceRequest

if TYPE_CHECKING:
    from flux.resource.plan.claims import ClaimPlan
    from flux.resource.plan.plan import Plan


class Candidate(NamedTuple):
    """A running job that may be ended.

    Attributes:
        jobid: the job id
        rank: rank of its class
        nodes: number of its nodes
        start: its start, seconds since the epoch
    """

    jobid: int
    rank: float
    nodes: int
    start: float

    def loss(self, now: float) -> float:
        """Return the node-seconds lost if it ends now."""
        return self.nodes * max(0.0, now - self.start)


def in_order(candidates: Iterable[Candidate], now: float) -> list[Candidate]:
    """Return candidates in the order in which they are added.

    Args:
        now: seconds since the epoch
    """
    return sorted(candidates, key=lambda one: (one.rank, one.loss(now), -one.start, -one.jobid))


def choose(candidates: Iterable[Candidate], trial: Trial, now: float) -> list[Candidate] | None:
    """Return the jobs that must end, in the order in which they were added.

    Assumes that ending fewer jobs never leaves more room: the last job to add is found by
    bisection. Costs a sort of the candidates, and about one trial per added job.

    Args:
        candidates: the jobs that may end
        trial: the present state; afterwards without the chosen jobs
        now: seconds since the epoch

    Returns:
        None if the job would not fit even without all of them; the trial is then unchanged
    """
    ordered = in_order(candidates, now)
    # It does not fit without the first `low` (0: tried before). `high` is doubled until it fits
    # without the first `high`: so the cost grows with the number of needed jobs.
    low = out = 0
    while True:
        if out == len(ordered):
            for one in ordered:
                trial.put_back(one.jobid)
            return None
        low = out
        for one in ordered[low : max(1, 2 * low)]:
            trial.take_out(one.jobid)
            out += 1
        if trial.fits():
            break
    high = out
    while high - low > 1:
        middle = (low + high) // 2
        while out > middle:
            out -= 1
            trial.put_back(ordered[out].jobid)
        while out < middle:
            trial.take_out(ordered[out].jobid)
            out += 1
        if trial.fits():
            high = middle
        else:
            low = middle
    while out < high:
        trial.take_out(ordered[out].jobid)
        out += 1
    while out > high:
        out -= 1
        trial.put_back(ordered[out].jobid)
    left = needed([one.jobid for one in ordered[:high]], trial)
    return [one for one in ordered[:high] if one.jobid in left]


def needed(jobids: Sequence[int], trial: Trial) -> set[int]:
    """Return the needed ones of the jobs taken out of a trial, in which the job fits: from the last
    to the first, each is put back if the job still fits."""
    left = set(jobids)
    for jobid in reversed(jobids):
        trial.put_back(jobid)
        if trial.fits():
            left.discard(jobid)
        else:
            trial.take_out(jobid)
    return left


class Trial:
    """A copy of a pool, from which running jobs can be removed.

    Args:
        pool: the copy; it is changed
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._out: dict[int, tuple[Any, float]] = {}

    def take_out(self, jobid: int) -> None:
        """Remove a running job."""
        self._out[jobid] = (self._pool.held(jobid), self._pool.job_end(jobid))
        self._pool.free(jobid)

    def put_back(self, jobid: int) -> None:
        """Restore a job that was taken out."""
        held, end = self._out.pop(jobid)
        # grant() only reads the duration
        self._pool.grant(jobid, ResourceRequest(duration=1.0), held, 0)
        self._pool.update_expiration(jobid, end)

    def fits(self) -> bool:
        """Whether the job could start now."""
        raise NotImplementedError


class PoolTrial(Trial):
    """A trial with the promises in the plan.

    Args:
        plan (Plan): the plan through which jobs are started
        jobid (int): the job to start
        request: its resource request
        longer (float): seconds that resources are kept for it before it runs
        yielding: ids of jobs whose promises do not count, such as its own

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
        """Return the mask of ranks that the job would get with all promises to others kept, or None
        if it does not fit. They are allocated, and freed again.

        Args:
            ask: called with the pool and the id of the allocation, before it is freed
        """
        try:
            self._plan.alloc(self._jobid, self._request)
        except (InsufficientResources, InfeasibleRequest):
            # ranks that it needs may have left since it was queued
            return None
        ranks: int = self._pool.held_ranks(self._jobid)
        if ask is not None:
            ask(self._pool, self._jobid)
        self._pool.free(self._jobid)
        return ranks

    def fits(self) -> bool:
        return self.offer() is not None


class KeptTrial(Trial):
    """A trial on the ranks kept for a job, regardless of promises.

    Args:
        pool: a copy; it is changed
        request: the job's resource request
        ranks (int): mask of the ranks kept for it
        kept: ids of the allocations that keep the free parts of these
        claims (ClaimPlan): claims that exclude the job from ranks, or None
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
