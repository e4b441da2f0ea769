# SPDX-License-Identifier: LGPL-3.0-or-later
"""The cost of a site's rules in a pass, in function calls, whose number is equal on all machines."""

import cProfile
import gc
import pstats

import pytest
from peers import R, Rig, jobspec

from flux.resource.request import Remembered
from flux.scheduler.reservations import reservation

WHOLE_NODES = {"nodes": 1, "exclusive": True}
PARTS_OF_NODES = {"cores": 12}
MANY_SHAPES = tuple({"nodes": n, "exclusive": True} for n in (1, *range(8, 17)))

LIMITS = {
    "user": {"per": "user", "max": {"nodes": 16, "jobs": 4096}},
    "bank": {"per": "bank", "max": {"cores": 100000}},
}
REACHED = {**LIMITS, "user": {"per": "user", "max": {"jobs": 1}, "users": ["1", "2", "3"]}}
LICENSES = {"matlab": 100000}
ALL = {
    "limits": LIMITS,
    "budgets": {"banks": {"per": "bank", "period": "year", "max": {"node-hours": 1e6}}},
    "fairshare": {"half-life": "7d"},
    "licenses": LICENSES,
    "preemption": {"standby": {"queues": ["standby"], "wait": "1h"}},
}
RACKS = {"rack": {"groups": {"left": "n[0-7]", "right": "n[8-15]"}}}

#: The rules in force, the attributes of jobs, and their requests.
CASES = {
    "limits": ({"limits": LIMITS}, {}, WHOLE_NODES),
    "limits that are reached": ({"limits": REACHED}, {}, WHOLE_NODES),
    "licences": ({"licenses": LICENSES}, {"licenses": {"matlab": 1}}, WHOLE_NODES),
    "preemption": ({"preemption": ALL["preemption"]}, {}, WHOLE_NODES),
    "max-wait": ({}, {"max-wait": 1e6}, WHOLE_NODES),
    "placement": ({"topology": RACKS}, {"placement": {"level": "rack"}}, WHOLE_NODES),
    "sharing": ({"sharing": {"all": {"mode": "user"}}}, {}, PARTS_OF_NODES),
    "all": (ALL, {"licenses": {"matlab": 1}, "max-wait": 1e6}, WHOLE_NODES),
}


def calls_of_an_end(module, tables, says, asks, pending, users=6):
    """Function calls per end of a job, including the peers', the passes that follow, and their starts."""
    rig = Rig(R(16, 16), module, "queue-depth=unlimited", "reason-depth=0", config=tables)
    for jobid in range(1, 17 + pending):
        user = jobid % users + 1
        wants = asks[jobid * jobid % len(asks)] if isinstance(asks, tuple) else asks
        spec = jobspec(1, duration=600, bank=f"b{user}", **wants, **says)
        rig.alloc(jobid, spec, userid=user)
    ended = rig.started()[:4]
    rig.free(ended[0])  # fills caches
    before = len(rig.started())
    gc.collect()  # objects left by other tests have callbacks, which would be counted
    Remembered.kept = 0  # nor is a cache emptied because of their entries
    profile = cProfile.Profile()
    profile.enable()
    for jobid in ended[1:]:
        rig.free(jobid, wait=0)
    profile.disable()
    assert len(rig.started()) == before + len(ended[1:])
    return pstats.Stats(profile).total_calls / len(ended[1:])


@pytest.mark.parametrize("module", ["sched-fifo", "sched-backfill"])
@pytest.mark.parametrize("case", CASES)
def test_an_end_costs_the_same_however_many_jobs_wait(module, case):
    few, many = (calls_of_an_end(module, *CASES[case], pending) for pending in (60, 240))
    assert many < 1.1 * few


@pytest.mark.parametrize(
    "case, asks, most",
    [
        ("all", WHOLE_NODES, 70),
        ("placement", WHOLE_NODES, 100),
        ("sharing", PARTS_OF_NODES, 100),
        ("limits", MANY_SHAPES, 140),
        ("licences", MANY_SHAPES, 60),
        ("all", MANY_SHAPES, 170),
    ],
)
def test_rules_of_which_none_is_reached_add_little_to_an_end_under_backfill(case, asks, most):
    tables, says, _ = CASES[case]
    without = calls_of_an_end("sched-backfill", {}, {}, asks, 150)
    assert calls_of_an_end("sched-backfill", tables, says, asks, 150) - without < most


def test_an_end_costs_the_same_however_many_users_share_nodes():
    case = ("sched-backfill", *CASES["sharing"], 400)
    few, many = (calls_of_an_end(*case, users) for users in (5, 20))
    assert many < 1.1 * few


def test_the_begin_and_the_end_of_a_window_enter_few_of_the_next_ones(monkeypatch):
    def calls(planned):
        monkeypatch.setattr(reservation, "WINDOWS_PLANNED", planned)
        rig = Rig(R(4, 4))
        rig.load("sched-backfill", "estimate-depth=0", "odds-depth=0")
        for nodes in (2, 4):
            rig.alloc(nodes, jobspec(1, duration=9000, nodes=nodes, exclusive=True))
        rig.reserve("hourly", 100, 50, nodes=2, every="1h")
        profile = cProfile.Profile()
        profile.enable()
        rig.wait(200)
        profile.disable()
        return pstats.Stats(profile).total_calls

    assert calls(64) < 2 * calls(8)


def test_a_limit_that_changes_costs_few_calls_for_each_pending_job():
    def calls(pending):
        rig = Rig(R(16, 16), "sched-backfill", "queue-depth=unlimited", config=ALL)
        for jobid in range(1, 17 + pending):
            spec = jobspec(1, duration=600, bank=f"b{jobid % 6}", **WHOLE_NODES)
            rig.alloc(jobid, spec, userid=jobid % 6)
        rig.settle()
        limits = {**LIMITS, "bank": {"per": "bank", "max": {"cores": 200000}}}
        gc.collect()
        profile = cProfile.Profile()
        profile.enable()
        rig.reconfigure({**ALL, "limits": limits})
        profile.disable()
        return pstats.Stats(profile).total_calls

    assert (calls(400) - calls(100)) / 300 < 100
