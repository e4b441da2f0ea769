# SPDX-License-Identifier: LGPL-3.0-or-later
"""What a job waits for because of a reservation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InfeasibleRequest
from flux.resource.pool.masks import popcount
from flux.scheduler.disclosure import Reason
from flux.scheduler.reservations.active_windows import ActiveWindows
from flux.scheduler.reservations.group_jobs import GroupJobs
from flux.scheduler.reservations.node_selector import NodeSelector
from flux.scheduler.reservations.state import ReservationState
from flux.scheduler.reservations.times import iso_time

if TYPE_CHECKING:
    from flux.scheduler.requests import PendingJob
    from flux.scheduler.rule_host import RuleHost

#: A job that is planned to start within so many seconds of a window's end starts because the window
#: ends.
SAME_TIME_S = 1.0


class ReservationReasons:
    """Finds the reservation that a job waits for, or has to keep off.

    Args:
        host (RuleHost): the scheduler
        entries (dict): the reservations, by name
        selector (NodeSelector): what they ask of the pool
        group_jobs (GroupJobs): the jobs of their groups
        active (ActiveWindows): what is held of them
    """

    def __init__(
        self,
        host: RuleHost,
        entries: dict[str, ReservationState],
        selector: NodeSelector,
        group_jobs: GroupJobs,
        active: ActiveWindows,
    ) -> None:
        self._host = host
        self._entries = entries
        self._selector = selector
        self._group_jobs = group_jobs
        self._active = active

    def why(self, job: PendingJob) -> str | None:
        """What a job waits for because of a reservation, in one sentence; None if of none."""
        return self.blame(job)[0]

    def blamed(self, job: PendingJob) -> dict[str, Any] | None:
        """The reservation that a job waits for or has to keep off: its name, start and end."""
        _, entry = self.blame(job)
        return None if entry is None else self._shown(entry)

    def before(self, job: PendingJob, start: float) -> dict[str, Any] | None:
        """The last reservation that is over when a job starts at `start`, of nodes that it could
        use: its name, start and end; None if there is none but the job's own."""
        wanted = self._host.facts.ranks_of(job.resource_request)
        own = self._group_jobs.reservation_of(job)
        over = [
            (entry.window.end, entry)
            for entry in self._entries.values()
            if entry.name != own
            and entry.window is not None
            and entry.window.end <= start + SAME_TIME_S
            and (entry.ranks or self._selector.ranks(entry.reservation)) & wanted
        ]
        return self._shown(max(over, key=lambda one: one[0])[1]) if over else None

    @staticmethod
    def _shown(entry: ReservationState) -> dict[str, Any] | None:
        window = entry.window
        return window and {"name": entry.name, "start": window.start, "end": window.end}

    def blame(self, job: PendingJob) -> tuple[str | None, ReservationState | None]:
        """As `why`, and the reservation if there is one of that name."""
        try:
            entry, reason = self._group_jobs.standing(job)
        except InfeasibleRequest as exc:
            return str(exc), None
        if reason is not None:
            return reason, entry
        now = self._host.now()
        if entry is not None and entry.window is not None and not entry.active:
            begins = self._text(entry, entry.window.start)
            return f"reservation {entry.name} begins at {begins}", entry
        if entry is not None:
            wanted = self._selector.nodes(entry.reservation)
            free = popcount(entry.ranks & ~self._active.held_inside(entry))
            told = f"reservation {entry.name}: {free} of {wanted} nodes are free"
            return Reason(told, f"reservation {entry.name}: too few of its nodes are free"), entry
        return self._in_the_way(job, now)

    def _in_the_way(
        self, job: PendingJob, now: float
    ) -> tuple[str | None, ReservationState | None]:
        """The first reservation without which a job could start now."""
        if not self._entries:
            return None, None
        request = job.resource_request
        facts = self._host.resources.explain(request)
        wanted = self._host.facts.ranks_of(request)
        active = reserved = 0
        for entry in self._entries.values():
            if entry.active:
                active |= entry.ranks
        if facts["available"] >= facts["needed"] and facts["reason"]:
            return None, None  # enough is free, and not where it has to be
        if facts["available"] < facts["needed"]:
            if not wanted & active or facts["unit"] != "nodes":
                return None, None
            reserved = popcount(wanted & active)
            if facts["available"] + reserved < facts["needed"]:
                return None, None
            names = [e.name for e in self._entries.values() if e.active and e.ranks & wanted]
            first = self._entries[names[0]]
            assert first.window is not None
            text = (
                f"{reserved} of {facts['matching']} nodes are reserved for {', '.join(names)} "
                f"until {self._text(first, first.window.end)}"
            )
            return text, first
        length = request.duration if request.duration > 0 else math.inf
        ahead = [
            (entry.window.start, entry)
            for entry in self._entries.values()
            if entry.window is not None
            and not entry.active
            and entry.window.start < now + length
            and self._selector.ranks(entry.reservation) & wanted
        ]
        if not ahead:
            return None, None
        start, entry = min(ahead, key=lambda one: one[0])
        # How long it may be is not said here: the sentence would change every second.
        if request.duration <= 0:
            text = (
                f"no time limit: it could run into reservation {entry.name}, which begins at "
                f"{self._text(entry, start)}"
            )
        else:
            text = (
                f"time limit too long before reservation {entry.name}, which begins at "
                f"{self._text(entry, start)}"
            )
        return text, entry

    def _text(self, entry: ReservationState, when: float) -> str:
        return str(iso_time(when, entry.reservation.recurrence.zone))
