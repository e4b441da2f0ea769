# SPDX-License-Identifier: LGPL-3.0-or-later
"""Budgets: node-hours, core-hours and GPU-hours that the jobs of a user, a bank or a queue may use
in a period: ``[budgets.NAME]``.

A job is charged for the resources in its R while it holds them. It may start if past use in the
period, the use of running jobs up to their limits and its own use are together within the budget:
so no job has to be ended when a budget is used up. Later use is charged to the next period.

Like a limit, a budget is checked twice: against the minimum of the request, and then exactly,
against the pool's offer. A job over a budget is deferred: it has no promise, and no job waits
behind it. It is readmitted when a job of its key has ended before its limit, when so little is left
of the period that the rest of the budget suffices for it, or in the next period.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone, tzinfo
from functools import partial
from math import inf
from typing import Any, NamedTuple, Tuple

from flux.scheduler.admission import Deferral
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.disclosure import Reason
from flux.scheduler.host import NO_TIMER, ErrorReporter
from flux.scheduler.query.answering import Caller
from flux.scheduler.requests import PendingJob, RunningJob
from flux.scheduler.rule_host import RuleHost
from flux.scheduler.site_policy.counting import PER, Bound, Scope, ScopedRule, ScopedUse, read_scope
from flux.scheduler.site_policy.holdings import Counted, Holding
from flux.scheduler.site_policy.tables import Fields
from flux.scheduler.site_policy.usage import UsageStore
from flux.scheduler.times import local_zone_name, zone_named

#: KVS key of the stored use.
KEY = "checkpoint.sched-budgets"

#: Counted dimensions: the numbers in a `Holding`.
DIMENSIONS = ("node-hours", "core-hours", "gpu-hours")

#: Periods, and the days in the longest of each.
PERIODS = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}

#: A number per dimension; for a holding: nodes, cores and GPUs.
Amounts = Tuple[float, float, float]

NONE: Amounts = (0, 0, 0)

HOUR_S = 3600.0

#: Tolerance of the remainder, in units times seconds.
GRAIN = 1e-3

#: Shortest rest of a period, in seconds, that a job may start for: a job that waited for the
#: remainder to suffice leaves a rounding error of it.
LEAST_S = 1.0


class Budget(NamedTuple):
    """A budget, as in its table."""

    name: str
    scope: Scope  # the jobs that it applies to
    period: str  # one of `PERIODS`
    zone: str  # time zone of the calendar for its periods
    most: tuple[float | None, ...]  # maximum per dimension, in hours; None: unlimited


def read_budget(key: str, value: Any) -> Budget:
    """Read the table of one budget. Raises ValueError if the entry is invalid; the text begins with
    the key."""
    table = Fields(value)
    scope, most = read_scope(table, Fields.number, DIMENSIONS, "{node-hours=10000}")
    period = table.choice("period", PERIODS)
    zone = table.text("zone") or local_zone_name()
    _zone(zone)
    table.end()
    return Budget(key, scope, period, zone, most)


def _is_key(key: tuple[Any, ...]) -> bool:
    return len(key) >= 3 and isinstance(key[0], str)


def _zone(name: str) -> tzinfo:
    """Return the zone of a name; UTC needs no zone files. Raises ValueError if there is no such
    zone."""
    return timezone.utc if name == "UTC" else zone_named(name)


def period_of(period: str, zone: tzinfo, when: float) -> tuple[float, float]:
    """Return start and end of the period that includes a time, in seconds since the epoch.
    `period`: one of `PERIODS`; weeks begin on Monday."""
    day = datetime.fromtimestamp(when, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        end = day + timedelta(days=1)
    elif period == "week":
        day -= timedelta(days=day.weekday())
        end = day + timedelta(days=7)
    else:
        months = {"month": 1, "quarter": 3, "year": 12}[period]
        first = day.month - 1 - (day.month - 1) % months
        day = day.replace(day=1, month=first + 1)
        after = first + months
        end = day.replace(year=day.year + after // 12, month=after % 12 + 1)
    return day.timestamp(), end.timestamp()


class Charge(NamedTuple):
    """The needs of a job in budgets."""

    rates: Amounts  # its minimum numbers of nodes, cores and GPUs; 0 of all if it was found running
    limit: float  # its time limit in seconds


class Account(ScopedUse):
    """The use of a budget by the jobs of one key, in the current period, including that of running
    jobs until its end or their limits; in units times seconds. A job needs a `Charge`.

    Attributes:
        begin, end (float): the period, seconds since the epoch
        stored_as (list): key of the past use in `BudgetRule.past`, per dimension
        timer (Timer): readmits jobs when the rest of the period is short enough
    """

    rule: BudgetRule
    entry: Budget
    is_kept = True  # until the end of its period

    def __init__(self, rule: BudgetRule, budget: Budget, key: tuple[Any, ...]) -> None:
        super().__init__(rule, budget, key)
        self.bounds = [(at, most * HOUR_S + GRAIN) for at, most in self.bounds]
        self.longest = (24 * PERIODS[budget.period] + 1) * HOUR_S  # a day may have 25 hours
        self.timer = NO_TIMER
        self.begins(rule.host.now())
        rule.note_end(self.end)

    def begins(self, now: float) -> None:
        """Begin the period that includes `now`, and read its past use."""
        budget = self.entry
        self.begin, self.end = period_of(budget.period, _zone(budget.zone), now)
        self.stored_as = [(budget.name, self.begin, at, *self.key) for at in range(len(DIMENSIONS))]
        self.used[:] = [self.rule.past.pop(key, 0.0) for key in self.stored_as]

    def bounds_for(
        self, job: PendingJob, needs: Charge, least: tuple[int, int, int]
    ) -> list[Bound]:
        self.rule.watch_period()
        takes = self.rule.host.facts.most_nodes(job.resource_request), *needs.rates[1:]
        # Usually enough is left for its whole limit, regardless of the period's end.
        return [
            (self.used, at, most - takes[at] * needs.limit) for at, most in self.bounds if takes[at]
        ]

    def adds(
        self, needs: Charge, job: PendingJob | None = None, held: Holding | None = None
    ) -> list[float]:
        now = self.rule.now()
        rates = needs.rates if held is None else held[1:]
        # An exhausted dimension does not matter to a job that does not use it.
        return [self.needs(rate, needs.limit, now) if rate else -inf for rate in rates]

    def needs_pending(self, needs: Charge) -> list[tuple[int, float]]:
        # the same when it comes and leaves, whose periods may differ
        length = min(needs.limit, self.longest)
        return [(at, needs.rates[at] * length) for at, _ in self.promised]

    def notes(self, needs: Charge, held: Holding) -> tuple[Any, float]:
        return held[1:], needs.limit

    def note_held(
        self, jobid: int, record: Counted, noted: tuple[Any, float], sign: int, now: float
    ) -> None:
        rule, end = self.rule, record.end
        if now >= rule.next_end:
            rule.begin_periods(now)
        rates, limit = noted
        if end is None:
            record.end = end = rule.host.admission.own_ends.get(jobid) or now + limit
        self.take(rates, sign * ((end if end < self.end else self.end) - now))
        if not rule.store.has_changed:
            rule.store.touch()

    def take(self, rates: Amounts, seconds: float) -> None:
        """Charge a time at these rates."""
        used, (nodes, cores, gpus) = self.used, rates
        used[0] += nodes * seconds
        used[1] += cores * seconds
        if gpus:
            used[2] += gpus * seconds
        if seconds > 0:
            self.watch()

    def add_past(self, rates: Amounts, since: float, until: float) -> None:
        """Charge the part of a time in the past that is in this period."""
        self.take(rates, max(0.0, until - max(since, self.begin)))

    def needs(self, rate: float, limit: float, now: float) -> float:
        """Return the use in this period by a job that starts now and runs to its limit."""
        return rate * max(0.0, min(now + limit, self.end) - now)

    def left_for(self, needs: Charge) -> list[float]:
        each = self.needs(1.0, needs.limit, self.rule.now())
        return [one / each for one in super().left_for(needs)]

    def wake_for(self, rates: Amounts) -> None:
        """Have the jobs that wait readmitted when so little is left of the period that the remainder
        suffices for those that hold `rates`."""
        length, now = self.longest_run(rates), self.rule.host.now()
        when = self.end - length
        # At the period's end the rule readmits them.
        if length >= LEAST_S and now < when and not now < self.timer.when <= when:
            self.timer.cancel()
            self.timer = self.rule.host.call_at(when, lambda: self.rule.readmit_for(self))

    def longest_run(self, rates: Amounts) -> float:
        """Return the time in seconds for which the remainder suffices at these rates."""
        # A little less, since times and lengths are rounded.
        rests = [(most - GRAIN - self.used[at], rates[at]) for at, most in self.bounds]
        return min([rest / rate for rest, rate in rests if rate], default=inf)


class BudgetRule(ScopedRule):
    """Keeps a job waiting while it could exceed the budget of its user, bank or queue."""

    name = "budget"
    table = "budgets"
    lists = "budgets"
    read = staticmethod(read_budget)
    new_use = Account

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        self.store = UsageStore(self, KEY, _is_key)
        #: past use of accounts that are not made, by stored key, in units times seconds
        self.past: dict[tuple[Any, ...], float] = {}
        self._taken: dict[tuple[Any, ...], float] = {}  # `taken`, for a report
        #: end of the first period to end, seconds since the epoch
        self.next_end = inf
        #: timer for that time, if a job may be examined before it
        self._timer = NO_TIMER

    # -- the table ---------------------------------------------------------------------------------

    def configure(self, entries: dict[str, Budget]) -> None:
        self.past = self.taken()
        if next(self.counts_in(), None) is not None:
            self.store.through = self.host.now()
        if entries:
            self.store.begin()
        super().configure(entries)
        self.next_end = inf
        for stored in list(self.past) if entries else ():
            self._restore(stored)

    def load(self, stored: tuple[Any, ...], amount: float, through: float) -> None:
        self.past[stored] = amount

    def _restore(self, stored: tuple[Any, ...]) -> None:
        """Make the account with a stored key, though no job may ever count in it; forget the key if
        its budget was removed, or its period is over."""
        name, begin, _, *key = stored
        entry, now = self.entries.get(name), self.host.now()
        if entry is None or period_of(entry.period, _zone(entry.zone), now)[0] != begin:
            self.past.pop(stored, None)
            return
        kinds = [int if part == "user" else str for part in PER[entry.scope.per]]
        if len(key) == len(kinds) and all(map(isinstance, key, kinds)):
            self.use_of(entry, tuple(key))

    # -- periods -----------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the time; the periods that include it have begun."""
        now = self.host.now()
        if now >= self.next_end:
            self.begin_periods(now)
        return now

    def begin_periods(self, now: float) -> None:
        """Begin the periods that include `now`, and drop accounts of ended ones that no job counts
        in.  O(accounts + jobs)."""
        ended = {account: key for key, account in self.uses.items() if now >= account.end}
        counting = {account for _, _, account, _ in self.counts_in()}
        for account, key in ended.items():
            account.begins(now)
            if account not in counting:
                del self.uses[key]
                self.host.admission.watched.discard(account)
        for account, latest, held in self._running(self.counted):
            if account in ended:
                account.take(held[1:], min(latest, account.end) - account.begin)
        self.next_end = min([account.end for account in self.uses.values()], default=inf)
        self.store.touch()

    def _running(self, jobids: Iterable[int]) -> Iterator[tuple[Account, float, Holding]]:
        """Yield ``(account, end, holding)`` for each account of the jobs that run."""
        for _, record, account, _ in self.counts_in(jobids):
            if record.end is not None and record.held is not None:
                yield account, record.end, record.held

    def watch_period(self) -> None:
        """Have the next period begin in time: the bounds of pending jobs hold in the present one."""
        self.now()
        if self._timer is NO_TIMER:
            self._timer = self.host.call_at(self.next_end, self._period_ends)

    def _period_ends(self) -> None:
        self._timer = NO_TIMER
        self.now()
        if any(record.end is None for _, record, _, _ in self.counts_in()):
            self.watch_period()
            for account in list(self.uses.values()):
                self.readmit_for(account)
            self.host.look_again()  # a job may be over the budget only now

    def taken(self) -> dict[tuple[Any, ...], float]:
        """Return the past use by stored key, without zeros.  O(accounts + running jobs)."""
        now, taken = self.now(), dict(self.past)
        for account in self.uses.values():
            taken.update(zip(account.stored_as, account.used))
        for account, end, held in self._running(self.host.running):
            left = min(end, account.end) - now
            for key, rate in zip(account.stored_as, held[1:]):
                taken[key] -= rate * left if rate else 0.0
        return {key: amount for key, amount in taken.items() if amount}

    def amounts(self, now: float) -> Iterable[tuple[tuple[Any, ...], float]]:
        """Return the past use, by stored key."""
        return self.taken().items()

    def note_end(self, end: float) -> None:
        """Note the end of a new account's period, in seconds since the epoch."""
        if end < self.next_end:
            self.next_end = end
            self._timer.cancel()
            self._timer = NO_TIMER

    # -- pending jobs ------------------------------------------------------------------------------

    def read_job(self, job: PendingJob, uses: Any, attributes: SystemAttributes) -> dict[Any, Any]:
        # at least its requested nodes, and one
        request = job.resource_request
        nodes, cores, gpus = self.host.facts.least_of(request)
        rates = max(1, nodes, getattr(request, "nnodes", 1)), cores, gpus
        return dict.fromkeys(uses, Charge(rates, getattr(request, "duration", 0.0) or inf))

    def defer(self, use: Any, at: int, job: PendingJob, uses: Any, held: Any = None) -> Deferral:
        account: Account = use
        rates, limit = uses[account]
        rates = rates if held is None else held[1:]
        shape = getattr(job.resource_request, "shape", None)
        key = (account.entry.name, account.key, rates, shape, limit, *uses)
        if not self.host.admission.is_question:
            self.wait([account], key, {account: Charge(rates, limit)})
            account.wake_for(rates)
        return Deferral(partial(self.sentence, account, at, job, rates), key=key)

    def alternatives(self, use: Any, at: int, job: PendingJob, uses: Any) -> Iterator[Any]:
        rates: Amounts = uses[use].rates
        yield from self.fewer(job.resource_request, rates, uses)
        if not rates[2]:
            yield from self.without_gpus(job)

    def sentence(
        self, account: Account, at: int, job: PendingJob | None, rates: Amounts | None = None
    ) -> Reason:
        budget, whose, more = account.entry, account.whose, ""
        if job is not None:
            charge = self.uses_by_id(job.jobid)[account]
            rate = (rates or charge.rates)[at]
            needs = account.needs(rate, charge.limit, self.host.now()) / HOUR_S
            more = f"; needs {needs:.1f}"
        taken = account.used[at] / HOUR_S
        has = f"{whose} has taken {taken:.1f}" if whose else f"{taken:.1f} are taken"
        of = f"of {budget.most[at]:g} {DIMENSIONS[at]} of this {budget.period}"
        return Reason(
            f"budget {budget.name}: {has} {of}{more}",
            f"budget {budget.name}: too much {of} is taken{more}",
            userid=account.userid,
        )

    # -- running jobs ------------------------------------------------------------------------------

    def hello(self, job: RunningJob) -> None:
        self.now()
        super().hello(job)
        self.store.hello(job)

    def found(self, job: RunningJob, uses: Any, attributes: SystemAttributes) -> dict[Any, Any]:
        return dict.fromkeys(uses, Charge(NONE, inf))

    def extended(self, jobid: int, expiration: float) -> None:
        self.now()
        held, uses = self.host.admission.held_by(jobid), self.uses_by_id(jobid)
        if uses:
            before, self.counted[jobid].end = self.counted[jobid].end or 0.0, expiration or inf
        for account in uses:
            later = min(expiration or inf, account.end) - min(before, account.end)
            account.take(held[1:], later)
            self.readmit_for(account)

    def has_room(self, job: PendingJob, key: Any, is_offered: bool) -> bool:
        # Another offer of the pool may take less.
        is_for_offer = (self, key) in self.host.admission.offers
        return is_for_offer or super().has_room(job, key, is_offered)

    def readmit_for(self, account: Account, waiting: Any = None) -> None:
        rest, fitting = account.end - self.now(), []
        longest: dict[Amounts, float] = {}
        for key, needs in account.waiting.items():  # there may be thousands of limits
            rates, limit = needs[account]
            if rates not in longest:
                longest[rates] = account.longest_run(rates) + LEAST_S
                account.wake_for(rates)
            if min(limit, rest) <= longest[rates]:
                fitting.append((key, needs))
        super().readmit_for(account, fitting)

    # -- answers -----------------------------------------------------------------------------------

    def facts(self, job: PendingJob) -> dict[str, Any]:
        """Return the budget that keeps `job` from starting: ``name``, ``whose``, ``what``,
        ``taken``, ``max`` and ``needs`` in hours, and ``t_again``, the start of the next period."""
        uses = self.uses_by_id(job.jobid)
        found = self.first_over(job, uses)
        if found is None:
            return {}
        account, at = found
        rates, limit = uses[account]
        needs, taken = account.needs(rates[at], limit, self.host.now()), account.used[at]
        hours = {"taken": taken / HOUR_S, "needs": needs / HOUR_S}
        return self.facts_of(account, at, what=DIMENSIONS[at], t_again=account.end, **hours)

    def figures(self, account: Account) -> dict[str, Any]:
        used = [max(0.0, self._taken.get(key, 0.0)) / HOUR_S for key in account.stored_as]
        to_come = [max(0.0, all / HOUR_S - one) for all, one in zip(account.used, used)]
        return {
            "period": account.entry.period,
            "end": account.end,
            "used": dict(zip(DIMENSIONS, used)),
            "running": dict(zip(DIMENSIONS, to_come)),
            "max": dict(zip(DIMENSIONS, account.entry.most)),
        }

    def report(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        self._taken = self.taken()
        return super().report(caller)

    def trial(self, entries: dict[str, Any]) -> BudgetRule:
        rule = super().trial(entries)
        rule.past, rule.store.through = self.taken(), self.host.now()
        return rule
