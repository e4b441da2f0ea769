# SPDX-License-Identifier: LGPL-3.0-or-later
"""Pictures of a node, as text and as SVG: free resources, and the holder of each other one."""

import pytest
from tree_help import start, topo_R

from flux.resource.draw.text import render_text
from flux.resource.draw.view import view
from flux.resource.TreePool import TreePool

SOCKETS = {
    "socket": [
        {"numa": [{"cores": "0-1", "gpus": "0", "memory": 4}, {"cores": "2-3"}], "gpus": "1"},
        {"cores": "4-7"},
    ]
}


def pool_with_jobs(*shapes, nodes=3):
    R = topo_R((nodes, "0-8", "0-2", SOCKETS))
    pool = TreePool(R)
    jobs = {}
    for number, shape in enumerate(shapes, 1):
        jobs[f"job{number}"] = start(pool, number, shape).to_dict()
    return R, jobs


def test_text():
    R, jobs = pool_with_jobs("slot/[core=2;gpu]", "slot/core=3", "slot=2/[core;gpu]", nodes=2)
    assert render_text(R, jobs, down="1") == (
        "n0 (rank 0): 9 cores, 3 GPUs; 2 cores, 0 GPUs free\n"
        "  core 8       .   gpu 2 c\n"
        "├─ socket 0\n"
        "│  gpu 1 c\n"
        "│  ├─ numa 0    cores 0-1    aa   gpu 0 a  4 GiB\n"
        "│  └─ numa 1    cores 2-3    cc\n"
        "└─ socket 1  cores 4-7    bbb.\n"
        "\n"
        "n1 (rank 1): 9 cores, 3 GPUs; down\n"
        "  core 8       .   gpu 2 .\n"
        "├─ socket 0\n"
        "│  gpu 1 .\n"
        "│  ├─ numa 0    cores 0-1    ..   gpu 0 .  4 GiB\n"
        "│  └─ numa 1    cores 2-3    ..\n"
        "└─ socket 1  cores 4-7    ....\n"
        "\n"
        "a job1: 2 cores, 1 GPU\n"
        "b job2: 3 cores\n"
        "c job3: 2 cores, 2 GPUs\n"
    )


def test_cores_of_siblings_are_aligned():
    R = topo_R((1, "0-129", "", {"socket": [{"cores": "0-99"}, {"cores": "100-129"}]}))
    lines = render_text(R).splitlines()
    assert [line.index(".") for line in lines[1:]] == [27, 27, 27]


def test_nodes_in_one_state_are_one_block():
    R, jobs = pool_with_jobs("node=3/slot/core")
    (state,) = view(R, jobs)
    assert state.title() == "n[0-2] (ranks 0-2)"
    assert state.summary() == "9 cores, 3 GPUs; 8 cores, 3 GPUs free"
    text = render_text(R, jobs, ascii_only=True)
    assert text.isascii() and "a job1: 3 cores on 3 nodes" in text


def test_only_some_ranks():
    R, _ = pool_with_jobs()
    assert [state.title() for state in view(R, ranks="1")] == ["n1 (rank 1)"]
    assert [state.title() for state in view(R, ranks="1,9")] == ["n1 (rank 1)"]
    with pytest.raises(ValueError, match="ranks 9: R has 0-"):
        view(R, ranks="9")


def test_R_of_a_job_whose_topology_has_other_rank_numbers():
    R = topo_R((1, "0-3", "", {"cores": "0-3"}), (1, "0-8", "0-2", SOCKETS))
    for entry, ranks in zip(R["scheduling"]["children"], ("7", "30")):
        entry["ranks"] = ranks
    first, second = view(R)
    assert [len(first.part.below), len(second.part.below)] == [0, 2]
    R["execution"]["R_lite"][0]["rank"], R["execution"]["R_lite"][1]["rank"] = "3", "5"
    assert [state.title() for state in view(R)] == ["n0 (rank 3)", "n1 (rank 5)"]
    assert len(view(R)[1].part.below) == 2


def test_an_error_in_the_topology_is_named():
    """R is drawn before it is installed, so an R that TreePool refuses is an error here too."""
    R, _ = pool_with_jobs()
    R["scheduling"]["children"][0]["ranks"] = "0-1"
    with pytest.raises(ValueError, match="2 ranks are named, but R has 3"):
        view(R)
    R["scheduling"]["writer"] = "another"
    (state,) = view(R)
    assert not state.part.below


def test_domains_that_R_has_nothing_of_are_left_out():
    numas = [{"numa": [{"cores": f"{2 * i}-{2 * i + 1}"} for i in (j, j + 1)]} for j in (0, 2, 4)]
    text = render_text(topo_R((1, "5,8-9", "", {"socket": numas})), ascii_only=True)
    assert text.splitlines()[1:] == [
        "|- socket 1",
        "|  `- numa 2    core 5       .",
        "`- socket 2",
        "   `- numa 4    cores 8-9    ..",
    ]


def test_R_without_topology_or_hosts():
    R = {"version": 1, "execution": {"R_lite": [{"rank": "0-3", "children": {"core": "0-69"}}]}}
    text = render_text(R)
    assert text.startswith("ranks 0-3: 70 cores; all free\n  cores 0-69   " + "." * 64 + "\n")


def test_more_jobs_than_letters():
    R = topo_R((1, "0-59", "", {"cores": "0-59"}))
    jobs = {}
    for core in range(60):
        lite = [{"rank": "0", "children": {"core": str(core)}}]
        jobs[core] = {"version": 1, "execution": {"R_lite": lite}}
    text = render_text(R, jobs)
    assert "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ********" in text


@pytest.mark.parametrize("down, jobs", [("x", {}), ("", {"a": {"execution": {"R_lite": 3}}})])
def test_bad_input(down, jobs):
    R, _ = pool_with_jobs()
    with pytest.raises(ValueError):
        render_text(R, jobs, down=down)
