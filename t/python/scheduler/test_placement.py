# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs in one rack, or in as few as can be: ``[topology.LEVEL]``."""

import pytest
from each_policy import POLICIES
from peers import R, Rig, jobspec
from test_preemption import batch, make, standby, tables
from test_reservations import listed

from flux.idset import IDset
from flux.scheduler.policies import Backfill

#: Sixteen nodes, four racks of four.
RACKS = {"rack": {"groups": {f"r{n}": f"n[{4 * n}-{4 * n + 3}]" for n in range(4)}}}


def load(policy=Backfill, args=(), topology=RACKS, rig=None, **config):
    rig = rig or Rig(R(16, 4))
    rig.load(policy, *args, config={"topology": topology, **config})
    return rig


def spec(nodes=1, placement=None, slots=4, duration=100, **keys):
    """A jobspec for whole nodes."""
    if placement is not None:
        keys["placement"] = placement
    return jobspec(slots, nodes=nodes, duration=duration, **keys)


def required(**more):
    return {"level": "rack", "mode": "required", **more}


def preferred(**more):
    return {"level": "rack", "mode": "preferred", **more}


def racks(rig, jobid, size=4):
    return sorted({rank // size for rank in rig.ranks(jobid)})


def occupy(rig, ids="1,2,3,4", ranks=(0, 4, 8, 12), duration=1000):
    """One node of each rack is in use."""
    for jobid, rank in zip(IDset(ids), ranks):
        only = {"ranks": [str(rank)]}
        rig.alloc(jobid, spec(1, constraints=only, duration=duration * (jobid % 10)))
    assert rig.started()[-len(ranks) :] == list(IDset(ids))


# -- required --------------------------------------------------------------------------------------


@POLICIES
def test_a_required_job_is_in_one_rack_and_waits_for_it(policy, args):
    rig = load(policy, args)
    rig.alloc((1, 2), spec(3, required()))
    rig.alloc(3, spec(4, required()))
    assert [len(racks(rig, jobid)) for jobid in (1, 2, 3)] == [1, 1, 1]
    rig.alloc(4, spec(2, required()))
    assert racks(rig, 4) not in (racks(rig, 1), racks(rig, 2)), "one node each is too few"
    rig.alloc(5, spec(3, required()))
    assert rig.started() == [1, 2, 3, 4]
    assert rig.reason(5) == ("placement: needs 3 nodes in one rack: 4 free, at most 2 in one rack")
    rig.check()
    rig.free(3)
    assert racks(rig, 5) == racks(rig, 3)


@POLICIES
def test_an_infeasible_request_is_denied_with_numbers(policy, args):
    rig = load(policy, args)
    text = "unsatisfiable request: need 5 nodes in one rack, at most 4 in one rack"
    rig.alloc(1, spec(5, required()))
    assert text in rig.denied(1)
    assert text in rig.ask("feasibility.check", {"jobspec": spec(5, required())})[1]
    assert rig.ask("feasibility.check", {"jobspec": spec(4, required())})[0] == 0
    assert rig.ask("feasibility.check", {"jobspec": spec(5, preferred())})[0] == 0
    found = rig.answer("when", jobspec=spec(5, required()))
    assert (found["verdict"], found["reason"]) == ("never", text)
    assert rig.answer("when", jobspec=spec(4, required()))["verdict"] == "now"
    rig.alloc({2: spec(6, required(segment=3)), 3: spec(20, required(segment=4))})
    rig.alloc(4, spec(15, required(segment=3)))
    assert rig.started() == [2] and len(racks(rig, 2)) == 2
    assert "20" in rig.denied(3)
    assert "need 5 segments of 3 nodes, each in one rack, there is room for 4" in rig.denied(4)


@pytest.mark.parametrize(
    "placement, text",
    [
        ("rack", "placement='rack': expected a table"),
        ({}, "placement.level is missing: expected the name of a level, such as rack"),
        ({"level": 5}, "placement.level=5: expected text"),
        ({"level": "pod"}, "placement.level='pod': there is no such level (known: rack)"),
        ({"level": "rack", "mode": "soon"}, "placement.mode='soon': expected 'required' or"),
        ({"level": "rack", "segment": 0}, "placement.segment=0: expected a whole number, 1 or more"),
        ({"level": "rack", "max": "2"}, "placement.max='2': expected a whole number, 1 or more"),
        ({"level": "rack", "switch": 1}, "placement.switch: unknown key"),
        ({"level": "rack", "wait": "5m"}, "placement.wait: a required level has no wait"),
        (preferred(wait="soon"), "placement.wait='soon': expected a length of time"),
        ({"level": "rack", "segment": 3}, "placement.segment=3: 4 nodes cannot be divided by that"),
    ],
)  # fmt: skip
def test_a_bad_attribute_is_denied_with_a_clear_note(placement, text):
    rig = load()
    rig.alloc(1, spec(4, placement))
    assert text in rig.denied(1)
    assert text in rig.ask("feasibility.check", {"jobspec": spec(4, placement)})[1]


def test_slots_without_nodes():
    rig = load()
    rig.alloc(1, jobspec(16, duration=9, placement=required()))
    assert len(racks(rig, 1)) == 1
    rig.alloc(2, jobspec(17, duration=9, placement=required()))
    rig.alloc(3, jobspec(2, duration=9, placement=required(segment=2)))
    assert "need 17 slots in one rack, at most 16 in one rack" in rig.denied(2)
    assert "placement.segment: the job has to ask for a number of nodes" in rig.denied(3)


def test_at_most_so_many_racks():
    rig = load()
    occupy(rig)
    rig.alloc((5, 6), spec(6, required(max=2)))
    assert len(racks(rig, 5)) == len(racks(rig, 6)) == 2
    rig.alloc(7, spec(9, required(max=2)))
    assert "need 9 nodes in at most 2 of level rack, at most 8 in 2 of them" in rig.denied(7)


def test_when_and_explain_say_why():
    rig = load()
    occupy(rig)
    found = rig.answer("when", jobspec=spec(4, required()))
    assert found["verdict"] == "later" and found["ranks"] == "0-3"
    rig.alloc(5, spec(4, required(), duration=500))
    line = rig.explain(5)
    text = "placement: needs 4 nodes in one rack: 12 free, at most 3 in one rack"
    assert line["reason"] == text
    assert line["placement"] == {**required(max=1), "segment": None, "until": None}
    assert line["fits"] == {"count": 3}


# -- preferred -------------------------------------------------------------------------------------


@POLICIES
def test_a_preferred_job_waits_for_a_rack_and_then_takes_any_nodes(policy, args):
    rig = load(policy, args)
    occupy(rig)
    rig.arrive(5, spec(4, preferred(wait="10m"), duration=500), wait=300)
    assert 5 not in rig.started()
    assert rig.reason(5) == "placement: needs 4 nodes in one rack: 12 free, at most 3 in one rack"
    rig.wait(301)
    assert len(racks(rig, 5)) == 2


def test_a_promise_is_made_for_a_rack_and_moves_when_the_wait_is_over():
    rig = load()
    occupy(rig)
    rig.arrive(5, spec(12, duration=100))
    rig.arrive(6, spec(4, preferred(wait=300), duration=500), wait=2)
    assert round(rig.shown(6)["t_estimate"] - rig.now) == 298
    rig.wait(310)
    assert rig.estimate(6) == (301, "planned")
    rig.free(5)
    assert 6 in rig.started()


# -- everyone else ---------------------------------------------------------------------------------


def test_nodes_of_no_group():
    rig = load(topology={"rack": {"groups": {"a": "n[0-3]", "b": "n[4-7]"}}})
    rig.alloc({1: spec(4), 2: spec(4, required()), 3: spec(5, required())})
    assert rig.ranks(1) <= set(range(8, 16)), "they are of no use to others"
    assert rig.ranks(2) == {0, 1, 2, 3}
    assert "need 5 nodes in one rack, at most 4 in one rack" in rig.denied(3)


# -- the table -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry, text",
    [
        ({}, "groups: expected groups, or a property-prefix, and not both"),
        ({"groups": {}}, "groups={}: expected at least one"),
        ({"groups": "n[0-3]"}, "groups='n[0-3]': expected a table"),
        ({"groups": {"a": "n[0-"}}, "groups.a='n[0-': expected hosts such as 'n[0-17]'"),
        ({"groups": {"a": 5}}, "groups.a=5: expected hosts such as 'n[0-17]'"),
        ({"groups": {"a": "n[0-3]", "b": "n[3-5]"}}, "groups.b='n[3-5]': 1 node of it in group a as well"),
        ({"property-prefix": 1}, "property-prefix=1: expected text"),
        ({"property-prefix": "r-", "size": 4}, "size: unknown key"),
    ],
)  # fmt: skip
def test_a_fault_in_the_table_is_one_line_and_the_old_one_stays(entry, text):
    rig = load()
    before = len(rig.logged())
    rig.reconfigure({"topology": {"rack": entry}})
    lines = [line for line in rig.logged()[before:] if "topology" in line]
    assert lines == [line for line in lines if f"configuration: [topology.rack] {text}" in line]
    assert len(lines) == 1
    rig.alloc(1, spec(4, required()))
    assert len(racks(rig, 1)) == 1


@POLICIES
def test_a_table_that_changes_under_jobs_that_wait(policy, args):
    rig = load(policy, args)
    occupy(rig)
    rig.alloc(5, spec(4, required(), duration=500))
    rig.reconfigure({"topology": {"rack": {"groups": {"left": "n[0-7]", "right": "n[8-15]"}}}})
    assert len({rank // 8 for rank in rig.ranks(5)}) == 1
    rig.alloc(6, spec(8, required(), duration=500))
    assert 6 not in rig.started()
    rig.check()
    rig.reconfigure({"topology": {}})
    assert 6 in rig.started(), "without a table the attribute has no meaning"


def test_groups_by_properties_follow_the_properties():
    properties = {"rack-a": "0-7", "rack-b": "8-15", "other": "0"}
    by_prefix = {"rack": {"property-prefix": "rack-"}}
    rig = load(topology=by_prefix, rig=Rig(R(16, 4, properties=properties)))
    rig.alloc((1, 2), spec(5, required()))
    assert rig.shown(1)["placement"] == "rack a"
    assert rig.shown(2)["placement"] == "rack b"


# -- beside other rules ----------------------------------------------------------------------------


def busy(may_end, empty=()):
    """Sixteen nodes, each with a job on it; those of queue standby may be ended for those of batch."""
    instance = make(nodes=16, config={**tables(standby={"queues": ["standby"]}), "topology": RACKS})
    jobs = {}
    for rank in set(range(16)) - set(empty):
        submit = standby if rank in may_end else batch
        jobs[rank] = submit(instance, duration=10000, constraints={"ranks": [str(rank)]})
        instance.advance(10)  # the later one loses less
    return instance, jobs


def ended(jobs):
    """The ranks on which jobs were ended."""
    return {rank for rank, job in jobs.items() if job.state != "running"}


def test_segments_are_made_room_for_in_several_racks():
    instance, jobs = busy(may_end={0, 1, 2, 4, 8, 9, 12})
    job = batch(instance, 4, 500, placement=required(segment=2))
    instance.advance(100)
    assert job.state == "running" and ended(jobs) == set(IDset(job.ranks))
    assert ended(jobs) in ({0, 1, 8, 9}, {1, 2, 8, 9})


@pytest.mark.parametrize("empty", [{4, 8, 12}, {4, 8}], ids=["room elsewhere", "too little"])
def test_no_job_is_ended_for_a_mere_preference(empty):
    instance, jobs = busy(may_end={0, 1, 2, 3}, empty=empty)
    job = batch(instance, 3, 500, placement=preferred(wait=600))
    instance.advance(500)
    assert job.state == "pending" and not ended(jobs)
    answer = instance.request("sched.preempt", {"id": job.id, "dry_run": True})
    assert "preference" in answer["reason"], answer
    instance.advance(150)
    assert job.state == "running" and len(ended(jobs)) == 3 - len(empty)
    assert set(IDset(job.ranks)) == empty | ended(jobs)


def test_stats_and_windows_have_idle_groups_and_who_waits_for_them():
    blocks = {"block": {"groups": {"b0": "n[0-7]", "b1": "n[8-15]"}}}
    rig = load(topology={**RACKS, **blocks})

    def told():
        levels = rig.answer("windows")["levels"]
        assert rig.answer("stats")["topology"] == levels
        return {one.pop("level"): one for one in levels}

    whole = {"groups": 4, "idle_groups": 4, "nodes": 16, "idle_nodes": 4, "waiting": 0}
    block = {**whole, "groups": 2, "idle_groups": 2, "idle_nodes": 8}
    assert told() == {"rack": whole, "block": block}
    occupy(rig, ids="1,2", ranks=(0, 4))
    rig.resource.update(down="8")
    rig.settle()
    idle = {name: (one["idle_groups"], one["idle_nodes"]) for name, one in told().items()}
    assert idle == {"rack": (1, 4), "block": (0, 7)}, "one has a node down"
    rig.alloc(3, spec(4, required()))  # has the last one
    rig.alloc({4: spec(4, required()), 5: spec(4, preferred(wait=100))})
    rig.arrive({6: spec(8, {"level": "block"}), 7: spec(16)})
    found = told()
    assert found["rack"]["waiting"] == 2 and found["block"]["waiting"] == 1
    assert (found["rack"]["idle_groups"], found["rack"]["idle_nodes"]) == (0, 3)
    rig.wait(101)
    assert told()["rack"]["waiting"] == 1, "one has given up to wait for that, or has started"


def test_a_guest_is_not_told_how_many_wait_in_private_mode():
    rig = load(access={"private-mode": True})
    assert rig.answer("windows")["levels"][0]["waiting"] == 0
    rig.client.become(1001)
    (level,) = rig.answer("windows")["levels"]
    assert level["idle_groups"] == 4 and "waiting" not in level
    assert load(topology={}).answer("windows")["levels"] == []


def chosen(rig):
    """By the name of each reservation, the ranks chosen for it (an idset)."""
    return {name: one["ranks"] for name, one in listed(rig).items()}


def test_a_pinned_window_does_not_mind_jobs_that_end_before():
    rig = load()
    occupy(rig, ranks=(0, 4, 8, 12))  # until 1000, 2000, 3000 and 4000 s from now
    rig.reserve("class", 3500, 1000, nodes=4, pin=True)
    assert chosen(rig) == {"class": "0-3"}
    rig.reserve("lesson", 3000, 1000, nodes=8, pin=True)
    assert chosen(rig)["lesson"] == "4-11"
    rig.reserve("early", 500, 100, nodes=4, pin=True)
    assert len(IDset(chosen(rig)["early"]) & IDset("0,4,8,12")) == 0


def test_a_node_of_a_pinned_window_that_fails_has_another_in_its_rack():
    rig = load()
    occupy(rig, ids="1", ranks=(0,), duration=10000)
    rig.reserve("class", 5000, 1000, nodes=3, pin=True)
    assert chosen(rig) == {"class": "1-3"}
    rig.reserve("other", 5000, 1000, nodes=3, pin=True)
    assert chosen(rig)["other"] == "4-6"
    rig.resource.update(down="5")
    assert chosen(rig)["other"] == "4,6-7"
    rig.resource.update(down="4")
    assert chosen(rig)["other"] == "6-8"
