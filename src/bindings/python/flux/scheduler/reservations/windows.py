# SPDX-License-Identifier: LGPL-3.0-or-later
"""The windows of reservations. A planned window is a promise in the plan. An active one has ranks,
held by an allocation that belongs to no job and lent to the jobs of the group."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InsufficientResources
from flux.resource.pool.masks import idset_text, popcount
from flux.scheduler.reservations.reservation import (
    Part,
    ReservationPart,
    ReservationState,
    Window,
)

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.resource.ResourcePool import ResourcePool
    from flux.scheduler.requests import PendingJob

#: Number of windows per reservation entered into the plan; the last has no end.
WINDOWS_PLANNED = 64

#: Maximum seconds between a window's end and a job's end, or a planned start, that is attributed to
#: it.
SAME_TIME_S = 1.0


class FutureWindows(ReservationPart):
    """Keeps the nodes of planned windows, and those missing from active ones, in the plan through
    which jobs start.

    A window has a fixed start. Nodes that are in use then are kept as well, so that no other job
    starts on them.
    """

    def attach(self, plan: Plan | None) -> None:
        """Enter all reservations into the plan, which is new; None: the previous plan is void."""
        for entry in self._entries.values():
            entry.planned = {}
            self.update(entry)

    def update(self, entry: ReservationState) -> bool:
        """Enter what is to be kept for a reservation into the plan, and withdraw the rest. Return
        whether all that was entered is free at its time."""
        plan = self._host.planning.plan
        if plan is None:
            return True
        wanted, planned = list(self._parts(entry)), entry.planned
        for part in planned.keys() - set(wanted):
            plan.cancel(planned.pop(part))
        now, is_free = self._host.now(), True
        for part in wanted:
            if part not in planned:
                start = max(part.window.start, now)
                request = self._selector.request(
                    entry.reservation, part.nodes, part.window.end - start, part.ranks
                )
                planned[part] = self._host.placeholders.next_id()
                is_free &= plan.keep_free(planned[part], request, start)
        return is_free

    def _parts(self, entry: ReservationState) -> Iterator[Part]:
        """Yield what is to be kept: the nodes missing from the active window, so that no job starts
        on them when they are freed, and the next windows; the last of many without an end."""
        window, wanted, pinned = entry.window, self._selector.nodes(entry.reservation), 0
        if window is not None and entry.active:
            # Its own ranks are in use until its end, perhaps before those of jobs.
            others = self._selector.ranks(entry.reservation) & ~entry.ranks if entry.ranks else 0
            yield from _some(window, others, wanted - popcount(entry.ranks))
            window = entry.reservation.window_after(window)
        elif entry.pinned:
            pinned = entry.ranks
        for number in range(1, WINDOWS_PLANNED + 1):
            if window is None:
                break
            following = entry.reservation.window_after(window)
            if number == WINDOWS_PLANNED and following is not None:
                window = window._replace(end=math.inf)
            yield from _some(window, pinned, popcount(pinned))
            yield from _some(window, 0, wanted - popcount(pinned))
            window = following

    def ranks_planned(self, entry: ReservationState) -> int:
        """Return a mask of the ranks that the plan keeps for the active or next window; 0 if the
        plan only counts."""
        plan, ranks = self._host.planning.plan, 0
        for part, key in entry.planned.items():
            if plan is not None and entry.window and part.window.index == entry.window.index:
                ranks |= plan.ranks_of(key) or 0
        return ranks

    @property
    def are_short(self) -> bool:
        """Whether windows lack room, so that nodes in use are kept for them."""
        plan = self._host.planning.plan
        return plan is not None and plan.is_short


def _some(window: Window, ranks: int, nodes: int) -> list[Part]:
    return [Part(window, ranks, nodes)] if nodes > 0 else []


class ActiveWindows(ReservationPart):
    """Holds the ranks of active windows in the pool.

    The free part belongs to a *placeholder*: an allocation with a negative id. Jobs of the group
    are placed on its resources. In the pool they last as long as the window, since the resources
    that they free earlier are reserved; their own ends are recorded here.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: id of a running job that started inside a window -> name of the reservation
        self._inside: dict[int, str] = {}
        self._own_ends = self._host.admission.own_ends

    # -- choice of ranks ---------------------------------------------------------------------------

    def pin(self, entry: ReservationState) -> None:
        """Choose the ranks of a pinned reservation that has none, or too few that are up: free ones
        first, then those in use; in the minimum number of groups (such as racks), else the lowest.

        If there are groups, ranks whose jobs end before the window begins count as free: otherwise
        the window would be scattered over the ranks that are free now.
        """
        if not entry.pinned or entry.active or entry.window is None:
            return
        pool = self._host.resources
        room = self._selector.ranks(entry.reservation) & pool.eligible_ranks()
        before = entry.ranks
        chosen = before & room
        wanted = self._selector.nodes(entry.reservation)
        if popcount(chosen) < wanted:
            free = pool.idle_ranks
            if pool.packing:
                free = pool.ranks & ~self._in_use_after(entry.window.start)
            for some in (free, pool.ranks):
                some = self._room_outside(entry, room & some & ~chosen)
                chosen |= self._choose(some, wanted - popcount(chosen), chosen)
        entry.ranks = chosen
        if before & ~chosen:
            gone, come = idset_text(before & ~chosen), idset_text(chosen & ~before)
            instead = f"rank {come} instead" if come else "no other instead"
            self._host.log.warning(f"reservation {entry.name}: rank {gone} is down: {instead}")

    def fill(self, entry: ReservationState, planned: int) -> bool:
        """Choose missing ranks, and keep the free part of the chosen ones. `planned`: mask of the
        ranks that the plan keeps for it, which are chosen first. Return whether others were chosen,
        which may be promised to jobs."""
        pool = self._host.resources
        usable = self._selector.ranks_up(entry.reservation)
        held = self.held_inside(entry)
        self._host.placeholders.free(entry.placeholder)
        idle = pool.idle_ranks
        # A rank used by other jobs does not count yet, even if it was chosen before.
        before = entry.ranks = (entry.ranks & usable & idle) | held
        wanted = self._selector.nodes(entry.reservation)
        missing = wanted - popcount(entry.ranks)
        if missing > 0:
            room = self._room_outside(entry, usable & idle & ~entry.ranks)
            for some in (room & planned, room & ~planned):
                chosen = self._choose(some, missing, entry.ranks)
                entry.ranks |= chosen
                missing -= popcount(chosen)
        self._placeholder(entry)
        self._warn(entry, wanted)
        return bool(entry.ranks & ~before & ~planned)

    def _choose(self, ranks: int, count: int, beside: int) -> int:
        """Choose `count` of some ranks, or all if there are fewer.

        Uses the minimum number of groups: those with ranks of the reservation (`beside`) come
        first, those without a rank in use or chosen for any window last. Without groups, the lowest
        ranks.
        """
        pool = self._host.resources
        idle = pool.idle_ranks
        for entry in self._entries.values():
            idle &= ~entry.ranks
        return pool.choose_nodes(ranks, count, idle, beside)

    def _in_use_after(self, time: float) -> int:
        """Return the mask of ranks with a job that, as far as is known, ends after a time.
        O(jobs)."""
        pool, found = self._host.resources, 0
        for jobid, end in pool.job_end_times():
            if not end or end > time:
                found |= pool.held_ranks(jobid)
        return found

    def _room_outside(self, entry: ReservationState, idle: int) -> int:
        """Return those of some idle ranks that no other reservation has chosen for an overlapping
        window."""
        assert entry.window is not None
        for other in self._entries.values():
            window = other.window
            if (
                other is not entry
                and window is not None
                and window.start < entry.window.end
                and (other.active or entry.window.start < window.end)
            ):
                idle &= ~other.ranks
        return idle

    def _warn(self, entry: ReservationState, wanted: int) -> None:
        short = self._selector.lacks(entry)
        text = f"{short} of {wanted} nodes are in use or down" if short > 0 else ""
        if text != entry.warned:
            entry.warned = text
            if text:
                self._host.log.warning(f"reservation {entry.name}: {text}")

    # -- placeholders ------------------------------------------------------------------------------

    def _placeholder(self, entry: ReservationState) -> None:
        """Allocate the free part of the chosen ranks to a placeholder."""
        if entry.window is not None:
            hold, end = self._host.placeholders.hold_free, entry.window.end
            entry.placeholder = hold(entry.ranks, end)

    def dismiss(self, entry: ReservationState) -> None:
        """Free the placeholder of a window that is over."""
        self._host.placeholders.free(entry.placeholder)
        self._leave(entry.name)
        entry.ranks = 0
        entry.warned = ""

    # -- jobs inside -------------------------------------------------------------------------------

    def allocate(self, entry: ReservationState, job: PendingJob, plan: Plan) -> ResourcePool | None:
        """Place a job of the group on the reserved ranks. Return None if it does not fit there
        now."""
        pool = self._host.resources
        window = entry.window
        if window is None or not entry.placeholder:
            return None
        request = job.resource_request
        length = request.duration
        end = self._host.now() + length if length > 0 else pool.expiration
        if entry.reservation.at_end == "cancel":
            end = min(end or window.end, window.end)
        last = end or math.inf
        if not plan.has_tokens(job.jobid, request, last, beside_open=False):
            return None
        ranks = pool.held_ranks(entry.placeholder[0]) & ~plan.closed_now(request)
        self._host.placeholders.free(entry.placeholder)
        try:
            alloc = pool.alloc_on(job.jobid, request, ranks)
            self._host.admission.check_allocation(job, pool)
        except InsufficientResources:
            return None  # the ranks outside may be others
        finally:
            self._placeholder(entry)
        self._note_inside(job.jobid, entry.name, end, window)
        plan.note_started(job.jobid, request)
        return alloc

    def held_inside(self, entry: ReservationState) -> int:
        """Return the mask of ranks held by jobs of the group that were started inside."""
        held = 0
        for jobid, name in self._inside.items():
            if name == entry.name:
                try:
                    held |= self._host.resources.held_ranks(jobid)
                except KeyError:
                    pass
        return held

    def found_inside(self, jobid: int, entry: ReservationState, window: Window) -> None:
        """Register a running job of a group that was started by an earlier scheduler: it is inside
        the window, unless it is on ranks that the reservation cannot have, or lasts although the
        window ends the jobs inside."""
        pool = self._host.resources
        held, end = pool.held_ranks(jobid), pool.job_end(jobid)
        lasts = entry.reservation.at_end == "cancel" and not 0 < end <= window.end + SAME_TIME_S
        if not (lasts or held & ~self._selector.ranks(entry.reservation)):
            self._note_inside(jobid, entry.name, end, window)

    def _note_inside(self, jobid: int, name: str, end: float, window: Window) -> None:
        """Register a job that runs inside a window until `end`; in the pool it lasts at least as
        long as the window."""
        self._inside[jobid], self._own_ends[jobid] = name, end
        pool_end = max(end, window.end) if end else 0.0
        self._host.resources.update_expiration(jobid, pool_end)

    def extended(self, jobid: int, expiration: float) -> None:
        """Set the new end of a running job. If it is inside a window, its end in the pool is not
        earlier than the window's."""
        entry = self._entries.get(self._inside.get(jobid, ""))
        if entry is not None and entry.window is not None:
            self._note_inside(jobid, entry.name, expiration, entry.window)

    def outlives_window(self, jobid: int) -> bool:
        """Whether a job was started inside a window and outlives it."""
        entry, end = self._entries.get(self._inside.get(jobid, "")), self._own_ends.get(jobid, 0.0)
        return entry is not None and entry.window is not None and not 0 < end <= entry.window.end

    def ended(self, jobid: int) -> None:
        """Forget a job that has freed all resources."""
        if self._inside.pop(jobid, None) is not None:
            del self._own_ends[jobid]

    def _leave(self, name: str) -> None:
        """Make the jobs inside ordinary jobs: the window is over."""
        for jobid, own in list(self._inside.items()):
            if own == name:
                del self._inside[jobid]
                self._host.resources.update_expiration(jobid, self._own_ends.pop(jobid))
