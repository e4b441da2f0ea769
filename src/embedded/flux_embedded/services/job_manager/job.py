# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager's record of a job, from which job-list answers too."""

from flux_engine.formats.jsontext import dumps, loads
from flux_engine.job_manager import job

#: Attributes of an inactive job that are kept as JSON.
PACKED = ("jobspec", "R", "annotations", "end_event")


class Job(job.Job):
    """A job, with what only users ask for.

    Attributes:
        times (dict): state -> time of its first entry, seconds since the epoch
        exception (dict): context of the first of the most severe exceptions; None without one
    """

    __slots__ = ("times", "exception", "_packed")
    _read = None, {}

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
        """Keep `PACKED` as JSON, decoded at each access: an inactive job is seldom read, and objects take six times the
        memory, which every fork of a projection has to map."""
        self._packed = dumps({name: getattr(self, name) for name in PACKED})
        for name in PACKED:
            delattr(self, name)

    def __getattr__(self, name):
        if name not in PACKED:
            raise AttributeError(name)
        if Job._read[0] is not self._packed:  # readers want several attributes of a job
            Job._read = self._packed, loads(self._packed)
        return Job._read[1][name]
