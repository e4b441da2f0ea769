# SPDX-License-Identifier: LGPL-3.0-or-later
"""Another service makes the decisions: a pass queries it, and starts the jobs in its answer.

The service ``oracle`` answers ``oracle.choose`` ``{"jobs": [id, ...]}`` with ``{"start": [id,
...]}``.
"""

from flux.scheduler import Scheduler


class Elsewhere(Scheduler):
    def start_schedule(self):
        if self._sched_pending:
            return  # the pending query covers this event, or the next one will
        self._sched_pending = True
        jobs = [job.jobid for job in sorted(self._queue)]
        self.handle.rpc("oracle.choose", {"jobs": jobs}).then(self.answered)

    def answered(self, future):
        self._sched_pending = False
        try:
            chosen = set(future.get()["start"])
        except OSError as error:
            self.log.error(f"oracle: {error}")
            return
        for job in sorted(self._queue):
            if job.jobid in chosen:
                try:
                    job.request.success(self.resources.alloc(job.jobid, job.resource_request))
                except OSError as reason:
                    self.log.warning(f"oracle: {job.jobid}: {reason}")


def mod_main(h, *args):
    Elsewhere(h, *args).run()
