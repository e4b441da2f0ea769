# SPDX-License-Identifier: LGPL-3.0-or-later
"""The shared state of preemption: the classes of jobs that may be preempted, the pending jobs, the running jobs that may be ended, the current
preemptions and their stored record, and counts since the scheduler was loaded."""

from __future__ import annotations

import errno
import json
import signal
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, Callable, NamedTuple

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.plan.plan import Plan
from flux.resource.pool.inventory import selected_ranks
from flux.scheduler.admission import AdmissionRule
from flux.scheduler.attributes import SystemAttributes, table_in
from flux.scheduler.checkpoint import VERSION
from flux.scheduler.host import counted, name_of
from flux.scheduler.requests import PendingJob, RunningJob
from flux.scheduler.rule_host import RuleHost
from flux.scheduler.site_policy.tables import Fields, QueueNames
from flux.scheduler.times import seconds_of
from flux.scheduler.trial import Place

#: System attribute with which a job consents to preemption: seconds of run time after which it may
#: be preempted (RFC 14).
OFFER = "preemptible-after"

#: Rank of a job without a class: no job preempts it, and it may preempt every class.
HIGHEST = inf

#: Rank of a job that names a reservation: it neither preempts nor gives way.
NEITHER = -inf


class PreemptionClass(NamedTuple):
    """A class of jobs that may be preempted: an entry of the table. Its jobs give way to jobs of a
    higher rank."""

    name: str
    rank: int
    # queues whose jobs are in this class; a parent includes its virtual queues
    queues: tuple[str, ...]
    # whether jobs with ``preemptible-after`` are in it, unless their queue is in another class
    attribute: bool = False
    after: float = 0.0  # seconds that its jobs run undisturbed
    grace: float = 0.0  # seconds between the warning and the end
    signal: int = 0  # number of the signal that goes with the warning; 0: none
    wait: float = 0.0  # seconds that a job must have waited to preempt jobs of this class
    max_jobs: float = inf  # maximum number of jobs of this class ended for one job
    max_node_hours: float = inf  # maximum node-hours of this class lost for one job
    log_only: bool = False  # whether preemptions are only logged
    # whether its jobs may start into time promised to a job of a higher rank
    into_promises: bool = False


def read_class(key: str, value: Any) -> PreemptionClass:
    """Parse an entry ``[preemption.NAME]``. Raises ValueError if the entry is invalid; the text
    begins with the key."""
    fields = Fields(value)
    rank, queues = fields.whole("rank", 0), fields.names("queues")
    attribute = fields.flag("attribute")
    if not queues and not attribute:
        raise ValueError("queues is missing: expected a list of names, or attribute=true")
    most = fields.table("max") or Fields({})
    jobs, node_hours = most.whole("jobs", least=1), most.number("node-hours")
    most.end()
    read = PreemptionClass(
        key,
        rank or 0,
        queues,
        attribute,
        after=fields.seconds("after") or 0.0,
        grace=fields.seconds("grace") or 0.0,
        signal=_signal_number(fields.text("signal")),
        wait=fields.seconds("wait") or 0.0,
        max_jobs=inf if jobs is None else jobs,
        max_node_hours=inf if node_hours is None else node_hours,
        log_only=fields.choice("mode", ("cancel", "log"), "cancel") == "log",
        into_promises=fields.flag("into-promises"),
    )
    fields.end()
    return read


def _signal_number(name: str | None) -> int:
    """Return the number of a signal, such as ``SIGUSR1`` or ``USR1``; 0 for None. Raises ValueError
    if it is not a signal."""
    if name is None:
        return 0
    try:
        return int(signal.Signals["SIG" + name.upper().removeprefix("SIG")])
    except (AttributeError, KeyError):
        pass
    raise ValueError(f"signal={name!r}: expected the name of a signal such as 'SIGUSR1'")


class PreemptionTerms(NamedTuple):
    """How a job preempts and is preempted."""

    cls: PreemptionClass | None  # its class; None: it has none, and no job preempts it
    rank: float  # rank to compare jobs by
    after: float  # seconds that it runs undisturbed
    queue: str | None  # its queue, or None


#: The terms of a running job without a class.
WITHOUT_CLASS = PreemptionTerms(None, HIGHEST, inf, None)


