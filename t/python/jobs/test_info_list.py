# SPDX-License-Identifier: LGPL-3.0-or-later
"""job-info and job-list (RFC 41, 43; protocols.md 19)."""

import errno
import json

import pytest
from in_process import Stream
from jobs_instance import ALL

from flux.scheduler.testing import jobspec

ENODATA = errno.ENODATA


def names(stream):
    """Names of the events received since the last call."""
    return [json.loads(item["event"])["name"] for item in stream.take()]


# -- lookup ----------------------------------------------------------------------------------------


def lookup(inst, id, *keys, flags=0):
    return inst.rpc("job-info.lookup", {"id": id, "keys": list(keys), "flags": flags})


def test_lookup_flags(auto):
    id = auto.submit(run_duration=100, duration=60)
    auto.update(id, duration=300)
    start = auto.kernel.time
    plain = lookup(auto, id, "R", "jobspec")
    assert plain["id"] == id and json.loads(plain["R"])["execution"]["expiration"] == 0.0
    assert json.loads(plain["jobspec"])["attributes"]["system"]["duration"] == 60
    assert lookup(auto, id, "R", flags=1)["R"]["execution"]["expiration"] == 0.0
    assert lookup(auto, id, "R", flags=3)["R"]["execution"]["expiration"] == start + 300
    current = lookup(auto, id, "R", "jobspec", "eventlog", flags=2)
    assert json.loads(current["R"])["execution"]["expiration"] == start + 300
    assert json.loads(current["jobspec"])["attributes"]["system"]["duration"] == 300
    assert current["eventlog"].startswith('{"timestamp"')


def test_lookup_errors(inst):
    id = inst.submit()
    for which, keys, error in (
        (id, ["jobspec", "R"], "R: key not found"),
        (1234, ["R"], "invalid job id"),
        (1234, [], "invalid job id"),
    ):
        code, text = inst.fails("job-info.lookup", {"id": which, "keys": keys, "flags": 0})
        assert (code, text) == (errno.ENOENT, error)
    for payload in (
        {"id": "x", "keys": ["R"]},
        {"id": id},
        {"id": id, "keys": []},
        {"id": id, "keys": [3]},
    ):
        assert inst.fails("job-info.lookup", payload)[0] == errno.EPROTO


def test_guests(inst):
    mine = inst.submit()
    inst.as_user(1234)
    theirs = inst.submit()
    assert lookup(inst, theirs, "jobspec")["jobspec"]
    assert (
        inst.fails("job-info.lookup", {"id": mine, "keys": ["jobspec"], "flags": 0})[0]
        == errno.EPERM
    )
    stream = Stream(
        inst.handle, "job-info.eventlog-watch", {"id": mine, "path": "eventlog", "flags": 0}
    )
    assert stream.take() == [] and stream.errnum == errno.EPERM


# -- eventlog-watch ------------------------------------------------------------------------------------


def watch(inst, id, path="eventlog", flags=0):
    return Stream(inst.handle, "job-info.eventlog-watch", {"id": id, "path": path, "flags": flags})


def test_watch(auto):
    id = auto.submit(run_duration=5)
    stream = watch(auto, id)
    assert names(stream) == ["submit", "validate", "depend", "priority", "alloc", "start"]
    assert stream.errnum is None
    auto.advance(5)
    assert names(stream) == ["finish", "release", "free", "clean"] and stream.errnum == ENODATA
    late = watch(auto, id)
    late.take()
    assert late.items == stream.items and late.errnum == ENODATA


def test_watch_waitcreate(inst, sched):
    id = inst.submit(run_duration=5)
    without = watch(inst, id, "nosuch")
    assert without.take() == [] and (without.errnum, without.text) == (
        errno.ENOENT,
        "No such file or directory",
    )
    waiting = watch(inst, id, "guest.exec.eventlog")
    assert waiting.take() == [] and waiting.errnum is None
    never = watch(inst, id, "guest.nosuch", 1)
    inst.sched.allocate(id)
    assert names(waiting) == ["init", "starting", "recoverable"]
    inst.advance(5)
    assert names(waiting)[-1] == "done"
    assert (
        never.take() == [] and never.errnum == ENODATA
    )  # the job is inactive: nothing can come any more


def test_watch_cancel(inst):
    id = inst.submit()
    stream = watch(inst, id)
    stream.take()
    inst.handle.rpc("job-info.eventlog-watch-cancel", {"matchtag": stream.future.matchtag}, flags=1)
    stream.take()
    assert stream.errnum == ENODATA


# -- job-list ------------------------------------------------------------------------------------------------


def jobs(inst, **payload):
    return inst.rpc("job-list.list", {**ALL, **payload})["jobs"]


def ids(inst, **payload):
    return [job["id"] for job in jobs(inst, **payload)]


