# SPDX-License-Identifier: LGPL-3.0-or-later
"""Selection of the running jobs that must end for a pending one to start.

The rule is deterministic:

1. jobs are added one by one until the waiting job fits: the lowest rank first, then the smallest
   loss (nodes x time run), the youngest, the highest id;
2. then, from the last added to the first, each is spared if the waiting job still fits.

No chosen job can be left out, so the choice is *minimal*. It need not have the minimum number of
jobs or the minimum loss: finding that is as hard as set cover. Whether the job fits is determined
by the pool's own allocation on a copy.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.pool.masks import popcount
from flux.resource.request import ResourceRequest
from flux.scheduler.host import counted
from flux.scheduler.site_policy.preemption.record import Victim, jobs_of_classes
from flux.scheduler.site_policy.preemption.state import Part

if TYPE_CHECKING:
    from flux.resource.plan.claims import ClaimPlan
    from flux.resource.plan.plan import Plan
    from flux.scheduler.admission import JobDeferred
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.site_policy.preemption.classes import PreemptionClass, PreemptionTerms


class Candidate(NamedTuple):
    """A running job that may be ended."""

    jobid: int
    rank: float  # rank of its class
    nodes: int  # number of its nodes
    start: float  # its start, seconds since the epoch

    def loss(self, now: float) -> float:
        """Return the node-seconds lost if it ends now."""
        return self.nodes * max(0.0, now - self.start)


def in_order(candidates: Iterable[Candidate], now: float) -> list[Candidate]:
    """Return candidates in the order in which they are added."""
    return sorted(candidates, key=lambda one: (one.rank, one.loss(now), -one.start, -one.jobid))


def choose(candidates: Iterable[Candidate], trial: Trial, now: float) -> list[Candidate] | None:
    """Return the jobs that must end, in the order in which they were added.

    Assumes that ending fewer jobs never leaves more room: the last job to add is found by
    bisection. Costs a sort of the candidates, and about one trial per added job.

    Return None if the job would not fit even without all of them; the trial is then unchanged,
    otherwise without the chosen jobs.
    """
    ordered = in_order(candidates, now)
    # It does not fit without the first `low` (0: tried before). `high` is doubled until it fits
    # without the first `high`: so the cost grows with the number of needed jobs.
    low = out = 0
    while True:
        if out == len(ordered):
            for one in ordered:
                trial.put_back(one.jobid)
            return None
        low = out
        for one in ordered[low : max(1, 2 * low)]:
            trial.take_out(one.jobid)
            out += 1
        if trial.fits():
            break
    high = out

    def leave_out(number: int) -> None:
        nonlocal out
        while out > number:
            out -= 1
            trial.put_back(ordered[out].jobid)
        while out < number:
            trial.take_out(ordered[out].jobid)
            out += 1

    while high - low > 1:
        middle = (low + high) // 2
        leave_out(middle)
        if trial.fits():
            high = middle
        else:
            low = middle
    leave_out(high)
    left = needed([one.jobid for one in ordered[:high]], trial)
    return [one for one in ordered[:high] if one.jobid in left]


def needed(jobids: Sequence[int], trial: Trial) -> set[int]:
    """Return the needed ones of the jobs taken out of a trial, in which the job fits: from the last
    to the first, each is put back if the job still fits."""
    left = set(jobids)
    for jobid in reversed(jobids):
        trial.put_back(jobid)
        if trial.fits():
            left.discard(jobid)
        else:
            trial.take_out(jobid)
    return left


class Trial:
    """A copy of a pool, from which running jobs can be removed."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._out: dict[int, tuple[Any, float]] = {}

    def take_out(self, jobid: int) -> None:
        """Remove a running job."""
        self._out[jobid] = (self._pool.held(jobid), self._pool.job_end(jobid))
        self._pool.free(jobid)

    def put_back(self, jobid: int) -> None:
        """Restore a job that was taken out."""
        held, end = self._out.pop(jobid)
        # grant() only reads the duration
        self._pool.grant(jobid, ResourceRequest(duration=1.0), held, 0)
        self._pool.update_expiration(jobid, end)

    def fits(self) -> bool:
        """Whether the job could start now."""
        raise NotImplementedError


