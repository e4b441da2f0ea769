# SPDX-License-Identifier: LGPL-3.0-or-later
"""Conversion of a machine seen by hwloc to the topology read by TreePool, and to R.

The topology of a node (``children[].topo`` of R.scheduling, RFC 49) names levels of containers down
to leaves with ``cores``, ``gpus`` and ``memory``. The functions below describe the hwloc objects
that become levels, their names, and the devices that are GPUs.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from flux.resource.hwloc.xml import Machine, Object, load_xml
from flux.resource.pool.masks import idset_text, to_mask
from flux.resource.pool.rv1 import read_lite

#: hwloc types that become levels of the topology, in addition to NUMA nodes (see
#: ``TopologyBuilder``).
LEVEL_TYPES = ("Package", "Die", "Group")
#: Values of an OS device's ``Backend`` that make it a GPU.
GPU_BACKENDS = ("CUDA", "NVML", "OpenCL", "RSMI")
#: Level names of RFC 49 other than the lower-case type.
LEVEL_NAMES = {"Package": "socket", "NUMANode": "numa"}


class Gpu(NamedTuple):
    """A GPU: its number, the CPU set that it is attached to (None: none), the objects above it."""

    number: int
    cpuset: int | None
    above: tuple[Object, ...]

    def belongs_to(self, obj: Object) -> bool:
        """Whether ``obj`` holds this GPU: it is above it, or its CPU set includes the GPU's."""
        if not self.cpuset:
            return obj in self.above
        return obj in self.above or inside(self.cpuset, obj.cpuset)


def inside(inner: int, outer: int | None) -> bool:
    """Whether the set ``inner`` (a bit mask) is a subset of ``outer`` (None: empty)."""
    return not inner & ~(outer or 0)


def find_gpus(machine: Machine) -> list[Gpu]:
    """Return the GPUs of a Machine, numbered as by the runtimes: in order of their OS devices.

    Several backends report the same card. On a PCI device the first backend counts, and each of its
    devices is a GPU (a card may be partitioned). Devices without a PCI device above them count too,
    unless the document has no PCI device at all. With FLUX_HWLOC_GPU_NO_DEDUP in the environment
    each device of each backend is a GPU.
    """
    if not machine.pcis:
        return []
    everything = "FLUX_HWLOC_GPU_NO_DEDUP" in os.environ
    first_backend: dict[Object, str] = {}
    gpus: list[Gpu] = []
    for device in machine.osdevs:
        if device.backend not in GPU_BACKENDS:
            continue
        pci = device.parent
        while pci is not None and pci.type != "PCIDev":
            pci = pci.parent
        if pci is None:
            gpus.append(Gpu(len(gpus), None, ()))
            continue
        if first_backend.setdefault(pci, device.backend) != device.backend and not everything:
            continue
        above = []
        up = pci.parent
        while up is not None:
            if up.cpuset is not None:
                above.append(up)
            up = up.parent
        cpuset = above[0].cpuset if above else None
        gpus.append(Gpu(len(gpus), cpuset, tuple(above)))
    return gpus


def containers_in(obj: Object) -> list[Object]:
    """Return the containers next below ``obj``: its children, or the containers below them.

    Caches and similar objects are transparent; cores and processors are not searched.
    """
    found = [sub for sub in obj.children if sub.type in LEVEL_TYPES and sub.cpuset]
    if found:
        return found
    for sub in obj.children:
        if sub.type not in ("Core", "PU"):
            found.extend(containers_in(sub))
    return found


def written(domain: dict[str, Any]) -> dict[str, Any]:
    """Return a domain with its id lists as idset strings, as in R."""
    out = {}
    for key, value in domain.items():
        if key in ("cores", "gpus"):
            value = idset_text(to_mask(value))
        elif isinstance(value, list):
            value = [written(below) for below in value]
        out[key] = value
    return out


