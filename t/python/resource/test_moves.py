# SPDX-License-Identifier: LGPL-3.0-or-later
"""Promises of a long queue that move to earlier times: where to, and what it costs to find out."""

import math

import pytest
from planned_queue import NOW, PlannedQueue, a_history
from shared import seeds

from flux.resource.plan.counted_strategy import CountedStrategy


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_promises_move_where_a_search_of_all_finds(monkeypatch, way, seed):
    """Promises without a search of their own stay where a search would leave them."""
    advance = CountedStrategy.advance
    advance_in_turn = CountedStrategy.advance_in_turn
    found = {"stays": 0, "moves": 0, "in a row": 0}

    def expected(self, jobid, now):
        one = self.promises[jobid]
        profile = self._profiles[one.demand.kind]
        wanted = one.demand.count + profile.kept
        return min(one.start, profile.line.first(wanted, one.end - one.start, now, one.start))

    def compared(self, jobid, now):
        before = self.promises[jobid].start
        when = expected(self, jobid, now)
        assert advance(self, jobid, now) == when, (jobid, before - NOW, now - NOW)
        found["stays" if when == before else "moves"] += 1
        return when

    def one_by_one(self, jobids, now):
        moved, first = [], math.inf
        for place, jobid in enumerate(jobids):
            before = self.promises[jobid].start
            when = expected(self, jobid, now)
            count, moves, start = advance_in_turn(self, [jobid], now)
            moved += [place for _ in moves]
            first = min(first, start)
            if not count:
                return place, moved, first
            assert self.promises[jobid].start == when, (jobid, when - NOW, now - NOW)
            found["stays" if when == before else "moves"] += 1
            found["in a row"] += 1
            if when <= now:
                return place + 1, moved, first
        return len(jobids), moved, first

    monkeypatch.setattr(CountedStrategy, "advance", compared)
    monkeypatch.setattr(CountedStrategy, "advance_in_turn", one_by_one)
    a_history(seed)
    assert min(found["stays"], found["in a row"]) > 500 and found["moves"] > 100, found


def searches_after_an_end(promises):
    """How many searches of the timeline are made after an end for promises none of which can move."""
    queue = PlannedQueue(16)
    for _ in range(4):
        queue.submit(4, 1000)
    for number in range(promises):
        queue.submit(12 - number % 3, 100 + number % 4)
    queue.advance()
    queue.now += 1
    queue.pool.free(queue.running()[0])
    before = queue.plan.promises()
    moves = queue.plan._current._moves
    already = moves.searches
    queue.advance()
    assert queue.plan.promises() == before and len(before) == promises
    return moves.searches - already


def test_promises_that_cannot_move_are_not_searched_for(built):
    """The cost of an end depends on the resources freed, not on the number of promises."""
    few, many = (searches_after_an_end(number) for number in (50, 200))
    assert many == few <= 4, (few, many)
