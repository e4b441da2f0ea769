# SPDX-License-Identifier: LGPL-3.0-or-later
"""Answers about reservations: the one that a job waits for, and descriptions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from flux.resource.errors import InfeasibleRequest
from flux.resource.pool.masks import idset_text, popcount
from flux.scheduler.disclosure import Reason
from flux.scheduler.host import name_of
from flux.scheduler.requests import PendingJob
from flux.scheduler.reservations.reservation import (
    OVER,
    SAME_TIME_S,
    Applicant,
    Reservation,
    ReservationState,
    Window,
)
from flux.scheduler.rule_host import RuleHost
from flux.scheduler.site_policy.tables import user_name
from flux.scheduler.times import iso_time

#: Maximum number of a reservation's windows in ``sched.plan``.
WINDOWS_SHOWN = 64


class ReservationAnswers:
    """Determines the reservation that a job belongs to, waits for or must not run into, and
    describes reservations: in lists, in plans, and with the jobs in their way."""

    def __init__(self, host: RuleHost, entries: dict[str, ReservationState]) -> None:
        self._host, self._entries = host, entries
        #: id of a pending job that names a reservation -> its name, and the job's properties
        self.group_jobs: dict[int, tuple[str, Applicant]] = {}

    def reservation_of(self, job: PendingJob) -> str | None:
        """Return the name of the reservation in which a pending job is to run, or None."""
        found = self.group_jobs.get(job.jobid)
        return None if found is None else found[0]

    def state_of(self, job: PendingJob) -> tuple[ReservationState | None, str | None]:
        """Return the reservation to whose group a job belongs, or None, and why the job cannot run
        now, or None. Raises InfeasibleRequest if the reservation does not admit the job."""
        found = self.group_jobs.get(job.jobid)
        if found is None:
            return None, None
        name, applicant = found
        entry = self._entries.get(name)
        if entry is None:
            return None, f"reservation {name} does not exist"
        if not entry.reservation.admits(applicant, self._host.queue_names):
            raise InfeasibleRequest(
                f"reservation {name} is not for this job's user, queue and bank"
            )
        if entry.window is OVER:
            return entry, f"reservation {name} is over"
        return entry, None

    # -- why a job waits ---------------------------------------------------------------------------

    def facts(self, job: PendingJob) -> dict[str, Any]:
        """Return name, start and end of the reservation that `job` waits for, must not run into, or
        is to start after, or None."""
        entry = self.cause_of_wait(job)[1] if self._host.decision.ahead_of(job) is None else None
        start, _ = self._host.forecasts.estimate_of(job)
        if start is not None and (entry is None or entry.window is OVER):
            entry = self._before(job, start)
        if entry is None or entry.window is OVER:
            return {"reservation": None}
        _, begin, end = entry.window
        return {"reservation": {"name": entry.name, "start": begin, "end": end}}

    def _before(self, job: PendingJob, start: float) -> ReservationState | None:
        """Return the last reservation to end before a job's `start`, among those on nodes that it
        could use and other than its own, or None."""
        wanted = self._host.facts.ranks_of(job.resource_request)
        own = self.reservation_of(job)
        over = (
            entry
            for entry in self._entries.values()
            if entry.name != own
            and entry.window.end <= start + SAME_TIME_S
            and (entry.ranks or entry.matching) & wanted
        )
        return max(over, key=lambda one: one.window.end, default=None)

    def cause_of_wait(self, job: PendingJob) -> tuple[str | None, ReservationState | None]:
        """Return why a job waits for a reservation, in one sentence, or None; and the reservation,
        if it exists."""
        try:
            entry, reason = self.state_of(job)
        except InfeasibleRequest as exc:
            return str(exc), None
        if reason is not None:
            return reason, entry
        now = self._host.now()
        if entry is not None and not entry.active:
            begins = self._text(entry, entry.window.start)
            return f"reservation {entry.name} begins at {begins}", entry
        if entry is not None:
            wanted = entry.wanted
            free = popcount(entry.ranks & ~entry.held_inside)
            told = f"reservation {entry.name}: {free} of {wanted} nodes are free"
            return Reason(told, f"reservation {entry.name}: too few of its nodes are free"), entry
        return self._other_in_the_way(job, now)

    def _other_in_the_way(
        self, job: PendingJob, now: float
    ) -> tuple[str | None, ReservationState | None]:
        """Return the first reservation without which a job could start now."""
        request, pool = job.resource_request, self._host.resources
        facts = pool.explain(request) if self._entries else {}
        if not facts or (facts["available"] >= facts["needed"] and facts["reason"]):
            return None, None  # where enough is free, it is in the wrong place
        wanted, available = self._host.facts.ranks_of(request), facts["available"]
        # Of nodes in use that a window waits for, the pool shows the rest as free.
        waits, reserved, names = available >= facts["needed"], 0, []
        for entry in self._entries.values():
            mask = (entry.ranks_planned if waits else entry.ranks) & wanted if entry.active else 0
            reserved |= mask
            names += [entry.name] if mask else []
        if waits and reserved:
            available = pool.explain(request.on_ranks(wanted & ~reserved))["available"]
        if available < facts["needed"]:
            room = popcount(reserved)
            if facts["unit"] == "slots":
                by_rank = pool.slots_by_rank(request.shape)
                room = sum(slots * popcount(mask & reserved) for slots, mask in by_rank)
            if available + room < facts["needed"]:
                return None, None
            first = self._entries[names[0]]
            until, who = self._text(first, first.window.end), ", ".join(names)
            nodes = f"{popcount(reserved)} of {facts['matching']} nodes"
            return f"{nodes} are reserved for {who} until {until}", first
        limited = request.duration > 0
        length = request.duration if limited else math.inf
        there = [entry for entry in self._entries.values() if entry.matching & wanted]
        ahead = [one for one in there if not one.active and one.window.start < now + length]
        if not ahead:
            return None, None
        ahead.sort(key=lambda one: one.window.start)
        least = facts["needed"]
        if facts["unit"] == "slots":  # on as few nodes as possible
            least = -(-least // max(slots for slots, _ in pool.slots_by_rank(request.shape)))
        for entry in ahead:
            start = entry.window.start
            beside = [one for one in there if one.window.start <= start < one.window.end]
            taken = sum(min(one.wanted, popcount(one.matching & wanted)) for one in beside)
            if facts["up"] - taken < least:
                break
        else:
            entry = ahead[0]  # of the nodes that are left, some are in use until then
        # The text omits the maximum length, which would change every second.
        why = "time limit too long before" if limited else "no time limit: it could run into"
        begins = self._text(entry, entry.window.start)
        return f"{why} reservation {entry.name}, which begins at {begins}", entry

    def _text(self, entry: ReservationState, when: float) -> str:
        return str(iso_time(when, entry.reservation.recurrence.zone))

    # -- descriptions ------------------------------------------------------------------------------

    def describe(self, entry: ReservationState) -> dict[str, Any]:
        """Describe a reservation for ``sched.reservations``."""
        reservation, wanted, window = entry.reservation, entry.wanted, entry.shown
        state = "active" if entry.active else "over" if entry.window is OVER else "planned"
        lacks = short = entry.lacks if entry.active else 0
        note = entry.warned
        if state == "planned":
            lacks = wanted - popcount(entry.matching if reservation.is_maintenance else entry.up)
            if lacks > 0:
                note = f"{lacks} of {wanted} nodes are down or gone"
        return {
            "name": entry.name,
            "state": "degraded" if lacks > 0 else state,
            "start": window.start,
            "end": window.end,
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
        if not ranks and not begun and entry.window is not OVER and reservation.nodes is None:
            ranks = entry.matching
        return idset_text(ranks) if ranks else None

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
                    "nodes": entry.wanted,
                    "ranks": self._ranks_text(
                        entry, entry.ranks if now or entry.pinned else 0, now
                    ),
                }
                window = entry.reservation.window_after(window)

    def in_the_way(self, entry: ReservationState) -> list[dict[str, Any]]:
        """Return the running jobs that would be in the way at the next window's start or, while a
        window is active, hold its missing nodes.

        If a number of nodes is reserved: the minimum number of jobs, by their ends.
        """
        if entry.window is OVER or (entry.active and not entry.lacks):
            return []
        if entry.active:
            return self._in_the_way(entry.up & ~entry.ranks, entry.lacks, self._host.now())
        return self._in_the_way(entry.up, entry.reservation.nodes, entry.window.start)

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

    def overlapping(self, entry: ReservationState, others: Iterable[ReservationState]) -> list[str]:
        """Return the names of the reservations that keep the next window from being complete."""
        window = entry.window
        if window is OVER:
            return []
        beside = []
        for one in others:
            other = one.reservation.window_at(window.start)
            if one.name != entry.name and other is not None and other.start < window.end:
                is_chosen = other == one.window and popcount(one.ranks) == one.wanted
                beside.append((one, other, one.ranks if is_chosen else one.up))
        # Those with the least choice first: whatever the others do, they may be too many.
        beside.sort(key=lambda one: popcount(one[2]))
        # The most are active when one of them begins.
        for time in sorted({max(window.start, other.start) for _, other, _ in beside}):
            short: list[str] = []
            names, wanted, room = [], entry.wanted, entry.up
            for one, other, theirs in beside:
                if other.start <= time < other.end and theirs & room:
                    names.append(one.name)
                    wanted += one.wanted
                    room |= theirs
                    if wanted > popcount(room):
                        short = list(names)
            if short:
                return short
        return []


def _group(reservation: Reservation) -> str:
    """Describe the group; empty if there are no jobs."""
    groups = ("users", map(user_name, reservation.users)), ("queues", reservation.queues)
    named = [(noun, ",".join(some)) for noun, some in (*groups, ("banks", reservation.banks))]
    return "; ".join(f"{noun} {some}" for noun, some in named if some)
