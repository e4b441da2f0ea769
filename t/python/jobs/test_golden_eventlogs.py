# SPDX-License-Identifier: LGPL-3.0-or-later
"""The eventlogs of a real instance, case by case: same events, same contexts, keys in the same order."""

import errno
import json

import pytest
from jobs_instance import JobsInstance
from shared import data_path

from flux.scheduler.testing import jobspec, make_R
from flux_engine.formats import jobid
from flux_engine.kernel.clock import RealClock

SUMMARY = {"sched": {"resource_summary": "rank0/core0"}}


def recorded():
    with open(data_path("golden/eventlogs.jsonl"), encoding="utf-8") as lines:
        return {entry["case"]: entry["events"] for entry in map(json.loads, lines)}


def shape(events, first_id=None):
    """Events without times, with what differs from run to run replaced."""
    out = []
    for event in events:
        context = event.get("context")
        if context:
            context = [(key, plain(key, value)) for key, value in context.items()]
        out.append((event["name"], context))
    return out


def plain(key, value):
    if key == "expiration" and value:
        return "TIME"
    if key == "userid":
        return "OWNER"
    if key == "annotations":
        return "ANNOTATIONS"
    if isinstance(value, str):
        if value.startswith("begin-time="):
            return "begin-time=TIME"
        if "after-success=" in value:
            head, _, tail = value.partition("after-success=")
            rest = tail.partition(" ")[2]
            return f"{head}after-success=ID {rest}"
        return value.replace("host vm", "host HOST").replace("host n0", "host HOST")
    return value


class Case(JobsInstance):
    """A real-time or virtual instance with a scheduler that allocates everything it can."""

    deny = None
    wait = False

    def allocate_all(self):
        self.load_sched()
        sched = self.sched

        def auto(body):
            if self.wait:
                return None
            if self.deny is not None:
                sched.answer(body["id"], type=2, note=self.deny)
                return None
            duration = body["jobspec"]["attributes"]["system"]["duration"]
            now = sched.now()
            R = make_R(starttime=now, expiration=now + duration if duration else 0.0)
            sched.allocate(body["id"], R, SUMMARY)
            return None

        original = sched.methods["sched.alloc"][0]

        def alloc(msg):
            sched.auto = None
            original(msg)
            auto(msg.body)

        sched.methods["sched.alloc"] = (alloc, False, False)
        return self

    def wait_event(self, id, name):
        """Run until the job has an event `name`."""
        job = self.jm.jobs.find(id)
        self.kernel.run(until=lambda: job.was_posted(name))
        self.run()

    def finish(self, id):
        self.wait_event(id, "clean")
        return self.eventlog(id)


@pytest.fixture
def real():
    """Real processes, real time."""
    case = Case(clock=RealClock())
    case.allocate_all()
    yield case
    case.stop()


@pytest.fixture
def virtual():
    case = Case()
    case.allocate_all()
    yield case
    case.stop()


def check(name, events):
    assert shape(events) == shape(recorded()[name])


@pytest.mark.parametrize(
    "name, command, kwargs",
    [
        ("job-exec loaded: one-core job, completed", ["true"], {}),
        ("urgency 20, debug flag", ["true"], {"urgency": 20, "flags": 2}),
        ("waitable flag", ["true"], {"flags": 4}),
        ("novalidate flag", ["true"], {"flags": 8}),
        ("exit code 1", ["false"], {}),
        ("exit code 3", ["sh", "-c", "exit 3"], {}),
        ("command not found", ["nosuchcmd"], {}),
        ("task killed by SIGKILL", ["sh", "-c", "kill -9 $$"], {}),
    ],
)
def test_real_jobs(real, name, command, kwargs):
    id = real.submit(jobspec(command=command), **kwargs)
    check(name, real.finish(id))


def test_real_job_runs_out_of_time(real):
    id = real.submit(jobspec(command=["sleep", "30"], duration=0.2))
    check("time limit reached (-t 0.5s)", real.finish(id))


@pytest.mark.parametrize(
    "name, note",
    [
        ("cancelled while running", None),
        ("cancelled while running, with a message", "my reason"),
    ],
)
def test_real_job_cancelled(real, name, note):
    id = real.submit(jobspec(command=["sleep", "30"]))
    real.wait_event(id, "start")
    real.cancel(id, **({"note": note} if note else {}))
    check(name, real.finish(id))


def test_real_job_exceptions(real):
    id = real.submit(jobspec(command=["sleep", "30"]))
    real.wait_event(id, "start")
    real.rpc("job-manager.raise", {"id": id, "type": "foo", "severity": 3, "note": "note"})
    real.rpc("job-manager.raise", {"id": id, "type": "bar", "severity": 0, "note": "fatal"})
    check("non-fatal exception then fatal exception while running", real.finish(id))


def test_denied(virtual):
    name = "denied by the scheduler (unsatisfiable)"
    virtual.deny = recorded()[name][-2]["context"]["note"]
    check(name, virtual.eventlog(virtual.submit(cores=100)))


def test_held_and_released(virtual):
    id = virtual.submit(jobspec(run_duration=0.1), urgency=0)
    check("held, pending", virtual.eventlog(id))
    virtual.rpc("job-manager.urgency", {"id": id, "urgency": 16})
    check("held, then released, completed", virtual.finish(id))


