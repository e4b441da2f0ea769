# SPDX-License-Identifier: LGPL-3.0-or-later
"""Requests on jobs: exceptions, waiting, memo, purge; queues (protocols.md 13, 14; cli.md)."""

import errno

import pytest
from in_process import refused
from jobs_instance import ALL

from flux.scheduler.testing import make_R

SCHED, RUN, INACTIVE = 8, 16, 64


ANY = (1 << 64) - 1


def error(inst, topic, payload):
    return inst.fails(f"job-manager.{topic}", payload)


# -- exceptions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [{"type": "x", "severity": 9}, {"type": "x", "severity": -1}, {"type": "", "severity": 0}, {"severity": 0},
     {"type": "a b", "severity": 0}, {"type": "x", "severity": True}],
)  # fmt: skip
def test_bad_exception(inst, body):
    id = inst.submit()
    number, text = error(inst, "raise", {"id": id, **body})
    assert number == errno.EPROTO
    assert text == "invalid exception severity" or body.get("severity") not in (9, -1)
    assert inst.state(id) == SCHED


def test_raiseall(inst):
    inst.load_sched(auto=True)
    running = inst.submit(run_duration=100)
    inst.sched.auto = None
    pending = [inst.submit() for _ in range(3)]
    body = {"dry_run": False, "userid": -1, "type": "cancel", "severity": 0, "states": 14}
    assert inst.rpc("job-manager.raiseall", {**body, "dry_run": True}) == {"count": 3, "errors": 0}
    assert inst.state(pending[0]) == SCHED
    assert inst.rpc("job-manager.raiseall", body) == {"count": 3, "errors": 0}
    assert {inst.state(id) for id in pending} == {INACTIVE} and inst.state(running) == RUN
    body["states"] = 62
    assert inst.rpc("job-manager.raiseall", body) == {"count": 1, "errors": 0}
    for key in body:
        less = {name: value for name, value in body.items() if name != key}
        assert error(inst, "raiseall", less) == (errno.EPROTO, "Protocol error")


def test_guests_and_other_peoples_jobs(inst):
    mine = inst.submit()
    inst.as_user(1234)
    theirs = inst.submit()
    for topic, body in (
        ("raise", {"type": "cancel", "severity": 0}), ("urgency", {"urgency": 1}), ("memo", {"memo": {"a": 1}}),
        ("update", {"updates": {"attributes.system.duration": 1}}),
    ):  # fmt: skip
        assert error(inst, topic, {"id": mine, **body})[0] == errno.EPERM
    assert error(inst, "urgency", {"id": theirs, "urgency": 17})[0] == errno.EPERM
    assert inst.urgency(theirs, 5) == {"old_urgency": 16}
    body = {"dry_run": False, "states": 62, "type": "cancel", "severity": 0}
    text = "guests can only raise exceptions on their own jobs"
    assert error(inst, "raiseall", {**body, "userid": -1}) == (errno.EPERM, text)
    assert inst.rpc("job-manager.raiseall", {**body, "userid": 1234})["count"] == 1
    assert error(inst, "queue-start", {"start": False, "all": True})[0] == errno.EPERM
    assert error(inst, "submit", {"jobs": []})[0] == errno.EPERM
    inst.as_user()
    assert inst.state(mine) == SCHED


def test_urgency_range(inst):
    id = inst.submit()
    out_of_range = errno.EINVAL, "urgency value is out of range"
    for urgency in (32, -1):
        assert error(inst, "urgency", {"id": id, "urgency": urgency}) == out_of_range
    for urgency in ("x", 1.5, True):
        assert error(inst, "urgency", {"id": id, "urgency": urgency})[0] == errno.EPROTO
    assert inst.urgency(id, 20) == {"old_urgency": 16}


# -- waiting ----------------------------------------------------------------------------------------------


