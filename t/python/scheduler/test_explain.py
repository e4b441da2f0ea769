# SPDX-License-Identifier: LGPL-3.0-or-later
"""The numbers of ``explain`` against a count over all ranks, one at a time."""

import copy
import random

import pytest
from peers import Simulation, jobspec
from pool_model import R_of, matches
from pool_model import parts_of as parts_of_R
from shared import seeds

from flux.idset import IDset

MODULES = ["sched-fifo", "sched-simple", "sched-backfill"]
NODES = 10


class Cluster:
    """Nodes of a few kinds, and their states as known without the pool."""

    def __init__(self, rnd, uniform=False):
        kinds = [(4, 0)] if uniform else [(4, 0), (4, 0), (4, 2), (8, 1)]
        self.size = {rank: rnd.choice(kinds) for rank in range(NODES)}
        names = ("big", "fast", "new")
        self.properties = {name: {r for r in range(NODES) if rnd.random() < 0.5} for name in names}
        self.down = set()
        parts = {rank: (range(cores), range(gpus)) for rank, (cores, gpus) in self.size.items()}
        self.R = R_of(parts, [f"n{rank}" for rank in range(NODES)], self.properties)

    def meets(self, rank, constraint):
        return matches(constraint, rank, f"n{rank}", self.properties)


def random_constraint(rnd, depth=2):
    dice = rnd.random()
    if depth and dice < 0.3:
        return {"and": [random_constraint(rnd, depth - 1) for _ in range(rnd.randint(1, 3))]}
    if depth and dice < 0.4:
        return {"or": [random_constraint(rnd, depth - 1) for _ in range(2)]}
    if depth and dice < 0.5:
        return {"not": [random_constraint(rnd, depth - 1)]}
    if dice < 0.6:
        return {"hostlist": [f"n{n}" for n in range(rnd.randint(0, 4), rnd.randint(6, 13))]}
    if dice < 0.65:
        return {"ranks": [str(n) for n in range(rnd.randint(0, 4), rnd.randint(6, 10))]}
    names = rnd.sample(["big", "fast", "new", "^big", "^fast"], rnd.randint(1, 2))
    return {"properties": names}


def random_job(rnd, limits=(0, 20, 100, 500)):
    keys = {"duration": rnd.choice(limits)}
    if rnd.random() < 0.6:
        keys["constraints"] = random_constraint(rnd)
    keys["cores"] = rnd.randint(1, 5)
    keys["gpus"] = rnd.choice([0, 0, 0, 1])
    if rnd.random() < 0.5:
        return jobspec(rnd.randint(1, 8), **keys)
    exclusive = rnd.random() < 0.5
    return jobspec(rnd.randint(1, 2), nodes=rnd.randint(1, 5), exclusive=exclusive, **keys)


def scene(module, seed, uniform=False):
    """A machine in the middle of its work: jobs, nodes that are down, a reservation or two.

    If it is `uniform`, all nodes are alike, and all jobs take whole ones, any of them.
    """
    rnd = random.Random(f"{module} {seed}")
    cluster = Cluster(rnd, uniform)
    rig = Simulation(cluster.R, module, "queue-depth=unlimited", "log-level=err")
    jobid = 0
    for _ in range(rnd.randint(5, 15)):
        jobid += 1
        spec = random_job(rnd)
        if uniform:
            limit = rnd.choice([20, 100, 500]) + rnd.random()
            spec = jobspec(1, nodes=rnd.randint(1, 7), duration=limit, exclusive=True)
        rig.submit(jobid, spec)
        rig.settle()
        dice = rnd.random()
        if dice < 0.2:
            rank = rnd.randrange(NODES)
            cluster.down ^= {rank}
            rig.resource.update(**{"down" if rank in cluster.down else "up": str(rank)})
        elif dice < 0.35:
            rig.reserve(f"r{jobid}", rnd.choice([0, 0, 50]), 1000, nodes=rnd.randint(1, 3))
        elif dice < 0.6:
            rig.wait(rnd.uniform(1, 60))
    rig.wait(2)
    return rig, cluster, rnd


def in_use(rig):
    """Cores and GPUs that are taken, by rank: by jobs, and by windows that last."""
    taken = {rank: [0, 0] for rank in range(NODES)}
    reserved = set()
    for jobid in set(rig.started()) - set(rig.ended):
        for rank, units in parts_of_R(rig.success(jobid)["R"]).items():
            taken[rank] = [used + len(more) for used, more in zip(taken[rank], units)]
    # Which ranks a window took, only the pool knows; of those that jobs use in part it has the
    # rest.
    pool = rig.sched.resources
    for jobid, _ in pool.job_end_times():
        if jobid < 0:
            reserved |= {rank for rank in range(NODES) if pool.held_ranks(jobid) >> rank & 1}
    return taken, reserved


