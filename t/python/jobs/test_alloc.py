# SPDX-License-Identifier: LGPL-3.0-or-later
"""The job manager's side of RFC 27: protocols.md section 16, and golden/lifecycle.jsonl."""

import errno

import pytest
from in_process import refused

from flux.scheduler.testing import jobspec, make_R
from flux_engine.kernel.message import OWNER

SCHED, RUN, CLEANUP, INACTIVE = 8, 16, 32, 64


def seen(inst):
    """Return the messages to the scheduler since the last call, abridged."""
    out = [
        (method, body["jobs"] if method == "prioritize" else body["id"])
        for method, body in inst.sched.seen
    ]
    inst.sched.seen.clear()
    return out


TAG = {"user": {"tag": ["a", "b"]}}
PLAN = {"t_estimate": 90.0, "reason_pending": "nodes"}
#: Annotations sent by a scheduler in turn, and those shown afterwards.
ANNOTATIONS = [
    ({"sched": {**PLAN, "t_estimate": 100.5}}, {"sched": {**PLAN, "t_estimate": 100.5}}),
    ({"sched": {"t_estimate": 90.0}}, {"sched": PLAN}),
    ({**TAG, "sched": {"x": {"y": 1, "z": 2}}}, {**TAG, "sched": {**PLAN, "x": {"y": 1, "z": 2}}}),
    ({"sched": {"x": {"y": None}}}, {**TAG, "sched": {**PLAN, "x": {"z": 2}}}),
    ({"sched": {"x": 5}}, {**TAG, "sched": {**PLAN, "x": 5}}),
    ({"sched": {"t_estimate": None, "reason_pending": None}}, {**TAG, "sched": {"x": 5}}),
    ({"nothere": None}, {**TAG, "sched": {"x": 5}}),
    ({"sched": {"x": None}}, TAG),
    ({"sched": {"a": None, "b": {"c": None}}}, TAG),
]


def test_annotations(inst, sched):
    id = inst.submit()
    before = len(inst.events(id))
    for update, after in ANNOTATIONS:
        inst.sched.answer(id, type=1, annotations=update)
        inst.run()
        job = inst.listed(id)
        assert inst.jm.jobs.active[id].annotations == job["annotations"] == after
    assert len(inst.events(id)) == before


def test_cancel_crosses_success(inst, sched):
    id = inst.submit(run_duration=5)
    inst.sched.add_method("cancel", lambda msg: None, later=True)
    inst.cancel(id)
    assert inst.state(id) == CLEANUP  # the request is still out
    inst.sched.allocate(id, make_R())
    inst.run()
    assert "alloc" not in inst.events(id)
    assert inst.events(id)[-1] == "clean"
    assert inst.sched.of("free") == [{"id": id, "R": make_R(), "final": True}]


def test_urgency_is_refused_once_allocated(auto):
    id = auto.submit(run_duration=5)
    text = "urgency cannot be changed once resources are allocated"
    assert text in refused(errno.EINVAL, auto.urgency, id, 20)


def test_order_of_requests(inst):
    low, high = inst.submit(urgency=5), inst.submit(urgency=20)
    inst.advance(1)
    same = inst.submit(urgency=20)
    inst.urgency(low, 10)
    inst.load_sched()
    assert seen(inst) == [("alloc", high), ("alloc", same), ("alloc", low)]
    assert inst.sched.count == 3


def test_limited_mode(inst):
    """limit 2, five jobs; one success makes room for a third; an urgent one displaces the last."""
    inst.load_sched(mode="limited", limit=2)
    jobs = [inst.submit(run_duration=100) for _ in range(5)]
    assert seen(inst) == [("alloc", jobs[0]), ("alloc", jobs[1])]
    counts = {"queue_length": 3, "alloc_pending": 2, "running": 0}
    assert inst.rpc("job-manager.alloc-query") == counts
    inst.sched.allocate(jobs[0])
    inst.run()
    assert seen(inst) == [("alloc", jobs[2])]
    urgent = inst.submit(urgency=25)
    # The last in order makes way; with it gone, the one before it does not precede the newcomer either.
    withdrawn = [("cancel", jobs[2]), ("cancel", jobs[1])]
    assert seen(inst) == [*withdrawn, ("alloc", urgent), ("alloc", jobs[1])]


def test_update_crosses_success(inst, sched):
    """An R for the old jobspec is given back."""
    id = inst.submit(duration=60)
    inst.sched.add_method("cancel", lambda msg: None, later=True)
    inst.update(id, duration=300)
    inst.sched.allocate(id, make_R())
    inst.run()
    assert [method for method, _ in inst.sched.seen] == ["alloc", "prioritize", "free", "alloc"]


@pytest.mark.parametrize(
    "payload",
    [
        {"mode": "limited"}, {"mode": "limited", "limit": 0}, {"mode": "single"}, {}, {"mode": "unlimited", "limit": 3},
        {"mode": "limited", "limit": True}, {"mode": "limited", "limit": 1 << 31},
    ],
)  # fmt: skip
def test_bad_ready(inst, payload):
    # Ready needs a hello, and hello a stream.
    refused(errno.EPROTO, inst.rpc, "job-manager.sched-ready", {"mode": "unlimited"})
    refused(errno.EPROTO, inst.rpc, "job-manager.sched-hello", {})
    future = inst.handle.rpc("job-manager.sched-hello", {}, flags=2)
    inst.run()
    refused(errno.ENODATA, future.get)
    refused(errno.EPROTO, inst.rpc, "job-manager.sched-ready", payload)


