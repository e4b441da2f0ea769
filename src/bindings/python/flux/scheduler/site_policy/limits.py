# SPDX-License-Identifier: LGPL-3.0-or-later
"""Limits on the resources that the jobs of a user, a bank or a queue hold at a time:
``[limits.NAME]``.

A job counts with the resources in its R, from its start to its final ``sched.free``, including
clean-up. A limit is checked twice: against the minimum of the request, before the pool is asked,
and then exactly, against the pool's offer. So a limit of nodes is enforced although a job's number
of nodes is not known beforehand.

A job over a limit is deferred: it has no promise and no job waits behind it. Such jobs are grouped
by the limits that they count against and by their minimum needs. When none of these limits is
exceeded any more, they are readmitted one by one until one is reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf
from typing import Any, NamedTuple

from flux.resource.pool.masks import popcount
from flux.resource.pool.rank_counts import RankCounts
from flux.scheduler.admission import Deferral
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.disclosure import Reason, behind
from flux.scheduler.host import counted, name_of
from flux.scheduler.query.answering import Caller
from flux.scheduler.requests import PendingJob, RunningJob
from flux.scheduler.site_policy.counting import (
    Bound,
    Denied,
    Scope,
    ScopedRule,
    ScopedUse,
    Use,
    read_scope,
)
from flux.scheduler.site_policy.holdings import Counted, Holding
from flux.scheduler.site_policy.tables import Fields


class Amount(NamedTuple):
    """A number of each limited quantity."""

    nodes: int = 0
    cores: int = 0
    gpus: int = 0
    jobs: int = 0

    def plus(self, other: Amount) -> Amount:
        """Return the sum of both."""
        return Amount(*[one + two for one, two in zip(self, other)])


#: Limited quantities, in the order of checks.
DIMENSIONS = Amount._fields

#: Singular nouns.
NOUNS = {"nodes": "node", "cores": "core", "gpus": "GPU", "jobs": "job"}

#: Index of the number of jobs in `DIMENSIONS`.
JOBS = DIMENSIONS.index("jobs")

NONE = Amount()


class Limit(NamedTuple):
    """A limit, as in its table."""

    name: str
    scope: Scope  # the jobs that it applies to
    most: tuple[int | None, ...]  # maximum per dimension; None: unlimited
    soft: bool  # whether jobs over it go behind all others, but may run
    deny: bool  # whether a job that alone exceeds it is denied
    strict: bool  # whether later jobs of a key must leave the needs of the first waiting one


def read_limit(key: str, value: Any) -> Limit:
    """Read the table of one limit. Raises ValueError if the entry is invalid; the text begins with
    the key."""
    table = Fields(value)
    scope, most = read_scope(table, Fields.whole, DIMENSIONS, "{nodes=64}")
    limit = Limit(
        key,
        scope,
        most,
        soft=table.flag("soft"),
        deny=table.flag("deny"),
        strict=table.choice("order", ("pass", "strict"), "pass") == "strict",
    )
    table.end()
    if limit.soft and (limit.deny or limit.strict):
        raise ValueError("soft: a job over a soft limit may run: no deny, no order='strict'")
    return limit


class LimitUse(ScopedUse):
    """The use of a limit by the jobs of one key. `Use.used`: their holdings; the unlimited dimensions
    are counted in `LimitRule.report` alone. A job needs the minimum that its request takes on the
    ranks at its arrival, an `Amount`.

    Attributes:
        ranks (RankCounts): the ranks of jobs that may share them, if nodes are limited; else None
        head (PendingJob): of a strict limit, the first job that waits for it, or has waited for it
            and waits for resources or other strict limits; later ones must leave its needs; None:
            there is none
        heads (dict): of a limit that is not strict: strict limits whose head counts here, too, or
            did when it was noted -> None
        demoted (set): ids of jobs that were over a soft limit
        assured (dict): id -> pending job with a promise, to which later ones leave its share
        claims (list): number of `assured` jobs; 0 if all pending jobs are known to fit together
    """

    rule: LimitRule
    entry: Limit
    assures = True

    def __init__(self, rule: LimitRule, limit: Limit, key: tuple[Any, ...]) -> None:
        super().__init__(rule, limit, key)
        self.ranks = None if limit.most[0] is None else RankCounts()
        self.pending.append(0)  # number of pending jobs whose number of nodes is unknown
        self.claims = [0]
        self.head: PendingJob | None = None
        self.heads: dict[LimitUse, None] = {}
        self.demoted: set[int] = set()
        self.assured: dict[int, PendingJob] = {}

    def bounds_for(
        self, job: PendingJob, needs: Amount, least: tuple[int, int, int]
    ) -> list[Bound]:
        found: list[Bound] = []
        if self.promised:
            found.append((self.claims, 0, 0))
        takes = self.rule.host.facts.most_nodes(job.resource_request), *least[1:], 1
        found += [(self.used, at, most - takes[at]) for at, most in self.bounds]
        if self.entry.strict:
            found.append(([0], 0, -1))  # a job ahead may wait for it
        return found

    def adds(
        self, needs: Amount, job: PendingJob | None = None, held: Holding | None = None
    ) -> Amount:
        if job is None:
            return needs
        added = self.takes(job, held)
        if self.assured or self.entry.strict:
            return added.plus(self.rule.left_free(self, job))
        return added

    def takes(self, job: PendingJob, held: Holding | None = None) -> Amount:
        """Return the amount that a job takes: `held`, or (None) the minimum. If it may share nodes,
        it can run on nodes of other jobs of the key, but may request more nodes than these use."""
        if held is not None:
            own = 0 if self.ranks is None else self.ranks.ranks
            return Amount(popcount(held.ranks & ~own), held.cores, held.gpus, 1)
        least = self.rule.least(job)
        if least.nodes or self.ranks is None:
            return least
        missing = self.rule.host.facts.fewest_nodes(job.resource_request) - self.used[0]
        return least._replace(nodes=max(0, missing))

    def count_pending(self, needs: Amount, times: float) -> None:
        super().count_pending(needs, times)
        self.outgrew()

    def needs_pending(self, needs: Amount) -> list[tuple[int, float]]:
        found = super().needs_pending(needs)
        return [*found, (-1, 1)] if found and self._may_share(needs) else found

    def is_assured(self, needs: Amount, unlike: tuple[bool, bool]) -> bool:
        # Later jobs may take it over a soft limit, and then go ahead of it.
        return not (self.entry.soft or self._may_share(needs)) and super().is_assured(needs, unlike)

    def assure(self, job: PendingJob) -> None:
        """Have jobs behind a promised one leave it its share."""
        self.assured[job.jobid] = job
        if self.pending[-1]:
            self.outgrew()

    def outgrew(self) -> None:
        if self.assured or self.claims[0]:
            fit = not self.pending[-1] and self.over(self.pending) is None
            self.claims[0] = 0 if fit else len(self.assured)
            if self.claims[0]:
                self.rule.host.admission.watched.add(self)

    def waits_no_more(self, jobid: int, cause: Use | None = None) -> None:
        is_strict = isinstance(cause, LimitUse) and cause.entry.strict
        if self.head is not None and self.head.jobid == jobid and not is_strict:
            self.head = None
            self.rule.readmit_for(self)  # others waited behind it

    def counts(self, needs: Amount, held: Holding) -> list[tuple[int, int]]:
        amounts = Amount(*held[1:], 1)
        return [(at, amounts[at]) for at, _ in self.bounds if at or needs.nodes]

    def _may_share(self, needs: Amount) -> bool:
        """Whether a job may share nodes, which are limited, so that it takes an unknown number."""
        return self.ranks is not None and not needs.nodes

    def notes(self, needs: Amount, held: Holding) -> RankCounts | None:
        return self.ranks if self._may_share(needs) else None

    def note_held(
        self, jobid: int, record: Counted, noted: RankCounts, sign: int, now: float
    ) -> None:
        ranks = record.held.ranks
        if sign > 0:
            self.used[0] += popcount(ranks & ~noted.ranks)
            noted.add(ranks)
            self.watch()
        else:
            noted.remove(ranks)
            self.used[0] -= popcount(ranks & ~noted.ranks)

    def started(self, jobid: int) -> None:
        if self.head is not None:
            self.waits_no_more(jobid)
        if self.heads or (self.entry.strict and self.waiting):
            self.rule.review(self)

    def settle(self) -> None:
        if self.demoted and self.over(Amount(jobs=1)) is None:
            self.rule.promote(self)
        super().settle()

    def is_calm(self) -> bool:
        return super().is_calm() and not (self.claims[0] or self.demoted or self.head is not None)


class LimitRule(ScopedRule):
    """Keeps a job waiting while it would exceed the limit of its user, bank or queue."""

    name = "limit"
    table = "limits"
    lists = "limits"
    read = staticmethod(read_limit)
    new_use = LimitUse
    are_promised = True
    _some_are_soft = _some_are_strict = True

    # -- the table ---------------------------------------------------------------------------------

    def configure(self, entries: dict[str, Limit]) -> None:
        for use in self.uses.values():
            self.promote(use)
        self.host.admission.assured.clear()
        super().configure(entries)
        self._some_are_soft = any(limit.soft for limit in entries.values())
        self._some_are_strict = any(limit.strict for limit in entries.values())

    # -- pending jobs ------------------------------------------------------------------------------

    def read_job(
        self, job: PendingJob, uses: tuple[LimitUse, ...], attributes: SystemAttributes
    ) -> dict[Any, Any]:
        for use in uses:
            alone = self._exceeds_alone(use, job) if use.entry.deny else None
            if alone is not None:
                for one in uses:
                    if not one.jobs:
                        one.without_jobs()
                raise Denied(alone, use.entry.name)
        return dict.fromkeys(uses, self.least(job))

    def found(self, job: RunningJob, uses: Any, attributes: SystemAttributes) -> dict[Any, Any]:
        return dict.fromkeys(uses, NONE)

    def least(self, job: PendingJob) -> Amount:
        """Return the minimum that a job takes on the present ranks."""
        return Amount(*self.host.facts.least_of(job.resource_request), 1)

    def _exceeds_alone(self, use: LimitUse, job: PendingJob) -> str | None:
        """Return why a job alone exceeds the limit, in a sentence, or None. Nodes that it may share
        count too: there is no other job to share with."""
        least, facts = self.least(job), self.host.facts
        for at, most in use.bounds:
            need = least[at] if at else facts.fewest_nodes(job.resource_request)
            if need > most:
                needs = counted(need, NOUNS[DIMENSIONS[at]])
                are = "is" if most == 1 else "are"
                return f"limit {use.entry.name}: needs {needs}, at most {most} {are} allowed"
        return None

    def binding(self, uses: dict[LimitUse, Any]) -> dict[LimitUse, Any]:
        # A job may run over a soft limit.
        if not self._some_are_soft:
            return uses
        return {use: needs for use, needs in uses.items() if not use.entry.soft}

    def has_room(self, job: PendingJob, key: Any, is_offered: bool) -> bool:
        if not super().has_room(job, key, is_offered):
            return False
        admission, pool = self.host.admission, self.host.resources
        if not is_offered or (self, key) not in admission.offers or not pool.has_view:
            return True
        # It needs at least the nodes that it cannot share with jobs of the key.
        fewest, free = self.host.facts.fewest_nodes(job.resource_request), pool.ranks_with_room
        for use in self.binding(self.uses_by_id(job.jobid)):
            if use.ranks is not None:
                missing = max(0, fewest - popcount(use.ranks.ranks & free))
                if use.used[0] + missing > use.bounds[0][1]:
                    return False
        return True

    def readmit_for(self, use: Any, waiting: Any = None) -> None:
        if self._some_are_strict:
            self._find_head(use)
        super().readmit_for(use, waiting)

    def _find_head(self, use: LimitUse) -> None:
        """Note the first job that waits for a strict limit, after a change of its use; for another
        limit, the first job that only strict ones may keep waiting now."""
        for key, needs in use.waiting.items():
            is_over = use in needs and use.over(needs[use]) is not None
            if is_over == use.entry.strict:
                for group in self.host.admission.deferred.groups(self, key):
                    if use.head is None or group.first < use.head:
                        self._note_head(group.first)

    def _note_head(self, job: PendingJob) -> None:
        """Note a job as the first that waits for the strict limits that it is over, if no other limit
        keeps it waiting, and it does not wait forever."""
        uses = self.binding(self.uses_by_id(job.jobid))
        over = [one for one in uses if one.over(one.adds(uses[one], job)) is not None]
        if all(one.entry.strict and self._exceeds_alone(one, job) is None for one in over):
            for one in over:
                if one.head is None or job < one.head:
                    one.head = job
            for other in uses:
                if not other.entry.strict:
                    other.heads.update(dict.fromkeys(over))

    def review(self, use: LimitUse) -> None:
        """Look for other heads where a limit whose use has grown keeps one waiting, and for its own."""
        if use.entry.strict:
            self._find_head(use)
        for one in list(use.heads):
            needs = None if one.head is None else self.uses_by_id(one.head.jobid).get(use)
            if needs is None:
                del use.heads[one]
            elif use.over(needs) is not None:
                one.head = None
                self.readmit_for(one)

    def left_free(self, use: LimitUse, job: PendingJob) -> Amount:
        """Return the amount that a job must leave free: the needs of the first waiting job, if the
        limit is strict, and the needs of jobs ahead that are promised a start before it would end,
        or before one of these would end."""
        head = use.head if use.head is not None and use.head < job else None
        kept = NONE if head is None else self.least(head)
        if use.assured:
            plan, ahead = self.host.planning.current(), list[Any]()
            for jobid, other in list(use.assured.items()):
                start = plan.start_of(jobid) if plan and plan.has(jobid) else None
                if start is None and jobid not in self.host.admission.deferred:
                    self.host.admission.assure_no_more(jobid)
                elif other is not head and other < job:
                    ahead.append((-inf if start is None else start, other))
            end = self.host.now() + (getattr(job.resource_request, "duration", 0.0) or inf)
            for start, other in sorted(ahead):
                if start < end:
                    kept = kept.plus(self.least(other))
                    end = max(end, start + other.limit)
        return kept

    def defer(self, use: Any, at: int, job: PendingJob, uses: Any, held: Any = None) -> Deferral:
        limit, least, admission = use.entry, self.least(job), self.host.admission
        binding = dict.fromkeys(self.binding(uses), least)
        key: Any = job.jobid if limit.soft else (tuple(uses), least)
        if held is not None:
            needs = use.takes(job, held)[at]
            if admission.is_question:
                return Deferral(_sentence(use, at, needs))
            # With promises the offer also depends on the job's limit.
            length = job.limit if self.host.decision.looks_past_heads else None
            key = *key, getattr(job.resource_request, "shape", None), length
            self.wait([use], key, binding)
            # Its numbers change while the job waits.
            reason = partial(self.sentence, use, at, job, needs)
            return Deferral(reason, key=key, over=(use, at, needs))
        over = use, at, max(1, least[at])
        deferral = Deferral(lambda: self.sentence(use, at, job), key=key, over=over)
        if use.assured:
            # It is asked about again if the promise is given up.
            admission.at_release[use] = None
        if admission.is_question:
            return deferral
        if limit.soft:
            use.demoted.add(job.jobid)
            admission.watched.add(use)
            self.host.call_at(self.host.now(), partial(self._demote, job.jobid))
            return deferral
        if limit.strict:
            self._note_head(job)
        self.wait(uses, key, binding)
        return deferral

    def sentence(
        self, use: LimitUse, at: int, job: PendingJob | None, needs: int | None = None
    ) -> str:
        """`needs`: the amount in the pool's offer to the job."""
        if job is None:
            return _sentence(use, at, 0)
        limit = use.entry
        alone = self._exceeds_alone(use, job)
        if alone is not None:
            return alone
        head = use.head
        if head is not None and head < job:
            start = f"limit {limit.name}: "
            return behind(head.name, head.userid, start, ", which waits for it")
        added = use.takes(job)[at] if needs is None else needs
        if use.used[at] + added <= (limit.most[at] or 0):
            return f"limit {limit.name}: the rest is kept for a job that was promised a start"
        if needs is None:
            return _sentence(use, at, max(1, self.least(job)[at]))
        return _sentence(use, at, needs, " as nodes are free now")

    def alternatives(self, use: Any, at: int, job: PendingJob, uses: Any) -> Iterator[Any]:
        request, least, own = job.resource_request, self.least(job), -1
        yield from self.fewer(request, least, uses)
        # nodes of other jobs of the key, if it may share nodes
        for one in uses:
            if one.ranks is not None:
                own &= one.ranks.ranks
        if own > 0 and hasattr(request, "shape") and not request.shape.exclusive:
            yield request.on_ranks(own)
        if DIMENSIONS[at] == "gpus" and not least.gpus:
            yield from self.without_gpus(job)

    # -- soft limits -------------------------------------------------------------------------------

    def _demote(self, jobid: int) -> None:
        """Move a job over a soft limit behind all others."""
        job = self.host.pending(jobid)
        if job is not None and jobid in self.host.admission.deferred:
            job.demoted = True
            self.host.prioritize([[jobid, job.priority]])
        self.host.readmit(self, jobid)

    def promote(self, use: LimitUse) -> None:
        """Move the jobs of a key back: it is no longer over its soft limit."""
        jobids, use.demoted = use.demoted, set()
        for jobid in jobids:
            job = self.host.pending(jobid)
            if job is not None and job.demoted:
                job.demoted = False
                self.host.prioritize([[jobid, job.priority]])

    # -- answers -----------------------------------------------------------------------------------

    def facts(self, job: PendingJob) -> dict[str, Any]:
        """Return the limit that keeps `job` from starting, the one in its reason: name, whose,
        what, used, most, needs, and ``t_again``, when enough may be free, with ``job``."""
        uses = self.uses_by_id(job.jobid)
        if not uses:
            return {}
        least, found = self.least(job), self.first_over(job, self.binding(uses))
        deferred = self.host.admission.deferred.by_id.get(job.jobid)
        if found is not None:
            use, at = found
            needs = max(1, least[at])
        elif deferred is not None and deferred[2].over is not None:
            use, at, needs = deferred[2].over
        else:
            return {"limit": None}
        is_never = self._exceeds_alone(use, job) is not None
        when, jobid = (None, None) if is_never else self._next_room(use, least)
        job_name = None if jobid is None else name_of(jobid)
        again = {"t_again": when, "job": job_name}
        return self.facts_of(use, at, what=DIMENSIONS[at], used=use.used[at], needs=needs, **again)

    def _next_room(self, use: LimitUse, least: Amount) -> tuple[float | None, int | None]:
        """Return when enough jobs of a key will have ended to make room for another, and the last
        of these.  O(running jobs)."""
        ends = sorted(
            (self.host.running[jobid].end, jobid, self.host.admission.held_by(jobid))
            for jobid, record, one, _ in self.counts_in(self.host.running)
            if one is use and record.held is not None
        )
        ranks = cores = gpus = 0
        for jobs, (end, jobid, held) in enumerate(reversed(ends), 1):
            ranks, cores, gpus = ranks | held.ranks, cores + held.cores, gpus + held.gpus
            left = (popcount(ranks), cores, gpus, jobs)
            if any(left[at] + least[at] > most for at, most in use.bounds):
                return (None, None) if end == inf else (end, jobid)
        return None, None

    def report(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        total: dict[LimitUse, Amount] = {}  # `nodes` is a mask
        for jobid, record, use, _ in self.counts_in(self.host.running):
            if record.held is not None:
                on, _, cores, gpus = self.host.admission.held_by(jobid)
                nodes, *others = total.get(use, NONE).plus(Amount(0, cores, gpus, 1))
                total[use] = Amount(nodes | on, *others)
                yield None
        for use in self.uses.values():
            nodes, *others = total.get(use, NONE)
            for at, most in enumerate(use.entry.most):
                if most is None:
                    use.used[at] = (popcount(nodes), *others)[at]
        yield from super().report(caller)

    def figures(self, use: LimitUse) -> dict[str, Any]:
        return {
            "soft": use.entry.soft,
            "used": dict(zip(DIMENSIONS, use.used)),
            "max": dict(zip(DIMENSIONS, use.entry.most)),
        }

    def waiting(self, use: LimitUse) -> int:
        deferred, found = self.host.admission.deferred, 0
        for group in [one for key in use.waiting for one in deferred.groups(self, key)]:
            over = deferred.by_id[group.first.jobid][2].over
            if (over and over[0] is use) or use.over(use.takes(group.first)) is not None:
                found += group.count
        return found

    def stats(self) -> dict[str, Any]:
        uses = self.uses.values()
        of = {name: [use for use in uses if use.entry.name == name] for name in self.entries}
        return {
            "limits": [
                {"name": name, "keys": len(some), "waiting": sum(map(self.waiting, some))}
                for name, some in of.items()
            ]
        }


def _sentence(use: LimitUse, at: int, needs: int, more: str = "") -> Reason:
    """Return the use of a limit in words, with a job's needs (0: without a job)."""
    limit = use.entry
    what = NOUNS[DIMENSIONS[at]] + "s"
    where = f" in {', '.join(limit.scope.queues)}" if limit.scope.queues else ""
    text = f"{use.used[at]} of {limit.most[at]} {what}{where}"
    whose = use.whose
    has = f"{whose} has {text}" if whose else f"{text} are in use"
    tail = f"; needs {needs}" if needs else ""
    return Reason(
        f"limit {limit.name}: {has}{tail}{more}",
        f"limit {limit.name}: too much of {limit.most[at]} {what}{where} is in use{tail}",
        userid=use.userid,
    )
