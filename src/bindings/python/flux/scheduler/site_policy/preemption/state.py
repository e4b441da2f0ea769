# SPDX-License-Identifier: LGPL-3.0-or-later
"""The shared state of preemption: the pending jobs, the running jobs that may be ended, counts since
the scheduler was loaded, and the stored record of current preemptions; and the requests to the job
manager that warn and end victims.

No code here waits for an answer: the job manager may itself wait for the scheduler, and then
neither would go on.
"""

from __future__ import annotations

import errno
import json
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.pool.masks import idset_text, parse_idset
from flux.scheduler.checkpoint import check_version, read_stored
from flux.scheduler.disclosure import Reason, is_private
from flux.scheduler.host import counted, name_of
from flux.scheduler.site_policy.preemption.classes import WITHOUT_CLASS, Classes
from flux.scheduler.times import duration_text, seconds_of

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.scheduler.host import ErrorReporter, Timer
    from flux.scheduler.requests import PendingJob, RunningJob
    from flux.scheduler.rule_host import RuleHost
    from flux.scheduler.site_policy.preemption.classes import PreemptionTerms
    from flux.scheduler.trial import Place


#: KVS key of the record, and version of its format.
KEY = "checkpoint.sched-preemptions"
VERSION = 1

# States of a preemption.
LENT = "runs"  # its victims run in time promised to the taker
DECIDED = "decided"  # it is being recorded in the KVS; nobody was told
WARNED = "warned"  # the jobs that give way were told, and the grace lasts
ENDING = "ending"  # they were ended; their resources are kept for the job as they come back
OVER = "over"  # the job has started, or it was given up


#: Why no job ends for one whose user limits its wait.
TOO_LATE = "it would start later than it may"

#: Type of the exceptions (RFC 21 permits any type).
EXCEPTION = "preempt"


class Victim(NamedTuple):
    """A job that gives way."""

    jobid: int
    cls: str  # name of its class
    nodes: int  # number of nodes that it used when it was chosen
    start: float  # its start, seconds since the epoch
    userid: int | None  # its user, or None if unknown
    rank: float = 0.0  # rank of its class when it was chosen; not stored

    def node_hours(self, now: float) -> float:
        """Return the node-hours lost if it ends now."""
        return self.nodes * max(0.0, now - self.start) / 3600.0

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form."""
        return dict(zip(("id", "class", "nodes", "start", "userid"), self))

    @classmethod
    def from_dict(cls, stored: Any) -> Victim:
        """Restore from the stored form; raises as `Preemption.from_dict`."""
        jobid, nodes, start = int(stored["id"]), int(stored["nodes"]), float(stored["start"])
        return cls(jobid, str(stored["class"]), nodes, start, stored["userid"])


#: Stored fields of a `Preemption`, apart from its ranks and victims, and how they are read.
STORED_AS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("queue", "userid"), lambda value: value),
    **dict.fromkeys(("decided", "deadline", "expected"), float),
    "taker": int,
}


def as_end(end: float) -> float:
    """Return an end in the pool's form; 0: none."""
    return end if isfinite(end) else 0.0


def jobs_of_classes(victims: Iterable[Victim]) -> str:
    """Return ``2 jobs of standby and 1 job of scavenger``."""
    counts = Counter(one.cls for one in victims)
    return " and ".join(f"{counted(number, 'job')} of {cls}" for cls, number in counts.items())


