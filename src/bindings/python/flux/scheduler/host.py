"""What a scheduler needs of its host: time, the KVS, and the three steps of its start (RFC 27, RFC 28)."""

import errno
import json
import time

from flux.constants import FLUX_RPC_STREAMING
from flux.job import job_raise_async
from flux.kvs import KVSTxn, get_key_direct
from flux.resource.ResourcePool import ResourcePool


def loop_now(handle):
    """Seconds since the epoch, as the reactor of `handle` last saw them."""
    return handle.reactor_now(handle.get_reactor())


def stopwatch(handle):
    """Return a function that gives seconds from an arbitrary start, to time a piece of code with.

    A host whose time is not the machine's brings its own, so that how fast this machine is does
    not change what an emulated instance decides.
    """
    # Asked of the class: a handle may look unknown names up elsewhere, with other exceptions.
    if hasattr(type(handle), "stopwatch"):
        return handle.stopwatch
    return time.perf_counter


def wants_forecast(handle):
    """Whether anybody looks at estimates and reasons: a simulation for its start times does not."""
    return getattr(type(handle), "wants_forecast", True) is not False


def kvs_dir(jobid):
    """The KVS directory of a job: ``job.`` and the id in dotted hexadecimal (RFC 19)."""
    digits = f"{jobid:016x}"
    return f"job.{digits[:4]}.{digits[4:8]}.{digits[8:12]}.{digits[12:]}"


def r_key(jobid):
    """The KVS key of a job's R."""
    return kvs_dir(jobid) + ".R"


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


FIRST_RETRY = 0.1
LONGEST_RETRY = 5.0
#: Seconds after which a KVS that refuses every commit is given up.
PATIENCE = 60.0


class Committer:
    """Writes keys, and says when they are safe.

    Args:
        handle: the Flux handle
        log: a BrokerLogger
        now: function giving the time, seconds since the epoch
        give_up: ``give_up(keys)``, called when the KVS stays out of order, with what is not stored

    Attributes:
        written (int): commits that succeeded
        accepted, stored (int): keys taken and keys stored so far; they are stored in order
    """

    def __init__(self, handle, log, now, give_up):
        self.handle = handle
        self.log = log
        self.now = now
        self.give_up = give_up
        self.written = 0
        self.accepted = 0
        self.stored = 0
        self._raw = True  # whether the bindings store text as it is
        self._waiting = []
        self._batch = []
        self._armed = False
        self._failing_since = None
        self._delay = FIRST_RETRY
        self._timer = handle.timer_watcher_create(0.0, self._expired)

    def put(self, key, text, done):
        """Store `text` under `key`, then call ``done()``.

        Args:
            key (str): KVS key
            text (str): JSON
        """
        self.accepted += 1
        self._waiting.append((key, text, done))
        if not self._batch and not self._armed:
            # Whatever else this turn of the reactor brings goes along.
            self._arm(0.0)

    def _arm(self, delay):
        self._armed = True
        self._timer.reset(after=delay)

    def _expired(self, handle, watcher, revents, args):
        self._armed = False
        self._commit()

    def _commit(self):
        if not self._batch:
            self._batch, self._waiting = self._waiting, []
        if not self._batch:
            return
        try:
            self._transaction().commit_async().then(self._committed)
        except Exception as exc:  # whatever it was, the jobs wait and it is tried again
            self._failed(exc)

    def _transaction(self):
        txn = KVSTxn(self.handle)
        if self._raw:
            try:
                for key, text, _ in self._batch:
                    txn.put(key, text, raw=True)
                return txn
            except TypeError:
                self._raw = False
                txn = KVSTxn(self.handle)
        for key, text, _ in self._batch:
            txn.put(key, json.loads(text))
        return txn

    def _committed(self, future):
        try:
            future.get()
        except Exception as exc:
            self._failed(exc)
            return
        self.written += 1
        if self._failing_since is not None:
            self.log.info("KVS commit of R succeeded again")
            self._failing_since = None
            self._delay = FIRST_RETRY
        batch, self._batch = self._batch, []
        for _, _, done in batch:
            self.stored += 1
            done()
        if self._waiting:
            self._commit()

    def _failed(self, exc):
        now = self.now()
        if self._failing_since is None:
            self._failing_since = now
            self.log.error(f"KVS commit of R failed, trying again: {exc}")
        elif now - self._failing_since >= PATIENCE:
            lost = [key for key, _, _ in self._batch + self._waiting]
            self._batch, self._waiting = [], []
            self.give_up(lost)
            return
        self._arm(self._delay)
        self._delay = min(2 * self._delay, LONGEST_RETRY)
