# SPDX-License-Identifier: LGPL-3.0-or-later
"""The definition of a scheduling decision: the jobs that start now, and the promises.

`decide` is one pass over the queue, by brute force: plain data in, decisions out, and no memory but
the state. The schedulers decide the same, only faster (``t/python/scheduler/test_definition.py``).
To look ahead, remove the next job to end from ``running`` and decide again.

A job *fits now* if ranks have room for all of its limit, beside running jobs, and all promises can
still be kept (`Pass.place`). Room on ranks is defined in ``flux/resource/plan/availability.py``,
the other half of this definition. Interchangeable units (whole nodes of one kind, single cores) are
only counted: such a *line* is one rank with that number of units.

- sched-fifo (`Pass.strictly`): no job starts behind a waiting one.
- sched-backfill (`Pass.in_turns`): a job starts if it fits now; otherwise, if it is among the first
  N waiting jobs, it is *promised* the first time at which it fits: EASY with N = 1 (Lifka 1995),
  conservative backfill with all (Mu'alem and Feitelson 2001). ``rank=`` and ``candidates=`` are
  other orders.
- ``promise=all`` (`Pass.by_latest_starts`): each job is promised a latest start on arrival.

A site's rule is an entry in the data: a counter (limit, licence), a claim on ranks, demands within
one rack each, a window, a level of preemption, a latest start.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from math import inf, nextafter
from typing import Callable, NamedTuple, Optional

from flux.resource.plan.availability import (
    MAX_PROMISES,
    Amounts,
    Availability,
    Demand,
    Use,
    Where,
    fits,
)
from flux.resource.plan.claims import LAST
from flux.resource.pool.masks import members

#: Maximum delay of a start after its promised time, in seconds, at which the job is still expected
#: to end as promised.
LATE_START_S = 1.0
#: `Counter.of` if different ranks are counted.
RANKS = -1


class Counter(NamedTuple):
    """The maximum that jobs may hold together: a limit, or licences. A job that would exceed it is
    skipped."""

    most: float
    of: Optional[int] = None  # index in amounts; `RANKS`: different ranks; None: `Job.takes`
    planned: bool = False  # promised together with ranks, as nodes are
    is_left: bool = False  # jobs behind a promised one leave its part (`Pass.assure`)


@dataclass(eq=False)
class Job:
    """A job. Times are seconds since the epoch; masks are of ranks."""

    id: int  # negative: a reservation, whose running use is its window
    demands: tuple[Demand, ...]  # alternatives: anywhere, or in one of the racks
    limit: float = inf  # seconds; infinity: none
    order: float = 0.0  # the lowest goes first; then rank, then id
    wants: int = -1  # ranks it could use; jobs with common ones take turns; order=strict: all
    is_possible: bool = True  # on the ranks that are up
    submit: float = 0.0
    takes: dict[str, float] = field(default_factory=dict)  # of counters, at least
    claim: Hashable = None  # only jobs of the same claim may share a rank with it
    window: Optional[Job] = None  # the reservation that it names: it may also use its window
    latest: float = inf  # latest start: it is given up after that
    level: float = inf  # jobs of a lower level may be preempted for it
    after: float = 0.0  # seconds of its run before it may be preempted
    rank: Callable[[float], float] = lambda now: 0.0
    candidate_rank: Callable[[float], float] = lambda now: 0.0
    is_aside: bool = False  # kept out of passes by a rule, or by ranks that are down
    was_aside: bool = False
    is_refused: bool = False  # its place would exceed a limit: it waits until a job ends


@dataclass
class State:
    """The complete input of a decision."""

    totals: dict[int, Amounts]  # amounts of the ranks that are up
    lines: bool = False
    running: dict[Job, Use] = field(default_factory=dict)
    pending: list[Job] = field(default_factory=list)
    promises: dict[Job, Use] = field(default_factory=dict)
    sure: set[Job] = field(default_factory=set)  # promised jobs that limits will let start
    ran: set[Job] = field(default_factory=set)  # after the last pass
    counters: dict[str, Counter] = field(default_factory=dict)
    policy: str = "promise"  # "strict" (sched-fifo), "promise", "all"
    depth: float = 1  # number of jobs that are promised a start
    is_kept: bool = True  # guarantee=kept; False with rank= and candidates=
    has_candidates: bool = False
    within: float = 86400.0  # of promise=all, in seconds
    # Returns the amounts of a job on some ranks (a mask) with room beside all uses until a time;
    # None: chosen as for promises
    choose: Optional[Callable[[Job, int, Availability, float], Optional[Where]]] = None

    def drop(self, job: Job) -> bool:
        """Take back a job's promise. Return whether it had one."""
        self.sure.discard(job)
        return self.promises.pop(job, None) is not None

    def is_open(self, job: Job) -> bool:
        """Whether a job has an open promise: its start is unknown, and that of its use is past."""
        return job in self.promises and self.promises[job].start == -inf


