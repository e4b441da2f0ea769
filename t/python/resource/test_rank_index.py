# SPDX-License-Identifier: LGPL-3.0-or-later
"""The index of what is free on ranks."""

import random

from pool_model import Ask, R_of

from flux.resource import ResourcePool
from flux.resource.pool import rank_index


def pool_with_jobs(jobs):
    rng = random.Random(4)
    pool = ResourcePool(R_of({rank: (set(range(8)), {0, 1}) for rank in range(40)}))
    pool.clock = lambda: 100.0
    for jobid in range(jobs):
        nodes = rng.choice([None, 1, 2, 9])
        one = Ask(
            ([nodes], nodes) if nodes else None,
            ([1], 1),
            rng.choice([1, 2, 8]),
            duration=float(rng.randrange(1, 500)),
        )
        try:
            pool.alloc(jobid, pool.parse_resource_request(one.jobspec()))
        except OSError:
            continue
    return pool


def test_shared_states_are_bounded(monkeypatch):
    monkeypatch.setattr(rank_index, "MAX_SHARED_MASKS", 4)
    pool = pool_with_jobs(60)
    pool._check()
    assert len(rank_index._shared) <= 4
    for jobid, _ in pool.job_end_times():
        pool.free(jobid)
    assert pool.copy_allocated().dumps() == ""


def test_sets_that_are_not_free():
    """Registering many ranks at once, some of them in use."""
    pool = ResourcePool(
        R_of({rank: ({0, 1, 2} if rank % 2 else {0, 1}, set()) for rank in range(8)})
    )
    index = pool.impl.index
    assert index.is_free((~0b1111, 0b11))
    assert not index.is_free((~0b1111, 0b111))
    index.take((~0b0110, 0b01))
    assert index.is_free((~0b1110, 0b10))
    assert not index.is_free((~0b1110, 0b01))
    assert not index.is_free((2, 0b01)) and index.is_free((2, 0b10))
