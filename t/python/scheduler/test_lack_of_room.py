# SPDX-License-Identifier: LGPL-3.0-or-later
"""Blocked jobs that too little is free for: left out of passes, and never for too long."""

import random

import pytest
from peers import R, Rig, jobspec

from flux.resource import ResourcePool
from flux.resource.plan.room_counts import RoomCounts
from flux.scheduler import PendingJob
from flux.scheduler.policies.backfill import Backfill
from flux.scheduler.policies.lack_of_room import LackOfRoom
from flux.scheduler.queue import Backlog

NODES, CORES, GPUS = 12, 8, 2
HALF = {"constraints": {"properties": ["half"]}}


def spec(rng):
    where = HALF if rng.random() < 0.3 else {}
    duration = float(rng.choice([60, 300, 300, 900, 3600]))
    kind = rng.random()
    if kind < 0.4:
        nodes = rng.choice([1, 2, 3, 6])
        return jobspec(1, nodes=nodes, exclusive=True, duration=duration, **where)
    if kind < 0.7:
        return jobspec(rng.choice([1, 4, 9]), cores=rng.choice([1, 3]), duration=duration, **where)
    nodes = rng.choice([1, 2, 4])
    return jobspec(1, nodes=nodes, cores=rng.choice([2, 5, 8]), gpus=1, duration=duration, **where)


@pytest.mark.parametrize("seed", range(8))
def test_room_is_as_much_as_can_be_allocated(seed):
    rng = random.Random(seed)
    pool = ResourcePool(R(NODES, CORES, GPUS, properties={"half": "0-5"}))
    for jobid in range(20):
        request = pool.parse_resource_request(spec(rng))
        try:
            pool.alloc(jobid, request)
        except OSError:
            pass
        if rng.random() < 0.1:
            pool.mark_down(str(rng.randrange(NODES)))
        request = pool.parse_resource_request(spec(rng))
        fits = RoomCounts(pool.impl).of(request.shape) >= request.shape.least_count
        try:
            pool.copy().alloc(999, request)
        except OSError:
            assert not fits
        else:
            assert fits


def history(promise, seed):
    """What a scheduler starts as jobs come, go, end and change their priorities; and when."""
    rng = random.Random(seed)
    rig = Rig(R(NODES, CORES, GPUS, properties={"half": "0-5"}))
    rig.load_file("sched-backfill", "queue-depth=unlimited", f"promise={promise}")
    seen = []
    pending, ended, asleep = [], set(), 0
    for jobid in range(1, 260):
        what = rng.random()
        running = [one for one in rig.started() if one not in ended]
        waits = [one for one in pending if one not in rig.started()]
        if what < 0.45 or not running:
            rig.alloc(jobid, spec(rng), priority=rng.choice([10, 16, 16, 16, 20]))
            pending.append(jobid)
        elif what < 0.85:
            over = rng.choice(running)
            ended.add(over)
            rig.free(over)
        elif what < 0.9 and waits:
            gone = rng.choice(waits)
            pending.remove(gone)
            rig.cancel(gone)
        elif what < 0.92:
            rig.resource.update(**{rng.choice(["up", "down"]): str(rng.randrange(NODES))})
        elif what < 0.95 and waits:
            rig.prioritize(
                *[(one, rng.choice([5, 16, 25])) for one in waits[:: rng.choice([1, 3])]]
            )
        else:
            rig.wait(rng.choice([1, 100, 1000]))
        if rng.random() < 0.7:
            rig.settle()
            seen.append(sorted(rig.started()))
            asleep = max(asleep, len(rig.sched._lack))
    rig.settle()
    return seen, rig.started(), asleep


