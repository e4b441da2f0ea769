# SPDX-License-Identifier: LGPL-3.0-or-later
"""The host of a scheduler: time, the log, the KVS, and lookups of jobs."""

from __future__ import annotations

import heapq
import itertools
import json
import math
import os
import time
import traceback
from collections.abc import Iterator
from typing import Any, Callable

from flux.constants import FLUX_RPC_NORESPONSE
from flux.resource.pool.explain import counted as counted

# -- time ------------------------------------------------------------------------------------------


class Clock:
    """The time of the reactor.

    The bindings have no documented function for it, and the operating system's time does not apply:
    an emulated instance may stop or speed up time. Only this class reads it.

    A reading costs some microseconds, and a pass needs one per job. So during a step of a pass,
    between `freeze` and `thaw`, one reading is kept: the reactor's time does not change during a
    callback.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self._reactor = handle.get_reactor()
        self._frozen: float | None = None

    def now(self) -> float:
        """Return the time of the current reactor turn, in seconds since the epoch."""
        if self._frozen is not None:
            return self._frozen
        return float(self.handle.reactor_now(self._reactor))

    def freeze(self) -> None:
        """Read the clock, and keep the reading until `thaw`."""
        self._frozen = float(self.handle.reactor_now(self._reactor))

    def thaw(self) -> None:
        """Read the clock again: the reactor continues."""
        self._frozen = None


#: Maximum delay of a relayed message in seconds. A wake-up costs the module 0.1 ms, and the broker
#: about as much.
RELAY_WAKE_S = 0.1


class RelayWaker:
    """Sends the broker a message every `RELAY_WAKE_S` if the module is a separate process.

    Flux 0.88 relays such a module's messages in a thread (``libsubprocess/msgchan.c``) that watches
    one handle for input and for output. Each watcher drains the handle's edge-triggered descriptor,
    so the other may miss its edge: the rest of a message larger than the socket's buffer then stays
    in the broker until another message passes. About one in a hundred requests of 10 MB, which any
    guest may send, held up an idle module for 60 s.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        if "FLUX_MODULE_URI" in os.environ:
            self._timer = handle.timer_watcher_create(RELAY_WAKE_S, self._wake, repeat=RELAY_WAKE_S)
            self._timer.start()

    def _wake(self, *_: Any) -> None:
        self._handle.rpc("broker.ping", {"seq": 0}, flags=FLUX_RPC_NORESPONSE)


class Timer:
    """A call scheduled for a given time; see `Timers.call_at`."""

    __slots__ = ("function", "when")

    def __init__(self, when: float, function: Callable[[], Any]) -> None:
        self.when = when  # seconds since the epoch
        self.function: Callable[[], Any] | None = function  # None: it was called or canceled

    def cancel(self) -> None:
        """Cancel the call; no effect if it was already made."""
        self.function = None


#: In place of a timer, where there is none.
NO_TIMER = Timer(math.inf, lambda: None)

#: Maximum seconds between readings of the clock: an administrator may set it.
CLOCK_CHECK_S = 60.0


class Timers:
    """Calls functions at given times of the reactor's clock, all with a single timer watcher, armed
    for `longest` seconds at most."""

    def __init__(
        self, handle: Any, clock: Clock, errors: ErrorReporter, longest: float = CLOCK_CHECK_S
    ) -> None:
        self._handle = handle
        self._longest = longest
        self._clock = clock
        self._errors = errors
        #: a heap; equal times are called in order of `call_at`, by serial number
        self._due: list[tuple[float, int, Timer]] = []
        self._most = 64  # number of these, canceled ones included, at which the latter are dropped
        self._numbers = itertools.count()
        self._armed_for = math.inf
        self._watcher = handle.timer_watcher_create(0.0, self._fired)

    def move(self) -> None:
        """Continue with another reactor, of the same handle, in virtual time."""
        self._watcher = self._handle.timer_watcher_create(0.0, self._fired)
        self._armed_for = self._longest = math.inf
        self._arm()

    def call_at(self, when: float, function: Callable[[], Any]) -> Timer:
        """Call a function once, at a given time (seconds since the epoch) or as soon afterwards as
        possible. An exception is logged and counted."""
        timer = Timer(when, function)
        heapq.heappush(self._due, (when, next(self._numbers), timer))
        if len(self._due) > self._most:
            self._due = [one for one in self._due if one[2].function is not None]
            heapq.heapify(self._due)
            self._most = 2 * len(self._due) + 64
        self._arm()
        return timer

    def _arm(self) -> None:
        while self._due and self._due[0][2].function is None:
            heapq.heappop(self._due)
        if self._due and self._due[0][0] < self._armed_for:
            self._armed_for = self._due[0][0]
            self._watcher.stop()
            after = max(0.0, self._armed_for - self._clock.now())
            self._watcher.reset(after=min(after, self._longest))

    def _fired(self, *_: Any) -> None:
        self._armed_for = math.inf
        now = self._clock.now()
        due = []
        while self._due and self._due[0][0] <= now:
            due.append(heapq.heappop(self._due)[2])
        # A function that schedules itself for now is called in the next turn: messages come first.
        for timer in due:
            function, timer.function = timer.function, None
            if function is not None:
                self._errors.guard("timer", function)
        self._arm()


