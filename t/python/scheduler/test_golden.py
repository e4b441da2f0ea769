# SPDX-License-Identifier: LGPL-3.0-or-later
"""The log of schedulers at debug level, compared with a recorded real instance."""

from peers import R, Rig, jobspec
from shared import optional_jsonl


def test_log_lines(shared_data):
    """The lines that each module logs at debug level for two jobs that start and end."""
    wanted = {}
    for line in optional_jsonl("golden/sched-log.jsonl"):
        wanted.setdefault(line["module"], []).append(line["line"])
    assert len(wanted) == 3
    for module, lines in wanted.items():
        rig = Rig(R(2, 2), module, "log-level=debug")
        rig.arrive(1, jobspec(2, nodes=1, duration=3600))
        if module == "sched-backfill":
            rig.arrive(3, jobspec(4, duration=10), priority=20)
        rig.arrive(2, jobspec(1, duration=60))
        for jobid in (2, 1) if "rank1/core0 (final)" in lines[-2] else (1, 2):
            rig.free(jobid, wait=0)
            if module == "sched-backfill" and jobid == 2:
                rig.cancel(3, wait=0)
        assert [normal(text) for text in rig.logged()] == [
            normal(text.partition(": ")[2]) for text in lines
        ]


def normal(text):
    words = ["ID" if word[0] == "ƒ" else word for word in text.split(" ")]
    return " ".join("(shadow)" if word.startswith("(shadow=") else word for word in words)
