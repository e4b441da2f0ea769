# SPDX-License-Identifier: LGPL-3.0-or-later
"""Forecasts for pending jobs: their content, their number, and the records kept of them."""

from peers import R, Rig, jobspec

from flux.scheduler.policies import Backfill


def estimates(rig, jobids):
    """The jobs of these that are shown an expected start."""
    return [jobid for jobid in jobids if rig.shown(jobid).get("t_estimate")]


def test_as_many_jobs_as_may_are_told_an_expected_start():
    """Jobs of whole nodes, which wait for one another."""
    rig = Rig(R(4, 2), Backfill, "queue-depth=unlimited", "estimate-depth=5", "reason-depth=3")
    for jobid in range(1, 12):
        rig.alloc(jobid, jobspec(4, cores=2, duration=100))
    rig.wait(10)
    assert estimates(rig, range(1, 12)) == [2, 3, 4, 5, 6]
    assert len(rig.sched.forecasts.told) == 5
    # Who is not among them any more has none.
    rig.alloc(20, jobspec(4, cores=2, duration=100), priority=17)
    rig.alloc(21, jobspec(4, cores=2, duration=100), priority=17)
    rig.wait(10)
    assert estimates(rig, [*range(1, 12), 20, 21]) == [2, 3, 4, 20, 21]
    rig.cancel(20)
    rig.wait(10)
    assert estimates(rig, [*range(1, 12), 21]) == [2, 3, 4, 5, 21]
    assert not rig.logged(3)
