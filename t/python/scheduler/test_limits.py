# SPDX-License-Identifier: LGPL-3.0-or-later
"""Limits of users, banks and queues: ``[limits.NAME]``."""

from types import SimpleNamespace

import pytest
from each_policy import POLICIES, under
from peers import R, Rig, jobspec, part_of

from flux.scheduler.policies import Backfill
from flux.scheduler.site_policy import tables
from flux.scheduler.site_policy.limits import read_limit
from flux.scheduler.testing import FakeInstance


@pytest.fixture(autouse=True)
def users(monkeypatch):
    """User names that do not depend on the machine."""
    monkeypatch.setattr(tables, "_names", {0: "root", 7: "ann", 8: "bob", 9: "cid"})


def load(policy, args, limits, rig=None, nodes=4, **config):
    rig = rig or Rig(R(nodes, 4))
    rig.load(policy, *args, config={"limits": limits, **config})
    return rig


def spec(slots=1, **keys):
    keys.setdefault("duration", 100)
    return jobspec(slots, **keys)


def nodes(count, **keys):
    return spec(count, nodes=count, exclusive=True, **keys)


def used(rig, name="one"):
    """Return the use, by key."""
    for _ in rig.rule("limit").report(SimpleNamespace(sees_all=True)):
        pass
    uses = rig.rule("limit").uses.values()
    return {use.key: tuple(use.used) for use in uses if use.entry.name == name}


PER_USER = {"one": {"per": "user", "max": {"nodes": 2}}}


@POLICIES
def test_a_job_that_can_never_run_is_denied_although_it_is_over_a_limit(policy, args):
    rig = load(policy, args, PER_USER)
    rig.alloc(1, spec(nodes=5, exclusive=True))
    assert rig.denied(1).startswith("unsatisfiable request: need 5 exclusive node(s), only 4")


@under("easy", "conservative", "promise-all")
def test_a_promised_job_that_is_over_a_new_limit_keeps_no_nodes(policy, args):
    rig = load(policy, args, {})
    rig.alloc(1, spec(nodes=3, exclusive=True), userid=8)
    rig.alloc(2, spec(nodes=4, exclusive=True), userid=7)
    rig.alloc(3, spec(nodes=1, exclusive=True, duration=1000), userid=8)
    assert rig.started() == [1] and rig.reason(3).startswith("behind")
    rig.reconfigure({"limits": {"one": {**PER_USER["one"], "users": ["7"]}}})
    assert rig.started() == [1, 3]
    assert [one["waiting"] for one in rig.answer("limits")["limits"]] == [1]


@POLICIES
def test_a_job_over_a_limit_is_denied_when_too_few_ranks_are_left(policy, args):
    instance = FakeInstance(nodes=4, config={"limits": PER_USER})
    instance.load(policy, *args)
    over, other = instance.submit(nodes=4, duration=10), instance.submit(nodes=3, duration=10)
    instance.advance(1)
    instance.remove_ranks("3")
    instance.advance(1)
    assert "unsatisfiable request: need 4 node(s)" in over.note and other.state == "pending"


# -- counting --------------------------------------------------------------------------------------


@POLICIES
def test_the_offer_of_the_pool_counts_not_the_request(policy, args):
    """Six cores anywhere are two nodes at least; with a core in use on each, three."""
    rig = load(policy, args, {"one": {**PER_USER["one"], "users": ["7"]}})
    rig.arrive((1, 2, 3, 4), spec(2), userid=8)
    rig.alloc(5, spec(6), userid=7)
    job = rig.explain(5)
    assert job["reason"] == "limit one: ann has 0 of 2 nodes; needs 3 as nodes are free now"
    assert job["limit"] == {
        "name": "one", "whose": "ann", "what": "nodes", "used": 0, "max": 2, "needs": 3, "t_again": None,
        "job": None,
    }  # fmt: skip
    rig.alloc(6, spec(1), userid=8)
    assert rig.started() == [1, 2, 3, 4, 6]
    assert rig.reason(5) == job["reason"]
    assert [one["waiting"] for one in rig.answer("limits")["limits"]] == [1]
    rig.check()
    rig.free(6)
    rig.alloc(7, spec(1), userid=7, priority=20)
    assert rig.explain(5)["reason"] == job["reason"].replace("has 0", "has 1")
    assert rig.explain(5)["limit"]["used"] == 1
    rig.free(7)
    rig.free(1)
    assert rig.started()[-1] == 5
    assert used(rig)[(7,)][0] == 2


