"""The requests of the job manager, the jobs that wait for their answers, and the table of both (RFC 27).

A job's life in a scheduler
===========================

The job manager asks for a job's resources with ``sched.alloc``. From then on the scheduler knows
the job in one of these states, in this order:

open
    It is in the table. Usually a `PendingJob` waits for its sake in the queue; a policy may keep
    the request elsewhere. `Requests.open` puts it there when the message has come.
answered
    `AllocRequest.success`, `~AllocRequest.deny` or `~AllocRequest.cancel` has been called, by the
    policy for the first two, by the library when the request is withdrawn. The request leaves the
    table in that moment and cannot be answered again. Its job may still sit in the queue, since
    the policy is in the middle of a pass: the table notes it down, and takes it out before any
    other code of the policy runs (`Requests.sweep`, `Requests.end_step`).
holding
    After a success, or because ``hello`` found it running: the job has resources, until
    ``sched.free`` says that the last of them came back. Who changes this is `Scheduler` alone.

A job that was denied or whose request was withdrawn is unknown again; it may be asked for anew. No
job is open and holding at the same time: a request for one that holds resources is denied.
`Requests._check` has these rules as code.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

if TYPE_CHECKING:
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.queue import PendingQueue

Annotations = dict[str, Any]


def system_attributes(job: PendingJob) -> dict[str, Any]:
    """The system attributes of a job (RFC 14); empty if it has none, or a pool's request no jobspec."""
    try:
        system = job.resource_request.jobspec["attributes"]["system"]
    except (AttributeError, KeyError, TypeError):
        return {}
    return system if isinstance(system, dict) else {}


class AllocRequest:
    """One ``sched.alloc`` request, to be answered exactly once.

    `success`, `deny` or `cancel` answers it for good; `annotate` may be called any number of times
    before.

    Args:
        scheduler (Scheduler): who answers
        msg (Message): the request as received

    Attributes:
        jobid (int): the job it is for
        job (PendingJob or None): what waits for the answer in the queue
        outcome (str or None): None while open, then "success", "deny" or "cancel"
        table (Requests or None): where it is open; None for one made by hand
        userid (int or None): whose job it is; None: not known
        scheduler, msg: as given
    """

    __slots__ = (
        "scheduler",
        "msg",
        "jobid",
        "table",
        "job",
        "outcome",
        "userid",
        "_shown",
        "__dict__",
    )

    def __init__(self, scheduler: Any, msg: Any) -> None:
        self._begin(scheduler, msg, msg.payload["id"], None)

    def _begin(self, scheduler: Any, msg: Any, jobid: int, table: Optional[Requests]) -> None:
        self.scheduler = scheduler
        self.msg = msg
        self.jobid = jobid
        self.table = table
        self.job: Optional[PendingJob] = None
        self.outcome: Optional[str] = None
        self.userid: Optional[int] = None
        #: the sched annotations that the job manager now shows for this job
        self._shown: Optional[Annotations] = None

    @property
    def finalized(self) -> bool:
        """Whether the request has had its answer."""
        return self.outcome is not None

    def read_jobspec(self) -> dict[str, Any]:
        """The jobspec, parsed from the message each time: a long queue keeps it as text."""
        jobspec: dict[str, Any] = self.msg.payload["jobspec"]
        return jobspec

    def _finalize(self, outcome: str) -> None:
        if self.outcome is not None:
            raise RuntimeError(
                f"job {self.jobid}: {outcome} after {self.outcome}: a request is answered once"
            )
        self.outcome = outcome
        if self.table is not None:
            self.table.answered(self)

    def _with_times(self, R: dict[str, Any]) -> dict[str, Any]:
        """`R` of a pool that nobody has stamped, with the time now and the end its job asked for."""
        execution = R.get("execution")
        if (
            not isinstance(execution, dict)
            or execution.get("starttime") != 0
            or execution.get("expiration") != 0
        ):
            return R
        if not hasattr(type(self.scheduler), "now"):
            return R  # something that only records the answers
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
        R: Union[ResourcePool, dict[str, Any], Any],
        annotations: Optional[Annotations] = None,
        clear: bool = True,
    ) -> None:
        """Give the job its resources.

        Args:
            R: a pool object (anything with ``to_dict()``) or an R dict (RFC 20). A pool without
                ``starttime`` and ``expiration`` gets the time now, and the end that follows from
                the job's duration or, without one, from the instance; a dict is taken as it is
            annotations (dict): annotations to attach (RFC 27)
            clear (bool): remove the sched annotations that were set while the job was pending,
                except those that `annotations` sets

        Raises:
            RuntimeError: the request was answered before
        """
        if hasattr(R, "to_dict"):
            R = self._with_times(R.to_dict())
        self._finalize("success")
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
            self.table.failed(self, exc)

    def deny(self, note: Optional[str] = None) -> None:
        """Refuse for good: the job will never run here.

        Args:
            note (str): why, for the user

        Raises:
            RuntimeError: the request was answered before
        """
        self._finalize("deny")
        self._shown = None
        self.scheduler.alloc_deny(self.msg, note)

    def cancel(self) -> None:
        """Confirm that the request was withdrawn, clearing what was annotated.

        Raises:
            RuntimeError: the request was answered before
        """
        self._finalize("cancel")
        if self._shown:
            self.scheduler.alloc_annotate(self.msg, {"sched": dict.fromkeys(self._shown)})
        self._shown = None
        self.scheduler.alloc_cancel(self.msg)

    def annotate(self, annotations: Annotations) -> None:
        """Update the job's annotations; ignored once the request has its answer.

        A null removes a key; for one that was never set it is left out.

        Args:
            annotations (dict): merged with what is shown (RFC 27)
        """
        if self.outcome is not None:
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
                self.table.speaks(self)
            self.scheduler.alloc_annotate(self.msg, annotations)


