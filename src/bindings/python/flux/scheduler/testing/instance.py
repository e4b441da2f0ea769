# SPDX-License-Identifier: LGPL-3.0-or-later
"""`FakeInstance`: a scheduler among fake services, driven by the test."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
import types
from pathlib import Path
from syslog import LOG_ERR
from typing import Any, Callable

from flux.brokermod import resolve_entry_point
from flux.scheduler.testing import builders
from flux.scheduler.testing.handle import (
    START_TIME,
    FakeHandle,
    FakeMessage,
    HandleWithoutEstimates,
    Reactor,
)
from flux.scheduler.testing.services import (
    FakeJob,
    FakeService,
    JobInfo,
    JobManager,
    KeyValueStore,
    ResourceService,
)
from flux_engine.job_manager.sched import ANNOTATE
from flux_engine.kernel.clock import VirtualClock
from flux_engine.kernel.direct import Names
from flux_engine.kernel.message import EVENT, ROLE_OWNER, ROLE_USER, payload_text
from flux_engine.kernel.watchdog import Watchdog, place

#: Directory of the library's schedulers, in the source tree and installed.
MODULES = Path(__file__).resolve().parents[5] / "modules"


class SchedulerErrors(AssertionError):
    """There are errors in the log: exceptions of a policy, or objections of the job manager to its
    answers."""


class EndlessLoop(BaseException):
    """A scheduler has not returned to its reactor. Not caught by ``except Exception`` in a
    policy."""


class FakeInstance:
    """A Flux instance for one scheduler, in the test's process.

    The scheduler is real; the job manager, the resource service and all other services are fake.
    Time only passes when the test says so: `run_until_idle` lets the scheduler work without it,
    `advance` lets it pass. It is virtual: an hour costs only its events.

    A scheduler's ``run()`` returns here when its reactor would start.

    Args:
        nodes (int): number of equal nodes, with hosts n0, n1, ...
        cores (int): cores per node
        gpus (int): GPUs per node
        R (dict): the resources (RFC 20), instead of these three
        up (str): the ranks that are up, an idset; default: all
        config (dict): the instance's configuration, tables as dicts
        start_time (float): initial time in seconds since the epoch; default: a fixed time
        check_errors (bool): whether `run_until_idle` and `advance` raise `SchedulerErrors` for
            entries logged at ``err`` or worse
        clock: replaces the virtual clock (``flux_engine.kernel.clock``)
        estimates (bool): whether pending jobs are told estimates and reasons, which costs about ten
            milliseconds per change; tests with many random jobs do without

    Attributes:
        jobs (dict): job id -> `FakeJob`, of all submitted jobs
        scheduler (Scheduler): the scheduler object; None before `load`
        log (list): (syslog level, text) of the scheduler's entries, and of the job manager's
            objections to its answers
        config (dict): the configuration
        attributes (dict): broker attributes
        start_time (float): initial time
        reactor (Reactor): clock and timers, for other steps
        job_manager, resource, job_info, kvs, broker: the services, or None if missing
        services (dict): name -> service, including the scheduler's
    """

    #: Classes of the services, for subclasses.
    job_manager_class = JobManager
    resource_class = ResourceService

    def __init__(
        self,
        nodes: int = 1,
        cores: int = 1,
        gpus: int = 0,
        *,
        R: dict[str, Any] | None = None,
        up: str | None = None,
        config: dict[str, Any] | None = None,
        start_time: float = START_TIME,
        check_errors: bool = True,
        clock: Any = None,
        estimates: bool = True,
    ) -> None:
        if isinstance(nodes, dict):
            raise TypeError("nodes: expected a number: an R is passed as R=")
        if R is None:
            R = builders.make_R(nodes, cores, gpus)
        self.reactor = Reactor(VirtualClock(start_time) if clock is None else clock)
        self.start_time = self.reactor.now()
        self.jobs: dict[int, FakeJob] = {}
        self.scheduler: Any = None
        self.log: list[tuple[int, str]] = []
        self.config: dict[str, Any] = {} if config is None else config
        self.check_errors = check_errors
        self._handle_class = FakeHandle if estimates else HandleWithoutEstimates
        self.services: dict[str, Any] = self.reactor.services
        self.attributes = {"rank": "0", "instance-level": "0", "security.owner": str(os.getuid())}
        self.resource = self.resource_class(self, R, up)
        self.job_manager = self.job_manager_class(self)
        self.job_info = JobInfo(self)
        self.kvs = KeyValueStore(self)
        self.broker = Names(self.reactor)
        self.add_service("attr", {"get": self._attribute})
        self.add_service("config", {"get": lambda asked: self.config})
        #: topics of events to which the scheduler has subscribed
        self.subscriptions: list[str] = []
        subscribe = lambda asked: self.subscriptions.append(asked["topic"])
        self.add_service("event", {"subscribe": subscribe})
        #: the scheduler's handle, even after its end
        self.handle: FakeHandle | None = None
        #: the exception that ended the scheduler
        self.failure: BaseException | None = None
        #: the scheduler's file
        self._path: str | None = None
        self._unanswered: dict[int, FakeMessage] = {}
        self._lines_checked = 0

    # -- the scheduler -----------------------------------------------------------------------------

    def load(self, policy: Any, *args: str, name: str | None = None) -> Any:
        """Load a scheduler.

        Args:
            policy (type, str or Path): a subclass of `flux.scheduler.Scheduler`, the path of a
                module file, or the name of a scheduler of the library, such as ``sched-backfill``
            *args (str): module arguments, such as ``queue-depth=8``
            name (str): name of the module; default: that of the file or class

        Returns:
            Scheduler: the scheduler object, which has reported ready to the job manager

        Raises:
            Exception: raised by the scheduler during its start
            FileNotFoundError: the file does not exist
            RuntimeError: a scheduler is loaded, or it ended without ``run()``
            ValueError: the file has no ``mod_main``, and not exactly one scheduler class
        """
        if self.is_loaded:
            raise RuntimeError("there is a scheduler already: unload() it first")
        if isinstance(policy, type):
            self._path = getattr(sys.modules.get(policy.__module__), "__file__", None)
            entry: Callable[..., Any] = lambda handle, *args: policy(handle, *args).run()
            name = name or policy.__name__.lower()
        else:
            path = find_module(policy)
            self._path = str(path)
            name = name or path.stem
            entry = _entry_of_file(path)
        self.failure = None
        self.scheduler = None
        handle = self.handle = self._handle_class(self, name)
        self.services.setdefault(name, handle.task)
        try:
            with self._watchdog():
                entry(handle, *args)
        except BaseException as exc:
            self.failure = exc
            self._lines_checked = len(self.log)
            self.unload()
            raise
        if not handle.in_reactor:
            self.unload()  # it has ended by itself
            if self.scheduler is None:
                raise RuntimeError(
                    f"{name}: mod_main() has returned, and no scheduler has run: expected MyScheduler(h, *args).run()"
                )
        self.run_until_idle()
        return self.scheduler

    def scheduler_runs(self, scheduler: Any) -> None:
        """Note the scheduler; called by its handle when it begins to run."""
        self.scheduler = scheduler

    def unload(self) -> None:
        """Unload the scheduler. Jobs continue; requests are sent again to the next scheduler."""
        if self.handle is None or self.handle.closed:
            return
        if self.scheduler is not None and self.handle.in_reactor:
            self.scheduler.finish()
        self.handle.close()
        self.resource.released(self.handle.task)
        self.subscriptions.clear()
        unanswered, self._unanswered = self._unanswered, {}
        self.job_manager.scheduler_gone()
        for msg in unanswered.values():
            self.reactor.respond(msg, msg.error_response(errno.EHOSTUNREACH))

    @property
    def is_loaded(self) -> bool:
        """Whether a scheduler is loaded and has not ended."""
        return self.handle is not None and not self.handle.closed

    def scheduler_stops(self) -> None:
        """End the scheduler, whose reactor has stopped; called by its handle."""
        if self.handle is not None and self.handle.stopped == -1:
            self.failure = OSError("reactor exited with error")
        self.unload()

    # -- jobs --------------------------------------------------------------------------------------

    def submit(
        self,
        nodes: int | str | None = None,
        slots: int | str = 1,
        cores: int | str = 1,
        gpus: int = 0,
        duration: float = 0,
        *,
        priority: int = 16,
        userid: int | None = None,
        runtime: float | None = None,
        jobspec: dict[str, Any] | None = None,
        exclusive: bool = False,
        constraints: dict[str, Any] | None = None,
        **system: Any,
    ) -> FakeJob:
        """Submit a job.

        Args:
            nodes (int or str): number of nodes, or an RFC 14 range such as ``2-8``; None: slots may
                share nodes
            slots (int or str): slots per node, or in total if `nodes` is None
            cores (int or str): cores per slot
            gpus (int): GPUs per slot
            duration (float): time limit in seconds; 0: none
            priority (int): 0 to 4294967295; a job of priority 0 is held, unknown to the scheduler
            userid (int): the submitter; default: the owner of the instance
            runtime (float): seconds from its start to its end; default: its time limit. Without
                either it runs until `FakeJob.end` is called
            jobspec (dict): its request (RFC 14), instead of the first five arguments and the last
                three
            exclusive (bool): whether to request whole nodes
            constraints (dict): constraint on nodes (RFC 31)
            **system: further keys of ``attributes.system``, such as ``queue``

        Returns:
            FakeJob: the job; the scheduler learns of it when the instance runs next
        """
        if isinstance(nodes, dict):
            raise TypeError("nodes: expected a number or range: a jobspec is passed as jobspec=")
        _check_seconds("duration", duration)
        _check_seconds("runtime", 0 if runtime is None else runtime)
        if jobspec is None:
            jobspec = builders.jobspec(
                slots, cores, gpus, nodes, duration, exclusive, constraints, **system
            )
        limit = jobspec["attributes"]["system"].get("duration", 0)
        job = FakeJob(
            self.job_manager,
            id=len(self.jobs) + 1,
            jobspec=jobspec,
            priority=priority,
            userid=os.getuid() if userid is None else userid,
            t_submit=self.now(),
            runtime=(limit or None) if runtime is None else runtime,
        )
        self.jobs[job.id] = job
        self.job_manager.submitted(job)
        return job

    def pending(self) -> list[FakeJob]:
        """Return the pending jobs, by job id."""
        return [job for job in self.jobs.values() if job.state == "pending"]

    def running(self) -> list[FakeJob]:
        """Return the running jobs, in order of starts."""
        found = [job for job in self.jobs.values() if job.state == "running"]
        return sorted(found, key=lambda job: (job.t_start, job.id))

    def report(self) -> str:
        """Return a line per job: ranks and start, annotations, or end.

        Times are in seconds since the initial time.
        """
        lines = [f"{job.name}: {job.describe(self.start_time)}" for job in self.jobs.values()]
        return "\n".join(lines)

    # -- nodes -------------------------------------------------------------------------------------

    def mark_down(self, ranks: str) -> None:
        """Take nodes (ranks, an idset) down. Jobs there continue, as on drained nodes. Raises
        ValueError if there is no such rank."""
        self.resource.down(self.resource.ranks_of(ranks))

    def mark_up(self, ranks: str) -> None:
        """Bring nodes (ranks, an idset) up again. Raises as `mark_down`."""
        self.resource.up(self.resource.ranks_of(ranks))

    def remove_ranks(self, ranks: str) -> None:
        """Remove nodes (ranks, an idset) for good, as when an instance shrinks. Raises as
        `mark_down`."""
        self.resource.shrink(self.resource.ranks_of(ranks))

    # -- time --------------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the time in seconds since the epoch; as `Scheduler.now`."""
        return float(self.reactor.clock.now())

    def run_until_idle(self) -> None:
        """Process all events that are due without time passing.

        Raises:
            SchedulerErrors: there are errors in the log
            RuntimeError: events do not end
            EndlessLoop: a turn takes more than 5 s of processor time; the text has the line
            Exception: raised by a callback of the scheduler, which has thereby ended, as on a real
                broker
        """
        self._run(self.reactor.run_until_idle)

    def advance(self, seconds: float) -> None:
        """Let time pass: timers expire, jobs end. Raises as `run_until_idle`."""
        _check_seconds("advance()", seconds)
        self._run(lambda: self.reactor.advance(seconds))

    def _run(self, run: Callable[[], None]) -> None:
        try:
            with self._watchdog():
                run()
        except BaseException as exc:
            self.failure = exc
            self.unload()
            raise
        if self.check_errors:
            self._raise_logged_errors()

    def _watchdog(self) -> Watchdog:
        return Watchdog(lambda: self.reactor.calls, self._stuck)

    def _stuck(self, frame: types.FrameType, seconds: float) -> None:
        raise EndlessLoop(
            f"the scheduler has not come back to its reactor for {seconds:.0f} s of processor time:"
            f" it is at {place(frame, self._path)}"
        )

    def _attribute(self, asked: Any) -> dict[str, str]:
        if asked["name"] not in self.attributes:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return {"value": self.attributes[asked["name"]]}

    @property
    def errors(self) -> list[str]:
        """The messages logged at ``err`` or worse."""
        return [text for level, text in self.log if level <= LOG_ERR]

    def _raise_logged_errors(self) -> None:
        new = [text for level, text in self.log[self._lines_checked :] if level <= LOG_ERR]
        self._lines_checked = len(self.log)
        if new:
            raise SchedulerErrors("errors are in the log:\n" + "\n".join(new))

    # -- messages ----------------------------------------------------------------------------------

    def request(self, topic: str, payload: Any = None, userid: int | None = None) -> Any:
        """Send a request to the scheduler, and run until it is answered or no event is left.

        Args:
            topic (str): topic, such as ``sched.explain``
            payload: a JSON value
            userid (int): the sender; default: the owner of the instance. Other users are guests

        Returns:
            the payload of the response

        Raises:
            OSError: the scheduler refuses, or none is loaded (ENOSYS)
            TimeoutError: it has not answered
        """
        answers: list[tuple[int, Any]] = []
        self.send(topic, payload, answered=lambda *answer: answers.append(answer), userid=userid)
        self.run_until_idle()
        if not answers:
            raise TimeoutError(errno.ETIMEDOUT, f"{topic} is not answered yet")
        errnum, answer = answers[0]
        if errnum:
            raise OSError(errnum, answer or os.strerror(errnum))
        return answer

    def send(
        self,
        topic: str,
        payload: Any = None,
        answered: Callable[[int, Any], Any] | None = None,
        userid: int | None = None,
        rolemask: int | None = None,
        sender: Any = None,
    ) -> None:
        """Send a request to the scheduler, to arrive in the next turn.

        Args:
            topic (str): topic, such as ``sched.alloc``
            payload: None, a text sent unchanged, or a JSON value
            answered: ``answered(errnum, payload)`` is called for each response; the payload of an
                error is its text. None: no response is wanted
            userid (int): as for `request`
            rolemask (int): roles of the user (RFC 12); default: owner or user
            sender: identifies the client
        """
        userid = os.getuid() if userid is None else userid
        if rolemask is None:
            rolemask = ROLE_OWNER if userid == os.getuid() else ROLE_USER
        text = payload_text(payload)

        def take(errnum: int, text: str | None) -> None:
            answer: Any = text if errnum or text is None else json.loads(text)
            # A request for resources is open until it gets an answer other than annotations.
            is_annotation = isinstance(answer, dict) and answer.get("type") == ANNOTATE
            if errnum or topic != "sched.alloc" or not is_annotation:
                self._unanswered.pop(id(msg), None)
            tell(errnum, answer)

        tell: Any = answered
        receiver = None if answered is None else take
        msg = FakeMessage(topic, text, receiver, userid=userid, rolemask=rolemask, sender=sender)
        if answered is not None:
            self._unanswered[id(msg)] = msg
        self.reactor.request(msg)

    def publish(self, topic: str, payload: Any = None) -> None:
        """Publish an event, which the scheduler receives in the next turn if it has subscribed to
        it."""
        if self.handle is not None and any(map(topic.startswith, self.subscriptions)):
            self.handle.task.receive(FakeMessage(topic, payload_text(payload), type=EVENT))

    def add_service(self, name: str, methods: dict[str, Callable[[Any], Any]]) -> None:
        """Add a service that the scheduler under test queries.

        Args:
            name (str): first word of its topics
            methods (dict): rest of a topic after the dot -> function of the request's payload,
                which returns the payload of the response, or raises OSError to refuse
        """
        FakeService(self, name, {}).serve(methods)


def _check_seconds(name: str, value: Any) -> None:
    if not (isinstance(value, (int, float)) and 0 <= value < math.inf):
        raise ValueError(f"{name}: expected seconds, 0 or more, got {value!r}")


# -- finding and starting policies -----------------------------------------------------------------


def find_module(policy: Any) -> Path:
    """Return the file of a module: a path, or that of a scheduler of the library, by name. Raises
    FileNotFoundError if the file does not exist."""
    path = Path(policy)
    if len(path.parts) == 1 and not path.suffix:
        path = MODULES / path.name / f"{path.name}.py"
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return path


def _entry_of_file(path: Path) -> Callable[..., Any]:
    """Return the entry point of a module file: its ``mod_main``, else the only module class there,
    imported ones included, as in flux-core."""
    module = types.ModuleType(path.stem.replace("-", "_"))
    module.__file__ = str(path)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    try:
        return resolve_entry_point(module)
    except ValueError as exc:
        raise ValueError(f"{path}: {exc}") from None
