# SPDX-License-Identifier: LGPL-3.0-or-later
"""The contract of pool implementations: a third pool, written against it alone, plans and explains."""

import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_model import Ask, R_of

from flux.resource import (
    InsufficientResources,
    ResourcePool,
    ResourcePoolImplementation,
    ResourceRequest,
    Rv1Pool,
)
from flux.resource.pool.inventory import make_inventory
from flux.resource.pool.masks import members, parse_idset
from flux.resource.pool.rv1 import read_lite, read_names
from flux.resource.pool.state import RankIndex
from flux.resource.TreePool import TreePool

NOW = 1000.0


class Ledger(ResourcePoolImplementation):
    """A pool without an index: a list of allocations, from which every answer is computed."""

    version = 1
    name = "Ledger"

    def __init__(self, R=None, log=None, **kwargs):
        super().__init__(R, log)
        self.R = R
        entries = read_lite(R)
        self.all = make_inventory(entries, *read_names(R, entries))
        self.jobs = {}
        self.down = set()
        self.end = R["execution"].get("expiration", 0.0)

    # -- the view

    @property
    def inventory(self):
        return self.all

    @property
    def index(self):
        index = RankIndex(self.all)
        for _, selection in self.jobs.values():
            index.take(selection)
        return index

    def eligible(self, match):
        up = self.all.ranks
        for rank in self.down:
            up &= ~(1 << rank)
        return up & self.all.matching(match)

    def held(self, jobid):
        return self.jobs[jobid][1]

    def grant(self, jobid, request, selection, nslots):
        end = self.clock() + request.duration if request.duration else self.end
        self.jobs[jobid] = (end, selection)
        self.generation += 1
        execution = self.all.execution(selection)
        return Ledger({"version": 1, "execution": {**execution, "nslots": nslots}})

    # -- members of every pool

    def parse_resource_request(self, jobspec):
        return ResourceRequest.from_jobspec(jobspec)

    def alloc(self, jobid, request):
        if jobid in self.jobs:
            raise ValueError("known")
        placed = self.place_request(request, self.index, self.eligible(request.shape.match))
        if placed is None:
            self.check_feasibility(request)
            raise InsufficientResources(lambda: self.why_not(request))
        return self.grant(jobid, request, *placed)

    def free(self, jobid, R=None, final=False):
        if self.jobs.pop(jobid, None):
            self.generation += 1
            self.releases += 1

    def mark_up(self, ids):
        self.down -= set(members(parse_idset(ids)))
        self.generation += 1
        self.releases += 1

    def mark_down(self, ids):
        self.down |= set(members(parse_idset(ids)))
        self.generation += 1

    @property
    def expiration(self):
        return self.end

    def update_expiration(self, jobid, expiration):
        self.jobs[jobid] = (expiration, self.jobs[jobid][1])
        self.generation += 1

    def job_end_times(self):
        return [(jobid, end) for jobid, (end, _) in self.jobs.items()]

    def to_dict(self):
        return self.R


class LedgerPool(ResourcePool):
    _impl_map = {1: Ledger}


ROWS = {
    0: ({0, 1, 2, 3}, {0, 1}),
    1: ({0, 1, 2, 3}, set()),
    2: ({0, 1}, set()),
    3: (set(range(8)), {0}),
}


def make(cls):
    pool = cls(R_of(ROWS))
    pool.clock = lambda: NOW
    return pool


