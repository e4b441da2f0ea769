# SPDX-License-Identifier: LGPL-3.0-or-later
"""TreePool from R: refused topologies, the numbering of ranks, and the R of a job."""

import copy
import json
from types import SimpleNamespace

import pytest
from tree_help import alloc, jobspec_of_shape, start, topo_R

from flux.resource import ResourcePool
from flux.resource.TreePool import TreePool
from flux_engine.formats.rset import RSet

TWO = {"socket": [{"cores": "0-3", "gpus": "0"}, {"cores": "4-7", "gpus": "1"}]}


def two_sockets(nodes=2):
    return topo_R((nodes, "0-7", "0-1", TWO))


def broken(change):
    R = copy.deepcopy(two_sockets())
    change(R)
    return R


def children(R):
    return R["scheduling"]["children"]


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda R: R.pop("scheduling"), "no scheduling key"),
        (lambda R: R.update(scheduling=7), "no scheduling key"),
        (lambda R: R["scheduling"].pop("children"), "scheduling.children"),
        (lambda R: R["scheduling"].update(children={}), "scheduling.children"),
        (lambda R: R["scheduling"].update(children=[]), "scheduling.children"),
        (lambda R: children(R).append(3), r"children\[1\]: expected an object"),
        (lambda R: children(R)[0].update(ranks="00"), r"children\[0\]\.ranks: invalid idset"),
        (lambda R: children(R)[0].update(ranks=[0]), r"children\[0\]\.ranks"),
        (lambda R: children(R)[0].update(ranks="0"), "1 ranks are named, but R has 2"),
        (lambda R: children(R)[0].update(ranks="0-2"), "3 ranks are named, but R has 2"),
        (lambda R: children(R)[0].pop("topo"), r"children\[0\]: topo is missing"),
        (lambda R: children(R)[0].pop("ranks"), r"children\[0\]: ranks is missing"),
        (lambda R: children(R).append({"ranks": "1"}), r"children\[1\]: topo is missing"),
        (lambda R: children(R)[0].update(topo=[]), r"children\[0\]\.topo: expected an object"),
        (lambda R: children(R)[0].update(topo={"numa": []}), "no entry has both"),
        (lambda R: children(R)[0].update(topo={"cores": "3-1"}), r"\[0\]\.topo\.cores: invalid idset"),
        (lambda R: children(R)[0].update(topo={"cores": 7}), r"\[0\]\.topo\.cores: idset must be"),
        (lambda R: children(R)[0].update(topo={"cores": "0-70000"}), r"\[0\]\.topo\.cores"),
        (lambda R: children(R)[0].update(topo={"cores": "0", "tray": {"cores": "0"}}), r"\[0\]\.topo\.tray: expected an array"),
        (
            lambda R: children(R)[0].update(topo={"numa": [{"cores": "0"}, {"gpus": "x"}]}),
            r"\[0\]\.topo\.numa\[1\]\.gpus: invalid idset",
        ),
        (lambda R: children(R)[0].update(topo={"nu\nma": [{"cores": "0"}]}), r"\[0\]\.topo: 'nu\\nma' is not a name of levels"),
        (lambda R: R.update(version=2), "version"),
        (lambda R: R["execution"]["R_lite"][0].update(rank="1-2"), "not 0 to 1"),
    ],
)  # fmt: skip
def test_bad_topology_is_named(change, text):
    with pytest.raises(ValueError, match=text):
        TreePool(broken(change))


@pytest.mark.parametrize(
    "named, has",
    # as a real instance has it; the last are ranks of the enclosing instance
    [("0-3", "0,2-3"), ("0-3", "0-2"), ("0,2-3", "0,2-3"), ("5-8", "1-3")],
)
def test_the_R_of_an_instance_lacks_excluded_ranks(named, has):
    R = two_sockets(3)
    R["execution"]["R_lite"][0]["rank"] = has
    children(R)[0]["ranks"] = named
    pool = TreePool.of_instance(R)
    assert [entry["ranks"] for entry in pool.to_dict()["scheduling"]["children"]] == [has]
    request = pool.parse_resource_request(jobspec_of_shape("slot=3/[core=1;gpu=2]"))
    held = pool.alloc(1, request).to_dict()
    assert held["execution"]["R_lite"][0]["rank"] == has
    assert held["scheduling"]["children"][0]["ranks"] == has
    children(R)[0]["ranks"] = "0"
    with pytest.raises(ValueError, match="1 ranks are named"):
        TreePool.of_instance(R)


@pytest.mark.parametrize(
    "topo, lines",
    [
        (TWO, []),
        ({"numa": [{"cores": "0-3"}, {"cores": "8-11"}]}, ["scheduling.children[0].topo: cores 4-7 of rank 0-1 are in no domain"]),
    ],
)  # fmt: skip
def test_a_topology_of_another_machine_is_logged(topo, lines):
    log = SimpleNamespace(lines=[])
    log.warning = log.lines.append
    TreePool(topo_R((2, "0-7", "0-1", topo)), log=log)
    assert log.lines == lines


