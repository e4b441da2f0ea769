# SPDX-License-Identifier: LGPL-3.0-or-later
"""The scheduler's answers: why a job waits, when it starts, which jobs could start, and the plan."""

import errno

import pytest
from peers import START_TIME, R, Rig, jobspec, whole

from flux.resource import ResourcePool
from flux.scheduler.query import service
from flux.scheduler.query.answering import Answering

BACKFILL = "sched-backfill"
MODULES = ["sched-fifo", "sched-simple", BACKFILL]


def rig_with(module, *jobs, nodes=8, cores=4, gpus=0, args=("queue-depth=unlimited",), **keys):
    """A rig with `module` loaded, and jobs (nodes, duration) submitted in order from 1 on."""
    rig = Rig(R(nodes, cores, gpus, **keys), module, *args)
    for jobid, (count, duration) in enumerate(jobs, 1):
        rig.alloc(jobid, whole(count, duration))
    rig.wait(2)
    return rig


def refused(rig, topic, payload):
    errnum, text = rig.ask(f"sched.{topic}", payload)
    assert errnum == errno.EINVAL
    return text


@pytest.mark.parametrize(
    "topic", ["sched.explain", "sched.when", "sched.reservations", "feasibility.check"]
)
def test_a_payload_that_is_too_deep_is_refused_without_a_traceback(topic):
    rig = rig_with("sched-backfill", (6, 100))
    if topic != "feasibility.check":
        rig.client.become(1001)
    rig.send_text(topic, "[" * 100000)
    rig.settle()
    assert rig.received[-1] == (topic, errno.EINVAL, f"{topic}: the payload is nested too deeply")
    assert not any("Traceback" in line for line in rig.logged())


# -- why -------------------------------------------------------------------------------------------


def test_a_job_with_room_that_would_delay_one_behind_it_that_was_promised_a_start():
    """Job 3 was let in by its limit when job 4 had its promise."""
    rig = Rig(R(3, 4), BACKFILL, config={"limits": {"one": {"per": "user", "max": {"jobs": 1}}}})
    for jobid, (count, duration) in enumerate([(1, 10), (1, 100), (1, 500), (3, 50)], 1):
        rig.alloc(jobid, whole(count, duration), userid=(7, 8, 7, 9)[jobid - 1])
    rig.free(1, after=10, wait=2)
    said = rig.explain(3)
    assert said["verdict"] == "waits"
    assert said["reason"] == "it would keep another job from its promised start"
    assert said["fits"] == {"limit": 88.0}
    assert rig.reason(3) == said["reason"]


def test_open_promises_to_jobs_behind_one_with_a_promise_give_way_to_jobs_that_would_fit():
    """Jobs 2 and 3 wait for one without a time limit."""
    rig = Rig(R(4, 4), BACKFILL, "promise=4")
    rig.arrive({1: whole(3, 0), 2: whole(4, 100)}, wait=2)
    rig.arrive(3, whole(2, 100), priority=20, wait=2)
    assert rig.explain(3)["fits"] == {"count": 1}


@pytest.mark.parametrize("most, fits", [(5, {"count": 3}), (4, None)])
def test_the_largest_request_that_fits_respects_limits(most, fits):
    limits = {"one": {"per": "user", "users": ["7"], "max": {"nodes": most}}}
    rig = Rig(R(6, 4), BACKFILL, config={"limits": limits})
    rig.alloc(1, whole(1, 100), userid=8)
    rig.alloc(2, whole(2, 100), userid=7)
    rig.arrive(3, jobspec(1, nodes=4, cores=4, duration=100), userid=7, wait=2)
    said = rig.explain(3)
    assert said["reason"].startswith("insufficient resources")
    assert said["fits"] == fits


@pytest.mark.parametrize("module", MODULES)
def test_the_reservation_that_a_job_behind_others_is_to_start_after(module):
    rig = rig_with(module, (6, 100), (8, 50))
    begin = rig.now + 200
    rig.reserve("maint", 200, 100, nodes=8)
    rig.arrive(3, whole(8, 1000), wait=2)
    late = rig.explain(3)
    assert [one["name"] for one in late["behind"]] == ["ƒ3", "ƒ2"]
    window = {"name": "maint", "start": begin, "end": begin + 100}
    assert late["t_estimate"] == pytest.approx(window["end"], abs=1)
    assert late["reservation"] == window
    head = rig.explain(2)
    assert head["t_estimate"] < begin
    assert head["reservation"] is None


