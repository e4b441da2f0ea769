# SPDX-License-Identifier: LGPL-3.0-or-later
"""Preemption: running jobs of a low class end so that a waiting job can start, and for no other
reason."""

import json
import signal

import pytest

from flux.scheduler.testing import FakeInstance, make_R

MODULES = ["sched-fifo", "sched-simple", "sched-backfill"]
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
        topo = {"socket": [{"cores": "0-1"}, {"cores": "2-3"}]}
        scheduling = {"writer": "TreePool", "children": [{"ranks": f"0-{nodes - 1}", "topo": topo}]}
        keys["R"] = make_R(nodes, cores, scheduling=scheduling)
    instance = FakeInstance(nodes, cores, config=tables() if config is None else config, **keys)
    instance.load(*(policy or ("sched-backfill",)))
    return instance


def standby(instance, nodes=1, duration=10000, **keys):
    keys = {"queue": "standby", "exclusive": True, **keys}
    job = instance.submit(nodes=nodes, duration=duration, **keys)
    instance.run_until_idle()
    return job


def batch(instance, nodes=1, duration=1000, **keys):
    keys = {"queue": "batch", "exclusive": True, **keys}
    job = instance.submit(nodes=nodes, duration=duration, **keys)
    instance.run_until_idle()
    return job


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


@pytest.mark.parametrize("tree", [False, True], ids=["rv1", "tree"])
@pytest.mark.parametrize("policy", POLICIES, ids=" ".join)
def test_a_victim_is_warned_and_ended_and_the_job_starts_there(policy, tree):
    instance = make(*policy, tree=tree)
    victims = [standby(instance) for _ in range(4)]
    assert all(job.state == "running" for job in victims)
    instance.advance(3600)
    taker = batch(instance, 2)
    instance.advance(5)
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
    assert warned[0].note == f"preempted for {taker.name} (batch); ran 1h02m"
    assert "class standby" in warned[0].annotations["user"]["preempted"]
    assert taker.state == "running"
    assert set(taker.ranks.replace("-", ",").split(",")) == ranks
    assert len(instance.running()) == 3
    assert stored(instance) == []
    counted = stats(instance)["standby"]
    assert counted["victims"] == 2
    assert counted["useless"] == 0
    assert counted["node_hours"] == pytest.approx(2 * 3721 / 3600, abs=0.02)
    instance.scheduler.resources.check()
    instance.scheduler.admission._check()


def test_nothing_is_asked_and_nothing_told_without_a_table():
    instance = make(config={})
    jobs = [standby(instance) for _ in range(4)]
    taker = batch(instance)
    instance.advance(100)
    assert taker.state == "pending" and all(job.state == "running" for job in jobs)
    assert not instance.scheduler.admission.engaged
    assert [rule.name for rule in instance.scheduler.admission.rules] == ["reservation"]
