# SPDX-License-Identifier: LGPL-3.0-or-later
"""Options of pools: cores that no job gets, and cores that come with a GPU."""

import pytest
from pool_model import ask

from flux.resource import InfeasibleRequest, InsufficientResources, ResourcePool
from flux.scheduler.policies import Backfill, Fifo
from flux.scheduler.testing import FakeInstance, make_R


def pool_of(*lite, **options):
    lite = lite or ({"rank": "0-1", "children": {"core": "0-7", "gpu": "0-1"}},)
    R = {"version": 1, "execution": {"R_lite": list(lite)}}
    return ResourcePool(R, **options)


def children(alloc):
    (entry,) = alloc.to_dict()["execution"]["R_lite"]
    return entry["children"]


CASES = [
    ({"system_cores": "0-7"}, "system_cores='0-7': no core is left on rank 0-1"),
    ({"system_cores": "x"}, "system_cores='x': expected core ids, such as 0 or 0-1"),
    ({"system_cores": -1}, "expected core ids"),
    ({"cores_per_gpu": "x"}, "cores_per_gpu='x': expected a number, 1 or more, or 'share'"),
    ({"cores_per_gpu": 0}, "cores_per_gpu=0: expected a number"),
    ({"cores_per_gpu": True}, "cores_per_gpu=True: expected a number"),
    ({"cores_per_gpu": "5"}, "cores_per_gpu=5: rank 0-1 has 4 cores for each GPU"),
    ({"cores_per_gpu": 4, "system_cores": "0"}, "rank 0-1 has 3 cores for each GPU"),
    ({"cores_per_gpu": "share", "system_cores": "0-6"}, "rank 0-1 has more GPUs than cores"),
]


@pytest.mark.parametrize("options, fault", CASES)
def test_faults(options, fault):
    with pytest.raises(ValueError, match=fault):
        pool_of(**options)


@pytest.mark.parametrize(
    "option, keys, cores, gpus",
    [
        ("share", {"gpus": 1}, "0-3", "0"),
        ("share", {"gpus": 2}, "0-7", "0-1"),
        ("3", {"gpus": 1}, "0-2", "0"),
        (3, {"gpus": 1, "cores": 5}, "0-4", "0"),
        (3, {"gpus": 1, "slots": 2}, "0-5", "0-1"),
        ("share", {"cores": 2}, "0-1", None),
        ("share", {"gpus": 1, "nodes": 1, "exclusive": True}, "0-7", "0-1"),
        (None, {"gpus": 1}, "0", "0"),
    ],
)
def test_a_gpu_brings_its_cores(option, keys, cores, gpus):
    pool = pool_of(cores_per_gpu=option)
    alloc = pool.alloc(1, ask(pool, **keys))
    expected = {"core": cores} if gpus is None else {"core": cores, "gpu": gpus}
    assert children(alloc) == expected
    assert alloc.to_dict()["execution"]["nslots"] == keys.get("slots", 1)
    pool.check()


def test_system_cores_are_given_to_nobody():
    pool = pool_of(system_cores="0,4")
    alloc = pool.alloc(1, ask(pool, nodes=1, exclusive=True))
    assert children(alloc) == {"core": "1-3,5-7", "gpu": "0-1"}
    with pytest.raises(InsufficientResources):
        pool.alloc(2, ask(pool, slots=7))
    with pytest.raises(InfeasibleRequest):
        pool.alloc(2, ask(pool, nodes=1, cores=7))
    copy = pool.copy()
    copy.free(1, alloc, final=True)
    assert copy.alloc(2, ask(pool, slots=12)) and pool.known_options == copy.known_options
    pool.check()


@pytest.mark.parametrize("policy", [Fifo, Backfill])
def test_a_scheduler_takes_them_as_arguments(policy):
    instance = FakeInstance(R=make_R(ranks="0-1", cores="0-7", gpus="0-1", hosts="n[0-1]"))
    instance.load(policy, "pool-cores-per-gpu=share", "pool-system-cores=7")
    jobs = [instance.submit(gpus=1, duration=100) for _ in range(5)]
    instance.run_until_idle()
    assert [job.state for job in jobs] == ["running"] * 4 + ["pending"]
    held = jobs[0].R["execution"]["R_lite"][0]["children"]
    assert held == {"core": "0-2", "gpu": "0"}
