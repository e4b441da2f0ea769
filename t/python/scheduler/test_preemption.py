# SPDX-License-Identifier: LGPL-3.0-or-later
"""Preemption: running jobs of a low class end so that a waiting job can start, and for no other
reason."""

import json
import signal

import pytest
from peers import jobspec, machine

from flux.scheduler.site_policy.preemption.rule import PreemptionRule
from flux.scheduler.testing import FakeInstance

POLICIES = [
    ("sched-fifo",),
    ("sched-simple",),
    ("sched-backfill",),
    ("sched-backfill", "promise=4"),
    ("sched-backfill", "promise=unlimited"),
    ("sched-backfill", "promise=all"),
    ("sched-backfill", "rank=wfp3"),
]
KEY = "checkpoint.sched-preemptions"
OTHER = 4242

STANDBY = {"rank": 0, "queues": ["standby"], "grace": "2m", "signal": "SIGUSR1"}


def tables(queues=None, **classes):
    return {
        "preemption": classes or {"standby": STANDBY},
        "queues": queues or {"batch": {}, "standby": {"parent": "batch"}},
    }


def make(*policy, nodes=4, cores=4, config=None, tree=False, **keys):
    if tree:
        keys["R"] = machine(tree, nodes)
    instance = FakeInstance(nodes, cores, config=tables() if config is None else config, **keys)
    instance.load(*(policy or ("sched-backfill",)))
    return instance


def standby(instance, nodes=1, duration=10000, queue="standby", exclusive=True, wait=0, **keys):
    """A job, examined by the scheduler; `wait` seconds pass."""
    keys.update(queue=queue, exclusive=exclusive)
    job = instance.submit(nodes=nodes, duration=duration, **keys)
    instance.advance(wait) if wait else instance.run_until_idle()
    return job


def batch(instance, nodes=1, duration=1000, queue="batch", **keys):
    return standby(instance, nodes, duration, queue, **keys)


def warned(instance):
    """A job on the only node, and one that is to have it, 30 s later."""
    victim = standby(instance)
    taker = batch(instance, wait=30)
    assert [severity for severity, _ in exceptions(victim)] == [1]
    assert taker.reason_pending.startswith("1 job of standby ends for it at ")
    start = f"preemption: {taker.name} is to start by ending {victim.name}: 1 job of standby ("
    assert [text for _, text in instance.log if text.startswith(start)]
    return victim, taker


def refuse_to_end(instance, job):
    ordinary = instance.job_manager.methods["raise"]

    def refuse(msg):
        if msg.payload["id"] == job.id and msg.payload["severity"] == 0:
            raise OSError(1, "Operation not permitted")
        ordinary(msg)

    instance.job_manager.methods["raise"] = refuse


def reconfigure(instance, config):
    instance.config.clear()
    instance.config.update(config)
    instance.request(f"{instance.scheduler.name}.config-reload", config)
    instance.run_until_idle()


def exceptions(job):
    return [
        (event["context"]["severity"], event["context"]["note"])
        for event in job.events
        if event["name"] == "exception"
    ]


def stored(instance):
    text = instance.kvs.values.get(KEY)
    return [] if text is None else json.loads(text)["preemptions"]


def stats(instance):
    return {one["class"]: one for one in instance.request("sched.stats")["preemptions"]}


@pytest.mark.parametrize("policy", POLICIES, ids=" ".join)
@pytest.mark.parametrize("max_wait, ends", [(60, False), (600, True)])
def test_no_job_is_ended_for_one_that_may_not_wait_so_long(policy, max_wait, ends):
    instance = make(*policy, nodes=1)
    victim = standby(instance)
    instance.advance(60)
    taker = batch(instance, 1, **{"max-wait": max_wait})
    instance.advance(500)
    assert victim.state == ("inactive" if ends else "running")
    assert taker.state == ("running" if ends else "inactive")
    assert ends or not exceptions(victim)


