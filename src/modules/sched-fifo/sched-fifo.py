"""sched-fifo: jobs start strictly in order.

The job with the highest priority starts next, among equals the one submitted first. While it does
not fit, nothing starts. Pending jobs are annotated with an estimate of their start and the reason
why they wait.

Arguments: queue-depth=N|unlimited (default 8), log-level=LEVEL, pool-class=URI, reason-depth=N.
"""

import heapq

from flux.resource import InsufficientResources
from flux.scheduler.policy import PolicyScheduler


class FIFOScheduler(PolicyScheduler):
    queue_depth = 8

    def schedule(self):
        while self._queue:
            job = self._queue[0]
            try:
                alloc = self.allocate(job)
            except InsufficientResources:
                if not self.set_aside(job):
                    return  # the head waits, and everybody behind it
            except Exception as exc:
                self.refuse(job, exc)  # it could never run
            else:
                self.start(job, alloc)
            heapq.heappop(self._queue)
            yield

    def forecast(self):
        yield from self.reasons()
        yield from self.estimates()


def mod_main(h, *args):
    FIFOScheduler(h, *args).run()
