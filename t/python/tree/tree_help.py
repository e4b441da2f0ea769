# SPDX-License-Identifier: LGPL-3.0-or-later
"""Short notations of R, jobspec and allocation for the tests of TreePool."""

from flux.resource.TreePool import TreePool
from flux.shape.parser import ShapeParser


def topo_R(*kinds):
    """R of several kinds of node: `(count, cores, gpus, topo)`, ranks in order, gpus may be ""."""
    lite, children = [], []
    rank = 0
    for count, cores, gpus, topo in kinds:
        ranks = f"{rank}-{rank + count - 1}" if count > 1 else str(rank)
        units = {"core": cores, "gpu": gpus} if gpus else {"core": cores}
        lite.append({"rank": ranks, "children": units})
        children.append({"ranks": ranks, "topo": topo})
        rank += count
    names = f"n[0-{rank - 1}]" if rank > 1 else "n0"
    execution = {"R_lite": lite, "nodelist": [names], "starttime": 0.0, "expiration": 0.0}
    scheduling = {"writer": "TreePool", "children": children}
    return {"version": 1, "execution": execution, "scheduling": scheduling}


def jobspec_of_shape(text, duration=0, **system):
    return {
        "version": 9999,
        "resources": ShapeParser().parse(text),
        "tasks": [{"command": ["true"], "slot": "default", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": duration, **system}},
    }


def start(pool, jobid, text, **system):
    """Allocate by shape."""
    return pool.alloc(jobid, pool.parse_resource_request(jobspec_of_shape(text, **system)))


def alloc(pool, jobid, text, **system):
    """Allocate by shape; the answer as text, or the exception's class name."""
    try:
        return start(pool, jobid, text, **system).dumps()
    except (TreePool.InsufficientResources, TreePool.InfeasibleRequest) as exc:
        return type(exc).__name__
