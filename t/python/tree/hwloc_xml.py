# SPDX-License-Identifier: LGPL-3.0-or-later
"""Write hwloc XML (format 2) from short descriptions, for machines that do not exist.

    pkg(numa(32), core(), core(), gpu("CUDA", "NVML"), os_index=0)

`core(n)` has n threads; processors are numbered in order. An object's CPU set is that of the
cores in it; `numa(gib)` takes the CPU set of the object it is attached to, unless `cpus` is given.
"""

from functools import partial
from xml.sax.saxutils import quoteattr


class Obj:
    def __init__(self, type_, *below, cpus=None, gib=None, infos=(), **attributes):
        self.type = type_
        self.below = list(below)
        self.cpus = cpus
        self.gib = gib
        self.infos = infos
        self.attributes = attributes


machine, pkg, die, group, bridge = (
    partial(Obj, kind) for kind in ("Machine", "Package", "Die", "Group", "Bridge")
)


def l3(*below):
    return Obj("L3Cache", *below, cache_size="33554432", depth="3", cache_linesize="64",
               cache_associativity="16", cache_type="0")  # fmt: skip


def numa(gib=0, cpus=None):
    """A NUMA node with `gib` GiB; cpus: its CPU set, `""` for none (memory of a card)."""
    return Obj("NUMANode", gib=gib, cpus=cpus)


def core(threads=1):
    return Obj("Core", *[Obj("PU") for _ in range(threads)])


def cores(count, threads=1):
    return [core(threads) for _ in range(count)]


def osdev(backend, name="dev", **kw):
    """An OS device; backend None: one without that info."""
    infos = (("Backend", backend),) if backend else ()
    return Obj("OSDev", name=name, osdev_type="5", infos=infos, **kw)


def pci(*below, pci_class="0302"):
    return Obj("PCIDev", *below, pci_class=pci_class)


def gpu(*backends, **kw):
    """A PCI device with an OS device for each backend."""
    devices = [osdev(backend, f"{backend.lower()}{i}") for i, backend in enumerate(backends)]
    return pci(*devices, **kw)


def render(root, allowed=None):
    """The document. allowed: mask of the allowed processors (default: all)."""
    state = {"gp": 0, "pu": 0, "numa": 0, "core": 0, "bus": 0}
    _number(root, state)
    _numas(root, root.mask, state)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
             '<topology version="2.0">']  # fmt: skip
    _write(root, lines, 1, state, root.mask if allowed is None else allowed)
    lines.append("</topology>")
    return "\n".join(lines) + "\n"


def _number(obj, state):
    """Give processors and cores their numbers, and every object its CPU set."""
    obj.mask = 0
    if obj.type == "PU":
        obj.mask = 1 << state["pu"]
        obj.attributes["os_index"] = str(state["pu"])
        state["pu"] += 1
    if obj.type == "Core":
        obj.attributes["os_index"] = str(state["core"])
        state["core"] += 1
    for below in obj.below:
        obj.mask |= _number(below, state)
    return obj.mask


def _numas(obj, around, state):
    """NUMA nodes take the CPU set of the object they are attached to; node sets follow from
    them."""
    obj.nodes = 0
    for below in obj.below:
        if below.type == "NUMANode":
            below.mask = obj.mask if below.cpus is None else int(below.cpus or "0", 16)
            below.nodes = 1 << state["numa"]
            below.attributes["os_index"] = str(state["numa"])
            state["numa"] += 1
            obj.nodes |= below.nodes
    for below in obj.below:
        if below.type != "NUMANode":
            obj.nodes |= _numas(below, around, state)
    return obj.nodes


IO_TYPES = ("Bridge", "PCIDev", "OSDev", "Misc")


def _write(obj, lines, depth, state, allowed, nodes=0):
    state["gp"] += 1
    attributes = {"type": obj.type}
    attributes.update(obj.attributes)
    nodes = obj.nodes or nodes
    if obj.type not in IO_TYPES:
        sets = dict.fromkeys(("cpuset", "complete_cpuset"), obj.mask)
        sets.update(dict.fromkeys(("nodeset", "complete_nodeset"), nodes))
        if obj.type == "Machine":
            attributes["os_index"] = "0"
            sets.update(allowed_cpuset=allowed, allowed_nodeset=nodes)
        attributes.update({key: bitmap(mask) for key, mask in sets.items()})
    attributes["gp_index"] = str(state["gp"])
    if obj.type == "NUMANode":
        attributes["local_memory"] = str(int(obj.gib * (1 << 30)))
    if obj.type == "Bridge":
        state["bus"] += 1
        bus = state["bus"]
        attributes.update(bridge_type="0-1", depth="0", bridge_pci=f"0000:[{bus:02x}-{bus:02x}]")
    if obj.type == "PCIDev":
        state["bus"] += 1
        kind = attributes.pop("pci_class")
        attributes["pci_busid"] = f"0000:{state['bus']:02x}:00.0"
        attributes["pci_type"] = f"{kind} [10de:20b0] [10de:20b0] a1"
        attributes["pci_link_speed"] = "31.5"
    text = " ".join(f"{key}={quoteattr(str(value))}" for key, value in attributes.items())
    pad = "  " * depth
    lines.append(f"{pad}<object {text}>")
    for key, value in obj.infos:
        lines.append(f"{pad}  <info name={quoteattr(key)} value={quoteattr(value)}/>")
    order = {"NUMANode": 0, "Bridge": 2, "PCIDev": 2, "OSDev": 2}
    for below in sorted(obj.below, key=lambda sub: order.get(sub.type, 1)):
        _write(below, lines, depth + 1, state, allowed, nodes)
    lines.append(f"{pad}</object>")


def bitmap(mask):
    """A CPU or node set as hwloc writes it: 32 bits a word, highest first."""
    words = []
    while mask or not words:
        words.append(f"0x{mask & 0xFFFFFFFF:08x}")
        mask >>= 32
    return ",".join(reversed(words))
