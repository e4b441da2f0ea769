# SPDX-License-Identifier: LGPL-3.0-or-later
"""The requests of the job manager, the pending jobs that they are for, and the table of both (RFC
27).

The job manager requests a job's resources with ``sched.alloc``. `Requests.open` enters the request
into the table; usually its `PendingJob` waits in the queue, but a policy may keep the request
elsewhere. `AllocRequest.success`, `~AllocRequest.deny` or `~AllocRequest.cancel` answers
it: the policy calls the first two, the library the last when the request is withdrawn. The request
then leaves the table. Its job may still be in the queue, since the policy is in the middle of a
pass: the table remembers it, and removes it before any other code of the policy runs
(`Requests.sweep`, `Requests.end_step`).

`flux.scheduler.states` has the states of requests and jobs, and their transitions. A job that was
denied, or whose request was withdrawn, is unknown again, and may be requested again. A request for
a job that holds resources is denied. `Requests._check` compares the table with these rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any, Callable, Protocol

from flux.job import JobID
from flux.resource.pool.masks import popcount
from flux.resource.pool.remembered import count_kept
from flux.resource.pool.rv1 import read_lite
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.states import (
    DEFERRED,
    JOB,
    OPEN,
    QUEUED,
    REQUEST,
    RUNNING,
    UNKNOWN,
    IllegalMove,
)

Annotations = dict[str, Any]

#: The attributes and events of most running jobs; not to be changed.
NO_ATTRIBUTES = SystemAttributes({})
NO_EVENTS: list[dict[str, Any]] = []

#: Added to the order of a job that goes behind all others: more than any priority.
BEHIND_ALL = 1 << 33


class AllocRequest:
    """One ``sched.alloc`` request, to be answered exactly once.

    `success`, `deny` or `cancel` answers it for good; `annotate` may be called any number of times
    before.

    Args:
        scheduler (Scheduler): sends the answers
        msg (Message): the request as received

    Attributes:
        jobid (int): the job it is for
        job (PendingJob or None): the queued job of the request
        state (str): one of `flux.scheduler.states.REQUEST`: "open", "succeeded", "denied",
            "canceled"
        table (Requests or None): has the open request; None for one made by hand
        userid (int or None): the job's user; None: not known
        scheduler, msg: as given
    """

    __slots__ = (
        "scheduler",
        "msg",
        "jobid",
        "table",
        "job",
        "state",
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
        self.userid: int | None = None
        #: the sched annotations that the job manager now shows for this job
        self._shown: Annotations | None = None

    @property
    def finalized(self) -> bool:
        """Whether the request was answered."""
        return self.state != OPEN

    def read_jobspec(self) -> dict[str, Any]:
        """The jobspec, parsed from the message each time: a long queue keeps it as text."""
        jobspec: dict[str, Any] = self.msg.payload["jobspec"]
        return jobspec

    def _answer(self, event: str) -> None:
        """Record that the request is being answered.

        Raises:
            IllegalMove: it was answered before
        """
        if self.state != OPEN:
            raise IllegalMove(
                f"job {self.jobid}: {event} of a request that is {self.state}: it is answered once"
            )
        self.state = REQUEST.next[OPEN, event]
        if self.table is not None:
            self.table.answered(self, event)

    def fail(self) -> None:
        """The success could not be sent: the request is denied after all."""
        self.state = REQUEST.after(self.state, "fail")

    def _with_times(self, R: dict[str, Any]) -> dict[str, Any]:
        """`R`; if its times were not set, with the current time and the end from its job's
        request."""
        execution = R.get("execution")
        if (
            not isinstance(execution, dict)
            or execution.get("starttime") != 0
            or execution.get("expiration") != 0
        ):
            return R
        if not hasattr(self.scheduler, "now"):
            return R  # a stand-in that only records the answers
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
            R: a pool object (anything with ``to_dict()``) or an R dict (RFC 20). A pool without
                ``starttime`` and ``expiration`` gets the current time, and the end by the job's
                duration or, without one, that of the instance; a dict is not checked
            annotations (dict): annotations to attach (RFC 27)
            clear (bool): remove the sched annotations that were set while the job was pending,
                except those that `annotations` sets

        Raises:
            IllegalMove: the request was answered before (a RuntimeError); if it was canceled or denied,
                resources that the pool has given the job since are freed
        """
        if self.table is not None and self.finalized and not self.table.is_running(self.jobid):
            self.table.will_not_run(self.jobid)
        if hasattr(R, "to_dict"):
            R = self._with_times(R.to_dict())
        self._answer("success")
        if clear and self._shown:
            sched: Any = dict.fromkeys(self._shown)
            annotations = dict(annotations or {})
            own = annotations.get("sched")
            if isinstance(own, dict):
                sched.update(own)
            elif "sched" in annotations:
                sched = own
            annotations["sched"] = sched
        self._shown = None
        try:
            self.scheduler.alloc_success(self.msg, R, annotations)
        except Exception as exc:
            if self.table is None or self.table.failed is None:
                raise
            self.table.failed(self, R, exc)

    def deny(self, note: str | None = None) -> None:
        """Deny the request: the job will never run here.

        Args:
            note (str): why, for the user

        Raises:
            IllegalMove: the request was answered before (a RuntimeError)
        """
        self._answer("deny")
        self._shown = None
        self.scheduler.alloc_deny(self.msg, note)

    def cancel(self) -> None:
        """Confirm that the request was withdrawn, and clear its annotations.

        Raises:
            IllegalMove: the request was answered before (a RuntimeError)
        """
        self._answer("cancel")
        if self._shown:
            self.scheduler.alloc_annotate(self.msg, {"sched": dict.fromkeys(self._shown)})
        self._shown = None
        self.scheduler.alloc_cancel(self.msg)

    def annotate(self, annotations: Annotations) -> None:
        """Update the job's annotations; ignored once the request was answered.

        A null removes a key; it is not sent for one that was never set.

        Args:
            annotations (dict): merged with the current ones (RFC 27)
        """
        if self.state != OPEN:
            return
        sched = annotations.get("sched")
        if isinstance(sched, dict):
            shown = self._shown
            if None in sched.values():
                sched = {
                    key: value
                    for key, value in sched.items()
                    if value is not None or (shown and key in shown)
                }
                annotations = dict(annotations)
                if sched:
                    annotations["sched"] = sched
                else:
                    del annotations["sched"]
            for key, value in sched.items():
                if value is not None:
                    if shown is None:
                        shown = self._shown = {}
                    shown[key] = value
                elif shown:
                    shown.pop(key, None)
        if annotations:
            if self.table is not None:
                self.table.note_sender(self)
            self.scheduler.alloc_annotate(self.msg, annotations)


