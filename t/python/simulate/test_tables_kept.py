# SPDX-License-Identifier: LGPL-3.0-or-later
"""Limits, licences and sharing in simulated schedules, and the rules of ``flux simulate check``."""

import csv
import random
from types import SimpleNamespace

import pytest
from command_runner import flux, flux_here
from shared import seeds
from test_engines import rows_of

from flux.simulate import policy
from flux.simulate.checking import Schedule
from flux.simulate.job import Job, Shape, jobspec
from flux.simulate.machine import uniform
from flux.simulate.run import Settings, simulate
from flux.simulate.site_check import broken, exceeded, overdrawn, strangers, tables_of
from flux.simulate.workload.build import Workload
from flux.simulate.workload.record import Notes
from flux_engine.formats import idset

CONF = """
[limits.all]
per = "instance"
max = {jobs = 6, nodes = 100}

[limits.user]
per = "user"
max = {nodes = 128}
"""


def test_the_command_checks_them(tmp_path):
    (tmp_path / "conf.toml").write_text(CONF)
    out = tmp_path / "out"
    call = "--jobs=150 --conf conf.toml -q -o out sample --scheduler sched-fifo"
    done = flux(call, cwd=tmp_path, code=1)
    # Jobs of more than 100 nodes wait for ever.
    assert "never started" in done.stderr
    assert "failed after 144 of 150 starts" in flux_here("check", out, code=1).stdout
    (provenance,) = out.rglob("provenance.json")
    text = provenance.read_text()
    assert '"jobs": 6' in text
    provenance.write_text(text.replace('"jobs": 6', '"jobs": 2'))
    assert "limit all: all: 3 of 2 jobs when job" in flux_here("check", out, code=1).stdout


QUEUES = """
[queues.a]
requires = ["a"]
[queues.b]
requires = ["b"]
[[resource.config]]
hosts = "n[0-1]"
cores = "0"
[[resource.config]]
hosts = "n0"
properties = ["a"]
[[resource.config]]
hosts = "n1"
properties = ["b"]
"""
SHARES = """
[fairshare]
period = "1s"
[[resource.config]]
hosts = "n0"
cores = "0"
"""


@pytest.mark.parametrize(
    "columns, values, conf, scheduler, starts",
    [
        ("urgency", (16, 10, 20), None, "sched-fifo", (0, 20, 10)),
        ("queue", ("a", "a", "b"), QUEUES, "sched-fifo order=queue", (0, 10, 2)),
        ("user", ("ann", "ann", "bob"), SHARES, "sched-fifo", (0, 20, 10)),
        ("user", ("ann", "ann", "bob"), None, "sched-fifo", None),
    ],
)
def test_jobs_may_start_in_another_order(tmp_path, columns, values, conf, scheduler, starts):
    rows = [f"{n},{n},10,10,1,{value}" for n, value in enumerate(values)]
    (tmp_path / "jobs.csv").write_text("\n".join([f"id,submit,run,limit,nodes,{columns}", *rows]))
    (tmp_path / "conf.toml").write_text(conf or "")
    options = ["--conf=conf.toml"] if conf else []
    flux("jobs.csv", *options, "-q", "-o", "out", "--scheduler", scheduler, cwd=tmp_path)
    (jobs,) = (tmp_path / "out").rglob("jobs.csv")
    if starts is None:  # one is moved ahead
        text = jobs.read_text()
        assert ",10,10,20,9,19,1.9," in text and ",20,10,30,18,28,2.8," in text
        text = text.replace(",10,10,20,9,19,1.9,", "#")
        text = text.replace(",20,10,30,18,28,2.8,", ",10,10,20,8,18,1.8,")
        jobs.write_text(text.replace("#", ",20,10,30,19,29,2.9,"))
        assert "ahead of job" in flux_here("check", tmp_path / "out", code=1).stdout
        return
    with jobs.open() as stream:
        found = [float(row["starting_time"]) for row in csv.DictReader(stream)]
    assert found == pytest.approx(starts, abs=2)
    assert "no rule broken" in flux_here("check", tmp_path / "out").stdout


@pytest.mark.parametrize(
    "conf, scheduler",
    [
        ('[sharing.all]\nmode = "node"', "sched-fifo"),
        (
            '[queues.a]\npolicy.scheduler.sharing = "node"\n'
            '[policy.jobspec.defaults.system]\nqueue = "a"',
            "sched-fifo",
        ),
        ("", "sched-fifo pool-cores-per-gpu=4"),
    ],
    ids=["nodes of their own", "by queue", "cores of GPUs"],
)
def test_jobs_may_get_more_than_they_request(tmp_path, conf, scheduler):
    lines = [f"{n},0,10,10,3,1" for n in range(6)]
    (tmp_path / "jobs.csv").write_text("\n".join(["id,submit,run,limit,cores,gpus", *lines]))
    (tmp_path / "conf.toml").write_text(conf)
    machine = ["--nodes=2", "--cores-per-node=8", "--gpus-per-node=2", "--unit=core"]
    options = [*machine, "--conf=conf.toml", "--scheduler", scheduler]
    flux("jobs.csv", *options, "-q", "-o", "out", cwd=tmp_path)
    assert "no rule broken" in flux_here("check", tmp_path / "out").stdout
    (states,) = (tmp_path / "out").rglob("machine_states.csv")
    assert any(line.endswith(",0,16") for line in states.read_text().splitlines())


