# SPDX-License-Identifier: LGPL-3.0-or-later
"""The answers to ``flux sched preempt --dry-run``, ``preemptions`` and ``explain``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flux.scheduler.disclosure import Owned, read_by
from flux.scheduler.host import name_of
from flux.scheduler.query.answering import Caller, Steps, read
from flux.scheduler.site_policy.preemption.record import jobs_of_classes
from flux.scheduler.site_policy.preemption.state import Part

if TYPE_CHECKING:
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.site_policy.preemption.borrowed_time import BorrowedTime
    from flux.scheduler.site_policy.preemption.record import Victim
    from flux.scheduler.site_policy.preemption.state import PreemptionState
    from flux.scheduler.site_policy.preemption.takers import Choice, Takers


class PreemptionAnswers(Part):
    """Answers queries about preemption."""

    def __init__(self, state: PreemptionState, takers: Takers, borrowed: BorrowedTime) -> None:
        super().__init__(state)
        self._takers, self._borrowed = takers, borrowed

    def _choice(self, job: PendingJob) -> Choice | None:
        one = self._waiting.get(job.jobid)
        if one is None or job.jobid in self._record.active:
            return None
        return self._takers.choice(one)

    def could_take(self, job: PendingJob) -> dict[str, Any] | None:
        """Return, for ``sched.explain``, the victims whose end would let a job start: ``jobs``,
        ``node_hours`` and ``text``; None if there are none."""
        choice = self._choice(job)
        if choice is None or choice.reason is not None:
            return None
        return {"jobs": len(choice.victims), "node_hours": choice.node_hours, "text": choice.text()}

    def borrowers(self, job: PendingJob) -> dict[str, Any] | None:
        """Return, for ``sched.explain``, the borrowers of time promised to a job: ``jobs``, ``end``
        (when the first is ended) and ``text``; None if there are none."""
        borrowed = self._borrowed
        found = borrowed.by_taker(job.jobid)
        if not found:
            return None
        verb = "runs" if len(found) == 1 else "run"
        return {
            "jobs": len(found),
            "end": min(borrowed.deadline(one) for one in found),
            "text": f"{jobs_of_classes(one.victim for one in found)} {verb} in its time",
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
        if under_way is not None:
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
        for one in list(self._record.active.values()):
            users = {one.userid, *(victim.userid for victim in one.victims.values())}
            if not any(caller.may_see(userid) for userid in users):
                continue
            shown.append(
                {
                    "name": caller.name(one.taker, one.userid),
                    "queue": one.queue,
                    "state": one.state,
                    "deadline": one.deadline,
                    "expected": one.expected,
                    "victims": [
                        self._victim(victim, caller, now) for victim in one.victims.values()
                    ],
                }
            )
            yield
        borrowers = []
        for borrower in list(self._record.borrowers.values()):
            taker = self._host.pending(borrower.taker)
            owner = None if taker is None else taker.userid
            victim = borrower.victim
            if not caller.may_see(victim.userid) and not caller.may_see(owner):
                continue
            borrowers.append(
                Owned(
                    {
                        "name": caller.name(victim.jobid, victim.userid),
                        "class": victim.cls,
                        "for": caller.name(borrower.taker, owner),
                        "state": borrower.state,
                        "end": self._borrowed.deadline(borrower),
                    },
                    victim.userid,
                )
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
