"""The queue of pending jobs: a heap, and for policies that look past its head, a backlog."""

import heapq
from bisect import bisect_left, insort


def in_order(heap):
    """Yield the items of a `heapq` list in order; the list may change meanwhile, what is yielded does not.

    Costs nothing for items that are not asked for, unlike sorting.
    """
    heap = list(heap)
    size = len(heap)
    front = [(heap[0], 0)] if heap else []
    while front:
        item, index = heapq.heappop(front)
        yield item
        for child in (2 * index + 1, 2 * index + 2):
            if child < size:
                heapq.heappush(front, (heap[child], child))


class PendingQueue:
    """The heap behind ``Scheduler._queue``.

    Removing a job or changing its priority only notes it down. `settle` brings the heap up to
    date; a few changes are made one by one where the jobs sit, many by building the heap anew.

    The heap is a plain list that policies work on with `heapq`, so where a job sits is not known
    for sure: each job carries a hint that is checked, and corrected, when it is needed.
    """

    def __init__(self):
        self.heap = []
        self._removed = set()
        self._moved = set()

    def push(self, job):
        """Add a job."""
        heap = self.heap
        job._hint = len(heap)
        heapq.heappush(heap, job)

    def remove(self, job):
        """Take `job` out, wherever it is; a job that is not in the heap is none the worse."""
        self._moved.discard(job)
        self._removed.add(job)

    def move(self, job, priority):
        """Change a job's priority."""
        job._priority = priority
        if job._order != -priority and job not in self._removed:
            self._moved.add(job)

    def replace(self, jobs):
        """Have `jobs` for the heap from now on; a list is taken as it is, as valid."""
        self._removed.clear()
        self._moved.clear()
        if not isinstance(jobs, list):
            jobs = list(jobs)
        self.heap = jobs

    def __len__(self):
        self.settle()
        return len(self.heap)

    def settle(self):
        """Return the heap, in order and without removed jobs."""
        if self._removed or self._moved:
            self._settle()
        return self.heap

    def _settle(self):
        heap = self.heap
        removed, self._removed = self._removed, set()
        moved, self._moved = self._moved, set()
        # One change costs about as much as rebuilding costs for sixteen jobs.
        if 16 * (len(removed) + len(moved)) >= len(heap):
            for job in moved:
                job._order = -job._priority
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
            job._order = -job._priority
            if index is not None:
                self._sift(index)

    def _find(self, job):
        heap = self.heap
        size = len(heap)
        index = job._hint
        # What `heapq` does to a job that is not the last one moves it up along its ancestors.
        while index < size:
            if heap[index] is job:
                job._hint = index
                return index
            if index == 0:
                break
            index = (index - 1) >> 1
        found = None
        for index, other in enumerate(heap):
            other._hint = index
            if other is job:
                found = index
        return found

    def _sift(self, index):
        """Put the job at `index` where it belongs, the rest of the heap being in order."""
        heap = self.heap
        job = heap[index]
        start = index
        while index:
            parent = (index - 1) >> 1
            other = heap[parent]
            if not job < other:
                break
            heap[index] = other
            other._hint = index
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
                other._hint = index
                index = child
                child = 2 * index + 1
        heap[index] = job
        job._hint = index


#: Jobs at the head that every pass looks at first.
HEAD = 8

#: Effort of one step of a pass: a look at a job is 1, and a policy adds what it does beyond looking.
STEP = 24


