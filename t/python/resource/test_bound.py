# SPDX-License-Identifier: LGPL-3.0-or-later
"""Promises that are bound to ranks: which move, which are lent, and rows of them. When jobs start under them: test_definition.py."""

import math

import pytest
from pool_model import R_of, ask

from flux.resource import InsufficientResources, ResourcePool

NOW = 1000.0


def make_pool(nodes, cores=16, gpus=4):
    parts = set(range(cores)), set(range(gpus))
    pool = ResourcePool(R_of(dict.fromkeys(range(nodes), parts)))
    pool.now = NOW
    pool.clock = lambda: pool.now
    return pool


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


def test_an_open_promise_breaks_no_promised_time():
    def whole(nodes, duration):
        return ask(pool, 1, 16, 4, nodes=nodes, exclusive=True, duration=duration)

    pool = make_pool(2)
    plan = pool.plan()
    plan.reserve(9, ask(pool, 1, 1, 0, duration=1.0), NOW + 500)  # not counted
    pool.alloc_on(1, whole(1, 100.0), 0b01)
    plan.reserve(2, whole(2, 10.0), NOW + 100)
    plan.hold(3, whole(1, 10.0))
    assert plan.open_ids() == [3] and 2 in plan.stale()
    assert not plan.breaks_a_promise() and 2 in plan.stale()
    pool.update_expiration(1, NOW + 101)
    assert plan.breaks_a_promise()


@pytest.mark.parametrize("cores", [16, 15], ids=["counted", "bound"])
def test_jobs_without_an_end_stay_in_the_plan_if_the_search_without_them_fails(cores, monkeypatch):
    def fail(*args):
        raise ZeroDivisionError

    pool = make_pool(1)
    plan, request = pool.plan(), ask(pool, 1, cores, 0, duration=20.0)
    plan.alloc(1, ask(pool, 1, cores, 0, duration=0.0))
    assert plan.earliest(request) is None and plan.is_counted == (cores == 16)
    monkeypatch.setattr(plan, "_earliest", fail)  # such as a hook of a site's pool
    with pytest.raises(ZeroDivisionError):
        plan.hold(2, request)
    monkeypatch.undo()
    assert plan.earliest(request) is None


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