@pytest.mark.parametrize("promise", [0, 1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_starts_as_if_all_were_examined(monkeypatch, promise, seed):
    seen, started, asleep = history(promise, seed)
    monkeypatch.setattr(LackOfRoom, "note", lambda *args: False)
    assert (seen, started) == history(promise, seed)[:2]
    assert asleep


def test_who_is_next_is_promised_the_start_as_soon_as_the_one_ahead_has_started():
    rig = Rig(R(4, 4))
    rig.load_file("sched-backfill", "queue-depth=unlimited")
    for jobid in (1, 2):
        rig.alloc(jobid, jobspec(1, nodes=2, exclusive=True, duration=100.0 * jobid))
    rig.settle()
    for jobid, nodes in ((3, 3), (4, 4), (5, 3)):
        rig.alloc(jobid, jobspec(1, nodes=nodes, exclusive=True, duration=50.0))
    rig.settle()
    assert rig.sched.plan.promised() == [3]
    assert len(rig.sched._lack) == 2
    rig.free(1)
    rig.free(2)
    rig.settle()
    assert sorted(rig.started()) == [1, 2, 3]
    assert rig.sched.plan.promised() == [4]


def examined_after_an_end(monkeypatch, shapes):
    """How many jobs are examined, and kinds of room counted, after an end while so many shapes of
    jobs are blocked of which one can start."""
    rig = Rig(R(200, 96))
    rig.load_file("sched-backfill", "queue-depth=unlimited", "reason-depth=0")
    rig.alloc(1, jobspec(1, nodes=199, exclusive=True, duration=3600.0))
    rig.alloc(2, jobspec(1, cores=96, duration=7200.0))
    rig.settle()
    for number in range(shapes):
        size = {"nodes": 2 + number // 10, "cores": 50 + number % 10}
        rig.alloc(10 + number, jobspec(1, duration=600.0, **size))
    rig.alloc(9000, jobspec(1, cores=30, duration=60.0))
    rig.settle()
    assert sorted(rig.started()) == [1, 2]
    examined, counted = [], []
    examine, of = Backfill.examine, RoomCounts.of
    with monkeypatch.context() as patched:
        patched.setattr(
            Backfill, "examine", lambda self, job: examined.append(job.jobid) or examine(self, job)
        )
        patched.setattr(RoomCounts, "of", lambda self, shape: counted.append(1) or of(self, shape))
        rig.free(2)
        rig.settle()
    assert sorted(rig.started()) == [1, 2, 9000]
    return len(examined), len(counted)


def test_after_an_end_only_those_are_examined_for_which_there_is_room(monkeypatch):
    few = examined_after_an_end(monkeypatch, 50)
    many = examined_after_an_end(monkeypatch, 200)
    assert few == many
    assert few[0] <= 4, few


def job(jobid, signature, priority=16):
    one = PendingJob(jobid, priority, 0.0, None, None)
    one.signature = signature
    one.limit = 10.0
    one.request = type("Request", (), {"finalized": False})()
    return one


def offered(backlog):
    """The jobs that one pass offers, all of which are blocked."""
    found = []
    for one in backlog.to_examine(lambda: 0.0):
        if one is not None:
            found.append(one.jobid)
            backlog.block(one)
    return found


def test_a_signature_that_sleeps():
    backlog = Backlog()
    jobs = {jobid: job(jobid, "ab"[jobid % 2]) for jobid in range(1, 41)}
    for one in jobs.values():
        backlog.push(one)
    assert offered(backlog) == list(range(1, 41))
    backlog.sleep(jobs[5])  # b: those behind 5 as well, those ahead of it not
    backlog.wake(0.0)
    assert offered(backlog) == [one for one in range(1, 41) if one % 2 == 0 or one < 5]
    backlog.wake(0.0)
    jobs[21].exempt = True
    backlog.exempt_jobs = lambda: [jobs[21]]
    assert 21 in offered(backlog)
    backlog.rouse("b")
    backlog.wake(0.0)
    assert offered(backlog) == list(range(1, 41))


@pytest.mark.parametrize("what", ["leaves", "moves", "comes", "again", "reorder", "all"])
def test_what_ends_a_sleep(what):
    backlog = Backlog()
    jobs = {jobid: job(jobid, "ab"[jobid % 2]) for jobid in range(2, 41)}
    for one in jobs.values():
        backlog.push(one)
    offered(backlog)
    backlog.sleep(jobs[3])
    backlog.wake(0.0)
    assert offered(backlog) == list(range(2, 41, 2))
    expected = set(range(2, 41))
    if what == "leaves":
        backlog.remove(jobs[3])
        expected.discard(3)
    elif what == "moves":
        backlog.move(jobs[3], 8)
    elif what == "comes":
        backlog.push(job(1, "b"))
        expected.add(1)
    elif what == "again":
        backlog.again(jobs[9])
    elif what == "reorder":
        backlog.reorder()
    else:
        backlog.rouse_all()
    backlog.wake(0.0)
    assert set(offered(backlog)) == expected


def test_a_newcomer_behind_one_that_sleeps_is_left_out_too():
    backlog = Backlog()
    first = job(1, "a")
    backlog.push(first)
    offered(backlog)
    backlog.sleep(first)
    backlog.push(job(2, "a"))
    assert offered(backlog) == []
    backlog.rouse("a")
    backlog.wake(0.0)
    assert offered(backlog) == [1, 2]


def test_what_is_noted_of_signatures():
    pool = ResourcePool(R(4, 8))
    lack = LackOfRoom()
    shapes = {
        nodes: pool.parse_resource_request(jobspec(1, nodes=nodes, cores=5)).shape
        for nodes in (1, 2, 3, 5)
    }
    assert not lack.note("two", shapes[2], pool.impl)
    pool.alloc(1, pool.parse_resource_request(jobspec(1, nodes=3, cores=4)))
    pool.alloc(2, pool.parse_resource_request(jobspec(1, nodes=1, cores=4)))
    for nodes in (1, 2, 3, 5):
        assert lack.note(nodes, shapes[nodes], pool.impl)
    assert lack.relieved(pool.impl) == []
    pool.free(2)
    assert lack.relieved(pool.impl) == [1]
    assert lack.relieved(pool.impl) == []
    assert 1 not in lack and len(lack) == 3
    pool.free(1)
    lack.drop(5)
    assert sorted(lack.relieved(pool.impl)) == [2, 3]
    assert not len(lack)
