# SPDX-License-Identifier: LGPL-3.0-or-later
"""The queue of pending jobs: a heap, and for policies that look past its head, a backlog.

`PendingQueue` is what ``Scheduler._queue`` shows: a list in `heapq` order. `Backlog` is a queue
kept in order, which knows the jobs that ask for the same, and which jobs came since they were
examined last. A `flux.scheduler.walk.Walk` goes over it. `flux.scheduler.decision.QueueOrder` determines
which jobs wait for which.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Hashable, Iterable, Iterator
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.pool.masks import quote
from flux.scheduler.requests import PendingJob
from flux.scheduler.walk import JobGroup, OrderedJobs, Walk, entry_of

if TYPE_CHECKING:
    from flux.scheduler.walk import Entry, PromisedJobs, RoomIndex

#: Jobs that `in_steps` sorts at a time: a rank costs 2 to 3 microseconds.
SORTED_PER_STEP = 256


def in_order(heap: Iterable[PendingJob]) -> Iterator[PendingJob]:
    """Yield the items of a `heapq` list in order; the list may change meanwhile, what is yielded
    does not.

    Costs a copy of the list and then, for each item, log of how many were asked for: nothing for
    items that are not, unlike sorting.
    """
    items = list(heap)
    size = len(items)
    front = [(items[0], 0)] if items else []
    while front:
        item, index = heapq.heappop(front)
        yield item
        for child in (2 * index + 1, 2 * index + 2):
            if child < size:
                heapq.heappush(front, (items[child], child))


def in_steps(
    jobs: list[PendingJob], key: Callable[[PendingJob], tuple[Any, ...]]
) -> Generator[None, None, Iterable[PendingJob]]:
    """Sort jobs by a key that ends with the job; a generator, whose value they are, and which yields
    after each `SORTED_PER_STEP`. The rest of a long list is not sorted until it is asked for."""
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
    """An order of a policy's own, which is checked: a value that cannot be sorted among the others would
    spoil the queue.

    Args:
        order: gives the order of a job
    """

    def __init__(self, order: Callable[[PendingJob], Any]) -> None:
        self._order = order
        self._some: Any = None  # that of a job, with which others are compared

    def __call__(self, job: PendingJob) -> Any:
        """Return the order of a job.

        Raises:
            TypeError: it cannot be sorted among others
        """
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
    """The heap behind ``Scheduler._queue``.

    Removing a job or changing its priority only notes it down. `settle` brings the heap up to
    date: a few changes are made one by one in place, many by building the heap again.

    The heap is a plain list that policies work on with `heapq`, so the index of a job is not known
    for sure: each job carries a hint, which is checked and corrected when it is needed.
    """

    def __init__(self) -> None:
        self._heap: list[PendingJob] = []
        self._removed: set[PendingJob] = set()
        self._moved: set[PendingJob] = set()

    def push(self, job: PendingJob) -> None:
        """Add a job."""
        if job in self._removed:
            self._settle()  # its removal comes before this
        heap = self._heap
        job.place = len(heap)
        heapq.heappush(heap, job)

    def remove(self, job: PendingJob) -> None:
        """Take `job` out, wherever it is; nothing happens to a job that is not in the heap."""
        self._moved.discard(job)
        self._removed.add(job)

    def move_all(self, moves: dict[PendingJob, int]) -> None:
        """Change the priorities of jobs: job to priority."""
        for job, priority in moves.items():
            order = job.prioritize(priority)
            if order == job.order:
                self._moved.discard(job)
            elif job not in self._removed:
                job.next_order = order
                self._moved.add(job)

    def replace(self, jobs: Iterable[PendingJob]) -> None:
        """Use `jobs` as the heap from now on; a list is accepted without checking that it is
        one."""
        self._removed.clear()
        self._moved.clear()
        if not isinstance(jobs, list):
            jobs = list(jobs)
        self._heap = jobs

    def reorder(self) -> None:
        """The order of any job may have changed: sort them again.

        Costs a sort.
        """
        jobs = self.settle()
        for job in jobs:
            job.priority = job.priority
        heapq.heapify(jobs)

    def __len__(self) -> int:
        if self._removed or self._moved:
            self._settle()
        return len(self._heap)

    def __bool__(self) -> bool:
        """Whether any job waits; usually known without bringing the heap up to date."""
        if not self._removed:
            return bool(self._heap)
        return len(self._heap) > len(self._removed) or bool(self.settle())

    def settle(self) -> list[PendingJob]:
        """Return the heap, in order and without removed jobs."""
        if self._removed or self._moved:
            self._settle()
        return self._heap

    def in_order(self, most: int | None = None) -> Iterator[PendingJob]:
        """The jobs in order, as they are now: later changes do not matter.

        Args:
            most (int): the first so many; None: all
        """
        return islice(in_order(self.settle()), most)

    def _settle(self) -> None:
        heap = self._heap
        removed, self._removed = self._removed, set()
        moved, self._moved = self._moved, set()
        # One change costs about as much as rebuilding costs for sixteen jobs.
        if 16 * (len(removed) + len(moved)) >= len(heap):
            for job in moved:
                job.order = job.next_order
            if removed:
                heap[:] = [job for job in heap if job not in removed]
            heapq.heapify(heap)
            return
        # One at a time: the heap is in order by `_order` before and after each.
        for job in removed:
            index = self._find(job)
            if index is not None:
                last = heap.pop()
                if index < len(heap):
                    heap[index] = last
                    self._sift(index)
        for job in moved:
            index = self._find(job)
            job.order = job.next_order
            if index is not None:
                self._sift(index)

    def _find(self, job: PendingJob) -> int | None:
        heap = self._heap
        size = len(heap)
        index = job.place
        # `heapq` moves a job that is not the last one up along its ancestors.
        while index < size:
            if heap[index] is job:
                job.place = index
                return index
            if index == 0:
                break
            index = (index - 1) >> 1
        found: int | None = None
        for index, other in enumerate(heap):
            other.place = index
            if other is job:
                found = index
        return found

    def _sift(self, index: int) -> None:
        """Put the job at `index` where it belongs, the rest of the heap being in order."""
        heap = self._heap
        job = heap[index]
        start = index
        while index:
            parent = (index - 1) >> 1
            other = heap[parent]
            if not job < other:
                break
            heap[index] = other
            other.place = index
            index = parent
        if index == start:
            size = len(heap)
            child = 2 * index + 1
            while child < size:
                if child + 1 < size and heap[child + 1] < heap[child]:
                    child += 1
                other = heap[child]
                if not other < job:
                    break
                heap[index] = other
                other.place = index
                index = child
                child = 2 * index + 1
        heap[index] = job
        job.place = index


class Backlog(PendingQueue):
    """A `PendingQueue` that is kept in order, for policies that look past a job that cannot start.

    A job that comes, leaves or changes its place costs the same however many there are, give or take
    a logarithm (`OrderedJobs`). As a list the jobs are there on request (`settle`), made anew after
    a change. A job that a policy pops off that list must have its answer by the end of the step, or
    it is there again: `remove` takes a job out for good.

    Attributes:
        jobs (OrderedJobs): the jobs to examine
        parked (dict): by id, the jobs that wait for ranks to come up
        groups (dict): by signature, the jobs to examine that were promised nothing
        lines (dict): by mask of ranks, the same jobs, where `ranks_of` tells them apart
        ranks_of: function giving the mask of the ranks for which a job and others wait for each
            other; None: that does not matter
        family_of: function giving the key that a signature shares with others that are refused with
            it where the pool has no room at all (``block(job, family=True)``)
        apart (dict): groups of jobs that rules have set apart and let in again, of which walks take one
            after another (`let_in`)
        come_back: function putting one of these into the queue
        rooms (RoomIndex): told of each group that is made or dropped; None: there is none
        effort (float): the work of this turn of the reactor, in jobs examined
        longest (float): longest time that a job had to wait to be examined after something had
            happened that could help it, seconds
    """

    def __init__(self) -> None:
        super().__init__()
        self.jobs = OrderedJobs()
        # All jobs as a list, until the next change; None: not asked for since.
        self._listed: list[PendingJob] | None = None
        self.parked: dict[int, PendingJob] = {}
        self.groups: dict[Any, JobGroup] = {}
        self.lines: dict[int, OrderedJobs] = {}
        self.ranks_of: Callable[[PendingJob], int] | None = None
        self.family_of: Callable[[Any], Hashable] = lambda signature: signature
        self.apart: dict[JobGroup, None] = {}
        self.come_back: Callable[[PendingJob], None] = self.push
        self.rooms: RoomIndex | None = None
        self.effort: float = 0
        self.longest = 0.0
        # A heap of the jobs that came in, or that something happened to which concerns them alone.
        self._fresh: list[Entry] = []
        #: since when blocked jobs are to be examined, seconds since the epoch; None: they are not
        self._woken: float | None = None
        self._wakes_all = False
        #: the walk under way, and since when its jobs have waited for it
        self._walk: Walk | None = None
        self._walk_since: float | None = None

    # -- as a queue --------------------------------------------------------------------------------

    def push(self, job: PendingJob) -> None:
        self._listed = None
        job.examined = False
        job.tried = -1
        job.queued = True
        if job.limit < 0:
            request = job.resource_request
            job.limit = getattr(request, "duration", 0.0) or inf
            if job.signature is None:
                shape = getattr(request, "shape", None)
                job.signature = job.jobid if shape is None else shape
        entry = entry_of(job)
        self.jobs.add(entry)
        if not job.promised:
            self._join(entry)
        heapq.heappush(self._fresh, entry)

    def remove(self, job: PendingJob) -> None:
        self._listed = None
        if self.parked.pop(job.jobid, None) is None and job.queued:
            job.queued = False
            self.jobs.remove(job)
            if not job.promised:
                self._part(job)

    def move_all(self, moves: dict[PendingJob, int]) -> None:
        parked = [job for job in moves if job.jobid in self.parked]
        for job in moves:
            self.remove(job)
        for job in parked:
            self.parked[job.jobid] = job
        for job, priority in moves.items():
            job.priority = priority
            if job.jobid not in self.parked:
                self.push(job)

    def replace(self, jobs: Iterable[PendingJob]) -> None:
        for job in self.jobs:
            job.queued = False
        self.parked.clear()
        self._clear()
        for job in jobs:
            self.push(job)

    def reorder(self) -> None:
        jobs = self.jobs.to_list()
        for job in [*jobs, *self.parked.values()]:
            job.priority = job.priority
        jobs.sort()
        # Those that have left have the order that they had.
        self._fresh = [entry_of(job) for _, _, job in self._fresh if job.queued]
        heapq.heapify(self._fresh)
        self._clear()
        for job in jobs:
            entry = entry_of(job)
            self.jobs.add(entry)
            if not job.promised:
                self._join(entry)

    def regroup(self) -> None:
        """Which ranks jobs could want may have changed.  O(groups); if it has, O(jobs)."""
        if self.ranks_of is None:
            return
        for group in self.waiting_apart():
            group.ranks = self.ranks_of(group.first)
        changed = False
        for group in self.groups.values():
            ranks = self.ranks_of(group.first)
            changed = changed or ranks != group.ranks
            group.ranks = ranks
        if changed:
            self.lines.clear()
            for job in self.jobs:
                if not job.promised:
                    self._line_of(self.groups[job.signature]).add(entry_of(job))

    def set_promised(self, job: PendingJob, promised: bool) -> None:
        """A job was promised a start, or is promised none any more: it is no longer found among those
        that ask for the same, or is again."""
        if job.promised != promised:
            job.promised = promised
            if job.queued and promised:
                self._part(job)
            elif job.queued:
                self._join(entry_of(job))

    def _clear(self) -> None:
        """Forget the jobs."""
        self.jobs = OrderedJobs()
        self._listed = None
        for group in list(self.groups.values()):
            self._drop(group)
        self.lines.clear()
        if self._walk is not None:
            self._walk.begin_anew()

    def _join(self, entry: Entry) -> None:
        job = entry[2]
        key = job.signature
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = JobGroup(key, self.family_of(job.signature))
            group.add(entry)
            if self.rooms is not None:
                self.rooms.enter(group)
            if self.ranks_of is not None:
                group.ranks = self.ranks_of(job)
        else:
            group.add(entry)
        if self.ranks_of is not None:
            self._line_of(group).add(entry)

    def _part(self, job: PendingJob) -> None:
        group = self.groups[job.signature]
        group.remove(job)
        if self.ranks_of is not None:
            line = self.lines[group.ranks]
            line.remove(job)
            if not line.count:
                del self.lines[group.ranks]
        if not group.count:
            self._drop(group)

    def let_in(self, group: JobGroup, now: float) -> None:
        """Jobs that a rule has set apart may start: the next walk comes to them as well.  O(1).

        Args:
            group (JobGroup): the jobs
            now (float): seconds since the epoch
        """
        if group not in self.apart:
            self.apart[group] = None
            if self.rooms is not None:
                self.rooms.enter(group)
            if self.ranks_of is not None:
                group.ranks = self.ranks_of(group.first)
        self.wake(now)

    @property
    def has_apart(self) -> bool:
        """Whether `apart` still has a job that rules let in.  O(groups)."""
        return any(group.lets_in for group in self.apart)

    def waiting_apart(self) -> list[JobGroup]:
        """The groups of `apart` that still have jobs which rules let in.  O(groups)."""
        for group in [one for one in self.apart if not one.lets_in]:
            del self.apart[group]
            if self.rooms is not None:
                self.rooms.leave(group)
        return list(self.apart)

    def _line_of(self, group: JobGroup) -> OrderedJobs:
        line = self.lines.get(group.ranks)
        if line is None:
            line = self.lines[group.ranks] = OrderedJobs()
        return line

    def _drop(self, group: JobGroup) -> None:
        del self.groups[group.signature]
        if self.rooms is not None:
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
        """The first job without a promise behind one that has one, of `lines`; None: there is none.
        O(masks of `lines`)."""
        place = (job.order, job.jobid)
        found = [line.first_since(place) for line in self.lines.values()]
        return min([other for other in found if other is not None], default=None)

    @property
    def has_priorities(self) -> bool:
        """Whether the jobs to examine differ in their order.  O(1)."""
        jobs = self.jobs
        return bool(jobs.count and jobs.first.order != jobs.last.order)

    def __len__(self) -> int:
        return self.jobs.count + len(self.parked)

    def __bool__(self) -> bool:
        return bool(self.jobs.count or self.parked or self.has_apart)

    def is_behind_another(self, job: PendingJob, ranks: int) -> bool:
        """Whether a job without a promise comes before `job` that could want some of `ranks` (a mask).
        O(masks of `lines`, groups of `apart`)."""
        for group in self.apart:
            if group.ranks & ranks and group.lets_in and group.first < job:
                return True
        for mask, line in self.lines.items():
            if mask & ranks:
                # Those at its head may have their answer since this turn of the reactor began.
                first = line.first
                for other in line.since((first.order, first.jobid)):
                    if not other.request.finalized:
                        if other < job:
                            return True
                        break
        return False

    # -- which jobs are to be examined --------------------------------------------------------------

    def wake(self, now: float, all: bool = False) -> None:
        """Something was released, came up or changed: blocked jobs are to be examined again.

        Args:
            now (float): seconds since the epoch
            all (bool): also those for which there is no room
        """
        if self.jobs.count or self.apart:
            self._wakes_all |= all
            if self._woken is None:
                self._woken = now

    @property
    def is_woken(self) -> bool:
        """Whether blocked jobs are to be examined again."""
        return self._woken is not None

    def again(self, job: PendingJob) -> None:
        """`job` is to be examined again, and no other job for its sake."""
        job.examined = False
        heapq.heappush(self._fresh, entry_of(job))

    def park(self, job: PendingJob) -> None:
        """Leave `job` out of walks until ranks come up."""
        self.remove(job)
        self.parked[job.jobid] = job

    def unpark(self) -> None:
        """Ranks came up, or the inventory changed: all parked jobs are to be examined."""
        parked, self.parked = self.parked, {}
        for job in parked.values():
            self.push(job)

    def first_newcomer(self) -> PendingJob | None:
        """The first of the jobs that came in, or are to be examined again, and were not yet."""
        fresh = self._fresh
        while fresh:
            order, _, job = fresh[0]
            if not job.examined and job.queued and not job.request.finalized:
                if job.order == order:
                    return job
            heapq.heappop(fresh)
        return None

    def newcomers(self) -> Iterator[PendingJob]:
        """The jobs that came in or are to be examined again, in order; they count as examined.
        O(log n) for each."""
        job = self.first_newcomer()
        while job is not None:
            job.examined = True
            yield job
            job = self.first_newcomer()

    def forget_newcomers(self) -> None:
        """All newcomers were examined."""
        self._fresh.clear()

    # -- findings of a policy about the job that it examines ------------------------------------------

    def block(
        self, job: PendingJob, alike: bool = False, limit: float = inf, family: bool = False
    ) -> None:
        """`job` cannot start as things are.

        Args:
            job (PendingJob): the job
            alike (bool): nor can jobs behind it that ask for the same and may run as long or
                longer: they are left out of this walk
            limit (float): a shorter time than the job's limit that is too long already, in seconds
            family (bool): nor can jobs behind it, however long they run, whose signatures are of the
                same family
        """
        if alike and self._walk is not None:
            self._walk.refuse(job.signature, 0.0 if family else min(limit, job.limit), family)

    def allow(self) -> None:
        """Something is not kept free any more: findings about one job do not hold for others
        that ask for the same."""
        if self._walk is not None:
            self._walk.allow()

    def skip_promised(self, last: PendingJob) -> None:
        """The promised jobs behind the one that is examined were examined as well, up to `last`."""
        if self._walk is not None:
            self._walk.skip_promised(last)

    def spend(self, effort: float) -> None:
        """The policy did work that takes as long as examining `effort` jobs."""
        self.effort += effort

    def to_examine(
        self, clock: Callable[[], float], promises: PromisedJobs | None = None
    ) -> Iterator[PendingJob | None]:
        """The jobs that a pass should examine: walks over the queue, each in order, until nothing is
        left that could have been helped.

        Between two jobs the caller answers, blocks or parks the one it was given. The pass may not be
        closed by an event.

        Args:
            clock: function giving the time
            promises (PromisedJobs): which jobs were promised a start, and which may be

        Yields:
            a job, or None where the pass should give way to other work
        """
        self.effort = 0
        while self._woken is not None or self.first_newcomer() is not None:
            woken = self._walk_since = self._woken
            every, self._woken, self._wakes_all = self._wakes_all, None, False
            walk = self._walk = Walk(self, promises, woken is not None, every)
            try:
                yield from walk
            finally:
                self._walk = None
                self._walk_since = None
                if not walk.is_over:
                    self.wake(clock() if woken is None else woken, every)
            if woken is not None:
                self.longest = max(self.longest, clock() - woken)

    def stats(self, now: float) -> dict[str, float]:
        """For ``stats_get()``: how many jobs are parked, and for how many seconds some job has been
        waiting to be examined since something happened that could help it, now and at worst."""
        since = self._woken if self._walk_since is None else self._walk_since
        unlooked = 0.0 if since is None else now - since
        return {
            "parked": len(self.parked),
            "unlooked": unlooked,
            "unlooked_longest": max(unlooked, self.longest),
        }
