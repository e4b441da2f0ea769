# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs that may share a rank, now: `flux.resource.plan.claims.Claims`."""

import cProfile
import gc
import pstats
import random

import pytest

from flux.resource.plan.claims import Claims
from flux.resource.request import Claimant

ALL = -1


def by_comparing_all(claims, claimant):
    """The ranks that are closed to a claimant and those that are its own, each running job looked at."""
    closed = own = 0
    for other, on in claims.running.values():
        closed |= on & claimant.apart_from(other)
        for key, other_key, where in zip(claimant.keys, other.keys, other.where):
            if key == other_key:
                own |= on & where
    return closed, own


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("alike", [True, False])
def test_closed_and_own_ranks_as_by_comparing_all_jobs(alike, seed):
    rnd = random.Random(seed)
    ranks = 12

    def mask():
        return rnd.choice([0, ALL, rnd.getrandbits(ranks)])

    where = (mask(), mask())
    claimants = []
    for _ in range(10):
        keys = rnd.randrange(4), rnd.choice("abc")
        claimants.append(Claimant(keys, where if alike else (mask(), mask())))
    claims = Claims()
    for jobid in range(200):
        claims.enter(jobid, rnd.choice(claimants), rnd.getrandbits(ranks) & rnd.getrandbits(ranks))
        while len(claims.running) > 6 or (claims.running and rnd.random() < 0.4):
            gone = rnd.choice(sorted(claims.running))
            on = claims.running[gone][1]
            claims.leave(gone, rnd.choice([on, ALL, rnd.getrandbits(ranks)]))
        for claimant in claimants:
            found = claims.apart_from(claimant), claims.own(claimant)
            assert found == by_comparing_all(claims, claimant)
    held = dict.fromkeys(claimants, 0)
    for claimant, on in claims.running.values():
        held[claimant] |= on
    assert dict(claims.by_claimant()) == {one: on for one, on in held.items() if on}


def test_a_start_costs_the_same_however_many_users_have_jobs():
    def calls(users):
        claims = Claims()
        for user in range(users):
            claims.enter(user, Claimant((user, ""), (ALL, 0)), 1 << user)
        gc.collect()  # objects left by other tests have callbacks, which would be counted
        profile = cProfile.Profile()
        profile.enable()
        claims.leave(0, 1)
        for user in range(1, 10):
            assert claims.own(Claimant((user, ""), (ALL, 0))) == 1 << user
            assert claims.apart_from(Claimant((user, ""), (ALL, 0))) >> user & 1 == 0
            claims.enter(users + user, Claimant((user, ""), (ALL, 0)), 1)
        profile.disable()
        return pstats.Stats(profile).total_calls

    assert calls(80) == calls(20)