def count(rig, cluster, spec):
    """Return the expected answer of `explain` to a request, counted rank by rank."""
    system = spec["attributes"]["system"]
    top = spec["resources"][0]
    nodes = top["count"] if top["type"] == "node" else None
    slot = top["with"][0] if nodes is not None else top
    per = {child["type"]: child["count"] for child in slot["with"]}
    slots = slot["count"] if nodes is not None else 1
    cores, gpus = per["core"] * slots, per.get("gpu", 0) * slots
    exclusive = top.get("exclusive", False)
    taken, reserved = in_use(rig)
    found = dict.fromkeys(("total", "matching", "up", "large_enough", "free", "available"), 0)
    for rank, (own_cores, own_gpus) in cluster.size.items():
        found["total"] += 1
        if not cluster.meets(rank, system.get("constraints", {})):
            continue
        found["matching"] += 1
        large = own_cores >= cores and own_gpus >= gpus
        found["large_enough"] += large
        if rank in cluster.down:
            continue
        found["up"] += 1
        if rank in reserved:
            continue
        free_cores, free_gpus = own_cores - taken[rank][0], own_gpus - taken[rank][1]
        if exclusive and taken[rank] != [0, 0]:
            continue
        if free_cores >= cores and free_gpus >= gpus:
            found["free"] += 1
            slots = min(free_cores // cores, free_gpus // gpus if gpus else free_cores)
            found["available"] += 1 if nodes is not None else slots
    return found


def parts_of(constraint):
    """The parts that must all be met."""
    for key, values in constraint.items():
        if key == "and":
            for value in values:
                yield from parts_of(value)
        elif key == "properties":
            yield from ({key: [value]} for value in values)
        else:
            yield {key: values}


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("seed", seeds(10, 40))
def test_numbers(module, seed):
    rig, cluster, rnd = scene(module, seed)
    jobs = list(rig.sched.pending_jobs())
    for job in jobs:
        said = rig.explain(job.jobid)
        spec = job.resource_request.jobspec
        expected = count(rig, cluster, spec)
        assert {key: said[key] for key in expected} == expected, (job.jobid, spec)
        left_out = []
        constraint = spec["attributes"]["system"].get("constraints", {})
        for part in parts_of(constraint):
            out = [rank for rank in range(NODES) if not cluster.meets(rank, part)]
            if out:
                left_out.append((len(out), str(IDset(out))))
        assert [(one["nodes"], one["ranks"]) for one in said["excluded"]] == left_out
        can_ever = expected["large_enough"] >= said["needed"]
        if said["unit"] == "nodes":
            assert (said["verdict"] != "never") == can_ever
        # Running jobs that it is behind: they hold resources that it could use, and end before it
        # starts.
        running = {one["name"]: one for one in rig.answer("plan")["running"]}
        for one in said["behind"]:
            if one["state"] == "running":
                held = IDset(running[one["name"]]["ranks"])
                assert any(cluster.meets(rank, constraint) for rank in held)
                start = said["t_estimate"] or float("inf")
                assert one["end"] is None or one["end"] <= start


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("seed", seeds(10, 50))
def test_a_job_that_would_fit_now_starts_at_once(seed, uniform):
    """The last job is replaced by the largest that `explain` says would fit; and by a slightly larger
    one, which does not start. If the choice of nodes matters, more may fit than it says."""
    module = "sched-backfill"
    rig, _, _ = scene(module, seed, uniform)
    jobs = list(rig.sched.pending_jobs())
    if not jobs:
        pytest.skip("nothing waits")
    last = jobs[-1]
    said = rig.explain(last.jobid)
    fits = said["fits"] or {}
    spec = last.resource_request.jobspec

    def starts(limit=None, number=None):
        other, _, _ = scene(module, seed, uniform)
        other.cancel(last.jobid, wait=0)
        changed = copy.deepcopy(spec)
        if limit is not None:
            changed["attributes"]["system"]["duration"] = limit
        if number is not None:
            changed["resources"][0]["count"] = number
        other.submit(9999, changed, runtime=1e6)
        other.settle()
        return 9999 in other.begun

    if "limit" in fits:
        assert starts(limit=fits["limit"])
    if "count" in fits:
        assert starts(number=fits["count"])
    if uniform and said["verdict"] == "waits":
        assert not starts(limit=fits.get("limit", 0) + 2)
        if "count" in fits or "limit" not in fits:
            assert not starts(number=fits.get("count", 0) + 1)
