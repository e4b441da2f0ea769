# SPDX-License-Identifier: LGPL-3.0-or-later
"""The common base of mock and real jobs, and mock execution: a job that only takes time.

``attributes.system.exec.test`` may have ``run_duration`` (FSD; by default the job's time limit, for ever without a
limit, and under the virtual clock 1s), ``wait_status`` (int, the job's wait status; default 0) and ``mock_exception``
(``init`` or ``run``: an exception before or after the start).
"""

import signal
from syslog import LOG_ERR

from flux_engine.formats import form, fsd, idset, rset


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
        post = self.service.post  # in the service's own greenlet
        self.alarm = self.service.kernel.call_at(when, lambda: post(function))

    def cancel_alarm(self):
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None

    def answer(self, kind, data):
        """Send one response to the start request (RFC 32)."""
        self.service.respond(self.msg, {"id": self.id, "type": kind, "data": data})

    def lost(self, ranks):
        """End the job if it runs on any of these broker ranks (a set), which are gone."""
        for rank, host in zip(rset.ranks(self.R), rset.hosts(self.R)):
            if rank in ranks:
                note = f"lost contact with {host} (rank {rank})"
                # The job manager publishes the exception, which ends the job like any other.
                self.answer("exception", {"severity": 0, "type": "node-failure", "note": note})
                return

    def finish(self, status, *events):
        """Report the end of the job, with a wait status; `events` are for the eventlog of its execution."""
        events = (*events, ("complete", {"status": status}), ("done", None))
        self.service.append(self.id, "exec.eventlog", *events)
        self.answer("finish", {"status": status})
        self.release()

    def release(self):
        """Send the last response: execution is done with all ranks."""
        self.answer("release", {"ranks": idset.text(rset.ranks(self.R)), "final": True})
        self.service.ended(self)


_FORM = {"run_duration?": str, "wait_status?": int, "mock_exception?": str}
EXPIRED = {"severity": 0, "type": "timeout", "note": "resource allocation expired"}


class MockJob(ExecJob):
    __slots__ = ("_test", "_end", "_over")

    def __init__(self, service, msg, body, test):
        super().__init__(service, msg, body)
        self._test = test
        self._over = False
        self._end = 0.0

    def start(self):
        test = self._test
        try:
            form.check(test, _FORM, "exec.test")
            if test.get("mock_exception") == "init":
                raise ValueError("mock initialization exception generated")
        except ValueError as exc:
            self._fail(str(exc))
            self._finish(None)
            return
        limit = self.jobspec["attributes"]["system"].get("duration")
        duration = 1.0 if self.service.kernel.clock.virtual else limit or float("inf")
        if "run_duration" in test:
            try:
                duration = fsd.parse(test["run_duration"])
            except ValueError:  # it runs, as in flux-core
                text = f"Unable to parse run duration: {test['run_duration']}"
                self.service.log(LOG_ERR, text)
        self._end = self.service.kernel.time + duration
        events = (("init", None), ("starting", None), ("recoverable", None))
        self.service.append(self.id, "exec.eventlog", *events)
        self.answer("start", {})
        self._wind()
        if test.get("mock_exception") == "run":
            self._fail("mock run exception generated")  # published, it ends the job like any other

    def _fail(self, note):
        self.answer("exception", {"severity": 0, "type": "exec", "note": note})

    def _wind(self):
        """Set the alarm for the end of the job, or of its time, whichever is earlier."""
        self.cancel_alarm()
        expiration = self.expiration
        if expiration and expiration < self._end:
            self.set_alarm(expiration, self._expire)
        elif self._end != float("inf"):
            self.set_alarm(self._end, lambda: self._finish(self._test.get("wait_status", 0)))

    def set_expiration(self, expiration):
        self.expiration = expiration
        if not self._over:
            self._wind()

    def _expire(self):
        self.answer("exception", EXPIRED)
        self._finish(signal.SIGALRM)

    def exception(self, kind):
        self._finish(signal.SIGTERM)

    def _finish(self, status):
        """End the job with a wait status; None: it never started."""
        if self._over:
            return
        self._over = True
        self.cancel_alarm()
        if status is None:
            self.service.append(self.id, "exec.eventlog", ("init", None), ("done", None))
            self.release()
        else:
            self.finish(int(status))

    def abandon(self):
        self.cancel_alarm()
