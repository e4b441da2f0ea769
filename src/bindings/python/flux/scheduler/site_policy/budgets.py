# SPDX-License-Identifier: LGPL-3.0-or-later
"""Budgets: node-hours, core-hours and GPU-hours that the jobs of a user, a bank or a queue may use
in a period: ``[budgets.NAME]``.

A job is charged for the resources in its R while it holds them. It may start if past use in the
period, the use of running jobs up to their limits and its own use are together within the budget:
so no job has to be ended when a budget is used up. Use after the end of the period is charged to
the next one.

Like a limit, a budget is checked twice: against the minimum of the request, and then exactly,
against the pool's offer. A job over a budget is deferred: it has no promise, and no job waits
behind it. It is readmitted when a job of its key has ended before its limit, or in the next period.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from datetime import datetime, timedelta, timezone, tzinfo
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Tuple

from flux.resource.pool.masks import popcount
from flux.scheduler.admission import Deferral
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.disclosure import Owned, Reason
from flux.scheduler.host import name_of
from flux.scheduler.reservations.times import local_zone_name, zone_named
from flux.scheduler.site_policy.fields import Fields
from flux.scheduler.site_policy.holdings import NOTHING, Holding
from flux.scheduler.site_policy.scope import Scope, read_scope
from flux.scheduler.site_policy.table_rule import Over, TableRule
from flux.scheduler.site_policy.usage import KeptUsage, Usage

if TYPE_CHECKING:
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.host import ErrorReporter, Timer
    from flux.scheduler.query.answering import Caller
    from flux.scheduler.requests import PendingJob, RunningJob
    from flux.scheduler.rule_host import RuleHost

#: KVS key of the stored use.
KEY = "checkpoint.sched-budgets"

#: Counted dimensions; a `Holding` has fields for them.
DIMENSIONS = ("node-hours", "core-hours", "gpu-hours")

PERIODS = ("day", "week", "month", "quarter", "year")

#: A number per dimension; for a holding: nodes, cores and GPUs.
Amounts = Tuple[float, float, float]

HOUR_S = 3600.0

#: Tolerance of the remainder, in units times seconds.
GRAIN = 1e-3


class Budget(NamedTuple):
    """A budget, as in its table.

    Attributes:
        name (str): name of the budget
        scope (Scope): the jobs that it applies to
        period (str): one of `PERIODS`
        zone (str): time zone of the calendar for its periods
        most (tuple): maximum per dimension, in hours; None: unlimited
    """

    name: str
    scope: Scope
    period: str
    zone: str
    most: tuple[float | None, ...]

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues named in the table."""
        return self.scope.queues


def read_budget(name: str, value: Any) -> Budget:
    """Read the table of one budget.

    Raises:
        ValueError: the entry is invalid; the text begins with the key
    """
    table = Fields(value)
    scope = read_scope(table)
    period = table.choice("period", PERIODS)
    zone = table.text("zone") or local_zone_name()
    _zone(zone)
    most = table.table("max")
    if most is None:
        raise ValueError("max is missing: expected a table such as {node-hours=10000}")
    mosts = tuple(most.number(dimension) for dimension in DIMENSIONS)
    most.end()
    table.end()
    if all(one is None for one in mosts):
        raise ValueError(f"max: expected one of {', '.join(DIMENSIONS)}")
    return Budget(name, scope, period, zone, mosts)


def _zone(name: str) -> tzinfo:
    """Return the zone of a name; UTC needs no zone files.

    Raises:
        ValueError: there is no such zone
    """
    return timezone.utc if name == "UTC" else zone_named(name)


def period_of(period: str, zone: tzinfo, when: float) -> tuple[float, float]:
    """Return start and end of the period that includes a time, in seconds since the epoch.

    Args:
        period (str): one of `PERIODS`; weeks begin on Monday
        zone (tzinfo): zone of the calendar
        when (float): the time, seconds since the epoch
    """
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


