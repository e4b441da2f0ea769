# SPDX-License-Identifier: LGPL-3.0-or-later
"""job-info and job-list (RFC 41, 43; protocols.md 19)."""

import errno
import json

import pytest
from in_process import Stream, refused
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
    for which, keys, number, text in (
        (id, ["jobspec", "R"], errno.ENOENT, "R: key not found"),
        (1234, ["R"], errno.ENOENT, "invalid job id"),
        (1234, [], errno.ENOENT, "invalid job id"),
        ("x", ["R"], errno.EPROTO, "Protocol error"),
        (id, [3], errno.EPROTO, "Protocol error"),
    ):
        assert refused(number, lookup, inst, which, *keys) == text
    for payload in ({"id": id, "flags": 0}, {"id": id, "keys": []}):
        assert inst.fails("job-info.lookup", payload)[0] == errno.EPROTO


def test_guests(inst):
    mine = inst.submit()
    inst.as_user(1234)
    theirs = inst.submit()
    assert lookup(inst, theirs, "jobspec")["jobspec"]
    refused(errno.EPERM, lookup, inst, mine, "jobspec")
    stream = watch(inst, mine)
    assert stream.take() == [] and stream.errnum == errno.EPERM


# -- eventlog-watch ------------------------------------------------------------------------------------


def watch(inst, id, path="eventlog", flags=0):
    return Stream(inst.handle, "job-info.eventlog-watch", {"id": id, "path": path, "flags": flags})


def test_watch_waitcreate(inst, sched):
    id = inst.submit(run_duration=5)
    without = watch(inst, id, "nosuch")
    assert without.take() == []
    assert (without.errnum, without.text) == (errno.ENOENT, "No such file or directory")
    waiting = watch(inst, id, "guest.exec.eventlog")
    assert waiting.take() == [] and waiting.errnum is None
    never = watch(inst, id, "guest.nosuch", 1)
    inst.sched.allocate(id)
    assert names(waiting) == ["init", "starting", "recoverable"]
    inst.advance(5)
    assert names(waiting)[-1] == "done"
    # The job is inactive: nothing can come any more.
    assert never.take() == [] and never.errnum == ENODATA


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

    def values(job, names):
        return [job[name] for name in names.split()]

    assert done["success"] and not done["exception_occurred"]
    assert values(done, "result waitstatus ntasks nnodes ncores") == [1, 0, 1, 1, 1]
    assert done["t_submit"] == done["t_sched"] == done["t_run"] == done["t_inactive"] - 1
    expected = ["runner", "b", "p", "0", "n0", 16]
    assert values(running, "name bank project ranks nodelist state") == expected
    of_the_end = "result t_cleanup t_inactive waitstatus success exception_occurred"
    assert not running.keys() & set(of_the_end.split())
    of_the_start = "ranks nodelist t_run result nnodes annotations dependencies queue"
    assert not high.keys() & set(of_the_start.split())
    assert values(high, "ncores ntasks priority urgency") == [3, 1, 20, 20]
    assert values(found[f["failed"]], "result waitstatus") == [2, 256]


def test_selected_attributes(five):
    [job] = jobs(five, attrs=["name", "state"], constraint={"states": ["running"]})
    assert job == {"id": five.five["running"], "name": "runner", "state": 16}
    assert five.fails("job-list.list", {"max_entries": 0, "attrs": ["nosuch"]})[0] == errno.EINVAL


@pytest.mark.parametrize(
    "constraint, expected",
    [
        ({"states": ["pending"]}, "high low"),
        ({"states": [8, "running"]}, "high low running"),
        ({"states": [62]}, "high low running"),
        ({"states": ["S", "r"]}, "high low running"),
        ({"results": ["failed"]}, "failed"),
        ({"results": [1, 2]}, "failed done"),
        ({"results": ["cd"]}, "done"),
        ({"name": ["runner", "x"]}, "running"),
        ({"userid": [4294967295]}, "high low running failed done"),
        *((one, "") for one in ({"userid": [77]}, {"userid": []}, {"queue": ["nosuch"]})),
        ({"or": [{"results": ["failed"]}, {"name": ["runner"]}]}, "running failed"),
        ({"and": [{"states": ["inactive"]}, {"results": ["completed"]}]}, "done"),
        ({"ranks": ["9", "0-1"]}, "running failed done"),
        ({"ranks": ["9"]}, ""),
        ({"hostlist": ["x", "n[0-1]"]}, "running failed done"),
        ({"hostlist": ["x[0-3]"]}, ""),
        *((one, "high low running failed done") for one in ({}, {"or": []})),
    ],
)
def test_constraints(five, constraint, expected):
    assert ids(five, constraint=constraint) == [five.five[name] for name in expected.split()]


