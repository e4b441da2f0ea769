# SPDX-License-Identifier: LGPL-3.0-or-later
"""Test vectors of the TreePool format (RFC 49 and ours): allocations add up down each list."""

import json

import pytest
from tree_help import alloc, jobspec_of_shape, topo_R

from flux.resource import ResourcePool
from flux.resource.TreePool import TreePool


def numas(first, cores, count, gpu):
    """`count` numa domains of `cores` cores and a GPU each, numbered on from `first` and `gpu`."""
    return [
        {"cores": f"{first + i * cores}-{first + (i + 1) * cores - 1}", "gpus": str(gpu + i)}
        for i in range(count)
    ]


TOPO_A = {"socket": [{"numa": numas(0, 15, 4, 0)}, {"numa": numas(60, 15, 4, 4)}]}
TOPO_B = {"socket": numas(0, 24, 4, 0)}
TOPO_M = {"socket": [{"numa": numas(0, 4, 2, 0)}, {"numa": numas(8, 4, 2, 2)}]}

CLUSTERS = {
    "A": topo_R((16, "0-119", "0-7", TOPO_A)),
    "B": topo_R((1152, "0-95", "0-3", TOPO_B)),
    "M": topo_R((2, "0-15", "0-3", TOPO_M), (2, "0-7", "", {"cores": "0-7"})),
}

VECTORS = {
    "A": [
        ("slot=1/node=1/[core=8;gpu=1]", "rank0/core[0-7],gpu0"),
        ("slot=1/node=1/[core=8;gpu=1]", "rank0/core[15-22],gpu1"),
        ("node/slot=8/[core=15;gpu=1]", "rank1/core[0-119],gpu[0-7]"),
        ("slot=4/node/core=120", "rank[2-5]/core[0-119]"),
        ("slot=1/node=1/core=4", "rank0/core[8-11]"),
        ("slot=1/node=1/[core=15;gpu=1]", "rank0/core[30-44],gpu2"),
        ("node/slot=6/[core=15;gpu=1]", "rank6/core[0-89],gpu[0-5]"),
        ("slot=1/node=1/[core=60;gpu=4]", "rank0/core[60-119],gpu[4-7]"),
        ("slot=1/numa{x}", "rank0/core[45-59],gpu3"),
        ("slot=1/socket{x}", "rank7/core[0-59],gpu[0-3]"),
        ("slot=1/node{x}", "rank8/core[0-119],gpu[0-7]"),
    ],
    "B": [
        ("slot=1/node=1/[core=24;gpu=1]", "rank0/core[0-23],gpu0"),
        ("slot=1/node=1/[core=24;gpu=1]", "rank0/core[24-47],gpu1"),
        ("node/slot=4/[core=24;gpu=1]", "rank1/core[0-95],gpu[0-3]"),
        ("slot=4/node/[core=96;gpu=4]", "rank[2-5]/core[0-95],gpu[0-3]"),
        ("slot=1/node=1/core=8", "rank0/core[48-55]"),
        ("slot=1/node=1/[core=24;gpu=1]", "rank0/core[72-95],gpu3"),
        ("node/slot=3/[core=24;gpu=1]", "rank6/core[0-71],gpu[0-2]"),
        ("slot=1/socket{x}", "rank6/core[72-95],gpu3"),
        ("slot=1/node{x}", "rank7/core[0-95],gpu[0-3]"),
    ],
    "M": [
        ("slot=1/core=2", "rank2/core[0-1]"),
        ("node/slot=2/[core=2;gpu=1]", "rank0/core[0-1,4-5],gpu[0-1]"),
        ("slot=1/core=1", "rank2/core2"),
        ("slot=1/[core=3;gpu=1]", "rank0/core[8-10],gpu2"),
        ("slot=1/[core=5;gpu=1]", "rank0/core[11-15],gpu3"),
        ("slot=1/core=6", "rank3/core[0-5]"),
        ("slot=1/numa{x}", "rank1/core[0-3],gpu0"),
        ("slot=1/socket{x}", "rank1/core[8-15],gpu[2-3]"),
        ("slot=1/node{x}", "InsufficientResources"),
    ],
}


@pytest.mark.parametrize("cluster", VECTORS)
def test_vectors(cluster):
    pool = TreePool(json.dumps(CLUSTERS[cluster]))
    for number, (shape, expected) in enumerate(VECTORS[cluster], 1):
        assert alloc(pool, number, shape) == expected, f"{cluster}{number} {shape}"
        pool._check()


def test_the_trimmed_key_of_A4_and_its_renumbering():
    pool = TreePool(CLUSTERS["A"])
    for number, (shape, _) in enumerate(VECTORS["A"][:3], 1):
        alloc(pool, number, shape)
    R = pool.alloc(4, pool.parse_resource_request(jobspec_of_shape(VECTORS["A"][3][0]))).to_dict()
    assert R["scheduling"] == {"writer": "TreePool", "children": [{"ranks": "2-5", "topo": TOPO_A}]}
    for entry in R["execution"]["R_lite"]:
        assert entry["rank"] == "2-5"
        entry["rank"] = "0-3"
    assert TreePool(R).to_dict()["scheduling"]["children"] == [{"ranks": "0-3", "topo": TOPO_A}]


def test_an_unknown_level_is_infeasible():
    assert alloc(TreePool(CLUSTERS["M"]), 1, "slot=1/tray{x}") == "InfeasibleRequest"


@pytest.mark.parametrize("shape", ["slot=3/core=3", "node=2/slot=2/[core;gpu]", "slot=1-40/core=5"])
def test_without_levels_as_many_cores_as_the_plain_pool(shape):
    R = topo_R((4, "0-15", "0-3", {"cores": "0-15", "gpus": "0-3"}))
    counts = []
    for pool in (TreePool(R), ResourcePool(R)):
        given = pool.alloc(1, pool.parse_resource_request(jobspec_of_shape(shape))).impl.entries()
        counts.append(sum(bin(m).count("1") * bin(cores).count("1") for m, cores, _ in given))
    assert counts[0] == counts[1]
