# SPDX-License-Identifier: LGPL-3.0-or-later
"""A queue of jobs for a pool with a plan, as a scheduler has it: each job starts or is promised a
start, and promises move in rows, as in a pass of sched-backfill."""

import math
import random

from pool_model import R_of, ask

from flux.resource import InsufficientResources, ResourcePool

NOW = 1_700_000_000.0


class PlannedQueue:
    """A pool of whole nodes, half of them fast, half slow, with its plan, and the requests of jobs by id, in order;
    `told` has the plan's answers about moved promises."""

    def __init__(self, nodes):
        self.now = NOW
        ranks = {rank: (set(range(2)), set()) for rank in range(nodes)}
        halves = {"fast": set(range(nodes // 2)), "slow": set(range(nodes // 2, nodes))}
        self.pool = ResourcePool(R_of(ranks, properties=halves))
        self.pool.clock = lambda: self.now
        self.plan = self.pool.plan()
        self.requests = {}
        self.told = []

    def submit(self, nodes, duration, where=None):
        """A job starts, or is promised a start if possible."""
        constraint = where and {"properties": [where]}
        jobid = len(self.requests) + 1
        request = ask(
            self.pool, cores=2, nodes=nodes, duration=float(duration), constraints=constraint
        )
        self.requests[jobid] = request
        if not self.start(jobid):
            when = self.plan.earliest(request)
            if when is not None:
                self.plan.reserve(jobid, request, when)

    def start(self, jobid):
        """Start a job, if it can start without breaking a promise. Returns whether it has
        started."""
        try:
            self.plan.alloc(jobid, self.requests[jobid])
        except InsufficientResources:
            return False
        return True

    def hold(self, jobid):
        self.plan.cancel(jobid)
        self.plan.hold(jobid, self.requests[jobid])

    def running(self):
        return [jobid for _, jobid in self.pool.jobs_by_end()]

    def advance(self, most=1000):
        """In order of the queue, in rows of up to `most`, which end where a job can start."""
        waiting = sorted(self.plan.promises())
        while waiting:
            count, moved, first = self.plan.advance_in_turn(waiting[:most])
            starts = [self.plan.start_of(waiting[place]) for place in moved]
            assert first == min(starts, default=math.inf)
            self.told.append((count, moved, starts))
            is_due = first <= self.now
            del waiting[: count - is_due]
            if waiting and (is_due or count < most):
                self._look_at(waiting.pop(0))

    def _look_at(self, jobid):
        try:
            when = self.plan.advance(jobid)
            self.told.append(when)
            if when <= self.now and self.start(jobid):
                self.told.append(jobid)
        except InsufficientResources:
            self.told.append("broken")
            self.plan.cancel(jobid)


def a_history(seed):
    """Return the answers of a queue's plan in a random history."""
    rng = random.Random(seed)
    queue = PlannedQueue(24)
    held = None

    def submit():
        duration = 0 if rng.random() < 0.01 else rng.choice([5, 10.5, 20, 33, 60, 90])
        queue.submit(rng.choice([1, 1, 2, 3, 5, 8, 11]), duration, rng.choice(["fast", "slow"]))

    for _ in range(150):
        submit()
    for step in range(200):
        queue.now += rng.choice([0, 0.5, 1, 3])
        promised, running, what = list(queue.plan.promises()), queue.running(), rng.random()
        if what < 0.6 and running:
            queue.pool.free(rng.choice(running))
        elif what < 0.7 and promised:
            for jobid in rng.sample(promised, min(len(promised), 5)):
                queue.plan.cancel(jobid)
        elif what < 0.73 and running:
            jobid = rng.choice(running)
            queue.pool.update_expiration(jobid, queue.pool.job_end(jobid) + 7)
        elif what < 0.76 and promised and held is None:
            held = promised[-1]
            queue.hold(held)
        elif what < 0.8 and held is not None:
            queue.plan.cancel(held)
            held = None
        elif what < 0.83 and step > 60:
            queue.now -= 2  # the clock is set back
        elif what < 0.87:
            queue.plan = queue.plan.copy()
        else:
            submit()
        for jobid in queue.running():
            if queue.pool.job_end(jobid) <= queue.now:
                queue.pool.free(jobid)
        queue.advance(rng.choice([1, 7, 1000]))
        assert queue.plan.is_counted
        queue.told.append(list(queue.plan.promises().items()))  # also in which order
        queue.told.append(queue.plan.stale())
    return queue.told
