# SPDX-License-Identifier: LGPL-3.0-or-later
"""States follow from events alone (RFC 21), and a restarted job manager goes on where the last one was."""

import errno

import pytest
from in_process import refused
from jobs_instance import ALL
from shared import optional_jsonl, recorded_cases

from flux.scheduler.testing import jobspec
from flux_embedded.services.job_manager.job import Job
from flux_engine.formats import states
from flux_engine.formats.states import INACTIVE, RUN, SCHED

RECORDED = optional_jsonl("golden/eventlogs.jsonl")


@pytest.mark.parametrize("entry", recorded_cases(RECORDED), ids=lambda entry: entry["case"])
def test_recorded_eventlogs(entry):
    """Our replay of a real instance's eventlog ends in the state that the instance showed."""
    job = Job(1, 0, 0, 0, 0.0, jobspec())
    job.state = 0
    for event in entry["events"]:
        job.apply(event)
    words = entry["jobs_state_result_status"].split()
    assert states.NAMES[job.state] == words[0]
    if job.state == INACTIVE:
        assert states.RESULT_NAMES[job.result] == words[1]


# -- restart ------------------------------------------------------------------------------------------


def restart(inst):
    inst.unload("job-manager")
    inst.load_module("job-manager")
    inst.run()


def test_restart(inst):
    inst.load_sched(auto=True)
    done, running = inst.submit(run_duration=1), inst.submit(run_duration=100)
    inst.advance(2)
    inst.sched.auto = None
    held, waiting = inst.submit(urgency=0), inst.submit(urgency=20)
    dependent = inst.submit(
        dependencies=[{"scheme": "afterok", "value": str(running)}], run_duration=1
    )
    timed = inst.submit(
        dependencies=[{"scheme": "begin-time", "value": str(inst.kernel.time + 500)}]
    )
    before = {id: inst.state(id) for id in (done, running, held, waiting, dependent, timed)}
    restart(inst)
    assert {id: inst.state(id) for id in before} == before
    assert inst.events(held)[-2:] == ["flux-restart", "priority"]
    assert inst.events(running)[-1] == inst.events(dependent)[-1] == "flux-restart"
    assert inst.events(done)[-1] == "clean"
    assert inst.jm.jobs.active[waiting].priority == 20
    inst.unload_sched()
    inst.load_sched()
    assert [job["id"] for job in inst.sched.hello] == [running]
    assert [body["id"] for body in inst.sched.of("alloc")] == [waiting]
    assert len(inst.rpc("job-list.list", ALL)["jobs"]) == 6
    # Execution still knows the running job, and jobs that wait for it go on after it.
    inst.advance(200)
    assert inst.events(running)[-4:] == ["finish", "release", "free", "clean"]
    assert inst.state(dependent) == SCHED
    assert "dependency-remove" in inst.events(dependent)
    inst.advance(500)
    assert inst.state(timed) == SCHED


def test_restart_without_execution(inst):
    """A job whose execution is gone for good ends with an exception, and its resources come back."""
    inst.load_sched(auto=True)
    id = inst.submit(run_duration=100)
    inst.unload("job-exec")
    inst.unload("job-manager")
    inst.load_module("job-manager")
    inst.unload_sched()
    inst.load_sched()
    assert inst.state(id) == RUN
    inst.load_module("job-exec")
    inst.run()
    names = inst.events(id)
    assert names[-4:] == ["exception", "release", "free", "clean"]
    assert len(inst.sched.of("free")) == 1


def test_damaged_job_directory(inst):
    id = inst.submit()
    inst.rpc("kvs.commit", {"ops": [["put", "job.0000.0000.0000.0099.eventlog", "junk\n"]]})
    restart(inst)
    assert list(inst.jm.jobs.active) == [id]
    assert any("cannot be loaded" in entry.text for entry in inst.ctx.ring.entries())


@pytest.mark.parametrize(
    "topic, more, unknown, inactive",
    [
        ("raise", {"type": "x", "severity": 0}, errno.ENOENT, errno.ENOENT),
        ("urgency", {"urgency": 3}, errno.EINVAL, errno.EINVAL),
        ("memo", {"memo": {"a": 1}}, errno.ENOENT, errno.ENOENT),
        ("update", {"updates": {"attributes.system.duration": 1}}, errno.ENOENT, errno.EINVAL),
    ],
)
def test_unknown_and_inactive(inst, topic, more, unknown, inactive):
    id = inst.submit()
    inst.cancel(id)
    for which, number, text in ((1234, unknown, "unknown job"), (id, inactive, "job is inactive")):
        assert text in refused(number, inst.rpc, f"job-manager.{topic}", {"id": which, **more})
