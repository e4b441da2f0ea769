# SPDX-License-Identifier: LGPL-3.0-or-later
"""Amounts of a node beside cores and GPUs, such as memory: how much nodes have, and jobs need.

An amount is counted in whole *steps*. Each step is a bit of a rank's units
(`flux.resource.pool.inventory`), so that the steps of a job are in its selection like cores, and
are given back, copied and planned with them. Answers give the number of a job's steps, never their
ids.

Amounts are in bytes if RFC 49 has them in GiB, or a value has a unit (``"240G"``); others are plain
numbers. A step is 1, or for bytes a power of two such that no node has more than `MAX_STEPS`. Steps
of nodes are rounded down, those of jobs up.
"""

from __future__ import annotations

import re
from typing import Any

from flux.resource.pool.amount_kinds import (
    AMOUNT_TEXT,
    FROM_R,
    GIB,
    IN_GIB,
    MAX_STEPS,
    UNITS,
    AmountKind,
    NodeAmounts,
    has_unit,
    read_amount,
)
from flux.resource.pool.inventory import Inventory
from flux.resource.pool.masks import mask_of, members, parse_idset, quote
from flux.resource.pool.state import RankIndex
from flux.resource.request import Shape

#: Maximum number of amounts that a pool counts: each makes every mask of units longer.
MAX_KINDS = 8

_NAME = re.compile(r"[A-Za-z][\w-]{0,63}", re.ASCII)


def read_table(table: Any, scheduling: Any, inventory: Inventory) -> NodeAmounts:
    """Read ``[amounts]``.

    Args:
        table (dict or str): name to an amount that each node has, or to a dict with ``each``,
            ``hosts`` (by host list), ``properties`` (by property) and ``default`` (of a job that
            does not name it). Amounts of nodes may be `FROM_R`. As text: ``memory=240G,disk=1T``
        scheduling: the value of this key in R
        inventory (Inventory): the ranks

    Raises:
        ValueError: it is malformed; the text begins with the key
    """
    if isinstance(table, str):
        table = dict(item.partition("=")[::2] for item in table.split(","))
    if not isinstance(table, dict):
        raise ValueError(f"amounts={quote(table)}: expected a table")
    if len(table) > MAX_KINDS:
        raise ValueError(f"amounts: {len(table)} of them, at most {MAX_KINDS} are counted")
    kinds, steps = [], []
    for name, value in table.items():
        check_name(name)
        try:
            kind, by_steps = read_entry(name, value, scheduling, inventory)
        except ValueError as exc:
            raise ValueError(f"{name}.{exc}") from None
        if kind.most:
            kinds.append(kind)
            steps.append(by_steps)
    return NodeAmounts(tuple(kinds), steps)


def check_name(name: Any) -> None:
    """Raise ValueError if an amount cannot have this name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"amounts: {quote(name)} is not a name of letters, digits, - and _")


def read_entry(
    name: str, table: Any, scheduling: Any, inventory: Inventory
) -> tuple[AmountKind, dict[int, int]]:
    """Return the amount, and the masks of ranks by number of steps, of one entry of ``[amounts]``,
    whose name is already checked; as `read_table()`. Raises ValueError if it is malformed; the text
    begins with the key in the entry."""
    left = dict(table) if isinstance(table, dict) else {"each": table}
    everything = inventory.ranks
    values: list[tuple[str, Any, int]] = [("each", left.pop("each", 0), everything)]
    for key in ("hosts", "properties"):
        some = left.pop(key, {})
        if not isinstance(some, dict):
            raise ValueError(f"{key}={quote(some)}: expected a table")
        for which, value in some.items():
            ranks = inventory.properties.get(which, 0)
            if key == "hosts":
                try:
                    ranks = inventory.hosts.find(which)
                except ValueError as exc:
                    raise ValueError(f"hosts: {exc}") from None
            values.append((f"{key}.{which}", value, ranks & everything))
    default = left.pop("default", 0)
    if left:
        raise ValueError(f"{next(iter(left))}: unknown key")
    in_bytes = name in IN_GIB or any(has_unit(value) for _, value, _ in values)
    amounts: dict[int, int] = {}  # by rank; later entries override
    for where, value, ranks in values:
        try:
            if value == FROM_R:
                found = _amounts_in_R(scheduling, name, everything)
                for rank in members(ranks):
                    if rank in found:
                        amounts[rank] = read_amount(found[rank], in_bytes)
            else:
                amounts.update(dict.fromkeys(members(ranks), read_amount(value, in_bytes)))
        except ValueError as exc:
            raise ValueError(f"{where}={exc}") from None
    most, step = max(amounts.values(), default=0), 1
    while in_bytes and most > MAX_STEPS * step:
        step *= 2
    by_steps: dict[int, list[int]] = {}
    for rank, amount in sorted(amounts.items()):
        by_steps.setdefault(amount // step, []).append(rank)
    kind = AmountKind(name, in_bytes, step, most // step, 0)
    try:
        kind = kind._replace(default=kind.steps(default))
    except ValueError as exc:
        raise ValueError(f"default={exc}") from None
    return kind, {steps: mask_of(ranks) for steps, ranks in by_steps.items() if steps}


def recorded_amounts(scheduling: Any, name: str) -> dict[int, Any]:
    """Return rank to amount, recorded in R (``scheduling.amounts``) by a scheduler that counts the
    amount. Raises ValueError if it is malformed."""
    written = scheduling.get("amounts") if isinstance(scheduling, dict) else None
    by_ranks = written.get(name) if isinstance(written, dict) else None
    if by_ranks is None:
        return {}
    if not isinstance(by_ranks, dict):
        raise ValueError(f"R: scheduling.amounts.{name}: expected an object")
    found: dict[int, Any] = {}
    for ranks, value in by_ranks.items():
        found.update(dict.fromkeys(members(parse_idset(ranks)), value))
    return found


def with_amounts_recorded(
    index: RankIndex, scheduling: Any, groups: dict[int, int]
) -> dict[int, int]:
    """Return {units: mask of ranks} of a job found running, with the amounts that ``scheduling`` of
    its R records; less if less is free."""
    inventory = index.inventory
    steps: dict[int, list[int]] = {}  # by rank
    for at, one in enumerate(inventory.amounts):
        for rank, value in recorded_amounts(scheduling, one.kind.name).items():
            steps.setdefault(rank, [0] * len(inventory.amounts))[at] = one.kind.steps(value)
    found: dict[int, int] = {}
    for units, mask in groups.items():
        for rank in members(mask):
            own = units | inventory.take_amounts(index.free(rank), tuple(steps.get(rank, ())))
            found[own] = found.get(own, 0) | 1 << rank
    return found


def _amounts_in_R(scheduling: Any, name: str, everything: int) -> dict[int, Any]:
    """Return rank to amount: as recorded in R, else memory and storage of the topology (RFC 49). If
    R has renumbered its ranks, the recorded ones stand for R's own in ascending order."""
    found = recorded_amounts(scheduling, name)
    children = scheduling.get("children") if isinstance(scheduling, dict) else None
    if not found and name in IN_GIB and isinstance(children, list):
        for entry in children:
            if isinstance(entry, dict):
                value = _in_domain(entry.get("topo"), name)
                for rank in members(parse_idset(entry.get("ranks", ""))):
                    found.setdefault(rank, value)
    own = members(everything)
    if not found.keys() <= set(own) and len(found) == len(own):
        found = dict(zip(own, [found[rank] for rank in sorted(found)]))
    return found


