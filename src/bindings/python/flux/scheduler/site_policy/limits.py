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

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from flux.resource.pool.masks import popcount
from flux.resource.pool.rank_counts import RankCounts
from flux.scheduler.admission import Deferral
from flux.scheduler.disclosure import Owned, Reason, behind
from flux.scheduler.host import counted, name_of
from flux.scheduler.site_policy.counting import (
    Counted,
    Denied,
    Scope,
    ScopedRule,
    ScopedUse,
    no_more,
    read_scope,
)
from flux.scheduler.site_policy.fields import Fields

if TYPE_CHECKING:
    from flux.scheduler.admission import Bound, Change
    from flux.scheduler.attributes import SystemAttributes
    from flux.scheduler.host import ErrorReporter
    from flux.scheduler.query.answering import Caller
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.rule_host import RuleHost
    from flux.scheduler.site_policy.holdings import Holding


class Amount(NamedTuple):
    """A number of each limited quantity.

    Attributes:
        nodes, cores, gpus, jobs (int): the numbers
    """

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
    """The use of a limit by the jobs of one key. `ScopedUse.used`: their holdings.

    Attributes:
        waiting (dict): key of a deferral -> the uses in which these waiting jobs count; the key has
            these and their minimum amount
        certain (dict): id -> pending job with a promise that this limit is certain to allow
    """

    __slots__ = ("certain", "claims", "demoted", "head", "passed", "ranks")

    entry: Limit

    def __init__(self, rule: LimitRule, limit: Limit, key: tuple[Any, ...]) -> None:
        super().__init__(rule, limit, key)
        #: the jobs' ranks, if nodes are limited
        self.ranks = None if limit.most[0] is None else RankCounts()
        # Number of jobs for which others are checked: they may have to leave room; and the same
        # without `certain` ones, if all pending jobs fit together.
        self.claims = [0, 0]
        self.head: PendingJob | None = None  # the first job waiting for the limit, if it is strict
        self.passed = (-1, 0.0)  # id of a head that was deferred for another cause, and when
        self.demoted: set[int] = set()  # ids of pending jobs over a soft limit
        self.certain: dict[int, PendingJob] = {}

    def count_pending(self, known: Any, times: float) -> None:
        super().count_pending(known, times)
        if self.certain:
            self.count_claims()

    def count_claims(self, fit: bool = False) -> None:
        """Update `claims` after `head`, `certain` or `demoted` has changed; and while there are
        `certain` jobs, after more is used or pending. `fit`: all pending jobs are known to fit
        together."""
        certain, others = len(self.certain), (self.head is not None) + len(self.demoted)
        fit = fit or not certain or self.over(self.pending) is None
        self.claims[:] = others + certain, others if fit else others + certain

    def waits_no_more(self, jobid: int) -> None:
        if self.claims[0]:
            self.demoted.discard(jobid)
            self.certain.pop(jobid, None)
            was_head = self.head is not None and self.head.jobid == jobid
            if was_head:
                self.rule.find_head(self)
            self.count_claims()
            if was_head:
                self.rule.readmit_for(self)

    def note_held(self, jobid: int, known: Counted, ranks: int, more: Change, now: float) -> None:
        nodes, cores, gpus, jobs = more
        used, on = self.used, self.ranks
        used[1] += cores
        if gpus:
            used[2] += gpus
        used[JOBS] += jobs
        if on is not None:
            if known.least[0]:
                on.ranks ^= ranks  # whole nodes, which no other job has
                used[0] += nodes
            else:
                (on.add if jobs > 0 else on.remove)(ranks)
                used[0] = popcount(on.ranks)
        if jobs > 0:
            for at, _ in self.promised:
                self.pending[at] -= known.least[at]
            if self.claims[0]:
                self.waits_no_more(jobid)
            return
        if self.waiting or self.demoted:
            if self.demoted and self.over(Amount(jobs=1)) is None:
                self.rule.promote(self)
            self.rule.readmit_for(self)
        if jobs:
            self.forget()

    def room(self, each: Amount) -> float:
        """Return the number of jobs with minimum `each` that could start."""
        used, room = self.used, inf
        for at, most in self.bounds:
            need, left = each[at], most - used[at]
            if left < need or left < 0:
                return 0
            if need and left < need * room:
                room = left // need
        return room


