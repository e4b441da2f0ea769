# SPDX-License-Identifier: LGPL-3.0-or-later
"""What bookings leave of ranks, against what each rank has left moment by moment."""

import math
import random

import pytest
from test_sums import NOW, fill, make_pool, spec

from flux.resource import InsufficientResources
from flux.resource.plan import bookings as bookings_module
from flux.resource.plan.bookings import Bookings
from flux.resource.plan.promise import Booking
from flux.resource.plan.running_profile import Need, RunningProfile
from flux.resource.pool.masks import members

RANKS = 6


def profile_of(pool):
    impl = pool.impl
    return RunningProfile(impl)


@pytest.mark.parametrize("seed", range(6))
def test_what_ranks_gain(seed):
    """The same whether it is asked in parts or at once, and as much as groups of ranks tell."""
    pool = make_pool(RANKS)
    fill(pool, random.Random(seed), 20)
    profile = profile_of(pool)
    rng = random.Random(seed)
    gained = {rank: profile.key_now(rank) for rank in range(RANKS)}
    until = dict.fromkeys(range(RANKS), -math.inf)
    for _ in range(60):
        rank = rng.randrange(RANKS)
        time = max(until[rank], NOW + rng.randint(0, 60))
        gained[rank] += sum(key for _, key in profile.gains(rank, until[rank], time))
        until[rank] = time
        there = [key for key, mask in profile.groups_at(time).items() if mask >> rank & 1]
        assert [gained[rank]] == (there or [0])


@pytest.mark.parametrize("asked", [0, bookings_module.RANKS_ASKED_PER_PART, 10**9])
@pytest.mark.parametrize("seed", range(12))
def test_ranks_that_bookings_leave_enough_on(monkeypatch, seed, asked):
    """The same whether ranks are asked one by one or all bookings are entered for a need, at once or a
    few at a time; and who wants a number of ranks is told whether there are so many."""
    monkeypatch.setattr(bookings_module, "RANKS_ASKED_PER_PART", asked)
    monkeypatch.setattr(bookings_module, "PARTS_AT_ONCE", 1 + seed % 4)
    monkeypatch.setattr(bookings_module, "MAX_ASKED_WITHOUT_MASKS", seed % 3)
    rng = random.Random(seed)
    pool = make_pool(RANKS)
    fill(pool, rng, 20)
    profile = profile_of(pool)
    base = profile.inventory.key_base
    booked = Bookings(profile)
    there = []
    needs = [Need(rng.randint(0, 16), rng.randint(0, 4), False) for _ in range(4)]
    needs.append(Need(0, 0, True))

    def left(rank, time):
        """What is free of a rank at a moment, beside bookings that leave some cores."""
        free = next(key for key, mask in profile.groups_at(time).items() if mask >> rank & 1)
        cores, gpus = divmod(free, base)
        for one in there:
            for mask, key in one.parts:
                if mask >> rank & 1 and one.start <= time < one.end:
                    cores -= key // base
                    gpus -= key % base
        return cores, gpus

    def enough(rank, need, start, end):
        moments = {start, *[end for end, _ in pool.jobs_by_end() if start < end]}
        moments |= {time for one in there for time in (one.start, one.end)}
        for time in moments:
            if start <= time < end:
                cores, gpus = left(rank, time)
                if need.whole and (cores, gpus) != (16, 4):
                    return False
                if cores < need.cores or gpus < need.gpus:
                    return False
        return True

    found = set()
    for step in range(60):
        if there and rng.random() < 0.4:
            assert booked.remove(there.pop(rng.randrange(len(there))))
        else:
            start = NOW + rng.randint(0, 40)
            end = rng.choice([start + rng.randint(1, 30), math.inf])
            mask = rng.getrandbits(RANKS) or 1
            one = Booking(start, end, [(mask, rng.randint(1, 6) * base + rng.randint(0, 1))])
            there.append(one)
            booked.enter(one)
        if step % 20 == 19:
            booked = booked.copy(profile)
        for need in needs:
            start = NOW + rng.randint(0, 45)
            end = start + rng.choice([rng.randint(1, 40), math.inf])
            room = profile.track(need).at(start)
            expected = sum(1 << rank for rank in members(room) if enough(rank, need, start, end))
            least = rng.choice([0, rng.randint(1, RANKS)])
            answer = booked.leaving(room, need, start, end, least)
            if bin(expected).count("1") >= least:
                assert answer == expected
            else:
                assert bin(answer).count("1") < least
            found.add(expected == room)
    assert found == {True, False}


def timelines_made(monkeypatch):
    """The ranks for which what they have left is worked out, from now on."""
    made = []
    init = bookings_module._RankTimeline.__init__
    monkeypatch.setattr(
        bookings_module._RankTimeline,
        "__init__",
        lambda self, profile, rank, booked: made.append(rank) or init(self, profile, rank, booked),
    )
    return made


@pytest.mark.parametrize("seed", range(8))
def test_bookings_beside_jobs_that_come_and_go(monkeypatch, seed):
    rng = random.Random(seed)
    pool = make_pool(RANKS)
    fill(pool, rng, 12)
    profile = profile_of(pool)
    booked = Bookings(profile)
    there = []
    needs = [Need(rng.randint(0, 16), rng.randint(0, 4), False) for _ in range(4)]
    for step in range(80):
        if rng.random() < 0.3:
            start = NOW + rng.randint(0, 40)
            base = profile.inventory.key_base
            mask = rng.getrandbits(RANKS) or 1
            one = Booking(start, start + rng.randint(1, 30), [(mask, rng.randint(1, 6) * base)])
            there.append(one)
            booked.enter(one)
        elif rng.random() < 0.5:
            pool.free(rng.randint(1, 12 + 10 * step))
        else:
            fill_more(pool, rng, 100 + 10 * step)
        if rng.random() < 0.1:
            profile.shared = True
        pool.now += rng.choice([0, 0, 0, 3])
        profile = profile.followed(pool.impl)
        booked.follow(profile)
        anew = Bookings(profile_of(pool))
        for one in there:
            anew.enter(one)
        for need in needs:
            start = pool.now + rng.randint(0, 45)
            end = start + rng.choice([rng.randint(1, 40), math.inf])
            room = profile.track(need).at(start)
            assert booked.leaving(room, need, start, end) == anew.leaving(room, need, start, end)


def fill_more(pool, rng, jobid):
    request = pool.parse_resource_request(spec(rng.randint(1, 3), rng.randint(1, 6), 0, 20.0))
    try:
        pool.alloc(jobid, request)
    except InsufficientResources:
        pass


def test_after_an_end_only_its_ranks_are_worked_out_again(monkeypatch):
    pool = make_pool(40)
    for jobid in range(40):
        pool.alloc(jobid, pool.parse_resource_request(spec(1, 9, 0, 100.0 + jobid)))
    profile = profile_of(pool)
    booked = Bookings(profile)
    for number in range(80):
        booked.enter(Booking(NOW + number, NOW + number + 90, [(3 << number // 2, 5)]))
    need, everyone = Need(8, 0, False), profile.inventory.ranks
    made = timelines_made(monkeypatch)
    left = booked.leaving(everyone, need, NOW + 300, NOW + 400)
    booked.leaving(everyone, need, NOW + 20, NOW + 90)
    assert len(set(made)) > 30 and left == everyone
    del made[:]
    pool.free(7)
    profile = profile.followed(pool.impl)
    booked.follow(profile)
    booked.leaving(everyone, need, NOW + 20, NOW + 90)
    assert len(made) == 1