@dataclass(eq=False)
class Preemption:
    """Running jobs that end for a pending one, the taker.

    *In promised time* the taker has a promise, and the victims are *borrowers*: they were started
    although they may run past its start, and end before it. Otherwise they end after a grace, the
    taker has no promise, and its resources are kept for it by placeholders.

    Times are in seconds since the epoch.

    Attributes:
        decided, deadline (float): when the victims were chosen, and when they are to be ended
        held (set): ids of the victims that still hold resources
    """

    taker: int  # id of the job that is to start
    queue: str | None  # the taker's queue
    userid: int | None  # the taker's user
    victims: dict[int, Victim]  # id -> job that gives way
    ranks: int  # mask of the ranks kept for the taker; in promised time, of the ended victims
    decided: float
    deadline: float
    expected: float  # the expected start of the taker; in promised time, the promised one
    state: str = DECIDED  # one of `LENT`, `DECIDED`, `WARNED`, `ENDING` and `OVER`
    request: Any = None  # the taker's resource request; None: it has not come back after a reload
    in_promise: bool = False
    ended: set[int] = field(default_factory=set)  # ids of those ended by an exception of severity 0
    # its place; in promised time, the resources of the ended victims; empty: unknown
    places: list[Place] = field(default_factory=list)
    placeholders: list[int] = field(default_factory=list)  # ids of allocations of free parts of it
    timer: Timer | None = None  # timer for the next step, or for the taker's start
    # In promised time: requests of the victims, unknown after a reload; ids of the promises that
    # keep their resources after the promised time; and the generation of the pool in which the
    # promise was found to need them.
    requests: dict[int, Any] = field(default_factory=dict)
    rests: dict[int, int] = field(default_factory=dict)
    needed_in: int | None = None

    def __post_init__(self) -> None:
        self.held = set(self.victims)

    def end_of_taker(self, now: float) -> float:
        """Return the end of the taker; infinite: unknown."""
        length = getattr(self.request, "duration", 0.0)
        # It may start later than expected: a clean-up or a reload of the scheduler takes time.
        return max(self.expected, now) + length if length > 0 else inf

    @property
    def is_lent(self) -> bool:
        """Whether its victims run in promised time, and none was ended."""
        return self.in_promise and self.state in (LENT, WARNED)

    @property
    def keeps_ranks(self) -> bool:
        """Whether all that is free on its ranks is kept for the taker, not only its place."""
        is_apart = getattr(self.request, "claimant", None) is not None
        return not self.in_promise and (is_apart or not self.places)

    def reason(self) -> Reason | None:
        """Return why the taker waits, in a sentence; None if it waits for its promised time."""
        if self.in_promise:
            return None
        classes = jobs_of_classes(self.victims.values())
        if self.state == ENDING and not self.held:
            return Reason(
                f"{classes} ended for it; waits for what others hold there",
                "waits for resources that are given back",
            )
        if self.state == ENDING:
            return Reason(f"waits for {classes} to end", "waits for resources that are given back")
        when = time.strftime("%H:%M:%S", time.localtime(self.deadline))
        end = "ends" if len(self.victims) == 1 else "end"
        return Reason(
            f"{classes} {end} for it at {when}", f"resources are given back for it at {when}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form, not in promised time."""
        victims = [one.to_dict() for one in self.victims.values()]
        plain = {key: getattr(self, key) for key in STORED_AS}
        return {**plain, "ranks": idset_text(self.ranks), "victims": victims}

    @classmethod
    def from_dict(cls, stored: Any) -> Preemption:
        """Restore from the stored form. Raises ValueError, KeyError or TypeError if it is
        unreadable."""
        victims = {one.jobid: one for one in map(Victim.from_dict, stored["victims"])}
        plain = {key: read(stored[key]) for key, read in STORED_AS.items()}
        return cls(victims=victims, ranks=parse_idset(stored["ranks"]), **plain)


class Record:
    """The current preemptions. Stored in the KVS before any job is warned or ended."""

    def __init__(self, host: RuleHost) -> None:
        self._host = host
        self.active: dict[int, Preemption] = {}  # id of the taker -> preemption

    def in_promises(self) -> list[Preemption]:
        """Return those in promised time."""
        return [one for one in self.active.values() if one.in_promise]

    def store(self, stored: Callable[[], None] = lambda: None) -> None:
        """Store the record, then call ``stored()``."""
        active = self.active.values()
        borrowers = [
            {
                **one.victims[jobid].to_dict(),
                "taker": one.taker,
                "queue": one.queue,
                "until": one.expected,
                "warned": one.state != LENT,
            }
            for one in self.in_promises()
            for jobid in sorted(one.held)
        ]
        entries = [one.to_dict() for one in active if not one.in_promise]
        record: dict[str, Any] = {"version": VERSION, "preemptions": entries}
        if borrowers:
            record["borrowers"] = borrowers
        self._host.store(KEY, json.dumps(record), stored)

    def load(self) -> None:
        """Load the record stored by the previous scheduler, if any. Raises ValueError if it is
        unreadable; the record is then empty."""

        def parse(stored: Any) -> dict[int, Preemption]:
            check_version(stored, VERSION)
            found = {one.taker: one for one in map(Preemption.from_dict, stored["preemptions"])}
            for one in stored.get("borrowers", ()):
                victim, taker, until = Victim.from_dict(one), int(one["taker"]), float(one["until"])
                state = WARNED if one["warned"] else LENT
                new = Preemption(taker, one["queue"], None, {}, 0, until, until, until, state)
                new.in_promise = True
                lent = found.setdefault(taker, new)
                if lent.in_promise:
                    lent.victims[victim.jobid] = victim
                    lent.held.add(victim.jobid)
            return found

        try:
            self.active = read_stored(self._host.handle, KEY, parse) or {}
        except OSError:
            return


#: Maximum seconds to wait for a job that is being cleaned up before others are ended.
CLEAN_UP_WAIT_S = 60.0

#: Weight of a new sample in the average clean-up time.
CLEAN_UP_WEIGHT = 0.25

#: Default of ``exec.kill-timeout``.
DEFAULT_KILL_TIMEOUT_S = 5.0


@dataclass(eq=False)
class Waiting:
    """A pending job."""

    job: PendingJob
    terms: PreemptionTerms
    tries: int = 0  # number of choices of victims for it
    logged: tuple[int, ...] = ()  # ids of the victims that were last logged


@dataclass(eq=False)
class Running:
    """A running job."""

    jobid: int
    terms: PreemptionTerms
    start: float  # its start, seconds since the epoch
    userid: int | None  # its user, or None if unknown
    gives_way_to: Preemption | None = None  # the preemption in which it is a victim
    # time since which it is known to be ending by itself, seconds since the epoch
    ending: float | None = None
    left_alone: bool = False  # whether it could not be queried or ended
    # whether it was found at the start with the exception that ends it for another
    was_ended: bool = False

    def may_give_way_to(self, taker: int | None) -> bool:
        """Whether it may give way to a job, or (None) to any: it is not ending, and can be ended. A
        borrower gives way to the job of that time only."""
        if self.ending is not None or self.left_alone:
            return False
        other = self.gives_way_to
        return other is None or (other.is_lent and taker in (None, other.taker))


class RunningJobs:
    """The running jobs."""

    def __init__(self, host: RuleHost) -> None:
        self._host = host
        #: id -> job that has a class, is ending, or was found at the start
        self.jobs: dict[int, Running] = {}
        self.of_classes: dict[int, Running] = {}  # those that have a class
        self._clean_up: float | None = None

    def enter(self, job: PendingJob | RunningJob, terms: PreemptionTerms) -> Running:
        """Add a job that starts or was found running, unless it is known. Return it."""
        jobid, found = job.jobid, self._host.running.get(job.jobid)
        start = self._host.now() if found is None else found.start
        one = self.jobs.setdefault(jobid, Running(jobid, terms, start, job.userid))
        one.terms = terms
        self.of_classes.pop(jobid, None)
        if terms.cls is not None:
            self.of_classes[jobid] = one
        return one

    def hello(self, job: RunningJob, terms: PreemptionTerms) -> None:
        """Add a job found running, or update it after the classes have changed."""
        one = self.enter(job, terms)
        one.left_alone |= job.unreadable
        if has_ended(job.eventlog):
            self.ends(job.jobid)
        for event in job.eventlog:
            context = event.get("context") or {}
            is_end = event.get("name") == "exception" and context.get("severity") == 0
            one.was_ended |= is_end and context.get("type") == EXCEPTION

    def remove(self, jobid: int) -> Running | None:
        """Remove a job. Return it, or None if it was not known."""
        self.of_classes.pop(jobid, None)
        return self.jobs.pop(jobid, None)

    def ends(self, jobid: int) -> Running:
        """Note that a running job is ending by itself. Return it."""
        one, now = self.jobs.get(jobid), self._host.now()
        if one is None:
            one = self.jobs[jobid] = Running(jobid, WITHOUT_CLASS, now, None)
        if one.ending is None:
            one.ending = now
        return one

    def about_to_end(self) -> list[int]:
        """Return the ids of jobs whose clean-up began recently.  O(running jobs)."""
        since = self._host.now() - CLEAN_UP_WAIT_S
        return [
            one.jobid
            for one in self.jobs.values()
            if one.ending is not None and one.ending >= since and one.gives_way_to is None
        ]

    # -- duration of clean-ups ---------------------------------------------------------------------

    @property
    def kill_timeout(self) -> float:
        """Seconds between SIGTERM and SIGKILL for the tasks of a job (``exec.kill-timeout``)."""
        table = self._host.configuration().get("exec")
        seconds = seconds_of(table.get("kill-timeout") if isinstance(table, dict) else None)
        return DEFAULT_KILL_TIMEOUT_S if seconds is None else seconds

    def clean_up(self) -> float:
        """Return the seconds between the deadline and an ended job's final free: an average,
        initially `kill_timeout`."""
        return self.kill_timeout if self._clean_up is None else self._clean_up

    def kill_time(self) -> float:
        """Return the seconds before a promised time at which a job in the way is ended:
        `kill_timeout` plus the average clean-up time so far."""
        return self.kill_timeout + (self._clean_up or 0.0)

    def was_cleaned_up(self, began: float) -> None:
        """Add the clean-up time of a job, to be ended at `began` (seconds since the epoch), that
        has freed all resources."""
        seconds, before = max(0.0, self._host.now() - began), self._clean_up
        before = seconds if before is None else before
        self._clean_up = before + CLEAN_UP_WEIGHT * (seconds - before)


def has_ended(eventlog: list[dict[str, Any]]) -> bool:
    """Whether a job's events show that it has ended, or was ended."""
    return any(
        event.get("name") in ("finish", "free", "clean")
        or (event.get("name") == "exception" and (event.get("context") or {}).get("severity") == 0)
        for event in eventlog
    )


class PreemptionCounts:
    """Counts by class."""

    def __init__(self) -> None:
        self.takers = 0  # number of jobs that started where others were ended for them
        self._classes: dict[str, dict[str, Any]] = {}

    def of(self, victim: Victim) -> dict[str, Any]:
        """Return the counts of a job's class: numbers of ``victims`` (jobs ended), ``node_hours``
        lost, jobs ended for nothing (``useless``, ``useless_by`` cause), jobs that would have been
        ended with mode="log" (``logged``), and jobs that started in time promised to others
        (``borrowing``)."""
        zeros = dict.fromkeys(("victims", "useless", "logged", "borrowing"), 0)
        new = {"class": victim.cls, "node_hours": 0.0, "useless_by": Counter(), **zeros}
        return self._classes.setdefault(victim.cls, new)

    def ended_uselessly(self, victims: Iterable[Victim], cause: str) -> None:
        """Count jobs ended for one that did not start, by cause: ``gone``, ``node``, ``refused``,
        ``rule`` or ``configuration`` (:doc:`../guide/preemption`)."""
        for victim in victims:
            self.of(victim)["useless"] += 1
            self.of(victim)["useless_by"][cause] += 1

    def by_class(self) -> Iterator[dict[str, Any]]:
        """Yield an object per class with jobs that were, or would have been, ended."""
        for _, counts in sorted(self._classes.items()):
            yield {**counts, "useless_by": dict(counts["useless_by"])}


class PreemptionState:
    """The shared state of the parts of preemption."""

    def __init__(self, host: RuleHost, errors: ErrorReporter) -> None:
        self.host, self.errors = host, errors
        self.classes = Classes(host.queue_names)  # the classes in force
        self.waiting: dict[int, Waiting] = {}  # id -> pending job
        self.running = RunningJobs(host)  # the running jobs
        self.record = Record(host)  # the current preemptions and borrowers
        self.counts = PreemptionCounts()  # counts since the load


class Part:
    """A part of preemption."""

    def __init__(self, state: PreemptionState) -> None:
        self._host, self._errors, self._classes = state.host, state.errors, state.classes
        self._waiting, self._running, self._record = state.waiting, state.running, state.record
        self._counts, self._placeholders = state.counts, state.host.placeholders

    def _own_end(self, jobid: int) -> float:
        """Return the end of a running job by its own limit; infinite: none."""
        running = self._host.running.get(jobid)
        return inf if running is None else running.end

    def _objection(self, job: PendingJob) -> str | None:
        """Return why an admission rule keeps a job from starting, or None."""
        try:
            self._host.admission.check(job)
        except (InsufficientResources, InfeasibleRequest) as exc:  # the former, if it is deferred
            return str(exc)
        return None

    def _beyond(self, victims: list[Victim], now: float) -> str | None:
        """Return why the victims exceed a class's maximum, in a sentence, or None."""
        for name in dict.fromkeys(one.cls for one in victims):
            cls = self._classes.entries[name]
            own = [one for one in victims if one.cls == name]
            lost = sum(one.node_hours(now) for one in own)
            if len(own) > cls.max_jobs:
                return (
                    f"{counted(len(own), 'job')} of {name} would have to end, of which "
                    f"{cls.max_jobs} may"
                )
            if lost > cls.max_node_hours:
                return (
                    f"{lost:.1f} node-hours of {name} would be lost, of which "
                    f"{cls.max_node_hours:g} may be"
                )
        return None

    def _would_break(
        self,
        plan: Plan,
        ends: dict[int, float],
        without: Collection[int] = (),
        hold: Callable[[], list[int]] = list,
        unpinned: Collection[int] = (),
    ) -> bool:
        """Whether a promise that can be kept now would break in a trial, which is undone.

        Args:
            ends: id of a running job -> its end in the pool
            without: ids of the promises that do not count
            hold: also makes placeholders, and returns their ids
            unpinned: ids of the promises that may move to other ranks
        """
        pool, held = self._host.resources, list[int]()
        before = {jobid: pool.job_end(jobid) for jobid in ends}

        def change() -> None:
            for jobid, end in ends.items():
                pool.update_expiration(jobid, end)
            held.extend(hold())
            for jobid in unpinned:
                plan.pin(jobid, stays=False)

        def undo() -> None:
            for jobid in unpinned:
                plan.pin(jobid)
            self._placeholders.free(held)
            for jobid, end in before.items():
                pool.update_expiration(jobid, end)

        return plan.would_break(change, undo, without)


class Messenger(Part):
    """Sends requests that warn and end victims."""

    @property
    def is_private(self) -> bool:
        """Whether users must not see the names of others' jobs."""
        return is_private(self._host.configuration())

    def warn(self, victim: Victim, preemption: Preemption) -> None:
        """Warn a job that it will be ended at the deadline of a preemption."""
        when = time.strftime("%H:%M:%S", time.localtime(preemption.deadline))
        self._raise(victim.jobid, 1, f"will end at {when} for a job{_of(preemption.queue)}")
        cls = self._classes.entries.get(victim.cls)
        if cls is not None and cls.signal:
            self._send("kill", victim.jobid, signum=cls.signal)

    def spare(self, jobid: int, why: str) -> None:
        """Tell a warned job that it may continue."""
        self._raise(jobid, 1, f"will not be ended now: {why}")

    def end(self, victim: Victim, preemption: Preemption, failed: Callable[[bool], None]) -> None:
        """End a job for another, and count it. If it was not ended, ``failed(refused)`` is called:
        the job manager refused, and the job continues; or it has already ended."""
        jobid, queue, now = victim.jobid, preemption.queue, self._host.now()
        ran = duration_text(max(0.0, now - victim.start), 2)
        for_whom = self.taker_of(preemption)
        of_queue = f" ({queue})" if queue and not self.is_private else ""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        mark = f"{stamp} for {for_whom}, class {victim.cls}"  # {user.preempted} of flux jobs -o
        self._send("memo", jobid, memo={"preempted": mark})

        def done(error: int) -> None:
            if error == 0:
                self._counts.of(victim)["victims"] += 1
                self._counts.of(victim)["node_hours"] += victim.node_hours(now)
                return
            one = self._running.jobs.get(jobid)
            refused = error not in NOT_THERE and one is not None
            if one is not None:
                one.left_alone |= refused
            failed(refused)

        self._raise(jobid, 0, f"preempted for {for_whom}{of_queue}; ran {ran}", done)

    def taker_of(self, preemption: Preemption) -> str:
        """Return the name of the taker in texts for other users."""
        return f"a job{_of(preemption.queue)}" if self.is_private else name_of(preemption.taker)

    def _raise(
        self, jobid: int, severity: int, note: str, done: Callable[[int], Any] = lambda error: None
    ) -> None:
        self._send("raise", jobid, done, type=EXCEPTION, severity=severity, note=note)

    def _send(
        self,
        method: str,
        jobid: int,
        done: Callable[[int], Any] = lambda error: None,
        **payload: Any,
    ) -> None:
        """Send a request about a job; ``done`` is called with 0 or an errno, which is reported
        unless it is one of `NOT_THERE`."""
        what = f"preemption: {method} of {name_of(jobid)}"

        def answered(future: Any) -> None:
            error = 0
            try:
                future.get()
            except OSError as exc:
                error = exc.errno or errno.EIO
                if error not in NOT_THERE:
                    self._errors.report(f"{what}: {exc}")
            self._errors.guard(what, done, error)

        try:
            rpc = self._host.handle.rpc(f"job-manager.{method}", {"id": jobid, **payload})
            rpc.then(answered)
        except OSError as exc:
            self._errors.report(f"{what}: {exc}")


#: Errors for a job that has already ended.
NOT_THERE = (errno.ENOENT, errno.EINVAL)


def _of(queue: str | None) -> str:
    return "" if queue is None else f" of {queue}"