class InstanceConfig:
    """The instance's configuration, read at the first access."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._config: dict[str, Any] | None = None

    def get(self) -> dict[str, Any]:
        """Return the tables as last loaded; {} if they are unreadable."""
        if self._config is None:
            try:
                self._config = self._handle.conf_get(None, {}, update=True) or {}
            except OSError:
                return {}
        return self._config

    def replace(self, config: Any) -> None:
        self._config = config if isinstance(config, dict) else {}


# -- errors ---------------------------------------------------------------------------------------


#: Maximum length of a report: a fault in a table or a message may be arbitrarily long.
MAX_REPORT = 4000


class ErrorReporter:
    """Logs and counts errors, so that they do not propagate.

    On a real broker a running module that fails brings down the instance. So exceptions caused by
    an override or a peer are caught where they concern only one job or message, and reported here.
    """

    def __init__(self, log: Any) -> None:
        self.log = log
        self.count = 0  # the number of errors

    def report(self, text: str, error: BaseException | None = None, trace: bool = False) -> None:
        """Log the subject `text` at ``err``, with the traceback of `error` or (`trace`) of the
        exception being handled, and count it."""
        self.count += 1
        if error is not None:
            lines = traceback.format_exception(type(error), error, error.__traceback__)
            text += "\n" + "".join(lines).rstrip()
        elif trace:
            text += "\n" + traceback.format_exc().rstrip()
        if len(text) > MAX_REPORT:
            half = MAX_REPORT // 2
            text = f"{text[:half]} ({len(text) - MAX_REPORT} characters) {text[-half:]}"
        self.log.error(text)

    def guard(self, what: str, function: Callable[..., Any], *args: Any) -> bool:
        """Call a function, and report an exception under the subject `what`. Return whether it
        returned normally."""
        try:
            function(*args)
            return True
        except (Exception, SystemExit):
            self.report(what, trace=True)
            return False


#: Seconds by which a time may be past that a site gives.
YEARS_S = 1e8


def check_time(when: Any, now: float, call: Callable[[], str]) -> None:
    """Raise ValueError if a site's time is not one, in seconds since the epoch, but perhaps a
    number of seconds from now. `call` returns the text of the call that has it."""
    try:
        is_time = float(when) > now - YEARS_S
    except (TypeError, ValueError):
        is_time = False
    if not is_time:
        raise ValueError(f"{call()}: expected seconds since the epoch: self.now() + seconds")


def name_of(jobid: int) -> str:
    """Return a job id as users write it."""
    from flux.job import JobID

    name: str = JobID(jobid).f58
    return name


# -- keys ------------------------------------------------------------------------------------------


def kvs_dir(jobid: int) -> str:
    """Return the KVS directory of a job (RFC 16): ``job.`` and the id in dotted hexadecimal (RFC
    19)."""
    digits = f"{jobid:016x}"
    return f"job.{digits[:4]}.{digits[4:8]}.{digits[8:12]}.{digits[12:]}"


def r_key(jobid: int) -> str:
    return kvs_dir(jobid) + ".R"


# -- lookups of jobs in the job manager ------------------------------------------------------------

#: Maximum number of lookups in flight: enough to hide the round trip, few enough not to flood
#: job-info.
LOOKUPS_AT_ONCE = 512


def looked_up(jobids: list[int], ask: Callable[[int], Any]) -> Iterator[tuple[int, Any]]:
    """Yield each job id with its future from `ask`, with `LOOKUPS_AT_ONCE` of them in flight."""
    for start in range(0, len(jobids), LOOKUPS_AT_ONCE):
        some = jobids[start : start + LOOKUPS_AT_ONCE]
        yield from zip(some, [ask(jobid) for jobid in some])


def job_attributes(
    handle: Any, jobids: list[int], names: tuple[str, ...], log: Any
) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Look up jobs in the job manager, and wait for the answers: some of ``jobspec`` (with updates
    applied), ``R`` and ``eventlog`` (a list of events). Yield (jobid, dict by name, or None if the
    job's data is unreadable)."""
    for jobid, future in looked_up(jobids, lambda jobid: _getattr(handle, jobid, names)):
        yield jobid, _attributes(future, jobid, names, log)


