"""Checking jobspecs (RFC 14, 25), and flux.job.JobspecV1."""

import copy
import json

import pytest
import shared

from flux.job import JobspecV1, validate_jobspec
from flux_embedded.formats import jobspec as check


def made(resources=None, tasks=None, system=None, **top):
    slot = {"type": "slot", "count": 4, "label": "task", "with": [{"type": "core", "count": 1}]}
    task = {"command": ["hostname"], "slot": "task", "count": {"per_slot": 1}}
    spec = {
        "version": 1,
        "resources": [slot] if resources is None else resources,
        "tasks": [task] if tasks is None else tasks,
        "attributes": {"system": {"duration": 0} if system is None else system},
    }
    spec.update(top)
    return spec


def slot(*children, **keys):
    return {"type": "slot", "count": 1, "label": "task", "with": list(children), **keys}


CORE = {"type": "core", "count": 2}
GPU = {"type": "gpu", "count": 1}
TASK = {"command": ["a"], "slot": "task", "count": {"per_slot": 1}}


def node(*children, **keys):
    return {"type": "node", "count": 2, "with": list(children), **keys}


@pytest.mark.parametrize(
    "resources",
    [
        [slot(CORE)],
        [slot(CORE, GPU)],
        [node(slot(CORE))],
        [node(slot(GPU, CORE), exclusive=True)],
        [slot(CORE, exclusive=True)],
    ],
)
def test_the_four_graphs_of_version_1(resources):
    check.validate(made(resources))
    check.validate_v1(made(resources))


def test_also_accepted():
    for spec in (
        made(system={}),
        made(tasks=[{**TASK, "count": {"total": 5}}]),
        made(tasks=[{**TASK, "command": "hostname"}]),
        made(
            system={"duration": 1.5, "x": {"anything": [1]}, "environment": {"A": "b", "C": None}}
        ),
        made(system={"dependencies": [{"scheme": "after", "value": "f1", "more": 1}]}),
        made(system={"constraints": {"properties": ["a", "^b"]}}),
    ):
        check.validate_v1(spec)


# Only the strict check refuses these: a real instance takes them (golden/alloc-shapes.jsonl, cli-jobs.jsonl).
ONLY_STRICT = {
    "slot>node": [slot(node(CORE))],
    "two resources": [slot(CORE), slot(CORE, label="b")],
    "core and core": [slot(CORE, CORE)],
    "gpu alone": [slot(GPU)],
    "exclusive core": [slot({**CORE, "exclusive": True})],
    "core has children": [slot({**CORE, "with": [GPU]})],
    "rack": [{"type": "rack", "count": 1, "with": [node(slot(CORE))]}],
    "no slot": [CORE],
    "node of cores": [node(CORE)],
    "empty": [],
    "no tasks at all": [slot(CORE, count=0)],
    "id": [node(slot(CORE), id="x")],
}


@pytest.mark.parametrize("name", ONLY_STRICT)
def test_other_graphs_are_for_the_pool_to_judge(name):
    check.validate(made(ONLY_STRICT[name]))
    with pytest.raises(ValueError):
        check.validate_v1(made(ONLY_STRICT[name]))


def test_a_task_that_names_no_slot():
    spec = made(tasks=[{**TASK, "slot": "other"}])
    check.validate(spec)
    with pytest.raises(ValueError, match="'other' is not the label of a slot"):
        check.validate_v1(spec)


