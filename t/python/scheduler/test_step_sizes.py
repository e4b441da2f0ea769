# SPDX-License-Identifier: LGPL-3.0-or-later
"""No reactor turn of a scheduler that ranks jobs does more the more jobs are pending.

The work of a turn is counted in function calls, which are the same on every machine.
"""

import gc
import sys

import pytest
from peers import R, Rig, jobspec
from scheduler_meter import SchedulerMeter

from flux.scheduler.query.answering import Answering

NODES = 64


@pytest.fixture
def calls():
    """The number of function calls so far."""
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # finalizers of earlier tests' objects are not the scheduler's
    sys.setprofile(note)
    yield lambda: count
    sys.setprofile(None)
    gc.enable()


def whole(nodes, duration):
    return jobspec(1, nodes=nodes, cores=4, duration=duration)


def come_back(rig):
    rig.resource.update(down="7")
    rig.settle()
    rig.resource.update(up="7")


EVENTS = {
    "a job comes": lambda rig: rig.alloc(999999, whole(2, 500)),
    "an urgent one that fits": lambda rig: rig.alloc(999999, whole(1, 90000), priority=31),
    "an urgent one": lambda rig: rig.alloc(999999, whole(NODES, 7000), priority=31),
    "more time": lambda rig: rig.expire(1, rig.now + 30000),
    "an end": lambda rig: rig.free(1),
    "a node comes back": come_back,
}


def fill(rig, pending):
    """Jobs of one node that leave one free, and `pending` jobs of different shapes that wait, one
    in three of a lower priority."""
    for jobid in range(1, NODES):
        rig.alloc(jobid, whole(1, 10000 + jobid))
    rig.settle()
    for jobid in range(NODES, NODES + pending):
        priority = 16 - jobid % 3 // 2
        rig.alloc(jobid, whole(2 + jobid % 37, 600 * (1 + jobid % 11)), priority=priority)
    rig.settle()


@pytest.mark.parametrize(
    "args",
    [
        ["rank=expansion", "predict=class"],
        ["rank=wfp3", "candidates=shortest"],
        ["rank=shortest", "promise=unlimited"],
        ["profile=short-waits", "within=0"],
        ["profile=short-waits"],
    ],
    ids=" ".join,
)
def test_no_turn_does_more_the_more_jobs_are_pending(args, calls):
    most = {}
    for pending in (300, 1200):
        rig = Rig(R(NODES, 4), "sched-backfill", "reason-depth=0", *args, estimates=False)
        meter = SchedulerMeter(rig, calls)
        fill(rig, pending)
        rig.wait(2)
        for event, send in EVENTS.items():
            meter.reset()
            send(rig)
            rig.settle()
            most[pending, event] = meter.longest
            rig.cancel(999999, wait=0)
    grown = [event for event in EVENTS if most[1200, event] > 1.3 * most[300, event] + 300]
    assert grown == [], most


@pytest.fixture
def steps(calls, monkeypatch):
    """The calls in each step of answers."""
    go_on, steps = Answering._go_on, []

    def one_step(*given):
        began = calls()
        try:
            return go_on(*given)
        finally:
            steps.append(calls() - began)

    monkeypatch.setattr(Answering, "_go_on", one_step)
    return steps


@pytest.mark.parametrize("args", [["rank=wfp3"], ["profile=short-waits"]], ids=" ".join)
@pytest.mark.parametrize("topic, payload", [("windows", {}), ("explain", {"id": NODES + 7})])
def test_no_step_of_an_answer_does_more_the_more_jobs_are_pending(args, topic, payload, steps):
    longest = {}
    for pending in (600, 2400):
        rig = Rig(R(NODES, 4), "sched-backfill", "reason-depth=0", *args, estimates=False)
        fill(rig, pending)
        rig.answer(topic, **payload)  # makes the copy of the plan, at most once a second
        steps.clear()
        rig.answer(topic, **payload)
        longest[pending] = max(steps)
    assert longest[2400] < 1.3 * longest[600] + 300, longest


@pytest.mark.parametrize("topic, payload", [("limits", {}), ("explain", {"id": 107})])
def test_no_step_of_an_answer_does_more_the_more_jobs_are_deferred(topic, payload, steps):
    longest = {}
    for pending in (600, 2400):
        rig = Rig(R(NODES, 4), estimates=False)
        limits = {"user": {"per": "user", "max": {"jobs": 1}}}
        rig.load("sched-backfill", "reason-depth=0", config={"limits": limits})
        rig.alloc([1, *range(100, 100 + pending)], whole(1, 500), userid=7)
        rig.settle()
        assert len(rig.sched.admission.deferred) == pending
        steps.clear()
        rig.answer(topic, **payload)
        longest[pending] = max(steps)
    assert longest[2400] < 1.3 * longest[600] + 300, longest


