# SPDX-License-Identifier: LGPL-3.0-or-later
"""Why a job is pending, in numbers and in words."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterator
from copy import copy
from functools import partial
from typing import Any

from flux.resource.errors import InfeasibleRequest
from flux.resource.pool.masks import idset_text, popcount
from flux.resource.ResourceCount import ResourceCount
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.disclosure import read_by
from flux.scheduler.host import name_of
from flux.scheduler.query.answering import JOBS_PER_STEP, MAX_HORIZON_S, Caller
from flux.scheduler.query.source import QuerySource
from flux.scheduler.requests import PendingJob
from flux.scheduler.site_policy.holdings import holding_of
from flux.scheduler.trial import Trial

#: Maximum number of jobs in a job's way that are named; the rest is counted.
MAX_JOBS_NAMED = 8

#: Counts of ``ResourcePool.explain()`` that go into an answer.
EXPLAIN_COUNTS = ("unit", "needed", "total", "matching", "up", "large_enough", "free", "available")

#: Horizon in seconds of the search for a shorter limit that would fit: a week.
LIMIT_SEARCH_S = 7 * 86400.0


class PendingReason:
    """Determines the reason of a job's wait."""

    def __init__(self, source: QuerySource) -> None:
        self._source = source
        self._policy = source.policy

    def line(self, job: PendingJob, caller: Caller) -> dict[str, Any]:
        """Return the reason of a job's wait, as a row of a table: ``id``, ``name``, ``queue``,
        ``priority``, ``verdict`` ("starts", "waits", "never"), ``reason``, ``t_estimate`` and its
        kind, `OddsService.known`, and the counts of ``ResourcePool.explain()``."""
        policy = self._policy
        request = job.resource_request
        facts: dict[str, Any] = {}
        never = None
        if policy.planning.pool_can("explain"):
            facts = policy.facts.explain(request)
        try:
            policy.resources.check_feasibility(request)
        except InfeasibleRequest as exc:
            never = str(exc)
        reason = never or read_by(caller, self._policy.forecasts.reason_of(job, facts or None))
        when, kind = self._policy.forecasts.estimate_of(job)
        return {
            "id": job.jobid,
            "name": name_of(job.jobid),
            "queue": queue_of(job),
            "priority": job.priority,
            "verdict": "never" if never else ("waits" if reason else "starts"),
            "reason": reason or "",
            "t_estimate": when,
            "t_estimate_kind": kind,
            **self._policy.odds.known(job.jobid),
            **{key: facts[key] for key in EXPLAIN_COUNTS if key in facts},
        }

    def explain(self, job: PendingJob, caller: Caller) -> Generator[None, None, dict[str, Any]]:
        """Return the full explanation of a job's wait, in steps: as `line`; ``excluded``, the nodes
        excluded by each part of its constraint; ``rules``, all reasons of admission rules, the
        job's first; ``reservation`` and the facts of other rules; `Decision.facts`; ``behind``, the
        jobs ahead, with ``behind_more`` if some are left out; ``fits``, the part of the job that
        would fit."""
        policy = self._policy
        answer = self.line(job, caller)
        yield
        if "needed" not in answer:
            return answer
        head = policy.decision.ahead_of(job)
        answer["excluded"] = list(self._excluded(job))
        deferrals = list(policy.admission.deferrals(job))
        answer["rules"] = [
            {"rule": rule.name, "reason": read_by(caller, deferral.text)}
            for rule, deferral in deferrals
        ]
        for rule in policy.admission.rules:
            answer.update(rule.facts(job))
        answer.update(policy.decision.facts(job))
        yield
        answer["behind"], answer["behind_more"] = [], False
        deferred = policy.admission.deferred
        if job.jobid not in deferred or deferred.is_readmitted(job.jobid):
            found, answer["behind_more"] = yield from self._running_before(job, caller)
            answer["behind"] = self._pending_before(head, caller) + found
            yield
        may_fit = answer["verdict"] != "never" and all(rule.by_shape for rule, _ in deferrals)
        answer["fits"] = (yield from self._fits(job, head)) if may_fit else None
        return answer

    def _excluded(self, job: PendingJob) -> Iterator[dict[str, Any]]:
        """Yield the nodes that each part of the job's constraint excludes."""
        pool = self._policy.resources
        for part in _parts(SystemAttributes.of_job(job).constraints or {}):
            try:
                out = pool.ranks & ~pool.ranks_matching(part)
            except ValueError:
                continue
            if out:
                yield {"constraint": _words(part), "nodes": popcount(out), "ranks": idset_text(out)}

    def _pending_before(self, head: PendingJob | None, caller: Caller) -> list[dict[str, Any]]:
        """Return the pending job ahead, in a list that is empty if there is none."""
        if head is None:
            return []
        start, _ = self._policy.forecasts.estimate_of(head)
        length = head.resource_request.duration
        end = start + length if start is not None and length > 0 else None
        name = caller.name(head.jobid, head.request.userid)
        return [{"name": name, "state": "pending", "start": start, "end": end}]

    def _running_before(
        self, job: PendingJob, caller: Caller
    ) -> Generator[None, None, tuple[list[dict[str, Any]], bool]]:
        """Return the last running jobs to end before a job's start, among those whose resources it
        waits for, and whether there are more."""
        policy = self._policy
        wanted = policy.facts.ranks_of(job.resource_request)
        estimate, _ = policy.forecasts.estimate_of(job)
        last = self._source.ending_by(math.inf if estimate is None else estimate)
        found: list[dict[str, Any]] = []
        for examined, (jobid, end) in enumerate(last, 1):
            if examined % JOBS_PER_STEP == 0:
                yield
            if not holding_of(self._policy.resources, jobid).ranks & wanted:
                continue
            if len(found) == MAX_JOBS_NAMED:
                return found, True
            found.append(
                {
                    "name": caller.name(jobid, None),
                    "state": "running",
                    "start": None,
                    "end": end or None,
                }
            )
        return found, False

    def _fits(
        self, job: PendingJob, head: PendingJob | None
    ) -> Generator[None, None, dict[str, Any] | None]:
        """Return the part of the job that could start now: the longest limit at its size, and the
        largest count at its limit. None if there is none, or the order of the queue forbids it."""
        if self._source.plan() is None or (
            head is not None and not self._policy.decision.looks_past_heads
        ):
            return None
        request = job.resource_request
        now = self._policy.now()
        length = request.duration if request.duration > 0 else MAX_HORIZON_S
        horizon = min(max(length, LIMIT_SEARCH_S), MAX_HORIZON_S)
        (steps,) = yield from self._source.windows([request], horizon, job)
        count = request.shape.node_count or request.shape.slot_count
        needed = count.min
        until = max([end for number, end in steps if number >= needed], default=now)
        most = max([number for number, end in steps if end - now >= length], default=0)
        limit = until - now
        answer: dict[str, Any] = {}
        if 1 <= limit < length:
            shorter = copy(request)
            shorter.duration = float(math.floor(limit))
            if self._may_have(job, shorter):
                answer["limit"] = shorter.duration
        if 0 < most < needed:
            key = "node_count" if request.shape.node_count else "slot_count"
            fewer = request.shape.replace(**{key: ResourceCount.parse(most)})
            if self._may_have(job, request.with_shape(fewer)):
                answer["count"] = most
        return answer or None

    def _may_have(self, job: PendingJob, request: Any) -> bool:
        """Whether all rules would accept the pool's offer for a smaller request of a job, which
        fits."""
        admission, plan, smaller = self._policy.admission, self._source.plan(), copy(job)
        smaller.resource_request, smaller.tally = request, None
        if admission.defers(smaller):
            return False
        if plan is None or not admission.second_looks:
            return True
        trial = Trial(plan, request, yielding=self._policy.decision.yielding(job))
        offer = trial.offer(partial(admission.second_look, smaller))
        return offer is not None and offer[1] is None


def queue_of(job: PendingJob) -> str | None:
    """Return the queue that a job was submitted to, or None."""
    return SystemAttributes.of_job(job).queue


def _parts(constraint: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the smallest parts of a constraint that must all be met."""
    for operator, values in constraint.items():
        if operator == "and":
            for value in values:
                yield from _parts(value)
        elif operator == "properties":
            for value in values:
                yield {operator: [value]}
        else:
            yield {operator: values}


def _words(part: dict[str, Any]) -> str:
    """Format a part of a constraint."""
    ((operator, values),) = part.items()
    if operator == "properties":
        name = values[0]
        return f"not property {name[1:]}" if name[:1] == "^" else f"property {name}"
    if operator in ("hostlist", "ranks"):
        values = [values] if isinstance(values, str) else values
        return f"{'hosts' if operator == 'hostlist' else 'ranks'} {','.join(values)}"
    if operator == "not" and len(values) == 1 and list(values[0]) == ["properties"]:
        return "not " + " and not ".join(f"property {name}" for name in values[0]["properties"])
    return json.dumps(part, separators=(",", ":"))
