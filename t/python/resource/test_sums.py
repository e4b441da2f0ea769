# SPDX-License-Identifier: LGPL-3.0-or-later
"""What promises leave of all ranks together, against plain sums; and how much work a plan with GPUs makes."""

import itertools
import math
import random

import pytest
from pool_model import R_of

from flux.resource import InsufficientResources, ResourcePool
from flux.resource.plan import sums as sums_module
from flux.resource.plan.packing import (
    MAX_PACKING_STEPS,
    STEPS_PER_CHANGE,
    Effort,
    Item,
    pack,
    usable,
)
from flux.resource.plan.plan import Plan
from flux.resource.plan.running_profile import RunningProfile
from flux.resource.plan.sums import Sums
from flux.resource.request import Shape
from flux.resource.ResourceCount import ResourceCount

NOW = 1000.0


def spec(slots, cores, gpus, duration, nodes=None):
    slot = {
        "type": "slot",
        "count": slots,
        "label": "task",
        "with": [{"type": "core", "count": cores}],
    }
    if gpus:
        slot["with"].append({"type": "gpu", "count": gpus})
    top = slot if nodes is None else {"type": "node", "count": nodes, "with": [slot]}
    return {
        "version": 1,
        "resources": [top],
        "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": duration}},
    }


def make_pool(nodes, cores=16, gpus=4):
    pool = ResourcePool(
        R_of({rank: (set(range(cores)), set(range(gpus))) for rank in range(nodes)})
    )
    pool.now = NOW
    pool.clock = lambda: pool.now
    return pool


def fill(pool, rng, jobs):
    """Start jobs of some shapes; returns job id to (end, cores, GPUs)."""
    held = {}
    for jobid in range(1, jobs + 1):
        slots, cores, gpus = rng.randint(1, 4), rng.randint(1, 6), rng.randint(0, 1)
        duration = float(rng.randint(1, 40))
        try:
            pool.alloc(jobid, pool.parse_resource_request(spec(slots, cores, gpus, duration)))
        except InsufficientResources:
            continue
        held[jobid] = (NOW + duration, slots * cores, slots * gpus)
    return held


@pytest.mark.parametrize("together", [2, 3, sums_module.TIMES_TOGETHER])
@pytest.mark.parametrize("seed", range(8))
def test_sums_are_what_running_jobs_and_promises_leave(monkeypatch, seed, together):
    monkeypatch.setattr(sums_module, "TIMES_TOGETHER", together)
    rng = random.Random(seed)
    pool = make_pool(6)
    held = fill(pool, rng, 20)
    impl = pool.impl
    profile = RunningProfile(impl)
    sums = Sums(profile, impl.eligible(None))
    promises = []
    for _ in range(5):
        start = NOW + rng.randint(0, 40)
        end = rng.choice([start + rng.randint(1, 30), math.inf])
        promises.append((start, end, rng.randint(0, 30), rng.randint(0, 8)))
    sums.book(promises[:seed])
    for promise in promises[seed:]:
        sums.add(promise)

    def left(time):
        cores = 6 * 16 - sum(cores for end, cores, _ in held.values() if end > time)
        gpus = 6 * 4 - sum(gpus for end, _, gpus in held.values() if end > time)
        for start, end, booked_cores, booked_gpus in promises:
            if start <= time < end:
                cores -= booked_cores
                gpus -= booked_gpus
        return cores, gpus

    def enough(cores, gpus, start, end):
        asked = [start, *[time for time in moments if start < time < end]]
        return all(left(time)[0] >= cores and left(time)[1] >= gpus for time in asked)

    found = set()
    for number in range(200):
        if number % 20 == 19:  # one promise is gone, and another is made
            sums.remove(promises.pop(0))
            start = NOW + rng.randint(0, 40)
            promises.append((start, start + rng.randint(1, 30), rng.randint(0, 30), 0))
            sums.add(promises[-1])
        if number % 50 == 49:  # a job ends
            jobid = rng.choice(list(held))
            del held[jobid]
            pool.free(jobid)
            profile = profile.followed(impl)
            sums.follow(profile)
        moments = sorted(
            {NOW}
            | {end for end, _, _ in held.values()}
            | {time for one in promises for time in one[:2] if time < math.inf}
        )
        cores, gpus = rng.randint(0, 96), rng.randint(0, 24)
        start = NOW + rng.randint(0, 60)
        length = rng.choice([rng.randint(1, 40), math.inf])
        end = start + length
        assert sums.enough(cores, gpus, start, end) == enough(cores, gpus, start, end)
        before = start + rng.randint(0, 60)
        until = rng.choice([before, math.inf])
        first = sums.first(cores, gpus, start, length, before, until)
        expected = next(
            (
                time
                for time in [start, *[time for time in moments if start < time < before]]
                if time < before and enough(cores, gpus, time, min(time + length, until))
            ),
            math.inf,
        )
        assert first == expected
        found.add(first == math.inf)
        ends = sums.room_ends(cores, gpus, start)
        later = [start, *[time for time in moments if time > start]]
        too_little = [time for time in later if not enough(cores, gpus, time, time + 0.5)]
        assert ends == (too_little[0] if too_little else math.inf)
    assert found == {True, False}