class TabledRequest(AllocRequest):
    """An `AllocRequest` that a table keeps, whose message was read before: reading it again would
    cost as much."""

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
        resource_request: what the job needs, as the pool's ``parse_resource_request()`` gave it

    Attributes:
        order: what jobs are sorted by; whoever changes it puts the queue in order
        place (int): of the queue: where the job was seen last in the heap
        next_order: of the queue: what `order` is to be once the heap is put in order
        queued (bool): of a `Backlog`: whether the job is in it, and not set aside
        looked (int): of a `Backlog`: the epoch in which the job was found blocked
        shape: of a `Backlog`: what jobs that ask for the same have in common; None: not known
        limit (float): of a `Backlog`: seconds the job may run; infinite without a limit
        special (bool): of a `Backlog`: what was found of other jobs of its shape does not hold for
            this one, as for a job with resources promised
        came (float): when the request came, seconds since the epoch
        told (float or None): of a `PolicyScheduler`: when its user was told something about it
        silent (bool): of a `PolicyScheduler`: whether there will be a time to tell more
        estimate (tuple or None): of a `PolicyScheduler`: the estimate to tell then, and its kind
        estimate_kind (str or None): of a `PolicyScheduler`: what the estimate is that was told
        reason_shown (str or None): of a `PolicyScheduler`: the reason that was told
        reservation (str or None): of a `PolicyScheduler`: the name of the reservation it is to run in

    A policy may hang attributes of its own on a job.
    """

    # "__dict__" costs nothing until a policy adds an attribute.
    __slots__ = (
        "jobid",
        "_priority",
        "order",
        "place",
        "next_order",
        "queued",
        "looked",
        "shape",
        "limit",
        "special",
        "t_submit",
        "request",
        "resource_request",
        "_last_annotation",
        "came",
        "__dict__",
        "__weakref__",
    )

    # What few jobs ever have costs the others nothing.
    estimate: Optional[tuple[Optional[float], Optional[str]]] = None
    estimate_kind: Optional[str] = None
    reason_shown: Optional[str] = None
    reservation: Optional[str] = None
    told: Optional[float] = None
    silent = False

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
        self.looked = 0
        self.shape: Any = None
        self.limit = inf
        self.special = False
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
    def priority(self) -> int:
        """The job's priority. After setting it, the heap the job is in must be put in order."""
        return self._priority

    @priority.setter
    def priority(self, priority: int) -> None:
        self.order = self.prioritize(priority)

    def prioritize(self, priority: int) -> Any:
        """Change the priority, and return what `order` is to be then, which is up to the queue."""
        self._priority = priority
        request = self.request
        table = request.table if isinstance(request, AllocRequest) else None
        if table is None or table.order is None:
            return -priority
        return table.order(self)

    def __lt__(self, other: PendingJob) -> bool:
        mine = self.order
        theirs = other.order
        return bool(mine < theirs or (mine == theirs and self.jobid < other.jobid))

    def __repr__(self) -> str:
        return f"PendingJob(jobid={self.jobid}, priority={self._priority})"


