# SPDX-License-Identifier: LGPL-3.0-or-later
"""The purge of inactive jobs: here, in the KVS and, by an event ``job-purge-inactive``, in job-list."""

import errno

#: stands for no limit
UNLIMITED = -1
#: maximum of jobs removed by one request
BATCH_MAX = 100


class Purge:
    """Handler of requests."""

    def __init__(self, service, jobs, events, jobtap, housekeeping):
        self.service = service
        self.jobs = jobs
        self.events = events
        self.jobtap = jobtap
        self.housekeeping = housekeeping

    def _select(self, age_limit, num_limit):
        """The jobs beyond a limit, oldest first; those in housekeeping are kept."""
        now = self.service.now()
        surplus = len(self.jobs.inactive) - num_limit if num_limit is not None else 0
        found = []
        for job in self.jobs.inactive.values():
            old = age_limit is not None and now - job.t_clean > age_limit
            if not old and surplus <= len(found):
                break
            if job.id not in self.housekeeping.visits:
                found.append(job)
        return found

    def _purge(self, jobs):
        if not jobs:
            return
        for job in jobs:
            del self.jobs.inactive[job.id]
            self.jobtap.call(job, "job.inactive-remove")
            self.events.puts.append(["unlink", job.eventlog[: -len(".eventlog")]])
        self.events.send(
            self.service.publish, "job-purge-inactive", {"jobs": [job.id for job in jobs]}
        )

    def request(self, msg):
        """``purge``: remove the jobs beyond a limit, a batch at a time; none without a limit."""
        body = msg.body
        age, number, batch = body["age_limit"], body["num_limit"], body["batch"]
        if age < 0 and age != UNLIMITED:
            raise OSError(errno.EINVAL, "if set, age limit must be >= 0")
        if number < 0 and number != UNLIMITED:
            raise OSError(errno.EINVAL, "if set, num limit must be >= 0")
        if not 1 <= batch <= BATCH_MAX:
            raise OSError(errno.EINVAL, f"batch must be >= 1 and <= {BATCH_MAX}")
        age = None if age == UNLIMITED else age
        number = None if number == UNLIMITED else number
        jobs = self._select(age, number)
        if body["force"]:
            jobs = jobs[:batch]
            self._purge(jobs)
        self.events.send(self.service.respond, msg, {"count": len(jobs)})
