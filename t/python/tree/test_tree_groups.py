# SPDX-License-Identifier: LGPL-3.0-or-later
"""Groups of nodes above the topology inside a node: TreePool places by both."""

import random

import pytest
from shared import seeds
from test_tree_plan import SHAPES, Clock, first_time, parse
from tree_help import topo_R

from flux.resource.pool.groups import GroupBinding, Groups
from flux.resource.pool.masks import members
from flux.resource.TreePool import TreePool

NUMAS = [{"cores": f"{4 * i}-{4 * i + 3}", "gpus": str(i)} for i in range(4)]
TOPO = {"socket": [{"numa": NUMAS[:2]}, {"numa": NUMAS[2:]}]}
RACKS = Groups("rack", {"a": 0b0011, "b": 0b1100})


def make_pool(nodes=4):
    pool = TreePool(topo_R((nodes, "0-15", "0-3", TOPO)))
    pool.clock = Clock()
    return pool


def together(pool, shape, duration=0, **more):
    request = parse(pool, shape, duration)
    return request.with_shape(request.shape.replace(within=GroupBinding(RACKS, **more)))


def test_sockets_of_one_rack():
    pool = make_pool()
    pool.alloc(1, parse(pool, "slot/socket{x}"))
    request = together(pool, "slot=4/socket{x}")
    got = pool.alloc(2, request)
    assert members(got.ranks) == [2, 3]
    assert pool.explain(request)["reason"] == (
        "insufficient resources: needs 4 slots of 1 exclusive 'socket' container, 3 free on 2 of 4"
        " nodes (2 busy)"
    )
    small = together(pool, "slot=3/socket{x}")
    assert members(pool.alloc(3, small).ranks) == [0, 1]
    pool.free(2)
    pool.alloc(4, parse(pool, "slot/socket{x}"))
    pool.free(3)
    text = "placement: needs 4 slots in one rack: 6 free, at most 3 in one rack"
    assert pool.explain(request)["reason"] == text
    with pytest.raises(TreePool.InfeasibleRequest, match="need 5 slots in one rack, at most 4 in"):
        pool.alloc(5, together(pool, "slot=5/socket{x}"))
    pool.check()


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_placed_together_and_at_the_first_time(seed):
    chance = random.Random(seed)
    pool = make_pool()
    pool.pack_by([RACKS] if seed % 2 else [])
    for jobid in range(1, 20):
        duration = chance.choice((10, 20, 20, 30, 45))
        shape = chance.choice(SHAPES)
        most = chance.choice((None, 1))
        request = (parse if most is None else together)(pool, shape, duration)
        try:
            got = pool.alloc(jobid, request)
        except (TreePool.InsufficientResources, TreePool.InfeasibleRequest):
            continue
        assert most is None or len(RACKS.names_of(got.ranks)) == 1
        pool.check()
    for shape in SHAPES:
        request = together(pool, shape, 15)
        try:
            pool.check_feasibility(request)
        except TreePool.InfeasibleRequest:
            continue
        assert pool.earliest(request) == first_time(pool, request), shape
