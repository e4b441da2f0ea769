# SPDX-License-Identifier: LGPL-3.0-or-later
"""What a recorded scheduler with TreePool was asked and answered, asked of this pool."""

import pytest
import shared
from golden_run import meaning

from flux.resource.TreePool import TreePool

LINES = shared.optional_jsonl("golden/treepool.jsonl")


def dialogues():
    """The lines of each module, from one resource.acquire to the next."""
    found = []
    for line in LINES:
        if line.get("topic") == "resource.acquire" and line["dir"] == "recv" and not line["errnum"]:
            found.append([])
        if found and "topic" in line:
            found[-1].append(line)
    return found


@pytest.mark.parametrize(
    "lines",
    shared.recorded_cases(dialogues()),
    ids=lambda lines: str(lines[1]["scenario"])[:40],
)
def test_recorded_allocations(lines):
    pool = TreePool(lines[0]["payload"]["resources"])
    pending = {}
    granted = 0
    for line in lines[1:]:
        topic, payload = line["topic"], line["payload"]
        if topic == "sched.alloc" and line["dir"] == "recv":
            pending[payload["id"]] = pool.parse_resource_request(payload["jobspec"])
        elif topic == "sched.alloc" and payload["type"] == 0:
            job = pool.alloc(payload["id"], pending.pop(payload["id"]))
            expected = meaning(payload["R"])
            job.set_starttime(expected["starttime"])
            job.set_expiration(expected["expiration"])
            assert meaning(job.to_dict()) == expected, line["scenario"]
            granted += 1
        elif topic == "sched.alloc" and payload["type"] == 2:
            with pytest.raises(TreePool.InfeasibleRequest):
                pool.alloc(payload["id"], pending.pop(payload["id"]))
        elif topic == "sched.free":
            pool.free(payload["id"], payload["R"], payload["final"])
        elif topic == "sched.resource-status" and line["dir"] == "send":
            assert meaning(pool.to_dict()) == meaning(payload["all"])
    pool._check()
    assert granted or not pending


def test_there_were_some():
    shared.require_data()
    assert len(dialogues()) == 3
