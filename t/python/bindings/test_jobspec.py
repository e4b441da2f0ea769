# SPDX-License-Identifier: LGPL-3.0-or-later
"""Checking jobspecs (RFC 14, 25), and flux.job.JobspecV1."""

import copy
import datetime
import json
import pathlib

import pytest
import shared

from flux.job import Jobspec, JobspecV1, validate_jobspec
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


@pytest.mark.parametrize("levels", [100, 10000])
def test_a_graph_may_be_deep(levels):
    deep = CORE
    for _ in range(levels):
        deep = {"type": "x", "count": 1, "with": [deep]}
    check.validate(made([deep]))
    deep = {"type": "x", "count": 1, "with": [deep, {"type": "y", "count": 1, "unit": 5}]}
    with pytest.raises(ValueError, match="unit must be a string"):
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


def test_options_of_from_command():
    spec = JobspecV1.from_command(
        ["a"],
        environment={},
        duration=datetime.timedelta(minutes=2),
        env_expand={"A": "{{id}}"},
        rlimits={"nofile": 7},
        input="i",
        output="o",
        error="none",
        label_io=True,
        unbuffered=True,
        bank="b",
        cwd=pathlib.Path("/w"),
    )
    system = spec.attributes["system"]
    assert (system["duration"], system["bank"], system["cwd"]) == (120.0, "b", "/w")
    options = system["shell"]["options"]
    assert (options["env-expand"], options["rlimit"]) == ({"A": "{{id}}"}, {"nofile": 7})
    assert (spec.input, spec.output, spec.error) == ("i", "o", None)
    assert options["output"]["stdout"]["label"] is True
    spec.unbuffered = False
    assert not spec.unbuffered and "stderr" not in options["output"]
    for option in ("env_expand", "rlimits"):
        with pytest.raises(ValueError, match=f"{option} must be a mapping"):
            JobspecV1.from_command(["a"], **{option: 3})


@pytest.mark.parametrize(
    "name, value, error",
    [
        ("duration", None, TypeError),
        ("duration", float("inf"), ValueError),
        ("duration", -1, ValueError),
        ("cwd", 3, ValueError),
        ("environment", [1], ValueError),
        ("queue", 3, TypeError),
        ("stdout", b"o", TypeError),
        ("unbuffered", 1, TypeError),
    ],
)
def test_what_attributes_refuse(name, value, error):
    spec = JobspecV1.from_command(["a"], environment={})
    before = spec.dumps()
    with pytest.raises(error):
        setattr(spec, name, value)
    assert spec.dumps() == before


def test_attributes_by_key():
    spec = JobspecV1.from_command(["a"], environment={})
    spec.setattr("a.b", 1)
    spec.setattr("user.c", 2)
    spec.setattr("attributes.system.d", 3)
    assert [spec.getattr(key) for key in ("a.b", "user.c", "system.d")] == [1, 2, 3]
    assert sorted(spec.attributes) == ["system", "user"]
    with pytest.raises(KeyError):
        spec.getattr("nope")
    with pytest.raises(TypeError, match="failed to set attributes.system.a.b.c"):
        spec.setattr("a.b.c", 1)