def test_the_first_end_after_a_flood_of_jobs_takes_no_longer_turn(calls):
    """Work that each job defers must not be done for all jobs in one turn."""
    longest = {}
    for pending in (300, 1200):
        rig = Rig(R(NODES, 4, 2), "sched-backfill", "reason-depth=0", estimates=False)
        meter = SchedulerMeter(rig, calls)
        for jobid in range(1, NODES + 1):
            rig.alloc(jobid, jobspec(1, nodes=1, cores=2, gpus=1, duration=10000 + jobid))
        rig.settle()
        for jobid in range(1000, 1000 + pending):
            kind = jobid % 97
            spec = jobspec(1, nodes=1 + kind % 9, cores=4, gpus=2, duration=600 * (1 + kind % 11))
            rig.alloc(jobid, spec)
            rig.turn()
        rig.settle()
        meter.reset()
        rig.free(1, wait=0)
        longest[pending] = meter.longest
    assert longest[1200] < 1.3 * longest[300] + 300, longest


@pytest.mark.parametrize("policy", ["sched-fifo", "sched-backfill"])
def test_no_turn_of_a_reload_does_more_the_more_jobs_are_pending(policy, calls):
    longest = {}
    for pending in (300, 1200):
        rig = Rig(R(NODES, 4), estimates=False)
        limits = [{"user": {"per": "user", "max": {"jobs": most}}} for most in (1, 2)]
        rig.load(policy, "reason-depth=0", "queue-depth=unlimited", config={"limits": limits[0]})
        rig.alloc(range(1, 1 + pending), whole(1, 500), userid=7)
        rig.settle()
        meter = SchedulerMeter(rig, calls)
        rig.reconfigure({"limits": limits[1]})
        longest[pending] = meter.longest
        assert rig.started() == [1, 2]
    assert longest[1200] < 1.3 * longest[300] + 300, longest


def test_no_turn_does_more_the_more_promises_are_bound_to_ranks(calls):
    """Also not the first after a quiet time, which may spend all the effort that was saved."""
    most = {}  # calls of the longest turn after each end
    for promises in (100, 400):
        rig = Rig(
            R(200, 16), "sched-backfill", "reason-depth=0", "promise=unlimited", estimates=False
        )
        meter = SchedulerMeter(rig, calls)
        for jobid in range(1, 201):
            rig.alloc(jobid, jobspec(1, cores=9, nodes=1, duration=5000 + 7 * jobid))
        rig.settle()
        for jobid in range(1000, 1000 + promises):
            spec = jobspec(
                1, cores=8 + jobid % 9, nodes=6 + jobid % 37, duration=600 * (1 + jobid % 11)
            )
            rig.alloc(jobid, spec)
        rig.settle()
        plan = rig.sched.planning.current()
        assert len(plan.promises()) == promises and not plan.is_counted
        turns = []
        for jobid in (1, 2, 150):
            meter.reset()
            rig.free(jobid, wait=0)
            turns.append(meter.longest)
        most[promises] = turns
    # Some milliseconds; one search with all the effort that was saved would be 35,000 calls, and the
    # looks at a row of 400 promises 40,000.
    assert max(most[100] + most[400]) < 22_000, most


def test_the_work_of_an_end_with_200_jobs_whose_starts_are_unknown(calls):
    """They wait for a job without a limit. The resources that they keep, which do not count for those
    ahead, are not removed and kept again for each of them: that took 2.1 million calls."""
    rig = Rig(R(NODES, 4), "sched-backfill", "promise=unlimited", "estimate-depth=0")
    rig.alloc({1: whole(8, 0), 2: whole(8, 1000)})
    for jobid in range(3, 203):
        rig.alloc(jobid, whole(NODES - 4, 100 + jobid))
    rig.settle()
    before = calls()
    rig.free(2, wait=0)
    assert calls() - before < 1_000_000


def test_a_cancel_does_no_more_the_more_shapes_of_jobs_wait_for_a_limit(calls):
    """They leave room for a promised job, and would be deferred for it again."""
    spent = {}
    for shapes in (8, 32):
        rig = Rig(R(NODES, 4))
        limits = {"bank": {"per": "bank", "max": {"nodes": 30}}}
        rig.load("sched-backfill", "reason-depth=0", "estimate-depth=0", config={"limits": limits})
        for jobid, bank in enumerate(("red", "blue", "green"), 1):  # the third is promised a start
            spec = jobspec(1, nodes=25, exclusive=True, bank=bank, duration=5000)
            rig.alloc(jobid, spec)
        rig.settle()
        for shape in range(shapes):
            slots, nodes = 1 + shape % 4, 6 + shape // 4
            spec = jobspec(slots, nodes=nodes, exclusive=True, bank="green", duration=9000)
            rig.alloc([10 + shape, 50 + shape], spec)
        rig.settle()
        assert rig.started() == [1, 2] and len(rig.sched.admission.deferred) == 2 * shapes
        meter = SchedulerMeter(rig, calls)
        rig.cancel(50)
        rig.settle()
        spent[shapes] = meter.spent
    assert spent[32] < 1.3 * spent[8] + 100, spent


