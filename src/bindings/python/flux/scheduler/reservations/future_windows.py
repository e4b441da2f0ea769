# SPDX-License-Identifier: LGPL-3.0-or-later
"""Windows to come, as promises in the plan."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.pool.masks import idset_text, popcount
from flux.scheduler.reservations.node_selector import NodeSelector
from flux.scheduler.reservations.reservation import Reservation, Window
from flux.scheduler.reservations.state import ReservationState

if TYPE_CHECKING:
    from flux.resource.plan.plan import Plan
    from flux.scheduler.rule_host import RuleHost

#: Windows of one reservation that are entered into the plan; the last one without an end.
WINDOWS_PLANNED = 64

#: Parts into which a window is split that cannot be had whole.
MAX_WINDOW_PARTS = 16

#: Begins and ends of other reservations at which a window is split.
MAX_SPLITS = 4

#: Seconds that are too short for anything to lie between.
EPSILON_S = 1e-3


class FutureWindows:
    """Enters windows to come into the plan that jobs are started through, and takes them out.

    A window is a promise with a fixed start. Where it cannot be had whole, because jobs run into
    it, each part is entered from when it can be had.

    Args:
        host (RuleHost): the scheduler
        entries (dict): the reservations, by name
        selector (NodeSelector): what they ask of the pool
    """

    def __init__(
        self,
        host: RuleHost,
        entries: dict[str, ReservationState],
        selector: NodeSelector,
    ) -> None:
        self._host = host
        self._entries = entries
        self._selector = selector
        self._plan: Plan | None = None

    def attach(self, plan: Plan) -> None:
        """Enter all reservations into a plan that has no promises yet; it is kept up to date."""
        self._plan = plan
        for entry in self._entries.values():
            entry.keys = []
            self.enter(entry)

    def forget(self) -> None:
        """The plan is void: ranks were lost, or another one is made."""
        self._plan = None
        for entry in self._entries.values():
            entry.keys = []

    def enter(self, entry: ReservationState) -> bool:
        """Enter the windows to come into the plan; returns whether all of them could be had whole."""
        if self._plan is None or entry.window is None:
            return True
        entry.parts = []
        entry.whole = self._enter_missing(self._plan, entry, entry.keys, entry.parts)
        window = self._next_window(entry)
        for left in range(WINDOWS_PLANNED, 0, -1):
            if window is None:
                break
            following = entry.reservation.window_after(window)
            endless = left == 1 and following is not None
            end = math.inf if endless else window.end
            whole, keys, parts = self._enter_window(self._plan, entry, window, end)
            entry.whole &= whole
            entry.keys += keys
            if left == WINDOWS_PLANNED:
                entry.parts += parts
            window = following
        return entry.whole

    def withdraw(self, entry: ReservationState, again: bool = False) -> None:
        """Take an entry's promises out of the plan, and enter those that it now needs if
        `again`."""
        if self._plan is not None:
            for key in entry.keys:
                self._plan.cancel(key)
        entry.keys = []
        if again:
            self.enter(entry)

    def ranks_planned(self, entry: ReservationState) -> tuple[int, int]:
        """Masks of the ranks that the plan keeps for the window that lasts or comes next: those that
        it keeps by now, and those only from a later time on. 0 where it only counts."""
        now = later = 0
        if self._plan is not None and entry.window is not None:
            starts, time = self._plan.promises(), self._host.now()
            for key in entry.keys:
                if key in starts and starts[key][0] < entry.window.end:
                    ranks = self._plan.ranks_of(key) or 0
                    if starts[key][0] <= time:
                        now |= ranks
                    else:
                        later |= ranks
        return now, later & ~now

    def breaks_a_promise(self) -> bool:
        """Whether a job can no longer have what it was promised. O(promises)."""
        return self._plan is not None and self._plan.breaks_a_promise()

    def mend(self) -> bool:
        """Something was released or came up: enter again the windows that could not be had whole.

        Returns:
            whether all can be kept as well as if no job had a promise
        """
        short = [entry for entry in self._entries.values() if not entry.whole]
        for entry in short:
            self.withdraw(entry, again=True)
        return (
            all(entry.whole for entry in short)
            or self._plan is None
            or not any(key >= 0 for key in self._plan.promises())
            or self._kept_as_well_as_can_be()
        )

    def _enter_missing(
        self, plan: Plan, entry: ReservationState, keys: list[int], parts: list[tuple[float, int]]
    ) -> bool:
        """Enter what the active window is short of, so that no job starts on it when it comes free.

        Returns:
            whether it is short of nothing
        """
        if not entry.active or entry.window is None:
            return True
        missing = self._selector.nodes(entry.reservation) - popcount(entry.ranks)
        if missing <= 0:
            return True
        window = entry.window
        self._enter_nodes(
            plan, entry.reservation, window.start, window.end, 0, missing, keys, parts
        )
        return False

    def _next_window(self, entry: ReservationState) -> Window | None:
        """The first of an entry's windows that has not begun."""
        if entry.active and entry.window is not None:
            return entry.reservation.window_after(entry.window)
        return entry.window

    def _enter_window(
        self, plan: Plan, entry: ReservationState, window: Window, end: float
    ) -> tuple[bool, list[int], list[tuple[float, int]]]:
        """Enter one window into a plan, in as few parts as can be.

        Returns:
            whether all of it could be had at once; the keys of its parts; their starts and numbers
        """
        pinned = entry.ranks if entry.pinned and not entry.active else 0
        wanted = self._selector.nodes(entry.reservation)
        whole = True
        keys: list[int] = []
        parts: list[tuple[float, int]] = []
        for ranks, number in ((pinned, popcount(pinned)), (0, wanted - popcount(pinned))):
            if number > 0:
                whole &= self._enter_nodes(
                    plan, entry.reservation, window.start, end, ranks, number, keys, parts
                )
        return whole, keys, parts

    def _enter_nodes(
        self,
        plan: Plan,
        reservation: Reservation,
        start: float,
        end: float,
        ranks: int,
        left: int,
        keys: list[int],
        parts: list[tuple[float, int]],
        walls: int = MAX_SPLITS,
    ) -> bool:
        """Enter so many nodes of a window, of certain ranks or (0) of any; whether all at once.

        What another reservation has for some of the time is this one's for the rest of it; that is
        seen to at so many `walls`.
        """
        start = max(start, self._host.now())
        whole = True
        for _ in range(MAX_WINDOW_PARTS):
            if not left or start >= end:
                break
            count = self._most(plan, reservation, left, start, end, ranks)
            whole &= count == left
            if count:
                keys.append(self._selector.new_id())
                plan.reserve(keys[-1], self._part(reservation, count, start, end, ranks), start)
                parts.append((start, count))
                left -= count
            wall = self._wall(reservation, start, end) if left and walls else None
            if wall is not None:
                for begin, until in ((start, wall), (wall, end)):
                    self._enter_nodes(
                        plan, reservation, begin, until, ranks, left, keys, parts, walls - 1
                    )
                return False
            if left:
                found = plan.earliest(
                    self._part(reservation, 1, 0.0, 1.0, ranks),
                    after=start + EPSILON_S,
                )
                if found is None or found <= start:
                    break
                start = found
        return whole

    def _wall(self, reservation: Reservation, start: float, end: float) -> float | None:
        """The first time in a span at which a window of another reservation begins or ends."""
        times = []
        for entry in self._entries.values():
            if entry.name != reservation.name:
                window = entry.reservation.window_at(start)
                if window is not None:
                    times.append(window.start if window.start > start else window.end)
        return min([time for time in times if start < time < end], default=None)

    def _kept_as_well_as_can_be(self) -> bool:
        """Whether what the plan lacks of the reservations is lacking beside no promise, too."""
        trial = self._host.resources.plan()
        for entry in self._entries.values():
            parts: list[tuple[float, int]] = []
            self._enter_missing(trial, entry, [], parts)
            window = self._next_window(entry)
            if window is not None:
                parts += self._enter_window(trial, entry, window, window.end)[2]
            if not entry.whole and parts != entry.parts:
                return False
        return True

    def _part(
        self, reservation: Reservation, count: int, start: float, end: float, pinned: int
    ) -> Any:
        """A request for some of a window's nodes, from a part of it on."""
        ranks = idset_text(pinned) if pinned else None
        return self._selector.request(
            reservation, count, 0 if end == math.inf else end - start, ranks
        )

    def _most(
        self,
        plan: Plan,
        reservation: Reservation,
        most: int,
        start: float,
        end: float,
        pinned: int,
    ) -> int:
        """The largest number of nodes that a plan has for all of a span."""

        def fits(count: int) -> bool:
            try:
                part = self._part(reservation, count, start, end, pinned)
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