def job(id, start, end, units, **more):
    units = lambda units=units: idset.decode(units.replace(" ", ","))
    plain = {"user": "7", "queue": None, "bank": "", "licenses": None, "limit": None}
    return SimpleNamespace(id=id, start=start, end=end, units=units, **{**plain, **more})


@pytest.mark.parametrize(
    "limit, found",
    [
        ({"per": "user", "max": {"nodes": 2}}, "limit one: 7: 3 of 2 nodes when job 2 started"),
        ({"per": "user", "max": {"nodes": 3}}, None),
        ({"per": "instance", "max": {"nodes": 3}}, "limit one: all: 4 of 3 nodes when job 3"),
        ({"per": "instance", "max": {"cores": 1}}, None),  # units are nodes
        ({"per": "instance", "max": {"jobs": 1}, "soft": True}, None),
        ({"per": "user", "max": {"nodes": 2}, "users": ["8"]}, None),
        ({"per": "user", "max": {"nodes": 2}, "exempt": {"users": ["7", "9"]}}, None),
        ({"per": "queue", "max": {"jobs": 2}, "queues": ["batch"]}, "limit one: batch: 3 of 2"),
        ({"per": "queue", "max": {"jobs": 2}, "queues": "batch"}, "limit one: batch: 3 of 2"),
        ({"per": "user", "max": {"nodes": 2}, "users": [7]}, "limit one: 7: 3 of 2 nodes"),
        ({"per": "user", "max": {"nodes": 2}, "users": "78"}, None),
        ({"per": "user+queue", "max": {"jobs": 1}}, "limit one: 7 in batch: 2 of 1 jobs"),
        ({"per": "bank", "max": {"jobs": 2}}, "limit one: red: 3 of 2 jobs when job 3"),
        ({"per": "bank", "max": {"jobs": 2}, "banks": ["blue"]}, None),
        ({"per": "bank+queue", "max": {"jobs": 2}}, "limit one: red in batch: 3 of 2 jobs"),
        ({"per": "user", "max": {"jobs": 1}, "exempt": {"banks": ["red"]}}, None),
    ],
)
def test_exceeded_limits_are_found(limit, found):
    jobs = [
        job("1", 0.0, 10.0, "0-1", queue="batch", bank="red"),
        job("2", 5.0, 20.0, "2", queue="expedite", bank="red"),
        job("3", 8.0, 9.0, "3", user="8", queue="batch", bank="red"),
        job("4", 20.0, 30.0, "0-2", user="9", bank="blue"),  # when job 2 ends
    ]
    text = exceeded(jobs, {"one": limit}, "node", {"expedite": "batch"}, 0)
    assert text is None if found is None else text is not None and text.startswith(found)


def test_nodes_are_counted_where_units_are_cores():
    jobs = [job("1", 0.0, 10.0, "0-1"), job("2", 5.0, 20.0, "4-5")]
    limit = {"per": "user", "max": {"nodes": 1}}
    assert exceeded(jobs, {"one": limit}, "core", {}, 8) is None
    assert "2 of 1 nodes when job 2" in exceeded(jobs, {"one": limit}, "core", {}, 4)


@pytest.mark.parametrize(
    "begin, most, found",
    [
        (24, 8.01, None),
        (24, 7.99, "8.00 of 7.99 node-hours taken when job 2 started at 3600 s"),
        (24, 5.99, "6.00 of 5.99 node-hours taken when job 1 started at 0 s"),
        (2, 5.01, None),  # earlier use is of the day before
        (2, 4.99, "5.00 of 4.99 node-hours taken when job 2 started at 3600 s"),
        (0.5, 7.01, None),
        (0.5, 6.99, "7.00 of 6.99 node-hours taken when job 2 started at 3600 s"),
    ],
)
def test_budgets(begin, most, found):
    """A day begins so many hours after the workload, or a day before."""
    hour = 3600.0
    jobs = [
        job("1", 0.0, 2 * hour, "0-1", limit=3 * hour),
        job("2", hour, 3 * hour, "2", limit=2 * hour),
        job("3", 2 * hour, 3 * hour, "3", user="8", limit=hour),
        job("4", 2 * hour, 3 * hour, "0-1", user="9", limit=hour, bank="blue"),
    ]
    budget = {"per": "bank", "period": "day", "zone": "UTC", "max": {"node-hours": most}}
    budget["exempt"] = {"banks": "blue"}
    text = overdrawn(jobs, {"one": budget}, "node", {}, 0, (24 - begin) * hour)
    assert text is found or text == f"budget one: all: {found}"


