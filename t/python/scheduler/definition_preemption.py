# SPDX-License-Identifier: LGPL-3.0-or-later
"""Preemption in the histories of `definition_play`: the searches of the scheduler, and what follows by
the definition."""

from dataclasses import dataclass, field
from dataclasses import replace as changed
from math import inf
from typing import Any, NamedTuple

from flux.resource.plan.availability import Availability, Use
from flux.resource.pool.inventory import common
from flux.scheduler.definition import Job, mask, needed, victims_for, without
from flux.scheduler.projection.player import ENDING_S

#: Seconds that a job of queue standby runs undisturbed, that a job waits before it preempts others, and
#: between warning and end.
AFTER, WAIT, GRACE = 10.0, 5.0, 20.0

#: Reasons for no victims that are compared.
COMPARED = "no job of a lower rank", "it would not fit", "it can start", "promises to others"


class Search(NamedTuple):
    """A search for the victims of a pending job: its time, the job, the seconds until it would start, the
    victims, the reason why there are none, and whether they were to end."""

    time: float
    jobid: int
    longer: float
    victims: tuple
    reason: Any
    began: bool = False


def note_searches(rule, searches):
    """Have a scheduler's searches for victims appended to a list."""
    takers, active = rule.shared.takers, rule.shared.active
    choice, consider = takers.choice, takers.consider

    def note_choice(one, waited=inf):
        found = choice(one, waited)
        if waited < inf:  # not a query
            longer = rule.shared.running.clean_up() + rule.classes.grace(rule.classes.entries)
            ids = tuple(victim.jobid for victim in found.victims)
            searches.append(Search(rule.host.now(), one.job.jobid, longer, ids, found.reason))
        return found

    def note_beginning(jobid, *alive):
        before = active.get(jobid)
        consider(jobid, *alive)
        if active.get(jobid) is not before:
            searches[-1] = searches[-1]._replace(began=True)

    takers.choice, takers.consider = note_choice, note_beginning


@dataclass(eq=False)
class Eviction:
    """Victims that end for a job, and what is kept for it of its place by another that is not there."""

    job: Job
    victims: dict  # -> planned ends without it
    where: dict  # its place, by rank
    deadline: float
    expected: float  # its expected start
    ghost: Job
    is_over: bool = False  # whether its victims were ended
    later: list = field(default_factory=list)  # jobs that hold parts of its place after victims


