# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux start`` from outside: exit codes, signals, the run directory, leftover processes and files."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from shared import SRCDIR, run

STAMP = re.compile(r"^\w{3} \d+ \d\d:\d\d:\d\d\.\d{6} UTC \d{4} ", re.M)


@pytest.fixture
def flux(tmp_path, tmp_path_factory):
    """Run ``flux ARGS``; its TMPDIR must be empty afterwards."""
    tmpdir = tmp_path_factory.mktemp("t")
    environ = {**os.environ, "TMPDIR": str(tmpdir), "SHELL": "/bin/sh", "FLUX_SCHEDULER_PYTHON": sys.executable}  # fmt: skip
    environ["PATH"] = f"{SRCDIR}/src/cmd:{environ['PATH']}"
    words = {"cwd": tmp_path, "env": environ, "stdin": subprocess.DEVNULL, "text": True}
    words.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    class Flux:
        def start(self, *argv, **changes):
            result = subprocess.run(["flux", "start", *argv], timeout=300, **{**words, **changes})
            return result.returncode, result.stdout, STAMP.sub("", result.stderr)

        def popen(self, *argv):
            return subprocess.Popen(["flux", "start", *argv], **words)

        tmp = tmpdir

    Flux.environ = environ
    yield Flux()
    assert os.listdir(tmpdir) == []


#: No modules.
MINIMAL = "-Sbroker.rc1_path="


def wait_for(path):
    """Wait until a file is there; its text."""
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)
    return path.read_text()


def alive(pid):
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    "argv, code, how",
    [
        (["true"], 0, ""),
        (["false"], 1, "Exited (rc=1)"),
        (["sh", "-c", "exit 7"], 7, "Exited (rc=7)"),
        (["sh", "-c", "kill -9 $$"], 137, "Killed (rc=137)"),
        (["nosuchcommand", "x"], 127, "Exited (rc=127)"),
        (["nosuchcommand"], 127, "Exited (rc=127)"),
    ],
)
def test_exit_code_is_the_commands(flux, argv, code, how):
    found, stdout, text = flux.start(MINIMAL, *argv)
    assert (found, stdout) == (code, "")
    # How long it took is the machine's affair, and the words of a shell its own.
    text = re.sub(r"[\d.]+s$", "0.0s", text, flags=re.M)
    expected = f"broker.err[0]: rc2.0: {' '.join(argv)} {how} 0.0s\n" if how else ""
    assert text.endswith(expected) if code == 127 else text == expected


def test_words_and_shell(flux):
    assert flux.start(MINIMAL, "echo a  b; echo $((1 + 1))")[1] == "a b\n2\n"
    assert flux.start(MINIMAL, "--", "echo", "a  b", "$HOME")[1] == "a  b $HOME\n"


@pytest.mark.parametrize(
    "argv, text",
    [
        (["--nosuchopt", "true"], "unrecognized arguments: --nosuchopt"),
        (["-Sfoo=bar", "true"], "foo: unknown attribute"),
        (["--test-hosts=a[0-3]", "-s2", "true"], "--test-hosts hostlist has incorrect size"),
        (["--conf=nosuch", "true"], "nosuch: No such file or directory"),
        (["-s0", "true"], "--test-size argument must be > 0"),
        (["-Slog-filename=/nosuch/log", "true"], "No such file or directory: '/nosuch/log'"),
        ([MINIMAL], None),
    ],
)
def test_wrong_usage(flux, argv, text):
    no_tty = "broker.crit[0]: stdin is not a tty - can't run interactive shell"
    code, stdout, stderr = flux.start(*argv)
    assert (code, stdout) == (1, "")
    assert stderr.endswith(f"flux-start: ERROR: {text}\n" if text else f"{no_tty}\n")


def test_failing_rc1_and_rc3(flux):
    code, _, stderr = flux.start("-Sbroker.rc1_path=/bin/false", "echo", "not run")
    assert code == 1 and stderr.startswith("broker.err[0]: rc1.0: /bin/false Exited (rc=1)")
    code, stdout, stderr = flux.start("--conf=fake-resources.cores-per-node=2", "echo", "not run")
    assert (code, stdout) == (1, "")
    lines = stderr.splitlines()
    assert "resource.err[0]: fake-resources.nnodes is missing" in lines
    assert lines[-1].startswith("broker.err[0]: rc1.0: flux modprobe rc1 Exited (rc=1)")
    code, _, stderr = flux.start("-Sbroker.rc1_path=", "-Sbroker.rc3_path=exit 3", "true")
    assert code == 3 and "rc3.0: exit 3 Exited (rc=3)" in stderr