@POLICIES
@pytest.mark.parametrize(
    "most, each, together",
    [
        ({"cores": 5}, spec(2), 2),
        ({"jobs": 3}, spec(1), 3),
        ({"gpus": 2}, spec(1, gpus=1), 2),
        ({"nodes": 3, "cores": 8}, nodes(1), 2),
        ({"cores": 0}, spec(1), 0),
    ],
    ids=["cores", "jobs", "gpus", "two", "none"],
)
def test_all_that_can_be_limited(policy, args, most, each, together):
    rig = Rig(R(4, 4, gpus=1) if "gpus" in most else R(4, 4))
    load(policy, args, {"one": {"per": "user", "max": most}}, rig)
    rig.alloc(range(1, 5), each, userid=7)
    assert len(rig.started()) == together


@POLICIES
@pytest.mark.parametrize(
    "per, started",
    [
        ("user", [1, 2, 4]), ("bank", [1, 2, 3]), ("queue", [1, 2]), ("user+queue", [1, 2, 4]),
        ("bank+queue", [1, 2, 3]), ("instance", [1]),
    ],
)  # fmt: skip
def test_whose_jobs_are_counted_together(policy, args, per, started):
    rig = load(policy, args, {"one": {"per": per, "max": {"jobs": 1}}})
    for jobid, userid, bank, queue in (
        (1, 7, "red", "a"), (2, 8, "blue", "b"), (3, 7, None, "a"), (4, 9, "red", "a"), (5, 7, "red", "a"),
    ):  # fmt: skip
        keys = {"bank": bank, "queue": queue}
        keys = {key: value for key, value in keys.items() if value}
        rig.alloc(jobid, spec(1, **keys), userid=userid)
    assert rig.started() == started


@POLICIES
def test_for_whom_a_limit_is(policy, args):
    limit = {"per": "instance", "queues": ["batch"], "banks": ["red"], "users": ["7", "8", "root"]}
    limit.update(exempt={"users": ["8"], "banks": ["blue"]}, max={"jobs": 0})
    queues = {"batch": {}, "expedite": {"parent": "batch"}}
    rig = load(policy, args, {"one": limit}, queues=queues)
    for jobid, userid, bank, queue in (
        (1, 7, "red", "batch"), (2, 7, "red", "expedite"),  # the name of the parent covers it
        (3, 7, "red", "other"), (4, 7, "blue", "batch"), (5, 8, "red", "batch"), (6, 9, "red", "batch"),
        (7, 0, "red", "batch"),
    ):  # fmt: skip
        rig.alloc(jobid, spec(1, bank=bank, queue=queue), userid=userid)
    assert rig.started() == [3, 4, 5, 6]


# -- waiting ---------------------------------------------------------------------------------------


@POLICIES
def test_jobs_that_wait_for_a_limit_are_counted_also_if_they_may_share_nodes(policy, args):
    rig = load(policy, args, {"one": {"per": "instance", "max": {"nodes": 3}}})
    rig.alloc(1, spec(nodes=2))
    rig.arrive({2: spec(nodes=4), 3: nodes(2)}, wait=2)
    waiting = [rig.reason(2), rig.reason(3)]
    assert waiting == [
        "limit one: needs 4 nodes, at most 3 are allowed", "limit one: 2 of 3 nodes are in use; needs 2",
    ]  # fmt: skip
    assert rig.answer("limits")["limits"][0]["waiting"] == 2


def test_jobs_that_wait_for_the_rest_of_a_limit_are_counted():
    rig = load("sched-backfill", (), {"one": {"per": "instance", "max": {"jobs": 2}}}, nodes=6)
    rig.alloc(1, nodes(4))
    rig.arrive(2, nodes(4), wait=2)
    rig.arrive(3, nodes(1, duration=300), wait=2)
    assert rig.reason(3) == "limit one: the rest is kept for a job that was promised a start"
    assert rig.answer("limits")["limits"][0]["waiting"] == 1


