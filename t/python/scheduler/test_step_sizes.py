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


@pytest.fixture
def begin(calls):
    """begin(*args, module, inventory, **tables) -> (rig, meter): a scheduler, and the calls that it makes."""

    def begin(*args, module="sched-backfill", inventory=None, estimates=False, **tables):
        rig = Rig(inventory or R(NODES, 4), estimates=estimates)
        rig.load(module, "reason-depth=0", *args, config=tables)
        return rig, SchedulerMeter(rig, calls)

    return begin


def check_growth(cost, few=300, many=1200, factor=1.3, more=300):
    """Check that the cost of many jobs, users or shapes is little above that of few."""
    costs = {number: cost(number) for number in (few, many)}
    assert costs[many] < factor * costs[few] + more, costs


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
ONE_JOB_EACH = {"user": {"per": "user", "max": {"jobs": 1}}}


def fill(rig, pending):
    """Jobs of one node that leave one free, and `pending` jobs of different shapes that wait, one in three of a lower priority."""
    rig.arrive({jobid: whole(1, 10000 + jobid) for jobid in range(1, NODES)})
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
def test_no_turn_does_more_the_more_jobs_are_pending(args, begin):
    most = {}
    for pending in (300, 1200):
        rig, meter = begin(*args)
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
def test_no_step_of_an_answer_does_more_the_more_jobs_are_pending(
    args, topic, payload, begin, steps
):
    def longest(pending):
        rig, _ = begin(*args)
        fill(rig, pending)
        rig.answer(topic, **payload)  # makes the copy of the plan, at most once a second
        steps.clear()
        rig.answer(topic, **payload)
        return max(steps)

    check_growth(longest, 600, 2400)


@pytest.mark.parametrize("topic, payload", [("limits", {}), ("explain", {"id": 107})])
def test_no_step_of_an_answer_does_more_the_more_jobs_are_deferred(topic, payload, begin, steps):
    def longest(pending):
        rig, _ = begin(limits=ONE_JOB_EACH)
        rig.arrive([1, *range(100, 100 + pending)], whole(1, 500), userid=7)
        assert len(rig.sched.admission.deferred) == pending
        steps.clear()
        rig.answer(topic, **payload)
        return max(steps)

    check_growth(longest, 600, 2400)


def test_the_first_end_after_a_flood_of_jobs_takes_no_longer_turn(begin):
    """Work that each job defers must not be done for all jobs in one turn."""

    def longest(pending):
        rig, meter = begin(inventory=R(NODES, 4, 2))
        half = {"nodes": 1, "cores": 2, "gpus": 1}
        rig.arrive({n: jobspec(1, duration=10000 + n, **half) for n in range(1, NODES + 1)})
        for jobid in range(1000, 1000 + pending):
            kind = jobid % 97
            spec = jobspec(1, nodes=1 + kind % 9, cores=4, gpus=2, duration=600 * (1 + kind % 11))
            rig.alloc(jobid, spec)
            rig.turn()
        rig.settle()
        meter.reset()
        rig.free(1, wait=0)
        return meter.longest

    check_growth(longest)


@pytest.mark.parametrize("policy", ["sched-fifo", "sched-backfill"])
def test_no_turn_of_a_reload_does_more_the_more_jobs_are_pending(policy, begin):
    def longest(pending):
        rig, meter = begin("queue-depth=unlimited", module=policy, limits=ONE_JOB_EACH)
        rig.arrive(range(1, 1 + pending), whole(1, 500), userid=7)
        meter.reset()
        rig.reconfigure({"limits": {"user": {"per": "user", "max": {"jobs": 2}}}})
        assert rig.started() == [1, 2]
        return meter.longest

    check_growth(longest)


def test_no_turn_does_more_the_more_promises_are_bound_to_ranks(begin):
    """Also not the first after a quiet time, which may spend all the effort that was saved."""
    turns = []
    for promises in (100, 400):
        rig, meter = begin("promise=unlimited", inventory=R(200, 16))
        half = {"cores": 9, "nodes": 1}
        rig.arrive({n: jobspec(1, duration=5000 + 7 * n, **half) for n in range(1, 201)})
        for jobid in range(1000, 1000 + promises):
            size = {"cores": 8 + jobid % 9, "nodes": 6 + jobid % 37}
            rig.alloc(jobid, jobspec(1, duration=600 * (1 + jobid % 11), **size))
        rig.settle()
        plan = rig.sched.planning.current()
        assert len(plan.promises()) == promises and not plan.is_counted
        for jobid in (1, 2, 150):
            meter.reset()
            rig.free(jobid, wait=0)
            turns.append(meter.longest)
    # Some milliseconds; one search with all the effort that was saved would be 35,000 calls, and the
    # looks at a row of 400 promises 40,000.
    assert max(turns) < 22_000, turns


def test_the_work_of_an_end_with_200_jobs_whose_starts_are_unknown(calls):
    """They wait for a job without a limit. The resources that they keep, which do not count for those
    ahead, are not removed and kept again for each of them: that took 2.1 million calls."""
    rig = Rig(R(NODES, 4), "sched-backfill", "promise=unlimited", "estimate-depth=0")
    rig.alloc({1: whole(8, 0), 2: whole(8, 1000)})
    rig.arrive({jobid: whole(NODES - 4, 100 + jobid) for jobid in range(3, 203)})
    before = calls()
    rig.free(2, wait=0)
    assert calls() - before < 1_000_000


