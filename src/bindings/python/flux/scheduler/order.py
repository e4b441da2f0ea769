# SPDX-License-Identifier: LGPL-3.0-or-later
"""Who waits for whom by the order of the queue.

In strict order every job waits for all jobs ahead of it. By queue, a job waits only for those ahead
of it that could want some of the same ranks, so that queues with nodes of their own never hold up
each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Callable, Protocol

from flux.scheduler.queue import ALL

if TYPE_CHECKING:
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.decision import Decision
    from flux.scheduler.pools import RequestFacts
    from flux.scheduler.queue import PendingQueue
    from flux.scheduler.requests import PendingJob

#: Jobs examined per reactor turn where one costs a comparison of masks: some tens of microseconds
#: in all.
JOBS_PER_TURN = 64


class OrderSource(Protocol):
    """What `QueueOrder` has to know of a scheduler."""

    @property
    def resources(self) -> ResourcePool: ...

    decision: Decision
    facts: RequestFacts

    @property
    def by_queue(self) -> bool: ...


class QueueOrder:
    """Tells which jobs wait for which, and when each has its turn.

    Args:
        source (OrderSource): the scheduler
        queue (PendingQueue): the jobs that wait
        events: function giving a number that grows with every event
    """

    def __init__(self, source: OrderSource, queue: PendingQueue, events: Callable[[], int]) -> None:
        self._source = source
        self._queue = queue
        self._events = events
        #: what `heads` found, and what it was found of
        self._heads: list[tuple[PendingJob, int]] = []
        self._found_of: Any = None

    def turn_of(self, job: PendingJob) -> int:
        """Mask of the ranks for which `job` and others wait for each other: those it could want by
        queue, all ranks in strict order."""
        source = self._source
        return source.facts.ranks_of(job.resource_request) if source.by_queue else ALL

    def share_ranks(self, one: PendingJob, other: PendingJob) -> bool:
        """Whether one of two jobs may have to wait for the other: by queue, if both could want the same
        rank, whatever is up or free."""
        return self.turn_of(one) & self.turn_of(other) != 0

    def all_blocked(self, blocked: int) -> bool:
        """Whether no rank is left for which a job would not have to wait."""
        return not self._source.by_queue or not self._source.resources.ranks & ~blocked

    def heads(self) -> list[tuple[PendingJob, int]]:
        """The first pending jobs that want some rank which none ahead of them wants, with all ranks
        that they could want: whoever comes later and waits for a job waits for one of these.

        Costs a walk over the queue by queue, once for each event; in strict order next to nothing.
        """
        for _ in self.find_heads():
            pass
        return self._heads

    def find_heads(self) -> Iterator[None]:
        """Find what `heads` returns, if it is not known already. A generator that yields after
        every `JOBS_PER_TURN` jobs; for a policy that looks past the heads there is nothing to
        do."""
        source = self._source
        seen = (self._events(), source.resources.generation, len(self._queue))
        if source.decision.looks_past_heads or (
            seen == self._found_of and not any(job.request.finalized for job, _ in self._heads)
        ):
            return
        found = []
        blocked = 0
        for examined, job in enumerate(self._queue.in_order(), 1):
            if examined % JOBS_PER_TURN == 0:
                yield
            if job.request.finalized:
                continue
            ranks = self.turn_of(job)
            if ranks & ~blocked:
                found.append((job, ranks))
                blocked |= ranks
                if self.all_blocked(blocked):
                    break
        self._found_of, self._heads = seen, found

    def first_ahead_of(self, job: PendingJob) -> PendingJob | None:
        """The first job that `job` has to wait for; None if it is the first itself."""
        ranks = self.turn_of(job)
        for head, mask in self.heads():
            if head is job:
                return None
            if mask & ranks:
                return head
        return None