@pytest.mark.parametrize("seed", range(10))
def test_usable_is_the_most_that_units_of_some_kinds_take(seed):
    rng = random.Random(seed)
    for _ in range(30):
        cores, gpus = rng.randint(0, 9), rng.randint(0, 3)
        units = tuple(
            (rng.randint(0, 5), rng.randint(0, 2), rng.random() < 0.4)
            for _ in range(rng.randint(0, 4))
        )
        units = tuple(unit for unit in units if unit[0] or unit[1])
        most = [(1 if once else 9) for _, _, once in units]
        taken = [
            (
                sum(n * unit[0] for n, unit in zip(numbers, units)),
                sum(n * unit[1] for n, unit in zip(numbers, units)),
            )
            for numbers in itertools.product(*[range(one + 1) for one in most])
        ]
        taken = [(c, g) for c, g in taken if c <= cores and g <= gpus]
        assert usable(cores, gpus, units) == (max(c for c, _ in taken), max(g for _, g in taken))


def count(number):
    return ResourceCount(number, number)


def test_with_no_steps_left_there_is_no_way_and_nothing_is_chosen():
    shapes = [Shape.of(slot_count=count(3), slot_size=size) for size in (2, 3)]
    groups = [(0b11, (16, 0), [(0.0, 8, 0)])]

    def items():
        return [Item(shape, 0.0, 10.0, 0b11) for shape in shapes]

    effort = Effort()
    assert pack(items(), groups, effort)
    assert 0 < effort.taken == MAX_PACKING_STEPS - effort.left
    effort.left = 0
    asked = items()
    assert not pack(asked, groups, effort)
    assert not any(item.chosen for item in asked)
    effort.left = -10
    effort.earn()
    assert effort.left == STEPS_PER_CHANGE - 10
    for _ in range(MAX_PACKING_STEPS):
        effort.earn()
    assert effort.left == MAX_PACKING_STEPS


class Meter:
    """Counts the steps that all plans take, and those that they are given."""

    def __init__(self, monkeypatch):
        self.taken = self.given = self.changes = 0
        spend, earn, make = Effort.spend, Effort.earn, Effort.__init__

        def counted_spend(effort, steps):
            self.taken += steps
            spend(effort, steps)

        def counted_earn(effort):
            self.given += STEPS_PER_CHANGE
            self.changes += 1
            earn(effort)

        def counted_make(effort):
            self.given += MAX_PACKING_STEPS
            make(effort)

        monkeypatch.setattr(Effort, "spend", counted_spend)
        monkeypatch.setattr(Effort, "earn", counted_earn)
        monkeypatch.setattr(Effort, "__init__", counted_make)


def play(changes, promises):
    """So many times a job ends, promises move to earlier times, and one starts if it can.

    Returns:
        list of (job id, start, latest of the promises it had): of the jobs that started
    """
    rng = random.Random(changes)
    pool = make_pool(16)
    running = {jobid: end for jobid, (end, _, _) in fill(pool, rng, 200).items()}
    plan: Plan = pool.plan()
    waiting = {}
    started = []
    jobid = 1000
    for _ in range(changes):
        pool.now += 1.0
        over = [one for one, end in running.items() if end <= pool.now]
        early = [one for one in running if one not in over]
        for one in [*over, *rng.sample(early, min(1, len(early)))]:
            del running[one]
            pool.free(one)
        while len(waiting) < promises:
            jobid += 1
            slots, gpus = rng.choice([(8, 1), (24, 0), (12, 1), (3, 0), (2, 2), (1, 1)])
            request = pool.parse_resource_request(
                spec(slots, rng.choice([1, 2, 5]), gpus, float(rng.randint(5, 60)))
            )
            when = plan.earliest(request)
            plan.reserve(jobid, request, when)
            waiting[jobid] = (request, when)
        for one, (request, when) in list(waiting.items()):
            moved = plan.advance(one)
            assert moved <= when
            waiting[one] = (request, moved)
            if moved <= pool.now:
                plan.alloc(one, request)
                running[one] = pool.now + request.duration
                started.append((one, pool.now, when))
                del waiting[one]
        assert plan.stale() == []
    pool.check()
    return started


