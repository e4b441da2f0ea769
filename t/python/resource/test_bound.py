# SPDX-License-Identifier: LGPL-3.0-or-later
"""Promises that are bound to ranks: what is too long, copies, and promises over a long time."""

import math
import random

import pytest
from pool_model import R_of, ask

from flux.resource import InsufficientResources, ResourcePool

NOW = 1000.0


def make_pool(nodes, cores=16, gpus=4):
    pool = ResourcePool(
        R_of({rank: (set(range(cores)), set(range(gpus))) for rank in range(nodes)})
    )
    pool.now = NOW
    pool.clock = lambda: pool.now
    return pool


def fill(pool, rng, jobs):
    """Start jobs of some shapes."""
    for jobid in range(1, jobs + 1):
        slots, cores, gpus = rng.randint(1, 4), rng.randint(1, 6), rng.randint(0, 1)
        duration = float(rng.randint(1, 40))
        try:
            pool.alloc(jobid, ask(pool, slots, cores, gpus, duration=duration))
        except InsufficientResources:
            continue


@pytest.mark.parametrize("seed", range(6))
def test_what_is_too_long_does_not_fit_and_breaks_no_promise(seed):
    """With bound promises, the answer for a job that is too long agrees with a start."""
    rng = random.Random(seed)
    known = shorter = 0
    for _ in range(24):
        pool = make_pool(3)
        fill(pool, rng, 12)
        plan = pool.plan()
        for jobid in range(100, 104):
            size = rng.randint(1, 5), rng.randint(1, 8), rng.randint(0, 2)
            request = ask(pool, *size, duration=rng.randint(5, 60))
            when = plan.earliest(request)
            if when is not None:
                plan.reserve(jobid, request, when)
        for _ in range(10):
            slots, cores, gpus = rng.randint(1, 6), rng.randint(1, 6), rng.randint(0, 2)
            request = ask(pool, slots, cores, gpus, duration=1.0)
            limit = rng.randint(20, 120)
            bounds = plan.too_long(request), plan.too_long(request, limit)
            for too_long in bounds:
                if too_long < math.inf and not plan.is_counted:
                    known += 1
                    assert not plan.fits(request, duration=too_long or 1e-3)
            shorter += bounds[1] < limit <= bounds[0]
    assert known > 10 and shorter


def test_a_copy_of_a_plan_changes_nothing_in_it():
    """What a forecast enters into its copy does not count in the plan, nor the other way round."""
    for seed in range(4):
        rng = random.Random(seed)
        pool = make_pool(8)
        fill(pool, rng, 60)
        plan = pool.plan()
        shapes = [(8, 2, 1), (24, 1, 0), (3, 5, 1), (2, 2, 2), (12, 4, 0)]
        requests = [ask(pool, *shape, duration=float(rng.randint(20, 80))) for shape in shapes]
        for jobid, request in enumerate(requests, 1000):
            plan.reserve(jobid, request, plan.earliest(request))
        assert not plan.is_counted
        before = [plan.copy().earliest(request) for request in requests]
        promised = plan.promises()
        copy = plan.copy()
        for jobid, request in enumerate(requests * 4, 2000):
            copy.reserve(jobid, request, copy.earliest(request))
            plan.advance(1000)
        copy.cancel(1000)
        assert [plan.copy().earliest(request) for request in requests] == before
        assert [plan.advance(jobid) for jobid in promised] == [one for one, _ in promised.values()]


def test_a_late_start_breaks_the_promise_that_follows():
    pool = make_pool(1)
    plan = pool.plan()
    pool.alloc(1, ask(pool, 1, 15, 4, duration=10.0))
    plan.reserve(2, ask(pool, 1, 15, 4, duration=20.0), NOW + 10)
    plan.reserve(3, ask(pool, 1, 15, 4, duration=20.0), NOW + 30)
    assert not plan.is_counted
    assert plan.stale() == []
    pool.now = NOW + 15  # job 1 has ended late
    pool.free(1)
    plan.alloc(2, ask(pool, 1, 15, 4, duration=20.0))
    assert plan.stale() == [3]
    with pytest.raises(InsufficientResources, match="cannot be kept"):
        plan.advance(3)


@pytest.mark.parametrize("late, lost", [(0.5, []), (1.5, [3])])
@pytest.mark.parametrize("is_in_step", [False, True])
def test_a_start_on_the_pool_that_is_a_little_late_ends_as_planned(late, lost, is_in_step):
    pool = make_pool(1)
    plan, request = pool.plan(), ask(pool, 1, 15, 4, duration=20.0)
    pool.alloc(1, ask(pool, 1, 15, 4, duration=10.0))
    plan.reserve(3, request, NOW + 30)
    assert not plan.is_counted
    pool.now = NOW + 10 + late
    pool.free(1)
    if is_in_step:
        assert plan.stale() == []
    pool.alloc(2, request)
    plan.note_started(2, request, planned_end=NOW + 30)
    assert plan.stale() == lost


