"""sched-simple: sched-fifo under the name that Flux loads by default, with hooks for its tests.

Jobs start strictly in order of priority, among equals in order of submission; while the first does
not fit, nothing starts.

Arguments: order=strict|queue (default strict; queue: see sched-fifo), queue-depth=N|unlimited
(default 8; unlimited with order=queue), log-level=LEVEL, pool-class=URI, reason-depth=N;
test-hello-nopartial: have hello leave out jobs that have returned part of their resources.

Bits of the debug word (``flux module debug --setbit BIT sched-simple``):

1   deny every request
2   annotate pending jobs with "insufficient resources" and the number of jobs ahead of them, and
    with nothing else
4   refuse to change the expiration of a job
"""

import errno

from flux.job import JobID
from flux.scheduler.policy import PolicyScheduler
from flux.scheduler.queue import in_order

DEBUG_FAIL_ALLOC = 1
DEBUG_ANNOTATE_REASON_PENDING = 2
DEBUG_EXPIRATION_UPDATE_DENY = 4


class SimpleScheduler(PolicyScheduler):
    queue_depth = 8
    schedule_when_empty = False  # alloc() below keeps its jobs in the usual queue

    def __init__(self, h, *args):
        super().__init__(h, *args)
        self.take_order()
        if "test-hello-nopartial" in self._pending_args:
            self._pending_args.remove("test-hello-nopartial")
            self.hello_partial_ok = False

    def hello(self, jobid, priority, userid, t_submit, R):
        self.log.debug(
            f"hello: id={JobID(jobid).f58} priority={priority} userid={userid} t_submit={t_submit:.1f}"
        )
        super().hello(jobid, priority, userid, t_submit, R)

    def alloc(self, request, jobid, priority, userid, t_submit, jobspec):
        if self.debug_test(DEBUG_FAIL_ALLOC):
            request.deny("DEBUG_FAIL_ALLOC")
        else:
            super().alloc(request, jobid, priority, userid, t_submit, jobspec)

    def expiration(self, msg, jobid, expiration):
        if self.debug_test(DEBUG_EXPIRATION_UPDATE_DENY):
            self.handle.respond_error(msg, errno.EINVAL, "Rejecting expiration update for testing")
        else:
            super().expiration(msg, jobid, expiration)

    def schedule(self):
        return self.start_in_order()

    def forecast(self):
        if self.debug_test(DEBUG_ANNOTATE_REASON_PENDING):
            yield from self.jobs_ahead()
        else:
            yield from self.reasons()
            yield from self.estimates()

    def jobs_ahead(self):
        for ahead, job in enumerate(in_order(self._queue)):
            shown = ("insufficient resources", ahead)
            if shown != getattr(job, "ahead_shown", None):
                job.ahead_shown = shown
                job.reason_shown = shown[0]
                job.request.annotate({"sched": {"reason_pending": shown[0], "jobs_ahead": ahead}})
            yield


def mod_main(h, *args):
    SimpleScheduler(h, *args).run()