def deep(levels):
    constraint = {}
    for _ in range(levels):
        constraint = {"and": [constraint]}
    return constraint


@pytest.mark.parametrize(
    "constraint",
    [
        3, {"states": "x"}, {"states": ["x"]}, {"states": [1.5]}, {"nosuch": []}, {"userid": ["x"]}, {"name": [3]},
        {"ranks": ["x"]}, {"ranks": [3]}, {"hostlist": ["x["]}, {"and": [3]}, deep(100),
        {"states": ["inactive"], "results": ["completed"]}, None,
    ],
)  # fmt: skip
def test_bad_constraints(five, constraint):
    number, text = five.fails("job-list.list", {**ALL, "constraint": constraint})
    assert number == errno.EPROTO
    assert text.startswith("invalid constraint: ") or type(constraint) is not dict


def test_since(five):
    f = five.five
    t_done = five.listed(f["done"])["t_inactive"]
    assert ids(five, since=t_done, constraint={"states": ["inactive"]}) == [f["failed"]]


def test_list_stream(five):
    stream = Stream(five.handle, "job-list.list", {"max_entries": 0, "attrs": ["state"]})
    first, *rest = stream.take()
    assert first["version"] == 1 and len(first["jobs"]) == 1 and stream.errnum == ENODATA
    assert [len(item["jobs"]) for item in rest] == [1, 1, 1, 1]


def test_list_id_right_after_submission(inst):
    """The job is found even if the list has not heard of it yet."""
    h, found = inst.handle, []

    def submitted(future):
        asked = {"id": future.get()["id"], "attrs": ["all"]}
        found.append(h.rpc("job-list.list-id", asked))

    h.rpc("job-ingest.submit", {"jobspec": jobspec()}).then(submitted)
    inst.kernel.call_later(0, h.reactor_stop)
    inst.run()
    while h.task.inbox:
        h.task.dispatch(h.task.inbox.popleft())
    inst.run()
    assert found and found[0].get()["job"]["state"] in (2, 4, 8)


def test_dependencies_and_exceptions(inst):
    first = inst.submit()
    second = inst.submit(dependencies=[{"scheme": "afterok", "value": str(first)}])
    job = inst.listed(second)
    assert len(job["dependencies"]) == 1 and job["dependencies"][0].startswith("after-success=")
    inst.rpc("job-manager.raise", {"id": second, "type": "warn", "severity": 4})
    inst.cancel(first, note="why")
    job = inst.listed(second)
    assert (job["exception_type"], job["exception_severity"]) == ("dependency", 0)
    first = inst.listed(first)
    keys = "exception_type exception_note result".split()
    assert [first[key] for key in keys] == ["cancel", "why", 4]


def test_job_stats(five):
    stats = five.rpc("job-list.job-stats")
    numbers = {"depend": 0, "priority": 0, "sched": 2, "run": 1, "cleanup": 0, "inactive": 2}
    assert stats["job_states"] == {**numbers, "total": 5}
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
    a, v, b = (inst.submit(queue=queue) for queue in "avb")

    def listed(*queues):
        return set(ids(inst, constraint={"queue": list(queues)}))

    assert listed("a") == {a, v} and listed("v") == {v} and listed("v", "b") == {v, b}
    inst.rpc("config.load", {"queues": {"a": {}, "v": {"parent": "b"}, "b": {}}})
    assert listed("a") == {a} and listed("b") == {v, b}


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
    job = auto.listed(id)
    assert (job["duration"], job["expiration"]) == (10, auto.kernel.time + 10)
