# SPDX-License-Identifier: LGPL-3.0-or-later
"""``job-manager.submit``: jobs from ingest enter the job manager.

Request ``{"jobs": [{id, userid, urgency, flags, t_submit, jobspec}, ...]}``; their jobspec and
``submit`` event are in the KVS already. Response ``{"errors": [[id, text], ...]}``: the jobs that were
refused; ingest removes what it stored of them.
"""

from flux.jobtap.errors import Rejected
from flux_embedded.formats.jobspec import without_environment
from flux_embedded.kernel.service import check_form
from flux_embedded.services.job_manager.job import Job

#: One job of a request; the jobspec was checked by ingest.
FORM = {"id": int, "userid": int, "urgency": int, "flags": int, "t_submit": float, "jobspec": dict}


class Submit:
    """New jobs."""

    def __init__(self, service, jobs, events, queues, jobtap):
        self.service = service
        self.jobs = jobs
        self.events = events
        self.queues = queues
        self.jobtap = jobtap

    def request(self, msg):
        """``submit``."""
        errors = []
        jobs = msg.body["jobs"]
        for item in jobs:
            check_form(item or (), FORM, msg.topic)
        for item in jobs:
            text = self._introduce(item)
            if text is not None:
                errors.append([item["id"], text])
        # Ingest tells the user, and the user may look at the eventlog then: after the commit.
        self.events.send(self.service.respond, msg, {"errors": errors})

    def _introduce(self, item):
        """Take in one job; returns why it was refused, or None."""
        id = item["id"]
        jobspec = without_environment(item["jobspec"])
        job = Job(id, item["userid"], item["urgency"], item["flags"], item["t_submit"], jobspec)
        try:
            if self.jobs.find(id) is not None:
                raise Rejected("duplicate job id")
            if not isinstance(job.queue_name, (str, type(None))):
                raise Rejected("attributes.system.queue: expected a string")
            self.queues.check_submit(job.queue_name)
        except OSError as exc:
            return exc.strerror
        except Rejected as exc:
            return str(exc)
        self.jobs.add(job)
        # Nothing is recorded of a job until it is sure that it stays.
        job.hold = True
        try:
            self.jobtap.introduce(job)
        except Rejected as exc:
            job.queue.clear()
            self.events.take_late(job)
            del self.jobs.active[id]
            self.jobtap.forget(job)
            self.jobtap.destroy(job)
            return str(exc)
        job.seq = 1
        context = {"userid": job.userid, "urgency": job.urgency, "flags": job.flags, "version": 1}
        self.events.journal_event(
            job, {"timestamp": job.t_submit, "name": "submit", "context": context}
        )
        self.events.post(job, "validate")
        for late in self.events.take_late(job):
            self.events.post(job, "exception", late)
        self.events.release(job)
        return None
