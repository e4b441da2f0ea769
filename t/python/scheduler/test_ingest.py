# SPDX-License-Identifier: LGPL-3.0-or-later
"""What `flux sched when` takes a jobspec to be after its submission: as flux-core's ingest has it."""

import pytest
from peers import jobspec

from flux.scheduler.query.ingest import as_submitted


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
