# SPDX-License-Identifier: LGPL-3.0-or-later
"""The choice of nodes in TreePool: best fit over a ``RankIndex``.

Nodes are tried by fewest free cores, then fewest free GPUs, then rank, in the order before
placement. Counts decide whether slots fit on a node, since the coarsest group is the whole node;
only for containers must the node itself be examined. ``node.py`` places the slots within a node.

Counts of free cores do not tell whether a socket is free. So, for each kind of request for
containers, a ``ContainerIndex`` remembers the ranks by the number of slots that fit. Ranks with
changes since are examined again at the next such request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from flux.resource.pool.inventory import Inventory, Selection, selected_ranks
from flux.resource.pool.masks import members, ranks_in
from flux.resource.pool.placement import Placement, slots_by_amounts
from flux.resource.pool.state import RankIndex
from flux.resource.request import Shape
from flux.resource.tree.node import NodeTypes

if TYPE_CHECKING:
    from typing_extensions import Self

#: Kinds of container requests for which an index remembers the ranks: each costs a dict in every
#: copy of the pool, and a site has few (a socket, a NUMA domain, with or without GPUs).
MAX_REMEMBERED_KINDS = 8


class _RanksBySlots:
    """Ranks with room for slots of one kind of containers.

    Attributes:
        ranks (dict): number of slots that fit, at least 1, to mask of these ranks.
        stale (int): mask of the ranks to be examined again.
        shape (Shape): a shape with such slots.
    """

    __slots__ = ("ranks", "stale", "shape")

    def __init__(self, ranks_by_slots: dict[int, int], stale: int, shape: Shape) -> None:
        self.ranks = ranks_by_slots
        self.stale = stale
        self.shape = shape

    def copy(self) -> _RanksBySlots:
        return _RanksBySlots(self.ranks.copy(), self.stale, self.shape)


class ContainerIndex(RankIndex):
    """A RankIndex that also indexes room for containers."""

    __slots__ = ("asked",)

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(inventory)
        #: by the needs of a slot
        self.asked: dict[tuple[Any, ...], _RanksBySlots] = {}

    def copy(self) -> Self:
        new = super().copy()
        new.asked = {wanted: one.copy() for wanted, one in self.asked.items()}
        return new

    def take(self, selection: Selection) -> None:
        super().take(selection)
        if self.asked:
            self._touched(selected_ranks(selection))

    def release(self, selection: Selection) -> None:
        super().release(selection)
        if self.asked:
            self._touched(selected_ranks(selection))

    def drop(self, ranks: int, inventory: Inventory) -> None:
        super().drop(ranks, inventory)
        self.asked = {}

    def _touched(self, ranks: int) -> None:
        for one in self.asked.values():
            one.stale |= ranks

    def ranks_by_slots(self, shape: Shape, types: NodeTypes) -> dict[int, int]:
        """Return masks of ranks by the number of slots, at least 1, of whole containers that fit.
        O(ranks with changes since the last such request)"""
        wanted = (
            shape.container_level,
            shape.containers_per_slot,
            shape.slot_size,
            shape.gpu_per_slot,
        )
        one = self.asked.get(wanted)
        if one is None:
            if len(self.asked) >= MAX_REMEMBERED_KINDS:
                self.asked.clear()
            one = self.asked[wanted] = _RanksBySlots({}, self.inventory.ranks, shape)
        ranks_by_slots, stale = one.ranks, one.stale
        if stale:
            for slots, mask in list(ranks_by_slots.items()):
                ranks_by_slots[slots] = mask & ~stale
            for slots, mask in container_slots_of(self, shape, types, stale).items():
                ranks_by_slots[slots] = ranks_by_slots.get(slots, 0) | mask
            one.stale = 0
        return ranks_by_slots

    def check_containers(self, types: NodeTypes) -> None:
        """Raise AssertionError if the cache is wrong for ranks without changes."""
        for one in self.asked.values():
            known = self.inventory.ranks & ~one.stale
            kept = {slots: mask & known for slots, mask in one.ranks.items() if mask & known}
            assert kept == container_slots_of(self, one.shape, types, known), f"containers: {kept}"


def container_slots_of(
    index: RankIndex, shape: Shape, types: NodeTypes, ranks: int
) -> dict[int, int]:
    """Return ``ContainerIndex.ranks_by_slots()`` for some ranks (a mask), by examining each."""
    found: dict[int, int] = {}
    for mask, node in types.pairs:
        for free, some in index.states(mask & ranks):
            slots = node.container_slots(free, shape) if free else 0
            if slots:
                found[slots] = found.get(slots, 0) | some
    return found


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
