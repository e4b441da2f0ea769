# SPDX-License-Identifier: LGPL-3.0-or-later
"""The machine: an R, and the mapping of a trace's sizes to it."""

from flux.resource.pool.explain import counted
from flux.resource.pool.masks import RANK_LIMIT
from flux.simulate.workload.record import OptionError
from flux_engine.formats import idset, rset
from flux_engine.resource.inventory import Inventory


class Machine:
    """A resource set R, its origin for messages, and its sizes. Raises ValueError if R is not valid."""

    def __init__(self, R, source=""):
        Inventory(R)  # checks it
        self.R = R
        self.source = source
        self.nodes, self.cores, self.gpus = rset.count(R)
        children = [entry["children"] for entry in R["execution"]["R_lite"]]
        per_node = {idset.count(idset.decode(one["core"])) for one in children}
        #: cores per node; of the largest node if they differ
        self.cores_per_node = max(per_node)
        self.is_uniform = len(per_node) == 1

    def units(self, unit):
        """Return the number of units ("node" or "core")."""
        return self.nodes if unit == "node" else self.cores

    def __str__(self):
        units = [(self.nodes, "node"), (self.cores, "core"), (self.gpus, "GPU")]
        return ", ".join(counted(*unit) for unit in units[: 3 if self.gpus else 2])


#: Maximum number of cores and GPUs of a machine of equal nodes.
MOST_UNITS = 100_000_000


def uniform(nodes, cores_per_node=1, gpus_per_node=0, source=""):
    """Return a machine of equal nodes. Raises OptionError if a count is too small, or too large."""
    text = f"a machine of {nodes:,} nodes, {cores_per_node:,} cores and {gpus_per_node:,} GPUs a node ({source})"
    if nodes < 1 or cores_per_node < 1 or gpus_per_node < 0:
        raise OptionError(f"{text}: not possible")
    if nodes > RANK_LIMIT or nodes * (cores_per_node + gpus_per_node) > MOST_UNITS:
        raise OptionError(
            f"{text}: more than {RANK_LIMIT:,} nodes, or {MOST_UNITS:,} cores and GPUs"
        )
    width = len(str(nodes - 1))
    names = [f"node{i:0{width}}" for i in range(nodes)]
    return Machine(rset.uniform(names, cores_per_node, gpus_per_node), source)
