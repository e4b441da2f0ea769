# SPDX-License-Identifier: LGPL-3.0-or-later
"""Which running jobs have to end: the stated rule, by itself and on pools."""

import random

import pytest
from peers import jobspec, machine

from flux.resource.ResourcePool import ResourcePool
from flux.resource.TreePool import TreePool
from flux.scheduler.site_policy.preemption.state import Victim
from flux.scheduler.site_policy.preemption.takers import choose, in_order
from flux.scheduler.trial import Trial

NOW = 10000.0


def candidate(jobid, rank, nodes, age):
    return Victim(jobid, "standby", nodes, NOW - age, 0, rank)


class Rooms(Trial):
    """A trial in which the job needs so many nodes of one of several rooms."""

    def __init__(self, rooms, wanted):
        self.rooms = rooms  # job id -> (room, nodes)
        self.wanted = wanted
        self.out = set()
        self.trials = 0

    def take_out(self, jobid):
        assert jobid not in self.out
        self.out.add(jobid)

    def put_back(self, jobid):
        self.out.remove(jobid)

    def fits(self):
        self.trials += 1
        free = {}
        for jobid in self.out:
            room, nodes = self.rooms[jobid]
            free[room] = free.get(room, 0) + nodes
        return any(nodes >= self.wanted for nodes in free.values())


def plainly(candidates, trial):
    """The rule, word by word."""
    out = []
    for one in in_order(candidates, NOW):
        trial.take_out(one.jobid)
        out.append(one)
        if trial.fits():
            break
    else:
        return None
    for one in list(reversed(out)):
        trial.put_back(one.jobid)
        if trial.fits():
            out.remove(one)
        else:
            trial.take_out(one.jobid)
    return out


def test_the_order_is_rank_then_loss_then_youth_then_id():
    jobs = [(1, 1, 1), (0, 4, 100), (0, 1, 400), (0, 2, 200), (0, 2, 200), (0, 1, 5)]
    candidates = [candidate(jobid, *job) for jobid, job in enumerate(jobs, 1)]
    assert [one.jobid for one in in_order(candidates, NOW)] == [6, 2, 5, 4, 3, 1]


@pytest.mark.parametrize("seed", range(200))
def test_the_choice_follows_the_rule_and_no_victim_can_be_left_out(seed):
    draw = random.Random(seed)
    rooms, candidates = {}, []
    for jobid in range(draw.randint(0, 30)):
        nodes = draw.choice([1, 1, 2, 4])
        rooms[jobid] = (draw.randrange(3), nodes)
        candidates.append(candidate(jobid, draw.randrange(2), nodes, draw.choice([10, 100, 1000])))
    needed = draw.randint(1, 12)
    shuffled = candidates[:]
    draw.shuffle(shuffled)
    trial = Rooms(rooms, needed)
    chosen = choose(in_order(shuffled, NOW), trial)
    assert chosen == plainly(candidates, Rooms(rooms, needed))
    if chosen is None:
        assert trial.out == set()
        return
    assert trial.out == {one.jobid for one in chosen} and trial.fits()
    for one in chosen:
        trial.put_back(one.jobid)
        assert not trial.fits()
        trial.take_out(one.jobid)
    # The number of trials grows with the victims, not with the candidates.
    assert trial.trials <= 12 + 4 * len(candidates)


def test_of_ten_thousand_candidates_few_are_tried():
    rooms = dict.fromkeys(range(10000), (0, 1))
    trial = Rooms(rooms, 3)
    chosen = choose([candidate(i, 0, 1, i) for i in range(10000)], trial)
    assert [one.jobid for one in chosen] == [0, 1, 2]
    assert trial.trials < 40


@pytest.mark.parametrize("tree", [False, True], ids=["rv1", "tree"])
def test_a_trial_keeps_promises_but_those_that_yield(tree):
    pool = (TreePool if tree else ResourcePool)(machine(tree, 4))
    pool.clock = lambda: NOW
    whole = jobspec(slots=4, nodes=4, duration=100)
    pool.alloc(1, pool.parse_resource_request(whole))
    plan = pool.plan()
    plan.reserve(2, pool.parse_resource_request(whole), NOW + 100)
    short = pool.parse_resource_request(jobspec(slots=4, nodes=1, duration=100))
    long = pool.parse_resource_request(jobspec(slots=4, nodes=1, duration=101))
    for request, yielding, fits in ((short, (), True), (long, (), False), (long, (2,), True)):
        trial = Trial(plan, request, 0.0, yielding)
        trial.take_out(1)
        assert trial.fits() is fits
    trial = Trial(plan, short, 1.0)  # kept for it for a second before it runs
    trial.take_out(1)
    assert not trial.fits()
    assert plan.promises() == {2: (NOW + 100, NOW + 200)}