@pytest.fixture
def five(auto):
    """Two inactive jobs, one running, two pending."""
    done = auto.submit(run_duration=1, duration=100)
    auto.advance(1)
    failed = auto.submit(exec={"test": {"run_duration": "1s", "wait_status": 256}})
    auto.advance(1)
    running = auto.submit(jobspec(run_duration=100, job={"name": "runner"}, bank="b", project="p"))
    auto.sched.auto = None
    low, high = auto.submit(urgency=5), auto.submit(urgency=20, cores=3)
    auto.advance(1)
    auto.five = {"done": done, "failed": failed, "running": running, "low": low, "high": high}
    return auto


def test_order(five):
    f = five.five
    assert ids(five) == [f["high"], f["low"], f["running"], f["failed"], f["done"]]
    assert ids(five, max_entries=2) == [f["high"], f["low"]]


def test_attributes(five):
    f = five.five
    found = {job["id"]: job for job in jobs(five)}
    done, running, high = found[f["done"]], found[f["running"]], found[f["high"]]
    assert done["success"] and not done["exception_occurred"]
    assert [done[key] for key in "result waitstatus ntasks nnodes ncores".split()] == [
        1, 0, 1, 1, 1,
    ]  # fmt: skip
    assert done["t_submit"] == done["t_sched"] == done["t_run"] == done["t_inactive"] - 1
    keys = "name bank project ranks nodelist state".split()
    assert [running[key] for key in keys] == ["runner", "b", "p", "0", "n0", 16]
    of_the_end = "result t_cleanup t_inactive waitstatus success exception_occurred"
    assert not running.keys() & set(of_the_end.split())
    of_the_start = "ranks nodelist t_run result nnodes annotations dependencies queue"
    assert not high.keys() & set(of_the_start.split())
    assert [high[key] for key in "ncores ntasks priority urgency".split()] == [3, 1, 20, 20]
    assert found[f["failed"]]["result"] == 2 and found[f["failed"]]["waitstatus"] == 256


def test_selected_attributes(five):
    [job] = jobs(five, attrs=["name", "state"], constraint={"states": ["running"]})
    assert job == {"id": five.five["running"], "name": "runner", "state": 16}
    assert five.fails("job-list.list", {"max_entries": 0, "attrs": ["nosuch"]})[0] == errno.EINVAL


@pytest.mark.parametrize(
    "constraint, expected",
    [
        ({"states": ["pending"]}, "high low"),
        ({"states": [8, "running"]}, "high low running"),
        ({"results": ["failed"]}, "failed"),
        ({"results": [1, 2]}, "failed done"),
        ({"states": [62]}, "high low running"),
        ({"name": ["runner", "x"]}, "running"),
        ({"userid": [4294967295]}, "high low running failed done"),
        ({"userid": [77]}, ""),
        ({"queue": ["nosuch"]}, ""),
        ({"or": [{"results": ["failed"]}, {"name": ["runner"]}]}, "running failed"),
        ({"and": [{"states": ["inactive"]}, {"results": ["completed"]}]}, "done"),
        ({"states": ["S", "r"]}, "high low running"),
        ({"results": ["cd"]}, "done"),
        ({"userid": []}, ""),
        ({"ranks": ["9", "0-1"]}, "running failed done"),
        ({"ranks": ["9"]}, ""),
        ({"hostlist": ["x", "n[0-1]"]}, "running failed done"),
        ({"hostlist": ["x[0-3]"]}, ""),
        ({}, "high low running failed done"),
        ({"or": []}, "high low running failed done"),
    ],
)
def test_constraints(five, constraint, expected):
    assert ids(five, constraint=constraint) == [five.five[name] for name in expected.split()]


@pytest.mark.parametrize(
    "constraint",
    [
        3, {"states": "x"}, {"states": ["x"]}, {"states": [1.5]}, {"nosuch": []}, {"userid": ["x"]}, {"name": [3]}, {"ranks": ["x"]}, {"ranks": [3]}, {"hostlist": ["x["]},
        {"and": [3]},
        {"states": ["inactive"], "results": ["completed"]}, None,
    ],
)  # fmt: skip
def test_bad_constraints(five, constraint):
    number, text = five.fails("job-list.list", {**ALL, "constraint": constraint})
    assert number == errno.EPROTO
    assert text.startswith("invalid constraint: ") or type(constraint) is not dict


def test_deep_constraint(five):
    constraint = {}
    for _ in range(100):
        constraint = {"and": [constraint]}
    assert five.fails("job-list.list", {**ALL, "constraint": constraint})[0] == errno.EPROTO


def test_since(five):
    f = five.five
    t_done = five.rpc("job-list.list-id", {"id": f["done"], "attrs": ["all"]})["job"]["t_inactive"]
    assert ids(five, since=t_done, constraint={"states": ["inactive"]}) == [f["failed"]]


