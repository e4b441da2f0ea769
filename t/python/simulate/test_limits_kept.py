# SPDX-License-Identifier: LGPL-3.0-or-later
"""Limits of the configuration in simulated schedules, and the rule of ``flux simulate check``."""

import shutil
from types import SimpleNamespace

import pytest
from command_runner import flux

from flux_embedded.simulate.limit_check import exceeded

CONF = """
[limits.all]
per = "instance"
max = {jobs = 6, nodes = 100}

[limits.user]
per = "user"
max = {nodes = 128}
"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A schedule with limits, of each policy."""
    directory = tmp_path_factory.mktemp("simulated")
    (directory / "conf.toml").write_text(CONF)
    done = flux(
        "--jobs=150", "--conf", directory / "conf.toml", "-q", "-o", directory / "out", "sample",
        "--scheduler", "sched-fifo", "--scheduler", "sched-simple",
        "--scheduler", "sched-backfill promise=1,all", code=1,
    )  # fmt: skip
    # Jobs of more than 100 nodes wait for ever.
    assert "never started" in done.stderr
    return directory / "out"


def test_no_policy_exceeds_them(simulated):
    done = flux("check", simulated)
    assert done.stdout.count("no rule broken") == 4


def test_a_schedule_that_exceeds_one_is_found(simulated, tmp_path):
    (source,) = [one for one in simulated.iterdir() if one.name.startswith("sched-fifo")]
    broken = tmp_path / "broken"
    shutil.copytree(source, broken)
    provenance = broken / "provenance.json"
    text = provenance.read_text()
    assert '"jobs": 6' in text
    provenance.write_text(text.replace('"jobs": 6', '"jobs": 2'))
    assert "limit all: all: 3 of 2 jobs when job" in flux("check", broken, code=1).stdout


def job(id, start, end, units, user="7", queue=None):
    return SimpleNamespace(
        id=id, start=start, end=end, allocated=units, user=user, queue=queue
    )  # fmt: skip


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
        ({"per": "user+queue", "max": {"jobs": 1}}, "limit one: 7 in batch: 2 of 1 jobs"),
        ({"per": "bank", "max": {"jobs": 1}}, None),  # a bank is not written
    ],
)
def test_what_is_checked(limit, found):
    jobs = [
        job("1", 0.0, 10.0, "0-1", queue="batch"),
        job("2", 5.0, 20.0, "2", queue="expedite"),
        job("3", 8.0, 9.0, "3", user="8", queue="batch"),
        job("4", 20.0, 30.0, "0-2", user="9"),  # when job 2 ends
    ]
    text = exceeded(jobs, {"one": limit}, "node", {"expedite": "batch"})
    assert text is None if found is None else text is not None and text.startswith(found)
