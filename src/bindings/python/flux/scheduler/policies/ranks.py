# SPDX-License-Identifier: LGPL-3.0-or-later
"""Ranks: the order in which pending jobs of equal priority are examined.

A rank is a number; the lowest goes first. `RANKS` has the formulas, by the names in ``rank=`` and
``candidates=`` of sched-backfill. With w, a job's wait so far, and e, its expected run time, both
in seconds; n, the cores that it requests; and s, the seconds from the first submission known to the
scheduler to the job's, plus 1:

===========  ==========================================  ======================================================
fcfs         0                                           first come, first served
shortest     e                                           shortest job first
area         e n                                         smallest area (node-seconds) first
expansion    -(w + e) / e                                the largest expansion factor, or slowdown, first
wfp3         -(w / e)^3 n                                as on Intrepid (Tang et al. 2009)
unicef       -w / (log2(max(n, 2)) e)                    small and short jobs (Tang et al. 2009)
f1           log10(e) n + 870 log10(s)                   f1 to f4: found by regression over simulations
f2           sqrt(e) n + 25600 log10(s)                  (Carastan-Santos and de Camargo 2017)
f3           e n + 6860000 log10(s)
f4           e sqrt(n) + 530000 log10(s)
===========  ==========================================  ======================================================

A rank with w changes with time: jobs are sorted anew in each pass.
"""

from __future__ import annotations

from math import inf, log2, log10, nan, sqrt
from typing import TYPE_CHECKING, Any, Callable, Protocol

from flux.scheduler.decision import PolicyView
from flux.scheduler.history import expected_run, narrow_to_wide, user_only
from flux.scheduler.options import name_in_file

if TYPE_CHECKING:
    from flux.scheduler.history import PredictionScore, RunTimes
    from flux.scheduler.host import Host
    from flux.scheduler.requests import PendingJob

#: Value of ``predict=`` -> classes of jobs, see `flux.scheduler.history`.
PREDICTIONS = {"class": narrow_to_wide, "last2": user_only}

#: Computes a rank from (w, e, n, s).
Formula = Callable[[float, float, int, float], float]

RANKS: dict[str, Formula] = {
    "fcfs": lambda w, e, n, s: 0.0,
    "shortest": lambda w, e, n, s: e,
    "area": lambda w, e, n, s: e * n,
    "expansion": lambda w, e, n, s: -(w + e) / e,
    "wfp3": lambda w, e, n, s: -((w / e) ** 3) * n,
    "unicef": lambda w, e, n, s: -w / (log2(max(n, 2)) * e),
    "f1": lambda w, e, n, s: log10(e) * n + 870 * log10(s),
    "f2": lambda w, e, n, s: sqrt(e) * n + 25600 * log10(s),
    "f3": lambda w, e, n, s: e * n + 6860000 * log10(s),
    "f4": lambda w, e, n, s: e * sqrt(n) + 530000 * log10(s),
}


class BackfillPolicy(PolicyView, Protocol):
    """The interface of a `Backfill` for its ranks and decision."""

    promises_limit: int | None
    guarantee: str
    within: float
    predict: str
    predictions: PredictionScore
    ranks: JobRanks
    waiting_at_start: int

    @property
    def history(self) -> RunTimes: ...

    def rank(self, job: PendingJob) -> float: ...

    def candidate_rank(self, job: PendingJob) -> float: ...

    def predicted(self, job: PendingJob) -> float | None: ...

    def expected_run(self, job: PendingJob) -> float: ...

    def latest_start(self, job: PendingJob) -> float: ...


