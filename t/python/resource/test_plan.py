# SPDX-License-Identifier: LGPL-3.0-or-later
"""Plans: promises, holds and starts beside them, and plans of beliefs; scheduler/test_definition.py plays whole histories."""

import random

import pool_model
import pytest
from pool_model import R_of

from flux.resource import InsufficientResources, ResourcePool
from flux.resource.plan import bound_strategy
from flux.resource.pool.masks import members

NOW = 1000.0


def make_pool(rows, expiration=0.0):
    pool = ResourcePool(R_of(dict(enumerate(rows)), expiration=expiration))
    pool.clock = lambda: NOW
    return pool


def job(pool, nodes=None, slots=1, cores=1, duration=10.0):
    return pool_model.ask(pool, slots, cores, nodes=nodes, duration=duration)


FOUR = [({0, 1, 2, 3}, set())] * 4


def test_job_with_own_reservation():
    pool = make_pool(FOUR)
    plan = pool.plan()
    wide = job(pool, 4, cores=4)
    plan.reserve(1, wide, NOW + 5)
    plan.reserve(2, wide, NOW + 15)
    plan.reserve(2, wide, NOW + 20)  # replaces the first one
    assert plan.promises()[2] == (NOW + 20, NOW + 30)
    with pytest.raises(InsufficientResources):
        plan.reserve(2, wide, NOW + 14)
    assert plan.promises()[2] == (NOW + 20, NOW + 30)
    with pytest.raises(InsufficientResources, match="would delay a job that was promised a start"):
        plan.alloc(2, wide)
    assert plan.promises()[2] == (NOW + 20, NOW + 30)
    assert plan.alloc(3, job(pool, 4, cores=4, duration=5.0))
    pool.free(3)
    plan.alloc(1, wide)
    assert plan.promises() == {2: (NOW + 20, NOW + 30)}
    plan.note_started(2)
    assert plan.promises() == {}


def test_no_end_no_shadow():
    """A job without an end never makes room; one past its end does now."""
    pool = make_pool(FOUR)
    pool.alloc(1, job(pool, 2, cores=4, duration=0.0))
    request = job(pool, 3, cores=4)
    assert pool.earliest(request) is None
    plan = pool.plan()
    plan.hold(5, request)
    # Both nodes of the job without an end come together: of the two that are free one is kept.
    with pytest.raises(InsufficientResources):
        plan.alloc(6, job(pool, 2, cores=4))
    plan.alloc(6, job(pool, 1, cores=4))
    with pytest.raises(InsufficientResources):
        plan.alloc(7, job(pool, 1))
    pool.free(6)
    # Either of two such jobs may end first: the free resources are kept.
    pool.free(1)
    pool.alloc(1, job(pool, 1, cores=4, duration=0.0))
    pool.alloc(2, job(pool, 1, cores=4, duration=0.0))
    plan.hold(5, request)
    with pytest.raises(InsufficientResources):
        plan.alloc(6, job(pool, 1))
    plan.cancel(5)
    pool.free(1)
    pool.free(2)
    pool.alloc(1, job(pool, 2, cores=4, duration=0.0))
    plan.alloc(6, job(pool, 1))
    pool.update_expiration(1, NOW - 100)
    assert pool.earliest(job(pool, 2, cores=4)) == NOW
    pool.mark_down("0-1")
    with pytest.raises(InsufficientResources, match="2 down"):
        pool.plan().hold(7, request)
    assert pool.waits_for_ranks(request)
    assert not pool.waits_for_ranks(job(pool, 2, cores=4))


def test_windows():
    pool = make_pool(FOUR, expiration=NOW + 500)
    pool.alloc(1, job(pool, 2, cores=4, duration=100.0))
    plan = pool.plan()
    plan.reserve(2, job(pool, 3, cores=4, duration=50.0), NOW + 100)
    one, two = (job(pool, nodes, cores=4, duration=200.0) for nodes in (1, 2))
    answer = plan.windows([one, two, job(pool, slots=5)], 1000.0)
    assert [entry["fits"] for entry in answer] == [True, False, True]
    assert answer[0]["request"] is one
    assert answer[0]["steps"] == [(2, NOW + 100), (1, NOW + 500)]
    assert answer[2]["steps"] == [(8, NOW + 100), (4, NOW + 500)]
    # Without reservations the pool itself answers; its end limits it.
    assert pool.windows([two], 100.0)[0]["steps"] == [(2, NOW + 100)]
    assert pool.windows([job(pool, 1, cores=4)], 1e9)[0]["steps"] == [(2, NOW + 500)]
    pool.mark_down("all")
    assert pool.windows([one], 100.0) == [{"request": one, "fits": False, "steps": []}]


