# SPDX-License-Identifier: LGPL-3.0-or-later
"""A site's own TreePool: hooks choose the nodes, the topology the units on them."""

import pytest
from tree_help import alloc, topo_R

from flux.resource.TreePool import TreePool

NUMAS = {"numa": [{"cores": "0-3", "gpus": "0"}, {"cores": "4-7", "gpus": "1"}]}


class HighestFirstV1(TreePool._impl_map[1]):
    def _sort_candidates(self, candidates):
        return sorted(candidates, key=lambda one: -one[0])


class HighestFirst(TreePool):
    _impl_map = {1: HighestFirstV1}


class SameV1(TreePool._impl_map[1]):
    """Overrides a hook with the base's own, so that placement goes through the hooks."""

    def _sort_candidates(self, candidates):
        return super()._sort_candidates(candidates)


class Same(TreePool):
    _impl_map = {1: SameV1}


def test_only_overridden_hooks_are_run():
    assert not TreePool._impl_map[1].hooked
    assert HighestFirstV1.hooked and SameV1.hooked


def test_a_site_orders_the_nodes():
    pool = HighestFirst(topo_R((3, "0-7", "0-1", NUMAS)))
    assert alloc(pool, 1, "slot/[core=2;gpu]") == "rank2/core[0-1],gpu0"
    assert alloc(pool, 2, "slot/[core=3;gpu]") == "rank2/core[4-6],gpu1"
    assert alloc(pool, 3, "node=2/slot/[core;gpu]") == "rank[0-1]/core0,gpu0"
    assert alloc(pool, 4, "slot/numa{x}") == "rank1/core[4-7],gpu1"
    assert alloc(pool, 5, "slot=3/numa{x}") == "InsufficientResources"
    assert alloc(pool, 6, "slot/numa=3{x}") == "InfeasibleRequest"
    assert alloc(pool, 7, "slot/node{x}") == "InsufficientResources"
    pool._check()


@pytest.mark.parametrize("pool_class", (TreePool, Same))
def test_all_free_cores_are_candidates_whatever_memory_is_left(pool_class):
    numas = {"numa": [{"cores": "0-3"}, {"cores": "4-7", "gpus": "0"}]}
    pool = pool_class(topo_R((2, "0-7", "0", numas)), amounts={"memory": "8G"})
    one = {"memory": "1G"}
    assert alloc(pool, 1, "slot/core=5", **one) == "rank0/core[0-4],memory=1G"
    assert alloc(pool, 2, "slot/[core;gpu]", **one) == "rank0/core5,gpu0,memory=1G"
    assert alloc(pool, 3, "node/slot/numa{x}", **one) == "rank1/core[0-3],memory=1G"
    assert alloc(pool, 4, "slot/core", memory="7G") == "rank1/core4,memory=7G"
    assert alloc(pool, 5, "slot=2/core", memory="3G") == "rank0/core[6-7],memory=6G"
    assert alloc(pool, 6, "slot/core", **one) == "InsufficientResources"
