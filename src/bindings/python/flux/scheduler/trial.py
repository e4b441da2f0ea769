# SPDX-License-Identifier: LGPL-3.0-or-later
"""Trials: the resources that a job would get if some running jobs had ended, or promises did not count, on
a copy of the plan and its pool."""

from __future__ import annotations

import copy
from collections.abc import Container, Sequence
from typing import Any, Callable, Tuple

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.plan.plan import Plan
from flux.resource.pool.inventory import Selection
from flux.resource.request import ResourceRequest
from flux.scheduler.admission import JobDeferred

#: Resources, as from `ResourcePoolImplementation.place_request`: a selection, and its slots.
Place = Tuple[Selection, int]

#: Id of a trial allocation, which no job has.
TRIED = -(1 << 41)


class Trial:
    """A copy of a plan and its pool, from which running jobs can be removed, for the request of a
    job that is to start now. `longer`: seconds that resources are kept for it before it runs;
    `yielding`: ids of jobs whose promises do not count, such as its own."""

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

    def offer(
        self, ask: Callable[[Any, int], JobDeferred | None] = lambda pool, jobid: None
    ) -> tuple[Place, JobDeferred | None] | None:
        """Return the place that the job would get with all promises to others kept, and the answer
        of `ask` about the pool and the id of a trial allocation of it; None if it does not fit."""
        take_back = self._plan.withdraw(())  # promises that move for it
        try:
            alloc = self._plan.alloc(TRIED, self._request)
            place, answer = (self.pool.held(TRIED), alloc.nslots or 0), ask(self.pool, TRIED)
            self.pool.free(TRIED)
            return place, answer
        except (InsufficientResources, InfeasibleRequest):
            # ranks that it needs may have left since it was queued
            return None
        finally:
            take_back()

    def fits(self) -> bool:
        """Whether the job could start now."""
        return self.offer() is not None

    def needed(self, jobids: Sequence[int]) -> set[int]:
        """Return the jobs taken out that must end for the job to fit, as it does now: from the last
        to the first, each is put back if the job still fits."""
        left = set(jobids)
        for jobid in reversed(jobids):
            self.put_back(jobid)
            if self.fits():
                left.discard(jobid)
            else:
                self.take_out(jobid)
        return left
