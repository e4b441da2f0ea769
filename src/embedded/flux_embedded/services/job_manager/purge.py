# SPDX-License-Identifier: LGPL-3.0-or-later
"""The purge of inactive jobs.

Configuration: ``job-manager.inactive-age-limit`` (FSD) and ``job-manager.inactive-num-limit`` (int).
Purging a job removes it here, from the KVS and, by an event ``job-purge-inactive``, from job-list.
"""

import errno
import os

from flux_engine.formats import fsd, policy
from flux_engine.formats.jobid import MAX_ID

#: seconds between looks at the limits
INTERVAL = 2.0
#: a limit that is none
UNLIMITED = -1
#: most jobs that one request removes
BATCH_MAX = 100


class Purge:
    """The limits of what is kept of inactive jobs, and requests for less."""

    def __init__(self, service, jobs, events, jobtap, housekeeping):
        self.service = service
        self.jobs = jobs
        self.events = events
        self.jobtap = jobtap
        self.housekeeping = housekeeping
        self._age_limit = None
        self._num_limit = None
        self._timer = None

    def configure(self, config):
        """Take the limits of a configuration.

        Raises:
            OSError: EINVAL
        """
        kinds = {"inactive-age-limit": str, "inactive-num-limit": int}
        where = "job-manager.max-inactive-*"
        table = policy.check_types(config.get("job-manager"), kinds, where)
        age, number = table.get("inactive-age-limit"), table.get("inactive-num-limit")
        try:
            age = fsd.parse(age) if age is not None else None
        except ValueError:
            text = "job-manager.inactive-age-limit: invalid FSD"
            raise OSError(errno.EINVAL, text) from None
        if number is not None and number < UNLIMITED:
            raise OSError(errno.EINVAL, "job-manager.inactive-num-limit: must be >= 0")
        if number == UNLIMITED:
            number = None
        self._age_limit, self._num_limit = age, number
        if (age is not None or number is not None) and self._timer is None:
            self._timer = self.service.timer(INTERVAL, self._tick, INTERVAL)
        elif age is None and number is None and self._timer is not None:
            self._timer.destroy()
            self._timer = None

    def _tick(self):
        self._purge(self._select(self._age_limit, self._num_limit))

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
        """``purge``: the jobs beyond a limit, a batch at a time; without a limit there are none."""
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

    def request_one(self, msg):
        """``purge-id``: one job."""
        id = msg.body["id"]
        if id in (-1, MAX_ID):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        job = self.jobs.inactive.get(id)
        if id in self.jobs.active:
            raise OSError(errno.EINVAL, "cannot purge active job")
        if job is None:
            raise OSError(errno.ENOENT, "id not found")
        if msg.body["force"]:
            self._purge([job])
        self.events.send(self.service.respond, msg, {"count": 1})
