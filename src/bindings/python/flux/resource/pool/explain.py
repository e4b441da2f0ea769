# SPDX-License-Identifier: LGPL-3.0-or-later
"""The reason why a request does not fit, in numbers and in a sentence for its user.

``explain()`` finds the numbers in a pool's view; only ``why_pending()`` makes a sentence of them.
``infeasible()`` makes the sentence for a request that never fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flux.resource.pool.inventory import Inventory
from flux.resource.pool.masks import popcount
from flux.resource.pool.placement import slots_on
from flux.resource.pool.rank_index import enough, unused

if TYPE_CHECKING:
    from flux.resource.pool.view import PoolWithView
    from flux.resource.request import Shape


def counted(number: int, noun: str) -> str:
    """Return ``1 node``, ``2 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def need_text(inventory: Inventory, shape: Shape) -> str:
    """Return the need of one node or slot of a request: ``4 cores, 1 GPU and 8 GiB memory``."""
    cores, gpus = shape.need[:2]
    parts = [counted(cores, "core")]
    if gpus:
        parts.append(counted(gpus, "GPU"))
    parts += [
        one.kind.text(steps) for one, steps in zip(inventory.amounts, shape.need[2:]) if steps
    ]
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if parts[1:] else parts[0]


def infeasible(inventory: Inventory, shape: Shape) -> str:
    """Return the sentence for a request that does not fit an empty pool.

    It begins with the words of flux-core's schedulers, which scripts look for.
    """
    match = inventory.matching(shape.match)
    capacity = cores = gpus = slots = small = 0
    for units, mask in inventory.kinds.items():
        mask &= match
        own = inventory.counts_of(units)
        own_cores, own_gpus = own[:2]
        ranks = popcount(mask)
        cores += ranks * own_cores
        gpus += ranks * own_gpus
        if shape.node_count is not None:
            fit = int(enough(own, shape.need))
        else:
            slots += ranks * (own_cores // shape.slot_size)
            fit = slots_on(own, shape)
        capacity += ranks * fit
        if not fit:
            small += ranks
    if shape.node_count is not None:
        count = shape.node_count.min
        if shape.exclusive:
            text = f"need {count} exclusive node(s), only {capacity} eligible"
        else:
            each = f"{shape.node_cores} cores"
            if shape.node_gpus:
                each += f" and {shape.node_gpus} GPUs"
            if any(shape.node_amounts) or any(shape.slot_amounts):
                each = need_text(inventory, shape)
            text = f"need {count} node(s) with {each} each, only {capacity} eligible"
    elif shape.slot_amounts:
        each = need_text(inventory, shape)
        text = (
            f"need {shape.slot_count.min} slot(s) of {each}, only {capacity} such slot(s) available"
        )
    else:
        count = shape.slot_count.min
        if shape.gpu_per_slot and slots >= count:
            text = (
                f"need {count} slot(s) with {shape.gpu_per_slot} GPU(s) each,"
                f" only {capacity} available (total GPUs: {gpus})"
            )
        else:
            text = (
                f"need {count} slot(s) of {shape.slot_size} core(s),"
                f" only {capacity} such slot(s) available (total cores: {cores})"
            )
    return "unsatisfiable request: " + text + left_out(inventory, match, small)


def infeasible_in_groups(pool: PoolWithView, shape: Shape) -> str | None:
    """Return the sentence for a request that fits an empty pool, but not within its groups; None if
    that is not the reason."""
    if shape.within is None:
        return None
    inventory = pool.inventory
    count = shape.node_count or shape.slot_count
    rooms = pool.rooms(unused(inventory), shape, inventory.matching(shape.match))
    if sum([number * popcount(mask) for number, mask in rooms]) < count.min:
        return None
    unit = "slots" if shape.node_count is None else "nodes"
    text = shape.within.text(count.min, unit)
    best = shape.within.best(rooms, count.min)
    return f"unsatisfiable request: need {text}, {shape.within.best_text(best)}"


def left_out(
    inventory: Inventory,
    match: int,
    small: int,
    one: str = "is too small",
    more: str = "are too small",
) -> str:
    """Return the end of a sentence on ranks that a request cannot use; empty if it can use all.

    Args:
        inventory (Inventory): the ranks with their resources.
        match (int): mask of the ranks that meet the constraint.
        small (int): number of matching ranks that it cannot use all the same.
        one, more (str): the reason, for one and for several such ranks.
    """
    total = popcount(inventory.ranks)
    text = ""
    others = total - popcount(match)
    if others:
        verb = "does" if others == 1 else "do"
        text += f"; {others} of {counted(total, 'node')} {verb} not match the constraint"
    if small:
        text += f"; {small} of {counted(total, 'node')} {one if small == 1 else more}"
    return text


def explain(pool: PoolWithView, shape: Shape) -> dict[str, Any]:
    """Return numbers and reason for a shape; see ``ResourcePool.explain()``.

    O(kinds of rank + different counts of free cores and GPUs).
    """
    inventory, index = pool.inventory, pool.index
    match = inventory.matching(shape.match)
    up = pool.eligible(shape.match)
    by_node = shape.node_count is not None
    large = 0
    for units, mask in inventory.kinds.items():
        if enough(inventory.counts_of(units), shape.need):
            large |= mask & match
    found = list(index.fitting(shape.need, up & index.idle if shape.exclusive else up))
    free = sum([popcount(mask) for _, mask in found])
    if by_node:
        have = free
        each = "exclusive" if shape.exclusive else need_text(inventory, shape)
    else:
        have = sum([popcount(mask) * slots_on(counts, shape) for counts, mask in found])
        each = need_text(inventory, shape)
    return facts(pool, shape, large, up, free, have, each)


def facts(
    pool: PoolWithView,
    shape: Shape,
    large: int,
    up: int,
    free: int,
    have: int,
    each: str,
    small: str = "too small",
) -> dict[str, Any]:
    """Return the answer of ``explain()``.

    Args:
        pool: the pool; ``shape`` is the request's.
        large (int): mask of matching ranks that are large enough when idle, up or not.
        up (int): mask of matching ranks that are up.
        free (int): number of these with room for one node's share, or one slot.
        have (int): number of nodes, or slots, that fit on them.
        each (str): need of each node or slot; ``exclusive``: the whole node.
        small (str): noun for a matching rank that is not in ``large``.
    """
    inventory = pool.inventory
    count = shape.slot_count if shape.node_count is None else shape.node_count
    answer: dict[str, Any] = {
        "total": popcount(inventory.ranks),
        "matching": popcount(inventory.matching(shape.match)),
        "large_enough": popcount(large),
        "up": popcount(up),
        "free": free,
        "available": have,
        "needed": count.min,
        "unit": "slots" if shape.node_count is None else "nodes",
    }
    reason = pool.verdict(shape)
    if reason is None:
        down = popcount(large & ~up)
        reason = why_pending(answer, each, down, small, shape.match is not None)
        if not reason and shape.within is not None:
            reason = _why_not_together(pool, shape, up, answer)
    answer["reason"] = reason
    return answer


def _why_not_together(pool: PoolWithView, shape: Shape, up: int, answer: dict[str, Any]) -> str:
    """Return the sentence for a request that has enough free, but not within its groups; empty if
    it fits there."""
    assert shape.within is not None
    needed, unit = answer["needed"], answer["unit"]
    best = shape.within.best(pool.rooms(pool.index, shape, up), needed)
    if best >= needed:
        return ""
    text = f"placement: needs {shape.within.text(needed, unit)}: {answer['available']} free"
    return f"{text}, {shape.within.best_text(best)}"


def why_pending(answer: dict[str, Any], each: str, down: int, small: str, constrained: bool) -> str:
    """Return the sentence for a request that must wait; empty if enough is free.

    Args:
        answer (dict): numbers of ``explain()``.
        each (str): need of each node or slot; ``exclusive``: the whole node.
        down (int): number of ranks that are large enough, but down.
        small (str): noun for ranks that are not large enough.
        constrained (bool): whether the request has a constraint.
    """
    needed, available, free = answer["needed"], answer["available"], answer["free"]
    if available >= needed:
        return ""
    text = f"insufficient resources: needs {counted(needed, answer['unit'][:-1])}"
    if each == "exclusive":
        text += " (exclusive)"
    else:
        text += f" {'with' if answer['unit'] == 'nodes' else 'of'} {each}"
    text += f", {available} free"
    if answer["unit"] == "slots":
        text += f" on {free}"
    text += f" of {counted(answer['matching'], 'node')}"
    if constrained:
        text += " matching constraint"
    notes = [
        f"{number} {word}"
        for number, word in (
            (answer["matching"] - answer["large_enough"], small),
            (down, "down"),
            (answer["large_enough"] - down - free, "busy"),
        )
        if number > 0
    ]
    return f"{text} ({', '.join(notes)})" if notes else text
