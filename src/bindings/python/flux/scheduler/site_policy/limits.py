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

from collections.abc import Hashable, Iterator
from math import inf
from typing import TYPE_CHECKING, Any

from flux.resource.pool.masks import popcount
from flux.resource.pool.remembered import Remembered
from flux.resource.ResourceCount import ResourceCount
from flux.scheduler.admission import Deferral
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.disclosure import Owned, Reason, behind
from flux.scheduler.host import counted, name_of
from flux.scheduler.site_policy.counts import DIMENSIONS, Amount
from flux.scheduler.site_policy.holdings import NOTHING, Holding
from flux.scheduler.site_policy.limit import Limit, Use, read_limit
from flux.scheduler.site_policy.table_rule import Over, TableRule

if TYPE_CHECKING:
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.host import ErrorReporter
    from flux.scheduler.query.answering import Caller
    from flux.scheduler.requests import PendingJob, RunningJob
    from flux.scheduler.rule_host import RuleHost

#: Singular nouns.
NOUNS = {"nodes": "node", "cores": "core", "gpus": "GPU", "jobs": "job"}


class Counted:
    """The record of a job that a limit applies to.

    Attributes:
        uses (tuple): the `Use` objects in which it counts, in order of limits
        least (Amount): the minimum that it takes
        waits (bool): whether it is pending, and counts in `Use.pending`
        holds (Holding): the resources that it holds
        asked: its request; `now` is the minimum that it takes with the present ranks
        seen (int): number of the last change of ranks included in `now`
    """

    __slots__ = ("asked", "holds", "least", "now", "seen", "uses", "userid", "waits")

    def __init__(self, uses: tuple[Use, ...], userid: int) -> None:
        self.uses = uses
        self.userid = userid
        self.least = self.now = Amount()
        self.waits = False
        self.holds = NOTHING
        self.asked: Any = None
        self.seen = -1


