# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager's requests, their pending jobs, and the table of both (RFC 27).

The job manager requests a job's resources with ``sched.alloc``. `Requests.open` enters the request
into the table; usually its `PendingJob` is in the queue, but a policy may keep the request
elsewhere. `AllocRequest.success`, `~AllocRequest.deny` or `~AllocRequest.cancel` answers it: the
policy calls the first two, the library the last, when the request is withdrawn. The request then
leaves the table. Its job may still be in the queue, in the middle of a pass: the table removes it
before any other code of the policy runs (`Requests.sweep`, `Requests.end_step`).

`flux.scheduler.states` has the states of requests and jobs, and their transitions. A job that was
denied, or whose request was withdrawn, is unknown, and may be requested again. A second request for
a job that is not is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any, Callable

from flux.resource.pool.masks import popcount, quote
from flux.resource.pool.rv1 import read_lite
from flux.resource.request import Remembered
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.host import name_of
from flux.scheduler.states import (
    JOB,
    OPEN,
    QUEUED,
    REQUEST,
    RUNNING,
    UNKNOWN,
    IllegalMove,
)

Annotations = dict[str, Any]

#: Attributes and events of most running jobs; do not change.
NO_ATTRIBUTES = SystemAttributes({})
NO_EVENTS: list[dict[str, Any]] = []

#: Added to the order of a job that goes behind all others: exceeds any priority.
BEHIND_ALL = 1 << 33