@pytest.mark.parametrize("tree", [False, True], ids=["rv1", "tree"])
@pytest.mark.parametrize("policy", POLICIES, ids=" ".join)
def test_a_victim_is_warned_and_ended_and_the_job_starts_there(policy, tree):
    instance = make(*policy, tree=tree)
    victims = [standby(instance) for _ in range(4)]
    assert all(job.state == "running" for job in victims)
    instance.advance(3600)
    taker = batch(instance, 2, wait=5)
    warned = [job for job in victims if exceptions(job)]
    assert len(warned) == 2
    assert all(job.signals == [signal.SIGUSR1] for job in warned)
    assert all(severity == 1 for job in warned for severity, _ in exceptions(job))
    assert "for a job of batch" in exceptions(warned[0])[0][1]
    assert taker.state == "pending"
    assert "2 jobs of standby end for it at" in taker.reason_pending
    assert stored(instance)[0]["taker"] == taker.id
    ranks = {job.ranks for job in warned}
    instance.advance(130)
    assert [job.result for job in warned] == ["failed", "failed"]
    assert warned[0].note == f"preempted for {taker.name} (batch); ran 1h2m"
    assert "class standby" in warned[0].annotations["user"]["preempted"]
    assert taker.state == "running"
    assert set(taker.ranks.replace("-", ",").split(",")) == ranks
    assert len(instance.running()) == 3
    assert stored(instance) == []
    counted = stats(instance)["standby"]
    assert counted["victims"] == 2
    assert counted["useless"] == 0
    assert counted["node_hours"] == pytest.approx(2 * 3721 / 3600, abs=0.02)


# -- takers ----------------------------------------------------------------------------------------


def test_no_job_takes_from_an_equal_or_a_higher_rank():
    config = tables(
        queues={"batch": {}, "standby": {}, "scavenger": {}},
        standby={"rank": 1, "queues": ["standby"]},
        scavenger={"rank": 0, "queues": ["scavenger"]},
    )
    instance = make(config=config, nodes=2)
    low, high = standby(instance, queue="scavenger"), standby(instance)
    equal = standby(instance, wait=60)
    assert equal.state == "running" and low.result == "failed" and high.state == "running"
    again = standby(instance, queue="scavenger", wait=60)
    assert again.state == "pending"
    first = batch(instance, wait=60)
    assert first.state == "running"
    assert high.result == "failed" or equal.result == "failed"


def test_a_parent_covers_its_virtual_queues_but_those_with_a_table_of_their_own():
    config = tables(
        queues={"batch": {}, "standby": {"parent": "batch"}, "debug": {"parent": "batch"}},
        batch={"rank": 5, "queues": ["batch"]},
        standby={"rank": 0, "queues": ["standby"]},
    )
    instance = make(config=config, nodes=1)
    rule = instance.scheduler._site_policy.rule(PreemptionRule)
    found = {name: rule.classes.of_queue(name) for name in ("batch", "standby", "debug", "other")}
    assert {name: one and one.name for name, one in found.items()} == {
        "batch": "batch",
        "standby": "standby",
        "debug": "batch",
        "other": None,
    }


@pytest.mark.parametrize(
    "table, after, ended",
    [({"queues": ["standby"]}, 0, False), ({"attribute": True}, 300, True)]
    + [({"attribute": True}, slip, False) for slip in ("0", -1, True, None, "soon")],
)
def test_preemptible_after_counts_elsewhere_only_with_attribute(table, after, ended):
    instance = make(nodes=1, config=tables(offered=table))
    offered = batch(instance, **{"preemptible-after": after}, duration=10000)
    taker = batch(instance, wait=290)
    assert offered.state == "running"
    instance.advance(15)
    assert (taker.state == "running") is (offered.result == "failed") is ended


# -- whom ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "most, text",
    [
        ({"jobs": 2}, "3 jobs of standby would have to end, of which 2 may"),
        ({"node-hours": 2}, "3.0 node-hours of standby would be lost, of which 2 may be"),
    ],
    ids=["jobs", "node-hours"],
)
def test_beyond_the_most_that_may_end_or_be_lost_no_job_ends(most, text):
    instance = make(config=tables(standby={"queues": ["standby"], "max": most}))
    jobs = [standby(instance) for _ in range(4)]
    instance.advance(3600)
    large = batch(instance, 3, wait=60)
    assert large.state == "pending" and all(job.state == "running" for job in jobs)
    assert dry_run(instance, large)["reason"] == text
    large.cancel()
    small = batch(instance, 1, wait=60)
    assert small.state == "running"


