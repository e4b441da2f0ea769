# SPDX-License-Identifier: LGPL-3.0-or-later
"""The policy of `flux.simulate.gym`: asks its environment which job starts next."""

from itertools import islice

from flux.resource import InfeasibleRequest, InsufficientResources
from flux.scheduler.policy import PolicyScheduler
from flux.scheduler.queue import in_order
from flux.simulate.gym import ASKED


class Asking(PolicyScheduler):
    def __init__(self, h, *args):
        super().__init__(h, *args)
        (number,) = self.take_argument("asked")
        self.asked = ASKED[f"asked={number}"]

    def schedule(self):
        k = self.asked.k
        # Jobs that a pass has started are in the queue until it is over.
        coming = iter(in_order(self._queue))
        window = list(islice(coming, k))
        while window:
            job = self.asked.choose(window)
            if job is None:
                return
            try:
                alloc = self.allocate(job)
            except InsufficientResources:
                return  # as many units are free as it asks for, but not where it needs them
            except InfeasibleRequest as reason:
                self.refuse(job, reason)
            else:
                self.start(job, alloc)
            window.remove(job)
            window += islice(coming, 1)


def mod_main(h, *args):
    Asking(h, *args).run()
