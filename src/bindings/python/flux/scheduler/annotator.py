"""Telling the users of pending jobs when these are expected to start, and what they wait for.

Both are annotations, which the job manager keeps and shows. They are not sent for nothing: a job is
*mature* when its request is a second old, and then again a second after something was told of it.
Most jobs of a busy machine start before that. An estimate that comes too early is remembered and
told when it is time; a reason is found anew by the forecast that is asked for then.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Any, Callable, Optional

from flux.scheduler.host import wants_forecast

if TYPE_CHECKING:
    from flux.scheduler.host import Clock, ErrorReporter
    from flux.scheduler.requests import PendingJob

#: An estimate that moved by less than this many seconds is not sent again.
ESTIMATE_GRAIN_S = 1.0

#: Seconds after its request from which a job's user is told of estimates and reasons, and between two
#: times.
QUIET_TIME_S = 1.0

#: What is told within so many seconds is told at one time.
SAME_TIME_S = 0.1


class Annotator:
    """Sends estimates and reasons when it is time to.

    Args:
        handle: the Flux handle
        clock (Clock): the reactor's time
        forecast: called when there is time to tell what was not told before
        errors (ErrorReporter): where failures are reported
    """

    def __init__(
        self, handle: Any, clock: Clock, forecast: Callable[[], None], errors: ErrorReporter
    ) -> None:
        self._clock = clock
        self._forecast = forecast
        self._errors = errors
        self._anybody_looks = wants_forecast(handle)
        #: heap of (time, job id, job): when there will be a time to tell of jobs
        self._silent: list[tuple[float, int, PendingJob]] = []
        self._timer = handle.timer_watcher_create(0.0, self._expired)
        self._armed = False
        #: when reasons were found last, and whether they are to be when the timer expires
        self._reasons_at = -math.inf
        self._reasons_due = False

    def __len__(self) -> int:
        """How many jobs there will be a time for."""
        return len(self._silent)

    def is_mature(self, job: PendingJob) -> bool:
        """Whether it is time to tell of a job; if not, a forecast is asked for when it is."""
        now, told = self._clock.now(), job.told
        if told is None:
            when = job.came + QUIET_TIME_S
        elif now - told <= SAME_TIME_S:
            return True
        else:
            when = told + QUIET_TIME_S
        if now >= when:
            return True
        if not job.silent:
            job.silent = True
            heapq.heappush(self._silent, (when, job.jobid, job))
            if not self._armed:
                self._arm(when - now)
        return False

    def estimate(self, job: PendingJob, when: Optional[float], kind: Optional[str]) -> None:
        """Tell when a job is expected to start, now or when it is mature; as `show_estimate`."""
        if not self._anybody_looks:
            # Of a simulation for start times, first promises are a part: it asks whether they are kept.
            if kind != "promised" or when is None or job._last_annotation is not None:
                return
        elif not self.is_mature(job):
            job.estimate = (when, kind)
            return
        job.estimate = None
        shown = job._last_annotation
        if when is None:
            if shown is None:
                return
            kind = None
        elif (
            shown is not None and abs(when - shown) < ESTIMATE_GRAIN_S and kind == job.estimate_kind
        ):
            return
        job._last_annotation = when
        sched: dict[str, Any] = {"t_estimate": when}
        if kind != job.estimate_kind:
            job.estimate_kind = sched["t_estimate_kind"] = kind
        self._tell(job, sched)

    def reason(self, job: PendingJob, reason: Optional[str]) -> None:
        """Tell what a job waits for, if it is mature; as `show_reason`."""
        if reason != job.reason_shown and self._anybody_looks and self.is_mature(job):
            job.reason_shown = reason
            self._tell(job, {"reason_pending": reason})

    def wants_reasons(self) -> bool:
        """Whether reasons are to be found now.

        For passes that follow one another closely they are found once, by a forecast that is asked
        for when that can be.
        """
        now = self._clock.now()
        if 0 <= now - self._reasons_at < min(QUIET_TIME_S, SAME_TIME_S):
            if not self._reasons_due:
                self._reasons_due = True
                self._arm(SAME_TIME_S)
            return False
        self._reasons_at = now
        return True

    def _tell(self, job: PendingJob, sched: dict[str, Any]) -> None:
        now = self._clock.now()
        if job.told is None or now - job.told > SAME_TIME_S:
            job.told = now
        job.request.annotate({"sched": sched})

    def _arm(self, seconds: float) -> None:
        self._armed = True
        self._timer.reset(after=max(SAME_TIME_S, seconds))

    def _expired(self, handle: Any, watcher: Any, revents: int, args: Any) -> None:
        silent, now = self._silent, self._clock.now()
        waits, self._reasons_due = self._reasons_due, False
        while silent and silent[0][0] <= now:
            _, _, job = heapq.heappop(silent)
            job.silent = False
            if not job.request.finalized:
                waits = True
                if job.estimate is not None:
                    self._errors.guard("estimate", self.estimate, job, *job.estimate)
        self._armed = bool(silent)
        if silent:
            self._arm(silent[0][0] - now)
        if waits:
            self._forecast()
