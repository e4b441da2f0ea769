# SPDX-License-Identifier: LGPL-3.0-or-later
"""The copy of the plan that questions are answered from: for how long it is used."""

from types import SimpleNamespace

import pytest

from flux.scheduler.query.source import AGE_PER_COST, MAX_COPY_AGE_S, QuerySource

START = 1000.0


class CopiedPlan:
    """A plan whose copies take so long to make, by the stopwatch; counts them."""

    def __init__(self, scheduler, cost):
        self.scheduler, self.cost, self.copies = scheduler, cost, 0

    def copy(self):
        self.copies += 1
        self.scheduler.watch += self.cost
        return object()


class Scheduler:
    """A scheduler whose clock, and number of events, a test sets."""

    def __init__(self, cost):
        self.time, self.watch, self.happened = START, 0.0, 0
        self.resources = SimpleNamespace(generation=0)
        self.plan = CopiedPlan(self, cost)
        self.planning = SimpleNamespace(current=lambda: self.plan)

    def now(self):
        return self.time


def source_of(cost):
    """A scheduler, whose plan was copied, and its source of answers."""
    scheduler = Scheduler(cost)
    source = QuerySource(
        scheduler,
        parse=None,
        events=lambda: scheduler.happened,
        estimate_of=None,
        config=None,
        stopwatch=lambda: scheduler.watch,
        ask=None,
        odds=None,
    )
    source.plan()
    return scheduler, source


def test_a_copy_is_used_while_nothing_happens():
    scheduler, source = source_of(cost=0.001)
    scheduler.time += 0.9 * MAX_COPY_AGE_S
    source.plan()
    assert scheduler.plan.copies == 1
    scheduler.time = START + MAX_COPY_AGE_S
    source.plan()
    assert scheduler.plan.copies == 2 and source.made == scheduler.time


@pytest.mark.parametrize(
    "cost, most", [(0.0, 0.0), (0.001, 0.001 * AGE_PER_COST), (0.02, 0.02 * AGE_PER_COST), (9, 1.0)]
)
def test_a_copy_of_before_an_event_is_used_for_as_long_as_its_cost_is_worth(cost, most):
    scheduler, source = source_of(cost)
    scheduler.happened += 1
    if most:
        scheduler.time = START + 0.9 * most
        source.plan()
        assert scheduler.plan.copies == 1
    scheduler.time = START + 1.1 * most
    source.plan()
    assert scheduler.plan.copies == 2
