# SPDX-License-Identifier: LGPL-3.0-or-later
"""The search for pending jobs that may preempt others, and the choice of the jobs that must end.

Jobs are added one by one until the waiting job fits: the lowest rank first, then the smallest loss
(nodes x time run), the youngest, the highest id. Then, from the last added to the first, each is
spared if the waiting job still fits, by the pool's own allocation on a copy.

So no chosen job can be left out. The choice need not have the minimum number of jobs or the minimum
loss: finding that is as hard as set cover.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

from flux.resource.pool.inventory import selected_ranks
from flux.scheduler.host import NO_TIMER, ask_job_attributes, counted, name_of
from flux.scheduler.requests import PendingJob
from flux.scheduler.site_policy.holdings import holding_of
from flux.scheduler.site_policy.preemption.state import (
    NEITHER,
    SEARCH_INTERVAL_S,
    TOO_LATE,
    Part,
    PreemptionState,
    Victim,
    Waiting,
    ends_in,
    jobs_of_classes,
)
from flux.scheduler.site_policy.preemption.under_way import Eviction
from flux.scheduler.trial import Place, Trial


def in_order(candidates: Iterable[Victim], now: float) -> list[Victim]:
    """Return candidates in the order in which they are added."""
    return sorted(
        candidates, key=lambda one: (one.rank, one.node_hours(now), -one.start, -one.jobid)
    )


def choose(ordered: Sequence[Victim], trial: Trial) -> list[Victim] | None:
    """Return the candidates (of `in_order`) that must end, in order, and take them out of the trial.
    None: the job would not fit even without all candidates; the trial is unchanged.

    Assumes that ending fewer jobs never leaves more room: twice as many are added each time, and
    those added too many are among the first to be spared. Costs some two trials per chosen job.
    """
    out = 0
    while not out or not trial.fits():  # it was tried without any
        if out == len(ordered):
            for one in reversed(ordered):
                trial.put_back(one.jobid)
            return None
        more = ordered[out : max(1, 2 * out)]
        for one in more:
            trial.take_out(one.jobid)
        out += len(more)
    left = trial.needed([one.jobid for one in ordered[:out]])
    return [one for one in ordered[:out] if one.jobid in left]


#: Maximum number of jobs with different requests considered per search; each costs a copy of the
#: pool. They are spread over the interval, so that a pass follows the decision on each before the
#: next is considered, in a projection as in the instance.
JOBS_PER_SEARCH = 8

#: Maximum number of preemptions for a job: one, and two more if its ranks are lost or a victim
#: cannot be ended.
MOST_TRIES = 3

#: Maximum number of other possible victims checked for ending by themselves.
MAX_OTHERS = 32


class Choice(NamedTuple):
    """The choice of victims for a job."""

    # the jobs that would have to end, in order of selection
    victims: tuple[Victim, ...]
    place: Place  # the resources that it would get
    reason: str | None  # why it preempts none, in a sentence; None if it does
    node_hours: float = 0.0  # the loss
    others: tuple[int, ...] = ()  # ids of the first jobs that could have been chosen instead

    def text(self) -> str:
        """Return ``2 jobs of standby (3.4 node-hours)``."""
        return f"{jobs_of_classes(self.victims)} ({self.node_hours:.1f} node-hours)"


class Takers(Part):
    """Finds the pending jobs that may preempt others, and their victims."""

    def __init__(self, shared: PreemptionState) -> None:
        super().__init__(shared)
        self._timer = NO_TIMER
        self._searched_at = -inf
        #: id of a job -> argument of `consider`, while the job manager is asked about its victims
        self._asked: dict[int, frozenset[int]] = {}

    # -- the search --------------------------------------------------------------------------------

    def search_soon(self, events: int = 0) -> None:
        """Search soon for jobs that may preempt others, if there are such others."""
        if self._running.of_classes:
            self._search_at(max(self._host.now(), self._searched_at) + SEARCH_INTERVAL_S)

    def _search_at(self, when: float) -> None:
        if when < self._timer.when:
            self._timer.cancel()
            self._timer = self._host.call_at(when, self._search)

    def _search(self) -> None:
        self._timer, self._searched_at = NO_TIMER, self._host.now()
        now, takers = self._searched_at, []
        victims = [one for one in self._running.of_classes.values() if one.may_give_way_to(None)]
        times = [one.start + one.terms.after for one in victims]
        classes = {one.terms.cls for one, time in zip(victims, times) if time <= now}
        next_search = min([time for time in times if time > now], default=inf)
        waits: dict[float, list[float]] = {}  # rank of a taker -> the waits of the classes below
        # the jobs that would start if there were room; if none may pass a waiting one, the heads
        startable: Iterable[PendingJob] = self._host.pending_jobs(deferred=False)
        if not self._host.decision.looks_past_heads:
            startable = [job for job, _ in self._host.queue_order.heads()]
        for job in startable if classes else ():
            one = self._waiting.get(job.jobid)
            if one is None:
                continue
            if job.prefers is not None:
                times = [job.prefers[1] + SEARCH_INTERVAL_S]
            else:
                rank = one.terms.rank
                if rank not in waits:
                    waits[rank] = sorted([cls.wait for cls in classes if cls and cls.rank < rank])
                times = [job.came + wait for wait in waits[rank]]
            if not times or now < times[0] >= next_search or not self._is_free_to_take(one):
                continue
            next_search = min([next_search, *[time for time in times if time > now]])
            if times[0] <= now:
                takers.append(one)
                if len(takers) == 16 * JOBS_PER_SEARCH:
                    break  # none behind these is considered
        if next_search < inf:
            self._search_at(max(next_search, now + SEARCH_INTERVAL_S))
        for number, one in enumerate(_different(takers)):
            when = now + number * SEARCH_INTERVAL_S / JOBS_PER_SEARCH
            self._host.call_at(when, partial(self.consider, one.job.jobid))

    def _is_free_to_take(self, one: Waiting) -> bool:
        jobid = one.job.jobid
        under_way = self._active.get(jobid)
        return (
            any(other.rank < one.terms.rank for other in self._classes.entries.values())
            and (under_way is None or under_way.is_lent)
            and not one.job.request.finalized
            and one.tries < MOST_TRIES
            and jobid not in self._host.admission.deferred
        )

    def consider(self, jobid: int, alive: frozenset[int] = frozenset()) -> None:
        """Choose the victims of a job, if it may preempt others, and decide once they are known to
        run. `alive`: ids of jobs that run, by a recent answer of the job manager."""
        one, now = self._waiting.get(jobid), self._host.now()
        if one is None or not self._is_free_to_take(one):
            return
        choice = self.choice(one, now - one.job.came)
        if choice.reason is not None:
            return
        if any(self._classes.entries[victim.cls].log_only for victim in choice.victims):
            self._log_only(one, choice)
            return
        # One of the other possible victims may be about to make room by itself.
        wanted = dict.fromkeys([*(victim.jobid for victim in choice.victims), *choice.others])
        unknown = [victim for victim in wanted if victim not in alive]
        if not unknown:
            self._eviction(one, choice).begin(one, choice.text())
            return

        def told(found: dict[int, dict[str, Any] | None]) -> None:
            self._asked.pop(jobid, None)
            known = alive
            for victim, answer in found.items():
                if victim not in self._running.jobs:
                    continue  # it has ended meanwhile
                if answer is None:
                    self._running.jobs[victim].left_alone = True
                elif ends_in(answer["eventlog"]):
                    self._running.ends(victim)
                else:
                    known |= {victim}
            self._host.errors.guard(f"preemption for {name_of(jobid)}", self.consider, jobid, known)

        self._asked[jobid] = alive
        ask_job_attributes(self._host.handle, unknown, ("eventlog",), self._host.log, told)

    def ask_again(self) -> None:
        """Repeat the queries that have no answer yet, in a projection, which will get none."""
        for jobid, alive in list(self._asked.items()):
            self.consider(jobid, alive)

    def _log_only(self, one: Waiting, choice: Choice) -> None:
        victims = tuple(victim.jobid for victim in choice.victims)
        if one.logged == victims:
            return
        one.logged = victims
        for victim in choice.victims:
            self._counts.of(victim)["logged"] += 1
        names = ", ".join(map(name_of, victims))
        self._host.log.info(
            f"preemption (mode=log): {one.job.name} could start by ending {names}: {choice.text()}"
        )

    # -- the choice --------------------------------------------------------------------------------

    def choice(self, one: Waiting, waited: float = inf) -> Choice:
        """Return the jobs that would have to end for a job to start now. Costs a copy of the pool,
        and some tens of trials on it. `waited`: its wait in seconds; default: sufficient."""
        host, job = self._host, one.job
        if one.terms.rank == NEITHER:
            return no_choice("it waits for its reservation")
        if not host.planning.pool_can("plan"):
            return no_choice("the pool of this scheduler cannot plan")
        if job.jobid in host.admission.deferred:
            cause = host.admission.why(job)
            if cause is not None:
                return no_choice(cause.reason)
        objection = self._objection(job)
        if objection is not None:
            return no_choice(objection)
        if job.prefers is not None:
            return no_choice(job.prefers[0])
        if not host.decision.goes_first(job):
            return no_choice("it is not the next to start")
        found = self._candidates(one, waited)
        if not found:
            return no_choice("no job of a lower rank runs where it could")
        plan, now = host.planning.current(), host.now()
        grace = self._classes.grace(one.cls for one in found)
        assert plan is not None, "the pool can plan"
        start = plan.promises(with_open=False).get(job.jobid, (None, inf))[0]
        if start is None:
            start = plan.copy().earliest(job.resource_request)
        if start is not None and now < start <= now + grace + self._running.kill_timeout:
            return no_choice("it starts soon without that")
        longer = grace + self._running.clean_up()
        if now + longer >= job.latest:
            return no_choice(TOO_LATE)
        trial = Trial(plan, job.resource_request, longer, host.decision.yielding(job))
        if trial.fits():
            return no_choice("it can start without that")
        ending = self._running.about_to_end()
        for jobid in ending:
            trial.take_out(jobid)
        if ending and trial.fits():
            return no_choice("jobs that are ending make room for it")
        for jobid in ending:
            trial.put_back(jobid)
        victims = choose(found, trial)
        if victims is None:
            several = counted(len(found), "job")
            return no_choice(f"it would not fit even if {several} of a lower rank ended")
        offer = trial.offer(partial(host.admission.second_look, job))
        if offer is None:
            return no_choice("promises to others are in the way")
        place, refused = offer
        # Others would end for promises that others have, which hold without that.
        victims = [one for one in victims if self._is_on(one.jobid, place)]
        if not victims:
            return no_choice("promises to others are in the way")
        reason = self._beyond(victims, now)
        if reason is None and refused is not None:
            reason = str(refused.deferral.text)
        lost = sum(one.node_hours(now) for one in victims)
        others = tuple(one.jobid for one in found[:MAX_OTHERS])
        choice = Choice(tuple(victims), place, reason, lost, others)
        if reason is None and self._eviction(one, choice).would_break_a_promise(job):
            return choice._replace(
                reason="a promise to another job would break if they did not end"
            )
        return choice

    def _eviction(self, one: Waiting, choice: Choice) -> Eviction:
        """Return the preemption that a choice begins."""
        now = self._host.now()
        deadline = now + self._classes.grace(victim.cls for victim in choice.victims)
        return Eviction(
            self.shared,
            one.job.jobid,
            one.terms.queue,
            one.job.userid,
            {victim.jobid: victim for victim in choice.victims},
            selected_ranks(choice.place[0]),
            now,
            deadline,
            deadline + self._running.clean_up(),
            job=one.job,
            places=[choice.place],
        )

    def _candidates(self, taker: Waiting, waited: float) -> list[Victim]:
        """Return the running jobs that a job may preempt, in order. `waited`: its wait in seconds;
        infinite: ignore the classes' ``wait``."""
        pool, now = self._host.resources, self._host.now()
        request = taker.job.resource_request
        wanted = pool.match_mask(request) & pool.eligible_ranks(request)
        found = []
        for one in self._running.of_classes.values():
            cls = one.terms.cls
            if (
                cls is not None
                and cls.rank < taker.terms.rank
                and now - one.start >= one.terms.after
                and waited >= cls.wait
                and one.may_give_way_to(taker.job.jobid)
            ):
                held = holding_of(pool, one.jobid)
                if held.ranks & wanted:
                    started = one.start, one.userid
                    found.append(Victim(one.jobid, cls.name, held.nodes, *started, cls.rank))
        return in_order(found, now)


def _different(takers: list[Waiting]) -> list[Waiting]:
    """Return the first job of each request, in order: the choice for it is valid for the others."""
    different: dict[Any, Waiting] = {}
    for one in takers:
        job = one.job
        key = job.jobid if job.signature is None else (job.signature, job.limit)
        different.setdefault(key, one)
    return list(different.values())[:JOBS_PER_SEARCH]


def no_choice(reason: str, victims: Iterable[Victim] = ()) -> Choice:
    """Return the choice for a job that preempts none, or for which `victims` end already."""
    return Choice(tuple(victims), ((), 0), reason)
