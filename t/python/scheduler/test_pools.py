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


def test_a_pool_that_forgets_to_return_the_request_costs_its_job():
    class Forgetful(ResourcePool):
        def parse_resource_request(self, jobspec):
            super().parse_resource_request(jobspec)

    class Policy(Backfill):
        pool_class = Forgetful

    instance = loaded(Policy, check_errors=False)
    jobs = [instance.submit(duration=10) for _ in range(2)]
    instance.advance(1)
    assert all("parse_resource_request() returned None" in job.note for job in jobs)


@pytest.mark.parametrize("base", [ResourcePool, Rv1Pool])
@pytest.mark.parametrize("policy", [Fifo, Backfill])
def test_an_alloc_that_forgets_to_return_the_allocation_costs_its_job(policy, base):
    class Odd(base):
        def alloc(self, jobid, request):
            alloc = super().alloc(jobid, request)
            if jobid != 2:
                return alloc

    instance = loaded(type("Mine", (policy,), {"pool_class": Odd}), check_errors=False)
    jobs = [instance.submit(nodes=1, duration=60) for _ in range(3)]
    instance.advance(200)
    assert [job.result for job in jobs] == ["completed", "failed", "completed"]
    assert "got None" in jobs[1].note or "returned None: expected a pool" in jobs[1].note
    assert len(instance.errors) == 1


@pytest.mark.parametrize("policy", [Fifo, Backfill])
def test_a_request_that_cannot_be_hashed_costs_its_job(policy):
    class Odd(ResourcePool):
        def parse_resource_request(self, jobspec):
            if jobspec["attributes"]["system"]["duration"] == 7:
                return {"nnodes": 1}
            return super().parse_resource_request(jobspec)

    instance = loaded(type("Mine", (policy,), {"pool_class": Odd}), check_errors=False)
    jobs = [instance.submit(nodes=1, duration=seconds) for seconds in (60, 7, 60)]
    instance.advance(200)
    assert [job.result for job in jobs] == ["completed", "failed", "completed"]
    assert jobs[1].note.endswith("expected a request that can be hashed")
    (text,) = instance.errors
    assert text.endswith(jobs[1].note.partition(": ")[2])


def test_a_placement_that_raises_when_a_job_is_queued_costs_that_job():
    class Odd(Placement):
        def candidates(self, index, shape, eligible):
            if shape.slot_size != 3:
                return super().candidates(index, shape, eligible)

    class Pool(ResourcePool):
        placement = Odd()

    instance = loaded(type("Mine", (Backfill,), {"pool_class": Pool}), cores=4, check_errors=False)
    jobs = [instance.submit(slots=1, cores=cores, duration=60) for cores in (2, 3, 2)]
    instance.advance(200)
    assert [job.result for job in jobs] == ["completed", "failed", "completed"]
    assert jobs[1].note.startswith("scheduler error: TypeError")


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
