# SPDX-License-Identifier: LGPL-3.0-or-later
"""What a backfilling policy will do with its queue, played through on a copy of the plan.

A policy that promises a start only to the first blocked jobs lets any other start as soon as it
delays none of these. When a newcomer starts is then no matter of one plan: at each end of a job
there are other promises. So the queue is played through, end by end, as if every job took its
whole limit and nothing else came, until the newcomer has its start.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InfeasibleRequest, InsufficientResources

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan

#: The newcomer's id in the plan: no job's.
NEWCOMER = 0


class Blocked:
    """A job that waits: its id in the plan, its request, the ranks it could want.

    `promised` is its start, if it was promised one; infinity: what it will need is kept for it, and
    nobody knows when it starts.
    """

    __slots__ = ("jobid", "promised", "ranks", "request")

    def __init__(self, jobid: int, request: Any, ranks: int, promised: float | None = None) -> None:
        self.jobid = jobid
        self.request = request
        self.ranks = ranks
        self.promised = promised


class BackfillSimulation:
    """The queue from now on, up to the start of the newcomer.

    Args:
        plan (Plan): a copy, with the promises there are
        now: seconds since the epoch
        changes: when running jobs end and windows begin and end, seconds since the epoch
        blocked (list of Blocked): the queue in the order in which jobs are asked; that of the id
            `NEWCOMER` is the newcomer
        most: how many jobs that could want some of the same ranks are promised a start
    """

    def __init__(
        self, plan: Plan, now: float, changes: Iterable[float], blocked: list[Blocked], most: int
    ) -> None:
        self._plan = plan
        self._now = now
        self._blocked = blocked
        self._newcomer = next(job for job in blocked if job.jobid == NEWCOMER)
        self._most = most
        self._changes = [time for time in changes if now < time < math.inf]
        for job in blocked:
            if job.promised is not None and job.promised < math.inf:
                self._changes.append(job.promised)
                self._changes.append(job.promised + (job.request.duration or math.inf))
        heapq.heapify(self._changes)
        self._start: float | None = None

    def run(self) -> Generator[None, None, float | None]:
        """Play it through; yields after every job that is examined.

        Returns:
            when the new job starts, in seconds since the epoch; None if that is not known
        """
        now = self._now
        while True:
            yield from self._pass(now)
            if self._start is not None:
                return self._start
            while self._changes and self._changes[0] <= now:
                heapq.heappop(self._changes)
            if not self._changes or self._changes[0] == math.inf:
                return None
            now = heapq.heappop(self._changes)

    def left(self) -> int:
        """How many jobs ahead of the newcomer have no start yet."""
        return sum(1 for job in self._blocked if job.promised is None) - 1

    def _pass(self, now: float) -> Generator[None, None, None]:
        """What a pass does at a time: start what can start, promise what may be promised."""
        waiting: list[Blocked] = []
        promised: list[int] = []  # ranks of those that have a promise for later
        wanted = 0  # ranks that those want who have none
        refused: dict[Any, float] = {}  # shape to the least length that did not fit now
        for job in self._blocked:
            if job.promised is not None:
                if job.promised > now:
                    promised.append(job.ranks)
                    waiting.append(job)
                continue  # else it has started
            may_promise = (
                not job.ranks & wanted
                and sum(1 for ranks in promised if ranks & job.ranks) < self._most
            )
            length = job.request.duration or math.inf
            start = None
            if length < refused.get(job.request.shape, math.inf) or may_promise:
                start = self._place(job, now, may_promise)
                yield
            if start is None:
                refused[job.request.shape] = min(length, refused.get(job.request.shape, math.inf))
                wanted |= job.ranks
                waiting.append(job)
                continue
            heapq.heappush(self._changes, start + length)
            if job is self._newcomer:
                self._start = start
                return
            if start > now:
                job.promised = start
                promised.append(job.ranks)
                heapq.heappush(self._changes, start)
                waiting.append(job)
        self._blocked = waiting

    def _place(self, job: Blocked, now: float, may_promise: bool) -> float | None:
        """Enter a job now, or if it may be promised a start, then; None: not yet."""
        try:
            start = self._plan.earliest(job.request, after=now) if may_promise else now
            if start is None:
                return None
            self._plan.reserve(job.jobid, job.request, start)
        except (InfeasibleRequest, InsufficientResources):
            return None
        return start
