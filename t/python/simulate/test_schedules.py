# SPDX-License-Identifier: LGPL-3.0-or-later
"""Start times of our schedulers under the lean engine, against recorded ones."""

import pytest
from golden_schedules import MODULES, RANKED, Starts, differences, play
from shared import corner_cases, data_path, load_json, recorded_cases, require_long


@pytest.mark.parametrize("case, policy", recorded_cases(corner_cases(MODULES), values=2))
def test_corner_case(case, policy):
    module, args = MODULES[policy]
    got = play(case["jobs"], case["procs"], module, args)
    assert differences(got, case["start"][policy]) == []


def users_of_sdsc():
    """Whose the jobs of input-sdsc-sp2.json are: field 12 of the log, of which it has the jobs in order."""
    path = data_path("traces/SDSC-SP2-pyss-5k.swf")
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
