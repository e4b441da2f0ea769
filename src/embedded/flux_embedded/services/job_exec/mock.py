# SPDX-License-Identifier: LGPL-3.0-or-later
"""Mock execution: a job that only takes time.

``attributes.system.exec.test`` may have ``run_duration`` (FSD; by default the job's time limit, for ever without a
limit, and under the virtual clock 1s) and ``wait_status`` (int, the job's wait status; default 0).
"""

import signal

from flux_embedded.services.job_exec import base
from flux_engine.formats import form, fsd

_FORM = {"run_duration?": fsd.parse, "wait_status?": int}
EXPIRED = {"severity": 0, "type": "timeout", "note": "resource allocation expired"}


class MockJob(base.ExecJob):
    """One mock job."""

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
        except ValueError as exc:
            self.answer("exception", {"severity": 0, "type": "exec", "note": str(exc)})
            self._finish(None)
            return
        limit = self.jobspec["attributes"]["system"].get("duration")
        duration = 1.0 if self.service.kernel.clock.virtual else limit or float("inf")
        if "run_duration" in test:
            duration = fsd.parse(test["run_duration"])
        self._end = self.service.kernel.time + duration
        events = (("init", None), ("starting", None), ("recoverable", None))
        self.service.append(self.id, "exec.eventlog", *events)
        self.answer("start", {})
        self._wind()

    def _wind(self):
        """Set the alarm for the end of the job, or of its time, whichever is earlier."""
        self.cancel_alarm()
        expiration = self.expiration
        if expiration and expiration < self._end:
            self.set_alarm(expiration, self._expire)
        elif self._end != float("inf"):
            self.set_alarm(self._end, self._ran)

    def set_expiration(self, expiration):
        self.expiration = expiration
        if not self._over:
            self._wind()

    def _ran(self):
        self._finish(self._test.get("wait_status", 0))

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
            self.release()
        else:
            self.finish(int(status))

    def abandon(self):
        self.cancel_alarm()
