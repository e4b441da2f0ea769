# SPDX-License-Identifier: LGPL-3.0-or-later
"""The reason why a request for containers does not fit, in numbers and in a sentence for its
user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flux.resource.pool.explain import counted, facts, left_out
from flux.resource.pool.inventory import Inventory
from flux.resource.pool.masks import popcount
from flux.resource.pool.rank_index import RankIndex, unused
from flux.resource.request import Shape
from flux.resource.tree.tree_placement import TreePlacement

if TYPE_CHECKING:
    from flux.resource.ResourcePoolImplementation import ResourcePoolImplementation


def _least(shape: Shape) -> int:
    """Return the number of slots for which a node must have room to be of use."""
    return 1 if shape.node_count is None else shape.slot_count.min


def able(placement: TreePlacement, index: RankIndex, shape: Shape, ranks: int) -> int:
    """Return a mask of the ranks with room for one slot, or for one node's share."""
    mask = 0
    for slots_each, some in placement.container_candidates(index, shape, ranks):
        if slots_each >= _least(shape):
            mask |= some
    return mask


def container_rooms(
    placement: TreePlacement, index: RankIndex, shape: Shape, ranks: int
) -> list[tuple[int, int]]:
    """Return ranks by the number of slots that fit; the number is 1 if the request asks for
    nodes."""
    return [
        (slots_each if shape.node_count is None else 1, some)
        for slots_each, some in placement.container_candidates(index, shape, ranks)
        if slots_each >= _least(shape)
    ]


def _available(
    placement: TreePlacement, index: RankIndex, shape: Shape, ranks: int
) -> tuple[int, int]:
    """Return the number of nodes with room, and of slots (or nodes, if it asks for nodes) that fit
    there."""
    nodes = slots = 0
    for slots_each, some in placement.container_candidates(index, shape, ranks):
        if slots_each >= _least(shape):
            nodes += popcount(some)
            slots += popcount(some) * slots_each
    return nodes, slots if shape.node_count is None else nodes


def _each(shape: Shape) -> int:
    """Return the number of containers per slot or node."""
    each = shape.containers_per_slot
    return each if shape.node_count is None else each * shape.slot_count.min


def infeasible_containers(
    placement: TreePlacement, inventory: Inventory, shape: Shape, ranks: int
) -> str:
    """Return the sentence for a request that does not fit an empty pool.

    It begins like that of flux-core's schedulers.
    """
    nodes, have = _available(placement, unused(inventory), shape, ranks)
    least = [
        f"{number} {noun}"
        for number, noun in ((shape.slot_size, "core(s)"), (shape.gpu_per_slot, "GPU(s)"))
        if number
    ]
    what = f"exclusive '{shape.container_level}' container(s)"
    if least:
        what += f" of at least {' and '.join(least)}"
    each = _each(shape)
    if shape.node_count is not None:
        need = f"{shape.node_count.min} node(s) with {each} {what} each"
    elif each > 1:
        need = f"{shape.slot_count.min} slot(s) of {each} {what}"
    else:
        need = f"{shape.slot_count.min} {what}"
    few = "too few such containers"
    why = left_out(inventory, ranks, popcount(ranks) - nodes, f"has {few}", f"have {few}")
    return f"unsatisfiable request: need {need}, only {have} available{why}"


def explain_containers(pool: ResourcePoolImplementation, shape: Shape) -> dict[str, Any]:
    """Return ``ResourcePool.explain()`` for a request for containers."""
    inventory, placement = pool.inventory, pool.placement
    assert isinstance(placement, TreePlacement)
    match = inventory.matching(shape.match)
    up = pool.eligible(shape.match)
    large = able(placement, unused(inventory), shape, match)
    free, have = _available(placement, pool.index, shape, up)
    each = counted(_each(shape), f"exclusive '{shape.container_level}' container")
    least = [
        counted(number, noun)
        for number, noun in ((shape.slot_size, "core"), (shape.gpu_per_slot, "GPU"))
        if number
    ]
    if least:
        each += f" of at least {' and '.join(least)}"
    return facts(pool, shape, large, up, free, have, each, small="without")
