"""sched-fifo: jobs start strictly in order.

The job with the highest priority starts next, among equals the one submitted first. While it does
not fit, nothing starts; with order=queue, nothing that could want some of the same nodes, so that
queues with nodes of their own never hold up each other, and of queues that share nodes the job with
the higher priority goes first. Pending jobs are annotated with an estimate of their start and the reason
why they wait.

Arguments: order=strict|queue (default strict), queue-depth=N|unlimited (default 8; unlimited with
order=queue), log-level=LEVEL, pool-class=URI, reason-depth=N.
"""

from flux.scheduler.policy import PolicyScheduler


class FIFOScheduler(PolicyScheduler):
    queue_depth = 8

    def __init__(self, h, *args):
        super().__init__(h, *args)
        self.take_order()

    def schedule(self):
        return self.start_in_order()

    def forecast(self):
        yield from self.reasons()
        yield from self.estimates()


def mod_main(h, *args):
    FIFOScheduler(h, *args).run()
