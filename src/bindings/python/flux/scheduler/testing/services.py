# SPDX-License-Identifier: LGPL-3.0-or-later
"""The services around a scheduler in a fake instance: resource, job-manager, job-info, kvs, and the
broker's.

Each has only the part of the real service that a scheduler sees (RFC 27, RFC 28). They answer at
once unless stated otherwise.
"""

from __future__ import annotations

import errno
import json
from math import inf
from syslog import LOG_ERR
from typing import Any, Callable

from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.job import JobID
from flux_engine.formats import idset, rset
from flux_engine.formats.rset import fragment
from flux_engine.job_manager.job import Jobs, SchedulableJob
from flux_engine.job_manager.queues import Queues
from flux_engine.job_manager.sched import Sched
from flux_engine.kernel.direct import Peer
from flux_engine.kernel.message import FLAG_NORESPONSE, REQUEST, Message, payload_text
from flux_engine.kernel.reactor import Call
from flux_engine.resource.acquire import ResourcePeer


class FakeService(Peer):
    """A service of the instance. A test may replace one of its `methods`."""

    def __init__(
        self, instance: Any, name: str, methods: dict[str, Callable[[Message], Any]]
    ) -> None:
        self.instance = instance
        self.name = name  # first word of its topics
        instance.reactor.services.pop(name, None)
        super().__init__(instance.reactor)
        #: rest of a topic -> function of the request, which answers with `respond`, or raises
        #: OSError to refuse
        self.methods = methods

    def respond(self, msg: Message, payload: Any = None) -> None:
        """Answer a request with a text, not necessarily JSON."""
        self.kernel.respond(msg, msg.response(payload_text(payload)))


class ResourceService(FakeService, ResourcePeer):
    """``resource``: sends the scheduler its resources and all changes (RFC 28). At first all ranks
    are up, or those in the idset `up`."""

    def __init__(self, instance: Any, R: dict[str, Any], up: str | None = None) -> None:
        self.instance = instance
        ResourcePeer.__init__(self, instance.reactor, R, instance.config, patience=inf)
        if up is not None:
            self.down(idset.difference(self.state.up, idset.decode(up)))

    def changed(self, gone: Any = ()) -> None:
        super().changed(gone)
        if self.acquired.request is not None:
            self.acquired.request.sender.post(self._has_read)

    def _has_read(self) -> None:
        """Check allocations by the changes: the scheduler has read of them."""
        told: Any = self.acquired.told
        told.set_up(idset.encode(self.state.up))


class JobInfo(FakeService):
    """``job-info``: R, jobspec and eventlog of jobs.

    All requests of a turn are answered together in the next: a client that waits for each answer
    before the next request needs a turn per request.
    """

    def __init__(self, instance: Any) -> None:
        super().__init__(instance, "job-info", {"lookup": self._lookup})
        self.R: dict[int, dict[str, Any]] = {}  # job id -> R, of jobs not in `FakeInstance.jobs`
        self.jobspecs: dict[int, dict[str, Any]] = {}  # job id -> jobspec, likewise
        self.eventlogs: dict[int, list[dict[str, Any]]] = {}  # job id -> events (RFC 18), likewise
        self.most_waiting = 0  # maximum number of requests waiting at a time
        self._waiting: list[Message] = []

    def _lookup(self, msg: Message) -> None:
        self._waiting.append(msg)
        self.most_waiting = max(self.most_waiting, len(self._waiting))
        if len(self._waiting) == 1:
            self.kernel.call_soon(self._answer)

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for msg in waiting:
            payload = msg.payload
            answer = {"id": payload["id"]}
            for key in payload["keys"]:
                value = self._value(payload["id"], key)
                if value is None:
                    self.respond_error(msg, errno.ENOENT, "invalid key")
                    break
                decode = payload.get("flags", 0) & 1
                answer[key] = value if decode else json.dumps(value)
            else:
                self.respond(msg, answer)

    def _value(self, jobid: int, key: str) -> Any:
        job = self.instance.jobs.get(jobid)
        if key == "R":
            return self.R.get(jobid) or (job and job.R)
        if key == "jobspec":
            return self.jobspecs.get(jobid) or (job and job.jobspec)
        if key == "eventlog":
            return self.eventlogs.get(jobid, job and job.events)
        return None

    def answer_attributes(self, service: FakeService, msg: Message) -> None:
        """Answer ``job-manager.getattr``. Raises OSError if the job is unknown, or has no such
        attribute."""
        payload = msg.payload
        answer = {name: self._value(payload["id"], name) for name in payload["attrs"]}
        for name, value in answer.items():
            if value is None:
                raise OSError(errno.EINVAL, f"{name} of job {payload['id']} is not known")
        service.respond(msg, answer)


