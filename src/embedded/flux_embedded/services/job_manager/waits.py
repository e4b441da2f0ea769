# SPDX-License-Identifier: LGPL-3.0-or-later
"""Requests answered at the end of jobs: wait, drain, idle.

==========  ==========================================================================================
wait        ``{id}`` -> ``{id, success, errstr}`` when that waitable job, or any (-1), is inactive; each
            job can be waited for once. ECHILD: not waitable, waited for before, or none left
drain       -> answered when no job is active
idle        -> ``{pending: N}`` when no job is in RUN or CLEANUP; N jobs are still pending
==========  ==========================================================================================
"""

import errno

from flux_embedded.services.job_manager.part import Part
from flux_engine.formats import states
from flux_engine.formats.jobid import MAX_ID
from flux_engine.formats.states import FLAG_WAITABLE, PENDING, RUNNING
from flux_engine.kernel.service import request

ANY = MAX_ID
NONE_LEFT = "there are no more waitable jobs"


class Waits(Part):
    """The open requests, and the waitable jobs not waited for yet."""

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
