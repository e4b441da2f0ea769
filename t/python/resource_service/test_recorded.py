# SPDX-License-Identifier: LGPL-3.0-or-later
"""Messages on a recorded resource.acquire stream: the same steps give the same messages."""

import shared
from resource_help import vm_R

R_NEW = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-1", "children": {"gpu": "0-1", "core": "0-3"}}],
        "starttime": 0.0, "expiration": 0.0, "nodelist": ["fake[0-1]"],
        "properties": {"all": "0-1", "big": "0", "small": "1"},
    },
}  # fmt: skip


def call(method, **payload):
    return lambda there: there.call(method, **payload)


def exclude(ranks):
    return call("config.load", **({"resource": {"exclude": ranks}} if ranks else {}))


#: beginning of a scenario's name -> (a new scheduler is loaded, the steps before)
SCENARIOS = [
    ("load sched-fifo, default args", True, []),
    ("load sched-fifo queue-depth=unlimited", True, []),
    ("load sched-fifo queue-depth=3", True, []),
    ("drain rank 1 (idle)", False, [call("drain", targets="1")]),
    ("drain ranks 2-3 (idle)", False, [call("drain", targets="2-3")]),
    ("undrain rank 1", False, [call("undrain", targets="1")]),
    ("reload scheduler while ranks 2-3 are drained", True, []),
    ("undrain ranks 2-3", False, [call("undrain", targets="2-3")]),
    ("drain rank 0 while", False, [call("drain", targets="0")]),
    ("undrain rank 0 while", False, [call("undrain", targets="0")]),
    ("config exclude rank 3 loaded", False, [exclude("3")]),
    ("reload scheduler after the exclusion", True, []),
    ("exclusion removed while", False, [exclude(None)]),
    ("reload scheduler after exclusion removed", True, []),
    ("exclusion loaded with scheduler and resource modules", True, [exclude("3"), lambda t: t.reload_module("noverify")]),
    ("exclusion removed the same way", True, [exclude(None), lambda t: t.reload_module("noverify")]),
    ("rank 3 goes offline", False, [call("overlay.disconnect", rank=3)]),
    ("load scheduler while rank 3 is offline", True, []),
    ("second resource.acquire", True, []),
    ("flux resource reload R.new", True, [call("reload", R=R_NEW)]),
]  # fmt: skip


def payloads(records):
    return [
        r["payload"]
        for r in records
        if r.get("topic") == "resource.acquire" and r["dir"] == "recv" and not r["errnum"]
    ]


def recorded():
    """Return the messages of the stream by scenario."""
    found = {}
    for record in shared.optional_jsonl("golden/acquire.jsonl"):
        found.setdefault(record["scenario"], []).append(record)
    return {name: payloads(records) for name, records in found.items()}


def test_recorded_steps(make, shared_data):
    wanted = recorded()
    there = make(4, vm_R(), online=False)
    holder = there.acquire()
    found = holder.take()
    there.bring_up()
    assert found + holder.take() == wanted[None]
    for name, new, steps in SCENARIOS:
        (full,) = [scenario for scenario in wanted if scenario and scenario.startswith(name)]
        if new:
            holder.leave()
        for step in steps:
            step(there)
        if new:
            holder = there.acquire()
        assert holder.take() == wanted[full], full
