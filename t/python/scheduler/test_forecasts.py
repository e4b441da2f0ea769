# SPDX-License-Identifier: LGPL-3.0-or-later
"""Forecasts for pending jobs: their content, their number, and the records kept of them."""

from peers import R, Rig, jobspec

from flux.scheduler import forecasts
from flux.scheduler.policies import Backfill


def estimates(rig, jobids):
    """The jobs of these that are shown an expected start."""
    return [jobid for jobid in jobids if rig.shown(jobid).get("t_estimate")]


def test_a_promise_that_fair_share_will_take_is_not_told_again_and_again():
    """The user of job 2 will have used more than that of job 3 when job 1 ends."""
    rig = Rig(R(1, 4), Backfill, config={"fairshare": {"period": "1m"}})
    rig.arrive(5, jobspec(3, duration=100), userid=1002, wait=50)
    rig.free(5)
    rig.alloc({1: jobspec(3, duration=1000), 2: jobspec(4, duration=100)}, userid=1001)
    rig.arrive(3, jobspec(4, duration=100), userid=1002, wait=3)
    rig.arrive(4, jobspec(1, duration=10), wait=20)
    rig.free(4, wait=5)
    told = [one["annotations"]["sched"] for one in rig.answers(2)]
    assert [one["t_estimate_kind"] for one in told if "t_estimate" in one] == ["planned"]


def test_as_many_jobs_as_may_are_told_an_expected_start():
    """Jobs of whole nodes, which wait for one another."""
    rig = Rig(R(4, 2), Backfill, "queue-depth=unlimited", "estimate-depth=5", "reason-depth=3")
    rig.arrive(range(1, 12), jobspec(4, cores=2, duration=100), wait=10)
    assert estimates(rig, range(1, 12)) == [2, 3, 4, 5, 6]
    assert len(rig.sched.forecasts.sent) == 5
    # A job that is no longer among them has none.
    rig.arrive((20, 21), jobspec(4, cores=2, duration=100), priority=17, wait=10)
    assert estimates(rig, [*range(1, 12), 20, 21]) == [2, 3, 4, 20, 21]
    rig.cancel(20, wait=10)
    assert estimates(rig, [*range(1, 12), 21]) == [2, 3, 4, 5, 21]
    assert not rig.logged(3)


def test_nothing_is_projected_again_while_nothing_happens(monkeypatch):
    """A burst of events delays reasons and estimates, estimates for longer."""
    monkeypatch.setattr(forecasts, "QUIET_TIME_S", 1.0)
    monkeypatch.setattr(forecasts, "ESTIMATE_INTERVAL_S", 0.15)
    rig = Rig(R(1, 2), Backfill)
    rig.arrive(1, jobspec(2, duration=1000))
    rig.arrive(2, jobspec(2, duration=100), wait=30)
    rig.arrive(3, jobspec(2, duration=100), wait=0.05)
    rig.arrive(4, jobspec(2, duration=100), wait=5)
    assert (rig.estimate(3), rig.estimate(4)) == ((1100, "planned"), (1200, "planned"))
    count = rig.sched._projections.count
    rig.wait(60)
    assert rig.sched._projections.count == count


def test_a_job_that_a_new_rule_defers_is_not_shown_its_former_promise():
    """The promises had been dropped, to be made again."""
    args = ("guarantee=none", "promise=2", "estimate-depth=0")
    rig = Rig(R(4, 4), "sched-backfill", *args)
    rig.arrive(1, jobspec(1, nodes=4, exclusive=True, duration=200), wait=3)
    rig.arrive((2, 3), jobspec(1, nodes=2, exclusive=True, duration=100), wait=3)
    assert rig.estimate(3) == (200, "promised")
    rig.reconfigure({"limits": {"small": {"per": "user", "max": {"nodes": 1}}}})
    rig.free(1, wait=3)
    assert rig.reason(3) == "limit small: needs 2 nodes, at most 1 is allowed"
    assert estimates(rig, (2, 3)) == []


def test_a_start_behind_a_job_whose_start_is_unknown_is_planned():
    """What is kept free for that one is chosen anew in each pass."""
    rig = Rig(R(4, 4), "sched-backfill", "promise=unlimited", "estimate-depth=0")
    for jobid, nodes, limit in ((1, 2, 0), (2, 1, 100), (3, 1, 200), (4, 3, 10), (5, 1, 50)):
        rig.arrive(jobid, jobspec(1, nodes=nodes, exclusive=True, duration=limit), wait=0)
    assert rig.estimate(5) == (200, "planned")
    rig.cancel(4, wait=0)
    assert rig.estimate(5) == (100, "promised")