class AllocRequest:
    """A ``sched.alloc`` request, to be answered exactly once.

    `success`, `deny` or `cancel` answers it finally; `annotate` may be called any number of times
    before.

    Args:
        scheduler (Scheduler): the scheduler, which sends the answers
        msg (Message): the request as received

    Attributes:
        jobid (int): the job id
        job (PendingJob or None): the queued job of the request
        state (str): one of `flux.scheduler.states.REQUEST`: "open", "succeeded", "denied",
            "canceled"
        finalized (bool): whether the request was answered
        table (Requests or None): the table of the open request; None for one made by hand
        userid (int or None): the job's user, if known
        scheduler, msg: as given
    """

    __slots__ = (
        "scheduler",
        "msg",
        "jobid",
        "table",
        "job",
        "state",
        "finalized",
        "userid",
        "_shown",
        "__dict__",
    )

    def __init__(self, scheduler: Any, msg: Any) -> None:
        self._begin(scheduler, msg, msg.payload["id"], None)

    def _begin(self, scheduler: Any, msg: Any, jobid: int, table: Requests | None) -> None:
        self.scheduler = scheduler
        self.msg = msg
        self.jobid = jobid
        self.table = table
        self.job: PendingJob | None = None
        self.state = OPEN
        self.finalized = False
        self.userid: int | None = None
        #: sched annotations that the job manager shows for this job
        self._shown: Annotations | None = None

    def read_jobspec(self) -> dict[str, Any]:
        """Parse the jobspec from the message, each time: a long queue keeps it as text."""
        jobspec: dict[str, Any] = self.msg.payload["jobspec"]
        return jobspec

    def _answer(self, event: str) -> None:
        """Record the answer. Raises IllegalMove if the request was already answered."""
        if self.state != OPEN:
            raise IllegalMove(
                f"job {self.jobid}: {event} of a request that is {self.state}: it is answered once"
            )
        self.state, self.finalized = REQUEST.next[OPEN, event], True
        if self.table is not None:
            self.table.answered(self, event)

    def fail(self, note: str) -> None:
        """Deny the request after all: the success could not be sent."""
        self.state = REQUEST.after(self.state, "fail")
        self._send("alloc_deny", note)

    def _with_times(self, R: dict[str, Any]) -> dict[str, Any]:
        """Return `R`, with the current time and the end from the job's request if its times are not
        set."""
        execution = R.get("execution")
        if (
            not isinstance(execution, dict)
            or execution.get("starttime") != 0
            or execution.get("expiration") != 0
        ):
            return R
        if self.job is not None:
            duration = getattr(self.job.resource_request, "duration", 0)
        else:
            duration = (
                self.read_jobspec().get("attributes", {}).get("system", {}).get("duration", 0)
            )
        now = self.scheduler.now()
        end = now + duration if duration > 0 else self.scheduler.resources.expiration
        return dict(R, execution=dict(execution, starttime=now, expiration=end))

    def success(
        self,
        R: ResourcePool | dict[str, Any] | Any,
        annotations: Annotations | None = None,
        clear: bool = True,
    ) -> None:
        """Answer the request with resources.

        Args:
            R: a pool object (with ``to_dict()``) or an R dict (RFC 20). If ``starttime`` and
                ``expiration`` of a pool are not set, they become the current time, and the end by
                the job's duration or else the instance's; a dict is not checked
            annotations (dict): annotations to attach (RFC 27)
            clear (bool): whether to remove the sched annotations set while the job was pending,
                except those in `annotations`

        Raises:
            IllegalMove: the request was already answered (a RuntimeError); if it was canceled or
                denied, resources allocated to the job since then are freed
        """
        if self.state != OPEN and self.table is not None and not self.table.is_running(self.jobid):
            self.table.will_not_run(self.jobid)
        if type(R) is not dict and hasattr(R, "to_dict"):
            R = self._with_times(R.to_dict())
        self._answer("success")
        if clear and self._shown:
            annotations = annotations or {}
            own = annotations.get("sched", {})
            if isinstance(own, dict):
                sched = {**dict.fromkeys(self._shown), **own}
                annotations = {**annotations, "sched": sched}
        self._shown = None
        try:
            self.scheduler.alloc_success(self.msg, R, annotations)
        except Exception as exc:
            if self.table is None:
                raise
            self.table.success_failed(self, R, exc)

    def deny(self, note: str | None = None) -> None:
        """Deny the request: the job will never run here, for the reason `note`. Raises IllegalMove
        (a RuntimeError) if it was already answered."""
        self._answer("deny")
        self._shown = None
        self._send("alloc_deny", note)

    def cancel(self) -> None:
        """Confirm that the request is withdrawn, and clear its annotations. Raises IllegalMove (a
        RuntimeError) if it was already answered."""
        self._answer("cancel")
        if self._shown:
            self._send("alloc_annotate", {"sched": dict.fromkeys(self._shown)})
        self._shown = None
        self._send("alloc_cancel")

    def annotate(self, annotations: Annotations) -> None:
        """Merge annotations (RFC 27) with those of the job; ignored if the request is answered. A
        null removes a key; it is not sent for a key that was never set."""
        if self.state != OPEN:
            return
        if not isinstance(annotations, dict):
            raise TypeError(f"annotate(): expected a dict, got {quote(annotations)}")
        sched = annotations.get("sched")
        if isinstance(sched, dict):
            before = self._shown or {}
            sent = {
                key: value for key, value in sched.items() if value is not None or key in before
            }
            shown = {**before, **sent}
            self._shown = {key: value for key, value in shown.items() if value is not None} or None
            if len(sent) < len(sched):
                annotations = {**annotations, "sched": sent}
                if not sent:
                    del annotations["sched"]
        if annotations:
            if self.table is not None:
                self.table.note_sender(self)
            self._send("alloc_annotate", annotations)

    def _send(self, method: str, *arguments: Any) -> None:
        """Send an answer by one of the scheduler's methods, which a site may override."""
        try:
            getattr(self.scheduler, method)(self.msg, *arguments)
        except Exception as exc:
            if self.table is None:
                raise
            self.table.answer_failed(method, self.msg, arguments, exc)


class TabledRequest(AllocRequest):
    """An `AllocRequest` in a table, whose message is not decoded again."""

    __slots__ = ()

    def __init__(self, scheduler: Any, msg: Any, jobid: int, table: Requests) -> None:
        self._begin(scheduler, msg, jobid, table)


