# SPDX-License-Identifier: LGPL-3.0-or-later
"""The start of a scheduler: acquiring resources, taking over running jobs, and reporting ready (RFC
27, RFC 28)."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from syslog import LOG_DEBUG
from typing import Any, Callable, NamedTuple

from flux.constants import FLUX_RPC_STREAMING
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler import messages
from flux.scheduler.host import Host, counted, get_key_direct, kvs_dir, looked_up, name_of
from flux.scheduler.requests import RunningJob

#: job-info.lookup flags: R as an object, with updates such as a new expiration applied (RFC 41).
LOOKUP_DECODE = 1
LOOKUP_CURRENT = 2


class Acquisition:
    """The instance's resources, from the resource service (RFC 28). Raises OSError if the request
    cannot be sent."""

    #: Seconds in which a service that knows the resources answers, unless the machine is very busy.
    KNOWN_RESOURCES_WAIT_S = 0.25

    def __init__(self, handle: Any) -> None:
        self.future = handle.rpc("resource.acquire", flags=FLUX_RPC_STREAMING)

    def at_once(self) -> bool:
        """Whether the resources are known already; waits `KNOWN_RESOURCES_WAIT_S` at most.

        At an instance's start they may become known only when all brokers are up, which needs the
        scheduler's module to run.
        """
        try:
            self.future.wait_for(self.KNOWN_RESOURCES_WAIT_S)
        except OSError:  # including TimeoutError
            pass
        return bool(self.future.is_ready())

    def then(self, changed: Callable[[dict[str, Any] | None, Exception | None], None]) -> None:
        """Have ``changed(update, error)`` called for each further response; `error` is an OSError
        for the final one, another exception if a response is unreadable."""

        def received(future: Any) -> None:
            try:
                update = self.next()
            except Exception as exc:
                changed(None, exc)
            else:
                changed(update, None)

        self.future.then(received)

    def next(self) -> dict[str, Any]:
        """Wait for the next response and return it. Raises OSError if there are no resources, or
        another scheduler has acquired them."""
        try:
            response = self.future.get()
        except OSError:
            raise
        except Exception:  # not JSON
            self.future.reset()
            raise
        self.future.reset()
        if not isinstance(response, dict):
            raise ValueError("the response is not an object")
        return response


def running_jobs(handle: Any, partial_ok: bool) -> list[dict[str, Any]]:
    """Ask the job manager for the jobs that hold resources; `partial_ok`: also those that have
    returned part of theirs. Return for each an id, priority, userid, t_submit and, if part was
    returned, free (idset). Raises OSError if the job manager refused."""
    return list(_hello_responses(_say_hello(handle, partial_ok)))


def _say_hello(handle: Any, partial_ok: bool) -> Any:
    return handle.rpc(
        "job-manager.sched-hello", {"partial-ok": partial_ok}, flags=FLUX_RPC_STREAMING
    )


def _hello_responses(future: Any) -> Iterator[dict[str, Any]]:
    while True:
        try:
            yield future.get()
        except OSError as exc:
            if exc.errno == errno.ENODATA:
                return
            raise
        future.reset()


def ready(
    handle: Any, queue_depth: Any, again: bool, partial_ok: bool
) -> tuple[list[dict[str, Any]], int]:
    """Announce the maximum number of open requests. Return the answer of `running_jobs` if hello
    was said again (`again`), else [], and the number of pending jobs. Raises OSError if the job
    manager refused.

    The job manager reports no frees between hello and ready. A scheduler that looks up jobs in
    between says hello again, to learn of them. Both requests are sent before either is answered, so
    that almost nothing can be freed between them.
    """
    hello = _say_hello(handle, partial_ok) if again else None
    mode: dict[str, Any] = {"mode": "unlimited"}
    if queue_depth != "unlimited":
        mode = {"mode": "limited", "limit": int(queue_depth)}
    answer = handle.rpc("job-manager.sched-ready", mode)
    jobs = [] if hello is None else list(_hello_responses(hello))
    return jobs, int(answer.get()["count"])


def current_R(
    handle: Any, jobids: list[int]
) -> Iterator[tuple[int, dict[str, Any] | None, Exception | None]]:
    """Yield (jobid, R dict or None, the exception that made it unreadable or None) for jobs, with
    updates of expiration applied."""

    def ask(jobid: int) -> Any:
        asked = {"id": jobid, "keys": ["R"], "flags": LOOKUP_DECODE | LOOKUP_CURRENT}
        return handle.rpc("job-info.lookup", asked)

    for jobid, future in looked_up(jobids, ask):
        try:
            R = future.get()["R"]
            yield jobid, json.loads(R) if isinstance(R, str) else R, None
        except OSError as exc:
            if exc.errno != errno.ENOSYS:
                yield jobid, None, exc
                continue
            try:
                yield jobid, _R_from_kvs(handle, jobid), None
            except Exception as error:  # unreadable data only concerns that job
                yield jobid, None, error
        except Exception as exc:
            yield jobid, None, exc


def _R_from_kvs(handle: Any, jobid: int) -> dict[str, Any]:
    """Return the original R updated from the eventlog, for instances without job-info."""
    directory = kvs_dir(jobid)
    R: dict[str, Any] = get_key_direct(handle, directory + ".R")
    log = get_key_direct(handle, directory + ".eventlog")
    # The binding parses any JSON text, including a log of one event.
    events = (
        [log]
        if isinstance(log, dict)
        else [json.loads(line) for line in log.splitlines() if line.strip()]
    )
    for event in events:
        if event.get("name") == "resource-update":
            expiration = event.get("context", {}).get("expiration")
            if isinstance(expiration, (int, float)):
                R["execution"]["expiration"] = expiration
    return R


class Departed(NamedTuple):
    """A running job's resources on ranks that have left the pool."""

    ranks: str  # the ranks, as an idset
    R: dict[str, Any]  # its resources there