def test_options_of_the_broker(flux):
    show = "flux getattr log-stderr-level; flux getattr broker.rc3_path; echo"
    given = ["-o", "-Slog-stderr-level=7,-Sbroker.rc3_path=true", "-o,-Slog-stderr-level=6"]
    assert flux.start(MINIMAL, *given, show)[:2] == (0, "6\ntrue\n\n")
    hosts = ["-s", "2", "--test-hosts", "a,b", "-o", "-Slog-stderr-level=5"]
    assert flux.start(MINIMAL, *hosts, "flux getattr log-stderr-level")[:2] == (0, "5\n")
    # An option of the command is the command's.
    assert flux.start(MINIMAL, "echo", "-o", "-S")[:2] == (0, "-o -S\n")
    code, _, stderr = flux.start("-o", "word", "true")
    assert code == 1 and "--broker-opts: unknown option 'word'" in stderr


def test_rc_scripts_run_around_the_command(flux, tmp_path):
    script = "echo {0} $FLUX_URI >>order"
    options = [f"-Sbroker.rc{n}_path={script.format(f'rc{n}')}" for n in (1, 3)]
    assert flux.start(*options, script.format("rc2"))[0] == 0
    lines = [line.split() for line in (tmp_path / "order").read_text().splitlines()]
    assert [line[0] for line in lines] == ["rc1", "rc2", "rc3"]
    assert len({line[1] for line in lines}) == 1


def test_run_directory(flux, tmp_path):
    show = 'd=${FLUX_URI#local://}; d=${d%/*}; stat -c "%a %U" $d $FLUX_URI ${FLUX_URI#local://} 2>/dev/null; echo $d'
    code, stdout, _ = flux.start(MINIMAL, show)
    directory, sock, path = stdout.splitlines()
    assert directory.startswith("700 ") and sock.startswith("600 ")
    assert path.startswith(str(flux.tmp) + "/flux-")
    # One of the user's stays.
    assert flux.start(MINIMAL, f"-Srundir={tmp_path}/r", "echo", "x")[:2] == (0, "x\n")
    assert os.listdir(tmp_path / "r") == []


def test_a_tmpdir_too_long_for_a_socket_is_named(flux, tmp_path):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    code, _, stderr = flux.start(MINIMAL, "true", env={**flux.environ, "TMPDIR": str(long)})
    assert code == 1 and "TMPDIR" in stderr and os.listdir(long) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_everything(flux, tmp_path, number):
    script = """
        flux submit --cc=1-2 -n1 sh -c 'echo $$ >>pids; exec sleep 1000' >/dev/null
        flux submit -n100 sleep 1000 >/dev/null
        while test "$(wc -l <pids)" -lt 2; do sleep 0.1; done 2>/dev/null
        echo $$ >>pids; mv pids ready
        sleep 1000
    """
    (tmp_path / "fake.toml").write_text("fake-resources = { nnodes = 2, cores-per-node = 2 }\n")
    process = flux.popen("-s2", "--conf=fake.toml", textwrap.dedent(script))
    pids = wait_for(tmp_path / "ready").split()
    assert len(pids) == 3 and all(alive(pid) for pid in pids)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGHUP
    assert not any(alive(pid) for pid in pids)
    assert "Hangup (rc=129)" in stderr


def test_a_command_that_ignores_the_signal_is_killed_by_the_second(flux, tmp_path):
    script = "trap 'touch hup' HUP; echo $$ >pid; mv pid ready; while :; do sleep 0.1; done"
    process = flux.popen(MINIMAL, script)
    pid = wait_for(tmp_path / "ready").strip()
    process.terminate()
    wait_for(tmp_path / "hup")
    process.terminate()
    assert process.communicate(timeout=300) and process.returncode == 137
    assert not alive(pid)


def test_a_process_that_leaves_its_job_does_not_outlive_the_instance(flux, tmp_path):
    submit = "flux submit sh -c 'setsid sh -c \"echo \\$\\$ >pid; exec sleep 1000\" & sleep 1000' >/dev/null"
    code, _, stderr = flux.start(f"{submit}; while ! test -s pid; do sleep 0.1; done")
    assert (code, stderr) == (0, "")
    assert not alive(int((tmp_path / "pid").read_text()))


def test_children_of_the_shell_that_became_flux_start_are_left_alone(flux, tmp_path):
    script = f"sleep 1000 >/dev/null 2>&1 & echo $! >pid; exec flux start {MINIMAL} true"
    done = run("sh", "-c", script, cwd=tmp_path, env=flux.environ, timeout=300)
    pid = int((tmp_path / "pid").read_text())
    assert done.returncode == 0 and alive(pid)
    os.kill(pid, signal.SIGKILL)


