# SPDX-License-Identifier: LGPL-3.0-or-later
"""The common base of the backfilling decisions: a plan with promises in which jobs start, and the
promised jobs in queue order."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from syslog import LOG_DEBUG
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InsufficientResources
from flux.scheduler.admission import JobDeferred
from flux.scheduler.decision import Decision

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.policies.ranks import BackfillPolicy
    from flux.scheduler.queue import Backlog
    from flux.scheduler.requests import PendingJob


class Backfilling(Decision):
    """Base class of the backfilling decisions.

    Attributes:
        plan (Plan): the plan with the promises, valid during a pass
        promises (PromiseBook): the promises to pending jobs
        kind (str): the kind of promised times: "planned" if the next pass may promise the time to
            another job, else "promised"
    """

    looks_past_heads = True
    policy: BackfillPolicy
    plan: Plan
    kind = "promised"

    def __init__(self, policy: BackfillPolicy, backlog: Backlog) -> None:
        super().__init__(policy)
        self.backlog = backlog
        self.promises = PromiseBook()

    def begin_pass(self) -> bool:
        """Set `plan`. Return whether there is one."""
        plan = self.policy.planning.plan or self.policy.planning.require()
        if plan is not None:
            self.plan = self.promises.plan = plan
        return plan is not None

    # -- one job -----------------------------------------------------------------------------------

    def try_to_start(self, job: PendingJob) -> bool:
        """Start a job, unless it does not fit now or would delay a promised job. Return whether it
        has left the queue: it started, can never run, or was deferred."""
        try:
            alloc = self.policy.allocate(job, self.plan)
        except Exception as exc:
            return self.handle_refusal(job, exc)
        self.begin(job, alloc)
        return True

    def handle_refusal(self, job: PendingJob, why: Exception) -> bool:
        """Handle an exception from the pool or an admission rule for a job. Return whether it has
        left the queue: it can never run, or was deferred."""
        if isinstance(why, JobDeferred):
            self.defer(job, why)
        elif isinstance(why, InsufficientResources):
            return False
        else:
            self.forget(job)
            self.policy.refuse(job, why)
        return True

    def park_if_down(self, job: PendingJob) -> bool:
        """Park a job if it waits for ranks that are down. Return whether it does."""
        if not self.policy.facts.waits_for_down_ranks(job.resource_request):
            return False
        self.forget(job)
        self.backlog.park(job)
        return True

    def begin(self, job: PendingJob, alloc: ResourcePool) -> None:
        policy = self.policy
        head, was_promised = self.ahead_of(job), job in self.promises
        self.forget(job)
        if was_promised:
            self.backlog.allow()  # another job may be promised a start now
            policy.start_or_deny(job, alloc, selection_type="reserved")
        elif head is None:
            policy.start_or_deny(job, alloc, selection_type="immediate")
        else:
            ahead = {"backfill": head.name} if policy.forecasts.are_read else {}
            policy.start_or_deny(job, alloc, selection_type="backfilled", **ahead)
            if policy.log.level >= LOG_DEBUG:
                when = self.promises.when(head) or 0
                policy.log.debug(f"backfill: {job.name} (shadow={int(when)})")

    def promise(self, job: PendingJob, when: float | None) -> None:
        """Promise a job the time `when` (seconds since the epoch); None makes an open promise."""
        self.promises.make(job, when)
        self.show_promise(job, when)

    def show_promise(self, job: PendingJob, when: float | None) -> None:
        """Tell a job's user the promised time, or None for an open promise."""
        self.policy.forecasts.promised(job, when, self.kind_of_promise(job))

    def kind_of_promise(self, job: PendingJob) -> str:
        """Return the kind of a job's promise, for its user: `kind`, or "planned" if an admission
        rule may keep the job from starting then."""
        admission = self.policy.admission
        certain = not admission.engaged or admission.keeps_promise(job)
        return self.kind if certain else "planned"

    def forget(self, job: PendingJob) -> None:
        """Called before a job leaves the queue, or its place in it."""
        self.promises.drop(job)

    # -- events ------------------------------------------------------------------------------------

    def defer(self, job: PendingJob, why: JobDeferred) -> None:
        if job in self.promises and not self.policy.estimate_depth:
            self.policy.forecasts.show_estimate(job, None)  # no projection replaces it
        self.forget(job)
        super().defer(job, why)

    def released(self) -> None:
        if self.policy.admission.at_release:
            self.policy.admission.released()

    def reordered(self) -> None:
        self.promises.reorder()
        self.released()

    def ranks_changed(self, lost: bool) -> None:
        self.promises.ranks_changed()
        self.backlog.unpark()
        self.backlog.regroup()
        self.released()

    # -- questions ---------------------------------------------------------------------------------

    def goes_first(self, job: PendingJob) -> bool:
        return True

    def promised_start(self, job: PendingJob) -> float | None:
        if job in self.promises and self.kind_of_promise(job) == "promised":
            return self.promises.when(job)
        return None

    def stats(self) -> dict[str, object]:
        return {**self.backlog.stats(self.policy.now()), "reserved": len(self.promises)}


