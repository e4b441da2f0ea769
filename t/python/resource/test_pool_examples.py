# SPDX-License-Identifier: LGPL-3.0-or-later
"""The pools in the guide's page on pools (doc/examples) behave as documented."""

import importlib.util
import sys

import pytest
from pool_model import ask

from flux.resource import InfeasibleRequest, InsufficientResources
from flux.scheduler.policies import Backfill
from flux.scheduler.testing import FakeInstance, make_R


def R(lite="0-11", racks=("0-3", "4-7", "8-11")):
    racks = [{"name": "r" + ranks, "ranks": ranks} for ranks in racks]
    return make_R(lite, 4, scheduling={"writer": "rackaware", "racks": racks})


def load(srcdir, name):
    path = srcdir / "doc" / "examples" / (name + ".py")
    spec = importlib.util.spec_from_file_location("example_" + name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.pool_class


def request(pool, nodes, **system):
    return ask(pool, 1, 4, nodes=nodes, duration=60.0, **system)


@pytest.fixture(params=["rackaware", "rackmasks"])
def pool(request, srcdir):
    made = load(srcdir, request.param)(R())
    made.clock = lambda: 1000.0
    return made


def test_one_rack_if_any_holds_it(pool):
    assert pool.alloc(1, request(pool, 2)).dumps() == "rank[0-1]/core[0-3]"
    # The first rack has two nodes left: jobs that fit go there, others go to the next.
    assert pool.alloc(2, request(pool, 3)).dumps() == "rank[4-6]/core[0-3]"
    assert pool.alloc(3, request(pool, 1)).dumps() == "rank7/core[0-3]"
    assert pool.alloc(4, request(pool, 2)).dumps() == "rank[2-3]/core[0-3]"
    alloc = pool.alloc(5, request(pool, 3))
    assert alloc.dumps() == "rank[8-10]/core[0-3]"
    assert type(alloc) is type(pool) and alloc.to_dict()["scheduling"] == R()["scheduling"]
    pool._check()


def test_more_than_a_rack(pool):
    assert pool.alloc(1, request(pool, 6)).to_dict()["execution"]["nslots"] == 6
    with pytest.raises(InsufficientResources):
        pool.alloc(2, request(pool, 7))
    with pytest.raises(InfeasibleRequest):
        pool.alloc(2, request(pool, 13))
    assert pool.earliest(request(pool, 7)) == 1060.0


def test_planning_keeps_to_racks(pool):
    plan = pool.plan()
    plan.reserve(1, request(pool, 4), 1000.0)
    ranks = plan.alloc(2, request(pool, 4)).to_dict()["execution"]["R_lite"][0]["rank"]
    assert ranks in ("0-3", "4-7", "8-11")


def test_insisting_on_one_rack(srcdir):
    pool = load(srcdir, "rackaware")(R())
    whole = request(pool, 4, **{"one-rack": True})
    for jobid in range(3):
        pool.alloc(jobid, request(pool, 1))
    # All three went into the first rack, the others are whole.
    assert pool.alloc(3, whole).dumps() == "rank[4-7]/core[0-3]"
    assert pool.alloc(4, whole).dumps() == "rank[8-11]/core[0-3]"
    with pytest.raises(InsufficientResources):
        pool.alloc(5, whole)
    pool.check_feasibility(whole)
    with pytest.raises(InfeasibleRequest, match="one rack"):
        pool.check_feasibility(request(pool, 5, **{"one-rack": True}))
    pool.check_feasibility(request(pool, 5))
    pool.remove_ranks("0,4,8")
    with pytest.raises(InfeasibleRequest, match="one rack"):
        pool.alloc(6, whole)
    pool._check()


@pytest.mark.parametrize("argument", ["promise=1", "promise=all", "promise=0"])
def test_jobs_that_may_leave_their_rack_do_not_wait_for_those_that_may_not(srcdir, argument):
    """Their requests have one shape."""
    instance = FakeInstance(R=R("0-7", ("0-3", "4-7")))
    policy = type("Racks", (Backfill,), {"pool_class": load(srcdir, "rackaware")})
    instance.load(policy, argument)
    ends = instance.submit(nodes=8, cores=4, duration=10)
    instance.run_until_idle()
    for rank in ("0", "4"):
        instance.submit(nodes=1, cores=4, duration=1000, constraints={"ranks": rank})
    one_rack = {"nodes": 4, "cores": 4, "duration": 60, "one-rack": True}
    first, second = instance.submit(**one_rack), instance.submit(**one_rack)
    free_to_spread = instance.submit(nodes=4, cores=4, duration=60)
    instance.advance(12)
    assert free_to_spread.t_start == ends.t_end
    assert first.state == second.state == "pending"
    instance.advance(30)
    instance.advance(60)
    assert "enough is free, but RackAware finds no place" in first.reason_pending


def test_only_the_job_that_needs_a_rack_waits_for_its_node(srcdir):
    instance = FakeInstance(R=R("0-7", ("0-3", "4-7")))
    instance.load(type("Racks", (Backfill,), {"pool_class": load(srcdir, "rackaware")}))
    instance.mark_down("0,4")
    instance.submit(nodes=3, cores=4, duration=100)
    instance.run_until_idle()
    bound = instance.submit(nodes=4, cores=4, duration=60, **{"one-rack": True})
    instance.run_until_idle()
    other = instance.submit(nodes=4, cores=4, duration=60)
    instance.advance(101)
    assert other.state == "running" and bound.state == "pending"
    instance.mark_up("0")
    instance.advance(61)
    assert bound.state == "running"
