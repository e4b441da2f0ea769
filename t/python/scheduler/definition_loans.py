# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs in promised time (``into-promises``) in the histories of `definition_play`.

A *borrower* is a job of a lower level than a promised one, the taker. It starts where it would not
fit, on promised resources, as if it ended when the promise begins: then it is ended. What it holds
after the promise is kept free to its own end, and the promise stays where it is, so that all others
hold whether it is ended or not. If they all hold without its end, it runs to its own end.
"""

from copy import copy
from dataclasses import dataclass, field
from dataclasses import replace as changed
from math import inf
from typing import Any

from definition_preemption import AFTER, GRACE

from flux.resource.plan.availability import Use, fits
from flux.scheduler.definition import RANKS, Job, State, is_open, mask
from flux.scheduler.projection.player import ENDING_S
from flux.scheduler.site_policy.preemption.loans import MOST_TRIED


@dataclass
class Lending(State):
    """The state, with a lender for jobs that do not fit (`Loans`)."""

    lender: Any = None

    def start(self, job, is_first=True):
        if self.lender is None:
            return super().start(job, is_first)
        return self.lender.start_with_loans(job, lambda: State.start(self, job, is_first))

    def advance(self, job):
        stays = self.lender is not None and self.lender.stays(job)
        return not stays and super().advance(job)

    def lower(self, job, start, end):
        lower = super().lower(job, start, end)
        return {o: u for o, u in lower.items() if self.lender is None or not self.lender.stays(o)}


@dataclass(eq=False)
class Loan:
    """Jobs in the time of a promised one, the taker."""

    taker: Job
    start: float  # the promised one
    demand: Any  # of the promise
    borrowers: dict = field(default_factory=dict)  # -> what keeps its resources after the promise
    kept: list = field(
        default_factory=list
    )  # (what keeps that of an ended one, its use, its units)
    is_warned: bool = False
    is_over: bool = False  # whether its borrowers were ended


class Loans:
    """A part of `definition_play.Player`."""

    def begin_loans(self):
        self.loans, self.kill_s = {}, 5.0  # by taker; seconds from their end to the promise
        if "into" in self.case.features:
            self.state.lender, self.state.asks_each = self, True

    def loan_of(self, borrower):
        return next((one for one in self.loans.values() if borrower in one.borrowers), None)

    # -- starts ------------------------------------------------------------------------------------

    def start_with_loans(self, job, start):
        """Start a taker, a job that fits or, in the latest promise possible, one of a low level.
        Return whether it has left the pass."""
        self.review()
        state, now, loan = self.state, self.now, self.loans.get(job)
        if loan is not None and loan.kept:
            return self.start_there(loan)
        if loan is not None:  # it starts early, if others hold though its borrowers run on
            uses = {one: state.running[one] for one in loan.borrowers}
            rests = {one: state.running.pop(one) for one in loan.borrowers.values() if one}
            for one, use in uses.items():
                use.end = one.until
            left = start()
            if job in state.running:
                self.end_loan(loan)
            elif job in self.loans:
                state.running.update(rests)
                for use in uses.values():
                    use.end = loan.start
            return left
        if start():
            return True
        end, first = now + job.limit, now + AFTER + GRACE + self.kill_s
        if job.class_rank == inf or job.window or not state.keeps_promises:
            return False
        promises = [
            (use.start, use.end, other.id, other)
            for other, use in state.promises.items()
            if first < use.start < use.end and (end < inf or use.end == inf) and not is_open(use)
        ]
        promises = [one for one in sorted(promises, reverse=True) if self.may_lend(job, one[3])]
        if state.has_licences(job, now, end):
            return any(self.lend(job, *one) for one in promises[:MOST_TRIED])
        return False

    def may_lend(self, job, other):
        """Whether a job may run in the time of a promised one: it leaves it its part of limits."""
        state, loan, claim = self.state, self.loans.get(other), job.demands[0].claim
        for name in job.takes.keys() & other.takes.keys():
            counter, used = state.counters[name], state.used(name)
            shares = [counter.unit == RANKS and not one.demands[0].whole for one in (job, other)]
            least = [one.takes[name] - used * on for one, on in zip((job, other), shares)]
            if counter.is_assured and used + sum(max(0, one) for one in least) > counter.most:
                return False
        fits_in = claim in (None, other.demands[0].claim) or other.demands[0].whole
        is_open = loan is None or not loan.is_warned
        return fits_in and is_open and other.class_rank == inf and not other.window

    def lend(self, job, start, until, _, other):
        """Start a job in the time of another. Return whether it has left the pass."""
        state, promise = self.state, self.state.promises[other]
        before = {one: copy(use) for one, use in state.promises.items()}
        ranks = -1 if state.lines else mask(promise.where)
        if job.is_aside or state.place(job, start) is None:
            return job.is_aside
        places = (state.place(job, start, some & ranks) for some, *_ in state.tries(job, start))
        found = next(filter(None, places), None)
        if found is None or len(found) > 1:
            return False
        use = Use(-inf, start, None, found[0][1], found[0][0].claim)
        job.is_aside = job.is_refused = bool(state.is_over(job, use))
        loan = self.loans.get(other) or Loan(other, start, promise.demand)
        if job.is_aside or not self.is_within(loan, [*loan.borrowers, use]):
            return job.is_aside
        state.drop(job)
        state.running[job] = use
        job.began, job.until = self.now, self.now + job.limit
        if not self.keep_rest(loan, job, until):
            del state.running[job]
            state.promises.clear()
            state.promises.update(before)
            return False
        promise.demand, self.loans[other] = None, loan
        state.pending.remove(job)
        return True

    def is_within(self, loan, borrowers):
        """Whether what some borrowers (or uses) hold is together part of the promise."""
        there = self.state.promises[loan.taker].where
        units = [self.state.running.get(one, one).where for one in borrowers]
        return all(
            rank in there
            and fits(map(sum, zip(*(where[rank] for where in units if rank in where))), there[rank])
            for rank in {rank for where in units for rank in where}
        )

    def keep_rest(self, loan, job, until):
        """Keep what a borrower holds from the end of the promise to its own end. Return whether that
        is free."""
        state, where, rest = self.state, self.state.running[job].where, None
        if job.until > until:
            rest = Job(-job.id, tuple(d.on(mask(where)) for d in job.demands), job.until - until)
            self.held.add(rest.id)
            is_kept, use = state.promise(rest, until), state.promises.pop(rest, None)
            if not is_kept or not all(
                rank in use.where and fits(some, use.where[rank]) for rank, some in where.items()
            ):
                return False
            use.demand, state.running[rest] = None, use
        loan.borrowers[job] = rest
        return True

    # -- the promise -------------------------------------------------------------------------------

    def review(self):
        """Follow changes of promises, and of the limits of borrowers."""
        for loan in list(self.loans.values()):
            promise = self.state.promises.get(loan.taker)
            if promise is None or loan.is_over and promise.start > max(self.now, loan.start):
                self.end_loan(loan)
            elif is_open(promise):
                pass
            elif promise.start != loan.start and promise.start > self.now and not loan.is_over:
                loan.start, within = promise.start, []
                loan.demand, promise.demand = promise.demand or loan.demand, None
                for one, rest in sorted(loan.borrowers.items(), key=lambda one: one[0].id):
                    self.state.running.pop(rest, None)
                    if one.until > loan.start and self.is_within(loan, [*within, one]):
                        within.append(one)
                        self.state.running[one].end = loan.start
                        self.keep_rest(loan, one, promise.end)
                self.let_run(loan, [one for one in loan.borrowers if one not in within])

    def borrower_extended(self, job):
        """Follow a change of a running job's limit."""
        loan = self.loan_of(job)
        if loan is not None and job.until <= loan.start:
            self.let_run(loan, [job])
        elif loan is not None:
            self.state.running[job].end = loan.start

    def stays(self, job):
        """Whether a promise keeps its time, since it needs its borrowers' resources."""
        self.review()
        loan, promise = self.loans.get(job), self.state.promises.get(job)
        if loan is None or promise.start <= self.now or not loan.borrowers:
            return False
        if not self.state.holds(job):
            return False  # it moves, and its borrowers stay
        if not loan.is_over and not self.are_needed(loan, loan.borrowers):
            self.end_loan(loan)
        return job in self.loans

    def are_needed(self, loan, borrowers):
        """Whether a promise would break if some borrowers ran to their own ends."""
        state = self.state
        known = {one: changed(use) for one, use in state.promises.items() if not is_open(use)}
        running = dict(state.running)
        trial = changed(state, promises=known, running=running, assured=set(), lender=None)
        self.drop_broken(trial)  # those do not count
        for one in borrowers:
            running[one] = changed(running[one], end=one.until)
            running.pop(loan.borrowers[one], None)
        if len(borrowers) == len(loan.borrowers) and loan.taker in known:
            known[loan.taker].demand = loan.demand
        return self.drop_broken(trial)

    def drop_broken(self, trial):
        """Drop the promises that cannot be kept, even on other ranks. Return whether there are any."""
        uses, keep = list(trial.promises.items()), trial.promise
        held = {job: trial.holds(job) or use.demand and keep(job, use.start) for job, use in uses}
        lost = [job for job, is_held in held.items() if not is_held]
        for job in lost:
            trial.drop(job)
        return bool(lost)

    def let_run(self, loan, borrowers):
        """Let some borrowers run to their own ends."""
        for one in borrowers:
            self.state.running.pop(loan.borrowers.pop(one), None)
            if one in self.state.running:
                self.state.running[one].end = one.until
        if not loan.borrowers and not loan.kept:
            self.end_loan(loan)

    def end_loan(self, loan):
        state = self.state
        if self.loans.pop(loan.taker, None) is None:
            return
        self.let_run(loan, list(loan.borrowers))
        state.freed |= bool(loan.kept)
        self.let_go_of(loan)
        if loan.taker in state.promises:
            state.promises[loan.taker].demand = loan.demand
        if state.policy == "all" and not all(map(state.holds, state.promises)):
            state.put_back(state.promises)
            state.freed = True

    # -- warning and end ---------------------------------------------------------------------------

    def loan_times(self):
        """When borrowers are to be warned or ended."""
        loans = [one for one in self.loans.values() if not one.is_over]
        return [
            max(self.now, one.start - self.kill_s - GRACE * (not one.is_warned)) for one in loans
        ]

    def go_on_with_loans(self):
        """Warn or end borrowers whose time has come."""
        for loan in list(self.loans.values()):
            for grace in (GRACE, 0.0):
                is_due = loan.start - self.kill_s - grace <= self.now and not loan.is_over
                if is_due and loan.is_warned == (not grace) and self.is_wanted(loan):
                    loan.is_over, loan.is_warned = loan.is_warned, True
                    for one in loan.borrowers if loan.is_over else ():
                        self.ends[one] = min(self.ends[one], self.now + ENDING_S)

    def is_wanted(self, loan):
        """Whether some borrowers have to end; the others are spared."""
        state, job, spared = self.state, loan.taker, []
        running = {one: use for one, use in state.running.items() if use.end > loan.start}
        is_held = changed(state, running=running, lender=None).is_held(job)
        if is_held or job.is_aside or job not in state.promises or loan.start >= job.latest:
            self.end_loan(loan)
        elif not self.are_needed(loan, loan.borrowers):
            self.end_loan(loan)
        for one in loan.borrowers:
            spared += [] if self.are_needed(loan, [*spared, one]) else [one]
        self.let_run(loan, spared)
        return job in self.loans

    def borrower_ended(self, job, use):
        """Keep the resources of an ended borrower for the taker."""
        loan = self.loan_of(job)
        if loan is None:
            return
        self.state.running.pop(loan.borrowers.pop(job), None)
        if loan.is_over:
            self.kill_s = 5.0 + ENDING_S
            units = self.pool.held(job.id) if self.state.choose else None
            loan.kept.append((Job(-1000 - job.id, loan.taker.demands), use, units))
        elif not loan.borrowers:
            self.end_loan(loan)

    def keep_for(self, loan):
        """Keep what ended borrowers have freed, before others start."""
        for kept, use, units in loan.kept:
            if kept not in self.state.running:
                where = use.where
                if self.state.choose:
                    is_there = self.pool.hold_free(kept.id, mask(where), 0.0, units)
                    where = self.amounts_of(self.pool.held(kept.id)) if is_there else {}
                    self.held.add(kept.id)
                end = max(loan.start, self.now)
                self.state.running[kept] = Use(-inf, end, None, where, use.claim)

    def let_go_of(self, loan):
        for kept, *_ in loan.kept:
            use = self.state.running.pop(kept, None)
            if use is not None and use.where and self.state.choose:
                self.pool.free(kept.id)

    def start_there(self, loan):
        """Start a taker on the ranks of its promise. Return whether it has left the pass."""
        state, job, end = self.state, loan.taker, self.now + loan.taker.limit
        self.let_go_of(loan)
        job.is_aside = state.is_held(job)
        ranks = -1 if state.lines else mask(state.promises[job].where)
        found = None if job.is_aside else state.place(job, end, ranks)
        if found is None:
            self.keep_for(loan)
            return False
        for use, where in found:
            use.where = where
        state.drop(job)
        use = Use(-inf, end, None, found[0][1], found[0][0].claim)
        over = state.is_over(job, use)
        if over:
            job.is_aside = job.is_refused = True
            job.offer = use if over.period else None
        else:
            state.pending.remove(job)
            state.running[job], job.began, job.until = use, self.now, end
        self.end_loan(loan)
        return True

    def start_takers(self):
        """Start the takers for which all resources are free now."""
        for loan in [one for one in self.loans.values() if one.kept]:
            self.keep_for(loan)
            job = loan.taker
            if not job.is_aside and self.start_there(loan) and job in self.state.running:
                self.starts[job.id] = self.now
                self.ends[job] = self.jobs[job.id].end(self.now, self.state.running[job].end)
                if self.state.choose:
                    self.follow()
