# SPDX-License-Identifier: LGPL-3.0-or-later
"""Backfill: a waiting job is promised a start, which jobs that go ahead may not delay.

Jobs are examined in order of priority, then of submission. A job that does not fit is promised the
earliest time at which enough running jobs will have ended. A later job may start now if all
promises are kept: it ends in time, or uses resources that the promises leave (the two conditions of
EASY; Mu'alem and Feitelson 2001). A promise is a number of nodes at a time; the nodes are chosen at
the job's start.

`Backfill` has the options and the methods that a site's own class overrides. The passes are in
three files: ``backfilling``, ``by_rank`` and ``by_latest_start``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flux.resource.plan import compiled
from flux.scheduler.history import expected_run
from flux.scheduler.policies.backfilling import Backfilling, BackfillInOrder
from flux.scheduler.policies.by_latest_start import BackfillByLatestStart
from flux.scheduler.policies.by_rank import BackfillByRank
from flux.scheduler.policies.ranks import JobRanks
from flux.scheduler.policy import PolicyScheduler, reasons_and_estimates, take_order
from flux.scheduler.queue import Backlog
from flux.scheduler.times import parse_duration

if TYPE_CHECKING:
    from flux.scheduler.policies.backfilling import PromiseBook
    from flux.scheduler.requests import PendingJob

#: Value of ``profile=`` -> arguments. The guide has measurements of them.
PROFILES = {
    "short-waits": ("rank=expansion", "predict=class", "promise=all", "within=24h"),
}


def parse_promises(name: str, value: str) -> int | None:
    """Parse ``promise=`` or one of its older names. Return the maximum number of promises; None if
    there is none."""
    if value == "head":
        return 1
    if value in ("all", "unlimited"):
        return None
    if value.isascii() and value.isdigit():
        return int(value)
    raise ValueError(
        f"{name}={value!r} is invalid: expected a number, 'head', 'unlimited' or 'all'"
    )


class Backfill(PolicyScheduler):
    """Backfilling with promises: EASY with one promise (Lifka 1995), conservative backfill with one
    for every job (Mu'alem and Feitelson 2001).

    When a job ends before its limit, each promise may move once, in queue order, to an earlier time
    that keeps all others (``guarantee=kept``); or all are made anew (``guarantee=none``).

    A job that waits for jobs without a time limit cannot be promised a time. It gets an *open*
    promise: its resources are kept free. A job that waits for ranks that are down keeps nothing
    from others.

    Jobs without a common rank do not count against each other, so that Flux queues on separate
    ranks do not block one another; with ``order=strict`` all jobs count.

    With ``promise=all`` every job is promised a latest start on arrival
    (`flux.scheduler.policies.by_latest_start`); with ``rank=`` or ``candidates=`` jobs are examined
    in another order (`flux.scheduler.policies.by_rank`), and promises to heads are made anew in
    each pass.

    A site's own class overrides `rank`, `candidate_rank`, `predicted` or `latest_start`.

    Args:
        h: the Flux handle
        *args (str): module arguments: ``promise=N|head|unlimited|all``, the number of blocked jobs
            with a promise, Maui's RESERVATIONDEPTH (default 1, which is EASY, also called head; 0
            lets any fitting job start; unlimited is conservative backfill; all: every job, on
            arrival); ``promises=`` and ``reservations=``, its older names; ``within=DURATION``
            (default 24h); ``guarantee=kept|none`` (default kept); ``rank=`` and ``candidates=``,
            names of `flux.scheduler.policies.ranks.RANKS` or ``FILE:FUNCTION``;
            ``predict=limits|class|last2|FILE:FUNCTION``; ``profile=``, a name of `PROFILES`;
            ``order=queue|strict`` (default queue); ``reason-depth=N``; and those of `Scheduler`

    Attributes:
        promises_limit (int or None): as ``promise=``; None: unlimited, or all
        promises_all (bool): whether ``promise=all``
        guarantee (str): as ``guarantee=``
        within (float): as ``within=``, seconds
        predict (str): as ``predict=``
        ranks (JobRanks): the ranks of jobs, from the arguments
        decision (Backfilling): the decision, from the arguments
    """

    _queue_class = Backlog
    _backlog: Backlog
    decision: Backfilling
    promises_limit: int | None = 1
    promises_all = False
    guarantee = "kept"
    within = 86400.0
    predict = "limits"
    by_queue = True

    def __init__(self, h: Any, *args: str) -> None:
        super().__init__(h, *args)
        take_order(self)
        for value in self.take_argument("profile"):
            if value not in PROFILES:
                raise ValueError(
                    f"profile={value!r} is invalid: expected {' or '.join(map(repr, PROFILES))}"
                )
            # first, so that given arguments override these
            self._pending_args = [*PROFILES[value], *self._pending_args]
        for name in ("reservations", "promises", "promise"):
            for value in self.take_argument(name):
                self.promises_limit = parse_promises(name, value)
                self.promises_all = value == "all"
        for value in self.take_argument("guarantee"):
            if value not in ("kept", "none"):
                raise ValueError(f"guarantee={value!r} is invalid: expected 'kept' or 'none'")
            self.guarantee = value
        self.ranks = JobRanks(self, Backfill, self._host)
        for name in ("rank", "candidates", "predict"):
            for value in self.take_argument(name):
                self.ranks.set_option(name, value)
        for value in self.take_argument("within"):
            self.within = 0.0 if value in ("0", "0s") else parse_duration(value, "within")
        self._predicts = self.ranks.predicts
        backlog = self._backlog
        if not self.promises_all and type(self).latest_start is not Backfill.latest_start:
            self.log.warning(
                f"{type(self).__name__}.latest_start() is not called: it needs promise=all"
            )
        if self.promises_all:
            self.decision = BackfillByLatestStart(self, backlog, self._checkpoints)
        elif self.ranks.is_used or self.ranks.has_candidates:
            self.decision = BackfillByRank(self, backlog)
        else:
            self.decision = BackfillInOrder(self, backlog)
        if not compiled.is_built():
            self.log.info(compiled.NOT_BUILT)

    @property
    def promises(self) -> PromiseBook:
        """The jobs with a promise, and their promised starts.  O(1)."""
        return self.decision.promises

    forecast = reasons_and_estimates

    # -- order of examination ----------------------------------------------------------------------

    def rank(self, job: PendingJob) -> float:
        """Return the sort key of a job among those of equal priority; the lowest is examined first.

        Called for each pending job in a pass in which one may start. Override it for a site's own
        ranks; `expected_run` returns the job's expected run time.
        """
        return self.ranks.rank_of(job)

    def candidate_rank(self, job: PendingJob) -> float:
        """Return the sort key of a backfill candidate, a job that may go ahead of a blocked one
        regardless of priority. Used if ``candidates=`` is given or this is overridden; otherwise
        candidates are examined in order of `rank`."""
        return self.ranks.rank_of(job, "candidates")

    def predicted(self, job: PendingJob) -> float | None:
        """Return the predicted run time of a job in seconds, by ``predict=``, or None.

        Promises never depend on it. Negative, infinite and NaN values count as unknown.
        """
        return self.ranks.predicted(job) if self.ranks.predicts else None

    def latest_start(self, job: PendingJob) -> float:
        """With ``promise=all``, return the time (seconds since the epoch) from which the latest
        start of a job is searched: its submission plus ``within=``. Called once per job."""
        return job.t_submit + self.within

    def expected_run(self, job: PendingJob) -> float:
        """Return the run time in seconds that ranks are computed from; see
        `flux.scheduler.history.expected_run`."""
        guess = self.predicted(job) if self.ranks.predicts else None
        if guess is not None and not isinstance(guess, (int, float)):
            guess = self.ranks.usable(guess, job, "predicted run time")
        return expected_run(guess, job.limit)
