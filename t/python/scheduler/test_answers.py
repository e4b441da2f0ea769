# SPDX-License-Identifier: LGPL-3.0-or-later
"""What users are told is what then happens, for each kind of site of ``t/bench/answers``."""

import importlib.machinery
import importlib.util
import itertools
from pathlib import Path

import pytest
from peers import R, Rig, jobspec
from shared import seeds

from flux.scheduler.policies import Backfill

PATH = Path(__file__).resolve().parents[2] / "bench" / "answers"
_loader = importlib.machinery.SourceFileLoader("answers", str(PATH))
answers = importlib.util.module_from_spec(importlib.util.spec_from_loader("answers", _loader))
_loader.exec_module(answers)


# In the last one promises move by half a second.
@pytest.mark.parametrize(
    "kind, seed", [*itertools.product(answers.KINDS, seeds(1, 2)), ("unlimited, parts", 728)]
)
def test_jobs_start_when_their_users_were_told(kind, seed):
    figures = dict.fromkeys(answers.COLUMNS, 0)
    answers.measure(kind, seed, figures)
    assert {name for name, count in figures.items() if count} <= {"as said", "exact"}


def test_a_limit_of_nodes_holds_back_a_job_that_shares_nodes():
    """How many nodes a job of slots takes is known only when it gets them."""
    rig = Rig(R(4, 4))
    rig.instance.config = {"limits": {"one": {"per": "user", "max": {"nodes": 2}}}}
    rig.load(Backfill)
    for jobid, cores in ((1, 3), (2, 3)):  # each leaves a core of its node
        rig.alloc(jobid, jobspec(1, cores=cores, duration=100 * jobid), userid=7)
    rig.settle()
    rig.client.userid, rig.client.rolemask = 7, 2
    spec = jobspec(2, cores=2, duration=10)
    errnum, said = rig.ask("sched.when", {"jobspec": spec})
    assert errnum == 0 and said["verdict"] == "later"
    assert said["start"] == pytest.approx(rig.success(1)["R"]["execution"]["expiration"])
    assert "limit one" in said["reason"]
