# SPDX-License-Identifier: LGPL-3.0-or-later
"""Requests read from jobspecs, and refused jobspecs."""

import json

import pytest

from flux.resource import ResourcePool
from flux.resource.pool.constraint import parse_constraint
from flux.resource.pool.inventory import matching_ranks
from flux.resource.pool.masks import idset_text
from flux.resource.request import Remembered
from flux.resource.Rv1Pool import ResourceRequest
from flux.scheduler.testing import make_R


def vertex(kind, count=1, *children, **more):
    entry = {"type": kind, "count": count}
    if children:
        entry["with"] = list(children)
    if kind == "slot":
        entry.setdefault("label", "task")
    return dict(entry, **more)


def jobspec_of_vertices(*resources, version=1, **system):
    system.setdefault("duration", 0)
    return {
        "version": version,
        "resources": list(resources),
        "tasks": [],
        "attributes": {"system": system},
    }


def read(*resources, **system):
    return ResourceRequest.from_jobspec(jobspec_of_vertices(*resources, **system))


class Containers(ResourceRequest):
    takes_containers = True


SLOT = vertex("slot", 1, vertex("core"))


@pytest.mark.parametrize(
    "shape, expected",
    [
        # (nnodes, nnodes_max, nslots, nslots_max, slot_size, gpu_per_slot, exclusive)
        (vertex("slot", 5, vertex("core", 2)), (0, 0, 5, 5, 2, 0, False)),
        (vertex("node", 3, vertex("slot", 2, vertex("core", 4), vertex("gpu", 1))), (3, 3, 6, 6, 4, 1, False)),
        (vertex("slot", 4, vertex("node", 1, vertex("core", 6))), (4, 4, 4, 4, 6, 0, False)),
        (vertex("slot", 2, vertex("node", 3, vertex("core", 1))), (6, 6, 2, 2, 1, 0, False)),
        (vertex("slot", "2-4", vertex("node", 3, vertex("core", 1))), (6, 12, 2, 4, 1, 0, False)),
        (vertex("slot", "2-4", vertex("node", "1-2", vertex("core", 1))), (2, 8, 2, 4, 1, 0, False)),
        (vertex("slot", 2, vertex("node", "1-3", vertex("core", 1))), (2, 6, 2, 2, 1, 0, False)),
        (vertex("slot", 2, vertex("node", 1, exclusive=True)), (2, 2, 2, 2, 0, 0, True)),
        (vertex("slot", 2, vertex("core"), exclusive=True), (2, 2, 2, 2, 1, 0, True)),
        (vertex("node", 2, SLOT, exclusive=True), (2, 2, 2, 2, 1, 0, True)),
        (vertex("slot", 1, vertex("socket", 2, vertex("core", 4))), (0, 0, 1, 1, 8, 0, False)),
        (vertex("rack", 2, vertex("node", 2, SLOT)), (4, 4, 4, 4, 1, 0, False)),
        (vertex("rack", 2, vertex("node", "1-2", SLOT)), (2, 4, 2, 4, 1, 0, False)),
        (vertex("rack", "1-2", vertex("node", "1+", SLOT)), (1, None, 1, None, 1, 0, False)),
        (vertex("node", 1, vertex("socket", 2, SLOT)), (1, 1, 2, 2, 1, 0, False)),
        (vertex("slot", {"min": 2}, vertex("core", "2-8")), (0, 0, 2, None, 2, 0, False)),
        (vertex("slot", 1, vertex("core"), vertex("memory", 4)), (0, 0, 1, 1, 1, 0, False)),
        (vertex("slot", 1, vertex("socket", 1, vertex("core", 2), exclusive=True)), (0, 0, 1, 1, 2, 0, False)),
        (vertex("slot", 1, vertex("core", 1, exclusive=True)), (0, 0, 1, 1, 1, 0, False)),
    ],
)  # fmt: skip
def test_shapes(shape, expected):
    request = read(shape)
    got = (
        request.nnodes, request.nnodes_max, request.nslots, request.nslots_max,
        request.slot_size, request.gpu_per_slot, request.exclusive,
    )  # fmt: skip
    assert got == expected
    assert "ResourceRequest(" in repr(request)


def deep(levels):
    entry = SLOT
    for _ in range(levels):
        entry = vertex("rack", 1, entry)
    return entry


