"""The requests of the job manager, and the jobs that wait for their answers (RFC 27)."""


class AllocRequest:
    """One ``sched.alloc`` request, to be answered exactly once.

    `success`, `deny` or `cancel` answers it for good; `annotate` may be called any number of times
    before.

    Args:
        scheduler (Scheduler): who answers
        msg (Message): the request as received

    Attributes:
        jobid (int): the job it is for
        scheduler, msg: as given
    """

    __slots__ = ("scheduler", "msg", "jobid", "outcome", "_shown", "_job", "__dict__")

    def __init__(self, scheduler, msg):
        self._open(scheduler, msg, msg.payload["id"])

    @classmethod
    def _of(cls, scheduler, msg, jobid):
        """The request in a message that was read before: reading it again would cost as much."""
        request = cls.__new__(cls)
        request._open(scheduler, msg, jobid)
        return request

    def _open(self, scheduler, msg, jobid):
        self.scheduler = scheduler
        self.msg = msg
        self.jobid = jobid
        #: None while open, then "success", "deny" or "cancel"
        self.outcome = None
        #: the sched annotations that the job manager now shows for this job
        self._shown = None
        #: the PendingJob that waits for the answer
        self._job = None

    @property
    def finalized(self):
        """Whether the request has had its answer."""
        return self.outcome is not None

    def _read_jobspec(self):
        return self.msg.payload["jobspec"]

    def _finalize(self, outcome):
        if self.outcome is not None:
            raise RuntimeError(
                f"job {self.jobid}: {outcome} after {self.outcome}: a request is answered once"
            )
        self.outcome = outcome
        done = getattr(self.scheduler, "_finalized", None)
        if done is not None:
            done(self)

    def _with_times(self, R):
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
        if self._job is not None:
            duration = getattr(self._job.resource_request, "duration", 0)
        else:
            duration = (
                self._read_jobspec().get("attributes", {}).get("system", {}).get("duration", 0)
            )
        now = self.scheduler.now()
        end = now + duration if duration > 0 else self.scheduler.resources.expiration
        return dict(R, execution=dict(execution, starttime=now, expiration=end))

    def success(self, R, annotations=None, clear=True):
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
            sched = dict.fromkeys(self._shown)
            annotations = dict(annotations or {})
            own = annotations.get("sched")
            if isinstance(own, dict):
                sched.update(own)
            elif "sched" in annotations:
                sched = own
            annotations["sched"] = sched
        self._shown = None
        self.scheduler.alloc_success(self.msg, R, annotations)

    def deny(self, note=None):
        """Refuse for good: the job will never run here.

        Args:
            note (str): why, for the user

        Raises:
            RuntimeError: the request was answered before
        """
        self._finalize("deny")
        self._shown = None
        self.scheduler.alloc_deny(self.msg, note)

    def cancel(self):
        """Confirm that the request was withdrawn, clearing what was annotated.

        Raises:
            RuntimeError: the request was answered before
        """
        self._finalize("cancel")
        if self._shown:
            self.scheduler.alloc_annotate(self.msg, {"sched": dict.fromkeys(self._shown)})
        self._shown = None
        self.scheduler.alloc_cancel(self.msg)

    def annotate(self, annotations):
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
                if value is None:
                    shown.pop(key, None)
                else:
                    if shown is None:
                        shown = self._shown = {}
                    shown[key] = value
        if annotations:
            self.scheduler.alloc_annotate(self.msg, annotations)


class PendingJob:
    """A job waiting for resources.

    Jobs compare by priority, the highest first, then by job id, the lowest first.

    Args:
        jobid (int): the job id
        priority (int): 0 to 4294967295, higher is more urgent
        t_submit (float): time of submission, seconds since the epoch
        request (AllocRequest): the open request, to be answered once
        resource_request: what the job needs, as the pool's ``parse_resource_request()`` gave it

    A policy may hang attributes of its own on a job.
    """

    # "__dict__" costs nothing until a policy adds an attribute.
    __slots__ = (
        "jobid",
        "_priority",
        "_order",
        "_hint",
        "t_submit",
        "request",
        "resource_request",
        "_last_annotation",
        "__dict__",
        "__weakref__",
    )

    def __init__(self, jobid, priority, t_submit, request, resource_request):
        self.jobid = jobid
        self._priority = priority
        self._order = -priority
        self._hint = 0
        self.t_submit = t_submit
        self.request = request
        self.resource_request = resource_request
        self._last_annotation = None
        if isinstance(request, AllocRequest):
            request._job = self

    @property
    def priority(self):
        """The job's priority. After setting it, the heap the job is in must be put in order."""
        return self._priority

    @priority.setter
    def priority(self, priority):
        self._priority = priority
        self._order = -priority

    def __lt__(self, other):
        mine = self._order
        theirs = other._order
        return mine < theirs or (mine == theirs and self.jobid < other.jobid)

    def __repr__(self):
        return f"PendingJob(jobid={self.jobid}, priority={self._priority})"