def _in_domain(topo: Any, name: str, depth: int = 32) -> Any:
    """Return the GiB of memory or storage in a domain and those below it; 0 if no number is
    given."""
    if not isinstance(topo, dict) or not depth:
        return 0
    own = topo.get(name)
    total: Any = 0
    if type(own) in (int, float):
        total = own
    elif isinstance(own, list):
        for one in own:
            if isinstance(one, dict) and type(one.get("capacity")) in (int, float):
                unit = AMOUNT_TEXT.fullmatch(f"1{one.get('unit', 'GiB')}")
                size = UNITS[unit.group(2).upper()] if unit is not None else 0
                total += one["capacity"] * size / GIB
    below = [entry for some in topo.values() if isinstance(some, list) for entry in some]
    return total + sum(_in_domain(entry, name, depth - 1) for entry in below)


def with_amounts_asked(shape: Shape, jobspec: Any, kinds: tuple[AmountKind, ...]) -> Shape:
    """Return a shape with the amounts of a jobspec.

    They are in ``attributes.system.memory`` and ``attributes.system.amounts.NAME``: an amount for
    each node (each slot, if the job asks for no nodes), or ``{"per-node": amount}``, ``{"per-slot":
    amount}``.

    Args:
        jobspec (dict): a jobspec that was read
        kinds (tuple): the kinds of amounts of the pool

    Raises:
        ValueError: it is malformed, or names an amount that is not counted; the text names the key
    """
    attributes = jobspec.get("attributes") if isinstance(jobspec, dict) else None
    system = attributes.get("system") if isinstance(attributes, dict) else None
    system = system if isinstance(system, dict) else {}
    named = system.get("amounts", {})
    if not isinstance(named, dict):
        raise ValueError(f"system.amounts: expected an object, got {quote(named)}")
    counted = [kind.name for kind in kinds]
    for name in named:
        if name not in counted:
            raise ValueError(
                f"system.amounts: {quote(name)} is not counted here, only {', '.join(counted)}"
            )
    by_node = shape.node_count is not None
    slots, nodes = [0] * len(kinds), [0] * len(kinds)
    for at, kind in enumerate(kinds):
        key = f"system.amounts.{kind.name}"
        value = named.get(kind.name)
        if value is None and kind.name == "memory":
            key, value = "system.memory", system.get("memory")
        per = "per-node" if by_node else "per-slot"
        if isinstance(value, dict):
            if len(value) != 1 or next(iter(value)) not in ("per-node", "per-slot"):
                raise ValueError(f"{key}={quote(value)}: expected per-node or per-slot")
            ((per, value),) = value.items()
            if per == "per-node" and not by_node:
                raise ValueError(f"{key}.per-node: the job asks for no nodes; ask per-slot")
        try:
            steps = kind.default if value is None else kind.steps(value)
        except ValueError as exc:
            raise ValueError(f"{key}={exc}") from None
        (slots if per == "per-slot" else nodes)[at] = steps
    if not any(slots) and not any(nodes):
        return shape
    if any(slots) and shape.container_level is not None:
        raise ValueError("amounts of a slot of containers: ask for nodes, and for amounts per-node")
    return shape.replace(slot_amounts=tuple(slots), node_amounts=tuple(nodes))
