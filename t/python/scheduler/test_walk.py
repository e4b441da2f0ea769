# SPDX-License-Identifier: LGPL-3.0-or-later
"""Walks over a backlog look at few jobs. That they leave out none is shown by test_definition.py and test_traps.py."""

from peers import R, Rig, jobspec, whole

from flux.resource.pool.placement import RoomCounts
from flux.scheduler import PendingJob
from flux.scheduler.policies.backfilling import BackfillInOrder
from flux.scheduler.queue import Backlog
from flux.scheduler.walk import EFFORT_PER_TURN


def examined_after_an_end(monkeypatch, shapes):
    """How many jobs are examined, and kinds of room counted, after an end while so many shapes of
    jobs are blocked, one of which can start."""
    args = ("queue-depth=unlimited", "reason-depth=0")
    rig = Rig(R(200, 96), "sched-backfill", *args, estimates=False)
    rig.alloc(1, jobspec(1, nodes=199, exclusive=True, duration=3600.0))
    rig.arrive(2, jobspec(1, cores=96, duration=7200.0))
    for number in range(shapes):
        size = {"nodes": 2 + number // 10, "cores": 50 + number % 10}
        rig.alloc(10 + number, jobspec(1, duration=600.0, **size))
    rig.alloc(9000, jobspec(1, cores=30, duration=60.0))
    assert sorted(rig.started()) == [1, 2]
    examined, counted = [], []
    examine, count = BackfillInOrder.examine, RoomCounts.count
    noted = lambda log, function: lambda *args: log.append(args) or function(*args)  # noqa: E731
    with monkeypatch.context() as patched:
        patched.setattr(BackfillInOrder, "examine", noted(examined, examine))
        patched.setattr(RoomCounts, "count", noted(counted, count))
        rig.free(2, wait=0)
    assert sorted(rig.started()) == [1, 2, 9000]
    return len(examined), len(counted)


def test_after_an_end_only_those_are_examined_for_which_there_is_room(monkeypatch):
    few = examined_after_an_end(monkeypatch, 50)
    many = examined_after_an_end(monkeypatch, 200)
    assert few == many
    assert few[0] <= 4, few


def test_one_question_leaves_out_all_groups_of_a_kind_until_the_promise_is_dropped(monkeypatch):
    rig = Rig(R(16, 1), "sched-backfill")

    for jobid, nodes, duration in ((1, 4, 1000), (2, 8, 1000), (3, 16, 10)):
        rig.arrive(jobid, whole(nodes, duration))  # the last one is promised a start
    for nodes in range(2, 8):
        rig.arrive(10 + nodes, whole(nodes, 5000))
    asked = []
    too_long = BackfillInOrder.too_long
    monkeypatch.setattr(
        BackfillInOrder, "too_long", lambda self, job: asked.append(job) or too_long(self, job)
    )
    rig.free(1, wait=0)
    assert (asked, rig.started()) == ([], [1, 2])
    rig.cancel(3, wait=0)
    assert rig.started() == [1, 2, 12, 13]


class Request:
    """As much of an open request as a queue looks at."""

    finalized = False


class Asks:
    """As much of a pool's request as a backlog looks at."""

    duration = 60.0

    def __init__(self, shape):
        self.shape = shape


def test_waiting_jobs_go_before_many_arrivals_when_resources_are_freed():
    backlog, found = Backlog(), []
    for jobid in range(1, 1000):
        backlog.push(PendingJob(jobid, 16, 0.0, Request(), Asks(jobid)))
    for one in backlog.to_examine(lambda: 0.0):
        if one is not None:
            found.append(one.jobid)
            backlog.block(one, alike=True)
        elif len(found) == EFFORT_PER_TURN:
            backlog.wake(0.0)
    assert found[EFFORT_PER_TURN : 2 * EFFORT_PER_TURN] == found[:EFFORT_PER_TURN]
    assert set(found) == set(range(1, 1000))
