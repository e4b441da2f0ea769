# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager of a fake instance, and its jobs: the protocol with the scheduler (RFC 27), and
what it leads to."""

from __future__ import annotations

import errno
import heapq
import math
from syslog import LOG_ERR
from typing import TYPE_CHECKING, Any, Callable

from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.job import JobID
from flux.resource.allocations import Allocations
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.testing.services import (
    ALLOCATED,
    ANNOTATED,
    CANCELED,
    DENIED,
    FakeService,
    ranks_of,
)

if TYPE_CHECKING:
    from flux.scheduler.testing.handle import FakeMessage
    from flux.scheduler.testing.instance import FakeInstance
    from flux.scheduler.testing.reactor import Timer


class FakeJob:
    """A job of a fake instance. `FakeInstance.submit` makes it.

    Times are in seconds since the epoch. What a method does reaches the scheduler when the instance
    runs next.

    Attributes:
        id (int): the job id
        jobspec (dict): what it asks for (RFC 14)
        priority (int): 0 to 4294967295; see `set_priority`
        userid (int): who submitted it
        t_submit (float): when
        runtime (float): seconds after its start at which it ends by itself; None: never
        state (str): ``pending``, ``running`` or ``inactive``
        result (str): of an inactive job: ``completed``, ``canceled`` or ``failed``; else None
        note (str): why it failed; else None
        R (dict): its resources (RFC 20), once it runs; None before
        t_start (float): when it started; None before
        t_end (float): when it ended; None before
        annotations (dict): what the scheduler has told about it (RFC 27), as ``flux jobs`` would
            show it
        events (list): its allocation and its exceptions, as its eventlog has them (RFC 18, 21)
        signals (list): numbers of the signals that the scheduler has had sent to its tasks
        clean_up (float): seconds between an exception of severity 0 while it runs and the return of
            its resources; None: they are not returned until `end` is called
    """

    def __init__(
        self,
        manager: JobManager,
        id: int,
        jobspec: dict[str, Any],
        priority: int,
        userid: int,
        t_submit: float,
        runtime: float | None,
    ) -> None:
        self.id = id
        self.jobspec = jobspec
        self.priority = priority
        self.userid = userid
        self.t_submit = t_submit
        self.runtime = runtime
        self.state = "pending"
        self.result: str | None = None
        self.note: str | None = None
        self.R: dict[str, Any] | None = None
        self.t_start: float | None = None
        self.t_end: float | None = None
        self.annotations: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        self.signals: list[int] = []
        self.clean_up: float | None = 0.0
        self._manager = manager
        self._released = IDset()
        #: whether the scheduler has a request for it
        self.requested = False
        #: the result with which it ends when its request is withdrawn; None: it is not to be
        self._withdrawn: str | None = None
        self._end_timer: Timer | None = None

    # -- what can be seen --------------------------------------------------------------------------

    @property
    def ranks(self) -> str | None:
        """The ranks it has (an idset); None until it runs."""
        return None if self.R is None else ranks_of(self.R).encode()

    @property
    def hosts(self) -> str | None:
        """The hosts it has (a hostlist); None until it runs."""
        if self.R is None:
            return None
        return Hostlist(self.R["execution"]["nodelist"]).encode()

    @property
    def expiration(self) -> float:
        """When its resources expire; 0: never, or it does not run."""
        return 0.0 if self.R is None else float(self.R["execution"].get("expiration", 0.0))

    @property
    def t_estimate(self) -> float | None:
        """When the scheduler expects it to start; None: it has not said."""
        when = self._sched_annotations().get("t_estimate")
        return None if when is None else float(when)

    @property
    def reason_pending(self) -> str | None:
        """What the scheduler says that it waits for; None: it has not said."""
        reason: str | None = self._sched_annotations().get("reason_pending")
        return reason

    def _sched_annotations(self) -> dict[str, Any]:
        found = self.annotations.get("sched")
        return found if isinstance(found, dict) else {}

    @property
    def name(self) -> str:
        """Its id as users, and reasons why others are pending, write it: ``ƒ2``."""
        name: str = JobID(self.id).f58
        return name

    def __repr__(self) -> str:
        return f"<{self.name}: {self.describe(self._manager.instance.start_time)}>"

    def describe(self, since: float) -> str:
        """One line: where it runs and since when, or what it was told, or how it ended.

        Args:
            since (float): where times begin, seconds since the epoch
        """
        if self.state == "running" and self.t_start is not None:
            return f"running on {self.hosts} since {_seconds(self.t_start - since)}"
        if self.state == "pending":
            told = []
            if self.t_estimate is not None:
                told.append(f"starts at {_seconds(self.t_estimate - since)}")
            if self.reason_pending:
                told.append(self.reason_pending)
            return ": ".join(["pending", *told[:1]]) + "".join(f", {text}" for text in told[1:])
        text = f"{self.result} at {_seconds((self.t_end or 0.0) - since)}"
        return f"{text}: {self.note}" if self.note else text

    # -- what can be done --------------------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel it, as its owner does: a pending job's request is withdrawn, a running one ends."""
        self._stop("canceled")

    def _stop(self, result: str) -> None:
        if self.state == "running":
            self.end(result)
        elif self.state == "pending" and self.requested:
            self._withdrawn = result
            self._manager.tell("sched.cancel", {"id": self.id})
        elif self.state == "pending":
            self._finish(result)

    def set_priority(self, priority: int) -> None:
        """Change its priority while it is pending.

        Args:
            priority (int): 0 to 4294967295
        """
        self.priority = priority
        if self.requested:
            self._manager.tell("sched.prioritize", {"jobs": [[self.id, priority]]})
        elif self.state == "pending":
            self._manager.queue(self)

    def fail(self, note: str | None) -> None:
        """It ends because of an exception; while it runs, after its `clean_up`.

        Args:
            note (str): what went wrong
        """
        self.note = note
        if self.state == "running" and self.clean_up != 0:
            if self.clean_up is not None:
                reactor = self._manager.instance.reactor
                reactor.call_at(self._manager.instance.now + self.clean_up, self._cleaned_up)
        else:
            self._stop("failed")

    def _cleaned_up(self) -> None:
        if self.state == "running":
            self.end("failed")

    def end(self, result: str = "completed") -> None:
        """It ends now, and its resources go back to the scheduler.

        Args:
            result (str): how: ``completed``, ``canceled`` or ``failed``

        Raises:
            ValueError: it does not run
        """
        R = self._held()
        if self._end_timer is not None:
            self._end_timer.cancel()
        self._finish(result)
        self._manager.allocations.give_back(self.id)
        self._manager.tell("sched.free", {"id": self.id, "R": R, "final": True})

    def release(self, ranks: str) -> None:
        """Some of its ranks go back to the scheduler before the others, as after housekeeping (RFC
        27).

        Args:
            ranks (str): an idset; `end` returns the rest

        Raises:
            ValueError: it does not run, or has no such ranks
        """
        held = self._held()
        leaving = IDset(ranks)
        missing = set(leaving) - set(ranks_of(held))
        if missing:
            raise ValueError(f"job {self.id} does not have rank {min(missing)}")
        self._released.add(leaving)
        self._manager.allocations.give_back(self.id, leaving.encode())
        part = _part(held, set(leaving))
        self._manager.tell("sched.free", {"id": self.id, "R": part, "final": False})

    def set_expiration(self, expiration: float) -> None:
        """Move the end of its resources, and have the instance run until the scheduler has
        answered.

        Args:
            expiration (float): seconds since the epoch; 0: they never expire

        Raises:
            ValueError: it does not run
            OSError: the scheduler refuses
        """
        if self.state != "running" or self.R is None:
            raise ValueError(f"job {self.id} is {self.state}: only a running job has resources")
        self._manager.instance.request(
            "sched.expiration", {"id": self.id, "expiration": expiration}
        )
        self.R["execution"]["expiration"] = expiration

    def _held(self) -> dict[str, Any]:
        """R without what was released."""
        if self.state != "running" or self.R is None:
            raise ValueError(f"job {self.id} is {self.state}: only a running job has resources")
        if not len(self._released):
            return self.R
        return _part(self.R, set(ranks_of(self.R)) - set(self._released))

    # -- what the job manager does with it ---------------------------------------------------------

    def hello(self) -> dict[str, Any]:
        """What a scheduler that starts is told of it."""
        entry: dict[str, Any] = {
            "id": self.id,
            "priority": self.priority,
            "userid": self.userid,
            "t_submit": self.t_submit,
        }
        if len(self._released):
            entry["free"] = self._released.encode()
        return entry

    def answered(self, payload: dict[str, Any]) -> None:
        """A response of the scheduler to its request has come."""
        now = self._manager.instance.now
        kind = payload["type"]
        merge_annotations(self.annotations, payload.get("annotations", {}))
        if kind == ANNOTATED:
            return
        self.requested = False
        if kind == ALLOCATED:
            self.R = payload["R"]
            self.state, self.t_start = "running", now
            self.post("alloc")
            if self.runtime is not None:
                reactor = self._manager.instance.reactor
                self._end_timer = reactor.call_at(now + self.runtime, self.end)
            if self._withdrawn is not None:
                self.end(self._withdrawn)  # the two crossed
        elif kind == DENIED:
            self.note = payload.get("note")
            self._finish("failed")
        elif kind == CANCELED and self._withdrawn is not None:
            self._finish(self._withdrawn)

    def post(self, name: str, **context: Any) -> None:
        """Something happens to it that its eventlog tells."""
        event: dict[str, Any] = {"timestamp": self._manager.instance.now, "name": name}
        self.events.append({**event, "context": context} if context else event)

    def _finish(self, result: str) -> None:
        self.state, self.result = "inactive", result
        self.t_end = self._manager.instance.now
        if self.t_start is None:
            self.annotations.clear()


