"""The answers of ``sched.explain``, ``sched.when``, ``sched.windows``, ``sched.plan`` and ``sched.stats``."""

from __future__ import annotations

import heapq
import math
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Optional

from flux.resource.errors import InfeasibleRequest
from flux.resource.pool.explain import counted
from flux.resource.pool.inventory import selected_ranks
from flux.resource.pool.masks import idset_text, popcount
from flux.scheduler.host import name_of
from flux.scheduler.query.answering import Caller, Entries, Steps, read, read_horizon
from flux.scheduler.query.backfill_simulation import NEWCOMER, BackfillSimulation, Blocked
from flux.scheduler.query.ingest import as_submitted
from flux.scheduler.query.pending_reason import PendingReason, queue_of
from flux.scheduler.query.plan_snapshot import PLANNING_BUDGET_S, PlanSnapshot
from flux.scheduler.queue import ALL

if TYPE_CHECKING:
    from flux.scheduler.policy import PolicyScheduler

#: Jobs listed in one answer; the others are counted.
MAX_JOBS_LISTED = 10000

#: Jobs examined in one step of an answer, where each costs a comparison.
JOBS_PER_STEP = 256

#: Promises that `QueryService.stats` lists, the earliest ones.
PROMISES_SHOWN = 5


class QueryService:
    """Answers questions about a scheduler's jobs and plan.

    Args:
        scheduler (PolicyScheduler): whose
    """

    def __init__(self, scheduler: PolicyScheduler) -> None:
        self._scheduler = scheduler
        self._snapshot = PlanSnapshot(scheduler)
        self._reasons = PendingReason(scheduler, self._snapshot)

    def _head(self) -> dict[str, Any]:
        return {"now": self._scheduler.now(), "made": self._snapshot.made}

    # -- why -------------------------------------------------------------------------------------------

    def explain(self, payload: Any, caller: Caller) -> Steps:
        """PendingReason pending jobs wait.

        Args:
            payload: ``{"id": N}`` or ``{"all": true}``
            caller (Caller): who asks

        Returns:
            dict: ``jobs``: for one job what `PendingReason.explain` finds, for each of all `PendingReason.line`;
            ``others``: for a guest, how many jobs of others wait

        Raises:
            ValueError: the payload is wrong, or there is no such pending job
        """
        asked = read(payload, id=None, all=False)
        if (asked["id"] is None) == (not asked["all"]):
            raise ValueError("give id, or all")
        scheduler = self._scheduler
        self._snapshot.plan()
        answer: dict[str, Any] = {**self._head(), "jobs": Entries()}
        if not asked["all"]:
            if type(asked["id"]) is not int:
                raise ValueError(f"id={asked['id']!r} is invalid: expected a job id")
            job = scheduler.pending(asked["id"])
            if job is None or not caller.may_see(job.request.userid):
                raise ValueError(f"{name_of(asked['id'])} is not a pending job")
            yield from scheduler.find_heads()
            answer["jobs"].append((yield from self._reasons.explain(job, caller)))
            others, shown = 0, 1
        else:
            yield from scheduler.find_heads()
            others = shown = 0
            for looked, job in enumerate(scheduler.pending_jobs()):
                if job.request.finalized:
                    continue
                if shown < MAX_JOBS_LISTED and caller.may_see(job.request.userid):
                    shown += 1
                    answer["jobs"].append(self._reasons.line(job, caller))
                    yield
                else:
                    others += 1
                    if looked % JOBS_PER_STEP == 0:
                        yield
        if not caller.private:
            answer["others"] = others
        return answer

    # -- when ------------------------------------------------------------------------------------------

    def when(self, payload: Any, caller: Caller) -> Steps:
        """When a job that is not submitted would start if nothing else comes.

        Args:
            payload: ``{"jobspec": {...}}`` (RFC 14)
            caller (Caller): who asks; of no matter here

        Returns:
            dict: ``verdict`` ("now", "later", "unknown", "never"), ``start``, ``reason``, and
            ``ranks``: an idset, or None where ranks are chosen only when it starts; ``unplanned``:
            how many pending jobs there was no time to plan

        Raises:
            ValueError: the jobspec cannot be read
        """
        asked = read(payload, jobspec=None)
        if asked["jobspec"] is None:
            raise ValueError("jobspec is missing")
        scheduler = self._scheduler
        impl = scheduler.resources.impl
        jobspec = as_submitted(asked["jobspec"], scheduler.instance_config)
        request = scheduler.parse_request(jobspec)
        plan = self._snapshot.plan()
        answer: dict[str, Any] = {**self._head(), "start": None, "ranks": None, "reason": ""}
        try:
            scheduler.resources.check_feasibility(request)
        except InfeasibleRequest as exc:
            return {**answer, "verdict": "never", "reason": str(exc)}
        if plan is None:
            reason = "the pool of this scheduler cannot plan"
            return {**answer, "verdict": "unknown", "reason": reason}
        yield
        system = jobspec["attributes"]["system"]
        if system.get("reservation") is not None:
            return self._in_reservation(answer, plan, request, system, caller)
        plan, start, unplanned = yield from self._start_of(request)
        answer["unplanned"] = unplanned
        if start is None:
            reason = (
                impl.why_not(request)
                if impl.waits_for_ranks(request)
                else "a job without a time limit is in the way"
            )
            return {**answer, "verdict": "unknown", "reason": reason}
        yield
        ranks = plan.would_get(request, start)
        return {
            **answer,
            "verdict": "now" if start <= answer["now"] else "later",
            "start": start,
            "ranks": None if ranks is None else idset_text(ranks),
        }

    def _in_reservation(
        self,
        answer: dict[str, Any],
        plan: Any,
        request: Any,
        system: dict[str, Any],
        caller: Caller,
    ) -> dict[str, Any]:
        """Of a job that names a reservation: it starts in its window, or now, on what lies idle."""
        scheduler = self._scheduler
        now = answer["now"]
        try:
            start, reason = scheduler.start_in_reservation(
                str(system["reservation"]), request, system, caller.userid
            )
        except InfeasibleRequest as exc:
            return {**answer, "verdict": "never", "reason": str(exc)}
        if start is not None and start > now:
            outside = plan.earliest(request)
            if outside is not None and outside <= now:
                start = now
        verdict = "unknown" if start is None else "now" if start <= now else "later"
        return {**answer, "verdict": verdict, "start": start, "reason": reason or ""}

    def _start_of(self, request: Any) -> Generator[None, None, tuple[Any, Optional[float], int]]:
        """When a newcomer would start behind all that wait, the plan in which it does, and how many
        pending jobs there was no time to plan."""
        scheduler = self._scheduler
        ranks = scheduler.resources.impl.match_mask(request) if scheduler.by_queue else ALL
        most = scheduler.promises_limit
        if scheduler.looks_past_heads and most is not None:
            return (yield from self._simulate_backfill(request, ranks, most))
        plan, turns = yield from self._snapshot.with_queue()
        after = turns.after(ranks)
        start = None if after == math.inf else plan.earliest(request, after=after)
        return plan, start, self._snapshot.unplanned

    def _simulate_backfill(
        self, request: Any, ranks: int, most: int
    ) -> Generator[None, None, tuple[Any, Optional[float], int]]:
        """As `_start_of`, where only the first `most` jobs are promised a start."""
        scheduler = self._scheduler
        now = scheduler.now()
        source = self._snapshot.plan()
        times = source.promises()
        blocked = []
        for looked, job in enumerate(scheduler.pending_jobs(aside=False), 1):
            if looked % JOBS_PER_STEP == 0:
                yield
            if not job.request.finalized and not scheduler.waits_for_down_ranks(job):
                wanted = job.resource_request
                promised, end = times.get(job.jobid, (None, 0.0))
                if promised is not None and end == math.inf:
                    # Either its start is known, or what it needs is kept since nobody knows it.
                    if wanted.duration > 0 or promised <= now:
                        promised = math.inf
                blocked.append(Blocked(job.jobid, wanted, scheduler.turn_of(job), promised))
        blocked.append(Blocked(NEWCOMER, request, ranks))
        yield
        changes = [end for end, _ in scheduler.resources.impl.jobs_by_end()]
        for jobid, (start, end) in times.items():
            if jobid < 0:
                changes += [start, end]
        yield
        plan = source.copy()
        simulation = BackfillSimulation(plan, now, changes, blocked, most)
        steps = simulation.run()
        began, spent = scheduler.stopwatch(), 0.0
        while spent < PLANNING_BUDGET_S:
            try:
                next(steps)
            except StopIteration as end:
                plan.cancel(NEWCOMER)
                return plan, end.value, 0
            spent += scheduler.stopwatch() - began
            yield
            began = scheduler.stopwatch()
        return plan, plan.earliest(request), simulation.left()

    # -- windows ---------------------------------------------------------------------------------------

    def windows(self, payload: Any, caller: Caller) -> Steps:
        """What could start now, and for how long: whole nodes, by kind.

        Args:
            payload: ``{"horizon": seconds}`` (default 8 hours)
            caller (Caller): who asks; of no matter here

        Returns:
            dict: ``until``, and ``kinds``: objects with ``kind``, ``total`` and ``steps``, pairs of
            a count and until when so many are free together
        """
        horizon = read_horizon(read(payload, horizon=8 * 3600.0)["horizon"])
        scheduler = self._scheduler
        plan = self._snapshot.plan()
        head = self._head()
        answer: dict[str, Any] = {**head, "until": head["now"] + horizon, "kinds": []}
        if plan is None:
            raise ValueError("the pool of this scheduler cannot plan")
        yield
        yield from scheduler.find_heads()
        inventory = scheduler.resources.impl.inventory
        kinds: dict[int, int] = {}
        for units, mask in inventory.kinds.items():
            kinds[inventory.keys[units]] = kinds.get(inventory.keys[units], 0) | mask
        if scheduler.resources.expiration:
            end = max(head["now"], scheduler.resources.expiration)
            answer["until"] = min(answer["until"], end)
        # Where order is strict, nothing passes by a job that waits.
        stuck = 0
        if not scheduler.looks_past_heads:
            for _, ranks in scheduler.heads():
                stuck |= ranks
        requests, asked = [], []
        for key, mask in sorted(kinds.items(), reverse=True):
            cores, gpus = divmod(key, inventory.key_base)
            name = counted(cores, "core") + (f", {counted(gpus, 'GPU')}" if gpus else "")
            free = mask & ~stuck
            answer["kinds"].append({"kind": name, "total": popcount(mask), "steps": []})
            if free:
                asked.append(answer["kinds"][-1])
                only = free if stuck or len(kinds) > 1 else None
                requests.append(self._whole_node(only, cores))
        for kind, found in zip(asked, plan.windows(requests, horizon)):
            kind["steps"] = [[count, until] for count, until in found["steps"]]
        return answer

    def _whole_node(self, ranks: Optional[int], cores: int) -> Any:
        """A request for one whole node, of certain ranks."""
        system: dict[str, Any] = {"duration": 1}
        if ranks is not None:
            system["constraints"] = {"ranks": [idset_text(ranks)]}
        core = {"type": "core", "count": max(1, cores)}
        slot = {"type": "slot", "count": 1, "label": "one", "with": [core]}
        node = {"type": "node", "count": 1, "exclusive": True, "with": [slot]}
        jobspec = {
            "version": 1,
            "resources": [node],
            "tasks": [{"command": ["true"], "slot": "one", "count": {"per_slot": 1}}],
            "attributes": {"system": system},
        }
        return self._scheduler.parse_request(jobspec)

    # -- plan ------------------------------------------------------------------------------------------

    def plan(self, payload: Any, caller: Caller) -> Steps:
        """What runs, is promised and is reserved, up to a horizon.

        Args:
            payload: ``{"horizon": seconds}`` (default 8 hours)
            caller (Caller): who asks; a guest is given no names of others' jobs

        Returns:
            dict: ``ranks`` and ``down`` (idsets), and the lists ``running``, ``promised`` and
            ``reserved`` of objects with ``name``, ``start``, ``end``, ``nodes`` and ``ranks``
        """
        horizon = read_horizon(read(payload, horizon=8 * 3600.0)["horizon"])
        scheduler = self._scheduler
        plan = self._snapshot.plan()
        head = self._head()
        now, until = head["now"], head["now"] + horizon
        impl = scheduler.resources.impl
        inventory = impl.inventory
        answer: dict[str, Any] = {
            **head,
            "until": until,
            "ranks": idset_text(inventory.ranks),
            "down": idset_text(inventory.ranks & ~impl.eligible(None)),
            "running": Entries(),
            "promised": Entries(),
            "reserved": Entries(),
        }
        yield
        for jobid, end in scheduler.running_jobs():
            try:
                ranks = selected_ranks(impl.held(jobid))
            except KeyError:
                continue  # it ended since
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
        for jobid, (start, end) in {} if plan is None else plan.promises().items():
            job = scheduler.pending(jobid)
            if job is None or start >= until or not plan.has(jobid):
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
        for span in scheduler.reserved_spans(until):
            answer["reserved"].append(span)
            yield
        return answer

    # -- statistics ------------------------------------------------------------------------------------

    def stats(self, payload: Any, caller: Caller) -> Steps:
        """Figures for a live view and for monitoring; no names of jobs but those of promises.

        Args:
            payload: null or ``{}``
            caller (Caller): the owner
        """
        read(payload)
        scheduler = self._scheduler
        plan = self._snapshot.plan()
        head = self._head()
        impl = scheduler.resources.impl
        everything = impl.inventory.ranks
        up = impl.eligible(None)
        idle = impl.index.idle
        reserved = 0
        for jobid in scheduler.stand_ins():
            reserved |= selected_ranks(impl.held(jobid))
        counts = {
            "allocated": popcount(up & ~idle & ~reserved),
            "free": popcount(up & idle),
            "reserved": popcount(up & reserved),
            "down": popcount(everything & ~up),
        }
        promises = []
        starts = {} if plan is None else plan.promises()
        for jobid, (start, _) in heapq.nsmallest(
            PROMISES_SHOWN, [one for one in starts.items() if one[0] >= 0], key=lambda one: one[1]
        ):
            waiting = scheduler.pending(jobid)
            if waiting is not None:
                nodes = waiting.resource_request.shape.node_count
                promises.append(
                    {"name": name_of(jobid), "start": start, "nodes": nodes and nodes.min}
                )
        yield
        yield from scheduler.find_heads()
        reasons: dict[tuple[Optional[str], str], int] = {}
        for job, _ in zip(scheduler.pending_jobs(), range(MAX_JOBS_LISTED)):
            if not job.request.finalized:
                key = (queue_of(job), scheduler.kind_of_wait(job))
                reasons[key] = reasons.get(key, 0) + 1
                yield
        reservations = Entries()
        for one in scheduler.reservation_figures():
            reservations.append(one)
            yield
        return {
            **head,
            "name": scheduler.name,
            "started": scheduler.loaded_at,
            "stats": scheduler.stats_get(),
            "nodes": counts,
            "reasons": [
                {"queue": queue, "kind": kind, "count": count}
                for (queue, kind), count in sorted(
                    reasons.items(), key=lambda one: (one[0][0] or "", one[0][1])
                )
            ],
            "started_jobs": dict(scheduler.started_jobs),
            "promises": promises,
            "reservations": reservations,
        }