def test_a_window_that_is_short_of_nodes_anyway_keeps_no_job_from_preempting():
    instance = make(nodes=4)
    ordinary = batch(instance, 2, duration=20000)
    entry = {"name": "dat", "start": instance.now() + 10, "duration": 4000, "hosts": "n[0-1]"}
    instance.request("sched.reserve", {"reservation": entry})
    victim = standby(instance, 2, wait=20)
    (window,) = instance.request("sched.reservations")["reservations"]
    assert window["short"] == 2 and ordinary.ranks == "0-1"
    taker = batch(instance, 2, wait=200)
    assert victim.state == "inactive" and taker.state == "running"


def test_a_job_that_is_being_cleaned_up_is_waited_for():
    """It has ended, which only the job manager knows, and makes room by itself."""
    instance = make(nodes=2)
    ending, other = standby(instance), standby(instance)
    instance.advance(100)
    ending.clean_up = 30.0
    ending.post("exception", type="exec", severity=0, note="")
    ending.fail("out of memory")
    taker = batch(instance, wait=40)
    assert taker.state == "running"
    assert exceptions(other) == []


# -- the grace -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES, ids=" ".join)
def test_if_the_request_changes_victims_are_told_so_and_chosen_again(policy):
    """A table of another rule changes it: the job is pending as before, with another request."""
    instance = make(*policy, nodes=1)
    victim, taker = standby(instance), batch(instance, None, slots=1, exclusive=False)
    instance.advance(30)
    reconfigure(instance, {**tables(), "sharing": {"all": {"mode": "user"}}})
    instance.advance(30)
    told = f"will not be ended now: the request of {taker.name} has changed"
    assert [note for severity, note in exceptions(victim)][1] == told
    assert [severity for severity, _ in exceptions(victim)] == [1, 1, 1]
    assert stored(instance)[0]["taker"] == taker.id
    instance.advance(130)
    assert taker.state == "running" and victim.result == "failed"


@pytest.mark.parametrize("tree", [False, True], ids=["rv1", "tree"])
@pytest.mark.parametrize("policy", POLICIES, ids=" ".join)
def test_a_victim_is_spared_if_others_make_room_in_the_grace(policy, tree):
    """Two are to end, one on each node; cores freed beside the first are as good as one of them."""
    instance = make(*policy, nodes=2, tree=tree)
    on = [{"exclusive": False, "slots": 2, "constraints": {"ranks": [rank]}} for rank in ("0", "1")]
    other = batch(instance, None, duration=50000, **on[0])
    batch(instance, None, duration=50000, **on[1])
    victims = [standby(instance, None, **on[0]), standby(instance, None, **on[1])]
    taker = batch(instance, None, exclusive=False, slots=4, wait=30)
    assert all(len(exceptions(job)) == 1 for job in victims)
    other.end()
    instance.advance(60)
    assert taker.state == "pending" and all(job.state == "running" for job in victims)
    instance.advance(60)
    assert taker.state == "running"
    ended, spared = sorted(victims, key=lambda job: job.state == "running")
    assert ended.result == "failed" and ended.ranks in taker.ranks.replace("-", ",").split(",")
    assert spared.state == "running"
    assert exceptions(spared)[1:] == [(1, "will not be ended now: others have made room")]
    assert spared.expiration == instance.scheduler.resources.job_end(spared.id)
    assert stored(instance) == []
    assert stats(instance)["standby"]["victims"] == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_when_knows_of_preemptions_to_come(policy):
    """The victim starts before the newcomer, and is ended for it."""
    instance = make(*policy)
    batch(instance, 4, 300)
    standby(instance, 4)
    spec = jobspec(1, nodes=4, duration=100, exclusive=True, queue="batch")
    told = instance.request("sched.when", {"jobspec": spec})["start"]
    assert told < instance.now() + 300 + 120 + 10
    newcomer = instance.submit(jobspec=spec)
    instance.advance(1000)
    assert newcomer.t_start == pytest.approx(told, abs=1.5)


