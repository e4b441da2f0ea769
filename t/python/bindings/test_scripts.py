# SPDX-License-Identifier: LGPL-3.0-or-later
"""What scripts do with jobs as a whole: executors and output, in a program of their own beside an instance."""

import os
import subprocess
import sys
import textwrap

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
FLUX = os.path.join(ROOT, "src", "cmd", "flux")

PRELUDE = """
import flux, flux.job
from flux.job import FluxExecutor, JobspecV1

h = flux.Flux()


def mock(seconds, **more):
    spec = JobspecV1.from_command(["true"], **more)
    spec.setattr("exec.test.run_duration", f"{seconds}s")
    return spec


def done(*command, **more):
    id = flux.job.submit(h, JobspecV1.from_command(command, **more))
    flux.job.event_wait(h, id, "clean", raiseJobException=False)
    return id

"""


def run_script_in_instance(tmp_path, script):
    """Run a script in an instance; its failure is the test's."""
    path = tmp_path / "script.py"
    path.write_text(PRELUDE + textwrap.dedent(script))
    command = [sys.executable, FLUX, "start", "--conf=fake-resources.nnodes=1"]
    command += ["--conf=fake-resources.cores-per-node=4", "flux", "python", str(path)]
    result = subprocess.run(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr


def test_an_executor(tmp_path):
    run_script_in_instance(
        tmp_path,
        """
        from concurrent.futures import CancelledError, TimeoutError, as_completed

        def raised(call, *args):
            try:
                call(*args)
            except BaseException as exc:
                return exc

        bad, killed = mock(0.01), mock(0.01)
        bad.setattr("exec.test.wait_status", 3 << 8)
        killed.setattr("exec.test.wait_status", 9)
        seen = []
        with FluxExecutor(threads=2) as executor:
            futures = [executor.submit(mock(0.01)) for _ in range(6)]
            assert [future.result(30) for future in as_completed(futures)] == [0] * 6
            assert len({future.jobid() for future in futures}) == 6
            assert [executor.submit(spec).result(30) for spec in (bad, killed)] == [3, -9]
            one = executor.submit(mock(0.1), waitable=True)
            assert one.add_event_callback("start", lambda f, event: seen.append(event.name)) is one
            one.add_event_callback("start", lambda f, event: seen.append(raised(f.result)))
            one.add_jobid_callback(lambda f: seen.append(f.jobid()))
            one.add_done_callback(lambda f: seen.append("done"))
            one.add_event_callback("start", lambda f, event: 1 / 0)
            assert isinstance(raised(one.add_event_callback, "nosuch", print), ValueError)
            assert one.result(30) == 0 and flux.job.wait(h, one.jobid()).success
            # What cannot be submitted is the future's affair.
            for jobspec, error in (("junk", OSError), (None, OSError), ({}, TypeError)):
                future = executor.submit(jobspec)
                assert isinstance(future.exception(30), error)
                assert isinstance(raised(future.jobid), RuntimeError)
            large = executor.submit(mock(1, num_tasks=99)).exception(30)
            assert isinstance(large, flux.job.JobException) and large.type == "alloc"
            canceled = executor.submit(mock(1000))
            assert isinstance(raised(canceled.result, 0.05), TimeoutError)
            flux.job.cancel(h, canceled.jobid(), "bye")
            assert str(canceled.exception(30)) == "job.exception: type=cancel: bye"
            assert executor.attach(one.jobid()).result(30) == 0
            assert isinstance(executor.attach(1).exception(30), ValueError)
        assert seen[0] == one.jobid() and seen.count("start") == 1 and "done" in seen
        assert any(isinstance(item, RuntimeError) for item in seen)
        one.add_event_callback("clean", lambda f, event: seen.append(event.name))
        assert seen[-1] == "clean"
        assert isinstance(raised(executor.submit, mock(1)), RuntimeError)
        assert isinstance(raised(lambda: FluxExecutor(handle_args=("bogus://x",))), FileNotFoundError)
        assert isinstance(raised(lambda: FluxExecutor(threads=-1)), ValueError)
        early = flux.job.FluxExecutorFuture(0)
        assert early.cancel() and isinstance(raised(early.jobid), CancelledError)
        """,
    )


def test_output(tmp_path):
    run_script_in_instance(
        tmp_path,
        """
        def failure(call, *args, **kwargs):
            try:
                call(h, *args, **kwargs)
            except Exception as exc:
                return type(exc).__name__, getattr(exc, "errno", None)

        id = done("sh", "-c", "echo one; echo oops >&2; printf two")
        assert flux.job.job_output(h, id) == ("one\\ntwo", "oops\\n", "")
        assert flux.job.job_output(h, id, nowait=True, labelio=True).stdout == "0: one\\n0: two\\n"
        lines = [("stderr", "oops"), ("stdout", "one"), ("stdout", "two")]
        assert sorted(map(tuple, flux.job.output_watch_lines(h, id))) == lines
        pieces = [text for stream, text in flux.job.output_watch(h, id) if stream == "stdout"]
        assert pieces == ["one\\n", "two"]
        events = list(flux.job.output_event_watch(h, id))
        assert events[0].name == "header" and events[0].version == 1
        assert [event.data for event in events[1:] if event.stream == "stderr"] == ["oops\\n", None]
        seen = []
        flux.job.output_watch_async(h, id).then(lambda f: seen.append(tuple(f.get_output())))
        h.reactor_run()
        assert seen[-1] == (None, None) and len(seen) == 4

        three = done("sh", "-c", "echo $FLUX_TASK_RANK", num_tasks=3)
        assert sorted(flux.job.job_output(h, three).stdout.split()) == ["0", "1", "2"]
        assert flux.job.job_output(h, three, tasks="1-2", labelio=True).stdout.count(": ") == 2
        assert flux.job.job_output(h, three, tasks="1", labelio=True).stdout == "1: 1\\n"
        assert repr(flux.job.job_output(h, done("printf", r"\\377")).stdout) == r"'\\udcff'"
        away = done("echo", "x", output="file")
        assert flux.job.job_output(h, away) == ("", "", "")
        assert list(flux.job.output_watch(h, away))[0] == ("stderr", "0: stdout redirected to file\\n")

        # A job that has not run, one without output, and none at all.
        never = done("true", num_tasks=99)
        assert failure(flux.job.job_output, never) == ("JobException", None)
        assert failure(lambda *args: list(flux.job.output_watch(*args)), never) == ("OSError", 5)
        silent = flux.job.submit(h, mock(0.01))
        flux.job.event_wait(h, silent, "clean")
        assert failure(lambda *args: list(flux.job.output_watch(*args)), silent) == ("OSError", 35)
        assert failure(flux.job.job_output, silent, nowait=True) == ("FileNotFoundError", None)
        assert failure(flux.job.job_output, 1) == ("FileNotFoundError", 2)
        assert failure(lambda *args: list(flux.job.output_watch_lines(*args)), 1) == ("FileNotFoundError", 2)
        assert failure(flux.job.job_output, id, tasks="x") == ("ValueError", None)
        """,
    )


@pytest.mark.parametrize("kind", ["from_nest_command", "from_batch_command"])
def test_a_jobspec_of_an_instance_runs(tmp_path, kind):
    arguments = {
        "from_nest_command": '["flux", "getattr", "size"]',
        "from_batch_command": '"#!/bin/sh\\nflux getattr size\\n", "name"',
    }[kind]
    run_script_in_instance(
        tmp_path,
        f"""
        spec = JobspecV1.{kind}({arguments}, num_slots=2, conf={{"policy": {{}}}})
        id = flux.job.submit(h, spec)
        assert flux.job.result(h, id).returncode == 0
        assert flux.job.job_output(h, id).stdout == "1\\n"
        """,
    )
