# SPDX-License-Identifier: LGPL-3.0-or-later
"""Execution (RFC 32, RFC 50): mock and real, exec eventlog, output, environment, signals."""

import errno
import os
import resource
import socket

import pytest
from in_process import refused
from jobs_instance import JobsInstance

from flux.scheduler.testing import jobspec, make_R
from flux_engine.formats import jobid
from flux_engine.kernel.clock import RealClock
from flux_engine.kernel.service import Service, request

RUN, INACTIVE = 16, 64


@pytest.fixture
def real():
    inst = JobsInstance(clock=RealClock())

    def auto(body):
        R = make_R(ranks="0-1", cores="0-1", hosts="n[0-1]")
        R["execution"]["nslots"] = body["jobspec"]["resources"][0]["count"]
        return R

    inst.load_sched(auto=auto)
    yield inst
    inst.stop()


def wait(inst, id, name="clean"):
    job = inst.jm.jobs.find(id)
    inst.kernel.run(until=lambda: job.was_posted(name))
    inst.run()


def wait_for(inst, condition):
    """Run until something outside of the instance has happened."""

    def look():
        if not found:
            inst.kernel.call_later(0.005, look)

    found = []
    look()
    inst.kernel.run(until=lambda: condition() and (found.append(1) or True))


def run_to_end(inst, spec):
    """Run a job to its end; returns its id."""
    id = inst.submit(spec)
    wait(inst, id)
    return id


def run_job_to_end(inst, command, **kwargs):
    """Run a shell command as a job to its end; returns its id."""
    return run_to_end(inst, jobspec(command=["sh", "-c", command], **kwargs))


def contexts(inst, id, name, path="eventlog"):
    """The contexts of a job's events of this name."""
    return [event["context"] for event in inst.eventlog(id, path) if event["name"] == name]


def notes(inst, id):
    """The notes of a job's exceptions."""
    return [context["note"] for context in contexts(inst, id, "exception")]


def output(inst, id, stream="stdout"):
    """Return the output of a job, by task."""
    found = {}
    for context in contexts(inst, id, "data", "guest.output"):
        if context["stream"] == stream:
            rank = int(context["rank"])
            found[rank] = found.get(rank, "") + context.get("data", "")
    return [found[rank] for rank in sorted(found)]


def tasks(count, **kwargs):
    """A jobspec of `count` one-core tasks."""
    spec = jobspec(**kwargs)
    spec["resources"][0]["count"] = count
    return spec


def status(inst, id):
    return [context["status"] for context in contexts(inst, id, "finish")]


# -- mock -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "test", [{"run_duration": 1}, {"mock_exception": 1}, {"wait_status": "1"}, [], "x", 1]
)
def test_bad_test_configuration(inst, test, auto):
    id = inst.submit(exec={"test": test})
    assert inst.listed(id)["exception_note"].startswith("exec.test")
    assert inst.state(id) == INACTIVE


def test_a_run_duration_that_is_no_duration_is_logged(inst, auto):
    id = inst.submit(exec={"test": {"run_duration": "soon"}})
    assert inst.state(id) == RUN
    inst.advance(1.1)
    assert status(inst, id) == [0]
    log = [entry.text for entry in inst.ctx.ring.entries()]
    assert "Unable to parse run duration: soon" in log


@pytest.mark.parametrize("where, ran", [("init", False), ("run", True), ("x", True)])
def test_mock_exception(inst, where, ran, auto):
    id = inst.submit(exec={"test": {"mock_exception": where, "run_duration": "10s"}})
    assert ("start" in inst.events(id)) is ran
    assert ("exception" in inst.events(id)) is (where != "x") is (inst.state(id) == INACTIVE)
    assert status(inst, id) == ([15] if where == "run" else [])


class MyExec(Service):
    name = "my-exec"

    def __init__(self, ctx):
        super().__init__(ctx)
        self.requests = []

    @request("start", later=True)
    def _start(self, msg):
        self.requests.append(msg)


