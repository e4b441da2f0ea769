# SPDX-License-Identifier: LGPL-3.0-or-later
"""flux.resource.ResourceSet: R version 1 (RFC 20) in, combined, and out."""

import json

import pytest

from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.resource import ResourceSet, Rv1Set

R = {
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
    "scheduling": {"x": 1},
}


def simple(ranks="0-3", core="0-3", hosts="n[0-3]", **execution):
    lite = [{"rank": ranks, "children": {"core": core}}]
    return {"version": 1, "execution": {"R_lite": lite, "nodelist": [hosts], **execution}}


@pytest.fixture
def rset():
    return ResourceSet(R)


def test_properties(rset):
    assert (rset.nnodes, rset.ncores, rset.ngpus) == (3, 8, 2)
    assert isinstance(rset.ranks, IDset) and str(rset.ranks) == "3-4,7"
    # All ranks in order pair up with all hosts, whatever the order of the entries.
    assert isinstance(rset.nodelist, Hostlist) and list(rset.nodelist) == ["a1", "a2", "b9"]
    assert rset.dumps() == str(rset) == rset.rlist == "rank[3-4]/core[0-1],gpu0 rank7/core[0-3]"
    assert rset.properties == "fast,+debug,arm@node"
    assert json.loads(rset.get_properties()) == R["execution"]["properties"]
    assert (rset.starttime, rset.expiration) == (0.0, 2000000000.0)
    assert [rset.count(kind) for kind in ("core", "gpu", "node", "fish")] == [8, 2, 3, 0]


def test_settable(rset):
    rset.state, rset.expiration, rset.starttime = "free", 5, 3
    assert (rset.state, rset.expiration, rset.starttime) == ("free", 5.0, 3.0)
    assert rset.copy().state == rset.copy_ranks("3").state == "free"


def test_out_and_in_again_is_the_same_but_for_scheduling(rset):
    again = rset.to_dict()
    assert "scheduling" not in again
    assert ResourceSet(again).to_dict() == ResourceSet(rset.encode()).to_dict() == again
    assert again["execution"]["R_lite"][0] == {
        "rank": "3-4",
        "children": {"core": "0-1", "gpu": "0"},
    }


def test_ways_to_make_one(rset):
    assert ResourceSet().to_dict()["execution"]["R_lite"] == []
    assert ResourceSet().dumps() == "" and ResourceSet().nnodes == 0
    assert (
        ResourceSet(json.dumps(R)).dumps()
        == ResourceSet(Rv1Set(R)).dumps()
        == ResourceSet(rset).dumps()
    )
    with pytest.raises(ValueError, match="^R version 9 not supported$"):
        ResourceSet({"version": 9})
    with pytest.raises(ValueError, match="^R version 9 not supported$"):
        ResourceSet(version=9)
    with pytest.raises(KeyError):
        ResourceSet({"execution": {}})
    for arg in (3, [1]):
        with pytest.raises(TypeError):
            ResourceSet(arg)


BROKEN = {
    "execution: expected an object": {"version": 1, "execution": 3},
    "execution.R_lite: expected an array": {"version": 1, "execution": {}},
    "execution.R_lite[0]: expected an object": {"version": 1, "execution": {"R_lite": [1]}},
    "IDset(): Invalid argument: 1,0": simple(ranks="1,0"),
    "execution.R_lite[0].children.core: ": simple(core="x"),
    "execution.nodelist: hostlist": simple(hosts="n["),
    "execution.properties.x: ": simple(properties={"x": "a"}),
    "execution.starttime: ": simple(starttime="now"),
    "execution.expiration: not after": simple(starttime=100, expiration=100),
    "execution.R_lite[0].rank: more than": simple(ranks="0-4294967295"),
}


@pytest.mark.parametrize("text", BROKEN)
def test_problems_are_reported_with_their_path(text):
    with pytest.raises(ValueError) as info:
        ResourceSet(BROKEN[text])
    assert str(info.value).startswith(text)


def test_a_rank_may_have_gpus_alone():
    for children in ({"gpu": "0"}, {"core": "", "gpu": "0"}):
        R = simple()
        R["execution"]["R_lite"][0]["children"] = children
        rset = ResourceSet(R)
        assert rset.ncores == 0 and rset.count("gpu") == 4
        entry = json.loads(rset.encode())["execution"]["R_lite"][0]
        assert entry["children"] == {"core": "", "gpu": "0"}


def test_of_a_rank_in_two_entries_the_latter_counts():
    """As in a real Flux; what reads R for an instance puts both together."""
    lite = [
        {"rank": "0-1", "children": {"core": "0-1"}},
        {"rank": "1", "children": {"core": "1-3", "gpu": "0"}},
    ]
    rset = ResourceSet({"version": 1, "execution": {"R_lite": lite, "nodelist": ["a,b"]}})
    assert rset.dumps() == "rank0/core[0-1] rank1/core[1-3],gpu0"


