# SPDX-License-Identifier: LGPL-3.0-or-later
"""The widest job first, with the library's support for policies: times in R, reasons, arguments."""

from flux.resource import InsufficientResources
from flux.scheduler.admission import JobDeferred
from flux.scheduler.policy import PolicyScheduler
from flux.scheduler.queue import in_order


class Widest(PolicyScheduler):
    def __init__(self, h, *args):
        super().__init__(h, *args)
        self.narrowest = 0
        for value in self.take_argument("narrowest"):
            if not value.isdigit():
                raise ValueError(f"narrowest={value!r}: expected a number of cores")
            self.narrowest = int(value)

    def order(self, job):
        return -job.resource_request.ncores

    def schedule(self):
        blocked = False
        for job in in_order(self._queue):
            if job.resource_request.ncores < self.narrowest:
                job.request.deny(f"no jobs of less than {self.narrowest} cores here")
            elif not blocked:
                try:
                    alloc = self.allocate(job)
                except JobDeferred as why:
                    self.defer(job, why)  # a rule keeps it waiting: it leaves the queue
                except InsufficientResources:
                    blocked = True  # the widest waits, with the narrower ones behind it
                except Exception as reason:
                    self.refuse(job, reason)
                else:
                    self.start(job, alloc, width=job.resource_request.ncores)
            yield

    def forecast(self):
        yield from self.reasons()
        yield from self.estimates()


def mod_main(h, *args):
    Widest(h, *args).run()