def serve(inst):
    """Have a module of one's own execute the jobs."""
    inst.unload("job-exec")
    inst.load_sched(auto=True)
    mine = MyExec(inst.ctx)
    mine.start()
    inst.rpc("job-manager.exec-hello", {"service": "my-exec"})
    return mine


def test_wrong_answers_of_an_execution_service(inst):
    """They are logged; a release before the end is the job's failure, and an error the end of the service."""
    mine = serve(inst)
    ids = [inst.submit(), inst.submit()]
    first, second = mine.requests
    mine.respond(first, {"id": ids[0], "type": "start"})
    mine.respond(first, {"id": 1 << 40, "type": "start", "data": {}})
    mine.respond(first, {"id": ids[0], "type": "release", "data": {"ranks": "all", "final": True}})
    mine.respond_error(second, errno.EIO, "on fire")
    inst.run()
    log = "\n".join(entry.text for entry in inst.ctx.ring.entries())
    assert "malformed start response (KeyError('data'))" in log
    assert f"start response for job {1 << 40} without a request ignored" in log
    assert notes(inst, ids[0]) == ["job ended without a finish status"]
    assert inst.state(ids[0]) == INACTIVE
    assert "execution service my-exec failed (on fire): no jobs are started until it is back" in log
    inst.submit()
    assert len(mine.requests) == 2
    inst.rpc("job-manager.exec-hello", {"service": "my-exec"})
    assert [msg.body["reattach"] for msg in mine.requests[2:]] == [True, False]
    mine.close()


@pytest.mark.parametrize("payload", [{}, {"service": 3}, {"service": "a.b"}, {"service": ""}])
def test_bad_exec_hello(inst, payload):
    refused(errno.EPROTO, inst.rpc, "job-manager.exec-hello", payload)


def test_reattach_after_a_new_hello(inst, auto):
    id = inst.submit(run_duration=10)
    inst.rpc("job-manager.exec-hello", {"service": "job-exec"})
    inst.advance(10)
    assert inst.events(id).count("start") == 1 and inst.events(id)[-1] == "clean"


# -- real processes ---------------------------------------------------------------------------------------


def test_output_that_is_no_text_and_much_output(real):
    id = run_job_to_end(real, "printf '\\377\\376'")
    [context] = [one for one in contexts(real, id, "data", "guest.output") if "data" in one]
    assert context["encoding"] == "base64" and context["data"] == "//4="
    id = run_job_to_end(real, "i=0; while test $i -lt 3000; do echo line $i; i=$((i+1)); done")
    assert output(real, id)[0].splitlines()[-1] == "line 2999"


def test_tasks_and_environment(real):
    command = "echo $FLUX_TASK_RANK $FLUX_TASK_LOCAL_ID $FLUX_JOB_SIZE $FLUX_JOB_NNODES $FLUX_JOB_ID $MINE"
    spec = tasks(4, command=["sh", "-c", command], environment={"MINE": "yes", "NOT": None})
    id = run_to_end(real, spec)
    tail = f"4 2 {jobid.f58(id)} yes\n"
    assert output(real, id) == [f"0 0 {tail}", f"1 1 {tail}", f"2 0 {tail}", f"3 1 {tail}"]


def test_cwd(real, tmp_path):
    assert output(real, run_job_to_end(real, "pwd", cwd=str(tmp_path))) == [f"{tmp_path}\n"]
    id = run_job_to_end(real, "pwd", cwd=str(tmp_path / "gone"))
    logs = contexts(real, id, "log", "guest.output")
    assert output(real, id) == ["/tmp\n"]
    assert f"Could not change dir to {tmp_path}/gone" in logs[0]["message"]


