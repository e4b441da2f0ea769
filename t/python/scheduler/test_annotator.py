# SPDX-License-Identifier: LGPL-3.0-or-later
"""What users of pending jobs are told, of how many, and what is kept of it."""

import random

import pytest
from peers import R, Rig, jobspec
from shared import runs, seeds

from flux.scheduler import forecasts
from flux.scheduler.policies import Backfill, Fifo


@pytest.mark.parametrize("policy", [Fifo, Backfill])
@pytest.mark.parametrize("seed", seeds(1, 5))
def test_tables_are_empty_when_all_jobs_have_left(policy, seed, monkeypatch):
    monkeypatch.setattr(forecasts, "QUIET_TIME_S", 1.0)
    rnd = random.Random(f"{policy.__name__} {seed}")
    rig = Rig(R(4, 2), policy, "queue-depth=unlimited", "log-level=err")
    pending = set()
    running = set()
    most = 0
    for jobid in range(1, runs(40, 80)):
        rig.alloc(jobid, jobspec(rnd.randint(1, 8), duration=rnd.choice([0, 10, 100])))
        pending.add(jobid)
        if rnd.random() < 0.3:
            rig.cancel(pending.pop())
        if rnd.random() < 0.3:
            rig.prioritize((rnd.choice(sorted(pending) or [0]), rnd.randint(0, 31)))
        if rnd.random() < 0.2:
            rig.resource.update(down="0")
            rig.resource.update(up="0")
        rig.wait(rnd.choice([0.0, 0.05, 0.6, 2.0]))
        running |= pending & set(rig.started())
        pending -= running
        if running and rnd.random() < 0.4:
            rig.free(running.pop())
        most = max(most, len(rig.sched._annotator.told))
    assert most > 3
    assert len(rig.sched._annotator.told) <= len(pending) + 1
    while pending or running:
        if running:
            rig.free(running.pop())
        else:
            rig.cancel(pending.pop())
        rig.settle()
        running |= pending & set(rig.started())
        pending -= running
    rig.wait(5)
    kept = rig.sched._annotator
    assert kept.told == {} and kept._quiet == [] and len(kept) == 0
    assert not rig.logged(3)


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
    return [jobid for jobid in jobids if rig.annotations(jobid).get("sched", {}).get("t_estimate")]


def test_as_many_jobs_as_may_have_an_expected_start(monkeypatch):
    rig = crowded(monkeypatch, 100, 40)
    rig.wait(10)
    assert estimates(rig, range(1, 102)) == list(range(2, 42))
    assert len(rig.sched._annotator.told) == 40


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
