# SPDX-License-Identifier: LGPL-3.0-or-later
"""The answers of ``sched.explain``, ``sched.when``, ``sched.windows``, ``sched.plan`` and
``sched.stats``."""

from __future__ import annotations

import heapq
import math
from typing import Any

from flux.resource.errors import InfeasibleRequest
from flux.resource.plan.plan import Plan
from flux.resource.pool.explain import counted
from flux.resource.pool.masks import idset_text, popcount
from flux.scheduler.attributes import SystemAttributes, printable
from flux.scheduler.host import name_of
from flux.scheduler.messages import PRIORITY_MAX
from flux.scheduler.projection.fork import ProjectionFailed
from flux.scheduler.query.answering import JOBS_PER_STEP, Caller, Entries, Steps, read, read_horizon
from flux.scheduler.query.ingest import as_submitted, over_policy
from flux.scheduler.query.pending_reason import PendingReason, queue_of
from flux.scheduler.query.source import QuerySource
from flux.scheduler.reservations.reservation import whole_nodes
from flux.scheduler.times import duration_text

#: Maximum number of jobs whose reasons are determined for an answer; the others are counted.
MAX_JOBS_LISTED = 10000

#: Number of promises listed by `QueryService.stats`, the earliest ones.
PROMISES_SHOWN = 5


#: Maximum time in seconds until a start that counts as "now".
NOW_S = 0.001