def test_pending(virtual):
    virtual.wait = True
    id = virtual.submit()
    check("pending (SCHED)", virtual.eventlog(id))
    virtual.rpc("job-manager.urgency", {"id": id, "urgency": 20})
    virtual.rpc("job-manager.urgency", {"id": id, "urgency": 31})
    virtual.cancel(id)
    check("pending, urgency changed twice, cancelled", virtual.eventlog(id))


def test_pending_duration_updated(virtual):
    virtual.wait = True
    id = virtual.submit()
    virtual.rpc("job-manager.update", {"id": id, "updates": {"attributes.system.duration": 300}})
    virtual.cancel(id)
    check("pending, duration updated, cancelled", virtual.eventlog(id))


def test_pending_fatal_exception(virtual):
    virtual.wait = True
    id = virtual.submit()
    virtual.rpc("job-manager.raise", {"id": id, "type": "bar", "severity": 0, "note": "note"})
    check("pending, fatal exception raised", virtual.eventlog(id))


def dependency(scheme, id):
    return [{"scheme": scheme, "value": jobid.f58(id)}]


def test_dependencies(virtual):
    first = virtual.submit(run_duration=100)
    second = virtual.submit(dependencies=dependency("afterok", first))
    check("dependency not satisfied (DEPEND)", virtual.eventlog(second))
    virtual.cancel(first)
    check("dependency failed", virtual.eventlog(second))


def test_dependency_satisfied(virtual):
    first = virtual.submit(run_duration=0.1)
    virtual.finish(first)
    second = virtual.submit(run_duration=0.1, dependencies=dependency("afterok", first))
    check("dependency satisfied", virtual.finish(second))


def test_running_duration_updated(virtual):
    id = virtual.submit(run_duration=1000)
    for duration in (7200, 9000, 0):
        virtual.rpc(
            "job-manager.update", {"id": id, "updates": {"attributes.system.duration": duration}}
        )
    virtual.cancel(id)
    # A mock job ends with the signal itself instead of a shell's exit code.
    expected = shape(recorded()["running, duration updated three times, cancelled"])
    expected = [
        ("finish", [("status", 15)]) if name == "finish" else (name, c) for name, c in expected
    ]
    assert shape(virtual.finish(id)) == expected


def test_begin_time(virtual):
    when = virtual.kernel.time + 5
    id = virtual.submit(
        run_duration=0.1, dependencies=[{"scheme": "begin-time", "value": str(when)}]
    )
    check("begin-time in the future (DEPEND)", virtual.eventlog(id))
    virtual.advance(4.9)
    assert virtual.state(id) == 2
    check("begin-time passed, completed", virtual.finish(id))
    assert virtual.eventlog(id)[3]["timestamp"] == when


def test_no_scheduler(inst):
    id = inst.submit(run_duration=0.1)
    check("no scheduler loaded (SCHED)", inst.eventlog(id))
    inst.load_sched()
    inst.sched.allocate(id, make_R(), SUMMARY)
    inst.advance(1)
    check(
        "submitted with no scheduler loaded, scheduler loaded later, completed", inst.eventlog(id)
    )


def test_scheduler_reloaded_while_running(virtual):
    id = virtual.submit(run_duration=10)
    virtual.unload_sched()
    virtual.allocate_all()
    check("scheduler reloaded while the job runs", virtual.finish(id))


def test_queue_stopped(virtual):
    virtual.rpc("job-manager.queue-start", {"start": False, "all": True})
    check("queue stopped (SCHED)", virtual.eventlog(virtual.submit()))


def test_without_execution(virtual):
    virtual.unload("job-exec")
    id = virtual.submit()
    check("job-exec not loaded: allocated (RUN)", virtual.eventlog(id))
    virtual.cancel(id)
    check("job-exec not loaded: cancelled in RUN", virtual.eventlog(id))


@pytest.mark.parametrize(
    "name, test, duration",
    [
        (
            "mock execution: attributes.system.exec.test.run_duration=0.2s",
            {"run_duration": "0.2s"},
            0,
        ),
        ("mock execution with wait_status 256", {"run_duration": "0.2s", "wait_status": 256}, 0),
        ("mock execution, time limit", {"run_duration": "10s"}, 1),
    ],
)
def test_mock(virtual, name, test, duration):
    id = virtual.submit(duration=duration, exec={"test": test})
    check(name, virtual.finish(id))


def test_mock_cancelled(virtual):
    id = virtual.submit(run_duration=10)
    virtual.cancel(id)
    check("mock execution cancelled", virtual.finish(id))


def test_housekeeping(virtual):
    conf = {"job-manager": {"housekeeping": {"command": ["sleep", "1"], "mock-duration": "1s"}}}
    virtual.rpc("config.load", conf)
    id = virtual.submit(run_duration=1)
    check("housekeeping configured", virtual.finish(id))
    assert virtual.sched.of("free") == []


def test_unknown_job(virtual):
    with pytest.raises(OSError, match="invalid job id") as caught:
        virtual.eventlog(12345)
    assert caught.value.errno == errno.ENOENT
