# SPDX-License-Identifier: LGPL-3.0-or-later
"""``when`` says what then happens if nothing else comes: random workloads, played on.

All jobs run for as long as they may. Where jobs take whole nodes of one kind that is exact, under
every policy. Where it matters which nodes a job gets, a plan only says that there is a way.
"""

import random

import pytest
from peers import R, Simulation, jobspec
from shared import seeds

POLICIES = {
    "fifo": ("sched-fifo", ()),
    "fifo by queue": ("sched-fifo", ("order=queue",)),
    "simple": ("sched-simple", ()),
    "easy": ("sched-backfill", ()),
    "strict easy": ("sched-backfill", ("order=strict",)),
    "three promises": ("sched-backfill", ("reservations=3",)),
    "no promises": ("sched-backfill", ("reservations=0",)),
    "conservative": ("sched-backfill", ("reservations=unlimited",)),
}


def job(rnd, mixed):
    """A random jobspec; with `mixed`, also parts of nodes and certain nodes."""
    # No two ends at the same moment: in which order they are heard of is chance.
    limit = rnd.randint(5, 400) + rnd.random()
    keys = {}
    if mixed and rnd.random() < 0.4:
        keys["constraints"] = {"properties": [rnd.choice(["left", "right", "^left"])]}
    if mixed and rnd.random() < 0.3:
        return jobspec(rnd.randint(1, 6), cores=rnd.randint(1, 4), duration=limit, **keys)
    most = 4 if keys else 8
    return jobspec(1, nodes=rnd.randint(1, most), duration=limit, exclusive=True, **keys)


def workload(policy, seed, mixed):
    rnd = random.Random(f"{policy} {seed} {mixed}")
    module, args = POLICIES[policy]
    rig = Simulation(
        R(8, 4, properties={"left": "0-3", "right": "4-7"}),
        module,
        "queue-depth=unlimited",
        "log-level=err",
        *args,
        estimates=False,
    )
    if rnd.random() < 0.3:
        rig.resource.update(down=str(rnd.randint(0, 7)))
    if rnd.random() < 0.4:
        entry = {
            "name": "dat",
            "start": rig.now + rnd.randint(20, 300),
            "duration": rnd.randint(20, 300),
            "nodes": rnd.randint(1, 8),
            "zone": "UTC",
        }
        assert rig.ask("sched.reserve", {"reservation": entry})[0] == 0
    for jobid in range(1, rnd.randint(3, 25)):
        rig.submit(jobid, job(rnd, mixed))
        if rnd.random() < 0.3:
            rig.wait(rnd.uniform(1, 40))
    rig.wait(2)
    return rig, rnd


def outcome(rig, newcomer):
    """What is said of a newcomer, and when it starts if it comes: seconds since the epoch, or
    None."""
    errnum, said = rig.ask("sched.when", {"jobspec": newcomer})
    assert errnum == 0, said
    rig.submit(9999, newcomer)
    rig.wait(20000)
    return said, rig.begun.get(9999)


@pytest.mark.parametrize("seed", seeds(4, 12))
@pytest.mark.parametrize("policy", POLICIES)
def test_whole_nodes_start_when_it_was_said(policy, seed):
    rig, rnd = workload(policy, seed, mixed=False)
    said, begun = outcome(rig, job(rnd, mixed=False))
    if said["verdict"] in ("never", "unknown"):
        assert begun is None
        return
    assert said["unplanned"] == 0
    assert begun == pytest.approx(said["start"], abs=0.1)
    assert (said["verdict"] == "now") == (begun - said["now"] < 0.1)


@pytest.mark.parametrize("seed", seeds(10, 40))
def test_where_it_matters_which_nodes_jobs_get_it_is_no_later_with_promises_to_all(seed):
    rig, rnd = workload("conservative", seed, mixed=True)
    said, begun = outcome(rig, job(rnd, mixed=True))
    if said["start"] is not None:
        assert begun <= said["start"] + 0.1


@pytest.mark.parametrize("module", ["sched-fifo", "sched-simple"])
def test_nobody_waits_for_a_job_that_will_be_denied(module):
    rig = Simulation(R(4, 4), module, "queue-depth=unlimited")
    rig.submit(1, jobspec(1, nodes=4, duration=100, exclusive=True))
    rig.submit(2, jobspec(1, nodes=5, duration=100, exclusive=True))
    rig.wait(2)
    said, begun = outcome(rig, jobspec(1, nodes=1, duration=10, exclusive=True))
    assert begun == pytest.approx(said["start"], abs=0.1)