def test_when_knows_of_a_taker_that_a_limit_refuses_as_its_victims_are_chosen():
    """The last job starts as the taker's promise is void, and takes the user's only share."""
    config = tables(standby={"queues": ["standby"], "wait": "20s"})
    config["limits"] = {"one": {"per": "user", "users": ["7"], "max": {"jobs": 1}}}
    instance = make("sched-backfill", nodes=5, config=config)
    standby(instance, 2)
    for duration in (100, 1000):
        batch(instance, 1, duration)
    for nodes, duration in ((2, 50), (1, 200)):
        instance.submit(nodes=nodes, duration=duration, userid=7, queue="batch", exclusive=True)
    instance.advance(2)
    spec = jobspec(1, nodes=2, duration=60, exclusive=True, queue="standby")
    told = instance.request("sched.when", {"jobspec": spec})["start"]
    newcomer = instance.submit(jobspec=spec)
    instance.advance(1000)
    assert newcomer.t_start == pytest.approx(told, abs=0.1)


# -- faults ----------------------------------------------------------------------------------------


def test_without_a_record_no_job_is_warned_or_ended():
    instance = make(nodes=1)
    victim = standby(instance)
    instance.kvs.hold()
    taker = batch(instance, wait=300)
    assert exceptions(victim) == [] and victim.state == "running"
    instance.kvs.release()
    instance.advance(110)
    assert [severity for severity, _ in exceptions(victim)] == [1]  # the grace is given in full
    instance.advance(20)
    assert victim.result == "failed" and taker.state == "running"


def test_when_a_node_goes_down_the_job_looks_again_at_most_twice():
    instance = make(nodes=5)
    jobs = [standby(instance) for _ in range(5)]
    for job in jobs:
        job.clean_up = None
    taker = batch(instance)
    ended = set()
    for _ in range(5):
        instance.advance(130)
        new = [job for job in jobs if job.note and job.id not in ended]
        for job in new:
            ended.add(job.id)
            instance.mark_down(job.ranks)  # it cannot be killed
    assert len(ended) == 3
    assert taker.state == "pending"
    assert stats(instance)["standby"]["useless_by"] == {"node": 3}


def test_when_the_job_manager_refuses_the_job_looks_elsewhere():
    instance = make(nodes=2, check_errors=False)
    victims = [standby(instance), standby(instance)]
    instance.advance(10)
    refused = victims[1]
    refuse_to_end(instance, refused)
    taker = batch(instance, wait=300)
    assert refused.state == "running" and victims[0].result == "failed"
    assert taker.state == "running"
    assert "Operation not permitted" in "\n".join(instance.errors)


# -- over a reload ---------------------------------------------------------------------------------


def reloaded(instance, *policy, wait=0.0):
    instance.unload()
    instance.advance(wait)
    instance.load(*(policy or ("sched-backfill",)))


@pytest.mark.parametrize("policy", POLICIES, ids=" ".join)
@pytest.mark.parametrize("wait", [0.0, 40.0, 500.0], ids=["at-once", "in-the-grace", "after-it"])
def test_a_reload_in_the_grace(policy, wait):
    instance = make(*policy, nodes=2)
    victims = [standby(instance), standby(instance)]
    taker = batch(instance, wait=30)
    warned = next(job for job in victims if exceptions(job))
    spared = next(job for job in victims if not exceptions(job))
    reloaded(instance, *policy, wait=wait)
    if wait < 90:
        instance.advance(80 - wait)
        assert warned.state == "running"
    instance.advance(30)
    assert warned.result == "failed" and taker.state == "running"
    assert taker.ranks == warned.ranks
    assert spared.state == "running" and exceptions(spared) == []
    assert [severity for severity, _ in exceptions(warned)] == [1, 0]
    assert stored(instance) == []


