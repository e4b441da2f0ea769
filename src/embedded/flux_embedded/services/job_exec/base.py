# SPDX-License-Identifier: LGPL-3.0-or-later
"""The common base of mock and real jobs."""

from flux_engine.formats import idset, rset


class ExecJob:
    """A job that execution was asked to start.

    Attributes:
        msg: the start request, to which all responses are sent
        id, R, jobspec: from the request
        expiration (float): end of its time, seconds since the epoch; 0: none
        alarm (Call): for the next event, or None
    """

    __slots__ = ("service", "msg", "id", "R", "jobspec", "expiration", "alarm")

    def __init__(self, service, msg, body):
        self.service = service
        self.msg = msg
        self.id = body["id"]
        self.R = body["R"]
        self.jobspec = body["jobspec"]
        self.expiration = self.R["execution"].get("expiration") or 0.0
        self.alarm = None

    def set_alarm(self, when, function):
        """Call ``function()`` at a time, instead of the one set before."""
        self.cancel_alarm()
        post = self.service.task.post  # in the service's own greenlet
        self.alarm = self.service.kernel.call_at(when, lambda: post(function))

    def cancel_alarm(self):
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None

    def answer(self, kind, data):
        """Send one response to the start request (RFC 32)."""
        self.service.respond(self.msg, {"id": self.id, "type": kind, "data": data})

    def lost(self, ranks):
        """These broker ranks (a set) are gone; a job that runs there ends."""
        for rank, host in zip(rset.ranks(self.R), rset.hosts(self.R)):
            if rank in ranks:
                note = f"lost contact with {host} (rank {rank})"
                # The job manager publishes the exception, which ends the job like any other.
                self.answer("exception", {"severity": 0, "type": "node-failure", "note": note})
                return

    def finish(self, status, *events):
        """The job has ended with a wait status; `events` are for the eventlog of its execution."""
        events = (*events, ("complete", {"status": status}), ("done", None))
        self.service.append(self.id, "exec.eventlog", *events)
        self.answer("finish", {"status": status})
        self.release()

    def release(self):
        """The last response: execution is done with all ranks."""
        self.answer("release", {"ranks": idset.text(rset.ranks(self.R)), "final": True})
        self.service.ended(self)