def test_promises_are_kept_where_steps_run_out(monkeypatch):
    """Promises that are later than they could be, since nobody looked further, are promises still."""
    monkeypatch.setattr("flux.resource.plan.packing.MAX_PACKING_STEPS", 0)
    monkeypatch.setattr("flux.resource.plan.packing.STEPS_PER_CHANGE", 0)
    started = play(150, 12)
    assert len(started) > 20


@pytest.mark.parametrize("promises", [6, 24])
@pytest.mark.parametrize("changes", [50, 200])
def test_steps_grow_with_changes_of_the_pool_and_not_with_promises(monkeypatch, changes, promises):
    """Four times as many promises do not make a change of the pool take more steps."""
    meter = Meter(monkeypatch)
    started = len(play(changes, promises))
    assert started > 5
    # An attempt is made when there are steps left, and may take more than that.
    assert 0 < meter.taken < meter.given + 3000
    # What ended is a change, and so is what was started.
    seen = 2 * changes + started
    assert meter.changes <= seen
    assert meter.given <= STEPS_PER_CHANGE * seen + 2 * MAX_PACKING_STEPS


@pytest.mark.parametrize("seed", range(6))
def test_what_is_too_long_does_not_fit_and_breaks_no_promise(seed):
    """Where promises are bound, what is said of a time that is too long is what a start would find."""
    rng = random.Random(seed)
    known = 0
    for _ in range(12):
        pool = make_pool(3)
        fill(pool, rng, 12)
        plan = pool.plan()
        for jobid in range(100, 104):
            request = pool.parse_resource_request(
                spec(rng.randint(1, 5), rng.randint(1, 8), rng.randint(0, 2), rng.randint(5, 60))
            )
            when = plan.earliest(request)
            if when is not None:
                plan.reserve(jobid, request, when)
        for _ in range(10):
            slots, cores, gpus = rng.randint(1, 6), rng.randint(1, 6), rng.randint(0, 2)
            request = pool.parse_resource_request(spec(slots, cores, gpus, 1.0))
            too_long = plan.too_long(request)
            if too_long < math.inf and not plan.is_counted:
                known += 1
                assert not plan.fits(request, duration=too_long or 1e-3)
    assert known > 10


def test_ends_of_running_jobs_behind_all_promises_are_not_swept_over(monkeypatch):
    """What is left only grows behind the last start of a promise, so nobody has to know it there,
    of all ranks together or of a single one."""
    asked = []
    free, gains = Sums._free, RunningProfile.gains
    monkeypatch.setattr(Sums, "_free", lambda self, time: asked.append(time) or free(self, time))
    monkeypatch.setattr(
        RunningProfile, "gains", lambda self, *args: asked.append(args[-1]) or gains(self, *args)
    )
    pool = make_pool(16, cores=32)
    for jobid in range(60):
        pool.alloc(jobid + 1, pool.parse_resource_request(spec(1, 1, 0, 1000.0 + jobid)))
    pool.alloc(900, pool.parse_resource_request(spec(12, 1, 4, 50.0)))
    plan = pool.plan()
    first = pool.parse_resource_request(spec(14, 1, 4, 5000.0))
    plan.reserve(901, first, plan.earliest(first))
    assert plan.start_of(901) == NOW + 50 and not plan.is_counted
    behind = pool.parse_resource_request(spec(9, 1, 1, 4000.0))
    pool.free(1)
    asked.clear()
    assert plan.advance(901) == NOW + 50
    assert plan.too_long(behind) == pytest.approx(50)
    assert not plan.fits(behind)
    assert asked and max(asked) <= NOW + 50


def test_a_copy_of_a_plan_changes_nothing_in_it():
    """What a forecast enters into its copy does not count in the plan, nor the other way round."""
    for seed in range(4):
        rng = random.Random(seed)
        pool = make_pool(8)
        fill(pool, rng, 60)
        plan = pool.plan()
        shapes = [(8, 2, 1), (24, 1, 0), (3, 5, 1), (2, 2, 2), (12, 4, 0)]
        requests = [
            pool.parse_resource_request(spec(*shape, float(rng.randint(20, 80))))
            for shape in shapes
        ]
        for jobid, request in enumerate(requests, 1000):
            plan.reserve(jobid, request, plan.earliest(request))
        assert not plan.is_counted
        before = [plan.copy().earliest(request) for request in requests]
        promised = plan.promises()
        copy = plan.copy()
        for jobid, request in enumerate(requests * 4, 2000):
            copy.reserve(jobid, request, copy.earliest(request))
            plan.advance(1000)
        copy.cancel(1000)
        assert [plan.copy().earliest(request) for request in requests] == before
        assert [plan.advance(jobid) for jobid in promised] == [one for one, _ in promised.values()]
        strategy, other = plan._strategy._profile, copy._strategy._profile
        assert strategy._kept <= set(plan._strategy.promises.values())
        assert other._kept <= set(copy._strategy.promises.values())
        assert strategy._sums is not other._sums
