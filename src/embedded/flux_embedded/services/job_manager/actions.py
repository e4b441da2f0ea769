# SPDX-License-Identifier: LGPL-3.0-or-later
"""Requests that act on jobs from outside: raise, raiseall, kill, urgency, memo, purge, update, wait, drain, idle; `service` has their payloads.

Error texts are those that the commands print: ``unknown job id``, ``job is inactive`` and so on.
"""

import errno
import signal

from flux.jobtap.errors import JobtapError, Rejected
from flux_embedded.services.job_manager.jobtap.host import JobSource
from flux_embedded.services.job_manager.part import Part
from flux_engine.formats import states
from flux_engine.formats.dotted import update_paths
from flux_engine.formats.jobid import MAX_ID
from flux_engine.formats.states import (
    ACTIVE,
    CLEANUP,
    FLAG_WAITABLE,
    INACTIVE,
    PENDING,
    RUN,
    RUNNING,
    URGENCY_MAX,
    URGENCY_MIN,
)
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


DURATION = "attributes.system.duration"


class Update(Part):
    """Updates of a job's jobspec: ``job-manager.update`` and the plugins' own (RFC 21, jobtap document).

    A request names dotted keys and values. Each key needs a plugin that handles ``job.update.KEY``; then the
    updated jobspec is validated, checked for feasibility if a plugin asks for that, and, when a running
    job's duration changes, the scheduler is asked about the new expiration. Only then is anything posted.
    """

    @request("update", guest=True, form={"id": int, "updates": object}, later=True)
    def update(self, msg):
        body = msg.body
        updates = body["updates"]
        check_updates(updates)
        job = self.find(body["id"], inactive=errno.EINVAL)
        permit(msg, job.userid, "may only update")
        if job.state > RUN:
            raise OSError(errno.EINVAL, "job is cleaning up")
        if not updates:
            self.service.respond(msg)
            return
        cred = {"userid": msg.userid, "rolemask": msg.rolemask}
        updates, validated, feasibility = self._ask_plugins(job, dict(updates), cred)
        jobspec = update_paths(job.jobspec, updates)
        if not validated:
            self._validate(job, jobspec)
        if feasibility:
            asked = self.service.rpc("feasibility.check", {"jobspec": jobspec})
            asked.then(self._feasible, msg, job, updates)
        else:
            self._ask_scheduler(msg, job, updates)

    def _ask_plugins(self, job, requested, cred):
        """Ask the plugins to allow every key; returns (updates, all of them validated already, feasibility check wanted)."""
        updates, validated, feasibility = dict(requested), True, False
        for key in requested:
            topic = f"job.update.{key}"
            if not self.service.jobtap.handlers(topic):
                raise OSError(errno.EINVAL, f"update of {key} not supported")
            more = {"key": key, "value": requested[key], "updates": requested, "cred": cred}
            try:
                out = self.service.jobtap.call_or_raise(job, topic, JobSource(job, more))
            except JobtapError as exc:
                raise OSError(errno.EINVAL, str(exc) or f"update of {key} rejected") from None
            validated = validated and bool(out.get("validated"))
            feasibility = feasibility or bool(out.get("feasibility"))
            updates.update(out.get("updates") or {})
        return updates, validated, feasibility

    def _validate(self, job, jobspec):
        try:
            self.service.jobtap.call_rejecting(job, "job.validate", jobspec=jobspec)
        except Rejected as exc:
            raise OSError(errno.EINVAL, str(exc)) from None

    def _feasible(self, future, msg, job, updates):
        if self.service.is_allowed(future, msg):
            self._ask_scheduler(msg, job, updates)

    def _ask_scheduler(self, msg, job, updates):
        if DURATION not in updates or job.state != RUN or job.R is None:
            self._post(msg, job, updates)
            return
        duration = updates[DURATION]
        # A scheduler may leave R without times; with a start of 0, the job would end at once.
        start = job.R["execution"].get("starttime") or self.service.kernel.time
        expiration = start + duration if duration else 0.0
        if duration and expiration <= self.service.kernel.time:
            text = "requested duration places job expiration in the past"
            self.service.respond_error(msg, errno.EINVAL, text)
            return
        asked = self.service.rpc("sched.expiration", {"id": job.id, "expiration": expiration})
        asked.then(self._scheduler_answered, msg, job, updates, expiration)

    def _scheduler_answered(self, future, msg, job, updates, expiration):
        # Without a scheduler, or with one that lacks the method, only execution enforces the limit.
        if self.service.is_allowed(future, msg, "scheduler refused expiration update: "):
            self._post(msg, job, updates, expiration)

    def _post(self, msg, job, updates, expiration=None):
        """Make the update, after another check of the job's state, which may have changed meanwhile."""
        if job.state > RUN or (expiration is None and job.state == RUN and DURATION in updates):
            text = "job is inactive" if job.state == INACTIVE else "job state changed, try again"
            self.service.respond_error(msg, errno.EINVAL, text)
            return
        self.events.post(job, "jobspec-update", updates)
        if expiration is not None:
            self.events.post(job, "resource-update", {"expiration": expiration})
            self.service.execution.set_expiration(job, expiration)
        self.events.send(self.service.respond, msg)


