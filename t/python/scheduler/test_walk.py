# SPDX-License-Identifier: LGPL-3.0-or-later
"""Walks over a backlog: what is left out makes no difference, and no job is forgotten."""

import pytest
from peers import R, Rig, jobspec

from flux.resource.pool.placement import RoomCounts
from flux.scheduler import PendingJob, walk
from flux.scheduler.policies.backfilling import BackfillInOrder
from flux.scheduler.queue import Backlog
from flux.scheduler.walk import EFFORT_PER_TURN

# -- who is examined -------------------------------------------------------------------------------


class Request:
    """As much of an open request as a queue looks at."""

    finalized = False


class Asks:
    """As much of a pool's request as a backlog looks at."""

    def __init__(self, shape, duration=0.0):
        self.shape = shape
        self.duration = duration


def job(jobid, shape="a", duration=60, priority=16):
    return PendingJob(jobid, priority, 0.0, Request(), Asks(shape, duration))


def backlog_of(*jobs):
    backlog = Backlog()
    for one in jobs:
        backlog.push(one)
    return backlog


def looks(backlog, refuse=lambda backlog, one: backlog.block(one, alike=True)):
    """Ids of the jobs that a pass examines, each of which is refused."""
    found = []
    for one in backlog.to_examine(lambda: 0.0):
        if one is not None:
            found.append(one.jobid)
            refuse(backlog, one)
    return found


def test_what_was_found_of_others_does_not_hold_when_something_is_not_kept_free_any_more():
    backlog = backlog_of(*[job(jobid) for jobid in range(1, 7)])
    looks(backlog)

    def refuse(backlog, one):
        backlog.block(one, alike=True)
        if one.jobid in (1, 3):
            backlog.walk.allow()

    backlog.wake(0.0)
    assert looks(backlog, refuse) == [1, 2]
    backlog.wake(0.0)
    backlog.set_promised(backlog.settle()[1], True)
    assert looks(backlog, refuse) == [1, 3, 4]


def test_nobody_waits_to_be_examined_once_all_have_left():
    one, two = job(1), job(2)
    backlog = backlog_of(one, two)
    looks(backlog)
    backlog.wake(10.0)
    backlog.move_all({one: 20, two: 20})
    assert backlog.stats(15.0)["unlooked"] == 5.0
    backlog.remove(one)
    assert backlog.stats(15.0)["unlooked"] == 5.0
    backlog.remove(two)
    assert backlog.stats(500.0)["unlooked"] == 0.0
    backlog.push(job(3))
    looks(backlog)
    assert backlog.stats(500.0)["unlooked_longest"] == 0.0


@pytest.mark.parametrize("size", [1000, 4000])
def test_many_arrivals_are_skipped_in_turns_after_one_refused_job(size):
    """However many come at once, a pass gives way after it has passed over some of them."""
    backlog = backlog_of(*[job(jobid) for jobid in range(1, size)], job(size, "b"))
    found, turns = [], []
    for one in backlog.to_examine(lambda: 0.0):
        if one is None:
            turns.append(len(backlog.unexamined))
        else:
            found.append(one.jobid)
            backlog.block(one, alike=True)
    assert found[0] == 1 and found[-1] == size and len(found) < size / 100
    passed = [before - after for before, after in zip([size, *turns], turns)]
    assert max(passed) <= 3 * EFFORT_PER_TURN / walk.LOOKUP_EFFORT


def test_waiting_jobs_go_before_many_arrivals_when_resources_are_freed():
    backlog = backlog_of(*[job(jobid, jobid) for jobid in range(1, 1000)])
    found = []
    for one in backlog.to_examine(lambda: 0.0):
        if one is not None:
            found.append(one.jobid)
            backlog.block(one, alike=True)
        elif len(found) == EFFORT_PER_TURN:
            backlog.wake(0.0)
    assert found[EFFORT_PER_TURN : 2 * EFFORT_PER_TURN] == found[:EFFORT_PER_TURN]
    assert set(found) == set(range(1, 1000))


# -- room ------------------------------------------------------------------------------------------


def examined_after_an_end(monkeypatch, shapes):
    """How many jobs are examined, and kinds of room counted, after an end while so many shapes of
    jobs are blocked of which one can start."""
    rig = Rig(
        R(200, 96), "sched-backfill", "queue-depth=unlimited", "reason-depth=0", estimates=False
    )
    rig.alloc(1, jobspec(1, nodes=199, exclusive=True, duration=3600.0))
    rig.arrive(2, jobspec(1, cores=96, duration=7200.0))
    for number in range(shapes):
        size = {"nodes": 2 + number // 10, "cores": 50 + number % 10}
        rig.alloc(10 + number, jobspec(1, duration=600.0, **size))
    rig.alloc(9000, jobspec(1, cores=30, duration=60.0))
    assert sorted(rig.started()) == [1, 2]
    examined, counted = [], []
    examine, count = BackfillInOrder.examine, RoomCounts.count
    with monkeypatch.context() as patched:
        patched.setattr(
            BackfillInOrder,
            "examine",
            lambda self, job: examined.append(job.jobid) or examine(self, job),
        )
        patched.setattr(
            RoomCounts, "count", lambda self, shape: counted.append(1) or count(self, shape)
        )
        rig.free(2, wait=0)
    assert sorted(rig.started()) == [1, 2, 9000]
    return len(examined), len(counted)


def test_after_an_end_only_those_are_examined_for_which_there_is_room(monkeypatch):
    few = examined_after_an_end(monkeypatch, 50)
    many = examined_after_an_end(monkeypatch, 200)
    assert few == many
    assert few[0] <= 4, few


def test_one_question_leaves_out_all_groups_of_a_kind_until_the_promise_is_dropped(monkeypatch):
    rig = Rig(R(16, 1))
    rig.load("sched-backfill")

    def submit(jobid, nodes, duration):
        rig.arrive(jobid, jobspec(1, nodes=nodes, exclusive=True, duration=duration))

    for job in ((1, 4, 1000), (2, 8, 1000), (3, 16, 10)):
        submit(*job)  # the last one is promised a start
    for nodes in range(2, 8):
        submit(10 + nodes, nodes, 5000)
    asked = []
    too_long = BackfillInOrder.too_long
    monkeypatch.setattr(
        BackfillInOrder, "too_long", lambda self, job: asked.append(job) or too_long(self, job)
    )
    rig.free(1, wait=0)
    assert (asked, rig.started()) == ([], [1, 2])
    rig.cancel(3, wait=0)
    assert rig.started() == [1, 2, 12, 13]
