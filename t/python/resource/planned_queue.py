# SPDX-License-Identifier: LGPL-3.0-or-later
"""A queue of jobs for a pool with a plan, as a scheduler has it: each job starts or is promised a
start."""

from flux.resource import InsufficientResources


class PlannedQueue:
    """A pool with its plan, and the requests of jobs by id, in order.

    Args:
        pool (ResourcePool): the pool
        plan (Plan): that pool's
    """

    def __init__(self, pool, plan):
        self.pool = pool
        self.plan = plan
        self.requests = {}

    def enter(self, spec):
        """Add a job with a jobspec: it starts, or is promised a start if possible."""
        jobid = len(self.requests) + 1
        self.requests[jobid] = request = self.pool.parse_resource_request(spec)
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

    def running(self):
        return [jobid for _, jobid in self.pool.jobs_by_end()]
