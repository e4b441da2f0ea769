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


def free_ranks(pool: PoolWithView, shape: Shape) -> int:
    """Return a mask of the ranks with room for a node or slot of a shape now, regardless of
    promises. O(different counts of free cores and GPUs)."""
    eligible = pool.eligible(shape.match)
    if shape.exclusive and shape.node_count is not None:
        eligible &= pool.index.idle
    return pool.index.having(shape.need, eligible)


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
        # by constraint: free counts, and the number of ranks with exactly these
        self._ranks: Remembered[Any, list[tuple[Counts, int]]] = Remembered()
        self._counts: Remembered[Shape, float] = Remembered()

    @property
    def known(self) -> dict[Shape, float]:
        """The counts of `of` that are still valid; not to be changed. O(1)."""
        generation = self._pool.generation
        if self._generation != generation:
            self._generation = generation
            self._ranks.clear()
            self._counts.clear()
        return self._counts

    def of(self, shape: Shape) -> float:
        """Return the number of nodes or slots of a shape with room; infinity if counts do not
        decide placement. O(different counts of free cores and GPUs); for whole nodes O(kinds of
        node)."""
        known = self.known
        count = known.get(shape)
        if count is None:
            count = known[shape] = self._count(shape) if self._pool.countable(shape) else inf
        return count

    def _count(self, shape: Shape) -> int:
        pool = self._pool
        if shape.node_count is not None and shape.exclusive:
            return popcount(free_ranks(pool, shape))
        count = 0
        if shape.node_count is None:
            for free, ranks in self._free(shape.match):
                count += ranks * slots_on(free, shape)
            return count
        for free, ranks in self._free(shape.match):
            if enough(free, shape.need):
                count += ranks
        return count

    def _free(self, match: Any) -> list[tuple[Counts, int]]:
        free = self._ranks.get(match)
        if free is None:
            inventory, eligible = self._pool.inventory, self._pool.eligible(match)
            counts = [
                (key, popcount(mask & eligible)) for key, mask in self._pool.index.groups.items()
            ]
            free = self._ranks[match] = [(inventory.counts(key), n) for key, n in counts if n]
        return free