@pytest.mark.parametrize("module", MODULES)
def test_parts_of_a_constraint_and_whom_they_leave_out(module):
    rig = rig_with(module, (8, 100), properties={"big": "0-3", "fast": "2-5"})
    constraints = {"and": [{"properties": ["big", "^fast"]}, {"hostlist": ["n[0-5]"]}]}
    rig.alloc(9, whole(1, 10, constraints=constraints))
    job = rig.explain(9)
    assert job["excluded"] == [
        {"constraint": "property big", "nodes": 4, "ranks": "4-7"},
        {"constraint": "not property fast", "nodes": 4, "ranks": "2-5"},
        {"constraint": "hosts n[0-5]", "nodes": 2, "ranks": "6-7"},
    ]
    assert job["matching"] == 2


@pytest.mark.parametrize(
    "payload, text",
    [
        ({}, "give id, or all"),
        ({"id": 1, "all": True}, "give id, or all"),
        *[({"id": id}, f"id={id!r} is invalid") for id in ("x", -1, 1 << 64, 1.5, True)],
        ({"id": 77}, "is not a pending job"),
        ({"what": 1}, "unknown key 'what': expected id, all"),
        ([], "expected an object, got list"),
    ],
)
def test_explain_refuses(payload, text):
    rig = rig_with("sched-fifo")
    rig.client.become(1001)
    assert text in refused(rig, "explain", payload)
    assert not rig.logged(3)


def test_a_guest_is_told_of_own_jobs_only():
    rig = rig_with(BACKFILL, (6, 100), (8, 50))
    rig.alloc(3, whole(2, 500), userid=1001)
    rig.client.become(1001)
    answer = rig.answer("explain", all=True)
    assert [job["id"] for job in answer["jobs"]] == [3] and answer["others"] == 1
    assert "is not a pending job" in refused(rig, "explain", {"id": 2})


def test_an_admin_sees_as_much_as_the_owner_and_changes_nothing():
    rig = rig_with(BACKFILL, (6, 100))
    rig.alloc(2, whole(8, 50))
    rig.arrive(3, whole(2, 500), userid=1001, wait=2)
    entry = {"name": "week", "start": rig.now + 1000, "duration": 10, "nodes": 4, "users": [1002]}
    reserve = {"reservation": {**entry, "zone": "UTC"}}
    assert rig.ask("sched.reserve", reserve)[0] == 0
    private = {"access": {"private-mode": True}}
    assert rig.ask(f"{BACKFILL}.config-reload", private)[0] == 0

    def answers():
        questions = ({"id": 2}, {"id": 3}, {"all": True})
        said = [rig.answer("explain", **payload) for payload in questions]
        said += [rig.answer("plan"), rig.answer("reservations")]
        return [{**one, "made": None, "now": None} for one in said]

    as_the_owner = answers()
    rig.client.become(1001, 2 | 4 | 8)
    assert answers() == as_the_owner
    assert rig.answer("stats")["stats"]["pending_jobs"] == 2
    assert rig.ask(f"{BACKFILL}.stats-get")[0] == 0
    assert rig.ask("sched.reserve", reserve)[0] == errno.EPERM
    assert rig.ask("sched.unreserve", {"name": "week"})[0] == errno.EPERM
    assert rig.ask(f"{BACKFILL}.config-reload", {})[0] == errno.EPERM


# -- when ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", MODULES)
def test_when(module):
    rig = rig_with(module, (6, 102))
    assert rig.answer("when", jobspec=whole(2, 10))["verdict"] == "now"
    later = rig.answer("when", jobspec=whole(3, 10))
    assert (later["verdict"], later["start"]) == ("later", rig.now + 100)
    never = rig.answer("when", jobspec=whole(9, 10))
    assert never["verdict"] == "never" and "only 8 eligible" in never["reason"]


