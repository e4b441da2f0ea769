# SPDX-License-Identifier: LGPL-3.0-or-later
"""flux.job and flux.resource's requests, in a whole instance on the virtual clock."""

import errno

import pytest
from in_process import InProcess, refused

import flux.job
from flux.resource import ResourceSet, resource_list, resource_status
from flux.scheduler.testing import make_R

R = make_R(4, 4, 1, properties={"odd": "1,3"})


@pytest.fixture(scope="module")
def instance(srcdir):
    instance = InProcess(size=4, R=R, hosts=["n0", "n1", "n2", "n3"])
    instance.load_module(srcdir / "src" / "modules" / "sched-simple" / "sched-simple.py")
    yield instance
    instance.stop()


@pytest.fixture
def h(instance):
    return instance.bindings()


def job(seconds=10, **more):
    spec = flux.job.JobspecV1.from_command(["true"], **more)
    spec.setattr("exec.test.run_duration", f"{seconds}s")
    return spec


def failure(call, *args, **more):
    with pytest.raises(OSError) as info:
        call(*args, **more)
    return info.value.errno, info.value.strerror


def test_a_job_from_submission_to_result(h):
    id = flux.job.submit(h, job(duration=60), waitable=True, urgency=20)
    assert isinstance(id, flux.job.JobID)
    events = list(flux.job.event_watch(h, id))
    names = "submit validate depend priority alloc start finish release free clean"
    assert [event.name for event in events] == names.split()
    assert events[0].context["urgency"] == 20
    assert events[6].timestamp - events[5].timestamp == pytest.approx(10, abs=0.01)
    info = flux.job.result(h, id)
    assert (info.id, info.result, info.returncode) == (id, "COMPLETED", 0)
    keys = "annotations dependencies duration exception id jobid result returncode runtime"
    keys += " t_cleanup t_run t_submit waitstatus"
    assert sorted(info.to_dict()) == keys.split()
    assert info.runtime == pytest.approx(10, abs=0.01)
    assert flux.job.wait(h, id) == (id, True, b"")
    assert failure(flux.job.wait, h, id)[0] == errno.ECHILD
    logs = [event.name for event in flux.job.event_watch(h, id, "guest.exec.eventlog")]
    assert logs[0] == "init" and logs[-1] == "done"


def test_submission_forms(h):
    spec = job(seconds=1)
    ids = [flux.job.submit(h, form) for form in (spec, spec.dumps(), spec.dumps().encode())]
    assert ids == sorted(set(ids))
    future = flux.job.submit_async(h, spec, debug=True)
    ids.append(flux.job.submit_get_id(future))
    for id in ids:
        assert flux.job.result(h, id).result == "COMPLETED"
    assert failure(flux.job.submit, h, "no json")[0] == errno.EINVAL
    assert failure(flux.job.submit, h, None)[0] == errno.EINVAL
    with pytest.raises(TypeError):
        flux.job.submit(h, spec.jobspec)
    assert failure(flux.job.submit, h, "{}")[1].startswith("jobspec: expected the keys")
    refused = errno.EINVAL, "urgency range is [0:31]"
    assert failure(flux.job.submit, h, spec, urgency=99) == refused


def test_unknown_jobs(h):
    for call, number in (
        (flux.job.cancel, errno.ENOENT),
        (flux.job.kill, errno.EINVAL),
        (lambda h, id: flux.job.job_raise_async(h, id, "x").get(), errno.ENOENT),
    ):
        assert failure(call, h, 1234) == (number, "unknown job id")
    assert flux.job.get_job(h, 1234) is None
    assert failure(lambda: list(flux.job.event_watch(h, 1234)))[0] == errno.ENOENT
    with pytest.raises(ValueError):
        flux.job.cancel(h, "x y")


def test_events_by_callback_and_cancel_of_the_stream(h):
    id = flux.job.submit(h, job())
    seen = []

    def event(future):
        event = future.get_event()
        seen.append(event and event.name)
        if event is None:
            h.reactor_stop()
        elif event.name == "start":
            future.cancel()

    flux.job.event_watch_async(h, id).then(event)
    h.reactor_run()
    assert seen == ["submit", "validate", "depend", "priority", "alloc", "start", None]
    flux.job.cancel(h, id)
    flux.job.result(h, id)


def test_a_stream_may_outlive_its_connection(instance, h):
    """As flux.kvs does when a future is collected after the end of its module or program."""
    id, other = flux.job.submit(h, job()), instance.bindings(instance.client("other"))
    future = flux.job.event_watch_async(other, id)
    instance.kernel.close(other.handle.task)
    future.cancel()
    flux.job.cancel(h, id)
    flux.job.result(h, id)


def test_logs_of_execution_are_waited_for_until_the_job_starts(h):
    held, dropped = (flux.job.submit(h, job(), urgency=0) for _ in range(2))
    watches = [flux.job.event_watch_async(h, id, "guest.exec.eventlog") for id in (held, dropped)]
    refused(errno.ETIMEDOUT, watches[0].wait_for, 0.1)
    assert failure(flux.job.event_watch_async(h, held, "exec").get_event)[0] == errno.ENOENT
    flux.job.cancel(h, dropped)
    assert watches[1].get_event() is None
    h.rpc("job-manager.urgency", {"id": held, "urgency": 16}).get()
    assert watches[0].get_event().name == "init"
    watches[0].cancel()
    flux.job.result(h, held)
    assert failure(flux.job.event_watch_async(h, held, "guest.nosuch").get_event)[0] == errno.ENOENT
    assert list(flux.job.event_watch(h, dropped, "guest.output")) == []


