# SPDX-License-Identifier: LGPL-3.0-or-later
"""Run times of past jobs, and predictions for similar ones.

Users request more time than needed, often ten times as much, and submit the same job again and
again. So the mean of the last two run times of a class of jobs is a better estimate than the limit
(Tsafrir, Etsion and Feitelson 2007). `RunTimes` keeps just these, for the classes used last.

A promise must never rest on a prediction, which is wrong every other time. Use it to rank jobs.

`RunTimeService` learns the run times, without the time for clean-up, across reloads and restarts. A
scheduler learns of a job's end when its resources are freed: after epilog and housekeeping, without
the result. The service ``job-list`` knows both, and the jobs that ended while no scheduler was
loaded. It is queried for each job that ends, and at the start for all jobs that ended since the last
checkpoint: checkpoints are ten minutes apart, and no job is lost. In an instance without
``job-list`` the time until the resources are freed is learnt instead.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from math import inf, isfinite
from typing import Any, Callable, Optional

from flux.scheduler.checkpoint import Checkpoints, in_parts
from flux.scheduler.host import Host
from flux.scheduler.requests import RunningJob

#: Number of run times kept and averaged per class. Two gave the best results: users change their
#: programs, and a longer memory adapts slowly.
RUNS_PER_CLASS = 2

#: Maximum number of classes kept, the most recently used; about 200 bytes each. A busy site has a
#: few thousand in a month.
MAX_CLASSES = 20000

#: Maximum number of these for one user: jobs that all differ in their limits would evict other
#: users' classes.
MAX_CLASSES_OF_USER = 1000

#: Minimum expected run time in seconds: ranks divide by it.
LEAST_RUN_S = 1.0

#: Expected run time of a job without a limit, in seconds.
NO_LIMIT_S = 365 * 86400.0

#: User and run times of an unknown class.
NO_RUNS: tuple[Any, tuple[float, ...]] = None, ()

#: Returns the classes of (userid, size, limit), from the narrowest to the widest.
Classes = Callable[[Any, int, float], Iterable[Hashable]]


def narrow_to_wide(userid: Any, size: int, limit: float) -> Sequence[Hashable]:
    """Return the classes of ``predict=class``: a user's jobs of the same size and limit; of the
    same limit; all."""
    return (userid, size, limit), (userid, limit), (userid,)


def user_only(userid: Any, size: int, limit: float) -> Sequence[Hashable]:
    """Return the class of ``predict=last2``: all jobs of a user."""
    return ((userid,),)


def expected_run(guess: Any, limit: float) -> float:
    """Return a job's expected run time in seconds: the prediction, bounded by `LEAST_RUN_S` and its
    limit; the limit, if the prediction is None or not a time."""
    expected = limit if limit < NO_LIMIT_S else NO_LIMIT_S
    try:
        # NaN fails this comparison too.
        if guess is not None and 0 <= guess < expected:
            expected = guess
    except (TypeError, ValueError):
        pass  # from a site's own method
    return expected if expected > LEAST_RUN_S else LEAST_RUN_S


class RunTimes:
    """The last run times of each class of jobs, `most` classes. By default each user has separate classes,
    so users do not affect each other.

    Attributes:
        classes: returns the classes of (userid, size in cores, limit in seconds), from the
            narrowest to the widest; a site may replace it before the first job ends. Classes kept
            across restarts are tuples of str, int, float or None
    """

    def __init__(self, classes: Classes = narrow_to_wide, most: int = MAX_CLASSES) -> None:
        self.classes = classes
        self.seen = 0  # number of run times learnt
        self._most = most
        # The user from whose job a class was first learnt, and its run times; and each user's classes.
        # In both dicts of classes the most recently used is last.
        self._runs: OrderedDict[Hashable, tuple[Any, tuple[float, ...]]] = OrderedDict()
        self._owned: dict[Any, OrderedDict[Hashable, None]] = {}

    def __len__(self) -> int:
        """Return the number of classes."""
        return len(self._runs)

    def learn(self, userid: Any, size: int, limit: float, run: float) -> None:
        """Learn from a job that ended after `run` seconds.  O(classes of a job).

        Negative, infinite and NaN values are ignored.
        """
        if not isfinite(run) or run < 0:
            return
        self.seen += 1
        for kind in self.classes(userid, size, limit):
            _, known = self._runs.get(kind, NO_RUNS)
            self._remember(kind, (*known[1 - RUNS_PER_CLASS :], run), userid)

    def _remember(self, kind: Hashable, runs: tuple[float, ...], userid: Any) -> None:
        """Set the run times of a class, and mark it as just used."""
        owner, _ = self._runs.get(kind, (userid, ()))
        owned = self._owned.setdefault(owner, OrderedDict())
        self._runs[kind] = owner, runs
        self._runs.move_to_end(kind)
        owned[kind] = None
        owned.move_to_end(kind)
        if len(owned) > MAX_CLASSES_OF_USER:
            self._forget(next(iter(owned)))
        if len(self._runs) > self._most:
            self._forget(next(iter(self._runs)))

    def _forget(self, kind: Hashable) -> None:
        owner, _ = self._runs.pop(kind)
        del self._owned[owner][kind]
        if not self._owned[owner]:
            del self._owned[owner]

    def predict(self, userid: Any, size: int, limit: float) -> Optional[float]:
        """Return the mean of the last two run times of such a job's narrowest class with two, in
        seconds, or None.  O(classes of a job)."""
        for kind in self.classes(userid, size, limit):
            _, runs = self._runs.get(kind, NO_RUNS)
            if len(runs) == RUNS_PER_CLASS:
                return sum(runs) / RUNS_PER_CLASS
        return None

    # -- over a restart ----------------------------------------------------------------------------

    def stored(self) -> Iterator[list[Any]]:
        """Yield the classes as lists fit for JSON: class, run times, user. Run times learnt
        meanwhile are not included."""
        for kind, (owner, runs) in list(self._runs.items()):
            if isinstance(kind, tuple) and all(map(_storable, kind)):
                yield [kind, runs, owner]

    def restore(self, stored: Any) -> None:
        """Restore the list of `stored`; run times learnt since take precedence. Raises ValueError
        if it has another form."""
        try:
            restored = [
                (tuple(kind), tuple(map(float, runs))[-RUNS_PER_CLASS:], userid)
                for kind, runs, userid in stored
                if all(isfinite(run) and run >= 0 for run in runs)
            ]
            hash(tuple(restored))
        except (TypeError, ValueError) as exc:
            raise ValueError(f"the history cannot be read: {exc}") from None
        since = [(kind, runs, owner) for kind, (owner, runs) in self._runs.items()]
        for kind, runs, userid in restored + since:
            self._remember(kind, runs, userid)


class PredictionScore:
    """Accuracy of predictions, over ended jobs."""

    def __init__(self) -> None:
        self.jobs = 0  # number of jobs with a prediction
        self.underpredicted = 0  # number of these jobs that ran longer than predicted
        #: sum over these jobs of the shorter time divided by the longer one; 1 for each exact
        #: prediction (Tsafrir et al. 2007)
        self.accuracy = 0.0

    def compare(self, predicted: Any, limit: float, run: float) -> None:
        """Add a job with a limit that ran for `run` seconds. The prediction counts as used, see
        `expected_run`."""
        predicted = expected_run(predicted, limit)
        self.jobs += 1
        self.underpredicted += run > predicted
        self.accuracy += min(predicted, run) / max(predicted, run)

    def stats(self) -> dict[str, Any]:
        """Return, for ``stats``: number of jobs, mean accuracy, and share of jobs that ran longer
        than predicted."""
        jobs = max(1, self.jobs)
        return {
            "jobs": self.jobs,
            "accuracy": self.accuracy / jobs,
            "underpredicted": self.underpredicted / jobs,
        }


def _storable(part: Any) -> bool:
    """Whether a part of a class is unchanged by a round trip through JSON."""
    return (
        part is None or isinstance(part, (str, int)) or (isinstance(part, float) and isfinite(part))
    )


#: KVS key of the history.
KEY = "checkpoint.sched-history"

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
    host: Any,
    since: float,
    attributes: list[str],
    learn: Callable[[list[dict[str, Any]]], None],
    retry: float = FIRST_RETRY_S,
) -> None:
    """Query ``job-list`` for attributes of the jobs that ended since a time (seconds since the
    epoch), if it is loaded now or within the next two minutes; `retry`: seconds until the next
    query if it is not. ``learn(jobs)`` is called with them, the last to end first; not on
    failure."""

    def answered(future: Any) -> None:
        try:
            jobs = future.get()["jobs"]
        except Exception as exc:
            if getattr(exc, "errno", None) != errno.ENOSYS:
                host.errors.report(f"job-list.list: {exc!r}")
            elif retry <= LAST_RETRY_S:
                again = lambda: ask_for_ended_jobs(host, since, attributes, learn, 2 * retry)
                host.call_at(host.now() + retry, again)
            return
        host.errors.guard("job-list.list", learn, jobs)

    asked = {
        "max_entries": MAX_JOBS_ASKED,
        "attrs": attributes,
        "since": since,
        "constraint": {"states": ["inactive"]},
    }
    host.handle.rpc("job-list.list", asked).then(answered)


class RunTimeService:
    """Learns the run times of jobs, from ``job-list`` if there is one."""

    def __init__(
        self,
        host: Host,
        checkpoints: Checkpoints,
        told: Callable[[RunningJob, float, str | None], None],
        is_overridden: bool,
    ) -> None:
        self._host = host
        #: ``told(job, run, result)`` is called for each ended job; see `PolicyScheduler.ended`
        self._told = told
        self._is_overridden = is_overridden  # whether a policy overrides that
        self._history: RunTimes | None = None
        self._checkpoint = checkpoints.make(KEY, self.text)
        self._loads = False  # whether the stored history is to be read, or was
        self._answers = False  # whether there is a job-list
        #: end of the last job with a known run time, seconds since the epoch
        self._through = 0.0
        self.predictions = PredictionScore()  # accuracy of predictions

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
            if stored["by"] == _name_of(history.classes):
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

        ask_for_ended_jobs(self._host, self._through, ATTRIBUTES, learn)

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
        seen = self._host.now() - job.start
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
                self._host.errors.log.debug(f"job-list.list-id: {exc!r}")
            self._tell(job, min(seen, granted) if run is None else run, told or result)

        asked = {"id": job.jobid, "attrs": ATTRIBUTES, "state": INACTIVE}
        self._host.handle.rpc("job-list.list-id", asked).then(answered)

    def _tell(self, job: RunningJob, run: float, result: str | None) -> None:
        if job.predicted is not None:
            self.predictions.compare(job.predicted, job.limit, run)
        self._host.errors.guard("ended", self._told, job, run, result)
        if self._history is not None:
            self._checkpoint.changed()

    def _note(self, job: dict[str, Any]) -> None:
        self._through = max(self._through, job.get("t_inactive") or 0.0)

    # -- the checkpoint ----------------------------------------------------------------------------

    def text(self) -> Iterator[str]:
        history = self._history
        by = "" if history is None else _name_of(history.classes)
        known = () if history is None else history.stored()
        return in_parts({"through": self._through, "by": by}, "classes", known)


def _run_of(job: dict[str, Any]) -> float | None:
    """Return the run time in seconds of a job from ``job-list``, or None if it did not run."""
    begin, end = job.get("t_run"), job.get("t_cleanup")
    return end - begin if begin and end else None


def _name_of(function: Any) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)}"
