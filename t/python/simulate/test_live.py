"""The running instance as a workload: answers of `probe.py`, without a running instance."""

import functools
import json

import pytest
from command_runner import flux_here

from flux.scheduler.testing import jobspec, make_R
from flux.simulate import policy
from flux.simulate.live import LiveError, workload_of
from flux.simulate.run import Settings, simulate, write
from flux_engine.formats import rset

NODES, CORES = 4, 8
NOW = 1.7e9


#: a jobspec of ten minutes
spec = functools.partial(jobspec, duration=600)


def entry(id, state, **more):
    return {"id": id, "userid": 7, "state": state, "priority": 16, "duration": 600, **more}


def answer(running=(), pending=()):
    """An answer of the probe; running: (ranks, cores, seconds left), pending: jobspecs."""
    jobs, files = [], {}
    for id, (ranks, cores, left) in enumerate(running, 1):
        jobs.append(entry(id, 16, t_run=NOW - 60, expiration=NOW + left))
        R = make_R(ranks, cores, hosts=f"node[{ranks}]", expiration=NOW + left)
        files[str(id)] = {"jobspec": json.dumps(spec()), "R": json.dumps(R)}
    for id, asked in enumerate(pending, 100):
        # As job-list has a pending job that asks for whole nodes: one core each, for its slot.
        jobs.append(entry(id, 8, nnodes=1, ncores=1))
        files[str(id)] = {"jobspec": json.dumps(asked)}
    R = rset.uniform([f"node{i}" for i in range(NODES)], CORES)
    return {"now": NOW, "jobs": jobs, "files": files, "resources": {"R": R}, "config": {}}


@pytest.fixture
def result(tmp_path):
    running = [("0-1", "0-7", 300), ("2", "0-3", 120)]
    pending = [spec(nodes=2, exclusive=True), spec(slots=4), spec(slots=3, cores=2)]
    work = workload_of(answer(running, pending))
    settings = Settings(live=True, provenance={
        "options": {"live": True}, "jobs": len(work.jobs),
        "machine": {"units": work.units, "last_unit": work.units - 1},
    })  # fmt: skip
    (one,) = policy.parse(["sched-fifo"])
    outcome, summary = simulate(work, one, settings)
    write(outcome, summary, one, settings, str(tmp_path / "out"))
    return tmp_path / "out"


def test_check_finds_a_mixture_of_nodes_and_cores(result):
    assert "no rule broken" in flux_here("check", result).stdout
    text = (result / "jobs.csv").read_text()
    (result / "jobs.csv").write_text(text.replace(",16,600,", ",2,600,", 1))
    assert "of size 2 has 16 units" in flux_here("check", result, code=1).stdout


def test_tables_of_the_instance_apply():
    asked = answer([("0", "0-3", 300)], [spec(), spec()])
    limits = {"a": {"per": "user", "users": ["7"], "max": {"jobs": 1}}}
    queue = {"jobspec": {"defaults": {"system": {"queue": "a"}}}}
    asked["config"] = {"sched-limits": limits, "rules": {"mine": "/mine.py:Mine"}, "policy": queue}
    work = workload_of(asked)
    assert work.config == {"sched-limits": limits, "policy": queue}
    (one,) = policy.parse(["sched-backfill"])
    outcome, _ = simulate(work, one, Settings(live=True, config=work.config))
    assert list(outcome.start) == [300, 900]


def test_nothing_waits():
    with pytest.raises(LiveError, match="no job waits"):
        workload_of(answer([("0", "0-7", 60)]))
