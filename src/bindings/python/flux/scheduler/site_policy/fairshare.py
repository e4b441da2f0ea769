# SPDX-License-Identifier: LGPL-3.0-or-later
"""Fair share: jobs of equal priority are sorted by the use of their bank, then of their user,
relative to their shares, the lowest first: ``[fairshare]``.

A job's use is the resources in its R, from its start to its final ``sched.free``, times the weight
of each kind of resource. It decays by half in each half-life. It is updated when it is read, so a
job costs time only when it starts and when it frees resources. The order is that of Slurm's Fair
Tree with two levels: banks by use per share, and the users of a bank likewise.

The order is computed once per period, and pending jobs are sorted again only if it has changed. Use
is stored in the KVS (`flux.scheduler.site_policy.usage`); jobs that ended while no scheduler was
loaded are looked up in ``job-list``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf, log
from operator import mul
from typing import Any, NamedTuple, Optional, Tuple

from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.disclosure import Owned
from flux.scheduler.host import NO_TIMER, ErrorReporter
from flux.scheduler.query.answering import Caller, Entries, Steps, read
from flux.scheduler.requests import PendingJob, RunningJob
from flux.scheduler.rule_host import RuleHost
from flux.scheduler.site_policy.counting import CountingRule, Use
from flux.scheduler.site_policy.holdings import Counted, Holding
from flux.scheduler.site_policy.table_rule import TableRule
from flux.scheduler.site_policy.tables import Fields, user_id, user_name
from flux.scheduler.site_policy.usage import UsageStore

#: KVS key of the stored use.
KEY = "checkpoint.sched-fairshare"

#: Default half-life, and interval between computations of the order, default and least, in seconds.
HALF_LIFE_S = 7 * 86400.0
PERIOD_S = 300.0
LEAST_PERIOD_S = 1.0
#: Interval between computations for newcomers, in seconds per pending or running job: a queue of 20,000 is sorted
#: in 170 ms (doc/guide/fairshare), a hundredth of the interval.
INTERVAL_PER_JOB_S = 0.001

#: Use of associations without jobs below this, in weighted seconds, is dropped.
NEGLIGIBLE = 1.0

#: A bank ("": none) and a user of it.
Association = Tuple[str, Optional[int]]

#: Sort key of an association: use per share of the bank, and of the user.
Level = Tuple[float, float]


class Weights(NamedTuple):
    """Weights of a second of a node, core and GPU."""

    nodes: float = 0.0
    cores: float = 1.0
    gpus: float = 0.0


class Used(NamedTuple):
    """The past use by jobs, in weighted seconds, as of a time."""

    at: float  # seconds since the epoch
    by_associations: dict[Association, float]
    by_banks: dict[str, float]


def read_entry(key: str, value: Any) -> Any:
    """Parse one key of the table. Raises ValueError if the value is invalid; the text says why."""
    table = Fields({key: value})
    if key in ("half-life", "period"):
        seconds = table.seconds(key)
        if not seconds:
            raise ValueError(f"{key}={value!r}: expected more than 0 seconds")
        return seconds
    if key == "weights":
        inner = table.table(key)
        assert inner is not None
        found = {name: inner.number(name, 0.0) for name in Weights._fields}
        inner.end()
        if not any(found.values()):
            raise ValueError(f"weights={value!r}: expected a table such as {{cores=1, gpus=16}}")
        return Weights(**found)  # type: ignore[arg-type]
    if key in ("banks", "users"):
        inner = table.table(key)
        assert inner is not None
        shares = {name: inner.number(name) for name in list(value)}
        return {user_id(n): s for n, s in shares.items()} if key == "users" else shares
    raise ValueError("unknown key: expected half-life, period, weights, banks or users")


class Associated(Use):
    """The jobs of an association, its key; `Use.pending` has the number of pending ones. Its past
    use is `amount`, in weighted seconds, at the last change, `at` (seconds since the epoch), and
    grows by `rate`."""

    rule: FairShareRule

    def __init__(self, rule: FairShareRule, key: Association, amount: float, at: float) -> None:
        super().__init__(rule, None, key, (None,))
        self.amount, self.rate, self.at = amount, 0.0, at

    def amount_at(self, time: float) -> float:
        """Return the use at a time, if no job starts or ends until then; in the past, as of the last
        change."""
        if time <= self.at:
            return self.amount
        return _grown(self.amount, self.rate, time - self.at, self.rule.half_life)

    def add_past(self, rates: Iterable[float], since: float, until: float) -> None:
        """Add the use at these rates in a past span of time."""
        rule, now = self.rule, self.rule.host.now()
        amount = _grown(0.0, rule.rate_of(rates), max(0.0, until - since), rule.half_life)
        self.amount, self.at = self.amount_at(now), now
        self.amount += _grown(amount, 0.0, now - until, rule.half_life)
        rule.changed()

    def needs_pending(self, needs: None) -> list[tuple[int, float]]:
        return [(0, 1)]

    def notes(self, needs: None, held: Holding) -> float:
        return self.rule.rate_of(held[1:])

    def note_held(self, jobid: int, record: Counted, noted: float, sign: int, now: float) -> None:
        if now > self.at:
            self.amount, self.at = self.amount_at(now), now
        self.rate += sign * noted
        if not self.rule.store.has_changed:
            self.rule.store.touch()
        self.rule.changed()

    def without_jobs(self) -> None:
        if not self.amount:
            del self.rule.uses[self.key]


class FairShareRule(CountingRule):
    """Orders pending jobs; keeps none from starting."""

    name = "fairshare"
    table = "fairshare"
    read = staticmethod(read_entry)

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        self.store, self.load = UsageStore(self, KEY, _is_association), self.use_of
        self.half_life = HALF_LIFE_S
        self.weights = Weights()
        self._banks: dict[str, float] = {}
        self._users: dict[int | None, float] = {}
        #: current levels, by which jobs are sorted
        self._levels: dict[Association, Level] = {}
        self._used = Used(-inf, {}, {})  # as last read, for associations without a level
        self._sorts_soon = False  # whether all levels are about to be computed again
        self._in_force = False
        #: timer of the next computation, if a job is pending
        self._timer = NO_TIMER
        self._armed_at = 0.0  # when it was set: a period began then
        self._calm = 1  # number of periods to skip to if the order stays the same

    # -- the table ---------------------------------------------------------------------------------

    def configure(self, entries: dict[str, Any]) -> None:
        now = self.host.now()
        was_in_force, self._in_force = self._in_force, bool(entries)
        if was_in_force:
            self.store.through = now
        past = list(self.amounts(now))
        self.half_life = entries.get("half-life", HALF_LIFE_S)
        self.weights = entries.get("weights", Weights())
        self._banks = entries.get("banks", {})
        self._users = entries.get("users", {})
        super().configure(entries)
        for key, amount in past:
            self.use_of(key, amount, now)
        if entries:
            self.store.begin()  # stored amounts have decayed since
        self._levels.clear()
        if was_in_force and not entries:
            self.host.order_by_share(None)

    def ready(self) -> None:
        self._levels = self._levels_of(self.uses, self._used_at(self.host.now()))
        self.host.order_by_share(self._level_of_job)

    def amounts(self, now: float) -> Iterator[tuple[Association, float]]:
        return ((key, use.amount_at(now)) for key, use in list(self.uses.items()))

    def use_of(self, key: Any, amount: float = 0.0, at: float = 0.0) -> Associated:
        """Return the use of an association, made with an amount at a time if there is none."""
        use: Associated | None = self.uses.get(key)
        if use is None:
            use = self.uses[key] = Associated(self, key, amount, at)
        return use

    # -- jobs --------------------------------------------------------------------------------------

    jobs_over = TableRule.jobs_over

    def uses_of(self, userid: int, attributes: SystemAttributes) -> tuple[Associated]:
        return (self.use_of((attributes.bank or "", None if userid < 0 else userid)),)

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        super().alloc(job, attributes)
        if self._timer is NO_TIMER:
            self._arm(self.host.now(), 1)
        self.changed()
        association = self._association(job)
        by_share = self.host.queue_order.by_share
        if association is not None and by_share and self.uses[association].pending[0] == 1:
            self._place(association)

    def read_job(self, job: Any, uses: Any, attributes: SystemAttributes) -> dict[Any, Any]:
        return dict.fromkeys(uses)

    found = read_job

    def hello(self, job: RunningJob) -> None:
        super().hello(job)
        self.store.hello(job)

    def rate_of(self, rates: Iterable[float]) -> float:
        """Return the weighted use per second of a job with these numbers of nodes, cores and
        GPUs."""
        rate: float = sum(map(mul, rates, self.weights))
        return rate

    def cancel(self, jobid: int) -> None:
        super().cancel(jobid)
        self.changed()

    # -- the order ---------------------------------------------------------------------------------

    def _level_of_job(self, job: PendingJob) -> Level:
        """Return the sort key of a pending job among those of its priority; the lowest goes
        first."""
        association = self._association(job)
        return self._levels.get(association, (0.0, 0.0)) if association else (0.0, 0.0)

    def _place(self, association: Association) -> None:
        """Give an association, of which no job waited, a level by recent use. The levels of others
        are older: compute them as well, now or soon."""
        interval = max(LEAST_PERIOD_S, INTERVAL_PER_JOB_S * len(self.counted))
        now, due = self.host.now(), self._used.at + min(interval, self._period)
        used = self._used_at(now) if now >= due else self._used
        self._levels[association] = self._level(association, used)
        if now >= due:
            self._sort()
        elif not self._sorts_soon:
            self._sorts_soon = True
            self.host.call_at(due, self._sort)

    def _association(self, job: PendingJob) -> Association | None:
        for use, _ in self.counted[job.jobid].needs if job.jobid in self.counted else ():
            if use.rule is self:
                association: Association = use.key
                return association
        return None

    @property
    def _period(self) -> float:
        period: float = self.entries.get("period", PERIOD_S)
        return max(LEAST_PERIOD_S, period)

    def _level(self, one: Association, used: Used) -> Level:
        """Return the level of an association, by use."""
        return (
            _by_share(used.by_banks.get(one[0], 0.0), self._banks.get(one[0], 1.0)),
            _by_share(used.by_associations.get(one, 0.0), self._users.get(one[1], 1.0)),
        )

    def _levels_of(
        self, associations: Iterable[Association], used: Used
    ) -> dict[Association, Level]:
        """Return the levels of some associations, by use."""
        return {one: self._level(one, used) for one in associations}

    def _used_at(self, time: float) -> Used:
        """Return the use at a time, if no job starts or ends until then.  O(associations with any
        use)."""
        found = Used(time, {}, {})
        for (bank, userid), amount in self.amounts(time):
            found.by_associations[bank, userid] = amount
            found.by_banks[bank] = found.by_banks.get(bank, 0.0) + amount
        return found

    def _period_ends(self) -> None:
        self._timer = NO_TIMER
        for key, amount in self.amounts(self.host.now()):
            if amount < NEGLIGIBLE and not self.uses[key].jobs:
                del self.uses[key]
        if not any(use.pending[0] for use in self.uses.values()):
            self._levels.clear()
        elif self._in_force:
            self._sort()
            pending, now = self._levels_of_pending(), self._used.at
            places = _places(self._levels_of(pending, self._used))
            # All use decays alike, and grows at constant rates if no job starts or ends: so two
            # associations change places once at most, and equal orders are equal in between.
            while self._calm > 1 and places != _places(
                self._levels_of(pending, self._used_at(now + self._calm * self._period))
            ):
                self._calm //= 2
            self._arm(now, self._calm)
            self._calm *= 2

    def _arm(self, began: float, periods: int) -> None:
        """Compute the order some periods after `began`, the end of an earlier one."""
        self._timer.cancel()
        self._armed_at = began
        self._timer = self.host.call_at(began + periods * self._period, self._period_ends)

    def changed(self) -> None:
        """Skip no periods until the next ends: a job has come, started or ended."""
        if self._calm == 1:
            return
        self._calm = 1
        passed = (self.host.now() - self._armed_at) // self._period
        end = self._armed_at + passed * self._period
        if end + self._period < self._timer.when < inf:
            self._arm(end, 1)

    def _sort(self) -> None:
        """Compute the order, and sort the pending jobs again if it has changed."""
        self._sorts_soon = False
        before = self._levels_of_pending()
        self._used = self._used_at(self.host.now())
        after = self._levels_of(before, self._used)
        if _places(before) != _places(after):
            self._levels = after
            self.host.order_by_share(self._level_of_job)

    def _levels_of_pending(self) -> dict[Association, Level]:
        """Return the levels of the associations with pending jobs, as used for sorting."""
        uses = self.uses
        return {
            key: level
            for key, level in self._levels.items()
            if key in uses and uses[key].pending[0]
        }

    # -- answers -----------------------------------------------------------------------------------

    def facts(self, job: PendingJob) -> dict[str, Any]:
        """Return the place of the job's association among those with pending jobs, ``place`` of
        ``of``, with ``bank`` and ``user``, and their use (`shares`)."""
        places, association = _places(self._levels_of_pending()), self._association(job)
        if association is None or association not in places:
            return {}
        found = {
            "bank": association[0],
            "user": user_name(association[1]),
            "place": places[association] + 1,
            "of": len(places),
        }
        return {"fairshare": Owned(found, job.userid)}

    def shares(self, payload: Any, caller: Caller) -> Steps:
        """Return use and shares of banks and users.

        Returns:
            dict: ``half_life`` in seconds (None: fair share is off); ``shares``, an object per bank
                (``user`` is None), followed by its
                users: ``shares``, ``part`` of all shares, ``used`` in weighted hours, ``used_part``
                    of all use, numbers of ``pending`` and
                ``running`` jobs. A guest sees banks, and itself
        """
        read(payload)
        shares = Entries(caller, "sched.shares.shares")
        answer: dict[str, Any] = {
            "now": self.host.now(),
            "half_life": self.half_life if self.entries else None,
            "shares": shares,
        }
        used = self._used_at(answer["now"]).by_associations if self.entries else {}
        total = sum(used.values())
        uses = {key: self.uses[key] for key in used}
        jobs = {key: (use.pending[0], use.jobs - use.pending[0]) for key, use in uses.items()}
        yield
        known = sorted(used, key=lambda one: (one[0], user_name(one[1])))
        banks = sorted({*self._banks, *(bank for bank, _ in known)})
        of_banks = {bank: self._banks.get(bank, 1.0) for bank in banks}
        of_all = sum(of_banks.values())
        members: dict[str, list[Association]] = {bank: [] for bank in banks}
        for one in known:
            members[one[0]].append(one)
        for bank, inside in members.items():
            of_users = {one: self._users.get(one[1], 1.0) for one in inside}
            part, of_members = _part(of_banks[bank], of_all), sum(of_users.values())
            rows: list[tuple[Any, float, float, list[Association]]] = [
                (None, of_banks[bank], part, inside)
            ]
            for one, share in of_users.items():
                rows.append((one[1], share, part * _part(share, of_members), [one]))
            for at, (userid, share, part_of_all, counted) in enumerate(rows):
                if at and not caller.may_see(userid):
                    continue
                amount = sum(used[one] for one in counted)
                entry = {
                    "bank": bank,
                    "user": user_name(userid) if at else None,
                    "shares": share,
                    "part": part_of_all,
                    "used": amount / 3600.0,
                    "used_part": _part(amount, total),
                    "pending": sum(jobs[one][0] for one in counted),
                    "running": sum(jobs[one][1] for one in counted),
                }
                shares.append(Owned(entry, userid if at else None))
                yield
        return answer


def _is_association(key: tuple[Any, ...]) -> bool:
    return len(key) == 2 and isinstance(key[0], str) and (key[1] is None or type(key[1]) is int)


def _grown(amount: float, rate: float, seconds: float, half_life: float) -> float:
    """Return an amount after `seconds` of decay and of use at a rate, which decays as well."""
    left: float = 0.5 ** (seconds / half_life)
    return amount * left + rate * half_life / log(2) * (1.0 - left)


def _by_share(used: float, share: float) -> float:
    """Return use per share; infinite without a share, so that it comes last."""
    return used / share if share else inf


def _part(one: float, of: float) -> float:
    return one / of if of else 0.0


def _places(levels: dict[Association, Level]) -> dict[Association, int]:
    """Return the places in the order of levels, from 0; equal levels have equal places."""
    order: dict[Level, int] = {
        level: place for place, level in enumerate(sorted(set(levels.values())))
    }
    return {one: order[level] for one, level in levels.items()}