@pytest.mark.parametrize("exclusive, most", [(True, 80), (False, 130)])
def test_users_below_their_limit_are_passed_over_when_that_of_all_is_reached(
    exclusive, most, calls
):
    """A look at each, not an examination: that would be 140 calls; 340 with an offer of the pool."""
    spent = {}
    for users in (50, 200):  # ten of them use the limit of all
        limits = {"user": {"per": "user", "max": {"nodes": 8}}, "all": {"max": {"nodes": 40}}}
        limits["all"]["per"] = "instance"
        rig = Rig(R(NODES, 4), estimates=False)
        rig.load("sched-backfill", "reason-depth=0", config={"limits": limits})
        for user in range(users):
            spec = jobspec(1, nodes=4, cores=4, exclusive=exclusive, duration=5000)
            rig.alloc(1 + user, spec, userid=2000 + user)
        rig.settle()
        meter = SchedulerMeter(rig, calls)
        rig.free(1)
        assert rig.started() == list(range(1, 12))
        spent[users] = meter.spent
    assert spent[200] - spent[50] < 150 * most, spent


def test_a_search_for_jobs_that_preempt_others_does_no_more_the_more_jobs_wait(calls):
    longest = {}
    for pending in (300, 1200):
        config = {"queues": {"low": {}, "high": {}}, "preemption": {"low": {"queues": ["low"]}}}
        rig = Rig(R(NODES, 4), estimates=False)
        rig.load("sched-backfill", "reason-depth=0", config=config)
        spec = jobspec(1, nodes=1, cores=4, duration=90000, queue="low")
        rig.arrive(range(1, NODES), spec)
        rig.arrive(NODES, jobspec(1, nodes=1, cores=4, duration=90000, queue="high"))
        spec = jobspec(1, nodes=NODES, cores=4, duration=500, queue="high")
        rig.arrive(range(100, 100 + pending), spec)
        rig.wait(10)
        meter = SchedulerMeter(rig, calls)
        rig.expire(1, rig.now + 80000)
        rig.free(2, wait=2)
        longest[pending] = meter.longest
    assert longest[1200] < 1.3 * longest[300] + 300, longest


def test_shares_of_many_users_are_computed_together(calls):
    """When the table comes into force: not one by one, each with the use of all others."""
    spent = {}
    for users in (100, 400):
        rig = Rig(R(NODES, 4), "sched-fifo", "reason-depth=0", estimates=False)
        rig.alloc(1, whole(NODES, 90000))
        rig.settle()
        for user in range(users):
            rig.alloc(10 + user, whole(NODES, 500), userid=2000 + user)
        rig.settle()
        meter = SchedulerMeter(rig, calls)
        rig.reconfigure({"fairshare": {"half-life": "1d"}})
        spent[users] = meter.spent
    assert spent[400] < 4.5 * spent[100], spent


def test_the_first_jobs_of_many_users_have_the_order_computed_once(calls):
    spent = {}
    for users in (100, 400):
        config = {"fairshare": {"half-life": "1d"}}
        rig = Rig(R(NODES, 4), estimates=False)
        rig.load("sched-fifo", "reason-depth=0", config=config)
        rig.alloc(1, whole(NODES, 90000))
        rig.settle()
        meter = SchedulerMeter(rig, calls)
        for user in range(users):
            rig.alloc(10 + user, whole(NODES, 500), userid=2000 + user)
            rig.turn()
        rig.settle()
        spent[users] = meter.spent
    assert spent[400] < 4.5 * spent[100], spent


def test_a_pass_does_no_more_for_a_shape_the_more_shapes_there_are(calls):
    """Those of many users, whose jobs share no nodes: a shape is refused for all of them, without a
    look at all other jobs."""
    spent = {}
    for shapes in (60, 240):
        rig = Rig(R(NODES, 4), estimates=False)
        rig.load("sched-backfill", "reason-depth=0", config={"sharing": {"all": {"mode": "user"}}})
        rig.alloc(range(1, NODES + 1), whole(1, 90000))
        rig.settle()
        for shape in range(shapes):
            spec = jobspec(1, nodes=2 + shape % 60, cores=1 + shape // 60, duration=500)
            for userid in (1000 + shape, 2000 + shape):
                rig.alloc(userid, spec, userid=userid)
        rig.settle()
        meter = SchedulerMeter(rig, calls)
        come_back(rig)
        rig.settle()
        spent[shapes] = meter.spent
    assert spent[240] < 4.5 * spent[60], spent


def test_reasons_of_the_first_jobs_cost_no_more_the_more_jobs_are_deferred(calls):
    most = {}
    for pending in (300, 1200):
        rig = Rig(R(NODES, 4))
        limits = {"user": {"per": "user", "max": {"jobs": 1}}}
        args = ("reason-depth=8", "estimate-depth=0", "odds-depth=0")
        rig.load("sched-backfill", *args, config={"limits": limits})
        rig.alloc(1, whole(1, 90000), userid=7)
        rig.settle()
        for jobid in range(100, 100 + pending):
            rig.alloc(jobid, whole(1, 500), userid=7)
        rig.settle()
        rig.wait(5)
        assert len(rig.sched.admission.deferred) == pending and rig.reason(100)
        meter = SchedulerMeter(rig, calls)
        rig.arrive(9999, whole(1, 500), userid=7, wait=5)
        most[pending] = meter.longest
    assert most[1200] < 1.3 * most[300] + 300, most