@pytest.mark.parametrize(
    "rule, found",
    [
        ({"mode": "user"}, "sharing: job 3 started at 8 s on node 0 beside job 1, where users"),
        ({"mode": "bank"}, "sharing: job 2 started at 5 s on node 0 beside job 1, where banks"),
        ({"mode": "node"}, "sharing: job 2 started at 5 s on node 0 beside job 1, where nodes"),
        ({"mode": "free"}, None),
        ({"mode": "user", "queues": ["batch"]}, "sharing: job 3 started at 8 s"),
        ({"mode": "user", "queues": ["debug"]}, None),
        ({"mode": "user", "properties": ["big"]}, None),  # which nodes have it is not written
    ],
)
def test_strangers(rule, found):
    jobs = [
        job("1", 0.0, 10.0, "0-1", queue="expedite", bank="red"),
        job("2", 5.0, 20.0, "2", queue="other", bank="blue"),
        job("3", 8.0, 9.0, "3", user="8", queue="other", bank="blue"),
        job("4", 20.0, 30.0, "0-2", user="9"),  # when job 2 ends
    ]
    text = strangers(jobs, {"one": rule}, "core", {"expedite": "batch"}, 4)
    assert text is None if found is None else text is not None and text.startswith(found)
    assert strangers(jobs, {"one": rule}, "node", {}, 4) is None


TABLES = {
    "limits": {
        "user": {"per": "user", "max": {"cores": 10, "jobs": 4}},
        "bank": {"per": "bank", "max": {"nodes": 4}},
    },
    "budgets": {
        "bank": {"per": "bank", "period": "day", "zone": "UTC", "max": {"core-hours": 0.3}}
    },
    "licenses": {"matlab": {"total": 4, "reserved": 1}},
    "sharing": {"all": {"mode": "user"}},
}


def site_jobs(seed, count=80):
    """Jobs of users and banks, some with licences and deadlines."""
    chance = random.Random(seed)
    jobs, now = [], 0.0
    for number in range(count):
        now += chance.choice((0, 0, 0, 1, 5, 10))
        shapes = [Shape(0, 1), Shape(0, 3), Shape(0, 2, 2), Shape(2, 1, 3), Shape(3, 1, 2)]
        shape = chance.choice(shapes)
        run, limit = chance.choice((1, 5, 10, 20, 40)), chance.choice((20, 60, 100))
        size = max(shape.nodes, 1) * shape.slots * shape.cores
        user, group = chance.choice("123"), chance.choice(("red", "blue"))
        one = Job(str(number), now, run, limit, shape, size, user=user, group=group)
        system = {}
        if chance.random() < 0.4:
            system["licenses"] = {"matlab": chance.randint(1, 3)}
        if chance.random() < 0.2:
            system["deadline"] = 1e9 + now + limit + chance.choice((0, 20, 200))
        if system:
            spec = jobspec(one)
            spec["attributes"]["system"].update(system)
            one.extra = {"jobspec": spec}
        jobs.append(one)
    return Workload(jobs, uniform(6, 4, 0), "core", 1e9, Notes(), "test")


@pytest.mark.parametrize(
    "text",
    ["sched-fifo queue-depth=unlimited", "sched-simple queue-depth=unlimited", "sched-backfill",
     "sched-backfill promise=4", "sched-backfill promise=all"],
)  # fmt: skip
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_all_tables_are_kept_by_each_policy(seed, text, tmp_path):
    (one,) = policy.parse([text])

    def rows_under(config):
        outcome, _ = simulate(site_jobs(seed), one, Settings(config=config))
        return rows_of(outcome, tmp_path)

    rows = rows_under(TABLES)
    assert sum(row.start is not None for row in rows) > 60
    assert broken(rows, {**tables_of(TABLES), "epoch": 1e9}, "core", 4) is None
    schedule = Schedule(SimpleNamespace(name=text, rows=lambda: rows, provenance={}))
    assert not list(schedule.jobs())
    for row in rows:
        if row.start is not None and row.deadline is not None:
            row.start = row.deadline - row.limit + 1
            said = [one for one in schedule.jobs() if one.startswith(f"job {row.id} ")]
            assert any("was to end by" in one for one in said)
    # Each table is broken where it was not in force.
    free = rows_under({})
    for name, table in TABLES.items():
        tables = {**tables_of({name: table}), "epoch": 1e9}
        assert broken(free, tables, "core", 4) is not None