REFUSED = {
    "Missing key (resources)": {},
    "Missing key (tasks)": {"resources": [], "attributes": {}, "version": 1},
    "version must be 1": made(version=2),
    "resource count must be an integer for type 'slot' (got 'str')": made([slot(CORE, count="2")]),
    "resource count must be an integer for type 'core' (got 'bool')": made(
        [slot({"type": "core", "count": True})]
    ),
    "resource count must be an integer for type 'slot' (got 'dict')": made(
        [slot(CORE, count={"min": 1})]
    ),
    "resource count must be an integer for type 'slot' (got 'float')": made(
        [slot(CORE, count=2.0)]
    ),
    "resource count is missing for type 'core'": made([slot({"type": "core"})]),
    "resource count must not be negative for type 'slot'": made([slot(CORE, count=-1)]),
    "slot must have a label": made([{"type": "slot", "count": 1, "with": [CORE]}]),
    "slot 'a' must have contents ('with')": made([{"type": "slot", "count": 1, "label": "a"}]),
    "'with' must be a non-empty array for type 'slot'": made([slot()]),
    "label 'task' is not unique": made([slot(CORE), slot(CORE)]),
    "unknown key 'x' for resource type 'slot'": made([slot(CORE, x=1)]),
    "exclusive must be true or false for type 'node'": made([node(slot(CORE), exclusive=1)]),
    "resource must be an object": made([3]),
    "resource type must be a string": made([{"type": 3, "count": 1}]),
    "resources must be an array": made(resources={}),
    "tasks must hold one task, not 2": made(tasks=[TASK, TASK]),
    "Missing key (command) in task": made(tasks=[{"slot": "task", "count": {"total": 1}}]),
    "command array cannot have length of zero": made(tasks=[{**TASK, "command": []}]),
    "command must be an array of strings": made(tasks=[{**TASK, "command": [1]}]),
    "task count per_slot must be 1": made(tasks=[{**TASK, "count": {"per_slot": 2}}]),
    "task count must be one of per_slot, total": made(
        tasks=[{**TASK, "count": {"per_slot": 1, "total": 1}}]
    ),
    "task count total must be an integer above 0": made(tasks=[{**TASK, "count": {"total": 0}}]),
    "attributes must be an object": made(attributes=None),
    "Missing key (attributes.system)": made(attributes={}),
    "unknown key 'attributes.other': expected system or user": made(
        attributes={"system": {}, "other": 1}
    ),
    "attributes.system must be an object": made(attributes={"system": None}),
    "attributes.system.duration must be a number of seconds >= 0": made(system={"duration": -1}),
    "attributes.system.queue must be a string": made(system={"queue": 1}),
    "attributes.system.environment must be an object": made(system={"environment": []}),
    "attributes.system.environment.A must be a string or null": made(
        system={"environment": {"A": 1}}
    ),
    "attributes.system.dependencies must be an array": made(system={"dependencies": {}}),
    "dependency scheme must be a string": made(system={"dependencies": [{"value": "x"}]}),
    "unknown constraint operator(s): ['foo']": made(system={"constraints": {"foo": ["a"]}}),
    "Unknown key (more)": made(more=1),
    "jobspec must be an object": [],
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text):
    spec = REFUSED[text]
    before = copy.deepcopy(spec)
    with pytest.raises(ValueError) as info:
        check.validate(spec)
    assert str(info.value) == text
    assert spec == before


@pytest.mark.parametrize("value", ["1h", float("nan"), float("inf"), True, None])
def test_duration_is_a_finite_number(value):
    with pytest.raises(ValueError, match="duration"):
        check.validate(made(system={"duration": value}))


def test_depth_is_bounded():
    deep = CORE
    for _ in range(10000):
        deep = {"type": "x", "count": 1, "with": [deep]}
    with pytest.raises(ValueError, match="nested too deeply"):
        check.validate(made([deep]))


@pytest.mark.parametrize(
    "text, reason",
    [
        ("junk\n", "'[' or '{' expected near 'junk'"),
        ("", "'[' or '{' expected near end of file"),
        ('{"a":', "invalid JSON"),
        ("[1]", "expected an object"),
        ('{"a":' * 100000, "nested too deeply"),
    ],
)
def test_decode_refuses(text, reason):
    with pytest.raises(ValueError) as info:
        check.decode(text)
    assert str(info.value).startswith("jobspec: ") and reason in str(info.value)


def test_hosts_of_a_constraint_must_exist():
    spec = made(
        system={
            "constraints": {"and": [{"hostlist": ["n[0-2]"]}, {"not": [{"hostlist": ["x,n0"]}]}]}
        }
    )
    check.check_hosts(spec, {"n0", "n1", "n2", "x"})
    with pytest.raises(ValueError) as info:
        check.check_hosts(spec, {"n0", "x"})
    assert str(info.value) == "host constraint contains invalid hosts: hosts 'n[1-2]' not found"
    with pytest.raises(ValueError, match="hosts: host 'x' not found"):
        check.check_hosts(spec, {"n0", "n1", "n2"})
    check.check_hosts(made(), ())


