# SPDX-License-Identifier: LGPL-3.0-or-later
"""Requests that act on jobs from outside: raise, raiseall, kill, urgency, memo, purge; `service` has their payloads.

Error texts are those that the commands print: ``unknown job id``, ``job is inactive`` and so on.
"""

import errno
import signal

from flux_embedded.services.job_manager.part import Part
from flux_engine.formats.states import ACTIVE, CLEANUP, RUN, URGENCY_MAX, URGENCY_MIN
from flux_engine.kernel.message import ANY_USER
from flux_engine.kernel.service import request

#: Common keys of requests for an exception.
EXCEPTION = {"severity": int, "type": str, "note?": str}


def permit(msg, userid, what):
    """Check that the sender is the owner, or acts on a job of its own; OSError (EPERM, ``guests WHAT their own jobs``) if not."""
    if msg.is_guest and msg.userid != userid:
        raise OSError(errno.EPERM, f"guests {what} their own jobs")


class Actions(Part):
    # -- exceptions ------------------------------------------------------------------------------

    @request("raise", guest=True, form={"id": int, **EXCEPTION})
    def raise_(self, msg):
        body = msg.body
        severity, kind, note = _exception_of(body)
        job = self.find(body["id"])
        permit(msg, job.userid, "can only raise exceptions on")
        self.events.raise_exception(job, kind, severity, note, msg.userid)

    @request(
        "raiseall", guest=True, form={**EXCEPTION, "dry_run": bool, "userid": int, "states": int}
    )
    def raiseall(self, msg):
        body = msg.body
        userid = body["userid"] & ANY_USER
        permit(msg, userid, "can only raise exceptions on")
        severity, kind, note = _exception_of(body)
        matches = [
            job
            for job in self.jobs.active.values()
            if job.state & body["states"] and userid in (ANY_USER, job.userid)
        ]
        if not body["dry_run"]:
            for job in matches:
                if job.state & ACTIVE:
                    self.events.raise_exception(job, kind, severity, note, msg.userid)
        return {"count": len(matches), "errors": 0}

    # -- kill --------------------------------------------------------------------------------------

    @request("kill", guest=True, form={"id": int, "signum": int})
    def kill(self, msg):
        signum = msg.body["signum"]
        if signum not in signal.valid_signals():
            raise OSError(errno.EINVAL, "Invalid signal number")
        job = self.find(msg.body["id"], errno.EINVAL, (errno.EINVAL, "unknown job id"))
        permit(msg, job.userid, "can only send signals to")
        if job.state != RUN:
            raise OSError(errno.EINVAL, "job is not running")
        self.service.execution.kill(job, signum)

    # -- urgency, memo -----------------------------------------------------------------------------

    @request("urgency", guest=True, form={"id": int, "urgency": int})
    def urgency(self, msg):
        body = msg.body
        urgency = body["urgency"]
        if not URGENCY_MIN <= urgency <= URGENCY_MAX:
            raise OSError(errno.EINVAL, "urgency value is out of range")
        job = self.find(body["id"], errno.EINVAL, (errno.EINVAL, "unknown job"))
        permit(msg, job.userid, "can only reprioritize")
        if msg.is_guest and urgency > max(16, job.urgency):
            raise OSError(errno.EPERM, "guests can only adjust urgency <= default")
        if job.state & (RUN | CLEANUP):
            raise OSError(errno.EINVAL, "urgency cannot be changed once resources are allocated")
        old = job.urgency
        self.events.post(job, "urgency", {"userid": msg.userid, "urgency": urgency})
        return {"old_urgency": old}

    @request("memo", guest=True, form={"id": int, "memo": dict})
    def memo(self, msg):
        job = self.find(msg.body["id"])
        permit(msg, job.userid, "can only add a memo to")
        self.events.post(job, "memo", msg.body["memo"])

    # -- purge -------------------------------------------------------------------------------------

    @request("purge", form={"num_limit": int, "force": bool})
    def purge(self, msg):
        """``purge``: remove the oldest inactive jobs beyond a number, but those in housekeeping, here and in the KVS."""
        limit, inactive = msg.body["num_limit"], self.jobs.inactive
        if limit < 0:
            raise OSError(errno.EINVAL, "num limit must be >= 0")
        oldest = list(inactive.values())[: max(0, len(inactive) - limit)]
        jobs = [job for job in oldest if job.id not in self.service.housekeeping.visits]
        for job in jobs if msg.body["force"] else ():
            del inactive[job.id]
            self.jobs.purged += 1
            self.service.jobtap.call(job, "job.inactive-remove")
            self.events.puts.append(["unlink", job.eventlog[: -len(".eventlog")]])
        return {"count": len(jobs)}


def _exception_of(body):
    """(severity, type, note) of a request; OSError (EPROTO) if they are wrong."""
    severity, kind = body["severity"], body["type"]
    if not 0 <= severity <= 7:
        raise OSError(errno.EPROTO, "invalid exception severity")
    if not kind or any(c.isspace() for c in kind):
        raise OSError(errno.EPROTO, "invalid exception type")
    return severity, kind, body.get("note") or ""
