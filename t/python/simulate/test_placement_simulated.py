# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs in one rack in simulations: requirements are met, and `check` verifies them."""

import json
import random
import re
import types

import pytest
import test_engines
from command_runner import flux, flux_here

from flux.simulate import checking
from flux.simulate.job import Job, Shape, jobspec
from flux.simulate.machine import uniform
from flux.simulate.site_check import groups_of, misplaced, queues_constrain
from flux_engine.formats import idset

MACHINE = uniform(16, 4)
CONFIG = {
    "topology": {
        "rack": {"groups": {f"r{n}": f"node[{4 * n:02}-{4 * n + 3:02}]" for n in range(4)}},
        "block": {"groups": {"b0": "node[00-07]", "b1": "node[08-15]"}},
    }
}
ASKED = [
    None, None, {"level": "rack"}, {"level": "rack", "max": 2}, {"level": "rack", "segment": 2},
    {"level": "block", "mode": "required"}, {"level": "rack", "mode": "preferred", "wait": 300},
]  # fmt: skip
POLICIES = [
    "sched-fifo", "sched-simple", "sched-backfill", "sched-backfill promise=unlimited",
    "sched-backfill promise=all within=1h", "sched-backfill rank=wfp3 promise=2",
]  # fmt: skip


def whole_nodes(number, submit, nodes, placement=None, run=3600, unit="node"):
    size = nodes if unit == "node" else 4 * nodes
    job = Job(str(number), submit, run, run, Shape(nodes, 1, 4, 0, True), size)
    if placement is not None:
        job.extra = {"jobspec": jobspec(job)}
        job.extra["jobspec"]["attributes"]["system"]["placement"] = placement
    return job


def many(seed, count=120, unit="node"):
    """Jobs, most with requirements of placement; some cannot be placed at all."""
    chance = random.Random(seed)
    jobs, now = [], 0.0
    for number in range(count):
        now += chance.choice((0, 1, 60, 300, 300))
        run = chance.choice((60, 600, 3600))
        nodes = chance.choice((1, 2, 2, 3, 4, 6, 8))
        job = whole_nodes(number, now, nodes, chance.choice(ASKED), run, unit)
        jobs.append(job)
    return test_engines.workload(jobs, MACHINE, unit)


def misplaced_jobs(rows, text, unit="node"):
    """Return the findings of `flux simulate check` about the placement of jobs."""
    machine = {"cores": 64, "nodes": 16, "cores_per_node": 4, "unit": unit}
    provenance = {"topology": groups_of(CONFIG, MACHINE.R), "machine": machine}
    result = types.SimpleNamespace(name=text, rows=lambda: rows, provenance=provenance)
    return list(checking.Schedule(result).placement())


@pytest.mark.parametrize("text", POLICIES)
@pytest.mark.parametrize("seed", range(2))
def test_required_placement_is_kept(seed, text, tmp_path):
    outcome, _ = test_engines.simulate_policy(many(seed), text, config=CONFIG)
    rows = test_engines.rows_of(outcome, tmp_path)
    assert not misplaced_jobs(rows, text)
    assert sum(row.start is not None and row.placement is not None for row in rows) > 40
    never = "in one rack, at most 4 in one rack"
    assert any(never in note for note in outcome.notes.values())
    # A promise to such a job is one as any other.
    for row in rows:
        if row.promise is not None and row.start is not None and "rank=" not in text:
            assert row.start <= row.promise + 1e-3, row.id


def test_units_that_are_cores(tmp_path):
    work = many(3, unit="core")
    outcome, _ = test_engines.simulate_policy(work, "sched-backfill", config=CONFIG)
    rows = test_engines.rows_of(outcome, tmp_path)
    assert not misplaced_jobs(rows, "sched-backfill", "core")
    assert misplaced_jobs(rows, "sched-backfill", "node")


def row(allocated, start=0.0, **placement):
    units = lambda: idset.decode(allocated.replace(" ", ","))
    placement = {"level": "rack", **placement}
    return types.SimpleNamespace(id="1", submit=0.0, start=start, units=units, placement=placement)


@pytest.mark.parametrize(
    "row, wrong",
    [
        (row("0-3"), None),
        (row("3-4"), "it requires 1 of level rack at most, and is in 2"),
        (row("3-4", max=2), None),
        (row("0-1 4-5", segment=2), None),
        (row("0-2 4", segment=2), "it requires segments of 2 nodes, and has .3, 1. in each rack"),
        (row("3-4", mode="preferred"), None),
        (
            row("3-4", mode="preferred", wait="5m"),
            "it waits 300 s for what it prefers, .* after 0 s",
        ),
        (row("3-4", 299.0, mode="preferred", wait=300), "it prefers 1 of level rack at most"),
        (row("3-4", 300.0, mode="preferred", wait=300), None),
        (row("0-3", mode="preferred", wait=300), None),
        (row("0-4", mode="preferred", wait=300), None),  # never possible
        (row("0-7 12", mode="preferred", wait=300, max=2), None),
        (row("0-6 12", mode="preferred", wait=300, max=2), "it prefers 2 of level rack at most"),
        (row("0-2 4", mode="preferred", wait=300, segment=2), "it prefers segments of 2 nodes"),
        (row("0-5", mode="preferred", wait=300, segment=6), None),  # never possible
        (row("3 16"), "1 of its nodes are of none"),
        (row("3-4", level="pod"), None),
    ],
)
def test_a_job_elsewhere_is_found(row, wrong):
    topology = groups_of(CONFIG, MACHINE.R)
    found = misplaced(row, topology, None)
    assert found is None if wrong is None else re.search(wrong, found)


def test_a_preference_is_not_judged_where_it_may_be_impossible():
    topology = groups_of(CONFIG, MACHINE.R)
    early = row("3-4", mode="preferred", wait=300)
    assert misplaced(early, topology, None) is not None
    assert misplaced(early, topology, None, any_node=False) is None
    assert misplaced(row("3-4"), topology, None, any_node=False) is not None
    assert queues_constrain({"queues": {"a": {"requires": ["x"]}, "b": {}}})
    assert not queues_constrain({"queues": {"b": {}}}) and not queues_constrain({})


def test_groups_by_properties():
    R = json.loads(json.dumps(MACHINE.R))
    R["execution"]["properties"] = {"rack-a": "0-7", "rack-b": "8-15", "gpu": "3"}
    config = {"sched-topology": {"rack": {"property-prefix": "rack-"}, "bad": {"groups": 5}}}
    assert groups_of(config, R) == {"rack": {"a": "0-7", "b": "8-15"}}
    assert groups_of({}, R) == {}
    # A node with two such properties is of the first group by name.
    R["execution"]["properties"] = {"rack-b": "8-15", "rack-a": "0-8"}
    two = groups_of(config, R)
    assert misplaced(row("7-8"), two, None) is None
    assert "is in 2" in misplaced(row("8-9"), two, None)


def test_the_command_writes_tables_that_it_checks(tmp_path):
    groups = 'groups = {a = "node[000-063]", b = "node[064-127]"}'
    (tmp_path / "conf.toml").write_text(f"[topology.rack]\n{groups}\n")
    flux("--jobs=60 --conf conf.toml -q -o out sample --scheduler sched-backfill", cwd=tmp_path)
    (file,) = (tmp_path / "out").rglob("provenance.json")
    written = json.loads(file.read_text())
    assert written["topology"] == {"rack": {"a": "0-63", "b": "64-127"}}
    assert "no rule broken" in flux_here("check", tmp_path / "out").stdout
