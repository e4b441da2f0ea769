# SPDX-License-Identifier: LGPL-3.0-or-later
"""A scheduler keeps nothing of jobs that are gone."""

import gc

import pytest
from peers import R, Rig, jobspec

from flux.resource import request
from flux.scheduler import forecasts


def play(rig, first, count):
    """Jobs arrive, some start and end, the others are cancelled."""
    jobs = range(first, first + count)
    for jobid in jobs:
        rig.alloc(jobid, jobspec(1, nodes=1 + jobid % 3, duration=100 + jobid % 7, exclusive=True))
    rig.wait(2)
    started = set(rig.started())
    for jobid in jobs:
        if jobid not in started:
            rig.cancel(jobid)
    for jobid in sorted(started):
        rig.free(jobid)
    rig.wait(2)
    # The peers' own notes do not count.
    rig.received.clear()
    rig.kvs.commits.clear()


@pytest.mark.parametrize("quiet_time", [0.0, 1.0])
@pytest.mark.parametrize("module", ["sched-fifo", "sched-simple", "sched-backfill"])
def test_objects_are_as_many_after_each_round_of_jobs(
    only_new_objects, monkeypatch, module, quiet_time
):
    monkeypatch.setattr(forecasts, "QUIET_TIME_S", quiet_time)
    rig = Rig(R(32, 4), module, "queue-depth=unlimited")
    counts = []
    for number in range(7):
        play(rig, 1 + 60 * number, 60)
        gc.collect()
        # The references to tables that are gone are dropped by the thousand.
        request._drop_dead()
        counts.append(len(gc.get_objects()))
    # Caches that other tests have filled may change by some; in a round some 16 jobs start, 60 come.
    assert min(counts[5:]) < max(counts[:3]) + 16, counts
