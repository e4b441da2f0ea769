"""The widest job first, with what the library has for policies: times in R, reasons, arguments."""

from flux.resource import InsufficientResources
from flux.scheduler.policy import PolicyScheduler


class Widest(PolicyScheduler):
    def __init__(self, h, *args):
        super().__init__(h, *args)
        self.narrowest = 0
        for value in self.take_argument("narrowest"):
            if not value.isdigit():
                raise ValueError(f"narrowest={value!r}: expected a number of cores")
            self.narrowest = int(value)

    def schedule(self):
        for job in sorted(self._queue, key=lambda job: (-job.resource_request.ncores, job.jobid)):
            if job.resource_request.ncores < self.narrowest:
                job.request.deny(f"no jobs of less than {self.narrowest} cores here")
            else:
                try:
                    alloc = self.resources.alloc(job.jobid, job.resource_request)
                except InsufficientResources:
                    yield
                    continue
                except Exception as reason:
                    self.refuse(job, reason)
                else:
                    self.start(job, alloc, width=job.resource_request.ncores)
            yield

    def forecast(self):
        yield from self.reasons()


def mod_main(h, *args):
    Widest(h, *args).run()
