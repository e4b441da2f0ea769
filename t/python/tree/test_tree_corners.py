# SPDX-License-Identifier: LGPL-3.0-or-later
"""Corners of the tree modules that the broad tests do not reach by themselves."""

import pytest
from own_machines import MACHINES
from tree_help import alloc, topo_R

from flux.resource.hwloc import xml
from flux.resource.hwloc.xml import parse_taskset
from flux.resource.TreePool import TreePool, TreeResourceRequest

SOCKETS = {"socket": [{"cores": "0-3", "gpus": "0"}, {"cores": "4-7", "gpus": "1"}]}
CXL_MEMORY = MACHINES["cxl-memory"][0]


def test_a_request_made_by_hand():
    pool = TreePool(topo_R((2, "0-7", "0-1", SOCKETS)))
    request = TreeResourceRequest(slot_count=3, slot_size=0, container_level="socket")
    assert request.container_level == "socket"
    assert pool.alloc(1, request).dumps() == "rank0/core[0-7],gpu[0-1] rank1/core[0-3],gpu0"
    assert TreeResourceRequest().container_level is None


def test_removing_ranks_that_are_not_there_changes_nothing():
    pool = TreePool(topo_R((1, "0-7", "0-1", SOCKETS)))
    before = pool.to_dict(), pool.generation
    pool.remove_ranks("5-9")
    assert (pool.to_dict(), pool.generation) == before


def test_nodes_with_different_room_in_one_group():
    # Both have four free cores and no free GPU: as one box on rank 0, as two on rank 1.
    half = {"box": [{"cores": "0-3"}, {"cores": "4-7"}]}
    quarter = {"box": [{"cores": f"{2 * i}-{2 * i + 1}"} for i in range(4)]}
    pool = TreePool(topo_R((1, "0-7", "", half), (1, "0-7", "", quarter)))
    alloc(pool, 1, "node=2/slot/core=4")
    assert alloc(pool, 2, "slot=2/box{x}") == "rank0/core[4-7] rank1/core[4-5]"
    pool.free(2)
    assert alloc(pool, 3, "node/slot=2/box{x}") == "rank1/core[4-7]"
    pool.free(3)
    assert alloc(pool, 4, "node/slot=1-3/box{x}") == "rank1/core[4-7]"
    pool.free(4)
    assert alloc(pool, 5, "node=2/slot=1-3/box{x}") == "rank0/core[4-7] rank1/core[4-5]"


def test_domains_that_are_all_of_the_domain_around_them_and_nodes_of_two_kinds():
    whole = {"socket": [{"cores": "0-7", "gpus": "0"}]}
    pairs = {"socket": [{"numa": [{"cores": "0-3"}]}, {"numa": [{"cores": "4-7", "gpus": "0"}]}]}
    pool = TreePool(topo_R((1, "0-7", "0", whole), (1, "0-7", "0", pairs)))
    assert alloc(pool, 1, "node=2/slot/core=2") == "rank[0-1]/core[0-1]"
    assert alloc(pool, 2, "slot/core=4") == "rank0/core[2-5]"
    assert alloc(pool, 3, "slot/core=3") == "rank1/core[4-6]"
    assert alloc(pool, 4, "slot/[core;gpu]") == "rank0/core6,gpu0"
    assert alloc(pool, 5, "slot/core=2") == "rank1/core[2-3]"


def test_many_kinds_of_container_and_states():
    """The memory of an index is bounded, and an eviction changes no answer."""
    names = [f"level{i}" for i in range(12)]
    topo = {name: [{"cores": f"{2 * i}-{2 * i + 1}"} for i in range(8)] for name in names}
    pool = TreePool(topo_R((1, "0-15", "", topo), (1, "0-15", "", topo)))
    for number, name in enumerate(names * 2):
        expected = f"rank{number // 8}/core[{2 * (number % 8)}-{2 * (number % 8) + 1}]"
        if number < 16:
            assert alloc(pool, number + 1, f"slot/{name}{{x}}") == expected
        else:
            assert alloc(pool, number + 1, f"slot/{name}{{x}}") == "InsufficientResources"
        pool._check()
    for number in range(16):
        pool.free(number + 1)
    for count in range(1, 8):
        assert alloc(pool, 100 + count, f"slot={count}/core=1") != "InsufficientResources"
    pool._check()
    assert len(pool.impl.index.asked) <= 8


def test_cpu_sets():
    for text, mask in (("0x0", 0), ("0xff00", 0xFF00), ("0xf...f", -1)):
        assert parse_taskset(text) == mask
    endless = parse_taskset("0xf...f00")
    assert endless & 0xFFF == 0xF00 and endless >> 4000 & 1


def test_a_document_too_large(hwloc, monkeypatch):
    monkeypatch.setattr(xml, "MAX_XML_BYTES", 1 << 20)
    with pytest.raises(RuntimeError, match="larger than 1 MiB"):
        xml.load_xml(" " * ((1 << 20) + 1))


def test_a_host_that_reaps_every_child(hwloc, monkeypatch):
    def reaped(pid, options):
        real(pid, options)
        raise ChildProcessError

    real = xml.os.waitpid
    monkeypatch.setattr(xml.os, "waitpid", reaped)
    assert len(xml.load_xml(CXL_MEMORY).cores) == 8
    monkeypatch.setattr(xml, "_read", lambda binding, data: 1 / 0)
    with pytest.raises(RuntimeError, match="gave up"):
        xml.load_xml(CXL_MEMORY)


def test_objects_nested_too_deeply(hwloc, monkeypatch):
    from flux.resource.hwloc import amend

    def too_deep(self):
        raise RecursionError

    monkeypatch.setattr(amend.TopologyBuilder, "build", too_deep)
    with pytest.raises(RuntimeError, match="nested too deeply"):
        amend.topology_from_xml(CXL_MEMORY)
