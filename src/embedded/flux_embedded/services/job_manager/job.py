# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager's record of a job, from which job-list answers too."""

import marshal

from flux_engine.job_manager import job


class Job(job.Job):
    """A job, with what only users ask for.

    Attributes:
        times (dict): state -> time of its first entry, seconds since the epoch
        exception (dict): context of the first of the most severe exceptions; None without one
    """

    __slots__ = ("times", "exception", "_packed")

    def __init__(self, *args):
        super().__init__(*args)
        self.times = {}
        self.exception = None

    def apply(self, event):
        before = super().apply(event)
        if self.state != before:
            self.times.setdefault(self.state, event["timestamp"])
        if event["name"] == "exception":
            context = event["context"]
            if self.exception is None or context["severity"] < self.exception["severity"]:
                self.exception = context
        return before

    def pack(self):
        """Keep jobspec and R as bytes, decoded at each access: an inactive job is seldom read, and objects take six times
        the memory, which every fork of a projection has to map."""
        self._packed = marshal.dumps({"jobspec": self.jobspec, "R": self.R})
        del self.jobspec, self.R

    def __getattr__(self, name):
        if name in ("jobspec", "R"):
            return marshal.loads(self._packed)[name]
        raise AttributeError(name)
