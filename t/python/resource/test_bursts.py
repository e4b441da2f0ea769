# SPDX-License-Identifier: LGPL-3.0-or-later
"""Many jobs that start together beside a promise that is bound to ranks: what each of them costs."""

from pool_model import Ask, R_of

from flux.resource import ResourcePool
from flux.resource.plan.bookings import Bookings


def counted(monkeypatch, name):
    calls = []
    method = getattr(Bookings, name)

    def call(self, *args):
        calls.append(args)
        return method(self, *args)

    monkeypatch.setattr(Bookings, name, call)
    return calls


def request(pool, *args, **keys):
    return pool.parse_resource_request(Ask(*args, **keys).jobspec())


def burst(count):
    """A plan with a promise of parts of four ranks, and `count` jobs on parts of a rank or two each that
    were started since beside it."""
    units = (range(8), range(2))
    pool = ResourcePool(R_of(dict.fromkeys(range(count), units)))
    pool.clock = lambda: 1000.0
    plan = pool.plan()
    plan.reserve(10**6, request(pool, (4, 4), (1, 1), 5, duration=100.0), 1050.0)
    assert not plan.is_counted
    for jobid in range(1, count + 1):
        plan.alloc(jobid, request(pool, None, (2, 2), 2, duration=60.0 + jobid))
    return pool, plan


def test_ranks_on_which_others_have_started_are_not_asked_about(monkeypatch):
    asked = counted(monkeypatch, "least")
    costs = []
    for count in (20, 80):
        asked.clear()
        burst(count)
        costs.append(len(asked) / count)
    # It was one more for each that had started.
    assert costs[1] <= costs[0] <= 4


def test_a_copy_without_what_has_started_says_the_same():
    for count in (20, 80):
        pool, plan = burst(count)
        copy = plan.copy()
        assert copy.promises() == plan.promises()
        for nodes in (1, count // 2, count - 1):
            one = request(pool, (nodes, nodes), (1, 1), 8, duration=200.0)
            assert copy.earliest(one) == plan.earliest(one)
