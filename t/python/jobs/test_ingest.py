# SPDX-License-Identifier: LGPL-3.0-or-later
"""Submission: ids, checks, defaults, queues, stored files (protocols.md 7, 10, 12, 14; cli.md)."""

import errno
import json

import pytest
from in_process import refused
from jobs_instance import ALL

from flux.scheduler.testing import jobspec
from flux_embedded.services.job_ingest import IdGenerator

QUEUES = {
    "queues": {
        "batch": {},
        "debug": {
            "requires": ["pp"],
            "policy": {"jobspec": {"defaults": {"system": {"duration": "10m"}}}},
        },
        "quick": {
            "parent": "debug",
            "policy": {"jobspec": {"defaults": {"system": {"duration": "5m"}}}},
        },
        "standby": {"parent": "debug"},
        "other": {"parent": "batch"},
    },
    "policy": {"jobspec": {"defaults": {"system": {"queue": "batch", "duration": "1h"}}}},
}


def stored(inst, id, key="jobspec"):
    return json.loads(inst.rpc("job-info.lookup", {"id": id, "keys": [key], "flags": 0})[key])


def test_ids_ascend_at_a_frozen_clock():
    ids = IdGenerator(100.0)
    made = [ids.next(101.5) for _ in range(3000)]
    assert len(set(made)) == 3000 and made == sorted(made)
    assert made[0] == 1500 << 24
    assert made[1024] == 1501 << 24
    assert ids.next(50.0) > made[-1]
    assert ids.next(200.0) == 100000 << 24


@pytest.mark.parametrize(
    "more, number, text",
    [
        *(({"urgency": one}, errno.EINVAL, "urgency range is [0:31]") for one in (99, -1, 32)),
        *(({"urgency": one}, errno.EPROTO, "Protocol error") for one in ("x", True, 1.0)),
        ({"flags": 256}, errno.EPROTO, "invalid job flags"),
        ({"spec": {**jobspec(), "version": 2}}, errno.EPERM, "version must be 1"),
        ({"queue": "nosuch"}, errno.EINVAL, "'nosuch' is not a valid queue"),
    ],
)
def test_refused(inst, more, number, text):
    """Nothing of the job stays behind."""
    assert refused(number, inst.submit, **more) == text
    refused(errno.ENOENT, inst.rpc, "kvs.lookup", {"key": "job.0000.0000.0000.0001.jobspec"})


@pytest.mark.parametrize("key", ["resources", "tasks", "attributes", "version"])
def test_missing_key(inst, key):
    spec = jobspec()
    del spec[key]
    text = "jobspec: expected the keys attributes, resources, tasks, version"
    assert refused(errno.EPERM, inst.submit, spec) == text


def test_what_is_no_jobspec_and_empty_resources(inst):
    assert "jobspec: invalid JSON" in refused(errno.EINVAL, inst.submit, "junk")
    assert inst.submit({**jobspec(), "resources": []})


@pytest.fixture
def unvalidated(inst):
    """`inst`, without the validator of jobspecs."""
    inst.unload("job-ingest")
    refused(errno.EINVAL, inst.load_module, "job-ingest", "nonsense")
    inst.load_module("job-ingest", "disable-validator")
    return inst


def a_range():
    spec = jobspec()
    spec["resources"][0]["count"] = "2-4"
    return spec


@pytest.mark.parametrize("attributes", [None, {}, {"system": None}])
def test_without_validator_almost_anything_goes(unvalidated, attributes):
    assert unvalidated.submit(a_range())
    id = unvalidated.submit({**jobspec(), "attributes": attributes})
    assert unvalidated.events(id)[-1] == "priority"
    refused(errno.EINVAL, unvalidated.submit, {**jobspec(), "attributes": {"system": 3}})
    refused(errno.EPROTO, unvalidated.submit, [1])


def test_submission_disabled(inst):
    inst.rpc("job-manager.queue-enable", {"enable": False, "all": True, "reason": "no more"})
    assert refused(errno.EINVAL, inst.submit) == "job submission is disabled: no more"
    inst.rpc("job-manager.queue-enable", {"enable": True, "all": True})
    assert inst.submit()
    inst.unload("job-manager")
    refused(errno.ENOSYS, inst.submit)


def test_feasibility_check(inst):
    inst.rpc("config.load", {"ingest": {"validator": {"plugins": ["jobspec", "feasibility"]}}})
    assert inst.submit()  # no scheduler: the check is skipped
    inst.load_sched()
    assert inst.submit(cores=3)
    assert inst.sched.of("check")[0]["jobspec"]["resources"] == jobspec(cores=3)["resources"]
    inst.sched.infeasible = "unsatisfiable request: too big"
    assert refused(errno.EOVERFLOW, inst.submit) == "unsatisfiable request: too big"
    assert inst.submit(flags=8)


def test_guest(inst):
    inst.as_user(1234)
    assert "only the instance owner" in refused(errno.EINVAL, inst.submit, urgency=17)
    assert "only the instance owner" in refused(errno.EPERM, inst.submit, flags=8)
    id = inst.submit(urgency=15)
    assert inst.eventlog(id)[0]["context"]["userid"] == 1234
    assert inst.jm.jobs.active[id].userid == 1234


@pytest.fixture
def queues(inst):
    inst.rpc("config.load", QUEUES)
    return inst


def system(inst, **kwargs):
    return stored(inst, inst.submit(**kwargs))["attributes"]["system"]


