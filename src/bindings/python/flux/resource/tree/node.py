# SPDX-License-Identifier: LGPL-3.0-or-later
"""Places of slots within a node: TreePool's placement rules on bit masks.

The functions take a ``Layout`` and the free cores and GPUs of one node as masks, and return those
of at most the wanted number of slots. The results depend only on the arguments, so that one cached
result serves all nodes in a state.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from flux.resource.pool.masks import popcount, runs, take
from flux.resource.request import Shape
from flux.resource.tree.topology import ContainerGroup, Layout, Place

#: Maximum number of cached results: there is one for each state of a node and size of slot that
#: occurred, and a year of jobs would fill the memory.
MAX_RESULTS = 16384


class NodeType:
    """Nodes with one layout, in the units of a pool's inventory (see ``pool/inventory.py``).

    Args:
        topo (dict): domain of the node, as in R.
        units (int): mask of the cores and GPUs of such a node.
        shift (int): first GPU bit of units.
        where (str): name of the topology in an error.
    """

    __slots__ = ("layout", "units", "shift", "core_mask")

    def __init__(self, topo: Any, units: int, shift: int, where: str = "topo") -> None:
        self.units = units
        self.shift = shift
        self.core_mask = (1 << shift) - 1
        self.layout = Layout(topo, units & self.core_mask, units >> shift, where)

    def pick(self, free: int, shape: Shape, slots: int) -> int:
        """Return the units for slots of a shape on a node with room for them; amounts in the mask of
        its free units are ignored."""
        if shape.container_level is not None:
            return self._containers(free & self.units, _containers_of(shape), slots)[1]
        return self._slots(free & self.units, shape.slot_size, shape.gpu_per_slot, slots)

    def container_slots(self, free: int, shape: Shape) -> int:
        """Return the number of slots of whole containers that fit on a node."""
        return self._containers(free & self.units, _containers_of(shape), -1)[0]

    @lru_cache(maxsize=MAX_RESULTS)  # noqa: B019
    def _slots(self, free: int, cores: int, gpus: int, wanted: int) -> int:
        core_mask, gpu_mask = free & self.core_mask, free >> self.shift
        if not gpus:
            return _cores_only(self.layout, core_mask, cores, wanted)
        found = _beside_gpus(self.layout, core_mask, gpu_mask, cores, gpus, wanted)
        return found[0] | found[1] << self.shift

    @lru_cache(maxsize=MAX_RESULTS)  # noqa: B019
    def _containers(
        self, free: int, slot: tuple[str, int, int, int], wanted: int
    ) -> tuple[int, int]:
        cores, gpus = free & self.core_mask, free >> self.shift
        slots, cores, gpus = place_containers(self.layout, cores, gpus, *slot, wanted)
        return slots, cores | gpus << self.shift


def _containers_of(shape: Shape) -> tuple[str, int, int, int]:
    """Return the name and number of the containers of a slot, and the cores and GPUs of each."""
    assert shape.container_level is not None
    return shape.container_level, shape.containers_per_slot, shape.slot_size, shape.gpu_per_slot


class NodeTypes:
    """The node types of a pool: ``(mask of ranks, NodeType)``, with no rank in two."""

    __slots__ = ("pairs", "_by_rank")

    def __init__(self, pairs: Iterable[tuple[int, NodeType]]) -> None:
        self.pairs = tuple(pairs)
        self._by_rank: list[NodeType] = []

    def of_rank(self, rank: int) -> NodeType:
        """Return the NodeType of a rank."""
        if len(self.pairs) == 1:
            return self.pairs[0][1]
        by_rank = self._by_rank
        if not by_rank:
            by_rank[:] = self.pairs[0][1:] * max(mask.bit_length() for mask, _ in self.pairs)
            for mask, node in self.pairs:
                for low, count in runs(mask):
                    by_rank[low : low + count] = [node] * count
        return by_rank[rank]


def _beside_gpus(
    layout: Layout, cores: int, gpus: int, slot_cores: int, slot_gpus: int, wanted: int
) -> Place:
    """Return the cores and GPUs of slots, placed by first fit: the levels from the finest on, each
    group in the order of the topology (protocols of RFC 49)."""
    left = wanted
    free_cores, free_gpus = cores, gpus
    for groups in layout.levels:
        for group_cores, group_gpus in groups:
            mine = free_gpus & group_gpus
            if not mine:
                continue
            near = free_cores & group_cores
            count = min(left, popcount(near) // slot_cores, popcount(mine) // slot_gpus)
            if count:
                free_cores ^= take(near, count * slot_cores)
                free_gpus ^= take(mine, count * slot_gpus)
                left -= count
                if not left:
                    return cores ^ free_cores, gpus ^ free_gpus
    return cores ^ free_cores, gpus ^ free_gpus


def _cores_only(layout: Layout, cores: int, slot_cores: int, wanted: int) -> int:
    """Return the cores of slots (at least 1 each), placed by best fit: the finest level that holds a
    slot, its groups by fewest free cores.

    Slots that do not fit on a level go to the next coarser one.
    """
    left = wanted
    free = cores
    for groups in layout.levels:
        while left:
            best = _tightest(groups, free, slot_cores)
            if not best:
                break
            # Each core taken is one less free in this group and in no other, so it stays the one
            # with the fewest.
            count = min(left, popcount(best) // slot_cores)
            free ^= take(best, count * slot_cores)
            left -= count
    return cores ^ free


def _tightest(groups: Iterable[Place], free: int, slot_cores: int) -> int:
    """Return the free cores of the group with the fewest that hold a slot, the first of equal ones;
    or 0."""
    best = 0
    fewest = -1
    for group_cores, _ in groups:
        near = free & group_cores
        count = popcount(near)
        if count >= slot_cores and (count < fewest or fewest < 0):
            best, fewest = near, count
    return best


def place_containers(
    layout: Layout,
    cores: int,
    gpus: int,
    name: str,
    each: int,
    slot_cores: int,
    slot_gpus: int,
    wanted: int,
) -> tuple[int, int, int]:
    """Place slots of ``each`` whole containers called ``name``, in the order of the topology.

    A container is free if all its cores and GPUs are. ``slot_cores`` and ``slot_gpus`` are the
    minimum for one container. The containers of a slot are in the finest domain that has enough of
    them. A negative ``wanted`` means no limit. Return the number of slots placed, and their units.
    """
    free_cores, free_gpus = cores, gpus
    least = (slot_cores, slot_gpus)
    container_groups = (
        (layout.containers(name),) if each == 1 else layout.container_groups(name, each)
    )
    slots = 0
    while slots != wanted:
        taken = _free_containers(container_groups, free_cores, free_gpus, each, least)
        if taken is None:
            break
        free_cores ^= taken[0]
        free_gpus ^= taken[1]
        slots += 1
    return slots, cores ^ free_cores, gpus ^ free_gpus


def _free_containers(
    container_groups: Iterable[ContainerGroup],
    cores: int,
    gpus: int,
    each: int,
    least: tuple[int, int],
) -> Place | None:
    """Return the cores and GPUs of enough free containers of one group, or None."""
    for group in container_groups:
        left_cores, left_gpus = cores, gpus
        count = each
        for own_cores, own_gpus in group:
            # Containers may overlap: one that shares a core with a taken one is not free.
            if own_cores & ~left_cores or own_gpus & ~left_gpus:
                continue
            if popcount(own_cores) < least[0] or popcount(own_gpus) < least[1]:
                continue
            left_cores ^= own_cores
            left_gpus ^= own_gpus
            count -= 1
            if not count:
                return cores ^ left_cores, gpus ^ left_gpus
    return None