class PendingJob:
    """A job that waits for resources.

    Jobs compare by `order`, then by job id, the lowest first. The order is the negated priority,
    unless the scheduler has its own `order()`.

    Args:
        jobid (int): the job id
        priority (int): 0 to 4294967295, higher is more urgent
        t_submit (float): time of submission, seconds since the epoch
        request (AllocRequest): the open request, to answer once
        resource_request: the request from the pool's ``parse_resource_request()``

    Attributes:
        order: the job's sort key; after a change the queue must be sorted again
        came (float): arrival of the request, seconds since the epoch

    A policy may set its own attributes on a job. Other facts are in tables by job id, except those
    that the queue needs at each comparison: see ``__slots__``.
    """

    __slots__ = (
        "jobid",
        "_priority",
        "order",
        "t_submit",
        "request",
        "resource_request",
        "came",
        "_last_annotation",  # for a policy's last annotation
        # for the queue:
        "queued",  # whether the job is in the `Backlog` and not parked
        "group",  # its `walk.JobGroup` in the backlog, or None
        "examined",  # whether it was examined since it arrived or an event concerned it alone
        # Key of the jobs refused together: the shape of its request and the signatures of the
        # admission rules; None: not computed.
        "signature",
        "limit",  # seconds; infinite without a limit; -1: not computed
        "tried",  # a policy's number of the pass in which it was blocked; -1: none
        "_size",  # see `size`; -1: not computed
        # whether the job has a promise, and so is not in its group
        "promised",
        "demoted",  # whether it goes behind all other jobs, regardless of priority
        # Whether a rule has deferred it since its priority was set: it respects promises made to
        # others meanwhile.
        "was_deferred",
        "tally",  # how counting rules count it (`holdings.Tally`); None: not made yet
        # (sentence, end in seconds since the epoch) while it waits for a preference of its user,
        # for which no job is preempted; else None.
        "prefers",
        "latest",  # its latest start, seconds since the epoch; infinite: none
        "__dict__",  # costs nothing until a policy adds an attribute
        "__weakref__",
    )

    def __init__(
        self,
        jobid: int,
        priority: int,
        t_submit: float,
        request: Any,
        resource_request: Any,
    ) -> None:
        self.jobid = jobid
        self._priority = priority
        self.queued = False
        self.group: Any = None
        self.examined = False
        self.signature: Any = None
        self.limit = -1.0
        self._size = -1
        self.promised = False
        self.tried = -1
        self.demoted = False
        self.was_deferred = False
        self.tally: Any = None
        self.latest = inf
        self.prefers: tuple[str, float] | None = None
        self.t_submit = t_submit
        self.request = request
        self.resource_request = resource_request
        self._last_annotation: Any = None
        self.came = -inf
        self.order: Any = -priority
        if isinstance(request, AllocRequest):
            request.job = self
            if request.table is not None and request.table.order is not None:
                self.order = request.table.order(self)

    @property
    def name(self) -> str:
        """The job's id as users write it (RFC 19, F58)."""
        return name_of(self.jobid)

    @property
    def userid(self) -> int | None:
        """The job's user, or None if unknown."""
        userid: int | None = getattr(self.request, "userid", None)
        return userid

    @property
    def attributes(self) -> SystemAttributes:
        """The system attributes of its jobspec. Costs parsing that, since a long queue keeps it as
        text."""
        return SystemAttributes.of_job(self)

    @property
    def bank(self) -> str | None:
        """The job's bank, or None. Costs as `attributes`."""
        return self.attributes.bank

    @property
    def queue(self) -> str | None:
        """The job's queue, or None. Costs as `attributes`."""
        return self.attributes.queue

    @property
    def size(self) -> int:
        """The minimum number of cores that it requests; 0 if unknown."""
        size = self._size
        if size < 0:
            size = self._size = getattr(self.resource_request, "ncores", 0)
        return size

    @property
    def priority(self) -> int:
        """The job's priority. After setting it, the heap must be sorted again."""
        return self._priority

    @priority.setter
    def priority(self, priority: int) -> None:
        if self.queued:  # in a sorted list, which would no longer find it
            raise AttributeError(
                f"priority of {self.name}: set while it is queued: override order(), and call reorder() for changes"
            )
        self.order = self.prioritize(priority)

    @property
    def by_priority(self) -> int:
        """The default sort key; the lowest goes first."""
        return BEHIND_ALL - self._priority if self.demoted else -self._priority

    def prioritize(self, priority: int) -> Any:
        """Set the priority. Return the new `order`, for the queue to set."""
        if priority != self._priority:
            self.was_deferred = False
        self._priority = priority
        request = self.request
        table = request.table if isinstance(request, AllocRequest) else None
        if table is None or table.order is None:
            return self.by_priority
        try:
            return table.order(self)
        except (Exception, SystemExit) as exc:
            why = "order() sets the priority" if isinstance(exc, RecursionError) else exc
            table.report(f"{self.name} keeps its place in the queue: {why}")
            return self.order

    def __lt__(self, other: PendingJob) -> bool:
        mine, theirs = self.order, other.order
        return self.jobid < other.jobid if mine == theirs else bool(mine < theirs)

    def __repr__(self) -> str:
        return f"PendingJob(jobid={self.jobid}, priority={self._priority})"