class LimitRule(TableRule):
    """Keeps a job waiting while it would exceed the limit of its user, bank or queue."""

    name = "limit"
    table = "limits"
    lists = "limits"

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        super().__init__(host, errors)
        self._limits: list[Limit] = []
        self._uses: dict[tuple[str, tuple[Any, ...]], Use] = {}
        self._jobs: dict[int, Counted] = {}
        #: key of a deferral -> `Use` that the pool's offer would exceed
        self._offers: dict[Hashable, Use] = {}
        #: (`Use`, request) -> why the pool's present offer is too much; void when the offer may
        #: change
        self._too_much: Remembered[tuple[Use, tuple[Any, float]], str] = Remembered()
        #: number of changes of ranks
        self._changes = 0
        #: ids of jobs to move behind all others
        self._to_demote: list[int] = []

    # -- the table ---------------------------------------------------------------------------------

    def parse(self, key: str, value: Any) -> Limit:
        return read_limit(key, value)

    def configure(self, entries: dict[str, Limit]) -> None:
        for use in self._uses.values():
            self._promote(use)
        self._limits = list(entries.values())
        self._uses.clear()
        self._jobs.clear()
        self._offers.clear()
        self._too_much.clear()

    def needs(self, entries: dict[str, Limit]) -> tuple[str, ...]:
        return ("jobspec",) if any(one.scope.needs_jobspec for one in entries.values()) else ()

    # -- limits of a job ---------------------------------------------------------------------------

    def _uses_of(self, userid: int, attributes: SystemAttributes) -> tuple[Use, ...]:
        """Return the `Use` objects in which a job counts."""
        uses = []
        for limit in self._limits:
            key = limit.scope.key_of(userid, attributes, self.host.queue_names)
            if key is None:
                continue
            use = self._uses.get((limit.name, key))
            if use is None:
                use = self._uses[limit.name, key] = Use(limit, key)
            uses.append(use)
        return tuple(uses)

    # -- pending jobs ------------------------------------------------------------------------------

    def alloc(self, job: PendingJob, attributes: SystemAttributes) -> None:
        userid = -1 if job.userid is None else job.userid
        uses = self._uses_of(userid, attributes)
        if not uses:
            return
        known = Counted(uses, userid)
        known.least = self._least(job.resource_request)
        for use in uses:
            alone = self._alone_too_much(use.limit, job) if use.limit.deny else None
            if alone is not None:
                raise ValueError(alone)
        known.waits = True
        self._jobs[job.jobid] = known
        for use in uses:
            use.expect(known.least, 1)
            if use.limit.strict and use.over(known.least) is not None:
                self._heads(use, job)

    def _least(self, request: Any) -> Amount:
        """Return the minimum that a request takes.  O(1) once cached."""
        return Amount(*self.host.facts.least_of(request), 1)

    def _alone_too_much(self, limit: Limit, job: PendingJob) -> str | None:
        """Return why a job alone exceeds the limit, in a sentence, or None. Nodes that it may share
        count too: there is no other job to share with."""
        request = job.resource_request
        least = self._least(request)._replace(nodes=max(1, getattr(request, "nnodes", 1)))
        for at, most in limit.bounds:
            if least[at] > most:
                needs = counted(least[at], NOUNS[DIMENSIONS[at]])
                are = "is" if most == 1 else "are"
                return f"limit {limit.name}: needs {needs}, at most {most} {are} allowed"
        return None

    def check(self, job: PendingJob) -> Deferral | None:
        known = self._jobs.get(job.jobid)
        if known is None:
            return None
        least = known.now
        if known.asked is not job.resource_request or known.seen != self._changes:
            known.asked, known.seen = job.resource_request, self._changes
            least = known.now = self._least(job.resource_request)
        for use in known.uses:
            # This runs for each examined job, so it avoids calls.
            more = least
            if not least.nodes and use.limit.most[0] is not None:
                more = self._more(use, job, least)
            kept = None
            if use.head is not None or use.certain:
                kept = self._kept(use, job)
            at = use.over(more, kept)
            if at is not None:
                return self._defer(use, job, at, known)
            if not self._too_much:
                continue
            asked = self._asked(job)
            refused = self._too_much.get((use, asked))
            if refused is not None:
                # Promises may change the pool's offer to the next job.
                plan = self.host.planning.current()
                if plan is None or plan.keeps_nothing_from(job.jobid):
                    return self._wait_for_offer(use, asked, refused)
        return None

    def _more(self, use: Use, job: PendingJob, least: Amount) -> Amount:
        """Return the minimum that a job adds to a use. If it may share nodes, it can run on those
        of other jobs of the key, but may request more nodes than these use."""
        if least.nodes or use.limit.most[0] is None:
            return least
        missing = getattr(job.resource_request, "nnodes", 0) - len(use.ranks)
        return least._replace(nodes=max(0, missing))

    def _kept(self, use: Use, job: PendingJob) -> Amount | None:
        """Return the amount that a job must leave free: the needs of the first waiting job, if the
        limit is strict, and those of jobs ahead that are promised a start before it would end."""
        head, kept = use.head, None
        if head is not None and head is not job and head < job:
            kept = self._least_of(head)
        if use.certain:
            plan = self.host.planning.current()
            end = self.host.now() + (getattr(job.resource_request, "duration", 0.0) or inf)
            for jobid, other in list(use.certain.items()):
                if plan is None or not plan.has(jobid):
                    del use.certain[jobid]
                elif other is not head and other < job and plan.start_of(jobid) < end:
                    kept = (kept or Amount()).plus(self._least_of(other))
        return kept

    def _least_of(self, job: PendingJob) -> Amount:
        known = self._jobs.get(job.jobid)
        return Amount() if known is None else known.least

    def _defer(self, use: Use, job: PendingJob, at: int, known: Counted) -> Deferral | None:
        """Return the deferral of a job over a limit."""
        limit = use.limit
        if limit.soft:
            if job.demoted:
                return None
            use.demoted.add(job.jobid)
            if not self._to_demote:
                self.host.call_at(self.host.now(), self._demote)
            self._to_demote.append(job.jobid)
            return Deferral(self._reason(use, job, at), key="soft")
        if limit.strict:
            self._heads(use, job)
        key = (known.uses, known.now)
        for one in known.uses:
            one.waiting[key] = known.uses
        return Deferral(self._reason(use, job, at), key=key)

    def _heads(self, use: Use, job: PendingJob) -> None:
        """Note a job that waits for a strict limit: later jobs must leave its needs, unless it
        would wait forever."""
        if (use.head is None or job < use.head) and self._alone_too_much(use.limit, job) is None:
            use.head = job

    def _reason(self, use: Use, job: PendingJob, at: int) -> str:
        limit = use.limit
        alone = self._alone_too_much(limit, job)
        if alone is not None:
            return alone
        head = use.head
        if head is not None and head is not job and head < job:
            start = f"limit {limit.name}: "
            return behind(head.name, head.userid, start, ", which waits for it")
        if use.over(self._more(use, job, self._least(job.resource_request))) is None:
            return f"limit {limit.name}: what is left is for a job that was promised a start"
        return self._sentence(use, at, max(1, self._least(job.resource_request)[at]))

    def _sentence(self, use: Use, at: int, needs: int, more: str = "") -> Reason:
        """Return the use of a limit in words, with a job's needs (0: without a job)."""
        limit = use.limit
        what = NOUNS[DIMENSIONS[at]] + "s"
        where = f" in {', '.join(limit.queues)}" if limit.queues else ""
        text = f"{use.used[at]} of {limit.most[at]} {what}{where}"
        whose = use.whose
        has = f"{whose} has {text}" if whose else f"{text} are in use"
        tail = f"; needs {needs}" if needs else ""
        return Reason(
            f"limit {limit.name}: {has}{tail}{more}",
            f"limit {limit.name}: too much of {limit.most[at]} {what}{where} is in use{tail}",
            userid=use.userid,
        )

    # -- the pool's offer --------------------------------------------------------------------------

    def second_look(self, job: PendingJob, pool: Any, jobid: int) -> Deferral | None:
        known = self._jobs.get(job.jobid)
        if known is None:
            return None
        offered: Holding | None = None
        for use in known.uses:
            if use.limit.soft:
                continue
            if offered is None:
                offered = self.host.holdings.of(jobid, pool)
            ranks, cores, gpus = offered
            more = (popcount(ranks & ~use.ranks.ranks), cores, gpus, 1)
            kept = None
            if use.head is not None or use.certain:
                kept = self._kept(use, job)
            at = use.over(more, kept)
            if at is None:
                continue
            if pool is not self.host.resources:
                return Deferral(self._sentence(use, at, more[at]))
            asked = self._asked(job)
            reason = self._sentence(use, at, more[at], " as nodes are free now")
            self._too_much[use, asked] = reason
            deferral = self._wait_for_offer(use, asked, reason)
            return deferral._replace(instead=self._less(job, known))
        return None

    def _asked(self, job: PendingJob) -> tuple[Any, float]:
        """Return the key of an offer: a job's shape and, if there are promises, its limit in
        seconds."""
        request = job.resource_request
        return getattr(request, "shape", None), getattr(request, "duration", 0.0)

    def _wait_for_offer(self, use: Use, asked: tuple[Any, float], reason: str) -> Deferral:
        key = (use.limit.name, use.key, "offer", asked)
        self._offers[key] = use
        return Deferral(reason, key=key)

    def _less(self, job: PendingJob, known: Counted) -> Iterator[Any]:
        """Yield smaller requests within the remainder, if the job's is a range; and requests for
        nodes of other jobs of the key, if it may share nodes."""
        request = job.resource_request
        shape = getattr(request, "shape", None)
        if shape is None:
            return
        left: list[int | None] = [None, None, None]
        own = -1
        for use in known.uses:
            if use.limit.soft:
                continue
            used = use.used
            for at in range(3):
                most = use.limit.most[at]
                if most is not None:
                    rest = max(0, most - used[at])
                    before = left[at]
                    left[at] = rest if before is None else min(before, rest)
            if use.limit.most[0] is not None:
                own &= use.ranks.ranks
        fewer = _no_more(request, left)
        if fewer is not None:
            yield fewer
        if own > 0 and not shape.exclusive and left[0] is not None:
            yield request.on_ranks(own)

    def keeps_promise(self, job: PendingJob) -> bool:
        known = self._jobs.get(job.jobid)
        if known is None:
            return True
        hard = [use for use in known.uses if not use.limit.soft]
        for use in hard:
            # The number of nodes is unknown for a job that may share them.
            if use.limit.most[0] is not None and not known.least.nodes:
                return False
            # It is certain to start if all pending jobs fit together, since later jobs leave its
            # needs.
            if use.over(use.pending) is not None:
                return False
        for use in hard:
            use.certain[job.jobid] = job
        return True

    def cancel(self, jobid: int) -> None:
        known = self._jobs.pop(jobid, None)
        if known is not None:
            self._waits_no_more(jobid, known)
            for use in known.uses:
                if use.waiting:
                    self._let_in(use)  # it may have been readmitted ahead of others
                self._drop_if_idle(use)

    def _waits_no_more(self, jobid: int, known: Counted) -> None:
        if not known.waits:
            return
        known.waits = False
        for use in known.uses:
            use.expect(known.least, -1)
            use.demoted.discard(jobid)
            use.certain.pop(jobid, None)
            if use.head is not None and use.head.jobid == jobid:
                use.head = None
                self._let_in(use)

    def _drop_if_idle(self, use: Use) -> None:
        if use.idle:
            self._uses.pop((use.limit.name, use.key), None)

    # -- running jobs ------------------------------------------------------------------------------

    def start(self, job: PendingJob, alloc: ResourcePool) -> None:
        self._too_much.clear()
        known = self._jobs.get(job.jobid)
        if known is not None:
            self._runs(job.jobid, known)
            self._waits_no_more(job.jobid, known)

    def _runs(self, jobid: int, known: Counted) -> None:
        known.holds = self.host.holdings.of(jobid)
        for use in known.uses:
            use.change(NOTHING, known.holds, 1)

    def hello(self, job: RunningJob) -> None:
        userid = job.userid if isinstance(job.userid, int) else -1
        uses = self._uses_of(userid, job.attributes)
        if uses:
            known = self._jobs[job.jobid] = Counted(uses, userid)
            self._runs(job.jobid, known)

    def free(self, jobid: int, R: Any, final: bool) -> None:
        self._too_much.clear()
        known = self._jobs.get(jobid)
        if known is not None and not known.waits:
            # Ranks that have left the instance count until the job is freed.
            holds = NOTHING if final else known.holds.left_of(R)
            for use in known.uses:
                use.change(known.holds, holds, -1 if final else 0)
                if use.demoted and use.over(Amount(jobs=1)) is None:
                    self._promote(use)
                if use.waiting:
                    self._let_in(use)
            known.holds = holds
            if final:
                del self._jobs[jobid]
                for use in known.uses:
                    self._drop_if_idle(use)
        if self._offers:
            self._ask_again()

    def ranks_changed(self, lost: bool) -> None:
        self._changes += 1
        self._too_much.clear()
        self._ask_again()

    def _let_in(self, use: Use) -> None:
        """Readmit the jobs that wait for a key, if no other limit keeps them waiting."""
        for key, uses in list(use.waiting.items()):
            least = key[1]
            hard = [one for one in uses if not one.limit.soft]
            if not self.host.admission.waiting(self, key):
                del use.waiting[key]
            elif all(one.over(least) is None for one in hard):
                rooms = [one.room(least) for one in hard]
                self.host.let_in(
                    self, key, min([room for room in rooms if room is not None], default=1)
                )

    def _ask_again(self) -> None:
        """Let in jobs that wait for another offer: the pool's offers may have changed."""
        for key in list(self._offers):
            if self.host.admission.waiting(self, key):
                self.host.let_in(self, key, self.host.admission.waiting(self, key))
            else:
                del self._offers[key]

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

    def _promote(self, use: Use) -> None:
        """Move the jobs of a key back: it is no longer over its soft limit."""
        jobids, use.demoted = use.demoted, set()
        for jobid in jobids:
            job = self.host.pending(jobid)
            if job is not None and job.demoted:
                job.demoted = False
                self.host.prioritize([[jobid, job.priority]])

    # -- answers -----------------------------------------------------------------------------------

    def why(self, job: PendingJob) -> str | None:
        # `check` was not called for a job refused together with others of its shape.
        known = self._jobs.get(job.jobid)
        if known is None or not known.waits:
            return None
        for use in known.uses:
            if not use.limit.soft:
                at = use.over(self._more(use, job, self._least(job.resource_request)))
                if at is not None:
                    return self._reason(use, job, at)
        if job.jobid not in self.host.admission.deferred:
            return None
        deferral = self.check(job)
        return None if deferral is None else deferral.reason

    def facts(self, job: PendingJob, expected_start: float | None, first: bool) -> dict[str, Any]:
        """Return the limit that keeps `job` from starting: name, whose, what, used, most, needs,
        and ``t_again``, when enough may be free, with ``job``."""
        known = self._jobs.get(job.jobid)
        if known is None:
            return {}
        for use in known.uses:
            at = use.over(known.least)
            if at is None or use.limit.soft:
                continue
            when, jobid = self._again(use, at, known.least)
            found = {
                "name": use.limit.name,
                "whose": use.whose,
                "what": DIMENSIONS[at],
                "used": use.used[at],
                "max": use.limit.most[at],
                "needs": known.least[at],
                "t_again": when,
                "job": None if jobid is None else name_of(jobid),
            }
            return {"limit": Owned(found, use.userid)}
        return {"limit": None}

    def _again(self, use: Use, at: int, least: Amount) -> tuple[float | None, int | None]:
        """Return when enough jobs of a key will have ended to make room for another, and the last
        of these.  O(running jobs counted)."""
        pool = self.host.resources
        ends = []
        for jobid, known in self._jobs.items():
            if not known.waits and use in known.uses:
                try:
                    end = pool.job_end(jobid)
                except KeyError:
                    continue
                ends.append((end or float("inf"), jobid))
        most = use.limit.most[at]
        assert most is not None
        missing = use.used[at] + least[at] - most
        ranks = [self._jobs[jobid].holds.ranks for _, jobid in sorted(ends)] if at == 0 else []
        for number, (end, jobid) in enumerate(sorted(ends)):
            if end == float("inf"):
                break
            if at == 0:
                still = 0
                for mask in ranks[number + 1 :]:
                    still |= mask
                freed = use.used[0] - popcount(still)
            else:
                holds = self._jobs[jobid].holds
                missing -= (0, holds.cores, holds.gpus, 1)[at]
                freed = 0
            if freed >= missing:
                return end, jobid
        return None, None

    def report(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        """Yield the use of each limit that `caller` may see; None where the answer may pause."""
        own = {
            use for known in self._jobs.values() if known.userid == caller.userid
            for use in known.uses
        }  # fmt: skip
        yield None
        order = {limit.name: number for number, limit in enumerate(self._limits)}
        uses = sorted(self._uses.values(), key=lambda use: (order[use.limit.name], str(use.key)))
        for use in uses:
            per = use.limit.scope.per
            if not (caller.sees_all or use in own or per in ("queue", "instance")):
                continue
            waiting = self._waiting(use)
            entry = {
                "limit": use.limit.name,
                "per": per,
                "whose": use.whose,
                "queues": list(use.limit.queues),
                "soft": use.limit.soft,
                "used": dict(zip(DIMENSIONS, use.used)),
                "max": dict(zip(DIMENSIONS, use.limit.most)),
                "waiting": waiting,
            }
            yield Owned(entry, use.userid)

    def _waiting(self, use: Use) -> int:
        """Return the number of jobs that would exceed a limit."""
        waiting = self.host.admission.waiting
        return sum(waiting(self, key) for key in use.waiting if use.over(key[1]) is not None)

    def stats(self) -> dict[str, Any]:
        limits = {}
        for limit in self._limits:
            uses = [use for use in self._uses.values() if use.limit.name == limit.name]
            limits[limit.name] = {
                "name": limit.name,
                "keys": len(uses),
                "waiting": sum(map(self._waiting, uses)),
            }
        return {"limits": limits.values()}

    def held_back(
        self,
        entries: dict[str, Limit],
        names: list[str],
        running: list[RunningJob],
        pending: list[PendingJob],
    ) -> Iterator[Over | None]:
        rule = LimitRule(self.host, self.errors)
        rule.configure({name: entries[name] for name in names})
        for run in running:
            rule.hello(run)
            yield None
        jobs = rule._jobs
        for use in rule._uses.values():
            at = use.over(Amount())
            if at is not None:
                its = [name_of(id) for id, known in jobs.items() if use in known.uses]
                yield Over(use.limit.name, str(rule._sentence(use, at, 0)), "running", its)
        for job in pending:
            try:
                rule.alloc(job, SystemAttributes.of_job(job))
            except ValueError as exc:
                yield Over(names[0], str(exc), "pending", [job.name])
            known = jobs.get(job.jobid)
            for use in known.uses if known is not None else ():
                at = use.over(rule._more(use, job, rule._least(job.resource_request)))
                if at is not None:
                    text = str(rule._reason(use, job, at))
                    yield Over(use.limit.name, text, "pending", [job.name])
                    break
            yield None


def _no_more(request: Any, left: list[int | None]) -> Any:
    """Return a range request reduced to the remaining nodes, cores and GPUs; None if it is not a
    range, or its minimum is too much."""
    shape = request.shape
    counts = {"node_count": shape.node_count, "slot_count": shape.slot_count}
    ranges = {key: count for key, count in counts.items() if count is not None and not count.fixed}
    if not ranges:
        return None
    nodes, cores, gpus = left
    # need for one of each count, with the other at its minimum
    least_nodes = 1 if shape.node_count is None else shape.node_count.min
    least_slots = shape.slot_count.min
    changes = {}
    for key, count in ranges.items():
        most = None
        per = least_slots if key == "node_count" else least_nodes
        for rest, size in ((cores, shape.slot_size), (gpus, shape.gpu_per_slot)):
            if rest is not None and size:
                most = min(rest // (size * per), rest if most is None else most)
        if key == "node_count" and nodes is not None:
            most = nodes if most is None else min(most, nodes)
        chosen = count.floor(most) if most is not None else count.min
        if chosen is None:
            return None
        # With two ranges the slots keep their minimum: this is certain to be within the limit.
        if len(ranges) == 2 and key == "slot_count":
            chosen = count.min
        changes[key] = ResourceCount.parse(chosen)
    return request.with_shape(shape.replace(**changes))