def test_missing_input_file_ends_the_job(real, tmp_path):
    path = tmp_path / "nosuch"
    options = {"input": {"stdin": {"type": "file", "path": str(path)}}}
    id = run_job_to_end(real, "cat", shell={"options": options})
    assert notes(real, id) == [f"error opening input file '{path}': No such file or directory"]
    assert status(real, id) == [15]
    assert real.events(id)[5:9] == ["start", "exception", "finish", "release"]


@pytest.mark.parametrize(
    "options, placed",
    [({"per-resource": {"type": "node", "count": 2}}, "0 0 1 1"), ({"per-resource": {"type": "core"}}, "0 0 1 1"),
     ({"taskmap": {"scheme": "cyclic"}}, "0 1 0 1"), ({"taskmap": {"scheme": "block", "value": ""}}, "0 0 1 1"),
     ({"taskmap": {"scheme": "cyclic", "value": "2"}, "per-resource": {"type": "node", "count": 3}}, "0 0 1 1 0 1")],
)  # fmt: skip
def test_placement_of_tasks(real, options, placed):
    command = ["sh", "-c", "echo $FLUX_EMBEDDED_RANK"]
    id = run_to_end(real, tasks(4, command=command, shell={"options": options}))
    assert "".join(output(real, id)).split() == placed.split()


@pytest.mark.parametrize(
    "shell",
    [*({"options": options} for options in (
         {"per-resource": "node"}, {"per-resource": {"type": "rack"}}, {"taskmap": {"scheme": "manual"}},
         {"taskmap": {"scheme": "cyclic", "value": "0"}}, {"rlimit": {"nosuch": 1}}, {"rlimit": {"nofile": "x"}},
         {"signal": {"signum": 999, "timeleft": 1.0}},
     )), 1],
)  # fmt: skip
def test_shell_options_that_a_job_cannot_have(real, shell):
    id = run_job_to_end(real, "true", shell=shell)
    assert notes(real, id)[0].startswith("cannot start job: ") and status(real, id) == [256]


def test_soft_limits(real):
    options = {"rlimit": {"nofile": 64, "core": -1}}
    id = run_job_to_end(real, "ulimit -Sn; ulimit -Hn; ulimit -c", shell={"options": options})
    kinds = (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)
    hard = [resource.getrlimit(kind)[1] for kind in kinds]
    shown = ["unlimited" if one == resource.RLIM_INFINITY else str(one) for one in hard]
    assert "".join(output(real, id)).split() == ["64", *shown]


def test_files_and_templates(real):
    files = {
        "d/f": {"mode": 0o100600, "data": "hi\n", "encoding": "utf-8"},
        "g": {"data": "aGkK", "encoding": "base64"}, "h": {"data": [1]},
    }  # fmt: skip
    words = "cd {{tmpdir}}; cat d/f g h; echo {{task.id}} {{nosuch}}; ls $FLUX_JOB_TMPDIR"
    id = run_job_to_end(real, words, files=files)
    assert output(real, id) == ["hi\nhi\n[1]0 {{nosuch}}\nd\ng\nh\n"]


@pytest.mark.parametrize("files", [{"../f": {"data": "x"}}, {"f": {}}, {"f": 3}])
def test_files_that_a_job_cannot_have(real, files):
    id = run_job_to_end(real, "true", files=files)
    [note] = notes(real, id)
    assert note.startswith(f"cannot start job: files: {next(iter(files))}: ")
    assert status(real, id) == [256]


def test_output_of_each_task_in_its_file(real, tmp_path):
    where = {"type": "file", "path": f"{tmp_path}/o.{{{{task.rank}}}}.{{{{jobid.dec}}}}"}
    id = run_job_to_end(real, "echo hi", shell={"options": {"output": {"stdout": where}}})
    assert (tmp_path / f"o.0.{id}").read_text() == "hi\n"


