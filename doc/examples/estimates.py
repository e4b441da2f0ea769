# SPDX-License-Identifier: LGPL-3.0-or-later
"""Estimate the start of the first pending job, from the ends of the running ones."""

import heapq

from flux.resource import InsufficientResources
from flux.scheduler import Scheduler


class Estimates(Scheduler):
    def schedule(self):
        while self._queue:
            job = self._queue[0]
            try:
                alloc = self.resources.alloc(job.jobid, job.resource_request)
            except InsufficientResources:
                return
            except OSError as reason:
                job.request.deny(str(reason))
            else:
                job.request.success(alloc, {"sched": {"resource_summary": alloc.dumps()}})
            heapq.heappop(self._queue)
            yield

    def forecast(self):
        if self._queue:
            job = self._queue[0]
            when = self.resources.earliest(job.resource_request)
            if when != job._last_annotation:
                job._last_annotation = when
                job.request.annotate({"sched": {"t_estimate": when}})


def mod_main(h, *args):
    Estimates(h, *args).run()
