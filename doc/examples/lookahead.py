# SPDX-License-Identifier: LGPL-3.0-or-later
"""Start every job that fits, in order of priority, without examining unchanged ones again."""

from flux.resource import InsufficientResources
from flux.scheduler.admission import JobDeferred
from flux.scheduler.policy import PolicyScheduler
from flux.scheduler.queue import Backlog


class LookAhead(PolicyScheduler):
    _queue_class = Backlog

    def schedule(self):
        for job in self._backlog.to_examine(self.now):
            if job is None:
                yield
                continue
            try:
                alloc = self.allocate(job)
            except JobDeferred as why:
                self.defer(job, why)
            except InsufficientResources:
                self._backlog.block(job, alike=True)
            except Exception as reason:
                self.refuse(job, reason)
            else:
                self.start(job, alloc)

    def released(self):
        self._backlog.wake(self.now())

    def stats_get(self):
        return {**super().stats_get(), **self._backlog.stats(self.now())}


def mod_main(h, *args):
    LookAhead(h, *args).run()
