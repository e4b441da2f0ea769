"""Pending jobs, in a heap that is put in order only when somebody looks at it."""

import heapq

from flux.scheduler.request import AllocRequest


class PendingJob:
    """A job waiting for resources.

    Jobs compare by priority, the highest first, then by job id, the lowest first.

    Args:
        jobid (int): the job id
        priority (int): 0 to 4294967295, higher is more urgent
        t_submit (float): time of submission, seconds since the epoch
        request (AllocRequest): the open request, to be answered once
        resource_request: what the job needs, as the pool's ``parse_resource_request()`` gave it

    A policy may hang attributes of its own on a job.
    """

    # "__dict__" costs nothing until a policy adds an attribute.
    __slots__ = (
        "jobid",
        "_priority",
        "_order",
        "_hint",
        "t_submit",
        "request",
        "resource_request",
        "_last_annotation",
        "__dict__",
        "__weakref__",
    )

    def __init__(self, jobid, priority, t_submit, request, resource_request):
        self.jobid = jobid
        self._priority = priority
        self._order = -priority
        self._hint = 0
        self.t_submit = t_submit
        self.request = request
        self.resource_request = resource_request
        self._last_annotation = None
        if isinstance(request, AllocRequest):
            request._job = self

    @property
    def priority(self):
        """The job's priority. After setting it, the heap the job is in must be put in order."""
        return self._priority

    @priority.setter
    def priority(self, priority):
        self._priority = priority
        self._order = -priority

    def __lt__(self, other):
        mine = self._order
        theirs = other._order
        return mine < theirs or (mine == theirs and self.jobid < other.jobid)

    def __repr__(self):
        return f"PendingJob(jobid={self.jobid}, priority={self._priority})"


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