def decide(state: State, now: float, freed: bool = True) -> list[Job]:
    """Make passes. Return the jobs that start, in order; they are in ``running`` then. `freed`:
    whether resources were freed or a promised time has come; else only new jobs are examined."""
    starts: list[Job] = []
    came_free, was_tried = state.ran != set(state.running), False
    if any(job.id >= 0 for job in state.ran.difference(state.running)):
        for job in state.pending:
            job.is_refused = False
    while True:
        late = [j for j in state.pending if j.latest <= now and (was_tried or j.submit < now)]
        state.pending = [job for job in state.pending if job not in late]
        given_up = [job for job in late if state.drop(job)]
        freed = freed or given_up != []
        if was_tried and not late:
            state.ran = set(state.running)
            return starts
        one = Pass(state, now, freed, came_free)
        policies = {"strict": one.strictly, "promise": one.in_turns, "all": one.by_latest_starts}
        policies[state.policy]()
        starts += one.starts
        freed, came_free, was_tried = one.has_given_up, False, not one.has_given_up


def victims_for(state: State, job: Job, now: float) -> list[Job]:
    """Return the running jobs of lower levels that have to end for a job to start; empty if that is
    impossible. They are added one by one, the smallest loss first; then each one that is not needed
    is spared."""

    def suffices(ended: list[Job]) -> bool:
        rest = {other: use for other, use in state.running.items() if other not in ended}
        return Pass(replace(state, running=rest), now).place(job, now + job.limit) is not None

    def loss(other: Job) -> tuple[float, ...]:
        use = state.running[other]
        return other.level, len(use.where) * (now - use.start), -use.start, -other.id

    ended: list[Job] = []
    for other in sorted(state.running, key=loss):
        may_end = other.level < job.level and now - state.running[other].start >= other.after
        if may_end and not suffices(ended):
            ended.append(other)
    for other in ended[::-1]:
        rest = [one for one in ended if one is not other]
        ended = rest if suffices(rest) else ended
    return ended if suffices(ended) else []


