# SPDX-License-Identifier: LGPL-3.0-or-later
"""Every recorded schedule: all traces, policies and grains; and the command on a trace as it was published."""

import csv
import subprocess
from pathlib import Path

import pytest
from golden_schedules import MODULES, differences, play
from shared import data_dir, data_path, load_json, recorded_cases, require_long

from flux.simulate.workload.build import Options, build

FLUX = Path(__file__).resolve().parents[3] / "src" / "cmd" / "flux"

#: Traces whose jobs are only in the trace itself, and how they were read.
TRACES = {"nasa-ipsc": ("traces/NASA-iPSC-1993-3.1-cln.swf.gz", {"limits": "run"})}


def recordings():
    base = data_dir()
    if base is None:
        return []
    names = sorted(path.stem for path in (base / "golden" / "schedules").glob("*.json"))
    return [name for name in names if not name.startswith(("input-", "corner-"))]


def jobs_of(trace, count):
    if trace not in TRACES:
        return load_json(f"golden/schedules/input-{trace}.json")["jobs"][:count]
    name, options = TRACES[trace]
    work = build(Options(traces=[str(data_path(name))], jobs=count, **options))
    return [(i, job.submit, job.run, job.limit, job.size) for i, job in enumerate(work.jobs, 1)]


@pytest.mark.parametrize("name", recorded_cases(recordings()))
def test_starts(name):
    if not name.endswith("-1000"):
        require_long()
    recorded = load_json(f"golden/schedules/{name}.json")
    rows = jobs_of(recorded["trace"], len(recorded["start"]))
    module, args = MODULES[recorded["policy"]]
    got = play(rows, recorded["procs"], module, args, recorded["grain"])
    assert differences(got, recorded["start"]) == []


def test_the_command_on_the_published_trace(tmp_path):
    trace = data_path("traces/SDSC-SP2-pyss-5k.swf")
    schedulers = {"fcfs": "sched-fifo", "easy": "sched-backfill"}
    command = [FLUX, "simulate", trace, "--estimates=run", "-q", "-o", tmp_path / "out"]
    command += [f"--scheduler={name}" for name in schedulers.values()]
    subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=120)
    for policy, scheduler in schedulers.items():
        want = load_json(f"golden/schedules/sdsc-sp2-{policy}-batch.json")["start"]
        with open(tmp_path / "out" / scheduler / "jobs.csv", newline="") as stream:
            rows = list(csv.DictReader(stream))
        got = {number: float(row["starting_time"]) for number, row in enumerate(rows, 1)}
        assert differences(got, want) == []
