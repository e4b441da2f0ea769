# SPDX-License-Identifier: LGPL-3.0-or-later
"""Whatever a peer sends, the scheduler goes on, answers each request once, and its books
balance."""

import random

import pytest
from peers import R, Rig, jobspec
from shared import seeds

TOPICS = [
    "sched.alloc",
    "sched.cancel",
    "sched.prioritize",
    "sched.free",
    "sched.expiration",
    "feasibility.check",
]
JUNK = [
    None,
    True,
    -1,
    0,
    1.5,
    1e308,
    float("nan"),
    "",
    "0-3",
    "x" * 50,
    [],
    [[]],
    {},
    {"id": 1},
    1 << 70,
    "\ud800",
    "0-999999999",
]


def mutate(rnd, value, depth=0):
    """A value like this one, but for one thing in it."""
    if depth and rnd.random() < 0.3:
        return rnd.choice(JUNK)
    if isinstance(value, dict) and value:
        value = dict(value)
        key = rnd.choice(sorted(value))
        action = rnd.random()
        if action < 0.2:
            del value[key]
        elif action < 0.3:
            value[rnd.choice(["with", "count", "id", "extra"])] = rnd.choice(JUNK)
        else:
            value[key] = mutate(rnd, value[key], depth + 1)
        return value
    if isinstance(value, list) and value:
        value = list(value)
        index = rnd.randrange(len(value))
        if rnd.random() < 0.2:
            value.insert(index, rnd.choice(JUNK))
        else:
            value[index] = mutate(rnd, value[index], depth + 1)
        return value
    return rnd.choice(JUNK)


def message(rnd, rig, ids):
    topic = rnd.choice(TOPICS + ["sched.alloc"] * 3 + ["sched.free"] * 2)
    jobid = rnd.randrange(1, ids)
    if topic == "sched.alloc":
        spec = jobspec(
            rnd.choice([1, 2, "1-4", "2+"]),
            cores=rnd.choice([1, 2, 4]),
            gpus=rnd.choice([0, 0, 1]),
            nodes=rnd.choice([None, None, 1, 2, "1-3"]),
            duration=rnd.choice([0, 10, 100.5]),
            constraints=rnd.choice(
                [None, None, {"properties": ["a"]}, {"not": [{"ranks": ["1"]}]}]
            ),
        )
        payload = {
            "id": jobid,
            "priority": rnd.choice([0, 16, 31]),
            "userid": 0,
            "t_submit": 1.0,
            "jobspec": spec,
        }
    elif topic == "sched.free":
        held = rig.answers(jobid, 0, settle=False)
        payload = {"id": jobid, "R": held[-1]["R"] if held else R(1, 1), "final": True}
    elif topic == "sched.prioritize":
        payload = {
            "jobs": [[rnd.randrange(1, ids), rnd.choice([0, 16, 4294967295])] for _ in range(3)]
        }
    elif topic == "sched.expiration":
        payload = {"id": jobid, "expiration": rnd.choice([0, rig.now + 5, 1.0])}
    elif topic == "feasibility.check":
        payload = {"jobspec": jobspec(rnd.choice([1, 99]))}
    else:
        payload = {"id": jobid}
    return topic, payload


@pytest.mark.parametrize("module", ["sched-fifo", "sched-simple", "sched-backfill"])
@pytest.mark.parametrize("seed", seeds(1, 12))
def test_random_and_mutated_messages(module, seed):
    rnd = random.Random(f"{module} {seed}")
    rig = Rig(R(4, 4, 1, properties={"a": "0-1"}))
    args = (
        [f"reservations={rnd.choice(['0', '1', '3', 'unlimited'])}"]
        if module == "sched-backfill"
        else []
    )
    rig.load(module, "queue-depth=unlimited", *args)
    for _ in range(150):
        topic, payload = message(rnd, rig, 25)
        if rnd.random() < 0.35:
            payload = mutate(rnd, payload)
        rig.send(topic, payload)
        what = rnd.random()
        if what < 0.05:
            ranks = str(rnd.randrange(4))
            rig.resource.update(
                **rnd.choice([{"down": ranks}, {"up": ranks}, {"up": rnd.choice(JUNK)}])
            )
        if what < 0.4:
            rig.turn()
        elif what < 0.6:
            rig.settle()
        elif what < 0.7:
            rig.wait(rnd.choice([0.1, 20]))
    rig.wait(5)
    assert not rig.task.ended, rig.task.failure
    sched = rig.sched
    sched.resources._check()
    sched._requests._check()
    sched.admission.deferred._check()
    for job in list(sched._queue):
        rig.cancel(job.jobid)
    rig.resource.update(up="0-3")
    rig.settle()
    assert sched._queue == [] and not sched._requests
    rig.alloc(1000, jobspec(1, constraints=None))
    assert rig.answers(1000)
    # One final answer to each request that was taken on, never two in a row without another
    # request.
    assert rig.ask("sched.quiescent")[0] == 0


@pytest.mark.parametrize("module", ["sched-fifo", "sched-simple", "sched-backfill"])
def test_one_final_answer_for_each_request(module):
    rnd = random.Random(module)
    rig = Rig(R(4, 4), module, "queue-depth=unlimited")
    opened = {}
    for _ in range(400):
        jobid = rnd.randrange(1, 40)
        pending = jobid in rig.sched._requests
        if not pending and not any(
            known == jobid for known, _ in rig.sched.resources.job_end_times()
        ):
            rig.alloc(jobid, jobspec(rnd.choice([1, 2, 9, 99]), duration=rnd.choice([0, 10])))
            opened[jobid] = opened.get(jobid, 0) + 1
        elif pending and rnd.random() < 0.5:
            rig.cancel(jobid)
        elif not pending:
            rig.free(jobid, rig.answers(jobid, 0)[-1]["R"])
        rig.settle()
    for job in list(rig.sched._queue):
        rig.cancel(job.jobid)
    rig.settle()
    for jobid, count in opened.items():
        assert len(rig.answers(jobid, 0, 2, 3)) == count
    assert rig.sched.stats_get()["errors"] == 0