def test_wait(inst, auto):
    good = inst.submit(run_duration=1, flags=4)
    bad = inst.submit(flags=4, exec={"test": {"run_duration": "2s", "wait_status": 256}})
    plain = inst.submit(run_duration=1)
    text = "job was not submitted with FLUX_JOB_WAITABLE"
    assert error(inst, "wait", {"id": plain}) == (errno.ECHILD, text)
    future = inst.handle.rpc("job-manager.wait", {"id": good})
    inst.run()
    assert error(inst, "wait", {"id": good})[0] == errno.ECHILD  # only one may
    inst.advance(1)
    assert future.get() == {"id": good, "success": True, "errstr": ""}
    assert error(inst, "wait", {"id": good})[0] == errno.ECHILD  # only once
    inst.advance(1)
    failed = {"id": bad, "success": False, "errstr": "task(s) exited with exit code 1"}
    assert inst.rpc("job-manager.wait", {"id": ANY}) == failed
    assert error(inst, "wait", {"id": ANY})[1] == "there are no more waitable jobs"
    assert error(inst, "wait", {})[0] == errno.EPROTO


def test_wait_for_any(inst, auto):
    ids = [inst.submit(run_duration=seconds, flags=4) for seconds in (3, 1)]
    futures = [inst.handle.rpc("job-manager.wait", {"id": ANY}) for _ in range(3)]
    inst.advance(5)
    assert [future.get()["id"] for future in futures[:2]] == [ids[1], ids[0]]
    assert "no more waitable jobs" in refused(errno.ECHILD, futures[2].get)


@pytest.mark.parametrize(
    "kind, note, text",
    [("cancel", "", "Fatal exception type=cancel"), ("x", "broken", "Fatal exception type=x broken")],
)  # fmt: skip
def test_wait_for_a_failed_job(inst, kind, note, text):
    id = inst.submit(flags=4)
    inst.rpc("job-manager.raise", {"id": id, "type": kind, "severity": 0, "note": note})
    assert inst.rpc("job-manager.wait", {"id": id}) == {"id": id, "success": False, "errstr": text}


@pytest.mark.parametrize(
    "status, text",
    [(0, ""), (3 << 8, "task(s) exited with exit code 3"), (128 << 8, "task(s) exited with exit code 128"),
     (137 << 8, "task(s) Killed"), (255 << 8, "task(s) Unknown signal 127"), (9, "job shell Killed")],
)  # fmt: skip
def test_wait_tells_how_a_job_ended(inst, status, text, auto):
    id = inst.submit(flags=4, exec={"test": {"run_duration": "1s", "wait_status": status}})
    inst.advance(2)
    found = inst.rpc("job-manager.wait", {"id": id})
    assert found == {"id": id, "success": not text, "errstr": text}


def test_drain_and_idle(inst):
    inst.load_sched(auto=True)
    assert inst.rpc("job-manager.drain") is None
    inst.submit(run_duration=2)
    inst.sched.auto = None
    pending = inst.submit()
    drain, idle = inst.handle.rpc("job-manager.drain"), inst.handle.rpc("job-manager.idle")
    inst.advance(1)
    assert not idle.is_ready()
    inst.advance(1)
    assert idle.get() == {"pending": 1} and not drain.is_ready()
    inst.cancel(pending)
    assert drain.get() is None


# -- memo, purge --------------------------------------------------------------------------------------------------


def test_memo(inst):
    id = inst.submit()
    inst.rpc("job-manager.memo", {"id": id, "memo": {"a": 1, "b": 2}})
    inst.rpc("job-manager.memo", {"id": id, "memo": {"a": None, "c": 3}})
    assert inst.eventlog(id)[-1]["context"] == {"a": None, "c": 3}
    job = inst.listed(id)
    assert job["annotations"] == {"user": {"b": 2, "c": 3}}
    assert error(inst, "memo", {"id": id})[0] == errno.EPROTO
    assert error(inst, "memo", {"id": 1 << 40, "memo": {}}) == (errno.ENOENT, "unknown job id")


