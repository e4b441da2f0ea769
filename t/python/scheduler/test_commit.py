# SPDX-License-Identifier: LGPL-3.0-or-later
"""R is stored before the job is answered, also with a slow or failing KVS; the permitted answers of a request."""

import inspect

import pytest
from peers import Guide, R, Rig, jobspec

from flux.scheduler import AllocRequest, PendingJob, Scheduler

CRIT, ERR, INFO = 2, 3, 6


@pytest.fixture
def rig():
    return Rig(R(4, 4), Guide)


def test_a_failed_commit_is_tried_again_and_logged_once(rig):
    rig.kvs.failing = True
    rig.arrive(1, jobspec(16))
    rig.arrive(2, wait=8)
    tries = len(rig.kvs.commits)
    assert 5 <= tries <= 9
    assert rig.received == []
    assert len(rig.logged(ERR)) == 1 and "disk on fire" in rig.logged(ERR)[0]
    assert len(rig.sched.resources.job_end_times()) == 1
    rig.kvs.failing = False
    rig.wait(6)
    assert rig.success(1)
    assert "again" in rig.logged(INFO)[-1]
    assert rig.sched.stats_get()["errors"] == 0


def test_a_kvs_that_stays_out_of_order_is_an_orderly_end(rig):
    rig.kvs.failing = True
    rig.arrive((1, 2), wait=59)
    assert not rig.task.ended
    rig.wait(10)
    assert rig.task.ended and rig.task.failure is None
    assert any("the scheduler ends here" in text for text in rig.logged(CRIT))
    assert [p for p in rig.received if p[1] == 0] == []


def open_request(rig):
    """The request of a job that no pass starts."""
    rig.sched.schedule = lambda: None
    rig.arrive(1)
    return rig.sched._queue[0].request


def test_nulls_for_values_not_shown_are_left_out(rig):
    request = open_request(rig)
    request.annotate({"sched": {"t_estimate": None}})
    request.annotate({"sched": {"t_estimate": None, "x": 1}})
    request.annotate({"sched": {"t_estimate": None}, "user": {"y": None}})
    sent = [answer["annotations"] for answer in rig.answers(1)]
    assert sent == [{"sched": {"x": 1}}, {"user": {"y": None}}]


def test_the_guides_answers_work_from_outside_too(rig):
    """alloc_success and its kin may be called with the message alone."""
    rig.sched.schedule = lambda: None
    rig.arrive((1, 2, 3))
    msgs = {job.jobid: job.request.msg for job in rig.sched._queue}
    rig.sched.alloc_annotate(msgs[1], {"sched": {"x": 1}})
    rig.sched.alloc_deny(msgs[1], "no")
    rig.sched.alloc_cancel(msgs[2])
    rig.sched.alloc_success(msgs[3], {"version": 1}, {"sched": {"y": 2}})
    assert rig.answers(1) == [
        {"id": 1, "type": 1, "annotations": {"sched": {"x": 1}}},
        {"id": 1, "type": 2, "note": "no"},
    ]
    assert rig.answers(2) == [{"id": 2, "type": 3}]
    success = {"id": 3, "type": 0, "R": {"version": 1}, "annotations": {"sched": {"y": 2}}}
    assert rig.answers(3) == [success]
    rig.unload()  # it has not noted that the jobs were answered


def test_times_that_a_policy_sets_and_R_objects_are_left_alone():
    class Mine(Guide):
        def schedule(self):
            while self._queue:
                job = self._queue.pop(0)
                alloc = self.resources.alloc(job.jobid, job.resource_request)
                if job.jobid == 1:
                    alloc.set_starttime(5.0)
                job.request.success(alloc if job.jobid == 1 else alloc.to_dict())

    rig = Rig(R(1, 4), Mine)
    rig.arrive((1, 2), jobspec(1, duration=60))
    for jobid, start in ((1, 5.0), (2, 0.0)):
        execution = rig.success(jobid)["R"]["execution"]
        assert (execution["starttime"], execution["expiration"]) == (start, 0.0)


def test_signatures_are_those_of_the_guide():
    """Sites make these objects themselves, in tests at least."""
    assert list(inspect.signature(AllocRequest).parameters) == ["scheduler", "msg"]
    assert list(inspect.signature(PendingJob).parameters) == [
        "jobid", "priority", "t_submit", "request", "resource_request",
    ]  # fmt: skip
    h, args = inspect.signature(Scheduler).parameters.values()
    assert (h.name, args.name, args.kind) == ("h", "args", args.VAR_POSITIONAL)
