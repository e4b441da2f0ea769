# SPDX-License-Identifier: LGPL-3.0-or-later
"""Preemption: running jobs of a low class are ended for a waiting job of a higher class to start.

*Search* (`takers`). After a change, or when a job has waited long enough, victims are chosen for the
first pending jobs that may preempt others, with the resources that such a job would get, its place.
Only the job manager knows which jobs are being cleaned up: it is asked whether these victims still
run, and if one does not, the choice is repeated.

*Decision* (`under_way`). A placeholder, which belongs to no job, gets the free part of the place. In
the plan this and the victims' resources are in use until the job will have ended, so that no job is
promised resources that a kill may fail to free. The record is stored before any victim is warned.

*Warning and end.* During the grace the job starts elsewhere if it can. At the deadline, victims that
are no longer needed are spared and told so, and the rest are ended. The job then starts on its
place, and only there: elsewhere it would not need them.

Jobs of a class with ``into-promises`` may also start in time promised to jobs of a higher one
(`lending`), which are their takers from then on. After a reload of the scheduler, preemptions
continue from the record (`state`); without it no job is ended.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InsufficientResources
from flux.scheduler.admission import GivingRule
from flux.scheduler.disclosure import Owned, read_by
from flux.scheduler.host import name_of
from flux.scheduler.query.answering import Caller, Steps, read
from flux.scheduler.site_policy.preemption.classes import read_class
from flux.scheduler.site_policy.preemption.state import (
    Messenger,
    Part,
    PreemptionState,
    Waiting,
    jobs_of_classes,
)
from flux.scheduler.site_policy.preemption.takers import Takers
from flux.scheduler.site_policy.preemption.under_way import PreemptionsUnderWay
from flux.scheduler.site_policy.table_rule import TableRule

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.attributes import SystemAttributes
    from flux.scheduler.host import ErrorReporter
    from flux.scheduler.requests import PendingJob, RunningJob
    from flux.scheduler.rule_host import RuleHost
    from flux.scheduler.site_policy.preemption.classes import PreemptionClass
    from flux.scheduler.site_policy.preemption.state import Victim
    from flux.scheduler.site_policy.preemption.takers import Choice


#: Seconds after the start within which a recorded job must come back.
COME_BACK_S = 5.0


class PreemptionRule(GivingRule, TableRule):
    """Ends running jobs for pending ones, by the table ``[preemption]``.

    Attributes:
        classes (Classes): the classes in force
    """

    name = "preemption"
    table = "preemption"
    parse = staticmethod(read_class)

    host: RuleHost

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        state = PreemptionState(host, errors)
        self.classes, self._waiting, self._running = state.classes, state.waiting, state.running
        self._record, self._counts = state.record, state.counts
        messenger = Messenger(state)
        self._takers = takers = Takers(state, lambda *chosen: self._under_way.decide(*chosen))
        self._under_way = PreemptionsUnderWay(state, self, messenger, takers)
        self._lending = self._under_way.lending
        self.answers = PreemptionAnswers(state, takers)  # answers queries
        self._restored = False

    # -- the table ---------------------------------------------------------------------------------

    def needs(self, entries: dict[str, Any]) -> tuple[str, ...]:
        return ("jobspec", "eventlog")

    def doubts(self, entries: dict[str, PreemptionClass]) -> Iterator[tuple[str, str]]:
        first: dict[str | None, str] = {}
        for name, one in sorted(entries.items()):
            for queue in [*one.queues, None] if one.attribute else one.queues:
                other = first.setdefault(queue, name)
                if other != name:
                    what = "attribute=true" if queue is None else f"queue {queue!r}"
                    yield name, f"{what}: class {other} counts"

    def configure(self, entries: dict[str, Any]) -> None:
        if not self.loaded:
            try:
                self._record.load()
            except ValueError as exc:
                self.errors.report(f"preemptions under way are forgotten: {exc}")
        self.classes.entries = entries
        self._under_way.engage()
        if not entries:
            for preemption in list(self._record.active.values()):
                self._under_way.give_up(preemption, "the table was removed", "configuration")
            self._waiting.clear()
            self._running.jobs.clear()
            self._running.of_classes.clear()

    # -- pending jobs ------------------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        terms = self.classes.terms(attributes)
        waiting = self._waiting.setdefault(job.jobid, Waiting(job, terms))
        waiting.terms = terms
        preemption = self._record.active.get(job.jobid)
        if preemption and preemption.request is None and not preemption.in_promise:
            self._under_way.resume(preemption, waiting)
        elif self.classes.may_take(terms):
            self._takers.search_soon()

    def signature(self, job: PendingJob) -> Hashable:
        waiting = self._waiting.get(job.jobid)
        cls = None if waiting is None else waiting.terms.cls
        if waiting is None or cls is None:
            return None
        # Its undisturbed run time affects whether it may start into promised time.
        return (cls.name, waiting.terms.after) if cls.into_promises else cls.name

    def cancel(self, jobid: int) -> None:
        self._waiting.pop(jobid, None)
        preemption = self._record.active.get(jobid)
        if preemption is not None:
            self._under_way.taker_is_gone(preemption)

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        preemption, waiting = self._record.active.get(job.jobid), self._waiting.get(job.jobid)
        alloc = None
        if preemption is not None:
            alloc = self._under_way.allocate(job, plan, preemption)
        cls = None if waiting is None else waiting.terms.cls
        if alloc is None and waiting is not None and cls is not None and cls.into_promises:
            try:
                alloc = plan.alloc(job.jobid, job.resource_request)
            except InsufficientResources:
                alloc = self._lending.offer(job, waiting.terms, plan)
        return alloc

    def why(self, job: PendingJob) -> str | None:
        preemption = self._record.active.get(job.jobid)
        return None if preemption is None else preemption.reason()

    # -- running jobs ------------------------------------------------------------------------------

    def start(self, job: PendingJob, alloc: ResourcePool) -> dict[str, Any] | None:
        waited, active = self._waiting.pop(job.jobid, None), self._record.active
        if job.jobid in active:
            self._under_way.taker_starts(active[job.jobid])
        if waited is None or waited.terms.cls is None:
            return None
        lent = self._running.enter(job, waited.terms).gives_way_to
        self._takers.search_soon()
        if lent is None:
            return None
        return {"t_preempt": self._under_way.borrower_started(job.jobid, lent)}

    def hello(self, job: RunningJob) -> None:
        self._running.hello(job, self.classes.terms(job.attributes))

    def free(self, jobid: int, R: Any, final: bool) -> None:
        if final and not self._running.jobs and not self._record.active:
            return
        running = self._running.remove(jobid) if final else self._running.ends(jobid)
        if self._record.active:
            self._under_way.freed(running, final)
        self._takers.search_soon()

    def extended(self, jobid: int, expiration: float) -> None:
        self._under_way.extended(jobid, expiration)

    # -- the start, resources and plans ------------------------------------------------------------

    def ready(self) -> None:
        if self._restored:
            for preemption in self._record.active.values():
                if not preemption.in_promise:
                    self._under_way.defer_taker(preemption)  # it is among the pending jobs again
        else:
            self._restored = True
            if self._record.active:
                when = self.host.now() + COME_BACK_S
                self.host.call_at(when, self._under_way.drop_missing)
            self._under_way.restore()
        self._takers.search_soon()

    def ranks_changed(self, lost: bool) -> None:
        self._under_way.ranks_changed()
        self._takers.search_soon()

    def enter_projection(self) -> None:
        """Called when the scheduler enters a projection."""
        self._takers.ask_again()

    # -- answers -----------------------------------------------------------------------------------

    def facts(self, job: PendingJob) -> dict[str, Any]:
        return self.answers.facts(job)

    def stats(self) -> dict[str, Iterable[Any]]:
        return {"preemptions": self._counts.by_class()}


class PreemptionAnswers(Part):
    """Answers queries about preemption."""

    def __init__(self, state: PreemptionState, takers: Takers) -> None:
        super().__init__(state)
        self._takers = takers

    def _choice(self, job: PendingJob) -> Choice | None:
        one, under_way = self._waiting.get(job.jobid), self._record.active.get(job.jobid)
        if one is None or (under_way is not None and not under_way.is_lent):
            return None
        return self._takers.choice(one)

    def facts(self, job: PendingJob) -> dict[str, Any]:
        """Return ``preemption``, the victims whose end would let a job start: ``jobs``,
        ``node_hours`` and ``text``; and ``borrowers`` of time promised to it: ``jobs``, ``end``
        (when the first is ended) and ``text``. None if there are none."""
        choice, lent = self._choice(job), self._record.active.get(job.jobid)
        found: dict[str, Any] = {"preemption": None, "borrowers": None}
        if choice is not None and choice.reason is None:
            hours, jobs = choice.node_hours, len(choice.victims)
            found["preemption"] = {"jobs": jobs, "node_hours": hours, "text": choice.text()}
        if lent is not None and lent.in_promise and lent.held:
            jobs, verb = len(lent.held), "runs" if len(lent.held) == 1 else "run"
            text = f"{jobs_of_classes(lent.victims[one] for one in lent.held)} {verb} in its time"
            found["borrowers"] = {"jobs": jobs, "end": lent.deadline, "text": text}
        return found

    def victim_ends(self) -> dict[int, float]:
        """Return the expected ends of the jobs that are warned or being ended, seconds since the
        epoch: their resources are planned to be in use for longer. Not those in promised time."""
        return {
            jobid: min(self._own_end(jobid), one.expected if jobid in one.ended else one.deadline)
            for one in self._record.active.values()
            if not one.in_promise
            for jobid in one.held
        }

    def preempt(self, payload: Any, caller: Caller) -> Steps:
        """Return the victims of a pending job, for ``--dry-run``. Changes nothing.

        Args:
            payload: ``{"id": N, "dry_run": true}``
            caller (Caller): the client; a guest may query own jobs, and does not see the names of
                others'

        Returns:
            dict: ``name``, ``victims`` (objects with ``name``, ``class``, ``nodes`` and
                ``node_hours``), ``node_hours``, ``text``, and ``reason``: why it has no victims, or
                None

        Raises:
            ValueError: the payload is invalid, or there is no such pending job
        """
        asked = read(payload, id=None, dry_run=False)
        if asked["dry_run"] is not True:
            raise ValueError(
                "jobs take from others by the table [preemption] alone: ask with dry_run"
            )
        job = caller.pending_job(self._host, asked["id"])
        jobid = job.jobid
        if not self._classes.entries:
            raise ValueError("there is no table [preemption] in the configuration")
        yield
        now = self._host.now()
        under_way = self._record.active.get(jobid)
        victims: Iterable[Victim] = ()
        reason: str | None = "it is not known here"
        text = ""
        choice = self._choice(job)
        if under_way is not None and not under_way.is_lent:
            victims, reason = under_way.victims.values(), "jobs are ending for it already"
        elif choice is not None:
            victims, reason, text = choice.victims, choice.reason, choice.text()
        shown = [self._victim(one, caller, now) for one in victims]
        return {
            "now": now,
            "name": name_of(jobid),
            "victims": shown,
            "node_hours": sum(one["node_hours"] for one in shown),
            "text": text,
            "reason": read_by(caller, reason),
        }

    def list(self, payload: Any, caller: Caller) -> Steps:
        """Return the current preemptions, and counts by class.

        A guest sees those for own jobs, and those with own jobs as victims; counts include all.

        Returns:
            dict: ``preemptions``, objects with ``name``, ``queue``, ``state``, ``deadline``,
                ``expected`` and ``victims``; ``borrowers``, the jobs in time promised to others:
                ``name``, ``class``, ``for``, ``state`` and ``end``, when they are ended;
                ``counts``; ``takers``
        """
        read(payload)
        now = self._host.now()
        shown = []
        borrowers = []
        for one in list(self._record.active.values()):
            job = self._host.pending(one.taker)
            owner = one.userid if job is None else job.userid
            taker, victims = caller.name(one.taker, owner), one.victims.values()
            if one.in_promise:
                borrowers += [
                    Owned(
                        {
                            "name": caller.name(victim.jobid, victim.userid),
                            "class": victim.cls,
                            "for": taker,
                            "state": "ended" if victim.jobid in one.ended else one.state,
                            "end": one.deadline,
                        },
                        victim.userid,
                    )
                    for victim in victims
                    if victim.jobid in one.held
                    and (caller.may_see(victim.userid) or caller.may_see(owner))
                ]
            elif any(caller.may_see(who) for who in (owner, *(one.userid for one in victims))):
                shown.append(
                    {
                        "name": taker,
                        "queue": one.queue,
                        "state": one.state,
                        "deadline": one.deadline,
                        "expected": one.expected,
                        "victims": [self._victim(victim, caller, now) for victim in victims],
                    }
                )
            yield
        return {
            "now": now,
            "preemptions": shown,
            "borrowers": borrowers,
            "takers": self._counts.takers,
            "counts": [dict(one) for one in self._counts.by_class()],
        }

    @staticmethod
    def _victim(victim: Victim, caller: Caller, now: float) -> dict[str, Any]:
        shown = {
            "name": caller.name(victim.jobid, victim.userid),
            "class": victim.cls,
            "nodes": victim.nodes,
            "node_hours": victim.node_hours(now),
        }
        return Owned(shown, victim.userid)
