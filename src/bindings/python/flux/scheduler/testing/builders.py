# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobspecs (RFC 14, RFC 25) and resource sets (R, RFC 20) for tests, as dicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def jobspec(
    slots: int | str = 1,
    cores: int | str = 1,
    gpus: int = 0,
    nodes: int | str | None = None,
    duration: float = 0,
    exclusive: bool = False,
    constraints: dict[str, Any] | None = None,
    command: Sequence[str] = ("true",),
    run_duration: float | str | None = None,
    **system: Any,
) -> dict[str, Any]:
    """Build a version 1 jobspec, as ``flux submit`` does.

    A count is an integer, or a text with an RFC 14 range such as ``"2-8"``.

    Args:
        slots (int or str): number of slots: per node with `nodes`, else in total
        cores (int or str): cores per slot
        gpus (int): GPUs per slot
        nodes (int or str): number of nodes; None: slots may share nodes
        duration (float): time limit in seconds; 0: none
        exclusive (bool): whether to request whole nodes; needs `nodes`
        constraints (dict): constraint on nodes (RFC 31)
        command (list of str): program and arguments
        run_duration (float): run time of the job in an instance with mock execution, seconds
        **system: further keys of ``attributes.system``, such as ``queue`` and ``bank``

    Returns:
        dict: a new jobspec
    """
    in_slot: list[dict[str, Any]] = [{"type": "core", "count": cores}]
    if gpus:
        in_slot.append({"type": "gpu", "count": gpus})
    vertex: dict[str, Any] = {"type": "slot", "count": slots, "with": in_slot, "label": "task"}
    if nodes is not None:
        vertex = {"type": "node", "count": nodes, "with": [vertex]}
        if exclusive:
            vertex["exclusive"] = True
    attributes: dict[str, Any] = {"duration": duration, "cwd": "/"}
    if run_duration is not None:
        attributes["exec"] = {"test": {"run_duration": f"{run_duration}s"}}
    attributes.update(system)
    if constraints is not None:
        attributes["constraints"] = constraints
    return {
        "version": 1,
        "resources": [vertex],
        "tasks": [{"command": list(command), "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": attributes},
    }


def make_R(
    ranks: int | str = 1,
    cores: int | str = 1,
    gpus: int | str = 0,
    hosts: str | None = None,
    *,
    starttime: float = 0.0,
    expiration: float = 0.0,
    properties: dict[str, str] | None = None,
    nslots: int | None = None,
    scheduling: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Build a version 1 R with equal ranks.

    Ranks, cores and GPUs are given as a number, counted from 0, or as an idset (RFC 22) such as
    ``"0-3,7"``.

    Args:
        ranks (int or str): the ranks
        cores (int or str): cores of each rank
        gpus (int or str): GPUs of each rank
        hosts (str): hosts of the ranks, a hostlist (RFC 29); default: ``n`` and the rank
        starttime (float): start, seconds since the epoch
        expiration (float): end, seconds since the epoch; 0: never
        properties (dict): name of a property -> ranks that have it (an idset)
        nslots (int): number of slots of a job
        scheduling (dict): a pool's own data in R (RFC 20, section "scheduling")

    Returns:
        dict: a new R
    """
    rank_ids = _idset(ranks)
    children = {"core": _idset(cores)}
    if gpus != 0:
        children["gpu"] = _idset(gpus)
    if hosts is None:
        hosts = f"n{rank_ids}" if rank_ids.isdigit() else f"n[{rank_ids}]"
    execution: dict[str, Any] = {
        "R_lite": [{"rank": rank_ids, "children": children}],
        "starttime": starttime,
        "expiration": expiration,
        "nodelist": [hosts],
    }
    if properties:
        execution["properties"] = properties
    if nslots is not None:
        execution["nslots"] = nslots
    R: dict[str, Any] = {"version": 1, "execution": execution}
    if scheduling is not None:
        R["scheduling"] = scheduling
    return R


def _idset(ids: int | str) -> str:
    """Return ids as given, or for a number the ids from 0."""
    if isinstance(ids, str):
        return ids
    return "0" if ids == 1 else f"0-{ids - 1}"
