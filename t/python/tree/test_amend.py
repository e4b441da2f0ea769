# SPDX-License-Identifier: LGPL-3.0-or-later
"""From hwloc XML to R.scheduling: recorded machines, our own, and documents that are refused."""

import copy
import json
import sys
import types

import pytest
import shared
from own_machines import MACHINES

from flux.resource.hwloc.amend import amend, topology_from_xml
from flux.resource.pool.masks import idset_text

CXL_MEMORY = MACHINES["cxl-memory"][0]


def recorded_machines():
    """(XML, expected answer) of each recorded machine there is an answer for."""
    data = shared.data_dir()
    for path in [] if data is None else sorted((data / "hwloc").glob("*.expected.json")):
        name = path.name.split(".")[0]
        xml = (data / "hwloc" / f"{name}.xml").read_text(encoding="utf-8")
        yield pytest.param(xml, json.loads(path.read_text()), id=name)


def recorded_errors():
    data = shared.data_dir()
    return [] if data is None else json.loads((data / "hwloc" / "errors.json").read_text())


def bare_R(ranks="0-1", hosts="node[0-1]"):
    lite = [{"rank": ranks, "children": {"core": "0-1"}}]
    return {"version": 1, "execution": {"R_lite": lite, "nodelist": [hosts]}}


def read(xml):
    """The topology, cores and GPUs (idsets; None: none) that are read from XML."""
    topo, ncores, ngpus = topology_from_xml(xml)
    return topo, idset_text((1 << ncores) - 1), idset_text((1 << ngpus) - 1) or None


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_follows_the_rules(hwloc, name):
    xml, *expected = MACHINES[name]
    assert read(xml) == tuple(expected)


@pytest.mark.parametrize("xml, expected", shared.recorded_cases(recorded_machines(), values=2))
def test_a_recorded_machine_has_its_expected_answer(hwloc, xml, expected):
    assert read(xml) == (expected["topo"], expected["cores"], expected["gpus"])
    if "R" in expected:
        plain = copy.deepcopy(expected["R"])
        del plain["scheduling"]
        assert amend(plain, xml) is plain
        assert plain == expected["R"]


@pytest.mark.parametrize(
    "case", shared.recorded_cases(recorded_errors()), ids=lambda case: case["name"]
)
def test_recorded_error(hwloc, case):
    R = copy.deepcopy(case["R"])
    if "error" in case:
        with pytest.raises(RuntimeError):
            amend(R, case["xml"])
        assert R == case["R"]
    else:
        assert amend(R, case["xml"]) == case["result"]


def test_no_xml_needs_no_binding(monkeypatch):
    monkeypatch.setitem(sys.modules, "_flux_hwloc", None)
    R = bare_R()
    assert amend(R) is R
    assert R == bare_R()


@pytest.mark.parametrize("there", [None, types.ModuleType("_flux_hwloc")])
def test_xml_without_the_binding_names_the_package_to_install(monkeypatch, there):
    monkeypatch.setitem(sys.modules, "_flux_hwloc", there)
    with pytest.raises(RuntimeError, match="libhwloc-dev"):
        amend(bare_R(), "<topology/>")


@pytest.mark.parametrize(
    "xml, reason",
    [
        ("", "it is empty"),
        ("  \n", "it is empty"),
        ("no markup", "not well-formed"),
        ("<topology", "not well-formed"),
        ("<a/>", "root element is <a>"),
        ("<topology version='2.0'/>", "no objects"),
        ("<topology version='3.1'><object type='Machine'/></topology>", "format 3.1 .*: export it with 'lstopo --export-xml-flags v2'"),
        ("<topology version='2.0'><object type='Table'/></topology>", "unknown object type 'Table'"),
        ("<topology version='2.0'>\0</topology>", "NUL"),
        ("<topology>\udcff</topology>", "not UTF-8"),
        (b"\xff\xfe<\0".decode("utf-8", "surrogateescape"), "not UTF-8"),
        (b"<topology/>", "expected a str, got bytes"),
        (5, "expected a str, got int"),
        ('<?xml version="1.0" encoding="ebcdic-x"?><topology/>', "encoding"),
        ("<topology version='2.0'><object type='Machine' os_index='0' cpuset='0x1'/></topology>", "no processors"),
    ],
)  # fmt: skip
def test_the_reason_is_named(hwloc, xml, reason):
    R = bare_R()
    with pytest.raises(RuntimeError, match=reason):
        amend(R, xml)
    assert R == bare_R()


def test_a_domain_without_cores_is_named(hwloc):
    from hwloc_xml import Obj, cores, machine, numa, pkg, render

    xml = render(machine(pkg(numa(1), *cores(2)), pkg(numa(1), Obj("PU"), Obj("PU"))))
    with pytest.raises(RuntimeError, match=r"NUMANode\[1\]"):
        amend(bare_R(), xml)
    xml = render(machine(numa(1), pkg(*cores(2)), pkg(Obj("PU"), Obj("PU"))))
    with pytest.raises(RuntimeError, match=r"Package\[1\]"):
        amend(bare_R(), xml)


def test_each_device_counts_when_told_so(hwloc, monkeypatch):
    xml = MACHINES["duplicates"][0]
    monkeypatch.setenv("FLUX_HWLOC_GPU_NO_DEDUP", "1")
    assert topology_from_xml(xml)[2] == 3 + 6 + 3 + 3 + 3


def test_orders_to_libhwloc_in_the_environment_do_not_reach_it(hwloc, monkeypatch):
    expected = topology_from_xml(CXL_MEMORY)
    monkeypatch.setenv("HWLOC_THISSYSTEM", "1")
    monkeypatch.setenv("HWLOC_SYNTHETIC", "pu:3")
    monkeypatch.setenv("HWLOC_COMPONENTS", "-xml")
    assert topology_from_xml(CXL_MEMORY) == expected


@pytest.mark.parametrize(
    "R, words",
    [
        ({"version": 1}, "R: execution: expected an object"),
        ({"version": 1, "execution": {}}, "R: execution.R_lite: expected an array"),
        ({"execution": {"R_lite": [{}]}}, r"R: execution.R_lite\[0\]: expected rank and children"),
    ],
)
def test_amend_names_the_mistake_in_R(hwloc, R, words):
    before = copy.deepcopy(R)
    with pytest.raises(ValueError, match=words):
        amend(R, CXL_MEMORY)
    assert R == before
    assert amend(R) is R
