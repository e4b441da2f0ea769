# SPDX-License-Identifier: LGPL-3.0-or-later
"""The shared state of preemption: the pending jobs, the running jobs that may be ended, counts since
the scheduler was loaded, and the stored record of current preemptions and of jobs that run in
promised time; and the requests to the job manager that warn and end victims.

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
from flux.scheduler.checkpoint import read_stored
from flux.scheduler.disclosure import Reason, is_private
from flux.scheduler.host import counted, name_of
from flux.scheduler.site_policy.holdings import part_of
from flux.scheduler.site_policy.preemption.classes import Classes, kill_timeout_of
from flux.scheduler.times import duration_text

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.scheduler.host import ErrorReporter, Timer
    from flux.scheduler.requests import PendingJob, RunningJob
    from flux.scheduler.rule_host import RuleHost
    from flux.scheduler.site_policy.preemption.classes import PreemptionClass, PreemptionTerms


#: KVS key of the record, and version of its format.
KEY = "checkpoint.sched-preemptions"
VERSION = 1

# States of a preemption.
DECIDED = "decided"  # it is being recorded in the KVS; nobody was told
WARNED = "warned"  # the jobs that give way were told, and the grace lasts
ENDING = "ending"  # they were ended; their resources are kept for the job as they come back
OVER = "over"  # the job has started, or it was given up

# States of a borrower, which may also be `WARNED`.
RUNS = "runs"
ENDED = "ended"


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


def by_id(victims: Iterable[Victim]) -> dict[int, Victim]:
    """Return some jobs by their ids."""
    return {one.jobid: one for one in victims}


def jobs_of_classes(victims: Iterable[Victim]) -> str:
    """Return ``2 jobs of standby and 1 job of scavenger``."""
    counts = Counter(one.cls for one in victims)
    return " and ".join(f"{counted(number, 'job')} of {cls}" for cls, number in counts.items())


@dataclass(eq=False)
class Preemption:
    """A preemption.

    Times are in seconds since the epoch.

    Attributes:
        decided, deadline (float): when the victims were chosen, and when they are to be ended
        held (set): ids of the victims that still hold resources
    """

    taker: int  # id of the job that is to start
    queue: str | None  # the taker's queue
    userid: int | None  # the taker's user
    victims: dict[int, Victim]  # id -> job that gives way
    ranks: int  # mask of the ranks kept for the taker
    decided: float
    deadline: float
    expected: float  # the expected start of the taker
    state: str = DECIDED  # one of `DECIDED`, `WARNED`, `ENDING` and `OVER`
    request: Any = None  # the taker's resource request; None: it has not come back after a reload
    ended: set[int] = field(default_factory=set)  # ids of those ended by an exception of severity 0
    # ids of the allocations that keep free parts of `ranks` for the job
    placeholders: list[int] = field(default_factory=list)
    # ids of the allocations that keep other free parts of `ranks` from the job, while the victims
    # are being ended
    withheld: list[int] = field(default_factory=list)
    # all victims have ended, and the taker did not start on what they freed
    needs_more: bool = False
    timer: Timer | None = None  # timer for the deadline, then for the taker's start

    def __post_init__(self) -> None:
        self.held = set(self.victims)

    def end_of_taker(self, now: float) -> float:
        """Return the end of the taker; infinite: unknown."""
        length = getattr(self.request, "duration", 0.0)
        # It may start later than expected: a clean-up or a reload of the scheduler takes time.
        return max(self.expected, now) + length if length > 0 else inf

    @property
    def withholds(self) -> bool:
        """Whether resources freed by others than victims are kept from the taker, which might
        otherwise start without those of a victim that was ended for it."""
        return self.state == ENDING and not self.needs_more

    def reason(self) -> Reason:
        """Return why the taker waits, in a sentence."""
        classes = jobs_of_classes(self.victims.values())
        if self.needs_more:
            return Reason(
                f"{classes} ended for it; waits for what others hold there",
                "waits for resources that are given back",
            )
        if self.state == ENDING:
            return Reason(f"waits for {classes} to end", "waits for resources that are given back")
        when = time.strftime("%H:%M:%S", time.localtime(self.deadline))
        return Reason(
            f"{classes} end for it at {when}", f"resources are given back for it at {when}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form."""
        victims = [one.to_dict() for one in self.victims.values()]
        plain = {key: getattr(self, key) for key in STORED_AS}
        return {**plain, "ranks": idset_text(self.ranks), "victims": victims}

    @classmethod
    def from_dict(cls, stored: Any) -> Preemption:
        """Restore from the stored form. Raises ValueError, KeyError or TypeError if it is
        unreadable."""
        victims = by_id(map(Victim.from_dict, stored["victims"]))
        plain = {key: read(stored[key]) for key, read in STORED_AS.items()}
        return cls(victims=victims, ranks=parse_idset(stored["ranks"]), **plain)