def test_plan_of_a_pool_with_hooks():
    """Where placement is the site's own, planning asks it."""
    from flux.resource.Rv1Pool import Rv1Pool

    class Even(Rv1Pool):
        """Uses only even ranks."""

        def _sort_candidates(self, candidates):
            return [one for one in super()._sort_candidates(candidates) if one[0] % 2 == 0]

    class EvenPool(ResourcePool):
        _impl_map = {1: Even}

    pool = EvenPool(R_of(dict(enumerate(FOUR))))
    pool.clock = lambda: NOW
    two = job(pool, 2, cores=4)
    assert pool.alloc(1, two).dumps() == "rank[0,2]/core[0-3]"
    assert pool.earliest(job(pool, 1)) == NOW + 10
    assert pool.earliest(job(pool, 3)) is None
    plan = pool.plan()
    plan.reserve(2, two, NOW + 10)
    plan.reserve(3, two, NOW + 20)
    pool.free(1)
    with pytest.raises(InsufficientResources):
        plan.alloc(4, job(pool, 1, duration=11.0))
    assert isinstance(plan.alloc(5, job(pool, 2, cores=4, duration=10.0)), EvenPool)
    assert plan.earliest(two) == NOW + 30
    assert plan.windows([two], 100.0)[0]["fits"] is False
    plan.cancel(3)
    plan.hold(6, job(pool, 2, cores=4, duration=0.0))
    assert plan.earliest(two) is None


def test_a_hold_is_lost_with_its_ranks_only():
    pool = make_pool(FOUR)
    pool.alloc(1, job(pool, 1, cores=4, duration=0))  # without an end
    plan = pool.plan()
    head = job(pool, 4, cores=4)
    assert plan.earliest(head) is None
    plan.hold(7, head)
    assert plan.stale() == []
    pool.mark_down("2")
    assert plan.stale() == [7]
    pool.mark_up("2")
    assert plan.stale() == []
    pool.remove_ranks("3")
    assert plan.stale() == [7]


@pytest.fixture(params=["counted", "bound"])
def planned(request):
    """(pool of four nodes, its plan, its clock) whose plan counts, or binds promises to ranks."""
    pool = make_pool(FOUR)
    now = [NOW]
    pool.clock = lambda: now[0]
    plan = pool.plan()
    if request.param == "bound":
        plan.reserve(9, job(pool, slots=1, cores=2), NOW)
        plan.cancel(9)
    assert plan.is_counted == (request.param == "counted")
    return pool, plan, now


def test_a_promise_whose_time_has_come_outlasts_a_change_of_ranks(planned):
    """Its job starts late since another one ends late, and meanwhile a node goes down."""
    pool, plan, now = planned
    pool.alloc(1, job(pool, 4, cores=4, duration=10.0))
    two = job(pool, 2, cores=4, duration=10.0)
    plan.reserve(2, two, NOW + 10)
    assert (plan.ranks_of(2) is None) == plan.is_counted
    now[0] = NOW + 15
    spare = members(0b1111 & ~(plan.ranks_of(2) or 0b1100))
    pool.mark_down(f"{spare[0]}")
    assert plan.promises() == {2: (NOW + 10, NOW + 20)}
    assert plan.stale() == []
    assert plan.earliest(two) == NOW + 20
    assert plan.earliest(job(pool, 1, cores=4, duration=10.0)) == NOW + 15
    assert plan.advance(2) == NOW + 10
    pool.mark_down("0-2")
    assert plan.stale() == [2]
    with pytest.raises(InsufficientResources):
        plan.advance(2)
    pool.mark_up("all")
    assert plan.stale() == []
    pool.free(1)
    plan.alloc(2, two)
    assert plan.promises() == {}


def test_a_promise_that_is_over_is_stale(planned):
    pool, plan, now = planned
    two = job(pool, 2, cores=4, duration=10.0)
    plan.reserve(2, two, NOW + 10)
    now[0] = NOW + 20
    assert plan.stale() == [2]
    pool.mark_down("0")
    assert plan.stale() == [2]
    assert plan.earliest(job(pool, 3, cores=4, duration=10.0)) == NOW + 20
    plan.cancel(2)
    assert plan.stale() == []
    assert plan.earliest(job(pool, 3, cores=4, duration=10.0)) == NOW + 20


@pytest.mark.parametrize("seed", range(12))
def test_fits_agrees_with_alloc(seed):
    """Beside all promises but its own, for jobs with and without one, counted and bound to ranks."""
    chance = random.Random(seed)
    kinds = [({0, 1, 2, 3}, set())]
    if seed % 2:
        kinds.append((set(range(8)), set()))
    pool = make_pool([chance.choice(kinds) for _ in range(5)])
    plan = pool.plan()
    requests = {}
    for jobid in range(1, 60):
        request = job(pool, chance.randint(1, 4), 1, 4, chance.choice([5.0, 10.0, 40.0, 100.0]))
        what = chance.choice(["start", "promise", "promise", "hold", "ask"])
        requests[jobid] = request
        try:
            if what == "start":
                plan.alloc(jobid, request)
            elif what == "promise":
                after = NOW + chance.choice([0.0, 0.0, 20.0])
                plan.reserve(jobid, request, plan.earliest(request, after=after) or NOW)
            elif what == "hold" and seed > 8 and chance.random() < 0.2:
                plan.hold(jobid, request)
        except InsufficientResources:
            pass
        for other in chance.sample(sorted(requests), min(4, len(requests))):
            if other in dict(pool.job_end_times()):
                pool.free(other)
                continue
            before = plan.promises()
            fits = plan.fits(requests[other], jobid=other)
            assert plan.promises() == before
            try:
                plan.alloc(other, requests[other])
                started = True
            except InsufficientResources:
                started = False
            assert fits == started, (jobid, other)


