# SPDX-License-Identifier: LGPL-3.0-or-later
"""Reservations: no job outside the group ever holds reserved resources."""

import errno
import json

import pytest
from peers import R, Rig, Simulation, jobspec, loaded, whole

from flux.idset import IDset
from flux.scheduler.host import name_of
from flux.scheduler.reservations.rule import DEFERRED_JOBS_RETRIED

MODULES = ["sched-fifo", "sched-simple", "sched-backfill"]
KEY = "checkpoint.sched-reservations"


def make(module, nodes=8, args=("queue-depth=unlimited",), **keys):
    return Rig(R(nodes, 4, **keys), module, *args)


def listed(rig):
    return {one["name"]: one for one in rig.answer("reservations")["reservations"]}


def state(rig, name="dat"):
    """The state of a reservation, and its nodes held and short."""
    one = listed(rig)[name]
    return one["state"], one["held"], one["short"]


def reloaded(rig, specs):
    """Load the scheduler anew, while jobs with these specs run."""
    for jobid, spec in specs.items():
        rig.will_be_found(jobid, spec=spec)
    rig.reload(rig.sched.name, "queue-depth=unlimited")


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    "reserved, limit, reason",
    [
        ({"nodes": 8}, 3551, "time limit too long between"),
        ({"hosts": "n[0-7]"}, 0, "no time limit: it would not end between"),
        ({"nodes": 1}, 3551, "time limit too long between"),
    ],
)
def test_no_job_waits_for_one_that_fits_between_no_two_windows(module, reserved, limit, reason):
    rig = make(module)
    rig.reserve("hourly", 4000, 50, every="1h", **reserved)
    rig.alloc(1, whole(8, 3600))  # ends before the first
    rig.free(1, after=4100)
    rig.alloc({2: whole(8, limit), 3: whole(8, 3550 - 55)})
    assert rig.started() == [1, 3]
    rig.wait(2)
    assert rig.reason(2) == f"{reason} two windows of reservation hourly"
    rig.answer("unreserve", name="hourly")
    rig.free(3)
    assert rig.started() == [1, 3, 2]


@pytest.mark.parametrize(
    "nodes, limit, waits",
    [(8, 3000, True), (8, 1700, False), (4, 3600, True), (4, 3000, False)],
)
def test_two_reservations_together_leave_no_time(nodes, limit, waits):
    """Each hour all nodes are reserved twice, or each half once. An estimate would look a year ahead in vain."""
    rig = Rig(R(8, 4), "sched-backfill", "queue-depth=unlimited", estimates=False)
    halves = ("n[0-3]", "n[4-7]") if nodes == 4 else ("n[0-7]", "n[0-7]")
    for at, hosts in enumerate(halves):
        rig.reserve(f"r{at}", 60 + 1800 * at, 50, every="1h", hosts=hosts)
    rig.alloc({1: whole(nodes, limit), 2: whole(8, 50)})
    assert rig.started() == [2]
    if waits:
        asked = rig.explain(1)
        assert asked["reason"] == "time limit too long between two windows of reservation r0 or r1"
    rig.free(2, after=52)
    assert rig.started(after=60) == ([2] if waits else [2, 1])


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    "limit, reason",
    [
        (101, "time limit too long before reservation dat, which begins"),
        (0, "no time limit: it could run into reservation dat, which begins"),
    ],
)
def test_a_job_that_would_run_into_the_window_waits(module, limit, reason):
    rig = make(module)
    rig.reserve("dat", 100, 50, nodes=8)
    rig.alloc(1, whole(1, 100))  # ends when it begins
    assert rig.started() == [1]
    rig.arrive(2, whole(1, limit), wait=2)
    assert rig.started() == [1]
    assert rig.reason(2) == f"{reason} at 2023-11-14T22:15:00+00:00"
    assert rig.started(after=147) == [1]
    assert rig.started(after=2) == [1, 2]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    "spec, name",
    [
        (whole(1, 200), "later"),
        (whole(6, 200), "maint"),
        (whole(2, 60, constraints={"ranks": ["0-2"]}), "named"),
        (jobspec(slots=20, duration=200), "later"),
        (jobspec(slots=21, duration=200), "maint"),
    ],
)
def test_the_window_that_leaves_too_few_nodes_is_named(module, spec, name):
    rig = make(module)
    rig.reserve("maint", 20, 50, nodes=3)
    rig.reserve("named", 30, 50, hosts="n[0-1,7]")
    rig.answer("unreserve", name="maint" if name == "named" else "named")
    rig.reserve("later", 100, 50, nodes=8)
    rig.arrive(1, spec, wait=2)
    assert rig.reason(1).startswith(f"time limit too long before reservation {name}, ")