def test_what_a_late_job_holds_is_no_room_for_a_start():
    pool = ResourcePool(R_of({0: (set(range(16)), set()), 1: (set(range(16)), {0})}))
    pool.now = NOW
    pool.clock = lambda: pool.now
    plan = pool.plan()
    pool.alloc_on(1, ask(pool, 1, 8, 0, duration=10.0), 0b01)
    pool.now = NOW + 15
    plan.reserve(2, ask(pool, 1, 16, 1, duration=50.0), NOW + 20)
    two = ask(pool, 2, 8, 0, duration=100.0)
    assert not plan.fits(two) and plan.ranks_of(2) == 0b10
    assert [one["fits"] for one in plan.windows([two], 200.0)] == [False]
    with pytest.raises(InsufficientResources):
        plan.alloc(3, two)
    pool.free(1)
    assert plan.fits(two)


@pytest.mark.parametrize("others, frozen, start", [(31, False, 0), (32, False, 90), (0, True, 90)])
def test_promises_move_for_a_new_one_unless_there_are_many(others, frozen, start):
    """With more than MAX_PROMISES, or in a copy, none moves to other ranks."""
    pool = ResourcePool(R_of({0: (set(range(16)), {0}), 1: (set(range(16)), set())}))
    pool.clock = lambda: NOW
    plan = pool.plan()
    plain, gpus = ask(pool, 1, 16, 0, duration=50.0), ask(pool, 1, 15, 1, duration=60.0)
    assert plan.earliest(gpus) == NOW
    plan.reserve(1, plain, NOW + 35)
    plan.reserve(2, plain, NOW + 40)
    assert (plan.ranks_of(1), plan.ranks_of(2)) == (0b10, 0b01)
    plan.cancel(1)
    for jobid in range(1000, 1000 + others):
        plan.reserve(jobid, ask(pool, 1, 1, 0, duration=1.0), NOW + jobid)
    assert len(plan.promises()) == 1 + others
    plan = plan.copy() if frozen else plan
    assert plan.earliest(gpus) == NOW + start


def test_only_part_of_a_promise_is_lent():
    """A job that ends when a promise begins is part of its units or not."""
    pool = make_pool(1)
    plan = pool.plan()
    pool.alloc(1, ask(pool, 1, 14, 0, duration=10.0))
    plan.reserve(2, ask(pool, 1, 15, 1, duration=20.0), NOW + 10)
    plan.alloc(3, ask(pool, 1, 1, 2, duration=5.0))
    assert not plan.contains(2, [3])
    pool.free(3)
    plan.alloc(3, ask(pool, 1, 1, 1, duration=5.0))
    assert plan.contains(2, [3])


@pytest.mark.parametrize("is_counted", [True, False])
def test_ranks_are_kept_for_no_job_whatever_is_in_use(is_counted):
    def whole(nodes, duration):
        return ask(pool, 1, 16, 4, nodes=nodes, exclusive=True, duration=duration)

    pool = make_pool(4)
    plan = pool.plan()
    if not is_counted:
        plan.reserve(9, ask(pool, 1, 1, 0, duration=1.0), NOW + 500)
    pool.alloc_on(1, whole(1, 80.0), 0b1000)
    pool.alloc_on(2, whole(1, 30.0), 0b0100)
    plan.reserve(10, whole(1, 10.0), NOW + 5)
    assert not plan.keep_free(-1, whole(3, 100.0), NOW + 10)
    assert plan.is_counted is is_counted and plan.stale() == [-1, 10] and plan.breaks_a_promise()
    plan.cancel(10)
    assert not plan.breaks_a_promise()
    assert plan.earliest(whole(1, 10.0)) == NOW and plan.earliest(whole(1, 11.0)) == NOW + 80
    if is_counted:
        return
    assert plan.ranks_of(-1) == 0b0111 and plan.is_short
    pool.free(1)
    assert plan.stale() == [] and plan.ranks_of(-1) == 0b1011 and not plan.is_short


def test_ranks_that_come_up_are_kept_for_no_job():
    pool = make_pool(3)
    pool.mark_down("2")
    plan = pool.plan()
    plan.reserve(9, ask(pool, 1, 1, 0, duration=1.0), NOW + 500)
    request = ask(pool, 1, 16, 4, nodes=3, exclusive=True, duration=100.0)
    assert not plan.keep_free(-1, request, NOW + 10)
    assert not plan.is_counted and plan.stale() == [] and plan.ranks_of(-1) == 0b011
    pool.mark_up("2")
    assert plan.stale() == [] and plan.ranks_of(-1) == 0b111


@pytest.mark.parametrize("is_extended", [False, True])
def test_promises_are_examined_in_a_row_whatever_changed_before(is_extended):
    """Where none is in doubt: after starts without a promise, and after a job got more time."""
    pool = make_pool(1)
    plan, request = pool.plan(), ask(pool, 1, 15, 4, duration=20.0)
    assert plan.earliest(request) == NOW and not plan.is_counted
    plan.alloc(1, request)
    for jobid in (2, 3, 4):
        plan.reserve(jobid, request, NOW + 20 * jobid)
    if is_extended:
        pool.update_expiration(1, NOW + 30)
    assert plan.advance_in_turn([2, 3, 4]) == (3, [], math.inf)
    if is_extended:
        pool.update_expiration(1, NOW + 50)  # job 2 is promised NOW + 40
        assert plan.advance_in_turn([2, 3, 4]) == (0, [], math.inf)
