# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs as the KVS has them, a directory each with jobspec, eventlog and R: for a job manager that starts, and for the journal.

Eventlogs are replayed with the same functions that live events go through (RFC 21).
"""

import errno
import json

from flux.jobtap.errors import JobtapError
from flux_embedded.formats import eventlog, rset
from flux_embedded.formats.jobspec import without_environment
from flux_embedded.formats.levels import LOG_ERR
from flux_embedded.formats.states import CLEANUP, DEPEND, INACTIVE, NEW, RUN
from flux_embedded.services.job_manager.job import Job

#: Asks for all of them.
REQUEST = {"key": "job", "recursive": True, "values": True}


def directories(entries):
    """{job id: {file name: text}} of a recursive listing of the directory ``job``."""
    found = {}
    for path, kind, value in entries:
        parts = path.split(".", 4)
        if kind == "val" and len(parts) == 5 and parts[4] in ("eventlog", "jobspec", "R"):
            found.setdefault(int("".join(parts[:4]), 16), {})[parts[4]] = value
    return {id: files for id, files in found.items() if "eventlog" in files}


def read_history(service, jobs, function, *args):
    """Have ``function(entries, *args)`` called with the journal entries of all jobs so far."""

    def received(future):
        try:
            entries = future.body["entries"]
        except OSError:
            entries = []
        history = []
        for id, files in sorted(directories(entries).items()):
            if "jobspec" in files:
                history.extend(_entries(id, files))
        for job in jobs.active.values():
            if job.annotations:
                event = {"timestamp": service.now(), "name": "annotations"}
                event["context"] = {"annotations": job.annotations}
                history.append({"id": job.id, "seq": job.seq, "event": event})
        function(history, *args)

    service.rpc("kvs.dir", REQUEST).then(received)


def _entries(id, files):
    for seq, event in enumerate(eventlog.parse(files["eventlog"]), 1):
        entry = {"id": id, "seq": seq, "event": event}
        if event["name"] == "submit":
            entry["jobspec"] = without_environment(json.loads(files["jobspec"]))
        elif event["name"] == "alloc" and "R" in files:
            entry["R"] = rset.redacted(json.loads(files["R"]))
        yield entry


class Restart:
    """Taking up jobs."""

    def __init__(self, service, jobs, events, jobtap, life):
        self.service = service
        self.jobs = jobs
        self.events = events
        self.jobtap = jobtap
        self.life = life

    def run(self):
        """Load all jobs and take up where the last job manager left off; blocks."""
        try:
            entries = self.service.rpc("kvs.dir", REQUEST).body["entries"]
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.ENOSYS):
                raise
            return
        loaded = []
        for id, files in sorted(directories(entries).items()):
            try:
                job = self._load(id, files)
            except (ValueError, KeyError, TypeError) as exc:
                self.service.log(LOG_ERR, f"job {id} cannot be loaded: {exc!r}")
                continue
            self.jobs.add(job)
            if job.state == INACTIVE:
                self.jobs.deactivate(job)
            else:
                loaded.append(job)
        for job in loaded:
            self._announce(job)
        for job in loaded:
            job.hold = False
            self.events.post(job, "flux-restart")
            if job.state == DEPEND:
                self.life.recheck(job)

    def _load(self, id, files):
        jobspec = without_environment(json.loads(files["jobspec"]))
        events = eventlog.parse(files["eventlog"])
        job = Job(id, 0, 0, 0, 0.0, jobspec)
        job.state = 0
        job.posted = 0
        job.hold = True
        final = False
        R = json.loads(files["R"]) if "R" in files else None
        for event in events:
            if event["name"] == "alloc" and R is not None:
                job.R = rset.redacted(R)
            job.apply(event)
            job.seq += 1
            final = final or (event["name"] == "release" and event["context"]["final"])
        job.start_pending = job.state in (RUN, CLEANUP) and job.was_posted("start") and not final
        return job

    def _announce(self, job):
        """The callbacks for a job that is loaded: job.create, job.new, and its dependencies."""
        self.jobtap.call(job, "job.create")
        self.jobtap.call(job, "job.new")
        if job.state in (NEW, DEPEND):
            try:
                self.jobtap.announce_dependencies(job)
            except JobtapError as exc:
                self.events.raise_exception(job, "dependency", 0, str(exc))
