# SPDX-License-Identifier: LGPL-3.0-or-later
"""A profile that follows its pool, against one that is made anew; and what following costs."""

import random

import pytest
from pool_model import Ask, R_of

from flux.resource import InsufficientResources, ResourcePool
from flux.resource.plan import end_block, running_profile
from flux.resource.plan.end_block import EndBlock
from flux.resource.plan.mask_timeline import INFINITY
from flux.resource.plan.running_profile import Need, RunningProfile, Track
from flux.resource.pool.masks import popcount

NOW = 1000.0
NEEDS = [Need(1, 0, False), Need(3, 1, False), Need(8, 0, False), Need(8, 2, True)]


def make_pool(ranks):
    pool = ResourcePool(
        R_of({rank: (set(range(8 if rank % 5 else 4)), {0, 1}) for rank in range(ranks)})
    )
    pool.now = NOW
    pool.clock = lambda: pool.now
    return pool


def start(pool, jobid, rng):
    nodes = rng.choice([None, None, 1, 2, 9])
    ask = Ask(
        ([nodes], nodes) if nodes else None,
        ([rng.choice([1, 1, 3])], 1),
        rng.choice([1, 1, 2, 8]),
        exclusive=bool(nodes) and rng.random() < 0.3,
        duration=float(rng.choice([0, rng.randrange(1, 500), rng.randrange(1, 50) * 10])),
    )
    try:
        pool.alloc(jobid, pool.parse_resource_request(ask.jobspec()))
    except InsufficientResources:
        return False
    return True


def look(profile, rng, times):
    """What a profile says at some times, asked for in any order."""
    said = {}
    everyone = profile.inventory.ranks
    rng.shuffle(times)
    for time in times:
        groups = profile.groups_at(time)
        said[time] = (
            {key: mask for key, mask in groups.items() if key and mask},
            [profile.track(need).at(time) for need in NEEDS],
            [profile.track(need).first(rng.randint(1, 9), everyone, time) for need in NEEDS],
            profile.next_end_after(time),
            profile.total_at(time, everyone),
            profile.total_at(time, everyone >> 7),
            [profile.gains(rank, time, time + 90) for rank in (0, 3, 11)],
            profile.index_at(time).groups,
        )
    return said


def change(pool, jobid, rng):
    """Something that happens to a pool."""
    what = rng.random()
    running = [one for one, _ in pool.job_end_times()]
    if what < 0.1:
        pool.now += rng.choice([0.5, 7.0, 40.0])
    elif what < 0.2 and running:
        pool.update_expiration(rng.choice(running), pool.now + rng.choice([0.0, 33.0, 400.0]))
    elif what < 0.25 and running:
        pool.impl.free(rng.choice(running), R=shrunk(pool, rng.choice(running)), final=False)
    elif what < 0.5 and running:
        pool.free(rng.choice(running))
    elif what < 0.55:
        ranks = str(rng.randrange(20))
        (pool.mark_down if rng.random() < 0.5 else pool.mark_up)(ranks)
    else:
        start(pool, jobid, rng)


def shrunk(pool, jobid):
    """Nothing: a job gives back none of what it holds, which is a change all the same."""
    return {"version": 1, "execution": {"R_lite": [], "starttime": 0, "expiration": 0}}


@pytest.mark.parametrize("seed", range(6))
def test_a_profile_that_follows_is_as_one_made_anew(monkeypatch, seed):
    monkeypatch.setattr(running_profile, "ENDS_PER_BLOCK", 4)
    rng = random.Random(seed)
    pool = make_pool(20)
    impl = pool.impl
    profile = RunningProfile(impl)
    old = []
    followed = 0
    for jobid in range(1, 120):
        for number in range(rng.choice([1, 1, 1, 4])):
            change(pool, jobid * 10 + number, rng)
        before, profile = profile, profile.followed(impl)
        followed += before is profile
        times = [pool.now, pool.now + rng.randrange(100), pool.now + rng.randrange(600), 9e9]
        times = times[: rng.randint(1, 4)]
        asked = rng.random()
        told = look(profile, random.Random(asked), times[:])
        assert told == look(RunningProfile(impl), random.Random(asked), times[:])
        if rng.random() < 0.1:
            # Who shares it sees what was, whatever the pool does then.
            profile.shared = True
            old.append((profile, RunningProfile(impl), pool.now))
        for shared, as_made, now in old[-3:]:
            assert look(shared, random.Random(1), [now, now + 100]) == look(
                as_made, random.Random(1), [now, now + 100]
            )
    assert followed > 60