class Hello:
    """Takes over the jobs that hold resources when a scheduler starts (RFC 27).

    A job whose resources cannot be taken over gets a ``scheduler-restart`` exception: its resources
    must be returned rather than be allocated twice. Until then those known to the pool stay
    allocated. Other jobs are unaffected.
    """

    def __init__(self, host: Host, pool: ResourcePool, enter: Callable[..., None]) -> None:
        self.handle = host.handle
        self.pool = pool
        self.enter = enter  # ``enter(jobid, priority, userid, t_submit, R)`` marks R as allocated
        self.errors = host.errors
        self.now = host.now
        self.jobs: dict[int, RunningJob] = {}  # job id -> job taken over (`RunningJob`)
        #: job id -> resources on ranks that have left the pool (`Departed`)
        self.lost: dict[int, Departed] = {}

    def take_over(self, jobs: list[dict[str, Any]]) -> None:
        """Take over each of `jobs` (see `running_jobs`)."""
        log = self.errors.log
        known = {}
        taken = 0
        now = self.now()
        for entry in jobs:
            try:
                job, wrong = messages.read_hello(entry, now)
            except ValueError:
                self.errors.report(f"hello: malformed response: {entry!r}")
                continue
            known[job["id"]] = job
            for key in wrong:
                self.errors.report(f"hello: {name_of(job['id'])}: {key}={entry.get(key)!r}")
        for jobid, R, error in current_R(self.handle, list(known)):
            job = known[jobid]
            held: ResourcePool | None = None
            try:
                if error is not None:
                    raise error
                held = ResourcePool(R)
                if job.get("free"):
                    held.remove_ranks(job["free"])
                if log.level >= LOG_DEBUG:
                    log.debug(f"hello: {name_of(jobid)}: {held.dumps()}")
                self.enter(jobid, job["priority"], job["userid"], job["t_submit"], held)
                self._note(job, held.to_dict() if job.get("free") or not isinstance(R, dict) else R)
            except (Exception, SystemExit):  # including exceptions of a site's override
                self.errors.report(f"hello: {name_of(jobid)}: failed to reallocate R", trace=True)
                self._restart(jobid)
                if held is not None:
                    self._hold_the_rest(job, held)
            else:
                taken += 1
        if known:
            lost = len(known) - taken
            log.info(
                f"hello: {counted(taken, 'job')} found running"
                + (f", {counted(lost, 'job')} could not be taken over" if lost else "")
            )

    def released(self, jobs: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any], bool]]:
        """Yield the frees since the jobs were taken over, from the present answer of
        `running_jobs`: job id, freed resources (an R object), whether that is the final free."""
        still = {job["id"]: job.get("free") for job in jobs if isinstance(job.get("id"), int)}
        for jobid, job in self.jobs.items():
            if jobid not in still:
                yield jobid, job.R_object or {}, True
            elif still[jobid]:
                part = ResourcePool(job.R_object)
                ranks = part.to_resource_set().ranks
                came_back = ranks.intersect(still[jobid])
                if came_back.count():
                    part.remove_ranks(ranks.difference(came_back))
                    yield jobid, part.to_dict(), False

    def _note(self, job: dict[str, Any], R: dict[str, Any], ends: bool = False) -> None:
        found = self.jobs[job["id"]] = RunningJob.found(job, R)
        if ends or job.get("free"):
            found.ending = self.now()

    def _hold_the_rest(self, job: dict[str, Any], held: ResourcePool) -> None:
        """Hold the resources of a job that is being ended, until its ``sched.free``.

        Ranks that have left are removed, here and from R freed later.
        """
        jobid = int(job["id"])
        try:
            ranks = held.to_resource_set().ranks
            if not ranks.count():
                return
            lost = None
            gone = ranks - self.pool.to_resource_set().ranks
            if gone.count():
                on_gone = ResourcePool(held.to_dict())
                on_gone.remove_ranks((ranks - gone).encode())
                lost = Departed(gone.encode(), on_gone.to_dict())
                held.remove_ranks(gone.encode())
            # Even without any of its ranks it is in the pool, as when ranks leave later.
            self.pool.register_alloc(jobid, held)
        except Exception as exc:
            # Held by another job, or already entered by the hello override: nothing can be done.
            self.errors.log.debug(f"hello: {name_of(jobid)}: {exc}")
            return
        self._note(job, held.to_dict(), ends=True)
        if lost is not None:
            self.lost[jobid] = lost

    def _restart(self, jobid: int) -> None:
        what = f"hello: raising an exception on {name_of(jobid)}"
        raised = {"id": jobid, "type": "scheduler-restart", "severity": 0}
        raised["note"] = "failed to reallocate R for running job"
        answered = lambda future: self.errors.guard(what, future.get)
        self.errors.guard(what, lambda: self.handle.rpc("job-manager.raise", raised).then(answered))