@pytest.mark.parametrize("module", MODULES)
def test_hosts_and_constraints_bind_at_once(module):
    rig = make(module, properties={"big": "4-7"})
    rig.reserve("hosts", 100, 50, hosts="n[0-1]")
    rig.reserve("kind", 100, 50, requires={"properties": ["big"]})
    rig.alloc(1, whole(2, 1000))
    assert rig.ranks(1) == {2, 3}
    rig.alloc(2, whole(1, 1000))
    for seconds in (0, 120):  # before the windows begin, and in them
        rig.wait(seconds)
        assert listed(rig)["hosts"]["ranks"] == "0-1"
        assert listed(rig)["kind"]["ranks"] == "4-7"
        windows = rig.answer("plan")["reserved"]
        assert {one["name"]: one["ranks"] for one in windows} == {"hosts": "0-1", "kind": "4-7"}
    assert rig.started() == [1]


@pytest.mark.parametrize("module", MODULES)
def test_jobs_of_the_group_are_told_the_cause_of_their_wait(module):
    rig = make(module)
    begin = rig.now
    rig.reserve("dat", 100, 200, nodes=8, users=[0])
    rig.alloc({1: whole(8, 120, reservation="dat"), 2: whole(8, 150, reservation="dat")})
    rig.alloc(3, whole(8, 150, reservation="nothing"))
    assert rig.reason(2).startswith("reservation dat begins at")
    assert rig.shown(3) == {"reason_pending": "reservation nothing does not exist"}
    # They are planned in the window, one after the other.
    shown = [rig.shown(jobid).get("t_estimate") for jobid in (1, 2)]
    assert shown == [pytest.approx(begin + when, abs=1) for when in (100, 220)]
    assert rig.started(after=100) == [1]
    shown = rig.shown(2)
    assert shown["reason_pending"] == "reservation dat: 0 of 8 nodes are free"
    assert shown["t_estimate"] == pytest.approx(begin + 220, abs=1)
    rig.free(1, after=120)
    assert rig.started() == [1, 2]
    # It is told to end with the window.
    assert rig.success(2)["R"]["execution"]["expiration"] == pytest.approx(begin + 300, abs=1)


@pytest.mark.parametrize("module", MODULES)
def test_conflicts_are_told_not_cut(module):
    rig = make(module)
    rig.alloc({1: whole(6, 500), 2: whole(1)})
    entry = {"name": "dat", "start": rig.now + 100, "duration": 1000, "nodes": 4, "zone": "UTC"}
    dry = rig.answer("reserve", reservation=entry, dry_run=True)
    assert listed(rig) == {}
    answer = rig.reserve("dat", 100, 1000, nodes=4)
    assert answer["conflicts"] == dry["conflicts"]
    (job,) = answer["conflicts"]
    assert (job["name"], job["nodes"], job["end"]) == ("ƒ2", 6, rig.now + 500)
    rig.wait(110)
    assert state(rig) == ("degraded", 1, 3)
    rig.free(1, wait=1)
    assert state(rig) == ("active", 4, 0)


@pytest.mark.parametrize("module", MODULES)
def test_an_extension_into_the_window_is_let(module):
    rig = make(module)
    rig.alloc(1, whole(8, 90))
    rig.reserve("dat", 100, 100, nodes=8)
    begin, end = rig.now, rig.now + 150
    assert listed(rig)["dat"]["in_the_way"] == []
    rig.expire(1, end)
    named = [{"id": 1, "name": "ƒ2", "nodes": 8, "end": end}]
    assert listed(rig)["dat"]["in_the_way"] == named
    (line,) = [text for text in rig.logged(4) if "ƒ2 ends at" in text]
    assert line.endswith(": allowed") and "is in the way of reservation dat" in line
    rig.wait(110 + begin - rig.now)
    assert listed(rig)["dat"]["short"] == 8
    assert listed(rig)["dat"]["in_the_way"] == named
    rig.expire(1, end + 10)
    assert listed(rig)["dat"]["in_the_way"] == [{**named[0], "end": end + 10}]
    rig.free(1)
    rig.arrive(2, whole(1, 10), wait=1)
    assert rig.started() == [1]
    assert listed(rig)["dat"]["short"] == 0


