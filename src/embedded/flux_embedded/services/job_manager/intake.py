# SPDX-License-Identifier: LGPL-3.0-or-later
"""Intake of jobs: from ingest, and at the start from the KVS.

``submit`` ``{"jobs": [{id, userid, urgency, flags, t_submit, jobspec}, ...]}`` -> ``{"errors": [[id, text], ...]}``: jobs whose
jobspec and ``submit`` event are in the KVS already, and those that were refused; ingest removes their data.

In the KVS a job is a directory with jobspec, eventlog and R. Its eventlog is replayed with the same functions that live events
go through (RFC 21).
"""

import json
from syslog import LOG_ERR

from flux.jobtap.errors import JobtapError, Rejected
from flux_embedded.services.job_manager.job import Job
from flux_embedded.services.job_manager.part import Part
from flux_embedded.services.kvs import entries
from flux_engine.formats import eventlog, rset
from flux_engine.formats.jobspec import without_environment
from flux_engine.formats.states import CLEANUP, DEPEND, INACTIVE, NEW, RUN
from flux_engine.kernel.service import check_form, request

#: One job of a request; the jobspec was checked by ingest.
FORM = {"id": int, "userid": int, "urgency": int, "flags": int, "t_submit": float, "jobspec": dict}


def directories(jobs):
    """{job id: {file name: text}} of the directory ``job``."""
    found = {}
    for path, kind, value in entries(jobs, ""):
        parts = path.split(".", 4)
        if kind == "val" and len(parts) == 5 and parts[4] in ("eventlog", "jobspec", "R"):
            found.setdefault(int("".join(parts[:4]), 16), {})[parts[4]] = value
    return {id: files for id, files in found.items() if "eventlog" in files}


class Intake(Part):
    """New jobs, and those of a former job manager."""

    # -- new ones --------------------------------------------------------------------------------

    @request("submit", form={"jobs": list})
    def submit(self, msg):
        errors = []
        jobs = msg.body["jobs"]
        for item in jobs:
            check_form(item or (), FORM, msg.topic)
        for item in jobs:
            text = self._introduce(item)
            if text is not None:
                errors.append([item["id"], text])
        # After the commit: ingest then answers the user, who may read the eventlog.
        return {"errors": errors}

    def _introduce(self, item):
        """Introduce one job; returns the reason of a refusal, or None."""
        id = item["id"]
        jobspec = without_environment(item["jobspec"])
        job = Job(id, item["userid"], item["urgency"], item["flags"], item["t_submit"], jobspec)
        try:
            if self.jobs.find(id) is not None:
                raise Rejected("duplicate job id")
            if not isinstance(job.queue_name, (str, type(None))):
                raise Rejected("attributes.system.queue: expected a string")
            self.service.queues.check_submit(job.queue_name)
        except OSError as exc:
            return exc.strerror
        except Rejected as exc:
            return str(exc)
        self.jobs.add(job)
        # Nothing of a job is recorded until it is accepted.
        job.hold = True
        try:
            self.service.jobtap.introduce(job)
        except Rejected as exc:
            job.queue.clear()
            self.events.take_late(job)
            del self.jobs.active[id]
            self.service.jobtap.forget(job)
            self.service.jobtap.call(job, "job.destroy")
            return str(exc)
        self.events.post(job, "validate")
        for late in self.events.take_late(job):
            self.events.post(job, "exception", late)
        self.events.release(job)
        return None

    # -- existing ones ---------------------------------------------------------------------------

    def restart(self):
        """Load all jobs and continue where the last job manager stopped."""
        loaded = []
        for id, files in sorted(directories(self.service.ctx.kvs.find("job") or {}).items()):
            try:
                job = self._load(id, files)
            except (ValueError, KeyError, TypeError) as exc:
                self.service.log(LOG_ERR, f"job {id} cannot be loaded: {exc!r}")
                continue
            self.jobs.add(job)
            if job.state == INACTIVE:
                self.jobs.deactivate(job)
                job.pack()
            else:
                loaded.append(job)
        for job in loaded:
            self._announce(job)
        for job in loaded:
            job.hold = False
            self.events.post(job, "flux-restart")
            if job.state == DEPEND:
                self.service.life.depend(job)

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
            final = final or (event["name"] == "release" and event["context"]["final"])
        job.t_submit = job.times.get(NEW, 0.0)
        job.start_pending = job.state in (RUN, CLEANUP) and job.was_posted("start") and not final
        return job

    def _announce(self, job):
        """The callbacks for a job that is loaded: job.create, job.new, and its dependencies."""
        self.service.jobtap.call(job, "job.create")
        self.service.jobtap.call(job, "job.new")
        if job.state in (NEW, DEPEND):
            try:
                self.service.jobtap.announce_dependencies(job)
            except JobtapError as exc:
                self.events.raise_exception(job, "dependency", 0, str(exc))