def test_error_response_suspends(inst):
    inst.load_sched()
    id = inst.submit()
    msg = inst.sched.requests.pop(id)
    inst.sched.respond_error(msg, errno.EINVAL, "no")
    inst.run()
    assert inst.state(id) == SCHED
    assert inst.submit() and len(inst.sched.of("alloc")) == 1  # nothing is sent any more
    inst.unload_sched()
    inst.load_sched()
    assert len(inst.sched.of("alloc")) == 2


@pytest.mark.parametrize(
    "body",
    [
        {"type": 0}, {"id": "x", "type": 0}, {"id": 1, "type": 9}, {"id": 1, "type": 1}, {"id": 1, "type": 0},
        {"id": 1, "type": 1, "annotations": 3}, {"id": 1, "type": 2, "note": 3}, {"id": 1, "type": 0, "R": {"execution": {}}},
        {"id": 1, "type": 0, "R": {"execution": {"R_lite": [{"rank": "0-1", "children": {}}], "nodelist": ["a"]}}},
    ],
)  # fmt: skip
def test_malformed_response_suspends(inst, body, sched):
    id = inst.submit()
    inst.sched.respond(inst.sched.requests[id], body)
    inst.run()
    assert not inst.jm.sched.is_ready
    assert inst.state(id) == SCHED


def test_unload_and_reload(auto):
    running = auto.submit(run_duration=1000)
    auto.sched.auto = None
    pending = auto.submit()
    auto.sched.answer(pending, type=1, annotations={"sched": {"x": 1}, "user": {"y": 2}})
    auto.run()
    auto.unload_sched()
    jobs = auto.jm.jobs.active
    assert jobs[pending].annotations == {"user": {"y": 2}}
    assert auto.rpc("job-manager.queue-status", {}) == {
        "enable": True, "start": False, "blocked": "scheduler", "stop_reason": "Scheduler is offline",
    }  # fmt: skip
    auto.load_sched()
    keys = {"priority": 16, "userid": OWNER, "t_submit": jobs[running].t_submit}
    assert auto.sched.hello == [{"id": running, **keys}]
    assert auto.sched.count == 1
    assert seen(auto) == [("alloc", pending)]
    assert auto.rpc("job-manager.queue-status", {}) == {"enable": True, "start": True}


def test_a_second_hello_replaces_the_scheduler(inst):
    first = inst.load_sched()
    id = inst.submit()
    inst.kernel.remove_service("sched", first)
    inst.kernel.remove_service("feasibility", first)
    second = inst.load_sched()
    assert [body["id"] for body in second.of("alloc")] == [id]
    first.close()
    inst.run()
    assert inst.jm.sched.sender is second
    second.allocate(id)
    inst.run()
    assert inst.state(id) == RUN


@pytest.mark.parametrize("number", [0, errno.ENOSYS])
def test_expiration_update(inst, number, sched):
    if number:
        inst.sched.expiration_error = OSError(number, "no such method")
    id = inst.submit(jobspec(run_duration=100, duration=50))
    now = inst.kernel.time
    inst.sched.allocate(id, make_R(starttime=now, expiration=now + 50))
    inst.run()
    inst.update(id, duration=20)
    assert inst.sched.of("expiration") == [{"id": id, "expiration": now + 20}]
    assert inst.eventlog(id)[-1]["context"] == {"expiration": now + 20}
    inst.advance(25)
    (end,) = [event for event in inst.eventlog(id) if event["name"] == "exception"]
    assert (end["timestamp"], end["context"]["type"]) == (now + 20, "timeout")


def test_expiration_refused_and_without_scheduler(auto):
    auto.sched.expiration_error = OSError(errno.ENOENT, "never heard of it")
    id = auto.submit(run_duration=100)
    text = "scheduler refused expiration update"
    assert text in refused(errno.ENOENT, auto.update, id, duration=20)
    assert auto.events(id)[-1] == "start"
    auto.unload_sched()
    auto.update(id, duration=20)
    assert auto.events(id)[-2:] == ["jobspec-update", "resource-update"]


def test_getattr(auto):
    """The attributes of running jobs for a scheduler: with updates, without the environment."""
    id = auto.submit(run_duration=100, duration=50)
    auto.update(id, duration=70)

    def getattr(id, *attrs):
        return auto.rpc("job-manager.getattr", {"id": id, "attrs": list(attrs)})

    found = getattr(id, "jobspec", "R", "eventlog")
    assert list(found) == ["jobspec", "R", "eventlog"] and found["R"]["execution"]["R_lite"]
    system = found["jobspec"]["attributes"]["system"]
    assert system["duration"] == 70 and "environment" not in system
    assert found["eventlog"] == auto.eventlog(id)
    held = auto.submit(urgency=0)
    assert "unknown job" in refused(errno.EINVAL, getattr, id + 9)
    assert "unknown attr x" in refused(errno.ENOENT, getattr, id, "x")
    assert "non-string" in refused(errno.EPROTO, getattr, id, 3)
    assert "R is NULL" in refused(errno.ENOENT, getattr, held, "R")
