# SPDX-License-Identifier: LGPL-3.0-or-later
"""R version 1 (RFC 20) as read by pools: entries, hosts, properties and times."""

from __future__ import annotations

import math
from typing import Any

from flux.resource.pool.inventory import Entry, HostNames, Inventory, Selection, pairs
from flux.resource.pool.masks import (
    RANK_LIMIT,
    UNIT_LIMIT,
    idset_text,
    mask_of,
    members,
    parse_idset,
    quote,
)
from flux.resource.request import load_json


def object_of(R: Any) -> dict[str, Any]:
    """Return R as an object: parsed from JSON text, or from the ``to_dict()`` of a pool or resource
    set. Raises ValueError if it is none of these."""
    if hasattr(R, "to_dict"):
        R = R.to_dict()
    elif isinstance(R, (str, bytes)):
        R = load_json(R, "R")
    if not isinstance(R, dict):
        raise ValueError(f"R must be an object, got {quote(R)}")
    return R


def read_lite(R: dict[str, Any]) -> list[Entry]:
    """Return ``(rank mask, core mask, GPU mask)`` for the entries of ``R_lite`` of an R object,
    with no rank twice; O(length of its text). Raises ValueError for the first error, with its
    path."""
    execution = R.get("execution")
    if type(execution) is not dict:
        raise ValueError(f"R: execution: expected an object, got {quote(execution)}")
    entries = execution.get("R_lite")
    if type(entries) is not list:
        raise ValueError(f"R: execution.R_lite: expected an array, got {quote(entries)}")
    result: list[Entry] = []
    seen = 0
    doubled = 0
    for entry in entries:
        try:
            ranks = parse_idset(entry["rank"], RANK_LIMIT)
            children = entry["children"]
            cores = parse_idset(children["core"], UNIT_LIMIT) if "core" in children else 0
            gpus = parse_idset(children["gpu"], UNIT_LIMIT) if "gpu" in children else 0
        except (KeyError, TypeError, AttributeError):
            raise ValueError(
                f"R: execution.R_lite[{len(result)}]: expected rank and children, got {quote(entry)}"
            ) from None
        except ValueError as exc:
            raise ValueError(f"R: execution.R_lite[{len(result)}]: {exc}") from None
        if not ranks:
            raise ValueError(f"R: execution.R_lite[{len(result)}].rank: expected at least one rank")
        doubled |= seen & ranks
        seen |= ranks
        result.append((ranks, cores, gpus))
    return _union(result) if doubled else result


def units_of(
    R: Any, inventory: Inventory, system: int, held: Selection = ()
) -> list[tuple[int, int]]:
    """Return R in any form as a list of ``(rank mask, units)``.

    Args:
        R: an R object, its JSON text, or a pool
        inventory (Inventory): inventory of the pool with these resources
        system (int): mask of cores to ignore
        held (tuple): a selection whose amounts are added on its ranks in R: R of released resources
            need not name them.

    Raises:
        ValueError: R has a core id that no rank of the pool has.
    """
    shift = inventory.shift
    if type(R) is dict:
        entries = read_lite(R)
    else:
        entries = R.entries() if hasattr(R, "entries") else read_lite(object_of(R))
    if system:
        entries = [(ranks, cores & ~system, gpus) for ranks, cores, gpus in entries]
    for ranks, cores, _ in entries:
        if cores >> shift:
            raise ValueError(f"rank {idset_text(ranks)} has no core {cores.bit_length() - 1}")
    units = [(ranks, cores | gpus << shift) for ranks, cores, gpus in entries if cores or gpus]
    if not held:
        return units
    amounts = ~inventory.compute_mask
    return [
        (mask & ranks, named | own & amounts)
        for mask, named in units
        for ranks, own in pairs(held)
        if mask & ranks
    ]


def _union(entries: list[Entry]) -> list[Entry]:
    """Return the entries, with those of one rank united."""
    cores: dict[int, int] = {}
    gpus: dict[int, int] = {}
    for ranks, more_cores, more_gpus in entries:
        for rank in members(ranks):
            cores[rank] = cores.get(rank, 0) | more_cores
            gpus[rank] = gpus.get(rank, 0) | more_gpus
    groups: dict[tuple[int, int], list[int]] = {}
    for rank, mask in cores.items():
        groups.setdefault((mask, gpus[rank]), []).append(rank)
    return [(mask_of(sorted(ranks)), core, gpu) for (core, gpu), ranks in groups.items()]


def read_names(R: dict[str, Any], entries: list[Entry]) -> tuple[HostNames, dict[str, int]]:
    """Return the `HostNames`, and the mask of ranks of each property, of an R object and the result
    of ``read_lite()``. Raises ValueError for the first error, with its path."""
    execution = R["execution"]
    everything = 0
    for ranks, _, _ in entries:
        everything |= ranks
    try:
        hosts = HostNames(everything, execution.get("nodelist") or None)
    except ValueError as exc:
        raise ValueError(f"R: {exc}") from None
    return hosts, _read_properties(execution, everything)


def _read_properties(execution: dict[str, Any], everything: int) -> dict[str, int]:
    properties = execution.get("properties")
    if properties is None:
        return {}
    if not isinstance(properties, dict):
        raise ValueError(f"R: execution.properties: expected an object, got {quote(properties)}")
    result = {}
    for name, ranks in properties.items():
        try:
            mask = parse_idset(ranks, RANK_LIMIT) & everything
        except ValueError as exc:
            raise ValueError(f"R: execution.properties.{quote(name)}: {exc}") from None
        if mask:
            result[name] = mask
    return result


def read_time(execution: dict[str, Any], name: str) -> float:
    """Return a time of R in seconds since the epoch; 0 if it is missing. Raises ValueError if it is
    not a time."""
    value = execution.get(name)
    return 0.0 if value is None else seconds(value, f"R: execution.{name}")


def seconds(value: Any, name: str) -> float:
    """Return a time in seconds since the epoch as a float; raise ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name}: expected seconds, got {quote(value)}")
    try:
        time = float(value)
    except OverflowError:
        time = math.inf
    if not math.isfinite(time) or time < 0:
        raise ValueError(f"{name}: expected seconds since the epoch, got {time}")
    return time