class Requests:
    """The table of open requests, of jobs just answered, and of jobs that hold resources.

    Every operation costs the same however many there are, `job_of` in a queue of a policy's own
    aside.

    Args:
        queue (PendingQueue): where the jobs wait
        order: function giving the `PendingJob.order` of a job, or None: by priority
        failed: ``failed(request, error)``, called when a success could not be sent; None: the error
            is raised

    Attributes:
        holding (set of int): ids of the jobs that hold resources
        to_sweep (list): jobs whose request has its answer, and that may still sit in the queue
        order, failed: as given
    """

    def __init__(
        self,
        queue: PendingQueue,
        order: Optional[Callable[[PendingJob], Any]] = None,
        failed: Optional[Callable[[AllocRequest, Exception], None]] = None,
    ) -> None:
        self.queue = queue
        self.order = order
        self.failed = failed
        self.holding: set[int] = set()
        self._open: dict[int, AllocRequest] = {}
        self.to_sweep: list[PendingJob] = []
        #: length of the queue when the step under way began
        self._before = 0
        #: the request that is being answered or annotated
        self._speaking: Optional[AllocRequest] = None

    def __contains__(self, jobid: object) -> bool:
        return jobid in self._open

    def __len__(self) -> int:
        return len(self._open)

    def open(self, scheduler: Any, msg: Any, jobid: int) -> AllocRequest:
        """Enter a request that has come, and return it."""
        request = self._open[jobid] = TabledRequest(scheduler, msg, jobid, self)
        return request

    def get(self, jobid: int) -> Optional[AllocRequest]:
        """The open request of a job, or None."""
        return self._open.get(jobid)

    def speaks(self, request: AllocRequest) -> None:
        """`request` is about to have the scheduler send something."""
        self._speaking = request

    def jobid_of(self, msg: Any) -> int:
        """The job id in a ``sched.alloc`` message, if possible without decoding it again."""
        request = self._speaking
        if request is not None and request.msg is msg:
            return request.jobid
        jobid: int = msg.payload["id"]
        return jobid

    def answered(self, request: AllocRequest) -> None:
        """`request` has its answer: it is not open any more, and its job must not be looked at."""
        self._speaking = request
        if self._open.get(request.jobid) is request:
            del self._open[request.jobid]
        job, request.job = request.job, None  # no cycles are left for the collector
        if job is not None:
            self.to_sweep.append(job)

    def job_of(self, jobid: int) -> Optional[PendingJob]:
        """The queued job of an open request, or None; it searches for one that a policy queued itself."""
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

    # -- around each step of the policy's code ---------------------------------------------------------

    def sweep(self) -> None:
        """Take jobs out of the queue that were answered by code that ran outside of a pass."""
        for job in self.to_sweep:
            self.queue.remove(job)
        self.to_sweep.clear()

    def begin_step(self) -> None:
        """A policy's code is about to run: it must find only jobs that wait."""
        if self.to_sweep:
            self.sweep()
        self._before = len(self.queue)

    def end_step(self) -> None:
        """A policy's code has run: what it has answered leaves the queue before anything else happens."""
        answered = self.to_sweep
        if answered:
            # The usual policy pops what it answers, which this length tells without a search.
            if len(self.queue) != self._before - len(answered):
                self.sweep()
            answered.clear()

    def _check(self) -> None:
        """Check the rules of a job's life; AssertionError with what is wrong."""
        for jobid, request in self._open.items():
            assert request.jobid == jobid and request.table is self, f"{jobid}: wrong entry"
            assert request.outcome is None, f"{jobid}: open after {request.outcome}"
            assert request.job is None or request.job.request is request, f"{jobid}: wrong job"
        both = self.holding & self._open.keys()
        assert not both, f"open and holding resources: {sorted(both)}"
        for job in self.to_sweep:
            assert job.request.outcome is not None, f"{job}: noted as answered, and is open"
        gone = [
            job
            for job in self.queue.settle()
            if job.request.outcome is not None and job not in self.to_sweep
        ]
        assert not gone, f"in the queue after their answer: {gone}"
