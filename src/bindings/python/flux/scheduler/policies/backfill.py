# SPDX-License-Identifier: LGPL-3.0-or-later
"""Backfill: a job that has to wait is promised a start, and others may go ahead if they keep it.

Jobs are examined in order of priority, among equals in order of submission. One that does not fit
is promised the earliest time at which enough running jobs will have ended. A job further down may
start now if that keeps all promises: it ends by then, or uses what they leave (the two conditions
of EASY; Mu'alem and Feitelson 2001). A promise is so many nodes at a time, not these or those:
which they are is settled when the job starts.

`Backfill` has the options, and the names that a site's own class overrides. How a pass decides is
in one of three files: ``in_order``, ``by_rank`` and ``by_latest_start``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from flux.scheduler.history import expected_run
from flux.scheduler.policies.backfilling import Backfilling
from flux.scheduler.policies.by_latest_start import BackfillByLatestStart
from flux.scheduler.policies.by_rank import BackfillByRank
from flux.scheduler.policies.in_order import BackfillInOrder
from flux.scheduler.policies.ranks import JobRanks
from flux.scheduler.policy import PolicyScheduler
from flux.scheduler.queue import Backlog
from flux.scheduler.reservations.times import parse_duration
from flux.scheduler.walk import RoomIndex

if TYPE_CHECKING:
    from flux.scheduler.policies.backfilling import PromiseBook
    from flux.scheduler.requests import PendingJob

#: Arguments that go together, by the value of ``profile=``. The guide has what was measured of
#: them.
PROFILES = {
    "short-waits": ("rank=expansion", "predict=class", "promise=all", "within=24h"),
}


class Backfill(PolicyScheduler):
    """Backfilling with promises: EASY with one, conservative backfill with all jobs promised a
    start.

    When a job ends earlier than it said, each promise may, once and in order of the queue, move to
    an earlier time that keeps all others (``guarantee=kept``); or all are made anew
    (``guarantee=none``).

    A job that waits behind jobs without a time limit has no time that it could be promised: what it
    will need is kept free for it, which is an *open* promise. A job that waits for ranks that are
    down keeps nothing from others.

    Jobs without a rank in common do not count against each other, so that queues with ranks of
    their own do not stop one another; with ``order=strict`` all do.

    With ``promise=all`` every job is promised a latest start when it comes
    (`flux.scheduler.policies.by_latest_start`); with ``rank=`` or ``candidates=`` jobs are asked in
    another order than the queue's (`flux.scheduler.policies.by_rank`). Then promises to heads are
    made anew in each pass.

    A site's own class overrides `rank`, `candidate_rank`, `predicted` or `latest_start`.

    Args:
        h: the Flux handle
        *args (str): module arguments: ``promise=N|head|unlimited|all``, how many blocked jobs get a
            promise (default 1, which is EASY and the same as head; 0 lets any job start that fits;
            unlimited is conservative backfill; all: every job, when it comes); ``promises=`` and
            ``reservations=`` are older names of it; ``within=DURATION`` (default 24h);
            ``guarantee=kept|none`` (default kept); ``rank=`` and ``candidates=``, names of
            `flux.scheduler.policies.ranks.RANKS` or ``FILE:FUNCTION``;
            ``predict=limits|class|last2|FILE:FUNCTION``; ``profile=``, a name of `PROFILES`;
            ``order=queue|strict`` (default queue); ``reason-depth=N``; and those of `Scheduler`

    Attributes:
        promises_limit (int or None): as ``promise=``; None: unlimited, or all
        promises_all (bool): whether it is all
        guarantee (str): as ``guarantee=``
        within (float): as ``within=``, seconds
        predict (str): as ``predict=``
        ranks (JobRanks): the ranks of jobs, by the arguments
        decision (Backfilling): how it decides
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
        self._take_order()
        for value in self.take_argument("profile"):
            if value not in PROFILES:
                raise ValueError(
                    f"profile={value!r} is invalid: expected {' or '.join(map(repr, PROFILES))}"
                )
            # Before all others, which so count more.
            self._pending_args = [*PROFILES[value], *self._pending_args]
        for name in ("reservations", "promises", "promise"):
            for value in self.take_argument(name):
                self._take_promises(name, value)
        for value in self.take_argument("guarantee"):
            if value not in ("kept", "none"):
                raise ValueError(f"guarantee={value!r} is invalid: expected 'kept' or 'none'")
            self.guarantee = value
        self.ranks = JobRanks(
            self, Backfill, self._errors, check_owner=not self._host.takes_objects
        )
        for name in ("rank", "candidates", "predict"):
            for value in self.take_argument(name):
                self.ranks.take(name, value)
        for value in self.take_argument("within"):
            self.within = 0.0 if value in ("0", "0s") else parse_duration(value, "within")
        backlog = self._backlog
        backlog.family_of = self.admission.family_of
        backlog.rooms = RoomIndex(lambda: self.resources)
        if self.promises_all:
            self.decision = BackfillByLatestStart(self, backlog, self._checkpoints)
        elif self.ranks.is_used or self.ranks.has_candidates:
            self.decision = BackfillByRank(self, backlog)
        else:
            self.decision = BackfillInOrder(self, backlog)

    def _take_promises(self, name: str, value: str) -> None:
        """Take how many jobs are promised a start from an argument, whatever it is called."""
        self.promises_all = value == "all"
        if value == "head":
            self.promises_limit = 1
        elif value in ("all", "unlimited"):
            self.promises_limit = None
        elif value.isascii() and value.isdigit():
            self.promises_limit = int(value)
        else:
            raise ValueError(
                f"{name}={value!r} is invalid: expected a number, 'head', 'unlimited' or 'all'"
            )

    @property
    def promises(self) -> PromiseBook:
        """The jobs that were promised a start, and when.  O(1)."""
        return self.decision.promises

    def schedule(self) -> Iterable[float | None]:
        return self.decision.schedule()

    def forecast(self) -> Iterator[float | None]:
        yield from self.reasons()
        yield from self.estimates()

    # -- who is asked first ------------------------------------------------------------------------

    def rank(self, job: PendingJob) -> float:
        """What jobs of equal priority are ordered by when it is decided who may start, the smallest
        first.

        Called for each pending job in a pass in which one may start; override it for ranks of a
        site's own.

        Args:
            job (PendingJob): the job; `expected_run` says how long it is expected to run
        """
        return self.ranks.of(job)

    def candidate_rank(self, job: PendingJob) -> float:
        """What jobs are ordered by that may go ahead of one that waits, whatever their priority, if
        ``candidates=`` was given or this is overridden; otherwise they are asked in the order of
        `rank`."""
        return self.ranks.of(job, "candidates")

    def predicted(self, job: PendingJob) -> float | None:
        """How long a job is expected to run, in seconds, as ``predict=`` says; None: nobody knows.

        Promises never rest on this. What is below 0, infinite or NaN counts as not known.
        """
        return self.ranks.predicted(job) if self.ranks.predicts else None

    def latest_start(self, job: PendingJob) -> float:
        """The time (seconds since the epoch) from which on the latest start of a job is looked for:
        with ``promise=all``, its submission and ``within=``. Called once for each job."""
        return job.t_submit + self.within

    def expected_run(self, job: PendingJob) -> float:
        """What ranks are computed from, in seconds: see `flux.scheduler.history.expected_run`."""
        return expected_run(self.predicted(job) if self.ranks.predicts else None, job.limit)
