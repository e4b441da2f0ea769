"""What the scheduler answers when it is asked: why, when, what could start now, what is planned.

The answers come from the pool and from a copy of the plan that is at most a second old, so that a
question changes nothing and costs a pass next to nothing; each answer says when its plan was made.
`Desk` is made by `PolicyScheduler`, whose services (``sched.explain``, ``sched.when``,
``sched.windows``, ``sched.plan``, ``sched.stats``) it serves.

Times are seconds since the epoch; None stands for a time that nobody knows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Callable, Optional

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.pool.constraint import parse_constraint
from flux.resource.pool.explain import counted
from flux.resource.pool.inventory import selected_ranks
from flux.resource.pool.masks import idset_text, popcount
from flux.scheduler.host import name_of
from flux.scheduler.queue import ALL, Turns

if TYPE_CHECKING:
    from flux.scheduler.policy import PolicyScheduler
    from flux.scheduler.requests import PendingJob

#: Oldest copy of the plan that is answered from, seconds.
AGE = 1.0

#: Farthest that a question may look ahead, seconds: a year.
HORIZON = 366 * 86400.0

#: Most running jobs that one answer names as being in a job's way.
BEHIND = 8

#: Most jobs that one answer tells about.
JOBS = 10000

#: Longest time that planning the queue for a question may take, seconds.
EFFORT = 0.0015

#: An answer that is made in steps, between which the scheduler may do other work.
Steps = Generator[None, None, dict[str, Any]]

#: Bits of a request's rolemask (RFC 12).
ROLE_OWNER = 1


#: How long the steps of an answer may take in one turn of the reactor, seconds.
SLICE = 0.001


class Slices:
    """Makes an answer in steps, a few in each turn of the reactor, so that no pass waits for all.

    Args:
        handle: the Flux handle
        steps (generator): returns the answer
        stopwatch: gives seconds
        done: called with the answer
        failed: called with what the steps raised
    """

    def __init__(
        self,
        handle: Any,
        steps: Steps,
        stopwatch: Callable[[], float],
        done: Callable[[dict[str, Any]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._steps = steps
        self._stopwatch = stopwatch
        self._done = done
        self._failed = failed
        self._timer = handle.timer_watcher_create(0.0, self._turn)

    def begin(self) -> None:
        """Make the first steps now."""
        self._turn()

    def _turn(self, *_: Any) -> None:
        until = self._stopwatch() + SLICE
        try:
            while self._stopwatch() < until:
                next(self._steps)
        except StopIteration as end:
            self._done(end.value)
        except Exception as exc:
            self._failed(exc)
        else:
            self._timer.reset(after=0.0)


class Caller:
    """Who asks: the instance owner sees everything, a guest own jobs, and of others no names.

    Args:
        msg (Message): the request

    Attributes:
        userid (int), owner (bool): who it is
        private (bool): is not even told how many jobs others have (``access.private-mode``)
    """

    def __init__(self, msg: Any) -> None:
        self.userid = msg.userid
        self.owner = bool(msg.rolemask & ROLE_OWNER)
        self.private = False

    def may_see(self, userid: Optional[int]) -> bool:
        """Whether a job of this user may be shown by its name."""
        return self.owner or (userid is not None and userid == self.userid)

    def name(self, jobid: int, userid: Optional[int]) -> str:
        """A job's id as users write it, or ``another job``."""
        return name_of(jobid) if self.may_see(userid) else "another job"


def read(payload: Any, **known: Any) -> dict[str, Any]:
    """The payload of a question, with its defaults.

    Args:
        payload: None or an object
        **known: its keys and their defaults

    Raises:
        ValueError: it has a key that is not known
    """
    if payload is None:
        payload = {}
    if not isinstance(payload, dict):
        raise ValueError(f"expected an object, got {type(payload).__name__}")
    for key in payload:
        if key not in known:
            expected = ", ".join(known) or "none"
            raise ValueError(f"unknown key {key!r}: expected {expected}")
    return {**known, **payload}


