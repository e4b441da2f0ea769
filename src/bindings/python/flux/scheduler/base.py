"""The base class of schedulers."""

import errno
import functools
import json
import traceback
from typing import Optional

from flux.job import JobID
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler import args as arguments
from flux.scheduler.handlers import Handlers
from flux.scheduler.host import Committer, loop_now, r_key, stopwatch, wants_forecast
from flux.scheduler.passes import Passes
from flux.scheduler.queue import PendingQueue
from flux.scheduler.requests import AllocRequest, PendingJob
from flux.scheduler.running import Running

#: Types of the responses to sched.alloc (RFC 27).
SUCCESS, ANNOTATE, DENY, CANCEL = range(4)


def _checking_arguments(init):
    """Wrap an ``__init__`` so that the outermost one ends with the check for unknown arguments."""

    @functools.wraps(init)
    def wrapper(self, *args, **kwargs):
        depth = self.__dict__.get("_init_depth", 0)
        self.__dict__["_init_depth"] = depth + 1
        try:
            init(self, *args, **kwargs)
            if depth == 0:
                arguments.reject(self.__dict__.get("_pending_args", ()))
        except ValueError as exc:
            # The load command shows an errno only: the log is where the reason can be found.
            if depth == 0 and getattr(self, "log", None) is not None:
                self.log.error(str(exc))
            raise
        finally:
            self.__dict__["_init_depth"] = depth

    return wrapper