def test_a_latest_start_after_a_job_whose_victim_ends_late_is_void():
    instance = make("sched-backfill", "promise=all", "within=0", nodes=3)
    victim = standby(instance, constraints={"ranks": ["0"]})
    other = batch(instance, duration=100000, constraints={"ranks": ["2"]}, runtime=133)
    victim.clean_up = 100.0
    taker = batch(instance, 2, duration=10, constraints={"ranks": ["0-1"]}, wait=3)
    behind = batch(instance, duration=50, constraints={"ranks": ["1"]})
    latest = behind.annotations["sched"]["t_latest"]
    instance.advance(latest - instance.now())
    assert other.state == "inactive" and taker.state == "pending"
    assert behind.annotations["sched"]["t_latest"] > latest
    instance.advance(200)
    assert taker.t_start + 10 <= behind.t_start
    counts = instance.scheduler.decision.stats()["latest_starts"]
    assert counts["void"]["resources"] and not counts["violated"]


@pytest.mark.parametrize("policy", POLICIES, ids=" ".join)
def test_a_reload_while_a_victim_is_being_ended(policy):
    instance = make(*policy, nodes=2)
    victim = standby(instance, 2)
    victim.clean_up = 100.0
    taker = batch(instance, 2, wait=130)
    assert len(exceptions(victim)) == 2
    asked = {"jobspec": jobspec(1, nodes=2, exclusive=True, duration=10, queue="batch")}
    soon = pytest.approx(instance.now() + 1000, abs=20)  # not at the end of its limit
    assert instance.request("sched.when", asked)["start"] == soon
    reloaded(instance, *policy)
    assert instance.request("sched.when", asked)["start"] == soon
    small = batch(instance, duration=5, wait=30)
    assert small.state == "pending"
    instance.advance(100)
    assert taker.state == "running"
    assert len(exceptions(victim)) == 2  # it was not ended a second time


@pytest.mark.parametrize("policy", POLICIES, ids=" ".join)
def test_a_reload_after_the_victims_have_gone(policy):
    instance = make(*policy, nodes=1)
    victim = standby(instance)
    victim.clean_up = 100.0
    taker = batch(instance, wait=130)
    instance.unload()
    instance.advance(200)
    assert victim.result == "failed"
    small = instance.submit(nodes=1, duration=5, exclusive=True, priority=30, queue="standby")
    instance.load(*policy)
    instance.advance(3)
    assert taker.state == "running" or policy[0] != "sched-backfill"
    instance.advance(30)
    assert taker.state == "running"
    assert small.state == "pending" or small.t_start < taker.t_start


def test_a_record_that_cannot_be_read_ends_nobody():
    instance = make(nodes=1, check_errors=False)
    victim, _ = warned(instance)
    instance.unload()
    instance.kvs.values[KEY] = '{"version": 1, "preemptions": [{"taker": 2}]}'
    instance.load("sched-backfill")
    assert f"preemptions under way are forgotten: {KEY} in the KVS cannot be read" in "\n".join(
        instance.errors
    )
    instance.advance(60)
    assert victim.state == "running"
    instance.advance(120)  # it was chosen anew, and warned anew
    assert [severity for severity, _ in exceptions(victim)] == [1, 1, 0]


# -- the table -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table, text",
    [
        ({}, "queues is missing"),
        ({"queues": {}}, "queues={}: expected a list of names"),
        ({"queues": ["standby"], "signal": "SIGFOO"}, "signal='SIGFOO': expected the name of"),
        ({"queues": ["standby"], "grace": "soon"}, "grace='soon': expected a length of time"),
        ({"queues": ["standby"], "rank": -1}, "rank=-1: expected a whole number"),
        ({"queues": ["standby"], "max": {"jobs": 0}}, "max.jobs=0: expected a whole number"),
        ({"queues": ["standby"], "mode": "kill"}, "mode='kill': expected"),
        ({"queues": ["standby"], "ranks": 1}, "ranks: unknown key"),
    ],
)
def test_a_bad_table_is_one_line_and_ends_nobody(table, text):
    instance = make(nodes=1, config=tables(standby=table), check_errors=False)
    assert len(instance.errors) == 1 and text in instance.errors[0], instance.errors
    assert instance.errors[0].startswith("configuration: [preemption.standby] ")
    victim = standby(instance)
    batch(instance, wait=300)
    assert victim.state == "running"