class PoolTrial(Trial):
    """A trial with the promises in the plan.

    Args:
        longer (float): seconds that resources are kept for it before it runs
        yielding: ids of jobs whose promises do not count, such as its own

    Raises:
        NotImplementedError: the pool cannot plan
    """

    def __init__(
        self,
        plan: Plan,
        jobid: int,
        request: Any,
        longer: float,
        yielding: Container[int],
    ) -> None:
        self._plan = plan.on_copy(yielding)
        super().__init__(self._plan.pool)
        self._jobid = jobid
        self._request = request
        if request.duration > 0 and longer > 0:
            self._request = copy.copy(request)
            self._request.duration = request.duration + longer

    def offer(self, ask: Callable[[Any, int], Any] | None = None) -> int | None:
        """Return the mask of ranks that the job would get with all promises to others kept, or None
        if it does not fit. They are allocated, and freed again. `ask`: called with the pool and the
        id of the allocation, before it is freed."""
        try:
            self._plan.alloc(self._jobid, self._request)
        except (InsufficientResources, InfeasibleRequest):
            # ranks that it needs may have left since it was queued
            return None
        ranks: int = self._pool.held_ranks(self._jobid)
        if ask is not None:
            ask(self._pool, self._jobid)
        self._pool.free(self._jobid)
        return ranks

    def fits(self) -> bool:
        return self.offer() is not None


class KeptTrial(Trial):
    """A trial on the ranks kept for a job, regardless of promises.

    Args:
        ranks (int): mask of the ranks kept for it
        kept: ids of the allocations that keep the free parts of these
        claims (ClaimPlan): claims that exclude the job from ranks, or None
    """

    def __init__(
        self, pool: Any, request: Any, ranks: int, kept: Iterable[int], claims: ClaimPlan | None
    ) -> None:
        super().__init__(pool)
        self._request = request
        self._ranks = ranks
        self._claims = None if claims is None else claims.copy(pool)
        for jobid in kept:
            pool.free(jobid)

    def fits(self) -> bool:
        ranks, claimant = self._ranks, getattr(self._request, "claimant", None)
        if self._claims is not None and claimant is not None:
            now = self._pool.clock()
            ranks &= ~self._claims.closed_now(claimant, now, now, {})
        return bool(ranks) and bool(self._pool.fits_on(self._request, ranks))


#: Id of a trial allocation, which no job has.
TRIED = -(1 << 41)


#: Maximum number of other possible victims checked for ending by themselves.
MAX_OTHERS = 32


class Choice(NamedTuple):
    """The choice of victims for a job."""

    # the jobs that would have to end, in order of selection; empty: it preempts none
    victims: tuple[Victim, ...]
    ranks: int  # mask of the ranks to keep for it
    reason: str | None  # why it preempts none, in a sentence; None if it does
    node_hours: float = 0.0  # the loss
    others: tuple[int, ...] = ()  # ids of the first jobs that could have been chosen instead

    def text(self) -> str:
        """Return ``2 jobs of standby (3.4 node-hours)``."""
        return f"{jobs_of_classes(self.victims)} ({self.node_hours:.1f} node-hours)"