@POLICIES
def test_a_job_larger_than_its_limit_waits_or_is_denied(policy, args):
    limits = {
        "one": {"per": "user", "queues": ["a"], "max": {"nodes": 2}},
        "two": {"per": "user", "queues": ["b"], "max": {"nodes": 2, "cores": 1}, "deny": True},
    }
    rig = load(policy, args, limits)
    rig.alloc({1: nodes(3, queue="a"), 2: nodes(3, queue="b"), 3: spec(2, queue="b")}, userid=7)
    rig.alloc(4, spec(3, nodes=3, queue="a"), userid=7)  # not whole nodes, but three
    rig.alloc(5, spec(9, queue="a"), userid=7)  # at best four cores on each of three
    assert rig.started() == []
    for jobid in (1, 4, 5):
        assert rig.reason(jobid) == "limit one: needs 3 nodes, at most 2 are allowed"
    assert rig.denied(2) == "limit two: needs 3 nodes, at most 2 are allowed"
    assert rig.denied(3) == "limit two: needs 2 cores, at most 1 is allowed"
    assert [one["limit"] for one in rig.answer("limits")["limits"]] == ["one"]


@POLICIES
def test_slots_on_at_best_more_nodes_than_are_allowed_can_never_start(policy, args):
    small = {"rank": "0-3", "children": {"core": "0-1"}}
    large = {"rank": "4", "children": {"core": "0-7"}}
    machine = R(5, 8)
    machine["execution"]["R_lite"] = [small, large]
    limit = {"per": "user", "users": ["7"], "max": {"nodes": 2}, "deny": True}
    rig = Rig(machine, policy, *args, config={"limits": {"one": limit}})
    rig.alloc({1: spec(10), 2: spec(11)}, userid=7)
    assert rig.started() == [1]
    assert rig.denied(2) == "limit one: needs 3 nodes, at most 2 are allowed"


@POLICIES
@pytest.mark.parametrize("canceled", [False, True])
def test_order_strict_keeps_the_allowance_for_the_first(policy, args, canceled):
    limits = {"one": {"per": "user", "max": {"nodes": 3}, "order": "strict"}}
    rig = load(policy, args, limits)
    rig.arrive((1, 2), nodes(1), userid=7)
    rig.alloc({3: nodes(3), 4: nodes(1)}, userid=7)
    rig.alloc(5, nodes(1), userid=8)
    assert rig.started() == [1, 2, 5]
    assert rig.reason(4) == "limit one: behind ƒ4, which waits for it"
    if canceled:
        rig.cancel(3)
        assert rig.started() == [1, 2, 5, 4]
        return
    rig.free(1)
    assert rig.started() == [1, 2, 5]
    rig.free(2)
    assert rig.started() == [1, 2, 5, 3]
    rig.free(3)
    assert rig.started() == [1, 2, 5, 3, 4]


def waits_for_a_strict_limit(policy, args, *waiting):
    """Of 5 nodes for all jobs, job 1 has 3; the others (number of nodes, priority) are waiting."""
    limits = {"one": {"per": "instance", "max": {"nodes": 5}, "order": "strict"}}
    rig = load(policy, args, limits, nodes=8)
    rig.alloc(1, nodes(3, duration=100))
    for jobid, (count, priority) in enumerate(waiting, 2):
        rig.arrive(jobid, nodes(count, duration=100), priority=priority)
    assert rig.started() == [1]
    return rig


@POLICIES
@pytest.mark.parametrize("jobid, priority", [(2, 8), (3, 20)])
def test_the_first_for_a_strict_limit_follows_from_changed_priorities(
    policy, args, jobid, priority
):
    rig = waits_for_a_strict_limit(policy, args, (4, 16), (4, 16))
    rig.prioritize((jobid, priority))
    rig.alloc(4, nodes(1, duration=100), priority=10 if jobid == 2 else 18)
    assert rig.started() == [1]
    assert rig.reason(4) == "limit one: behind ƒ4, which waits for it"


@POLICIES
@pytest.mark.parametrize("ends, then", [(2, [4, 3]), (1, [3, 4])], ids=["over", "no longer over"])
def test_over_a_soft_limit_a_job_goes_behind_all_others(policy, args, ends, then):
    limits = {"one": {"per": "user", "max": {"nodes": 2}, "soft": True}}
    rig = load(policy, args, limits)
    rig.alloc(1, nodes(2), userid=7)
    rig.arrive(2, nodes(2), userid=8)
    rig.arrive(3, nodes(2), userid=7, priority=31)
    rig.arrive(4, nodes(2), userid=9)
    rig.free(ends)
    assert rig.started() == [1, 2, then[0]]
    rig.free(then[0])
    assert rig.started() == [1, 2, *then]