class Account:
    """The use of a budget by the jobs of one key, in the current period.

    Attributes:
        budget (Budget): the budget
        key (tuple): key of the jobs
        bounds (list): (index in `DIMENSIONS`, maximum in units times seconds) of limited dimensions
        begin, end (float): the period, seconds since the epoch
        taken (list): use per dimension, including that of running jobs until the end of the period
            or their limits, in units times seconds
        stored_as (list): key of the past use in `Usage`, per dimension
        wanted (list): maximum use by its pending jobs in a period, per dimension
        waiting (dict): key of a deferral -> (minimum holding of these jobs, their time limit)
    """

    __slots__ = (
        "begin",
        "bounds",
        "budget",
        "end",
        "key",
        "stored_as",
        "taken",
        "waiting",
        "wanted",
    )

    def __init__(self, budget: Budget, key: tuple[Any, ...]) -> None:
        self.budget = budget
        self.key = key
        #: with the maximum in units times seconds
        self.bounds = [
            (at, most * HOUR_S) for at, most in enumerate(budget.most) if most is not None
        ]
        self.wanted = [0.0, 0.0, 0.0]
        self.waiting: dict[Hashable, tuple[Amounts, float]] = {}

    def begins(self, usage: Usage, now: float) -> None:
        """Begin the period that includes `now`, and read its past use."""
        budget = self.budget
        self.begin, self.end = period_of(budget.period, _zone(budget.zone), now)
        self.stored_as = [(budget.name, self.begin, at, *self.key) for at in range(len(DIMENSIONS))]
        self.taken = [usage.of(key, now) for key in self.stored_as]

    def needs(self, rate: float, limit: float, now: float) -> float:
        """Return the use in this period by a job that starts now and runs to its limit."""
        return rate * max(0.0, min(now + limit, self.end) - now)


class Known:
    """The record of a job that a budget applies to.

    Attributes:
        accounts (list): the accounts charged
        least (tuple): the minimum that it will hold, per dimension
        limit (float): its time limit in seconds
        waits (bool): whether it is pending
        holds (Holding): the resources that it holds
        rates (tuple): the same, per dimension
        end (float): its latest end, seconds since the epoch
    """

    __slots__ = ("accounts", "end", "holds", "least", "limit", "rates", "userid", "waits")

    def __init__(self, accounts: list[Account], userid: int, least: Amounts, limit: float) -> None:
        self.accounts = accounts
        self.userid = userid
        self.least = least
        self.limit = limit
        self.waits = False
        self.rates: Amounts = (0, 0, 0)
        self.holds = NOTHING
        self.end = inf


def amounts_of(holds: Holding) -> Amounts:
    """Return the nodes, cores and GPUs of a holding."""
    return popcount(holds.ranks), holds.cores, holds.gpus