def test_a_cancel_does_no_more_the_more_shapes_of_jobs_wait_for_a_limit(begin):
    """They leave room for a promised job, and would be deferred for it again."""

    def spent(shapes):
        limits = {"bank": {"per": "bank", "max": {"nodes": 30}}}
        rig, meter = begin("estimate-depth=0", estimates=True, limits=limits)
        large = {"nodes": 25, "exclusive": True, "duration": 5000}
        banks = enumerate(("red", "blue", "green"), 1)  # the third is promised a start
        rig.arrive({jobid: jobspec(1, bank=bank, **large) for jobid, bank in banks})
        for shape in range(shapes):
            slots, nodes = 1 + shape % 4, 6 + shape // 4
            spec = jobspec(slots, nodes=nodes, exclusive=True, bank="green", duration=9000)
            rig.alloc([10 + shape, 50 + shape], spec)
        assert rig.started() == [1, 2] and len(rig.sched.admission.deferred) == 2 * shapes
        meter.reset()
        rig.cancel(50, wait=0)
        return meter.spent

    check_growth(spent, 8, 32, more=100)


@pytest.mark.parametrize("exclusive, most", [(True, 80), (False, 130)])
def test_users_below_their_limit_are_passed_over_when_that_of_all_is_reached(
    exclusive, most, begin
):
    """A look at each, not an examination: that would be 140 calls; 340 with an offer of the pool."""

    def spent(users):  # ten of them use the limit of all
        limits = {"user": {"per": "user", "max": {"nodes": 8}}}
        rig, meter = begin(limits={**limits, "all": {"per": "instance", "max": {"nodes": 40}}})
        spec = jobspec(1, nodes=4, cores=4, exclusive=exclusive, duration=5000)
        for user in range(users):
            rig.alloc(1 + user, spec, userid=2000 + user)
        rig.settle()
        meter.reset()
        rig.free(1)
        assert rig.started() == list(range(1, 12))
        return meter.spent

    check_growth(spent, 50, 200, factor=1, more=150 * most)


def test_a_search_for_jobs_that_preempt_others_does_no_more_the_more_jobs_wait(begin):
    def longest(pending):
        queues = {"low": {}, "high": {}}
        rig, meter = begin(queues=queues, preemption={"low": {"queues": ["low"]}})
        one = {"nodes": 1, "cores": 4, "duration": 90000}
        rig.arrive(range(1, NODES), jobspec(1, queue="low", **one))
        rig.arrive(NODES, jobspec(1, queue="high", **one))
        spec = jobspec(1, nodes=NODES, cores=4, duration=500, queue="high")
        rig.arrive(range(100, 100 + pending), spec, wait=10)
        meter.reset()
        rig.expire(1, rig.now + 80000)
        rig.free(2, wait=2)
        return meter.longest

    check_growth(longest)


@pytest.mark.parametrize("table", ["comes into force", "is in force"])
def test_shares_of_many_users_are_computed_together(table, begin):
    """When the table comes into force, and when the first job of each comes: not one by one, each with the use of all others."""
    tables = {"fairshare": {"half-life": "1d"}}

    def spent(users):
        rig, meter = begin(module="sched-fifo", **(tables if table == "is in force" else {}))
        rig.arrive(1, whole(NODES, 90000))
        for user in range(users):
            rig.alloc(10 + user, whole(NODES, 500), userid=2000 + user)
            rig.turn()
        rig.settle()
        if table == "comes into force":
            meter.reset()
            rig.reconfigure(tables)
        return meter.spent

    check_growth(spent, 100, 400, factor=4.5, more=0)


def test_a_pass_does_no_more_for_a_shape_the_more_shapes_there_are(begin):
    """Those of many users, whose jobs share no nodes: a shape is refused for all of them, without a look at all other jobs."""

    def spent(shapes):
        rig, meter = begin(sharing={"all": {"mode": "user"}})
        rig.arrive(range(1, NODES + 1), whole(1, 90000))
        for shape in range(shapes):
            spec = jobspec(1, nodes=2 + shape % 60, cores=1 + shape // 60, duration=500)
            for userid in (1000 + shape, 2000 + shape):
                rig.alloc(userid, spec, userid=userid)
        rig.settle()
        meter.reset()
        come_back(rig)
        rig.settle()
        return meter.spent

    check_growth(spent, 60, 240, factor=4.5, more=0)


def test_reasons_of_the_first_jobs_cost_no_more_the_more_jobs_are_deferred(begin):
    def longest(pending):
        args = ("reason-depth=8", "estimate-depth=0", "odds-depth=0")
        rig, meter = begin(*args, estimates=True, limits=ONE_JOB_EACH)
        rig.arrive(1, whole(1, 90000), userid=7)
        rig.arrive(range(100, 100 + pending), whole(1, 500), userid=7, wait=5)
        assert len(rig.sched.admission.deferred) == pending and rig.reason(100)
        meter.reset()
        rig.arrive(9999, whole(1, 500), userid=7, wait=5)
        return meter.longest

    check_growth(longest)
