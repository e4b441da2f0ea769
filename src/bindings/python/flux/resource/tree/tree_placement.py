# SPDX-License-Identifier: LGPL-3.0-or-later
"""The choice of nodes in TreePool: best fit over a ``RankIndex``.

Nodes are tried by fewest free cores, then fewest free GPUs, then rank, in the order before
placement. Counts decide whether slots fit on a node, since the coarsest group is the whole node;
only for containers must the node itself be examined. ``node.py`` places the slots within a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from flux.resource.pool.masks import members, ranks_in
from flux.resource.pool.placement import Placement, slots_by_amounts
from flux.resource.tree.container_index import ContainerIndex, container_slots_of

if TYPE_CHECKING:
    from flux.resource.pool.inventory import Selection
    from flux.resource.pool.state import RankIndex
    from flux.resource.request import Shape
    from flux.resource.tree.node import NodeTypes


class TreePlacement(Placement):
    """Best fit over nodes, by topology within.

    Args:
        types (NodeTypes): node types of the pool.
    """

    best_fit = True

    def __init__(self, types: NodeTypes) -> None:
        self.types = types

    def candidates(
        self, index: RankIndex, shape: Shape, eligible: int
    ) -> Iterable[tuple[int, int]]:
        if shape.container_level is None:
            return super().candidates(index, shape, eligible)
        least = 1 if shape.node_count is None else shape.slot_count.min
        return (one for one in self._with_containers(index, shape, eligible) if one[0] >= least)

    def pick(
        self, index: RankIndex, ranks: int, slots: int, shape: Shape, into: dict[int, int]
    ) -> None:
        idle = ranks & index.idle
        busy = ranks ^ idle
        partial = index.partial
        for mask, node in self.types.pairs:
            some = mask & idle
            if some:
                units = node.pick(node.units, shape, slots)
                into[units] = into.get(units, 0) | some
            some = mask & busy
            if some:
                for rank in members(some):
                    units = node.pick(partial[rank], shape, slots)
                    into[units] = into.get(units, 0) | 1 << rank

    def pick_single_slot(self, index: RankIndex, rank: int, shape: Shape) -> int:
        return self.types.of_rank(rank).pick(index.free(rank), shape, 1)

    def _place_one(
        self, index: RankIndex, shape: Shape, eligible: int
    ) -> tuple[Selection, int] | None:
        if shape.container_level is not None:
            return self._place_slots(index, shape, eligible)
        return super()._place_one(index, shape, eligible)

    def _with_containers(
        self, index: RankIndex, shape: Shape, eligible: int
    ) -> Iterator[tuple[int, int]]:
        """Yield as ``candidates()``, for slots of whole containers."""
        if type(index) is ContainerIndex:
            ranks_by_slots = index.ranks_by_slots(shape, self.types)
        else:
            ranks_by_slots = container_slots_of(index, shape, self.types, index.inventory.ranks)
        if shape.exclusive:
            eligible &= index.idle
        able = ranks_in(ranks_by_slots.items()) & eligible
        need = (1, 0, *shape.need[2:])
        for free, mask in index.fitting(need, able, best_fit=True):
            parts = [(slots, mask & some) for slots, some in ranks_by_slots.items() if mask & some]
            if shape.slot_amounts:
                most = slots_by_amounts(free, shape)
                parts = [(min(slots, most), some) for slots, some in parts]
            if len(parts) == 1:
                yield parts[0]
            else:
                for rank in members(mask):
                    for slots, some in parts:
                        if some >> rank & 1:
                            yield slots, 1 << rank
            able ^= mask
            if not able:
                break
