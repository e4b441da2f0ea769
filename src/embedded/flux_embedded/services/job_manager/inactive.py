"""Inactive jobs, and their purge.

Configuration: ``job-manager.inactive-age-limit`` (FSD) and ``job-manager.inactive-num-limit`` (int).
Purging a job removes it here, from the KVS and, by an event ``job-purge-inactive``, from job-list.
"""

import errno

from flux_embedded.formats import fsd

#: seconds between looks at the limits
INTERVAL = 10.0


class Inactive:
    """The inactive jobs of job manager `jm`.

    Attributes:
        jobs (dict): id -> Job, in the order in which they became inactive
        purged (int): how many have been removed
    """

    def __init__(self, jm):
        self.jm = jm
        self.jobs = {}
        self.purged = 0
        self._age_limit = None
        self._num_limit = None
        self._timer = None

    def configure(self, config):
        """Take the limits of a configuration.

        Raises:
            OSError: EINVAL
        """
        table = config.get("job-manager", {})
        age, number = table.get("inactive-age-limit"), table.get("inactive-num-limit")
        try:
            age = fsd.parse(age) if age is not None else None
        except (ValueError, TypeError) as exc:
            raise OSError(errno.EINVAL, f"job-manager.inactive-age-limit: {exc}") from None
        if number is not None and (type(number) is not int or number < 0):
            raise OSError(
                errno.EINVAL, f"job-manager.inactive-num-limit={number!r}: expected an integer >= 0"
            )
        self._age_limit, self._num_limit = age, number
        if (age is not None or number is not None) and self._timer is None:
            self._timer = self.jm.timer(INTERVAL, self._tick, INTERVAL)
        elif age is None and number is None and self._timer is not None:
            self._timer.destroy()
            self._timer = None

    def add(self, job):
        self.jobs[job.id] = job

    def _tick(self):
        self._purge(self._select(self._age_limit, self._num_limit))

    def _select(self, age_limit, num_limit):
        """The jobs beyond a limit, oldest first; those in housekeeping are kept."""
        now = self.jm.now()
        surplus = len(self.jobs) - num_limit if num_limit is not None else 0
        found = []
        for job in self.jobs.values():
            old = age_limit is not None and now - job.t_clean > age_limit
            if not old and surplus <= len(found):
                break
            if job.id not in self.jm.housekeeping.jobs:
                found.append(job)
        return found

    def _purge(self, jobs):
        if not jobs:
            return
        for job in jobs:
            del self.jobs[job.id]
            self.jm.jobtap.call(job, "job.inactive-remove")
            self.jm.events.puts.append(["unlink", job.eventlog[: -len(".eventlog")]])
        self.purged += len(jobs)
        self.jm.events.send(
            self.jm.publish, "job-purge-inactive", {"jobs": [job.id for job in jobs]}
        )

    def purge_request(self, msg):
        """``purge``."""
        body = msg.body or {}
        age, number = body.get("age_limit"), body.get("num_limit")
        if age is not None and age < 0:
            age = None
        if number is not None and number < 0:
            number = None
        if age is None and number is None:
            number = 0
        jobs = self._select(age, number)
        if body.get("force"):
            self._purge(jobs)
        self.jm.events.send(self.jm.respond, msg, {"count": len(jobs)})