@pytest.mark.parametrize("other, kind", [(7, "planned"), (8, "promised")])
def test_a_start_is_planned_while_a_job_of_the_user_waits_that_may_take_more_nodes(other, kind):
    """Job 2 can run on one node or on two."""
    limits = {"one": {"per": "user", "users": ["7"], "max": {"nodes": 2}}}
    rig = load(Backfill, ("promises=2",), limits)
    rig.arrive(1, nodes(4), userid=8)
    rig.alloc(2, spec(2, cores=2, duration=50), userid=other)
    rig.alloc(3, nodes(1, duration=50), userid=7)
    assert rig.estimate(3) == (100, kind)


# -- reservations, reload --------------------------------------------------------------------------


@POLICIES
@pytest.mark.parametrize("counts", [True, False])
def test_jobs_in_a_reservation(policy, args, counts):
    limits = {"one": {"per": "user", "max": {"nodes": 1}, "in-reservations": counts}}
    rig = Rig(R(4, 4))
    table = {"start": "2020-01-01T00:00:00Z", "duration": "30000d", "nodes": 2, "users": ["7"]}
    load(policy, args, limits, rig, reservations={"class": table})
    rig.arrive({1: nodes(1), 2: nodes(1, reservation="class")}, userid=7, wait=2)
    assert rig.started() == ([1] if counts else [1, 2])
    rig.free(1)
    assert rig.started() == [1, 2]


@POLICIES
@pytest.mark.parametrize("free, left", [(None, 0), ("0", 1)], ids=["ended", "partly"])
def test_resources_freed_while_a_scheduler_asks_about_running_jobs(policy, args, free, left):
    """The job manager announces nothing between hello and ready."""
    rig = Rig(R(4, 4))
    rig.will_be_found(8, R("0-1", 4), nodes(1), userid=7, free="")
    rig.will_be_found(9, R("2", 4), nodes(1), userid=7)
    answer = rig.info.answer_attributes

    def comes_back(*asked):
        rig.manager.running[0]["free"] = free
        if free is None:
            del rig.manager.running[0]
        rig.info.answer_attributes = answer
        answer(*asked)

    rig.info.answer_attributes = comes_back
    load(policy, args, {"one": {"per": "bank", "max": {"nodes": 4}}}, rig)
    assert used(rig) == {("",): (left + 1, 4 * (left + 1), 0, 1 + bool(left))}
    rig.alloc(1, nodes(3 - left), userid=7)
    assert rig.started() == [1]
    if left:
        rig.free(8, part_of(rig.info.R[8], "1"), wait=0)
    assert used(rig) == {("",): (4 - left, 4 * (4 - left), 0, 2)}


@POLICIES
def test_jobs_that_run_when_the_scheduler_is_loaded(policy, args):
    rig = Rig(R(4, 4))
    rig.will_be_found(8, R("0", 4), nodes(1, bank="red"), userid=7)
    rig.will_be_found(9, R("1", 4), nodes(1, bank="blue"), userid=7)
    rig.will_be_found(10, R("2", 4), userid=7)
    limits = {per: {"per": per, "max": {"nodes": most}} for per, most in (("bank", 1), ("user", 4))}
    load(policy, args, limits, rig)
    assert used(rig, "bank") == dict.fromkeys([("red",), ("blue",), ("",)], (1, 4, 0, 1))
    assert used(rig, "user") == {(7,): (3, 12, 0, 3)}
    said = "ƒB: jobspec cannot be read: [Errno 22] jobspec of job 10 is not known"
    assert rig.logged(4) == [said]
    rig.alloc(1, nodes(1, bank="red"), userid=7)
    assert rig.started() == []
    rig.free(8, rig.info.R[8])
    assert rig.started() == [1]


@POLICIES
def test_a_start_that_cannot_be_answered_does_not_count(policy, args):
    class Broken:
        def alloc_success(self, msg, R, annotations=None):
            if msg.payload["id"] == 1:
                raise RuntimeError("a bug of the site")
            super().alloc_success(msg, R, annotations)

    rig = load(type(policy.__name__, (Broken, policy), {}), args, PER_USER)
    rig.alloc(1, nodes(2), userid=7)
    assert "a bug of the site" in rig.denied(1)
    rig.alloc(2, nodes(2), userid=7)
    assert rig.started() == [2]


