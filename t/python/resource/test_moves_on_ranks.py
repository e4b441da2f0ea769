# SPDX-License-Identifier: LGPL-3.0-or-later
"""How promises on ranks move to earlier times: all at once or in parts, with steps left and without; and
how many looks and searches that takes."""

import random

import pytest
from planned_queue import PlannedQueue
from test_sums import make_pool, spec

from flux.resource import InsufficientResources
from flux.resource.plan import bound_strategy, packing, rank_profile
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


def wanted(rng, nodes):
    """Slots on any ranks, or parts of nodes, or whole ones."""
    duration = float(rng.choice([5, 10, 20, 33, 60, 90]))
    if rng.random() < 0.4:
        slots = rng.choice([4, nodes // 4, nodes * 3 // 4])
        return slots, rng.choice([2, 5, 8]), rng.randint(0, 1), duration
    count = rng.choice([max(1, nodes // 40), nodes // 16, nodes // 6, nodes // 3])
    return 1, rng.choice([3, 9, 16]), rng.randint(0, 2), duration, count


def play(rng, steps=60, nodes=NODES):
    queue = Queue(nodes)
    for _ in range(110):
        queue.submit(*wanted(rng, nodes))
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
            queue.submit(*wanted(rng, nodes))
        for jobid in queue.running():
            if queue.pool.job_end(jobid) <= queue.pool.now:
                queue.pool.free(jobid)
        queue.advance()
    return queue


@pytest.fixture
def no_steps(monkeypatch):
    """Nothing is left to bind promises again, and to look at later times."""
    monkeypatch.setattr(packing, "STEPS_PER_CHANGE", 0)
    monkeypatch.setattr(packing, "MAX_PACKING_STEPS", 0)


@pytest.mark.parametrize("nodes", [16, NODES])
@pytest.mark.parametrize("seed", range(4))
def test_without_steps_a_promise_moves_to_now_or_stays(monkeypatch, no_steps, seed, nodes):
    """And it moves whenever it fits: what is remembered of looks in vain gives the same answers."""
    earlier = RankProfile.earlier
    found = {"now": 0, "stays": 0, "remembered": 0}

    def compared(self, promise, now, looks=float("inf")):
        known, self._vain = self._vain, {}
        expected = earlier(self, promise, now, looks)
        self._vain = known
        before = self.looks
        answer = earlier(self, promise, now, looks)
        assert answer == expected
        assert answer in (now, promise.start)
        found["now" if answer == now else "stays"] += 1
        found["remembered"] += self.looks == before and self.is_free(promise.request.shape)
        return answer

    monkeypatch.setattr(RankProfile, "earlier", compared)
    play(random.Random(seed), nodes=nodes)
    assert min(found.values()) > 10, found


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


def looks_of_an_end(monkeypatch, nodes, promises):
    """How many looks at ranks the pass after an early end takes, in which something is free for each
    of so many promises, but not for as long as they take."""
    queue = Queue(nodes)
    for number in range(nodes):
        queue.submit(1, 9, 1, 50.0 + number, 1)
    for number in range(promises):
        queue.submit(1, 8 + number % 9, 1, 100.0 + number % 50, 6 + number % 7)
    assert len(queue.plan.promised()) == promises and not queue.plan.is_counted
    profile = queue.plan._strategy._profile
    profile.effort.left = 0
    counts = []
    for jobid in (1, 2, 3, 4):
        queue.pool.free(jobid)
        before = profile.looks
        queue.advance()
        counts.append(profile.looks - before)
    return counts


@pytest.mark.parametrize("nodes", [40, 200])
def test_looks_of_an_end_do_not_grow_with_promises_alike(monkeypatch, no_steps, nodes):
    few = looks_of_an_end(monkeypatch, nodes, 60)
    many = looks_of_an_end(monkeypatch, nodes, 240)
    assert max(many) <= max(few) < 60, (few, many)


def searches_of_ends(monkeypatch, promises, ends):
    """How often a promise is taken out and searched for anew, with others to be bound again for it, in
    the passes after so many early ends; of as many promises as were asked about."""
    queue = Queue(8)
    for number in range(40):
        queue.submit(1, 3, 0, 50.0 + number)
    assert len(queue.running()) == 40
    for number in range(promises):
        queue.submit(2, 9, 1, 60.0 + number)
    assert len(queue.plan.promised()) == promises and not queue.plan.is_counted
    profile = queue.plan._strategy._profile
    profile.effort.left = 0
    searches, asked = [], []
    sooner, earlier = RankProfile._sooner, RankProfile.earlier
    monkeypatch.setattr(RankProfile, "_sooner", lambda *args: searches.append(1) or sooner(*args))
    monkeypatch.setattr(RankProfile, "earlier", lambda *args: asked.append(1) or earlier(*args))
    for jobid in range(1, ends + 1):
        queue.pool.free(jobid)
        queue.advance()
    monkeypatch.undo()
    return len(searches), len(asked)


def test_searches_of_ends_do_not_grow_with_promises(monkeypatch):
    ends = 32
    for promises in (4, 16):
        searches, asked = searches_of_ends(monkeypatch, promises, ends)
        assert asked > ends * promises / 2
        limit = 2 * ends * packing.STEPS_PER_CHANGE / rank_profile.STEPS_PER_SEARCH
        assert 0 < searches <= limit, (promises, searches, limit)
