# SPDX-License-Identifier: LGPL-3.0-or-later
"""The reason why a request does not fit, in numbers and in a sentence for its user.

``explain()`` finds the numbers by a pool's ``rooms()``, and makes a sentence of them;
``infeasible()`` makes the sentence for a request that never fits.
"""

from __future__ import annotations

from typing import Any

from flux.resource.pool.inventory import Inventory
from flux.resource.pool.masks import popcount, ranks_in
from flux.resource.pool.state import unused
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


def _containers(shape: Shape) -> int:
    """Return the number of containers per slot, or per node of a request for nodes."""
    each = shape.containers_per_slot
    return each if shape.node_count is None else each * shape.slot_count.min


def _of_at_least(shape: Shape, cores: str, gpus: str) -> str:
    """Return `` of at least 2 cores and 1 GPU``, the minimum for a container; empty without one."""
    least = [
        text for number, text in ((shape.slot_size, cores), (shape.gpu_per_slot, gpus)) if number
    ]
    return f" of at least {' and '.join(least)}" if least else ""


def infeasible(pool: PoolWithView, shape: Shape) -> str:
    """Return the sentence for a request that does not fit an empty pool.

    It begins with the words of flux-core's schedulers, which scripts look for.
    """
    inventory = pool.inventory
    match = inventory.matching(shape.match)
    rooms = pool.rooms(unused(inventory), shape, match)
    capacity = sum([number * popcount(mask) for number, mask in rooms])
    count = (shape.slot_count if shape.node_count is None else shape.node_count).min
    # If enough have room, the pool's own placement refuses.
    refuses = capacity >= count and shape.container_level is None
    only = f"{': the pool finds no place among the' if refuses else ', only'} {capacity}"
    small = ("is too small", "are too small")
    if shape.container_level is not None:
        number = _containers(shape)
        each = f"exclusive '{shape.container_level}' container(s)" + _of_at_least(
            shape, f"{shape.slot_size} core(s)", f"{shape.gpu_per_slot} GPU(s)"
        )
        if shape.node_count is not None:
            text = f"{count} node(s) with {number} {each} each"
        else:
            text = f"{count} slot(s) of {number} {each}" if number > 1 else f"{count} {each}"
        text += f"{only} available"
        small = ("has too few such containers", "have too few such containers")
    elif shape.node_count is not None:
        if shape.exclusive:
            text = f"{count} exclusive node(s){only} eligible"
        else:
            each = f"{shape.node_cores} cores"
            if shape.node_gpus:
                each += f" and {shape.node_gpus} GPUs"
            if any(shape.node_amounts) or any(shape.slot_amounts):
                each = need_text(inventory, shape)
            text = f"{count} node(s) with {each} each{only} eligible"
    elif shape.slot_amounts:
        each = need_text(inventory, shape)
        text = f"{count} slot(s) of {each}{only} such slot(s) available"
    else:
        cores = gpus = by_cores = 0
        for units, mask in inventory.kinds.items():
            ranks = popcount(mask & match)
            own_cores, own_gpus = inventory.cores_and_gpus(units)
            cores += ranks * own_cores
            gpus += ranks * own_gpus
            by_cores += ranks * (own_cores // shape.slot_size)
        if shape.gpu_per_slot and by_cores >= count:
            text = (
                f"{count} slot(s) with {shape.gpu_per_slot} GPU(s) each"
                f"{only} available (total GPUs: {gpus})"
            )
        else:
            text = (
                f"{count} slot(s) of {shape.slot_size} core(s)"
                f"{only} such slot(s) available (total cores: {cores})"
            )
    few = popcount(match & ~ranks_in(rooms))
    return f"unsatisfiable request: need {text}{_left_out(inventory, match, few, *small)}"


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


def _left_out(inventory: Inventory, match: int, small: int, one: str, more: str) -> str:
    """Return the end of a sentence on ranks that a request cannot use; empty if it can use all.

    `match`: mask of the ranks that meet the constraint; `small` of these are useless all the same, for a
    reason in words for one (`one`) and for several ranks (`more`).
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
    inventory = pool.inventory
    match = inventory.matching(shape.match)
    up = pool.eligible(shape.match)
    large = ranks_in(pool.rooms(unused(inventory), shape, match))
    rooms = pool.rooms(pool.index, shape, up)
    count = shape.slot_count if shape.node_count is None else shape.node_count
    answer: dict[str, Any] = {
        "total": popcount(inventory.ranks),
        "matching": popcount(match),
        "large_enough": popcount(large),
        "up": popcount(up),
        "free": sum([popcount(mask) for _, mask in rooms]),
        "available": sum([number * popcount(mask) for number, mask in rooms]),
        "needed": count.min,
        "unit": "slots" if shape.node_count is None else "nodes",
    }
    reason = pool.verdict(shape)
    if reason is None:
        reason = _why_pending(answer, inventory, shape, popcount(large & ~up))
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


def _why_pending(answer: dict[str, Any], inventory: Inventory, shape: Shape, down: int) -> str:
    """Return the sentence for a request that must wait, by the numbers of ``explain()``; empty if enough
    is free. `down`: number of ranks that are large enough, but down."""
    needed, available, free = answer["needed"], answer["available"], answer["free"]
    if available >= needed:
        return ""
    small = "too small"
    text = f"insufficient resources: needs {counted(needed, answer['unit'][:-1])}"
    if shape.container_level is not None:
        small = "without"
        each = counted(_containers(shape), f"exclusive '{shape.container_level}' container")
        each += _of_at_least(
            shape, counted(shape.slot_size, "core"), counted(shape.gpu_per_slot, "GPU")
        )
    else:
        each = need_text(inventory, shape)
    if shape.exclusive and shape.container_level is None:
        text += " (exclusive)"
    else:
        text += f" {'with' if answer['unit'] == 'nodes' else 'of'} {each}"
    text += f", {available} free"
    if answer["unit"] == "slots":
        text += f" on {free}"
    text += f" of {counted(answer['matching'], 'node')}"
    if shape.match is not None:
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
