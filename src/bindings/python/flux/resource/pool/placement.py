# SPDX-License-Identifier: LGPL-3.0-or-later
"""Placing a request on an index: which ranks, and how many slots on each.

A ``Placement`` looks at a ``RankIndex``, a shape and a mask of eligible ranks, and returns a
selection. It changes nothing. It works on groups of ranks that have the same number of cores and
GPUs free. A policy that cares *which* units of a rank a job gets overrides ``pick()`` and
``pick_single_slot()``; one that prefers full ranks to empty ones sets ``best_fit``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING

from flux.resource.pool.inventory import select
from flux.resource.pool.masks import lowest, popcount, take

if TYPE_CHECKING:
    from flux.resource.pool.inventory import Selection
    from flux.resource.pool.rank_index import RankIndex
    from flux.resource.request import Shape
    from flux.resource.ResourceCount import ResourceCount


def slots_on(cores: int, gpus: int, shape: Shape) -> int:
    """Slots of a shape that fit in so many cores and GPUs of a node."""
    if not shape.slot_size:
        if shape.gpu_per_slot:
            return gpus // shape.gpu_per_slot
        return 1
    slots = cores // shape.slot_size
    if shape.gpu_per_slot:
        slots = min(slots, gpus // shape.gpu_per_slot)
    return slots


class Placement:
    """Placement by counts: worst fit, lowest ids first (the policy of ``Rv1Pool``)."""

    #: Whether ranks with fewest free cores, then fewest free GPUs, are tried first; otherwise those
    #: with most.
    best_fit = False

    def place(self, index: RankIndex, shape: Shape, eligible: int) -> tuple[Selection, int] | None:
        """Find resources for a request; ties go to the lowest rank.

        O(groups of the index) operations on masks, and O(1) for each rank given in part.

        Args:
            index (RankIndex): what is free.
            shape (Shape): what is asked for.
            eligible (int): mask of the ranks that may be used.

        Returns:
            ``(selection, nslots)``, or None if it does not fit.
        """
        if shape.node_count is not None:
            return self._place_nodes(index, shape, shape.node_count, eligible)
        if shape.slot_count.max == 1:
            return self._place_one(index, shape, eligible)
        return self._place_slots(index, shape, eligible)

    def pick(
        self, index: RankIndex, ranks: int, slots: int, shape: Shape, into: dict[int, int]
    ) -> None:
        """Choose the units of so many slots on each of some ranks.

        Args:
            index (RankIndex): what is free.
            ranks (int): mask of ranks; all have room for the slots.
            slots (int): slots on each.
            into (dict): units to mask of ranks: what is chosen is added to it.
        """
        index.pick_lowest(ranks, slots * shape.slot_size, slots * shape.gpu_per_slot, into)

    def pick_single_slot(self, index: RankIndex, rank: int, shape: Shape) -> int:
        """Units of one slot on one rank that has room for it."""
        inventory = index.inventory
        free = index.free(rank)
        units = take(free & inventory.core_mask, shape.slot_size)
        if shape.gpu_per_slot:
            units |= take(free >> inventory.shift, shape.gpu_per_slot) << inventory.shift
        return units

    def _place_one(
        self, index: RankIndex, shape: Shape, eligible: int
    ) -> tuple[Selection, int] | None:
        gpus = shape.gpu_per_slot
        base = index.inventory.key_base
        least = shape.slot_size * base + gpus
        keys = index.keys
        first = bisect_left(keys, least)
        if first == len(keys):
            return None
        groups = index.groups
        order = range(first, len(keys)) if self.best_fit else range(len(keys) - 1, first - 1, -1)
        for at in order:
            key = keys[at]
            if not gpus or key % base >= gpus:
                mask = groups[key] & eligible
                if mask:
                    rank = lowest(mask)
                    return (rank, self.pick_single_slot(index, rank, shape)), 1
        return None

    def _place_slots(
        self, index: RankIndex, shape: Shape, eligible: int
    ) -> tuple[Selection, int] | None:
        """Slots anywhere: node after node is filled."""
        count = shape.slot_count
        found: Iterable[tuple[int, int, int]]
        found = index.fitting(shape.slot_size, shape.gpu_per_slot, eligible, self.best_fit)
        wanted: int | None = count.min
        if not count.fixed:
            found = list(found)
            total = sum([popcount(mask) * slots_on(c, g, shape) for c, g, mask in found])
            wanted = count.floor(total)
        if wanted is None:
            return None
        left = wanted
        steps = []
        for cores, gpus, mask in found:
            each = slots_on(cores, gpus, shape)
            have = popcount(mask)
            if have * each > left:
                full, rest = divmod(left, each)
                filled = take(mask, full)
                if filled:
                    steps.append((filled, each))
                if rest:
                    steps.append(((mask ^ filled) & -(mask ^ filled), rest))
                left = 0
            else:
                steps.append((mask, each))
                left -= have * each
            if not left:
                break
        if left:
            return None
        chosen: dict[int, int] = {}
        for mask, slots in steps:
            self.pick(index, mask, slots, shape, chosen)
        return select(chosen), wanted

    def _place_nodes(
        self, index: RankIndex, shape: Shape, count: ResourceCount, eligible: int
    ) -> tuple[Selection, int] | None:
        """So many nodes, the same number of slots on each."""
        if shape.exclusive:
            eligible &= index.idle
        found: Iterable[tuple[int, int, int]]
        found = index.fitting(shape.node_cores, shape.node_gpus, eligible, self.best_fit)
        slots = shape.slot_count.min
        nodes: int | None = count.min
        if not (count.fixed and shape.slot_count.fixed):
            found = list(found)
            nodes = count.floor(sum([popcount(mask) for _, _, mask in found]))
            if nodes is not None and not shape.slot_count.fixed:
                rooms = [(slots_on(c, g, shape), mask) for c, g, mask in found]
                slots = slots_each(rooms, nodes, shape.slot_count)
                found = index.fitting(
                    slots * shape.slot_size, slots * shape.gpu_per_slot, eligible, self.best_fit
                )
        if nodes is None:
            return None
        left = nodes
        masks = []
        for _, _, mask in found:
            have = popcount(mask)
            if have > left:
                mask = take(mask, left)
                have = left
            masks.append(mask)
            left -= have
            if not left:
                break
        if left:
            return None
        chosen: dict[int, int] = {}
        for mask in masks:
            if shape.exclusive:
                for units, ranks in index.inventory.kinds.items():
                    if ranks & mask:
                        chosen[units] = chosen.get(units, 0) | ranks & mask
            else:
                self.pick(index, mask, slots, shape, chosen)
        return select(chosen), shape.slots_given(nodes, slots)


def slots_each(rooms: list[tuple[int, int]], nodes: int, count: ResourceCount) -> int:
    """The largest number of slots, of those that a count accepts, that so many nodes have room for.

    Args:
        rooms (list): ``(slots, mask of ranks)``: how many slots each of these ranks has room for,
            which is no fewer than the least that the count accepts. There are enough ranks.
        nodes (int): how many of the ranks are wanted.
        count (ResourceCount): the accepted numbers.
    """
    most = count.min
    for room, mask in sorted(rooms, reverse=True):
        nodes -= popcount(mask)
        if nodes <= 0:
            most = count.floor(room) or most
            break
    return most


WORST_FIT = Placement()
