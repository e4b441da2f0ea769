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


class RoomCounts:
    """Counts of the free resources of a pool now.

    Args:
        pool (PoolWithView): with a view
    """

    def __init__(self, pool: PoolWithView) -> None:
        self._pool = pool
        self._generation = pool.generation  # the pool's generation for which the rest is valid
        # by constraint: free counts, and the ranks with exactly these
        self._ranks: Remembered[Any, list[tuple[Counts, int, int]]] = Remembered()
        self._rooms: Remembered[RoomKind, tuple[int, int]] = Remembered()
        self._counts: Remembered[Shape, float] = Remembered()

    @property
    def known(self) -> dict[Shape, float]:
        """The counts of `of` that are still valid; not to be changed. O(1)."""
        generation = self._pool.generation
        if self._generation != generation:
            self._generation = generation
            self._ranks.clear()
            self._rooms.clear()
            self._counts.clear()
        return self._counts

    def of(self, shape: Shape) -> float:
        """Return the number of nodes or slots of a shape with room; infinity if counts do not
        decide placement. O(different counts of free cores and GPUs)."""
        known = self.known
        count = known.get(shape)
        if count is None:
            count = known[shape] = self._room(shape)[0] if self._pool.countable(shape) else inf
        return count

    def ranks(self, shape: Shape) -> int:
        """Return a mask of the ranks with room for a node or slot of a shape, by counts; costs as
        `of`."""
        self.known  # noqa: B018
        return self._room(shape)[1]

    def _room(self, shape: Shape) -> tuple[int, int]:
        """Return (nodes or slots with room, mask of their ranks)."""
        kind = room_kind(shape)
        room = self._rooms.get(kind)
        if room is None:
            count = ranks = 0
            by_node = shape.node_count is not None
            within = self._pool.index.idle if by_node and shape.exclusive else -1
            for free, number, mask in self._free(shape.match):
                if within >= 0:
                    mask &= within
                    number = popcount(mask)
                units = enough(free, shape.need) if by_node else slots_on(free, shape)
                if units:
                    count += number * units
                    ranks |= mask
            room = self._rooms[kind] = count, ranks
        return room

    def _free(self, match: Any) -> list[tuple[Counts, int, int]]:
        """Return ``(free counts, number of ranks, mask of them)`` of the ranks that are up and meet
        a constraint."""
        free = self._ranks.get(match)
        if free is None:
            inventory, eligible = self._pool.inventory, self._pool.eligible(match)
            masks = [(key, mask & eligible) for key, mask in self._pool.index.groups.items()]
            free = [(inventory.counts(key), popcount(mask), mask) for key, mask in masks if mask]
            self._ranks[match] = free
        return free
