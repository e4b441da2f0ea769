# SPDX-License-Identifier: LGPL-3.0-or-later
"""Fair share under backfill: who has used least of late goes first. Of what was used, half is
forgotten each half-life=SECONDS (a day)."""

from collections import Counter

from flux.scheduler.policies import Backfill

MINUTE = 60.0


class FairShare(Backfill):
    def __init__(self, h, *args):
        super().__init__(h, *args)
        self.half_life = 86400.0
        for value in self.take_argument("half-life"):
            self.half_life = float(value)
        self.used = Counter()  # by user id, core seconds
        self.cores = {}  # by id of a running job: its user, and how many cores it holds
        self.counted_until = self.now()
        self.call_at(self.now() + MINUTE, self.every_minute)

    def order(self, job):
        return (self.used[job.userid], job.t_submit)

    def hello(self, jobid, priority, userid, t_submit, R):
        super().hello(jobid, priority, userid, t_submit, R)
        held = R.to_resource_set()
        self.cores[jobid] = (userid, held.ncores)
        self.used[userid] += held.ncores * (self.now() - held.starttime)

    def start(self, job, alloc, **annotations):
        self.count()
        self.cores[job.jobid] = (job.userid, alloc.to_resource_set().ncores)
        super().start(job, alloc, **annotations)

    def free(self, jobid, R, final=False):
        self.count()
        userid, cores = self.cores.pop(jobid)
        if not final:
            self.cores[jobid] = (userid, cores - R.to_resource_set().ncores)
        super().free(jobid, R, final=final)

    def count(self):
        """Add what was used since this was done last."""
        now = self.now()
        for userid, cores in self.cores.values():
            self.used[userid] += cores * (now - self.counted_until)
        self.counted_until = now

    def every_minute(self):
        self.count()
        for userid in self.used:
            self.used[userid] *= 0.5 ** (MINUTE / self.half_life)
        self.reorder()  # the queue, and the promises with it
        self.look_again()  # it is not by a message that this happens, so a pass has to be asked for
        self.call_at(self.now() + MINUTE, self.every_minute)


def mod_main(h, *args):
    FairShare(h, *args).run()