def test_purge(inst):
    ids = [inst.submit() for _ in range(4)]
    for id in ids[:3]:
        inst.cancel(id)
    assert purge(inst, num_limit=1) == 2  # without force it only counts
    assert purge(inst, num_limit=1, force=True) == 2
    assert list(inst.jm.jobs.inactive) == [ids[2]]
    refused(errno.ENOENT, inst.eventlog, ids[0])
    assert inst.eventlog(ids[2])
    assert [job["id"] for job in inst.rpc("job-list.list", ALL)["jobs"]] == [ids[3], ids[2]]
    assert inst.rpc("job-list.job-stats")["inactive_purged"] == 2
    assert error(inst, "purge", {"force": True})[0] == errno.EPROTO
    assert error(inst, "purge", {"num_limit": -1, "force": True})[0] == errno.EINVAL


def purge(inst, **body):
    return inst.rpc("job-manager.purge", {"force": False, **body})["count"]


# -- queues -----------------------------------------------------------------------------------------------------

CONFIG = {
    "queues": {"a": {"requires": ["x"]}, "b": {}},
    "policy": {"jobspec": {"defaults": {"system": {"queue": "b"}}}},
}


@pytest.fixture
def queues(inst):
    inst.load_sched()
    inst.rpc("config.load", CONFIG)
    return inst


def status(inst, name=None):
    return inst.rpc("job-manager.queue-status", {"name": name} if name else {})


def switch(inst, start, name=None, **kwargs):
    which = {"name": name} if name else {}
    inst.rpc("job-manager.queue-start", {"start": start, "all": False, **which, **kwargs})


def enable(inst, enable, name, **kwargs):
    body = {"enable": enable, "all": False, "name": name, **kwargs}
    inst.rpc("job-manager.queue-enable", body)


def allocs(inst):
    found = [body["id"] for body in inst.sched.of("alloc")]
    inst.sched.seen.clear()
    return found


def test_anonymous_queue(inst, sched):
    assert status(inst) == {"enable": True, "start": True}
    assert inst.rpc("job-manager.queue-list") == {"queues": [], "conf": {"queues": []}}
    disable = {"enable": False, "all": False}
    assert error(inst, "queue-enable", disable) == (errno.EINVAL, "reason is required for disable")
    inst.rpc("job-manager.queue-enable", {**disable, "reason": "no more"})
    switch(inst, False, reason="maint")
    stopped = {"enable": False, "start": False}
    assert status(inst) == {**stopped, "disable_reason": "no more", "stop_reason": "maint"}
    nosuch = {"start": True, "all": False, "name": "nosuch"}
    assert error(inst, "queue-start", nosuch)[1] == "'nosuch' is not a valid queue"


def test_named_queues_are_stopped_at_first(queues):
    assert queues.rpc("job-manager.queue-list")["queues"] == ["a", "b"]
    assert status(queues, "a") == {"enable": True, "start": False}
    assert "--all" in error(queues, "queue-start", {"start": True, "all": False})[1]
    one, two = queues.submit(queue="a"), queues.submit()
    assert allocs(queues) == []
    switch(queues, True, "b")
    assert allocs(queues) == [two]
    switch(queues, True, all=True)
    assert allocs(queues) == [one]


@pytest.mark.parametrize(
    "queues",
    [
        3, {"a": 3}, {"a": {"requires": "x"}}, {"a": {"requires": [1]}},
        {"a": {"hosts": "x"}}, {"a": {"requires": ["x y"]}}, {"a": {"foo": 1}},
        {"a": {"policy": {"jobspec": {"defaults": {"system": {"queue": "a"}}}}}},
    ],
)  # fmt: skip
def test_bad_queue_configuration(inst, queues):
    housekeeping = {"job-manager": {"housekeeping": {"command": ["true"]}}}
    inst.rpc("config.load", {"queues": {"good": {}}})
    table = {"queues": queues, **housekeeping}
    assert "queues" in refused(errno.EINVAL, inst.rpc, "config.load", table)
    # All or nothing.
    assert inst.rpc("job-manager.queue-list")["queues"] == ["good"]
    assert not inst.jm.housekeeping.is_configured


