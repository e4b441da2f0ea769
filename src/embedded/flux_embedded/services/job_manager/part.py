# SPDX-License-Identifier: LGPL-3.0-or-later
"""The base of the job manager's parts."""

import errno


class Part:
    """A part of the job manager: `service`, which has the other parts; `jobs` and `events` are those of all parts.

    Its methods that are marked with `request` answer requests to the job manager.
    """

    def __init__(self, service):
        self.service = service
        self.jobs = service.jobs
        self.events = service.events

    def find(self, id, inactive=errno.ENOENT, unknown=(errno.ENOENT, "unknown job id")):
        """The active job `id`. OSError: it is inactive (errno), or unknown (errno and text)."""
        job = self.jobs.active.get(id)
        if job is None:
            wrong = (inactive, "job is inactive") if id in self.jobs.inactive else unknown
            raise OSError(*wrong)
        return job