class Backlog(PendingQueue):
    """A `PendingQueue` that is kept in order, with what passes know about its jobs.

    Attributes:
        heap (list): the jobs to look at, in order: also a valid heap
        parked (dict): jobs set aside, by id
        longest (float): longest time for which a job that could have been helped was not looked
            at, seconds
    """

    def __init__(self):
        super().__init__()
        self.parked = {}
        self.longest = 0.0
        #: grows with everything that could help a blocked job
        self._epoch = 1
        #: the epoch when the round under way began, and when that was; None: no round is wanted
        self._round = None
        self._round_began = None
        #: the job at which the round goes on; None: the first
        self._resume = None
        #: effort spent in this step
        self._effort = 0
        #: whether the last pass was cut short at the head of the queue
        self._cut = False
        #: heap of jobs that came in and were not looked at yet
        self._fresh = []

    # -- as a queue ------------------------------------------------------------------------------------

    def push(self, job):
        job._blocked = 0
        job._queued = True
        insort(self.heap, job)
        heapq.heappush(self._fresh, job)

    def remove(self, job):
        if self.parked.pop(job.jobid, None) is None:
            index = self._index(job)
            if index is not None:
                job._queued = False
                del self.heap[index]

    def move(self, job, priority):
        parked = job.jobid in self.parked
        self.remove(job)
        job.priority = priority
        if parked:
            self.parked[job.jobid] = job
        else:
            self.push(job)

    def replace(self, jobs):
        self.parked.clear()
        self.heap = []
        for job in jobs:
            self.push(job)

    def settle(self):
        if self.parked:
            return sorted(self.heap + list(self.parked.values()))
        return self.heap

    def __len__(self):
        return len(self.heap) + len(self.parked)

    def _index(self, job):
        heap = self.heap
        index = bisect_left(heap, job)
        return index if index < len(heap) and heap[index] is job else None

    # -- what passes know --------------------------------------------------------------------------------

    def wake(self, now):
        """Something was released, came up or changed: blocked jobs are worth another look."""
        self._epoch += 1
        if self._round is None and self.heap:
            self._round = self._epoch
            self._round_began = now
            self._resume = None

    def block(self, job):
        """`job` was looked at and cannot start as things are."""
        job._blocked = self._epoch

    def again(self, job):
        """`job` is worth another look, the others are not."""
        job._blocked = 0
        heapq.heappush(self._fresh, job)

    def spend(self, effort):
        """The policy did something that takes as long as looking at so many jobs."""
        self._effort += effort

    def park(self, job):
        """Set `job` aside until ranks come up."""
        self.remove(job)
        self.parked[job.jobid] = job

    def unpark(self):
        """Ranks came up, or the inventory changed: look at all jobs that were set aside."""
        parked, self.parked = self.parked, {}
        for job in parked.values():
            self.push(job)

    def stats(self, now):
        """For ``stats_get()``: jobs set aside, and how long the job that waits longest for a look
        has waited, and ever did, in seconds."""
        unlooked = 0.0 if self._round is None else now - self._round_began
        return {
            "parked": len(self.parked),
            "unlooked": unlooked,
            "unlooked_longest": max(unlooked, self.longest),
        }

    def to_look_at(self, clock):
        """The jobs that a pass should look at, roughly in order.

        Between two jobs the caller answers, blocks or parks the one it was given.

        Args:
            clock: function giving the time

        Yields:
            a job, or None where the pass should give way to other work
        """
        self._effort = 0
        if not self._cut:
            self._cut = True
            for job in self.heap[:HEAD]:
                if self._wants_look(job):
                    yield job
                    self._effort += 1
                    if self._effort >= STEP:
                        yield None
                        self._effort = 0
            self._effort = 0
        while self._fresh or self._round is not None:
            for job in self._newcomers():
                yield job
                self._effort += 1
            for job in self._round_goes_on(clock):
                yield job
                self._effort += 1
            self._cut = False
            yield None
            self._effort = 0
        self._cut = False

    def _newcomers(self):
        """Some of the new jobs that no round would come to, or not soon."""
        fresh = self._fresh
        while fresh and self._effort < STEP // 2:
            job = heapq.heappop(fresh)
            # A round that has not come to a job yet will, in its turn.
            coming = self._round is not None and (self._resume is None or self._resume < job)
            if not coming and self._wants_look(job):
                yield job

    def _round_goes_on(self, clock):
        """Some of the jobs that a round still has to look at."""
        if self._round is None:
            return
        heap = self.heap
        index = 0 if self._resume is None else bisect_left(heap, self._resume)
        looked = 0
        while index < len(heap):
            job = heap[index]
            self._resume = job
            if job._blocked < self._epoch and not job.request.finalized:
                if looked and self._effort >= STEP:
                    return
                looked += 1
                yield job
                heap = self.heap
                if index >= len(heap) or heap[index] is not job:
                    index = bisect_left(heap, job)
                    if index == len(heap) or heap[index] is not job:
                        continue
            index += 1
        now = clock()
        self.longest = max(self.longest, now - self._round_began)
        self._resume = None
        if self._round == self._epoch:
            self._round = None
        else:
            self._round = self._epoch
            self._round_began = now

    def _wants_look(self, job):
        return job._blocked < self._epoch and job._queued and not job.request.finalized