class RunningJob:
    """A job that holds resources.

    Attributes:
        jobid (int): the job id
        userid (int): the job's user, or None if unknown
        size (int): minimum number of requested cores; for a job found running (RFC 27 hello), of
            held cores
        limit (float): time limit of its request in seconds; infinite without a limit
        start (float): its start, seconds since the epoch
        end (float): its latest end, seconds since the epoch; infinite: unknown
        ending (float): expected time of its final free, seconds since the epoch, if it was ended
            for another job, or has freed a part of its resources; else None
        predicted (float): run time expected at its start, in seconds, or None
        attributes (SystemAttributes): those in `PolicyScheduler.keep_attributes`. In
            `AdmissionRule.hello`: all, with updates applied, if a rule needs them; otherwise, or if
            unreadable, none
        eventlog (list): in `AdmissionRule.hello`: its events (RFC 18), if a rule needs them;
            otherwise, or if unreadable, empty
        unreadable (bool): whether required attributes or events were unreadable
        priority, t_submit: of a job found running: priority, and time of submission in seconds
            since the epoch; else None
    """

    ending: float | None = None
    attributes = NO_ATTRIBUTES
    eventlog = NO_EVENTS
    unreadable = False
    priority: Any = None
    t_submit: Any = None
    #: R as an object (RFC 20), from which the pool is made, or None
    R_object: dict[str, Any] | None = None

    def __init__(
        self,
        jobid: int,
        userid: int | None,
        size: int,
        limit: float,
        start: float,
        end: float,
        predicted: float | None = None,
    ) -> None:
        self.jobid = jobid
        self.userid = userid
        self.size = size
        self.limit = limit
        self.start = start
        self.end = end
        self.predicted = predicted

    @classmethod
    def found(cls, job: dict[str, Any], R: dict[str, Any]) -> RunningJob:
        """Return the record of a job found running, from the job manager's entry and its R (RFC
        20); its request is unknown."""
        execution = R["execution"]
        start = execution.get("starttime") or job["t_submit"]
        end = execution.get("expiration") or inf
        cores = sum(popcount(cores) * popcount(ranks) for ranks, cores, _ in read_lite(R))
        # The limit is a difference of sums: rounding to milliseconds restores the original, for the
        # job's class.
        found = cls(job["id"], job["userid"], cores, round(end - start, 3), start, end)
        found.priority, found.t_submit, found.R_object = job["priority"], job["t_submit"], R
        return found

    @property
    def R(self) -> ResourcePool | None:
        """The allocation of a job found running, while rules are told of it; the expiration is its
        end. None for a job started by this scheduler: its resources are in the pool. Made anew at
        each access: on a large machine it takes a hundred times as much memory as R."""
        return None if self.R_object is None else ResourcePool(self.R_object)

    @property
    def bank(self) -> str | None:
        """The job's bank, or None if it has none or is unknown."""
        return self.attributes.bank

    @property
    def queue(self) -> str | None:
        """The job's queue, or None if it has none or is unknown."""
        return self.attributes.queue

    def know(self, found: dict[str, Any] | None) -> None:
        """Set the attributes and eventlog from a lookup; None: they were unreadable."""
        self.unreadable = found is None
        found = found or {}
        self.attributes = SystemAttributes.from_jobspec(found.get("jobspec"))
        eventlog = found.get("eventlog")
        self.eventlog = eventlog if isinstance(eventlog, list) else NO_EVENTS

    def keep(self, names: Iterable[str]) -> None:
        """Drop the eventlog, and the attributes except `names`: the rules were told of the job."""
        self.eventlog = NO_EVENTS
        self.attributes = self.attributes.only(names) if names else NO_ATTRIBUTES


