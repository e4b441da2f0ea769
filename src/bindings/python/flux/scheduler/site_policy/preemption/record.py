# SPDX-License-Identifier: LGPL-3.0-or-later
"""The record of current preemptions and of jobs that run in promised time, and its storage."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from flux.resource.pool.masks import idset_text, parse_idset
from flux.scheduler.checkpoint import read_stored
from flux.scheduler.disclosure import Reason
from flux.scheduler.host import counted

if TYPE_CHECKING:
    from flux.scheduler.host import Timer
    from flux.scheduler.rule_host import RuleHost

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