class TopologyBuilder:
    """Builds the topology of a Machine: ``build()`` returns it, ``gpus`` are its GPUs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.gpus = find_gpus(machine)
        self._listed: set[int] = set()
        self._leaf_memory = False

    def build(self) -> dict[str, Any]:
        """Return the ``topo`` object of a node. Raises RuntimeError if a domain has no cores; the
        text names its hwloc object."""
        topo = self._domain(self.machine.root)
        # A device without locality is in no domain, but part of the node.
        rest = [gpu.number for gpu in self.gpus if gpu.number not in self._listed]
        if rest:
            topo["gpus"] = sorted(topo.get("gpus", []) + rest)
        if not self._leaf_memory:
            total = sum(node.memory for node in self.machine.numas) >> 30
            if total:
                topo["memory"] = total
        return written(topo)

    def _level(self, obj: Object) -> tuple[list[Object], str]:
        """Return the entries of the level below an object, and its name; a leaf has no entries."""
        entries = containers_in(obj)
        if entries:
            return entries, self._name(entries[0])
        return self._numas_in(obj), "numa"

    def _numas_in(self, obj: Object) -> list[Object]:
        # A node without CPUs (GPU memory, HBM behind a card) is not a place to run: never a level.
        if obj.type == "NUMANode":
            return []
        return [
            node for node in self.machine.numas if node.cpuset and inside(node.cpuset, obj.cpuset)
        ]

    def _name(self, obj: Object) -> str:
        # hwloc wraps NUMA nodes with their caches and packages in Groups: name the inner object.
        while obj.type == "Group":
            within = containers_in(obj)
            if len(within) != 1:
                return "numa" if self._numas_in(obj) else "Group"
            obj = within[0]
        return LEVEL_NAMES.get(obj.type, obj.type)

    def _domain(self, obj: Object) -> dict[str, Any]:
        entries, name = self._level(obj)
        while len(entries) == 1:
            obj = entries[0]
            entries, name = self._level(obj)
        if not entries:
            return self._leaf(obj)
        before = set(self._listed)
        self._listed = set()
        domain: dict[str, Any] = {name: [self._domain(entry) for entry in entries]}
        mine = [gpu.number for gpu in self.gpus if gpu.belongs_to(obj)]
        mine = [number for number in mine if number not in self._listed]
        if mine:
            domain["gpus"] = mine
        self._listed.update(mine, before)
        return domain

    def _leaf(self, obj: Object) -> dict[str, Any]:
        cores = [
            number
            for number, core in enumerate(self.machine.cores)
            if core.cpuset and inside(core.cpuset, obj.cpuset)
        ]
        if not cores:
            raise RuntimeError(
                f"hwloc XML: no cores in {obj!r}: its processors are not in Core objects"
            )
        leaf: dict[str, Any] = {"cores": cores}
        mine = [gpu.number for gpu in self.gpus if gpu.belongs_to(obj)]
        if mine:
            leaf["gpus"] = mine
            self._listed.update(mine)
        if obj.type == "NUMANode" and obj.memory >> 30:
            leaf["memory"] = obj.memory >> 30
            self._leaf_memory = True
        return leaf


def topology_from_xml(text: str) -> tuple[dict[str, Any], int, int]:
    """Return (topo, number of cores, number of GPUs) of the machine described by hwloc XML. Raises
    RuntimeError if the XML does not load, or a domain has no cores."""
    machine = load_xml(text)
    builder = TopologyBuilder(machine)
    try:
        topo = builder.build()
    except RecursionError:
        raise RuntimeError("hwloc XML: its objects are nested too deeply") from None
    return topo, len(machine.cores), len(builder.gpus)


def amend(R: dict[str, Any], hwloc_xml: str | None = None) -> dict[str, Any]:
    """Give R the topology of its nodes (an amender for fake-resources.amend-r).

    ``R["scheduling"]`` becomes a TreePool key (RFC 49) with one entry: all ranks of R look like the
    described machine. R's own cores and GPUs do not change, nor does an R without ranks.

    Args:
        R (dict): resource set (RFC 20, version 1); changed in place and returned.
        hwloc_xml (str): the XML document; None leaves R unchanged.

    Raises:
        ValueError: R has no ``execution.R_lite``, or an error in it; the text names it.
        RuntimeError: the XML does not load, or has a domain without cores. R is unchanged.
    """
    if hwloc_xml is None:
        return R
    ranks = 0
    for mask, _, _ in read_lite(R):
        ranks |= mask
    if not ranks:
        return R
    topo = topology_from_xml(hwloc_xml)[0]
    R["scheduling"] = {
        "writer": "TreePool",
        "children": [{"ranks": idset_text(ranks), "topo": topo}],
    }
    return R
