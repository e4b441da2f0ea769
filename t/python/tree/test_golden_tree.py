# SPDX-License-Identifier: LGPL-3.0-or-later
"""The recorded pool cases, and this pool's answers where the recorded behaviour was not designed.

Cases with a `quirk` record behaviour that was not designed. Here is, for each, this pool's answer, and why.
"""

import golden_run
import pytest
import shared

#: case -> {position of the op: sensible answer (dumps or exception)}
SENSIBLE = {
    # CPU slots that no leaf holds go to the next coarser level, so the third one fits.
    "slots that would have to cross leaves": {
        0: "rank0/core[0-5]", 1: "InsufficientResources", 3: "InsufficientResources",
    },
    # GPUs beside a level are reached at that level: gpu1 from its socket, gpu2 from the node. The
    # second socket of each node is then free for the two containers.
    "gpus above the leaves": {
        1: "rank0/core1,gpu1", 2: "rank0/core2,gpu2", 5: "rank1/core[0-13],gpu[0-1]",
        6: "InsufficientResources", 7: "rank0/core[0-2,6-13],gpu[0-2] rank1/core[0-13],gpu[0-1]",
    },
    "gpus without locality": {0: "rank0/core0,gpu0", 3: "rank0/core[8-15]"},
    # Recorded and ours agree: containers that share cores are handed out once.
    "leaves that overlap": {},
    # The count of a container multiplies, as that of any vertex does.
    "more than one container in a slot": {0: "rank0/core[0-43],gpu[0-3]"},
    # Only a leaf vertex is a container: as recorded.
    "a container with something inside": {},
    # A node too small for its slots is no candidate: that can never run.
    "exclusive jobs take the node's gpus too": {2: "InfeasibleRequest"},
    "exclusive slots fit or the node is not taken": {0: "InfeasibleRequest"},
    # The pool's own key loses the rank too.
    "R of a pool that lost a rank": {1: "rank[0-1,3]/core[0-43],gpu[0-3]"},
    # Listed counts are honoured: the largest that fits.
    "jobspec errors": {1: "rank0/core[0-2]"},
    # Two slots of two nodes each are two slots.
    "slot over two plain nodes": {1: "rank[0-3]/core[2-3]"},
}  # fmt: skip


RESOURCES, CASES = golden_run.load("treepool-cases")


@pytest.mark.parametrize("case", shared.recorded_cases(CASES), ids=lambda case: case["name"])
def test_recorded_case(case):
    golden_run.check(case, RESOURCES, SENSIBLE)


def test_the_data_is_there():
    shared.require_data()
    assert len(CASES) == 249
    assert set(SENSIBLE) == {case["name"] for case in CASES if case.get("quirk")}
