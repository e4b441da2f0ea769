# SPDX-License-Identifier: LGPL-3.0-or-later
"""Scenarios of commands recorded on a real instance come out alike in embedded ones, or it is said why not.

The replays take minutes: they run with FLUX_TEST_LONG=1, as before a release.
"""

from pathlib import Path

import golden_commands
import pytest
import shared

#: recordings of our own, made by record_commands.py
RECORDED = Path(__file__).with_name("recorded")


@pytest.fixture(scope="module")
def groups():
    shared.require_long()
    found = golden_commands.replay(data=RECORDED)
    if shared.data_dir():
        found.update(golden_commands.replay())
    return found


def scenarios():
    groups = {**golden_commands.load(), **golden_commands.load(RECORDED)}.values()
    found = [(group.name, name) for group in groups for name in group.scenarios()]
    return shared.recorded_cases(found, values=2)


@pytest.mark.parametrize("group, scenario", scenarios())
def test_scenario(groups, group, scenario):
    lines = groups[group].scenarios()[scenario]
    bad = [line for line in lines if line.outcome not in ("equal", "set aside")]
    assert not bad, "\n".join(golden_commands.show(line) for line in bad)


def test_ids_are_compared_by_where_they_come_from():
    ids = {}
    assert golden_commands.same_jobs(["fA", "fB", "fA"], ["f1", "f2", "f1"], ids)
    assert golden_commands.same_jobs(["fB"], ["f2"], ids)
    assert not golden_commands.same_jobs(["fB"], ["f1"], ids)
    assert not golden_commands.same_jobs(["fB"], [], ids)


def test_parts_of_an_output_are_left_out():
    parts = [(r"^a\.stats", "why")]
    assert golden_commands.without("a.stats 1\na.b 2\nx a.stats\n", parts) == "a.b 2\nx a.stats\n"


@pytest.mark.parametrize(
    "text, normal",
    [
        ("     ƒ2c6RuLs root\n", " ID root\n"),
        ("1795291470.306927 start\n", " TIME start\n"),
        ("exceeds policy limit of 2h\n", "exceeds policy limit of 2h\n"),
        ("0.038s: job.exception\n", " TIME : job.exception\n"),
        ("guest.job-2188168396800::.\n", "guest.job- ID ::.\n"),
    ],
)
def test_what_differs_from_run_to_run_is_taken_out(text, normal):
    assert golden_commands.normalize(text)[0] == normal
