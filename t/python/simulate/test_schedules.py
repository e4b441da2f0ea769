"""Start times of our schedulers under the lean engine, against recorded ones."""

import pytest
from golden_schedules import MODULES, differences, play
from shared import data_dir, load_json

#: What agrees on every start.
TRACES = [
    ("sdsc-sp2", "fcfs", "batch", ""),
    ("sdsc-sp2", "fcfs", "event-end", ""),
    ("sdsc-sp2", "fcfs", "event-submit", ""),
    ("metacentrum", "fcfs", "batch", ""),
    ("metacentrum", "fcfs", "event-end", ""),
    ("metacentrum", "fcfs", "event-submit", ""),
    ("lassen-250", "fcfs", "batch", ""),
    ("lassen-250", "fcfs", "event-end", ""),
    ("lassen-250", "fcfs", "event-submit", ""),
]


@pytest.mark.parametrize("trace, policy, grain, first", TRACES)
def test_trace(trace, policy, grain, first):
    recorded = load_json(f"golden/schedules/{trace}-{policy}-{grain}{first}.json")
    jobs = load_json(f"golden/schedules/input-{trace}.json")
    rows = jobs["jobs"][: len(recorded["start"])]
    module, args = MODULES[policy]
    got = play(rows, recorded["procs"], module, args, grain)
    assert differences(got, recorded["start"]) == []


def corner_cases():
    if data_dir() is None:
        return []
    return [
        pytest.param(case, policy, id=f"{case['name']}-{policy}")
        for case in load_json("golden/schedules/corner-cases.json")
        for policy in case["start"]
        if policy in ("fcfs",)
    ]


@pytest.mark.parametrize("case, policy", corner_cases())
def test_corner_case(case, policy):
    module, args = MODULES[policy]
    got = play(case["jobs"], case["procs"], module, args)
    assert differences(got, case["start"][policy]) == []
