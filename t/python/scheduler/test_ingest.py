# SPDX-License-Identifier: LGPL-3.0-or-later
"""`flux sched when` completes a jobspec as flux-core's ingest would at its submission."""

import pytest
from peers import jobspec

from flux.scheduler.query.ingest import as_submitted, over_policy


def defaults(duration):
    return {"policy": {"jobspec": {"defaults": {"system": {"duration": duration}}}}}


#: As on a flux-core of August 2026 (0.88.0 and 59 commits), where each case below was run.
CONFIG = {
    "queues": {
        "batch": {"requires": ["batch"], **defaults("1h")},
        "expedite": {"parent": "batch", **defaults("5m")},
        "standby": {"parent": "batch"},
        "all": {},
        "vall": {"parent": "all"},
    },
    "policy": {"jobspec": {"defaults": {"system": {"duration": "10m", "queue": "batch"}}}},
}
GPU_OR_X = {"or": [{"properties": ["gpu"]}, {"properties": ["x"]}]}


def submitted(config, queue=None, constraints=None, duration=None):
    spec = jobspec(1)
    system = spec["attributes"]["system"] = {}
    for name, value in [("queue", queue), ("constraints", constraints), ("duration", duration)]:
        if value is not None:
            system[name] = value
    before = dict(system)
    found = as_submitted(spec, config)["attributes"]["system"]
    assert spec["attributes"]["system"] == before
    return found.get("queue"), found.get("duration"), found.get("constraints")


@pytest.mark.parametrize(
    "asked, found",
    [
        (["expedite"], ("expedite", 300.0, {"properties": ["batch"]})),
        (["standby"], ("standby", 3600.0, {"properties": ["batch"]})),
        (["all"], ("all", 600.0, None)),
        (["vall"], ("vall", 600.0, None)),
        ([None, GPU_OR_X], ("batch", 3600.0, {"and": [GPU_OR_X, {"properties": ["batch"]}]})),
        (["expedite", {"properties": ["^foo", "bar"]}], ("expedite", 300.0, {"properties": ["^foo", "bar", "batch"]})),
        (["batch", {"properties": ["batch", "bar"]}, 7.0], ("batch", 7.0, {"properties": ["batch", "bar"]})),
    ],
)  # fmt: skip
def test_as_flux_core_completes_it(asked, found):
    assert submitted(CONFIG, *asked) == found


@pytest.mark.parametrize("hosts", ["n[0-3]", "all"])
def test_members_of_a_queue_are_asked_for_by_its_property(hosts):
    config = {"queues": {"day": {"hosts": hosts}, "night": {"parent": "day"}}}
    assert submitted(config, "day")[2] == {"properties": ["+day"]}
    assert submitted(config, "night")[2] == {"properties": ["+day"]}
    asked = {"hostlist": ["n1"]}
    assert submitted(config, "night", asked)[2] == {"and": [asked, {"properties": ["+day"]}]}


def test_a_parent_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="queue 'a': parent queue 'b' is not configured"):
        submitted({"queues": {"a": {"parent": "b"}}}, "a")


def limits(duration, **sizes):
    return {"policy": {"limits": {"duration": duration, "job-size": sizes}}}


LIMITED = {
    **limits("12h", max={"nnodes": 8, "ncores": 64, "ngpus": 0}),
    "queues": {
        "debug": limits("1.5h", max={"nnodes": 2}, min={"ncores": 2}),
        "express": {"parent": "debug", **limits("10m")},
        "large": limits("0", max={"nnodes": -1, "ncores": -1}, min={"nnodes": 4}),
        "long": limits("inf"),
    },
}


@pytest.mark.parametrize(
    "nodes, cores, queue, duration, refusal",
    [
        (8, 8, None, 43200.0, None),
        (9, 1, None, 60.0, "requested nnodes (9) exceeds policy limit of 8"),
        (8, 9, None, 60.0, "requested ncores (72) exceeds policy limit of 64"),
        (None, 65, None, 60.0, "requested ncores (65) exceeds policy limit of 64"),
        (1, 1, None, 43201.0, "requested duration (12h1s) exceeds policy limit of 12h"),
        (1, 1, None, None, "requested duration (unlimited) exceeds policy limit of 12h"),
        (3, 1, "debug", 60.0, "requested nnodes (3) exceeds policy limit of 2 for queue debug"),
        (1, 1, "debug", 60.0, "requested ncores (1) is under policy limit of 2 for queue debug"),
        (2, 1, "debug", 7200.0, "requested duration (2h) exceeds policy limit of 1h30m for queue debug"),
        (2, 1, "express", 7200.0, "requested duration (2h) exceeds policy limit of 10m for queue express"),
        (3, 1, "express", 60.0, "requested nnodes (3) exceeds policy limit of 2 for queue express"),
        (1, 65, "debug", 60.0, "requested ncores (65) exceeds policy limit of 64 for queue debug"),
        (99, 9, "large", None, None),
        (None, 4, "large", None, "requested nnodes (0) is under policy limit of 4 for queue large"),
        (1, 65, "large", None, "requested nnodes (1) is under policy limit of 4 for queue large"),
        (3, 1, "large", None, "requested nnodes (3) is under policy limit of 4 for queue large"),
        (1, 1, "long", None, None),
    ],
)  # fmt: skip
def test_flux_core_refuses_numbers_outside_of_its_limits(nodes, cores, queue, duration, refusal):
    spec = jobspec(cores, nodes=nodes)
    system = {"queue": queue, "duration": duration}
    spec["attributes"]["system"] = {key: value for key, value in system.items() if value}
    config = LIMITED if queue else {"policy": LIMITED["policy"]}
    assert over_policy(as_submitted(spec, config), config) == refusal
