# SPDX-License-Identifier: LGPL-3.0-or-later
"""The windows of reservations. A planned window is a promise in the plan. An active one has ranks,
held by an allocation that belongs to no job and lent to the jobs of the group."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.pool.masks import idset_text, popcount, take
from flux.scheduler.reservations.reservation import (
    Planned,
    Reservation,
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

#: Maximum number of parts of an incomplete window.
MAX_WINDOW_PARTS = 16

#: Maximum number of starts and ends of other reservations at which a window is split.
MAX_SPLITS = 4

#: Times that differ by less, in seconds, are equal.
EPSILON_S = 1e-3


class FutureWindows(ReservationPart):
    """Enters planned windows into the plan through which jobs start, and withdraws them.

    A window is a promise with a fixed start. If running jobs overlap it, so that it cannot be
    complete, each part is entered from the time at which it is free.
    """

    _plan: Plan | None = None

    def attach(self, plan: Plan | None) -> None:
        """Enter all reservations into a plan without promises, and keep it up to date; None: the
        previous plan is void."""
        self._plan = plan
        for entry in self._entries.values():
            entry.planned = Planned()
            self.enter(entry)

    def enter(self, entry: ReservationState) -> bool:
        """Enter the planned windows that are not there into the plan, regardless of open promises.
        Return whether all are complete."""
        if self._plan is not None:
            if entry.window is not None:
                self._plan.stay_bound()
            restore_open = self._plan.without_open()
            self._enter_windows(self._plan, entry, WINDOWS_PLANNED, entry.planned)
            restore_open()
        return entry.planned.whole

    def withdraw(self, entry: ReservationState, all_windows: bool = True) -> None:
        """Withdraw an entry's promises from the plan; with `all_windows` false, only those of windows
        that have begun, ended or got an end, if the others are complete and on any nodes."""
        planned, entry.planned = entry.planned, Planned()
        if self._plan is None:
            return
        if planned.whole and not (all_windows or entry.pinned):
            for window in self._next_windows(entry, WINDOWS_PLANNED):
                if window in planned.windows:
                    entry.planned.windows[window] = planned.windows.pop(window)
        for key in planned.keys():
            self._plan.cancel(key)

    def ranks_planned(self, entry: ReservationState) -> tuple[int, int]:
        """Return masks of the ranks that the plan keeps for the active or next window: from now on,
        and only from a later time. 0 if the plan only counts."""
        now = later = 0
        if self._plan is not None and entry.window is not None:
            starts, time = self._plan.promises(), self._host.now()
            for key in entry.planned.keys():
                if key in starts and starts[key][0] < entry.window.end:
                    ranks = self._plan.ranks_of(key) or 0
                    if starts[key][0] <= time:
                        now |= ranks
                    else:
                        later |= ranks
        return now, later & ~now

    def breaks_a_promise(self) -> bool:
        """Whether a promise can no longer be kept.  O(promises)."""
        return self._plan is not None and self._plan.breaks_a_promise()

    def mend(self) -> bool:
        """Enter the incomplete windows again, after resources were released or came up. Return
        whether all are as complete as without promises to jobs."""
        short = [entry for entry in self._entries.values() if not entry.planned.whole]
        for entry in short:
            self.withdraw(entry)
            self.enter(entry)
        return (
            all(entry.planned.whole for entry in short)
            or self._plan is None
            or not any(key >= 0 for key in self._plan.promises())
            or self._complete_as_possible()
        )

    def _complete_as_possible(self) -> bool:
        """Whether the incomplete windows are as complete as in a plan without promises to jobs."""
        trial = self._host.resources.plan()
        for entry in self._entries.values():
            planned = Planned()
            self._enter_windows(trial, entry, 1, planned)
            last = -1 if entry.window is None else entry.window.index + entry.active
            if not entry.planned.whole and planned.parts(last) != entry.planned.parts(last):
                return False
        return True

    @staticmethod
    def _next_windows(entry: ReservationState, most: int) -> Iterator[Window]:
        """Yield the windows to enter that have not begun, at most `most`."""
        window = entry.window
        if window is not None and entry.active:
            window = entry.reservation.window_after(window)
        for number in range(1, most + 1):
            if window is None:
                break
            following = entry.reservation.window_after(window)
            endless = number == WINDOWS_PLANNED and following is not None
            yield window._replace(end=math.inf) if endless else window
            window = following

    def _enter_windows(
        self, plan: Plan, entry: ReservationState, most: int, planned: Planned
    ) -> None:
        """Enter windows that are not in `planned` into a plan: the nodes missing from the active
        one, so that no job starts on them when they are freed, and the next ones, at most `most`."""
        window, wanted = entry.window, self._selector.nodes(entry.reservation)
        pinned = entry.ranks if entry.pinned and not entry.active else 0
        if window is not None and entry.active:
            missing = wanted - popcount(entry.ranks)
            if missing > 0:
                self._enter_nodes(plan, entry, window, window, 0, missing, planned)
                planned.whole = False
        for window in self._next_windows(entry, most):
            if window not in planned.windows:
                for ranks, count in ((pinned, popcount(pinned)), (0, wanted - popcount(pinned))):
                    if count > 0:
                        self._enter_nodes(plan, entry, window, window, ranks, count, planned)

    def _enter_nodes(
        self,
        plan: Plan,
        entry: ReservationState,
        window: Window,
        span: Window,
        ranks: int,
        left: int,
        planned: Planned,
        walls: int = MAX_SPLITS,
    ) -> None:
        """Enter `left` nodes of a window, or of a `span` of it, among `ranks` (0: any), in as few
        parts as possible.

        Nodes that another reservation has for part of the time are entered for the rest, by
        splitting the window at up to `walls` times.
        """
        reservation, request = entry.reservation, self._selector.request
        parts = planned.windows.setdefault(window, [])
        start, end = max(span.start, self._host.now()), span.end
        for _ in range(MAX_WINDOW_PARTS):
            if not left or start >= end:
                break
            count = self._most(plan, reservation, left, start, end, ranks)
            planned.whole &= count == left
            if count:
                parts.append((self._host.placeholders.next_id(), start, count))
                part = request(reservation, count, end - start, ranks)
                plan.reserve(parts[-1][0], part, start)
                left -= count
            if not left:
                break
            wall = self._wall(reservation, start, end) if walls else None
            if wall is not None:
                for span in (Window(0, start, wall), Window(0, wall, end)):
                    self._enter_nodes(plan, entry, window, span, ranks, left, planned, walls - 1)
                break
            found = plan.earliest(request(reservation, 1, 1.0, ranks), after=start + EPSILON_S)
            if found is None or found <= start:
                break
            start = found

    def _wall(self, reservation: Reservation, start: float, end: float) -> float | None:
        """Return the first start or end of another reservation's window between `start` and `end`,
        or None."""
        times = []
        for entry in self._entries.values():
            if entry.name != reservation.name:
                window = entry.reservation.window_at(start)
                if window is not None:
                    times.append(window.start if window.start > start else window.end)
        return min([time for time in times if start < time < end], default=None)

    def _most(
        self, plan: Plan, reservation: Reservation, most: int, start: float, end: float, ranks: int
    ) -> int:
        """Return the largest number of nodes, up to `most`, that a plan has free from `start` to
        `end`."""

        def fits(count: int) -> bool:
            try:
                part = self._selector.request(reservation, count, end - start, ranks)
                found = plan.earliest(part, after=start)
            except (InfeasibleRequest, InsufficientResources):
                return False
            return found is not None and found <= start

        if fits(most):
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            if fits(middle):
                low = middle
            else:
                high = middle
        return low


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

    def take_in(self, entry: ReservationState, planned: tuple[int, int]) -> bool:
        """Choose missing ranks, and keep the free part of the chosen ones.

        Args:
            planned: masks of the ranks that the plan keeps for it now, and from a later time; they
                are chosen first

        Returns:
            whether it now holds ranks, or parts of ranks, that the plan did not keep for it and
            that may be promised to jobs
        """
        pool = self._host.resources
        usable = self._selector.ranks_up(entry.reservation)
        held = self.held_inside(entry)
        self._dismiss_placeholder(entry)
        idle = pool.idle_ranks
        # A rank used by other jobs does not count yet, even if it was chosen before.
        before = entry.ranks = (entry.ranks & usable & idle) | held
        wanted = self._selector.nodes(entry.reservation)
        missing = wanted - popcount(entry.ranks)
        if missing > 0:
            room = self._room_outside(entry, usable & idle & ~entry.ranks)
            by_now, later = planned
            for some in (room & by_now, room & later, room & ~by_now & ~later):
                chosen = self._choose(some, missing, entry.ranks)
                entry.ranks |= chosen
                missing -= popcount(chosen)
        # If other jobs use part of a rank beyond the window, as far as is known, the rest is kept:
        # otherwise new jobs would go on using it.
        busy = 0
        if missing > 0:
            room = self._room_outside(entry, usable & ~idle & ~entry.ranks)
            busy = take(room, min(missing, popcount(room)))
        self._placeholder(entry, busy)
        self._warn(entry, wanted)
        # The kept rest may have grown, which is also new to the plan.
        return bool(entry.ranks & ~before & ~planned[0] or entry.filler)

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

    def _placeholder(self, entry: ReservationState, busy: int = 0) -> None:
        """Allocate the free part of the chosen ranks, and of `busy` ranks in use beyond the window,
        to placeholders."""
        if entry.window is None:
            return
        hold, end = self._host.placeholders.hold_free, entry.window.end
        entry.placeholder, entry.filler = hold(entry.ranks, end), []
        if busy:
            # The plan keeps the others for the window from when they become idle; jobs that end
            # earlier may use the rest of them.
            entry.filler = hold(busy & self._in_use_after(end - EPSILON_S), end)

    def _dismiss_placeholder(self, entry: ReservationState) -> None:
        self._host.placeholders.free(entry.filler)
        self._host.placeholders.free(entry.placeholder)

    def dismiss(self, entry: ReservationState) -> None:
        """Free the placeholder of a window that is over."""
        self._dismiss_placeholder(entry)
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
        busy = pool.held_ranks(entry.filler[0]) if entry.filler else 0
        self._dismiss_placeholder(entry)
        try:
            alloc = pool.alloc_on(job.jobid, request, ranks)
            if self._host.admission.second_look(job, pool, job.jobid) is not None:
                pool.free(job.jobid)
                return None  # the ranks outside may be others
        except InsufficientResources:
            return None
        finally:
            self._placeholder(entry, busy)
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
        the window, unless it is on ranks that the reservation cannot have."""
        held = self._host.resources.held_ranks(jobid)
        if not held & ~self._selector.ranks(entry.reservation):
            self._note_inside(jobid, entry.name, self._host.resources.job_end(jobid), window)

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