def test_a_table_that_changes_leaves_preemptions_under_way():
    instance = make(nodes=1)
    victim, taker = warned(instance)
    reconfigure(instance, tables(standby={**STANDBY, "grace": "10m"}))
    instance.advance(100)
    assert victim.result == "failed" and taker.state == "running"


def test_mode_log_chooses_and_tells_and_ends_nobody():
    instance = make(nodes=1, config=tables(standby={**STANDBY, "mode": "log"}))
    victim, taker = standby(instance), batch(instance)
    instance.advance(500)
    assert victim.state == "running" and exceptions(victim) == []
    told = [text for _, text in instance.log if "mode=log" in text]
    assert len(told) == 1
    assert f"{taker.name} could start by ending {victim.name}: 1 job of standby (" in told[0]
    assert stats(instance)["standby"]["logged"] == 1
    assert stored(instance) == []


# -- answers ---------------------------------------------------------------------------------------


def dry_run(instance, job, **keys):
    return instance.request("sched.preempt", {"id": job.id, "dry_run": True}, **keys)


@pytest.mark.parametrize("policy", [("sched-backfill",), ("sched-backfill", "promise=2")])
def test_a_job_behind_the_taker_is_behind_the_victim_until_that_is_ended(policy):
    instance = make(*policy, nodes=1)
    victim = standby(instance)
    batch(instance)  # for which it is ended
    third = batch(instance)

    def behind():
        (job,) = instance.request("sched.explain", {"id": third.id})["jobs"]
        return [(one["end"], one["state"]) for one in job["behind"] if one["name"] == victim.name]

    instance.advance(30)
    (under_way,) = instance.request("sched.preemptions")["preemptions"]
    assert behind() == [(under_way["deadline"], "running")]
    victim.clean_up = 30.0
    instance.advance(under_way["deadline"] + 1 - instance.now())
    assert behind() == [(under_way["expected"], "running")]


def promised_start(instance, job):
    return round(dict(instance.scheduler.planning.plan.promises())[job.id][0])


@pytest.mark.parametrize("parts", [False, True], ids=["nodes", "parts"])
@pytest.mark.parametrize("then", ["ends", "canceled", "renewed", "extended", "cut"])
def test_of_a_victims_resources_only_the_place_stays_kept_after_its_end(parts, then):
    """A promise may rely on the end of a victim, though the taker runs longer: the taker gets only a part
    of the victim's resources, whether these come free now or then."""
    instance = make("sched-backfill", "promise=unlimited", nodes=3)
    keys = {"exclusive": not parts, "cores": 2 if parts else 1}
    victim = standby(instance, 2 - parts, duration=1000, cores=4, exclusive=not parts)
    batch(instance, 1 + parts, duration=5000)
    head = standby(instance, duration=4000, **keys)
    assert promised_start(instance, head) == round(victim.expiration)
    taker = batch(instance, duration=3000, wait=30, **keys)
    behind = standby(instance, duration=100, **keys)
    if then in ("extended", "cut"):
        victim.set_expiration(victim.expiration + (200 if then == "extended" else -200))
    elif then == "renewed":
        instance.scheduler.planning.renew()
        instance.scheduler.look_again()
    instance.run_until_idle()
    if then != "canceled":
        bound_to_ranks = then == "cut" and parts  # such promises keep their times
        assert promised_start(instance, head) == round(victim.expiration) + 200 * bound_to_ranks
        assert promised_start(instance, behind) > victim.expiration + 1000
    assert [severity for severity, _ in exceptions(victim)] == [1]
    if then == "canceled":
        taker.cancel()
        instance.advance(1200)
        assert victim.t_end == victim.t_start + 1000 == head.t_start == behind.t_start
    else:
        instance.advance(1200)
        assert head.t_start == taker.t_start == victim.t_end == victim.t_start + 121


