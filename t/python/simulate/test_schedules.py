# SPDX-License-Identifier: LGPL-3.0-or-later
"""Start times of our schedulers under the lean engine, against recorded ones; and the command on a trace as it was published."""

import pytest
from command_runner import flux, rows
from golden_schedules import MODULES, RANKED, Starts, differences, play
from shared import corner_cases, data_dir, data_path, load_json, recorded_cases, require_long

from flux.simulate.trace import Trace


@pytest.mark.parametrize("case, policy", recorded_cases(corner_cases(MODULES), values=2))
def test_corner_case(case, policy):
    module, args = MODULES[policy]
    got = play(case["jobs"], case["procs"], module, args)
    assert differences(got, case["start"][policy]) == []


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
    work = Trace(str(data_path(name)), jobs=count, **options).workload()
    return [(i, job.submit, job.run, job.limit, job.size) for i, job in enumerate(work.jobs, 1)]


@pytest.mark.parametrize("name", recorded_cases(recordings()))
def test_starts(name):
    if not name.endswith("-1000"):
        require_long()
    recorded = load_json(f"golden/schedules/{name}.json")
    jobs = jobs_of(recorded["trace"], len(recorded["start"]))
    module, args = MODULES[recorded["policy"]]
    got = play(jobs, recorded["procs"], module, args, recorded["grain"])
    assert differences(got, recorded["start"]) == []


def test_the_command_on_the_published_trace(tmp_path):
    trace = data_path("traces/SDSC-SP2-pyss-5k.swf")
    schedulers = {"fcfs": "sched-fifo", "easy": "sched-backfill"}
    names = [f"--scheduler={name}" for name in schedulers.values()]
    flux(trace, "--estimates=run", "-q", "-o", tmp_path, *names)
    for policy, scheduler in schedulers.items():
        want = load_json(f"golden/schedules/sdsc-sp2-{policy}-batch.json")["start"]
        table = enumerate(rows(tmp_path / scheduler), 1)
        got = {number: float(row["starting_time"]) for number, row in table}
        assert differences(got, want) == []


def users_of_sdsc():
    """Return the users of the jobs of input-sdsc-sp2.json: field 12 of the log, whose order it has."""
    path = data_path("traces/SDSC-SP2-pyss-5k.swf")
    users = {}
    for line in path.read_text().splitlines():
        fields = line.split()
        if fields and fields[0] != ";" and float(fields[3]) >= 0:
            if int(fields[7]) > 0 or int(fields[4]) > 0:
                users[len(users) + 1] = fields[11]
    return users


#: Always run; the others with FLUX_TEST_LONG.
FEW = ("easy-sjbf", "bounded-expansion-24h-class")


@pytest.mark.parametrize("policy", recorded_cases(sorted(RANKED)))
def test_ranked_and_bounded(policy):
    if policy not in FEW:
        require_long()
    recorded = load_json(f"golden/schedules/ranked/sdsc-sp2-{policy}.json")
    trace = load_json("golden/schedules/input-sdsc-sp2.json")
    jobs, starts, users = trace["jobs"], Starts(), users_of_sdsc()
    assert list(users) == [row[0] for row in jobs]
    more = {"observer": starts, "users": users}
    play(jobs, trace["procs"], "sched-backfill", RANKED[policy], **more)
    assert differences(starts.start, recorded["start"]) == []
    assert differences(starts.latest, recorded.get("latest", {})) == []
    assert len(starts.latest) == len(recorded.get("latest", {}))
