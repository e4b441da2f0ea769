# SPDX-License-Identifier: LGPL-3.0-or-later
"""Promises on ranks that are known to stay where they are, against a look at each; and how many looks an
end takes."""

import random

import pytest
from planned_queue import PlannedQueue
from test_sums import make_pool, spec

from flux.resource import InsufficientResources
from flux.resource.plan import bound_strategy, lacks, packing, rank_profile
from flux.resource.plan.lacks import Lacks
from flux.resource.plan.plan import Plan
from flux.resource.plan.rank_profile import RankProfile

NODES = 80


class Queue(PlannedQueue):
    """A pool of nodes that jobs share, with a plan: each job that cannot start is promised a time."""

    def __init__(self, nodes=NODES):
        pool = make_pool(nodes)
        super().__init__(pool, Plan(pool.impl))

    def submit(self, *wanted):
        self.enter(spec(*wanted))

    def advance(self):
        """As a pass: in order of the queue, in rows of those that stay."""
        waiting = sorted(self.plan.promised())
        while waiting:
            count, moved = self.plan.advance_in_turn(waiting)
            assert not moved
            del waiting[:count]
            if waiting:
                jobid = waiting.pop(0)
                while self.plan.search_on(jobid, 3):
                    pass
                try:
                    if self.plan.advance(jobid) <= self.pool.now:
                        self.start(jobid)
                except InsufficientResources:
                    self.plan.cancel(jobid)


def wanted(rng):
    """Slots on any ranks, or parts of nodes, or whole ones."""
    duration = float(rng.choice([5, 10, 20, 33, 60, 90]))
    if rng.random() < 0.4:
        return rng.choice([4, 20, 60]), rng.choice([2, 5, 8]), rng.randint(0, 1), duration
    return 1, rng.choice([3, 9, 16]), rng.randint(0, 2), duration, rng.choice([2, 5, 12, 30])


def play(rng, steps=60):
    queue = Queue()
    for _ in range(110):
        queue.submit(*wanted(rng))
    assert not queue.plan.is_counted
    for _ in range(steps):
        running = queue.running()
        queue.pool.now += rng.choice([0, 0, 0.5, 1])
        what = rng.random()
        if what < 0.6 and running:
            queue.pool.free(rng.choice(running))
        elif what < 0.7 and queue.plan.promised():
            queue.plan.cancel(rng.choice(queue.plan.promised()))
        elif what < 0.75 and running:
            jobid = rng.choice(running)
            queue.pool.update_expiration(jobid, queue.pool.now + rng.choice([1, 50]))
        elif what < 0.95:
            queue.submit(*wanted(rng))
        for jobid in queue.running():
            if queue.pool.job_end(jobid) <= queue.pool.now:
                queue.pool.free(jobid)
        queue.advance()
    return queue


@pytest.mark.parametrize("most", [1, 8])
@pytest.mark.parametrize("changes", [2, lacks.MAX_CHANGES])
@pytest.mark.parametrize("seed", range(4))
def test_promises_that_stay_would_be_found_to_stay(monkeypatch, seed, changes, most):
    monkeypatch.setattr(packing, "STEPS_PER_CHANGE", 0)
    monkeypatch.setattr(packing, "MAX_PACKING_STEPS", 0)
    monkeypatch.setattr(lacks, "MAX_CHANGES", changes)
    monkeypatch.setattr(rank_profile, "MAX_LACK", most)
    stays, earlier = Lacks.stays, RankProfile.earlier
    found = {True: 0, False: 0}

    def compared(self, promise, now, looks=float("inf")):
        self.renew_profile()
        known, self._lacks = self._lacks, Lacks()  # which knows nothing
        expected = earlier(self, promise, now, looks)
        self._lacks = known
        asked = []
        with monkeypatch.context() as patch:
            patch.setattr(Lacks, "stays", lambda *args: asked.append(stays(*args)) or asked[-1])
            answer = earlier(self, promise, now, looks)
        assert answer == expected
        for one in asked:
            found[one] += 1
        return answer

    monkeypatch.setattr(RankProfile, "earlier", compared)
    play(random.Random(seed))
    assert found[True] > 50 and found[False] > 50, found


def starts_of(monkeypatch, seed, row):
    """All starts of a history, with promises advanced in rows or one by one."""
    if not row:
        monkeypatch.setattr(
            bound_strategy.BoundStrategy, "advance_in_turn", lambda self, jobids, now: (0, [])
        )
        monkeypatch.setattr(bound_strategy.BoundStrategy, "search_on", lambda *args: False)
    started = []
    start = Queue.start

    def noted(self, jobid):
        done = start(self, jobid)
        started.append((jobid, self.pool.now, done))
        return done

    monkeypatch.setattr(Queue, "start", noted)
    queue = play(random.Random(seed))
    monkeypatch.undo()
    return started, queue.plan.promises()


@pytest.mark.parametrize("seed", range(4))
def test_rows_and_searches_in_parts_find_what_searches_find(monkeypatch, seed):
    """With the steps there are, too: a search in parts takes as many as one at once."""
    assert starts_of(monkeypatch, seed, True) == starts_of(monkeypatch, seed, False)


def looks_of_an_end(monkeypatch, promises):
    """How many looks at ranks an early end takes among so many promises that wait for jobs which end
    later."""
    queue = Queue(200)
    for number in range(200):
        queue.submit(1, 9, 1, 50.0 + number, 1)
    for number in range(promises):
        queue.submit(1, 8 + number % 9, 1, 100.0 + number % 50, 6 + number % 7)
    assert len(queue.plan.promised()) == promises and not queue.plan.is_counted
    queue.plan._strategy._profile.effort.left = 0
    monkeypatch.setattr(packing, "STEPS_PER_CHANGE", 0)
    looks = []
    look = RankProfile._lack_instead
    monkeypatch.setattr(RankProfile, "_lack_instead", lambda *args: looks.append(1) or look(*args))
    counts = []
    for jobid in (1, 2, 3, 4):
        looks.clear()
        queue.pool.free(jobid)
        queue.advance()
        counts.append(len(looks))
    monkeypatch.undo()
    return counts


def test_looks_of_an_end_do_not_grow_with_promises_that_lack_more(monkeypatch):
    few, many = looks_of_an_end(monkeypatch, 60), looks_of_an_end(monkeypatch, 240)
    assert many[0] > 100  # of none was known what it lacks
    assert max(many[1:]) <= max(few[1:]) < 10, (few, many)