class Pass:
    """One pass over the queue."""

    def __init__(
        self, state: State, now: float, freed: bool = True, came_free: bool = True
    ) -> None:
        self.state, self.now = state, now
        self.starts: list[Job] = []
        self.has_given_up = False  # a job gave up its promise, for others to start
        self.queue = sorted(state.pending, key=lambda job: (job.order, job.rank(now), job.id))
        self.places = {job: place for place, job in enumerate(self.queue)}
        self.waiting = 0  # ranks that jobs without a promise wait for
        self.came_free = came_free  # resources, since the last pass; else promises were taken back
        self.freed = freed
        self.inside: Optional[Job] = None  # the reservation in whose window a job is placed
        self.hidden: list[Job] = []  # jobs whose open promises do not count
        self.soon = nextafter(now, inf)

    # -- does it fit -------------------------------------------------------------------------------

    def others(self, job: Job) -> dict[Job, Use]:
        """Return all running and promised uses, except the job's own, hidden ones, and the window
        that it would be in with all open promises. A job past its limit ends at the next
        moment."""
        state, found = self.state, dict(self.state.promises)
        for other, use in state.running.items():
            is_late = use.end <= self.now
            found[other] = Use(use.start, self.soon, None, use.where) if is_late else use
        hidden = {
            job,
            self.inside,
            *self.hidden,
            *filter(state.is_open, found if self.inside else ()),
        }
        return {other: use for other, use in found.items() if other not in hidden}

    def room(self, job: Job) -> Availability:
        """Return the room beside the others. A window keeps its ranks until it ends; the jobs in it
        free none."""
        others = self.others(job).items()
        kept = mask(r for o, use in others if o.id < 0 and use.start <= self.now for r in use.where)
        uses = [use for o, use in others if o.window is None or not mask(use.where) & kept]
        return Availability(self.state.totals, uses)

    def beside(self, job: Job, start: float, end: float) -> list[tuple[Job, Use]]:
        """Return the running and promised uses that overlap a job's run."""
        others = self.others(job).items()
        return [(other, use) for other, use in others if use.start < end and start < use.end]

    def has_licences(self, job: Job, start: float, end: float) -> bool:
        """Whether a job's planned licences are available throughout a span."""
        beside = self.beside(job, start, end)
        for time in {start, *(use.start for _, use in beside if use.start > start)}:
            there = [job, *(other for other, use in beside if use.start <= time < use.end)]
            for name in job.takes:
                most, _, planned, _ = self.state.counters[name]
                if planned and sum(one.takes.get(name, 0) for one in there) > most:
                    return False
        return True

    def claimed(self, job: Job, start: float, end: float) -> int:
        """Return the ranks on which a job may not be from `start` to `end`: others claim them."""
        others = self.beside(job, start, end)
        return mask(r for other, use in others if other.claim != job.claim for r in use.where)

    def demands(self, job: Job, start: float, end: float) -> list[Demand]:
        """Return a job's demands without the ranks that others claim in a span."""
        ranks = ~self.claimed(job, start, end)
        return [demand._replace(ranks=demand.ranks & ranks) for demand in job.demands]

    def place(
        self, job: Job, end: float, within: int = -1
    ) -> tuple[Where, list[tuple[Use, Where]]] | None:
        """Return a place for a job from now to `end`, and the promises that move to other ranks for
        it; None if there is none."""
        room, now = self.room(job), self.now
        if not self.has_licences(job, now, end):
            return None
        demands = [d._replace(ranks=d.ranks & within) for d in self.demands(job, now, end)]
        clear = [d for d in demands if room.room(d, now, end)[0] >= d.count]
        if clear and self.state.choose is not None:
            ranks = mask(rank for d in clear for rank in members(room.room(d, now, end)[1]))
            where = self.state.choose(job, ranks, room, end)
            return None if where is None else (where, [])
        for demand in clear or demands:
            found = room.proof(Use(now, end, demand), now, may_move=not clear)
            if found is not None:
                return found[0][1], found[1:]
        return None

    def earliest(self, job: Job, after: float) -> float:
        """Return the first time from `after` on at which a job fits beside all promises but its
        own; infinity: unknown. Ranks and licences are searched alternately, each from the first
        time of the other."""
        room, may_move = self.room(job), len(self.state.promises) <= MAX_PROMISES
        while True:
            ends = [use.end for use in self.others(job).values() if after < use.end < inf]
            there = next(
                (t for t in sorted({after, *ends}) if self.has_licences(job, t, t + job.limit)), inf
            )
            after = room.first(
                lambda t: self.demands(job, t, t + job.limit), job.limit, there, self.now, may_move
            )
            if after in (there, inf):
                return after

    # -- limits and licences -----------------------------------------------------------------------

    def used(self, name: str, more: dict[Job, Use] | None = None) -> float:
        """Return the use of a counter by running jobs, and by `more`."""
        of, jobs = self.state.counters[name].of, {**self.state.running, **(more or {})}
        uses = [use for job, use in jobs.items() if name in job.takes]
        if of is None:
            return sum(job.takes.get(name, 0) for job in jobs)
        if of == RANKS:
            return len({rank for use in uses for rank in use.where})
        return sum(amounts[of] for use in uses for amounts in use.where.values())

    def is_over(self, job: Job, where: Where | None = None) -> bool:
        """Whether a job would exceed a counter, on certain ranks or (None) on any, or take the part
        of jobs ahead that are promised starts before its end. For planned licences, only running
        jobs without a limit count: others leave them to a promise."""
        state, end = self.state, self.now + job.limit
        ahead = [one for one in state.sure if (one.order, one.id) < (job.order, job.id)]
        ahead = [one for one in ahead if state.promises[one].start < end]
        for name, least in job.takes.items():
            most, of, planned, is_left = state.counters[name]
            if planned:
                endless = [one for one, use in state.running.items() if use.end == inf]
                used = least + sum(one.takes.get(name, 0) for one in endless)
            elif where is not None:
                used = self.used(name, {job: Use(self.now, inf, None, where)})
            elif of == RANKS and not job.demands[0].whole:
                used = max(self.used(name), least)  # it may share ranks with others
            else:
                used = self.used(name) + least
            if is_left:
                used += sum(one.takes.get(name, 0) for one in ahead)
            if used > most:
                return True
        return False

    def is_held(self, job: Job) -> bool:
        """Whether a rule keeps a job from any start now: a limit, or its window is over."""
        windows = {None, *self.state.running, *self.state.promises}
        return job.window not in windows or job.is_refused or self.is_over(job)

    def assure(self, job: Job) -> None:
        """Make jobs behind a promised one leave its part of limits, if all pending jobs together
        would not exceed these. The number of ranks is known only for whole ones. Latest starts are
        not assured."""
        if self.state.policy == "all":
            return
        for name in job.takes:
            most, of, _, is_left = self.state.counters[name]
            waiting = sum(other.takes.get(name, 0) for other in self.state.pending)
            is_known = of != RANKS or job.demands[0].whole
            if is_left and not (is_known and self.used(name) + waiting <= most):
                return
        self.state.sure.add(job)

    # -- starts ------------------------------------------------------------------------------------

    def start(self, job: Job) -> bool:
        """Start a job if it fits now. Return whether it has left the pass: it has started, or a
        rule keeps it aside."""
        state, now, own = self.state, self.now, self.state.promises.get(job)
        if job.window is not None and job.is_aside and not self.came_free:
            return True
        end = now + job.limit
        if own is not None and own.start <= now < own.end < inf:
            end = own.end  # it is late, and so are the jobs promised the time after it
        is_on_time = own is not None and 0 <= now + job.limit - own.end <= LATE_START_S
        job.is_aside = self.is_held(job)
        for ranks, window, until in [] if job.is_aside else self.tries(job, end):
            self.inside = window
            found = self.place(job, until, ranks)
            self.inside = None
            if found is None and ranks == -1:
                break
            if found is None:
                continue
            where, moves = found
            for use, elsewhere in moves:  # a valid proof even if the job does not start
                use.where = elsewhere
            job.is_aside = job.is_refused = self.is_over(job, where)
            for other in state.pending if job.is_refused else []:
                if (other.demands, other.takes, other.limit) == (job.demands, job.takes, job.limit):
                    other.is_refused |= other.is_aside  # it waits with this one
            if not job.is_aside:
                state.drop(job)
                if window is None and not is_on_time:
                    until = now + job.limit
                state.running[job] = Use(now, until, None, where)
                state.pending.remove(job)
                self.starts.append(job)
                return True
        if job.window is not None:
            job.is_aside = True  # it waits for its window, and no job waits behind it
        return self.is_set_aside(job)

    def tries(self, job: Job, end: float) -> Iterable[tuple[int, Optional[Job], float]]:
        """Yield (mask of ranks, window, end) to try in turn: in its window, with which it ends; on
        ranks that its claim already has; on all; and, if its place there is over a limit of ranks,
        on those of the jobs counted with it."""
        running = self.state.running
        window = job.window and running.get(job.window)
        if window:
            yield mask(window.where), job.window, min(end, window.end)
        if job.claim is not None:
            ranks = mask(r for o, use in running.items() if o.claim == job.claim for r in use.where)
            yield ranks, None, end
        yield -1, None, end
        for name in job.takes:
            if self.state.counters[name].of == RANKS:
                ranks = mask(r for o, use in running.items() if name in o.takes for r in use.where)
                yield ranks, None, end

    def is_set_aside(self, job: Job) -> bool:
        """Whether a job is kept aside; its promise is then taken back."""
        if job.is_aside:
            job.was_aside = True
            if self.state.drop(job) and self.state.is_kept:
                self.has_given_up = True
        return job.is_aside

    # -- promises ----------------------------------------------------------------------------------

    def promise(self, job: Job, when: float) -> bool:
        """Promise a job a time; infinity is an open promise, which keeps its resources from now on.
        Return False, without a promise, if it does not fit then."""
        state, was_sure = self.state, job in self.state.sure
        self.state.drop(job)
        if was_sure:
            state.sure.add(job)
        else:
            self.assure(job)
        if when == inf:
            state.promises[job] = Use(-inf, inf, None, self.kept_for(job))
            return True
        has_licences = self.has_licences(job, when, when + job.limit)
        for demand in self.demands(job, when, when + job.limit) if has_licences else []:
            promise = Use(when, when + job.limit, demand)
            found = self.room(job).proof(promise, self.now, True)
            if found is not None:
                for use, where in found:
                    use.where = where
                if job.claim is not None or demand.takes_all:
                    promise.demand = None  # other ranks may be claimed, or it has all of them
                state.promises[job] = promise
                return True
        self.state.drop(job)
        return False

    def kept_for(self, job: Job) -> Where:
        """Return the resources to keep for a job that waits for jobs without a limit. If only one
        is in its way, that job's ranks; then ranks that stay free forever, from now or from when
        they suffice; then any. If possible they exclude jobs without a limit that it may not share
        ranks with. Of alternatives, the one that suffices forever from the earliest time is
        chosen."""
        state, room, now = self.state, self.room(job), self.now
        kept: Where = {}

        def is_enough(demand: Demand) -> bool:
            return room.room(demand, now, inf, ())[0] >= demand.count

        def suffices_from(demand: Demand) -> float:
            return room.first(lambda time: [demand], inf, now, now, False)

        def keep(demand: Demand, ranks: int) -> Demand:
            for rank in members(demand.ranks & ranks):
                units = room.room(demand._replace(ranks=1 << rank), now, inf, ())[0]
                if units and demand.count:
                    kept[rank] = room.amounts(rank, demand, units)
                    demand = demand._replace(count=demand.count - units)
            return demand._replace(ranks=demand.ranks & ~mask(kept))

        apart = filter(is_enough, self.demands(job, LAST, inf))
        usable = list(apart) or list(filter(is_enough, job.demands))
        demand = min(usable, key=suffices_from)
        endless = [use.where for use in state.running.values() if use.end == inf]
        endless = [where for where in endless if mask(where) & demand.ranks]
        one = endless[0] if len(endless) == 1 else {}
        if state.lines:
            line = demand.ranks.bit_length() - 1
            return {line: (max(0, demand.count - sum(one.get(line, ()))),)}
        demand = keep(demand, mask(one))
        last = max([use.end for use in room.uses if use.end < inf], default=now)
        for time in (now, min(suffices_from(demand), last)):
            demand = keep(demand, room.room(demand, time, inf)[1])
        keep(demand, -1)
        return kept

    def is_kept(self, job: Job) -> bool:
        """Whether a promise can still be kept, possibly on other ranks."""
        use, room = self.state.promises[job], self.room(job)
        start, ranks = max(use.start, self.soon), mask(use.where)
        if start >= use.end or not self.has_licences(job, use.start, use.end):
            return False
        if not self.claimed(job, start, use.end) & ranks and all(
            fits(amounts, room.free(rank, start, use.end, room.uses))
            for rank, amounts in use.where.items()
        ):
            return True
        return use.demand is not None and self.promise(job, use.start)

    def has_come(self, job: Job) -> bool:
        """Let a promise move to an earlier time. Return whether its time has come, or is unknown.
        On ranks it moves only if its job can start now: moves between future times were found to
        lengthen waits."""
        state, now, use = self.state, self.now, self.state.promises[job]
        if not state.is_open(job):
            if not self.is_kept(job):
                self.promise_first(job)
            elif use.start > now and (state.lines or self.place(job, now + job.limit) is not None):
                when = self.earliest(job, now) if state.lines else now
                if when < use.start:
                    self.promise(job, when)
        if state.promises[job].start <= now:
            return True
        self.assure(job)
        return False

    def promise_first(self, job: Job) -> None:
        """Promise a job another time, if necessary at the expense of jobs behind it."""
        self.state.drop(job)
        when, behind = self.earliest(job, self.now), self.behind(job)
        if when > self.soon and behind:
            self.revoke(behind)
            when = self.earliest(job, self.now)
        self.promise(job, when)

    def behind(self, job: Job) -> list[Job]:
        """Return the promised jobs behind one that could use the same ranks, or planned
        licences."""
        places = self.places
        planned = {name for name in job.takes if self.state.counters[name].planned}
        return [
            other
            for other in self.state.promises
            if places.get(other, -1) > places[job]
            and (other.wants & job.wants or not planned.isdisjoint(other.takes))
        ]

    def revoke(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.state.drop(job)
        self.has_given_up = True

    def is_in_turn(self, job: Job) -> bool:
        """Whether it is a job's turn to be promised a start: fewer than N promised jobs ahead could
        use the same ranks, and no such job ahead still waits for a promise."""
        return len(self.ahead(job)) < self.state.depth and not self.waiting & job.wants

    def ahead(self, job: Job) -> list[Job]:
        """Return the promised jobs ahead of one that could use the same ranks."""
        places, promises = self.places, self.state.promises
        return [o for o in promises if places.get(o, inf) < places[job] and o.wants & job.wants]

    # -- the policies ------------------------------------------------------------------------------

    def strictly(self) -> None:
        """Start jobs in order; behind a waiting one, none that could use the same ranks."""
        for job in self.queue:
            if not self.is_held(job) and (self.waiting & job.wants or not self.start(job)):
                self.waiting |= job.wants

    def in_turns(self) -> None:
        """Examine jobs in order, but first those whose promised time has come."""
        state, rest = self.state, []
        if not state.is_kept:
            fixed = {job: use for job, use in state.promises.items() if job.id < 0}
            state.promises, state.sure, self.freed = fixed, set(), True
        for job in self.queue:
            if job in state.promises and state.promises[job].start <= self.now:
                self.examine(job)
        for job in self.queue:
            if job not in state.pending:
                continue
            if state.has_candidates and len(self.ahead(job)) >= state.depth:
                rest.append(job)
                if job.window is not None:
                    continue  # no job waits for one that may start elsewhere
                job.is_aside = self.is_held(job)
            elif self.freed or self.has_given_up or job.submit == self.now:
                self.examine(job)
            if job in state.pending and job not in state.promises and not job.is_aside:
                self.waiting |= job.wants
        for job in sorted(rest, key=lambda job: (job.candidate_rank(self.now), job.order, job.id)):
            self.start(job)

    def examine(self, job: Job) -> None:
        """Start a job if it can start now; otherwise promise it a time, if it is its turn. Open
        promises behind a promised job do not count meanwhile, and are made anew."""
        state = self.state
        behind = self.behind(job) if job in state.promises else []
        self.hidden = sorted(filter(state.is_open, behind), key=self.places.__getitem__)
        if (job not in state.promises or self.has_come(job)) and not self.start(job):
            self.wait(job)
        while self.hidden:  # in order: the rest does not count yet
            other = self.hidden.pop(0)
            if other in state.promises:
                self.promise(other, inf)

    def wait(self, job: Job) -> None:
        """Promise a job that cannot start now a time, if it is its turn."""
        state = self.state
        behind = [] if job in state.promises else self.behind(job)
        if behind and not job.was_aside and self.is_in_turn(job):
            self.revoke(behind)  # it goes first
            if self.start(job):
                return
        job.is_aside = job.is_aside or not job.is_possible
        if self.is_set_aside(job):
            return
        if state.is_open(job) or (job not in state.promises and self.is_in_turn(job)):
            was_open = state.drop(job)
            when = self.earliest(job, self.now)
            self.promise(job, when)
            if was_open and when < inf:
                self.has_given_up = True  # resources that were kept from now on

    def by_latest_starts(self) -> None:
        """Promise new jobs their latest starts, start jobs whose latest start has come, then others
        by rank."""
        state, now = self.state, self.now
        by_order = sorted(state.pending, key=lambda job: (job.order, job.id))
        new = [job for job in by_order if self.freed or job.submit == now]
        for job in [job for job in new if job not in state.promises]:
            if job.window is None or self.came_free:
                job.is_aside = self.is_held(job)
            if job.is_possible and not job.is_aside and job.window is None:
                self.promise_latest(job, max(now, job.submit + state.within))
        for job in by_order:
            if job in state.promises and state.promises[job].start <= now and not self.start(job):
                if all(use.end > now for use in state.running.values()):  # no job is late
                    self.promise(job, self.earliest(job, now))
        # resources left free by running jobs' limits, and the heads' promises of these
        fixed = {job: use for job, use in state.promises.items() if job.id < 0}
        alone = Pass(replace(state, promises=fixed), now)
        rest: list[Job] = []
        heads: list[Job] = []
        queue = [job for job in self.queue if job in state.pending and not job.is_aside]
        if not any(alone.place(job, self.soon) for job in queue if job.window is None):
            queue = [job for job in queue if job.window is not None]  # none of the others can start
        for job in queue:
            if job.window is not None:
                self.start(job)
                continue
            job.is_aside = self.is_held(job)
            if self.is_set_aside(job):
                continue
            is_free = alone.place(job, self.soon) is not None
            if self.waiting & job.wants:
                rest += [job] if is_free else []
            elif is_free:
                if not self.start(job) and not self.goes_before(job):
                    rest.append(job)
            elif job.is_possible:
                heads.append(job)
                self.waiting |= job.wants
        for job in heads:
            alone.promise(job, alone.earliest(job, now))
        for job in sorted(rest, key=lambda job: (job.candidate_rank(now), self.places[job])):
            end = now + job.limit
            if alone.place(job, end) is not None and self.place(job, end) is not None:
                self.start(job)

    def promise_latest(self, job: Job, wanted: float) -> None:
        """Promise a job its latest start, before jobs of lower priority."""
        behind = self.earliest(job, wanted)
        lower = self.take_out_lower(job, wanted, behind + job.limit) if behind > wanted else {}
        when = self.earliest(job, wanted)
        if when < inf:
            self.promise(job, when)
        self.put_back_lower(lower)

    def goes_before(self, job: Job) -> bool:
        """Start a job at the expense of promises to jobs of lower priority, if that suffices."""
        lower = self.take_out_lower(job, self.now, self.now + job.limit)
        has_started = lower != {} and self.start(job)
        self.put_back_lower(lower)
        return has_started

    def take_out_lower(self, job: Job, start: float, end: float) -> dict[Job, Use]:
        """Remove the promises between `start` and `end` to jobs of lower priority that could use
        the same ranks."""
        lower = {
            other: use
            for other, use in self.state.promises.items()
            if other.id >= 0 and job.order < other.order and use.start < end and start < use.end
            and other.wants & job.wants
        }  # fmt: skip
        for other in lower:
            self.state.drop(other)
        return lower

    def put_back_lower(self, lower: dict[Job, Use]) -> None:
        """Promise jobs their previous times; then other times to those without room."""
        jobs = sorted(lower, key=lambda job: (job.order, job.id))
        for job in [job for job in jobs if not self.promise(job, lower[job].start)]:
            when = self.earliest(job, max(lower[job].start, self.now))
            if when < inf:
                self.promise(job, when)


def mask(ranks: Iterable[int]) -> int:
    """Return a mask of ranks."""
    return sum(1 << rank for rank in set(ranks))
