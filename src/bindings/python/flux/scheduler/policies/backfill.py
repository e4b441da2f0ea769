# SPDX-License-Identifier: LGPL-3.0-or-later
"""Backfill: a job that has to wait is promised a start, and others may go ahead if they keep it.

Jobs are examined in order of priority, among equals in order of submission. One that does not fit
is promised the earliest time at which enough running jobs will have ended. A job further down may
start now if that keeps all promises: it ends by then, or uses what they leave (the two conditions
of EASY; Mu'alem and Feitelson 2001). A promise is so many nodes at a time, not these or those:
which they are is settled when the job starts.

How the file is laid out: a pass (`Backfill.schedule`) examines jobs one by one
(`Backfill.examine`). A promised job whose time has not come waits on (`Backfill.has_come`). Any
other job starts if it can (`Backfill.try_to_start`), or if only promises to jobs behind it are in
its way (`Backfill.overtake`); otherwise it waits, and is promised a time if it is its turn
(`Backfill.wait`). Who has which promise is in a `PromiseBook`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InsufficientResources
from flux.scheduler.admission import JobDeferred
from flux.scheduler.annotator import ESTIMATE_GRAIN_S
from flux.scheduler.disclosure import behind
from flux.scheduler.history import expected_run, narrow_to_wide, user_only
from flux.scheduler.ordered_jobs import JobGroup
from flux.scheduler.policies.bounded import LatestStartPasses
from flux.scheduler.policies.promise_book import PromiseBook
from flux.scheduler.policies.ranked import RankedPasses
from flux.scheduler.policies.ranks import RANKS, Formula, function_of_file, usable
from flux.scheduler.policy import PolicyScheduler, describe
from flux.scheduler.queue import Backlog
from flux.scheduler.requests import PendingJob
from flux.scheduler.reservations.times import parse_duration
from flux.scheduler.room_index import RoomIndex

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.host import Timer

#: Effort of making a promise, where examining a job is 1 (`Backlog.spend`).
PROMISE_EFFORT = 12

#: Promises up to which the job of each is examined by itself; the effort for a row of as many as may
#: move in a turn, if all do; and what part of it those take that stay.
MIN_IN_A_ROW = 8
ROW_EFFORT = 128
STAYING_PART = 0.1

#: Seconds after a promised time at which a pass begins for it: a job that ends at that time has
#: ended then.
LATE_S = 1e-3

#: Arguments that go together, by the value of ``profile=``. The guide has what was measured of
#: them.
PROFILES = {
    "short-waits": ("rank=expansion", "predict=class", "promise=all", "within=24h"),
}

#: Classes of jobs by what ``predict=`` says: see `flux.scheduler.history`.
PREDICTIONS = {"class": narrow_to_wide, "last2": user_only}


def _rank_of(
    option: str, value: str, check_owner: bool
) -> tuple[Formula, Callable[..., Any] | None]:
    """The formula, or the function of a file, that an argument names."""
    if value in RANKS:
        return RANKS[value], None
    if ":" not in value:
        raise ValueError(
            f"{option}={value!r} is invalid: expected {', '.join(RANKS)} or FILE:FUNCTION"
        )
    return RANKS["fcfs"], function_of_file(option, value, check_owner)


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
    (`flux.scheduler.policies.bounded`); with ``rank=`` or ``candidates=`` jobs are asked in another
    order than the queue's (`flux.scheduler.policies.ranked`). Then promises to heads are made anew
    in each pass.

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
        promises (PromiseBook): the promises there are
    """

    _queue_class = Backlog
    _backlog: Backlog
    #: The plan that promises are made in, during a pass.
    plan: Plan
    promises_limit: int | None = 1
    promises_all = False
    guarantee = "kept"
    within = 86400.0
    predict = "limits"
    looks_past_heads = True
    by_queue = True
    #: who makes passes in an order of ranks; None where passes go by the queue
    ranked: RankedPasses | None = None
    has_candidate_ranks = False
    #: what users are told that the times of heads are, "planned" where the next pass may have another head
    promise_kind = "promised"
    #: the first submission of a job that was ever pending here, seconds since the epoch
    first_submission = inf
    _rank_formula = _candidate_formula = staticmethod(RANKS["fcfs"])
    _rank_function: Callable[..., Any] | None = None
    _candidate_function: Callable[..., Any] | None = None
    _prediction_function: Callable[..., Any] | None = None

    def __init__(self, h: Any, *args: str) -> None:
        super().__init__(h, *args)
        self.take_order()
        self.take_profile()
        for name in ("reservations", "promises", "promise"):
            for value in self.take_argument(name):
                self.take_promises(name, value)
        for value in self.take_argument("guarantee"):
            if value not in ("kept", "none"):
                raise ValueError(f"guarantee={value!r} is invalid: expected 'kept' or 'none'")
            self.guarantee = value
        self.take_ranks()
        backlog = self._backlog
        backlog.family_of = self.admission.family_of
        backlog.rooms = RoomIndex(lambda: self.resources.impl)
        self.promises = self._new_promises()
        self._promise_timer: Timer | None = None
        self._updates = 0  # of ranks

    def _new_promises(self, drops: int = 0) -> PromiseBook:
        by_queue = self.ranked is None
        return PromiseBook(self._backlog.set_promised if by_queue else None, drops)

    def take_profile(self) -> None:
        """Put the arguments that ``profile=`` stands for before all others, which so count more."""
        for value in self.take_argument("profile"):
            if value not in PROFILES:
                raise ValueError(
                    f"profile={value!r} is invalid: expected {' or '.join(map(repr, PROFILES))}"
                )
            self._pending_args = [*PROFILES[value], *self._pending_args]

    def take_promises(self, name: str, value: str) -> None:
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

    def take_ranks(self) -> None:
        """Take the arguments that say who is asked first, and choose how passes are made."""
        own = type(self)
        ranked = own.rank is not Backfill.rank
        for value in self.take_argument("rank"):
            self._rank_formula, self._rank_function = _rank_of("rank", value, self.reads_files)
            ranked = value != "fcfs"
        candidates = self.take_argument("candidates")
        for value in candidates:
            self._candidate_formula, self._candidate_function = _rank_of(
                "candidates", value, self.reads_files
            )
        for value in self.take_argument("predict"):
            self._prediction_function = None
            self.predict = value
            if value in PREDICTIONS:
                self.history.classes = PREDICTIONS[value]
            elif value != "limits":
                if ":" not in value:
                    names = ", ".join(["limits", *PREDICTIONS])
                    raise ValueError(
                        f"predict={value!r} is invalid: expected {names} or FILE:FUNCTION"
                    )
                self._prediction_function = function_of_file("predict", value, self.reads_files)
        for value in self.take_argument("within"):
            self.within = 0.0 if value in ("0", "0s") else parse_duration(value, "within")
        self.has_candidate_ranks = (
            bool(candidates) or own.candidate_rank is not Backfill.candidate_rank
        )
        self._predicts = self.predict != "limits" or own.predicted is not Backfill.predicted
        if self.promises_all:
            self.ranked = LatestStartPasses(self, self._backlog)
        elif ranked or self.has_candidate_ranks:
            self.promise_kind = "planned" if ranked else "promised"
            self.ranked = RankedPasses(self, self._backlog)

    # -- who is asked first ------------------------------------------------------------------------

    def rank(self, job: PendingJob) -> float:
        """What jobs of equal priority are ordered by when it is decided who may start, the smallest
        first.

        Called for each pending job in a pass in which one may start; override it for ranks of a
        site's own.

        Args:
            job (PendingJob): the job; `expected_run` says how long it is expected to run
        """
        if self._rank_function is not None:
            return usable(self._asked("rank", self._rank_function, job))
        return self._by(self._rank_formula, job)

    def candidate_rank(self, job: PendingJob) -> float:
        """What jobs are ordered by that may go ahead of one that waits, whatever their priority, if
        ``candidates=`` was given or this is overridden; otherwise they are asked in the order of
        `rank`."""
        if self._candidate_function is not None:
            return usable(self._asked("candidates", self._candidate_function, job))
        return self._by(self._candidate_formula, job)

    def predicted(self, job: PendingJob) -> float | None:
        """How long a job is expected to run, in seconds, as ``predict=`` says; None: nobody knows.

        Promises never rest on this. What is below 0, infinite or NaN counts as not known.
        """
        if self._prediction_function is not None:
            guess = self._asked("predict", self._prediction_function, job)
            return guess if isinstance(guess, (int, float)) else None
        if self.predict == "limits":
            return None
        return self.history.predict(job.userid, job.size, job.limit)

    def latest_start(self, job: PendingJob) -> float:
        """The time (seconds since the epoch) from which on the latest start of a job is looked for:
        with ``promise=all``, its submission and ``within=``. Called once for each job."""
        return job.t_submit + self.within

    def expected_run(self, job: PendingJob) -> float:
        """What ranks are computed from, in seconds: see `flux.scheduler.history.expected_run`."""
        return expected_run(self.predicted(job) if self._predicts else None, job.limit)

    def _queued(self, job: PendingJob, jobspec: Any) -> None:
        super()._queued(job, jobspec)
        self.first_submission = min(self.first_submission, job.t_submit)
        if self.ranked is not None:
            self.ranked.came(job)

    def _pool_made(self) -> None:
        super()._pool_made()
        if self.ranked is not None:
            self.ranked.load()
        elif self.promises_limit and self.resources.can("plan"):
            self._backlog.ranks_of = self.queue_order.turn_of

    def _by(self, formula: Formula, job: PendingJob) -> float:
        submit = job.t_submit
        waited = self.now() - submit
        since = submit - self.first_submission
        expected = self.expected_run(job)
        return formula(waited if waited > 0 else 0.0, expected, job.size, max(0.0, since) + 1)

    def _asked(self, option: str, function: Callable[..., Any], job: PendingJob) -> Any:
        """What a site's function says of a job; None if it raises, which is logged once."""
        try:
            return function(self, job)
        except Exception as exc:
            if option not in self._warned:
                self._warned.add(option)
                self._errors.report(f"{option}: {function.__name__} of {job.name}", exc)
            return None

    @property
    def has_priorities(self) -> bool:
        """Whether pending jobs differ in priority.  O(1)."""
        return self._backlog.has_priorities

    @property
    def plans_in_order(self) -> bool:
        return self.ranked is None and self.promises_limit != 0

    @property
    def keeps_promised_times(self) -> bool:
        return self.plans_in_order and self.guarantee == "kept"

    # -- a pass ------------------------------------------------------------------------------------

    def schedule(self) -> Iterator[float | None]:
        plan = self.require_plan()
        if plan is None:
            return
        self.plan = self.promises.plan = plan
        if self.ranked is not None:
            yield from self.ranked.schedule()
            return
        for candidate in self._backlog.to_examine(self.now, self):
            if candidate is None:
                yield None
            else:
                self.use_current_plan()
                self.examine(candidate)
        self.wake_when_due()

    # -- who is examined (`flux.scheduler.walk.PromisedJobs`) ---------------------------------------

    @property
    def drops(self) -> int:
        return self.promises.drops

    def first_since(self, place: tuple[Any, int] | None) -> PendingJob | None:
        return self.promises.first_since(place)

    def due(self) -> list[PendingJob]:
        return self.promises.due(self.now()) if self.guarantee == "kept" else []

    def groups_with_room(self) -> list[JobGroup] | None:
        # A rule that sets jobs apart which do not fit has to be asked about each.
        rooms = self._backlog.rooms
        return None if rooms is None or self.admission.parts_jobs else rooms.with_room()

    def may_be_promised(self, job: PendingJob) -> bool:
        """Whether fewer jobs ahead than `promises_limit` have one for ranks that this job could
        want, and none ahead of it still waits for one."""
        if self.promises_limit is None:
            return True
        ranks = self.queue_order.turn_of(job)
        return self.promises.count_before(
            job, self.queue_order.turn_of
        ) < self.promises_limit and not self._backlog.is_behind_another(job, ranks)

    # -- one job -----------------------------------------------------------------------------------

    def use_current_plan(self) -> None:
        """Go on with another plan if the one of this pass has become void, since a job that started
        or was given up has broken promises. Passes by ranks begin anew instead."""
        if self.ranked is None and self._plan is not self.plan:
            plan = self.current_plan()
            assert plan is not None, "the pool could plan when this pass began"
            self.plan = self.promises.plan = plan

    def examine(self, job: PendingJob) -> None:
        """Start a job if it can start now; else promise it a time, if it is its turn."""
        if self.guarantee == "none":
            self.plan_anew_from(job)
        elif job in self.promises and not self.has_come(job):
            self.advance_following(job)
            return
        if self.is_blocked_still(job):
            return
        if not self.try_to_start(job) and not self.overtake(job):
            self.wait(job)

    def is_blocked_still(self, job: PendingJob) -> bool:
        """Whether it is certain, by a quick look, that a job without a promise that was examined before
        waits on: it cannot start, and has no promise to come."""
        if job.tried != self._updates or job.promised or self.admission.engaged:
            return False
        too_long = self.plan.too_long(job.resource_request)
        if job.limit < too_long or too_long == inf or self.may_be_promised(job):
            return False
        self._backlog.block(job, alike=True, limit=too_long)
        return True

    def has_come(self, job: PendingJob) -> bool:
        """Whether the time of a promised job has come, or its promise is open.

        Its promise may move to an earlier time. If it cannot be kept any more, since a running job
        was given more time or ended late, it is made anew. It stays where it is if an admission rule
        needs it there.
        """
        if self.admission.engaged and self.stays(job):
            return False
        open_ones = self.open_promises_after(job)
        for other in open_ones:
            self.plan.cancel(other.jobid)  # for a moment: it must not keep this one from moving
        try:
            when = self.promises.advance(job)
        except InsufficientResources:
            self.renew(job)
            when = self.promises.when(job)
        self.restore_open(open_ones)
        if when is None or when <= self.now():
            return True
        self.show_promise(job, when)
        return False

    def stays(self, job: PendingJob) -> bool:
        """Have a job wait on whose promise an admission rule needs where it is; False: none does."""
        if not self.is_pinned(job):
            return False
        self.show_promise(job, self.promises.when(job))
        return True

    def is_pinned(self, job: PendingJob) -> bool:
        """Whether a promise to a job stays at a time to come, on account of an admission rule."""
        when = self.promises.when(job)
        return (
            when is not None
            and when > self.now()
            and self.admission.pins_promises()
            and self.admission.promise_stays(job)
        )

    def advance_following(self, job: PendingJob) -> None:
        """Let the promises right behind that of a job move, which was examined and waits on.

        That is what examining their jobs would do, in the same order. It ends at the first job that
        needs a closer look: its time has come, or its promise may be broken.
        """
        promises, backlog = self.promises, self._backlog
        if promises.open_ids or len(promises) < MIN_IN_A_ROW:
            return
        certain = not self.admission.engaged
        if not certain and self.admission.pins_promises():
            return  # each is asked about when its turn comes
        counted = self.plan.is_counted
        behind = None if counted else backlog.behind(job)
        looked, moved = promises.advance_following(job, behind)
        # On ranks it takes a look to see that one stays.
        staying = (len(looked) - len(moved)) * (STAYING_PART if counted else 1)
        backlog.spend((len(moved) + staying) * ROW_EFFORT / self.plan.moves_per_turn)
        if moved and moved[-1][1] <= self.now():
            looked.pop()
            moved.pop()
        if looked:
            backlog.skip_promised(looked[-1])
        if self.shows_changes:
            for other, when in moved:
                self.show_promise(other, when)
        if not certain:
            for other in looked:
                self.show_promise(other, promises.when(other))

    def try_to_start(self, job: PendingJob) -> bool:
        """Start a job, unless it does not fit now or would delay one with a promise.

        Returns:
            whether it has left the queue: it started, can never run, or was deferred
        """
        try:
            alloc = self.allocate(job, self.plan)
        except JobDeferred as why:
            self.set_apart(job, why)
        except InsufficientResources:
            self.use_current_plan()
            return False
        except Exception as exc:
            self.forget(job)
            self.refuse(job, exc)
        else:
            self.begin(job, alloc)
        return True

    def set_apart(self, job: PendingJob, why: JobDeferred) -> None:
        if job in self.promises:
            self._backlog.allow()  # what was kept for it may let others start
        if self.ranked is not None:
            self.ranked.deferred(job)
        self.forget(job)
        self.defer(job, why)

    def goes_first(self, job: PendingJob) -> bool:
        # Heads that are ranked are planned only in a pass in which something can start, so that
        # the plan does not always have what others must leave them.
        if self.ranked is None:
            return True
        waiting = [other for other in self._queue if not other.request.finalized]
        return min(waiting, key=self.asked_order, default=job) is job

    def begin(self, job: PendingJob, alloc: ResourcePool) -> None:
        """Start a job."""
        head = self.head_of(job)
        promised = job in self.promises
        if isinstance(self.ranked, LatestStartPasses):
            self.ranked.begin(job, alloc)
            return
        self.forget(job)
        if promised:
            self._backlog.allow()  # another job may be promised something now
            self.start(job, alloc, selection_type="reserved")
        elif head is None:
            self.start(job, alloc, selection_type="immediate")
        else:
            when = self.promises.when(head) or 0
            self.start(job, alloc, backfill=head.name, selection_type="backfilled")
            self.log.debug(f"backfill: {job.name} (shadow={int(when)})")

    def overtake(self, job: PendingJob) -> bool:
        """Start a job that only promises to jobs behind it keep from starting, or clear the way for
        its own promise.

        A job that comes in ahead of promised ones takes precedence: their promises are revoked, and
        made anew behind it; not so one that comes back from an admission rule. Nor may an open promise
        stop a job that is ahead of it.

        Returns:
            whether the job has left the queue
        """
        others = [other for other in self.promises.after(job) if self.shares_ranks(job, other)]
        if job not in self.promises:
            if not others or job.was_deferred or not self.may_be_promised(job):
                return False
            for other in others:
                self.revoke(other)
            self.released()  # what was kept for them may let others start
            return self.try_to_start(job)
        open_ones = self.open_promises_after(job)
        for other in open_ones:
            self.plan.cancel(other.jobid)
        left = bool(open_ones) and self.try_to_start(job)
        self.restore_open(open_ones)
        return left

    def wait(self, job: PendingJob) -> None:
        """A job cannot start now: promise it a time, if it is its turn."""
        if self.facts.waits_for_down_ranks(job.resource_request):
            self.revoke(job)
            self._backlog.park(job)
            return
        if job in self.promises:
            if self.promises.when(job) is None:
                self.renew_open(job)
        elif self.may_be_promised(job):
            self.promise(job, self.plan.earliest(job.resource_request))
        if job in self.promises:
            return
        limit, full = inf, False
        if self.admission.engaged:
            # Where there is no room, it does not matter whose job it is that asks for the same.
            full = bool(self.admission.taking_away) and not self.plan.has_free(job.resource_request)
        else:
            job.tried = self._updates
            limit = self.plan.too_long(job.resource_request)
        self._backlog.block(job, True, limit, family=full)

    # -- promises ----------------------------------------------------------------------------------

    def promise(self, job: PendingJob, when: float | None) -> None:
        """Promise a job the time `when` (seconds since the epoch); None: an open promise."""
        self.promises.make(job, when)
        if when is not None:
            self.wake_at(when)
        self._backlog.spend(PROMISE_EFFORT)
        self.show_promise(job, when)

    def show_promise(self, job: PendingJob, when: float | None) -> None:
        """Tell a job's user the time that it was promised (None: it is an open promise). Where a
        projection follows, it tells what is not certain, or was found to be earlier."""
        kind = self.kind_of_promise(job)
        expected, _ = self.estimate_of(job)
        is_earlier = (
            expected is not None and when is not None and expected < when - ESTIMATE_GRAIN_S
        )
        is_projected = self._annotator.is_wanted and self.estimate_depth > 0
        if is_projected and (kind == "planned" or is_earlier):
            self._note_promise(job, when, kind)
        else:
            self.show_estimate(job, when, kind)

    def show_expected_start(self, job: PendingJob, when: float | None) -> None:
        promised = self.promises.when(job) if job in self.promises else None
        if (
            promised is not None
            and (when is None or abs(when - promised) <= ESTIMATE_GRAIN_S)
            and self.kind_of_promise(job) == "promised"
        ):
            self.show_estimate(job, promised, "promised")
        else:
            self._annotator.estimate(job, when, "planned")

    def kind_of_promise(self, job: PendingJob) -> str:
        """What users are told that the promise to a job is: "planned", if an admission rule may keep it
        from starting then."""
        certain = not self.admission.engaged or self.admission.keeps_promise(job)
        return self.promise_kind if certain else "planned"

    def renew(self, job: PendingJob) -> None:
        """A promise cannot be kept: make another, ahead of all promises to jobs behind this one."""
        self.plan.cancel(job.jobid)
        when = self.plan.earliest(job.resource_request)
        if when is None or when > self.now():
            others = [other for other in self.promises.after(job) if self.shares_ranks(job, other)]
            for other in others:
                self.revoke(other)
            if others:
                self.released()
                when = self.plan.earliest(job.resource_request)
        self.promise(job, when)

    def renew_open(self, job: PendingJob) -> None:
        """Promise a job with an open promise a time, if there is one by now.

        Open promises to jobs behind it have no end. If they counted, each could keep the other from
        a time for good, and both of them a job whose time has come.
        """
        open_ones = self.open_promises_after(job)
        for other in [job, *open_ones]:
            self.plan.cancel(other.jobid)
        when = self.plan.earliest(job.resource_request)
        self.promise(job, when)
        self.restore_open(open_ones)
        if when is not None:
            self.released()  # what was kept for it from now on may let others start

    def plan_anew_from(self, job: PendingJob) -> None:
        """Drop the promises of a job and of all behind it; each is made again in its turn."""
        for other in self.promises.after(job):
            if self.shares_ranks(job, other):
                self.promises.drop(other)
                self._backlog.again(other)
        self.promises.drop(job)

    def revoke(self, job: PendingJob) -> None:
        """A job loses its promise, and its estimate with it."""
        if job in self.promises:
            self.promises.drop(job)
            self.show_estimate(job, None)
            self._backlog.again(job)

    def forget(self, job: PendingJob) -> None:
        """A job is about to leave the queue, or its place there."""
        if self.ranked is not None:
            self.ranked.forget(job)
        self.promises.drop(job)

    def open_promises_after(self, job: PendingJob) -> list[PendingJob]:
        """The jobs after this one with an open promise of resources that it could want, too."""
        if not self.promises.open_ids:
            return []
        return [
            other
            for other in self.promises.after(job)
            if self.promises.when(other) is None and self.shares_ranks(job, other)
        ]

    def restore_open(self, jobs: list[PendingJob]) -> None:
        """Make open promises again that were taken out of the plan for a moment."""
        for job in jobs:
            if job in self.promises:
                try:
                    self.promises.make(job, None)
                except InsufficientResources:
                    self.revoke(job)

    def head_of(self, job: PendingJob) -> PendingJob | None:
        """The first job ahead of this one that has a promise it could delay."""
        if self.ranked is not None:
            return self.ranked.head_of(job)
        for other in self.promises:
            if not other < job:
                return None
            if self.shares_ranks(job, other):
                return other
        return None

    def show_latest_start(self, job: PendingJob, when: float | None) -> None:
        """Tell a job's user its latest start (seconds since the epoch); None: it has none any more.

        A simulation that wants no estimates is told as well: it asks whether promises are kept.
        """
        job.request.annotate({"sched": {"t_latest": when}})

    # -- events ------------------------------------------------------------------------------------

    def leaves(self, job: PendingJob) -> None:
        if self.ranked is not None:
            self.forget(job)
            self.released()  # what was kept for it may be promised to others
        else:
            self.leave_place(job)

    def prioritize(self, jobs: list[Any]) -> None:
        for jobid, _ in jobs:
            job = self.pending(jobid)
            if job is not None:
                self.leave_place(job)
        super().prioritize(jobs)

    def leave_place(self, job: PendingJob) -> None:
        """A pending job is about to leave its place in the queue, and gives up its promise."""
        if self.ranked is not None:
            self.ranked.moves(job)
        else:
            if job in self.promises:
                self.revoke(job)
                self.released()  # what was kept for it may let others start

    def reorder(self) -> None:
        super().reorder()
        self.promises.reorder()
        self.released()

    def ranks_lost(self) -> None:
        # A new plan is cheaper than to see which promises can still be kept.
        lost = self.promises
        self.promises = self._new_promises(lost.drops + 1)
        if self.ranked is not None:
            self.ranked.plan_void(lost)
        else:
            for job in lost:
                self._backlog.set_promised(job, False)
                self.show_estimate(job, None)
                self._backlog.again(job)

    def resource_update(self) -> None:
        self.promises.ranks_changed()
        self._updates += 1
        self._backlog.unpark()
        self._backlog.regroup()
        if self.ranked is None:
            self._backlog.wake(self.now(), all=True)  # some may have to wait for ranks by now
        self.released()

    def start_schedule(self) -> None:
        if self.ranked is not None:
            self.ranked.again = True
        super().start_schedule()

    def _end_moved(self, jobid: int, expiration: float) -> None:
        running = self.running.get(jobid)
        before = inf if running is None else running.end
        super()._end_moved(jobid, expiration)
        if self.ranked is not None and (expiration or inf) > before:
            self.ranked.extended()

    def _ranks_changed(self, lost: bool) -> None:
        super()._ranks_changed(lost)
        if self.ranked is not None:
            self.ranked.ranks_changed(lost)

    def released(self) -> None:
        if self.ranked is not None:
            self.ranked.released()
            return
        self._backlog.wake(self.now())
        if self._promise_timer is None:
            self.wake_when_due()

    def wake_when_due(self) -> None:
        """Have a pass when the next promise comes due. O(promises), where it may be needed."""
        if self.promises and self.may_come_due_alone():
            self.wake_at(self.promises.next_after(self.now()))

    def may_come_due_alone(self) -> bool:
        """Whether a promise may come due though no running job ends then, which would make a pass of
        itself: an admission rule may keep resources until then, and so may an open promise; and one that
        is bound to ranks stays at its time when the job ends early for whose end it was made. O(1)."""
        return bool(
            self.admission.engaged
            or self.promises.open_ids
            or not self.running
            or (self._plan is not None and not self._plan.is_counted)
        )

    def wake_at(self, when: float | None) -> None:
        """Have a pass at a promised time, if no other event may make one. Only the earliest time is
        kept: when it has come, the next is looked for. A promise for now waits for a job that is
        late, whose end is an event: a timer would make one pass after the other."""
        timer = self._promise_timer
        if when is None or (timer and timer.when <= when + LATE_S) or not self.may_come_due_alone():
            return
        if when <= self.now():
            return
        if timer is not None:
            timer.cancel()
        self._promise_timer = self.call_at(when + LATE_S, self._promise_is_due)

    def _promise_is_due(self) -> None:
        self._promise_timer = None
        self.look_again()

    # -- what users see ----------------------------------------------------------------------------

    def ahead_of(self, job: PendingJob) -> list[PendingJob]:
        head = self.head_of(job)
        return [] if head is None else [head]

    def why(self, job: PendingJob, facts: dict[str, Any] | None = None) -> str | None:
        cause = self.admission.why(job)
        if cause is not None:
            return cause.reason
        facts = facts or self.facts.explain(job.resource_request)
        head = self.head_of(job)
        if head is not None and not facts["reason"]:
            return behind(head.name, head.userid)
        found = describe(facts)
        if found is None and self.promises_all:
            return "it would keep another job from its latest start"
        return found

    def asked_order(self, job: PendingJob) -> tuple[Any, ...]:
        if self.ranked is None:
            return super().asked_order(job)
        rank = self.rank(job)
        return (
            job.order,
            rank if type(rank) is float and rank == rank else usable(rank),
            job.jobid,
            job,
        )

    def asked_order_now(self) -> Callable[[PendingJob], tuple[Any, ...]]:
        """`asked_order` for a whole queue at this moment: the same keys, with the formula called
        directly where nothing of a site's own says what ranks are."""
        own = type(self)
        if (
            self._rank_function is not None
            or self._prediction_function is not None
            or own.asked_order is not Backfill.asked_order
            or own.rank is not Backfill.rank
            or own.expected_run is not Backfill.expected_run
            or own.predicted is not Backfill.predicted
        ):
            return self.asked_order
        formula, now, first = self._rank_formula, self.now(), self.first_submission
        predict = self.history.predict if self._predicts else None

        def key(job: PendingJob) -> tuple[Any, ...]:
            submit, limit, size = job.t_submit, job.limit, job.size
            guess = predict(job.userid, size, limit) if predict is not None else None
            waited, since = now - submit, submit - first
            expected = expected_run(guess, limit)
            rank = formula(
                waited if waited > 0 else 0.0, expected, size, since + 1 if since > 0 else 1.0
            )
            return job.order, rank if rank == rank else inf, job.jobid, job

        return key

    def rank_facts(self, job: PendingJob) -> dict[str, Any]:
        if self.ranked is None:
            return {}
        answer = {"rank": usable(self.rank(job)), "expected_run": self.expected_run(job)}
        return {**answer, **self.ranked.facts(job)}

    def forecast(self) -> Iterator[float | None]:
        yield from self.reasons()
        yield from self.estimates()

    def stats_get(self) -> dict[str, Any]:
        stats = super().stats_get()
        stats.update(self._backlog.stats(self.now()), reserved=len(self.promises))
        if self.ranked is not None:
            stats.update(self.ranked.stats())
            if self._predicts:
                stats["predictions"] = self.predictions.stats()
        return stats