def test_jobs_without_an_end_and_late_ones():
    pool = make_pool(2)
    one = pool.parse_resource_request(Ask(None, ([1], 1), 4, duration=0.0).jobspec())
    two = pool.parse_resource_request(Ask(None, ([1], 1), 2, duration=10.0).jobspec())
    pool.alloc(1, one)
    pool.alloc(2, two)
    profile = RunningProfile(pool.impl)
    assert profile.next_end_after(NOW) == NOW + 10
    assert profile.next_end_after(NOW + 10) == INFINITY
    pool.now += 60
    pool.alloc(3, two)
    profile = profile.followed(pool.impl)
    assert profile.total_at(pool.now, 3)[0] == 12 - 4 - 2  # job 2 counts as ended
    assert profile.next_end_after(NOW + 10) == pool.now
    assert profile.next_end_after(pool.now) == pool.now + 10
    pool.free(2)
    assert profile.followed(pool.impl).total_at(pool.now, 3)[0] == 12 - 4 - 2


class Counting:
    """How often some methods are called."""

    def __init__(self, monkeypatch, *methods):
        self.calls = 0
        for owner, name in methods:
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, method):
        def call(*args):
            self.calls += 1
            return method(*args)

        return call


def work_of_an_end(jobs):
    """Calls that it takes to follow ends and starts of jobs, and to search with the result."""
    pool = ResourcePool(R_of({rank: (set(range(8)), set()) for rank in range(jobs // 2)}))
    pool.clock = lambda: NOW
    for jobid in range(jobs):
        ask = Ask(None, ([1], 1), 3, duration=100.0 + 7 * (jobid * 37 % jobs))
        pool.alloc(jobid, pool.parse_resource_request(ask.jobspec()))
    impl = pool.impl
    profile = RunningProfile(impl)
    need, everyone = Need(8, 0, False), impl.inventory.ranks
    assert profile.track(need).first(jobs // 4, everyone, NOW) < INFINITY
    swept = profile.swept
    with pytest.MonkeyPatch.context() as monkeypatch:
        counting = Counting(
            monkeypatch,
            *[(EndBlock, name) for name in ("flip", "add", "remove", "steps", "sums")],
            *[(RunningProfile, name) for name in ("_moves_of", "_parts", "_key", "step")],
            (Track, "_among"),
        )
        for jobid in range(10):
            pool.free(jobid)
            pool.alloc(jobs + jobid, pool.parse_resource_request(ask.jobspec()))
            followed = profile.followed(impl)
            assert followed is profile
            assert profile.track(need).first(jobs // 4, everyone, NOW) < INFINITY
            profile.total_at(NOW + 100, everyone)
    assert popcount(profile.track(need).at(NOW + 8 * jobs)) == jobs // 2
    return counting.calls / 10, swept


def test_an_end_costs_the_same_among_four_times_as_many_running_jobs():
    few, swept = work_of_an_end(1000)
    many, swept_of_many = work_of_an_end(4000)
    assert swept_of_many > 3 * swept > 1000
    # A block has so many ends as it has, however many blocks there are. What is known of the jobs in
    # it holds for the next change of the block, so that changes cost less where there are few blocks.
    assert few < many < 2 * end_block.ENDS_PER_BLOCK, (few, many)


def test_a_shared_profile_costs_a_copy_of_blocks_that_change():
    pool = make_pool(200)
    rng = random.Random(3)
    for jobid in range(400):
        start(pool, jobid, rng)
    profile = RunningProfile(pool.impl)
    profile.extend(9e9)
    profile.shared = True
    pool.free(next(one for one, end in pool.job_end_times() if end))
    other = profile.followed(pool.impl)
    assert other is not profile
    same = {id(one) for one in profile.blocks} & {id(one) for one in other.blocks}
    assert 0 < len(profile.blocks) - len(same) <= 3
    assert other.followed(pool.impl) is other