@pytest.mark.parametrize(
    "arguments, vertex, option",
    [
        ({"ncores": 4}, ("slot", 4, 1), None),
        ({"nnodes": 2, "exclusive": True}, ("node", 2, 1), None),
        ({"nnodes": 2, "ncores": 6}, ("node", 2, 3), None),
        (
            {"ncores": 3, "per_resource_type": "core", "per_resource_count": 2},
            ("slot", 3, 1),
            {"type": "core", "count": 2},
        ),
    ],
)
def test_per_resource(arguments, vertex, option):
    spec = JobspecV1.per_resource(["a"], environment={}, name="n", **arguments)
    top, *_, core = spec
    assert (top["type"], top["count"], core["count"]) == vertex
    options = spec.attributes["system"].get("shell", {"options": {}})["options"]
    assert options.get("per-resource") == option
    assert spec.getattr("job.name") == "n"
    check.validate(spec.jobspec)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({}, "must specify node or core count"),
        ({"nnodes": 2}, "requires ncores or exclusive"),
        ({"nnodes": 2, "ncores": 3}, "evenly divisible"),
        ({"nnodes": 4, "ncores": 2}, "cannot be less"),
        ({"ncores": 2, "exclusive": True}, "exclusive can only"),
        ({"ncores": 2, "gpus_per_node": 1}, "gpus_per_node must be specified"),
        (
            {"ncores": 2, "per_resource_type": "gpu", "per_resource_count": 1},
            "Invalid per_resource_",
        ),
        ({"ncores": 2, "per_resource_type": "core"}, "a per_resource_count"),
        ({"ncores": 2, "per_resource_count": 1}, "a per_resource_type"),
        ({"ncores": 2, "per_resource_type": "core", "per_resource_count": 0}, ">= 1"),
    ],
)
def test_per_resource_refuses(arguments, text):
    with pytest.raises(ValueError, match=text):
        JobspecV1.per_resource(["a"], **arguments)


def test_jobspecs_of_instances():
    script = "#!/bin/sh\ntrue\n"
    spec = JobspecV1.from_batch_command(
        script, "n", ["x"], num_slots=2, conf={"a": 1}, broker_opts=["-v"], environment={}
    )
    opts = ["-v", "-c{{tmpdir}}/conf.json"]
    assert spec.tasks[0]["command"] == ["flux", "broker", *opts, "{{tmpdir}}/script", "x"]
    files = spec.getattr("files")
    assert files["script"]["data"] == script and files["script"]["mode"] & 0o777 == 0o700
    assert files["conf.json"]["data"] == {"a": 1}
    assert spec.getattr("shell.options.per-resource.type") == "node"
    check.validate(spec.jobspec)
    with pytest.raises(ValueError, match="n does not appear to start with '#!'"):
        JobspecV1.from_batch_command("true\n", "n")


def test_files(tmp_path):
    spec = JobspecV1.from_command(["a"], environment={})
    (tmp_path / "text").write_text("x\n")
    (tmp_path / "text").chmod(0o640)
    (tmp_path / "bytes").write_bytes(b"\xff")
    spec.add_file("text", str(tmp_path / "text"))
    spec.add_file("bytes", str(tmp_path / "bytes"))
    spec.add_file("inline", "a\nb", perms=0o700)
    spec.add_file("object", {"a": 1})
    files = spec.getattr("files")
    assert (files["text"]["data"], files["text"]["mode"] & 0o777, files["text"]["size"]) == (
        "x\n",
        0o640,
        2,
    )
    assert (files["bytes"]["data"], files["bytes"]["encoding"]) == ("/w==", "base64")
    assert files["inline"] == {"mode": 0o100700, "data": "a\nb", "encoding": "utf-8"}
    assert files["object"] == {"mode": 0o100600, "data": {"a": 1}}
    for data, error in ((3, TypeError), (str(tmp_path / "no"), FileNotFoundError)):
        with pytest.raises(error):
            spec.add_file("no", data)
    with pytest.raises(ValueError, match="encoding"):
        spec.add_file("no", "x", encoding="rot13")
    assert "no" not in files


def test_a_jobspec_of_yaml(tmp_path):
    pytest.importorskip("yaml")
    text = "version: 1\nresources: []\ntasks: []\nattributes: {system: {duration: 0}}\n"
    assert Jobspec.from_yaml_stream(text).attributes == {"system": {"duration": 0}}
    (tmp_path / "j.yaml").write_text(text)
    assert JobspecV1.from_yaml_file(tmp_path / "j.yaml").duration == 0
    with pytest.raises(ValueError, match="Missing key"):
        Jobspec.from_yaml_stream("version: 1\n")


def test_objects_show_themselves():
    spec = JobspecV1.from_command(["a"], environment={})
    assert repr(spec).startswith("JobspecV1([{'type': 'slot'") and str(spec) == str(spec.jobspec)
    assert eval(repr(spec), {"JobspecV1": JobspecV1}).jobspec == spec.jobspec