@pytest.mark.parametrize("module", MODULES)
def test_reservations_that_cannot_be_had_together_are_told(module):
    rig = make(module)
    rig.reserve("one", 100, 100, nodes=5)
    assert rig.reserve("two", 120, 100, nodes=3)["warnings"] == []
    answer = rig.reserve("three", 150, 10, nodes=1, users=[0])
    assert answer["warnings"] == ["not enough nodes for it beside reservation one, two"]
    assert rig.reserve("later", 220, 10, nodes=8, users=[0])["warnings"] == []
    answer = rig.reserve("nobody", 1000, 10, nodes=1, at_end="run")
    assert answer["warnings"] == ["no job can be in it, so at_end has no effect"]
    rig.wait(155)
    states = {name: one["state"] for name, one in listed(rig).items()}
    assert states == {
        "one": "active", "two": "active", "three": "degraded", "later": "planned", "nobody": "planned",
    }  # fmt: skip


@pytest.mark.parametrize(
    "keys, start, kind",
    [
        ({"at_end": "run", "users": [7]}, 200, "planned"),
        ({"at_end": "cancel", "users": [7]}, 200, "promised"),
        ({"at_end": "run", "users": [7], "hosts": "n1"}, 100, "promised"),
        ({"at_end": "cancel"}, 200, "promised"),
    ],
)
def test_a_start_that_a_job_running_on_after_its_window_may_delay_is_planned(keys, start, kind):
    rig = make("sched-backfill", nodes=2)
    rig.alloc(1, whole(1, 100, constraints={"ranks": ["0"]}))
    rig.reserve("class", 50, 150, **{"hosts": "n0", **keys})
    rig.arrive(2, whole(1, 500, constraints={"ranks": ["0"]}), wait=2)
    assert rig.estimate(2) == (start, kind)


def test_hosts_that_another_has_chosen_are_told():
    rig = make("sched-fifo")
    rig.reserve("pinned", 100, 100, nodes=1, pin=True)
    assert rig.reserve("other", 150, 100, hosts="n[1-2]")["warnings"] == []
    answer = rig.reserve("same", 150, 100, hosts="n[0,3]")
    assert answer["warnings"] == ["not enough nodes for it beside reservation pinned"]
    # One that may take any node hides no clash of others.
    assert rig.reserve("any", 140, 100, nodes=1)["warnings"] == []
    answer = rig.reserve("twin", 150, 100, hosts="n1")
    assert answer["warnings"] == ["not enough nodes for it beside reservation other"]


def test_as_many_jobs_are_named_as_have_to_end():
    rig = make("sched-fifo")
    for jobid, limit in enumerate([500, 400, 300, 0], 1):
        rig.alloc(jobid, whole(2, limit))
    rig.settle()
    for nodes, names in ((1, "ƒ4"), (2, "ƒ4"), (3, "ƒ4 ƒ3"), (8, "ƒ4 ƒ3 ƒ2 ƒ5")):
        answer = rig.reserve(f"dat{nodes}", 100, 10, nodes=nodes)
        assert [job["name"] for job in answer["conflicts"]] == names.split()
    answer = rig.reserve("hosts", 100, 10, hosts="n[0-1,4]")
    assert [job["name"] for job in answer["conflicts"]] == ["ƒ4", "ƒ2"]


def test_a_job_that_its_reservation_will_refuse_is_explained():
    rig = make("sched-fifo")
    rig.alloc({1: whole(8, 100), 2: whole(8, 100)})
    rig.reserve("class", 1000, 100, nodes=1, users=[7])
    rig.alloc(3, whole(1, 10, reservation="class"))
    job = rig.explain(3)
    (rule,) = job["rules"]
    assert rule["reason"] == "reservation class is not for this job's user, queue and bank"


@pytest.mark.parametrize("module", MODULES)
def test_no_part_of_a_job_fits_while_its_reservation_does_not_exist(module):
    rig = make(module)
    rig.alloc({1: whole(6, 100), 2: whole(4, 50, reservation="class")})
    job = rig.explain(2)
    assert job["reason"] == "reservation class does not exist" and job["fits"] is None


