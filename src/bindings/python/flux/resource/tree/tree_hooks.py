# SPDX-License-Identifier: LGPL-3.0-or-later
"""The hooks of ``Rv1Pool`` in TreePool: best fit, and placement by topology.

A site's pool that overrides one of them inherits the other. ``pool/hooks.py`` describes their
arguments and results.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flux.resource.pool.hooks import Hooks, ids_of
from flux.resource.pool.placement import slots_on

if TYPE_CHECKING:
    from flux.resource.request import ResourceRequest, Shape
    from flux.resource.tree.tree_placement import TreePlacement


class TreeHooks(Hooks):
    """The default hooks of TreePool, which replace those of ``Rv1Pool``."""

    placement: TreePlacement

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A class with just these defaults needs no lists of candidates.
        cls.hooked = (
            cls._sort_candidates is not TreeHooks._sort_candidates
            or cls._select_resources is not TreeHooks._select_resources
        )

    def _sort_candidates(self, candidates: list[Any]) -> list[Any]:
        """Sort by fewest free cores, then fewest free GPUs, then lowest rank."""
        return sorted(candidates, key=lambda one: (len(one[2]), len(one[3]), one[0]))

    def _select_resources(self, candidates: list[Any], request: ResourceRequest) -> Any:
        """Place the slots on the candidates in order, on each by its topology."""
        shape = request.shape
        capacities = [(one, self._capacity(one, shape)) for one in candidates]
        if shape.node_count is None:
            wanted = shape.slot_count.floor(sum([capacity for _, capacity in capacities]))
            if wanted is None:
                return [], 0
            selected = []
            left = wanted
            for one, capacity in capacities:
                slots = min(capacity, left)
                if slots:
                    selected.append(self._chosen(one, shape, slots))
                    left -= slots
            return selected, wanted
        least = shape.slot_count.min
        capacities = [(one, capacity) for one, capacity in capacities if capacity >= least]
        nodes = shape.node_count.floor(len(capacities))
        if nodes is None:
            return [], 0
        slots = (
            shape.slot_count.floor(sorted([capacity for _, capacity in capacities])[-nodes])
            or least
        )
        able = [one for one, capacity in capacities if capacity >= slots]
        selected = [self._chosen(one, shape, slots) for one in able[:nodes]]
        return selected, shape.slots_given(nodes, slots)

    def _capacity(self, candidate: Any, shape: Shape) -> int:
        """Return the number of slots that fit on a candidate."""
        rank, _, cores, gpus = candidate
        if shape.container_level is None:
            return slots_on((len(cores), len(gpus)), shape)
        return self.placement.types.of_rank(rank).container_slots(self._units(cores, gpus), shape)

    def _units(self, cores: Iterable[int], gpus: Iterable[int]) -> int:
        shift = self.inventory.shift
        units = 0
        for core in cores:
            units |= 1 << core
        for gpu in gpus:
            units |= 1 << gpu + shift
        return units

    def _chosen(self, candidate: Any, shape: Shape, slots: int) -> Any:
        """Return ``(rank, cores, gpus)`` for some slots on a candidate."""
        rank, info, cores, gpus = candidate
        if shape.exclusive:
            return rank, info["cores"], info["gpus"]
        node = self.placement.types.of_rank(rank)
        free = self._units(cores, gpus)
        if shape.container_level is None:
            units = node.slots(free, (shape.slot_size, shape.gpu_per_slot, slots))
        else:
            units = node.containers(free, shape, slots)[1]
        return rank, ids_of(units & node.core_mask), ids_of(units >> node.shift)