@pytest.mark.parametrize(
    "resources, words",
    [
        ([], "no resources"),
        (None, "no resources"),
        ({"type": "slot"}, "no resources"),
        ([vertex("core")], "slot count"),
        ([vertex("node", 1, vertex("core"))], "slot count"),
        ([vertex("slot", 1, vertex("gpu"))], "slot size"),
        ([vertex("slot", 1)], "slot size"),
        ([vertex("slot", 2, vertex("node", 1))], "slot size"),
        ([vertex("slot", 1, vertex("node", 1, vertex("gpu"), exclusive=True))], "slot size"),
        ([SLOT, SLOT], "more than one slot"),
        ([vertex("slot", 1, SLOT)], "more than one slot"),
        ([vertex("node", 1, vertex("node", 1, SLOT))], "inside another node"),
        ([vertex("node", 1, vertex("slot", 1, vertex("node", 1, vertex("core"))))], "node inside"),
        ([vertex("slot", 1, vertex("core"), vertex("node", 1, vertex("core")))], "beside a node"),
        ([vertex("slot", 1, vertex("node", 1, vertex("core")), vertex("core"))], "beside a node"),
        ([deep(10000)], "vertices"),
        ([vertex("slot", 1, *[vertex("core")] * 20000)], "vertices"),
        (["slot"], "needs a type"),
        ([{"type": 5, "count": 1}], "needs a type"),
        ([{"type": "slot"}], "no count"),
        ([vertex("slot", 1, vertex("core"), **{"with": "core"})], "array"),
        ([vertex("slot", 2**40, vertex("node", 2**40, vertex("core")))], "too large"),
        ([vertex("slot", 1, vertex("socket", 2**40, vertex("core", 2**40)))], "too large"),
        ([vertex("slot", {"min": 1, "operator": "*", "operand": 2}, vertex("core"))], "needs one"),
    ],
)
def test_refused(resources, words):
    spec = jobspec_of_vertices()
    spec["resources"] = resources
    with pytest.raises(ValueError, match=words):
        ResourceRequest.from_jobspec(spec)
    if resources and words != "vertices" and "[" in json.dumps(resources):
        with pytest.raises(ValueError, match=words):
            ResourceRequest.from_jobspec(json.dumps(spec))


@pytest.mark.parametrize(
    "attributes, words",
    [
        (None, "system"),
        ({}, "system"),
        ({"system": None}, "system"),
        ({"system": {}}, "duration"),
        ({"system": {"duration": "1h"}}, "duration"),
        ({"system": {"duration": True}}, "duration"),
        ({"system": {"duration": None}}, "duration"),
        ({"system": {"duration": float("nan")}}, "finite"),
        ({"system": {"duration": float("inf")}}, "finite"),
        ({"system": {"duration": 10**400}}, "too large"),
        ({"system": {"duration": 0, "constraints": "big"}}, "object"),
    ],
)
def test_refused_attributes(attributes, words):
    spec = jobspec_of_vertices(SLOT)
    spec["attributes"] = attributes
    with pytest.raises(ValueError, match=words):
        ResourceRequest.from_jobspec(spec)


def test_version_999_needs_no_duration():
    spec = jobspec_of_vertices(SLOT, version=999)
    spec["attributes"] = None
    assert ResourceRequest.from_jobspec(spec).duration == 0
    assert read(SLOT, duration=-1).duration == 0
    assert read(SLOT, duration=90).duration == 90.0


@pytest.mark.parametrize(
    "spec", [None, 5, [], "[]", "5", "{", b"\xff", "[" * 100000, '{"version": 1}', {}]
)
def test_no_jobspec(spec):
    with pytest.raises(ValueError):
        ResourceRequest.from_jobspec(spec)


def test_jobspec_forms():
    spec = jobspec_of_vertices(SLOT)
    request = ResourceRequest.from_jobspec(json.dumps(spec))
    assert request.jobspec == spec and request.jobspec is not request.jobspec
    for form in (
        spec,
        json.dumps(spec),
        json.dumps(spec).encode(),
        lambda: json.dumps(spec),
        lambda: spec,
    ):
        other = request.with_jobspec(form)
        assert other.jobspec == spec and other.shape is request.shape
    request.jobspec = {"version": 7}
    assert request.jobspec == {"version": 7}


def test_shapes_are_shared_and_replaced():
    one, two = read(SLOT), read(SLOT, duration=100)
    assert one.shape is two.shape
    two.constraint = {"properties": ["big"]}
    assert two.shape is not one.shape and one.constraint is None
    assert two.shape is read(SLOT, constraints={"properties": ["big"]}).shape
    two.exclusive = True
    assert two.exclusive and not one.exclusive
    made = ResourceRequest(2, 3, 4, 1, 60.0, None, False, {"some": "jobspec"})
    assert (made.nnodes, made.nslots, made.ncores, made.ngpus, made.duration) == (2, 6, 24, 6, 60.0)


def containers(*resources):
    return Containers.from_jobspec(jobspec_of_vertices(*resources)).shape


