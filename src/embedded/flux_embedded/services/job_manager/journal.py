# SPDX-License-Identifier: LGPL-3.0-or-later
"""The stream of all job events, for job-list: ``job-manager.journal-batches``.

Each response is ``{"events": [{"id", "seq", "event", "jobspec"?, "R"?}, ...]}``, from the first event of each job on: jobspec comes
with ``submit``, R with ``alloc``. ``seq`` counts the events of a job from 1. Events posted in one turn come in one response.

``annotations`` is not an event of an eventlog: it carries the job's annotations whenever these changed, with
the seq of the event before.
"""

from flux_embedded.services.job_manager.intake import read_history


class Journals:
    """The readers of the events of all jobs."""

    def __init__(self, service, jobs):
        self.service = service
        self.jobs = jobs
        self._readers = {}  # request -> entries since it requested the history, or None once it has it

    def open(self, msg):
        """``journal-batches``."""
        self._readers[msg] = []
        read_history(self.service, self.jobs, self._got_history, msg)

    def _got_history(self, entries, msg):
        """The history was read: send it, and the later events that are not in it."""
        kept = self._readers.get(msg)
        if kept is None:
            return
        known = {entry["id"]: entry["seq"] for entry in entries}
        entries += [entry for entry in kept if entry["seq"] > known.get(entry["id"], 0)]
        self._readers[msg] = None
        self.service.respond(msg, {"events": entries})

    def publish(self, entries):
        """Send entries to all readers."""
        for msg, kept in self._readers.items():
            if kept is None:
                self.service.respond(msg, {"events": entries})
            else:
                kept.extend(entries)

    def disconnected(self, sender):
        self._readers = {
            msg: kept for msg, kept in self._readers.items() if msg.sender is not sender
        }
