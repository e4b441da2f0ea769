"""Who was promised resources, and who waits for a promise, in order of the queue."""

import heapq
import math
from bisect import bisect_left, insort


class Promises:
    """The pending jobs that have a reservation in a plan.

    Args:
        plan (Plan): the pool's plan, which has the ranks and times

    Attributes:
        due (float): when the first reservation comes due, seconds since the epoch
        held (set): jobs for which resources are kept though nobody knows when they can start
    """

    def __init__(self, plan):
        self.plan = plan
        self.due = math.inf
        self.held = set()
        self._jobs = []

    def __len__(self):
        return len(self._jobs)

    def __iter__(self):
        return iter(self._jobs)

    def __contains__(self, job):
        index = bisect_left(self._jobs, job)
        return index < len(self._jobs) and self._jobs[index] is job

    def after(self, job):
        """The jobs with a promise that come after `job` in the queue."""
        jobs = self._jobs
        if not jobs or not job < jobs[-1]:
            return []
        return [other for other in jobs[bisect_left(jobs, job) :] if other is not job]

    def make(self, job, when):
        """Reserve `when` for a job, or None: keep what it will need, since nobody knows when.

        What it was promised before is replaced. The time is noted as ``job.shadow``.

        Raises:
            InsufficientResources: it does not fit then
        """
        if when is None:
            self.plan.hold(job.jobid, job.resource_request)
            self.held.add(job)
        else:
            self.plan.reserve(job.jobid, job.resource_request, when)
            self.held.discard(job)
            self.due = min(self.due, when)
        job.shadow = when
        job.special = True
        if job not in self:
            insort(self._jobs, job)

    def drop(self, job):
        """A job needs its promise no more: it has started, or the promise is taken back."""
        if job in self:
            del self._jobs[bisect_left(self._jobs, job)]
            self.held.discard(job)
            job.special = False
            self.plan.cancel(job.jobid)

    def overdue(self, now):
        """The jobs whose time has come, though they could not start."""
        if self.due > now:
            return []
        timed = [job for job in self._jobs if job not in self.held]
        self.due = min([job.shadow for job in timed if job.shadow > now], default=math.inf)
        return [job for job in timed if job.shadow <= now]


class Waiting:
    """Blocked jobs without a promise: quickly, the first of those that want some of certain ranks.

    A job behind such a one must not be promised what it wants: the promise would have to be broken
    as soon as its own turn comes.
    """

    def __init__(self):
        # By mask of ranks, a heap of (order, job id, job). An entry is dropped when it is met and
        # the job has meanwhile left the queue, or its place there.
        self._heaps = {}

    def add(self, job, ranks):
        """`job` waits for some of `ranks` (a mask)."""
        entry = (job.order, job.jobid, ranks)
        if getattr(job, "waits_as", None) != entry:
            job.waits_as = entry
            heapq.heappush(self._heaps.setdefault(ranks, []), (job.order, job.jobid, job))

    def clear(self):
        """Forget all: which ranks jobs could want has changed."""
        for heap in self._heaps.values():
            for _, _, job in heap:
                job.waits_as = None
        self._heaps.clear()

    def is_before(self, job, ranks, waits):
        """Whether a job ahead of `job` waits for some of `ranks`.

        Args:
            job (PendingJob): the one that could be promised something
            ranks (int): mask of the ranks it could want
            waits: function telling of a job whether it still waits without a promise
        """
        place = (job.order, job.jobid)
        for mask, heap in list(self._heaps.items()):
            if not mask & ranks:
                continue
            while heap and not (
                heap[0][2].waits_as == (heap[0][0], heap[0][1], mask) and waits(heap[0][2])
            ):
                _, _, gone = heapq.heappop(heap)
                gone.waits_as = None
            if not heap:
                del self._heaps[mask]
            elif heap[0][:2] < place:
                return True
        return False
