# SPDX-License-Identifier: LGPL-3.0-or-later
"""R as the resource service reads, cuts and makes it."""

import copy
import json
import os

import pytest
from resource_help import vm_R

from flux_engine.formats import idset
from flux_engine.resource import sources
from flux_engine.resource.inventory import Inventory

#: The example of the R specification: ranks 3, 4 and 7 on a1, a2 and b9.
EXAMPLE = {
    "version": 1,
    "execution": {
        "R_lite": [
            {"rank": "7", "children": {"core": "0-3"}},
            {"rank": "3-4", "children": {"core": "0-1", "gpu": "0"}},
        ],
        "nodelist": ["a[1-2]", "b9"],
        "properties": {"fast": "3,7", "+debug": "4,7", "arm@node": "7"},
        "starttime": 0,
        "expiration": 2000000000,
    },
}


def bounds(text):
    return idset.decode(text)


def test_ranks_and_hosts():
    inventory = Inventory(EXAMPLE)
    assert [inventory.host(rank) for rank in (3, 4, 7)] == ["a1", "a2", "b9"]
    assert inventory.ranks == bounds("3-4,7") and len(inventory) == 3
    assert inventory.expiration == 2000000000
    assert inventory.ranks_of_hosts(["b9", "a1"]) == bounds("3,7")
    for rank in (0, 5, 6, 8):
        with pytest.raises(KeyError):
            inventory.host(rank)
    with pytest.raises(ValueError, match=r"invalid hosts: c\[1-2\]"):
        inventory.ranks_of_hosts(["c1", "a1", "c2"])


def test_cutting_a_topology():
    topo = {"socket": [{"cores": "0-1"}]}
    first, second = {"ranks": "0-1", "topo": topo}, {"ranks": "2-3", "topo": {}}
    scheduling = {"writer": "TreePool", "children": [first, second]}

    def left(scheduling, gone="3"):
        R = dict(vm_R(), scheduling=scheduling)
        return Inventory(R).without(bounds(gone)).R["scheduling"]

    assert left(scheduling)["children"] == [first, {"ranks": "2", "topo": {}}]
    assert left(scheduling, "2-3")["children"] == [first]
    # In an instance that is a job, its ranks may still be the enclosing one's.
    parents = {"writer": "TreePool", "children": [{"ranks": "5,9,12-13", "topo": topo}]}
    assert left(parents)["children"][0]["ranks"] == "5,9,12"
    # A key of another writer, or one that is no topology, is left alone.
    for other in ({"graph": {}}, {"writer": "fluxion:jgf"}, {"writer": "TreePool"}, {"writer": 3}, [1], None,
                  {"writer": "TreePool", "children": [{"ranks": "x"}]}, {"writer": "TreePool", "children": [{"ranks": "0"}]}):  # fmt: skip
        assert left(other) == other


def changed(path, value):
    """EXAMPLE with one value replaced; ... takes the key out."""
    R = copy.deepcopy(EXAMPLE)
    at = R
    for key in path[:-1]:
        at = at[key]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return R


@pytest.mark.parametrize(
    "path, value, text",
    [
        (["version"], ..., "R.version is missing"),
        (["version"], True, "version: expected 1"),
        (["execution"], [], "R.execution must be an object"),
        (["execution", "R_lite"], ..., "R.execution.R_lite is missing"),
        (["execution", "R_lite"], [], "execution.nodelist: 3 hosts for 0 ranks"),
        (["execution", "R_lite", 1], 3, r"R.execution.R_lite\[1\] must be an object"),
        (["execution", "R_lite", 0, "rank"], "", r"execution.R_lite\[0\].rank: empty"),
        (["execution", "R_lite", 0, "rank"], 7, r"R.execution.R_lite\[0\].rank must be a string"),
        (["execution", "R_lite", 0, "rank"], "9-8", r"execution.R_lite\[0\].rank: "),
        (["execution", "R_lite", 0, "children"], None, r"R.execution.R_lite\[0\].children must be an object"),
        (["execution", "R_lite", 0, "children", "core"], ..., r"R.execution.R_lite\[0\].children.core is missing"),
        (["execution", "R_lite", 1, "children", "gpu"], "x", r"execution.R_lite\[1\].children.gpu: "),
        (["execution", "nodelist"], ["a[1-2]"], "execution.nodelist: 2 hosts for 3 ranks"),
        (["execution", "nodelist"], "a[1-3]", "R.execution.nodelist must be an array"),
        (["execution", "nodelist"], ["a["], "execution.nodelist: "),
        (["execution", "properties"], [], "R.execution.properties must be an object"),
        (["execution", "properties", "fast"], "3,8", "execution.properties.fast: rank 8 is not in R_lite"),
        (["execution", "properties", "a&b"], "3", "invalid character '&' in property"),
        (["execution", "starttime"], "now", "R.execution.starttime: seconds since the epoch must be a number"),
        (["execution", "starttime"], 2000000000, "execution.expiration: not after starttime"),
        (["execution", "expiration"], float("nan"), "execution.expiration: expected seconds"),
        *(([], R, "R") for R in (None, 3, [], "R")),
    ],
)  # fmt: skip
def test_bad_R_is_refused_with_the_path(path, value, text):
    with pytest.raises(ValueError, match=text):
        Inventory(changed(path, value) if path else value)