def read_horizon(value: Any) -> float:
    """How far to look ahead, seconds.

    Raises:
        ValueError: it is not a number of seconds from 1 to a year
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= HORIZON:
        raise ValueError(f"horizon={value!r} is invalid: expected seconds, from 1 to {HORIZON:.0f}")
    return float(value)


class Desk:
    """Answers questions about a scheduler's jobs and plan.

    Args:
        scheduler (PolicyScheduler): whose
    """

    def __init__(self, scheduler: PolicyScheduler) -> None:
        self._scheduler = scheduler
        self._made = 0.0
        #: what the copies were made of
        self._seen: Any = None
        #: the plan with the promises; with a place for every pending job
        self._plan: Any = None
        self._full: Any = None
        self._turns = Turns()

    # -- the plan --------------------------------------------------------------------------------------

    def _look(self) -> Any:
        """Have a copy of the plan that is at most `AGE` old; None if the pool cannot plan.

        It has the promises, and `_turn` says where a newcomer would stand: behind the pending jobs
        without a promise, which are planned after them for as long as `EFFORT` lasts.
        """
        scheduler = self._scheduler
        now = scheduler.now()
        pool = scheduler.resources
        seen = (id(pool), pool.generation, scheduler.requests_seen)
        if self._plan is None or seen != self._seen or not 0 <= now - self._made < AGE:
            source = scheduler.outlook()
            self._plan = None if source is None else source.copy()
            self._seen = seen
            self._made = now
            self._full = None
        return self._plan

    def _queue_planned(self) -> Any:
        """A copy of the plan in which every pending job has a place, as far as `EFFORT` goes; with
        `_turns`, which say when a newcomer may have its turn."""
        plan = self._look()
        if plan is None or self._full is not None:
            return self._full
        scheduler = self._scheduler
        self._full = plan = plan.copy()
        self._turns = turns = Turns()
        until = scheduler.stopwatch() + EFFORT
        for job in scheduler.pending_jobs():
            if plan.has(job.jobid):
                continue
            if scheduler.stopwatch() > until:
                break
            if not scheduler.looks_past_heads:
                ranks = scheduler.turn_of(job)
                scheduler.plan_in_turn(job, ranks, plan, turns)
                if ranks == ALL and turns.after(ranks) == math.inf:
                    break
                continue
            request = job.resource_request
            try:
                when = plan.earliest(request)
                if when is None or request.duration <= 0:
                    plan.hold(job.jobid, request)
                else:
                    plan.reserve(job.jobid, request, when)
            except (InfeasibleRequest, InsufficientResources):
                continue
        return self._full

    def _head(self) -> dict[str, float]:
        return {"now": self._scheduler.now(), "made": self._made}

    # -- why -------------------------------------------------------------------------------------------

    def explain(self, payload: Any, caller: Caller) -> Steps:
        """Why pending jobs wait.

        Args:
            payload: ``{"id": N}`` or ``{"all": true}``
            caller (Caller): who asks

        Returns:
            dict: ``jobs``: for each an object with ``verdict`` ("starts", "waits", "never"),
            ``reason``, the counts of ``ResourcePool.explain()``, ``excluded``, ``reservation``,
            ``behind``, ``fits`` and its estimate; ``others``: for a guest, how many jobs of others wait

        Raises:
            ValueError: the payload is wrong, or there is no such pending job
        """
        asked = read(payload, id=None, all=False)
        if (asked["id"] is None) == (not asked["all"]):
            raise ValueError("give id, or all")
        scheduler = self._scheduler
        if asked["all"]:
            pending = [job for job in scheduler.pending_jobs() if not job.request.finalized]
        else:
            if type(asked["id"]) is not int:
                raise ValueError(f"id={asked['id']!r} is invalid: expected a job id")
            job = scheduler.pending(asked["id"])
            if job is None or not caller.may_see(job.request.userid):
                raise ValueError(f"{name_of(asked['id'])} is not a pending job")
            pending = [job]
        self._look()
        shown = [job for job in pending if caller.may_see(job.request.userid)][:JOBS]
        answer: dict[str, Any] = {**self._head(), "jobs": []}
        for job in shown:
            if not job.request.finalized:
                answer["jobs"].append(self._explain(job, caller, details=not asked["all"]))
                yield
        if not caller.private:
            answer["others"] = len(pending) - len(shown)
        return answer

    def _explain(self, job: PendingJob, caller: Caller, details: bool) -> dict[str, Any]:
        scheduler = self._scheduler
        request = job.resource_request
        facts: dict[str, Any] = {}
        never = None
        if scheduler.pool_can("explain"):
            facts = dict(scheduler.resources.explain(request))
        try:
            scheduler.resources.check_feasibility(request)
        except InfeasibleRequest as exc:
            never = str(exc)
        heads = scheduler.ahead_of(job)
        reason = never or scheduler.why(job, facts or None)
        if not all(caller.may_see(head.request.userid) for head in heads):
            for head in heads:
                if reason and not caller.may_see(head.request.userid):
                    reason = reason.replace(name_of(head.jobid), "another job")
        estimate = scheduler.estimate_of(job)
        answer = {
            "id": job.jobid,
            "name": name_of(job.jobid),
            "queue": _system(job).get("queue"),
            "priority": job.priority,
            "verdict": "never" if never else ("waits" if reason else "starts"),
            "reason": reason or "",
            "t_estimate": estimate[0],
            "t_estimate_kind": estimate[1],
        }
        for key in ("unit", "needed", "total", "matching", "up", "large_enough", "available"):
            if key in facts:
                answer[key] = facts[key]
        if details and facts:
            answer["excluded"] = list(self._excluded(job))
            if not heads:
                answer["reservation"] = scheduler.reservation_of(job)
            aside = scheduler.waits_aside(job)
            answer["behind"] = [] if aside else self._behind(job, heads, caller)
            answer["fits"] = None if never else self._fits(job, heads)
        return answer

    def _excluded(self, job: PendingJob) -> Iterator[dict[str, Any]]:
        """What each part of the job's constraint leaves out."""
        inventory = self._scheduler.resources.impl.inventory
        constraint = _system(job).get("constraints")
        for part in _parts(constraint) if isinstance(constraint, dict) else ():
            try:
                terms = parse_constraint(part)
            except ValueError:
                continue
            out = inventory.ranks & ~inventory.matching(terms)
            if out:
                yield {
                    "constraint": _words(part),
                    "nodes": popcount(out),
                    "ranks": idset_text(out),
                }

    def _behind(
        self, job: PendingJob, heads: list[PendingJob], caller: Caller
    ) -> list[dict[str, Any]]:
        """The pending jobs that go first, then the running ones whose resources it waits for."""
        scheduler = self._scheduler
        answer = []
        for head in heads[:BEHIND]:
            start, _ = scheduler.estimate_of(head)
            length = head.resource_request.duration
            end = start + length if start is not None and length > 0 else None
            name = caller.name(head.jobid, head.request.userid)
            answer.append({"name": name, "state": "pending", "start": start, "end": end})
        impl = scheduler.resources.impl
        wanted = scheduler.ranks_of(job)
        estimate, _ = scheduler.estimate_of(job)
        limit = math.inf if estimate is None else estimate
        running = [(end or math.inf, jobid) for jobid, end in scheduler.running_jobs()]
        running.sort(reverse=True)
        found = 0
        for end, jobid in running:
            if end > limit or not selected_ranks(impl.held(jobid)) & wanted:
                continue
            found += 1
            if found > BEHIND:
                break
            when = None if end == math.inf else end
            answer.append(
                {"name": caller.name(jobid, None), "state": "running", "start": None, "end": when}
            )
        return answer

    def _fits(self, job: PendingJob, heads: list[PendingJob]) -> Optional[dict[str, Any]]:
        """What of the job could start now: the longest limit as it is, the largest count for its
        limit; None if nothing, or if the order of the queue forbids it."""
        scheduler = self._scheduler
        plan = self._plan
        if plan is None or (heads and not scheduler.looks_past_heads):
            return None
        request = job.resource_request
        now = scheduler.now()
        horizon = min(max(request.duration, 7 * 86400.0), HORIZON)
        start, end = plan.reservations().get(job.jobid, (None, math.inf))
        if start is not None:
            plan.cancel(job.jobid)  # its own promise is not in its way
        steps = plan.windows([request], horizon)[0]["steps"]
        if start is not None:
            self._put_back(job, start, end)
        count = request.shape.node_count or request.shape.slot_count
        needed = count.min
        until = max([end for number, end in steps if number >= needed], default=now)
        length = request.duration if request.duration > 0 else math.inf
        most = max([number for number, end in steps if end - now >= length], default=0)
        limit = until - now
        answer: dict[str, Any] = {}
        if 1 <= limit < length:
            answer["limit"] = float(math.floor(limit))
        if 0 < most < needed:
            answer["count"] = most
        return answer or None

    def _put_back(self, job: PendingJob, start: float, end: float) -> None:
        """Enter a job's promise into the copy of the plan again; if that cannot be, it is spoilt, and
        the next question has a new one."""
        try:
            if end == math.inf:
                raise InsufficientResources("its time is not known")
            self._plan.reserve(job.jobid, job.resource_request, start)
        except InsufficientResources:
            self._plan = None

    # -- when ------------------------------------------------------------------------------------------

    def when(self, payload: Any, caller: Caller) -> dict[str, Any]:
        """When a job that is not submitted would start if nothing else comes.

        Args:
            payload: ``{"jobspec": {...}}`` (RFC 14)
            caller (Caller): who asks; of no matter here

        Returns:
            dict: ``verdict`` ("now", "later", "unknown", "never"), ``start``, ``reason``, and
            ``ranks``: an idset, or None where ranks are chosen only when it starts

        Raises:
            ValueError: the jobspec cannot be read
        """
        asked = read(payload, jobspec=None)
        if asked["jobspec"] is None:
            raise ValueError("jobspec is missing")
        scheduler = self._scheduler
        request = scheduler.parse_request(asked["jobspec"])
        plan = self._queue_planned()
        answer: dict[str, Any] = {**self._head(), "start": None, "ranks": None, "reason": ""}
        try:
            scheduler.resources.check_feasibility(request)
        except InfeasibleRequest as exc:
            return {**answer, "verdict": "never", "reason": str(exc)}
        if plan is None:
            reason = "the pool of this scheduler cannot plan"
            return {**answer, "verdict": "unknown", "reason": reason}
        ranks = scheduler.resources.impl.match_mask(request) if scheduler.by_queue else ALL
        after = self._turns.after(ranks)
        start = None if after == math.inf else plan.earliest(request, after=after)
        if start is None:
            reason = (
                scheduler.resources.impl.why_not(request)
                if scheduler.resources.impl.waits_for_ranks(request)
                else "a job without a time limit is in the way"
            )
            return {**answer, "verdict": "unknown", "reason": reason}
        now = answer["now"]
        ranks = plan.would_get(request, start)
        return {
            **answer,
            "verdict": "now" if start <= now else "later",
            "start": start,
            "ranks": None if ranks is None else idset_text(ranks),
        }

    # -- windows ---------------------------------------------------------------------------------------

    def windows(self, payload: Any, caller: Caller) -> dict[str, Any]:
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
        plan = self._look()
        head = self._head()
        answer: dict[str, Any] = {**head, "until": head["now"] + horizon, "kinds": []}
        if plan is None:
            raise ValueError("the pool of this scheduler cannot plan")
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
        plan = self._look()
        head = self._head()
        now, until = head["now"], head["now"] + horizon
        impl = scheduler.resources.impl
        inventory = impl.inventory
        running = []
        for jobid, end in list(scheduler.running_jobs()):
            try:
                ranks = selected_ranks(impl.held(jobid))
            except KeyError:
                continue  # it ended since
            yield
            running.append(
                {
                    "name": caller.name(jobid, None),
                    "start": now,
                    "end": max(end, now) if end else None,
                    "nodes": popcount(ranks),
                    "ranks": idset_text(ranks),
                }
            )
        promised = []
        for jobid, (start, end) in {} if plan is None else plan.reservations().items():
            job = scheduler.pending(jobid)
            if job is None or start >= until:
                continue
            yield
            nodes = job.resource_request.shape.node_count
            bound = plan.ranks_of(jobid)
            promised.append(
                {
                    "name": caller.name(jobid, job.request.userid),
                    "start": start,
                    "end": None if end == math.inf else end,
                    "nodes": nodes.min if nodes else None,
                    "ranks": None if bound is None else idset_text(bound),
                }
            )
        return {
            **head,
            "until": until,
            "ranks": idset_text(inventory.ranks),
            "down": idset_text(inventory.ranks & ~impl.eligible(None)),
            "running": running,
            "promised": promised,
            "reserved": list(scheduler.reserved_spans(until)),
        }

    # -- statistics ------------------------------------------------------------------------------------

    def stats(self, payload: Any, caller: Caller) -> Steps:
        """Figures for a live view and for monitoring; no names of jobs but those of promises.

        Args:
            payload: null or ``{}``
            caller (Caller): the owner
        """
        read(payload)
        scheduler = self._scheduler
        plan = self._look()
        head = self._head()
        impl = scheduler.resources.impl
        everything = impl.inventory.ranks
        up = impl.eligible(None)
        idle = impl.index.idle
        reserved = 0
        for jobid in scheduler.stand_ins():
            reserved |= selected_ranks(impl.held(jobid))
        reasons: dict[tuple[Optional[str], str], int] = {}
        for job, _ in zip(scheduler.pending_jobs(), range(JOBS)):
            yield
            if job.request.finalized:
                continue
            key = (_system(job).get("queue"), scheduler.kind_of_wait(job))
            reasons[key] = reasons.get(key, 0) + 1
        promises = []
        if plan is not None:
            for jobid, (start, _) in sorted(plan.reservations().items(), key=lambda one: one[1])[
                :5
            ]:
                waiting = scheduler.pending(jobid)
                if waiting is not None:
                    nodes = waiting.resource_request.shape.node_count
                    promises.append(
                        {"name": name_of(jobid), "start": start, "nodes": nodes and nodes.min}
                    )
        return {
            **head,
            "name": scheduler.name,
            "started": scheduler.loaded_at,
            "stats": scheduler.stats_get(),
            "nodes": {
                "allocated": popcount(up & ~idle & ~reserved),
                "free": popcount(up & idle),
                "reserved": popcount(up & reserved),
                "down": popcount(everything & ~up),
            },
            "reasons": [
                {"queue": queue, "kind": kind, "count": count}
                for (queue, kind), count in sorted(
                    reasons.items(), key=lambda one: (one[0][0] or "", one[0][1])
                )
            ],
            "started_jobs": dict(scheduler.started_jobs),
            "promises": promises,
            "reservations": scheduler.reservation_figures(),
        }


def _system(job: PendingJob) -> dict[str, Any]:
    """The system attributes of a job, from its jobspec."""
    try:
        system = job.resource_request.jobspec["attributes"]["system"]
    except (AttributeError, KeyError, TypeError):
        return {}
    return system if isinstance(system, dict) else {}


def _parts(constraint: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a constraint that must all be met, as small as they can be."""
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
    """A part of a constraint for a reader."""
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