def module(tmp_path, body):
    """Write a module m.py."""
    text = "from flux.brokermod import BrokerModule, request_handler\nclass M(BrokerModule):\n"
    (tmp_path / "m.py").write_text(text + textwrap.indent(textwrap.dedent(body), " "))


def test_signal_to_an_instance_that_a_module_blocks(flux, tmp_path):
    """The loop cannot hear of the signal; nothing may be left all the same. The watchdog names the module and its line."""
    body = """
        @request_handler('nap')
        def nap(self, msg):
            open('ready', 'w').close()
            __import__('time').sleep(1000)
    """
    module(tmp_path, body)
    (tmp_path / "nap.py").write_text("import flux\nflux.Flux().rpc('m.nap').get()\n")
    script = "flux module load ./m.py; setsid sleep 1000 & echo $! >pid; flux python nap.py"
    process = flux.popen(MINIMAL, script)
    wait_for(tmp_path / "ready")
    process.terminate()
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 143
    text = r"broker.err\[0\]: m has blocked the instance for \d+s, at .*m.py:7 \(nap\)"
    assert re.search(text, stderr)
    assert "m blocks the instance, which cannot shut down: ended by force" in stderr
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_run_directory_in_use(flux):
    inner = f"flux start {MINIMAL} -Srundir=r true"
    code, _, stderr = flux.start(MINIMAL, "-Srundir=r", inner)
    assert code == 1 and "local-0: Address already in use: does an instance run there" in stderr


def test_nothing_is_said_at_a_normal_end(flux):
    """With a scheduler loaded by hand, and jobs running and pending."""
    swap = "flux module remove sched-simple; flux module load sched-fifo; flux submit --cc=1-3 --quiet sleep 1000"
    assert flux.start(swap) == (0, "", "")


def test_python_module_left_behind_is_a_failure(flux, tmp_path):
    module(tmp_path, "pass\n")
    code, _, stderr = flux.start(MINIMAL, "-Sbroker.rc3_path=", "flux module load ./m.py")
    said = ["err[0]: m: loader (module-python-exec) killed by Terminated", "crit[0]: m module runtime failure"]  # fmt: skip
    assert code == 1 and stderr.splitlines() == [f"broker.{one}" for one in said]


def test_runtime_failure_takes_the_instance_down(flux, tmp_path):
    module(tmp_path, "def run(self):\n self.set_running()\n raise ValueError('told you')\n")
    load = "flux module load ./m.py; sleep"
    code, stdout, stderr = flux.start(MINIMAL, f"{load} 1000; echo not reached")
    assert (code, stdout) == (1, "")
    assert stderr.splitlines()[:3] == [
        "m.py: told you", "broker.err[0]: m: Invalid argument", "broker.crit[0]: m module runtime failure",
    ]  # fmt: skip
    going_on = (MINIMAL, "-Sbroker.module-nopanic=1", f"{load} 0.2; echo reached")
    assert flux.start(*going_on)[1] == "reached\n"


def test_virtual_time_needs_no_time(flux):
    submit = "flux run --setattr=exec.test.run_duration=100d -t 200d hostname; flux jobs -ano '{runtime}'"
    code, stdout, _ = flux.start("--virtual-time", submit)
    assert code == 0 and stdout.split() == ["8640000.0"]


def test_an_instance_in_a_job(flux, tmp_path):
    inner = """
        flux getattr size; flux getattr instance-level; flux getattr jobid; flux resource R; env | grep -c ^FLUX_JOB_ID
        flux kvs get resource.eventlog | grep define; flux kvs get resource.R
    """
    outer = """
        flux submit -N1 -x sleep 1000 >/dev/null
        J=$(flux submit -N2 -n2 -t 10m flux start sh inner); echo $J
        flux job attach $J; flux job info $J R
    """
    (tmp_path / "inner").write_text(inner)
    (tmp_path / "outer").write_text(outer)
    code, stdout, stderr = flux.start("-s3", "--test-hosts=n[0-2]", "sh", "outer")
    lines = stdout.splitlines()
    assert code == 0, stderr
    assert lines[1:4] == ["2", "1", lines[0]]
    first, taken, job_R = (json.loads(lines[n])["execution"] for n in (4, 7, 8))
    assert first["R_lite"][0]["rank"] == "0-1"
    assert first["nodelist"] == [",".join([socket.gethostname()] * 2)]
    assert lines[5] == "0" and '"method":"job-info"' in lines[6]
    assert taken["expiration"] == first["expiration"] == job_R["expiration"]
    assert taken["nslots"] == 2
