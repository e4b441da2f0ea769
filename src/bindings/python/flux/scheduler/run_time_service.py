# SPDX-License-Identifier: LGPL-3.0-or-later
"""The run times of jobs, across reloads and restarts, without the time for clean-up.

A scheduler learns of a job's end when its resources are freed: after epilog and housekeeping,
without the result. The service ``job-list`` knows both, and the jobs that ended while no scheduler
was loaded. So it is queried for each job that ends, and at the start for those that ended since the
checkpoint was written: nothing is lost, although that happens only every ten minutes. In an
instance without ``job-list`` the time until the resources are freed is learnt instead.
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

#: Key of the history, its version, and seconds between writes.
KEY = "checkpoint.sched-history"
VERSION = 1
SAVE_INTERVAL_S = 600.0

#: Maximum number of jobs queried at the start: those that ended last.
MAX_JOBS_ASKED = 2000

#: Seconds until ``job-list`` is queried again at the start, doubled each time: at an instance's
#: start it may be loaded after the scheduler.
FIRST_RETRY_S = 1.0
LAST_RETRY_S = 64.0

#: Attributes of a job to query.
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
    """Query ``job-list`` for the jobs that ended since a time, if it is loaded now or within the
    next two minutes.

    Args:
        since (float): the time, seconds since the epoch
        attributes: attributes to query
        learn: called with the jobs, the last to end first; not called on failure
        retry (float): seconds until the next query if there is no job-list
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
    """Learns the run times of jobs, from ``job-list`` if there is one.

    Args:
        told: ``told(job, run, result)`` is called for each ended job; see `PolicyScheduler.ended`
        is_overridden (bool): whether a policy overrides that

    Attributes:
        predictions (PredictionScore): accuracy of predictions
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
        self._loads = False  # whether the stored history is to be read, or was
        self._answers = False  # whether there is a job-list
        #: end of the last job with a known run time, seconds since the epoch
        self._through = 0.0
        self.predictions = PredictionScore()

    @property
    def history(self) -> RunTimes:
        """The run times of ended jobs, collected since the first access."""
        if self._history is None:
            self._history = RunTimes()
            if self._loads:
                self._load(self._history)
        return self._history

    # -- the start ---------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the checkpoint, and query the jobs that ended since; called before the scheduler
        learns of jobs. In a simulation, without KVS, there is nothing to load."""
        self._loads = self._checkpoint.stores
        if self._history is not None and self._loads:
            self._load(self._history)

    def _load(self, history: RunTimes) -> None:
        def parse(stored: Any) -> None:
            # Classes of another function would never be found.
            if stored["version"] == VERSION and stored["by"] == _name_of(history.classes):
                through = float(stored["through"])
                history.restore(stored["classes"])
                self._through = through

        self._checkpoint.read(parse)
        self.ask_for_ended_jobs()

    def ask_for_ended_jobs(self) -> None:
        """Learn from jobs that ended since the last known one, if ``job-list`` is loaded now or
        within the next two minutes."""

        def learn(jobs: list[dict[str, Any]]) -> None:
            self._answers = True
            self._learn_from(jobs)

        ask_for_ended_jobs(
            self._handle, self._through, ATTRIBUTES, learn, self._call_at, self._now, self._errors
        )

    def _learn_from(self, jobs: list[dict[str, Any]]) -> None:
        """Learn the run times of jobs, listed from the last to end."""
        history = self._history
        for job in reversed(jobs):
            run = _run_of(job)
            if history is not None and run is not None:
                limit = job.get("duration") or inf
                history.learn(job.get("userid"), job.get("ncores", 0), limit, run)
            self._note(job)

    def forget_service(self) -> None:
        """Note that there is no ``job-list`` any more."""
        self._answers = False

    # -- a job that ends ---------------------------------------------------------------------------

    def learn(self, job: RunningJob, run: float) -> None:
        """Learn a job's run time in seconds, if `history` is in use."""
        if self._history is not None:
            self._history.learn(job.userid, job.size, job.limit, run)

    def job_ended(self, job: RunningJob) -> None:
        """Report a job whose resources were freed. The run time of a job that ran to its limit is
        at most that limit, if known: the rest is clean-up."""
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
        """Yield the history as JSON text, in parts."""
        history = self._history
        by = "" if history is None else _name_of(history.classes)
        head = {"version": VERSION, "through": self._through, "by": by}
        return in_parts(head, "classes", () if history is None else history.parts())


def _run_of(job: dict[str, Any]) -> float | None:
    """Return the run time in seconds of a job from ``job-list``, or None if it did not run."""
    begin, end = job.get("t_run"), job.get("t_cleanup")
    return end - begin if begin and end else None


def _name_of(function: Any) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)}"
