# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs in order before a pool with a plan, as a scheduler has them: each starts or is promised a
start."""

from flux.resource import InsufficientResources


class PlannedQueue:
    """A pool with its plan, and the requests of jobs by id, in order.

    Args:
        pool (ResourcePool): the pool
        plan (Plan): of that pool
    """

    def __init__(self, pool, plan):
        self.pool = pool
        self.plan = plan
        self.requests = {}

    def enter(self, spec):
        """A job comes with a jobspec: it starts, or is promised a start if it can be."""
        jobid = len(self.requests) + 1
        self.requests[jobid] = request = self.pool.parse_resource_request(spec)
        if not self.start(jobid):
            when = self.plan.earliest(request)
            if when is not None:
                self.plan.reserve(jobid, request, when)

    def start(self, jobid):
        """Start a job, if it can start beside what was promised; whether it could."""
        try:
            self.plan.alloc(jobid, self.requests[jobid])
        except InsufficientResources:
            return False
        return True

    def running(self):
        return [jobid for _, jobid in self.pool.jobs_by_end()]
