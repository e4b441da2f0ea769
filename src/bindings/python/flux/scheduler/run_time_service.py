# SPDX-License-Identifier: LGPL-3.0-or-later
"""The run times of jobs over reloads and restarts, and without the time that cleaning up takes.

A scheduler hears of the end of a job when its resources come back: after epilog and housekeeping,
without the result. The service ``job-list`` knows both, and the jobs that ended while no scheduler
was loaded. So it is asked for each job that ends, and at the start for those that ended since the
checkpoint was written; nothing is lost with a checkpoint that is written once in ten minutes. In an
instance without ``job-list``, the time until the resources came back is learnt.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any, Callable

from flux.scheduler.checkpoint import in_parts
from flux.scheduler.history import PredictionScore, RunTimes
from flux.scheduler.requests import RunningJob

if TYPE_CHECKING:
    from flux.scheduler.checkpoint import Checkpoints
    from flux.scheduler.host import ErrorReporter, Timer

#: The key of the history, its version, and seconds between two writes.
KEY = "checkpoint.sched-history"
VERSION = 1
SAVE_INTERVAL_S = 600.0

#: Jobs that are asked for at the start: those that ended last.
MAX_JOBS_ASKED = 2000

#: Seconds after which ``job-list`` is asked again at the start, each time twice as many: while an
#: instance starts it may be loaded after the scheduler.
FIRST_RETRY_S = 1.0
LAST_RETRY_S = 64.0

#: Attributes asked for of a job.
ATTRIBUTES = ["userid", "ncores", "duration", "t_run", "t_cleanup", "t_inactive", "result"]

#: State and results of jobs (FLUX_JOB_STATE_INACTIVE and FLUX_JOB_RESULT_... of flux.constants).
INACTIVE = 64
RESULTS = {1: "completed", 2: "failed", 4: "canceled", 8: "timeout"}


def ask_for_ended_jobs(
    handle: Any,
    since: float,
    attributes: list[str],
    learn: Callable[[list[dict[str, Any]]], None],
    call_at: Callable[[float, Callable[[], None]], Timer],
    now: Callable[[], float],
    errors: ErrorReporter,
    retry: float = FIRST_RETRY_S,
) -> None:
    """Ask ``job-list`` for the jobs that ended since a time, if there is one now or in the next two
    minutes.

    Args:
        handle: the Flux handle
        since (float): seconds since the epoch
        attributes: those to ask for
        learn: is called with them, that which ended last first; not called if they cannot be had
        call_at: function that has a function called at a time
        now: function giving the time, seconds since the epoch
        errors (ErrorReporter): where trouble is reported
        retry (float): seconds after which it is asked again where there is none
    """

    def answered(future: Any) -> None:
        try:
            jobs = future.get()["jobs"]
        except Exception as exc:
            if getattr(exc, "errno", None) != errno.ENOSYS:
                errors.report(f"job-list.list: {exc!r}")
            elif retry <= LAST_RETRY_S:
                call_at(now() + retry, lambda: ask(2 * retry))
            return
        errors.guard("job-list.list", learn, jobs)

    def ask(next_retry: float) -> None:
        ask_for_ended_jobs(handle, since, attributes, learn, call_at, now, errors, next_retry)

    asked = {
        "max_entries": MAX_JOBS_ASKED,
        "attrs": attributes,
        "since": since,
        "constraint": {"states": ["inactive"]},
    }
    handle.rpc("job-list.list", asked).then(answered)


class RunTimeService:
    """Learns for how long jobs ran, from ``job-list`` where there is one.

    Args:
        handle: the Flux handle
        checkpoints (Checkpoints): keeps the run times
        told: ``told(job, run, result)``, called for each job that has ended; see
            `PolicyScheduler.ended`
        is_overridden (bool): whether that is a policy's own
        call_at: function that has a function called at a time
        now: function giving the time, seconds since the epoch
        errors (ErrorReporter): where trouble is reported

    Attributes:
        predictions (PredictionScore): how good predictions were
    """

    def __init__(
        self,
        handle: Any,
        checkpoints: Checkpoints,
        told: Callable[[RunningJob, float, str | None], None],
        is_overridden: bool,
        call_at: Callable[[float, Callable[[], None]], Timer],
        now: Callable[[], float],
        errors: ErrorReporter,
    ) -> None:
        self._handle = handle
        self._told = told
        self._is_overridden = is_overridden
        self._call_at = call_at
        self._now = now
        self._errors = errors
        self._history: RunTimes | None = None
        self._checkpoint = checkpoints.make(KEY, SAVE_INTERVAL_S, self.text)
        self._loads = False  # whether the stored history is, or was, to be read
        self._answers = False  # whether there is a job-list
        #: when the last job ended whose run time is known, seconds since the epoch
        self._through = 0.0
        self.predictions = PredictionScore()

    @property
    def history(self) -> RunTimes:
        """The run times of jobs that have ended, from when this is first asked for."""
        if self._history is None:
            self._history = RunTimes()
            if self._loads:
                self._load(self._history)
        return self._history

    # -- the start ---------------------------------------------------------------------------------

    def load(self) -> None:
        """The scheduler is about to hear of jobs: read the checkpoint, and ask for the jobs that ended
        since. In a simulation, which has no KVS, there is nothing to load."""
        self._loads = self._checkpoint.stores
        if self._history is not None and self._loads:
            self._load(self._history)

    def _load(self, history: RunTimes) -> None:
        def parse(stored: Any) -> None:
            # Classes by another function would never be found.
            if stored["version"] == VERSION and stored["by"] == _name_of(history.classes):
                through = float(stored["through"])
                history.restore(stored["classes"])
                self._through = through

        self._checkpoint.read(parse)
        self.ask_for_ended_jobs()

    def ask_for_ended_jobs(self) -> None:
        """Learn of jobs that ended since the last one known, if there is a ``job-list`` now or in
        the next two minutes."""

        def learn(jobs: list[dict[str, Any]]) -> None:
            self._answers = True
            self._learn_from(jobs)

        ask_for_ended_jobs(
            self._handle, self._through, ATTRIBUTES, learn, self._call_at, self._now, self._errors
        )

    def _learn_from(self, jobs: list[dict[str, Any]]) -> None:
        """Learn the run times of jobs; the one that ended last comes first."""
        history = self._history
        for job in reversed(jobs):
            run = _run_of(job)
            if history is not None and run is not None:
                limit = job.get("duration") or inf
                history.learn(job.get("userid"), job.get("ncores", 0), limit, run)
            self._note(job)

    def forget_service(self) -> None:
        """There is no ``job-list`` any more."""
        self._answers = False

    # -- a job that ends ---------------------------------------------------------------------------

    def learn(self, job: RunningJob, run: float) -> None:
        """Learn for how many seconds a job ran, if anybody has asked for run times."""
        if self._history is not None:
            self._history.learn(job.userid, job.size, job.limit, run)

    def job_ended(self, job: RunningJob) -> None:
        """The resources of a job have come back. The time that is told for a job that ran to
        its limit is its limit at most, as far as this is known: the rest is clean-up."""
        if self._history is None and job.predicted is None and not self._is_overridden:
            return
        seen = self._now() - job.start
        granted = job.end - job.start
        result = "timeout" if seen >= granted else None
        if not self._answers:
            self._tell(job, min(seen, granted), result)
            return

        def answered(future: Any) -> None:
            run = told = None
            try:
                found = future.get()["job"]
                run, told = _run_of(found), RESULTS.get(found.get("result"))
                self._note(found)
            except Exception as exc:
                self._errors.log.debug(f"job-list.list-id: {exc!r}")
            self._tell(job, min(seen, granted) if run is None else run, told or result)

        asked = {"id": job.jobid, "attrs": ATTRIBUTES, "state": INACTIVE}
        self._handle.rpc("job-list.list-id", asked).then(answered)

    def _tell(self, job: RunningJob, run: float, result: str | None) -> None:
        if job.predicted is not None:
            self.predictions.compare(job.predicted, job.limit, run)
        self._errors.guard("ended", self._told, job, run, result)
        if self._history is not None:
            self._checkpoint.changed()

    def _note(self, job: dict[str, Any]) -> None:
        self._through = max(self._through, job.get("t_inactive") or 0.0)

    # -- the checkpoint ----------------------------------------------------------------------------

    def text(self) -> Iterator[str]:
        """The history as JSON, in parts."""
        history = self._history
        by = "" if history is None else _name_of(history.classes)
        head = {"version": VERSION, "through": self._through, "by": by}
        return in_parts(head, "classes", () if history is None else history.parts())


def _run_of(job: dict[str, Any]) -> float | None:
    """For how many seconds a job of ``job-list`` ran; None: it did not."""
    begin, end = job.get("t_run"), job.get("t_cleanup")
    return end - begin if begin and end else None


def _name_of(function: Any) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)}"
