# SPDX-License-Identifier: LGPL-3.0-or-later
"""Order jobs of equal priority by the number of jobs that their bank has ever started, fewest first."""

from flux.scheduler.policies import Backfill


class FewestFirst(Backfill):
    def __init__(self, h, *args):
        super().__init__(h, *args)
        self.started = {}  # in JSON the keys of a dict are texts: "" stands for no bank
        self.stored = self.checkpoint("banks", lambda: self.started, self.started.update)

    def order(self, job):
        return (-job.priority, self.started.get(job.bank or "", 0))

    def start(self, job, alloc, **annotations):
        bank = job.bank or ""
        self.started[bank] = self.started.get(bank, 0) + 1
        self.stored.changed()
        super().start(job, alloc, **annotations)


def mod_main(h, *args):
    FewestFirst(h, *args).run()
