# SPDX-License-Identifier: LGPL-3.0-or-later
"""The definition of a scheduling decision: the jobs that start now, and the promises.

`State.decide` is one pass over the queue, by brute force: plain data in, decisions out, and no
memory but the state. The schedulers decide the same, only faster
(``t/python/scheduler/test_definition.py``). To look ahead, remove the next job to end from
``running`` and decide again.

A job *fits now* if ranks have room for all of its limit, beside running jobs, and all promises can
still be kept (`State.place`). ``flux/resource/plan/availability.py``, the other half of this
definition, has the room on ranks over time. Interchangeable units (whole nodes of one kind, single
cores) are only counted: such a *line* is one rank with that number of units.

- sched-fifo (`State.strictly`): no job starts behind a waiting one.
- sched-backfill (`State.in_turns`): a job starts if it fits now; otherwise, if it is among the
  first N waiting jobs, it is *promised* the first time at which it fits: EASY with N = 1 (Lifka
  1995), conservative backfill with all (Mu'alem and Feitelson 2001). ``rank=`` and ``candidates=``
  are other orders.
- ``promise=all`` (`State.by_latest_starts`): each job is promised a latest start on arrival.

A site's rule is an entry in the data: a counter (limit, licence), a claim on ranks, demands within
one rack each, a window, a preemption class, a latest start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Callable, NamedTuple, Optional

from flux.resource.plan.availability import MAX_PROMISES, Amounts, Availability, Demand, Use, Where
from flux.resource.pool.masks import members

#: A job that starts at most that many seconds after its promised time is expected to end in time.
LATE_START_S = 1.0
#: `Counter.unit` if different ranks are counted.
RANKS = -1


class Open(Use):
    """An open promise: its job waits for jobs without an end, so that its start is unknown."""


class Counter(NamedTuple):
    """The maximum that jobs may hold together: a limit, or licences. Jobs over it are skipped."""

    most: float
    unit: Optional[int] = None  # index in amounts; `RANKS`: different ranks; None: `Job.takes`
    planned: bool = False  # promised together with ranks, as nodes are
    is_assured: bool = False  # jobs behind a promised one leave its part (`State.assure`)
    period: Optional[tuple[float, float]] = None  # of a budget: units count times seconds in it


@dataclass(eq=False)
class Job:
    """A job. Times are seconds since the epoch; masks are of ranks."""

    id: int
    demands: tuple[Demand, ...]  # alternatives: anywhere, or in one of the racks
    limit: float = inf  # seconds; infinity: none
    order: float = 0.0  # the lowest goes first; then share, rank, id
    share: tuple[float, ...] = ()  # the use of its bank and of its user, by their shares
    wants: int = -1  # ranks it could use; jobs with common ones take turns; order=strict: all
    is_possible: bool = True  # on the ranks that are up
    submit: float = 0.0
    takes: dict[str, float] = field(default_factory=dict)  # of counters, at least
    window: Optional[Use] = None  # of the reservation that it names: it may also run there
    latest: float = inf  # latest start: it is given up after that
    is_early: bool = False  # or as soon as it is promised a later one
    class_rank: float = inf  # of its preemption class; jobs of a lower one may be preempted for it
    after: float = 0.0  # seconds of its run before it may be preempted
    began: float = 0.0
    until: float = inf  # its end by limit, or that of its window
    rank: Callable[[float], float] = lambda now: 0.0
    candidate_rank: Callable[[float], float] = lambda now: 0.0
    is_new: bool = True  # no pass has examined it
    is_aside: bool = False  # kept out of passes by a rule, or by ranks that are down
    was_aside: bool = False
    is_refused: bool = False  # its place would exceed a limit: it waits until a job ends
    was_refused: bool = False
    offer: Optional[Use] = None  # that place, if the limit is a budget

    @property
    def position(self) -> tuple[float, tuple[float, ...], int]:
        """Its place in the queue, without ranks."""
        return self.order, self.share, self.id

    def use(self, start: float, end: float, demand: Optional[Demand] = None) -> Use:
        """Return a use of it, without ranks."""
        return Use(start, end, demand, {}, self.demands[0].claim)


@dataclass
class State:
    """The complete input of a decision; below the blank line, of one pass."""

    totals: dict[int, Amounts]  # amounts of the ranks that are up
    lines: bool = False
    running: dict[Job, Use] = field(default_factory=dict)
    pending: list[Job] = field(default_factory=list)
    promises: dict[Job, Use] = field(default_factory=dict)
    windows: list[Use] = field(default_factory=list)  # of reservations, also future ones
    assured: set[Job] = field(default_factory=set)  # promised jobs that limits will let start
    ran: set[Job] = field(default_factory=set)  # after the last pass
    begun: list[Use] = field(default_factory=list)  # windows that had begun then
    freed: bool = True  # a pass examines all jobs, since some may start now; else only new ones
    counters: dict[str, Counter] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)  # of budgets, by jobs that have ended
    policy: str = "promise"  # "strict" (sched-fifo), "promise", "all"
    depth: float = 1  # number of jobs that are promised a start
    keeps_promises: bool = True  # guarantee=kept; False with rank= and candidates=
    has_candidates: bool = False
    within: float = 86400.0  # of promise=all, in seconds
    asks_each: bool = False  # it tries to start jobs behind heads even if these do not fit
    # Returns the amounts of a job on some ranks (a mask) with room beside all uses until a time;
    # None: chosen as for promises
    choose: Optional[Callable[[Job, int, Availability, float], Optional[Where]]] = None

    now: float = 0.0
    waiting: int = 0  # ranks that jobs without a promise wait for
    is_done: bool = False  # no job gave up its promise, for others to start
    inside: Optional[Use] = None  # the window in which a job is placed
    hidden: list[Job] = field(default_factory=list)  # jobs whose open promises do not count

    def decide(self, now: float) -> list[Job]:
        """Make passes. Return the jobs that start, in order; they are in ``running`` then."""
        before = set(self.running)
        begun = [window for window in self.windows if window.start <= now]
        self.now, self.is_done = now, False
        came_free = self.ran != before or self.begun != begun
        self.freed |= came_free or any(is_due(use, now) for use in self.promises.values())
        for job in self.pending if came_free else ():
            job.is_aside &= job.window is None  # one with a window waits for any to end or begin
            if self.ran - before and self.may_be_offered(job) or job.window is not None:
                job.was_refused, job.is_refused = job.is_refused, False
        while True:
            late = [j for j in self.pending if j.latest <= now and (self.is_done or not j.is_new)]
            early = self.promises.items() if self.policy != "all" else ()
            for job, use in early:
                if job.is_early and now < job.latest < use.start and not self.is_planned(job):
                    late.append(job)
            for job in late:
                self.pending.remove(job)
                self.drop(job)
                self.freed = True  # others may start, or be promised a start in its turn
            if self.is_done and not late:
                self.ran, self.begun = set(self.running), begun
                for job in self.pending:
                    job.is_new = False
                return [job for job in self.running if job not in before]
            self.is_done, self.waiting = True, 0
            one_pass = {"strict": self.strictly, "all": self.by_latest_starts}
            one_pass.get(self.policy, self.in_turns)()
            self.freed = not self.is_done

    def strictly(self) -> None:
        """Start jobs in order; behind a waiting one, none that could use the same ranks, but for
        jobs that start in their windows."""
        for job in sorted(self.pending, key=self.turn):
            if not self.is_held(job) and not self.start(job, not self.waiting & job.wants):
                self.waiting |= job.wants

    def in_turns(self) -> None:
        """Examine jobs in order, but first those whose promised time has come. If there are open
        promises and some job may start now, the first are all with a promise, each beside only the
        open ones of those ahead: these could keep each other without a time for good."""
        rest = []
        if not self.keeps_promises:
            self.promises, self.assured, self.freed = {}, set(), True
        queue = sorted(self.pending, key=self.turn)
        promised = [job for job in queue if job in self.promises]
        all_first = self.freed and any(map(is_open, self.promises.values()))
        for number, job in enumerate(promised):
            use = self.promises.get(job)  # None: one ahead has revoked it
            if use and (all_first or is_due(use, self.now)):
                behind = promised[number + 1 :] if all_first else []
                self.hidden = [one for one in behind if is_open(self.promises.get(one))]
                self.examine(job)
        self.hidden = []
        for job in queue:
            if job not in self.pending or (all_first and job in promised and job in self.promises):
                continue
            if self.has_candidates and len(self.ahead(job)) >= self.depth:
                rest.append(job)
                if job.window is not None:
                    continue  # no job waits for one that may start elsewhere
                job.is_aside = self.is_held(job)
            elif self.freed or not self.is_done or job.is_new:
                self.examine(job)
            if job in self.pending and job not in self.promises and not job.is_aside:
                self.waiting |= job.wants
        for job in sorted(rest, key=lambda job: (job.candidate_rank(self.now), job.position)):
            self.start(job)

    def examine(self, job: Job) -> None:
        """Start a job if it can start now; otherwise promise it a time, if it is its turn."""
        if (job not in self.promises or self.advance(job)) and not self.start(job):
            self.wait(job)

    def wait(self, job: Job) -> None:
        """Promise a job that cannot start now a time, if it is its turn."""
        behind = [] if job in self.promises else self.behind(job)
        if behind and job.is_possible and not job.was_aside and self.is_in_turn(job):
            self.revoke(behind)  # it goes first
            if self.start(job):
                return
        job.is_aside = job.is_aside or not job.is_possible
        own = self.promises.get(job)
        if not self.is_set_aside(job) and (is_open(own) if own else self.is_in_turn(job)):
            when = self.earliest(job, self.now)
            self.promise(job, when)
            if own and when < inf:
                self.is_done = False  # its resources are no longer kept from now on
            if when == inf and any(is_open(self.promises.get(other)) for other in behind):
                self.is_done = False  # the next pass examines it without these

    def by_latest_starts(self) -> None:
        """Promise new jobs their latest starts, start jobs whose latest start has come, then others
        by rank."""
        now, queue = self.now, sorted(self.pending, key=self.turn)
        by_order = sorted(queue, key=lambda job: job.position)
        is_late = any(use.end <= now for use in self.running.values())
        self.put_back({job: use for job, use in self.promises.items() if use.end <= now})
        new = [one for one in by_order if one.window is None and (self.freed or one.is_new)]
        for job in [job for job in new if job not in self.promises]:
            job.is_aside = self.is_held(job)
            if job.is_possible and not job.is_aside:
                wanted = max(now, job.submit + self.within)
                first = self.earliest(job, wanted)
                end = first + job.limit if first > wanted else -inf  # it needs no other's promise
                self.before_lower(job, wanted, end, partial(self.promise_from, job, wanted))
        for job in by_order:
            when = self.promises[job].start if job in self.promises else inf
            if when <= now and not self.start(job) and not is_late:
                self.promise(job, self.earliest(job, now))
            elif when < now - LATE_START_S and job in self.running:
                self.put_back(self.promises)  # it will end later than promised
                self.is_done = False
                return
        # the resources that running jobs leave, and heads' promises of these
        head_plan = replace(self, promises={})
        rest, heads = list[Job](), list[Job]()
        queue = [job for job in queue if job in self.pending and not job.is_aside]
        if not any(head_plan.place(job, now) for job in queue if job.window is None):
            queue = [job for job in queue if job.window is not None]  # none of the others can start
        for job in queue:
            if job.window is not None:
                self.start(job)
                continue
            job.is_aside = self.is_held(job)
            if self.is_set_aside(job):
                continue
            is_free = head_plan.place(job, now) is not None
            if self.waiting & job.wants:
                rest += [job] if is_free else []
            elif is_free:
                start = partial(self.start, job)
                if not start() and not self.before_lower(job, now, now + job.limit, start):
                    rest.append(job)
            elif job.is_possible:
                heads.append(job)
                self.waiting |= job.wants
        lost = heads
        for job in sorted(rest, key=lambda job: job.candidate_rank(now)):
            for head in lost:
                head_plan.promise(head, head_plan.earliest(head, now))
            end = now + job.limit
            if head_plan.place(job, end) is not None and (self.asks_each or self.place(job, end)):
                self.start(job)
            known = [h for h in heads if not is_open(head_plan.promises[h])]
            lost = [h for h in known if not head_plan.holds(h)]

    def before_lower(self, job: Job, start: float, end: float, act: Callable[[], bool]) -> bool:
        """Act without the promises that `lower` returns, and put these back. Return the result of
        the act."""
        lower = self.lower(job, start, end)
        for other in lower:
            self.drop(other)
        result = act()
        self.put_back(lower)
        return result

    def lower(self, job: Job, start: float, end: float) -> dict[Job, Use]:
        """Return the promises between `start` and `end` to competing jobs of lower priority."""
        return {
            other: use
            for other, use in self.promises.items()
            if job.order < other.order and self.compete(job, other)
            and use.start < end and start < use.end
        }  # fmt: skip

    def put_back(self, promises: dict[Job, Use]) -> None:
        """Promise jobs the same times again, in order; then others to those without room."""
        jobs = sorted(promises, key=lambda job: job.position)
        starts = {job: max(promises[job].start, self.now) for job in jobs}
        for job in jobs:
            self.drop(job)
        for job in [job for job in jobs if not self.promise(job, starts[job])]:
            self.promise_from(job, starts[job])

    def promise_from(self, job: Job, after: float) -> bool:
        """Promise a job the first time from `after` on. Return whether there is one."""
        when = self.earliest(job, after)
        return when < inf and self.promise(job, when)

    # -- the queue ---------------------------------------------------------------------------------

    def turn(self, job: Job) -> tuple[float, tuple[float, ...], float, int]:
        """Return the sort key of the queue."""
        return job.order, job.share, job.rank(self.now), job.id

    def ahead(self, job: Job) -> list[Job]:
        """Return the promised jobs ahead of one that could use the same ranks."""
        jobs, turn = (o for o in self.promises if o.wants & job.wants), self.turn(job)
        return [other for other in jobs if self.turn(other) < turn]

    def behind(self, job: Job) -> list[Job]:
        """Return the promised jobs behind one that it competes with, in order."""
        jobs, turn = sorted(self.promises, key=self.turn), self.turn(job)
        return [other for other in jobs if self.turn(other) > turn and self.compete(job, other)]

    def compete(self, job: Job, other: Job) -> bool:
        """Whether two jobs could use the same ranks, or planned licences."""
        planned = {name for name in job.takes if self.counters[name].planned}
        return bool(job.wants & other.wants or planned & other.takes.keys())

    def is_planned(self, job: Job) -> bool:
        """Whether a promised time may be another in each pass: it is open, or behind such a one."""
        jobs = [other for other, use in self.promises.items() if is_open(use)]
        return any(self.turn(o) <= self.turn(job) and self.compete(job, o) for o in jobs)

    def is_in_way(self, job: Job, other: Job, use: Use) -> bool:
        """Whether another has ranks, or planned licences, that a job could use."""
        planned = {name for name in job.takes if self.counters[name].planned}
        ranks = mask(use.where)
        return any(ranks & d.ranks for d in job.demands) or bool(planned & other.takes.keys())

    def is_in_turn(self, job: Job) -> bool:
        """Whether it is a job's turn to be promised a start: fewer than N promised jobs ahead could
        use the same ranks, and no such job ahead still waits for a promise."""
        return len(self.ahead(job)) < self.depth and not self.waiting & job.wants

    def revoke(self, jobs: list[Job]) -> None:
        """Take back promises, for others to start."""
        for job in jobs:
            self.drop(job)
        self.is_done = False

    def is_set_aside(self, job: Job) -> bool:
        """Whether a job is kept aside; its promise is then taken back."""
        if job.is_aside and self.drop(job) and self.keeps_promises:
            self.is_done = False
        return job.is_aside

    # -- does it fit -------------------------------------------------------------------------------

    def place(self, job: Job, end: float, ranks: int = -1) -> list[tuple[Use, Where]] | None:
        """Return a place for a job from now to `end` on some ranks, and the promises that move to
        other ranks for it; None if there is none."""
        room, now, demands = self.room(job), self.now, [d.on(ranks) for d in job.demands]
        if not self.has_licences(job, -inf, end):
            return None
        clear = [d for d in demands if room.room(d, -inf, end)[0] >= d.count]
        if clear and self.choose is not None:
            free = mask(rank for d in clear for rank in members(room.room(d, -inf, end)[1]))
            where = self.choose(job, free, room, end)
            return None if where is None else [(job.use(-inf, end), where)]
        found = (room.proof(job.use(-inf, end, d), now, not clear) for d in clear or demands)
        return next(filter(None, found), None)

    def others(self, job: Job) -> dict[Job, Use]:
        """Return the uses of others beside which a job is placed; not hidden ones nor, inside a
        window, open promises. These begin now or later, as late jobs end now."""
        open_ones = {o: u for o, u in self.promises.items() if is_open(u)}
        hidden = {job, *self.hidden, *(open_ones if self.inside else ())}
        begun = {o: replace(u, start=max(u.start, self.now)) for o, u in open_ones.items()}
        uses = {**self.promises, **begun, **self.running}
        return {o: use for o, use in uses.items() if o not in hidden}

    def room(self, job: Job) -> Availability:
        """Return the room beside the others and windows. A window keeps its ranks until it ends;
        jobs that end in it free none."""
        windows = [window for window in self.windows if window is not self.inside]
        end = {rank: w.end for w in windows if w.start <= self.now for rank in w.where}
        others = self.others(job).items()
        uses = [u for o, u in others if not o.window or any(u.end > end.get(r, 0) for r in u.where)]
        return Availability(self.totals, [*windows, *uses])

    def has_licences(self, job: Job, start: float, end: float) -> bool:
        """Whether a job's planned licences are available throughout a span."""
        others = self.others(job).items()
        for time in {start, *(use.start for _, use in others if start < use.start < end)}:
            there = [job, *(other for other, use in others if use.start <= time < use.end)]
            for name in job.takes:
                counter = self.counters[name]
                if counter.planned and sum(one.takes.get(name, 0) for one in there) > counter.most:
                    return False
        return True

    def earliest(self, job: Job, after: float) -> float:
        """Return the first time from `after` on at which a job fits beside all promises but its
        own; infinity: unknown. Ranks and licences are searched alternately, each from the first
        time of the other."""
        room, now = self.room(job), self.now
        may_move = len(self.promises) <= MAX_PROMISES
        while True:
            ends = {use.end for use in self.others(job).values() if after < use.end < inf}
            times = (t for t in sorted({after, *ends}) if self.has_licences(job, t, t + job.limit))
            there = next(times, inf)
            first = (room.earliest(d, job.limit, there, now, may_move) for d in job.demands)
            after = min(first)
            if after in (there, inf):
                return after

    # -- starts ------------------------------------------------------------------------------------

    def start(self, job: Job, is_first: bool = True) -> bool:
        """Start a job if it fits now, one that is not first only in its window. Return whether it
        has left the pass: it has started, or a rule keeps it aside."""
        own, now = self.promises.get(job), self.now
        if job.window is not None and job.is_aside:
            return True
        end = now + job.limit
        is_on_time = own is not None and 0 <= end - own.end <= LATE_START_S
        if own is not None and own.start <= now < own.end < inf:
            end = own.end  # it is late, and so are the jobs promised the time after it
        job.is_aside, was_offered = self.is_held(job), False
        for ranks, window, until in [] if job.is_aside else self.tries(job, end):
            if window is None and not is_first:
                job.is_aside = job.is_refused = False
                return False
            if ranks == -1 and was_offered:
                continue  # ranks that its keys claim are offered first
            self.inside = window
            found = self.place(job, until, ranks)
            self.inside = None
            if found is None and ranks == -1:
                break
            if found is None:
                continue
            was_offered = window is None
            for use, where in found:  # a valid proof even if the job does not start
                use.where = where
            use = found[0][0]
            over = self.is_over(job, use)
            job.is_aside = job.is_refused = over is not None
            job.offer = use if over and over.period else None
            for other in self.pending if job.is_refused else []:
                if (other.demands, other.takes, other.limit) == (job.demands, job.takes, job.limit):
                    other.is_refused |= other.is_aside and other.was_refused  # as this one
            if not job.is_aside:
                self.drop(job)
                use.demand = None
                if window is None and not is_on_time:
                    use.end = now + job.limit
                job.began, job.until = now, min(now + job.limit, window.end if window else inf)
                self.running[job] = use
                self.pending.remove(job)
                return True
        if job.window is not None:
            job.is_aside = True  # it waits for its window, and no job waits behind it
        job.was_aside |= job.is_aside
        return self.is_set_aside(job)

    def tries(self, job: Job, end: float) -> Iterator[tuple[int, Optional[Use], float]]:
        """Yield (mask of ranks, window, end) to try in turn: in its window, with which it ends, on
        ranks that no job from before the window holds; on ranks that its keys already claim; on all;
        and, if its place there is over a limit of ranks, on those of the jobs counted with it."""
        window, claim, running = job.window, job.demands[0].claim, self.running.items()
        if window is not None and window in self.windows and window.start <= self.now:
            late = mask(r for o, use in running if o.began < window.start for r in use.where)
            yield mask(window.where) & ~late, window, min(end, window.end)
        if claim is not None:
            own = 0
            for other, ranks in ((use.claim, mask(use.where)) for _, use in running if use.claim):
                for key, same, where in zip(claim.keys, other.keys, other.where):
                    own |= ranks & where if key == same else 0
            yield own, None, end
        yield -1, None, end
        for name in job.takes:
            if self.counters[name].unit == RANKS:
                yield mask(r for o, use in running if name in o.takes for r in use.where), None, end

    # -- promises ----------------------------------------------------------------------------------

    def promise(self, job: Job, when: float) -> bool:
        """Promise a job a time; infinity is an open promise, which keeps its resources from `since`
        on. Return False, without a promise, if it does not fit then."""
        self.promises.pop(job, None)
        self.assure(job)
        if when == inf:
            claim = job.demands[0].claim
            self.promises[job] = Open(self.since(job), inf, None, self.kept_for(job), claim)
            return True
        end, has_licences = when + job.limit, self.has_licences(job, when, when + job.limit)
        for demand in job.demands if has_licences else ():
            found = self.room(job).proof(job.use(when, end, demand), self.now, True)
            for use, where in found or ():
                use.where = where
            if found is not None:
                self.promises[job] = promise = found[0][0]
                if demand.stays:
                    promise.demand = None
                return True
        self.drop(job)
        return False

    def endless(self) -> dict[Job, Use]:
        """Return the jobs that run without an end, not what is kept from a time on."""
        now = self.now
        return {j: use for j, use in self.running.items() if use.end == inf and use.start <= now}

    def since(self, job: Job) -> float:
        """Return the first time at which a job that waits for jobs without an end could start, if
        those that run had ended; or else the first start of the promised ones in its way."""
        ended = dict(self.running.items() - self.endless().items())
        first = replace(self, running=ended).earliest(job, self.now)
        if first < inf:
            return first if first > self.now else -inf
        others = [(o, use) for o, use in self.others(job).items() if o in self.promises]
        in_way = [use for other, use in others if self.is_in_way(job, other, use)]
        starts = [use.start for use in in_way if use.end == inf]
        return min([start for start in starts if start > self.now], default=-inf)

    def drop(self, job: Job) -> bool:
        """Take back a job's promise. Return whether it had one."""
        self.assured.discard(job)
        return self.promises.pop(job, None) is not None

    def holds(self, job: Job) -> bool:
        """Whether a promised job has room on the ranks that it is bound to."""
        use, room = self.promises[job], self.room(job)
        return room.holds(use, max(use.start, self.now), use.where, room.uses)

    def advance(self, job: Job) -> bool:
        """Let a promise move to an earlier time, or to a later one if it cannot be kept, even on
        other ranks. Return whether its time has come, or is unknown. On ranks it moves earlier only
        if its job can start now: moves between future times were found to lengthen waits."""
        use = self.promises[job]
        if is_open(use):
            return True
        start = use.start
        is_kept = max(start, self.now) < use.end and self.has_licences(job, start, use.end)
        if is_kept and not self.holds(job):
            is_kept = self.promise(job, start)
        if not is_kept:
            self.drop(job)  # another time, if necessary at the expense of jobs behind it
            when, behind = self.earliest(job, self.now), self.behind(job)
            if when > self.now and behind:
                self.revoke(behind)
                when = self.earliest(job, self.now)
            self.promise(job, when)
        elif job in self.assured and self.is_held(job):
            pass  # jobs behind it may leave it its part of a limit only from that time on
        elif start > self.now and self.lines:
            self.promise(job, min(start, self.earliest(job, self.now)))
        elif start > self.now and self.place(job, self.now + job.limit):
            return True
        if is_open(self.promises[job]) or self.promises[job].start <= self.now:
            return True
        self.assure(job)
        return False

    def kept_for(self, job: Job) -> Where:
        """Return the resources to keep for a job that waits for jobs without a limit. If only one
        is in its way, that job's ranks; then ranks that stay free forever, from now or from when
        they suffice; then any. If possible they exclude jobs without a limit that it may not share
        ranks with. Of alternatives, the one that suffices forever from the earliest time is
        chosen."""
        room, now = self.room(job), self.now
        endless = [use for use in room.uses if use.end == inf]
        claim = job.demands[0].claim
        apart = (mask(u.where) & claim.apart_from(u.claim) for u in endless if claim and u.claim)
        others = mask(rank for ranks in apart for rank in members(ranks))

        def usable(ranks: int) -> list[Demand]:
            demands = [demand.on(ranks)._replace(claim=None) for demand in job.demands]
            return [d for d in demands if room.room(d, now, inf, ())[0] >= d.count]

        demands = usable(~others) or usable(-1)
        since = [room.earliest(demand, inf, now, now, False) for demand in demands]
        demand = demands[since.index(min(since))]
        ways = [use.where for use in self.endless().values() if mask(use.where) & demand.ranks]
        one = ways[0] if len(ways) == 1 else {}
        if self.lines:
            line = demand.ranks.bit_length() - 1
            return {line: (max(0, demand.count - sum(one.get(line, ()))),)}
        last = max([use.end for use in room.uses if use.end < inf], default=now)
        times = (now, min(*since, last))
        kinds = [mask(one), *(room.room(demand, time, inf)[1] for time in times), -1]
        ranks = [rank for rank in members(demand.ranks) if rank in self.totals]
        kept: Where = {}
        for rank in sorted(ranks, key=lambda r: [k >> r & 1 for k in kinds].index(1)):
            units = room.units_on(rank, demand, now, inf, ())
            if units and demand.count:
                kept[rank] = room.amounts(rank, demand, units)
                demand = demand._replace(count=demand.count - units)
        return kept

    # -- limits and licences -----------------------------------------------------------------------

    def used(self, name: str, *more: tuple[Job, Use]) -> float:
        """Return the use of a counter by running jobs, and by `more`."""
        jobs = [one for one in self.running.items() if name in one[0].takes] + [*more]
        counter = self.counters[name]
        if counter.period:
            charges = (self.units(name, *one) * self.seconds(name, one[0]) for one in jobs)
            return self.spent.get(name, 0.0) + sum(charges)
        if counter.unit == RANKS:
            return len({rank for _, use in jobs for rank in use.where})
        return sum(self.units(name, *one) for one in jobs)

    def units(self, name: str, job: Job, use: Use) -> float:
        """Return the units of a counter that a job takes with a use."""
        unit = self.counters[name].unit
        if unit is None:
            return job.takes[name]
        return len(use.where) if unit == RANKS else sum(one[unit] for one in use.where.values())

    def seconds(self, name: str, job: Job) -> float:
        """Return the time for which a budget is charged in its present period, of a job that runs to
        its end by limit; of a pending one as if it started now."""
        begin, end = self.counters[name].period or (0.0, 0.0)
        is_pending = job not in self.running
        since, until = (self.now, self.now + job.limit) if is_pending else (job.began, job.until)
        return max(0.0, min(end, until) - max(begin, since))

    def may_be_offered(self, job: Job) -> bool:
        """Whether there may be another place for a refused job. One over a budget is promised
        nothing: the free resources have to suffice for it."""
        room = Availability(self.totals, self.running.values())
        return not job.offer or any(room.room(d, -inf, -inf)[0] >= d.count for d in job.demands)

    def is_over(self, job: Job, use: Use | None = None) -> Optional[Counter]:
        """Return the counter that a job would exceed, with a certain use or (None) any, or whose
        part of jobs ahead it would take that are promised starts before its end, or before the end
        of one of these. For planned licences, only running jobs without a limit count: others leave
        them to a promise."""
        end, ahead = self.now + job.limit, list[Job]()
        known = self.promises  # those of takers are not
        starts = {one: known[one].start if one in known else -inf for one in self.assured}
        for one in sorted(starts, key=lambda one: starts[one]):
            if one.position < job.position and starts[one] < end:
                ahead.append(one)
                end = max(end, starts[one] + one.limit)
        for name, least in job.takes.items():
            counter = self.counters[name]
            most, unit, planned, is_assured, period = counter
            if planned:
                used = least + sum(one.takes.get(name, 0) for one in self.endless())
            elif use is not None:
                used = self.used(name, (job, use))
            elif period:
                used = self.used(name) + least * self.seconds(name, job)
            elif unit == RANKS and not job.demands[0].whole:
                used = max(self.used(name), least)  # it may share ranks with others
            else:
                used = self.used(name) + least
            if is_assured:
                used += sum(one.takes.get(name, 0) for one in ahead)
            if used > most:
                return counter
        return None

    def is_held(self, job: Job) -> bool:
        """Whether a rule keeps a job from any start now: a limit, its window is over, or it never
        fits between others that repeat."""
        room, now = Availability(self.totals, self.windows), self.now
        first = min(room.earliest(demand, job.limit, now, now, False) for demand in job.demands)
        if self.windows and job.window is None and first == inf:
            return True
        return job.window not in [None, *self.windows] or job.is_refused or bool(self.is_over(job))

    def assure(self, job: Job) -> None:
        """Make jobs behind a promised one leave its part of limits, if all pending jobs together
        would not exceed these. The number of ranks is known only for whole ones. Latest starts are
        not assured."""
        for name in job.takes:
            most, unit, _, is_assured, _ = self.counters[name]
            sure = [one for one in self.pending if unit != RANKS or one.demands[0].per_node]
            waiting = sum(other.takes.get(name, 0) for other in sure)
            is_known = unit != RANKS or job.demands[0].whole
            if is_assured and not (is_known and self.used(name) + waiting <= most):
                return
        if self.policy != "all" and any(self.counters[name].is_assured for name in job.takes):
            self.assured.add(job)