class JobRanks:
    """The ranks of pending jobs, from the arguments ``rank=``, ``candidates=`` and ``predict=``.

    Args:
        base (type): the class whose methods implement the arguments, `Backfill`

    Attributes:
        predicts (bool): whether run times are predicted
    """

    def __init__(self, policy: BackfillPolicy, base: type[BackfillPolicy], host: Host) -> None:
        self._policy, self._errors = policy, host.errors
        self._check_owner = not host.takes_objects  # see `flux.scheduler.options.read_code`
        self._formulas = {"rank": RANKS["fcfs"], "candidates": RANKS["fcfs"]}
        self._functions: dict[str, Callable[..., Any]] = {}  # argument -> a site's function
        self._warned: set[str] = set()
        # first submission among all jobs ever pending here, seconds since the epoch
        self._first_submission = inf
        own = type(policy)
        self.is_used = own.rank is not base.rank  # whether jobs are examined in order of ranks
        #: whether backfill candidates have their own order
        self.has_candidates = own.candidate_rank is not base.candidate_rank
        self.predicts = self._overrides = own.predicted is not base.predicted
        # whether the site's class overrides neither ranks nor run times
        self._is_plain = (own.rank, own.predicted, own.expected_run) == (
            base.rank,
            base.predicted,
            base.expected_run,
        )
        if policy.predict != "limits":
            self.set_option("predict", policy.predict)

    def set_option(self, option: str, value: str) -> None:
        """Parse an argument. Raises ValueError if the value is invalid, or names an unreadable
        file."""
        names = ["limits", *PREDICTIONS] if option == "predict" else list(RANKS)
        self._functions.pop(option, None)
        if value not in names:
            if ":" not in str(value):  # an attribute of a class may be anything
                raise ValueError(
                    f"{option}={value!r} is invalid: expected {', '.join(names)} or FILE:FUNCTION"
                )
            function = name_in_file(option, value, self._check_owner)
            self._functions[option] = function
        if option == "predict":
            self._policy.predict = value
            self.predicts = value != "limits" or self._overrides
            if value in PREDICTIONS:
                self._policy.history.classes = PREDICTIONS[value]
        else:
            self._formulas[option] = RANKS.get(value, RANKS["fcfs"])
            if option == "rank":
                self.is_used = value != "fcfs"
            else:
                self.has_candidates = True

    def arrives(self, job: PendingJob) -> None:
        """Note a job about to be queued."""
        self._first_submission = min(self._first_submission, job.t_submit)

    def rank_of(self, job: PendingJob, option: str = "rank") -> float:
        """Return the rank of a job by an argument, ``rank`` or ``candidates``."""
        function = self._functions.get(option)
        if function is not None:
            return self.usable(self._asked(option, function, job), job, option)
        submit = job.t_submit
        waited = self._policy.now() - submit
        since = submit - self._first_submission
        expected = self._policy.expected_run(job)
        rank = self._formulas[option]
        return rank(waited if waited > 0 else 0.0, expected, job.size, max(0.0, since) + 1)

    def predicted(self, job: PendingJob) -> float | None:
        """Return the predicted run time of a job in seconds by ``predict=`` (other than "limits"),
        or None."""
        function = self._functions.get("predict")
        if function is not None:
            guess = self._asked("predict", function, job)
            if guess is None or isinstance(guess, (int, float)):
                return guess
            seconds = self.usable(guess, job, "predict")
            return None if seconds == inf else seconds
        return self._policy.history.predict(job.userid, job.size, job.limit)

    def key(self) -> Callable[[PendingJob], tuple[Any, ...]]:
        """Return the current sort key of pending jobs: order, rank, id, and the job. Without a
        site's own code the formula is called directly: a rank then takes 2 to 3 microseconds."""
        policy = self._policy
        if not self._is_plain or self._functions.keys() & {"rank", "predict"}:

            def asked(job: PendingJob) -> tuple[Any, ...]:
                return job.order, self.value_of("rank", policy.rank, job), job.jobid, job

            return asked
        formula, now, first = self._formulas["rank"], policy.now(), self._first_submission
        predict = policy.history.predict if self.predicts else None

        def key(job: PendingJob) -> tuple[Any, ...]:
            submit, limit, size = job.t_submit, job.limit, job.size
            guess = predict(job.userid, size, limit) if predict is not None else None
            waited, since = now - submit, submit - first
            rank = formula(
                waited if waited > 0 else 0.0,
                expected_run(guess, limit),
                size,
                since + 1 if since > 0 else 1.0,
            )
            return job.order, rank if rank == rank else inf, job.jobid, job

        return key

    def value_of(self, option: str, method: Callable[[PendingJob], Any], job: PendingJob) -> float:
        """Return the value for a job of a method that a site may override, as `usable`; infinity if
        it raises, which is logged once."""
        try:
            value = method(job)
        except (Exception, SystemExit) as exc:
            self.warn(option, f"{option} of {job.name}", exc)
            return inf
        return value if type(value) is float and value == value else self.usable(value, job, option)

    def usable(self, value: Any, job: PendingJob, option: str = "rank") -> float:
        """Return a site's rank or run time as a comparable number, also if it is one of numpy's. Any
        other value, and NaN, is infinite: its job ranks last. That is logged once."""
        try:
            number: float = value if type(value) in (int, float) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = nan
        if number == number:
            return number
        self.warn(option, f"{option} of {job.name} is {value!r}: expected a number")
        return inf

    def warn(self, option: str, text: str, error: BaseException | None = None) -> None:
        """Log a mistake of a site's code, once for each option."""
        if option not in self._warned:
            self._warned.add(option)
            self._errors.report(text, error)

    def _asked(self, option: str, function: Callable[..., Any], job: PendingJob) -> Any:
        """Return the result of a site's function for a job; None if it raises, which is logged
        once."""
        try:
            return function(self._policy, job)
        except (Exception, SystemExit) as exc:
            self.warn(option, f"{option}: {function.__name__} of {job.name}", exc)
            return None
