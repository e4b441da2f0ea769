"""Requests that act on jobs from outside: raise, kill, urgency, memo, and their bulk forms.

Errors are what the commands print: ``unknown job id``, ``job is inactive`` and so on.
"""

import errno

from flux_embedded.formats.states import ACTIVE, CLEANUP, RUN, URGENCY_MAX, URGENCY_MIN


class Actions:
    """Handlers of job manager `jm`."""

    def __init__(self, jm):
        self.jm = jm

    def find(self, id):
        """The active job `id`.

        Raises:
            OSError: ENOENT unknown, EINVAL inactive
        """
        job = self.jm.jobs.get(id)
        if job is None:
            if id in self.jm.inactive:
                raise OSError(errno.EINVAL, "job is inactive")
            raise OSError(errno.ENOENT, "unknown job id")
        return job

    def _permit(self, msg, job):
        if msg.is_guest and msg.userid != job.userid:
            raise OSError(errno.EPERM, "Operation not permitted")

    # -- exceptions ------------------------------------------------------------------------------

    def raise_(self, msg):
        """``raise`` {id, type, severity, note?}."""
        body = msg.body
        severity, kind, note = _exception_of(body)
        job = self.find(body["id"])
        self._permit(msg, job)
        self.jm.raise_exception(job, kind, severity, note, msg.userid)
        self.jm.events.send(self.jm.respond, msg)

    def raiseall(self, msg):
        """``raiseall`` {type, severity, note?, states?, userid?, dry_run?} -> {count, errors}."""
        severity, kind, note = _exception_of(msg.body)
        matches = self._select(msg)
        if not msg.body.get("dry_run"):
            for job in matches:
                if job.state & ACTIVE:
                    self.jm.raise_exception(job, kind, severity, note, msg.userid)
        self.jm.events.send(self.jm.respond, msg, {"count": len(matches), "errors": 0})

    def _select(self, msg, default=ACTIVE):
        body = msg.body
        mask = body.get("states", default) & ACTIVE
        userid = body.get("userid", msg.userid)
        if msg.is_guest and userid != msg.userid:
            raise OSError(errno.EPERM, "guests can only act on their own jobs")
        anybody = userid == 0xFFFFFFFF or userid is None
        return [
            job
            for job in self.jm.jobs.values()
            if job.state & mask and (anybody or job.userid == userid)
        ]

    # -- signals ---------------------------------------------------------------------------------

    def kill(self, msg):
        """``kill`` {id, signum}."""
        job = self.find(msg.body["id"])
        self._permit(msg, job)
        signum = msg.body["signum"]
        if type(signum) is not int or not 0 < signum < 65:
            raise OSError(errno.EINVAL, f"signum={signum!r}: not a signal number")
        if job.state != RUN:
            raise OSError(errno.EINVAL, "job is not running")
        self._signal(job, signum)
        self.jm.respond(msg)

    def killall(self, msg):
        """``killall`` {signum, userid?, dry_run?} -> {count, errors}."""
        matches = self._select(msg, RUN)
        if not msg.body.get("dry_run"):
            for job in matches:
                self._signal(job, msg.body["signum"])
        self.jm.respond(msg, {"count": len(matches), "errors": 0})

    def _signal(self, job, signum):
        if self.jm.execution.service is not None:
            self.jm.notify(f"{self.jm.execution.service}.kill", {"id": job.id, "signum": signum})

    # -- urgency, memo -----------------------------------------------------------------------------

    def urgency(self, msg):
        """``urgency`` {id, urgency} -> {old_urgency}."""
        body = msg.body
        job = self.find(body["id"])
        self._permit(msg, job)
        urgency = body["urgency"]
        if type(urgency) is not int or not URGENCY_MIN <= urgency <= URGENCY_MAX:
            raise OSError(errno.EINVAL, "urgency value is out of range")
        if msg.is_guest and urgency > max(16, job.urgency):
            raise OSError(errno.EPERM, "guests can only adjust urgency <= 16")
        if job.state & (RUN | CLEANUP):
            raise OSError(errno.EINVAL, "urgency cannot be changed once resources are allocated")
        old = job.urgency
        self.jm.events.post(job, "urgency", {"userid": msg.userid, "urgency": urgency})
        self.jm.events.send(self.jm.respond, msg, {"old_urgency": old})

    def memo(self, msg):
        """``memo`` {id, memo: {...}}: merged into the job's memo; null removes a key."""
        job = self.find(msg.body["id"])
        self._permit(msg, job)
        memo = msg.body["memo"]
        if not isinstance(memo, dict) or not memo:
            raise OSError(errno.EPROTO, "memo must be an object with at least one key")
        self.jm.events.post(job, "memo", memo)
        self.jm.events.send(self.jm.respond, msg)

    def annotate(self, msg):
        """``annotate`` {id, annotations: {...}}: merged into the job's ``user`` annotations."""
        job = self.find(msg.body["id"])
        self._permit(msg, job)
        annotations = msg.body["annotations"]
        if not isinstance(annotations, dict):
            raise OSError(errno.EPROTO, "annotations must be an object")
        self.jm.alloc.annotate(job, {"user": annotations})
        self.jm.events.send(self.jm.respond, msg)


def _exception_of(body):
    """(severity, type, note) of a request.

    Raises:
        OSError: EPROTO
    """
    severity, kind, note = body.get("severity", 0), body.get("type"), body.get("note") or ""
    if type(severity) is not int or not 0 <= severity <= 7:
        raise OSError(errno.EPROTO, "invalid exception severity")
    if not isinstance(kind, str) or not kind or any(c.isspace() for c in kind):
        raise OSError(errno.EPROTO, "invalid exception type")
    if not isinstance(note, str):
        raise OSError(errno.EPROTO, "invalid exception note")
    return severity, kind, note
