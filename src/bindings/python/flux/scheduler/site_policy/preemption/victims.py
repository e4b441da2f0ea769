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
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.request import ResourceRequest

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.scheduler.site_policy.preemption.record import Victim


def in_order(candidates: Iterable[Victim], now: float) -> list[Victim]:
    """Return candidates in the order in which they are added."""
    return sorted(
        candidates, key=lambda one: (one.rank, one.node_hours(now), -one.start, -one.jobid)
    )


def choose(candidates: Iterable[Victim], trial: Trial, now: float) -> list[Victim] | None:
    """Return the jobs that must end, in the order in which they were added.

    Assumes that ending fewer jobs never leaves more room: the last job to add is found by
    bisection. Costs a sort of the candidates, and about one trial per added job.

    Return None if the job would not fit even without all of them; the trial is then unchanged,
    otherwise without the chosen jobs.
    """
    ordered = in_order(candidates, now)
    out = 0

    def take_out(number: int) -> None:
        """Leave the first `number` jobs out of the trial, and no others."""
        nonlocal out
        for one in ordered[out:number]:
            trial.take_out(one.jobid)
        for one in reversed(ordered[number:out]):
            trial.put_back(one.jobid)
        out = number

    # It does not fit without the first `low` (0: tried before). `high` is doubled until it fits
    # without the first `high`: so the cost grows with the number of needed jobs.
    low, high = 0, min(1, len(ordered))
    take_out(high)
    while not trial.fits():
        if high == len(ordered):
            take_out(0)
            return None
        low, high = high, min(2 * high, len(ordered))
        take_out(high)
    while high - low > 1:
        middle = (low + high) // 2
        take_out(middle)
        if trial.fits():
            high = middle
        else:
            low = middle
    take_out(high)
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
    """A copy of a plan and its pool, from which running jobs can be removed.

    Args:
        plan (Plan): the plan
        request: what a job requests that is to start now
        longer (float): seconds that resources are kept for it before it runs
        yielding: ids of jobs whose promises do not count, such as its own
    """

    def __init__(
        self, plan: Plan, request: Any, longer: float = 0.0, yielding: Container[int] = ()
    ) -> None:
        self._plan = plan.on_copy(yielding)
        self.pool: Any = self._plan.pool  # the copy of the pool
        self._out: dict[int, tuple[Any, float]] = {}
        self._request = request
        if request.duration > 0 and longer > 0:
            self._request = copy.copy(request)
            self._request.duration = request.duration + longer

    def take_out(self, jobid: int) -> None:
        """Remove a running job."""
        self._out[jobid] = (self.pool.held(jobid), self.pool.job_end(jobid))
        self.pool.free(jobid)

    def put_back(self, jobid: int) -> None:
        """Restore a job that was taken out."""
        held, end = self._out.pop(jobid)
        # grant() only reads the duration
        self.pool.grant(jobid, ResourceRequest(duration=1.0), held, 0)
        self.pool.update_expiration(jobid, end)

    def offer(self, ask: Callable[[Any, int], Any] | None = None) -> int | None:
        """Return the mask of ranks that the job would get with all promises to others kept, or None
        if it does not fit. They are allocated, and freed again. `ask`: called with the pool and the
        id of the allocation, before it is freed."""
        try:
            self._plan.alloc(TRIED, self._request)
        except (InsufficientResources, InfeasibleRequest):
            # ranks that it needs may have left since it was queued
            return None
        ranks: int = self.pool.held_ranks(TRIED)
        if ask is not None:
            ask(self.pool, TRIED)
        self.pool.free(TRIED)
        return ranks

    def fits(self) -> bool:
        """Whether the job could start now."""
        return self.offer() is not None


#: Id of a trial allocation, which no job has.
TRIED = -(1 << 41)