@dataclass(eq=False)
class Borrower:
    """A running job that is ended before a promised time, unless it ends by itself.

    Times are in seconds since the epoch.
    """

    victim: Victim
    taker: int  # id of the job that was promised the time
    queue: str | None  # the taker's queue
    until: float  # start of the promised time
    limit: float  # the borrower's end by its own limit; infinite if it has none
    request: Any = None  # its request; None if unknown, since it started before a reload
    rest: int | None = None  # id of the promise that keeps its resources after the promised time
    awaits: bool = False  # whether the taker must come back first, after a reload
    state: str = RUNS  # `RUNS`, `WARNED` or `ENDED`
    stored: bool = False  # whether it is recorded in the KVS, a condition for ending it
    timer: Timer | None = None  # timer for the next step
    began: float = 0.0  # time at which it was ended
    ranks: int = 0  # mask of the ranks that it held when it was ended
    # resources freed since then and kept for the taker: (id in the pool, R)
    kept: tuple[int, dict[str, Any]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form."""
        return {
            **self.victim.to_dict(),
            "taker": self.taker,
            "queue": self.queue,
            "until": self.until,
            "limit": as_end(self.limit),
            "warned": self.state != RUNS,
        }

    @classmethod
    def from_dict(cls, stored: Any) -> Borrower:
        """Restore from the stored form; raises as `Preemption.from_dict`."""
        limit = float(stored["limit"]) or inf
        taker, until = int(stored["taker"]), float(stored["until"])
        found = cls(Victim.from_dict(stored), taker, stored["queue"], until, limit)
        found.stored = found.awaits = True
        found.state = WARNED if stored["warned"] else RUNS
        return found


def rests_of(borrowers: Iterable[Borrower]) -> list[int]:
    """Return the ids of the promises that keep borrowers' resources after the promised time."""
    return [one.rest for one in borrowers if one.rest is not None]


class Record:
    """The current preemptions and borrowers. Stored in the KVS before any job is warned or ended."""

    def __init__(self, host: RuleHost) -> None:
        self._host = host
        self.active: dict[int, Preemption] = {}  # id of the taker -> preemption
        self.borrowers: dict[int, Borrower] = {}  # id -> job in time promised to others

    def store(self, stored: Callable[[], None] = lambda: None) -> None:
        """Store the record, then call ``stored()``."""
        entries = [one.to_dict() for one in self.active.values()]
        record: dict[str, Any] = {"version": VERSION, "preemptions": entries}
        if self.borrowers:
            record["borrowers"] = [one.to_dict() for one in self.borrowers.values()]
        self._host.store(KEY, json.dumps(record), stored)

    def load(self) -> None:
        """Load the record stored by the previous scheduler, if any. Raises ValueError if it is
        unreadable; the record is then empty."""

        def parse(stored: Any) -> tuple[list[Preemption], list[Borrower]]:
            if stored["version"] != VERSION:
                raise ValueError(f"version {stored['version']!r}")
            preemptions = [Preemption.from_dict(one) for one in stored["preemptions"]]
            return preemptions, [Borrower.from_dict(one) for one in stored.get("borrowers", ())]

        try:
            found = read_stored(self._host.handle, KEY, parse)
        except OSError:
            return
        if found is not None:
            self.active = {one.taker: one for one in found[0]}
            self.borrowers = {one.victim.jobid: one for one in found[1]}


#: Maximum seconds to wait for a job that is being cleaned up before others are ended.
CLEAN_UP_WAIT_S = 60.0

#: Weight of a new sample in the average clean-up time.
CLEAN_UP_WEIGHT = 0.25


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
    # its memory and other amounts when it was to be ended
    # (`flux.scheduler.site_policy.holdings.amounts_held`)
    scheduling: dict[str, Any] | None = None
    # time since which it is known to be ending by itself, seconds since the epoch
    ending: float | None = None
    left_alone: bool = False  # whether it could not be queried or ended
    # whether it was found at the start with the exception that ends it for another
    was_ended: bool = False

    @property
    def is_spared(self) -> bool:
        """Whether it cannot give way: it is already ending, or cannot be ended."""
        return self.gives_way_to is not None or self.ending is not None or self.left_alone

    def as_victim(self, cls: PreemptionClass, nodes: int) -> Victim:
        """Return it as a victim of a class, on a number of nodes."""
        return Victim(self.jobid, cls.name, nodes, self.start, self.userid, cls.rank)

    def part_of(self, R: Any, ranks: int) -> dict[str, Any] | None:
        """Return the part on some ranks (a mask) of `R`, freed by it, with its memory there, which
        R lacks; None if empty."""
        part = part_of(R, ranks)
        if part is not None and self.scheduling is not None:
            part["scheduling"] = self.scheduling
        return part


class RunningJobs:
    """The running jobs."""

    def __init__(self, host: RuleHost) -> None:
        self._host = host
        self.jobs: dict[int, Running] = {}  # id -> job
        self.of_classes: dict[int, Running] = {}  # those that have a class
        self._clean_up: float | None = None

    def start(self, job: PendingJob, terms: PreemptionTerms) -> None:
        """Add a job that starts."""
        self._enter(Running(job.jobid, terms, self._host.now(), job.userid))

    def hello(self, job: RunningJob, terms: PreemptionTerms) -> None:
        """Add a job found running, or update it after the classes have changed."""
        found, now = self._host.running.get(job.jobid), self._host.now()
        one = self.jobs.get(job.jobid)
        if one is None:
            start = now if found is None else found.start
            one = Running(job.jobid, terms, start, job.userid)
        one.terms = terms
        self.of_classes.pop(job.jobid, None)
        self._enter(one)
        one.left_alone |= job.unreadable
        if has_ended(job.eventlog):
            self.ends(job.jobid)
        one.was_ended |= any(
            event.get("name") == "exception"
            and (event.get("context") or {}).get("severity") == 0
            and event["context"].get("type") == EXCEPTION
            for event in job.eventlog
        )

    def _enter(self, one: Running) -> None:
        self.jobs[one.jobid] = one
        if one.terms.cls is not None:
            self.of_classes[one.jobid] = one

    def remove(self, jobid: int) -> None:
        """Remove a job, if it is known."""
        self.jobs.pop(jobid, None)
        self.of_classes.pop(jobid, None)

    def clear(self) -> None:
        """Remove all jobs."""
        self.jobs.clear()
        self.of_classes.clear()

    def ends(self, jobid: int) -> None:
        """Note that a running job is ending by itself."""
        one = self.jobs.get(jobid)
        if one is not None and one.ending is None:
            one.ending = self._host.now()

    def about_to_end(self) -> list[int]:
        """Return the ids of jobs whose clean-up began recently.  O(running jobs)."""
        since = self._host.now() - CLEAN_UP_WAIT_S
        return [
            one.jobid
            for one in self.jobs.values()
            if one.ending is not None and one.ending >= since and one.gives_way_to is None
        ]

    def leave_alone(self, jobid: int) -> None:
        """Never end a job that could not be queried or ended."""
        one = self.jobs.get(jobid)
        if one is not None:
            one.left_alone = True

    # -- duration of clean-ups ---------------------------------------------------------------------

    @property
    def kill_timeout(self) -> float:
        """Seconds between SIGTERM and SIGKILL for the tasks of a job."""
        return kill_timeout_of(self._host.configuration())

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
        self._clean_up = (
            seconds if before is None else before + CLEAN_UP_WEIGHT * (seconds - before)
        )


def has_ended(eventlog: list[dict[str, Any]]) -> bool:
    """Whether a job's events show that it has ended, or was ended."""
    for event in eventlog:
        name, context = event.get("name"), event.get("context") or {}
        if name in ("finish", "free", "clean") or (
            name == "exception" and context.get("severity") == 0
        ):
            return True
    return False


class PreemptionCounts:
    """Counts by class."""

    def __init__(self) -> None:
        self.takers = 0  # number of jobs that started where others were ended for them
        self._classes: dict[str, dict[str, Any]] = {}

    def _of(self, victim: Victim) -> dict[str, Any]:
        """Return the counts of a job's class: numbers of ``victims`` (jobs ended), ``node_hours``
        lost, jobs ended for nothing (``useless``, ``useless_by`` cause), jobs that would have been
        ended with mode="log" (``logged``), and jobs that started in time promised to others
        (``borrowing``)."""
        zeros = dict.fromkeys(("victims", "useless", "logged", "borrowing"), 0)
        new = {"class": victim.cls, "node_hours": 0.0, "useless_by": {}, **zeros}
        return self._classes.setdefault(victim.cls, new)

    def add(self, victim: Victim, key: str, number: float = 1) -> None:
        """Add to a count of a job's class."""
        self._of(victim)[key] += number

    def ended_uselessly(self, victims: Iterable[Victim], cause: str) -> None:
        """Count jobs ended for one that did not start, by cause: ``gone``, ``node``, ``refused``,
        ``rule`` or ``configuration`` (:doc:`../guide/preemption`)."""
        for victim in victims:
            counts = self._of(victim)
            counts["useless"] += 1
            counts["useless_by"][cause] = counts["useless_by"].get(cause, 0) + 1

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

    def _objection(self, job: PendingJob) -> str | None:
        """Return why an admission rule keeps a job from starting, or None."""
        try:
            self._host.admission.check(job)
        except (InsufficientResources, InfeasibleRequest) as exc:  # the former, if it is deferred
            return str(exc)
        return None

    def _would_break(
        self,
        plan: Plan,
        ends: dict[int, float],
        without: Collection[int] = (),
        hold: Callable[[], list[int]] = list,
    ) -> bool:
        """Whether a promise that can be kept now would break if some running jobs had other ends;
        determined by a trial that is undone.

        Args:
            ends: id of a job -> its end in the pool
            without: ids of the promises that do not count
            hold: also makes placeholders, and returns their ids
        """
        pool, held = self._host.resources, list[int]()
        before = {jobid: pool.job_end(jobid) for jobid in ends}

        def move(ends: dict[int, float]) -> None:
            for jobid, end in ends.items():
                pool.update_expiration(jobid, end)

        def change() -> None:
            move(ends)
            held.extend(hold())

        def undo() -> None:
            self._placeholders.free(held)
            move(before)

        return plan.would_break(change, undo, without)


#: Errors for a job that has already ended, which count as success.
NOT_THERE = (errno.ENOENT, errno.EINVAL)


class Messenger(Part):
    """Sends requests that warn and end victims."""

    @property
    def is_private(self) -> bool:
        """Whether users must not see the names of others' jobs."""
        return is_private(self._host.configuration())

    def warn(self, victim: Victim, deadline: float, queue: str | None) -> None:
        """Warn a job that it will be ended at `deadline` (seconds since the epoch) for a job of a
        queue."""
        when = time.strftime("%H:%M:%S", time.localtime(deadline))
        self._raise(victim.jobid, 1, f"will end at {when} for a job{_of(queue)}")
        cls = self._classes.entries.get(victim.cls)
        if cls is not None and cls.signal:
            self._send("kill", victim.jobid, {"id": victim.jobid, "signum": cls.signal})

    def spare(self, jobid: int, why: str) -> None:
        """Tell a warned job that it may continue."""
        self._raise(jobid, 1, f"will not be ended now: {why}")

    def end(
        self,
        victim: Victim,
        taker: int,
        queue: str | None,
        refused: Callable[[], None],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """End a job for another, and count it.

        Args:
            taker: id of the job that it is ended for
            queue: that job's queue
            refused: called if the job manager refuses, and the job continues
            failed: called before that, and also if the job has already ended
        """
        jobid, now = victim.jobid, self._host.now()
        ran = duration_text(max(0.0, now - victim.start), 2)
        for_whom = self.name_for_users(taker, queue)
        of_queue = f" ({queue})" if queue and not self.is_private else ""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        mark = f"{stamp} for {for_whom}, class {victim.cls}"  # {user.preempted} of flux jobs -o
        self._send("memo", jobid, {"id": jobid, "memo": {"preempted": mark}})

        def done(error: int) -> None:
            if error == 0:
                self._counts.add(victim, "victims")
                self._counts.add(victim, "node_hours", victim.node_hours(now))
                return
            failed()
            if error != errno.ENOENT and jobid in self._running.jobs:
                self._running.leave_alone(jobid)
                refused()

        self._raise(jobid, 0, f"preempted for {for_whom}{of_queue}; ran {ran}", done)

    def name_for_users(self, jobid: int, queue: str | None) -> str:
        """Return the name of a job of a queue in texts for other users."""
        return f"a job{_of(queue)}" if self.is_private else name_of(jobid)

    def _raise(
        self, jobid: int, severity: int, note: str, done: Callable[[int], Any] | None = None
    ) -> None:
        payload = {"id": jobid, "type": EXCEPTION, "severity": severity, "note": note}
        self._send("raise", jobid, payload, done)

    def _send(
        self,
        method: str,
        jobid: int,
        payload: dict[str, Any],
        done: Callable[[int], Any] | None = None,
    ) -> None:
        """Send a request; ``done`` is called with 0, ``errno.ENOENT`` if the job has already ended,
        or the errno of a refusal, which is reported."""

        def answered(future: Any) -> None:
            error = 0
            try:
                future.get()
            except OSError as exc:
                error = exc.errno or errno.EIO
                if error in NOT_THERE:
                    error = errno.ENOENT
                else:
                    self._errors.report(f"preemption: {method} of {name_of(jobid)}: {exc}")
            if done is not None:
                self._errors.guard(f"preemption: {method} of {name_of(jobid)}", done, error)

        try:
            self._host.handle.rpc(f"job-manager.{method}", payload).then(answered)
        except OSError as exc:
            self._errors.report(f"preemption: {method} of {name_of(jobid)}: {exc}")


def _of(queue: str | None) -> str:
    return "" if queue is None else f" of {queue}"
