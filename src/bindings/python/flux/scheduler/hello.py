# SPDX-License-Identifier: LGPL-3.0-or-later
"""The steps of a scheduler's start: the resources, the jobs that run already, and that it is ready
(RFC 27, RFC 28)."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from syslog import LOG_DEBUG
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from flux.constants import FLUX_RPC_STREAMING
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler import messages
from flux.scheduler.host import (
    LOOKUPS_AT_ONCE,
    counted,
    get_key_direct,
    job_raise_async,
    kvs_dir,
    name_of,
)
from flux.scheduler.requests import RunningJob

if TYPE_CHECKING:
    from flux.scheduler.host import ErrorReporter

#: job-info.lookup: R as an object, with updates such as a new expiration applied (RFC 41).
LOOKUP_DECODE = 1
LOOKUP_CURRENT = 2


class Acquisition:
    """The resources of the instance, as the resource service tells of them (RFC 28).

    Args:
        handle: the Flux handle

    Raises:
        OSError: the request cannot be sent
    """

    #: Seconds in which a service that knows the resources answers, unless the machine is very busy.
    KNOWN_RESOURCES_WAIT_S = 0.25

    def __init__(self, handle: Any) -> None:
        self.future = handle.rpc("resource.acquire", flags=FLUX_RPC_STREAMING)

    def at_once(self) -> bool:
        """Whether the resources are known already; waits for a moment to find out.

        While an instance starts they may be known only after all brokers came up, which they do
        not before the scheduler's module runs.
        """
        try:
            self.future.wait_for(self.KNOWN_RESOURCES_WAIT_S)
        except OSError:  # a TimeoutError is one
            pass
        return bool(self.future.is_ready())

    def first(self) -> dict[str, Any]:
        """The first response; waits for it.

        Raises:
            OSError: there are no resources, or another scheduler has them
        """
        return self._next()

    def then(self, changed: Callable[[dict[str, Any] | None, Exception | None], None]) -> None:
        """Have ``changed(update, error)`` called for each further response: with an OSError for the
        one that ends them, with another exception for one that cannot be read."""

        def received(future: Any) -> None:
            try:
                update = self._next()
            except Exception as exc:
                changed(None, exc)
            else:
                changed(update, None)

        self.future.then(received)

    def _next(self) -> dict[str, Any]:
        try:
            response = self.future.get()
        except OSError:
            raise
        except Exception:  # it is not JSON
            self.future.reset()
            raise
        self.future.reset()
        if not isinstance(response, dict):
            raise ValueError("the response is no object")
        return response


def running_jobs(handle: Any, partial_ok: bool) -> list[dict[str, Any]]:
    """Ask the job manager which jobs hold resources.

    Args:
        partial_ok (bool): whether it may name jobs that returned part of theirs already

    Returns:
        list of dict: id, priority, userid, t_submit and, where part was returned, free (idset)

    Raises:
        OSError: the job manager refused
    """
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
    """Say how many requests may be sent at a time.

    The job manager announces no release between hello and ready. A scheduler that asks more about
    jobs in between says hello again, to learn of resources released in that time; both requests are
    sent before either is answered, so that next to nothing can come back between them.

    Args:
        queue_depth (int or str): a number, or "unlimited"
        again (bool): whether to say hello again
        partial_ok (bool): as for `running_jobs`

    Returns:
        what `running_jobs` does, if it said hello again; how many jobs wait

    Raises:
        OSError: the job manager refused
    """
    hello = _say_hello(handle, partial_ok) if again else None
    mode: dict[str, Any] = {"mode": "unlimited"}
    if queue_depth != "unlimited":
        mode = {"mode": "limited", "limit": queue_depth}
    answer = handle.rpc("job-manager.sched-ready", mode)
    jobs = [] if hello is None else list(_hello_responses(hello))
    return jobs, int(answer.get()["count"])


def current_R(
    handle: Any, jobids: list[int]
) -> Iterator[tuple[int, dict[str, Any] | None, Exception | None]]:
    """Look up the R that jobs have now, with updates of their expiration applied.

    Args:
        jobids (list of int): the jobs

    Yields:
        (jobid, R dict or None, None or the exception that kept it from being read)
    """
    for start in range(0, len(jobids), LOOKUPS_AT_ONCE):
        some = jobids[start : start + LOOKUPS_AT_ONCE]
        futures = [
            handle.rpc(
                "job-info.lookup",
                {"id": jobid, "keys": ["R"], "flags": LOOKUP_DECODE | LOOKUP_CURRENT},
            )
            for jobid in some
        ]
        for jobid, future in zip(some, futures):
            try:
                R = future.get()["R"]
                yield jobid, json.loads(R) if isinstance(R, str) else R, None
            except OSError as exc:
                if exc.errno != errno.ENOSYS:
                    yield jobid, None, exc
                    continue
                try:
                    yield jobid, _R_from_kvs(handle, jobid), None
                except Exception as error:  # one job's unreadable data is that job's trouble
                    yield jobid, None, error
            except Exception as exc:
                yield jobid, None, exc


def _R_from_kvs(handle: Any, jobid: int) -> dict[str, Any]:
    """R as first written, updated from the eventlog: for instances without job-info."""
    directory = kvs_dir(jobid)
    R: dict[str, Any] = get_key_direct(handle, directory + ".R")
    log = get_key_direct(handle, directory + ".eventlog")
    # The binding parses any JSON text, such as a log of one event.
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


class Lost(NamedTuple):
    """Holdings of a job that was found running on ranks that left the pool.

    Attributes:
        ranks (str): the ranks, as an idset
        R (dict): its resources there
    """

    ranks: str
    R: dict[str, Any]


class Hello:
    """Accounts for the jobs that hold resources when a scheduler starts (RFC 27).

    A job whose resources cannot be accounted for gets a ``scheduler-restart`` exception, so that
    they come back rather than be given out twice; until they do, those the pool knows stay
    allocated. One bad job does not keep the others from it.

    Args:
        handle: the Flux handle
        pool (ResourcePool): the scheduler's pool
        enter: ``enter(jobid, priority, userid, t_submit, R)``, which marks R as allocated
        errors (ErrorReporter): where failures are reported

    Attributes:
        jobs (dict): by id, the jobs that were accounted for (`RunningJob`)
        lost (dict): by job id, holdings on ranks that left the pool (`Lost`)
    """

    def __init__(
        self, handle: Any, pool: ResourcePool, enter: Callable[..., None], errors: ErrorReporter
    ) -> None:
        self.handle = handle
        self.pool = pool
        self.enter = enter
        self.errors = errors
        self.jobs: dict[int, RunningJob] = {}
        self.lost: dict[int, Lost] = {}

    def take_over(self, jobs: list[dict[str, Any]]) -> None:
        """Account for each of `jobs` (see `running_jobs`)."""
        log = self.errors.log
        known = {}
        taken = 0
        now = float(self.handle.reactor_now(self.handle.get_reactor()))
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
            except Exception:  # includes exceptions of a site's override
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
        """Yield the releases since the jobs were accounted for.

        Args:
            jobs: the answer of `running_jobs` now

        Yields:
            job id, released resources (an R object), whether that was all of the job
        """
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

    def _note(self, job: dict[str, Any], R: dict[str, Any]) -> None:
        self.jobs[job["id"]] = RunningJob.found(job, R)

    def _hold_the_rest(self, job: dict[str, Any], held: ResourcePool) -> None:
        """The job is being ended, but until ``sched.free`` comes it holds its resources.

        Ranks that are gone are cut off, here and from R that is freed later.
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
                lost = Lost(gone.encode(), on_gone.to_dict())
                held.remove_ranks(gone.encode())
            # Without any of its ranks it is in the pool all the same, as where they leave later.
            self.pool.register_alloc(jobid, held)
        except Exception as exc:
            # Held by another job, or the hello override had entered it: nothing more can be done.
            self.errors.log.debug(f"hello: {name_of(jobid)}: {exc}")
            return
        self._note(job, held.to_dict())
        if lost is not None:
            self.lost[jobid] = lost

    def _restart(self, jobid: int) -> None:
        what = f"hello: raising an exception on {name_of(jobid)}"

        def report(future: Any) -> None:
            try:
                future.get()
            except Exception as exc:
                self.errors.report(f"{what}: {exc}")

        try:
            job_raise_async(
                self.handle,
                jobid,
                "scheduler-restart",
                0,
                "failed to reallocate R for running job",
            ).then(report)
        except Exception as exc:
            self.errors.report(f"{what}: {exc}")
