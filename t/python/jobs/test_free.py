# SPDX-License-Identifier: LGPL-3.0-or-later
"""Frees: partial release, housekeeping, epilogs, and the answer to hello meanwhile."""

import errno

import pytest
from in_process import refused
from jobs_instance import JobsInstance

from flux.scheduler.testing import make_R
from flux_engine.formats import idset, rset
from flux_engine.kernel.clock import RealClock

FOUR = make_R(4, 2, starttime=5.0, nslots=4, properties={"big": "1-2"})


def frees(inst):
    """(ranks, final) of all frees so far."""
    return [(idset.text(rset.ranks(body["R"])), body["final"]) for body in inst.sched.of("free")]


def housekeeping(inst, command=("true",), **settings):
    durations = {"0": "1s", "1": "2s", "2": "2s", "3": "5s"}
    table = {"command": list(command), "mock-duration": durations, **settings}
    inst.rpc("config.load", {"job-manager": {"housekeeping": table}})


@pytest.fixture
def four(inst):
    inst.load_sched(auto=lambda body: FOUR)
    return inst


def visit(inst):
    """The one job in housekeeping."""
    (found,) = inst.jm.housekeeping.visits.values()
    return found


def submit_and_end_rank_0(four):
    """A job that has finished, and of whose ranks execution holds all but the first."""
    id = four.submit(run_duration=1000)
    job = four.service("job-exec").jobs[id]
    job.answer("finish", {"status": 0})
    job.answer("release", {"ranks": "0", "final": False})
    four.run()
    return id, job


def test_partial_release_by_execution(four):
    id, job = submit_and_end_rank_0(four)
    assert frees(four) == [("0", False)]
    assert "free" not in four.events(id)
    four.unload_sched()
    four.load_sched()
    assert four.sched.hello[0]["free"] == "0"
    job.answer("release", {"ranks": "1-3", "final": True})
    four.run()
    releases = [event["context"] for event in four.eventlog(id) if event["name"] == "release"]
    assert releases == [{"ranks": "0", "final": False}, {"ranks": "1-3", "final": True}]
    assert frees(four) == [("1-3", True)]
    assert four.events(id)[-2:] == ["free", "clean"]


def test_hello_without_partial_ok_while_execution_holds_the_rest(four):
    submit_and_end_rank_0(four)
    four.unload_sched()
    future = four.handle.rpc("job-manager.sched-hello", {"partial-ok": False}, flags=2)
    four.run()
    refused(errno.ENOTSUP, future.get)


def test_housekeeping_in_pieces(four):
    housekeeping(four, **{"release-after": "0s"})
    id = four.submit(run_duration=1)
    four.advance(1)
    assert four.events(id)[-3:] == ["release", "free", "clean"]
    assert four.state(id) == 64 and frees(four) == []
    four.advance(1)
    assert frees(four) == [("0", False)]
    four.advance(1)
    assert frees(four) == [("0", False), ("1", False), ("2", False)]
    allocated = four.rpc("job-manager.resource-status")["allocated"]
    assert allocated["execution"]["R_lite"] == [{"rank": "3", "children": {"core": "0-1"}}]
    (described,) = four.rpc("job-manager.stats-get")["housekeeping"]["running"].values()
    began = four.kernel.now() - 2
    assert visit(four).active == {3}
    assert described == {"t_start": began, "allocated": "3", "pending": "3"}
    four.advance(3)
    assert frees(four)[-1] == ("3", True)
    R = four.sched.of("free")[0]["R"]["execution"]
    assert "nslots" not in R and (R["starttime"], R["expiration"]) == (0.0, 0.0)


def test_housekeeping_release_after(four):
    housekeeping(four, **{"release-after": "3s"})
    four.submit(run_duration=1)
    four.advance(3.5)
    assert frees(four) == []
    four.advance(1)
    assert frees(four) == [("0-2", False)]
    four.advance(2)
    assert frees(four) == [("0-2", False), ("3", True)]


def test_hello_without_partial_ok_ends_housekeeping(four):
    housekeeping(four, **{"release-after": "0s"})
    partly = four.submit(run_duration=1)
    four.advance(3)
    housekeeping(four, **{"release-after": "100s"})
    whole = four.submit(run_duration=0)
    four.advance(1)
    four.unload_sched()
    four.load_sched(partial_ok=False)
    assert [job["id"] for job in four.sched.hello] == [whole]
    assert "free" not in four.sched.hello[0]
    assert partly not in four.jm.housekeeping.visits
    four.advance(5)
    assert [body["id"] for body in four.sched.of("free")] == [whole]
    assert frees(four) == [("0-3", True)]


def test_housekeeping_without_scheduler(four):
    housekeeping(four)
    id = four.submit(run_duration=1)
    four.advance(1)
    four.unload_sched()
    four.advance(20)
    assert id not in four.jm.housekeeping.visits
    four.load_sched()
    assert four.sched.hello == []


def test_housekeeping_kill(four):
    housekeeping(four, **{"mock-duration": "inf"})
    id = four.submit(run_duration=1)
    four.advance(100)
    assert frees(four) == []
    four.rpc("job-manager.housekeeping-kill", {"jobid": id + 1, "signum": 15})
    assert visit(four).active == {0, 1, 2, 3}
    four.rpc("job-manager.housekeeping-kill", {"signum": 15, "ranks": "1,3,7"})
    assert visit(four).active == {0, 2} and frees(four) == []
    four.rpc("job-manager.housekeeping-kill", {"signum": 15})
    assert frees(four) == [("0-3", True)]


@pytest.fixture
def real():
    """The same by the clock, where scripts run."""
    inst = JobsInstance(clock=RealClock(), size=4)
    inst.load_sched(auto=lambda body: FOUR)
    inst.rpc("overlay.join", {"ranks": "0-3"})
    yield inst
    inst.stop()


def test_housekeeping_scripts_really_run(real):
    script = "test $FLUX_EMBEDDED_RANK -lt 2 || sleep 0.1; echo $FLUX_EMBEDDED_RANK $FLUX_JOB_ID"
    housekeeping(real, command=["sh", "-c", script], **{"release-after": "0s"})
    real.submit(run_duration=0)
    real.kernel.run(until=lambda: bool(frees(real)) and frees(real)[-1][1])
    assert sorted(rank for rank, _ in frees(real)) == ["0", "1", "2", "3"]
    texts = [entry.text for entry in real.ctx.ring.entries()]
    assert any(text.startswith("housekeeping of") and " on rank 3: 3 " in text for text in texts)


@pytest.mark.parametrize(
    "table",
    [
        {"command": "true"}, {"command": []}, {"command": ["true"], "release-after": "x"},
        {"command": ["true"], "mock-duration": -1},
    ],
)  # fmt: skip
def test_bad_housekeeping_configuration(inst, table):
    table = {"job-manager": {"housekeeping": table}}
    assert "job-manager.housekeeping" in refused(errno.EINVAL, inst.rpc, "config.load", table)


def test_resource_status_adds_up(inst):
    cores = iter(["0", "2-3"])
    inst.load_sched(auto=lambda body: make_R(ranks="1", cores=next(cores), hosts="n1"))
    inst.submit(run_duration=10)
    inst.submit(run_duration=10)
    allocated = inst.rpc("job-manager.resource-status")["allocated"]["execution"]
    assert allocated["R_lite"] == [{"rank": "1", "children": {"core": "0,2-3"}}]
    assert allocated["nodelist"] == ["n1"]
