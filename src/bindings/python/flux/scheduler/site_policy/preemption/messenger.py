# SPDX-License-Identifier: LGPL-3.0-or-later
"""What the job manager is asked to do with jobs that give way: exceptions, signals, marks.

Nothing here waits for an answer: the job manager may have a request of its own open with the
scheduler, and then both would wait for ever.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Callable

from flux.scheduler.host import name_of

if TYPE_CHECKING:
    from flux.scheduler.host import ErrorReporter

#: The type of the exceptions (RFC 21 leaves the list of types open).
EXCEPTION = "preempt"

#: Answers about a job that has ended meanwhile, which is as good.
ENDED = (errno.ENOENT, errno.EINVAL)


class Messenger:
    """Sends such requests.

    Args:
        handle: the Flux handle
        errors (ErrorReporter): where refusals are reported
    """

    def __init__(self, handle: Any, errors: ErrorReporter) -> None:
        self._handle = handle
        self._errors = errors

    def warn(self, jobid: int, note: str) -> None:
        """Have a job's log say something; it runs on."""
        self._raise(jobid, 1, note, None)

    def end(self, jobid: int, note: str, done: Callable[[int], Any]) -> None:
        """End a job.

        Args:
            done: called with 0, ``errno.ENOENT`` if the job has ended already, or the error number
                of a refusal, which is reported
        """
        self._raise(jobid, 0, note, done)

    def signal(self, jobid: int, signum: int) -> None:
        """Send a signal to the tasks of a job."""
        self._send("kill", jobid, {"id": jobid, "signum": signum}, None)

    def mark(self, jobid: int, text: str) -> None:
        """Leave a mark on a job, ``{user.preempted}`` of ``flux jobs -o``."""
        self._send("memo", jobid, {"id": jobid, "memo": {"preempted": text}}, None)

    def _raise(
        self, jobid: int, severity: int, note: str, done: Callable[[int], Any] | None
    ) -> None:
        payload = {"id": jobid, "type": EXCEPTION, "severity": severity, "note": note}
        self._send("raise", jobid, payload, done)

    def _send(
        self,
        method: str,
        jobid: int,
        payload: dict[str, Any],
        done: Callable[[int], Any] | None,
    ) -> None:
        def answered(future: Any) -> None:
            error = 0
            try:
                future.get()
            except OSError as exc:
                error = exc.errno or errno.EIO
                if error in ENDED:
                    error = errno.ENOENT
                else:
                    self._errors.report(f"preemption: {method} of {name_of(jobid)}: {exc}")
            if done is not None:
                self._errors.guard(f"preemption: {method} of {name_of(jobid)}", done, error)

        try:
            self._handle.rpc(f"job-manager.{method}", payload).then(answered)
        except OSError as exc:
            self._errors.report(f"preemption: {method} of {name_of(jobid)}: {exc}")