class TabledRequest(AllocRequest):
    """An `AllocRequest` of a table, whose message is already decoded: decoding it again would cost
    as much."""

    __slots__ = ()

    def __init__(self, scheduler: Any, msg: Any, jobid: int, table: Requests) -> None:
        self._begin(scheduler, msg, jobid, table)


class PendingJob:
    """A job waiting for resources.

    Jobs compare by `order`, the lowest first, then by job id, the lowest first. Their order is the
    negated priority, so that the highest priority comes first, unless the scheduler has an
    `order()` of its own.

    Args:
        jobid (int): the job id
        priority (int): 0 to 4294967295, higher is more urgent
        t_submit (float): time of submission, seconds since the epoch
        request (AllocRequest): the open request, to be answered once
        resource_request: the request that the pool's ``parse_resource_request()`` returned

    Attributes:
        order: the sort key of the job; after a change the queue must be sorted
        came (float): when the request came, seconds since the epoch

    A policy may set attributes of its own on a job. Further facts are in tables by job id, except for
    those that the queue needs at each comparison: see ``__slots__``.
    """

    __slots__ = (
        "jobid",
        "_priority",
        "order",
        "t_submit",
        "request",
        "resource_request",
        "came",
        "_last_annotation",  # a policy's own, for its last annotation
        # The queue's own:
        "place",  # the job's last known index in the heap
        "next_order",  # the `order` from the next sort of the heap on
        "queued",  # whether the job is in the `Backlog`, and not parked
        "examined",  # whether it was, since it came in or an event concerned it alone
        # The key of the jobs that are refused together: the shape of its request,
        # and the signatures of the admission rules. None: not known yet.
        "signature",
        "limit",  # seconds the job may run; infinite without a limit; -1: not known yet
        "tried",  # a number that a policy gave it when it was found blocked; -1: it was not
        "_size",  # see `size`; -1: not computed yet
        # The job has a promise, so it is not among the others of its signature.
        "promised",
        "demoted",  # whether it goes behind all that are not, regardless of priority
        # Whether a rule has deferred it since it got its priority: it respects the promises made to
        # others meanwhile.
        "was_deferred",
        # Why it waits for an optional preference of its user, in a sentence, and until when,
        # seconds since the epoch: no job is preempted for that. None: it does not.
        "prefers",
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
        self.place = 0
        self.queued = False
        self.examined = False
        self.signature: Any = None
        self.limit = -1.0
        self._size = -1
        self.promised = False
        self.tried = -1
        self.demoted = False
        self.was_deferred = False
        self.prefers: tuple[str, float] | None = None
        self.t_submit = t_submit
        self.request = request
        self.resource_request = resource_request
        self._last_annotation: Any = None
        self.came = -inf
        self.order: Any = -priority
        self.next_order: Any = None
        if isinstance(request, AllocRequest):
            request.job = self
            if request.table is not None and request.table.order is not None:
                self.order = request.table.order(self)

    @property
    def name(self) -> str:
        """The job's id as users write it (RFC 19, F58)."""
        return str(JobID(self.jobid).f58)

    @property
    def userid(self) -> int | None:
        """The job's user; None: not known."""
        userid: int | None = getattr(self.request, "userid", None)
        return userid

    @property
    def attributes(self) -> SystemAttributes:
        """The system attributes of its jobspec. Costs parsing it, since a long queue keeps it as
        text."""
        return SystemAttributes.of_job(self)

    @property
    def bank(self) -> str | None:
        """The job's bank; None: it names none. Costs as `attributes`."""
        return self.attributes.bank

    @property
    def queue(self) -> str | None:
        """The job's queue; None: it names none. Costs as `attributes`."""
        return self.attributes.queue

    @property
    def size(self) -> int:
        """The minimum number of cores that it requests; 0 if not known."""
        size = self._size
        if size < 0:
            size = self._size = getattr(self.resource_request, "ncores", 0)
        return size

    @property
    def priority(self) -> int:
        """The job's priority. After setting it, the job's heap must be sorted again."""
        return self._priority

    @priority.setter
    def priority(self, priority: int) -> None:
        self.order = self.prioritize(priority)

    @property
    def by_priority(self) -> int:
        """The default sort key, the lowest first."""
        return BEHIND_ALL - self._priority if self.demoted else -self._priority

    def prioritize(self, priority: int) -> Any:
        """Change the priority, and return the new `order`, which the queue sets."""
        if priority != self._priority:
            self.was_deferred = False
        self._priority = priority
        request = self.request
        table = request.table if isinstance(request, AllocRequest) else None
        if table is None or table.order is None:
            return self.by_priority
        try:
            return table.order(self)
        except Exception as exc:
            table.order_failed(self, exc)
            return self.order

    def __lt__(self, other: PendingJob) -> bool:
        mine = self.order
        theirs = other.order
        return bool(mine < theirs or (mine == theirs and self.jobid < other.jobid))

    def __repr__(self) -> str:
        return f"PendingJob(jobid={self.jobid}, priority={self._priority})"


class RunningJob:
    """A job that holds resources.

    Attributes:
        jobid (int): the job id
        userid (int): the job's user; None: not known
        size (int): minimum number of requested cores; if it was found running (RFC 27 hello), of
            held ones
        limit (float): time limit of its request in seconds; infinite without a limit
        start (float): its start, seconds since the epoch
        end (float): its latest end, seconds since the epoch; infinite: not known
        predicted (float): run time expected at its start, in seconds; None: not known
        attributes (SystemAttributes): those in `PolicyScheduler.keep_attributes`. When a rule is
            told of it (`AdmissionRule.hello`): all, with updates applied, if a rule needs them;
            else, or if they could not be read, none
        eventlog (list): its events (RFC 18), when a rule is told of it and one needs them; else, or
            if they could not be read, empty
        unreadable (bool): a rule needs attributes or eventlog, and they could not be read
        priority, t_submit: if the job was found running, its priority and time of submission,
            seconds since the epoch; else None
    """

    __slots__ = (
        "jobid",
        "userid",
        "size",
        "limit",
        "start",
        "end",
        "predicted",
        "attributes",
        "eventlog",
        "unreadable",
        "priority",
        "t_submit",
        "R_object",  # R as an object (RFC 20), from which the pool is made; None: as for R
    )

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
        self.attributes = NO_ATTRIBUTES
        self.eventlog = NO_EVENTS
        self.unreadable = False
        self.priority: Any = None
        self.t_submit: Any = None
        self.R_object: dict[str, Any] | None = None

    @classmethod
    def found(cls, job: dict[str, Any], R: dict[str, Any]) -> RunningJob:
        """Make the record of a job that was found running, from the job manager's entry and its R
        (RFC 20); its request is not known."""
        execution = R["execution"]
        start = execution.get("starttime") or job["t_submit"]
        end = execution.get("expiration") or inf
        cores = sum(popcount(cores) * popcount(ranks) for ranks, cores, _ in read_lite(R))
        # The limit is a difference of sums: rounded to the millisecond it is the job's own, and so
        # in the same class.
        found = cls(job["id"], job["userid"], cores, round(end - start, 3), start, end)
        found.priority, found.t_submit, found.R_object = job["priority"], job["t_submit"], R
        return found

    @property
    def R(self) -> ResourcePool | None:
        """The allocation of a job that was found running, while rules are told of it; the expiration is its end.
        None if this scheduler has started it: the pool has its resources. It is made anew each
        time: on a large machine it takes a hundred times as much memory as R."""
        return None if self.R_object is None else ResourcePool(self.R_object)

    @property
    def bank(self) -> str | None:
        """The job's bank, if known; else, or if it names none, None."""
        return self.attributes.bank

    @property
    def queue(self) -> str | None:
        """The job's queue, likewise."""
        return self.attributes.queue

    def know(self, found: dict[str, Any] | None) -> None:
        """Set the attributes and eventlog that were looked up; None: they could not be read."""
        self.unreadable = found is None
        found = found or {}
        self.attributes = SystemAttributes.of(found.get("jobspec"))
        eventlog = found.get("eventlog")
        self.eventlog = eventlog if isinstance(eventlog, list) else NO_EVENTS

    def keep(self, names: Iterable[str]) -> None:
        """Rules were told of it: forget its eventlog, and its attributes but for some."""
        self.eventlog = NO_EVENTS
        self.attributes = self.attributes.only(names) if names else NO_ATTRIBUTES


class _Queue(Protocol):
    """The interface of a `PendingQueue` for requests."""

    def settle(self) -> list[PendingJob]: ...

    def push(self, job: PendingJob) -> None: ...

    def remove(self, job: PendingJob) -> None: ...

    def __len__(self) -> int: ...


class Requests:
    """The table of open requests, and of the states of jobs.

    All operations are O(1), except `job_of` in a queue of a policy's own.

    Args:
        queue (PendingQueue): the queue of pending jobs
        order: function giving the `PendingJob.order` of a job, or None: by priority
        failed: ``failed(request, R, error)``, called when a success could not be sent; None: the
            error is raised

    Attributes:
        to_sweep (list): jobs whose request was answered, and that may still be in the queue
        on_answer: called as ``on_answer(jobid, event)`` when a request is answered; `event` is
            "success", "deny" or "cancel". None: it is not called
        order, failed: as given
    """

    def __init__(
        self,
        queue: _Queue,
        order: Callable[[PendingJob], Any] | None = None,
        failed: Callable[[AllocRequest, Any, Exception], None] | None = None,
    ) -> None:
        self.queue = queue
        self.order = order
        #: called with a job whose `order` raised when its priority changed
        self.order_failed: Callable[[PendingJob, Exception], None] = lambda job, error: None
        #: called with the id of a job that was denied or canceled: the pool may have given it resources
        self.will_not_run: Callable[[int], None] = lambda jobid: None
        self.failed = failed
        self.on_answer: Callable[[int, str], Any] | None = None
        #: called as ``on_queue(job, jobspec)`` before a job is queued; raises ValueError if it can
        #: never run
        self.on_queue: Callable[[PendingJob, Any], Any] | None = None
        self._open: dict[int, AllocRequest] = {}
        #: by id, the state of each job that is not unknown
        self._states: dict[int, str] = {}
        self.to_sweep: list[PendingJob] = []
        #: length of the queue when the current step began, without jobs deferred since
        self._before = 0
        #: the request that is being answered or annotated
        self._sender: AllocRequest | None = None

    def __contains__(self, jobid: object) -> bool:
        return jobid in self._open

    def __len__(self) -> int:
        return len(self._open)

    # -- the states of jobs ------------------------------------------------------------------------

    def state_of(self, jobid: int) -> str:
        """The state of a job, one of `flux.scheduler.states.JOB`."""
        return self._states.get(jobid, UNKNOWN)

    def is_running(self, jobid: int) -> bool:
        """Whether a job holds resources."""
        return self._states.get(jobid) == RUNNING

    def move(self, jobid: int, event: str) -> None:
        """Apply an event to a job's state.

        Raises:
            IllegalMove: the event is impossible in this state
        """
        before = self._states.get(jobid, UNKNOWN)
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
        """The number of running jobs: those that are known and have no open request.  O(1)."""
        return len(self._states) - len(self._open)

    def defer(self, jobid: int) -> None:
        """A pending job leaves the queue without an answer, in the current step if there is
        one."""
        self.move(jobid, "defer")
        self._before -= 1

    def readmit(self, jobid: int) -> None:
        """A deferred job comes back into the queue."""
        self.move(jobid, "readmit")
        self._before += 1

    # -- requests ----------------------------------------------------------------------------------

    def open(self, scheduler: Any, msg: Any, jobid: int) -> AllocRequest:
        """Enter a new request, and return it. A request of a running job is entered as well, to be
        denied."""
        request = self._open[jobid] = TabledRequest(scheduler, msg, jobid, self)
        if jobid not in self._states:
            self.move(jobid, "request")
        return request

    def get(self, jobid: int) -> AllocRequest | None:
        """The open request of a job, or None."""
        return self._open.get(jobid)

    def note_sender(self, request: AllocRequest) -> None:
        """`request` is about to have the scheduler send a message: remember it, so that its own
        message need not be decoded again to find the job."""
        self._sender = request

    def jobid_of(self, msg: Any) -> int:
        """The job id in a ``sched.alloc`` message, if possible without decoding it again."""
        request = self._sender
        if request is not None and request.msg is msg:
            return request.jobid
        jobid: int = msg.payload["id"]
        return jobid

    def answered(self, request: AllocRequest, event: str) -> None:
        """`request` was answered: it is no longer open, and its job must not be examined.

        A job whose request succeeds is running once R is passed on (`Scheduler.alloc_success`).
        """
        jobid = request.jobid
        self._sender = request
        if self._open.get(jobid) is request:
            del self._open[jobid]
            if event != "success" and not self.is_running(jobid):
                self.move(jobid, event)
                self.will_not_run(jobid)
        job, request.job = request.job, None  # leave no cycles for the collector
        if job is not None:
            self.to_sweep.append(job)
            # From now on only tables may keep it.
            shape = getattr(job.resource_request, "shape", None)
            count_kept(getattr(shape, "kept_bytes", 0))
        if self.on_answer is not None:
            self.on_answer(jobid, event)

    def job_of(self, jobid: int) -> PendingJob | None:
        """The queued job of an open request, or None; costs a search if a policy has queued the job
        itself."""
        request = self._open.get(jobid)
        if request is None:
            return None
        if request.job is not None:
            return request.job
        for job in self.queue.settle():
            if job.jobid == jobid:
                return job
        return None

    def take_out(self, request: AllocRequest) -> None:
        """Take the job of `request` out of the queue."""
        job = self.job_of(request.jobid)
        if job is not None:
            self.queue.remove(job)
        request.job = None

    # -- around each step of the policy's code -----------------------------------------------------

    def sweep(self) -> None:
        """Remove jobs from the queue that were answered by code outside of a pass."""
        for job in self.to_sweep:
            self.queue.remove(job)
        self.to_sweep.clear()

    def begin_step(self) -> None:
        """A policy's code is about to run: the queue must have only pending jobs."""
        if self.to_sweep:
            self.sweep()
        self._before = len(self.queue)

    def end_step(self) -> None:
        """A policy's code has run: remove answered jobs from the queue before other code runs."""
        answered = self.to_sweep
        if answered:
            # Most policies pop the jobs that they answer: the length shows that without a search.
            if len(self.queue) != self._before - len(answered):
                self.sweep()
            answered.clear()

    def _check(self) -> None:
        """Compare the table with the states; AssertionError if they differ."""
        for jobid, request in self._open.items():
            assert request.jobid == jobid and request.table is self, f"{jobid}: wrong entry"
            assert request.state == OPEN, f"{jobid}: in the table though {request.state}"
            assert request.job is None or request.job.request is request, f"{jobid}: wrong job"
            assert self.state_of(jobid) in (QUEUED, DEFERRED), f"{jobid}: {self.state_of(jobid)}"
        for jobid, state in self._states.items():
            assert state in JOB.moves and state != UNKNOWN, f"{jobid}: {state}"
            assert (state == RUNNING) != (jobid in self._open), f"{jobid}: {state}, request open"
        running = sum(1 for state in self._states.values() if state == RUNNING)
        assert running == self.running, f"{running} jobs hold resources, counted {self.running}"
        for job in self.to_sweep:
            assert job.request.state != OPEN, f"{job}: noted as answered, and is open"
        for job in self.queue.settle():
            assert job.request.state == OPEN or job in self.to_sweep, f"queued after answer: {job}"
            assert self.state_of(job.jobid) != DEFERRED, f"deferred, and in the queue: {job}"