def test_keys_of_a_job(h):
    id = flux.job.submit(h, job())
    found = flux.job.job_kvs_lookup(h, id, keys=["jobspec"], original=True)
    assert found["jobspec"] == job().jobspec
    flux.job.result(h, id)
    assert {"R", "eventlog", "guest", "jobspec"} <= set(flux.job.job_kvs(h, id))
    assert "exec" in flux.job.job_kvs_guest(h, id)


def test_how_much_time_is_left(h, monkeypatch):
    monkeypatch.delenv("FLUX_JOB_ID", raising=False)
    assert flux.job.timeleft(h) == float("inf")
    limited = flux.job.submit(h, job(100, duration="1h"))
    unlimited = flux.job.submit(h, job(100, duration=None))
    held = flux.job.submit(h, job(100, duration=None), urgency=0)
    for id, left in ((limited, 3600), (unlimited, float("inf"))):
        flux.job.event_wait(h, id, "start")
        monkeypatch.setenv("FLUX_JOB_ID", id.f58)
        assert flux.job.timeleft(h) == pytest.approx(left, abs=1)
    monkeypatch.setenv("FLUX_JOB_ID", held.f58)
    assert flux.job.timeleft(h) == 0
    for id in (limited, unlimited, held):
        flux.job.cancel(h, id)
    for unknown in ("1234", "not an id"):
        monkeypatch.setenv("FLUX_JOB_ID", unknown)
        assert failure(flux.job.timeleft, h) == (errno.ENOENT, f"{unknown}: no such jobid")


def test_the_reactor_ends_when_the_future_it_waits_for_is_collected(h):
    id = flux.job.submit(h, job())
    flux.job.event_watch_async(h, id).then(lambda future: None)
    task = h.handle.task
    (rpc,) = task.futures.values()
    task.kernel.call_later(5, rpc._close)  # as the collector does, by end()
    h.reactor_run()
    flux.job.cancel(h, id)
    flux.job.result(h, id)


def test_resources_by_state(h):
    id = flux.job.submit(h, job())
    flux.job.event_wait(h, id, "start")
    h.rpc("resource.drain", {"targets": "3", "reason": "broken"}).get()
    resources = resource_list(h).get()
    assert resources.all.dumps() == ResourceSet(R).dumps()
    assert resources.allocated.dumps() == "rank0/core0"
    assert resources.free.dumps() == "rank0/core[1-3],gpu0 rank[1-2]/core[0-3],gpu0"
    assert (str(resources.down.nodelist), resources.down.properties) == ("n3", "odd")
    assert (resources["up"].nnodes, resources.up.state) == (3, "up")
    status = resource_status(h).get()
    assert [str(s) for s in (status.all, status.online, status.drained, status.draining, status.avail)] == [
        "0-3", "0-3", "3", "", "0-2",
    ]  # fmt: skip
    assert (status.get_drain_info(3).reason, status.get_drain_info(0)) == ("broken", None)
    h.rpc("resource.drain", {"targets": "0"}).get()
    assert str(resource_status(h).get().draining) == "0"
    h.rpc("resource.undrain", {"targets": "0,3"}).get()
    flux.job.cancel(h, id)
    flux.job.result(h, id)


def test_a_query(h):
    one = flux.job.submit(h, job(seconds=100, name="one"))
    two = flux.job.submit(h, job(name="two"), urgency=0)
    flux.job.event_wait(h, one, "start")

    def names(**query):
        return [info.name for info in flux.job.JobList(h, **query).jobs()]

    assert names(filters=["pending", "running"]) == ["two", "one"]
    assert names(filters=["run"]) == names(ids=[one]) == ["one"] and names(name="two") == ["two"]
    assert names(constraint={"states": ["pending"]}, user="all") == ["two"]
    assert names(filters=["failed"], name="one") == [] and names(max_entries=1) == ["two"]
    query = flux.job.JobList(h, ids=[1234, two])
    assert len(query.jobs()) == 1 and query.errors == ["JobID 1234 unknown"]
    for bad in ({"filters": ["foo"]}, {"user": "no such user"}):
        with pytest.raises(ValueError, match="foo|no such user"):
            flux.job.JobList(h, **bad)
    (info,) = flux.job.JobList(h, ids=[one]).jobs()
    assert (info.state, info.state_single) == ("RUN", "R")
    assert info.success == info.exception.type == ""
    assert str(info.sched) == '{"resource_summary": "rank0/core0"}' and info.uri is None
    assert info.annotations.sched.resource_summary == "rank0/core0" and str(info.user) == ""
    assert flux.job.JobInfoFormat("{name:>5} {state} {ntasks}").format(info) == "  one RUN 1"
    counts = flux.job.stats.JobStats(h).update_sync()
    assert (counts.pending, counts.running) == (1, 1)
    for id in (one, two):
        flux.job.cancel(h, id)
