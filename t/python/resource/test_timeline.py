# SPDX-License-Identifier: LGPL-3.0-or-later
"""Timelines of masks, and profiles with many ends, against plain lists."""

import random

from hypothesis import given
from hypothesis import strategies as st
from pool_model import Ask, R_of

from flux.resource import ResourcePool
from flux.resource.plan.mask_timeline import INFINITY, MaskTimeline, SortedTimes
from flux.resource.plan.running_profile import Need, RunningProfile
from flux.resource.pool import rank_index
from flux.resource.pool.inventory import Inventory
from flux.resource.pool.masks import popcount

spans = st.tuples(
    st.integers(0, 60), st.one_of(st.integers(1, 30), st.just(INFINITY)), st.integers(0, 7)
).map(lambda one: (float(one[0]), one[0] + one[1], 1 << one[2]))


@given(
    st.lists(spans, max_size=90),
    st.lists(st.integers(0, 200), max_size=25),
    st.lists(spans, min_size=1, max_size=10),
)
def test_timeline(added, removed, asked):
    line = MaskTimeline()
    there = []
    for span in added:
        # A rank is in one span at a time, as a mask taken out goes for good.
        if not any(s < span[1] and e > span[0] and m == span[2] for s, e, m in there):
            line.add(*span)
            there.append(span)
    for number in removed:
        if there:
            line.remove(*there.pop(number % len(there)))
    for start, end, _ in asked:
        expected = 0
        for low, high, mask in there:
            if low < end and high > start:
                expected |= mask
        assert line.union(start, end) == expected
    assert line.heads == [block.starts[0] for block in line.blocks]
    assert all(len(block.starts) == len(block.masks) for block in line.blocks)


def test_a_long_timeline():
    """Many blocks: spans over whole blocks, and out of them again."""
    rng = random.Random(5)
    line = MaskTimeline()
    there = []
    for number in range(400):
        start = float(rng.randrange(3000))
        span = (start, start + rng.randrange(1, 900), 1 << number)
        line.add(*span)
        there.append(span)
        if number % 3 == 2:
            line.remove(*there.pop(rng.randrange(len(there))))
    assert len(line.blocks) > 5
    for _ in range(300):
        start = float(rng.randrange(-10, 3500))
        end = start + rng.randrange(1, 600)
        expected = sum(mask for low, high, mask in there if low < end and high > start)
        assert line.union(start, end) == expected


def test_times():
    times = SortedTimes()
    for time in (5.0, 3.0, 5.0, 9.0):
        times.add(time)
    assert times.times == [3.0, 5.0, 9.0]
    assert [times.after(time) for time in (0, 3.0, 5.0, 9.0)] == [3.0, 5.0, 9.0, INFINITY]


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


def test_profile_of_many_ends():
    pool = pool_with_jobs(120)
    impl = pool.impl
    profile = RunningProfile(impl)
    rng = random.Random(6)
    for time in [rng.uniform(100, 700) for _ in range(60)] + [100.0, 9999.0]:
        after = pool.copy()
        for jobid, end in pool.job_end_times():
            if end <= time:
                after.free(jobid)
        index = after.impl.index
        groups = {key: mask for key, mask in profile.groups_at(time).items() if key and mask}
        assert groups == index.groups
        assert profile.index_at(time).groups == index.groups
        for need in (Need(1, 0, False), Need(3, 1, False), Need(8, 2, True)):
            room = profile.track(need).at(time)
            if need.whole:
                assert room == index.idle
            else:
                found = 0
                for _, _, mask in index.fitting(need.cores, need.gpus, index.inventory.ranks):
                    found |= mask
                assert room == found
        count = popcount(profile.track(Need(8, 0, False)).at(time))
        everyone = index.inventory.ranks
        first = profile.track(Need(8, 0, False)).first(count, everyone, 100.0)
        assert first <= time
        assert popcount(profile.track(Need(8, 0, False)).at(first)) >= count
    assert profile.track(Need(9, 0, False)).first(1, impl.inventory.ranks, 0.0) == INFINITY
    assert len({Need(1, 0, False), Need(1, 0, False), Need(1, 0, True)}) == 2


def test_profile_is_of_what_jobs_held_when_it_was_made():
    pool = pool_with_jobs(60)
    impl, before = pool.impl, pool.copy()
    profile = RunningProfile(impl)
    for jobid, _ in list(pool.job_end_times())[::2]:
        pool.free(jobid)
    for time in (150.0, 300.0, 9999.0):
        for jobid, end in list(before.job_end_times()):
            if end <= time:
                before.free(jobid)
        groups = {key: mask for key, mask in profile.groups_at(time).items() if key and mask}
        assert groups == before.impl.index.groups


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


def keys_counted(monkeypatch, jobs):
    """How often units are counted in a sweep over the ends of jobs that have half a node each."""
    pool = ResourcePool(R_of({rank: (set(range(4)), set()) for rank in range(jobs // 2)}))
    for jobid in range(jobs):
        ask = Ask(None, ([1], 1), 2, 0, False, 100.0 + jobid)
        pool.alloc(jobid, pool.parse_resource_request(ask.jobspec()))
    impl = pool.impl
    counted = []
    key = Inventory.key
    monkeypatch.setattr(Inventory, "key", lambda self, units: counted.append(1) or key(self, units))
    profile = RunningProfile(impl)
    while profile.step():
        pass
    monkeypatch.undo()
    assert profile.swept == jobs
    assert sum(len(moves) for one in profile.blocks for moves in profile.moves(one)[1]) == jobs
    return len(counted)


def test_a_sweep_counts_the_units_of_a_mask_once(monkeypatch):
    few, many = (keys_counted(monkeypatch, jobs) for jobs in (40, 160))
    assert 0 < few == many <= 4, (few, many)