class QueryService:
    """Answers queries about a scheduler's jobs and plan."""

    def __init__(self, source: QuerySource) -> None:
        self._source = source
        self._policy = source.policy
        self._reasons = PendingReason(source)

    def _head(self) -> dict[str, Any]:
        return {"now": self._policy.now(), "made": self._source.made}

    def _begin(self, payload: Any) -> tuple[float, Plan | None, dict[str, Any]]:
        """Return the horizon of a query, a copy of the plan, and the head of an answer up to that
        horizon, or to the end of the instance."""
        horizon = read_horizon(read(payload, horizon=8 * 3600.0)["horizon"])
        plan, head = self._source.plan(), self._head()
        now, end = head["now"], self._policy.resources.expiration or math.inf
        return horizon, plan, {**head, "until": min(now + horizon, max(now, end))}

    # -- why ---------------------------------------------------------------------------------------

    def explain(self, payload: Any, caller: Caller) -> Steps:
        """Explain why the pending job of an ``id`` waits, or with ``all`` all. Returns ``jobs``:
        for one job the results of `PendingReason.explain` and `OddsService.of_job`, for all jobs
        that of `PendingReason.line` each; ``others``: for a guest, the number of others' pending
        jobs. Raises ValueError if the payload is invalid, or there is no such pending job."""
        asked = read(payload, id=None, all=False)
        if (asked["id"] is None) == (not asked["all"]):
            raise ValueError("give id, or all")
        policy = self._policy
        self._source.plan()
        answer: dict[str, Any] = {**self._head(), "jobs": Entries(caller, "sched.explain.jobs")}
        if not asked["all"]:
            job = caller.pending_job(policy, asked["id"])
            yield from policy.queue_order.find_heads()
            found = yield from self._reasons.explain(job, caller)
            if policy.odds_depth:
                found.update((yield from policy.odds.of_job(job, caller)))
            answer["jobs"].append(found)
            others, shown = 0, 1
        else:
            yield from policy.queue_order.find_heads()
            others = shown = 0
            for examined, job in enumerate(policy.pending_jobs()):
                if job.request.finalized:
                    continue
                if shown < MAX_JOBS_LISTED and caller.may_see(job.request.userid):
                    shown += 1
                    answer["jobs"].append(self._reasons.line(job, caller))
                    yield
                else:
                    others += 1
                    if examined % JOBS_PER_STEP == 0:
                        yield
        answer["others"] = others
        return answer

    # -- when --------------------------------------------------------------------------------------

    def when(self, payload: Any, caller: Caller) -> Steps:
        """Predict the start of a job that is not submitted, if no other arrives. Payload:
        ``{"jobspec": {...}}`` (RFC 14), optionally ``"priority": N``; default: that of a new job,
        see `Player.newcomer`. Raises ValueError if the jobspec is invalid.

        Returns ``verdict`` ("now", "later", "unknown", "never"), ``start``, ``reason``; ``queue``,
        the job's, or None; ``ranks``, an idset or None; ``unplanned``, number of pending jobs
        without a start when time ran out; ``t_latest``, if the policy promises latest starts;
        ``t_likely`` and ``t_p90``, see `OddsService.known`; ``warnings``, if jobs may be left
        out."""
        asked = read(payload, jobspec=None, priority=None)
        if asked["jobspec"] is None:
            raise ValueError("jobspec is missing")
        priority = asked["priority"]
        if priority is not None and (
            type(priority) is not int or not 0 <= priority <= PRIORITY_MAX
        ):
            raise ValueError(f"priority={priority!r} is invalid: expected 0 to {PRIORITY_MAX}")
        policy, source = self._policy, self._source
        jobspec = as_submitted(asked["jobspec"], source.host.config.get())
        request = source.parse(jobspec)
        now = policy.now()
        answer: dict[str, Any] = {
            "now": now,
            "made": now,
            "start": None,
            "queue": SystemAttributes.from_jobspec(jobspec).queue,
            "ranks": None,
            "reason": "",
            "unplanned": 0,
            "t_likely": None,
            "t_p90": None,
        }
        over = over_policy(jobspec, source.host.config.get())
        if over is not None:
            return {**answer, "verdict": "never", "reason": printable(over)}
        end = policy.resources.expiration
        if end and request.duration > end - now:
            # flux-core refuses it.
            limit, left = duration_text(request.duration), duration_text(max(0.0, end - now), 2)
            reason = f"job duration ({limit}) exceeds remaining instance lifetime ({left})"
            return {**answer, "verdict": "never", "reason": reason}
        try:
            policy.resources.check_feasibility(request)
        except InfeasibleRequest as exc:
            return {**answer, "verdict": "never", "reason": printable(exc)}
        arguments = {"jobspec": jobspec, "caller": caller, "priority": priority}
        try:
            found = yield from source.ask("newcomer", odds=policy.odds.are_known, **arguments)
        except ProjectionFailed as exc:
            # An exception's text may contain anything.
            reason = str(exc) if caller.sees_all else "the projection has failed"
            return {**answer, "verdict": "unknown", "reason": reason}
        if end and found["start"] is not None and found["start"] >= end:
            reason = "the instance ends before it could start"
            found = {**found, "start": None, "ranks": None, "reason": reason}
        answer.update(start=found["start"], ranks=found["ranks"], unplanned=found["left"])
        answer.update(reason=found["reason"], made=found["made"])
        depth = policy.queue_depth
        if depth != "unlimited" and len(list(policy.pending_jobs())) >= int(depth):
            answer["warnings"] = [f"jobs beyond queue-depth={depth} are left out"]
        if "plays" in found:
            answer.update(policy.odds.of_newcomer(found))
        if "t_latest" in found:
            answer["t_latest"] = found["t_latest"]
        if found["denied"]:
            verdict = "never"
        elif found["start"] is None:
            verdict = "unknown"
        else:
            verdict = "now" if found["start"] <= found["made"] + NOW_S else "later"
        return {**answer, "verdict": verdict}

    # -- windows -----------------------------------------------------------------------------------

    def windows(self, payload: Any, caller: Caller) -> Steps:
        """Return the whole nodes that a job could have now, by kind, and for how long. Payload:
        ``horizon`` in seconds (default 8 hours). Returns ``until``; ``kinds``, objects with
        ``kind``, ``total`` and ``steps``, pairs of a number of nodes and the time until which they
        are free together; ``levels``, the numbers of groups whose nodes are idle now, see
        `PlacementRule.levels`."""
        policy, source = self._policy, self._source
        horizon, plan, answer = self._begin(payload)
        answer["kinds"] = []
        if plan is None:
            raise ValueError("the pool of this scheduler cannot plan")
        yield
        yield from policy.queue_order.find_heads()
        kinds = policy.resources.node_kinds()
        # In strict order no job passes a waiting one.
        stuck = 0
        if not policy.decision.looks_past_heads:
            for _, ranks in policy.queue_order.heads():
                stuck |= ranks
        requests, asked = [], []
        for cores, gpus, mask in kinds:
            name = counted(cores, "core") + (f", {counted(gpus, 'GPU')}" if gpus else "")
            free = mask & ~stuck
            answer["kinds"].append({"kind": name, "total": popcount(mask), "steps": []})
            if free:
                asked.append(answer["kinds"][-1])
                only = {"ranks": [idset_text(free)]} if stuck or len(kinds) > 1 else None
                requests.append(source.parse(whole_nodes(1, 1, only, max(1, cores))))
        for kind, steps in zip(asked, (yield from source.windows(requests, horizon))):
            kind["steps"] = [[count, until] for count, until in steps]
        answer["levels"] = source.levels()
        return answer

    # -- plan --------------------------------------------------------------------------------------

    def plan(self, payload: Any, caller: Caller) -> Steps:
        """Return running jobs, promises and reservations, up to a ``horizon`` in seconds (default 8
        hours): ``ranks`` and ``down`` (idsets), and the lists ``running``, ``promised`` and
        ``reserved`` of objects with ``name``, ``start``, ``end``, ``nodes`` and ``ranks``."""
        policy, pool = self._policy, self._policy.resources
        _, plan, head = self._begin(payload)
        now, until = head["now"], head["until"]
        answer: dict[str, Any] = {
            **head,
            "ranks": idset_text(pool.ranks),
            "down": idset_text(pool.ranks & ~pool.eligible_ranks()),
            "running": Entries(caller, "sched.plan.running"),
            "promised": Entries(caller, "sched.plan.promised"),
            "reserved": Entries(caller, "sched.plan.reserved"),
        }
        yield
        for jobid, end in policy.admission.ends():
            try:
                ranks = pool.held_ranks(jobid)
            except KeyError:
                continue  # it has ended meanwhile
            answer["running"].append(
                {
                    "name": caller.name(jobid, None),
                    "start": now,
                    "end": max(end, now) if end else None,
                    "nodes": popcount(ranks),
                    "ranks": idset_text(ranks),
                }
            )
            yield
        for jobid, (start, end) in () if plan is None else plan.promises().items():
            job = policy.pending(jobid)
            if job is None or plan is None or start >= until or not plan.has(jobid):
                continue
            nodes = job.resource_request.shape.node_count
            bound = plan.ranks_of(jobid)
            answer["promised"].append(
                {
                    "name": caller.name(jobid, job.request.userid),
                    "start": start,
                    "end": None if end == math.inf else end,
                    "nodes": nodes.min if nodes else None,
                    "ranks": None if bound is None else idset_text(bound),
                }
            )
            yield
        for window in self._source.reserved(until):
            answer["reserved"].append(window)
            yield
        return answer

    # -- statistics --------------------------------------------------------------------------------

    def stats(self, payload: Any, caller: Caller) -> Steps:
        """Return figures for a live view and for monitoring; jobs are named only in promises.
        `caller`: a client that sees all."""
        read(payload)
        policy = self._policy
        plan = self._source.plan()
        head = self._head()
        pool = policy.resources
        up, idle = pool.eligible_ranks(), pool.idle_ranks
        reserved = 0
        for jobid in pool.placeholders():
            reserved |= pool.held_ranks(jobid)
        counts = {
            "allocated": popcount(up & ~idle & ~reserved),
            "free": popcount(up & idle),
            "reserved": popcount(up & reserved),
            "down": popcount(pool.ranks & ~up),
        }
        promises = []
        starts = {} if plan is None else plan.promises(with_open=False)
        for jobid, (start, _) in heapq.nsmallest(
            PROMISES_SHOWN, [one for one in starts.items() if one[0] >= 0], key=lambda one: one[1]
        ):
            waiting = policy.pending(jobid)
            if waiting is not None:
                nodes = waiting.resource_request.shape.node_count
                promises.append(
                    {"name": name_of(jobid), "start": start, "nodes": nodes and nodes.min}
                )
        yield
        yield from policy.queue_order.find_heads()
        key: tuple[str | None, str]
        reasons: dict[tuple[str | None, str], int] = {}
        for examined, job in enumerate(policy.pending_jobs()):
            if job.request.finalized:
                continue
            if known := examined < MAX_JOBS_LISTED:
                key = queue_of(job), policy.forecasts.kind_of_wait(job)[0]
            else:
                key = None, "other"
            reasons[key] = reasons.get(key, 0) + 1
            if known or examined % JOBS_PER_STEP == 0:
                yield
        by_rules: dict[str, Entries] = {}
        for rule in policy.admission.rules:
            for title, figures in rule.stats().items():
                by_rules[title] = Entries(caller, f"sched.stats.{title}")
                for one in figures:
                    by_rules[title].append(one)
                    yield
        return {
            **by_rules,
            **head,
            "name": policy.name,
            "started": policy.loaded_at,
            "stats": policy.stats_get(),
            "nodes": counts,
            "reasons": [
                {"queue": queue, "kind": kind, "count": count}
                for (queue, kind), count in sorted(
                    reasons.items(), key=lambda one: (one[0][0] or "", one[0][1])
                )
            ],
            "started_jobs": dict(policy.started_jobs),
            "promises": promises,
            "rules": [
                {"name": rule.name, "source": rule.source} for rule in policy.admission.rules
            ],
        }