@pytest.mark.parametrize("module", MODULES)
def test_maintenance_is_not_short_of_nodes_that_are_down(module):
    rig = make(module)
    rig.resource.update(down="2-3")
    rig.reserve("maint", 10, 1000, hosts="n[0-3]")
    rig.reserve("class", 10, 1000, hosts="n[2,4]", users=[0])
    assert [state(rig, name)[0] for name in ("maint", "class")] == ["planned", "degraded"]
    rig.wait(15)
    found = [state(rig, name) for name in ("maint", "class")]
    assert [(one[0], one[2]) for one in found] == [("active", 0), ("degraded", 1)]
    rig.resource.update(up="2-3")  # when it comes back it is kept as well
    rig.arrive(1, whole(4, 10), wait=1)
    assert rig.started() == []


# -- reloads and restarts --------------------------------------------------------------------------


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("pin", [False, True])
def test_chosen_ranks_outlive_a_reload(module, pin):
    """Also where others would be chosen now: a technician may be at work on these."""
    rig = make(module, nodes=4)
    rig.arrive(1, whole(2, 50))
    rig.reserve("dat", 20 if pin else 0, 1000, nodes=2, pin=pin)
    rig.free(1)
    assert listed(rig)["dat"]["ranks"] == "2-3"
    rig.resource.update(down="3")
    assert listed(rig)["dat"]["ranks"] == "0,2"
    rig.resource.update(up="3")
    reloaded(rig, {})
    rig.wait(30)
    entry = listed(rig)["dat"]
    assert (entry["state"], entry["ranks"]) == ("active", "0,2")


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("reload", [False, True])
def test_a_job_of_the_group_outside_of_its_window_is_outside(module, reload):
    """The window ends those inside, and this one lasts."""
    rig = make(module)
    rig.reserve("dat", 10, 1000, nodes=4, users=[0])
    rig.wait(11)
    specs = {1: whole(3, 5000, reservation="dat"), 2: whole(2, 5000, reservation="dat")}
    rig.alloc(specs)
    assert rig.started() == [1, 2]
    reserved = set(IDset(listed(rig)["dat"]["ranks"]))
    assert rig.ranks(1) < reserved and not rig.ranks(2) & reserved
    if reload:
        reloaded(rig, specs)
    rig.alloc(3, whole(1, 10, reservation="dat"))
    assert rig.started() == [1, 2, 3]
    reserved = set(IDset(listed(rig)["dat"]["ranks"]))
    assert len(reserved) == 4 and rig.ranks(1) | rig.ranks(3) == reserved


@pytest.mark.parametrize("module", MODULES)
def test_a_job_extended_beyond_its_window_is_inside_after_a_reload(module):
    rig = make(module)
    rig.reserve("dat", 10, 1000, nodes=4, users=[0])
    rig.wait(11)
    spec = whole(3, 500, reservation="dat")
    rig.alloc(1, spec)
    reserved = listed(rig)["dat"]["ranks"]
    assert rig.started() == [1] and rig.ranks(1) < set(IDset(reserved))
    R = rig.success(1)["R"]
    R["execution"]["expiration"] = rig.now + 2000
    rig.expire(1, rig.now + 2000)
    rig.will_be_found(1, R, spec)
    rig.reload(module, "queue-depth=unlimited")
    assert listed(rig)["dat"]["ranks"] == reserved


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("reload", [False, True])
def test_a_job_of_the_window_before_is_not_inside_the_next(module, reload):
    rig = make(module)
    rig.reserve("dat", 10, 100, nodes=6, users=[0], every="1000s", at_end="run")
    rig.wait(11)
    spec = whole(3, 5000, reservation="dat")
    rig.arrive(1, spec, wait=1020)
    assert rig.started() == [1]
    if reload:
        reloaded(rig, {1: spec})
    assert state(rig) == ("degraded", 5, 1)
    assert [one["name"] for one in listed(rig)["dat"]["in_the_way"]] == [name_of(1)]


