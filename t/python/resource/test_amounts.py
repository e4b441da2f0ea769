# SPDX-License-Identifier: LGPL-3.0-or-later
"""Amounts on nodes: tables, allocation, free, and jobs found running."""

import functools
import json
import re

import pool_model
import pytest

from flux.resource import ResourcePool
from flux.resource.errors import InfeasibleRequest, InsufficientResources
from flux.resource.TreePool import TreePool
from flux.scheduler.testing import make_R


def topology(memory, cores="0-7"):
    topo = {"socket": [{"cores": cores, "memory": memory // 2}, {"memory": memory // 2}]}
    return {"writer": "TreePool", "children": [{"ranks": "0-3", "topo": topo}]}


def R_of(**more):
    """R of four nodes of eight cores."""
    return make_R(4, 8, properties={"big": "3"}, **more)


ask = functools.partial(pool_model.ask, duration=60.0)


def pool_of(amounts, **kwargs):
    pool = ResourcePool(R_of(**kwargs), amounts=amounts)
    pool.clock = lambda: 0.0
    return pool


def in_use(pool):
    return {one["amount"]: one["in_use"] for one in pool.amounts_in_use()}


@pytest.mark.parametrize(
    "table, said",
    [
        ({"memory": "240G"}, ("960G", "240G")),
        ("memory=240G", ("960G", "240G")),
        ({"memory": 240}, ("960G", "240G")),
        ({"memory": "1.5T"}, ("6T", "1536G")),
        ({"memory": {"each": "100G", "hosts": {"n[0-1]": "50G"}}}, ("300G", "100G")),
        ({"memory": {"each": "100G", "properties": {"big": "200G"}}}, ("500G", "200G")),
        ({"memory": {"hosts": {"n3": "512M"}}}, ("512M", "512M")),
        ({"memory": {"each": "1000G", "hosts": {"n3": "1500M"}}}, ("3001G", "1000G")),
        ({"fpga": {"each": 2, "hosts": {"n0": 0}}}, (6, 2)),
    ],
)
def test_totals_and_largest_of_a_table(table, said):
    (one,) = pool_of(table).amounts_in_use()
    assert (one["total"], one["largest"]) == said


@pytest.mark.parametrize(
    "table, text",
    [
        ([], "amounts=[]: expected a table"),
        ({"memory": "lots"}, "memory.each='lots': expected an amount such as 512M or 4G"),
        ({"memory": -1}, "memory.each=-1: expected"),
        ({"fpga": 1.5}, "fpga.each=1.5: expected a whole number, 0 to 65536"),
        ({"memory": {"per": 1}}, "memory.per: unknown key"),
        ({"memory": {"hosts": {"n[": 1}}}, "memory.hosts: invalid hostlist"),
        ({"memory": {"hosts": 3}}, "memory.hosts=3: expected a table"),
        ({"memory": {"each": 1, "default": "x"}}, "memory.default='x': expected"),
        ({"a b": 1}, "'a b' is not a name"),
        ({f"a{n}": 1 for n in range(9)}, "9 of them, at most 8"),
    ],
)
def test_wrong_tables_are_named(table, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        pool_of(table)


def test_totals_of_R():
    """Memory of the domains of RFC 49 adds up; recorded amounts take precedence."""
    for scheduling, total in (
        (topology(64), "256G"),
        ({**topology(64), "amounts": {"memory": {"0": "1G", "1-3": "2G"}}}, "7G"),
        # numbered by the enclosing instance
        ({"amounts": {"memory": {"5": "1G", "7-9": "2G"}}}, "7G"),
        (None, None),
    ):
        pool = pool_of({"memory": "R"}, scheduling=scheduling)
        assert [one["total"] for one in pool.amounts_in_use()] == [total] * (total is not None)


@pytest.mark.parametrize(
    "asked, text",
    [
        ({"memory": "much"}, "system.memory='much': expected an amount"),
        ({"memory": {"per-core": 1}}, "system.memory={'per-core': 1}: expected per-node or per-slot"),
        ({"memory": {"per-node": 1}}, "system.memory.per-node: the job asks for no nodes"),
        ({"amounts": {"disk": 1}}, "system.amounts: 'disk' is not counted here, only memory, fpga"),
        ({"amounts": {"fpga": "1G"}}, "system.amounts.fpga='1G': expected a whole number, 0 to 65536"),
        ({"amounts": 1}, "system.amounts: expected an object, got 1"),
    ],
)  # fmt: skip
def test_wrong_requests_are_named(asked, text):
    pool = pool_of({"memory": "64G", "fpga": 1})
    with pytest.raises(ValueError, match=re.escape(text)):
        ask(pool, **asked)


@pytest.mark.parametrize(
    "asked, taken",
    [
        ({"memory": "4G"}, "4G"),
        ({"memory": 4}, "4G"),
        ({"amounts": {"memory": "4096M"}}, "4G"),
        ({"slots": 3, "memory": "4G"}, "12G"),
        ({"nodes": 2, "slots": 3, "memory": "4G"}, "8G"),
        ({"nodes": 2, "slots": 3, "memory": {"per-slot": "4G"}}, "24G"),
        ({"nodes": 2, "slots": {"min": 1, "max": 4}, "memory": {"per-slot": "4G"}}, "32G"),
        ({"nodes": 2, "exclusive": True}, "128G"),
        ({"nodes": 1, "exclusive": True, "memory": "1G"}, "64G"),
        ({"memory": "1M"}, "64M"),  # a step is 1/1024 of the largest node
        ({}, 0),
    ],
)
@pytest.mark.parametrize("tree", (False, True))
def test_amounts_of_a_job(asked, taken, tree):
    R = R_of(scheduling=topology(64))
    pool = (TreePool if tree else ResourcePool)(R, amounts={"memory": "R"})
    alloc = pool.alloc(1, ask(pool, **asked))
    assert in_use(pool) == {"memory": taken or "0B"}
    assert ("memory=" in alloc.dumps()) == bool(taken)
    pool.check()

    # R has it, and another pool finds the job again with the same.
    again = (TreePool if tree else ResourcePool)(R, amounts={"memory": "R"})
    again.register_alloc(1, json.dumps(alloc.to_dict()))
    assert in_use(again) == in_use(pool) and again.held_ranks(1) == pool.held_ranks(1)
    again.check()
    again.free(1, alloc.to_dict(), final=True)
    pool.free(1)
    assert in_use(again) == in_use(pool) == {"memory": "0B"}


def test_ranks_that_are_given_back_in_parts():
    """R of a partial release names cores only."""
    pool = pool_of({"memory": "64G"})
    alloc = pool.alloc(1, ask(pool, nodes=2, slots=2, memory="40G")).to_dict()
    part = json.loads(json.dumps(alloc))
    part["execution"]["R_lite"][0]["rank"] = "1"
    del part["scheduling"]
    pool.free(1, part)
    assert in_use(pool) == {"memory": "40G"}
    pool.check()
    part["execution"]["R_lite"][0]["rank"] = "0"
    pool.free(1, part, final=True)
    assert in_use(pool) == {"memory": "0B"}


@pytest.mark.parametrize("tree", (False, True))
def test_reasons(tree):
    R = R_of(scheduling=topology(64))
    pool = (TreePool if tree else ResourcePool)(R, amounts={"memory": "R"})
    for want, text in (
        ({"nodes": 1, "memory": "65G"}, "need 1 node(s) with 1 core and 65 GiB memory each, only 0 eligible"),
        ({"slots": 9, "memory": "32G"}, "need 9 slot(s) of 1 core and 32 GiB memory, only 8 such slot(s)"),
    ):  # fmt: skip
        with pytest.raises(InfeasibleRequest, match=re.escape(text)):
            pool.alloc(1, ask(pool, **want))
    pool.alloc(2, ask(pool, nodes=4, memory="40G"))
    text = "needs 2 nodes with 1 core and 30 GiB memory, 0 free of 4 nodes (4 busy)"
    with pytest.raises(InsufficientResources, match=re.escape(text)):
        pool.alloc(1, ask(pool, nodes=2, memory="30G"))
    # Cores are free for those that need no more memory than is left.
    pool.alloc(3, ask(pool, nodes=4, slots=7, memory="24G"))
    assert in_use(pool) == {"memory": "256G"}


def test_a_hook_sees_cores_for_as_many_slots_as_memory_allows():
    from flux.resource.Rv1Pool import Rv1Pool

    seen = []

    class Mine(Rv1Pool):
        def _select_resources(self, candidates, request):
            seen.extend(sorted(one[2]) for one in candidates)
            return super()._select_resources(candidates, request)

    pool = Mine(R_of(), amounts={"memory": "64G"})
    alloc = pool.alloc(1, ask(pool, slots=4, memory="20G"))
    assert seen == [[0, 1, 2]] * 4
    assert alloc.to_dict()["scheduling"]["amounts"]["memory"] == {"0": "60G", "1": "20G"}


def test_counts_change_only_while_no_job_has_resources():
    pool = ResourcePool(R_of())
    pool.count_amounts({"memory": "64G"})
    pool.alloc(1, ask(pool, memory="1G"))
    with pytest.raises(ValueError, match="while jobs have resources"):
        pool.count_amounts({})
    pool.free(1)
    pool.count_amounts({})
    assert pool.amounts_in_use() == []


@pytest.mark.parametrize("nodes, lost", [(3, []), (4, [2])])
def test_a_plan_beside_what_holds_an_amount_without_a_core(nodes, lost):
    """As what is kept for a taker where another job has all cores, for an unknown time."""
    pool = pool_of({"memory": "8G"})
    pool.alloc(1, ask(pool, nodes=1, cores=8))
    plan = pool.plan()
    plan.reserve(2, ask(pool, nodes=nodes, exclusive=True), 60.0)
    pool.hold_free(-1, pool.held_ranks(1), 0.0)
    assert plan.stale() == lost