@pytest.mark.parametrize("command", [None, ["sleep", "inf"]])
def test_node_failure(command):
    inst = JobsInstance(size=3, clock=RealClock())
    try:
        inst.load_sched(auto=lambda body: make_R(ranks="1-2", hosts="n[1-2]"))
        id = inst.submit(jobspec(command=command) if command else jobspec(run_duration=30))
        wait(inst, id, "start")
        inst.rpc("overlay.disconnect", {"rank": 2})
        wait(inst, id)
        [context] = contexts(inst, id, "exception")
        assert (context["type"], context["severity"]) == ("node-failure", 0)
        assert context["note"] == "lost contact with n2 (rank 2)"
        assert len(inst.sched.of("free")) == 1
    finally:
        inst.stop()


def test_a_job_that_ignores_sigterm_is_killed(real, tmp_path):
    real.rpc("config.load", {"exec": {"kill-timeout": "0.1s"}})
    ready = tmp_path / "ready"
    script = f"trap '' TERM; touch {ready}; while :; do sleep inf; done"
    id = real.submit(jobspec(command=["sh", "-c", script]))
    wait_for(real, ready.exists)
    real.cancel(id)
    wait(real, id)
    assert status(real, id) == [137 << 8]


def test_a_running_job_is_sent_a_signal(real, tmp_path):
    """As preemption does, to warn it."""
    ready = tmp_path / "ready"
    script = f"trap 'echo warned; exit 3' USR1; touch {ready}; while :; do sleep 0.05; done"
    id = real.submit(jobspec(command=["sh", "-c", script]))
    wait_for(real, ready.exists)

    def failure(id, signum=10):
        return real.fails("job-manager.kill", {"id": id, "signum": signum})

    for signum in (0, 65):
        assert failure(id, signum) == (errno.EINVAL, "Invalid signal number")
    assert failure(1 << 40) == (errno.EINVAL, "unknown job id")
    real.as_user(1234)
    assert failure(id)[1] == "guests can only send signals to their own jobs"
    real.as_user()
    assert real.rpc("job-manager.kill", {"id": id, "signum": 10}) is None
    wait(real, id)
    assert status(real, id) == [3 << 8] and output(real, id) == ["warned\n"]
    real.sched.auto = None
    assert failure(real.submit())[1] == "job is not running"


def test_background_child_does_not_hold_the_job(real, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    run_job_to_end(real, f"exec 3<>{fifo}; read line <&3 & echo started")
    with open(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK), "w") as stream:
        stream.write("end\n")  # it was there to read


@pytest.mark.parametrize("command, code", [("/nosuch/cmd", 127), ("/etc/passwd", 126), ("/", 126)])
def test_command_that_cannot_be_run(real, command, code):
    id = run_to_end(real, jobspec(command=[command]))
    assert status(real, id) == [code << 8]
    text = f"task 0 (host {socket.gethostname()}): start failed: {command}: "
    assert notes(real, id)[0].startswith(text)
    assert [event["name"] for event in real.eventlog(id, "guest.output")] == ["header", "log"]


def test_unload_kills_running_tasks(real, tmp_path):
    out = tmp_path / "pid"
    id = real.submit(jobspec(command=["sh", "-c", f"echo $$ >{out}; sleep inf"]))
    wait_for(real, lambda: out.exists() and out.read_text().strip())
    pid = int(out.read_text())
    real.unload("job-exec")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert real.state(id) == RUN


def limited_R(inst, seconds):
    now = inst.kernel.time
    return make_R(starttime=now, expiration=now + seconds)


def test_signal_before_the_end_of_time(real):
    real.sched.auto = lambda body: limited_R(real, 30.0)
    options = {"signal": {"signum": 12, "timeleft": 29.7}}
    id = run_job_to_end(real, "sleep inf", shell={"options": options})
    assert status(real, id) == [(128 + 12) << 8]


def test_a_job_that_runs_out_of_time_is_ended(real):
    real.sched.auto = lambda body: limited_R(real, 0.2)
    id = run_to_end(real, jobspec(command=["sleep", "inf"], duration=0.2))
    [context] = contexts(real, id, "exception")
    assert context["type"] == "timeout" and status(real, id) == [142 << 8]
