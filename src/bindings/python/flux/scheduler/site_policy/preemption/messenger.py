# SPDX-License-Identifier: LGPL-3.0-or-later
"""Requests to the job manager that warn and end victims.

No code here waits for an answer: the job manager may itself wait for the scheduler, and then
neither would go on.
"""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, Any, Callable

from flux.scheduler.disclosure import is_private
from flux.scheduler.host import name_of
from flux.scheduler.site_policy.preemption.record import EXCEPTION
from flux.scheduler.site_policy.preemption.state import Part
from flux.scheduler.times import duration_text

if TYPE_CHECKING:
    from flux.scheduler.site_policy.preemption.record import Victim

#: Errors for a job that has already ended, which count as success.
ENDED = (errno.ENOENT, errno.EINVAL)


class Messenger(Part):
    """Sends requests that warn and end victims."""

    @property
    def is_private(self) -> bool:
        """Whether users must not see the names of others' jobs."""
        return is_private(self._host.configuration())

    def warn(self, victim: Victim, deadline: float, queue: str | None) -> None:
        """Warn a job that it will be ended at `deadline` (seconds since the epoch) for a job of a
        queue."""
        when = time.strftime("%H:%M:%S", time.localtime(deadline))
        self._raise(victim.jobid, 1, f"will end at {when} for a job{_of(queue)}")
        cls = self._classes.entries.get(victim.cls)
        if cls is not None and cls.signal:
            self._send("kill", victim.jobid, {"id": victim.jobid, "signum": cls.signal})

    def spare(self, jobid: int, why: str) -> None:
        """Tell a warned job that it may continue."""
        self._raise(jobid, 1, f"will not be ended now: {why}")

    def end(
        self,
        victim: Victim,
        taker: int,
        queue: str | None,
        refused: Callable[[], None],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """End a job for another, and count it.

        Args:
            taker: id of the job that it is ended for
            queue: that job's queue
            refused: called if the job manager refuses, and the job continues
            failed: called before that, and also if the job has already ended
        """
        jobid, now = victim.jobid, self._host.now()
        ran = duration_text(max(0.0, now - victim.start), 2)
        for_whom = self.name_for_users(taker, queue)
        of_queue = f" ({queue})" if queue and not self.is_private else ""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        mark = f"{stamp} for {for_whom}, class {victim.cls}"  # {user.preempted} of flux jobs -o
        self._send("memo", jobid, {"id": jobid, "memo": {"preempted": mark}})

        def done(error: int) -> None:
            if error == 0:
                self._counts.add(victim, "victims")
                self._counts.add(victim, "node_hours", victim.node_hours(now))
                return
            failed()
            if error != errno.ENOENT and jobid in self._running.jobs:
                self._running.leave_alone(jobid)
                refused()

        self._raise(jobid, 0, f"preempted for {for_whom}{of_queue}; ran {ran}", done)

    def name_for_users(self, jobid: int, queue: str | None) -> str:
        """Return the name of a job of a queue in texts for other users."""
        return f"a job{_of(queue)}" if self.is_private else name_of(jobid)

    def _raise(
        self, jobid: int, severity: int, note: str, done: Callable[[int], Any] | None = None
    ) -> None:
        payload = {"id": jobid, "type": EXCEPTION, "severity": severity, "note": note}
        self._send("raise", jobid, payload, done)

    def _send(
        self,
        method: str,
        jobid: int,
        payload: dict[str, Any],
        done: Callable[[int], Any] | None = None,
    ) -> None:
        """Send a request; ``done`` is called with 0, ``errno.ENOENT`` if the job has already ended,
        or the errno of a refusal, which is reported."""

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
            self._host.handle.rpc(f"job-manager.{method}", payload).then(answered)
        except OSError as exc:
            self._errors.report(f"preemption: {method} of {name_of(jobid)}: {exc}")


def _of(queue: str | None) -> str:
    return "" if queue is None else f" of {queue}"