def test_containers():
    shape = containers(vertex("slot", 3, vertex("socket", 2, exclusive=True)))
    assert (shape.container_level, shape.containers_per_slot, shape.slot_size) == ("socket", 2, 0)
    shape = containers(vertex("slot", 1, vertex("socket", 2, vertex("numa", 2, exclusive=True))))
    assert (shape.container_level, shape.containers_per_slot) == ("numa", 4)
    shape = containers(vertex("slot", 2, vertex("node", 1, vertex("gpu", 2), exclusive=True)))
    assert (shape.exclusive, shape.slot_size, shape.gpu_per_slot) == (True, 0, 2)
    assert containers(vertex("slot", 2, vertex("node", 1))).exclusive
    for bad in (
        vertex("slot", 1, vertex("socket", 1, exclusive=True), vertex("numa", 1, exclusive=True)),
        vertex("slot", 1, vertex("a", 2**40, vertex("b", 2**40, exclusive=True))),
        vertex("slot", 1, vertex("socket", 1, exclusive=True), vertex("node", 1, vertex("core"))),
        vertex("slot", 1, vertex("socket", 1)),
    ):
        with pytest.raises(ValueError):
            containers(bad)


# -- constraints -------------------------------------------------------------------------------------------

R = make_R(4, 2, hosts="node[0-3]", properties={"ssd": "0-1", "slow": "1-2", "+batch": "0,3"})


@pytest.mark.parametrize(
    "constraint, ranks",
    [
        (None, "0-3"),
        ({}, "0-3"),
        ({"and": []}, "0-3"),
        ({"properties": []}, "0-3"),
        ({"not": []}, ""),
        ({"not": [{}]}, ""),
        ({"properties": ["none"]}, ""),
        ({"hostlist": ["zz"]}, ""),
        ({"hostlist": []}, ""),
        ({"ranks": []}, ""),
        ({"properties": ["ssd", "^slow"]}, "0"),
        ({"properties": ["^ssd", "^slow"]}, "3"),
        ({"not": [{"properties": ["ssd", "slow"]}]}, "0,2-3"),
        ({"not": [{"properties": ["ssd"]}, {"properties": ["slow"]}]}, "0,2-3"),
        ({"or": [{"properties": ["ssd"]}, {"ranks": ["3"]}]}, "0-1,3"),
        ({"hostlist": ["node[1-2]", "node3"]}, "1-3"),
        ({"ranks": ["0", "2-3"]}, "0,2-3"),
        ({"ranks": ["1-4294967295"]}, "1-3"),
        ({"properties": ["+batch"], "hostlist": ["node[0-1]"]}, "0"),
        ({"properties": ["^+batch"]}, "1-2"),
        ({"not": [{"not": []}]}, "0-3"),
        ({"properties": ["^none"]}, "0-3"),
        # The answer of flux-core's schedulers; RFC 31 leaves it open.
        ({"or": []}, ""),
    ],
)
def test_constraints(constraint, ranks):
    impl = ResourcePool(R).impl
    impl.mark_up("all")
    assert idset_text(impl.inventory.matching(parse_constraint(constraint))) == ranks
    terms = parse_constraint(constraint)
    if terms is not None:
        assert idset_text(matching_ranks(terms, impl.inventory)) == ranks


@pytest.mark.parametrize(
    "constraint",
    [
        {"foo": ["a"]}, {"properties": "ssd"}, {"and": ["ssd"]}, {"ranks": ["2-1"]}, [], "x", 5, {"properties": [7]},
        {"properties": ["a|b"]}, {"properties": [""]}, {"properties": ["^"]}, {"properties": ["^^a"]}, {"hostlist": ["n["]},
        {"hostlist": [5]}, {"ranks": [5]}, {"or": {"ranks": ["0"]}}, {"ranks": "x"}, {"not": None}, {5: []},
    ],
)  # fmt: skip
def test_no_constraints(constraint):
    with pytest.raises(ValueError):
        parse_constraint(constraint)


def test_deep_constraint():
    constraint = {"ranks": ["0"]}
    for _ in range(100000):
        constraint = {"not": [constraint]}
    with pytest.raises(ValueError, match="levels deep"):
        parse_constraint(constraint)
    constraint = {"ranks": ["0"]}
    for _ in range(100):
        constraint = {"not": [constraint]}
    assert ResourcePool(R).explain(read(SLOT, constraints=constraint))


def test_constraints_are_remembered_and_forgotten(monkeypatch):
    pool = ResourcePool(R)
    monkeypatch.setattr(Remembered, "MAX_BYTES", 100000)
    most = 0
    for n in range(1000):
        pool.explain(read(SLOT, constraints={"ranks": [str(n)]}))
        tables = pool.impl.inventory.matches, pool.impl.inventory.verdicts
        most = max(most, *map(len, tables))
    assert 50 < most < 500
    # One that takes more than all tables may is gone with the next.
    pool.explain(read(SLOT, constraints={"ranks": [str(n) for n in range(5000)]}))
    pool.explain(read(SLOT))
    assert max(map(len, tables)) <= 1
    pool.impl.check()
