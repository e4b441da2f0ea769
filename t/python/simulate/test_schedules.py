# SPDX-License-Identifier: LGPL-3.0-or-later
"""Start times of our schedulers under the lean engine, against recorded ones."""

import random

import pytest
import textbook
from golden_schedules import MODULES, RANKED, UNITS, Starts, differences, play
from shared import corner_cases, data_dir, load_json, recorded_cases, require_long, seeds


@pytest.mark.parametrize("case, policy", recorded_cases(corner_cases(MODULES), values=2))
def test_corner_case(case, policy):
    module, args = MODULES[policy]
    got = play(case["jobs"], case["procs"], module, args)
    assert differences(got, case["start"][policy]) == []


def invented(chance, procs):
    """Some jobs, many of which come or end at the same instants, early, at their limits, or at once."""
    rows = []
    time = 0
    for id in range(1, chance.choice([30, 80, 150]) + 1):
        time += chance.choice([0, 0, 1, 3, 10, chance.randint(0, 60)])
        limit = chance.choice([1, 5, 10, 30, 60, chance.randint(1, 300)])
        run = chance.choice([0, limit, limit, chance.randint(0, limit)])
        few = chance.choice([1, 1, 2, procs + 1 if chance.random() < 0.1 else 1])
        size = chance.choice([few, procs // 4, procs // 2, procs, chance.randint(1, procs)])
        rows.append((id, time, run, limit, size))
    return rows


@pytest.mark.parametrize("policy", sorted(textbook.POLICIES))
@pytest.mark.parametrize("units", sorted(UNITS))
def test_invented_jobs_start_when_the_definition_says(units, policy):
    for seed in seeds(1, 2):
        chance = random.Random(f"{units} {policy} {seed}")
        procs = chance.choice([8, 16, 24, 64])
        rows = invented(chance, procs)
        want = {str(id): start for id, start in textbook.schedule(rows, procs, policy).items()}
        got = play(rows, procs, *MODULES[policy], units=units)
        assert differences(got, want) == [], seed


# Not conservative-kept: it compresses its promises at each end, and the engine brings those at their limits first.
@pytest.mark.parametrize("policy", sorted(set(textbook.POLICIES) - {"conservative-kept"}))
@pytest.mark.parametrize("grain", ["event-end", "event-submit"])
def test_one_pass_for_each_event(grain, policy):
    for seed in seeds(1, 12):
        chance = random.Random(f"{grain} {policy} {seed}")
        procs = chance.choice([8, 16, 24])
        rows = invented(chance, procs)
        want = textbook.schedule(rows, procs, policy, grain)
        got = play(rows, procs, *MODULES[policy], grain=grain)
        assert differences(got, {str(id): start for id, start in want.items()}) == [], seed


@pytest.mark.parametrize("policy", sorted(textbook.POLICIES))
@pytest.mark.parametrize("grain", ["batch", "event-end", "event-submit"])
def test_the_definition_agrees_with_the_recordings(policy, grain):
    name = f"golden/schedules/sdsc-sp2-{policy}-{grain}-1000.json"
    if data_dir() is not None and not (data_dir() / name).exists():
        pytest.skip("there is no such recording")
    recorded = load_json(name)
    rows = load_json("golden/schedules/input-sdsc-sp2.json")["jobs"][:1000]
    got = textbook.schedule(rows, recorded["procs"], policy, grain)
    assert differences(got, recorded["start"]) == []


def users_of_sdsc():
    """Whose the jobs of input-sdsc-sp2.json are: field 12 of the log, of which it has the jobs in order."""
    path = data_dir() / "traces" / "SDSC-SP2-pyss-5k.swf"
    users = {}
    for line in path.read_text().splitlines():
        fields = line.split()
        if fields and fields[0] != ";" and float(fields[3]) >= 0:
            if int(fields[7]) > 0 or int(fields[4]) > 0:
                users[len(users) + 1] = fields[11]
    return users


#: What runs always; the others with FLUX_TEST_LONG.
FEW = ("easy-sjbf", "bounded-expansion-24h-class")


@pytest.mark.parametrize("policy", recorded_cases(sorted(RANKED)))
def test_ranked_and_bounded(policy):
    if policy not in FEW:
        require_long()
    recorded = load_json(f"golden/schedules/ranked/sdsc-sp2-{policy}.json")
    trace = load_json("golden/schedules/input-sdsc-sp2.json")
    assert list(users_of_sdsc()) == [row[0] for row in trace["jobs"]]
    starts = Starts()
    play(
        trace["jobs"],
        trace["procs"],
        "sched-backfill",
        RANKED[policy],
        observer=starts,
        users=users_of_sdsc(),
    )
    assert differences(starts.start, recorded["start"]) == []
    assert differences(starts.latest, recorded.get("latest", {})) == []
    assert len(starts.latest) == len(recorded.get("latest", {}))