class Chooser(Part):
    """Selects the victims of a job."""

    def candidates(self, job: PendingJob, terms: PreemptionTerms, waited: float) -> list[Candidate]:
        """Return the running jobs that a job may preempt. `waited`: its wait in seconds; infinite:
        ignore the classes' ``wait``."""
        pool, now = self._host.resources, self._host.now()
        request = job.resource_request
        wanted = pool.match_mask(request) & pool.eligible_ranks(request)
        found = []
        for one in self._running.jobs.values():
            cls = one.terms.cls
            borrower = self._record.borrowers.get(one.jobid)
            if (
                cls is None
                or not cls.rank < terms.rank
                or one.terms.in_reservation
                or now - one.start < one.terms.after
                or waited < cls.wait
                or one.is_spared
                or (borrower is not None and borrower.taker != job.jobid)
            ):
                continue
            try:
                held = pool.held_ranks(one.jobid)
            except KeyError:
                continue
            if held & wanted:
                found.append(Candidate(one.jobid, cls.rank, popcount(held), one.start))
        return found

    def consider(self, job: PendingJob, terms: PreemptionTerms, waited: float = inf) -> Choice:
        """Return the jobs that would have to end for a job to start now. Costs a copy of the pool,
        and some tens of trials on it. `waited`: its wait in seconds; default: sufficient."""
        if terms.in_reservation:
            return nothing("it waits for its reservation")
        host = self._host
        if not host.planning.pool_can("plan"):
            return nothing("the pool of this scheduler cannot plan")
        if job.jobid in host.admission.deferred:
            cause = host.admission.why(job)
            return nothing("an admission rule defers it" if cause is None else cause.reason)
        try:
            host.admission.check(job)
        except (InsufficientResources, InfeasibleRequest) as exc:  # the former, if it is deferred
            return nothing(str(exc))
        if job.prefers is not None:
            return nothing(job.prefers[0])
        if not host.decision.goes_first(job):
            return nothing("it is not the next to start")
        found = self.candidates(job, terms, waited)
        if not found:
            return nothing("no job of a lower rank runs where it could")
        return self._try(job, found)

    def _class_of(self, jobid: int) -> PreemptionClass:
        cls = self._running.jobs[jobid].terms.cls
        assert cls is not None, "candidates have a class"
        return cls

    def _try(self, job: PendingJob, found: list[Candidate]) -> Choice:
        host, now = self._host, self._host.now()
        classes = {cls.name: cls for cls in [self._class_of(one.jobid) for one in found]}
        plan = host.planning.current()
        assert plan is not None, "the pool can plan"
        grace = max(one.grace for one in classes.values())
        start = plan.promises().get(job.jobid, (None, inf))[0]
        if start is None:
            start = plan.copy().earliest(job.resource_request)
        if start is not None and now < start <= now + grace + self._running.kill_timeout:
            return nothing("it starts soon without that")
        trial = PoolTrial(
            plan,
            TRIED,
            job.resource_request,
            grace + self._running.clean_up(),
            {job.jobid},
        )
        if trial.fits():
            return nothing("it can start without that")
        ending = self._running.about_to_end()
        for jobid in ending:
            trial.take_out(jobid)
        if ending and trial.fits():
            return nothing("jobs that are ending make room for it")
        for jobid in ending:
            trial.put_back(jobid)
        chosen = choose(found, trial, now)
        if chosen is None:
            several = counted(len(found), "job")
            return nothing(f"it would not fit even if {several} of a lower rank ended")
        victims = []
        for candidate in chosen:
            jobid = candidate.jobid
            cls, userid = self._class_of(jobid).name, self._running.jobs[jobid].userid
            victims.append(Victim(jobid, cls, candidate.nodes, candidate.start, userid))
        reason = self._beyond(victims, classes, now)
        lost = sum(one.node_hours(now) for one in victims)
        objections: list[JobDeferred | None] = []

        def ask(*held: Any) -> None:
            objections.append(host.admission.second_look(job, *held))

        offer = trial.offer(ask)
        assert offer is not None, "it was chosen so that it fits"
        if reason is None and objections[0] is not None:
            reason = str(objections[0].deferral.reason)
        others = tuple(one.jobid for one in in_order(found, now)[:MAX_OTHERS])
        return Choice(tuple(victims), offer, reason, lost, others)

    def _beyond(
        self, victims: list[Victim], classes: dict[str, PreemptionClass], now: float
    ) -> str | None:
        """Return why the victims exceed a class's maximum, in a sentence, or None."""
        for name, cls in classes.items():
            own = [one for one in victims if one.cls == name]
            lost = sum(one.node_hours(now) for one in own)
            if len(own) > cls.max_jobs:
                return (
                    f"{counted(len(own), 'job')} of {name} would have to end, of which "
                    f"{cls.max_jobs} may"
                )
            if lost > cls.max_node_hours:
                return (
                    f"{lost:.1f} node-hours of {name} would be lost, of which "
                    f"{cls.max_node_hours:g} may be"
                )
        return None


def nothing(reason: str) -> Choice:
    """Return an empty choice, with its reason."""
    return Choice((), 0, reason)