asks = st.builds(
    Ask,
    st.sampled_from([None, ([1], 1), ([2], 2), ([4], 4)]),
    st.sampled_from([([1], 1), ([2], 2), ([3], 3)]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([0, 0, 1]),
    st.sampled_from([False, False, True]),
    duration=st.sampled_from([0.0, 5.0, 20.0, 100.0]),
)


def told(function):
    """Return the result of a call, or its exception, in comparable form."""
    try:
        answer = function()
    except OSError as exc:
        return type(exc).__name__, str(exc)
    return answer.dumps() if hasattr(answer, "dumps") else answer


@settings(max_examples=60, deadline=None)
@given(
    st.lists(asks, max_size=5),
    st.sets(st.integers(0, 3), max_size=2),
    st.lists(st.tuples(asks, st.sampled_from(["alloc", "reserve", "free"])), max_size=8),
)
def test_a_pool_of_another_kind_answers_and_plans_as_rv1pool_does(running, down, pending):
    pools = [make(LedgerPool), make(ResourcePool)]
    plans = [pool.plan() for pool in pools]

    def same(ask):
        one, other = (told(lambda: ask(*both)) for both in zip(pools, plans))
        assert one == other
        return one

    for jobid, wanted in enumerate(running):
        spec = wanted.jobspec()
        same(lambda pool, plan: pool.alloc(jobid, pool.parse_resource_request(spec)))
    for pool in pools:
        pool.mark_down(",".join(str(rank) for rank in sorted(down)))
    for jobid, (wanted, what) in enumerate(pending, 100):
        spec = wanted.jobspec()
        ask = lambda pool: pool.parse_resource_request(spec)  # noqa: E731
        same(lambda pool, plan: pool.explain(ask(pool)))
        same(lambda pool, plan: pool.match_mask(ask(pool)))
        same(lambda pool, plan: pool.waits_for_ranks(ask(pool)))
        same(lambda pool, plan: pool.earliest(ask(pool)))
        same(lambda pool, plan: sorted(pool.job_end_times()))
        when = same(lambda pool, plan: plan.earliest(ask(pool)))
        if what == "alloc":
            same(lambda pool, plan: plan.alloc(jobid, ask(pool)))
        elif what == "reserve" and isinstance(when, float):
            same(lambda pool, plan: plan.reserve(jobid, ask(pool), when))
            same(lambda pool, plan: plan.promises())
        elif what == "free":
            same(lambda pool, plan: pool.free(jobid - 100))
        same(lambda pool, plan: plan.stale())


def methods(cls):
    kinds = lambda value: inspect.isfunction(value) or isinstance(value, property)
    return {name: value for name, value in inspect.getmembers(cls, kinds) if name[0] != "_"}


def test_every_method_of_the_contract_is_documented():
    for name, value in methods(ResourcePoolImplementation).items():
        assert inspect.getdoc(value), name


@pytest.mark.parametrize("cls", [Rv1Pool, TreePool._impl_map[1]])
def test_overridden_methods_take_the_arguments_of_the_contract(cls):
    for name, value in methods(ResourcePoolImplementation).items():
        own = inspect.getattr_static(cls, name)
        if inspect.isfunction(value):
            expected = list(inspect.signature(value).parameters)
            assert list(inspect.signature(own).parameters) == expected, name


def test_a_pool_without_a_view_names_the_missing_operation():
    class Bare(ResourcePoolImplementation):
        version = 7

        @property
        def ranks(self):
            return 0b1

        def explain(self, request):
            return {"reason": "no"}

    class BarePool(ResourcePool):
        _impl_map = {7: Bare}

    impl = Bare()
    assert not impl.has_view and (impl.version, impl.generation, impl.releases) == (7, 0, 0)
    for call in (impl.plan, lambda: impl.earliest(None), lambda: impl.alloc(1, None), impl.to_dict):
        with pytest.raises(NotImplementedError, match="^Bare[.](inventory|alloc|to_dict)$"):
            call()
    pool = BarePool({"version": 7})
    pool.log.warning("to nobody")
    for one in (impl, pool):
        assert [one.can(name) for name in ("explain", "ranks")] == [True, True]
        for name in ("plan", "earliest", "idle_ranks", "held_ranks", "alloc_on", "fly"):
            assert not one.can(name), name
    assert pool.ranks == 0b1
    with pytest.raises(NotImplementedError, match="^BarePool[.]index$"):
        assert pool.idle_ranks
    assert Ledger(R_of(ROWS)).can("plan")
    assert type(ResourcePool(impl)).__name__ == "Bare"
    for one in (impl, pool):
        one.check_feasibility(object())  # it is refused by alloc() if at all


def test_the_pool_and_the_embedded_instance_write_job_ids_alike():
    from flux.resource.pool.jobid import job_text
    from flux_engine.formats import jobid

    for number in (0, 1, 57, 58, 3363, 3364, 6731191091817518, jobid.MAX_ID):
        assert job_text(number) == f"ƒ{jobid.base58(number)}"
