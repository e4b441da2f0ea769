# SPDX-License-Identifier: LGPL-3.0-or-later
"""Selection of the jobs that a pending job may preempt; without side effects."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.pool.masks import popcount
from flux.scheduler.host import counted
from flux.scheduler.site_policy.preemption.record import Victim, jobs_of_classes
from flux.scheduler.site_policy.preemption.victims import Candidate, PoolTrial, choose, in_order

if TYPE_CHECKING:
    from flux.scheduler.admission import JobDeferred
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.site_policy.preemption.classes import PreemptionClass, Standing
    from flux.scheduler.site_policy.preemption.state import PreemptionState

#: Id of a trial allocation, which no job has.
TRIED = -(1 << 41)


#: Maximum number of other possible victims checked for ending by themselves.
MAX_OTHERS = 32


class Choice(NamedTuple):
    """The choice of victims for a job.

    Attributes:
        victims: the jobs that would have to end, in order of selection; empty: it preempts none
        ranks: mask of the ranks to keep for it
        reason: why it preempts none, in a sentence; None if it does
        node_hours: the loss
        others: ids of the first jobs that could have been chosen instead
    """

    victims: tuple[Victim, ...]
    ranks: int
    reason: str | None
    node_hours: float = 0.0
    others: tuple[int, ...] = ()

    def text(self) -> str:
        """Return ``2 jobs of standby (3.4 node-hours)``."""
        return f"{jobs_of_classes(self.victims)} ({self.node_hours:.1f} node-hours)"


class Chooser:
    """Selects the victims of a job.

    Args:
        state (PreemptionState): the shared state
    """

    def __init__(self, state: PreemptionState) -> None:
        self._host, self._running, self._record = state.host, state.running, state.record

    def candidates(self, job: PendingJob, standing: Standing, waited: float) -> list[Candidate]:
        """Return the running jobs that a job may preempt.

        Args:
            standing (Standing): the job's standing
            waited: its wait in seconds; infinite: ignore the classes' ``wait``
        """
        pool, now = self._host.resources, self._host.now()
        request = job.resource_request
        wanted = pool.match_mask(request) & pool.eligible_ranks(request)
        found = []
        for one in self._running.jobs.values():
            cls = one.standing.of
            borrower = self._record.borrowers.get(one.jobid)
            if (
                cls is None
                or not cls.rank < standing.rank
                or one.standing.in_reservation
                or now - one.start < one.standing.after
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

    def consider(self, job: PendingJob, standing: Standing, waited: float = inf) -> Choice:
        """Return the jobs that would have to end for a job to start now. Costs a copy of the pool,
        and some tens of trials on it.

        Args:
            job (PendingJob): the job
            standing (Standing): the job's standing
            waited: its wait in seconds; default: sufficient
        """
        if standing.in_reservation:
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
        found = self.candidates(job, standing, waited)
        if not found:
            return nothing("no job of a lower rank runs where it could")
        return self._try(job, found)

    def _class_of(self, jobid: int) -> PreemptionClass:
        cls = self._running.jobs[jobid].standing.of
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
