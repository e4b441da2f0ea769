# SPDX-License-Identifier: LGPL-3.0-or-later
"""The pending jobs, and the search for those that may preempt others."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Callable

from flux.scheduler.host import ask_job_attributes, name_of
from flux.scheduler.site_policy.preemption.state import Part, has_ended

if TYPE_CHECKING:
    from flux.scheduler.host import Timer
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.site_policy.preemption.classes import PreemptionTerms
    from flux.scheduler.site_policy.preemption.state import PreemptionState
    from flux.scheduler.site_policy.preemption.victims import Choice, Chooser

#: Seconds between searches: each covers all events since the last, after the pass that may start
#: jobs without ending others.
LOOK_INTERVAL_S = 1.0

#: Maximum number of jobs with different requests considered per search; each costs a copy of the
#: pool.
JOBS_PER_LOOK = 8

#: Maximum number of preemptions for a job: one, and two more if its ranks are lost or a victim
#: cannot be ended.
MOST_TRIES = 3


@dataclass(eq=False)
class Waiting:
    """A pending job."""

    job: PendingJob
    terms: PreemptionTerms
    tries: int = 0  # number of choices of victims for it
    logged: tuple[int, ...] = ()  # ids of the victims that were last logged


class Takers(Part):
    """Finds the pending jobs that may preempt others, and their victims. `decide`: called with a
    `Waiting` job and its `Choice`, whose victims are known to run."""

    def __init__(
        self, state: PreemptionState, chooser: Chooser, decide: Callable[[Waiting, Choice], None]
    ) -> None:
        super().__init__(state)
        self._chooser, self._decide = chooser, decide
        self.waiting: dict[int, Waiting] = {}  # id -> pending job
        self._timer: Timer | None = None
        self._looked_at = -inf
        #: jobs still to be considered in the current search
        self._left: list[Waiting] = []

    def terms_of(self, jobid: int) -> PreemptionTerms | None:
        """Return the terms of a pending job, or None."""
        found = self.waiting.get(jobid)
        return None if found is None else found.terms

    def enter(self, job: PendingJob, terms: PreemptionTerms) -> Waiting:
        """Add a pending job, or update it after the classes have changed."""
        one = self.waiting.setdefault(job.jobid, Waiting(job, terms))
        one.terms = terms
        return one

    def look_soon(self) -> None:
        """Search soon for jobs that may preempt others."""
        self._look_at(max(self._host.now(), self._looked_at) + LOOK_INTERVAL_S)

    def _look_at(self, when: float) -> None:
        timer = self._timer
        if timer is not None:
            if timer.when <= when:
                return
            timer.cancel()
        self._timer = self._host.call_at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._classes.entries:
            return
        self._looked_at = now = self._host.now()
        classes, next_look = self._running.classes(now)
        if not classes and next_look == inf:
            return  # no job could give way
        takers = []
        for one in self._startable():
            if not self._is_free_to_take(one):
                continue
            if one.job.prefers is not None:
                next_look = min(next_look, one.job.prefers[1] + LOOK_INTERVAL_S)
                continue
            waits = [cls.wait for cls in classes.values() if cls.rank < one.terms.rank]
            if not waits:
                continue
            job = one.job
            if now >= job.came + min(waits):
                takers.append((job.order, job.jobid, one))
            later = [job.came + wait for wait in waits if job.came + wait > now]
            next_look = min([next_look, *later])
        if next_look < inf:
            self._look_at(max(next_look, now + LOOK_INTERVAL_S))
        first = heapq.nsmallest(16 * JOBS_PER_LOOK, takers)
        self._left = _different([one for _, _, one in first])
        self._consider_next()

    def _startable(self) -> Iterable[Waiting]:
        """Return the pending jobs that would start if there were room; if no job may pass a waiting
        one, the heads."""
        if self._host.decision.looks_past_heads:
            return list(self.waiting.values())
        heads = [self.waiting.get(job.jobid) for job, _ in self._host.queue_order.heads()]
        return [one for one in heads if one is not None]

    def _is_free_to_take(self, one: Waiting) -> bool:
        jobid = one.job.jobid
        return (
            self._classes.may_take(one.terms)
            and jobid not in self._record.active
            and not one.job.request.finalized
            and one.tries < MOST_TRIES
            and jobid not in self._host.admission.deferred
        )

    def _consider_next(self) -> None:
        """Consider one job, and schedule the next for another reactor turn."""
        if not self._left:
            return
        jobid = self._left.pop(0).job.jobid
        if self._left:
            self._host.call_at(self._host.now(), self._consider_next)
        self.consider(jobid)

    def consider(self, jobid: int, alive: frozenset[int] = frozenset()) -> None:
        """Choose the victims of a job, if it may preempt others, and decide once they are known to
        run. `alive`: ids of jobs that run, by a recent answer of the job manager."""
        one, now = self.waiting.get(jobid), self._host.now()
        if one is None or not self._is_free_to_take(one):
            return
        choice = self._chooser.consider(one.job, one.terms, now - one.job.came)
        if choice.reason is not None:
            return
        if any(self._classes.entries[victim.cls].log_only for victim in choice.victims):
            self._log_only(one, choice)
            return
        # One of the other possible victims may be about to make room by itself.
        wanted = dict.fromkeys([*(victim.jobid for victim in choice.victims), *choice.others])
        unknown = [victim for victim in wanted if victim not in alive]
        if not unknown:
            self._decide(one, choice)
            return

        def told(found: dict[int, dict[str, Any] | None]) -> None:
            known = alive
            for victim, answer in found.items():
                running = self._running.jobs.get(victim)
                if answer is None:
                    if running is not None:
                        running.left_alone = True
                elif has_ended(answer["eventlog"]):
                    self._running.ends(victim)
                else:
                    known |= {victim}
            self._errors.guard(f"preemption for {name_of(jobid)}", self.consider, jobid, known)

        ask_job_attributes(self._host.handle, unknown, ("eventlog",), self._host.log, told)

    def _log_only(self, one: Waiting, choice: Choice) -> None:
        victims = tuple(victim.jobid for victim in choice.victims)
        if one.logged == victims:
            return
        one.logged = victims
        self._counts.only_logged(choice.victims)
        names = ", ".join(name_of(jobid) for jobid in victims)
        self._host.log.info(
            f"preemption (mode=log): {one.job.name} could start by ending {names}: {choice.text()}"
        )


def _different(takers: list[Waiting]) -> list[Waiting]:
    """Return the first job of each request, in order: the choice for it is valid for the others."""
    seen = set()
    different = []
    for one in takers:
        key = (one.job.signature, one.job.limit)
        if one.job.signature is None or key not in seen:
            seen.add(key)
            different.append(one)
    return different[:JOBS_PER_LOOK]
