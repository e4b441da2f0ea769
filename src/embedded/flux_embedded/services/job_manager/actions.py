"""Requests that act on jobs from outside: raise, kill, urgency, memo, and their bulk forms.

Errors are what the commands print: ``unknown job id``, ``job is inactive`` and so on.
"""

import errno
import signal

from flux_embedded.formats.states import ACTIVE, CLEANUP, RUN, RUNNING, URGENCY_MAX, URGENCY_MIN
from flux_embedded.kernel.service import Malformed, check_form

#: What requests for several jobs at once have in their forms.
MANY = {"states?": int, "userid?": (int, type(None))}


class Actions:
    """Handlers of job manager `jm`."""

    def __init__(self, jm):
        self.jm = jm

    def find(self, id, errnum=errno.ENOENT, unknown="unknown job id"):
        """The active job `id`.

        Raises:
            OSError: `errnum`, it is inactive or unknown
        """
        job = self.jm.jobs.get(id)
        if job is None:
            raise OSError(errnum, "job is inactive" if id in self.jm.inactive else unknown)
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
        signum = _signal_number(msg.body["signum"])
        job = self.find(msg.body["id"], errno.EINVAL)
        self._permit(msg, job)
        if not job.state & RUNNING:
            raise OSError(errno.EINVAL, "job is not running")
        self._signal(job, signum)
        self.jm.respond(msg)

    def killall(self, msg):
        """``killall`` {signum, userid?, dry_run?} -> {count, errors}."""
        try:
            check_form(msg.body, {"signum": int, **MANY}, msg.topic)
        except Malformed as exc:
            raise OSError(errno.EPROTO, "error decoding request") from exc
        signum = _signal_number(msg.body["signum"])
        matches = self._select(msg, RUN)
        if not msg.body.get("dry_run"):
            for job in matches:
                self._signal(job, signum)
        self.jm.respond(msg, {"count": len(matches), "errors": 0})

    def _signal(self, job, signum):
        if self.jm.execution.service is not None:
            self.jm.notify(f"{self.jm.execution.service}.kill", {"id": job.id, "signum": signum})

    # -- urgency, memo -----------------------------------------------------------------------------

    def urgency(self, msg):
        """``urgency`` {id, urgency} -> {old_urgency}."""
        body = msg.body
        urgency = body["urgency"]
        if not URGENCY_MIN <= urgency <= URGENCY_MAX:
            raise OSError(errno.EINVAL, "urgency value is out of range")
        job = self.find(body["id"], errno.EINVAL, "unknown job")
        self._permit(msg, job)
        if msg.is_guest and urgency > max(16, job.urgency):
            raise OSError(errno.EPERM, "guests can only adjust urgency <= 16")
        if job.state & (RUN | CLEANUP):
            raise OSError(errno.EINVAL, "urgency cannot be changed once resources are allocated")
        old = job.urgency
        self.jm.events.post(job, "urgency", {"userid": msg.userid, "urgency": urgency})
        self.jm.events.send(self.jm.respond, msg, {"old_urgency": old})

    def memo(self, msg):
        """``memo`` {id, memo: {...}, volatile?}: merged into the job's ``user`` annotations.

        Null removes a key. Unless it is volatile the memo is an event of the job's eventlog too.
        """
        job = self.find(msg.body["id"])
        self._permit(msg, job)
        memo = msg.body["memo"]
        if memo and not msg.body.get("volatile"):
            self.jm.events.post(job, "memo", memo)
        self.jm.sched.annotate(job, {"user": memo})
        self.jm.events.send(self.jm.respond, msg)


def _signal_number(signum):
    if not 0 <= signum < signal.NSIG:
        raise OSError(errno.EINVAL, "Invalid signal number")
    return signum


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
