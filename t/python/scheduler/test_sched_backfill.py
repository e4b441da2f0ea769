# SPDX-License-Identifier: LGPL-3.0-or-later
"""sched-backfill: its arguments, and the memory of shapes."""

import pytest
from peers import R, Rig, jobspec, whole

from flux.resource.plan import compiled
from flux.resource.request import Remembered


def test_a_missing_compiled_part_is_logged(monkeypatch):
    monkeypatch.setattr(compiled, "lib", None)
    rig = Rig(R(1, 1), "sched-backfill")
    assert [text for text in rig.logged() if compiled.NOT_BUILT in text]


@pytest.mark.parametrize("depth, told", [("0", 0), ("2", 2), ("32", 5)])
def test_reason_depth(depth, told):
    rig = Rig(R(1, 1), "sched-backfill", "reason-depth=" + depth)
    rig.alloc(range(1, 7), jobspec(1))
    assert sum("reason_pending" in rig.shown(jobid) for jobid in range(2, 7)) == told


def test_the_memory_of_shapes_does_not_grow_with_their_number(monkeypatch):
    monkeypatch.setattr(Remembered, "MAX_BYTES", 10000)
    rig = Rig(R(4, 4), "sched-backfill")
    rig.arrive(1, jobspec(1, nodes=3, cores=4, duration=100))
    for jobid in range(2, 60):
        rig.alloc(jobid, jobspec(1, constraints={"not": [{"hostlist": [f"other{jobid}"]}]}))
    rig.settle()
    assert len(rig.sched.facts) > 20  # they wait
    for jobid in range(2, 60):
        rig.cancel(jobid)
    rig.arrive(60, jobspec(1, constraints={"not": [{"hostlist": ["other60"]}]}))
    assert 1 <= len(rig.sched.facts) <= 2


def test_an_arrival_that_can_change_nothing_causes_no_pass():
    rig = Rig(R(4, 4), "sched-backfill")
    rig.arrive(1, whole(3, 100))
    rig.arrive(2, whole(4, 100))  # is promised a start in 100 s

    def passes(jobid, spec, **more):
        before = rig.sched.stats_get()["sched_passes"]
        rig.arrive(jobid, spec, **more)
        return rig.sched.stats_get()["sched_passes"] - before

    assert passes(3, whole(2, 10)) == passes(4, whole(1, 200)) == passes(5, whole(1)) == 0
    assert "t_estimate" in rig.shown(4)  # others are told as after a pass
    assert passes(6, whole(5, 10)) == passes(7, whole(1, 20)) == 1  # never fits; starts
    assert passes(8, whole(2, 10), priority=20) == 1  # goes before the promised one
    rig.free(1, wait=0)
    rig.free(8)
    assert rig.started() == [1, 7, 8, 3]
    rig.check()


def test_the_plan_has_all_promises_when_others_use_it_within_a_pass():
    rig = Rig(R(8, 4), "sched-backfill", "promise=unlimited", "queue-depth=unlimited")
    rig.arrive(1, whole(1))  # without a limit
    rig.arrive([2, 3], whole(2, 100))
    rig.arrive(range(4, 24), whole(3, 200))
    rig.arrive(range(24, 44), whole(8, 50))
    planning, turns = rig.sched.planning, 0
    rig.free(2)
    while not rig.reactor.is_idle():
        rig.turn()
        turns += {*planning.plan} < {*range(5, 44)}  # open promises are withdrawn
        assert {*planning.made()} == {*range(5, 44)}
    assert turns > 5
