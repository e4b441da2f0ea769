# SPDX-License-Identifier: LGPL-3.0-or-later
"""The base class of schedulers: the messages of RFC 27 and RFC 28, the methods to override, the start.

Each message is handled alike: its handler (``_handle_...``, at the end of the class) validates it,
calls the override point of its name, which updates the pool and the queue, and requests a pass. A
malformed message or an exception of an override is reported and does not propagate
(`ErrorReporter`). ``doc/reference/how-a-job-starts`` walks through the files.
"""

from __future__ import annotations

import errno
import gc
import inspect
import json
import random
from collections.abc import Sequence
from syslog import LOG_DEBUG
from typing import Any, Callable

from flux.brokermod import BrokerModule, request_handler
from flux.resource.request import Remembered, make_room
from flux.resource.ResourcePool import ResourcePool
from flux.resource.Rv1Pool import Rv1Pool
from flux.scheduler import hello, host, messages
from flux.scheduler.attributes import printable
from flux.scheduler.checkpoint import Checkpoint, Checkpoints
from flux.scheduler.messages import Responder, served_by
from flux.scheduler.misspelled import check_begun, forgotten, is_ours, overridden, tell_mistakes
from flux.scheduler.options import (
    ChecksArguments,
    check_number,
    described,
    parse_depth,
    parse_number,
    take_options,
)
from flux.scheduler.passes import Pace, Passes, Quiescence
from flux.scheduler.pools import (
    PoolBug,
    RequestParser,
    apply_update,
    ending_with_instance,
    make_pool,
    status_of,
)
from flux.scheduler.queue import ComparableOrder, PendingQueue
from flux.scheduler.requests import AllocRequest, PendingJob, Requests, RunningJob

#: Collections of Python's middle generation between two full ones. A full one visits every pending
#: job, 100 ms for about ten thousand, and frees nothing: jobs leave no cycles.
FULL_COLLECTIONS = 10000

#: Default of `Scheduler.call_at`. None would hide a call in the place of a function.
BEGIN_PASS = object()


def _event(
    topic: str, read: Callable[[Any, Any], Sequence[Any] | None], method: str
) -> Callable[[Any, Any], None]:
    """Return the handler of a message without an answer, which triggers a pass. A message that
    cannot be served is reported and dropped. ``read(scheduler, msg)`` returns the arguments of the
    scheduler's `method`, or None to ignore the message."""
    name = topic.rpartition(".")[2]

    @request_handler(topic, prefix=False)
    def handle(self: Scheduler, msg: Any) -> None:
        try:
            arguments = read(self, msg)
        except Exception as exc:
            self._errors.report(f"{name}: malformed request: {exc}")
            return
        if arguments is not None:
            self._passes.events += 1
            self._errors.guard(name, getattr(self, method), *arguments)
            self._request_schedule()

    return handle


def _read_cancel(self: Scheduler, msg: Any) -> Sequence[Any] | None:
    jobid = messages.jobid_of(messages.object_of(msg))
    return (jobid,) if jobid in self._requests else None  # already answered, or never requested


def _read_priorities(self: Scheduler, msg: Any) -> Sequence[Any] | None:
    jobs = [entry for entry in messages.read_priorities(msg) if entry[0] in self._requests]
    return (jobs,) if jobs else None