class PromiseBook:
    """The pending jobs with a promise in a plan.

    A promise is either for a time, or *open*: the job's possible start is unknown, and the
    resources it needs are kept free from now on.

    Args:
        changed: ``changed(job, promised)`` is called when a job gets its first promise, or has lost
            its promise

    Attributes:
        plan (Plan): the pool's plan, in which the promises are entered; set before the first is
            made
    """

    plan: Plan

    def __init__(self, changed: Callable[[PendingJob, bool], None] | None = None) -> None:
        self._changed = changed
        self.jobs: list[PendingJob] = []  # in queue order; not to be changed by others
        self._ids = array("q")  # of these
        self._places: list[tuple[Any, int]] = []  # of these, (order, job id)
        self._by_id: dict[int, PendingJob] = {}
        # mask of ranks -> places of jobs that could use them, in order; None: not computed
        self._by_ranks: dict[int, list[tuple[Any, int]]] | None = None
        #: ids of the jobs with open promises
        self.open_ids: set[int] = set()
        # no promised time after the last look is earlier, in seconds since the epoch
        self._first = math.inf

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[PendingJob]:
        return iter(self.jobs)

    def __contains__(self, job: PendingJob) -> bool:
        return job.jobid in self._by_id

    def when(self, job: PendingJob) -> float | None:
        """Return the promised time of a job, seconds since the epoch; None if the promise is open.
        Raises KeyError if the job has no promise."""
        return None if job.jobid in self.open_ids else self.plan.start_of(job.jobid)

    def after(self, job: PendingJob) -> list[PendingJob]:
        """Return the promised jobs behind `job` in the queue."""
        jobs = self.jobs
        if not jobs or not job < jobs[-1]:
            return []
        begin = bisect_left(self._places, (job.order, job.jobid))
        return [other for other in jobs[begin:] if other is not job]

    def first_since(self, place: tuple[Any, int] | None) -> PendingJob | None:
        """Return the first job from a place in the queue, ``(order, job id)``, on, or None."""
        begin = 0 if place is None else bisect_left(self._places, place)
        return self.jobs[begin] if begin < len(self.jobs) else None

    def make(self, job: PendingJob, when: float | None) -> None:
        """Promise a job the time `when`; None makes an open promise. Replaces a previous promise.
        Raises InsufficientResources if the job does not fit then."""
        if when is None:
            self.plan.hold(job.jobid, job.resource_request)
            self.open_ids.add(job.jobid)
        else:
            self.plan.reserve(job.jobid, job.resource_request, when)
            self.open_ids.discard(job.jobid)
            self._first = min(self._first, when)
        if job not in self:
            if self._changed is not None:
                self._changed(job, True)
            entry = job.order, job.jobid
            place = bisect_left(self._places, entry)
            self.jobs.insert(place, job)
            self._ids.insert(place, job.jobid)
            self._places.insert(place, entry)
            self._by_id[job.jobid] = job
            self._by_ranks = None

    def advance(self, job: PendingJob) -> float | None:
        """Move a promise to the earliest time that keeps all others. Return the time at which it is
        due, seconds since the epoch; None if it is open.

        Raises:
            InsufficientResources: the promise cannot be kept: a running job was given more time or
                ended late, or ranks were lost
        """
        if job.jobid in self.open_ids:
            return None
        when = self.plan.advance(job.jobid)
        if when < self._first:
            self._first = when
        return when

    def advance_following(
        self, job: PendingJob, stop: PendingJob | None
    ) -> tuple[list[PendingJob], list[PendingJob], float]:
        """Advance the promises of the jobs right behind the promised job `job`, while they can
        certainly be kept (`Plan.advance_in_turn`), up to the number of moves allowed per reactor
        turn. No promise may be open.

        Args:
            stop (PendingJob): the last job whose promise may move; None: no bound

        Returns:
            the jobs examined; those whose promises moved; and the earliest start of the latter,
            seconds since the epoch, or infinity. If that time has come, it is the start of the last
            job of both lists.
        """
        first = bisect_left(self._places, (job.order, job.jobid)) + 1
        last = len(self.jobs)
        if stop is not None:
            last = bisect_left(self._places, (stop.order, stop.jobid), first)
        last = min(last, first + self.plan.moves_per_turn)
        count, places, when = self.plan.advance_in_turn(self._ids[first:last])
        self._first = min(self._first, when)
        looked = self.jobs[first : first + count]
        return looked, [looked[place] for place in places], when

    def drop(self, job: PendingJob) -> None:
        """Remove a job's promise: it has started, or the promise is revoked."""
        if job.jobid in self._by_id:
            del self._by_id[job.jobid]
            self.open_ids.discard(job.jobid)
            place = bisect_left(self._places, (job.order, job.jobid))
            del self.jobs[place], self._ids[place], self._places[place]
            self._by_ranks = None
            if self._changed is not None:
                self._changed(job, False)
            self.plan.cancel(job.jobid)

    def reorder(self) -> list[PendingJob]:
        """Sort the jobs again after their order changed. Return those that are now ahead of others
        that they were behind."""
        before = {jobid: place for place, jobid in enumerate(self._ids)}
        self.jobs.sort()
        self._ids = array("q", [job.jobid for job in self.jobs])
        self._places = [(job.order, job.jobid) for job in self.jobs]
        self._by_ranks = None
        risen, first = [], len(before)
        for job in reversed(self.jobs):
            place = before[job.jobid]
            if place > first:
                risen.append(job)
            first = min(first, place)
        return risen

    def ranks_changed(self) -> None:
        """Note that the ranks that jobs could use have changed."""
        self._by_ranks = None

    def count_before(self, job: PendingJob, ranks_of: Callable[[PendingJob], int]) -> int:
        """Return the number of promised jobs ahead of `job` in the queue that could use some of the
        same ranks.

        The first call after a change looks at each promise, later ones at each different mask of
        ranks.

        Args:
            ranks_of: returns the mask of ranks that a job could use
        """
        if not self.jobs:
            return 0
        if self._by_ranks is None:
            self._by_ranks = {}
            for other in self.jobs:
                places = self._by_ranks.setdefault(ranks_of(other), [])
                places.append((other.order, other.jobid))
        ranks, found, place = ranks_of(job), 0, (job.order, job.jobid)
        for mask in self._by_ranks:
            if mask & ranks:
                found += bisect_left(self._by_ranks[mask], place)
        return found

    def next_after(self, now: float) -> float | None:
        """Return a time after `now` before which no promise comes due, or None if there is none.
        O(promises) if one may have come due since the last look."""
        when = self._first if self._first > now else self.plan.due(now)[1]
        return None if when == math.inf else when

    def has_due(self, now: float) -> bool:
        """Whether a job's promised time has come.  O(promises)."""
        return bool(self.jobs) and any(id in self._by_id for id in self.plan.due(now)[0])

    def due(self, now: float) -> list[PendingJob]:
        """Return the jobs whose promised times have come, if one has since the last call, and those
        with open promises, in order. O(promises) then."""
        if self._first > now and not self.open_ids:
            return []
        jobs, found = self._by_id, self.open_ids.copy()
        if self._first <= now:
            due, self._first = self.plan.due(now)
            found.update(due)
        return sorted([jobs[jobid] for jobid in found if jobid in jobs])
