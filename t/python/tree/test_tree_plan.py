# SPDX-License-Identifier: LGPL-3.0-or-later
"""Looking ahead on a TreePool: the plans of every pool, with containers and topology."""

import random

import pytest
from shared import seeds
from tree_help import jobspec_of_shape, topo_R

from flux.resource.TreePool import TreePool

NUMAS = [{"cores": f"{4 * i}-{4 * i + 3}", "gpus": str(i)} for i in range(4)]
TOPO = {"socket": [{"numa": NUMAS[:2]}, {"numa": NUMAS[2:]}]}
SHAPES = (
    "slot/core=3", "slot/[core=2;gpu]", "slot=2/[core=4;gpu]", "slot/numa{x}", "slot/socket{x}",
    "slot=3/numa{x}", "node=2/slot/socket{x}", "node/slot=2/core=5", "node{x}/slot/core", "slot/node{x}",
    "slot/numa=2{x}", "node=2/slot=2/[core;gpu]",
)  # fmt: skip


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def make_pool(nodes=3):
    pool = TreePool(topo_R((nodes, "0-15", "0-3", TOPO), (1, "0-7", "", {"cores": "0-7"})))
    pool.clock = Clock()
    return pool


def parse(pool, shape, duration=0, **system):
    return pool.parse_resource_request(jobspec_of_shape(shape, duration, **system))


def filled(seed, nodes=3):
    pool = make_pool(nodes)
    rnd = random.Random(seed)
    for jobid in range(1, 40):
        duration = rnd.choice((0, 10, 20, 20, 30, 45)) if rnd.random() < 0.95 else 0
        try:
            pool.alloc(jobid, parse(pool, rnd.choice(SHAPES), duration))
        except (TreePool.InsufficientResources, TreePool.InfeasibleRequest):
            pass
    if rnd.random() < 0.3:
        pool.mark_down("1")
    return pool


def first_time(pool, request):
    """When a request fits as jobs end, by ending them one after the other on a copy."""
    pool = pool.copy()
    now = pool.clock()
    for time in [now, *sorted({end for _, end in pool.job_end_times() if end})]:
        for jobid, end in pool.job_end_times():
            if end and end <= time:
                pool.free(jobid)
        try:
            pool.alloc(999, request)
        except (TreePool.InsufficientResources, TreePool.InfeasibleRequest):
            continue
        return time
    return None


def test_windows_count_containers():
    pool = make_pool()
    pool.alloc(1, parse(pool, "slot=5/numa{x}", 50))
    assert pool.held_ranks(1) == 0b11
    plan = pool.plan()
    shapes = ("slot=9/numa{x}", "slot/socket{x}", "node/slot/socket{x}", "slot/numa=3{x}")
    requests = [parse(pool, shape) for shape in shapes]
    now = pool.clock()
    found = [[count for count, _ in one["steps"]] for one in plan.windows(requests, 10)]
    assert found == [[7], [3], [2], [2]]
    plan.reserve(2, parse(pool, "node=3/slot/socket{x}", 10), now + 50)
    found = [one["steps"] for one in plan.windows(requests[:2], 100)]
    assert found == [[(7, now + 50)], [(3, now + 50)]]


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_earliest_is_when_it_fits(seed):
    pool = filled(seed)
    for shape in SHAPES:
        request = parse(pool, shape, 5)
        assert pool.earliest(request) == first_time(pool, request), shape


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_no_reservation_is_delayed(seed):
    """Jobs that a plan starts around its reservations leave these when and as they are."""
    pool = filled(seed)
    plan = pool.plan()
    rnd = random.Random(seed)
    promised = {}
    for jobid in range(100, 104):
        request = parse(pool, rnd.choice(SHAPES), 15)
        start = plan.earliest(request)
        if start is not None and start > pool.clock():
            plan.reserve(jobid, request, start)
            promised[jobid] = (start, request)
    for jobid in range(200, 230):
        request = parse(pool, rnd.choice(SHAPES), rnd.choice((5, 15, 60)))
        try:
            plan.alloc(jobid, request)
        except (TreePool.InsufficientResources, TreePool.InfeasibleRequest):
            pass
        pool._check()
    for jobid, (start, request) in sorted(promised.items(), key=lambda one: one[1][0]):
        pool.clock.now = start
        for running, end in pool.job_end_times():
            if end and end <= start:
                pool.free(running)
        pool.alloc(jobid, request)  # it starts when it was told
        plan.note_started(jobid)


@pytest.mark.parametrize(
    "shape, constraint, text",
    [
        ("slot=2/rack{x}", None, "need 2 exclusive 'rack' container(s), only 0 available; 3 of 3 nodes have too few such containers"),
        ("node=2/slot/socket{x}", {"ranks": ["1-2"]}, "only 1 available; 1 of 3 nodes does not match the constraint; 1 of 3 nodes has"),
        ("slot=9/socket{x}", None, "only 4 available; 1 of 3 nodes has too few"),
        ("slot=3/socket{x}", {"ranks": ["0"]}, "only 2 available; 2 of 3 nodes do not match the constraint"),
    ],
)  # fmt: skip
def test_who_is_told_never_is_told_why(shape, constraint, text):
    pool = make_pool(2)
    request = parse(pool, shape, 10, **({} if constraint is None else {"constraints": constraint}))
    with pytest.raises(TreePool.InfeasibleRequest) as caught:
        pool.alloc(1, request)
    assert text in str(caught.value) and pool.explain(request)["reason"] == str(caught.value)
