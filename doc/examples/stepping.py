# SPDX-License-Identifier: LGPL-3.0-or-later
"""Start every job that fits, with a turn of the reactor between two jobs."""

import heapq

from flux.resource import InsufficientResources
from flux.scheduler import Scheduler


class Stepping(Scheduler):
    queue_depth = 64

    def schedule(self):
        for job in sorted(self._queue):
            try:
                alloc = self.resources.alloc(job.jobid, job.resource_request)
            except InsufficientResources:
                yield  # examining takes time too
                continue
            except OSError as reason:
                job.request.deny(str(reason))
            else:
                job.request.success(alloc)
            self._queue.remove(job)
            heapq.heapify(self._queue)
            yield


def mod_main(h, *args):
    Stepping(h, *args).run()
