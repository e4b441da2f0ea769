# SPDX-License-Identifier: LGPL-3.0-or-later
"""An index that also counts the free whole containers of each rank.

Counts of free cores do not tell whether a socket is free. So, for each kind of request for
containers, the index remembers the ranks by the number of slots that fit. Ranks with changes since
are examined again at the next such request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flux.resource.pool.inventory import selected_ranks
from flux.resource.pool.state import RankIndex

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.pool.inventory import Inventory, Selection
    from flux.resource.request import Shape
    from flux.resource.tree.node import NodeTypes

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
        """Return ranks by the number of slots of whole containers that fit.

        O(ranks with changes since the last such request).

        Returns:
            dict: number of slots, at least 1, to mask of the ranks.
        """
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