SLOT_OF_ONE = {"type": "slot", "count": 1, "label": "t", "with": [{"type": "core", "count": 1}]}
ITS_TASK = {"command": ["a"], "slot": "t", "count": {"per_slot": 1}}


@pytest.mark.parametrize(
    "change, error",
    [
        ({"version": 0}, ValueError),
        ({"version": "1"}, TypeError),
        ({"resources": {}}, TypeError),
        ({"attributes": None}, TypeError),
        ({"attributes": {"x": 1}}, ValueError),
        ({"resources": [{"count": 1}]}, ValueError),
        ({"resources": [{"type": "node", "count": 0}]}, ValueError),
        ({"resources": [{"type": "node", "count": 1.5}]}, TypeError),
        ({"resources": [{"type": "node", "count": "5-"}]}, ValueError),
        ({"resources": [{**SLOT_OF_ONE, "label": 3}]}, TypeError),
        ({"resources": [{"type": "slot", "count": 1}]}, ValueError),
        ({"resources": [{**SLOT_OF_ONE, "exclusive": 3}]}, TypeError),
        ({"tasks": ["x"]}, TypeError),
        ({"tasks": [{**ITS_TASK, "command": []}]}, TypeError),
        ({"tasks": [{**ITS_TASK, "command": "x"}]}, TypeError),
        ({"tasks": [{**ITS_TASK, "count": {"per_slot": 1, "total": 2}}]}, ValueError),
        ({"tasks": [{**ITS_TASK, "count": {"total": 0}}]}, ValueError),
        ({"tasks": [{**ITS_TASK, "slot": 3}]}, TypeError),
        ({"attributes": {"system": {"dependencies": 3}}}, TypeError),
        ({"attributes": {"system": {"dependencies": [{"scheme": "a"}]}}}, ValueError),
        ({"attributes": {"system": {"constraints": {"foo": []}}}}, TypeError),
        ({"attributes": {"system": {"constraints": {"and": [{"ranks": ["x"]}]}}}}, ValueError),
    ],
)
def test_what_no_jobspec_object_is_made_of(change, error):
    good = {"resources": [SLOT_OF_ONE], "tasks": [ITS_TASK], "attributes": {}, "version": 1}
    Jobspec(**good)
    with pytest.raises(error):
        Jobspec(**{**good, **change})


def test_what_version_1_asks_for_besides():
    good = {
        "resources": [SLOT_OF_ONE],
        "tasks": [ITS_TASK],
        "attributes": {"system": {"duration": 0}},
    }
    JobspecV1(**good)
    ranges = [{"type": "node", "count": {"min": 1}, "with": [SLOT_OF_ONE]}]
    each = [{**ITS_TASK, "count": {"per_resource": {"type": "node", "count": 1}}}]
    for change in (
        {"version": 2},
        {"attributes": {"system": {}}},
        {"resources": ranges},
        {"tasks": each},
    ):
        Jobspec(**{"version": 1, **good, **change})
        with pytest.raises(ValueError):
            JobspecV1(**{**good, **change})


def test_validate_jobspec_takes_text_and_objects():
    spec = JobspecV1.from_command(["a"], environment={})
    for form in (spec, spec.dumps(), spec.dumps().encode()):
        found, same = validate_jobspec(form)
        assert found is True and same.jobspec == spec.jobspec
    assert validate_jobspec("null")[0] == 1
    other = {**spec.jobspec, "version": 2}
    assert type(validate_jobspec(json.dumps(other))[1]) is Jobspec
    with pytest.raises(ValueError):
        validate_jobspec(json.dumps(other), require_version=1)
    with pytest.raises(ValueError, match="Extraneous key .foo."):
        validate_jobspec(json.dumps({**spec.jobspec, "foo": 1}))
    with pytest.raises(TypeError):
        validate_jobspec(spec.jobspec)
    with pytest.raises(OSError):
        validate_jobspec(None)