VIRTUAL = ": a virtual queue must not set 'requires' or 'policy.scheduler'"


@pytest.mark.parametrize(
    "entry, text",
    [
        ({"parent": 42}, ".parent must be a string"),
        ({"parent": "v"}, ": parent queue is itself"),
        ({"parent": "nosuch"}, ": parent queue 'nosuch' is not configured"),
        ({"parent": "child"}, ": parent queue 'child' is itself a virtual queue"),
        ({"parent": "a", "requires": []}, VIRTUAL),
        ({"parent": "a", "policy": {"scheduler": {"x": 1}}}, VIRTUAL),
    ],
)
def test_bad_virtual_queue(inst, entry, text):
    inst.rpc("config.load", {"queues": {"good": {}}})
    table = {"queues": {"a": {}, "child": {"parent": "a"}, "v": entry}}
    found = refused(errno.EINVAL, inst.rpc, "config.load", table)
    assert found.endswith(f"configuration: queues.v{text}")
    assert inst.rpc("job-manager.queue-list")["queues"] == ["good"]


# -- virtual queues (RFC 33) ----------------------------------------------------------------------------------------


@pytest.fixture
def virtual(inst):
    """Queue a with children v and w, and b, all started."""
    inst.load_sched()
    # The children come first: they may be read in any order.
    children = {"v": {"parent": "a"}, "w": {"parent": "a"}}
    inst.rpc("config.load", {"queues": {**children, "a": {"requires": ["x"]}, "b": {}}})
    switch(inst, True, all=True)
    return inst


def test_stopping_a_parent_withdraws_the_requests_of_its_children(virtual):
    ids = {queue: virtual.submit(queue=queue) for queue in "avwb"}
    assert allocs(virtual) == list(ids.values())
    switch(virtual, False, "a")
    assert [one["id"] for one in virtual.sched.of("cancel")] == [ids["a"], ids["v"], ids["w"]]
    assert list(virtual.jm.sched.pending) == [ids["b"]]
    virtual.sched.seen.clear()
    switch(virtual, False, "v")
    switch(virtual, True, "a")
    assert sorted(allocs(virtual)) == [ids["a"], ids["w"]]
    switch(virtual, True, "v")
    assert allocs(virtual) == [ids["v"]]


def test_status_of_a_virtual_queue(virtual):
    assert status(virtual, "v") == {"enable": True, "start": True, "parent": "a"}
    switch(virtual, False, "a", reason="maint")
    assert status(virtual, "a") == {"enable": True, "start": False, "stop_reason": "maint"}
    stopped = {"enable": True, "start": False, "parent": "a"}
    text = "parent queue 'a' is stopped"
    assert status(virtual, "v") == {**stopped, "blocked": "parent", "stop_reason": text}
    switch(virtual, False, "v", reason="mine")
    assert status(virtual, "v") == {**stopped, "stop_reason": "mine"}
    enable(virtual, False, "a", reason="no")
    assert status(virtual, "v")["enable"] and virtual.submit(queue="v")


@pytest.mark.parametrize(
    "policy, text",
    [
        ({"foo": 1}, "policy: unknown key 'foo'"),
        ({"limits": {"job-size": {"max": {"nodes": 1}}}}, "job-size.max: unknown key 'nodes'"),
        ({"limits": {"job-size": {"max": {"nnodes": -2}}}}, "max.nnodes: -2: expected a count"),
        ({"limits": {"job-size": {"max": {"nnodes": "x"}}}}, "a limit must be an integer"),
        ({"limits": {"duration": 3}}, "limits.duration: invalid Flux standard duration"),
        ({"limits": {"duration": "soon"}}, "limits.duration: invalid Flux standard duration"),
        ({"access": {"allow-user": "x"}}, "policy.access.allow-user must be an array"),
        ({"jobspec": {"defaults": {"system": {"duration": "x"}}}}, "system.duration: invalid"),
        ({"jobspec": {"defaults": {"system": {"queue": "b"}}}}, "the default queue b is not in queues"),
        ({"jobspec": 3}, "policy.jobspec must be an object"),
    ],
)  # fmt: skip
def test_bad_policy(inst, policy, text):
    table = {"policy": policy, "queues": {"a": {}}}
    assert text in refused(errno.EINVAL, inst.rpc, "config.load", table)