class Requests:
    """The table of open requests, and of the states of jobs.

    All operations are O(1), except `job_of` with a policy's own queue.
    """

    def __init__(
        self,
        queue: Any,
        order: Callable[[PendingJob], Any] | None = None,
        is_popped: bool = True,
    ) -> None:
        self.queue = queue  # the `PendingQueue`
        self.is_popped = is_popped  # whether policies take jobs out of the queue themselves
        self.order = order  # returns the `PendingJob.order` of a job; None: by priority
        # methods of the scheduler
        self.report: Callable[..., Any]
        self.will_not_run: Callable[[int], Any]
        self.success_failed: Callable[[AllocRequest, Any, Exception], Any]
        self.answer_failed: Callable[[str, Any, tuple[Any, ...], Exception], Any]
        #: ``on_answer(jobid, event)`` is called when a request is answered; `event` is "success",
        #: "deny" or "cancel". May be None
        self.on_answer: Callable[[int, str], Any] | None = None
        #: called as ``on_queue(job, jobspec)`` before a job is queued; raises ValueError if it can
        #: never run
        self.on_queue: Callable[[PendingJob, Any], Any] | None = None
        self._open: dict[int, AllocRequest] = {}
        #: job id -> state, for jobs that are not unknown
        self._states: dict[int, str] = {}
        #: shapes of jobs that have left since tables were emptied
        self._left_shapes: Remembered[Any, None] = Remembered()
        #: jobs with answered requests that may still be in the queue
        self.to_sweep: list[PendingJob] = []
        #: length of the queue at the beginning of the current step, without jobs deferred since
        self._before = 0
        #: the request being answered or annotated
        self._sender: AllocRequest | None = None

    def __contains__(self, jobid: object) -> bool:
        return jobid in self._open

    def __len__(self) -> int:
        return len(self._open)

    # -- the states of jobs ------------------------------------------------------------------------

    def state_of(self, jobid: int) -> str:
        """Return the state of a job, one of `flux.scheduler.states.JOB`."""
        return self._states.get(jobid, UNKNOWN)

    def is_running(self, jobid: int) -> bool:
        """Whether a job holds resources."""
        return jobid in self._states and self._states[jobid] == RUNNING

    def move(self, jobid: int, event: str) -> None:
        """Apply an event to a job's state. Raises IllegalMove if the event is impossible in this
        state."""
        before = self._states[jobid] if jobid in self._states else UNKNOWN
        try:
            after = JOB.next[before, event]
        except KeyError:
            raise JOB.illegal(before, event) from None
        if after == UNKNOWN:
            del self._states[jobid]
        else:
            self._states[jobid] = after

    @property
    def running(self) -> int:
        """The number of running jobs: known jobs without an open request.  O(1)."""
        return len(self._states) - len(self._open)

    def defer(self, jobid: int) -> None:
        """Let a pending job leave the queue without an answer."""
        self.move(jobid, "defer")
        self._before -= 1

    def readmit(self, jobid: int) -> None:
        """Let a deferred job return to the queue."""
        self.move(jobid, "readmit")
        self._before += 1

    # -- requests ----------------------------------------------------------------------------------

    def freed(self, jobid: int, final: bool) -> None:
        """Note that a job has freed resources, if it held any; `final`: all of them."""
        if jobid in self._states and self._states[jobid] == RUNNING:
            self.move(jobid, "final free" if final else "free")

    def open(self, scheduler: Any, msg: Any, jobid: int) -> AllocRequest | None:
        """Enter a request for an unknown job, and return it; None if the job is known."""
        if jobid in self._states:
            return None
        self._states[jobid] = JOB.next[UNKNOWN, "request"]
        request = self._open[jobid] = TabledRequest(scheduler, msg, jobid, self)
        return request

    def get(self, jobid: int) -> AllocRequest | None:
        """Return the open request of a job, or None."""
        return self._open.get(jobid)

    def jobs(self) -> list[PendingJob]:
        """Return the pending jobs, deferred ones included, in order of arrival.  O(jobs)."""
        return [one.job for one in self._open.values() if one.job is not None]

    def note_sender(self, request: AllocRequest) -> None:
        """Note the request for which the scheduler is about to send a message, so that its own
        message need not be decoded to find the job."""
        self._sender = request

    def jobid_of(self, msg: Any) -> int:
        """Return the job id in a ``sched.alloc`` message, if possible without decoding it again."""
        request = self._sender
        if request is not None and request.msg is msg:
            return request.jobid
        jobid: int = msg.payload["id"]
        return jobid

    def answered(self, request: AllocRequest, event: str) -> None:
        """Remove an answered request; its job must not be examined any more.

        A job whose request succeeds is running once R is passed on (`Scheduler.alloc_success`).
        """
        jobid = request.jobid
        self._sender = request
        if jobid in self._open and self._open[jobid] is request:
            del self._open[jobid]
            if event != "success":
                self.move(jobid, event)
                self.will_not_run(jobid)
        job, request.job = request.job, None  # leave no cycles for the collector
        if job is not None:
            self.to_sweep.append(job)
            try:
                shape = job.resource_request.shape
                if shape not in self._left_shapes:
                    Remembered.kept += shape.kept_bytes  # from now on only tables may keep it
                    self._left_shapes[shape] = None
            except AttributeError:
                pass  # a request of a site's own pool
        if self.on_answer is not None:
            self.on_answer(jobid, event)

    def job_of(self, jobid: int) -> PendingJob | None:
        """Return the queued job of an open request, or None. Costs a search if the policy has
        queued the job itself."""
        request = self._open.get(jobid)
        if request is None:
            return None
        if request.job is not None:
            return request.job
        return next((job for job in self.queue.settle() if job.jobid == jobid), None)

    def take_out(self, request: AllocRequest) -> None:
        """Take the job of `request` out of the queue."""
        job = self.job_of(request.jobid)
        if job is not None:
            self.queue.remove(job)
        request.job = None

    # -- around each step of the policy's code -----------------------------------------------------

    def put_back(self) -> None:
        """Queue the jobs again that a failed pass has taken out of the queue without an answer.
        O(pending jobs)."""
        if not self.is_popped:
            return
        queued = {job.jobid for job in self.queue.settle()}
        taken = [
            request.job
            for jobid, request in self._open.items()
            if jobid not in queued and request.job is not None and self.state_of(jobid) == QUEUED
        ]
        for job in taken:
            self.queue.push(job)

    def sweep(self) -> None:
        """Remove jobs from the queue that were answered outside a pass."""
        for job in self.to_sweep:
            self.queue.remove(job)
        self.to_sweep.clear()

    def begin_step(self) -> None:
        """Prepare for a step of the policy's code: the queue must have only pending jobs."""
        if self.to_sweep:
            self.sweep()
        self._before = len(self.queue)

    def end_step(self) -> None:
        """Remove answered jobs from the queue after a step of the policy's code."""
        # Most policies pop the jobs that they answer: the length shows that without a search.
        if self.is_popped and len(self.queue) == self._before - len(self.to_sweep):
            self.to_sweep.clear()
        else:
            self.sweep()
