"""What a scheduler does before its reactor runs: acquire, hello, ready (RFC 27, RFC 28)."""

import errno
import json

from flux.constants import FLUX_RPC_STREAMING
from flux.job import job_raise_async
from flux.kvs import get_key_direct
from flux.resource.ResourcePool import ResourcePool
from flux.scheduler.jobpath import kvs_dir

#: job-info.lookup: R as an object, with updates such as a new expiration applied (RFC 41).
LOOKUP_DECODE = 1
LOOKUP_CURRENT = 2

#: Lookups in flight at a time: enough to hide the round trip, few enough not to flood job-info.
LOOKUPS_AT_ONCE = 512

LOG_INFO = 6


def acquire(handle):
    """Ask for the resources; returns the stream's future and its first response (RFC 28).

    Raises:
        OSError: there are none to have, or somebody has them
    """
    future = handle.rpc("resource.acquire", flags=FLUX_RPC_STREAMING)
    first = future.get()
    future.reset()
    return future, first


def running_jobs(handle, partial_ok):
    """Ask the job manager which jobs hold resources.

    Args:
        partial_ok (bool): whether it may name jobs that returned part of theirs already

    Returns:
        list of dict: id, priority, userid, t_submit and, where part was returned, free (idset)

    Raises:
        OSError: the job manager refused
    """
    future = handle.rpc(
        "job-manager.sched-hello", {"partial-ok": partial_ok}, flags=FLUX_RPC_STREAMING
    )
    jobs = []
    while True:
        try:
            jobs.append(future.get())
        except OSError as exc:
            if exc.errno == errno.ENODATA:
                return jobs
            raise
        future.reset()


def ready(handle, queue_depth):
    """Say how many requests may be sent at a time; returns how many jobs wait.

    Raises:
        OSError: the job manager refused
    """
    if queue_depth == "unlimited":
        payload = {"mode": "unlimited"}
    else:
        payload = {"mode": "limited", "limit": queue_depth}
    return handle.rpc("job-manager.sched-ready", payload).get()["count"]


def current_R(handle, jobids):
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


def _R_from_kvs(handle, jobid):
    """R as first written, and what its eventlog changed since: where there is no job-info."""
    directory = kvs_dir(jobid)
    R = get_key_direct(handle, directory + ".R")
    log = get_key_direct(handle, directory + ".eventlog")
    # The binding parses what parses as JSON, which a log of one event does.
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


def hello(scheduler, jobs):
    """Have the scheduler account for each of `jobs` (see `running_jobs`).

    A job whose resources cannot be accounted for gets a ``scheduler-restart`` exception, so that
    they come back rather than be given out twice; until they do, those the pool knows stay
    allocated. One bad job does not keep the others from it.
    """
    known = {}
    for job in jobs:
        try:
            known[int(job["id"])] = job
        except (KeyError, TypeError, ValueError):
            scheduler._mishap(f"hello: malformed response: {job!r}")
    for jobid, R, error in current_R(scheduler.handle, list(known)):
        job = known[jobid]
        pool = None
        try:
            if error is not None:
                raise error
            pool = ResourcePool(R)
            if job.get("free"):
                pool.remove_ranks(job["free"])
            if scheduler.log.level >= LOG_INFO:
                scheduler.log.info(f"hello: {scheduler._name_of(jobid)}: {pool.dumps()}")
            scheduler.hello(jobid, job["priority"], job["userid"], job["t_submit"], pool)
            scheduler._holding.add(jobid)
        except Exception:  # includes whatever a site's override raises
            scheduler._mishap(
                f"hello: {scheduler._name_of(jobid)}: failed to reallocate R", trace=True
            )
            _restart(scheduler, jobid)
            if pool is not None:
                _hold_the_rest(scheduler, jobid, pool)


def _hold_the_rest(scheduler, jobid, pool):
    """The job is being ended, but until ``sched.free`` comes it is still on what it holds.

    Ranks that are gone are cut off, here and from what will be freed.
    """
    try:
        lost = pool.to_resource_set().ranks - scheduler.resources.to_resource_set().ranks
        if lost.count():
            pool.remove_ranks(lost.encode())
        if not pool.to_resource_set().ranks.count():
            return
        scheduler.resources.register_alloc(jobid, pool)
    except Exception as exc:
        # Held by another job, or the hello override had entered it: nothing more can be done.
        scheduler.log.debug(f"hello: {scheduler._name_of(jobid)}: {exc}")
        return
    scheduler._holding.add(jobid)
    if lost.count():
        scheduler._lost_ranks[jobid] = lost.encode()


def _restart(scheduler, jobid):
    def report(future):
        try:
            future.get()
        except Exception as exc:
            scheduler._mishap(f"hello: raising an exception on {scheduler._name_of(jobid)}: {exc}")

    try:
        job_raise_async(
            scheduler.handle,
            jobid,
            "scheduler-restart",
            0,
            "failed to reallocate R for running job",
        ).then(report)
    except Exception as exc:
        scheduler._mishap(f"hello: raising an exception on {scheduler._name_of(jobid)}: {exc}")