class BudgetRule(TableRule):
    """Keeps a job waiting while it could exceed the budget of its user, bank or queue."""

    name = "budget"
    table = "budgets"
    lists = "budgets"

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        self._budgets: list[Budget] = []
        self._accounts: dict[tuple[Any, ...], Account] = {}
        self._jobs: dict[int, Known] = {}
        self._usage = KeptUsage(
            host, errors, KEY, self._learn, lambda key: len(key) >= 3 and isinstance(key[0], str)
        )
        self._timer: Timer | None = None

    # -- the table ---------------------------------------------------------------------------------

    def parse(self, key: str, value: Any) -> Budget:
        return read_budget(key, value)

    def configure(self, entries: dict[str, Budget]) -> None:
        if self._timer is not None:
            self._usage.cease(self.host.now())
            self._timer.cancel()
            self._timer = None
        if entries:
            self._usage.begin()
        self._budgets = list(entries.values())
        self._accounts.clear()
        self._jobs.clear()
        self._forget_past()
        if entries:
            self._await_next_period()

    def needs(self, entries: dict[str, Budget]) -> tuple[str, ...]:
        return ("jobspec",) if any(one.scope.needs_jobspec for one in entries.values()) else ()

    # -- periods -----------------------------------------------------------------------------------

    def _await_next_period(self) -> None:
        now = self.host.now()
        ends = [period_of(one.period, _zone(one.zone), now)[1] for one in self._budgets]
        self._timer = self.host.call_at(min(ends), self._next_period)

    def _next_period(self) -> None:
        """Begin the next period of each account whose period has ended."""
        self._await_next_period()
        now = self.host.now()
        for account in self._accounts.values():
            if now < account.end:
                continue
            for key in account.stored_as:
                self._usage.forget(key)
            account.begins(self._usage, now)
            for known in self._jobs.values():
                if account in known.accounts and not known.waits:
                    self._count(account, known, known.rates, account.begin)
        self._forget_past()
        self._usage.changed()
        self.host.readmit(self)
        self.host.look_again()

    def _forget_past(self) -> None:
        """Forget the use of removed budgets and past periods."""
        now = self.host.now()
        begins = {one.name: period_of(one.period, _zone(one.zone), now)[0] for one in self._budgets}
        for key in self._usage.keys():
            if self._budgets and begins.get(key[0]) != key[1]:
                self._usage.forget(key)

    # -- accounts of a job -------------------------------------------------------------------------

    def _accounts_of(self, userid: int, attributes: SystemAttributes) -> list[Account]:
        """Return the accounts that a job is charged to."""
        found = []
        for budget in self._budgets:
            key = budget.scope.key_of(userid, attributes, self.host.queue_names)
            if key is not None:
                account = self._accounts.get((budget.name, key))
                if account is None:
                    account = self._accounts[budget.name, key] = Account(budget, key)
                    account.begins(self._usage, self.host.now())
                found.append(account)
        return found

    def _learn(self, job: dict[str, Any], since: float, until: float) -> None:
        """Charge a job that ended while no scheduler was loaded."""
        attributes = SystemAttributes({name: job.get(name) for name in ("queue", "bank")})
        for account in self._accounts_of(job["userid"], attributes):
            seconds = until - max(since, account.begin)
            for at, rate in enumerate((job.get("nnodes", 0), job.get("ncores", 0))):
                if seconds > 0:
                    self._usage.add(account.stored_as[at], rate * seconds, self.host.now())
                    account.taken[at] += rate * seconds

    # -- pending jobs ------------------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        userid = -1 if job.userid is None else job.userid
        accounts = self._accounts_of(userid, attributes)
        if not accounts:
            return
        request = job.resource_request
        limit = getattr(request, "duration", 0.0) or inf
        known = self._jobs[job.jobid] = Known(accounts, userid, self._least(request), limit)
        known.waits = True
        self._want(known, 1)

    def _least(self, request: Any) -> Amounts:
        """Return the minimum that a request takes; at least its requested nodes, and one."""
        nodes, cores, gpus = self.host.facts.least_of(request)
        return max(1, nodes, getattr(request, "nnodes", 1)), cores, gpus

    def _want(self, known: Known, sign: int) -> None:
        """Add a pending job's maximum use or, with `sign` -1, remove it."""
        for account in known.accounts:
            seconds = min(known.limit, account.end - account.begin)
            for at, rate in enumerate(known.least):
                account.wanted[at] += sign * rate * seconds

    def _over(self, known: Known, rates: Amounts) -> tuple[Account, int] | None:
        """Return the account and the index in `DIMENSIONS` with too little left for a job that
        would hold `rates`, or None."""
        limit = known.limit
        for account in known.accounts:
            for at, most in account.bounds:
                rate, left = rates[at], most - account.taken[at] + GRAIN
                # Usually enough is left for its whole limit, regardless of the period's end.
                if rate and rate * limit > left:
                    if account.needs(rate, limit, self.host.now()) > left:
                        return account, at
        return None

    def check(self, job: PendingJob) -> Deferral | None:
        known = self._jobs.get(job.jobid)
        return None if known is None else self._look(job, known, known.least)

    def _look(self, job: PendingJob, known: Known, rates: Amounts) -> Deferral | None:
        """Return None if a job that would hold `rates` may start, else the reason."""
        found = self._over(known, rates)
        if found is None:
            return None
        account, at = found
        shape = getattr(job.resource_request, "shape", None)
        length = 0 if known.limit == inf else int(known.limit).bit_length()
        key = (account.budget.name, account.key, rates, shape, length, *known.accounts)
        account.waiting[key] = (rates, known.limit)
        return Deferral(self._sentence(account, at, known, rates), account.end, key)

    def _has_taken(self, account: Account, at: int) -> tuple[str, str]:
        """Return the use of a budget, in words; and the same without name and number."""
        budget = account.budget
        most = budget.most[at]
        assert most is not None
        taken = account.taken[at] / HOUR_S
        whose = budget.scope.whose(account.key)
        has = f"{whose} has taken {taken:.1f}" if whose else f"{taken:.1f} are taken"
        of = f"of {most:g} {DIMENSIONS[at]} of this {budget.period}"
        return f"budget {budget.name}: {has} {of}", f"budget {budget.name}: too much {of} is taken"

    def _sentence(self, account: Account, at: int, known: Known, rates: Amounts) -> Reason:
        needs = account.needs(rates[at], known.limit, self.host.now()) / HOUR_S
        full, brief = (f"{one}; needs {needs:.1f}" for one in self._has_taken(account, at))
        return Reason(full, brief, userid=account.budget.scope.user_of(account.key))

    def second_look(self, job: PendingJob, pool: Any, jobid: int) -> Deferral | None:
        known = self._jobs.get(job.jobid)
        if known is None:
            return None
        return self._look(job, known, amounts_of(self.host.holdings.of(jobid, pool)))

    def keeps_promise(self, job: PendingJob) -> bool:
        # It is certain to start if all pending jobs may start in this period.
        known = self._jobs.get(job.jobid)
        return known is None or all(
            account.wanted[at] + account.taken[at] <= most
            for account in known.accounts
            for at, most in account.bounds
        )

    def cancel(self, jobid: int) -> None:
        known = self._jobs.pop(jobid, None)
        if known is not None and known.waits:
            self._want(known, -1)
            for account in known.accounts:
                self._let_in(account)  # it may have been readmitted ahead of others

    # -- running jobs ------------------------------------------------------------------------------

    def start(self, job: PendingJob, alloc: ResourcePool) -> None:
        known = self._jobs.get(job.jobid)
        if known is not None:
            self._want(known, -1)
            known.waits = False
            self._runs(job.jobid, known, self.host.now() + known.limit, inf)

    def hello(self, job: RunningJob) -> None:
        userid = job.userid if isinstance(job.userid, int) else -1
        accounts = self._accounts_of(userid, job.attributes)
        since = self._usage.found(job.jobid)
        if accounts:
            known = self._jobs[job.jobid] = Known(accounts, userid, (0, 0, 0), inf)
            self._runs(job.jobid, known, self.host.running[job.jobid].end, since)

    def _runs(self, jobid: int, known: Known, end: float, since: float) -> None:
        known.holds = self.host.holdings.of(jobid)
        known.rates = amounts_of(known.holds)
        known.end = end
        for account in known.accounts:
            self._count(account, known, known.rates, max(since, account.begin))
        self._usage.changed()

    def _count(self, account: Account, known: Known, rates: Amounts, since: float = inf) -> None:
        """Change a running job's use by `rates` from now on, counted since `since`."""
        now = self.host.now()
        seconds = min(known.end, account.end) - min(now, since)
        for at, rate in enumerate(rates):
            if rate:
                account.taken[at] += rate * seconds
                self._usage.change(account.stored_as[at], rate, now, since)

    def free(self, jobid: int, R: Any, final: bool) -> None:
        known = self._jobs.get(jobid)
        if known is None or known.waits:
            return
        before = known.rates
        known.holds = NOTHING if final else known.holds.left_of(R)
        known.rates = amounts_of(known.holds)
        nodes, cores, gpus = (one - two for one, two in zip(known.rates, before))
        for account in known.accounts:
            self._count(account, known, (nodes, cores, gpus))
            self._let_in(account)
        if final:
            del self._jobs[jobid]
        self._usage.changed()

    def extended(self, jobid: int, expiration: float) -> bool:
        known = self._jobs.get(jobid)
        if known is not None and not known.waits:
            before, known.end = known.end, expiration or inf
            for account in known.accounts:
                later = min(known.end, account.end) - min(before, account.end)
                for at, rate in enumerate(known.rates):
                    account.taken[at] += rate * later
                self._let_in(account)
        return False

    def _let_in(self, account: Account) -> None:
        """Readmit jobs that wait for a budget: of those with equal needs, the number that the
        remainder suffices for."""
        if not account.waiting:
            return
        admission, now = self.host.admission, self.host.now()
        for key, (rates, limit) in list(account.waiting.items()):
            rooms = [
                (most - account.taken[at] + GRAIN) // account.needs(rates[at], limit, now)
                for at, most in account.bounds
                if rates[at] and now < account.end
            ]
            room = min(rooms, default=1.0)
            if room >= 1 and admission.waiting(self, key):
                self.host.let_in(self, key, int(min(room, 1e9)))
            if not admission.waiting(self, key):
                del account.waiting[key]

    # -- answers -----------------------------------------------------------------------------------

    def why(self, job: PendingJob) -> str | None:
        known = self._jobs.get(job.jobid)
        found = self._over(known, known.least) if known is not None and known.waits else None
        if known is None or found is None:
            return None
        return self._sentence(*found, known, known.least)

    def facts(self, job: PendingJob, expected_start: float | None, first: bool) -> dict[str, Any]:
        """Return the budget that keeps `job` from starting: ``name``, ``whose``, ``what``,
        ``taken``, ``max`` and ``needs`` in hours, and ``t_again``, the start of the next period."""
        known = self._jobs.get(job.jobid)
        found = self._over(known, known.least) if known is not None else None
        if known is None or found is None:
            return {}
        account, at = found
        most = account.budget.most[at]
        assert most is not None
        fields = {
            "name": account.budget.name,
            "whose": account.budget.scope.whose(account.key),
            "what": DIMENSIONS[at],
            "taken": account.taken[at] / HOUR_S,
            "max": most,
            "needs": account.needs(known.least[at], known.limit, self.host.now()) / HOUR_S,
            "t_again": account.end,
        }
        return {"budget": Owned(fields, account.budget.scope.user_of(account.key))}

    def report(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        own = {
            id(account) for known in self._jobs.values() if known.userid == caller.userid
            for account in known.accounts
        }  # fmt: skip
        yield None
        now = self.host.now()
        accounts = self._accounts.values()
        for account in sorted(accounts, key=lambda one: (one.budget.name, str(one.key))):
            budget = account.budget
            everybodys = budget.scope.per in ("queue", "instance")
            if not (caller.sees_all or id(account) in own or everybodys):
                continue
            used = [self._usage.of(key, now) / HOUR_S for key in account.stored_as]
            to_come = [max(0.0, all / HOUR_S - one) for all, one in zip(account.taken, used)]
            entry = {
                "budget": budget.name,
                "per": budget.scope.per,
                "whose": budget.scope.whose(account.key),
                "queues": list(budget.queues),
                "period": budget.period,
                "end": account.end,
                "used": dict(zip(DIMENSIONS, used)),
                "running": dict(zip(DIMENSIONS, to_come)),
                "max": dict(zip(DIMENSIONS, budget.most)),
                "waiting": sum(self.host.admission.waiting(self, key) for key in account.waiting),
            }
            yield Owned(entry, budget.scope.user_of(account.key))

    def held_back(
        self,
        entries: dict[str, Budget],
        names: list[str],
        running: list[RunningJob],
        pending: list[PendingJob],
    ) -> Iterator[Over | None]:
        rule = BudgetRule(self.host, self.errors)
        rule._usage.take(self._usage, self.host.now())
        rule._budgets = [entries[name] for name in names]
        for run in running:
            rule.hello(run)
            yield None
        for account in rule._accounts.values():
            for at, most in account.bounds:
                if account.taken[at] > most + GRAIN:
                    its = [name_of(id) for id, one in rule._jobs.items() if account in one.accounts]
                    text = rule._has_taken(account, at)[0]
                    yield Over(account.budget.name, text, "running", its)
                    break
        for job in pending:
            rule.alloc(job, SystemAttributes.of_job(job))
            known = rule._jobs.get(job.jobid)
            found = rule._over(known, known.least) if known is not None else None
            if known is not None and found is not None:
                text = str(rule._sentence(*found, known, known.least))
                yield Over(found[0].budget.name, text, "pending", [job.name])
            yield None