class LimitRule(ScopedRule):
    """Keeps a job waiting while it would exceed the limit of its user, bank or queue."""

    name = "limit"
    table = "limits"
    lists = "limits"
    parse = staticmethod(read_limit)
    new_use = LimitUse
    are_promised = True

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        #: ids of jobs to move behind all others
        self._to_demote: list[int] = []

    # -- the table ---------------------------------------------------------------------------------

    def configure(self, entries: dict[str, Limit]) -> None:
        for use in self.uses.values():
            self.promote(use)
        super().configure(entries)

    # -- pending jobs ------------------------------------------------------------------------------

    def read_job(self, job: PendingJob, known: Counted, attributes: SystemAttributes) -> None:
        known.least = self._least(job)
        for use in known.uses:
            alone = self._exceeds_alone(use, job) if use.entry.deny else None
            if alone is not None:
                raise Denied(alone, use.entry.name)
        for use in known.uses:
            if use.entry.strict and use.over(known.least) is not None:
                self._note_head(use, job)

    def _least(self, job: PendingJob) -> Amount:
        """Return the minimum that a job takes on the present ranks; at its request it is
        `Counted.least`."""
        return Amount(*self.host.facts.least_of(job.resource_request), 1)

    def _added(self, use: LimitUse, job: PendingJob, held: Holding | None = None) -> Amount:
        """Return what a job adds to a use: with `held`, or (None) the minimum. If it may share
        nodes, it can run on those of other jobs of the key, but may request more nodes than these
        use."""
        if held is not None:
            own = 0 if use.ranks is None else use.ranks.ranks
            return Amount(popcount(held.ranks & ~own), held.cores, held.gpus, 1)
        least = self._least(job)
        if least.nodes or use.ranks is None:
            return least
        missing = self.host.facts.fewest_nodes(job.resource_request) - use.used[0]
        return least._replace(nodes=max(0, missing))

    def _exceeds_alone(self, use: LimitUse, job: PendingJob) -> str | None:
        """Return why a job alone exceeds the limit, in a sentence, or None. Nodes that it may share
        count too: there is no other job to share with."""
        least, facts = self._least(job), self.host.facts
        for at, most in use.bounds:
            need = least[at] if at else facts.fewest_nodes(job.resource_request)
            if need > most:
                needs = counted(need, NOUNS[DIMENSIONS[at]])
                are = "is" if most == 1 else "are"
                return f"limit {use.entry.name}: needs {needs}, at most {most} {are} allowed"
        return None

    def bounds(self, job: PendingJob) -> list[Bound]:
        least, facts, request = self._least(job), self.host.facts, job.resource_request
        takes = facts.most_nodes(request), *least[1:]
        found: list[Bound] = []
        for use in self.counted_in(job):
            # The minimum number of nodes is unknown for a job that may share them.
            is_known = least.nodes or use.ranks is None
            if use.promised or use.entry.soft or use.entry.strict:
                found.append((use.claims, 1 if is_known else 0, 0))
            found += [(use.used, at, most - takes[at]) for at, most in use.bounds]
        return found

    def adds(self, use: LimitUse, job: PendingJob, held: Holding | None = None) -> Amount:
        added = self._added(use, job, held)
        return added.plus(self._left_free(use, job)) if use.claims[0] else added

    def check(self, job: PendingJob) -> Deferral | None:
        uses = self.counted_in(job)
        found = self.first_over(job, self.binding(uses) if job.demoted else uses)
        return found and self._defer(*found, job)

    def binding(self, uses: Sequence[LimitUse]) -> list[LimitUse]:
        # A job may run over a soft limit.
        return [use for use in uses if not use.entry.soft]

    def _head_before(self, use: LimitUse, job: PendingJob) -> PendingJob | None:
        """Return the first waiting job of a strict limit, if it is ahead of a job and waits for
        nothing else: another limit or rule may keep it from starting."""
        head = use.head
        if head is None or head is job or not head < job or self._waits_elsewhere(use, head):
            return None
        return head

    def _waits_elsewhere(self, use: LimitUse, head: PendingJob) -> bool:
        """Whether the first waiting job of a strict limit is deferred for another cause."""
        deferred = self.host.admission.deferred
        if head.jobid not in deferred or deferred.is_readmitted(head.jobid):
            return False
        offered = deferred.by_id[head.jobid][2].over
        return use.over(self._least(head)) is None and (not offered or offered[0] is not use)

    def was_deferred(self, job: PendingJob) -> None:
        for use in self.counted_in(job):
            # Once at a time: those that start no job now may be first for other limits.
            if use.head is job and self._waits_elsewhere(use, job):
                turn = job.jobid, self.host.now()
                if use.passed != turn:
                    use.passed = turn
                    self.readmit_for(use)  # they waited behind it

    def _left_free(self, use: LimitUse, job: PendingJob) -> Amount:
        """Return the amount that a job must leave free: the needs of the first waiting job, if the
        limit is strict, and those of jobs ahead that are promised a start before it would end."""
        head, kept = self._head_before(use, job), NONE
        if head is not None:
            kept = self._least(head)
        if use.certain:
            plan = self.host.planning.current()
            end = self.host.now() + (getattr(job.resource_request, "duration", 0.0) or inf)
            for jobid, other in list(use.certain.items()):
                if plan is None or not plan.has(jobid):
                    del use.certain[jobid]
                    use.count_claims()
                elif other is not head and other < job and plan.start_of(jobid) < end:
                    kept = kept.plus(self._least(other))
        return kept

    def _defer(self, use: LimitUse, at: int, job: PendingJob) -> Deferral:
        """Return the deferral of a job over a limit."""
        limit, uses = use.entry, self.counted_in(job)
        key: Any = "soft" if limit.soft else (uses, self._least(job))
        deferral = Deferral(lambda: self.sentence(use, at, job), key=key)
        if self.host.admission.is_question:
            return deferral
        if limit.soft:
            use.demoted.add(job.jobid)
            use.count_claims()
            if not self._to_demote:
                self.host.call_at(self.host.now(), self._demote)
            self._to_demote.append(job.jobid)
            return deferral
        if limit.strict:
            self._note_head(use, job)
        if use.certain:
            # It is asked about again if the promise is given up.
            self.host.admission.at_release[use] = lambda: self.readmit_for(use)
        for one in uses:
            one.waiting[key] = uses
        return deferral

    def _note_head(self, use: LimitUse, job: PendingJob) -> None:
        """Note a job that waits for a strict limit: later jobs must leave its needs, unless it
        would wait forever."""
        if (use.head is None or job < use.head) and self._exceeds_alone(use, job) is None:
            use.head = job
            use.count_claims()

    def find_head(self, use: LimitUse, former: PendingJob | None = None) -> None:
        """Find the first job that waits for a strict limit: `former` or one that is deferred."""
        use.head = former
        for key in use.waiting if use.entry.strict else ():
            if use.over(key[1]) is not None:
                for group in self.host.admission.deferred.groups(self, key):
                    self._note_head(use, group.head(1)[0])

    def moved(self) -> None:
        for use in self.uses.values():
            if use.head is not None:
                self.find_head(use, use.head)
                self.readmit_for(use)  # some may be ahead of the head now

    def sentence(
        self, use: LimitUse, at: int, job: PendingJob | None, needs: int | None = None
    ) -> str:
        """`needs`: of what the pool offers the job."""
        if job is None:
            return _sentence(use, at, 0)
        limit = use.entry
        alone = self._exceeds_alone(use, job)
        if alone is not None:
            return alone
        head = self._head_before(use, job)
        if head is not None:
            start = f"limit {limit.name}: "
            return behind(head.name, head.userid, start, ", which waits for it")
        added = self._added(use, job)[at] if needs is None else needs
        if use.used[at] + added <= (limit.most[at] or 0):
            return f"limit {limit.name}: what is left is for a job that was promised a start"
        if needs is None:
            return _sentence(use, at, max(1, self._least(job)[at]))
        return _sentence(use, at, needs, " as nodes are free now")

    # -- the pool's offer --------------------------------------------------------------------------

    def second_look(self, job: PendingJob, pool: Any, held: Holding) -> Deferral | None:
        found = self.first_over(job, self.binding(self.counted_in(job)), held)
        if found is None:
            return None
        use, at = found
        needs = self._added(use, job, held)[at]
        if pool is not self.host.resources:
            return Deferral(_sentence(use, at, needs))
        shape = getattr(job.resource_request, "shape", None)
        # With promises the offer also depends on the job's limit.
        length = job.limit if self.host.decision.looks_past_heads else None
        uses = self.counted_in(job)
        key = (uses, self._least(job), shape, length)
        use.waiting[key] = uses
        self.host.admission.offers[self, key] = shape
        others: Iterable[Any] = self._smaller(job)
        if DIMENSIONS[at] == "gpus" and not self._least(job).gpus:
            others = chain(others, self.without_gpus(job))
        # Its numbers change while the job waits.
        reason = partial(self.sentence, use, at, job, needs)
        return Deferral(reason, key=key, instead=others, over=(use, at, needs))

    def _smaller(self, job: PendingJob) -> Iterator[Any]:
        """Yield smaller requests within the remainder, if the job's is a range; and requests for
        nodes of other jobs of the key, if it may share nodes."""
        request = job.resource_request
        shape = getattr(request, "shape", None)
        if shape is None:
            return
        left: list[float] = [inf] * len(DIMENSIONS)
        own = -1
        for use in self.binding(self.counted_in(job)):
            for at, most in use.bounds:
                left[at] = min(left[at], max(0, most - use.used[at]))
            if use.ranks is not None:
                own &= use.ranks.ranks
        fewer = no_more(request, self._least(job), left[:JOBS])
        if fewer is not None:
            yield fewer
        if own > 0 and not shape.exclusive:
            yield request.on_ranks(own)

    def is_certain(self, job: PendingJob, known: Counted) -> bool:
        if not super().is_certain(job, known):
            return False
        uses = self.binding(known.uses)
        # The number of nodes is unknown for a job that may share them.
        if not known.least[0] and any(use.ranks is not None for use in uses):
            return False
        for use in uses:  # later jobs leave its needs
            if job.jobid not in use.certain:
                use.certain[job.jobid] = job
                use.count_claims(fit=True)
        # Later jobs may take it over a soft limit, and then go ahead of it.
        return len(uses) == len(known.uses)

    def room(self, use: LimitUse, key: Any, uses: tuple[LimitUse, ...]) -> float:
        least, room = key[1], inf
        for one in uses:
            if not one.entry.soft and room >= 1:
                room = min(room, one.room(least))
        return 1 if room == inf else room

    def defers_again(self, job: PendingJob, deferral: Deferral, is_offered: bool) -> bool:
        uses = self.counted_in(job)
        if any(use.entry.soft for use in uses):
            return False
        if any(use.claims[0] or use.entry.strict for use in uses):
            found = self.check(job)
            return found is not None and found.key == deferral.key
        if self.room(uses[0], deferral.key, uses) < 1:
            return True
        if deferral.over is None:  # perhaps a limit of nodes that it may share
            return self.first_over(job, uses) is not None
        if not is_offered or not self.host.resources.has_view:
            return False
        # It needs at least the nodes that it cannot share with jobs of the key.
        fewest = self.host.facts.fewest_nodes(job.resource_request)
        free = self.host.resources.ranks_with_room
        return any(
            use.used[0] + max(0, fewest - popcount(use.ranks.ranks & free)) > use.bounds[0][1]
            for use in uses
            if use.ranks is not None
        )

    # -- soft limits -------------------------------------------------------------------------------

    def _demote(self) -> None:
        """Move jobs over a soft limit behind all others."""
        jobids, self._to_demote = self._to_demote, []
        for jobid in jobids:
            job = self.host.pending(jobid)
            if job is not None and jobid in self.host.admission.deferred:
                job.demoted = True
                self.host.prioritize([[jobid, job.priority]])
        self.host.readmit(self, "soft")

    def promote(self, use: LimitUse) -> None:
        """Move the jobs of a key back: it is no longer over its soft limit."""
        jobids, use.demoted = use.demoted, set()
        use.count_claims()
        for jobid in jobids:
            job = self.host.pending(jobid)
            if job is not None and job.demoted:
                job.demoted = False
                self.host.prioritize([[jobid, job.priority]])

    # -- answers -----------------------------------------------------------------------------------

    def facts(self, job: PendingJob) -> dict[str, Any]:
        """Return the limit that keeps `job` from starting, the one in its reason: name, whose,
        what, used, most, needs, and ``t_again``, when enough may be free, with ``job``."""
        if not self.counted_in(job):
            return {}
        least, found = self._least(job), self.first_over(job, self.binding(self.counted_in(job)))
        deferred = self.host.admission.deferred.by_id.get(job.jobid)
        if found is not None:
            use, at = found
            needs = max(1, least[at])
        elif deferred is not None and deferred[2].over is not None:
            use, at, needs = deferred[2].over
        else:
            return {"limit": None}
        when, jobid = self._next_room(use, least)
        facts = {
            "name": use.entry.name,
            "whose": use.whose,
            "what": DIMENSIONS[at],
            "used": use.used[at],
            "max": use.entry.most[at],
            "needs": needs,
            "t_again": when,
            "job": None if jobid is None else name_of(jobid),
        }
        return {"limit": Owned(facts, use.userid)}

    def _next_room(self, use: LimitUse, least: Amount) -> tuple[float | None, int | None]:
        """Return when enough jobs of a key will have ended to make room for another, and the last
        of these.  O(running jobs counted)."""
        holds, counted_in = self.host.admission.holds, self.uses_by_id
        ends = sorted(
            (self.host.running[jobid].end, jobid) for jobid in holds if use in counted_in(jobid)
        )
        ranks = cores = gpus = 0
        for jobs, (end, jobid) in enumerate(reversed(ends), 1):
            held = holds[jobid]
            ranks, cores, gpus = ranks | held.ranks, cores + held.cores, gpus + held.gpus
            left = (popcount(ranks), cores, gpus, jobs)
            if any(left[at] + least[at] > most for at, most in use.bounds):
                return (None, None) if end == inf else (end, jobid)
        return None, None

    def report(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        ranks: dict[LimitUse, int] = {}
        for jobid, held in list(self.host.admission.holds.items()):
            for use in self.uses_by_id(jobid):
                ranks[use] = ranks.get(use, 0) | held.ranks
            yield None
        for use in self.uses.values():
            if use.ranks is None:
                use.used[0] = popcount(ranks.get(use, 0))
        yield from super().report(caller)

    def figures(self, use: LimitUse) -> dict[str, Any]:
        return {
            "soft": use.entry.soft,
            "used": dict(zip(DIMENSIONS, use.used)),
            "max": dict(zip(DIMENSIONS, use.entry.most)),
        }

    def waiting(self, use: LimitUse) -> int:
        offers = self.host.admission.offers
        keys = [key for key in use.waiting if (self, key) in offers or use.over(key[1]) is not None]
        return sum(self.host.admission.waiting(self, key) for key in keys)

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
