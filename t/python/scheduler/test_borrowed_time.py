# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs of a low class that start in time promised to a job of a higher one: they are ended before it, which keeps the
promise, and no other job is promised the time that only their end frees."""

import json
import math
import random

import pytest
from peers import check_tables
from shared import require_long
from test_preemption import (
    KEY,
    OTHER,
    batch,
    exceptions,
    make,
    reconfigure,
    refuse_to_end,
    reloaded,
    standby,
    stats,
    tables,
)

from flux.idset import IDset
from flux.scheduler.site_policy.preemption.rule import PreemptionRule
from flux.scheduler.testing import FakeInstance, make_R

BORROWING = {"rank": 0, "queues": ["standby"], "grace": "2m", "into-promises": True}
EASY, MANY = ("sched-backfill",), ("sched-backfill", "promise=4")
POLICIES = [EASY, MANY, ("sched-backfill", "promise=unlimited")]
ALL = ("sched-backfill", "promise=all", "within=1m")
#: Seconds before a promised time at which a borrower is ended, and warned, before any was.
KILL_S, WARNING_S = 5, 125


def config(**more):
    return tables(standby={**BORROWING, **more})


def active(instance):
    return instance.scheduler._site_policy.rule(PreemptionRule)._active


def borrowers(instance):
    return [jobid for one in active(instance).values() if one.in_promise for jobid in one.held]


def lend(instance, nodes=2, duration=50000):
    """A job of batch on some of four nodes for 1000 s, one that was promised all of them then, and one
    of standby in its time."""
    first = batch(instance, 4 - nodes, duration=1000)
    taker = batch(instance, 4, duration=4000)
    borrower = standby(instance, nodes, duration=duration)
    return first, taker, borrower


def promised(job):
    sched = job.annotations["sched"]
    return sched.get("t_latest") or sched["t_estimate"]


@pytest.mark.parametrize("policy", POLICIES, ids=" ".join)
def test_a_borrower_is_ended_and_the_promise_is_kept(policy):
    instance = make(*policy, config=config())
    began = instance.now()
    first, taker, borrower = lend(instance, duration=5000)
    assert borrower.state == "running" and taker.state == "pending"
    when = promised(taker)
    assert when == pytest.approx(began + 1000, abs=2)
    assert borrower.annotations["sched"]["t_preempt"] == pytest.approx(when - KILL_S, abs=1)
    assert borrower.expiration == pytest.approx(began + 5000, abs=2)
    instance.advance(1000 - WARNING_S - 10)
    assert exceptions(borrower) == []
    instance.advance(20)
    assert len(exceptions(borrower)) == 1 and "for a job of batch" in exceptions(borrower)[0][1]
    assert borrower.state == "running"
    instance.advance(WARNING_S)
    assert borrower.note.startswith(f"preempted for {taker.name} (batch); ran 16m")
    assert taker.state == "running" and taker.t_start <= when + 1
    assert stats(instance)["standby"]["victims"] == 1
    assert stats(instance)["standby"]["useless"] == 0
    assert not active(instance)
    assert json.loads(instance.kvs.values[KEY]).get("borrowers") is None


@pytest.mark.parametrize("event", ["", "late", "more time", "reload"])
@pytest.mark.parametrize("short", [False, True], ids=["", "and-a-window-lacks-a-node"])
def test_a_latest_start_is_kept_although_it_is_lent(event, short):
    """A job that delays no head starts in the time of a job behind it. If another ends late, both
    times move together. No job is examined after the reload."""
    instance = make(*ALL, nodes=5 + short, config=config(wait="1h"))
    if short:
        window = {"name": "w", "start": instance.now() + 90000, "duration": 1000, "nodes": 6}
        instance.mark_down("5")
        instance.request("sched.reserve", {"reservation": {**window, "zone": "UTC"}})
    first = batch(instance, 3, duration=1000, runtime=1100 if event == "late" else 1000)
    head = batch(instance, 3, duration=1000)
    taker = batch(instance, 5, duration=4000)
    borrower = standby(instance, 1, duration=50000)
    assert borrowers(instance) == [borrower.id]
    instance.advance(500)
    if event == "more time":
        first.set_expiration(instance.now() + 700)
    elif event == "reload":
        reloaded(instance, *ALL)
    instance.advance(3000)
    assert first.t_end <= head.t_start <= first.t_end + 3
    assert head.t_end <= taker.t_start <= head.t_end + 3
    assert borrower.note.startswith("preempted for ")
    assert taker.t_start - 2 * KILL_S < borrower.t_end < taker.t_start
    latest = instance.scheduler.stats_get()["latest_starts"]
    assert latest["violated"] == 0 and latest["void"].get("late", 0) == 2 * (event == "late")


def test_a_borrower_runs_on_if_the_job_of_that_time_is_denied_then():
    instance = make(config=config())
    batch(instance, 2, duration=1000)
    taker = batch(instance, 4, duration=4000, **{"max-wait": 1000})
    borrower = standby(instance, 2, duration=5000)
    assert borrowers(instance) == [borrower.id]
    instance.advance(1100)
    assert taker.state == "inactive" and taker.note.startswith("max-wait")
    assert borrower.state == "running"


@pytest.mark.parametrize("key", [{"into-promises": False}, {"mode": "log"}])
def test_no_job_starts_in_promised_time(key):
    instance = make(config=config(**key))
    _, taker, borrower = lend(instance)
    assert borrower.state == taker.state == "pending"


def watch_promises(instance, jobs, told):
    """Keep the first time that each waiting job was promised."""
    for job in jobs:
        sched = job.annotations.get("sched") or {}
        if job.state == "pending" and (
            sched.get("t_latest") or sched.get("t_estimate_kind") == "promised"
        ):
            told.setdefault(job.id, promised(job))


def whole_nodes(chance, queue):
    return {
        "nodes": chance.choice((3, 5, 7, 8) if queue == "batch" else (1, 2, 3)),
        "exclusive": True,
    }


def parts_of_nodes(chance, queue):
    """Slots of cores and GPUs anywhere or on whole nodes, some on certain ranks."""
    if queue == "batch" and chance.random() < 0.5:
        asked = whole_nodes(chance, queue)
    else:
        slots = chance.choice((4, 8, 12, 16) if queue == "batch" else (1, 2, 4))
        asked = {"slots": slots, "cores": chance.choice((1, 2)), "gpus": chance.choice((0, 0, 1))}
    if chance.random() < 0.3:
        asked["constraints"] = {"ranks": [chance.choice(("0-3", "4-7", "2-7"))]}
        asked["nodes"] = asked.get("nodes") and min(asked["nodes"], 4)
        asked["slots"] = min(asked.get("slots", 1), 4)
    return asked


def parts_by_user(chance, queue):
    """As before, of three users, who share no node."""
    return {**parts_of_nodes(chance, queue), "userid": 1000 + chance.randrange(3)}


def with_licences(chance, queue):
    """Whole nodes; some jobs need planned licences, too."""
    return {**whole_nodes(chance, queue), "licenses": {"matlab": chance.randint(1, 2)}}


def mixed(chance, queue):
    """Parts of nodes of three users, some with memory and planned licences, some in one rack."""
    asked = parts_by_user(chance, queue)
    asked["memory"] = chance.choice((None, "1G", "2G"))
    asked["licenses"] = chance.choice((None, {"matlab": 1}, {"matlab": 2}))
    if chance.random() < 0.3:
        asked["placement"] = {"level": "rack", "mode": "required"}
        asked["nodes"] = asked.get("nodes") and min(asked["nodes"], 4)
        asked["slots"] = min(asked.get("slots", 1), 4)
    return {key: value for key, value in asked.items() if value is not None}


def limited(chance, queue):
    """Parts of nodes for two banks, whose cores are limited."""
    return {**parts_of_nodes(chance, queue), "bank": chance.choice("ab")}


LIMITS = {"limits": {"bank": {"per": "bank", "max": {"cores": 18}}}}
SHARING = {"sharing": {"all": {"mode": "user"}}}
PLANNED = {"licenses": {"matlab": {"total": 3, "plan": True}}}
RACKS = {"topology": {"rack": {"groups": {"a": "n[0-3]", "b": "n[4-7]"}}}}
MIXED = {**SHARING, **PLANNED, **RACKS, "amounts": {"memory": "8G"}}
TABLES = {limited: LIMITS, parts_by_user: SHARING, with_licences: PLANNED, mixed: MIXED}


def disturb(instance, chance, policy, told):
    """Do what breaks no promise: reload the scheduler or the configuration, free a part of a running
    job, shorten its limit, or lower the urgency of the last job."""
    what, running, waiting = chance.randrange(5), instance.running(), instance.pending()
    if what == 0 and policy == ALL:
        reloaded(instance, *policy)
        instance.advance(5)
        told.update({one: when + 5 for one, when in told.items()})
    elif what == 1:
        reconfigure(instance, {**instance.config})
    elif what == 2 and running:
        one = chance.choice(running)
        left = set(IDset(one.ranks)) - (one.freed or set())
        if len(left) > 1:
            one.release(str(min(left)))
    elif what == 3 and running:
        one = chance.choice(running)
        end = instance.now() + chance.random() * (one.expiration - instance.now())
        if end > instance.now() + 1:
            one.set_expiration(end)
            instance.reactor.call_at(end, lambda: one.state == "running" and one.end())
    elif what == 4 and waiting:
        told[waiting[-1].id] = math.inf
        waiting[-1].set_priority(8)


def play(kind, seed, policy, cancels, into_promises=True, disturbed=False):
    """Submit random jobs of three classes. Return the borrowers, after all promises were kept."""
    chance, others = random.Random(seed), random.Random(f"others {seed}")
    standby = {**BORROWING, "into-promises": into_promises, "grace": 20, "after": 30, "wait": "1h"}
    low = {"rank": 1, "queues": ["low"], "into-promises": into_promises and seed % 2 == 0}
    classes = {"standby": standby, "low": {**low, "wait": "1h"}}
    queues = {"batch": {}, "standby": {}, "low": {}}
    R = None if kind in (whole_nodes, with_licences) else make_R(8, 4, gpus=1)
    config = {**tables(queues=queues, **classes), **TABLES.get(kind, {})}
    instance = FakeInstance(8, 4, R=R, config=config, estimates=False)
    instance.load(*policy)
    told, jobs, lent = {}, [], set()
    for _ in range(80):
        queue = chance.choice(("batch", "standby", "low", "standby"))
        duration = chance.choice((100, 300, 1000, 4000))
        runtime = chance.choice((duration, duration, duration / 3))
        asked = {**kind(chance, queue), "queue": queue, "duration": duration}
        jobs.append(instance.submit(runtime=runtime, **asked))
        for _ in range(chance.choice((1, 5, 10, 20))):
            watch_promises(instance, jobs, told)
            instance.advance(25)
            lent.update(borrowers(instance))
        waiting = [one for one in jobs if one.state == "pending"]
        if cancels and waiting and chance.random() < 0.2:
            chance.choice(waiting).cancel()
        if disturbed:
            disturb(instance, others, policy, told)
        check_tables(instance)
    instance.advance(100000)
    if kind is limited and policy == ALL:  # a limit may withdraw a latest start; nothing else may
        latest = instance.scheduler.stats_get()["latest_starts"]
        assert latest["violated"] == 0 and latest["void"].keys() <= {"deferred"}
        told.clear()
    late = {
        one.id: (one.t_start, told[one.id])
        for one in jobs
        if one.id in told and one.t_start and one.t_start > told[one.id] + 0.1
    }
    assert late == {}
    by_name = {one.name: one for one in jobs}
    for one in jobs:
        if one.note and one.note.startswith("preempted for "):
            taker = by_name[one.note.split()[2]]
            if not cancels:
                assert IDset(taker.ranks).intersect(IDset(one.ranks))
    return lent


@pytest.mark.parametrize("cancels", [False, True], ids=["", "cancels"])
@pytest.mark.parametrize(
    "kind, seed, policy",
    [(whole_nodes, seed, policy) for seed in (0, 1, 3) for policy in POLICIES]
    + [(parts_of_nodes, seed, policy) for seed in (0, 3, 5) for policy in POLICIES]
    + [(whole_nodes, seed, ALL) for seed in (1, 3, 11)]
    + [(parts_of_nodes, seed, ALL) for seed in (0, 6, 11)]
    + [(parts_by_user, seed, policy) for seed in (0, 2, 10) for policy in (*POLICIES, ALL)]
    + [(with_licences, seed, policy) for seed in (1, 8, 26) for policy in (EASY, MANY)]
    + [(with_licences, seed, ALL) for seed in (2, 7, 10)]
    + [(limited, 22, policy) for policy in POLICIES]
    + [(mixed, seed, policy) for seed in (10, 21, 28) for policy in (*POLICIES, ALL)],
)
def test_all_promises_are_kept_whoever_borrows_and_whatever_is_canceled(
    kind, seed, policy, cancels
):
    number = 0 if policy == ALL else POLICIES.index(policy)
    if cancels != (seed + number) % 2:
        require_long()
    assert play(kind, seed, policy, cancels), "nobody has borrowed: this shows nothing"


@pytest.mark.parametrize(
    "kind, seed, policy, cancels, into_promises",
    [
        # others are promised no part of a taker's nodes that its user alone may use
        (parts_by_user, 44, EASY, True, False),
        # a promise is made on the ranks of a taker's own promise when that is given up for a start
        (parts_of_nodes, 235, ALL, False, True),
        (parts_by_user, 113, ALL, False, True),
        # and when borrowers of the taker may run on
        (parts_of_nodes, 256, ("sched-backfill", "promise=all", "within=20m"), False, True),
        # a job that may not borrow after all keeps its own; no other moves to its ranks meanwhile
        (parts_of_nodes, 12, ALL, False, True),
        (parts_of_nodes, 100, ALL, False, True),
        # no licence is promised that a victim or a taker has then
        (with_licences, 0, MANY, True, False),
        (with_licences, 3, EASY, True, False),
        (with_licences, 6, MANY, False, False),
        # nor a part of a limit: for jobs that end before it, but not before another that it overlaps;
        # when it moves to an earlier time; when others end for it
        (limited, 51, MANY, False, False),
        (limited, 97, MANY, False, False),
        (limited, 120, EASY, False, False),
        # borrowers end for a limit that has room at the promised time, and not before
        (limited, 172, EASY, False, True),
        (limited, 203, MANY, False, True),
        (limited, 210, ALL, False, True),
        # a pass goes on after a job beside the heads is deferred
        (limited, 94, ALL, False, True),
    ],
)
def test_a_promise_is_kept_that_was_once_broken(kind, seed, policy, cancels, into_promises):
    play(kind, seed, policy, cancels, into_promises)


@pytest.mark.parametrize("seed", range(200))
def test_all_promises_are_kept_whatever_else_happens(seed):
    if seed >= 12:
        require_long()
    kinds = (whole_nodes, parts_of_nodes, parts_by_user, with_licences, mixed)
    policy = (*POLICIES, ALL, ALL)[seed % 5 - seed // 5 % 5]
    play(kinds[seed % 5], seed, policy, False, into_promises=seed % 2 == 0, disturbed=True)


# -- borrowers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        ("sched-fifo",),
        ("sched-simple",),
        ("sched-backfill", "promise=0"),
        ("sched-backfill", "rank=wfp3"),
        ("sched-backfill", "guarantee=none"),
    ],
    ids=" ".join,
)
def test_where_no_promise_is_kept_at_its_time_no_job_borrows(policy):
    instance = make(*policy, config=config())
    first, taker, job = lend(instance)
    assert not active(instance)
    instance.advance(900)
    assert first.state == "running" and exceptions(job) == []


# -- ends of borrowers -----------------------------------------------------------------------------


def lend_one_of_two(instance, runtime=400):
    """On four nodes: a job on two of them for 400 s, one that was promised two nodes then, and a
    borrower of one of these, beside which the rest is promised to others."""
    batch(instance, 1, duration=1100)
    first = batch(instance, 2, duration=400, runtime=runtime)
    taker = batch(instance, 2, duration=1000)
    standby(instance, 2, duration=200)
    borrower = standby(instance, 1, duration=1150)
    other = standby(instance, 1, duration=200)
    assert [job.state for job in (taker, borrower, other)] == ["pending", "running", "pending"]
    assert promised(taker) == pytest.approx(promised(other), abs=1)
    return first, taker, borrower, other


def test_a_borrower_on_ranks_that_a_moved_promise_leaves_out_runs_on():
    """Others may be promised its rank only after its own end, as if the promise was withdrawn."""
    instance = make("sched-backfill", "promise=unlimited", config=config())
    batch(instance, 2, constraints={"ranks": ["0,2"]})
    late = batch(instance, duration=200, constraints={"ranks": ["1"]})
    taker = batch(instance, 2)
    borrower = standby(instance, duration=3000, constraints={"ranks": ["3"]})
    assert borrowers(instance) == [borrower.id]
    late.set_expiration(instance.now() + 5000)
    other = standby(instance, duration=500, constraints={"ranks": ["3"]})
    instance.advance(5)
    assert instance.scheduler.planning.current().ranks_of(taker.id) == 0b101
    assert borrowers(instance) == [] and promised(other) == instance.start_time + 3000
    taker.cancel()
    instance.advance(3500)
    assert (borrower.result, other.t_start) == ("completed", instance.start_time + 3000)


def test_memory_that_a_borrower_has_given_back_is_kept_too():
    """A core is idle beside it, so that only the memory is in the way."""
    instance = make("sched-backfill", "pool-amounts=memory=8G", config=config(), nodes=1)
    shared = {"nodes": None, "exclusive": False}
    batch(instance, cores=2, memory="2G", **shared)
    taker = batch(instance, cores=4, memory="8G", **shared)
    borrower = standby(instance, memory="6G", **shared)
    instance.advance(996)
    assert borrower.note.startswith(f"preempted for {taker.name}")
    short = standby(instance, duration=2, memory="1G", **shared)
    instance.advance(1)
    assert short.state == taker.state == "pending"
    instance.advance(10)
    assert taker.state == "running"


def test_a_job_whose_rule_refuses_its_kept_resources_waits_for_the_rule():
    """It could be on one node, as the limit wants, and would get parts of two."""
    limits = {"batch": {"per": "user", "queues": ["batch"], "max": {"nodes": 1}}}
    queues = {"batch": {}, "standby": {}, "debug": {}}
    instance = make(config={**tables(queues, standby=BORROWING), "limits": limits}, nodes=2)
    half = {"nodes": None, "slots": 2, "exclusive": False}
    ends = [50000, 50000, 1000]
    for rank, duration in zip("010", ends):
        on = {"constraints": {"ranks": [rank]}}
        others = batch(instance, queue="debug", duration=duration, **half, **on)
    taker = batch(instance, None, slots=4, exclusive=False)
    borrower = standby(instance, **half)
    assert borrower.state == "running"
    instance.advance(1100)
    assert borrower.note.startswith("preempted for ") and others.state == "inactive"
    assert taker.state == "pending" and "limit batch" in taker.reason_pending
    assert stats(instance)["standby"]["useless_by"] == {"rule": 1}
    assert not active(instance)
    assert standby(instance, **half).state == "running"


def test_a_job_that_a_pass_defers_when_its_time_has_come_has_ended_others_for_nothing():
    instance = make(config=config())
    batch(instance, 2, duration=1000, runtime=1010, userid=OTHER)
    taker = batch(instance, 4)
    borrower = standby(instance, 2, duration=50000)
    instance.advance(997)
    assert borrower.note.startswith("preempted for ")
    limits = {"batch": {"per": "user", "queues": ["batch"], "max": {"nodes": 3}}}
    reconfigure(instance, {**config(), "limits": limits})
    instance.advance(100)
    assert taker.state == "pending" and "limit batch" in taker.reason_pending
    assert stats(instance)["standby"]["useless_by"] == {"rule": 1}
    assert not active(instance)


def test_kept_resources_are_for_all_when_another_job_outlives_its_limit():
    instance = make("sched-backfill", "promise=unlimited", config=config())
    _, taker, _, other = lend_one_of_two(instance, runtime=700)
    instance.advance(396 + 30)
    assert active(instance)[taker.id].placeholders
    assert taker.state == other.state == "pending"
    instance.advance(40)
    assert not active(instance)[taker.id].placeholders
    assert taker.state == "pending" and other.state == "running"


def test_a_borrower_that_cannot_be_ended_is_left_alone():
    instance = make(config=config(), check_errors=False)
    first, taker, borrower = lend(instance)
    refuse_to_end(instance, borrower)
    instance.advance(1100)
    assert borrower.state == "running" and taker.state == "pending"
    assert not active(instance)
    assert "Operation not permitted" in "\n".join(instance.errors)


def test_more_time_changes_nothing_for_the_promise():
    instance = make(config=config())
    first, taker, borrower = lend(instance, duration=5000)
    borrower.set_expiration(instance.now() + 90000)
    instance.advance(1010)
    assert taker.state == "running" and borrower.result == "failed"


def test_a_slow_clean_up_is_reckoned_with_the_next_time():
    instance = make(config=config())
    first, taker, borrower = lend(instance)
    borrower.clean_up = 60.0
    instance.advance(1100)
    assert taker.state == "running"
    late = instance.scheduler._site_policy.rule(PreemptionRule)._running.kill_time()
    assert late == pytest.approx(KILL_S + 60, abs=3)


@pytest.mark.parametrize("when", [10, 900, 990], ids=["runs", "warned", "about-to-end"])
def test_over_a_reload_the_promise_is_kept(when):
    instance = make(config=config())
    first, taker, borrower = lend(instance)
    told = promised(taker)
    instance.advance(when)
    reloaded(instance)
    instance.run_until_idle()
    assert promised(taker) == pytest.approx(told, abs=2)
    instance.advance(1010 - when)
    assert taker.state == "running" and borrower.result == "failed"
    assert taker.t_start <= told + 1
    assert [severity for severity, _ in exceptions(borrower)] == [1, 0]


@pytest.mark.parametrize("how", ["the job does not come back", "the table goes"])
def test_a_borrower_from_whom_nothing_is_to_be_had_back_runs_on(how):
    instance = make(config=config())
    first, taker, borrower = lend(instance)
    instance.advance(100)
    if how == "the table goes":
        instance.request("sched-backfill.config-reload", {"queues": {"batch": {}, "standby": {}}})
    else:
        instance.unload()
        taker.cancel()
        instance.load("sched-backfill")
    instance.advance(2000)
    assert borrower.state == "running" and exceptions(borrower) == []
    assert borrower.expiration == instance.scheduler.resources.job_end(borrower.id)


def test_it_is_told_who_borrows_and_when_it_ends():
    instance = make(config=config())
    first, taker, borrower = lend(instance)
    found = instance.request("sched.preemptions")["borrowers"]
    end = borrower.annotations["sched"]["t_preempt"]
    assert found == [
        {"name": borrower.name, "class": "standby", "for": taker.name, "state": "runs", "end": end}
    ]
    own = instance.request("sched.preemptions", userid=OTHER)["borrowers"]
    assert own == []
    explained = instance.request("sched.explain", {"id": taker.id})["jobs"][0]
    assert explained["borrowers"]["text"] == "1 job of standby runs in its time"
    assert explained["borrowers"]["end"] == end
    assert stats(instance)["standby"]["borrowing"] == 1
