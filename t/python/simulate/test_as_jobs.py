"""``--parallel=flux``: which job is submitted again, and how all are ended. t2300-simulate.t runs it on either host."""

import concurrent.futures
import importlib
import json
import signal
import types

import pytest


class Executor:
    """Takes jobs, and has them end as a test says."""

    def __init__(self):
        self.jobs = []

    def submit(self, jobspec):
        future = concurrent.futures.Future()
        number = len(self.jobs)
        future.jobid = lambda: number
        self.jobs.append((jobspec, future))
        return future


class JobFailed(Exception):
    def __init__(self, type):
        super().__init__(f"job.exception: type={type}: gone")
        self.type = type


@pytest.fixture
def submit(tmp_path):
    call = {"jobs": 2, "command": ["prog"], "directory": "/", "environment": {}}
    (tmp_path / "call.json").write_text(json.dumps(call))
    return importlib.import_module("flux.simulate.as_jobs.submit")


def ended(submit, tmp_path, capsys, ends):
    """(names of the submitted jobs' files, output) if jobs end so, one after another: with an exit code, or a type of exception."""
    executor = Executor()
    submitter = submit.Submitter(str(tmp_path), executor)
    for number in range(2):
        submitter.submit(number)
    for place, end in enumerate(ends):
        future = executor.jobs[place][1]
        if isinstance(end, str):
            future.set_exception(JobFailed(end))
        else:
            future.set_result(end)
        submitter.is_over(*submitter.events.get())
    assert not submitter.running
    names = [jobspec.jobspec["tasks"][0]["command"][-1] for jobspec, _ in executor.jobs]
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return names, {one["number"]: (one["name"], one["text"]) for one in said}


@pytest.mark.parametrize(
    "ends, names, last",
    [
        ([0, 0], ["0.1", "1.1"], ("1.1", "the job ended with exit code 0")),
        ([0, 3], ["0.1", "1.1"], ("1.1", "the job ended with exit code 3")),
        ([0, "exec", 0], ["0.1", "1.1", "1.2"], ("1.2", "the job ended with exit code 0")),
        ([0, "node-failure", 0], ["0.1", "1.1", "1.2"], ("1.2", "the job ended with exit code 0")),
        ([0, *4 * ["exec"]], ["0.1", "1.1", "1.2", "1.3", "1.4"], ("1.4", "job.exception: type=exec: gone")),
        ([0, "cancel"], ["0.1", "1.1"], ("1.1", "job.exception: type=cancel: gone")),
    ],
)  # fmt: skip
def test_a_lost_node_s_runs_are_made_again(submit, tmp_path, capsys, ends, names, last):
    said = {0: ("0.1", "the job ended with exit code 0"), 1: last}
    assert ended(submit, tmp_path, capsys, ends) == (names, said)


@pytest.mark.parametrize("how, kills", [("interrupt", [0]), ("cancel", [])])
def test_ending_all(submit, tmp_path, monkeypatch, how, kills):
    done = []

    def kill(h, jobid, signum):
        if jobid == 1:
            raise OSError("it does not run")
        done.append(("kill", jobid, signum))

    cancel = lambda h, jobid: done.append(("cancel", jobid))
    spec = submit.flux.job.JobspecV1
    fake = types.SimpleNamespace(kill=kill, cancel=cancel, JobspecV1=spec)
    monkeypatch.setattr(submit.flux, "job", fake)
    monkeypatch.setattr(submit.flux, "Flux", lambda: None)
    executor = Executor()
    submitter = submit.Submitter(str(tmp_path), executor)
    submitter.submit(0)
    submitter.submit(1)
    submitter.end(how)
    expected = [("kill", one, signal.SIGINT) for one in kills]
    assert done == expected + [("cancel", one) for one in range(len(kills), 2)]
    executor.jobs[0][1].set_exception(JobFailed("exec"))
    submitter.is_over(*submitter.events.get())
    assert len(executor.jobs) == 2, "nothing begins while all end"