@pytest.mark.parametrize(
    "table, text",
    [
        ({}, "per is missing: expected 'user' or 'bank' or"),
        ({"per": "user"}, "max is missing: expected a table such as {nodes=64}"),
        (7, "7: expected a table"),
        ({"per": "user", "max": 3}, "max=3: expected a table"),
        ({"per": "user", "max": {}}, "max: expected one of nodes, cores, gpus, jobs"),
        ({"per": "user", "max": {"nodes": 1.5}}, "max.nodes=1.5: expected a whole number"),
        ({"per": "user", "max": {"nodes": True}}, "max.nodes=True: expected a whole number"),
        ({"per": "user", "max": {"jobs": 1}, "soft": 1}, "soft=1: expected true or false"),
        ({"per": "user", "queues": [""]}, "queues=['']: expected a list of names"),
        ({"per": "user", "max": {"nodes": -1}}, "max.nodes=-1: expected a whole number"),
        ({"per": "user", "max": {"jobs": 1}, "queue": ["a"]}, "queue: unknown key: is 'queues' meant?"),
        ({"per": "user", "max": {"node": 1}}, "max.node: unknown key: is 'nodes' meant?"),
        ({"per": "user", "max": {"slots": 1}}, "max.slots: unknown key"),
        ({"per": "user", "max": {"jobs": 1}, "users": ["nobody-x"]}, "users: there is no user"),
        (
            {"per": "user", "max": {"jobs": 1}, "exempt": {"users": ["nobody-x"]}},
            "exempt.users: there is no user 'nobody-x'",
        ),
        ({"per": "user", "max": {"jobs": 1}, "exempt": {"queues": []}}, "exempt.queues: unknown"),
        ({"per": "user", "max": {"jobs": 1}, "order": "fair"}, "order='fair': expected 'pass'"),
        ({"per": "user", "max": {"jobs": 1}, "soft": True, "deny": True}, "soft: a job over"),
    ],
)  # fmt: skip
def test_mistakes_in_a_table(table, text):
    with pytest.raises(ValueError) as raised:
        read_limit("one", table)
    assert str(raised.value).startswith(text)


# -- answers ---------------------------------------------------------------------------------------


@POLICIES
def test_the_reason_that_explain_gives(policy, args):
    limits = {"one": {"per": "user", "queues": ["batch"], "max": {"nodes": 2}}}
    rig = load(policy, args, limits, nodes=3)
    rig.alloc(1, nodes(1, duration=100, queue="batch"), userid=7)
    rig.arrive(2, nodes(1, duration=300, queue="batch"), userid=7)
    rig.alloc(3, nodes(2, duration=10, queue="batch"), userid=7)
    job = rig.explain(3)
    assert job["reason"] == "limit one: ann has 2 of 2 nodes in batch; needs 2"
    assert job["limit"] == {
        "name": "one", "whose": "ann", "what": "nodes", "used": 2, "max": 2, "needs": 2, "t_again": rig.now + 300,
        "job": "ƒ3",
    }  # fmt: skip
    assert job["rules"] == [{"rule": "limit", "reason": job["reason"]}]
    assert job["fits"] is None  # one node is free, but not for ann
    rig.alloc(4, nodes(3, queue="batch"), userid=7)  # more than it may ever have
    job = rig.explain(4)
    assert (job["limit"]["t_again"], job["limit"]["job"]) == (None, None)


def test_the_use_shown_to_the_owner_and_to_a_guest():
    bank = {"per": "bank", "max": {"cores": 8, "jobs": 9}}
    limits = {"user": PER_USER["one"], "bank": bank, "all": {"per": "instance", "max": {"jobs": 4}}}
    rig = load(Backfill, (), limits)
    for jobid, userid in ((1, 7), (2, 8), (3, 7)):
        rig.alloc(jobid, nodes(1, bank=f"b{userid}"), userid=userid)
    rig.alloc(4, nodes(1, bank="b7"), userid=7)
    rows = {(one["limit"], one["whose"]): one for one in rig.answer("limits")["limits"]}
    assert set(rows) == {
        ("user", "ann"), ("user", "bob"), ("bank", "bank b7"), ("bank", "bank b8"), ("all", ""),
    }  # fmt: skip
    assert rows["user", "ann"] == {
        "limit": "user", "per": "user", "whose": "ann", "queues": [], "soft": False, "waiting": 1,
        "used": {"nodes": 2, "cores": 8, "gpus": 0, "jobs": 2},
        "max": {"nodes": 2, "cores": None, "gpus": None, "jobs": None},
    }  # fmt: skip
    rig.client.become(8)
    shown = {(one["limit"], one["whose"]) for one in rig.answer("limits")["limits"]}
    assert shown == {("user", "bob"), ("bank", "bank b8"), ("all", "")}
    rig.client.become(0)
    waiting = {one["name"]: one["waiting"] for one in rig.answer("stats")["limits"]}
    assert waiting == {"user": 1, "bank": 1, "all": 0}