# -- update of the queue ---------------------------------------------------------------------------------------------


def test_jobs_of_a_removed_queue_stay_with_the_scheduler(queues):
    """As flux-core 0.88 does: a job that was sent before starts; one that was not waits for its queue."""
    switch(queues, True, all=True)
    before = queues.submit(queue="b")
    held = queues.submit(queue="b", urgency=0)
    queues.sched.seen.clear()
    left = {name: queue for name, queue in CONFIG["queues"].items() if name != "b"}
    queues.rpc("config.load", {"queues": left})
    switch(queues, False, "a")
    queues.urgency(held, 16)
    assert queues.sched.methods_seen() == []
    queues.sched.allocate(before)
    queues.run()
    assert "alloc" in queues.events(before)
    queues.rpc("config.load", CONFIG)
    switch(queues, True, all=True)
    assert [body["id"] for body in queues.sched.of("alloc")] == [held]


def test_update_queue_refused(queues):
    switch(queues, True, all=True)
    id = queues.submit(queue="a")

    def moved(queue, id=id):
        return refused(errno.EINVAL, queues.update, id, queue=queue)

    assert "'nosuch' is not a valid queue" in moved("nosuch")
    assert "job queue is already set to a" in moved("a")
    assert "plugin args unpack failed" in moved(3)
    other = queues.submit(queue="a", constraints={"ranks": ["0"]})
    both = {"and": [{"ranks": ["0"]}, {"properties": ["x"]}]}
    assert queues.jm.jobs.active[other].jobspec["attributes"]["system"]["constraints"] == both
    assert "job appears to have non-queue constraints, unable to update queue to a" in moved(
        "b", other
    )
    enable(queues, False, "b", reason="full")
    assert "queue b is currently disabled" in moved("b")
    enable(queues, True, "b", reason="full")
    queues.sched.infeasible = "too big for b"
    assert "too big for b" in refused(errno.EOVERFLOW, queues.update, id, queue="b")
    queues.sched.allocate(id)
    queues.run()
    assert "update of queue for running job not supported" in moved("b")


# -- dependencies, as builtin plugins ------------------------------------------------------------------------------------


def depends(inst, scheme, id, **kwargs):
    return inst.submit(dependencies=[{"scheme": scheme, "value": str(id)}], **kwargs)