class Scheduler(BrokerModule, metaclass=ChecksArguments):
    """Base class of scheduler modules.

    It speaks the protocols of RFC 27 (with the job manager) and RFC 28 (with the resource
    service). A subclass overrides `schedule`, and further override points as needed.

    Args:
        h: the Flux handle
        *args (str): module arguments: ``queue-depth=N|unlimited``, ``log-level=LEVEL``,
            ``pool-class=URI``, ``pool-OPTION=VALUE`` (an option of the pool's class), ``jobspec-bytes=N``, ``jobspec-values=N``, and the subclass's own

    Raises:
        ValueError: an argument is unknown or has a bad value
    """

    #: Maximum number of requests that the job manager sends at a time, an int > 0 or "unlimited".
    queue_depth: int | str = "unlimited"

    #: Maximum size of a jobspec, in bytes and in values (elements of arrays and members of
    #: objects). A job with a larger one is denied, a query refused.
    jobspec_bytes: int = 8 << 20
    jobspec_values: int = 50000

    #: Maximum delay to gather a burst of events into one pass, seconds.
    SCHED_DELAY_MAX = 1.0

    #: Weight of a new sample in the moving averages of the pace, 0 to 1.
    SCHED_EWMA_ALPHA = 0.25

    #: Whether passes run while ``_queue`` is empty. None means yes if the class overrides `alloc`,
    #: since its queue may be elsewhere.
    schedule_when_empty: bool | None = None

    #: Whether hello may report jobs that have freed part of their resources.
    hello_partial_ok = True

    #: Class of the pool. None means the one named by R's writer, else ResourcePool.
    pool_class: type | None = None

    #: Further arguments for the pool's class.
    pool_kwargs: dict[str, Any] = {}

    #: The same from module arguments, ``pool-OPTION=VALUE``.
    pool_options: dict[str, str] = {}

    #: Names of module arguments other than the built-in ones, for the error about an unknown
    #: argument; ``take_argument`` of `PolicyScheduler` adds those that it takes.
    own_options: tuple[str, ...] = ()

    #: Class of the queue of pending jobs.
    _queue_class: type[PendingQueue] = PendingQueue

    def __init__(self, h: Any, *args: str) -> None:
        super().__init__(h, *args)
        self.log.level = "info"
        #: Random numbers for a policy: `flux simulate` repeats them with ``--seed``.
        self.random = random.Random(random.getrandbits(64))
        self._pending_args = take_options(self, args)
        self._own_args = list(self._pending_args)  # for the log
        # also checks values set in the class
        parse_depth(self.queue_depth)
        check_number("SCHED_DELAY_MAX", self.SCHED_DELAY_MAX, 3600)
        check_number("SCHED_EWMA_ALPHA", self.SCHED_EWMA_ALPHA, 1)
        self.jobspec_bytes = parse_number("jobspec-bytes", str(self.jobspec_bytes))
        self.jobspec_values = parse_number("jobspec-values", str(self.jobspec_values))
        #: the resource pool, set once the resources are acquired, before the first job
        self.resources: ResourcePool
        self._parser: RequestParser  # as the pool
        self._acquisition: hello.Acquisition | None = None
        self._runs = False
        #: number of jobs whose requests were still unsent when this scheduler was ready
        self.waiting_at_start = 0
        #: job id -> resources held at hello on ranks that had left
        self._lost_at_hello: dict[int, hello.Departed] = {}
        self._warned: set[str] = set()
        #: faults of jobspecs, each logged once
        self._faults: Remembered[str, None] = Remembered()
        #: whether a running job has no limit, although its end differs from the instance's
        self._has_no_limit: Callable[[int], bool] = lambda jobid: False
        # A pool object is made from R only for an override, which may read it.
        self._free_overridden = type(self).free is not Scheduler.free
        alloc_overridden = type(self).alloc is not Scheduler.alloc
        when_empty = self.schedule_when_empty
        if when_empty is None:
            when_empty = alloc_overridden
        looks_ahead = type(self).forecast is not Scheduler.forecast
        self._host = host.Host(h, self.log, self.stop)
        self._errors, self._commits = self._host.errors, self._host.commits
        # Only an override may change a jobspec: for `alloc` it need not be decoded.
        self._takes_packed = self._host.takes_objects and not alloc_overridden
        # the host has already parsed objects
        # The library's own annotations are JSON.
        self._checks_annotations = self._host.takes_objects and not is_ours(type(self))
        limits = None
        if not self._host.takes_objects:
            limits = messages.SizeLimits(self.jobspec_bytes, self.jobspec_values)
        self._responder = Responder(self._host, limits)
        #: returns the time of the current reactor turn, in seconds since the epoch
        self.now = self._host.now
        self._backlog = self._queue_class()
        ordered = type(self).order is not Scheduler.order
        self._requests = Requests(
            self._backlog,
            ComparableOrder(self.order) if ordered else None,
            is_popped=self._queue_class is PendingQueue,
        )
        self._requests.report = self._errors.report
        self._requests.will_not_run = self._give_back
        self._requests.success_failed = self._success_failed
        self._requests.answer_failed = self._answer_failed
        #: message of the last request that was denied or canceled by the library's method
        self._closed: Any = None
        self._checkpoints = Checkpoints(self._host)
        self._passes = Passes(
            self._host,
            self._requests,
            Pace(self.SCHED_EWMA_ALPHA, self.SCHED_DELAY_MAX),
            self,
            when_empty=when_empty,
            forecasts=looks_ahead and self._host.wants_forecast,
        )
        self._quiescence = Quiescence(self._host, self._passes)

    # -- the interface for policies ----------------------------------------------------------------

    #: The pending jobs, a list in `heapq` order, without cancelled jobs. May be assigned.
    _queue = property(
        lambda self: self._backlog.settle(), lambda self, jobs: self._backlog.replace(jobs)
    )

    def call_at(self, when: float, function: Any = BEGIN_PASS) -> host.Timer:
        """Call a function without arguments, by default the begin of a pass, at a given time in
        seconds since the epoch; a past time means at once. Exceptions are logged. ``cancel()`` of
        the result undoes this.

        Raises:
            TypeError: `function` is not a function, or a generator, which would not run
            ValueError: `when` is not a number, or years ago, as a number of seconds from now would be
        """
        function = self._request_schedule if function is BEGIN_PASS else function
        if not callable(function):
            raise TypeError(
                f"call_at(): expected a function, got {function!r} (are there parentheses behind its name?)"
            )
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise TypeError(
                f"call_at(): {function.__qualname__}() would not run: it is a generator or coroutine"
            )
        if when != 0:
            host.check_time(when, self.now(), lambda: f"call_at({when!r})")
        return self._host.call_at(when, function)

    # -- override points ---------------------------------------------------------------------------

    def schedule(self) -> Any:
        """Start jobs; called after events. May be a generator: see the guide."""

    def forecast(self) -> Any:
        """Annotate pending jobs; called after passes. May be a generator."""

    def order(self, job: PendingJob) -> Any:
        """Return the sort key of a job, a number or any value that compares with the keys of other
        jobs; the lowest is considered first.

        The queue, passes, estimates and reasons follow it; among equals the lower job id goes
        first. The default order is by priority. Called when a job arrives and when its priority
        changes; if the key depends on anything else, call `reorder` when that changes.
        """
        return -job.priority

    def reorder(self) -> None:
        """Sort the queue again by the current `order` of every job. Costs a sort of the queue. Does
        not request a pass."""
        self._backlog.reorder()

    def hello(self, jobid: int, priority: int, userid: int, t_submit: float, R: Any) -> None:
        """Mark a job's resources `R` allocated; called at the start for each job that holds
        resources. `t_submit` is its submission in seconds since the epoch."""
        self.resources.register_alloc(jobid, R)

    def alloc(
        self,
        request: AllocRequest,
        jobid: int,
        priority: int,
        userid: int,
        t_submit: float,
        jobspec: Any,
    ) -> None:
        """Add a job to ``_queue``; called when the job manager requests its resources. `t_submit`
        is its submission in seconds since the epoch, `jobspec` a dict (RFC 14)."""
        try:
            resource_request = self._parser.parse(jobspec, request.read_jobspec)
        except ValueError as exc:
            what = f"alloc: cannot parse jobspec for {host.name_of(jobid)}"
            if isinstance(exc, PoolBug):
                self._errors.report(what, exc.__cause__ or exc)
            elif str(exc) not in self._faults:
                self._faults[str(exc)] = None
                Remembered.kept += len(str(exc))
                self.log.error(f"{what}: {exc}")
            request.deny(f"cannot parse jobspec: {exc}")
            return
        job = PendingJob(jobid, priority, t_submit, request, resource_request)
        job.came = self.now()
        try:
            if self._requests.on_queue is not None:
                self._requests.on_queue(job, jobspec)
        except ValueError as exc:
            request.deny(str(exc))
            return
        self._backlog.push(job)

    def free(self, jobid: int, R: Any, final: bool = False) -> None:
        """Return freed resources `R` to the pool: all of the job's, or its resources on some ranks.
        Called when a job frees resources; `final`: for the last time."""
        self.resources.free(jobid, R, final=final)

    def cancel(self, jobid: int) -> None:
        """Take a job out of ``_queue``; called when its request is withdrawn."""
        request = self._requests.get(jobid)
        if request is not None:
            self._requests.take_out(request)
            request.cancel()

    def prioritize(self, jobs: list[list[int]]) -> None:
        """Sort ``_queue``; called when priorities change, with a list of [jobid, priority]."""
        find = self._requests.job_of
        moves = {}
        for jobid, priority in jobs:
            job = find(jobid)
            if job is not None:
                moves[job] = priority
        self._backlog.move_all(moves)

    def expiration(self, msg: Any, jobid: int, expiration: float) -> None:
        """Accept a running job's new end (seconds since the epoch; 0: none) and update the pool. An
        override responds to `msg`, with ``self.handle.respond(msg, None)`` or an error."""
        if self._requests.is_running(jobid):
            self._end_moved(jobid, expiration)
        self.handle.respond(msg, None)

    def _end_moved(self, jobid: int, expiration: float) -> None:
        """Update the pool with a running job's new end (seconds since the epoch; 0: none)."""
        self.resources.update_expiration(jobid, expiration)

    def resource_update(self) -> None:
        """Called after `resources` changed, before the next pass."""

    def released(self) -> None:
        """Called after an event that may let a blocked job start: resources were freed or came up,
        the inventory or a job's end changed. For policies that remember requests that did not
        fit."""

    def feasibility_check(self, msg: Any, jobspec: Any) -> None:
        """Check whether a job with a jobspec (RFC 14) could ever run, and respond to `msg` (RFC
        27)."""
        try:
            self.resources.check_feasibility(self._parser.parse_unsubmitted(jobspec))
        except (ValueError, OSError) as exc:
            if isinstance(exc, PoolBug):
                self._errors.report("feasibility.check", exc.__cause__)
            self._responder.refuse(msg, str(exc))
        else:
            self.handle.respond(msg, None)

    def start_schedule(self) -> None:
        """Begin a pass after the delay that the pace requires, ending the current one.

        Override this to run passes in another way; called once per event.
        """
        self._passes.begin()

    def stats_get(self) -> dict[str, Any]:
        """Return the dict shown by ``flux module stats``; a subclass adds to it."""
        passes, pace, forecasts = self._passes.main, self._passes.pace, self._passes.forecasts
        return {
            "sched_passes": passes.passes,
            "sched_yields": passes.yields,
            "forecast_passes": 0 if forecasts is None else forecasts.passes,
            "forecast_yields": 0 if forecasts is None else forecasts.yields,
            "sched_delay": pace.delay,
            "sched_duration_ewma": pace.duration,
            "sched_interval_ewma": pace.interval,
            "pending_jobs": len(self._backlog),
            "sched_closed": passes.closed,
            "commits": self._commits.written,
            "errors": self._errors.count,
        }

    # -- for overrides of start_schedule() ---------------------------------------------------------

    def _request_schedule(self, without_effect: bool = False) -> None:
        """Request a pass after an event: calls `start_schedule` if there is work; `without_effect`:
        there is none due to this event."""
        make_room()  # also where requests are withdrawn: the memory kept for them is bounded
        self._passes.request(without_effect)

    #: Whether a pass is to begin; an override of `start_schedule` may set it for its own use.
    _sched_pending = property(
        lambda self: self._passes.pending, lambda self, pending: self._passes.set_pending(pending)
    )
    _sched_delay = property(lambda self: self._passes.pace.delay)
    _sched_interval_ewma = property(lambda self: self._passes.pace.interval)
    _sched_duration_ewma = property(lambda self: self._passes.pace.duration)

    # -- answers to sched.alloc --------------------------------------------------------------------

    def alloc_success(
        self, msg: Any, R: dict[str, Any], annotations: dict[str, Any] | None = None
    ) -> None:
        """Store R (RFC 20), then send it and annotations as the answer to a sched.alloc request."""

        requests, handle = self._requests, self._host.handle
        jobid = requests.jobid_of(msg)
        if self._host.takes_objects:  # nothing is stored
            given = {"id": jobid, "type": messages.SUCCESS, "R": R}
            if annotations:
                if self._checks_annotations:
                    json.dumps(annotations)  # raises, as below
                given["annotations"] = annotations
            requests.move(jobid, "success")
            handle.respond_object(msg, given)
            return
        text = json.dumps(R)
        extra = ', "annotations": ' + json.dumps(annotations) if annotations else ""
        answer = f'{{"id": {jobid}, "type": {messages.SUCCESS}, "R": {text}{extra}}}'
        requests.move(jobid, "success")

        def send() -> None:
            self._errors.guard("alloc: respond", handle.respond, msg, answer)
            if self._passes.changed is not None:
                self._passes.changed()

        self._commits.put(host.r_key(jobid), text, send)

    def alloc_annotate(self, msg: Any, annotations: dict[str, Any]) -> None:
        """Send annotations, to be merged with those of the job, for a sched.alloc request."""
        jobid = self._requests.jobid_of(msg)
        as_object = self._host.takes_objects and not self._checks_annotations
        respond = self.handle.respond_object if as_object else self.handle.respond
        respond(msg, {"id": jobid, "type": messages.ANNOTATE, "annotations": annotations})

    def alloc_deny(self, msg: Any, note: str | None = None) -> None:
        """Answer a sched.alloc request: the job will never run, for the reason `note`."""
        answer: dict[str, Any] = {"id": self._requests.jobid_of(msg), "type": messages.DENY}
        if note is None:
            self.log.warning(f"{host.name_of(answer['id'])}: denied, and its user is not told why")
        else:
            answer["note"] = printable(note)
        self._closed = msg
        self.handle.respond(msg, answer)

    def alloc_cancel(self, msg: Any) -> None:
        """Confirm that a sched.alloc request is withdrawn."""
        answer: Any = {"id": self._requests.jobid_of(msg), "type": messages.CANCEL}
        if not self._host.takes_objects:  # as text, which is faster: there may be many at once
            answer = f'{{"id": {answer["id"]}, "type": {messages.CANCEL}}}'
        self._closed = msg
        self.handle.respond(msg, answer)

    def _answer_failed(
        self, method: str, msg: Any, arguments: tuple[Any, ...], error: Exception
    ) -> None:
        """Send an answer after all that an override of `method` has not sent, but raised: without a
        final one the job would be pending for ever."""
        self._errors.report(f"{method}: {host.name_of(self._requests.jobid_of(msg))}", error)
        if method != "alloc_annotate" and self._closed is not msg:
            getattr(Scheduler, method)(self, msg, *arguments)

    def _success_failed(self, request: AllocRequest, R: Any, error: Exception) -> None:
        """Deny a job after an override of `alloc_success` raised, unless R was sent: otherwise it
        would get no answer and keep its resources."""
        name = host.name_of(request.jobid)
        self._errors.report(f"alloc_success: {name}", error)
        if self._requests.is_running(request.jobid):
            return
        self._requests.move(request.jobid, "deny")
        self._give_back(request.jobid)
        request.fail(messages.error_note(error))

    def _give_back(self, jobid: int) -> None:
        """Free the resources of a job that will not run, in case the policy has allocated some."""
        pool = self.resources
        before = pool.generation
        self._errors.guard(f"free: {host.name_of(jobid)}", pool.free, jobid)
        if pool.generation != before:
            self._errors.guard("released", self.released)

    # -- the start, and the resources --------------------------------------------------------------

    def run(self) -> None:
        """Register the services, acquire the resources, and schedule until stopped.

        The module's status is set to running once the pool is made, so that a failure to make it
        fails the load. If the resources are not known yet, as at an instance's start, the status is
        set first; if the pool cannot be made then, the scheduler exits, and the instance goes on.

        Raises:
            OSError: a step of the start failed
            Exception: the pool cannot be made from the instance's resources
        """
        check_begun(self, "_host")
        if self._host.scheduler_runs is not None:
            self._host.scheduler_runs(self)
        try:
            self._start()
        except Exception as exc:
            # a load that fails is reported by its command as well
            tell = self.log.critical if self._runs else self.log.error
            tell(f"cannot start: {described(exc)}")
            if self._runs and not isinstance(exc, OSError):
                return
            raise
        super().run()
        if self._host.scheduler_runs is None:
            self.finish()

    def finish(self) -> None:
        """Write the checkpoints; called at the end."""
        self._checkpoints.finish()

    def checkpoint(
        self,
        name: str,
        dump: Callable[[], Any],
        load: Callable[[Any], Any],
        interval: float = 60.0,
    ) -> Checkpoint:
        """Keep a value across reloads, and across restarts of the instance. Call this from
        ``__init__``, and ``changed()`` of the result when the value has changed.

        Args:
            name (str): the value is stored as ``checkpoint.sched-NAME`` in the KVS
            dump: returns the value, of JSON types
            load: called with the stored value, if any, after the pool is made and before hello. If
                it raises, the exception is logged and the value is not loaded
            interval (float): minimum time between writes, in seconds; later changes are lost if the
                scheduler dies
        """
        if not (callable(dump) and callable(load)):
            raise TypeError(f"checkpoint({name!r}): expected two functions, to dump and to load")
        return self._checkpoints.make(
            f"checkpoint.sched-{name}", lambda: iter([json.dumps(dump())]), load, interval
        )

    def _start(self) -> None:
        handle = self.handle
        self._relay_waker = host.RelayWaker(handle)
        try:
            handle.service_register("sched").get()
            handle.service_register("feasibility").get()
        except FileExistsError as exc:
            raise FileExistsError(
                exc.errno, "another scheduler is loaded: remove it first"
            ) from None
        acquisition = self._acquisition = hello.Acquisition(handle)
        if not acquisition.at_once():
            self.set_running()
            self._runs = True
        first = acquisition.next()
        pool = self.resources = self._make_pool(first["resources"])
        self._parser = RequestParser(pool)
        pool.mark_down("all")
        self._update(first)
        self._pool_made()
        self._checkpoints.load()
        jobs = hello.running_jobs(handle, self.hello_partial_ok)
        found = hello.Hello(self._host, pool, self.hello)
        found.take_over(jobs)
        for jobid in found.jobs:
            self._requests.move(jobid, "hello")
        self._lost_at_hello = found.lost
        self._before_ready(list(found.jobs.values()))
        # the lookups of these jobs take a while
        again = bool(found.jobs)
        jobs, self.waiting_at_start = hello.ready(
            handle, self.queue_depth, again, self.hello_partial_ok
        )
        for jobid, R, final in found.released(jobs) if again else ():
            self._release(jobid, R, final)
        for job in found.jobs.values():
            job.R_object = None  # the pool has its allocation
        acquisition.then(self._resources_changed)
        tell_mistakes(type(self), self.log, self.own_options)
        for made in (pool, getattr(pool, "placement", None)):
            tell_mistakes(type(made), self.log)
        # A pool of another base need not have a method of the library.
        needed = forgotten(type(pool)) if isinstance(pool, Rv1Pool) else ()
        for text in (*overridden(type(self)), *needed):
            self.log.error(text)
        if gc.isenabled():
            gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTIONS)
        own = "".join(f"{arg} " for arg in self._own_args)
        self.log.info(
            f"ready: queue-depth={self.queue_depth} log-level={self.log.level_name} {own}"
            f"pool-class={pool.name} Rv{pool.version} {pool.dumps()}"
        )

    def _pool_made(self) -> None:
        """Hook of the library: the pool was made, and has no jobs yet. An exception ends the
        start."""

    def _before_ready(self, jobs: list[RunningJob]) -> None:
        """Hook of the library: the running jobs are in the pool, and no request has arrived yet."""

    def _make_pool(self, R: dict[str, Any]) -> ResourcePool:
        """Make the pool from the instance's resources (an R dict): of the configured class, the one
        named by R's writer, or the default."""
        return make_pool(self, R)

    def _resources_changed(self, update: dict[str, Any] | None, error: Exception | None) -> None:
        if update is None and not isinstance(error, OSError):
            self._errors.report(f"resource.acquire: malformed response: {error}")
            return
        if update is None:
            if isinstance(error, OSError) and error.errno == errno.ECANCELED:
                self.log.info(f"{error.strerror}: the scheduler ends")  # as requested
            else:
                self.log.critical(f"resource.acquire: {error}: the scheduler ends here")
            self.stop()
            return

        def move_ends() -> None:
            for jobid in ending_with_instance(self.resources, ended, self._has_no_limit):
                if self._requests.is_running(jobid):
                    what, end = f"expiration: {host.name_of(jobid)}", self.resources.expiration
                    self._errors.guard(what, self._end_moved, jobid, end)

        self._passes.events += 1
        ended = self.resources.expiration
        self._update(update)
        expiration = update.get("expiration")
        if expiration is not None and expiration == self.resources.expiration:  # not refused
            self.log.info(f"resource expiration updated to {expiration:.2f}")
        if self.resources.expiration != ended:
            self._errors.guard("expiration", move_ends)
        lost = not update.keys() <= {"up", "expiration"}
        self._errors.guard("ranks_changed", self._ranks_changed, lost)
        self._errors.guard("resource_update", self.resource_update)
        self._request_schedule()

    def _ranks_changed(self, lost: bool) -> None:
        """Hook of the library: ranks came up or, if `lost`, went down, left or changed."""

    def _update(self, update: dict[str, Any]) -> None:
        helpful, errors = apply_update(self.resources, update, self.log, self._warned)
        if helpful:
            self._errors.guard("released", self.released)
        for key, exc in errors:
            self._errors.report(f"resource update: {key}={update[key]!r}: {exc}")

    # -- messages without an answer: one that cannot be served is dropped --------------------------

    @request_handler("sched.alloc", prefix=False)
    def _handle_alloc(self, msg: Any) -> None:
        try:
            limits, packed = self._responder.limits, self._takes_packed
            jobid, payload = messages.read_alloc(msg, limits, packed)
        except Exception as exc:  # without an id there is no answer
            self._errors.report(f"alloc: malformed request: {exc}")
            return
        request = self._requests.open(self, msg, jobid)
        if request is None:
            # Sent to a former scheduler, and again to this one: either answer serves both.
            self._errors.report(f"alloc: {host.name_of(jobid)}: a second request is ignored")
            return
        self._passes.events += 1
        try:
            priority, userid, t_submit, jobspec = messages.submission_of(payload, self.now)
        except ValueError as exc:
            self._errors.report(f"alloc: {host.name_of(jobid)}: malformed request: {exc}")
            self._errors.guard("deny", request.deny, f"scheduler error: {exc}")
        else:
            request.userid = userid
            try:
                self.alloc(request, jobid, priority, userid, t_submit, jobspec)
            except (Exception, SystemExit) as exc:
                self._errors.report(f"alloc: {host.name_of(jobid)}", trace=True)
                if not request.finalized:
                    self._errors.guard("deny", request.deny, messages.error_note(exc))
        self._request_schedule(request.job is not None and request.job.examined)

    _handle_cancel = _event("sched.cancel", _read_cancel, "cancel")
    _handle_prioritize = _event("sched.prioritize", _read_priorities, "prioritize")
    _handle_free = _event("sched.free", lambda self, msg: messages.read_free(msg), "_release")

    def _release(self, jobid: int, R: Any, final: bool) -> None:
        """Return resources (an R dict) to the pool with `free`, and notify the policy."""
        lost = self._lost_at_hello.get(jobid) if self._lost_at_hello else None
        try:
            if self._free_overridden or lost is not None:
                R = ResourcePool(R)
            if lost is not None:
                R.remove_ranks(lost.ranks)
            self.free(jobid, R, final=final)
        except (Exception, SystemExit):
            # Uncertain resources stay allocated: better idle until a reload than allocated twice.
            self._errors.report(f"free: {host.name_of(jobid)}", trace=True)
            return
        self._errors.guard("released", self.released)
        self._requests.freed(jobid, final)
        if final and lost is not None:
            del self._lost_at_hello[jobid]
        if self.log.level >= LOG_DEBUG:
            pool = ResourcePool(R) if isinstance(R, dict) else R
            what = f"free: {host.name_of(jobid)}"
            end = " (final)" if final else ""
            self._errors.guard("free", lambda: self.log.debug(f"{what}: {pool.dumps()}{end}"))

    # -- requests with an answer -------------------------------------------------------------------

    @request_handler("sched.expiration", prefix=False)
    def _handle_expiration(self, msg: Any) -> None:
        def serve() -> None:
            jobid, expiration = messages.read_expiration(msg)
            self._passes.events += 1
            self.expiration(msg, jobid, expiration)
            self._errors.guard("released", self.released)
            self._request_schedule()

        self._responder.serve(msg, serve)

    _handle_feasibility = served_by(
        "feasibility.check",
        lambda self, msg: self.feasibility_check(
            msg, messages.read_jobspec(msg, self._responder.limits)
        ),
    )
    _handle_resource_status = served_by(
        "sched.resource-status",
        lambda self, msg: self.handle.respond(msg, status_of(self.resources)),
    )
    _handle_quiescent = served_by("sched.quiescent", lambda self, msg: self._quiescence.ask(msg))
    _handle_stats = served_by(
        "stats-get",
        lambda self, msg: self.handle.respond(msg, self.stats_get()),
        prefix=True,
        sees_all=True,
    )
