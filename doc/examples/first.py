"""The shortest scheduler: jobs start in order, the first that does not fit stops the rest."""

import heapq

from flux.resource import InsufficientResources
from flux.scheduler import Scheduler


class First(Scheduler):
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
                job.request.success(alloc)
            heapq.heappop(self._queue)


def mod_main(h, *args):
    First(h, *args).run()