def check_updates(updates):
    """Raise OSError EINVAL unless `updates` can be the context of a jobspec-update event (RFC 21)."""
    if not isinstance(updates, dict):
        raise OSError(errno.EINVAL, "failed to pack jobspec-update event")
    for key in updates:
        first, *rest = key.split(".")
        if first not in ("attributes", "resources", "tasks"):
            raise OSError(errno.EINVAL, "one or more jobspec updates are invalid")
        if first != "attributes" or not rest or "" in rest:
            raise OSError(errno.EINVAL, f"update of {key} not supported")


ANY = MAX_ID
NONE_LEFT = "there are no more waitable jobs"


class Waits(Part):
    """Requests answered at the end of jobs, and the waitable jobs not waited for yet.

    ==========  ==========================================================================================
    wait        ``{id}`` -> ``{id, success, errstr}`` when that waitable job, or any (-1), is inactive; each
                job can be waited for once. ECHILD: not waitable, waited for before, or none left
    drain       -> answered when no job is active
    idle        -> ``{pending: N}`` when no job is in RUN or CLEANUP; N jobs are still pending
    ==========  ==========================================================================================
    """

    def __init__(self, service):
        super().__init__(service)
        self._zombies = {}
        self._waiting = service.keep()
        self._drain = service.keep()
        self._idle = service.keep()

    @request("wait", form={"id": int}, later=True)
    def wait(self, msg):
        id = _id(msg)
        zombie = next(iter(self._zombies), None) if id == ANY else id
        if zombie in self._zombies:
            self._answer(msg, self._zombies.pop(zombie))
            return
        job = self.jobs.active.get(id)
        text = None
        if id == ANY:
            text = None if self._waitable_left() else NONE_LEFT
        elif job is None:
            text = "invalid job id, or job may be inactive and not waitable"
        elif any(_id(other) == id for other in self._waiting):
            text = "job id already has a waiter"
        elif not job.flags & FLAG_WAITABLE:
            text = "job was not submitted with FLUX_JOB_WAITABLE"
        if text is not None:
            raise OSError(errno.ECHILD, text)
        self._waiting.append(msg)

    def _waitable_left(self):
        return any(job.flags & FLAG_WAITABLE for job in self.jobs.active.values())

    def inactive(self, job):
        """`job` has become inactive."""
        if job.flags & FLAG_WAITABLE:
            # A request for this job precedes one for any job.
            for msg in sorted(self._waiting, key=lambda msg: _id(msg) == ANY):
                if _id(msg) in (ANY, job.id):
                    self._waiting.remove(msg)
                    self._answer(msg, job)
                    break
            else:
                self._zombies[job.id] = job
        if self._waiting and not self._waitable_left():
            for msg in [msg for msg in self._waiting if _id(msg) == ANY]:
                self._waiting.remove(msg)
                self.service.respond_error(msg, errno.ECHILD, NONE_LEFT)
        self.check()

    def _answer(self, msg, job):
        success, text = outcome(job)
        self.events.send(
            self.service.respond, msg, {"id": job.id, "success": success, "errstr": text}
        )

    @request("drain", later=True)
    def drain(self, msg):
        self._drain.append(msg)
        self.check()

    @request("idle", later=True)
    def idle(self, msg):
        self._idle.append(msg)
        self.check()

    def check(self):
        """Answer the requests whose condition is met."""
        if not (self._drain or self._idle):
            return
        jobs = self.jobs.active
        if not jobs:
            for msg in self._drain:
                self.events.send(self.service.respond, msg)
            self._drain.clear()
        if self._idle and not any(job.state & RUNNING for job in jobs.values()):
            pending = sum(1 for job in jobs.values() if job.state & PENDING)
            for msg in self._idle:
                self.events.send(self.service.respond, msg, {"pending": pending})
            self._idle.clear()


def _id(msg):
    """The job that a request ``wait`` waits for, or ANY."""
    return ANY if msg.body["id"] == -1 else msg.body["id"]


def outcome(job):
    """(success, text) of a job that has ended, the text as ``flux job wait`` shows it."""
    if job.first_fatal is not None:
        kind, note = job.first_fatal["type"], job.first_fatal.get("note") or ""
        return False, f"Fatal exception type={kind} {note}".rstrip()
    return not job.status, states.ending(job.status or 0)
