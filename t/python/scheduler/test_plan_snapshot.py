# SPDX-License-Identifier: LGPL-3.0-or-later
"""The copy of the plan that questions are answered from: for how long it is used."""

from types import SimpleNamespace

import pytest

from flux.scheduler.query.plan_snapshot import AGE_PER_COST, MAX_SNAPSHOT_AGE_S, PlanSnapshot

START = 1000.0


class CopiedPlan:
    """A plan whose copies take so long to make, by the stopwatch; counts them."""

    def __init__(self, source, cost):
        self.source, self.cost, self.copies = source, cost, 0

    def copy(self):
        self.copies += 1
        self.source.watch += self.cost
        return object()


@pytest.fixture
def source():
    """A scheduler whose clock, and number of events, a test sets."""
    source = SimpleNamespace(time=START, watch=0.0, happened=0)
    source.now = lambda: source.time
    source.stopwatch = lambda: source.watch
    source.events = lambda: source.happened
    source.pool = SimpleNamespace(generation=0)
    return source


def snapshot_of(source, cost):
    plan = CopiedPlan(source, cost)
    source.policy = SimpleNamespace(planning=SimpleNamespace(current=lambda: plan))
    snapshot = PlanSnapshot(source)
    snapshot.plan()
    return snapshot, plan


def test_a_copy_is_used_while_nothing_happens(source):
    snapshot, plan = snapshot_of(source, cost=0.001)
    source.time += 0.9 * MAX_SNAPSHOT_AGE_S
    snapshot.plan()
    assert plan.copies == 1
    source.time = START + MAX_SNAPSHOT_AGE_S
    snapshot.plan()
    assert plan.copies == 2 and snapshot.made == source.time


@pytest.mark.parametrize(
    "cost, most",
    [(0.0, 0.0), (0.001, 0.001 * AGE_PER_COST), (0.02, 0.02 * AGE_PER_COST), (9, 1.0)],
)
def test_a_copy_of_before_an_event_is_used_for_as_long_as_its_cost_is_worth(source, cost, most):
    snapshot, plan = snapshot_of(source, cost)
    source.happened += 1
    if most:
        source.time = START + 0.9 * most
        snapshot.plan()
        assert plan.copies == 1
    source.time = START + 1.1 * most
    snapshot.plan()
    assert plan.copies == 2
