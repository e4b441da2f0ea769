# SPDX-License-Identifier: LGPL-3.0-or-later
"""What it costs to find out which promises of a long queue move to earlier times."""

from planned_queue import PlannedQueue


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
