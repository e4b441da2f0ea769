# SPDX-License-Identifier: LGPL-3.0-or-later
"""Free resources of a pool now, counted in nodes or slots of requests.

A request for more cannot start, regardless of promises.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from flux.resource.pool.inventory import Counts
from flux.resource.pool.masks import popcount
from flux.resource.pool.placement import slots_on
from flux.resource.pool.rank_index import enough
from flux.resource.pool.remembered import Remembered

if TYPE_CHECKING:
    from flux.resource.pool.view import PoolWithView
    from flux.resource.request import Shape

#: ``(constraint, need, whether ranks are taken whole, whether nodes are counted)``; shapes with
#: equal kinds are counted together.
RoomKind = tuple[Any, Counts, bool, bool]


def room_kind(shape: Shape) -> RoomKind:
    """Return the kind of nodes or slots of a shape."""
    return shape.match, shape.need, shape.exclusive, shape.node_count is not None


class _Room:
    """Room for the nodes or slots of a kind, as of a generation of the pool."""

    __slots__ = ("shape", "generation", "inventory", "count", "units")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape  # one of the kind
        self.generation = -1
        self.inventory: Any = None
        self.count: float = 0  # of nodes or slots with room; infinity if counts do not decide
        self.units: dict[int, int] = {}  # by key of free counts, those on a rank with these


class RoomCounts:
    """Counts of the free resources of a pool now.

    Args:
        pool (PoolWithView): with a view
    """

    def __init__(self, pool: PoolWithView) -> None:
        self._pool = pool
        self._rooms: Remembered[Shape, _Room] = Remembered()
        self._kinds: Remembered[tuple[RoomKind, bool], _Room] = Remembered()
        # by constraint: keys of free counts, with the ranks that have these; of one generation
        self._free: Remembered[Any, list[tuple[int, int, int]]] = Remembered()
        self._free_since = -1

    def count(self, shape: Shape) -> float:
        """Return the number of nodes or slots of a shape with room, in any groups of ranks; infinity
        if counts do not decide placement. O(different counts of free cores and GPUs), the first time
        after a change of the pool."""
        room = self._rooms.get(shape)
        if room is None:
            anywhere = shape if shape.within is None else shape.replace(within=None)
            kind = room_kind(shape), self._pool.countable(anywhere)
            room = self._rooms[shape] = self._kinds.get(kind) or _Room(anywhere)
            self._kinds[kind] = room
        generation = self._pool.generation
        if room.generation != generation:
            room.generation = generation
            room.count = self._units(room) if self._pool.countable(room.shape) else inf
        return room.count

    def _units(self, room: _Room) -> int:
        shape, index = room.shape, self._pool.index
        if room.inventory is not index.inventory:
            room.inventory, room.units = index.inventory, {}
        units_of = room.units
        by_node = shape.node_count is not None
        within = index.idle if by_node and shape.exclusive else -1
        count = 0
        for key, number, mask in self._free_of(shape.match, room.generation):
            units = units_of.get(key)
            if units is None:
                free = index.inventory.counts(key)
                units = enough(free, shape.need) if by_node else slots_on(free, shape)
                units_of[key] = units
            if units:
                if within >= 0:
                    number = popcount(mask & within)
                count += number * units
        return count

    def _free_of(self, match: Any, generation: int) -> list[tuple[int, int, int]]:
        """Return ``(key of free counts, number of ranks, mask of them)`` of the ranks that are up
        and meet a constraint."""
        pool = self._pool
        if self._free_since != generation:
            self._free_since = generation
            self._free.clear()
        free = self._free.get(match)
        if free is None:
            eligible = pool.eligible(match)
            masks = [(key, mask & eligible) for key, mask in pool.index.groups.items()]
            free = self._free[match] = [(key, popcount(mask), mask) for key, mask in masks if mask]
        return free
