# SPDX-License-Identifier: LGPL-3.0-or-later
"""Submission: ids, checks, defaults, queues, stored files (protocols.md 7, 10, 12, 14; cli.md)."""

import errno
import json

import pytest
from in_process import raises
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


def refused(inst, number, text, spec=None, **kwargs):
    with raises(number, text):
        inst.submit(spec, **kwargs)


def stored(inst, id, key="jobspec"):
    return json.loads(inst.rpc("job-info.lookup", {"id": id, "keys": [key], "flags": 0})[key])


# -- ids (RFC 19) -------------------------------------------------------------------------------------


def test_ids_ascend_at_a_frozen_clock():
    ids = IdGenerator(100.0)
    made = [ids.next(101.5) for _ in range(3000)]
    assert len(set(made)) == 3000 and made == sorted(made)
    assert made[0] == 1500 << 24
    assert made[1024] == 1501 << 24
    assert ids.next(50.0) > made[-1]
    assert ids.next(200.0) == 100000 << 24


def test_ids_go_on_after_a_reload(inst):
    one = inst.submit()
    inst.unload("job-ingest")
    inst.load_module("job-ingest")
    assert inst.submit() > one


# -- stored keys ---------------------------------------------------------------------------------------


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more, number, text",
    [
        *(({"urgency": one}, errno.EINVAL, "urgency range is [0:31]") for one in (99, -1, 32)),
        *(({"urgency": one}, errno.EPROTO, "Protocol error") for one in ("x", True, 1.0)),
        ({"flags": 256}, errno.EPROTO, "invalid job flags"),
        ({"spec": {**jobspec(), "version": 2}}, errno.EPERM, "version must be 1"),
    ],
)
def test_refused(inst, more, number, text):
    refused(inst, number, text, **more)


@pytest.mark.parametrize("key", ["resources", "tasks", "attributes", "version"])
def test_missing_key(inst, key):
    spec = jobspec()
    del spec[key]
    text = "jobspec: expected the keys attributes, resources, tasks, version"
    refused(inst, errno.EPERM, text, spec)


def test_not_json(inst):
    with pytest.raises(OSError, match="jobspec: invalid JSON") as info:
        inst.submit("junk")
    assert info.value.errno == errno.EINVAL


def test_empty_resources_pass(inst):
    assert inst.submit({**jobspec(), "resources": []})


def test_range_is_refused_by_the_validator_only(inst):
    spec = jobspec()
    spec["resources"][0]["count"] = "2-4"
    with pytest.raises(OSError, match="resource count must be an integer"):
        inst.submit(spec)
    assert inst.submit(spec, flags=8)
    inst.unload("job-ingest")
    inst.load_module("job-ingest", "disable-validator")
    assert inst.submit(spec)


@pytest.mark.parametrize("attributes", [None, {}, {"system": None}])
def test_without_validator_almost_anything_goes(inst, attributes):
    inst.unload("job-ingest")
    inst.load_module("job-ingest", "disable-validator")
    spec = {**jobspec(), "attributes": attributes}
    assert inst.events(inst.submit(spec))[-1] == "priority"
    with pytest.raises(OSError):
        inst.submit({**jobspec(), "attributes": {"system": 3}})
    with pytest.raises(OSError):
        inst.submit([1])


def test_bad_argument(inst):
    inst.unload("job-ingest")
    with pytest.raises(OSError):
        inst.load_module("job-ingest", "nonsense")


def test_unknown_queue_without_queues(inst):
    refused(inst, errno.EINVAL, "'nosuch' is not a valid queue", queue="nosuch")
    # Nothing of it stays behind.
    with raises(errno.ENOENT):
        inst.rpc("kvs.lookup", {"key": "job.0000.0000.0000.0001.jobspec"})


def test_submission_disabled(inst):
    inst.rpc("job-manager.queue-enable", {"enable": False, "all": True, "reason": "no more"})
    refused(inst, errno.EINVAL, "job submission is disabled: no more")
    inst.rpc("job-manager.queue-enable", {"enable": True, "all": True})
    assert inst.submit()


def test_no_job_manager(inst):
    inst.unload("job-manager")
    with raises(errno.ENOSYS):
        inst.submit()


# -- feasibility -----------------------------------------------------------------------------------------


def test_feasibility_check(inst):
    inst.rpc("config.load", {"ingest": {"validator": {"plugins": ["jobspec", "feasibility"]}}})
    assert inst.submit()  # no scheduler: the check is skipped
    inst.load_sched()
    assert inst.submit(cores=3)
    assert inst.sched.of("check")[0]["jobspec"]["resources"] == jobspec(cores=3)["resources"]
    inst.sched.infeasible = "unsatisfiable request: too big"
    refused(inst, errno.EOVERFLOW, "unsatisfiable request: too big")
    assert inst.submit(flags=8)


# -- guests ------------------------------------------------------------------------------------------------