def without(state: State, job: Job, ended: list[Job]) -> State:
    """Return the state if some running jobs had ended for a job that is to start: open promises
    behind it, or all that are made anew in a pass, do not count."""
    running = {other: use for other, use in state.running.items() if other not in ended}
    behind = state.behind(job)
    if state.keeps_promises:
        behind = [o for o in behind if job in state.promises and is_open(state.promises[o])]
    return replace(state, running=running, hidden=behind)


def victims_for(state: State, job: Job, longer: float = 0.0) -> list[Job]:
    """Return the running jobs of lower levels that have to end for a job to start, which are cleaned
    up for `longer` seconds; empty if that is impossible. They are added one by one, the smallest
    loss first; then each one that is not needed, or is on none of its ranks, is spared."""
    now = state.now

    def place(ended: list[Job]) -> list[tuple[Use, Where]] | None:
        return without(state, job, ended).place(job, now + job.limit + longer)

    def suffices(ended: list[Job]) -> bool:
        return place(ended) is not None

    def loss(other: Job) -> tuple[float, ...]:
        use = state.running[other]
        return other.class_rank, len(use.where) * (now - other.began), -other.began, -other.id

    ended: list[Job] = []
    for other in sorted(state.running, key=loss):
        may_end = other.class_rank < job.class_rank and now - other.began >= other.after
        if may_end and not suffices(ended):
            ended.append(other)
    ended = needed(ended, suffices)
    found = place(ended)
    where = () if found is None else found[0][1]
    return [other for other in ended if any(rank in where for rank in state.running[other].where)]


def needed(ended: list[Job], suffices: Callable[[list[Job]], bool]) -> list[Job]:
    """Return the jobs that have to end of some that suffice: from the last to the first, each one
    that is not needed is spared."""
    for other in ended[::-1]:
        rest = [one for one in ended if one is not other]
        ended = rest if suffices(rest) else ended
    return ended


def is_open(use: Use | None) -> bool:
    """Return whether a promise is open."""
    return isinstance(use, Open)


def is_due(use: Use, now: float) -> bool:
    """Whether the time of a promise has come; that of an open one is unknown."""
    return use.start <= now and not is_open(use)


def mask(ranks: Iterable[int]) -> int:
    """Return a mask of ranks."""
    return sum(1 << rank for rank in set(ranks))
