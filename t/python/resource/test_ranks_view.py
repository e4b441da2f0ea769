# SPDX-License-Identifier: LGPL-3.0-or-later
"""Ranks and jobs of a pool, and allocations on given ranks, for each kind of pool."""

import functools

import pool_model
import pytest
from test_contract import LedgerPool

from flux.resource import InfeasibleRequest, InsufficientResources, ResourcePool
from flux.resource.TreePool import TreePool

NOW = 1000.0
ALL = 0b1111
BIG = 0b1100  # 8 cores
#: a placeholder's id
NOBODY = -7

ask = functools.partial(pool_model.ask, duration=100.0)

POOLS = [ResourcePool, TreePool, LedgerPool]


def R():
    """Ranks 0-1 with 4 cores and a GPU, ranks 2-3 with 8 cores."""
    return {
        "version": 1,
        "execution": {
            "R_lite": [
                {"rank": "0-1", "children": {"core": "0-3", "gpu": "0"}},
                {"rank": "2-3", "children": {"core": "0-7"}},
            ],
            "nodelist": ["n[0-3]"],
            "properties": {"big": "2-3"},
        },
        "scheduling": {
            "writer": "TreePool",
            "children": [
                {"ranks": "0-1", "topo": {"numa": [{"cores": "0-1"}, {"cores": "2-3"}]}},
                {"ranks": "2-3", "topo": {"numa": [{"cores": "0-3"}, {"cores": "4-7"}]}},
            ],
        },
    }


@pytest.fixture(params=POOLS, ids=lambda cls: cls.__name__)
def pool(request):
    pool = request.param(R())
    pool.clock = lambda: NOW
    return pool


def state_of(pool):
    """All mutable state: free resources of each rank, and each holder with its end."""
    index = pool.impl.index
    return (
        pool.generation,
        [index.free(rank) for rank in range(4)],
        sorted((jobid, end, pool.held_ranks(jobid)) for jobid, end in pool.job_end_times()),
    )


def test_an_allocation_on_given_ranks(pool):
    alloc = pool.alloc_on(1, ask(pool, cores=2, slots=2), 0b0110)
    assert type(alloc) is type(pool)
    assert alloc.to_dict()["execution"]["nslots"] == 2
    assert pool.held_ranks(1) & ~0b0110 == 0
    assert pool.job_end(1) == NOW + 100
    with pytest.raises(ValueError, match="already has an allocation"):
        pool.alloc_on(1, ask(pool), ALL)
    pool.free(1)
    assert pool.idle_ranks == ALL


def test_given_ranks_that_do_not_do(pool):
    before = state_of(pool)
    whole = ask(pool, nodes=2, cores=1, exclusive=True)
    for ranks in (0, 0b1, 0b10000):
        with pytest.raises(InsufficientResources, match="^insufficient resources: "):
            pool.alloc_on(1, whole, ranks)
    with pytest.raises(InsufficientResources, match="on ranks 2-3$"):
        pool.alloc_on(1, ask(pool, cores=4, slots=5), BIG)
    with pytest.raises(InfeasibleRequest):
        pool.alloc_on(1, ask(pool, nodes=1, cores=9), ALL)
    assert state_of(pool) == before


def test_an_id_is_held_for_once(pool):
    assert pool.hold_free(NOBODY, 0b0001, NOW + 60)
    with pytest.raises(ValueError, match="already has an allocation"):
        pool.hold_free(NOBODY, 0b0010, NOW + 60)
    assert pool.held_ranks(NOBODY) == 0b0001
