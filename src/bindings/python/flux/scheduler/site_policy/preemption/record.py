# SPDX-License-Identifier: LGPL-3.0-or-later
"""One preemption under way: who takes, who gives way, and how far it is; and how it is stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from flux.resource.pool.masks import idset_text, parse_idset
from flux.scheduler.states import StateTable

if TYPE_CHECKING:
    from flux.scheduler.host import Timer

#: Where preemptions under way are stored, and the version of what is there.
KEY = "checkpoint.sched-preemptions"
VERSION = 1

# How far a preemption is.
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


class Victim(NamedTuple):
    """A job that gives way.

    Attributes:
        jobid: its id
        cls: name of its class
        nodes: on which it held something when it was chosen
        start: when it started, seconds since the epoch
        userid: whose it is; None: not known
    """

    jobid: int
    cls: str
    nodes: int
    start: float
    userid: int | None

    def node_hours(self, now: float) -> float:
        """What is lost if it ends now."""
        return self.nodes * max(0.0, now - self.start) / 3600.0


class Preemption:
    """One preemption.

    Times are in seconds since the epoch.

    Attributes:
        taker (int): id of the job that is to start
        queue (str or None): that it was submitted to
        userid (int or None): whose it is
        victims (dict): by id, the jobs that give way
        ranks (int): mask of the ranks that are kept for the taker
        decided, deadline (float): when the victims were chosen, and when they are ended
        expected (float): when the taker is expected to start
        state (str): one of `PREEMPTION`
        request: what the taker asks for; None: it has not come back yet after a reload
        held (set): ids of the victims that hold something still
        ended (set): ids of those on which an exception of severity 0 was raised
        placeholders (list): the ids of the allocations that keep what is free of `ranks` for the job
        withheld (list): the ids of the allocations that keep what else is free of `ranks` from the
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
        """Something happens to it.

        Raises:
            IllegalMove: it cannot happen in its state
        """
        self.state = PREEMPTION.after(self.state, event)

    def classes(self) -> dict[str, int]:
        """How many jobs give way, by class."""
        counts: dict[str, int] = {}
        for one in self.victims.values():
            counts[one.cls] = counts.get(one.cls, 0) + 1
        return counts

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
            "victims": [
                {
                    "id": one.jobid,
                    "class": one.cls,
                    "nodes": one.nodes,
                    "start": one.start,
                    "userid": one.userid,
                }
                for one in self.victims.values()
            ],
        }

    @classmethod
    def from_dict(cls, stored: Any) -> Preemption:
        """One that was stored.

        Raises:
            ValueError, KeyError, TypeError: it cannot be read
        """
        victims = [
            Victim(
                int(one["id"]),
                str(one["class"]),
                int(one["nodes"]),
                float(one["start"]),
                one["userid"],
            )
            for one in stored["victims"]
        ]
        return cls(
            int(stored["taker"]),
            stored["queue"],
            stored["userid"],
            victims,
            parse_idset(stored["ranks"]),
            float(stored["decided"]),
            float(stored["deadline"]),
            float(stored["expected"]),
        )
