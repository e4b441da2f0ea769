# SPDX-License-Identifier: LGPL-3.0-or-later
"""Groups of pending jobs by the room that they need: for which of them there is any."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Callable

from flux.resource.plan.room_counts import RoomCounts, room_kind

if TYPE_CHECKING:
    from flux.resource.plan.room_counts import RoomKind
    from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation
    from flux.scheduler.ordered_jobs import JobGroup


class RoomIndex:
    """The groups of jobs in a backlog, by what a node or slot of theirs needs and how many they need.

    Args:
        pool: function giving the scheduler's pool
    """

    def __init__(self, pool: Callable[[], ResourcePoolImplementation]) -> None:
        self._pool = pool
        # By kind of room, in order: (nodes or slots needed, a number, the group).
        self._kinds: dict[RoomKind, list[tuple[float, int, JobGroup]]] = {}
        self._place: dict[JobGroup, tuple[RoomKind, float, int]] = {}
        #: groups that are to be entered, and those for which room cannot be counted
        self._new: dict[JobGroup, None] = {}
        self._uncounted: dict[JobGroup, None] = {}
        self._numbers = count()
        self._counts: RoomCounts | None = None

    def enter(self, group: JobGroup) -> None:
        """A group has been made."""
        self._new[group] = None

    def leave(self, group: JobGroup) -> None:
        """A group has no job any more."""
        for groups_aside in (self._new, self._uncounted):
            if group in groups_aside:
                del groups_aside[group]
                return
        kind, needed, number = self._place.pop(group)
        groups = self._kinds[kind]
        del groups[bisect_left(groups, (needed, number))]
        if not groups:
            del self._kinds[kind]

    def with_room(self) -> list[JobGroup]:
        """The groups for which there is room now, whatever is promised, and those for which that is not
        known. O(kinds of room), and those that are returned."""
        pool = self._pool()
        for group in self._new:
            shape = group.request.shape
            if pool.countable(shape):
                place = room_kind(shape), shape.least_count, next(self._numbers)
                self._place[group] = place
                insort(self._kinds.setdefault(place[0], []), (*place[1:], group))
            else:
                self._uncounted[group] = None
        self._new.clear()
        if self._counts is None:
            self._counts = RoomCounts(pool)
        counts = self._counts
        found = list(self._uncounted)
        for groups in self._kinds.values():
            room = counts.of(groups[0][2].request.shape)
            if room >= groups[0][0]:
                found += [group for _, _, group in groups[: bisect_right(groups, (room, inf))]]
        return found