@pytest.mark.parametrize(
    "limit, fits, why",
    [
        ("expiration", 500, "job duration (1h) exceeds remaining instance lifetime (10m)"),
        ("duration", 600, "requested duration (1h) exceeds policy limit of 10m"),
    ],
)
def test_when_flux_core_refuses_such_a_job_at_submission(limit, fits, why):
    rig = rig_with("sched-fifo")
    if limit == "expiration":
        rig.resource.update(expiration=rig.now + 600)
    else:
        rig.reconfigure({"policy": {"limits": {"duration": "10m"}}})
    assert rig.answer("when", jobspec=whole(1, fits))["verdict"] == "now"
    answer = rig.answer("when", jobspec=whole(1, 3600))
    assert (answer["verdict"], answer["reason"]) == ("never", why)


def test_the_ranks_of_an_answer_are_an_idset_whatever_the_order_of_the_entries_of_R():
    rig = Rig(R(3, 4), "sched-fifo")
    rig.arrive({1: jobspec(4, duration=10), 2: jobspec(1, duration=100)})
    rig.free(1)
    answer = rig.answer("when", jobspec=jobspec(11, duration=10))
    assert (answer["verdict"], answer["ranks"]) == ("now", "0-2")


def test_when_ranks_are_down():
    rig = rig_with("sched-fifo")
    rig.resource.update(down="3-7")
    answer = rig.answer("when", jobspec=whole(4, 10))
    assert answer["verdict"] == "unknown" and "5 down" in answer["reason"]


@pytest.mark.parametrize(
    "payload, text",
    [
        *[(payload, "") for payload in ({}, {"jobspec": 3}, {"jobspec": {}}, {"jobspec": None})],
        *[
            ({"jobspec": jobspec(1, queue=queue)}, "there is no queue")
            for queue in ({}, [], 5, True, "nosuch")
        ],
    ],
)
def test_when_refuses(payload, text):
    rig = rig_with("sched-fifo")
    assert refused(rig, "when", payload).startswith(text)
    assert not rig.logged(3)


QUEUES = {
    "queues": {
        "debug": {"requires": ["left"]},
        "quick": {"parent": "debug"},
        "batch": {"policy": {"jobspec": {"defaults": {"system": {"duration": "1h"}}}}},
    },
    "policy": {"jobspec": {"defaults": {"system": {"duration": 60, "queue": "debug"}}}},
}


@pytest.mark.parametrize("module", MODULES)
def test_when_knows_the_defaults_that_submission_adds(module):
    rig = Rig(R(8, 4, properties={"left": "0-3"}), module, "queue-depth=unlimited")
    assert rig.ask(f"{module}.config-reload", QUEUES)[0] == 0
    rig.arrive(1, whole(3, 100), wait=1)
    begin = rig.now - 1
    # In queue debug, which is the default, there is one node left.
    assert rig.answer("when", jobspec=whole(2))["start"] == pytest.approx(begin + 100, abs=0.1)
    assert rig.answer("when", jobspec=whole(5))["verdict"] == "never"
    assert rig.answer("when", jobspec=whole(5, queue="quick"))["verdict"] == "never"
    assert rig.answer("when", jobspec=whole(5, queue="batch"))["verdict"] == "now"
    rig.alloc(2, whole(1, 30, constraints={"properties": ["left"]}))
    assert "no queue 'tiny'" in refused(rig, "when", {"jobspec": whole(1, queue="tiny")})
    constraint = {"ranks": ["0-1"]}
    later = rig.answer("when", jobspec=whole(2, constraints=constraint, queue="debug"))
    assert later["start"] == pytest.approx(begin + 100, abs=0.1)
    assert rig.ask(f"{module}.config-reload", {"queues": QUEUES["queues"]})[0] == 0
    without = refused(rig, "when", {"jobspec": whole(2)})
    assert without == "no queue specified: debug, quick, batch"


# -- windows, plan, statistics ---------------------------------------------------------------------


def test_windows():
    rig = rig_with(BACKFILL, (4, 102), (2, 1002), (6, 500))
    answer = rig.answer("windows", horizon=3600)
    assert answer["until"] == answer["now"] + 3600
    assert answer["kinds"] == [{"kind": "4 cores", "total": 8, "steps": [[2, answer["now"] + 100]]}]


def test_no_node_is_free_beside_a_promise_that_lacks_room():
    """The first job has no end, so the last, on all nodes, is kept the others from the end of the
    second on, before which it cannot start."""
    rig = rig_with(BACKFILL, (2, 0), (1, 100), (8, 0))
    (kind,) = rig.answer("windows")["kinds"]
    assert kind["steps"] == [[5, START_TIME + 100]]
    assert rig.answer("stats")["promises"] == []  # its start is unknown
    rig.free(2)
    (kind,) = rig.answer("windows")["kinds"]
    assert kind["steps"] == []


