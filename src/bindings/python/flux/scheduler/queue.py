# SPDX-License-Identifier: LGPL-3.0-or-later
"""The queue of pending jobs: a heap and, for policies that look past its head, a backlog.

`PendingQueue` is the list behind ``Scheduler._queue``, in `heapq` order. `Backlog` is a sorted
queue that groups jobs with equal requests, and knows which jobs arrived since the last examination.
A `flux.scheduler.walk.Walk` goes over it.

`QueueOrder` determines which jobs wait for which. In strict order every job waits for all jobs
ahead of it. By queue, a job waits only for those ahead of it that could use some of the same ranks,
so queues with separate nodes never hold up each other.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sized
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Callable, Protocol

from flux.resource.pool.masks import quote
from flux.scheduler.requests import PendingJob
from flux.scheduler.walk import JobGroup, OrderedJobs, RoomIndex, Walk, entry_of

if TYPE_CHECKING:
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.pools import RequestFacts
    from flux.scheduler.walk import Entry, PromisedJobs

#: Mask of all ranks.
ALL = -1

#: Jobs examined per reactor turn if each costs a comparison of masks: some tens of microseconds
#: together.
JOBS_PER_TURN = 64

#: Jobs sorted per step of `in_steps`: a rank costs 2 to 3 microseconds.
SORTED_PER_STEP = 256


def in_order(heap: Iterable[PendingJob]) -> Iterator[PendingJob]:
    """Yield the items of a `heapq` list in order, as of the first step; later changes of the list
    have no effect.

    Costs a copy of the list and, for each yielded item, the logarithm of their number; other items
    cost nothing, unlike with sorting.
    """
    items = list(heap)
    while items:
        yield items[0]
        heapq.heappop(items)  # not for a caller that only needs the head


def in_steps(
    jobs: list[PendingJob], key: Callable[[PendingJob], tuple[Any, ...]]
) -> Generator[None, None, Iterable[PendingJob]]:
    """Sort jobs by a key that ends with the job. A generator that yields after each
    `SORTED_PER_STEP` and returns the sorted jobs; the rest of a long list is sorted on demand."""
    if len(jobs) <= 1:
        return jobs
    if len(jobs) <= SORTED_PER_STEP:
        return [entry[-1] for entry in sorted(map(key, jobs))]
    parts = []
    for at in range(0, len(jobs), SORTED_PER_STEP):
        parts.append(sorted(map(key, jobs[at : at + SORTED_PER_STEP])))
        yield
    return (entry[-1] for entry in heapq.merge(*parts))


class ComparableOrder:
    """A policy's own order, with checks: a value that does not compare with the others would break
    the queue."""

    def __init__(self, order: Callable[[PendingJob], Any]) -> None:
        self._order = order  # returns the sort key of a job
        self._some: Any = None  # the key of some job, to compare others with

    def __call__(self, job: PendingJob) -> Any:
        """Return the sort key of a job. Raises TypeError if the key does not compare with
        others."""
        order = self._order(job)
        try:
            if self._some is None:
                self._some = order
            some = self._some
            comparable = order == order and (order < some or some < order or order == some)
        except TypeError:
            comparable = False
        if comparable:
            return order
        if self._some is order:
            self._some = None
        raise TypeError(f"order() returned {quote(order)}, which cannot be sorted among others")


class PendingQueue:
    """The heap behind ``Scheduler._queue``: a plain list, which policies change with `heapq`.

    Removals are only recorded; `settle` applies them: a few one by one, many by making the heap
    anew.
    """

    def __init__(self) -> None:
        self.changes = 0  # grows with every change by these methods
        self._heap: list[PendingJob] = []
        self._removed: set[PendingJob] = set()

    def push(self, job: PendingJob) -> None:
        self.changes += 1
        if job in self._removed:
            self.settle()  # its earlier removal comes first
        heapq.heappush(self._heap, job)

    def remove(self, job: PendingJob) -> None:
        """Remove `job`; no effect if it is not in the heap."""
        self.changes += 1
        self._removed.add(job)

    def move_all(self, moves: dict[PendingJob, int]) -> None:
        """Change the priorities of jobs ({job: priority})."""
        self.changes += 1
        heap = self.settle()
        if self._are_many(moves):
            for job, priority in moves.items():
                job.priority = priority
            heapq.heapify(heap)
            return
        for job, priority in moves.items():
            was_there = self._take_out(job)
            job.priority = priority
            if was_there:
                heapq.heappush(heap, job)

    def replace(self, jobs: Iterable[PendingJob]) -> None:
        """Use `jobs` as the heap; a list is assumed to be in heap order."""
        self.changes += 1
        self._removed.clear()
        self._heap = jobs if isinstance(jobs, list) else list(jobs)

    def reorder(self) -> None:
        """Sort all jobs again: their order may have changed. Costs a sort."""
        self.move_all({job: job.priority for job in self.settle()})

    def __len__(self) -> int:
        return len(self.settle())

    def __bool__(self) -> bool:
        """Whether a job is pending; usually known without `settle`."""
        return len(self._heap) > len(self._removed) or bool(self.settle())

    def settle(self) -> list[PendingJob]:
        """Apply recorded removals, and return the heap."""
        if self._removed:
            heap, removed, self._removed = self._heap, self._removed, set()
            if self._are_many(removed):
                heap[:] = [job for job in heap if job not in removed]
                heapq.heapify(heap)
            else:
                for job in removed:
                    self._take_out(job)
        return self._heap

    def in_order(self, most: int | None = None) -> Iterator[PendingJob]:
        """Iterate over the jobs in order, as of now: the first `most` (None: all)."""
        return islice(in_order(self.settle()), most)

    def _are_many(self, jobs: Sized) -> bool:
        """Whether to change all these jobs at once: a change of one costs about as much as making
        the heap of sixteen."""
        return 16 * len(jobs) >= len(self._heap)

    def _take_out(self, job: PendingJob) -> bool:
        """Remove a job from the heap, which stays in order. Return whether it was there."""
        heap = self._heap
        if heap and heap[0] is job:  # usually it has started
            heapq.heappop(heap)
            return True
        for index, other in enumerate(heap):
            if other is job:
                last = heap.pop()
                if last is not job:
                    self._put(last, index)
                return True
        return False

    def _put(self, job: PendingJob, index: int) -> None:
        """Put a job in the place of another, at `index`, and restore the heap."""
        heap = self._heap
        while index and job < heap[(index - 1) // 2]:
            heap[index] = heap[(index - 1) // 2]
            index = (index - 1) // 2
        while True:
            children = range(2 * index + 1, min(2 * index + 3, len(heap)))
            child = min(children, key=heap.__getitem__, default=index)
            if child == index or not heap[child] < job:
                break
            heap[index] = heap[child]
            index = child
        heap[index] = job


class Backlog(PendingQueue):
    """A sorted `PendingQueue`, for policies that look past a job that cannot start.

    Adding, removing or moving a job costs O(log n) (`OrderedJobs`). The jobs are available as a
    list (`settle`), rebuilt after a change. A job that a policy pops off this list must be answered
    by the end of the step, or it reappears: `remove` takes a job out for good.

    Attributes:
        jobs (OrderedJobs): the jobs to examine
        parked (dict): id -> job that waits for ranks to come up
        groups (dict): signature -> jobs that were examined and wait, without promised ones
        by_ranks (dict): mask of ranks -> the same jobs, if `ranks_of` is set
        ranks_of: returns the mask of ranks for which a job and others take turns; None: any
        readmitted (dict): groups of deferred jobs that their rules readmit; walks queue these one by
            one (`readmit_group`)
        requeue: queues one of these jobs again
        waits: returns whether the examination of an arriving job would have no effect, since it can
            neither start nor be promised a start
        rooms (RoomIndex): the groups by the room that they need
        effort (float): work of this reactor turn, in examined jobs
        longest (float): maximum wait of a job for examination after an event that could help it,
            seconds
        walk (Walk): the walk that is under way, or the last one
    """

    def __init__(self) -> None:
        super().__init__()
        self.jobs = OrderedJobs()
        # all jobs as a list, until the next change; None: not computed
        self._listed: list[PendingJob] | None = None
        self.parked: dict[int, PendingJob] = {}
        self.groups: dict[Any, JobGroup] = {}
        self.by_ranks: dict[int, OrderedJobs] = defaultdict(OrderedJobs)
        self.ranks_of: Callable[[PendingJob], int] | None = None
        self.readmitted: dict[JobGroup, None] = {}
        self.requeue: Callable[[PendingJob], None] = self.push
        self.waits: Callable[[PendingJob], bool] = lambda job: False
        self.rooms = RoomIndex()
        self.effort: float = 0
        self.longest = 0.0
        #: heap of the jobs not examined since they arrived or an event concerned them alone
        self.unexamined: list[Entry] = []
        #: time since which blocked jobs are to be examined, seconds since the epoch; None: they are
        #: not
        self.woken: float | None = None
        self._wakes_all = False
        self.walk = Walk(self, None, False, False)
        #: the time since which the jobs of the current walk have waited for it
        self._walk_since: float | None = None

    # -- as a queue --------------------------------------------------------------------------------

    def push(self, job: PendingJob) -> None:
        self._listed = None
        self.changes += 1
        job.examined = False
        job.tried = -1
        if job.limit < 0:
            request = job.resource_request
            job.limit = getattr(request, "duration", 0.0) or inf
            if job.signature is None:
                shape = getattr(request, "shape", None)
                job.signature = job.jobid if shape is None else shape
        if self.ranks_of is not None:
            # Asks a site's pool: if that raises, this job is refused, and no pass is lost.
            self.ranks_of(job)
        entry = entry_of(job)
        self.jobs.add(entry)
        job.queued = True
        if self.woken is None and not self.unexamined and self.walk.is_over and self.waits(job):
            job.examined = True
            self.join_group(job)
        else:
            heapq.heappush(self.unexamined, entry)

    def remove(self, job: PendingJob) -> None:
        self._listed = None
        self.changes += 1
        if job.jobid in self.parked:
            del self.parked[job.jobid]
        elif job.queued:
            job.queued = False
            self.jobs.remove(job)
            self._leave_group(job)
            if not self.jobs.count and not self.readmitted:
                self.woken = None

    def move_all(self, moves: dict[PendingJob, int]) -> None:
        parked = [job for job in moves if job.jobid in self.parked]
        woken = self.woken
        for job in moves:
            self.remove(job)
        self.woken = woken
        for job in parked:
            self.parked[job.jobid] = job
        for job, priority in moves.items():
            job.priority = priority
            if job.jobid not in self.parked:
                self.push(job)

    def replace(self, jobs: Iterable[PendingJob]) -> None:
        for job in self.jobs:
            job.queued, job.group = False, None
        self.parked.clear()
        self._clear()
        for job in jobs:
            self.push(job)

    def reorder(self) -> None:
        jobs = self.jobs.to_list()
        for job in [*jobs, *self.parked.values()]:
            job.order = job.prioritize(job.priority)
        # jobs that have left keep their old order
        self.unexamined = [entry_of(job) for _, _, job in self.unexamined if job.queued]
        heapq.heapify(self.unexamined)
        self._clear()
        entries = sorted(map(entry_of, jobs))
        self.jobs = OrderedJobs(entries)
        for job in self.jobs:
            job.group = None
            self.join_group(job)

    def regroup(self) -> None:
        """Update the groups after the ranks that jobs could use may have changed.  O(groups); if
        they have, O(jobs)."""
        if self.ranks_of is None:
            return
        for group in self.readmitted_groups():
            group.ranks = self.ranks_of(group.first)
        changed = False
        for group in self.groups.values():
            ranks = self.ranks_of(group.first)
            changed = changed or ranks != group.ranks
            group.ranks = ranks
        if changed:
            self.by_ranks.clear()
            for job in self.jobs:
                if job.group is not None:
                    self.by_ranks[job.group.ranks].add(entry_of(job))

    def set_promised(self, job: PendingJob, promised: bool) -> None:
        """Set whether a job has a promise: a promised job is not in its group."""
        if job.promised != promised:
            job.promised = promised
            if promised:
                self._leave_group(job)
            else:
                self.walk.promise_was_dropped = True
                self.join_group(job)

    def _clear(self) -> None:
        self.jobs = OrderedJobs()
        self._listed = None
        self.changes += 1
        for group in list(self.groups.values()):
            self._drop(group)
        self.by_ranks.clear()
        self.walk.begin_anew()

    def join_group(self, job: PendingJob) -> None:
        """Enter a job that was examined and waits into its group: most start at once, and join none."""
        if job.group is not None or job.promised or not job.queued or job.request.finalized:
            return
        key, entry = job.signature, entry_of(job)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = JobGroup(key)
            if self.ranks_of is not None:
                group.ranks = self.ranks_of(job)
            self.rooms.enter(group)
        group.add(entry)
        job.group = group
        if self.ranks_of is not None:
            self.by_ranks[group.ranks].add(entry)

    def _leave_group(self, job: PendingJob) -> None:
        group, job.group = job.group, None
        if group is None:
            return
        group.remove(job)
        if self.ranks_of is not None:
            jobs = self.by_ranks[group.ranks]
            jobs.remove(job)
            if not jobs.count:
                del self.by_ranks[group.ranks]
        if not group.count:
            self._drop(group)

    def readmit_group(self, group: JobGroup, now: float) -> None:
        """Readmit a group of deferred jobs: the next walk includes them. O(1)"""
        if group not in self.readmitted:
            self.readmitted[group] = None
            self.rooms.enter(group)
            if self.ranks_of is not None:
                group.ranks = self.ranks_of(group.first)
        self.wake(now)

    @property
    def has_readmitted(self) -> bool:
        """Whether `readmitted` has a job.  O(groups)."""
        return bool(self.readmitted) and any(group.is_readmitted for group in self.readmitted)

    def readmitted_groups(self) -> list[JobGroup]:
        """Drop the groups in `readmitted` without jobs, or deferred again; return the others.
        O(groups)."""
        for group in [one for one in self.readmitted if not one.is_readmitted]:
            del self.readmitted[group]
            self.rooms.leave(group)
        return list(self.readmitted)

    def _drop(self, group: JobGroup) -> None:
        del self.groups[group.signature]
        self.rooms.leave(group)

    def settle(self) -> list[PendingJob]:
        if self._listed is None:
            self._listed = self.jobs.to_list()
            if self.parked:
                self._listed = sorted([*self._listed, *self.parked.values()])
        return self._listed

    def in_order(self, most: int | None = None) -> Iterator[PendingJob]:
        if self.parked:
            return islice(self.settle()[:], most)
        return iter(self.jobs if most is None else self.jobs.head(most))

    def first_behind(self, job: PendingJob) -> PendingJob | None:
        """Return the first unpromised job of `by_ranks` behind a promised one, or None.  O(masks of
        `by_ranks`)."""
        position = (job.order, job.jobid)
        found = [jobs.first_since(position) for jobs in self.by_ranks.values()]
        found.append(self.first_unexamined())  # in a walk, behind all that were examined
        return min([other for other in found if other is not None], default=None)

    @property
    def has_priorities(self) -> bool:
        """Whether the orders of the jobs to examine differ.  O(1)."""
        jobs = self.jobs
        return bool(jobs.count and jobs.first.order != jobs.last.order)

    def __len__(self) -> int:
        return self.jobs.count + len(self.parked)

    def __bool__(self) -> bool:
        return self.jobs.count > 0 or bool(self.parked) or self.has_readmitted

    def is_behind_another(self, job: PendingJob, ranks: int) -> bool:
        """Whether an unpromised job before `job` could use some of `ranks` (a mask).  O(masks of
        `by_ranks`, groups of `readmitted`)."""
        for group in self.readmitted:
            if group.ranks & ranks and group.is_readmitted and group.first < job:
                return True
        for mask, jobs in self.by_ranks.items():
            if mask & ranks:
                # The first ones may have been answered in this reactor turn.
                all_jobs = (one for block in jobs.blocks for _, _, one in block)
                first = next((one for one in all_jobs if not one.request.finalized), job)
                if first < job:
                    return True
        return False

    # -- which jobs are to be examined --------------------------------------------------------------

    def wake(self, now: float, all: bool = False) -> None:
        """Have blocked jobs examined again, as resources were released, came up or changed; with
        `all`, those without room too."""
        if self.jobs.count or self.readmitted:
            self._wakes_all |= all
            if self.woken is None:
                self.woken = now

    def again(self, job: PendingJob) -> None:
        """Have only `job` examined again."""
        job.examined = False
        heapq.heappush(self.unexamined, entry_of(job))

    def park(self, job: PendingJob) -> None:
        """Exclude `job` from walks until ranks come up."""
        self.remove(job)
        self.parked[job.jobid] = job

    def unpark(self) -> None:
        """Have all parked jobs examined: ranks came up, or the inventory changed."""
        parked, self.parked = self.parked, {}
        for job in parked.values():
            self.push(job)

    def first_unexamined(self) -> PendingJob | None:
        """Return the first job of `unexamined`, or None; drop jobs that need no examination."""
        unexamined = self.unexamined
        while unexamined:
            order, _, job = unexamined[0]
            if not job.examined and job.queued and not job.request.finalized:
                if job.order == order:
                    return job
            heapq.heappop(unexamined)
        return None

    def take_unexamined(self) -> Iterator[PendingJob]:
        """Yield the jobs of `unexamined` in order, and mark them examined.  O(log n) each."""
        job = self.first_unexamined()
        while job is not None:
            job.examined = True
            self.join_group(job)
            yield job
            job = self.first_unexamined()

    # -- findings of a policy about the job that it examines ------------------------------------------

    def block(self, job: PendingJob, alike: bool = False, limit: float = inf) -> None:
        """Note that `job` cannot start at present; if `alike`, nor jobs behind it with its
        signature and at least its limit, or a shorter `limit` that is already too long: this walk
        skips them."""
        if alike:
            self.walk.refuse(job.signature, min(limit, job.limit))

    def to_examine(
        self, clock: Callable[[], float], promises: PromisedJobs | None = None
    ) -> Iterator[PendingJob | None]:
        """Yield the jobs that a pass should examine, and None when it should yield to the reactor:
        walks over the queue, each in order, until no job is left that an event could have helped.
        Before the next one the caller answers, blocks or parks each job. Events must not close the
        pass."""
        self.effort = 0
        while self.woken is not None or self.unexamined:
            woken = self._walk_since = self.woken
            all_groups, self.woken, self._wakes_all = self._wakes_all, None, False
            walk = self.walk = Walk(self, promises, woken is not None, all_groups)
            try:
                yield from walk
            finally:
                self._walk_since = None
                if not walk.is_over:
                    self.wake(clock() if woken is None else woken, all_groups)
            if woken is not None:
                self.longest = max(self.longest, clock() - woken)

    def stats(self, now: float) -> dict[str, float]:
        """Return, for ``stats_get()``, the number of parked jobs, and the seconds that jobs have
        been waiting for examination after an event that could help them, now and at most."""
        since = self.woken if self._walk_since is None else self._walk_since
        unlooked = 0.0 if since is None else now - since
        return {
            "parked": len(self.parked),
            "unlooked": unlooked,
            "unlooked_longest": max(unlooked, self.longest),
        }


class OrderingPolicy(Protocol):
    """The interface of a policy for its `QueueOrder`."""

    facts: RequestFacts

    @property
    def by_queue(self) -> bool: ...

    @property
    def resources(self) -> ResourcePool: ...

    @property
    def decision(self) -> Any: ...


class QueueOrder:
    """Determines which jobs wait for which."""

    def __init__(self, source: OrderingPolicy, queue: PendingQueue) -> None:
        self._source = source
        self._queue = queue
        #: the result of `heads`, and the state for which it was found
        self._heads: list[tuple[PendingJob, int]] = []
        self._found_of: Any = None
        #: whether a rule orders jobs of equal priority
        self.by_share = False

    def ranks_of(self, job: PendingJob) -> int:
        """Return the mask of ranks for which a job waits: by queue, all that it could use, whether up
        and free or not; in strict order, all."""
        source = self._source
        return source.facts.ranks_of(job.resource_request) if source.by_queue else ALL

    def share_ranks(self, one: PendingJob, other: PendingJob) -> bool:
        """Whether one of two jobs may have to wait for the other."""
        return self.ranks_of(one) & self.ranks_of(other) != 0

    def all_blocked(self, blocked: int) -> bool:
        """Whether a job would have to wait for any rank."""
        return not self._source.by_queue or not self._source.resources.ranks & ~blocked

    def heads(self) -> list[tuple[PendingJob, int]]:
        """Return the pending jobs that could use a rank of no job ahead, each with the mask of its
        ranks. Every other waiting job waits for one of these.

        By queue, costs a walk over the queue after a change; in strict order almost nothing.
        """
        for _ in self.find_heads():
            pass
        return self._heads

    def find_heads(self) -> Iterator[None]:
        """Compute `heads` if it is out of date. A generator that yields after every `JOBS_PER_TURN`
        jobs. No effect for a policy that looks past the heads."""
        source = self._source
        seen = (self._queue.changes, source.resources.generation, len(self._queue))
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
            ranks = self.ranks_of(job)
            if ranks & ~blocked:
                found.append((job, ranks))
                blocked |= ranks
                if self.all_blocked(blocked):
                    break
        self._found_of, self._heads = seen, found

    def first_ahead_of(self, job: PendingJob) -> PendingJob | None:
        """Return the first job that `job` has to wait for, or None if it is a head."""
        ranks = self.ranks_of(job)
        for head, mask in self.heads():
            if head is job:
                return None
            if mask & ranks:
                return head
        return None
