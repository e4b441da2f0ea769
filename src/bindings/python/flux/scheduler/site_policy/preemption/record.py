# SPDX-License-Identifier: LGPL-3.0-or-later
"""The record of current preemptions and of jobs that run in promised time, and its storage."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from flux.resource.pool.masks import idset_text, parse_idset
from flux.scheduler.checkpoint import read_stored
from flux.scheduler.disclosure import Reason
from flux.scheduler.host import counted
from flux.scheduler.states import StateTable

if TYPE_CHECKING:
    from flux.scheduler.host import Timer
    from flux.scheduler.rule_host import RuleHost

#: The KVS key of the record, and the version of its format.
KEY = "checkpoint.sched-preemptions"
VERSION = 1

# States of a preemption.
DECIDED = "decided"
WARNED = "warned"
ENDING = "ending"
OVER = "over"

PREEMPTION = StateTable(
    "preemption",
    DECIDED,
    {
        DECIDED: {"stored": WARNED, "withdraw": OVER},
        WARNED: {"deadline": ENDING, "withdraw": OVER},
        ENDING: {"withdraw": OVER},
        OVER: {},
    },
    {
        DECIDED: "it is being recorded in the KVS; nobody was told",
        WARNED: "the jobs that give way were told, and the grace lasts",
        ENDING: "they were ended; their resources are kept for the job as they come back",
        OVER: "the job has started, or it was given up",
    },
)

# States of a borrower, which may also be `WARNED`.
RUNS = "runs"
ENDED = "ended"


#: The type of the exceptions (RFC 21 leaves the list of types open).
EXCEPTION = "preempt"


class Victim(NamedTuple):
    """A job that gives way.

    Attributes:
        jobid: its id
        cls: name of its class
        nodes: the number that it used when it was chosen
        start: its start, seconds since the epoch
        userid: its user; None: not known
    """

    jobid: int
    cls: str
    nodes: int
    start: float
    userid: int | None

    def node_hours(self, now: float) -> float:
        """The node-hours that are lost if it ends now."""
        return self.nodes * max(0.0, now - self.start) / 3600.0

    def to_dict(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            "id": self.jobid,
            "class": self.cls,
            "nodes": self.nodes,
            "start": self.start,
            "userid": self.userid,
        }

    @classmethod
    def from_dict(cls, stored: Any) -> Victim:
        """One that was stored; raises as `Preemption.from_dict`."""
        return cls(
            int(stored["id"]),
            str(stored["class"]),
            int(stored["nodes"]),
            float(stored["start"]),
            stored["userid"],
        )


def jobs_of_classes(victims: Iterable[Victim]) -> str:
    """``2 jobs of standby and 1 job of scavenger``."""
    counts = Counter(one.cls for one in victims)
    return " and ".join(f"{counted(number, 'job')} of {cls}" for cls, number in counts.items())


class Preemption:
    """One preemption.

    Times are in seconds since the epoch.

    Attributes:
        taker (int): id of the job that is to start
        queue (str or None): the taker's queue
        userid (int or None): the taker's user
        victims (dict): by id, the jobs that give way
        ranks (int): mask of the ranks that are kept for the taker
        decided, deadline (float): when the victims were chosen, and when they are ended
        expected (float): the expected start of the taker
        state (str): one of `PREEMPTION`
        request: the taker's resource request; None: it has not come back yet after a reload
        held (set): ids of the victims that still hold resources
        ended (set): ids of those on which an exception of severity 0 was raised
        placeholders (list): the ids of the allocations that keep free parts of `ranks` for the job
        withheld (list): the ids of the allocations that keep other free parts of `ranks` from the
            job, once the victims are being ended
        timer (Timer or None): for the deadline
    """

    def __init__(
        self,
        taker: int,
        queue: str | None,
        userid: int | None,
        victims: Iterable[Victim],
        ranks: int,
        decided: float,
        deadline: float,
        expected: float,
    ) -> None:
        self.taker = taker
        self.queue = queue
        self.userid = userid
        self.victims = {one.jobid: one for one in victims}
        self.ranks = ranks
        self.decided = decided
        self.deadline = deadline
        self.expected = expected
        self.state = DECIDED
        self.request: Any = None
        self.held = set(self.victims)
        self.ended: set[int] = set()
        self.placeholders: list[int] = []
        self.withheld: list[int] = []
        self.timer: Timer | None = None

    def move(self, event: str) -> None:
        """Apply an event to the state.

        Raises:
            IllegalMove: the event is impossible in this state
        """
        self.state = PREEMPTION.after(self.state, event)

    def reason(self) -> Reason:
        """Why the taker waits, in a sentence."""
        classes = jobs_of_classes(self.victims.values())
        if self.state == ENDING:
            return Reason(f"waits for {classes} to end", "waits for resources that are given back")
        when = time.strftime("%H:%M:%S", time.localtime(self.deadline))
        return Reason(
            f"{classes} end for it at {when}", f"resources are given back for it at {when}"
        )

    def to_dict(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            "taker": self.taker,
            "queue": self.queue,
            "userid": self.userid,
            "ranks": idset_text(self.ranks),
            "decided": self.decided,
            "deadline": self.deadline,
            "expected": self.expected,
            "victims": [one.to_dict() for one in self.victims.values()],
        }

    @classmethod
    def from_dict(cls, stored: Any) -> Preemption:
        """One that was stored.

        Raises:
            ValueError, KeyError, TypeError: it cannot be read
        """
        return cls(
            int(stored["taker"]),
            stored["queue"],
            stored["userid"],
            [Victim.from_dict(one) for one in stored["victims"]],
            parse_idset(stored["ranks"]),
            float(stored["decided"]),
            float(stored["deadline"]),
            float(stored["expected"]),
        )


class Borrower:
    """A running job that is ended before a promised time, unless it ends by itself.

    Times are in seconds since the epoch.

    Attributes:
        victim (Victim): the job
        taker (int): id of the job that was promised the time
        queue (str or None): the taker's
        until (float): when the promised time begins
        limit (float): the borrower's end by its own limit; infinite: it has none
        request: its request; None: not known, since it was started before a reload
        rest (tuple or None): the promise in the plan that keeps its resources after the promised
            time: id, request, and start
        awaits (bool): whether the taker must come back first, after a reload
        state (str): `RUNS`, `WARNED` or `ENDED`
        stored (bool): whether it is recorded in the KVS, without which it is not ended
        timer (Timer or None): for the next step
        began (float): when it was ended
        ranks (int): mask of the ranks it held when it was ended
        kept (tuple or None): the resources it has freed since, kept for the taker: the id in the
            pool, and R
    """

    def __init__(
        self,
        victim: Victim,
        taker: int,
        queue: str | None,
        until: float,
        limit: float,
        request: Any = None,
    ) -> None:
        self.victim = victim
        self.taker = taker
        self.queue = queue
        self.until = until
        self.limit = limit
        self.request = request
        self.rest: tuple[int, Any, float] | None = None
        self.awaits = False
        self.state = RUNS
        self.stored = False
        self.timer: Timer | None = None
        self.began = 0.0
        self.ranks = 0
        self.kept: tuple[int, dict[str, Any]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            **self.victim.to_dict(),
            "taker": self.taker,
            "queue": self.queue,
            "until": self.until,
            "limit": self.limit if isfinite(self.limit) else 0.0,
            "warned": self.state != RUNS,
        }

    @classmethod
    def from_dict(cls, stored: Any) -> Borrower:
        """One that was stored; raises as `Preemption.from_dict`."""
        limit = float(stored["limit"]) or inf
        taker, until = int(stored["taker"]), float(stored["until"])
        found = cls(Victim.from_dict(stored), taker, stored["queue"], until, limit)
        found.stored = found.awaits = True
        found.state = WARNED if stored["warned"] else RUNS
        return found


class Record:
    """The current preemptions and borrowers. It is stored in the KVS before any job is warned or
    ended.

    Args:
        host (RuleHost): the scheduler

    Attributes:
        active (dict): the preemptions, by the taker's id
        borrowers (dict): by id, the jobs that run in time promised to others
    """

    def __init__(self, host: RuleHost) -> None:
        self._host = host
        self.active: dict[int, Preemption] = {}
        self.borrowers: dict[int, Borrower] = {}

    def store(self, stored: Callable[[], None] = lambda: None) -> None:
        """Store it, then call ``stored()``."""
        entries = [one.to_dict() for one in self.active.values()]
        record: dict[str, Any] = {"version": VERSION, "preemptions": entries}
        if self.borrowers:
            record["borrowers"] = [one.to_dict() for one in self.borrowers.values()]
        self._host.store(KEY, json.dumps(record), stored)

    def load(self) -> None:
        """Load the record that the last scheduler has stored, if any.

        Raises:
            ValueError: it cannot be read; the record is empty then
        """

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
