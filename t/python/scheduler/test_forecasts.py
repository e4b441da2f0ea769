# SPDX-License-Identifier: LGPL-3.0-or-later
"""What users of pending jobs are told, of how many, and what is kept of it."""

from peers import R, Rig, jobspec

from flux.scheduler import forecasts
from flux.scheduler.policies import Backfill

# -- a deep queue ----------------------------------------------------------------------------------


def crowded(monkeypatch, pending, most):
    """Jobs of whole nodes that wait for one another; the first `most` of them are told an expected start."""
    monkeypatch.setattr(forecasts, "QUIET_TIME_S", 0.0)
    rig = Rig(R(4, 2), Backfill, "queue-depth=unlimited", "log-level=err", f"estimate-depth={most}")
    for jobid in range(1, pending + 2):
        rig.alloc(jobid, jobspec(4, cores=2, duration=100))
    return rig


def estimates(rig, jobids):
    """The jobs of these that are shown an expected start."""
    return [jobid for jobid in jobids if rig.shown(jobid).get("t_estimate")]


def test_as_many_jobs_as_may_have_an_expected_start(monkeypatch):
    rig = crowded(monkeypatch, 100, 40)
    rig.wait(10)
    assert estimates(rig, range(1, 102)) == list(range(2, 42))
    assert len(rig.sched.forecasts.told) == 40


def test_who_is_not_among_them_any_more_has_no_expected_start(monkeypatch):
    rig = crowded(monkeypatch, 10, 5)
    rig.wait(10)
    assert estimates(rig, range(1, 12)) == [2, 3, 4, 5, 6]
    rig.alloc(20, jobspec(4, cores=2, duration=100), priority=17)
    rig.alloc(21, jobspec(4, cores=2, duration=100), priority=17)
    rig.wait(10)
    assert estimates(rig, [*range(1, 12), 20, 21]) == [2, 3, 4, 20, 21]
    rig.cancel(20)
    rig.wait(10)
    assert estimates(rig, [*range(1, 12), 21]) == [2, 3, 4, 5, 21]
    assert not rig.logged(3)
