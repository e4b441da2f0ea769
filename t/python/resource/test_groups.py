# SPDX-License-Identifier: LGPL-3.0-or-later
"""Groups of ranks, such as racks: jobs confined to one group, and the packing of all others."""

import itertools
import random

import pytest
from pool_model import ask

from flux.resource import ResourcePool
from flux.resource.pool import groups as groups_module
from flux.resource.pool.groups import GroupBinding, Groups, fewest
from flux.resource.pool.masks import members, popcount
from flux.resource.ResourceCount import ResourceCount
from flux.scheduler.testing import make_R as R


def racks_of(nodes, size):
    """Return racks of `size` nodes each."""
    return Groups("rack", {f"r{at}": ((1 << size) - 1) << at * size for at in range(nodes // size)})


def request_of(pool, within=None, **keys):
    request = ask(pool, **keys)
    return request.with_shape(request.shape.replace(within=within)) if within else request


def possible(masks, free, count, segment, most):
    """Whether it can be had, by trying each set of groups."""
    rooms = [popcount(mask & free) // segment for mask in masks]
    for size in range(1, (most or len(masks)) + 1):
        for chosen in itertools.combinations(rooms, size):
            if sum(chosen) * segment >= count:
                return size
    return None


@pytest.mark.parametrize("seed", range(300))
def test_the_choice_is_as_requested_and_in_the_fewest_groups(seed):
    chance = random.Random(seed)
    nodes = 24
    order = list(range(nodes))
    chance.shuffle(order)
    masks, at = {}, 0
    for number in range(chance.randint(1, 5)):
        size = chance.randint(1, 7)
        masks[f"g{number}"] = sum(1 << rank for rank in order[at : at + size])
        at += size
    masks = {name: mask for name, mask in masks.items() if mask}
    groups = Groups("rack", masks)
    free = chance.getrandbits(nodes) | chance.getrandbits(nodes)
    segment = chance.choice((1, 1, 2, 3))
    most = chance.choice((None, 1, 2))
    count = segment * chance.randint(1, 6)
    within = GroupBinding(groups, segment, most)
    chosen = within.choose([(1, free)], ResourceCount.parse(count), free)
    least = possible(groups.masks, free, count, segment, most)
    assert (chosen != 0) == (least is not None)
    assert (within.best([(1, free)], count) >= count) == (least is not None)
    if not chosen:
        return
    there = chosen & free
    numbers = [popcount(mask & there) for mask in groups.masks if mask & chosen]
    assert len(numbers) == least
    if segment > 1:
        assert popcount(there) == count and all(number % segment == 0 for number in numbers)
    else:
        assert popcount(there) >= count


def test_the_fullest_group_is_taken_and_a_whole_one_last():
    masks = [0b11, 0b1100, 0b110000]
    idle = 0b111100  # one node of the first group is in use
    whole = masks, idle
    assert fewest([(1, 0), (2, 1), (2, 2)], 1, 1, *whole) == [(1, 0)]
    assert fewest([(2, 0), (2, 1), (2, 2)], 2, 1, *whole) == [(2, 0)], "it is begun"
    assert fewest([(1, 0), (2, 1), (2, 2)], 2, 1, *whole) == [(2, 1)]
    assert fewest([(1, 0), (2, 1), (2, 2)], 5, None, *whole) == [(2, 1), (2, 2), (1, 0)]
    assert fewest([(1, 0), (2, 1)], 4, None, *whole) == []
    assert fewest([(1, 0), (2, 1), (2, 2)], 4, 1, *whole) == []


def test_a_range_takes_the_nodes_that_are_together():
    pool = ResourcePool(R(8, 4))
    racks = racks_of(8, 4)
    pool.alloc(1, request_of(pool, nodes=1, slots=4, constraints={"ranks": ["0"]}))
    got = pool.alloc(2, request_of(pool, GroupBinding(racks), nodes="2-8", slots=4))
    assert members(got.ranks) == [4, 5, 6, 7]
    got = pool.alloc(3, request_of(pool, GroupBinding(racks), nodes="2+", slots=4))
    assert members(got.ranks) == [1, 2, 3]


def test_a_promise_in_segments_is_void_on_ranks_that_are_kept_for_no_job():
    """Only the pool finds places for segments: such a promise stays on its ranks."""
    pool = ResourcePool(R(4, 4))
    pool.clock = lambda: 1000.0
    plan = pool.plan()
    request = request_of(pool, GroupBinding(racks_of(4, 2), 2), nodes=2, slots=2, duration=100)
    plan.reserve(4, request, 1050.0)
    first = plan.ranks_of(4)
    assert plan.stale() == []
    only = {"ranks": [str(min(members(first)))]}
    kept = request_of(pool, nodes=1, slots=4, constraints=only, duration=100)
    assert not plan.keep_free(-1, kept, 1100.0)
    assert 4 in plan.stale()


@pytest.fixture
def counts(monkeypatch):
    """How many masks were counted."""
    found = [0]

    def counting(mask):
        found[0] += 1
        return popcount(mask)

    monkeypatch.setattr(groups_module, "popcount", counting)
    return found


GROUPS = 500


def large():
    pool = ResourcePool(R(10000, 4))
    pool.clock = lambda: 1000.0
    racks = racks_of(10000, 20)
    assert len(racks.masks) == GROUPS
    return pool, racks


def test_a_start_counts_each_group_once(counts):
    pool, racks = large()
    request = request_of(pool, GroupBinding(racks), nodes=20, slots=4, duration=100)
    pool.check_feasibility(request)
    counts[0] = 0
    pool.alloc(1, request)
    assert counts[0] <= GROUPS
    pool.pack_by([racks])
    counts[0] = 0
    pool.alloc(2, request_of(pool, nodes=7, slots=4, duration=100))
    pool.alloc(3, request_of(pool, slots=1, duration=100))
    assert counts[0] <= 2 * GROUPS + 10
    counts[0] = 0
    pool.alloc(4, request_of(pool, nodes=9000, slots=4, duration=100))
    assert counts[0] <= GROUPS + 10


def test_nodes_are_chosen_beside_others():
    pool = ResourcePool(R(16, 4))
    pool.pack_by([Groups("block", {"b0": 0x00FF, "b1": 0xFF00}), racks_of(16, 4)])
    beside = 0x0100
    assert pool.choose_nodes(0xFEFF, 2, 0xFEFF, beside) == 0x0600
    # More than are left in its rack: from the other rack of its block.
    assert pool.choose_nodes(0xFEFF, 5, 0xFEFF, beside) == 0x3E00
    assert pool.choose_nodes(0xFEFF, 8, 0xFEFF, beside) == 0xFE01
    assert pool.choose_nodes(0x00FF, 3, 0x00FF, beside) == 0x0007
    assert pool.choose_nodes(0x0000, 3, 0x0000, beside) == 0
