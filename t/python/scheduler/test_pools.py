# SPDX-License-Identifier: LGPL-3.0-or-later
"""A scheduler and its pool: equal jobspecs are parsed once."""

import tracemalloc
import types

import pytest
from peers import Guide, R, Rig, jobspec, loaded

from flux.resource.pool.placement import Placement
from flux.resource.ResourcePool import ResourcePool
from flux.resource.Rv1Pool import Rv1Pool
from flux.scheduler.attributes import SystemAttributes
from flux.scheduler.policies import Backfill, Fifo
from flux.scheduler.pools import RequestParser
from flux.scheduler.testing import FakeInstance

ERR = 3


def with_script(number, size=100_000):
    spec = jobspec(1, duration=60)
    spec["attributes"]["system"]["files"] = {"script": {"data": f"{number} ".ljust(size, "x")}}
    return spec


class Opaque:
    """A request of a site's pool, which keeps its jobspec."""

    def __init__(self, jobspec):
        self.jobspec = jobspec


class OpaquePool(ResourcePool):
    def parse_resource_request(self, jobspec):
        return Opaque(jobspec)


@pytest.mark.parametrize("cls", [ResourcePool, OpaquePool])
def test_jobs_that_are_gone_leave_no_texts_behind(cls):
    parser = RequestParser(cls(R(1, 4)))
    parser.parse(with_script(0), lambda: None)
    tracemalloc.start()
    try:
        for number in range(1, 101):
            spec = with_script(number)
            request = parser.parse(spec, lambda spec=spec: spec)
            assert request.jobspec is spec
        del request, spec
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 2_500_000  # of 10 MB


def test_equal_jobspecs_are_parsed_once():
    class Counting(ResourcePool):
        parsed = 0

        def parse_resource_request(self, jobspec):
            Counting.parsed += 1
            return super().parse_resource_request(jobspec)

    parser = RequestParser(Counting(R(1, 4)))
    specs = [jobspec(1, duration=60) for _ in range(10)]
    requests = [parser.parse(spec, lambda spec=spec: spec) for spec in specs]
    assert Counting.parsed == 1
    assert len({id(request.shape) for request in requests}) == 1
    assert all(request.jobspec is spec for request, spec in zip(requests, specs))
    parser.parse(jobspec(2, duration=60))
    assert Counting.parsed == 2


@pytest.mark.parametrize("request_", [object(), None])
def test_a_request_without_its_jobspec_has_no_attributes(request_):
    job = types.SimpleNamespace(resource_request=request_)
    assert SystemAttributes.of_job(job).queue is None


def forgets_the_allocation(base):
    class Forgetful(base):
        def alloc(self, jobid, request):
            alloc = super().alloc(jobid, request)
            return None if request.duration == 7 else alloc

    return Forgetful


class ForgetsTheRequest(ResourcePool):
    def parse_resource_request(self, jobspec):
        request = super().parse_resource_request(jobspec)
        return None if request.nslots == 2 else request


class CannotBeHashed(ResourcePool):
    def parse_resource_request(self, jobspec):
        request = super().parse_resource_request(jobspec)
        return {"nnodes": 1} if request.duration == 7 else request


class NoCandidates(ResourcePool):
    class placement(Placement):
        def candidates(self, index, shape, eligible):
            return None if shape.slot_size == 3 else super().candidates(index, shape, eligible)

    placement = placement()


class OfAClass(ResourcePool):
    placement = Placement


def test_a_placement_is_an_object():
    policy = type("Mine", (Fifo,), {"pool_class": OfAClass})
    with pytest.raises(ValueError, match=r"OfAClass.placement: expected an object, Placement\(\)"):
        FakeInstance().load(policy)


MISTAKES = [
    (forgets_the_allocation(ResourcePool), "expected an allocation of the pool, got None"),
    (forgets_the_allocation(Rv1Pool), "alloc() returned None: expected a pool"),
    (ForgetsTheRequest, "parse_resource_request() returned None"),
    (CannotBeHashed, "expected a request that can be hashed"),
]


@pytest.mark.parametrize(
    "policy, pool, said",
    [(policy, *mistake) for policy in (Fifo, Backfill) for mistake in MISTAKES]
    + [(Backfill, NoCandidates, "scheduler error: TypeError")],
)
def test_a_mistake_of_a_pool_costs_the_job_concerned(policy, pool, said):
    instance = loaded(
        type("Mine", (policy,), {"pool_class": pool}), nodes=1, cores=8, check_errors=False
    )
    sizes = ((60, 1, 4), (7, 2, 3), (60, 1, 4))
    jobs = [
        instance.submit(duration=time, slots=slots, cores=cores) for time, slots, cores in sizes
    ]
    instance.advance(200)
    assert [job.result for job in jobs] == ["completed", "failed", "completed"]
    assert said in jobs[1].note
    (text,) = instance.errors
    assert jobs[1].note.rpartition(": ")[2] in text


def test_a_bug_of_the_pool_in_parsing_is_counted_and_traced():
    class Buggy(ResourcePool):
        def parse_resource_request(self, jobspec):
            return jobspec["attributes"]["system"]["colour"].lower()

    class Mine(Guide):
        pool_class = Buggy

    rig = Rig(R(4, 4), Mine)
    rig.alloc(1, jobspec(1, colour=7))
    said = "AttributeError: 'int' object has no attribute 'lower'"
    assert rig.denied(1) == f"cannot parse jobspec: {said}"
    assert rig.ask("feasibility.check", {"jobspec": jobspec(1, colour=7)}) == (22, said)
    assert rig.sched.stats_get()["errors"] == 2
    alloc, check = rig.logged(ERR)
    assert "Traceback" in alloc and "ƒ2" in alloc and "Traceback" in check
    # A missing key of the jobspec, or a value of the wrong type, is its user's mistake.
    rig.alloc(2, {"version": 1})
    assert rig.denied(2)
    assert rig.sched.stats_get()["errors"] == 2
