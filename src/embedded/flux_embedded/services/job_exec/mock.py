# SPDX-License-Identifier: LGPL-3.0-or-later
"""Mock execution: a job that only takes time.

``attributes.system.exec.test`` may have ``run_duration`` (FSD; by default as long as the job may run, for ever without a
limit, and under the virtual clock 1s), ``wait_status`` (int, what the job ends with; default 0), ``mock_exception`` (``init`` or ``run``: raise an ``exec``
exception then) and ``override`` (not 0: it starts and ends when it is told, see ``job-exec.override``).
"""

import errno
import signal

from flux_embedded.services.job_exec import base
from flux_engine.formats import fsd
from flux_engine.formats.levels import LOG_ERR

#: What the keys that a real Flux knows must be.
_FORM = {"run_duration": str, "wait_status": int, "mock_exception": str}
EXPIRED = {"severity": 0, "type": "timeout", "note": "resource allocation expired"}


class MockJob(base.ExecJob):
    """One mock job."""

    __slots__ = ("_test", "_end", "_over", "_duration", "_running")

    def __init__(self, service, msg, body, test):
        super().__init__(service, msg, body)
        self._test = test
        self._over = False
        self._end = 0.0
        self._duration = 0.0
        self._running = False

    def start(self):
        test = self._test
        for key, kind in {None: dict, **_FORM}.items():
            value = test if key is None else test.get(key)
            if type(value) is not kind and not (value is None and key is not None):
                name = f"exec.test.{key}" if key else "exec.test"
                self.service.log(LOG_ERR, f"{name}={value!r}: not {kind.__name__}")
                self._test = {}
                self._fail("failed to initialize testconf: No such file or directory")
                return
        fault = test.get("mock_exception")
        limit = self.jobspec["attributes"]["system"].get("duration")
        duration = 1.0 if self.service.kernel.clock.virtual else limit or float("inf")
        if "run_duration" in test:
            try:
                duration = fsd.parse(test["run_duration"])
            except ValueError:
                text = f"Unable to parse run duration: {test['run_duration']}"
                self.service.log(LOG_ERR, text)
                # As on a real Flux: such a job runs to the end of its time.
                duration = float("inf")
        self._duration = duration
        if fault == "init":
            self._fail("mock initialization exception generated")
            return
        self.service.append(self.id, "exec.eventlog", ("init", None), ("starting", None))
        if test.get("override"):
            return
        self._run(fault)

    def _run(self, fault=None):
        self._running = True
        self._end = self.service.kernel.time + self._duration
        self.answer("start", {})
        self.service.append(self.id, "exec.eventlog", ("recoverable", None))
        if fault == "run":
            note = "mock run exception generated"
            self.answer("exception", {"severity": 0, "type": "exec", "note": note})
            self._finish(signal.SIGTERM)
            return
        self._wind()

    def override(self, event, status):
        """Do what a job that waits to be told is told.

        Raises:
            OSError: EINVAL, it does not wait for that
        """
        text = None
        if not self._test.get("override"):
            text = "Job not in exec override mode"
        elif event not in ("start", "finish"):
            text = "Invalid event"
        elif event == "start" and self._running:
            text = "Job already running"
        elif event == "finish" and not self._running:
            text = "Job not running"
        if text is not None:
            raise OSError(errno.EINVAL, text)
        if event == "start":
            self._run()
        else:
            self._finish(status)

    def _fail(self, note):
        self.answer("exception", {"severity": 0, "type": "exec", "note": note})
        self._finish(None)

    def _wind(self):
        """Set the alarm for whatever comes first: the end of the job, or of its time."""
        if self.alarm is not None:
            self.alarm.cancel()
        expiration = self.expiration
        if expiration and expiration < self._end:
            self.set_alarm(expiration, self._expire)
        elif self._end != float("inf"):
            self.set_alarm(self._end, self._ran)
        else:
            self.alarm = None

    def set_expiration(self, expiration):
        self.expiration = expiration
        if not self._over:
            self._wind()

    def _ran(self):
        self._finish(self._test.get("wait_status", 0))

    def _expire(self):
        if not self._over:
            self._over = True
            self.answer("exception", EXPIRED)
            self._over = False
            self._finish(signal.SIGALRM)

    def exception(self, kind):
        self._finish(signal.SIGTERM)

    def kill(self, signum):
        """There is no process that a signal could reach: the job goes on, as on a real host."""

    def _finish(self, status):
        """End the job with a wait status; None: it never began."""
        if self._over:
            return
        self._over = True
        if self.alarm is not None:
            self.alarm.cancel()
        if status is not None:
            status = int(status)
            self.service.append(
                self.id, "exec.eventlog", ("complete", {"status": status}), ("done", None)
            )
            self.answer("finish", {"status": status})
        self.release()

    def abandon(self):
        if self.alarm is not None:
            self.alarm.cancel()
