# SPDX-License-Identifier: LGPL-3.0-or-later
"""The [fake-resources] table: counts, hosts, XML, amenders, and errors that name the key."""

import pytest
from shared import SRCDIR

from flux_engine.resource.sources import fake_resources

XML = str(SRCDIR / "t" / "hwloc" / "two-socket-four-gpu.xml")


def fake(**table):
    table = {key.replace("_", "-"): value for key, value in table.items()}
    return fake_resources({"fake-resources": table})


def test_defaults_counts_and_prefix():
    assert fake_resources({}) is None
    execution = fake(nnodes=3)["execution"]
    assert execution["R_lite"] == [{"rank": "0-2", "children": {"core": "0-63"}}]
    assert execution["nodelist"] == ["fake[0-2]"]
    execution = fake(nnodes=1, cores_per_node=2, gpus_per_node=1, host_prefix="x")["execution"]
    assert execution["R_lite"] == [{"rank": "0", "children": {"core": "0-1", "gpu": "0"}}]
    assert execution["nodelist"] == ["x0"]


def test_counts_of_the_xml_unless_given(hwloc):
    R = fake(nnodes=2, hwloc_xml_path=XML)
    assert R["execution"]["R_lite"] == [{"rank": "0-1", "children": {"core": "0-7", "gpu": "0-3"}}]
    assert "scheduling" not in R
    R = fake(nnodes=2, hwloc_xml_path=XML, cores_per_node=4, amend_r="flux.resource.TreePool:amend")
    assert R["execution"]["R_lite"] == [{"rank": "0-1", "children": {"core": "0-3", "gpu": "0-3"}}]
    assert R["scheduling"]["children"][0]["ranks"] == "0-1"
    # An amender without XML gets none.
    assert "scheduling" not in fake(nnodes=2, amend_r="flux.resource.TreePool:amend")


AMENDERS = """
def label(R, hwloc_xml):
    R["execution"]["properties"] = {"red": "0"}
    return R

def fail(R, hwloc_xml=None):
    raise KeyError("why")

def nothing(R, **kwargs):
    pass
"""


def test_a_site_amender(tmp_path, monkeypatch):
    (tmp_path / "site_amend.py").write_text(AMENDERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert fake(nnodes=2, amend_r="site_amend:label")["execution"]["properties"] == {"red": "0"}
    with pytest.raises(ValueError, match="amend-r=site_amend:fail: KeyError: 'why'"):
        fake(nnodes=2, amend_r="site_amend:fail")
    with pytest.raises(ValueError, match="returned NoneType, not R"):
        fake(nnodes=2, amend_r="site_amend:nothing")


@pytest.mark.parametrize(
    "table, text",
    [
        ({}, "fake-resources.nnodes is missing"),
        ({"nnodes": "four"}, "nnodes: it must be an integer"),
        ({"nnodes": True}, "nnodes: it must be an integer"),
        ({"nnodes": 0}, "nnodes: expected an integer from 1"),
        ({"nnodes": 1, "cores_per_node": -1}, "cores-per-node: expected"),
        ({"nnodes": 1, "gpus_per_node": 1.5}, "gpus-per-node: it must be"),
        ({"nnodes": 1, "host_prefix": 3}, "host-prefix must be a string"),
        ({"nnodes": 1, "sockets": 2}, "fake-resources: unknown key 'sockets'"),
        ({"nnodes": 1, "hwloc_xml_path": "/no"}, "hwloc-xml-path: /no: No such file"),
        ({"nnodes": 1, "amend_r": "no_such_module:f"}, "No module named 'no_such_module'"),
        ({"nnodes": 1, "amend_r": "json:nothing"}, "has no attribute 'nothing'"),
        ({"nnodes": 1, "amend_r": "json"}, "amend-r=json: AttributeError"),
    ],
)
def test_errors_name_the_key(table, text):
    with pytest.raises(ValueError, match=text):
        fake(**table)


def test_bad_xml(hwloc, tmp_path):
    path = tmp_path / "bad.xml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="hwloc-xml-path: .*bad.xml"):
        fake(nnodes=1, hwloc_xml_path=str(path))
    path.write_text("<topology/>")
    with pytest.raises(ValueError, match="hwloc-xml-path: hwloc XML does not load"):
        fake(nnodes=1, hwloc_xml_path=str(path))
    with pytest.raises(ValueError, match="fake-resources must be an object"):
        fake_resources({"fake-resources": 3})