class Scheduler(Running, Passes, Handlers):
    """Base class of scheduler modules.

    It speaks the protocols of RFC 27 (with the job manager) and RFC 28 (with the resource
    service). A subclass overrides `schedule`, and whatever else it wants to do differently.

    Args:
        h: the Flux handle
        *args (str): module arguments: ``queue-depth=N|unlimited``, ``log-level=LEVEL``,
            ``pool-class=URI``, and the subclass's own

    Raises:
        ValueError: an argument has a bad value, or nobody took it
    """

    #: Most requests the job manager sends at a time: a positive int, or "unlimited".
    queue_depth = "unlimited"

    #: Longest delay that gathers a burst of events into one pass, seconds.
    SCHED_DELAY_MAX = 1.0

    #: Weight of a new sample in the moving averages of the pace, 0 to 1.
    SCHED_EWMA_ALPHA = 0.25

    #: Whether passes are wanted while ``_queue`` is empty. None: if the class overrides `alloc`, since
    #: its queue may be somewhere else.
    schedule_when_empty: Optional[bool] = None

    #: Whether hello may report jobs that have returned part of their resources.
    hello_partial_ok = True

    #: Class of the pool; None: R's writer, if it names one, else ResourcePool.
    pool_class: Optional[type] = None

    #: Further arguments for the pool's class.
    pool_kwargs: dict = {}

    #: What keeps the pending jobs.
    _queue_class = PendingQueue

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            cls.__init__ = _checking_arguments(cls.__init__)

    @_checking_arguments
    def __init__(self, h, *args):
        super().__init__(h, *args)
        self.log.level = "info"
        self._pending_args = arguments.apply_builtin(self, args)
        arguments.parse_depth(self.queue_depth)
        self._pool = None
        self._parser = None
        self._backlog = self._queue_class()
        #: open requests by job id
        self._requests = {}
        #: the same by the identity of their messages
        self._by_msg = {}
        #: jobs that hold resources
        self._holding = set()
        self._lost_ranks = {}  # ranks of running jobs that were gone at hello
        self._acquire = None
        self._warned = set()
        self._errors = 0
        # A pool object is made of R only for those who want to look at it.
        self._free_overridden = type(self).free is not Scheduler.free
        if self.schedule_when_empty is None:
            self._always_wanted = type(self).alloc is not Scheduler.alloc
        else:
            self._always_wanted = self.schedule_when_empty
        self._no_forecast = type(self).forecast is Scheduler.forecast or not wants_forecast(h)
        self._commits = Committer(h, self.log, self.now, self._kvs_lost)
        self._init_passes(h, stopwatch(h))

    # -- what a policy works with ---------------------------------------------------------------------

    @property
    def resources(self):
        """The current resource pool."""
        return self._pool

    @property
    def _queue(self):
        """The pending jobs: a list in `heapq` order, without cancelled jobs. May be assigned."""
        return self._backlog.settle()

    @_queue.setter
    def _queue(self, jobs):
        self._backlog.replace(jobs)

    def now(self):
        """The time, in seconds since the epoch, as the reactor last saw it."""
        return loop_now(self.handle)

    # -- override points -------------------------------------------------------------------------------

    def hello(self, jobid, priority, userid, t_submit, R):
        """Called at start for each job that holds resources; marks them allocated.

        Args:
            jobid (int): the job id
            priority (int): its priority
            userid (int): who submitted it
            t_submit (float): when, seconds since the epoch
            R (ResourcePool): what it holds
        """
        self.resources.register_alloc(jobid, R)

    def alloc(self, request, jobid, priority, userid, t_submit, jobspec):
        """Called when the job manager asks for a job's resources; puts it into ``_queue``.

        Args:
            request (AllocRequest): to be answered
            jobid (int): the job id
            priority (int): its priority
            userid (int): who submitted it
            t_submit (float): when, seconds since the epoch
            jobspec (dict): what it asks for (RFC 14)
        """
        try:
            resource_request = self._parser.parse(jobspec, request._read_jobspec)
        except ValueError as exc:
            self.log.error(f"alloc: cannot parse jobspec for {self._name_of(jobid)}: {exc}")
            request.deny(f"cannot parse jobspec: {exc}")
            return
        self._backlog.push(PendingJob(jobid, priority, t_submit, request, resource_request))

    def free(self, jobid, R, final=False):
        """Called when resources come back; returns them to the pool.

        Args:
            jobid (int): the job id
            R (ResourcePool): what comes back: all of the job's resources, or some ranks of them
            final (bool): whether this is the last of the job
        """
        self.resources.free(jobid, R, final=final)

    def cancel(self, jobid):
        """Called when a pending request is withdrawn; takes the job out of ``_queue``.

        Args:
            jobid (int): the job id
        """
        request = self._requests.get(jobid)
        if request is None:
            return
        job = request._job or self._find_queued(jobid)
        if job is not None:
            self._backlog.remove(job)
        request._job = None
        request.cancel()

    def prioritize(self, jobs):
        """Called when priorities change; puts ``_queue`` in order.

        Args:
            jobs (list): of [jobid, priority]
        """
        for jobid, priority in jobs:
            request = self._requests.get(jobid)
            if request is not None:
                job = request._job or self._find_queued(jobid)
                if job is not None:
                    self._backlog.move(job, priority)

    def expiration(self, msg, jobid, expiration):
        """Called when a running job's end is to change; accepts it and tells the pool.

        An override answers `msg`, with ``self.handle.respond(msg, None)`` or an error.

        Args:
            msg (Message): the request
            jobid (int): the job id
            expiration (float): its new end, seconds since the epoch; 0: none
        """
        if jobid in self._holding:
            self.resources.update_expiration(jobid, expiration)
        self.handle.respond(msg, None)

    def resource_update(self):
        """Called after `resources` changed, before the pass that follows."""

    def released(self):
        """Called when something happened that may let a waiting job start: resources came back or up,
        the inventory or a job's end changed. For policies that remember what did not fit."""

    def feasibility_check(self, msg, jobspec):
        """Called to tell whether a job could ever run; answers `msg` (RFC 27).

        Args:
            msg (Message): the request
            jobspec (dict): what the job asks for
        """
        try:
            self.resources.check_feasibility(self._parser.parse(jobspec))
        except (ValueError, OSError) as exc:
            self.handle.respond_error(msg, errno.EINVAL, str(exc))
        else:
            self.handle.respond(msg, None)

    def schedule(self):
        """Called to start jobs, after events. May be a generator: see the guide."""

    def forecast(self):
        """Called after passes to annotate pending jobs. May be a generator."""

    def stats_get(self):
        """What ``flux module stats`` shows: a dict; a subclass adds to it."""
        return {
            "sched_passes": self._pass.passes,
            "sched_yields": self._pass.yields,
            "forecast_passes": self._outlook.passes,
            "forecast_yields": self._outlook.yields,
            "sched_delay": self._pace.delay,
            "sched_duration_ewma": self._pace.duration,
            "sched_interval_ewma": self._pace.interval,
            "pending_jobs": len(self._queue),
            "sched_closed": self._pass.closed,
            "commits": self._commits.written,
            "errors": self._errors,
        }

    # -- answers to sched.alloc ------------------------------------------------------------------------

    def alloc_success(self, msg, R, annotations=None):
        """Store R, then answer that the job has it.

        Args:
            msg (Message): the sched.alloc request
            R (dict): the resources (RFC 20)
            annotations (dict): to attach
        """
        jobid = self._jobid_of(msg, last=True)
        text = json.dumps(R)
        extra = ', "annotations": ' + json.dumps(annotations) if annotations else ""
        answer = f'{{"id": {jobid}, "type": {SUCCESS}, "R": {text}{extra}}}'

        def stored():
            self._guard("alloc: respond", self.handle.respond, msg, answer)
            self._check_quiet()

        self._holding.add(jobid)
        self._commits.put(r_key(jobid), text, stored)

    def alloc_annotate(self, msg, annotations):
        """Send an annotation update for a pending job.

        Args:
            msg (Message): the sched.alloc request
            annotations (dict): merged with what the job has
        """
        self.handle.respond(
            msg, {"id": self._jobid_of(msg), "type": ANNOTATE, "annotations": annotations}
        )

    def alloc_deny(self, msg, note=None):
        """Answer that the job will never run.

        Args:
            msg (Message): the sched.alloc request
            note (str): why
        """
        answer = {"id": self._jobid_of(msg, last=True), "type": DENY}
        if note is not None:
            answer["note"] = note
        self.handle.respond(msg, answer)

    def alloc_cancel(self, msg):
        """Answer that the request is withdrawn.

        Args:
            msg (Message): the sched.alloc request
        """
        self.handle.respond(msg, {"id": self._jobid_of(msg, last=True), "type": CANCEL})

    # -- requests --------------------------------------------------------------------------------------

    def _open(self, msg, jobid):
        request = AllocRequest._of(self, msg, jobid)
        self._requests[jobid] = request
        self._by_msg[id(msg)] = request
        return request

    def _jobid_of(self, msg, last=False):
        # Saves decoding the payload again. The request keeps the message, and so its identity, alive.
        request = self._by_msg.pop(id(msg), None) if last else self._by_msg.get(id(msg))
        return msg.payload["id"] if request is None else request.jobid

    def _finalized(self, request):
        """A request has its answer: its job must not be looked at again."""
        if self._requests.get(request.jobid) is request:
            del self._requests[request.jobid]
        job, request._job = request._job, None  # no cycles are left for the collector
        if job is not None:
            self._answered.append(job)

    def _find_queued(self, jobid):
        """The queued job of this id, if a policy queued it by itself."""
        for job in self._queue:
            if job.jobid == jobid:
                return job
        return None

    def _free(self, jobid, R, final):
        try:
            lost = self._lost_ranks.get(jobid) if self._lost_ranks else None
            if self._free_overridden or lost:
                R = ResourcePool(R)
            if lost:
                R.remove_ranks(lost)
            self.free(jobid, R, final=final)
        except Exception:
            # What is in doubt stays allocated: better idle until a reload than given out twice.
            self._mishap(f"free: {self._name_of(jobid)}", trace=True)
            return
        self.released()
        if final:
            self._holding.discard(jobid)
            self._lost_ranks.pop(jobid, None)
        self._guard("free", self._freed, jobid, R, final)

    def _freed(self, jobid, R, final):
        """Resources came back, R being a dict or a pool; for what the library does about it."""

    # -- trouble ---------------------------------------------------------------------------------------

    def _mishap(self, text, error=None, trace=False):
        """Log and count what went wrong, so that it goes no further."""
        self._errors += 1
        if error is not None:
            text += (
                "\n"
                + "".join(
                    traceback.format_exception(type(error), error, error.__traceback__)
                ).rstrip()
            )
        elif trace:
            text += "\n" + traceback.format_exc().rstrip()
        self.log.error(text)

    def _name_of(self, jobid):
        return JobID(jobid).f58