@pytest.mark.parametrize(
    "asked, queue, duration, constraints",
    [
        ({}, "batch", 3600.0, None),
        ({"queue": "debug"}, "debug", 600.0, {"properties": ["pp"]}),
        ({"queue": "debug", "duration": 5}, "debug", 5, {"properties": ["pp"]}),
        ({"queue": "quick"}, "quick", 300.0, {"properties": ["pp"]}),
        ({"queue": "standby"}, "standby", 600.0, {"properties": ["pp"]}),
        ({"queue": "other"}, "other", 3600.0, None),
    ],
)
def test_defaults_and_constraints_of_a_queue(queues, asked, queue, duration, constraints):
    """A virtual queue has those of its parent."""
    found = system(queues, **asked)
    assert (found["queue"], found["duration"]) == (queue, duration)
    assert found.get("constraints") == constraints


def test_no_queue(queues):
    text = "Invalid queue 'nosuch' specified"
    assert refused(errno.EPERM, queues.submit, queue="nosuch") == text
    queues.rpc("config.load", {"queues": {"a": {}, "b": {}}})
    assert refused(errno.EPERM, queues.submit) == "no queue specified"
    assert queues.submit(queue="a")


#: Queues a to wide; short and wide are virtual ones.
LIMITED = {
    "policy": {
        "limits": {"job-size": {"max": {"ncores": 4, "nnodes": 2}, "min": {"ncores": 1}}, "duration": "1h"},
        "jobspec": {"defaults": {"system": {"queue": "a", "duration": "1h"}}},
    },
    "queues": {
        "a": {},
        "b": {"policy": {"limits": {"job-size": {"max": {"ncores": 8}}, "duration": "2h"}}},
        "short": {"parent": "b", "policy": {"limits": {"duration": "1m"}}},
        "whole": {"policy": {"limits": {"job-size": {"min": {"nnodes": 1}}}}},
        "wide": {"parent": "b", "policy": {"limits": {"job-size": {"max": {"ncores": -1}}}}},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "queue, asked, text",
    [
        ("a", {"cores": 5}, "ncores (5) exceeds policy limit of 4"),
        ("a", {"nodes": 3}, "nnodes (3) exceeds policy limit of 2"),
        ("a", {"duration": 3601}, "duration (1h) exceeds policy limit of 1h"),
        ("b", {"cores": 8, "duration": 7000}, None),
        ("b", {"cores": 9}, "ncores (9) exceeds policy limit of 8"),
        ("b", {"duration": 10800}, "duration (3h) exceeds policy limit of 2h"),
        ("whole", {}, "nnodes (0) is under policy limit of 1"),
        # Each key comes from the virtual queue, else from its parent, else from the instance.
        ("short", {"duration": 120}, "duration (2m) exceeds policy limit of 1m"),
        ("short", {"duration": 60, "cores": 9}, "ncores (9) exceeds policy limit of 8"),
        ("short", {"duration": 60, "nodes": 3}, "nnodes (3) exceeds policy limit of 2"),
        ("short", {"duration": 60, "cores": 8}, None),
        ("wide", {"duration": 10800}, "duration (3h) exceeds policy limit of 2h"),
        ("wide", {"duration": 7000, "cores": 9}, None),
    ],
)
def test_limits(inst, queue, asked, text):
    inst.rpc("config.load", LIMITED)
    queue_of_job = {} if queue == "a" else {"queue": queue}
    if text is None:
        assert inst.submit(**queue_of_job, **asked)
    else:
        found = refused(errno.EINVAL, inst.submit, **queue_of_job, **asked)
        assert found == f"requested {text} for queue {queue}"


def test_duration_beyond_the_instance(inst):
    execution = {"R_lite": [], "expiration": inst.kernel.time + 665, "nodelist": [""]}
    R = json.dumps({"version": 1, "execution": execution})
    inst.rpc("kvs.commit", {"ops": [["put", "resource.R", R]]})
    text = "job duration (4.2d) exceeds remaining instance lifetime (11m)"
    assert refused(errno.EINVAL, inst.submit, duration=360000.0) == text
    assert inst.submit(duration=600)


ODD = [None, 3, -1.5, "x", "", [], [1], {}, {"a": 1}, [[]], True, [{"type": "slot"}]]


@pytest.mark.parametrize("path", ["resources", "tasks", "version", "system.queue", "system.duration", "system.dependencies",
                                  "system.constraints", "system.job", "system.exec", "system.environment", "system.cwd",
                                  "system.exec.test", "system.shell"])  # fmt: skip
@pytest.mark.parametrize("instance", ["inst", "unvalidated"])
def test_odd_jobspecs(request, instance, path):
    """Each is refused or goes on to its end; the services live on, and so do other jobs of the batch."""
    inst = request.getfixturevalue(instance)
    inst.load_sched(auto=True)
    futures = []
    *way, last = path.replace("system", "attributes.system").split(".")
    for value in ODD:
        where = spec = jobspec(run_duration=1)
        for key in way:
            where = where[key]
        where[last] = value
        futures.append(inst.handle.rpc("job-ingest.submit", {"jobspec": spec}))
    good = inst.handle.rpc("job-ingest.submit", {"jobspec": jobspec(run_duration=1)})
    inst.advance(5)
    for future in futures:
        try:
            id = future.get()["id"]
        except OSError as exc:
            assert exc.errno in (errno.EINVAL, errno.EPERM), exc
        else:
            assert inst.state(id) == 64, inst.events(id)
    assert inst.events(good.get()["id"])[-1] == "clean"
    assert not inst.jm.jobs.active
    assert len(inst.rpc("job-list.list", ALL)["jobs"]) == len(inst.jm.jobs.inactive)
    inst.rpc("job-list.job-stats")
    assert inst.jm.execution.provider == "job-exec" and inst.jm.sched.is_ready
    assert not [entry.text for entry in inst.ctx.ring.entries() if "Traceback" in entry.text]