def ask_job_attributes(
    handle: Any,
    jobids: list[int],
    names: tuple[str, ...],
    log: Any,
    done: Callable[[dict[int, dict[str, Any] | None]], None],
) -> None:
    """As `job_attributes`, without waiting: ``done(found)`` is called after this has returned, with
    {job id: attributes}."""
    found: dict[int, dict[str, Any] | None] = {}
    left = iter(jobids)

    def ask(most: int) -> None:
        for jobid in itertools.islice(left, most):
            _getattr(handle, jobid, names).then(answered, jobid)

    def answered(future: Any, jobid: int) -> None:
        found[jobid] = _attributes(future, jobid, names, log)
        ask(1)
        if len(found) == len(jobids):
            done(found)

    ask(LOOKUPS_AT_ONCE)


def _getattr(handle: Any, jobid: int, names: tuple[str, ...]) -> Any:
    return handle.rpc("job-manager.getattr", {"id": jobid, "attrs": list(names)})


def _attributes(future: Any, jobid: int, names: tuple[str, ...], log: Any) -> dict[str, Any] | None:
    """Return the job manager's answer about one job; None if it is unreadable, which is logged."""
    try:
        found = future.get()
        values = {}
        for name in names:
            value = found[name]
            if isinstance(value, str):
                # in some versions the eventlog has a line per event
                lines = value.splitlines() if name == "eventlog" else [value]
                events = [json.loads(line) for line in lines if line.strip()]
                value = events if name == "eventlog" else events[0]
            values[name] = value
        return values
    except Exception as exc:  # unreadable data only concerns this job
        log.warning(f"{name_of(jobid)}: {' and '.join(names)} cannot be read: {exc}")
        return None


# -- storing R -------------------------------------------------------------------------------------

FIRST_RETRY = 0.1
LONGEST_RETRY = 5.0
#: Seconds for which the KVS may refuse R before the scheduler gives up: enough for a restart of the
#: KVS, without keeping jobs waiting for a scheduler that cannot start any.
KVS_TIMEOUT_S = 60.0
#: Seconds that an ending scheduler waits for its last commit.
LAST_COMMIT_S = 5.0


class Committer:
    """Writes keys to the KVS, and calls back when they are stored.

    Keys put during a commit join the next one: a burst of allocations costs a few commits, and
    nothing blocks on them.

    Attributes:
        accepted, stored (int): numbers of keys accepted and stored so far; keys are stored in order
    """

    def __init__(
        self,
        handle: Any,
        log: Any,
        now: Callable[[], float],
        stop: Callable[[], None],
        stores: bool,
    ) -> None:
        self.handle = handle
        self.log = log
        self.now = now
        #: ends the scheduler when the KVS has refused R for `KVS_TIMEOUT_S`; the next scheduler
        #: serves the jobs
        self.stop = stop
        self.stores = stores  # whether there is a KVS; without one, keys count as stored at once
        self.written = 0  # number of successful commits
        self.accepted = 0
        self.stored = 0
        self._waiting: list[tuple[str, str, Callable[[], None]]] = []
        self._batch: list[tuple[str, str, Callable[[], None]]] = []
        self._armed = False
        self._failing_since: float | None = None
        self._delay = FIRST_RETRY
        self._timer = handle.timer_watcher_create(0.0, self._expired)

    def store_nothing(self) -> None:
        """Store no more keys, and count those waiting as stored."""
        self.stores = False
        pending, self._batch, self._waiting = self._batch + self._waiting, [], []
        self.stored += len(pending)
        for _, _, done in pending:
            done()

    def put(self, key: str, text: str, done: Callable[[], None]) -> None:
        """Store `text` (JSON) under `key`, then call ``done()``."""
        self.accepted += 1
        if not self.stores:
            self.stored += 1
            done()
            return
        self._waiting.append((key, text, done))
        if not self._batch and not self._armed:
            # other keys of this reactor turn join the commit
            self._arm(0.0)

    def put_now(self, key: str, text: str) -> None:
        """Store `text` under `key`, and wait until it is stored. Raises OSError if it was not
        stored, or not within `LAST_COMMIT_S`."""
        if self.stores:
            self._store([(key, text)]).wait_for(LAST_COMMIT_S).get()

    def _arm(self, delay: float) -> None:
        self._armed = True
        self._timer.reset(after=delay)

    def _expired(self, handle: Any, watcher: Any, revents: int, args: Any) -> None:
        self._armed = False
        self._commit()

    def _commit(self) -> None:
        if not self._batch:
            self._batch, self._waiting = self._waiting, []
        if not self._batch:
            return
        try:
            self._store([(key, text) for key, text, _ in self._batch]).then(self._committed)
        except Exception as exc:  # in any case the jobs wait and the commit is retried
            self._failed(exc)

    def _store(self, entries: list[tuple[str, str]]) -> Any:
        """Start a commit of (key, text) entries. Return its future."""
        txn = KVSTxn(self.handle)
        for key, text in entries:
            txn.put(key, text, raw=True)
        return txn.commit_async()

    def _committed(self, future: Any) -> None:
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

    def _failed(self, exc: Exception) -> None:
        now = self.now()
        if self._failing_since is None:
            self._failing_since = now
            self.log.error(f"KVS commit of R failed, trying again: {exc}")
        elif now - self._failing_since >= KVS_TIMEOUT_S:
            lost = [key for key, _, _ in self._batch + self._waiting]
            self._batch, self._waiting = [], []
            self.log.error(f"not stored: {', '.join(lost)}")
            self.log.critical("the KVS keeps failing: the scheduler ends here")
            self.stop()
            return
        self._arm(self._delay)
        self._delay = min(2 * self._delay, LONGEST_RETRY)