def test_text_and_object_are_the_same():
    R = two_sockets()
    for form in (TreePool(json.dumps(R)), TreePool._impl_map[1](json.dumps(R))):
        assert form.to_dict() == TreePool(R).to_dict()
    with pytest.raises(ValueError):
        TreePool._impl_map[1]("[")


def in_job(R):
    """R of the instance in a job, as flux-core makes it: ranks and cores count from 0, GPUs do not."""
    return RSet(R).renumber().to_dict()


def test_cores_of_an_instance_in_a_job_keep_their_domains():
    pool = TreePool(two_sockets(3))
    assert alloc(pool, 1, "slot/core=3") == "rank0/core[0-2]"
    parts = "slot=2/[core=2;gpu]"
    job = start(pool, 2, f"node=3/{parts}")
    assert job.dumps() == "rank0/core[3-6],gpu[0-1] rank[1-2]/core[0-1,4-5],gpu[0-1]"
    assert job.to_dict()["scheduling"]["cores"] == {"0": "3-6", "1-2": "0-1,4-5"}
    for R in (in_job(job.to_dict()), json.dumps(in_job(job.to_dict()))):
        inner = TreePool(R)
        assert inner.dumps() == "rank[0-2]/core[0-3],gpu[0-1]"
        assert "cores" not in inner.to_dict()["scheduling"]
        assert alloc(inner, 1, "slot=2/socket{x}") == "rank0/core[0-3],gpu[0-1]"
        assert alloc(inner, 2, "slot/socket{x}") == "rank1/core[0-1],gpu0"
        last = start(inner, 3, "slot/[core;gpu]")
        assert last.dumps() == "rank1/core2,gpu1"
        innermost = TreePool(in_job(last.to_dict()))
        assert alloc(innermost, 1, "slot/socket{x}") == "rank0/core0,gpu1"
    reserved = TreePool(in_job(job.to_dict()), system_cores="0")
    assert alloc(reserved, 1, "node/slot/[core=2;gpu]") == "rank0/core[1-2],gpu1"


def test_cores_of_an_instance_that_counts_them_as_its_parent_does():
    pool = TreePool(two_sockets(2))
    assert alloc(pool, 1, "slot/core") == "rank0/core0"
    job = start(pool, 2, "slot=2/[core=2;gpu]")
    assert TreePool(job.to_dict()).dumps() == "rank0/core[1-2,4-5],gpu[0-1]"
    assert alloc(TreePool(job.to_dict()), 1, "slot=2/socket{x}") == job.dumps()


def test_an_instance_in_a_job_of_the_plain_pool_has_its_topology():
    pool = ResourcePool(two_sockets(3))
    assert alloc(pool, 1, "slot/core=3") == "rank0/core[0-2]"
    job = start(pool, 2, "slot/[core=4;gpu=2]")
    assert job.dumps() == "rank1/core[0-3],gpu[0-1]"
    job = start(pool, 3, "node=2/slot/core=3")
    assert job.dumps() == "rank0/core[3-5] rank2/core[0-2]"
    assert alloc(TreePool(in_job(job.to_dict())), 1, "slot=3/socket{x}") == "rank[0-1]/core[0-2]"
    other = pool.to_dict()["scheduling"]
    assert [entry["ranks"] for entry in other["children"]] == ["0-2"]
    broken_R = broken(lambda R: children(R)[0].update(ranks="0"))
    pool = ResourcePool(broken_R)
    job = start(pool, 1, "slot/core")
    assert job.to_dict()["scheduling"] == broken_R["scheduling"]


@pytest.mark.parametrize(
    "cores, text",
    [
        ([], "scheduling.cores: expected an object"),
        ({"0": 3}, r"scheduling.cores\.0: idset must be"),
        ({"x": "3"}, "scheduling.cores: invalid idset"),
    ],
)
def test_bad_record_of_cores_is_named(cores, text):
    with pytest.raises(ValueError, match=text):
        TreePool(broken(lambda R: R["scheduling"].update(cores=cores)))


def test_cores_beside_a_container_are_a_minimum():
    topo = {"socket": [{"cores": "0-1"}, {"cores": "2-7"}]}
    pool = TreePool(topo_R((1, "0-7", "", topo)))
    assert alloc(pool, 1, "slot/[socket{x};core=3]") == "rank0/core[2-7]"
    assert alloc(pool, 2, "slot/[socket{x};core=7]") == "InfeasibleRequest"


def test_two_kinds_of_container_in_a_slot_are_refused():
    with pytest.raises(ValueError):
        TreePool(two_sockets()).parse_resource_request(jobspec_of_shape("slot/[socket{x};numa{x}]"))