class JobManager(FakeService):
    """``job-manager``: sends requests for pending jobs to the scheduler, as many as that takes at a
    time.

    Args:
        instance: where it is

    Attributes:
        hello_request (dict): what the scheduler said at hello; None before
        hello_error (tuple): errno and text with which hello is refused; None: it is not
        ready_request (dict): what the scheduler said when it was ready; None before
        raised (list): exceptions that the scheduler has raised on jobs: their payloads
        allocations (Allocations): what jobs hold, to check what the scheduler gives away
    """

    def __init__(self, instance: FakeInstance) -> None:
        methods: dict[str, Callable[[FakeMessage], Any]] = {
            "sched-hello": self._hello,
            "sched-ready": self._ready,
            "alloc-query": self._query,
            "raise": self._raise,
            "getattr": self._getattr,
            "kill": self._kill,
            "memo": self._memo,
        }
        super().__init__(instance, "job-manager", methods)
        self.hello_request: dict[str, Any] | None = None
        self.hello_error: tuple[int, str] | None = None
        self.ready_request: dict[str, Any] | None = None
        self.raised: list[dict[str, Any]] = []
        self.allocations = Allocations()
        self._waiting: list[tuple[int, int, FakeJob]] = []  # heap of (-priority, id, job)

    # -- to the scheduler --------------------------------------------------------------------------

    def submitted(self, job: FakeJob) -> None:
        """A job wants resources."""
        self.queue(job)
        self.send_requests()

    def queue(self, job: FakeJob) -> None:
        """Have a job wait for its request to be sent; again when its priority has changed."""
        heapq.heappush(self._waiting, (-job.priority, job.id, job))

    def send_requests(self) -> None:
        """Send as many requests as the scheduler takes, the highest priority first."""
        if self.ready_request is None:
            return
        limit = self.ready_request.get("limit", math.inf)
        open_requests = sum(job.requested for job in self.instance.jobs.values())
        while self._waiting and open_requests < limit:
            job = self._next()
            if job is None:
                return
            job.requested = True
            open_requests += 1
            payload = dict(job.hello(), jobspec=job.jobspec)
            self.instance.send("sched.alloc", payload, answered=self._answered)

    def _next(self) -> FakeJob | None:
        """Take out the job whose request is sent next."""
        while self._waiting:
            priority, _, job = heapq.heappop(self._waiting)
            # With another priority it is further down or up as well.
            if job.state == "pending" and not job.requested and priority == -job.priority:
                return job
        return None

    def tell(self, topic: str, payload: dict[str, Any]) -> None:
        """Send what is not answered."""
        self.instance.send(topic, payload)

    def scheduler_gone(self) -> None:
        """There is no scheduler: the requests it had are sent again to the next."""
        self.ready_request = None
        for job in self.instance.jobs.values():
            if job.requested:
                job.requested = False
                job.annotations.clear()
                self.queue(job)

    # -- from the scheduler ------------------------------------------------------------------------

    def _answered(self, errnum: int, payload: Any) -> None:
        if not errnum:
            wrong = self._wrong_answer(payload)
            job = None if wrong else self.instance.jobs.get(payload["id"])
            if job is not None and payload["type"] == ALLOCATED:
                try:
                    wrong = self.allocations.take(job.id, payload.get("R"))
                except ValueError as exc:
                    wrong, job = str(exc), None
                if wrong is not None:
                    wrong = f"{JobID(payload['id']).f58}: {wrong}"
            if wrong is not None:
                self.instance.log.append((LOG_ERR, f"job-manager: sched.alloc response: {wrong}"))
            if job is not None:
                job.answered(payload)
        self.send_requests()

    def _wrong_answer(self, payload: Any) -> str | None:
        """What is wrong with a response to sched.alloc, its R aside; None: nothing."""
        try:
            kind, job = payload["type"], self.instance.jobs.get(payload["id"])
            is_sound = (
                kind in (ALLOCATED, ANNOTATED, DENIED, CANCELED)
                and isinstance(payload.get("annotations", {}), dict)
                and isinstance(payload.get("note", ""), str)
            )
        except (TypeError, KeyError, AttributeError):
            is_sound = False
        if not is_sound:
            return f"malformed: {payload!r}"
        if job is None or not job.requested:
            return f"job {payload['id']} has no open request: a request is answered once, and nothing follows the answer"
        return None

    def resources_changed(self) -> None:
        """The scheduler knows what the resource service has."""
        resource = self.instance.resource
        try:
            self.allocations.define(resource.R)
        except ValueError:
            return  # it is the scheduler that is to refuse it
        self.allocations.set_up(resource.up.encode())

    def hello_entries(self) -> list[dict[str, Any]]:
        """What hello says: an entry for each job that has resources."""
        return [job.hello() for job in self.instance.jobs.values() if job.state == "running"]

    def _hello(self, msg: FakeMessage) -> None:
        self.hello_request = msg.payload
        self.resources_changed()
        if self.hello_error is not None:
            raise OSError(*self.hello_error)
        for entry in self.hello_entries():
            self.respond(msg, entry)
        self.respond_error(msg, errno.ENODATA)

    def _ready(self, msg: FakeMessage) -> None:
        self.ready_request = msg.payload
        self.respond(msg, {"count": len(self._waiting)})
        self.instance.reactor.post(self.send_requests)

    def _query(self, msg: FakeMessage) -> None:
        pending = sum(job.requested for job in self.instance.jobs.values())
        waiting = sum(
            job.state == "pending" and not job.requested for job in self.instance.jobs.values()
        )
        answer = {
            "queue_length": waiting,
            "alloc_pending": pending,
            "alloc_limit": 0,
            "running": len(self.hello_entries()),
        }
        self.respond(msg, answer)

    def _getattr(self, msg: FakeMessage) -> None:
        self.instance.job_info.answer_attributes(self, msg)

    def _raise(self, msg: FakeMessage) -> None:
        payload = msg.payload
        self.raised.append(payload)
        job = self.instance.jobs.get(payload["id"])
        if job is not None and job.state == "inactive":
            raise OSError(errno.ENOENT, "job is inactive")
        self.respond(msg)
        if job is not None:
            context = {key: payload.get(key) for key in ("type", "severity", "note")}
            job.post("exception", **context)
            if payload["severity"] == 0:
                job.fail(payload.get("note"))

    def _kill(self, msg: FakeMessage) -> None:
        job = self.instance.jobs.get(msg.payload["id"])
        if job is None or job.state != "running":
            raise OSError(errno.EINVAL, "job is not running")
        job.signals.append(msg.payload["signum"])
        self.respond(msg)

    def _memo(self, msg: FakeMessage) -> None:
        job = self.instance.jobs.get(msg.payload["id"])
        if job is None or job.state == "inactive":
            raise OSError(errno.ENOENT, "unknown job id")
        merge_annotations(job.annotations, {"user": msg.payload["memo"]})
        self.respond(msg)


def merge_annotations(into: dict[str, Any], new: dict[str, Any]) -> None:
    """Merge annotations as the job manager does (RFC 27): null removes a key."""
    for key, value in new.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            inner = into.get(key)
            merged = dict(inner) if isinstance(inner, dict) else {}
            merge_annotations(merged, value)
            if merged:
                into[key] = merged
            else:
                into.pop(key, None)
        else:
            into[key] = value


def _part(R: dict[str, Any], ranks: set[int]) -> dict[str, Any]:
    """R of some of its ranks."""
    pool = ResourcePool(R)
    others = sorted(set(ranks_of(R)) - ranks)
    if others:
        pool.remove_ranks(IDset(others).encode())
    part: dict[str, Any] = pool.to_dict()
    return part


def _seconds(seconds: float) -> str:
    """A time for people: ``90 s``."""
    return f"{seconds:.15g} s"
