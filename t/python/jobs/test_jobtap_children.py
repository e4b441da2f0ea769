# SPDX-License-Identifier: LGPL-3.0-or-later
"""Child processes of plugins in a broker: their status comes from a helper, even if the broker has reaped them; one that a
plugin forks does not go on as a second job manager."""

import os
import subprocess

import pytest

from flux.jobtap import process_guard
from flux.jobtap.child_processes import Popen


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", Popen)


@pytest.mark.parametrize(
    "command, status", [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -TERM $$", -15)]
)
def test_status(command, status):
    assert subprocess.run(["sh", "-c", command]).returncode == status
    assert subprocess.run(command, shell=True).returncode == status


def test_status_of_a_helper_that_somebody_else_has_waited_for():
    process = Popen(["sh", "-c", "exit 7"])
    os.waitpid(process.pid, 0)
    assert process.wait() == process.poll() == 7


def test_input_output_and_status(tmp_path):
    done = subprocess.run(["cat"], input=b"hello", stdout=subprocess.PIPE)
    assert (done.stdout, done.returncode) == (b"hello", 0)
    environ = {"X": "5", "PATH": os.environ["PATH"]}
    assert subprocess.check_output(["sh", "-c", "echo $X"], env=environ, text=True) == "5\n"
    assert subprocess.check_output(["pwd"], cwd=tmp_path, text=True) == f"{tmp_path}\n"
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.check_call(["false"])


def test_descriptors_that_are_passed_on_end_with_the_child():
    read, write = os.pipe()
    process = Popen(["sh", "-c", f"echo x >/dev/fd/{write}"], pass_fds=[write])
    os.close(write)
    assert os.read(read, 9) == b"x\n" and os.read(read, 9) == b""
    os.close(read)
    assert process.wait() == 0


def test_a_program_that_is_not_there():
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        subprocess.run(["no-such-program"])


def test_signals_reach_the_child():
    process = Popen(["sleep", "60"])
    assert process.poll() is None
    process.terminate()
    assert process.wait() == -15
    with Popen(["sleep", "60"]) as process:
        process.kill()
    assert process.returncode == -9
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(["sleep", "60"], timeout=0.1)


def test_no_descriptor_is_left():
    subprocess.run(["true"])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        subprocess.run(["true"])
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("error, status", [(None, 0), (ValueError("in the child"), 1)])
def test_a_child_that_comes_back_is_ended(monkeypatch, error, status):
    monkeypatch.setattr(process_guard, "_job_manager", os.getpid())
    process_guard.end_child()  # in the job manager itself nothing happens
    pid = os.fork()
    if not pid:
        try:
            if error:
                raise error
        finally:
            process_guard.end_child()
        os._exit(77)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == status


def test_a_child_with_plugins_of_its_own_goes_on(monkeypatch):
    """As a run of ``flux simulate --engine=instance`` does below a program that has had an instance."""

    class Host:
        def is_running_plugin(self):
            return False

    monkeypatch.setattr(process_guard, "_job_manager", process_guard._job_manager)
    there, own = Host(), Host()
    process_guard.install(there)
    pid = os.fork()
    if not pid:
        process_guard.install(own)
        process_guard.end_child()
        os._exit(77)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 77