def test_nodelist_may_be_missing():
    """What a scheduler reports as allocated has none (golden/rpc.jsonl)."""
    bare = {"version": 1, "execution": {"R_lite": [{"rank": "0", "children": {"core": "0"}}]}}
    rset = ResourceSet(bare)
    assert rset.dumps() == "rank0/core0" and "nodelist" not in rset.to_dict()["execution"]
    assert ResourceSet(rset.to_dict()).dumps() == "rank0/core0"


def test_ranks_alike_share_an_entry():
    lite = [{"rank": str(rank), "children": {"core": "0"}} for rank in (5, 2, 6, 3)]
    rset = ResourceSet({"version": 1, "execution": {"R_lite": lite, "nodelist": ["n[0-3]"]}})
    assert [entry["rank"] for entry in rset.to_dict()["execution"]["R_lite"]] == ["2-3,5-6"]


def test_parts(rset):
    part = rset.copy_ranks("3,9")
    assert part.dumps() == "rank3/core[0-1],gpu0"
    assert (str(part.nodelist), part.properties) == ("a1", "fast")
    rset.remove_ranks(IDset("3-4"))
    assert (rset.dumps(), str(rset.nodelist)) == ("rank7/core[0-3]", "b9")


@pytest.mark.parametrize(
    "constraint, ranks",
    [
        ({"properties": ["+debug"]}, "4,7"),
        ({"not": [{"properties": ["fast"]}]}, "4"),
        ({"hostlist": ["a[1-9]"]}, "3-4"),
        ('{"ranks": ["7-99"]}', "7"),
        ({}, "3-4,7"),
    ],
)
def test_constraints(rset, constraint, ranks):
    assert str(rset.copy_constraint(constraint).ranks) == ranks


def test_bad_constraints(rset):
    for constraint in ({"nope": []}, '{"and": 3}', "not json"):
        with pytest.raises(ValueError):
            rset.copy_constraint(constraint)


def test_hosts_and_their_ranks():
    rset = ResourceSet(simple(hosts="vm,n1,vm,n2"))
    assert rset.host_ranks("vm") == [0, 2]
    assert rset.host_ranks(["n2", "n1"]) == [3, 1]
    assert rset.host_ranks("n1,zz", ignore_nomatch=True) == [1]
    with pytest.raises(FileNotFoundError, match="hosts 'x,y' not found"):
        rset.host_ranks("x,n1,y")


def test_properties_can_be_set(rset):
    rset.set_property("new", "3").set_property("all")
    assert json.loads(rset.get_properties())["new"] == "3"
    assert json.loads(rset.get_properties())["all"] == "3-4,7"
    with pytest.raises(ValueError, match="ranks 0 not in resource set"):
        rset.set_property("new", "0,3")
    with pytest.raises(ValueError, match="invalid character .* in property"):
        rset.set_property("a|b")


def test_combining():
    a = ResourceSet(simple())
    b = ResourceSet(simple("2-5", "2-5", "n[2-5]"))
    assert (a & b).dumps() == "rank[2-3]/core[2-3]"
    assert (a - b).dumps() == "rank[0-1]/core[0-3] rank[2-3]/core[0-1]"
    assert (a | b).dumps() == "rank[0-1]/core[0-3] rank[2-3]/core[0-5] rank[4-5]/core[2-5]"
    assert str((a | b).nodelist) == "n[0-5]"
    assert (a.union(b).diff(b).intersect(a)).dumps() == (a - b).dumps()
    assert a.dumps() == "rank[0-3]/core[0-3]"


def test_a_rank_may_keep_its_gpu_alone():
    a = ResourceSet(R)
    b = ResourceSet(
        {"version": 1, "execution": {"R_lite": [{"rank": "3", "children": {"core": "0-1"}}]}}
    )
    left = a - b
    assert left.dumps() == "rank3/core,gpu0 rank4/core[0-1],gpu0 rank7/core[0-3]"
    assert ResourceSet(left.to_dict()).dumps() == left.dumps()


def test_add_and_append():
    a = ResourceSet(simple("0", "0-1", "n0"))
    a.append(ResourceSet(simple("1", "0-1", "n1")), simple("2", "0", "n2", properties={"p": "2"}))
    assert (a.dumps(), str(a.nodelist), a.properties) == (
        "rank[0-1]/core[0-1] rank2/core0",
        "n[0-2]",
        "p",
    )
    a.add(simple("2", "0-3", "n2"))
    a.append(simple("2", "1", "n2"))
    assert a.dumps() == "rank[0-1]/core[0-1] rank2/core[0-3]"


@pytest.mark.parametrize(
    "hosts, names", [("n[0-2]", "n[0-2],rank3"), ("n[0-4]", "n[0-3]"), (None, "rank[0-3]")]
)
def test_every_rank_has_a_name(hosts, names):
    R = simple(hosts=hosts or "")
    if hosts is None:
        del R["execution"]["nodelist"]
    assert str(ResourceSet(R).nodelist) == names


def test_R_without_execution():
    assert ResourceSet({"version": 1}).nnodes == 0 and ResourceSet().version == 1