def test_windows_end_where_a_head_without_a_promise_in_the_plan_is_to_start():
    """Under promise=all the next job starts before its latest start."""
    rig = rig_with(BACKFILL, (6, 102), (8, 200), (2, 500), args=("promise=all",))
    (kind,) = rig.answer("windows")["kinds"]
    assert kind["steps"] == [[2, rig.now + 100]]
    fits = [rig.explain(jobid)["fits"] for jobid in (2, 3)]
    assert fits == [{"count": 2}, {"limit": 100.0}]
    rig.alloc(4, whole(2, 100))
    assert rig.started() == [1, 4]


def test_windows_of_two_kinds_of_nodes():
    mixed = R(4, 4)
    mixed["execution"]["R_lite"].append({"rank": "4-5", "children": {"core": "0-3", "gpu": "0-1"}})
    mixed["execution"]["nodelist"] = ["n[0-5]"]
    rig = Rig(mixed, BACKFILL)
    answer = rig.answer("windows", horizon=60)
    found = [(one["kind"], one["total"], one["steps"][0][0]) for one in answer["kinds"]]
    assert found == [("4 cores, 2 GPUs", 2, 2), ("4 cores", 4, 4)]


@pytest.mark.parametrize("horizon", [0, -1, "8h", True, 1e12, None])
def test_horizons_that_are_refused(horizon):
    for topic in ("windows", "plan"):
        assert "horizon=" in refused(rig_with("sched-fifo"), topic, {"horizon": horizon})


def test_plan():
    rig = rig_with(BACKFILL, (6, 102), (4, 50))
    answer = rig.answer("plan", horizon=3600)
    assert (answer["ranks"], answer["down"], answer["reserved"]) == ("0-7", "", [])
    (running,) = answer["running"]
    assert (running["name"], running["nodes"], running["ranks"]) == ("ƒ2", 6, "0-5")
    assert running["end"] == rig.now + 100
    (promised,) = answer["promised"]
    assert (promised["name"], promised["nodes"]) == ("ƒ3", 4)
    assert (promised["start"], promised["end"]) == (rig.now + 100, rig.now + 150)


def test_statistics():
    rig = rig_with(BACKFILL, (6, 100), (4, 50), (2, 10))
    rig.resource.update(down="7")
    answer = rig.answer("stats")
    assert answer["name"] == BACKFILL
    assert answer["started_jobs"] == {"immediate": 1, "backfilled": 1}
    assert answer["nodes"]["down"] == 1
    assert sum(answer["nodes"].values()) == 8
    assert answer["reasons"] == [{"queue": None, "kind": "resources", "count": 1}]
    assert [one["nodes"] for one in answer["promises"]] == [4]
    assert answer["stats"]["pending_jobs"] == 1


def test_statistics_count_jobs_whose_reasons_are_not_determined(monkeypatch):
    monkeypatch.setattr(service, "MAX_JOBS_LISTED", 1)
    rig = rig_with(BACKFILL, (8, 100), (8, 50), (8, 10), (8, 10))
    kinds = {one["kind"]: one["count"] for one in rig.answer("stats")["reasons"]}
    assert kinds == {"resources": 1, "other": 2}


def test_explain_looks_at_few_of_the_running_jobs(monkeypatch):
    """However many there are; and so it is answered in a few steps."""
    looked, steps = [], []
    held_ranks, go_on = ResourcePool.held_ranks, Answering._go_on
    counted = lambda log, function: lambda *args: log.append(1) or function(*args)  # noqa: E731
    monkeypatch.setattr(ResourcePool, "held_ranks", counted(looked, held_ranks))
    monkeypatch.setattr(Answering, "_go_on", counted(steps, go_on))
    costs = []
    for count in (300, 1200):
        jobs = [(1, 600 + jobid) for jobid in range(count)]
        rig = rig_with(BACKFILL, *jobs, (count, 60), nodes=count)
        looked.clear()
        steps.clear()
        answer = rig.explain(count + 1)
        assert len(answer["behind"]) == 8 and answer["behind_more"]
        costs.append((len(looked), len(steps)))
    assert costs[0] == costs[1] and costs[0][0] < 12 and costs[0][1] < 6