@pytest.mark.parametrize(
    "scheme, ending, met",
    [
        ("afterstart", "start", True), ("afterstart", "cancel-pending", False), ("afterany", "complete", True),
        ("afternotok", "cancel-pending", False),
        ("afterany", "fail", True), ("afterok", "complete", True), ("afterok", "fail", False),
        ("afternotok", "fail", True), ("afternotok", "complete", False), ("afterany", "cancel-pending", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("late", [False, True])
def test_dependency_after(inst, scheme, ending, met, late):
    """Submitted before or after the antecedent has got there, the outcome is the same."""
    inst.load_sched(auto=None if ending == "cancel-pending" else lambda body: make_R())
    status = 256 if ending == "fail" else 0
    first = inst.submit(exec={"test": {"run_duration": "5s", "wait_status": status}}, urgency=0)
    second = None if late else depends(inst, scheme, first)
    finish(inst, first, ending)
    if late and not met:
        text = "never started" if ending == "cancel-pending" else LATE[scheme]
        assert text in refused(errno.EINVAL, depends, inst, scheme, first)
        return
    if late:
        second = depends(inst, scheme, first)
    inst.run()
    if met:
        assert "depend" in inst.events(second)
        assert inst.events(second).count("dependency-remove") == 1
    else:
        assert inst.state(second) == INACTIVE
        [context] = [one["context"] for one in inst.eventlog(second) if one["name"] == "exception"]
        text = "job never started" if ending == "cancel-pending" else "can never be satisfied"
        assert context["type"] == "dependency" and context["note"].endswith(text)
        assert inst.events(second).index("validate") < inst.events(second).index("exception")


def finish(inst, id, ending):
    """Bring a held job to its end."""
    if ending == "cancel-pending":
        inst.cancel(id)
        return
    inst.urgency(id, 16)
    inst.sched.auto = None
    if ending != "start":
        inst.advance(6)


LATE = {"afterok": "failed or was canceled", "afternotok": "succeeded"}


@pytest.mark.parametrize(
    "scheme, value, text",
    [
        ("afterok", "1234567", "job not found"),
        *(("afterok", value, "not a valid jobid") for value in ("xyz!", "")),
        *(("begin-time", value, "begin-time") for value in ("x", "-1", "inf", "nan")),
    ],
)
def test_bad_dependencies(inst, scheme, value, text):
    assert text in refused(errno.EINVAL, depends, inst, scheme, value)
    following = inst.submit() + 1
    text = "a job cannot depend on itself"
    assert text in refused(errno.EINVAL, depends, inst, "afterok", following)


def test_same_dependency_twice(inst):
    first = inst.submit()
    value = [{"scheme": "afterany", "value": str(first)}] * 2
    second = inst.submit(dependencies=value)
    assert inst.events(second).count("dependency-add") == 1
    inst.cancel(first)
    assert inst.state(second) == SCHED


# -- updates ------------------------------------------------------------------------------------------


def test_updates_of_nothing_and_of_keys_that_cannot_be_updated(inst):
    id = inst.submit()
    assert inst.rpc("job-manager.update", {"id": id, "updates": {}}) is None
    assert inst.events(id)[-1] == "priority"
    for updates, text in (
        ([], "failed to pack jobspec-update event"),
        ({"foo": 1}, "one or more jobspec updates are invalid"),
        ({"resources": 1}, "update of resources not supported"),
    ):
        assert error(inst, "update", {"id": id, "updates": updates}) == (errno.EINVAL, text)


def test_update_duration(inst):
    id = inst.submit()
    for value in (-1, "x", True, None, [1]):
        text = "duration must not be negative" if value == -1 else "plugin args unpack failed"
        assert text in refused(errno.EINVAL, inst.update, id, duration=value)


def test_updates_of_a_job_with_resources(auto, p):
    """The duration cannot end before now, nor be changed by guests; in CLEANUP nothing can."""
    p.add_handler("job.state.cleanup", lambda p, topic, args: p.epilog_start("never ends"))
    mine = auto.submit(duration=600, run_duration=100)
    auto.as_user(1234)
    theirs = auto.submit(duration=600, run_duration=100)
    auto.advance(50)
    update = {"updates": {"attributes.system.duration": 40}}
    text = "only the instance owner can update the duration of a running job"
    assert error(auto, "update", {"id": theirs, **update}) == (errno.EINVAL, text)
    auto.as_user()
    text = "requested duration places job expiration in the past"
    assert error(auto, "update", {"id": mine, **update}) == (errno.EINVAL, text)
    other = {"updates": {"attributes.system.shell": {}}}
    text = "update of attributes.system.shell not supported"
    assert error(auto, "update", {"id": mine, **other}) == (errno.EINVAL, text)
    auto.advance(60)
    assert error(auto, "update", {"id": mine, **update}) == (errno.EINVAL, "job is cleaning up")


def test_owner_may_exceed_limits_others_may_not(inst):
    inst.rpc("config.load", {"policy": {"limits": {"duration": "1h"}}})
    id = inst.submit(duration=60)
    update = {"updates": {"attributes.system.duration": 7200}}
    inst.rpc("job-manager.update", {"id": id, **update})
    inst.as_user(1234)
    theirs = inst.submit(duration=60)
    text = "requested duration (2h) exceeds policy limit of 1h"
    assert error(inst, "update", {"id": theirs, **update})[1] == text
    inst.update(theirs, duration=600)
    inst.as_user()