def beside_a_promise(nodes):
    """A victim of some nodes until 1000 s, a promise to a job of 2 nodes at 500 s, a free node, and a taker
    of as many nodes as the victim."""
    instance = make(nodes=2 + nodes)
    batch(instance, duration=100)
    batch(instance, duration=500)
    victim = standby(instance, nodes, duration=1000)
    head = standby(instance, 2, duration=4000)
    instance.advance(101)
    taker = batch(instance, nodes, duration=3000, wait=30)
    assert head.state == taker.state == "pending" and exceptions(victim) == []
    answer = dry_run(instance, taker)
    instance.advance(1000)
    assert head.t_start == head.t_submit + 500
    return victim, answer


def test_a_promise_that_relies_on_a_victim_ending_early_keeps_it_from_being_ended():
    """The promise must hold if the victim, which is spared then, runs on."""
    victim, answer = beside_a_promise(2)
    assert answer["reason"] == "a promise to another job would break if they did not end"
    assert [one["name"] for one in answer["victims"]] == [victim.name]


def test_no_job_ends_on_other_ranks_for_the_sake_of_a_promise():
    victim, answer = beside_a_promise(1)
    assert answer["reason"] == "promises to others are in the way" and answer["victims"] == []


def test_an_open_promise_does_not_end_more_jobs_than_the_place_needs():
    """Ahead of the taker is a job that waits for one without a limit, at an unknown time."""
    instance = make("sched-backfill", "promise=unlimited", nodes=4)
    victims = [standby(instance, duration=1000) for _ in range(4)]
    standby(instance, 4, duration=0)
    standby(instance, 3)
    taker = batch(instance, duration=500, wait=30)
    assert len([job for job in victims if exceptions(job)]) == 1
    instance.advance(200)
    assert taker.state == "running" and len([job for job in victims if job.t_end]) == 1


def test_a_dry_run_names_the_victims_and_ends_nobody():
    instance = make(nodes=2, config=tables(standby={**STANDBY, "wait": "1d"}))
    jobs = [standby(instance) for _ in range(2)]
    instance.advance(3600)
    taker = batch(instance, 2)
    answer = dry_run(instance, taker)
    assert answer["reason"] is None
    assert {one["name"] for one in answer["victims"]} == {job.name for job in jobs}
    assert answer["text"] == "2 jobs of standby (2.0 node-hours)"
    (explained,) = instance.request("sched.explain", {"id": taker.id})["jobs"]
    assert explained["preemption"]["text"] == answer["text"]
    instance.advance(600)
    assert all(job.state == "running" for job in jobs)
    with pytest.raises(OSError, match="by the table .preemption. alone"):
        instance.request("sched.preempt", {"id": taker.id})
    with pytest.raises(OSError, match="is not a pending job"):
        dry_run(instance, jobs[0])


def test_guests_are_named_no_jobs_of_others():
    instance = make(nodes=2)
    mine = standby(instance, userid=OTHER)
    theirs = standby(instance, wait=10)
    taker = batch(instance, 2, userid=OTHER)
    answer = dry_run(instance, taker, userid=OTHER)
    assert {one["name"] for one in answer["victims"]} == {mine.name, "another job"}
    with pytest.raises(OSError, match="is not a pending job"):
        dry_run(instance, taker, userid=OTHER + 1)
    instance.advance(10)
    listed = instance.request("sched.preemptions")["preemptions"]
    assert [one["name"] for one in listed] == [taker.name]
    assert {one["name"] for one in listed[0]["victims"]} == {mine.name, theirs.name}
    assert listed[0]["state"] == "warned"
    own = instance.request("sched.preemptions", userid=OTHER)["preemptions"]
    assert {one["name"] for one in own[0]["victims"]} == {mine.name, "another job"}
    assert instance.request("sched.preemptions", userid=OTHER + 1)["preemptions"] == []


def test_in_private_mode_victims_are_told_no_id():
    instance = make(nodes=1, config={**tables(), "access": {"private-mode": True}})
    victim, taker = standby(instance), batch(instance)
    instance.advance(130)
    assert victim.note == "preempted for a job of batch; ran 2m1s"
    assert taker.name not in json.dumps([victim.annotations, victim.events])
