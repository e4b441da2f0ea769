# SPDX-License-Identifier: LGPL-3.0-or-later
"""Reservations as answers show them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flux.resource.pool.masks import idset_text, popcount
from flux.scheduler.reservations.active_windows import ActiveWindows
from flux.scheduler.reservations.node_selector import NodeSelector
from flux.scheduler.reservations.reservation import Reservation, Window
from flux.scheduler.reservations.state import ReservationState

if TYPE_CHECKING:
    from flux.scheduler.rule_host import RuleHost

#: Windows of one reservation that ``sched.plan`` shows.
WINDOWS_SHOWN = 64


class ReservationReport:
    """Shows reservations: as a list has them, as a plan has them, and what would be in their way.

    Args:
        host (RuleHost): the scheduler
        entries (dict): the reservations, by name
        selector (NodeSelector): what they ask of the pool
        active (ActiveWindows): what is held of them
    """

    def __init__(
        self,
        host: RuleHost,
        entries: dict[str, ReservationState],
        selector: NodeSelector,
        active: ActiveWindows,
    ) -> None:
        self._host = host
        self._entries = entries
        self._selector = selector
        self._active = active

    def describe(self, entry: ReservationState) -> dict[str, Any]:
        """An entry as the answer of ``sched.reservations`` has it."""
        reservation = entry.reservation
        wanted = self._selector.nodes(reservation)
        window = entry.window
        state = "over" if window is None else "active" if entry.active else "planned"
        held = popcount(entry.ranks)
        short = self._selector.lacks(entry) if entry.active else 0
        if not entry.active and window is not None:
            able = self._selector.ranks(reservation)
            if not reservation.for_nobody:
                able = self._selector.ranks_up(reservation)
            if popcount(able) < wanted:
                state = "degraded"
        elif short:
            state = "degraded"
        shown = window or Window(
            0, reservation.recurrence.start, reservation.recurrence.start + reservation.duration
        )
        return {
            "name": entry.name,
            "state": state,
            "start": shown.start,
            "end": shown.end,
            "nodes": wanted,
            "held": held if entry.active else 0,
            "short": short,
            "ranks": idset_text(entry.ranks) if entry.ranks else None,
            "every": reservation.recurrence.every,
            "zone": reservation.recurrence.zone,
            "at_end": reservation.at_end,
            "group": _group(reservation),
            "configured": entry.configured,
            "note": entry.warned,
        }

    def preview(self, reservation: Reservation) -> dict[str, Any]:
        """As `describe`, of a reservation that is not made."""
        entry = ReservationState(reservation, configured=False)
        entry.window = reservation.window_at(self._host.now())
        return self.describe(entry)

    def spans(self, until: float) -> Iterator[dict[str, Any]]:
        """The windows up to a time, as ``sched.plan`` shows them."""
        for entry in list(self._entries.values()):
            window: Window | None = entry.window
            for _ in range(WINDOWS_SHOWN):
                if window is None or window.start >= until:
                    break
                now = entry.active and window is entry.window
                ranks = entry.ranks if now or entry.pinned else 0
                yield {
                    "name": entry.name,
                    "start": window.start,
                    "end": window.end,
                    "nodes": self._selector.nodes(entry.reservation),
                    "ranks": idset_text(ranks) if ranks else None,
                }
                window = entry.reservation.window_after(window)

    def conflicts(self, reservation: Reservation) -> list[dict[str, Any]]:
        """Running jobs that would be in the way when the next window begins.

        Of a number of nodes, those that end first, as many as have to be.
        """
        window = reservation.window_at(self._host.now())
        if window is None:
            return []
        room = self._selector.ranks_up(reservation)
        return self._in_the_way(room, reservation.nodes, window.start)

    def in_the_way(self, entry: ReservationState) -> list[dict[str, Any]]:
        """As `conflicts`, of a reservation that is made: while its window lasts, the jobs that hold
        what it is short of."""
        if not entry.active:
            return self.conflicts(entry.reservation)
        short = self._selector.lacks(entry)
        if not short:
            return []
        room = self._selector.ranks_up(entry.reservation) & ~entry.ranks
        return self._in_the_way(room, short, self._host.now())

    def _in_the_way(self, room: int, nodes: int | None, start: float) -> list[dict[str, Any]]:
        """The running jobs that keep so many of `room` (None: all of it) from being free at a
        time."""
        busy: list[tuple[float, int, int]] = []
        taken = 0
        for jobid, end in self._active.running():
            ranks = self._host.resources.held_ranks(jobid) & room
            if ranks and (not end or end > start):
                busy.append((end or math.inf, jobid, ranks))
                taken |= ranks
        lacking = popcount(room) if nodes is None else nodes - popcount(room & ~taken)
        found = []
        for end, jobid, ranks in sorted(busy):
            if lacking <= 0:
                break
            if nodes is not None:
                lacking -= popcount(ranks)
            found.append(
                {"id": jobid, "nodes": popcount(ranks), "end": None if end == math.inf else end}
            )
        return found

    def overlapping(self, reservation: Reservation) -> list[str]:
        """Names of the reservations because of which the next window cannot be had whole."""
        window = reservation.window_at(self._host.now())
        if window is None:
            return []
        room = self._selector.ranks_up(reservation)
        names, wanted = [], self._selector.nodes(reservation)
        for entry in self._entries.values():
            other = entry.reservation.window_at(window.start)
            if entry.reservation.name == reservation.name or other is None:
                continue
            theirs = self._selector.ranks_up(entry.reservation)
            if other.start < window.end and theirs & room:
                names.append(entry.name)
                wanted += self._selector.nodes(entry.reservation)
                room |= theirs
        return names if wanted > popcount(room) else []


def _group(reservation: Reservation) -> str:
    """Who it is for, in words; empty: nobody."""
    parts = []
    for noun, names in (
        ("users", [str(user) for user in reservation.users]),
        ("queues", list(reservation.queues)),
        ("banks", list(reservation.banks)),
    ):
        if names:
            parts.append(f"{noun} {','.join(names)}")
    return "; ".join(parts)