def test_recorded_jobspecs():
    """What a real `flux submit` makes passes, ranges and a third kind of attributes excepted."""
    passed = 0
    for line in shared.data_path("golden/jobspecs.jsonl").read_text().splitlines():
        record = json.loads(line)
        if "jobspec" not in record:
            continue
        text = json.dumps(record["jobspec"])
        if "--setattr=.top=3" in record["args"] or "2-4" in text or "2+" in text:
            with pytest.raises(ValueError):
                check.validate(record["jobspec"])
            continue
        check.validate(record["jobspec"])
        passed += 1
    assert passed > 60


def test_from_command_makes_what_flux_submit_makes():
    options = {
        ("-n4",): {"num_tasks": 4},
        ("-n2", "-c3"): {"num_tasks": 2, "cores_per_task": 3},
        ("-n1", "-g1"): {"gpus_per_task": 1},
        ("-N2", "-n4"): {"num_tasks": 4, "num_nodes": 2},
        ("-N2", "-n3"): {"num_tasks": 3, "num_nodes": 2},
        ("-N2", "-n4", "--exclusive"): {"num_tasks": 4, "num_nodes": 2, "exclusive": True},
        ("-t", "1.5h"): {"duration": "1.5h"},
        ("--job-name=foo",): {"name": "foo"},
        ("--queue=batch",): {"queue": "batch"},
        ("--env=FOO=bar",): {"environment": {"FOO": "bar"}},
    }
    seen = 0
    for line in shared.data_path("golden/jobspecs.jsonl").read_text().splitlines():
        record = json.loads(line)
        arguments = options.get(tuple(record["args"]))
        if arguments is not None:
            spec = JobspecV1.from_command(
                ["hostname"], cwd="/home/user", **{"environment": {}, **arguments}
            )
            assert spec.jobspec == record["jobspec"]
            seen += 1
    assert seen == len(options)


def test_jobspec_shortcuts():
    spec = JobspecV1.from_command(["a"])
    spec.duration = 30
    spec.setattr("x.y", 1)
    spec.setattr("user.z", 2)
    spec.setattr_shell_option("verbose", 3)
    assert spec.duration == 30.0
    assert spec.getattr("system.x.y") == spec.getattr("x.y") == 1
    assert spec.attributes["user"] == {"z": 2}
    assert spec.attributes["system"]["shell"]["options"]["verbose"] == 3
    assert validate_jobspec(spec.dumps())[0] is True
    with pytest.raises(ValueError):
        spec.duration = "soon"


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"num_tasks": 0}, "task count must be"),
        ({"cores_per_task": "2"}, "cores per task must be"),
        ({"num_nodes": 4, "num_tasks": 2}, "node count must not be greater than task count"),
        ({"exclusive": True}, "exclusive can only be set with a node count"),
    ],
)
def test_from_command_refuses(arguments, text):
    with pytest.raises(ValueError) as info:
        JobspecV1.from_command(["a"], **arguments)
    assert text in str(info.value)
    for command in ([], "a b", [1]):
        with pytest.raises(TypeError, match="command"):
            JobspecV1.from_command(command)


def test_environment_is_this_process_s(monkeypatch):
    monkeypatch.setenv("SOME_NAME", "x")
    assert JobspecV1.from_command(["a"]).environment["SOME_NAME"] == "x"
    assert JobspecV1.from_command(["a"], environment={}).environment == {}


def test_streams():
    spec = JobspecV1.from_command(["a"], environment={})
    assert spec.stdout is None
    spec.stdout = "o"
    assert spec.stdout == "o" and spec.stderr is None
    options = spec.attributes["system"]["shell"]["options"]
    assert options == {"output": {"stdout": {"type": "file", "path": "o"}}}
    spec.unbuffered = True
    assert spec.unbuffered and options["output"]["stderr"]["buffer"] == {"type": "none"}


def test_counting_resources():
    spec = JobspecV1.from_command(["a"], num_tasks=4, cores_per_task=3, num_nodes=2)
    assert spec.resource_counts() == {"node": 2, "slot": 4, "core": 12}
    assert [(v["type"], n) for _, v, n in spec.resource_walk()] == [
        ("node", 2),
        ("slot", 4),
        ("core", 12),
    ]