class Classes:
    """The classes in force."""

    def __init__(self, names: QueueNames) -> None:
        self.entries: dict[str, PreemptionClass] = {}  # name -> class
        self._names = names

    def of_queue(self, queue: str | None) -> PreemptionClass | None:
        """Return the class of a queue's jobs, or None. The queue's own name takes precedence over
        its parent's; if two classes have the same queue, the first by name counts."""
        by_name = [one for _, one in sorted(self.entries.items())]
        own = [one for one in by_name if queue is not None and queue in one.queues]
        covering = (one for one in by_name if self._names.any_covers(one.queues, queue))
        return own[0] if own else next(covering, None)

    def terms(self, attributes: SystemAttributes) -> PreemptionTerms:
        """Return the terms of a job, by its system attributes.  O(classes)."""
        queue, offered = attributes.queue, attributes.get(OFFER)
        if type(offered) not in (int, float) or not 0 <= offered < inf:
            offered = None  # ignored, so that a typing error ends no job
        if attributes.reservation is not None:
            return PreemptionTerms(None, NEITHER, inf, queue)
        own = self.of_queue(queue)
        if own is not None:
            after = own.after if offered is None else min(own.after, float(offered))
            return PreemptionTerms(own, own.rank, after, queue)
        offers = [one for _, one in sorted(self.entries.items()) if one.attribute]
        if offers and offered is not None:
            # It consents from that time on, not before.
            after = max(offers[0].after, float(offered))
            return PreemptionTerms(offers[0], offers[0].rank, after, queue)
        return PreemptionTerms(None, HIGHEST, inf, queue)

    def grace(self, names: Iterable[str]) -> float:
        """Return the seconds between the warning and the end of jobs of some classes: the
        maximum."""
        entries = self.entries
        return max([entries[name].grace for name in names if name in entries], default=0.0)


#: KVS key of the record.
KEY = "checkpoint.sched-preemptions"

# States of a preemption.
LENT = "runs"  # its victims run in time promised to the taker
DECIDED = "decided"  # it is being recorded in the KVS, and not announced yet
WARNED = "warned"  # the victims were warned, and the grace lasts
ENDING = "ending"  # the victims were ended; the resources they free are kept for the taker
OVER = "over"  # the taker has started, or the preemption was given up


#: Why no job ends for one whose user limits its wait.
TOO_LATE = "it would start later than it may"

#: Type of the exceptions (RFC 21 permits any type).
EXCEPTION = "preempt"

#: Errors for a job that has already ended.
NOT_THERE = (errno.ENOENT, errno.EINVAL)

#: Seconds between searches for takers: each covers all events since the last, after the pass that may
#: start jobs without ending others.
SEARCH_INTERVAL_S = 1.0


class Victim(NamedTuple):
    """A job that gives way."""

    jobid: int
    cls: str  # name of its class
    nodes: int  # number of nodes that it used when it was chosen
    start: float  # its start, seconds since the epoch
    userid: int | None  # its user, or None if unknown
    # Not stored: rank of its class when it was chosen, and of a borrower, its resource request.
    rank: float = 0.0
    request: Any = None

    def node_hours(self, now: float) -> float:
        """Return the node-hours lost if it ends now."""
        return self.nodes * max(0.0, now - self.start) / 3600.0

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form."""
        return dict(zip(("id", "class", "nodes", "start", "userid"), self))

    @classmethod
    def from_dict(cls, stored: Any) -> Victim:
        """Restore from the stored form. Raises ValueError, KeyError or TypeError if it is
        unreadable."""
        jobid, nodes, start = int(stored["id"]), int(stored["nodes"]), float(stored["start"])
        return cls(jobid, str(stored["class"]), nodes, start, stored["userid"])


def as_end(end: float) -> float:
    """Return an end in the pool's form; 0: none."""
    return end if isfinite(end) else 0.0


def jobs_of_classes(victims: Iterable[Victim]) -> str:
    """Return ``2 jobs of standby and 1 job of scavenger``."""
    counts = Counter(one.cls for one in victims)
    return " and ".join(f"{counted(number, 'job')} of {cls}" for cls, number in counts.items())


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
    gives_way_to: Any = None  # the `under_way.Preemption` in which it is a victim, or None
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
        self.of_classes: dict[int, Running] = {}  # jobs of `jobs` that have a class
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
        ends = ends_in(job.eventlog)
        one.was_ended |= EXCEPTION in ends
        if ends:
            self.ends(job.jobid)

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

    def own_end(self, jobid: int) -> float:
        """Return the end of a running job by its own limit; infinite: none."""
        running = self._host.running.get(jobid)
        return inf if running is None else running.end

    # -- duration of clean-ups ---------------------------------------------------------------------

    @property
    def kill_timeout(self) -> float:
        """Seconds between SIGTERM and SIGKILL for the tasks of a job (``exec.kill-timeout``)."""
        seconds = seconds_of(table_in(self._host.configuration(), "exec").get("kill-timeout"))
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


