# SPDX-License-Identifier: LGPL-3.0-or-later
"""Streams of all job events: ``job-manager.events-journal``, and ``journal-batches`` for job-list.

``events-journal``: ``{full?: bool, allow?: {NAME: 1}, deny?: {NAME: 1}}``. Each response is
``{"id", "events": [EVENT], "jobspec"?, "R"?}``: of one job; jobspec comes with ``submit``, R with
``alloc``. First come all events so far of the active jobs, with `full` of the inactive ones too, a
response each; then a response without events, whose id is -1; then every event as it is
posted. ``allow`` and ``deny`` choose events by name.

``journal-batches`` (ours): the same events from the first on, as
``{"events": [{"id", "seq", "event", "jobspec"?, "R"?}, ...]}``. ``seq`` counts the events of a job from
1. What is posted in one turn comes in one response.

``annotations`` is no event of an eventlog: it carries the job's annotations whenever these changed, with
the seq of the event before.
"""

import errno

from flux_embedded.services.job_manager.intake import read_history

NOT_STREAMING = "job-manager.events requires streaming RPC flag"


class Batches:
    """A request for the events in batches."""

    #: Whether it wants the events of inactive jobs.
    full = True

    def __init__(self, service, msg):
        self.service = service
        self.msg = msg

    def send_history(self, entries):
        self.service.respond(self.msg, {"events": entries})

    def send(self, entries, body):
        self.service.respond(self.msg, body)


class Journal:
    """A request for the events as a real Flux has them."""

    def __init__(self, service, msg):
        body = msg.body or {}
        self.service = service
        self.msg = msg
        self.full = body.get("full", False)
        self._allow = body.get("allow")
        self._deny = body.get("deny") or {}

    def _wants(self, event):
        name = event["name"]
        return name not in self._deny and (self._allow is None or name in self._allow)

    def send_history(self, entries):
        jobs = {}
        for entry in entries:
            job = jobs.setdefault(entry["id"], {"id": entry["id"], "events": []})
            for key in ("jobspec", "R"):
                if key in entry:
                    job[key] = entry[key]
            event = entry["event"]
            # what is in no eventlog belongs to the present
            if event["name"] != "annotations" and self._wants(event):
                job["events"].append(entry["event"])
        for job in jobs.values():
            self.service.respond(self.msg, job)
        self.service.respond(self.msg, {"id": -1, "events": []})

    def send(self, entries, body):
        for entry in entries:
            if self._wants(entry["event"]):
                answer = {key: entry[key] for key in ("id", "jobspec", "R") if key in entry}
                self.service.respond(self.msg, {**answer, "events": [entry["event"]]})


class Journals:
    """Who reads the events of all jobs."""

    def __init__(self, service, jobs):
        self.service = service
        self.jobs = jobs
        self._readers = {}  # reader -> entries since it asked for the past, or None once it has it
        self._events = 0

    def stats(self):
        """What ``job-manager.stats-get`` has of it."""
        return {"listeners": len(self._readers), "events": self._events}

    def events_journal(self, msg):
        """``events-journal``."""
        for key in ("allow", "deny"):
            if not isinstance((msg.body or {}).get(key, {}), dict):
                raise OSError(errno.EPROTO, f"job-manager.events {key} should be an object")
        self._add(Journal(self.service, msg))

    def batches(self, msg):
        """``journal-batches``."""
        self._add(Batches(self.service, msg))

    def _add(self, reader):
        self._readers[reader] = []
        read_history(self.service, self.jobs, self._got_history, reader)

    def _got_history(self, entries, reader):
        """The past is there: send it, and what happened while it was read and is not in it."""
        kept = self._readers.get(reader)
        if kept is None:
            return
        known = {entry["id"]: entry["seq"] for entry in entries}
        entries += [entry for entry in kept if entry["seq"] > known.get(entry["id"], 0)]
        self._readers[reader] = None
        if not reader.full:
            active = self.jobs.active
            entries = [entry for entry in entries if entry["id"] in active]
        reader.send_history(entries)

    def publish(self, entries):
        """Send entries to all readers."""
        self._events += len(entries)
        if self._readers:
            body = {"events": entries}
            for reader, kept in self._readers.items():
                if kept is None:
                    reader.send(entries, body)
                else:
                    kept.extend(entries)

    def cancel(self, sender, matchtag):
        """``events-journal-cancel``."""
        for reader in list(self._readers):
            if reader.msg.sender is sender and reader.msg.matchtag == matchtag:
                del self._readers[reader]
                self.service.respond_error(reader.msg, errno.ENODATA)

    def disconnected(self, sender):
        for reader in list(self._readers):
            if reader.msg.sender is sender:
                del self._readers[reader]
