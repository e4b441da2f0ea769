# SPDX-License-Identifier: LGPL-3.0-or-later
"""Answers about reservations: the one that a job waits for, and descriptions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InfeasibleRequest
from flux.resource.pool.masks import idset_text, popcount
from flux.scheduler.disclosure import Reason
from flux.scheduler.host import name_of
from flux.scheduler.reservations.reservation import (
    GroupJobs,
    Reservation,
    ReservationPart,
    ReservationState,
    Window,
)
from flux.scheduler.reservations.windows import SAME_TIME_S, ActiveWindows, FutureWindows
from flux.scheduler.site_policy.fields import user_name
from flux.scheduler.times import iso_time

if TYPE_CHECKING:
    from flux.scheduler.requests import PendingJob

#: Maximum number of a reservation's windows in ``sched.plan``.
WINDOWS_SHOWN = 64


class ReservationAnswers(ReservationPart):
    """Determines the reservation that a job waits for or must not run into, and describes
    reservations: in lists, in plans, and with the jobs in their way.
    """

    def __init__(
        self, *args: Any, group_jobs: GroupJobs, future: FutureWindows, active: ActiveWindows
    ) -> None:
        super().__init__(*args)
        self._group_jobs = group_jobs
        self._future, self._active = future, active

    # -- why a job waits ---------------------------------------------------------------------------

    def facts(self, job: PendingJob) -> dict[str, Any]:
        """Return name, start and end of the reservation that `job` waits for, must not run into, or
        is to start after, or None."""
        entry = self.cause_of_wait(job)[1] if self._host.decision.ahead_of(job) is None else None
        start, _ = self._host.forecasts.estimate_of(job)
        if start is not None and (entry is None or entry.window is None):
            entry = self._before(job, start)
        if entry is None or entry.window is None:
            return {"reservation": None}
        _, begin, end = entry.window
        return {"reservation": {"name": entry.name, "start": begin, "end": end}}

    def _before(self, job: PendingJob, start: float) -> ReservationState | None:
        """Return the last reservation to end before a job's `start`, among those on nodes that it
        could use and other than its own, or None."""
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
        return max(over, key=lambda one: one[0])[1] if over else None

    def cause_of_wait(self, job: PendingJob) -> tuple[str | None, ReservationState | None]:
        """Return why a job waits for a reservation, in one sentence, or None; and the reservation,
        if it exists."""
        try:
            entry, reason = self._group_jobs.state_of(job)
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
        return self._other_in_the_way(job, now)

    def _other_in_the_way(
        self, job: PendingJob, now: float
    ) -> tuple[str | None, ReservationState | None]:
        """Return the first reservation without which a job could start now."""
        if not self._entries:
            return None, None
        request = job.resource_request
        facts = self._host.resources.explain(request)
        wanted = self._host.facts.ranks_of(request)
        active = 0
        for entry in self._entries.values():
            if entry.active:
                active |= entry.ranks
        if facts["available"] >= facts["needed"] and facts["reason"]:
            return None, None  # enough is free, but in the wrong place
        if facts["available"] < facts["needed"]:
            room = reserved = popcount(wanted & active)
            if facts["unit"] == "slots":
                by_rank = self._host.resources.slots_by_rank(request.shape)
                room = sum(slots * popcount(mask & wanted & active) for slots, mask in by_rank)
            if facts["available"] + room < facts["needed"]:
                return None, None
            names = [e.name for e in self._entries.values() if e.active and e.ranks & wanted]
            return self._reserved(reserved, facts, names)
        for entry in self._entries.values():
            # Of nodes in use that the window waits for, the pool shows the rest as free.
            kept = self._future.ranks_planned(entry) & wanted if entry.active else 0
            if kept:
                beside = self._host.resources.explain(request.on_ranks(wanted & ~kept))
                if beside["available"] < facts["needed"]:
                    return self._reserved(popcount(kept), facts, [entry.name])
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
        # The text omits the maximum length, which would change every second.
        why = (
            "time limit too long before"
            if request.duration > 0
            else "no time limit: it could run into"
        )
        return f"{why} reservation {entry.name}, which begins at {self._text(entry, start)}", entry

    def _reserved(
        self, nodes: int, facts: dict[str, Any], names: list[str]
    ) -> tuple[str, ReservationState]:
        """Return the reason of a job that waits for the windows of some reservations to end, and the
        first of these."""
        first = self._entries[names[0]]
        assert first.window is not None
        until = self._text(first, first.window.end)
        who = ", ".join(names)
        return f"{nodes} of {facts['matching']} nodes are reserved for {who} until {until}", first

    def _text(self, entry: ReservationState, when: float) -> str:
        return str(iso_time(when, entry.reservation.recurrence.zone))

    # -- descriptions ------------------------------------------------------------------------------

    def describe(self, entry: ReservationState) -> dict[str, Any]:
        """Describe a reservation for ``sched.reservations``."""
        reservation = entry.reservation
        wanted = self._selector.nodes(reservation)
        window, begin = entry.window, reservation.recurrence.start
        state = "over" if window is None else "active" if entry.active else "planned"
        short = self._selector.lacks(entry) if entry.active else 0
        lacks, note = short, entry.warned
        if state == "planned":
            is_able = (
                self._selector.ranks if reservation.is_maintenance else self._selector.ranks_up
            )
            lacks = wanted - popcount(is_able(reservation))
            if lacks > 0:
                note = f"{lacks} of {wanted} nodes are down or gone"
        shown = window or Window(0, begin, begin + reservation.duration)
        return {
            "name": entry.name,
            "state": "degraded" if lacks > 0 else state,
            "start": shown.start,
            "end": shown.end,
            "nodes": wanted,
            "held": popcount(entry.ranks) if entry.active else 0,
            "short": short,
            "ranks": self._ranks_text(entry, entry.ranks, entry.active),
            "every": reservation.recurrence.every,
            "zone": reservation.recurrence.zone,
            "at_end": reservation.at_end,
            "group": _group(reservation),
            "configured": entry.configured,
            "note": note,
        }

    def _ranks_text(self, entry: ReservationState, chosen: int, begun: bool) -> str | None:
        """Return the ranks of a window: the chosen ones or, before it has begun and if all that meet
        the constraint are reserved, these; None if there are none yet."""
        reservation = entry.reservation
        ranks = chosen
        if not ranks and not begun and entry.window is not None and reservation.nodes is None:
            ranks = self._selector.ranks(reservation)
        return idset_text(ranks) if ranks else None

    def preview(self, reservation: Reservation) -> dict[str, Any]:
        """Describe a reservation that is not made yet."""
        entry = ReservationState(reservation, configured=False)
        entry.window = reservation.window_at(self._host.now())
        return self.describe(entry)

    def spans(self, until: float) -> Iterator[dict[str, Any]]:
        """Yield the windows up to a time, for ``sched.plan``."""
        for entry in list(self._entries.values()):
            window: Window | None = entry.window
            for _ in range(WINDOWS_SHOWN):
                if window is None or window.start >= until:
                    break
                now = entry.active and window is entry.window
                yield {
                    "name": entry.name,
                    "start": window.start,
                    "end": window.end,
                    "nodes": self._selector.nodes(entry.reservation),
                    "ranks": self._ranks_text(
                        entry, entry.ranks if now or entry.pinned else 0, now
                    ),
                }
                window = entry.reservation.window_after(window)

    def conflicts(self, reservation: Reservation) -> list[dict[str, Any]]:
        """Return the running jobs that would be in the way at the next window's start.

        If a number of nodes is reserved: the minimum number of jobs, those that end first.
        """
        window = reservation.window_at(self._host.now())
        if window is None:
            return []
        room = self._selector.ranks_up(reservation)
        return self._in_the_way(room, reservation.nodes, window.start)

    def in_the_way(self, entry: ReservationState) -> list[dict[str, Any]]:
        """Return `conflicts` for an existing reservation; while its window is active, the jobs that
        hold its missing nodes."""
        if not entry.active:
            return self.conflicts(entry.reservation)
        short = self._selector.lacks(entry)
        if not short:
            return []
        room = self._selector.ranks_up(entry.reservation) & ~entry.ranks
        return self._in_the_way(room, short, self._host.now())

    def _in_the_way(self, room: int, nodes: int | None, start: float) -> list[dict[str, Any]]:
        """Return the running jobs that keep `nodes` of `room` (None: all) from being free at
        `start`."""
        busy: list[tuple[float, int, int]] = []
        for jobid, end in self._host.admission.ends():
            ranks = self._host.resources.held_ranks(jobid) & room
            if ranks and (not end or end > start):
                busy.append((end or math.inf, jobid, ranks))
        taken, given_back = 0, []  # jobs may share a node, which is free when the last ends
        for end, jobid, ranks in sorted(busy, reverse=True):
            given_back.append((end, jobid, ranks, popcount(ranks & ~taken)))
            taken |= ranks
        lacking = popcount(room) if nodes is None else nodes - popcount(room & ~taken)
        found = []
        for end, jobid, ranks, free in reversed(given_back):
            if lacking <= 0:
                break
            if nodes is not None:
                lacking -= free
            entry = {"id": jobid, "name": name_of(jobid), "nodes": popcount(ranks)}
            found.append({**entry, "end": None if end == math.inf else end})
        return found

    def overlapping(self, reservation: Reservation, others: Iterable[Reservation]) -> list[str]:
        """Return the names of the reservations that keep the next window from being complete."""
        window = reservation.window_at(self._host.now())
        if window is None:
            return []
        beside = []
        for one in others:
            other = one.window_at(window.start)
            if one.name != reservation.name and other is not None and other.start < window.end:
                beside.append((one, other, self._selector.ranks_up(one)))
        # The most are active when one of them begins.
        for time in sorted({max(window.start, other.start) for _, other, _ in beside}):
            names, wanted = [], self._selector.nodes(reservation)
            room = self._selector.ranks_up(reservation)
            for one, other, theirs in beside:
                if other.start <= time < other.end and theirs & room:
                    names.append(one.name)
                    wanted += self._selector.nodes(one)
                    room |= theirs
            if names and wanted > popcount(room):
                return names
        return []


def _group(reservation: Reservation) -> str:
    """Describe the group; empty if there are no jobs."""
    groups = ("users", map(user_name, reservation.users)), ("queues", reservation.queues)
    named = [(noun, ",".join(some)) for noun, some in (*groups, ("banks", reservation.banks))]
    return "; ".join(f"{noun} {some}" for noun, some in named if some)
