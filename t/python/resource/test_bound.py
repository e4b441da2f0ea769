# SPDX-License-Identifier: LGPL-3.0-or-later
"""Promises that are bound to ranks: which move, which are lent, and rows of them. When jobs start under them: test_definition.py."""

import math

import pytest
from pool_model import R_of, ask

from flux.resource import ResourcePool

NOW = 1000.0


def make_pool(nodes, cores=16, gpus=4):
    pool = ResourcePool(
        R_of({rank: (set(range(cores)), set(range(gpus))) for rank in range(nodes)})
    )
    pool.now = NOW
    pool.clock = lambda: pool.now
    return pool


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
