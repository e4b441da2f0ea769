# SPDX-License-Identifier: LGPL-3.0-or-later
"""sched-fifo and sched-simple: strict order, estimates, reasons, and the hooks of sched-simple."""

import errno

import pytest
from peers import R, Rig, jobspec, whole

from flux.resource import InsufficientResources, Rv1Pool
from flux.scheduler import forecasts
from flux.scheduler.policies import Backfill, Fifo

DEBUG = 7
BOTH = pytest.mark.parametrize("module", ["sched-fifo", "sched-simple"])


@BOTH
def test_times_of_R(module):
    rig = Rig(R(1, 4), module)
    rig.alloc({1: jobspec(1, duration=100), 2: jobspec(1)})
    first, second = (rig.success(jobid)["R"]["execution"] for jobid in (1, 2))
    assert (first["starttime"], first["expiration"]) == (rig.now, rig.now + 100)
    assert (second["starttime"], second["expiration"]) == (rig.now, 0.0)
    rig.resource.update(expiration=rig.now + 5000)
    rig.settle()
    rig.alloc(3, jobspec(1))
    assert rig.success(3)["R"]["execution"]["expiration"] == rig.now + 5000
    assert rig.success(3)["annotations"] == {"sched": {"resource_summary": "rank0/core2"}}


@BOTH
def test_reasons(module):
    rig = Rig(R(4, 4), module)
    rig.alloc({1: jobspec(1, nodes=3, exclusive=True), 2: jobspec(1, nodes=2, exclusive=True)})
    rig.alloc(3, jobspec(1))
    needs = "needs 2 nodes (exclusive), 1 free of 4 nodes (3 busy)"
    assert rig.reason(2) == f"insufficient resources: {needs}"
    assert rig.reason(3) == "behind ƒ3"
    rig.resource.update(down="1-3")
    assert rig.reason(2) == "3 of 4 matching nodes are down"
    rig.resource.update(up="1-3")
    rig.free(1)
    assert rig.success(2)["annotations"]["sched"]["reason_pending"] is None
    assert "reason_pending" not in rig.shown(2)


@pytest.mark.parametrize("policy", [Fifo, Backfill])
def test_a_pool_that_raises_insufficient_resources_itself(policy):
    class Even(Rv1Pool):
        def _select_resources(self, candidates, request):
            even = [one for one in candidates if one[0] % 2 == 0]
            if len(even) < request.nnodes:
                raise InsufficientResources("too few even ranks")
            return super()._select_resources(even, request)

    kind = type("EvenPolicy", (policy,), {"pool_class": Even})
    rig = Rig(R(4, 4), kind)
    for jobid in (1, 2, 3):
        rig.alloc(jobid, jobspec(1, nodes=jobid % 2 + 1, duration=60, exclusive=True))
    assert rig.success(1)
    assert 0 not in [answer["type"] for jobid in (2, 3) for answer in rig.answers(jobid)]
    rig.free(1)
    assert rig.success(2)
    assert rig.sched.stats_get()["errors"] == 0


# -- sched-simple ----------------------------------------------------------------------------------


@pytest.fixture
def simple():
    return Rig(R(1, 4), "sched-simple", "log-level=debug")


def setbit(rig, bit):
    rig.task.aux["debug_flags"] = rig.task.aux.get("debug_flags", 0) | bit


def test_bit_1_denies_every_request(simple):
    setbit(simple, 1)
    simple.alloc(1)
    assert simple.answers(1) == [{"id": 1, "type": 2, "note": "DEBUG_FAIL_ALLOC"}]
    simple.task.aux["debug_flags"] = 0
    simple.alloc(2)
    assert simple.success(2)


def test_bit_2_annotates_jobs_ahead_and_nothing_else(simple):
    setbit(simple, 2)
    simple.alloc(1, jobspec(4, duration=10))
    simple.arrive({jobid: jobspec(1, duration=10) for jobid in (2, 3, 4)})
    for jobid, ahead in ((2, 0), (3, 1), (4, 2)):
        reason = "insufficient resources"
        assert simple.shown(jobid) == {"reason_pending": reason, "jobs_ahead": ahead}
    simple.prioritize((4, 30))
    assert [simple.shown(jobid)["jobs_ahead"] for jobid in (4, 2, 3)] == [0, 1, 2]
    simple.free(1)
    assert simple.shown(4) == {"resource_summary": "rank0/core0"}


def test_bit_2_annotates_a_request_that_came_again_during_a_forecast(simple):
    setbit(simple, 2)
    for jobid, cores in ((1, 4), (2, 1), (3, 1)):
        simple.alloc(jobid, jobspec(cores, duration=10))
    simple.settle()
    forecast = simple.sched.forecast()
    next(forecast)  # job 2 is annotated
    simple.cancel(3, wait=0)
    list(forecast)
    simple.arrive(3, jobspec(1, duration=10))
    assert simple.shown(3)["jobs_ahead"] == 1


def test_bit_4_refuses_expiration_updates(simple):
    simple.arrive(1)
    setbit(simple, 4)
    answer = simple.ask("sched.expiration", {"id": 1, "expiration": 5.0})
    assert answer == (errno.EINVAL, "Rejecting expiration update for testing")
    simple.task.aux["debug_flags"] = 0
    assert simple.ask("sched.expiration", {"id": 1, "expiration": 5.0}) == (0, None)


def test_hello_is_logged():
    rig = Rig(R(1, 4))
    rig.will_be_found(1, R(1, 2), priority=20, userid=7, t_submit=12.345)
    rig.load("sched-simple", "log-level=debug")
    assert rig.logged(DEBUG) == [
        "hello: ƒ2: rank0/core[0-1]",
        "hello: id=ƒ2 priority=20 userid=7 t_submit=12.3",
    ]


# -- when users are told ---------------------------------------------------------------------------


@pytest.fixture
def second(monkeypatch):
    monkeypatch.setattr(forecasts, "QUIET_TIME_S", 1.0)


EVERY = pytest.mark.parametrize("module", ["sched-fifo", "sched-simple", "sched-backfill"])


@EVERY
def test_a_job_is_told_nothing_in_its_first_second(module, second):
    rig = Rig(R(1, 4), module, "queue-depth=unlimited")
    rig.arrive(1, jobspec(4, duration=100))
    start = rig.now
    rig.arrive((2, 3), jobspec(4, duration=100), wait=0.5)
    assert 0 not in [answer["type"] for jobid in (2, 3) for answer in rig.answers(jobid)]
    rig.cancel(3, wait=0.7)  # and no event: its age is enough
    assert rig.shown(2)["t_estimate"] == start + 100
    assert rig.shown(2)["reason_pending"].startswith("insufficient resources")
    assert [answer["type"] for answer in rig.answers(3)] == [3]


@pytest.mark.parametrize("order", ["strict", "queue"])
def test_the_job_ahead_is_another_after_a_change_of_order_without_an_event(order):
    """As by a soft limit, or fair share."""
    rig = Rig(R(2, 4), "sched-fifo", f"order={order}")
    rig.arrive({jobid: whole(2, 100) for jobid in (1, 2, 3)}, wait=2)
    assert [rig.explain(jobid)["behind"][0]["name"] for jobid in (2, 3)] == ["ƒ2", "ƒ3"]
    rig.sched.prioritize([[3, 20]])
    assert [rig.explain(jobid)["behind"][0]["name"] for jobid in (2, 3)] == ["ƒ4", "ƒ2"]
