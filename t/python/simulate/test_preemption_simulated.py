# SPDX-License-Identifier: LGPL-3.0-or-later
"""Preemption in simulations: its cost is in the figures, and the check finds jobs ended in vain."""

import random

import pytest
import test_engines
from command_runner import rows, write_rows
from shared import seeds

from flux.simulate import policy
from flux.simulate.checking import Violation, check_result
from flux.simulate.job import Job, Shape
from flux.simulate.machine import uniform
from flux.simulate.results import reading
from flux.simulate.results.outcome import PREEMPTED
from flux.simulate.run import Settings, simulate, write

CONFIG = {
    "queues": {"batch": {}, "standby": {}},
    "preemption": {"standby": {"queues": ["standby"], "grace": 60, "wait": 30, "after": 300}},
}
POLICIES = [
    "sched-fifo", "sched-simple", "sched-backfill", "sched-backfill promise=4", "sched-backfill promise=unlimited",
    "sched-backfill promise=all within=1h", "sched-backfill rank=wfp3 promise=2",
]  # fmt: skip


def whole(id, submit, run, nodes, queue):
    return Job(id, submit, run, run, Shape(nodes, 1, 4, 0, True), nodes, queue=queue)


def a_few():
    """Standby on all four nodes; after an hour a job of batch wants two."""
    jobs = [whole(f"s{number}", 0.0, 36000, 1, "standby") for number in range(4)]
    jobs.append(whole("b", 3600.0, 600, 2, "batch"))
    return test_engines.workload(jobs, uniform(4, 4), "node")


def many(seed, count=150):
    chance = random.Random(seed)
    jobs, now = [], 0.0
    for number in range(count):
        now += chance.choice((0, 1, 60, 300, 300, 900))
        queue = chance.choice(("standby", "standby", "batch"))
        run = chance.choice((60, 600, 3600, 7200, 20000))
        nodes = chance.choice((1, 1, 2, 3, 6))
        jobs.append(whole(str(number), float(now), run, nodes, queue))
    return test_engines.workload(jobs, uniform(8, 4), "node")


def run(work, text, **settings):
    return test_engines.simulate_policy(work, text, config=CONFIG, **settings)


def written(work, text, directory):
    """The result of a run, as its files have it."""
    (one,) = policy.parse([text])
    made_of = {"options": {}, "jobs": len(work.jobs), "machine": {"units": work.units}}
    settings = Settings(config=CONFIG, eventlogs=True, provenance=made_of)
    outcome, summary = simulate(work, one, settings)
    write(outcome, summary, one, settings, str(directory))
    (result,) = reading.find([str(directory)])
    return outcome, summary, result


@pytest.mark.parametrize("engine", ["lean", "instance"])
@pytest.mark.parametrize("text", ["sched-fifo", "sched-simple", "sched-backfill"])
def test_the_jobs_that_are_ended_are_marked_and_their_hours_counted(text, engine):
    outcome, summary = run(a_few(), text, engine=engine)
    ended = [index for index in range(5) if outcome.how[index] == PREEMPTED]
    assert len(ended) == 2
    assert all(outcome.preempted_for[index] == "b" for index in ended)
    assert "preempted for" in outcome.notes[ended[0]]
    assert summary["failed"] is None
    assert summary["figures"]["preempted"] == 2
    assert summary["figures"]["hours_lost"] == pytest.approx(2 * 3690 / 3600, abs=0.1)
    assert outcome.start[4] == pytest.approx(3690, abs=10)
    assert outcome.start[4] >= max(outcome.end[index] for index in ended)


def figures_of_many(text, directory, numbers):
    """The figures of random workloads, in which the check finds nothing."""
    for seed in numbers:
        outcome, summary, result = written(many(seed), text, directory / str(seed))
        assert summary["failed"] is None
        assert check_result(result) == len(outcome.workload.jobs)
        yield summary["figures"]


@pytest.mark.parametrize("text", POLICIES)
def test_no_job_is_ended_for_one_that_does_not_start_there(text, tmp_path):
    figures = figures_of_many(text, tmp_path, seeds(1, 4))
    assert sum(one.get("preempted", 0) for one in figures) > 3


@pytest.mark.parametrize("text", ["sched-backfill", "sched-backfill promise=unlimited"])
def test_jobs_in_promised_time_are_ended_for_who_starts_there(text, tmp_path, monkeypatch):
    standby = {**CONFIG["preemption"]["standby"], "into-promises": True, "wait": "1d", "after": 60}
    monkeypatch.setitem(CONFIG, "preemption", {"standby": standby})
    figures = list(figures_of_many(text, tmp_path, seeds(2, 8)))
    assert not any(one.get("promises_broken") for one in figures)
    assert any(one.get("preempted") for one in figures)


def test_the_check_finds_a_job_that_was_ended_for_nothing(tmp_path):
    outcome, summary, result = written(a_few(), "sched-backfill", tmp_path)
    check_result(result)
    lines = rows(tmp_path)
    ended = next(line for line in lines if "preempted_for" in line["metadata"])
    other = next(line for line in lines if line["job_id"][0] == "s" and not line["metadata"])
    ended["metadata"] = ended["metadata"].replace('"b"', f'"{other["job_id"]}"')
    write_rows(tmp_path, lines)
    (result,) = reading.find([str(tmp_path)])
    with pytest.raises(Violation, match=f"was ended for job {other['job_id']}, which had started"):
        check_result(result)
