# SPDX-License-Identifier: LGPL-3.0-or-later
"""What ranks offer, and whether there is a way, against a plain look at every possibility."""

import itertools
import random

import pytest

from flux.resource.plan.packing import Effort, Item, _most, _offers, pack, too_few
from flux.resource.request import Shape
from flux.resource.ResourceCount import ResourceCount

INFINITY = float("inf")


def count(number):
    return ResourceCount(number, number)


def random_shape(rng, most):
    kind = rng.random()
    if kind < 0.2:
        return Shape.of(node_count=count(rng.randint(1, most)), slot_count=count(1), exclusive=True)
    if kind < 0.5:
        return Shape.of(
            node_count=count(rng.randint(1, most)), slot_count=count(1),
            slot_size=rng.randint(1, 4), gpu_per_slot=rng.randint(0, 1),
        )  # fmt: skip
    return Shape.of(
        slot_count=count(rng.randint(1, 2 * most)), slot_size=rng.randint(1, 3),
        gpu_per_slot=rng.choice([0, 0, 1]),
    )  # fmt: skip


def random_case(rng, ranks):
    """Items, and ranks by state as `pack()` takes them."""
    full = (rng.choice([2, 4, 6]), rng.choice([0, 2]))
    items = []
    for _ in range(rng.randint(1, 4)):
        start = float(rng.randint(0, 4))
        end = rng.choice([start + rng.randint(1, 4), INFINITY])
        shape = random_shape(rng, ranks)
        items.append((shape, start, end, rng.randint(0, (1 << ranks) - 1)))
    first = min(item[1] for item in items)
    groups = []
    for rank in range(ranks):
        free, time = [], first
        while time < 8:
            cores, gpus = rng.randint(0, full[0]), rng.randint(0, full[1])
            if rng.random() < 0.4:
                cores, gpus = full
            free.append((time, cores, gpus))
            time += rng.randint(1, 8)
        groups.append((1 << rank, full, free))
    # As of items in a plan: a rank in the room of an item has space for it at each moment.
    rooms = []
    for shape, start, end, room in items:
        for mask, full, free in groups:
            cores, gpus = Item(shape, start, end, 0).takes(full)
            spans = [free[0]] + [step for step in free if start < step[0] < end]
            at_start = [step for step in free if step[0] <= start][-1]
            if any(c < cores or g < gpus for _, c, g in [at_start, *spans[1:]]):
                room &= ~mask
        rooms.append(Item(shape, start, end, room))
    return rooms, groups


def fits(items, vector, full, free):
    """Whether a rank can give so many units to each item."""
    for time in {item.start for item in items} | {step[0] for step in free}:
        _, cores, gpus = [step for step in free if step[0] <= time][-1]
        for item, units in zip(items, vector):
            if item.start <= time < item.end:
                cores -= units * item.takes(full)[0]
                gpus -= units * item.takes(full)[1]
        if cores < 0 or gpus < 0:
            return False
    return True


def vectors(items, mask, full, free):
    """All vectors that a rank can give."""
    most = [(item.count if item.slots else 1) if item.room & mask else 0 for item in items]
    every = itertools.product(*[range(one + 1) for one in most])
    return [one for one in every if fits(items, one, full, free)]


@pytest.mark.parametrize("seed", range(10))
def test_offers_are_what_nothing_can_be_added_to(seed):
    rng = random.Random(seed)
    for _ in range(40):
        items, groups = random_case(rng, 1)
        every = vectors(items, *groups[0])
        best = {
            one
            for one in every
            if any(one) and not any(a != one and all(x >= y for x, y in zip(a, one)) for a in every)
        }
        mask, full, free = groups[0]
        assert set(_offers(items, _most(items, mask, free), full, free)) == best


@pytest.mark.parametrize("seed", range(10))
def test_there_is_a_way_where_there_is_one(seed):
    rng = random.Random(seed)
    ways = 0
    for _ in range(200):
        items, groups = random_case(rng, 2)
        wanted = [item.count for item in items]
        there_is = any(
            all(sum(given) >= units for *given, units in zip(*chosen, wanted))
            for chosen in itertools.product(*[vectors(items, *group) for group in groups])
        )
        few = too_few(
            items,
            {full for _, full, _ in groups},
            lambda time: [
                (mask, *[step for step in free if step[0] <= time][-1][1:])
                for mask, _, free in groups
            ],
        )
        assert not (few and there_is)
        assert pack(items, groups, Effort()) == there_is
        ways += there_is
    assert 0 < ways < 200
