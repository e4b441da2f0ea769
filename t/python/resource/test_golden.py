# SPDX-License-Identifier: LGPL-3.0-or-later
"""The recorded requests of golden/rv1pool-cases.json."""

import golden_run
import pytest
import shared

#: Cases that show a habit of the reference, with the right answer: the
#: results that differ, by the number of the operation.
SENSIBLE = {
    "stepped and listed counts are infeasible": {
        0: ("rank[0-3]/core0", 4),
        1: ("rank0/core[1-3]", 3),
        2: ("rank[1-3]/core1", 3),
        3: ("rank[1-2]/core[2-3]", 4),
        4: None,
    },
    "slot over node": {0: ("rank[0-1]/core[0-1]", 2)},
    "unknown types are passed through": {0: ("rank0/core[0-3]", 2)},
    "exclusive ignores how much fits": {0: "InfeasibleRequest", 2: "InfeasibleRequest"},
    "empty operands": {0: "InfeasibleRequest"},
    "a partial free of some cores forgets the whole rank": {4: ("", None)},
    "a free that names no job": {2: ("rank0/core[0-3]", None)},
}

RESOURCES, CASES = golden_run.load("rv1pool-cases")


@pytest.mark.parametrize(
    "case", shared.recorded_cases(CASES), ids=lambda case: case["name"].replace(" ", "-")
)
def test_golden(case):
    golden_run.check(case, RESOURCES, SENSIBLE)


def test_data():
    """Without recorded data the cases are skipped, not passed over."""
    shared.require_data()
    assert len(CASES) > 50