def ends_in(eventlog: list[dict[str, Any]]) -> list[Any]:
    """Return the events that show that a job has ended, or was ended: their names, or the types of
    exceptions."""
    found = []
    for event in eventlog:
        name, context = event.get("name"), event.get("context") or {}
        if name in ("finish", "free", "clean"):
            found.append(name)
        elif name == "exception" and context.get("severity") == 0:
            found.append(context.get("type"))
    return found


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

    def by_class(self) -> Iterator[dict[str, Any]]:
        """Yield an object per class with jobs that were, or would have been, ended."""
        for _, counts in sorted(self._classes.items()):
            yield {**counts, "useless_by": dict(counts["useless_by"])}


class PreemptionState:
    """The shared state of the parts of preemption."""

    takers: Any  # `Takers`, which search for jobs that may preempt others, and read this file
    loans: Any  # `Loans`, which start jobs in promised time, and read this file

    def __init__(self, host: RuleHost, rule: AdmissionRule) -> None:
        self.host, self.rule = host, rule
        self.classes = Classes(host.queue_names)  # the classes in force
        self.waiting: dict[int, Waiting] = {}  # id -> pending job
        self.running = RunningJobs(host)  # the running jobs
        self.active: dict[int, Any] = {}  # id of the taker -> `under_way.Preemption`
        self.counts = PreemptionCounts()  # counts since the load

    def store(self, stored: Callable[[], None] = lambda: None) -> None:
        """Store the current preemptions in the KVS, then call ``stored()``."""
        record: dict[str, Any] = {"version": VERSION, "preemptions": []}
        for one in self.active.values():
            one.enter_record(record)
        self.host.store(KEY, json.dumps(record), stored)

    def engage(self) -> None:
        """Have promises stay while there are borrowers, or jobs that borrowers were ended for; and
        have `GivingRule.allocate` called while preemptions or classes need it."""
        admission, active = self.host.admission, self.active.values()
        admission.pins = self.loans if any(one.in_promise for one in active) else None
        lends = any(cls.into_promises for cls in self.classes.entries.values())
        admission.engage(self.rule, True, lends or bool(active))


class Part:
    """A part of preemption."""

    def __init__(self, shared: PreemptionState) -> None:
        self.shared, self._host, self._classes = shared, shared.host, shared.classes
        self._waiting, self._running, self._active = shared.waiting, shared.running, shared.active
        self._counts = shared.counts

    def _objection(self, job: PendingJob) -> str | None:
        """Return why an admission rule keeps a job from starting, or None."""
        try:
            self._host.admission.check(job)
        except (InsufficientResources, InfeasibleRequest) as exc:  # the former, if it is deferred
            return str(exc)
        return None

    def _beyond(self, victims: Sequence[Victim], now: float) -> str | None:
        """Return why some victims exceed a class's maximum, in a sentence, or None."""
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

    def _is_on(self, jobid: int, place: Place) -> bool:
        """Whether a running job has a rank of a place."""
        return self._host.resources.held_ranks(jobid) & selected_ranks(place[0]) != 0

    def _would_break(
        self,
        plan: Plan,
        ends: dict[int, float],
        without: Collection[int],
        hold: Callable[[], list[int]] = list,
        unpinned: Collection[int] = (),
    ) -> bool:
        """Whether a promise that can be kept now would break in a trial on the pool itself, which
        costs less than a copy, and is undone: with other ends of running jobs in the pool,
        `without` some promises, with some `unpinned`, and with the placeholders that `hold`
        makes."""
        pool, restore = self._host.resources, plan.withdraw([*without, *plan.open_ids()])
        stale, before = plan.stale(), {jobid: pool.job_end(jobid) for jobid in ends}
        for jobid, end in ends.items():
            pool.update_expiration(jobid, end)
        held = hold()
        for jobid in unpinned:
            plan.pin(jobid, stays=False)
        breaks = not set(plan.stale()).issubset(stale)
        for jobid in unpinned:
            plan.pin(jobid)
        self._host.placeholders.free(held)
        for jobid, end in before.items():
            pool.update_expiration(jobid, end)
        restore()
        return breaks

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
        what, errors = f"preemption: {method} of {name_of(jobid)}", self._host.errors

        def answered(future: Any) -> None:
            error = 0
            try:
                future.get()
            except OSError as exc:
                error = exc.errno or errno.EIO
                if error not in NOT_THERE:
                    errors.report(f"{what}: {exc}")
            errors.guard(what, done, error)

        try:
            rpc = self._host.handle.rpc(f"job-manager.{method}", {"id": jobid, **payload})
            rpc.then(answered)
        except OSError as exc:
            errors.report(f"{what}: {exc}")
