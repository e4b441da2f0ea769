# SPDX-License-Identifier: LGPL-3.0-or-later
"""Preemption: running jobs of a low class are ended for a waiting job of a higher class to start.

*Search* (`takers`). After a pass, or when a job has waited long enough, victims are chosen for the
first pending jobs that may preempt others, with the resources that such a job would get, its place.
Only the job manager knows which jobs are being cleaned up: it is asked whether these victims still
run, and if one does not, the choice is repeated.

*Decision* (`under_way`). A placeholder, which belongs to
no job, gets the free part of the place. In the plan this and the victims' resources are in use
until the job will have ended, so that no job is promised resources that a kill may fail to free.
The record is stored before any victim is warned.

*Warning and end.* During the grace the job starts elsewhere if it can. At the deadline, victims that
are no longer needed are spared and told so, and the rest are ended. The job then starts on its
place, and only there: elsewhere it would not need them.

Jobs of a class with ``into-promises`` may also start in time promised to jobs of a higher one
(`loans`), which are their takers from then on. After a reload of the scheduler, preemptions
continue from the record (`state`); without it no job is ended.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from math import inf
from typing import Any

from flux.resource.errors import InsufficientResources
from flux.resource.plan.plan import Plan
from flux.resource.pool.masks import parse_idset
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.admission import GivingRule
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.checkpoint import read_stored
from flux.scheduler.disclosure import Owned, read_by
from flux.scheduler.host import ErrorReporter
from flux.scheduler.query.answering import Caller, Steps, read
from flux.scheduler.requests import PendingJob, RunningJob
from flux.scheduler.rule_host import RuleHost
from flux.scheduler.site_policy.preemption.loans import Loan, Loans
from flux.scheduler.site_policy.preemption.state import (
    ENDING,
    KEY,
    LENT,
    WARNED,
    Part,
    PreemptionClass,
    PreemptionState,
    Victim,
    Waiting,
    jobs_of_classes,
    read_class,
)
from flux.scheduler.site_policy.preemption.takers import Choice, Takers, no_choice
from flux.scheduler.site_policy.preemption.under_way import Eviction, Preemption
from flux.scheduler.site_policy.table_rule import TableRule

#: Seconds after the start within which a recorded job must come back.
COME_BACK_S = 5.0


class PreemptionRule(GivingRule, TableRule):
    """Ends running jobs for pending ones, by the table ``[preemption]``."""

    name = "preemption"
    table = "preemption"
    parse = staticmethod(read_class)

    host: RuleHost

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        self.shared = shared = PreemptionState(host, self)
        self.classes, self._waiting, self._running = shared.classes, shared.waiting, shared.running
        self._active, self._counts = shared.active, shared.counts
        shared.takers = self._takers = Takers(shared)
        shared.loans = self._loans = Loans(shared)
        self.answers = PreemptionAnswers(shared)  # answers queries
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
            if one.signal and not one.grace:
                yield name, "signal: it is sent with a warning, and grace=0 gives none"

    def configure(self, entries: dict[str, Any]) -> None:
        if not self.loaded:
            try:
                read_stored(self.host.handle, KEY, self._load)
            except OSError:
                pass
            except ValueError as exc:
                self.errors.report(f"preemptions under way are forgotten: {exc}")
        self.classes.entries = entries
        self.shared.engage()
        # After a pass the next job to start may be another.
        self.host.tell_of_passes(self._takers.search_soon, bool(entries))
        if not entries:
            for preemption in list(self._active.values()):
                preemption.give_up("the table was removed", "configuration")
            self._waiting.clear()
            self._running.jobs.clear()
            self._running.of_classes.clear()

    def _load(self, stored: Any) -> None:
        """Read the record stored by the previous scheduler."""
        found: dict[int, Preemption] = {}
        for one in stored["preemptions"]:
            victims = {victim.jobid: victim for victim in map(Victim.from_dict, one["victims"])}
            taker, ranks = int(one["taker"]), parse_idset(one["ranks"])
            whose = one["queue"], one["userid"]
            decided, deadline, expected = (
                float(one[key]) for key in ("decided", "deadline", "expected")
            )
            found[taker] = Eviction(
                self.shared, taker, *whose, victims, ranks, decided, deadline, expected
            )
        for one in stored.get("borrowers", ()):
            victim, taker, until = Victim.from_dict(one), int(one["taker"]), float(one["until"])
            state = WARNED if one["warned"] else LENT
            new = Loan(self.shared, taker, one["queue"], None, {}, 0, until, until, until, state)
            loan = found.setdefault(taker, new)
            if loan.in_promise:
                loan.victims[victim.jobid] = victim
                loan.held.add(victim.jobid)
        self._active.update(found)

    # -- pending jobs ------------------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        terms = self.classes.terms(attributes)
        waiting = self._waiting.setdefault(job.jobid, Waiting(job, terms))
        waiting.terms = terms
        preemption = self._active.get(job.jobid)
        if preemption and preemption.job is None and not preemption.in_promise:
            preemption.resume(waiting)

    def signature(self, job: PendingJob) -> Hashable:
        waiting = self._waiting.get(job.jobid)
        cls = None if waiting is None else waiting.terms.cls
        if waiting is None or cls is None:
            return None
        # Its undisturbed run time affects whether it may start into promised time.
        return (cls.name, waiting.terms.after) if cls.into_promises else cls.name

    def cancel(self, jobid: int) -> None:
        self._waiting.pop(jobid, None)
        preemption = self._active.get(jobid)
        if preemption is not None:
            preemption.taker_is_gone()

    def allocate(self, job: PendingJob, plan: Plan) -> ResourcePool | None:
        preemption, waiting = self._active.get(job.jobid), self._waiting.get(job.jobid)
        alloc = None if preemption is None else preemption.allocate(job, plan)
        cls = None if waiting is None else waiting.terms.cls
        if alloc is None and waiting is not None and cls is not None and cls.into_promises:
            try:
                alloc = plan.alloc(job.jobid, job.resource_request)
            except InsufficientResources:
                alloc = self._loans.offer(job, waiting.terms, plan)
        return alloc

    def why(self, job: PendingJob) -> str | None:
        preemption = self._active.get(job.jobid)
        return None if preemption is None else preemption.reason()

    # -- running jobs ------------------------------------------------------------------------------

    def start(self, job: PendingJob, alloc: ResourcePool) -> dict[str, Any] | None:
        waited, preemption = self._waiting.pop(job.jobid, None), self._active.get(job.jobid)
        if preemption is not None:
            preemption.taker_starts()
        if waited is None or waited.terms.cls is None:
            return None
        loan = self._running.enter(job, waited.terms).gives_way_to
        return {"t_preempt": loan.borrower_started(job.jobid)} if isinstance(loan, Loan) else None

    def hello(self, job: RunningJob) -> None:
        self._running.hello(job, self.classes.terms(job.attributes))

    def free(self, jobid: int, R: Any, final: bool) -> None:
        active = self._active
        if final and not self._running.jobs and not active:
            return
        running = self._running.remove(jobid) if final else self._running.ends(jobid)
        preemption = None if running is None else running.gives_way_to
        if preemption is not None:
            preemption.freed(jobid, final)
        for one in list(active.values()):
            if one is not preemption:
                one.keep_if_free()
        for one in list(active.values()):
            one.try_to_start()
        if preemption is not None:
            preemption.retry_start()

    def extended(self, jobid: int, expiration: float) -> None:
        running = self._running.jobs.get(jobid)
        if running is not None and running.gives_way_to is not None:
            running.gives_way_to.extended(jobid, expiration or inf)

    # -- the start, resources and plans ------------------------------------------------------------

    def ready(self) -> None:
        current = list(self._active.values())
        if self._restored:
            for preemption in current:
                if not preemption.in_promise:
                    preemption.defer_taker()  # it is among the pending jobs again
        else:
            self._restored = True
            if current:
                self.host.call_at(self.host.now() + COME_BACK_S, self._drop_missing)
            for preemption in current:
                preemption.restore()
            self.shared.engage()
        self._takers.search_soon()

    def _drop_missing(self) -> None:
        """End the preemptions whose takers have not come back."""
        for preemption in list(self._active.values()):
            is_kept = preemption.in_promise and preemption.state == ENDING
            if preemption.job is None and not is_kept:
                preemption.taker_is_gone()

    def ranks_changed(self, lost: bool) -> None:
        for preemption in list(self._active.values()):
            preemption.ranks_changed()

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

    def _choice(self, job: PendingJob) -> Choice:
        """Return the victims of a pending job."""
        one, under_way = self._waiting.get(job.jobid), self._active.get(job.jobid)
        if under_way is not None and not under_way.is_lent:
            return no_choice("jobs are ending for it already", under_way.victims.values())
        if one is None:
            return no_choice("it is not known here")
        choice: Choice = self.shared.takers.choice(one)
        return choice

    def facts(self, job: PendingJob) -> dict[str, Any]:
        """Return ``preemption``, the victims whose end would let a job start: ``jobs``,
        ``node_hours`` and ``text``; and ``borrowers`` of time promised to it: ``jobs``, ``end``
        (when the first is ended) and ``text``. None if there are none."""
        choice, lent = self._choice(job), self._active.get(job.jobid)
        found: dict[str, Any] = {"preemption": None, "borrowers": None}
        if choice.reason is None:
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
            jobid: min(
                self._running.own_end(jobid), one.expected if jobid in one.ended else one.deadline
            )
            for one in self._active.values()
            if not one.in_promise
            for jobid in one.held
        }

    def preempt(self, payload: Any, caller: Caller) -> Steps:
        """Return the victims of a pending job, for ``--dry-run``; changes nothing. Payload:
        ``{"id": N, "dry_run": true}``. A guest may query own jobs, and does not see the names of
        others'. Returns ``name``, ``victims`` (objects with ``name``, ``class``, ``nodes`` and
        ``node_hours``), ``node_hours``, ``text``, and ``reason``: why it has no victims, or None.
        Raises ValueError if the payload is invalid, or there is no such job."""
        asked = read(payload, id=None, dry_run=False)
        if asked["dry_run"] is not True:
            raise ValueError(
                "jobs take from others by the table [preemption] alone: ask with dry_run"
            )
        job = caller.pending_job(self._host, asked["id"])
        if not self._classes.entries:
            raise ValueError("there is no table [preemption] in the configuration")
        yield
        now, choice = self._host.now(), self._choice(job)
        shown = [self._victim(one, caller, now) for one in choice.victims]
        return {
            "now": now,
            "name": job.name,
            "victims": shown,
            "node_hours": sum(one["node_hours"] for one in shown),
            "text": choice.text(),
            "reason": read_by(caller, choice.reason),
        }

    def list(self, payload: Any, caller: Caller) -> Steps:
        """Return the current preemptions, and counts by class. A guest sees preemptions whose taker
        or victims are its own jobs; counts include all.

        Returns ``preemptions``, objects with ``name``, ``queue``, ``state``, ``deadline``,
        ``expected`` and ``victims``; ``borrowers``, the jobs in time promised to others: ``name``,
        ``class``, ``for``, ``state`` and ``end``, when they are ended; ``counts``; ``takers``."""
        read(payload)
        now = self._host.now()
        shown = []
        borrowers = []
        for one in list(self._active.values()):
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
            "counts": [*self._counts.by_class()],
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