class KeyValueStore(FakeService):
    """``kvs``: a dict."""

    def __init__(self, instance: Any) -> None:
        super().__init__(instance, "kvs", {"commit": self._commit})
        self.values: dict[str, str] = {}  # key -> text
        self.commits: list[dict[str, Any]] = []  # payloads of all commits
        self.failing = False  # whether to refuse every commit
        #: commits waiting for `release`; None: they are answered at once
        self.held: list[Message] | None = None

    def _commit(self, msg: Message) -> None:
        self.commits.append(msg.payload)
        if self.failing:
            raise OSError(errno.EIO, "disk on fire")
        if self.held is not None:
            self.held.append(msg)
        else:
            self._store(msg)

    def _store(self, msg: Message) -> None:
        for key, text in msg.payload["changes"]:
            if text is None:
                self.values.pop(key, None)
            else:
                self.values[key] = text
        self.respond(msg, {"rootseq": len(self.commits)})

    def hold(self) -> None:
        """Answer no commit until `release`."""
        self.held = []

    def release(self) -> None:
        """Answer the commits held back."""
        held, self.held = self.held or [], None
        for msg in held:
            self._store(msg)


def ranks_of(R: dict[str, Any]) -> IDset:
    return IDset(idset.text(rset.ranks(R)))


class FakeJob(SchedulableJob):
    """A job of a fake instance, made by `FakeInstance.submit`.

    Times are in seconds since the epoch. Effects of methods reach the scheduler when the instance
    runs next.

    Attributes:
        id (int): the job id
        jobspec (dict): its request (RFC 14)
        priority (int): 0 to 4294967295; see `set_priority`
        userid (int): the submitter
        t_submit (float): time of submission
        runtime (float): seconds from its start to its end; None: it does not end by itself
        state (str): ``pending``, ``running`` or ``inactive``
        result (str): of an inactive job: ``completed``, ``canceled`` or ``failed``; else None
        note (str): why it failed, or None
        R (dict): its resources (RFC 20); None until it runs
        t_start (float): its start, or None
        t_end (float): its end, or None
        annotations (dict): the scheduler's annotations (RFC 27), as shown by ``flux jobs``
        events (list): its allocation and exceptions, as in its eventlog (RFC 18, 21)
        signals (list): numbers of the signals sent to its tasks by the scheduler
        clean_up (float): seconds between an exception of severity 0 while it runs and the free of
            its resources; None: they are not freed until `end` is called
    """

    #: There are no queues here, so jobs may name any.
    queue_name = None
    state: str  # type: ignore[assignment]  # numbers elsewhere
    result: str | None = None

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
        super().__init__(id, userid, jobspec, 0, t_submit)
        self.priority = priority
        self.runtime = runtime
        self.state = "pending"
        self.note: str | None = None
        self.t_start: float | None = None
        self.t_end: float | None = None
        self.annotations: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []
        self.signals: list[int] = []
        self.clean_up: float | None = 0.0
        self._manager = manager
        #: its result if its request is withdrawn; None: it is not to be
        self._withdrawn: str | None = None
        self._end_timer: Call | None = None

    # -- state -------------------------------------------------------------------------------------

    @property
    def ranks(self) -> str | None:
        """The ranks that it holds (an idset); None until it runs."""
        return None if self.R is None else ranks_of(self.R).encode()

    @property
    def hosts(self) -> str | None:
        """The hosts that it holds (a hostlist); None until it runs."""
        if self.R is None:
            return None
        return Hostlist(self.R["execution"]["nodelist"]).encode()

    @property
    def expiration(self) -> float:
        """The expiration of its resources; 0: never, or it is not running."""
        return 0.0 if self.R is None else float(self.R["execution"].get("expiration", 0.0))

    @property
    def t_estimate(self) -> float | None:
        """The expected start that the scheduler announced, or None."""
        when = self._sched_annotations().get("t_estimate")
        return None if when is None else float(when)

    @property
    def reason_pending(self) -> str | None:
        """The reason of its wait that the scheduler gave, or None."""
        reason: str | None = self._sched_annotations().get("reason_pending")
        return reason

    def _sched_annotations(self) -> dict[str, Any]:
        found = self.annotations.get("sched")
        return found if isinstance(found, dict) else {}

    @property
    def name(self) -> str:
        """Its id as users write it, also in reasons of other jobs: ``ƒ2``."""
        name: str = JobID(self.id).f58
        return name

    def __repr__(self) -> str:
        return f"<{self.name}: {self.describe(self._manager.instance.start_time)}>"

    def describe(self, since: float) -> str:
        """Return one line: ranks and start, or annotations, or end; times are in seconds from
        `since` on."""
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

    # -- actions -----------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel it, as its owner does: a pending job's request is withdrawn, a running job
        ends."""
        self._stop("canceled")

    def _stop(self, result: str) -> None:
        if self.state == "running":
            self.end(result)
        elif self.waits:
            self._withdrawn = result
            is_requested = self.alloc_pending
            self._manager.sched.withdraw(self)
            if not is_requested:
                self.finish(result)

    def set_priority(self, priority: int) -> None:
        """Set its priority, 0 to 4294967295, while it is pending; with 0 it is held, and its
        request withdrawn."""
        self.priority = priority
        if self.waits:
            self._manager.submitted(self)

    def fail(self, note: str | None) -> None:
        """End it with an exception, whose error is `note`; a running job ends after its
        `clean_up`."""
        self.note = note
        if self.state == "running" and self.clean_up != 0:
            if self.clean_up is not None:
                reactor = self._manager.instance.reactor
                reactor.call_at(self._manager.instance.now() + self.clean_up, self._cleaned_up)
        else:
            self._stop("failed")

    def _cleaned_up(self) -> None:
        if self.state == "running":
            self.end("failed")

    def end(self, result: str = "completed") -> None:
        """End it now, as ``completed``, ``canceled`` or ``failed``, and free its resources. Raises
        ValueError if it is not running."""
        R = self._held()
        if self._end_timer is not None:
            self._end_timer.cancel()
        self.finish(result)
        self._manager.sched.give_back(self.id, R)

    def release(self, ranks: str) -> None:
        """Free some of its ranks (an idset) before the others, as after housekeeping (RFC 27);
        `end` frees the rest. Raises ValueError if it is not running, or has no such ranks."""
        held = self._held()
        leaving = IDset(ranks)
        missing = set(leaving) - set(ranks_of(held))
        if missing:
            raise ValueError(f"job {self.id} does not have rank {min(missing)}")
        self.freed = {*(self.freed or ()), *leaving}
        self._manager.sched.give_back(self.id, fragment(held, set(leaving)), final=False)

    def set_expiration(self, expiration: float) -> None:
        """Set the expiration of its resources (seconds since the epoch; 0: never), and run the
        instance until the scheduler has answered. Raises ValueError if it is not running, OSError
        if the scheduler refuses."""
        if self.state != "running" or self.R is None:
            raise ValueError(f"job {self.id} is {self.state}: only a running job has resources")
        self._manager.instance.request(
            "sched.expiration", {"id": self.id, "expiration": expiration}
        )
        self.R["execution"]["expiration"] = expiration

    def _held(self) -> dict[str, Any]:
        """Return R without freed resources."""
        if self.state != "running" or self.R is None:
            raise ValueError(f"job {self.id} is {self.state}: only a running job has resources")
        R: dict[str, Any] = self.R
        return fragment(R, set(ranks_of(R)) - self.freed) if self.freed else R

    # -- the job manager's side --------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        return self.state == "pending" and self._withdrawn is None

    @property
    def is_ending(self) -> bool:
        return self.state == "pending" and self._withdrawn is not None

    def begin(self) -> None:
        """Start it: it has been allocated resources."""
        reactor = self._manager.instance.reactor
        self.state, self.t_start = "running", reactor.now()
        self.post("alloc")
        if self.runtime is not None:
            self._end_timer = reactor.call_later(self.runtime, self.end)

    def post(self, name: str, **context: Any) -> None:
        """Append an event to its eventlog."""
        event: dict[str, Any] = {"timestamp": self._manager.instance.now(), "name": name}
        self.events.append({**event, "context": context} if context else event)

    def finish(self, result: str | None = None) -> None:
        """Make it inactive; without a result: its request was withdrawn."""
        self.state, self.result = "inactive", result or self._withdrawn
        self.t_end = self._manager.instance.now()
        if self.t_start is None:
            self.annotations = {}


class _Sched(Sched):
    """Jobs keep all of R: a scheduler loaded later may need its pool's own data. They may
    end, since that takes no time here, before the scheduler under which they fail is ready.
    """

    @staticmethod
    def kept(R: dict[str, Any]) -> dict[str, Any]:
        return R

    @property
    def knows_of_jobs(self) -> bool:
        return self.sender is not None


class JobManager(FakeService):
    """``job-manager``: sends requests for pending jobs to the scheduler, up to its maximum. A job
    replaces one of lower priority there."""

    def __init__(self, instance: Any) -> None:
        super().__init__(instance, "job-manager", {})
        self.h = self
        jobs = Jobs()
        jobs.active = instance.jobs
        #: the requests, and checks of their answers
        self.sched = _Sched(
            self,
            jobs,
            self,
            Queues(),
            self._holders,
            FakeJob.finish,
            lambda: instance.resource.acquired,
        )
        self.methods = {
            "sched-hello": self.sched.hello,
            "sched-ready": self.sched.ready,
            "alloc-query": self._query,
            "raise": self._raise,
            "getattr": self._getattr,
            "kill": self._kill,
            "memo": self._memo,
        }

    # -- to the scheduler --------------------------------------------------------------------------

    def submitted(self, job: FakeJob) -> None:
        """Send the request of a job that waits for resources, or whose priority has changed."""
        self.sched.enqueue(job)
        self.sched.pump()

    def scheduler_gone(self) -> None:
        """Withdraw the requests from a scheduler that is gone; they are sent again to the next."""
        self.sched.disconnected(self.sched.sender)

    # -- callbacks of `Sched` ----------------------------------------------------------------------

    def schedule(self) -> None:
        """Send messages soon."""
        self.kernel.call_soon(self.sched.pump)

    def send(self, function: Callable[..., Any], *args: Any) -> None:
        function(*args)

    def send_untagged(self, topic: str, payload: Any, flags: int = 0) -> None:
        """Send a request whose answers arrive in `answered`."""
        self.send_message(Message(REQUEST, topic, payload_text(payload), flags=flags))

    def notify(self, topic: str, payload: Any) -> None:
        self.send_untagged(topic, payload, FLAG_NORESPONSE)

    def post(self, job: FakeJob, name: str, context: Any = None) -> None:
        """Record an event of a job caused by the scheduler: its allocation."""
        job.begin()

    def raise_exception(self, job: FakeJob, type: str, severity: int, note: str) -> None:
        """Record the refusal of a job by the scheduler."""
        job.note = note or None
        job.post("exception", type=type, severity=severity, note=note)
        job.finish("failed")

    def annotated(self, job: FakeJob) -> None:
        """Ignore changes of annotations."""

    def log(self, level: int, text: str) -> None:
        if level <= LOG_ERR:
            self.instance.log.append((level, f"job-manager: {text}"))

    def _holders(self, partial_ok: bool) -> list[FakeJob]:
        return [job for job in self.instance.jobs.values() if job.state == "running"]

    # -- from the scheduler ------------------------------------------------------------------------

    def answered(self, msg: Message) -> None:
        if msg.topic == "sched.alloc":
            self.sched.alloc_response(msg)

    def _query(self, msg: Message) -> None:
        answer = {
            "queue_length": self.sched.queued,
            "alloc_pending": len(self.sched.pending),
            "alloc_limit": 0,
            "running": len(self._holders(True)),
        }
        self.respond(msg, answer)

    def _getattr(self, msg: Message) -> None:
        self.instance.job_info.answer_attributes(self, msg)

    def _raise(self, msg: Message) -> None:
        payload = msg.payload
        job = self.instance.jobs.get(payload["id"])
        if job is not None and job.state == "inactive":
            raise OSError(errno.ENOENT, "job is inactive")
        self.respond(msg)
        if job is not None:
            context = {key: payload.get(key) for key in ("type", "severity", "note")}
            job.post("exception", **context)
            if payload["severity"] == 0:
                job.fail(payload.get("note"))

    def _kill(self, msg: Message) -> None:
        job = self.instance.jobs.get(msg.payload["id"])
        if job is None or job.state != "running":
            raise OSError(errno.EINVAL, "job is not running")
        job.signals.append(msg.payload["signum"])
        self.respond(msg)

    def _memo(self, msg: Message) -> None:
        job = self.instance.jobs.get(msg.payload["id"])
        if job is None or job.state == "inactive":
            raise OSError(errno.ENOENT, "unknown job id")
        self.sched.annotate(job, {"user": msg.payload["memo"]})
        self.respond(msg)


def _seconds(seconds: float) -> str:
    """Format a time: ``90 s``."""
    return f"{seconds:.15g} s"
