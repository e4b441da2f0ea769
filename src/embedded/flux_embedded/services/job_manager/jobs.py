# SPDX-License-Identifier: LGPL-3.0-or-later
"""The jobs there are, active and inactive."""


class Jobs:
    """All jobs.

    Attributes:
        active (dict): id -> `Job`, in order of submission
        inactive (dict): id -> `Job`, in the order in which they became so
        max_id (int): the greatest job id there has been
    """

    def __init__(self):
        self.active = {}
        self.inactive = {}
        self.max_id = 0

    def add(self, job):
        """A new job, active."""
        self.active[job.id] = job
        self.max_id = max(self.max_id, job.id)

    def deactivate(self, job):
        """`job` has become inactive."""
        self.inactive[job.id] = self.active.pop(job.id)

    def find(self, id):
        """The job `id`, active or inactive; None if there is none."""
        return self.active.get(id) or self.inactive.get(id)
