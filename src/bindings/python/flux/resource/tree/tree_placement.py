# SPDX-License-Identifier: LGPL-3.0-or-later
"""The choice of nodes in TreePool: best fit over a ``RankIndex``.

Nodes are tried by fewest free cores, then fewest free GPUs, then rank, in the order before
placement. Counts decide whether slots fit on a node, since the coarsest group is the whole node;
only for containers must the node itself be examined. ``node.py`` places the slots within a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from flux.resource.pool.inventory import select
from flux.resource.pool.masks import members, popcount, take
from flux.resource.pool.placement import Placement, slots_by_amounts, slots_each
from flux.resource.tree.container_index import ContainerIndex, container_slots_of

if TYPE_CHECKING:
    from flux.resource.pool.inventory import Selection
    from flux.resource.pool.rank_index import RankIndex
    from flux.resource.request import Shape
    from flux.resource.ResourceCount import ResourceCount
    from flux.resource.tree.node import NodeTypes


class TreePlacement(Placement):
    """Best fit over nodes, by topology within.

    Args:
        types (NodeTypes): node types of the pool.
    """

    best_fit = True

    def __init__(self, types: NodeTypes) -> None:
        self.types = types

    def place(self, index: RankIndex, shape: Shape, eligible: int) -> tuple[Selection, int] | None:
        if shape.container_level is None:
            return super().place(index, shape, eligible)
        if shape.node_count is None:
            return self._place_containers(index, shape, eligible)
        return self._containers_on_nodes(index, shape, shape.node_count, eligible)

    def pick(
        self, index: RankIndex, ranks: int, slots: int, shape: Shape, into: dict[int, int]
    ) -> None:
        wanted = (shape.slot_size, shape.gpu_per_slot, slots)
        idle = ranks & index.idle
        busy = ranks ^ idle
        partial = index.partial
        for mask, node in self.types.pairs:
            some = mask & idle
            if some:
                units = node.slots(node.units, wanted)
                into[units] = into.get(units, 0) | some
            some = mask & busy
            if some:
                for rank in members(some):
                    units = node.slots(partial[rank], wanted)
                    into[units] = into.get(units, 0) | 1 << rank

    def pick_single_slot(self, index: RankIndex, rank: int, shape: Shape) -> int:
        node = self.types.of_rank(rank)
        return node.slots(index.free(rank), (shape.slot_size, shape.gpu_per_slot, 1))

    # -- containers ---------------------------------------------------------

    def container_candidates(
        self, index: RankIndex, shape: Shape, eligible: int
    ) -> Iterator[tuple[int, int]]:
        """Yield ``(slots that fit on a node, mask of ranks)``, in the order of the policy, for
        slots of whole containers.
        """
        if type(index) is ContainerIndex:
            ranks_by_slots = index.ranks_by_slots(shape, self.types)
        else:
            ranks_by_slots = container_slots_of(index, shape, self.types, index.inventory.ranks)
        if shape.exclusive:
            eligible &= index.idle
        able = 0
        for mask in ranks_by_slots.values():
            able |= mask
        able &= eligible
        least = self.types.least_container(shape)
        need = (least, 0, *shape.need[2:])
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

    def _place_containers(
        self, index: RankIndex, shape: Shape, eligible: int
    ) -> tuple[Selection, int] | None:
        """Place containers anywhere, node after node, until there are enough."""
        count = shape.slot_count
        candidates = []
        have = 0
        for capacity, mask in self.container_candidates(index, shape, eligible):
            candidates.append((capacity, mask))
            have += capacity * popcount(mask)
            if count.max is not None and have >= count.max:
                break
        wanted = count.floor(have)
        if wanted is None:
            return None
        left = wanted
        chosen: dict[int, int] = {}
        for capacity, mask in candidates:
            have = popcount(mask)
            if have * capacity > left:
                full, rest = divmod(left, capacity)
                filled = take(mask, full) if full else 0
                self._take_containers(index, shape, filled, capacity, chosen)
                if rest:
                    mask ^= filled
                    self._take_containers(index, shape, mask & -mask, rest, chosen)
                left = 0
            else:
                self._take_containers(index, shape, mask, capacity, chosen)
                left -= have * capacity
            if not left:
                break
        return select(chosen), wanted

    def _containers_on_nodes(
        self, index: RankIndex, shape: Shape, count: ResourceCount, eligible: int
    ) -> tuple[Selection, int] | None:
        """Place the same number of containers on each of some nodes."""
        least = shape.slot_count.min
        candidates = []
        have = 0
        for capacity, mask in self.container_candidates(index, shape, eligible):
            if capacity < least:
                continue
            candidates.append((capacity, mask))
            have += popcount(mask)
            if shape.slot_count.fixed and count.max is not None and have >= count.max:
                break
        nodes = count.floor(have)
        if nodes is None:
            return None
        slots = least
        if not shape.slot_count.fixed:
            slots = slots_each(candidates, nodes, shape.slot_count)
        chosen: dict[int, int] = {}
        left = nodes
        for capacity, mask in candidates:
            if capacity < slots:
                continue
            have = popcount(mask)
            if have > left:
                mask = take(mask, left)
                have = left
            self._take_containers(index, shape, mask, slots, chosen)
            left -= have
            if not left:
                break
        return select(chosen), shape.slots_given(nodes, slots)

    def _take_containers(
        self, index: RankIndex, shape: Shape, ranks: int, count: int, into: dict[int, int]
    ) -> None:
        types = self.types
        idle = ranks & index.idle
        for mask, node in types.split(idle):
            units = node.units if shape.exclusive else node.containers(node.units, shape, count)[1]
            into[units] = into.get(units, 0) | mask
        for rank in members(ranks ^ idle):
            units = types.of_rank(rank).containers(index.partial[rank], shape, count)[1]
            into[units] = into.get(units, 0) | 1 << rank
