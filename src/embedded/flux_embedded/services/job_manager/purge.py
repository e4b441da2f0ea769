# SPDX-License-Identifier: LGPL-3.0-or-later
"""The purge of inactive jobs, here and in the KVS."""

import errno


class Purge:
    """Handler of requests."""

    def __init__(self, service, jobs, events, jobtap, housekeeping):
        self.service = service
        self.jobs = jobs
        self.events = events
        self.jobtap = jobtap
        self.housekeeping = housekeeping
        jobs.purged = 0

    def _purge(self, jobs):
        for job in jobs:
            del self.jobs.inactive[job.id]
            self.jobtap.call(job, "job.inactive-remove")
            self.events.puts.append(["unlink", job.eventlog[: -len(".eventlog")]])
        self.jobs.purged += len(jobs)

    def request(self, msg):
        """``purge``: remove the oldest jobs beyond a number, but those in housekeeping."""
        limit = msg.body["num_limit"]
        if limit < 0:
            raise OSError(errno.EINVAL, "num limit must be >= 0")
        oldest = list(self.jobs.inactive.values())[: max(0, len(self.jobs.inactive) - limit)]
        jobs = [job for job in oldest if job.id not in self.housekeeping.visits]
        if jobs and msg.body["force"]:
            self._purge(jobs)
        self.events.send(self.service.respond, msg, {"count": len(jobs)})