def test_guest(inst):
    inst.as_user(1234)
    with pytest.raises(OSError, match="only the instance owner"):
        inst.submit(urgency=17)
    with pytest.raises(OSError, match="only the instance owner"):
        inst.submit(flags=8)
    id = inst.submit(urgency=15)
    assert inst.eventlog(id)[0]["context"]["userid"] == 1234
    assert inst.jm.jobs.active[id].userid == 1234


# -- queues and defaults (RFC 33) ------------------------------------------------------------------------------


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


def test_invalid_queue(queues):
    refused(queues, errno.EPERM, "Invalid queue 'nosuch' specified", queue="nosuch")


def test_no_default_queue(inst):
    inst.rpc("config.load", {"queues": {"a": {}, "b": {}}})
    refused(inst, errno.EPERM, "no queue specified")
    assert inst.submit(queue="a")


# -- limits --------------------------------------------------------------------------------------------------------


def test_limits(inst):
    limits = {
        "job-size": {"max": {"ncores": 4, "nnodes": 2}, "min": {"ncores": 1}},
        "duration": "1h",
    }
    queue = {"policy": {"limits": {"job-size": {"max": {"ncores": 8}}, "duration": "2h"}}}
    config = {
        "policy": {
            "limits": limits,
            "jobspec": {"defaults": {"system": {"queue": "a", "duration": "1h"}}},
        },
        "queues": {
            "a": {},
            "b": queue,
            "short": {"parent": "b", "policy": {"limits": {"duration": "1m"}}},
            "whole": {"policy": {"limits": {"job-size": {"min": {"nnodes": 1}}}}},
            "wide": {"parent": "b", "policy": {"limits": {"job-size": {"max": {"ncores": -1}}}}},
        },
    }
    inst.rpc("config.load", config)
    refused(
        inst, errno.EINVAL, "requested ncores (5) exceeds policy limit of 4 for queue a", cores=5
    )
    refused(
        inst, errno.EINVAL, "requested nnodes (3) exceeds policy limit of 2 for queue a", nodes=3
    )
    text = "requested duration (1h) exceeds policy limit of 1h for queue a"
    refused(inst, errno.EINVAL, text, duration=3601)
    assert inst.submit(cores=8, queue="b", duration=7000)
    text = "requested ncores (9) exceeds policy limit of 8 for queue b"
    refused(inst, errno.EINVAL, text, cores=9, queue="b")
    text = "requested duration (3h) exceeds policy limit of 2h for queue b"
    refused(inst, errno.EINVAL, text, queue="b", duration=10800)
    text = "requested nnodes (0) is under policy limit of 1 for queue whole"
    refused(inst, errno.EINVAL, text, queue="whole")
    # Each key comes from the virtual queue, else from its parent, else from the instance.
    text = "requested duration (2m) exceeds policy limit of 1m for queue short"
    refused(inst, errno.EINVAL, text, queue="short", duration=120)
    text = "requested ncores (9) exceeds policy limit of 8 for queue short"
    refused(inst, errno.EINVAL, text, queue="short", duration=60, cores=9)
    text = "requested nnodes (3) exceeds policy limit of 2 for queue short"
    refused(inst, errno.EINVAL, text, queue="short", duration=60, nodes=3)
    text = "requested duration (3h) exceeds policy limit of 2h for queue wide"
    refused(inst, errno.EINVAL, text, queue="wide", duration=10800)
    assert inst.submit(cores=8, queue="short", duration=60)
    assert inst.submit(cores=9, queue="wide", duration=7000)


def test_duration_beyond_the_instance(inst):
    R = {
        "version": 1,
        "execution": {"R_lite": [], "expiration": inst.kernel.time + 660, "nodelist": [""]},
    }
    inst.rpc("kvs.commit", {"ops": [["put", "resource.R", json.dumps(R)]]})
    text = "job duration (12h) exceeds remaining instance lifetime (11m)"
    refused(inst, errno.EINVAL, text, duration=43200.0)
    assert inst.submit(duration=600)


# -- random requests -------------------------------------------------------

ODD = [None, 3, -1.5, "x", "", [], [1], {}, {"a": 1}, [[]], True, [{"type": "slot"}]]


@pytest.mark.parametrize("path", ["resources", "tasks", "version", "system.queue", "system.duration", "system.dependencies",
                                  "system.constraints", "system.job", "system.exec", "system.environment", "system.cwd",
                                  "system.exec.test", "system.shell"])  # fmt: skip
@pytest.mark.parametrize("validated", [True, False])
def test_odd_jobspecs(inst, path, validated):
    """Each is refused or goes on to its end; the services live on, and so do other jobs of the batch."""

    if not validated:
        inst.unload("job-ingest")
        inst.load_module("job-ingest", "disable-validator")
    inst.load_sched(auto=True)
    futures = []
    for value in ODD:
        spec = jobspec(run_duration=1)
        where = spec
        *way, last = path.replace("system", "attributes.system").split(".")
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
