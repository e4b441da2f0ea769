# SPDX-License-Identifier: LGPL-3.0-or-later
"""A job that has waited for a day goes ahead of all that have not: patience=SECONDS."""

from flux.scheduler.policies import Fifo


class Aging(Fifo):
    schedule_when_empty = False  # alloc() below keeps its jobs in the usual queue

    def __init__(self, h, *args):
        super().__init__(h, *args)
        self.patience = 86400.0
        for value in self.take_argument("patience"):
            self.patience = float(value)

    def order(self, job):
        if self.now() >= job.t_submit + self.patience:
            return (0, job.t_submit)
        return (1, -job.priority)

    def alloc(self, request, jobid, priority, userid, t_submit, jobspec):
        super().alloc(request, jobid, priority, userid, t_submit, jobspec)
        if t_submit + self.patience > self.now():
            self.call_at(t_submit + self.patience, self.overdue)

    def overdue(self):
        self.reorder()
        self.look_again()


def mod_main(h, *args):
    Aging(h, *args).run()