@pytest.mark.parametrize("module", MODULES)
def test_reserved_resources_are_no_jobs_allocation(module):
    rig = make(module)
    rig.reserve("dat", 0, 1000, nodes=6, users=[0])
    rig.alloc({1: whole(1, 10), 2: whole(1, 10, reservation="dat")})
    (entry,) = rig.answer("resource-status")["allocated"]["execution"]["R_lite"]
    assert set(IDset(entry["rank"])) == rig.ranks(1) | rig.ranks(2)
    assert rig.answer("quiescent")["alloc_current"] == 2


def test_configured_reservations():
    rig = make("sched-fifo")
    table = {"start": rig.now + 50, "duration": "1m", "nodes": 8, "zone": "UTC", "at-end": "run"}
    rig.reconfigure({"reservations": {"nightly": table, "bad": {}}})
    assert listed(rig)["nightly"]["configured"] and listed(rig)["nightly"]["at_end"] == "run"
    assert any("configuration: [reservations.bad] start is missing" in t for t in rig.logged(3))
    errnum, text = rig.ask("sched.unreserve", {"name": "nightly"})
    assert errnum == errno.EINVAL and "comes from the configuration" in text
    rig.reconfigure({})
    assert listed(rig) == {}


@pytest.mark.parametrize(
    "table, text",
    [
        (3, "3: expected a table"),
        ({"start": "+1h", "nodes": 1}, "start='+1h' depends on when it is read"),
        ({"start": "monday 08:00", "nodes": 1, "every": "1w"}, "start='monday 08:00' depends on when it is read: give a date"),
        ({"nodes": 1, "users": "no such"}, "users: there is no user 'no such'"),
        ({"requires": {"property": ["fast"]}}, "unknown constraint operator(s): ['property']"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_read_is_named_with_its_key(table, text):
    if isinstance(table, dict):
        table = {"start": "2030-01-01", "duration": "1h", **table}
    rig = make("sched-fifo")
    good = {"start": rig.now + 50, "duration": "1m", "nodes": 8, "zone": "UTC"}
    config = {"reservations": {"bad": table, "good": good}}
    answer = rig.answer("check-config", config=config)
    assert answer["changes"]["reservations"]["new"] == ["good"] and not listed(rig)
    (line,) = answer["faults"]
    assert line.startswith("configuration: [reservations.bad] ") and text in line
    rig.reconfigure(config)
    (line,) = rig.logged(3)
    assert line.startswith("configuration: [reservations.bad] ") and text in line
    assert list(listed(rig)) == ["good"]


@pytest.mark.parametrize(
    "what, place, texts",
    [
        (
            {"nodes": 8, "queues": ["debgu"]},
            "[reservations.dat]",
            ["there is no queue 'debgu': is 'debug' meant?"],
        ),
        # Also a property that the nodes must not have, with which all meet the constraint.
        (
            {"requires": {"or": [{"not": [{"properties": ["fst"]}]}, {"properties": ["^slw"]}]}},
            "reservation dat:",
            ["properties='fst': no node has it", "properties='slw': no node has it"],
        ),
    ],
    ids=["queue", "properties"],
)
def test_a_name_that_is_not_known_is_doubted(what, place, texts):
    rig = make("sched-fifo")
    queues = {"queues": {"debug": {}}}
    rig.reconfigure(queues)
    entry = {"start": rig.now + 50, "duration": "1m", "users": ["root"], **what}
    answer = rig.answer("reserve", reservation={"name": "dat", **entry}, dry_run=True)
    assert answer["warnings"] == texts
    config = {**queues, "reservations": {"dat": entry}, "reservation": {}}
    doubts = ["configuration: [reservation] is not a known table: is [reservations] meant?"]
    doubts += [f"configuration: {place} {text}" for text in texts]
    assert rig.answer("check-config", config=config)["doubts"] == doubts
    rig.reconfigure(config)
    assert rig.answer("check-config", config=config)["doubts"] == doubts, "it is there now"
    logged = doubts if place.startswith("[") else doubts[:1]  # of nodes nothing is logged
    assert rig.logged(4)[-len(logged) :] == logged


def test_a_reservation_that_cannot_be_filled_is_doubted():
    rig = make("sched-fifo")
    tables = {
        "good": {"nodes": 8},
        "large": {"nodes": 9},
        "elsewhere": {"hosts": "n[6-9]"},
        "past": {"nodes": 1, "start": rig.now - 500},
        "beside": {"hosts": "n[0-1]"},
    }
    entry = {"start": rig.now + 50, "duration": "1m", "zone": "UTC"}
    tables = {name: {**entry, **table} for name, table in tables.items()}
    answer = rig.answer("check-config", config={"reservations": tables})
    assert not answer["faults"] and len(answer["doubts"]) == 4
    for line, text in zip(
        answer["doubts"],
        (
            "large: unsatisfiable request: need 9 ",
            "elsewhere: hosts=n[8-9]: ",
            "past: its last window ",
            "beside: not enough nodes for it beside reservation good",
        ),
    ):
        assert line.startswith(f"configuration: reservation {text}")


def test_a_window_that_lasts_is_not_disturbed_by_another_reload():
    rig = make("sched-fifo")
    table = {"start": rig.now, "duration": "1m", "nodes": 4, "zone": "UTC", "users": 0}
    rig.reconfigure({"reservations": {"class": table}})
    rig.alloc(1, whole(4, 30, reservation="class"))
    assert rig.started() == [1] and rig.ranks(1) == {0, 1, 2, 3}
    rig.wait(5)
    rig.reconfigure({"reservations": {"class": table}, "other": {}})
    rig.reconfigure({"reservations": {"class": {"start": "bad"}}})
    assert listed(rig)["class"]["state"] == "active"
    assert listed(rig)["class"]["ranks"] == "0-3"
    rig.reconfigure({"reservations": {"class": {**table, "nodes": 8}}})
    assert listed(rig)["class"]["nodes"] == 8


@pytest.mark.parametrize("what", [{"nodes": 6}, {"hosts": "n[0-5]"}])
@pytest.mark.parametrize("module", MODULES)
def test_after_a_restart_with_fewer_nodes_it_keeps_the_remaining_ones(module, what):
    rig = make(module)
    rig.reserve("dat", 100, 50, **what)
    rig.unload()
    stored = rig.kvs_value(KEY)
    small = Simulation(R(4, 4))
    small.store(KEY, json.loads(stored))
    small.load(module, "queue-depth=unlimited")
    assert listed(small)["dat"]["state"] == "degraded"
    assert listed(small)["dat"]["note"] == "2 of 6 nodes are down or gone"
    small.submit(1, whole(1, 200))
    small.submit(2, whole(4, 10))
    small.wait(1000)
    assert small.begun[1] - small.now <= -800 and small.begun[1] >= rig.now + 100
    entry = listed(small)
    assert set(entry) == {"dat"} and entry["dat"]["nodes"] == 6


# -- the door --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry, text",
    [
        (None, "a reservation is an object"),
        ({"name": "dat", "start": "+1h", "duration": "1h", "nodes": 1}, "exists already"),
        ({"name": "x", "start": "now", "duration": "1h", "nodes": 9}, "only 8 eligible"),
        ({"name": "x", "start": 1000, "duration": 10, "nodes": 1}, "its last window ended at"),
        ({"name": "x", "start": "now", "duration": 1, "hosts": "n0,m[1-3]"}, "hosts=m[1-3]: not in"),
        (
            {"name": "x", "start": "now", "duration": 1, "requires": {"properties": ["red"]}},
            "no node of this instance meets its constraint",
        ),
        ({"name": "x", "start": "now", "duration": 1, "requires": {"colour": ["red"]}}, "unknown constraint operator"),
    ],
)  # fmt: skip
def test_reservations_that_cannot_be_made(entry, text):
    rig = make("sched-fifo")
    rig.reserve("dat", 100, 50, nodes=1)
    errnum, answer = rig.ask("sched.reserve", {"reservation": entry})
    assert errnum == errno.EINVAL and text in answer


def test_guests_may_list_and_no_more():
    rig = make("sched-fifo")
    rig.reserve("dat", 100, 50, nodes=1, users=[0, 70001001], queues=["batch"])
    assert listed(rig)["dat"]["group"] == "users root,70001001; queues batch"
    rig.client.become(1002)
    assert listed(rig)["dat"]["group"] == "some"
    assert rig.ask("sched.reserve", {"reservation": {}})[0] == errno.EPERM
    assert rig.ask("sched.unreserve", {"name": "dat"})[0] == errno.EPERM
    rig.client.become(0)
    assert rig.ask("sched.unreserve", {"name": "nosuch"})[0] == errno.EINVAL


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("module", MODULES)
def test_nodes_freed_by_the_group_are_not_counted_on(module, exclusive):
    rig = make(module, nodes=4)
    rig.reserve("dat", 0, 1000, nodes=4, users=[0])
    rig.alloc(1, jobspec(1, nodes=1, duration=100, exclusive=exclusive, reservation="dat"))
    rig.alloc(2, whole(3, 200, reservation="dat"))
    assert rig.started() == [1, 2]
    begin = rig.now
    rig.alloc(3, jobspec(1, nodes=1, duration=10))
    assert rig.started() == [1, 2]
    job = rig.explain(3)
    assert job["reason"].startswith("4 of 4 nodes are reserved for dat until ")
    assert job["t_estimate"] == pytest.approx(begin + 1000, abs=1)
    ends = [one["end"] - begin for one in rig.answer("plan")["running"]]
    assert sorted(ends) == [100, 200]
    rig.expire(2, begin + 300)
    ends = [one["end"] - begin for one in rig.answer("plan")["running"]]
    assert sorted(ends) == [100, 300]
    assert rig.explain(3)["t_estimate"] == pytest.approx(begin + 1000, abs=1)
    # Given up: they are ordinary jobs, and the estimate knows their ends.
    assert rig.ask("sched.unreserve", {"name": "dat"})[0] == 0
    rig.settle()
    if exclusive:
        assert rig.shown(3)["t_estimate"] == pytest.approx(begin + 100, abs=1)
    else:
        assert rig.started() == [1, 2, 3]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("args", [(), ("promise=4",)], ids=["", "4"])
def test_a_late_job_starts_no_passes(module, args):
    """A job waits for one that has outlived its limit. A promise renewed for now would set its timer again and again."""
    if args and module != "sched-backfill":
        pytest.skip("only backfilling promises starts")
    rig = make(module, 4, args=("queue-depth=unlimited", *args))
    rig.reserve("maint", 86400, 3600, nodes=1)
    rig.arrive({1: whole(3, 10), 2: whole(4, 20), 3: whole(2, 20)}, wait=11)
    before = rig.sched.stats_get()["sched_passes"]
    rig.wait(60)
    assert rig.sched.stats_get()["sched_passes"] - before <= 5
    rig.free(1)
    assert rig.started() == [1, 2]


@pytest.mark.parametrize("module", MODULES)
def test_jobs_of_a_reservation_that_is_over_are_not_in_the_way_of_others(module):
    rig = make(module, nodes=1)
    rig.reserve("past", 0, 1, nodes=1, users=[1001])
    rig.wait(2)
    rig.alloc(range(1, 1 + DEFERRED_JOBS_RETRIED), whole(1, 50, reservation="past"), userid=1001)
    rig.reserve("dat", 0, 1000, nodes=1, users=[1001])
    rig.alloc((100, 101), whole(1, 50, reservation="dat"), userid=1001)
    assert rig.started() == [100]
    rig.free(100)
    assert rig.started() == [100, 101]
    assert "is over" in rig.reason(1)


@pytest.mark.parametrize("order", ["strict", "queue"])
@pytest.mark.parametrize("module", MODULES[:2])
def test_in_strict_order_jobs_of_the_group_wait_in_the_window_for_each_other_only(module, order):
    """They are sent to the scheduler although many others wait ahead of them."""
    instance = loaded(module, f"order={order}", nodes=4, cores=4, estimates=False)
    start = instance.now() + 100
    entry = {"name": "class", "start": start, "duration": 600, "nodes": 2, "users": [1001]}
    instance.request("sched.reserve", {"reservation": entry})
    whole_nodes = {"exclusive": True, "duration": 300}
    first = instance.submit(nodes=2, exclusive=True, duration=2000)
    others = [instance.submit(nodes=4, **whole_nodes) for _ in range(20)]
    members = [
        instance.submit(nodes=nodes, userid=1001, reservation="class", **whole_nodes)
        for nodes in (2, 1, 2)
    ]
    instance.advance(90)
    assert first.state == "running" and not any(one.t_start for one in (*others, *members))
    instance.advance(320)
    assert [one.state for one in members] == ["inactive", "running", "pending"]
    instance.advance(3000)
    starts = [one.t_start for one in (*members[:2], first, others[0])]
    assert starts[1] == pytest.approx(starts[0] + 300, abs=2)
    assert starts[3] >= first.t_end