class Evictions:
    """A part of `definition_play.Player`."""

    def search_due(self, without_takers=False):
        """Make the searches that are due; before a change, none for a job with victims already.
        Return whether some are to end."""
        found, takers = False, [one.job.id for one in self.evictions if without_takers]
        while self.searches and self.searches[0].time <= self.now:
            if self.searches[0].jobid in takers:
                break
            one = self.searches.pop(0)
            found |= self.search(one)
            if one.reason is None and not one.began:
                break  # it is repeated when the victims are known to run, after a pass
        return found

    def search(self, one):
        """Choose the victims of a pending job as in a search of the scheduler, and compare; then warn
        them. Return whether they are to end."""
        state, wanted = self.state, ()
        job = next((job for job in state.pending if job.id == one.jobid), None)
        text = str(one.reason)
        if job is None or not (one.reason is None or text.startswith(COMPARED)):
            if one.reason is None:
                self.wrong.append(f"job {one.jobid}: preempts {one.victims}, but is not pending")
            return False
        if not job.is_aside and self.now - self.came[job.id] >= WAIT:
            wanted = tuple(other.id for other in victims_for(state, job, one.longer))
        if wanted != one.victims:
            when = round(self.now - self.begin, 3)
            self.wrong.append(
                f"job {job.id} at {when}: preempts {one.victims} ({text}), definition {wanted}"
            )
        running = {other.id: other for other in state.running}
        victims = [running[jobid] for jobid in one.victims if jobid in running]
        return one.began and self.evict(job, victims, one)

    def evict(self, job, victims, one):
        """Warn running jobs, and keep the free part of a job's place for it. Return whether they make
        room for it."""
        state = self.state
        trial, end = without(state, job, victims), self.now + job.limit + one.longer
        for ranks, _, until in trial.tries(job, end):
            found = trial.place(job, until, ranks)
            if found is not None:
                break
        else:
            return False
        takes = {name: count for name, count in job.takes.items() if state.counters[name].planned}
        ends = {other: state.running[other].end for other in victims}
        grace = GRACE if "grace" in self.case.features else 0.0
        ghost, expected = Job(-job.id, job.demands, takes=takes), self.now + one.longer
        eviction = Eviction(job, ends, found[0][1], self.now + grace, expected, ghost)
        self.evictions.append(eviction)
        assured = state.assured & {job}  # others leave it its part of limits
        state.drop(job)
        state.assured |= assured
        if state.policy != "strict":
            state.pending.remove(job)
            job.was_aside = True  # if it comes back, it takes no precedence
        for other in victims:
            other.class_rank = inf
        self.plan_ends(eviction)
        self.keep(eviction)
        self.move_promises()
        if eviction.deadline <= self.now:
            self.end_victims(eviction)
        return True

    def plan_ends(self, eviction):
        """Set the planned ends of victims: promises hold whether they end or not, and there are none
        in strict order."""
        for other, end in eviction.victims.items():
            if other in self.state.running and self.state.policy == "strict":
                self.state.running[other].end = min(end, eviction.expected)

    def keep(self, eviction):
        """Keep what is free of a job's place for it."""
        self.state.freed = True
        self.drop_rests(eviction)
        self.let_go(eviction)
        job, where = eviction.job, eviction.where
        self.follow()
        pool = self.pool.copy()
        for other in eviction.victims:
            if other in self.state.running:
                pool.free(other.id)
        if self.placed.get(job.id, (None,))[0] != where:
            self.placed[job.id] = where, self.place_on(pool, job, where)
        (selection, _), claim = self.placed[job.id][1], job.demands[0].claim
        kept = self.pool.hold_free(
            eviction.ghost.id, mask(where), 0.0, None if claim else selection
        )
        self.held.add(eviction.ghost.id)
        start = max(eviction.expected, self.now)
        until = max(start, self.now + 1.0) if self.state.policy == "strict" else start + job.limit
        amounts = self.amounts_of(self.pool.held(eviction.ghost.id)) if kept else {}
        self.state.running[eviction.ghost] = Use(-inf, until, None, amounts, claim)
        for other, end in eviction.victims.items():
            if other in self.state.running and end < until and self.state.policy != "strict":
                later = Job(eviction.ghost.id, job.demands)
                part = common(self.pool.held(other.id), selection)
                self.state.running[later] = Use(end, until, None, self.amounts_of(part), claim)
                eviction.later.append(later)

    def drop_rests(self, eviction):
        """Keep what victims hold no longer after their own ends."""
        while eviction.later:
            del self.state.running[eviction.later.pop()]

    def let_go(self, eviction):
        """Keep nothing that is free now for a job."""
        use = self.state.running.pop(eviction.ghost, None)
        if use is not None and use.where:
            self.pool.free(eviction.ghost.id)

    def move_promises(self):
        """Move promises from ranks that are kept, before a job starts, unless one cannot move: return
        whether all can."""
        state, before = self.state, {job: changed(use) for job, use in self.state.promises.items()}
        for job, promise in before.items():
            is_bound = promise.demand is not None
            if is_bound and not state.holds(job) and not state.promise(job, promise.start):
                state.promises = before
                return False
        return True

    def end_victims(self, eviction):
        """Start a job whose victims' time is over, or end those without which it does not fit. Return
        whether other jobs may start."""
        state, job, freed = self.state, eviction.job, self.state.freed
        self.let_go(eviction)
        if eviction.expected >= job.latest or state.is_held(job):
            self.call_off(eviction)
            return True
        if self.start_taker(eviction):
            return True
        victims = [one for one in eviction.victims if one in state.running]
        self.drop_rests(eviction)
        self.let_go(eviction)
        ranks, end = mask(eviction.where), self.now + job.limit

        def suffices(ended):
            return without(state, job, ended).place(job, end, ranks) is not None

        # Promises are not in the way of its place, but victims have to end so that these are kept.
        left = needed(victims, suffices) if suffices(victims) else victims
        trial, place = changed(without(state, job, left), promises={}), eviction.where
        found = trial.place(job, end, ranks)
        eviction.where = found[0][1] if found is not None else place
        if state.is_over(job, Use(self.now, end, None, eviction.where)):
            self.call_off(eviction)  # its place would exceed a limit
            return True
        left = [one for one in left if mask(eviction.where) & mask(state.running[one].where)]
        self.keep(eviction)
        if not self.move_promises():
            eviction.where, left = place, victims
            self.keep(eviction)
        for one in victims:
            if one not in left:
                self.spare(eviction, one)
        if not left:
            self.call_off(eviction)
        eviction.is_over = True
        for one in left:
            self.ends[one] = min(self.ends[one], self.now + ENDING_S)
        is_as_before = left == victims and eviction.where == place
        state.freed = freed if is_as_before else True
        return not is_as_before

    def spare(self, eviction, one):
        """Let a victim run to its own end."""
        end = eviction.victims.pop(one)
        if one in self.state.running:
            self.state.running[one].end, one.class_rank = end, 0.0

    def call_off(self, eviction):
        """Let all victims run, and the job wait, unless it has started."""
        self.state.assured.discard(eviction.job)
        self.drop_rests(eviction)
        self.let_go(eviction)
        self.evictions.remove(eviction)
        for one in list(eviction.victims):
            self.spare(eviction, one)
        if eviction.job not in self.state.pending and eviction.job not in self.state.running:
            eviction.job.is_aside = False
            self.state.pending.append(eviction.job)
        self.state.freed = True

    def start_taker(self, eviction):
        """Start a job in its place or, before victims are ended, elsewhere. Return whether it has
        started."""
        state, job = self.state, eviction.job
        where, placed = self.placed[job.id]
        self.let_go(eviction)
        self.follow()
        claim, running = job.demands[0].claim, state.running.values()
        # At minus infinity it is beside jobs past their ends, too.
        use = Use(-inf, -inf, None, where, claim)
        room, is_up = Availability(state.totals), where.keys() <= state.totals.keys()
        is_open = is_up and room.holds(use, -inf, where, running)
        if is_open and self.pool.index.is_free(placed[0]):
            use.end = self.now + job.limit
            if job in state.pending:
                state.pending.remove(job)
            state.drop(job)
            state.running[job] = use
            job.began, job.until = self.now, self.now + job.limit
        elif not eviction.is_over:
            was_pending = job in state.pending
            if not was_pending:
                state.pending.append(job)
            state.start(job)
            if job not in state.running:
                job.is_aside = job.is_refused = False  # its own place may be within limits
            if job not in state.running and not was_pending:
                state.pending.remove(job)
        if job not in state.running:
            self.placed[job.id] = where, placed
            self.keep(eviction)
            return False
        self.call_off(eviction)
        self.starts[job.id] = self.now
        self.ends[job] = self.jobs[job.id].end(self.now, state.running[job].end)
        self.follow()
        return True

    def retry_takers(self):
        """Start the jobs for which there is room now that ranks have come up."""
        for eviction in list(self.evictions):
            self.start_taker(eviction)

    def go_on(self, have_ended):
        """Start the jobs for which there is room now that some have ended, and end victims."""
        went_on = False
        for eviction in self.evictions if have_ended else ():
            if not eviction.victims.keys() <= self.state.running.keys():
                self.keep(eviction)  # what its victims held is kept for it before another starts
        for eviction in list(self.evictions):
            are_left = any(one in self.state.running for one in eviction.victims)
            if have_ended and not (eviction.is_over and are_left):
                went_on |= self.start_taker(eviction)
            if (
                eviction in self.evictions
                and not eviction.is_over
                and eviction.deadline <= self.now
            ):
                went_on |= self.end_victims(eviction)
        return went_on
