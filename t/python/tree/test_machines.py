# SPDX-License-Identifier: LGPL-3.0-or-later
"""The machine that libhwloc finds: this one."""

import os

import pytest
from tree_help import alloc

from flux.resource.hwloc.amend import amend, topology_from_xml
from flux.resource.TreePool import TreePool
from flux_engine.formats import rset


def export(hwloc):
    """XML of this machine."""
    ffi, lib = hwloc.ffi, hwloc.lib
    handle = ffi.new("hwloc_topology_t *")
    assert lib.hwloc_topology_init(handle) == 0
    lib.hwloc_topology_set_io_types_filter(handle[0], lib.HWLOC_TYPE_FILTER_KEEP_IMPORTANT)
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