class Host:
    """The services of the host that a scheduler's parts use.

    Features beyond those of a broker are declared by embedded and simulated instances: a handle's
    class has attributes of these names. They are looked up on the class, since instances may look
    up unknown names elsewhere, with other exceptions.
    """

    def __init__(self, handle: Any, log: Any, stop: Callable[[], None]) -> None:
        self.handle = handle
        kind = type(handle)
        #: returns seconds from an arbitrary origin, to time code. A host with an artificial clock
        #: has its own, so that the speed of the machine does not affect decisions
        self.stopwatch: Callable[[], float] = (
            handle.stopwatch if hasattr(kind, "stopwatch") else time.perf_counter
        )
        self.has_virtual_time = hasattr(kind, "stopwatch")  # whether the host has its own stopwatch
        #: whether estimates and reasons have a reader; false in a simulation of starts
        self.wants_forecast = getattr(kind, "wants_forecast", True) is not False
        #: whether anyone may ask when a job is likely to start
        self.wants_odds = getattr(kind, "wants_odds", True) is not False
        #: whether the job manager is in this process and takes R as an object, so that R need not
        #: be in a KVS
        self.takes_objects = getattr(kind, "takes_objects", False) is True
        #: ``call_soon(function)`` calls it in the next turn of the reactor, as a timer of 0 s would at a
        #: higher cost; None: the host cannot
        self.call_soon = handle.call_soon if hasattr(kind, "call_soon") else None
        #: called with the scheduler when it begins to run, by a test, which runs the reactor after the
        #: module's ``run()`` has returned; None: not in a test
        self.scheduler_runs = handle.scheduler_runs if hasattr(kind, "scheduler_runs") else None
        self.errors = ErrorReporter(log)
        self.clock = Clock(handle)
        self.now = self.clock.now
        longest = math.inf if self.has_virtual_time else CLOCK_CHECK_S
        self.timers = Timers(handle, self.clock, self.errors, longest)
        self.call_at = self.timers.call_at
        self.config = InstanceConfig(handle)
        self.commits = Committer(handle, log, self.now, stop, stores=not self.takes_objects)


# -- functions of the bindings that take a handle ------------------------------------------------
#
# Those of flux.kvs need a handle of the bindings; to import it takes longer than to import the
# scheduler, and a simulation does not need it. Another kind of handle, as in
# flux.scheduler.testing, has them as methods. They are looked up on its class, since a handle of
# the bindings looks up unknown names in the C library.


def get_key_direct(handle: Any, key: str) -> Any:
    """Return the value of a KVS key. Raises FileNotFoundError if it does not exist, OSError if the
    KVS is unreadable."""
    if hasattr(type(handle), "kvs_get"):
        return handle.kvs_get(key)
    import flux.kvs

    return flux.kvs.get_key_direct(handle, key)


def has_left(notice: Any, msg: Any) -> bool:
    """Whether the request `msg` was sent by the client of the request ``disconnect`` `notice` (RFC
    6)."""
    if hasattr(type(msg), "sender"):
        return notice.sender is msg.sender
    from flux.core.inner import lib

    return bool(lib.flux_disconnect_match(notice.handle, msg.handle))


def payload_size(msg: Any) -> int:
    """Return the size of a request's payload in bytes, 0 without payload.  O(1): the bindings take
    0.1 s to make a string of 50 MB."""
    if hasattr(type(msg), "payload_size"):
        return int(msg.payload_size)
    from flux.core.inner import ffi, lib

    payload, size = ffi.new("const void *[1]"), ffi.new("size_t [1]")
    if lib.flux_msg_get_payload(msg.handle, payload, size) < 0:
        return 0
    return max(0, int(size[0]) - 1)  # without the terminating zero


def KVSTxn(handle: Any) -> Any:
    """Return a KVS transaction, with ``put(key, value, raw=False)`` and ``commit_async()``."""
    if hasattr(type(handle), "kvs_transaction"):
        return handle.kvs_transaction()
    import flux.kvs

    return flux.kvs.KVSTxn(handle)