def test_many_ranks_cost_little():
    inventory = Inventory(vm_R("0-99999", "0-63", "n[0-99999]"))
    assert inventory.host(54321) == "n54321"
    assert inventory.restrict(bounds("5-6,99999"))["execution"]["nodelist"] == ["n[5-6,99999]"]


def test_resources_from_configuration():
    entries = [
        {"hosts": "fake[0-3]", "cores": "0-3", "gpus": "0"}, {"hosts": "big", "cores": "0-7"},
        {"hosts": "fake[2-3],big", "properties": ["pp"]},
    ]  # fmt: skip
    R = sources.from_config({"resource": {"config": entries}})
    assert R["execution"] == {
        "R_lite": [{"rank": "0-3", "children": {"gpu": "0", "core": "0-3"}}, {"rank": "4", "children": {"core": "0-7"}}],
        "starttime": 0.0, "expiration": 0.0, "nodelist": ["fake[0-3],big"], "properties": {"pp": "2-4"},
    }  # fmt: skip
    Inventory(R)
    for conf in ({}, {"resource": {"noverify": True}}):
        assert sources.from_config(conf) is None


@pytest.mark.parametrize(
    "table, text",
    [
        ({"config": []}, "resource.config: expected an array"),
        ({"config": [3]}, r"resource.config\[0\] must be an object"),
        ({"config": [{}]}, r"resource.config\[0\].hosts is missing"),
        ({"config": [{"hosts": 3}]}, r"resource.config\[0\].hosts must be a string"),
        ({"config": [{"hosts": "a["}]}, r"resource.config\[0\].hosts: invalid hostlist"),
        ({"config": [{"hosts": "a"}]}, "resource.config: host a has no cores"),
        ({"config": [{"hosts": "a", "cores": "3-1"}]}, r"resource.config\[0\].cores: invalid idset '3-1'"),
        ({"config": [{"hosts": "a", "core": "0"}]}, r"resource.config\[0\]: unknown key 'core'"),
        ({"config": [{"hosts": "a", "cores": "0", "properties": "x"}]}, r"resource.config\[0\].properties must be an array"),
        ({"path": "/nosuch"}, "resource.path: /nosuch: No such file or directory"),
        ({"path": 3}, "resource.path: expected the path of a JSON file"),
    ],
)  # fmt: skip
def test_bad_configuration(table, text):
    with pytest.raises(ValueError, match=text):
        sources.from_config({"resource": table})


def test_resources_and_scheduling_from_files(tmp_path):
    (tmp_path / "R").write_text(json.dumps(EXAMPLE))
    (tmp_path / "S").write_text('{"writer": "x"}')
    table = {"path": str(tmp_path / "R"), "scheduling": str(tmp_path / "S")}
    assert sources.from_config({"resource": table}) == {**EXAMPLE, "scheduling": {"writer": "x"}}
    (tmp_path / "S").write_text("{")
    with pytest.raises(ValueError, match="resource.scheduling: .*not JSON"):
        sources.from_config({"resource": table})


def test_discovery_gives_every_rank_the_resources_of_this_host():
    inventory = Inventory(sources.discover(["vm", "vm"]))
    (entry,) = inventory.R["execution"]["R_lite"]
    assert entry["rank"] == "0-1"
    assert idset.count(bounds(entry["children"]["core"])) == len(os.sched_getaffinity(0))
