"""Pending jobs for a policy that looks past the head of the queue.

A pass over a deep queue takes many turns of the reactor, and every event ends it. What it has
learnt must not be lost with it, or under steady events the end of the queue is never looked at:

- a job found blocked is not looked at again until something happened that could help it (`wake`);
- a pass that was cut short goes on, after a few jobs at the head, where the last one stopped;
- jobs that can only run when ranks come up are set aside until some do (`park`).
"""

import heapq
from bisect import bisect_left, insort

from flux.scheduler.queue import PendingQueue

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
