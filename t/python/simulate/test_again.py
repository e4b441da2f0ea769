"""The provenance of a result, and whether it can be reproduced."""

import json
import re

import pytest
from command_runner import first_scheduler, flux, rows

from flux.simulate import Trace, simulate
from flux.simulate.again import again

DRAWS = "self._queue.sort(key=lambda job: self.random.random()) if self.passes % 2 else None\nself.passes += 1"


def _starts(tmp_path, name, seed):
    flux(f"sample --jobs=300 --seed={seed} --scheduler ./draws.py -q -o {name}", cwd=tmp_path)
    return [row["starting_time"] for row in rows(tmp_path / name / "draws")]


def test_the_seed_reaches_a_policy_that_draws(tmp_path):
    for source in ("self.random", "__import__('random')"):
        text = first_scheduler(DRAWS.replace("self.random", source), "    passes = 0")
        (tmp_path / "draws.py").write_text(text)
        name = source[:6]
        first = _starts(tmp_path, f"{name}1", 1)
        assert first == _starts(tmp_path, f"{name}1again", 1)
        assert first != _starts(tmp_path, f"{name}2", 2)


def test_the_provenance_of_a_result(tmp_path):
    (tmp_path / "rank.py").write_text("def rank(job):\n    return job.duration\n")
    trace = Trace(model="lublin", jobs=40, seed=7)
    scheduler = f"sched-backfill rank={tmp_path}/rank.py:rank"
    simulate(trace, scheduler, output=str(tmp_path / "out"))
    (path,) = (tmp_path / "out").glob("*/provenance.json")
    record = json.loads(path.read_text())
    assert record["random_seed"] == 7
    assert re.fullmatch("[0-9a-f]{64}", record["sources"])
    assert record["commit"] is None or re.fullmatch(r"[0-9a-f]{40}\+?", record["commit"])
    assert {"flux-scheduler", "python", "greenlet"} <= set(record["versions"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record["date"])
    assert record["host"]["system"].startswith("Linux")
    assert list(record["scheduler"]["files"]) == [f"{tmp_path}/rank.py"]


def test_a_running_instance_is_not_there_again(tmp_path):
    flux("sample --jobs=5 --scheduler=sched-fifo -q -o", tmp_path / "out")
    path = tmp_path / "out" / "sched-fifo" / "provenance.json"
    record = json.loads(path.read_text())
    record["options"]["live"] = True
    path.write_text(json.dumps(record))
    assert "of a running instance (--live)" in flux("--again", tmp_path / "out", code=1).stderr


def as_then(*names):
    """What --again says of results of 50 jobs that are reproduced."""
    return [f"{name}: all 50 jobs start when they did" for name in names]


def test_again_names_the_workloads(tmp_path):
    call = "sample --jobs=50 --scale-arrivals=1,0.8 --seeds=1 --scheduler=sched-fifo -q -o out"
    flux(call, cwd=tmp_path)
    names = [f"sched-fifo (scale-arrivals={factor}, seed 1)" for factor in ("0.8", "1.0")]
    assert flux("--again", tmp_path / "out").stdout.splitlines() == as_then(*names)
    part = tmp_path / "out" / "scale-arrivals-1.0" / "seed-1"
    assert flux("--again", part).stdout.splitlines() == as_then(names[1])


def test_again(tmp_path):
    (tmp_path / "mine.py").write_text(first_scheduler())
    call = "sample --jobs=50 --scheduler=./mine.py '--scheduler=sched-backfill promise=1,4' -o out"
    flux(call, cwd=tmp_path)
    said = flux("--again", tmp_path / "out").stdout
    names = ("mine", "sched-backfill promise=1", "sched-backfill promise=4")
    assert said.splitlines() == as_then(*names)
    summary = tmp_path / "out" / "mine" / "summary.json"
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "interrupted": True}))
    said = flux("--again", tmp_path / "out", code=1).stdout
    assert said.splitlines()[0] == "mine: it was interrupted, and cannot be compared"
    flux(f"{call} --force", cwd=tmp_path)
    (tmp_path / "mine.py").write_text(
        first_scheduler("self._queue.sort(key=lambda job: -job.jobid)")
    )
    said = flux("--again", tmp_path / "out", code=1).stdout
    assert f"changed since: {tmp_path / 'mine.py'} was changed" in said
    assert re.search(r"mine: \d+ of 50 jobs start at other times, the first: \d+", said)
    assert "no other option" in flux("--again", tmp_path / "out", "--jobs=3", code=2).stderr


def test_an_interrupt_is_no_difference(tmp_path):
    flux("sample --jobs=50 --scheduler=sched-fifo -q -o out", cwd=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        again(tmp_path / "out", lambda words: 130)


def test_runs_that_did_not_end_by_themselves(tmp_path):
    """A script that stops a run does so again; a failed run fails again, and is no valid schedule."""
    for name, line, code in (("stop", "2h stop", 0), ("fail", "2h cancel 50", 1)):
        (tmp_path / "script").write_text(line)
        call = f"sample --jobs=50 --scheduler=sched-fifo --script=script -q -o {name}"
        flux(call, cwd=tmp_path, code=code)
        out = tmp_path / name
        started = sum(row["starting_time"] != "" for row in rows(out / "sched-fifo"))
        assert 0 < started < 50
        why = "script:1: cancel: job 50 is not active"
        end = f", and it fails as then: {why}" if code else ""
        said = flux("--again", out).stdout
        assert said == f"sched-fifo: all {started} jobs start when they did{end}\n"
        said = flux("check", out, code=code).stdout
        if code:
            assert said == f"broken: {out}/sched-fifo: failed after {started} of 50 starts: {why}\n"
        else:
            assert said.endswith(f": 50 jobs, {started} of them started: no rule broken\n")
    (tmp_path / "script").write_text("2h stop")
    said = flux("--again", out, code=1).stdout
    assert said.endswith(f"sched-fifo: it failed ({why}) then, and did not fail now\n")


def test_again_repeats_each_call_and_names_each_changed_policy(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(first_scheduler("pass"))
    flux("sample --jobs=50 --scheduler=./one.py --scheduler=./two.py -q -o out", cwd=tmp_path)
    flux("sample --jobs=50 --scheduler=sched-fifo -q -o out --resume", cwd=tmp_path)
    with open(tmp_path / "two.py", "a") as stream:
        stream.write("# changed\n")
    said = flux("--again", tmp_path / "out").stdout.splitlines()
    assert said[0] == f"changed since: {tmp_path}/two.py was changed"
    assert said[1:] == as_then("one", "two", "sched-fifo")
