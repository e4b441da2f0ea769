# SPDX-License-Identifier: LGPL-3.0-or-later
"""The shared state of preemption: the pending jobs, the running jobs that may be ended, and counts
since the scheduler was loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.scheduler.site_policy.holdings import part_of
from flux.scheduler.site_policy.preemption.classes import Classes, kill_timeout_of
from flux.scheduler.site_policy.preemption.record import EXCEPTION, Record, Victim

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.scheduler.host import ErrorReporter
    from flux.scheduler.requests import PendingJob, RunningJob
    from flux.scheduler.rule_host import RuleHost
    from flux.scheduler.site_policy.preemption.classes import PreemptionClass, PreemptionTerms
    from flux.scheduler.site_policy.preemption.record import Preemption

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
        self._clean_up: float | None = None

    def start(self, job: PendingJob, terms: PreemptionTerms) -> None:
        """Add a job that starts."""
        self.jobs[job.jobid] = Running(job.jobid, terms, self._host.now(), job.userid)

    def hello(self, job: RunningJob, terms: PreemptionTerms) -> None:
        """Add a job found running, or update it after the classes have changed."""
        found, now = self._host.running.get(job.jobid), self._host.now()
        one = self.jobs.get(job.jobid)
        if one is None:
            start = now if found is None else found.start
            one = self.jobs[job.jobid] = Running(job.jobid, terms, start, job.userid)
        one.terms = terms
        one.left_alone |= job.unreadable
        if has_ended(job.eventlog):
            self.ends(job.jobid)
        one.was_ended |= any(
            event.get("name") == "exception"
            and (event.get("context") or {}).get("severity") == 0
            and event["context"].get("type") == EXCEPTION
            for event in job.eventlog
        )

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
