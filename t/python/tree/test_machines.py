# SPDX-License-Identifier: LGPL-3.0-or-later
"""Machines that libhwloc makes: this one, and synthetic ones whose answer can be computed."""

import os

import pytest
from tree_help import alloc

from flux.resource.hwloc.amend import amend, topology_from_xml
from flux.resource.pool.masks import idset_text
from flux.resource.TreePool import TreePool
from flux_engine.formats import rset


def export(hwloc, synthetic=None):
    """XML of this machine, or of a synthetic one."""
    ffi, lib = hwloc.ffi, hwloc.lib
    handle = ffi.new("hwloc_topology_t *")
    assert lib.hwloc_topology_init(handle) == 0
    lib.hwloc_topology_set_io_types_filter(handle[0], lib.HWLOC_TYPE_FILTER_KEEP_IMPORTANT)
    if synthetic is not None:
        assert lib.hwloc_topology_set_synthetic(handle[0], synthetic.encode()) == 0
    assert lib.hwloc_topology_load(handle[0]) == 0
    text, length = ffi.new("char **"), ffi.new("int *")
    assert lib.hwloc_topology_export_xmlbuffer(handle[0], text, length, 0) == 0
    xml = ffi.string(text[0]).decode()
    lib.hwloc_free_xmlbuffer(handle[0], text[0])
    lib.hwloc_topology_destroy(handle[0])
    return xml


def test_this_machine(hwloc):
    xml = export(hwloc)
    try:
        topo, ncores, ngpus = topology_from_xml(xml)
    except RuntimeError as exc:
        # Some virtual machines describe processors without cores.
        assert "no cores" in str(exc) or "no processors" in str(exc)
        pytest.skip(f"this machine: {exc}")
    R = amend(rset.uniform(["me0", "me1"], ncores, ngpus), xml)
    assert 1 <= ncores <= len(os.sched_getaffinity(0)) or ncores <= (os.cpu_count() or 1)
    pool = TreePool(R)
    assert pool.dumps().startswith("rank[0-1]/core")
    assert alloc(pool, 1, "slot/node{x}").startswith("rank0/")
    assert alloc(pool, 2, "slot/core") == "rank1/core0"
    if ngpus:
        assert alloc(pool, 3, "slot/[core;gpu]").startswith("rank1/")
    assert topo.get("cores") or any(isinstance(value, list) for value in topo.values())


@pytest.mark.parametrize(
    "description, expected, ncores",
    [
        ("pack:2 core:4 pu:2", {"socket": 2, "cores": 4}, 8),
        ("[numa(memory=1GB)] pack:1 core:4 pu:1", {"cores": 4}, 4),
        ("pack:2 [numa(memory=1GB)] core:4 pu:2", {"socket": 2, "cores": 4}, 8),
        ("pack:1 numa:4(memory=1GB) core:2 pu:1", {"numa": 4, "cores": 2}, 8),
        ("pack:2 numa:2(memory=1GB) l3:1 core:3 pu:1", {"socket": 2, "numa": 2, "cores": 3}, 12),
        ("pack:2 die:2 core:3 pu:1", {"socket": 2, "Die": 2, "cores": 3}, 12),
        ("pack:1 die:2 core:3 pu:1", {"Die": 2, "cores": 3}, 6),
        ("pack:2 l3:2 core:2 pu:4", {"socket": 2, "cores": 4}, 8),
        ("group:2 pack:2 core:2 pu:1", {"Group": 2, "socket": 2, "cores": 2}, 8),
        ("pack:4 numa:4(memory=1GB) l3:2 core:4 pu:2", {"socket": 4, "numa": 4, "cores": 8}, 128),
    ],
)
def test_synthetic_machines(hwloc, description, expected, ncores):
    topo, count, ngpus = topology_from_xml(export(hwloc, description))
    assert (count, ngpus) == (ncores, 0)
    each = expected.pop("cores")
    levels = list(expected.items())

    def check(domain, levels, first):
        if not levels:
            cores = idset_text((1 << each) - 1 << first)
            assert domain["cores"] == cores
            return first + each
        name, number = levels[0]
        assert len(domain[name]) == number
        for entry in domain[name]:
            first = check(entry, levels[1:], first)
        return first

    check(topo, levels, 0)