@POLICIES
@pytest.mark.parametrize(
    "table, entry",
    [
        ("limits", {"max": {"gpus": 1}}),
        ("budgets", {"max": {"gpu-hours": 0.01}, "period": "year"}),
    ],
)
def test_whole_nodes_without_gpus_are_taken_where_gpus_are_limited(policy, args, table, entry):
    """The pool offers nodes with GPUs first; a job that asks for none waits for another node."""
    gpus = part_of(R(4, 4, 2), "0-1")["execution"]["R_lite"]
    machine = R(4, 4)
    machine["execution"]["R_lite"] = [*gpus, *part_of(machine, "2-3")["execution"]["R_lite"]]
    entry = {"per": "user", "users": ["7"], **entry}
    rig = Rig(machine, policy, *args, config={table: {"one": entry}})
    rig.alloc(1, nodes(1), userid=7)
    assert rig.started() == [1] and rig.ranks(1) == {2}
    rig.alloc(2, nodes(1, constraints={"ranks": ["3"]}), userid=8)
    rig.alloc(3, nodes(1), userid=7)
    assert rig.started() == [1, 2]
    rig.free(2)
    assert rig.started() == [1, 2, 3] and rig.ranks(3) == {3}


def test_with_latest_starts_every_job_within_a_limit_is_examined(monkeypatch):
    """Ann may run one job. When hers ends, the first 70 that wait would delay the head, bob's job
    on all nodes; the last would not."""
    rig = load("sched-backfill", ("promise=all",), {"one": {"per": "user", "max": {"jobs": 1}}})
    rig.alloc(1, nodes(1, duration=100), userid=7)
    rig.arrive(2, nodes(2, duration=1000), userid=8)
    rig.alloc(3, nodes(4, duration=1000), userid=9)
    rig.alloc(range(10, 80), nodes(1, duration=5000), userid=7)
    rig.arrive(80, nodes(1, duration=300), userid=7, wait=100)
    rig.free(1, wait=0)
    assert rig.started() == [1, 2, 80]


def test_no_job_waits_behind_one_that_has_started():
    """A walk may look at a job once more after its start."""
    limit = {"per": "bank", "banks": ["a"], "max": {"nodes": 5}, "order": "strict"}
    rig = load(Backfill, (), {"one": limit}, nodes=10)
    rig.arrive((1, 9), nodes(4))
    rig.alloc(2, nodes(4, bank="a"))
    assert rig.started() == [1, 9]
    job = rig.sched.pending(2)
    rig.free(1)
    assert rig.started() == [1, 9, 2]
    assert rig.sched.decision.would_be_deferred(job)
    rig.alloc(3, nodes(1, bank="a"))
    assert rig.started() == [1, 9, 2, 3]


STRICT_AND_USER = {
    "strict": {"per": "bank", "banks": ["red"], "max": {"nodes": 3}, "order": "strict"},
    "user": {"per": "user", "users": ["7"], "max": {"jobs": 1}},
}


@POLICIES
def test_nothing_is_left_to_the_first_from_when_another_limit_keeps_it_waiting(policy, args):
    rig = load(policy, args, STRICT_AND_USER, nodes=6)
    rig.alloc(1, nodes(2, bank="red"), userid=8)
    rig.alloc(2, nodes(2, bank="red"), userid=7)
    rig.alloc(3, nodes(1, bank="red"), userid=8)
    assert rig.started() == [1]
    rig.alloc(4, nodes(1), userid=7)
    assert sorted(rig.started()) == [1, 3, 4]


def test_a_job_behind_a_readmitted_one_does_not_keep_that_waiting():
    """Job 3 would end after the promised start of job 2, until this moves behind that of job 5."""
    limit = {"per": "user", "users": ["7"], "max": {"nodes": 3}, "order": "strict"}
    rig = load(Backfill, ("promise=2",), {"one": limit}, nodes=5)
    rig.alloc(1, nodes(3, duration=50), userid=8)
    rig.arrive(4, nodes(2, duration=40), userid=9)
    rig.arrive(2, nodes(3, duration=50), userid=7)
    rig.arrive(3, nodes(2, duration=60), userid=7)
    assert "job that was promised a start" in rig.reason(3)
    rig.arrive(5, nodes(3, duration=20), userid=8, priority=20)
    rig.arrive(6, nodes(2, duration=300), userid=7)
    rig.free(4)
    assert rig.started() == [1, 4, 3]
