# SPDX-License-Identifier: LGPL-3.0-or-later
"""Machines made for the tests, with the results of `flux.resource.hwloc.amend` for each, worked out by hand."""

from hwloc_xml import (
    bridge,
    core,
    cores,
    die,
    gpu,
    group,
    l3,
    machine,
    numa,
    osdev,
    pci,
    pkg,
    render,
)
from shared import SRCDIR


def leaf(cores, memory=None, gpus=None):
    """A domain without levels: its cores and GPUs (idsets), its GiB of memory; None: none."""
    found = {"cores": cores, "gpus": gpus, "memory": memory}
    return {name: value for name, value in found.items() if value is not None}


def level(name, *below, **own):
    """A domain with a level of domains, and its own resources."""
    return {name: list(below), **own}


def pair(make, *below):
    """Two objects, each with these in it: functions are called for each."""
    return [make(*(one for part in below for one in part())) for _ in range(2)]


#: name -> (XML, topology, cores, GPUs of the node; None: none)
MACHINES = {
    # Two GPUs a socket, two threads a core; t2050 starts an instance with it.
    "two-socket-four-gpu": (
        (SRCDIR / "t" / "hwloc" / "two-socket-four-gpu.xml").read_text(encoding="utf-8"),
        level("socket", leaf("0-3", 64, "0-1"), leaf("4-7", 64, "2-3")), "0-7", "0-3",
    ),
    # Groups round pairs of packages that have memory: the level is called numa, as reference and rule have it.
    "boards": (
        render(machine(*pair(group, lambda: pair(pkg, lambda: [numa(4), *cores(2)])))),
        level("numa", level("socket", leaf("0-1", 4), leaf("2-3", 4)), level("socket", leaf("4-5", 4), leaf("6-7", 4))),
        "0-7", None,
    ),
    # The same without memory of their own: Group.
    "boards-one-memory": (
        render(machine(numa(64), *pair(group, lambda: pair(pkg, lambda: cores(2))))),
        level("Group", level("socket", leaf("0-1"), leaf("2-3")), level("socket", leaf("4-5"), leaf("6-7")), memory=64),
        "0-7", None,
    ),
    # Dies are a level of their own; the one NUMA node over both packages is none, its bytes are the node's.
    "dies-one-memory": (
        render(machine(numa(100), *pair(pkg, lambda: pair(die, lambda: cores(2))))),
        level("socket", level("Die", leaf("0-1"), leaf("2-3")), level("Die", leaf("4-5"), leaf("6-7")), memory=100),
        "0-7", None,
    ),
    # Memory at each L3 cache: numa without any Group.
    "cache-numa": (
        render(machine(pkg(l3(numa(8), *cores(2)), l3(numa(8), *cores(2), bridge(gpu("RSMI", "OpenCL")))))),
        level("numa", leaf("0-1", 8), leaf("2-3", 8, "0")), "0-3", "0",
    ),
    # A memory-only node at the machine is no level, and its bytes are not counted.
    "cxl-memory": (
        render(machine(numa(512, cpus=""), *pair(pkg, lambda: [numa(64), *cores(4)]))),
        level("socket", leaf("0-3", 64), leaf("4-7", 64)), "0-7", None,
    ),
    # Two packages, DRAM and HBM over the same cores: the two leaves of a socket overlap and both list its GPU.
    "hbm-flat": (
        render(machine(*(pkg(numa(64), numa(16), *cores(4), bridge(gpu(kind))) for kind in ("CUDA", "RSMI")))),
        level(
            "socket",
            level("numa", leaf("0-3", 64, "0"), leaf("0-3", 16, "0")),
            level("numa", leaf("4-7", 64, "1"), leaf("4-7", 16, "1")),
        ), "0-7", "0-1",
    ),
    # Each row of the table of duplicates, one PCI device a row.
    "duplicates": (
        render(machine(pkg(numa(9), *cores(2), bridge(
            gpu("CUDA", "OpenCL", "NVML"), gpu(*["RSMI"] * 6), gpu("CUDA", "CUDA", "NVML"), gpu("NVML", "CUDA", "CUDA"),
            gpu("OpenCL", "OpenCL", "CUDA"), pci(osdev("LevelZero"), osdev("GL"), osdev(None)),
        )))),
        leaf("0-1", 9, "0-11"), "0-1", "0-11",
    ),
    # No processor of package 0 is allowed: it goes, the GPU at it stays with the machine.
    "gpu-of-gone-package": (
        render(
            machine(pkg(numa(1), *cores(2), bridge(gpu("NVML"))), pkg(numa(2), *cores(2)), pkg(numa(2), core(2))),
            allowed=0b111100,
        ),
        level("socket", leaf("0-1", 2), leaf("2", 2), gpus="0"), "0-2", "0",
    ),
    # A GPU without PCI device beside one that has one at the machine: both are listed at the top.
    "loose-gpu": (
        render(machine(*pair(pkg, lambda: [numa(1), *cores(2)]), osdev("CUDA"), bridge(gpu("CUDA")))),
        level("socket", leaf("0-1", 1), leaf("2-3", 1), gpus="0-1"), "0-3", "0-1",
    ),
    # OS devices and not one PCI device: no GPUs.
    "no-pci": (
        render(machine(pkg(numa(1), *cores(2)), osdev("CUDA"), osdev("OpenCL"))),
        leaf("0-1", 1), "0-1", None,
    ),
    # A serial card's PCI device is dropped; the devices below it stay, without PCI device: two GPUs of one card.
    "unused-pci-class": (
        render(machine(
            pkg(numa(1), *cores(2)),
            pkg(numa(1), *cores(2), bridge(gpu("CUDA", "NVML", pci_class="0700"), gpu("CUDA"))),
        )),
        level("socket", leaf("0-1", 1), leaf("2-3", 1, "2"), gpus="0-1"), "0-3", "0-2",
    ),
}  # fmt: skip