@pytest.mark.parametrize("rows", [4 * [({0, 1}, set())], [({0, 1}, set()), ({0, 1, 2}, set())]])
def test_a_plan_of_beliefs_is_that_of_a_pool_whose_jobs_end_so(rows):
    """Counted, and bound to ranks; beliefs may be earlier or later than limits, or change."""
    rng = random.Random(7)
    believed, real = make_pool(rows), make_pool(rows)
    beliefs = {}
    plan = believed.plan(ends=beliefs.get)
    for jobid in range(1, 200):
        now = NOW + jobid
        believed.clock = real.clock = lambda now=now: now
        limit = rng.choice([5.0, 20.0, 50.0])
        small = job(real, 1, 1, rng.choice([1, 2]), duration=limit)
        try:
            believed.alloc(jobid, small)
        except InsufficientResources:
            pass
        else:
            real.alloc(jobid, small)
            if rng.random() < 0.7:
                beliefs[jobid] = now + rng.choice([1.0, 30.0, 70.0])
                real.update_expiration(jobid, beliefs[jobid])
        for other, end in believed.job_end_times():
            if end <= now and rng.random() < 0.5:
                believed.free(other)
                real.free(other)
            elif other in beliefs and rng.random() < 0.2:
                beliefs[other] += 10.0
                real.update_expiration(other, beliefs[other])
                believed.update_expiration(other, end + 1)  # the plan looks after a change
        asked = job(real, rng.choice([1, len(rows)]), 1, 2, duration=25.0)
        assert plan.earliest(asked) == real.plan().earliest(asked), jobid
        assert plan.fits(asked) == real.plan().fits(asked)


def test_units_are_counted_by_beliefs_at_once():
    pool = make_pool([({0, 1}, set())])
    slot = job(pool, None, 1, 1, duration=50.0)
    pool.alloc(1, slot)
    pool.alloc(2, slot)
    plan = pool.plan(ends=lambda jobid: NOW + 3.0)
    assert plan.counts(slot) and plan.earliest(slot) == NOW + 3.0


def test_a_start_in_a_plan_of_beliefs_ends_by_its_limit():
    pool = make_pool([({0, 1}, set())])
    plan = pool.plan(ends=lambda jobid: NOW + 3.0)
    plan.reserve(2, job(pool, 1, 1, 2, duration=50.0), NOW + 10.0)
    plan.alloc(1, job(pool, 1, 1, 2, duration=5.0))
    assert pool.job_end(1) == NOW + 5.0
    assert plan.earliest(job(pool, 1, 1, 2, duration=7.0)) == NOW + 3.0


def test_a_plan_takes_promises_over_from_another():
    pool = make_pool([({0, 1}, set()), ({0, 1, 2}, set())])
    one, other = pool.plan(), pool.plan()
    one.reserve(-1, job(pool, 2, 1, 2, duration=10.0), NOW + 5)
    one.hold(-2, job(pool, 1, 1, 1))
    one.reserve(3, job(pool, 1, 1, 2, duration=10.0), NOW + 50)
    other.take_over(one, [jobid for jobid in one.promises() if jobid < 0])
    assert list(other.promises()) == [-1, -2]
    assert other.promises()[-1] == (NOW + 5, NOW + 15)
    assert other.earliest(job(pool, 1, 1, 2, duration=10.0)) == NOW + 15


def test_of_promises_on_ranks_only_those_with_free_resources_are_searched_for(monkeypatch):
    """A search reads each rank: with thousands of ranks and promises that cost 100 ms after each end."""
    pool = make_pool([(set(range(8)), set())] * 4)
    plan = pool.plan()
    for jobid in range(1, 5):
        pool.alloc(jobid, job(pool, 1, cores=6, duration=100.0 + jobid))
    jobids = list(range(10, 40))
    for jobid in jobids:
        request = job(pool, 1, cores=2 if jobid == 30 else 3 + jobid % 5, duration=200.0)
        plan.reserve(jobid, request, plan.earliest(request, after=NOW + 50))
    assert not plan.is_counted
    monkeypatch.setattr(bound_strategy, "MANY_RANKS", 4)
    room, searched = plan._current._ranks.room, []
    find = room.first_to_start
    spy = lambda row, *args: searched.extend(row) or find(row, *args)
    monkeypatch.setattr(room, "first_to_start", spy)
    assert plan.advance_in_turn(jobids) == (21, [20], NOW)
    assert len(searched) == 1