def test_list_stream(five):
    stream = Stream(five.handle, "job-list.list", {"max_entries": 0, "attrs": ["state"]})
    first, *rest = stream.take()
    assert first["version"] == 1 and len(first["jobs"]) == 1 and stream.errnum == ENODATA
    assert [len(item["jobs"]) for item in rest] == [1, 1, 1, 1]


def test_list_id(auto):
    assert auto.fails("job-list.list-id", {"id": 1234, "attrs": ["all"]}) == (
        errno.ENOENT,
        "No such file or directory",
    )
    assert auto.fails("job-list.list-id", {"id": 1234})[0] == errno.EPROTO
    id = auto.submit(run_duration=5)
    future = auto.handle.rpc(
        "job-list.list-id", {"id": id, "state": 64, "attrs": ["state", "result"]}
    )
    auto.run()
    assert not future.is_ready()
    auto.advance(5)
    assert future.get() == {"job": {"id": id, "state": 64, "result": 1}}


def test_list_id_right_after_submission(inst):
    """The job is found even if the list has not heard of it yet."""
    future = inst.handle.rpc("job-ingest.submit", {"jobspec": jobspec()})
    found = []
    future.then(
        lambda f: found.append(
            inst.handle.rpc("job-list.list-id", {"id": f.get()["id"], "attrs": ["all"]})
        )
    )
    inst.kernel.call_later(0, inst.handle.reactor_stop)
    inst.run()
    while inst.handle.task.inbox:
        inst.handle.task.dispatch(inst.handle.task.inbox.popleft())
    inst.run()
    assert found and found[0].get()["job"]["state"] in (2, 4, 8)


def test_dependencies_and_exceptions(inst):
    first = inst.submit()
    second = inst.submit(dependencies=[{"scheme": "afterok", "value": str(first)}])
    job = inst.rpc("job-list.list-id", {"id": second, "attrs": ["all"]})["job"]
    assert len(job["dependencies"]) == 1 and job["dependencies"][0].startswith("after-success=")
    inst.rpc("job-manager.raise", {"id": second, "type": "warn", "severity": 4})
    inst.cancel(first, note="why")
    job = inst.rpc("job-list.list-id", {"id": second, "attrs": ["all"]})["job"]
    assert (job["exception_type"], job["exception_severity"]) == ("dependency", 0)
    first = inst.rpc("job-list.list-id", {"id": first, "attrs": ["all"]})["job"]
    keys = "exception_type exception_note result".split()
    assert [first[key] for key in keys] == ["cancel", "why", 4]


def test_job_stats(five):
    stats = five.rpc("job-list.job-stats")
    assert stats["job_states"] == {
        "depend": 0, "priority": 0, "sched": 2, "run": 1, "cleanup": 0, "inactive": 2, "total": 5,
    }  # fmt: skip
    ends = "successful failed canceled timeout".split()
    assert [stats[end] for end in ends] == [1, 1, 0, 0]
    five.cancel(five.five["low"])
    assert five.rpc("job-list.job-stats")["canceled"] == 1


def test_stats_of_queues(inst):
    inst.rpc("config.load", {"queues": {"a": {}, "b": {}}})
    for queue in "aab":
        inst.submit(queue=queue)
    queues = inst.rpc("job-list.job-stats")["queues"]
    assert [(one["name"], one["job_states"]["total"]) for one in queues] == [("a", 2), ("b", 1)]


def test_jobs_of_a_virtual_queue_are_listed_with_those_of_its_parent(inst):
    inst.rpc("config.load", {"queues": {"a": {}, "v": {"parent": "a"}, "b": {}}})
    ids = {queue: inst.submit(queue=queue) for queue in "avb"}

    def listed(*queues):
        request = {"max_entries": 0, "attrs": [], "constraint": {"queue": list(queues)}}
        return {job["id"] for job in inst.rpc("job-list.list", request)["jobs"]}

    assert listed("a") == {ids["a"], ids["v"]}
    assert listed("v") == {ids["v"]}
    assert listed("v", "b") == {ids["v"], ids["b"]}
    inst.rpc("config.load", {"queues": {"a": {}, "v": {"parent": "b"}, "b": {}}})
    assert listed("a") == {ids["a"]} and listed("b") == {ids["v"], ids["b"]}


def test_job_manager_comes_back(five):
    five.unload("job-manager")
    five.advance(3)
    five.load_module("job-manager")
    new = five.submit()
    assert new in ids(five) and len(ids(five)) == 6
    ended = five.handle.rpc("job-list.list-id", {"id": new, "state": 64, "attrs": ["state"]})
    five.cancel(new)
    five.run()
    assert ended.get()["job"]["state"] == 64


def test_expiration_and_duration_follow_updates(auto):
    id = auto.submit(run_duration=50)
    auto.update(id, duration=10)
    job = auto.rpc("job-list.list-id", {"id": id, "attrs": ["all"]})["job"]
    assert (job["duration"], job["expiration"]) == (10, auto.kernel.time + 10)


# -- the journal ---------------------------------------------------------------------------------------------------
