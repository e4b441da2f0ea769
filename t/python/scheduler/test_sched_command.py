# SPDX-License-Identifier: LGPL-3.0-or-later
"""The command flux sched: its requests, and its output."""

import argparse
import errno
import fcntl
import json
import math
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

import pytest

from flux.cli.submit import SubmitCmd
from flux.scheduler.command import cli, subcommand, topology
from flux.scheduler.command.prometheus import exposition
from flux.scheduler.command.top import TopView, state_bar
from flux.scheduler.testing import make_R

NOW = 1795600000.0  # 2026-11-25T09:46:40Z


class Handle:
    """A scheduler that gives each method its prepared answer, and records the requests.

    The other services answer in the same way, by topic, and lack topics without a prepared answer.
    """

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def attr_get(self, name):
        return {"security.owner": str(os.getuid())}[name]

    def rpc(self, topic, payload=None):
        service, _, self.method = topic.partition(".")
        if service == "sched":
            self.asked.append((topic, payload))
        else:
            self.method = topic
        return self

    def is_ready(self):
        return True

    def get(self):
        answer = self.answers.get(self.method, OSError(errno.ENOSYS, "Function not implemented"))
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def flux_sched(monkeypatch, capsys):
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("COLUMNS", "80")

    def flux_sched(argv, **answers):
        handle = Handle(**answers)
        monkeypatch.setattr(subcommand.flux, "Flux", lambda: handle)
        flux_sched.code = cli.main(argv)
        flux_sched.asked = handle.asked
        captured = capsys.readouterr()
        flux_sched.err = captured.err
        return captured.out

    return flux_sched


def test_the_output_may_be_closed(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr(subcommand.flux, "Flux", lambda: Handle(limits={"now": NOW}))
    assert cli.main(["limits", "--json"]) == 0


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0s"), (0.25, "0.2s"), (59.9, "59s"), (60, "1m"), (90, "1m30s"), (3600, "1h"), (3659, "1h"),
        (9900, "2h45m"), (86400 + 59, "1d"), (90061, "1d1h"), (None, "no end"), (math.inf, "no end"), (-5, "0s"),
    ],
)  # fmt: skip
def test_lengths_of_time(seconds, text):
    assert subcommand.format_duration(seconds) == text


def test_times_of_today_and_of_other_days():
    assert subcommand.format_time(NOW, NOW, "UTC") == "09:46:40"
    assert subcommand.format_time(NOW + 86400, NOW, "UTC") == "2026-11-26 09:46"
    assert subcommand.format_time(None, NOW, "UTC") == "unknown"


def test_tables_line_up_also_with_wide_and_hostile_text():
    rows = [("ƒ2x", 1), ("語", 100), ("a\x1b[2Jb", None)]
    lines = subcommand.format_table(("A", "N"), rows, ("N",))
    assert lines == ["A         N", "ƒ2x       1", "語      100", "a?[2Jb"]


# -- Prometheus ------------------------------------------------------------------------------------

STATS = {
    "now": NOW,
    "made": NOW,
    "name": "sched-backfill",
    "started": NOW - 3600,
    "stats": {"sched_passes": 12, "errors": 0, "pending_jobs": 3, "reserved": 1, "unlooked": 0.5},
    "nodes": {"allocated": 5, "free": 2, "reserved": 0, "down": 1},
    "reasons": [{"queue": None, "kind": "resources", "count": 2}],
    "started_jobs": {"immediate": 7, "backfilled": 2},
    "promises": [{"name": "ƒA", "nodes": 4, "start": NOW + 60}],
    "reservations": [
        {"name": 'a"b\\', "state": "active", "nodes": 4, "held": 3, "short": 1, "start": NOW - 5}
    ],
}


def test_exposition():
    text = exposition(STATS)
    lines = text.splitlines()
    assert text.endswith("\n") and not text.endswith("\n\n")
    assert 'flux_sched_info{module="sched-backfill"} 1' in lines
    assert "flux_sched_passes_total 12" in lines
    assert "flux_sched_oldest_look_seconds 0.5" in lines
    assert 'flux_sched_nodes{state="down"} 1' in lines
    assert 'flux_sched_jobs{queue="",reason="resources"} 2' in lines
    assert 'flux_sched_jobs_started_total{selection="backfilled"} 2' in lines
    assert r'flux_sched_reservation_nodes{name="a\"b\\",state="short"} 1' in lines


def test_prometheus_reads_the_exposition():
    parser = pytest.importorskip("prometheus_client.parser")
    found = {one.name: one for one in parser.text_string_to_metric_families(exposition(STATS))}
    assert found["flux_sched_nodes"].type == "gauge"
    assert found["flux_sched_passes"].type == "counter"
    nodes = {one.labels["state"]: one.value for one in found["flux_sched_nodes"].samples}
    assert nodes == STATS["nodes"]
    names = {one.labels["name"] for one in found["flux_sched_reservation_nodes"].samples}
    assert names == {'a"b\\'}


def test_the_file_is_whole_and_readable(flux_sched, tmp_path):
    path = tmp_path / "sched.prom"
    flux_sched(["stats", "--prometheus", "-o", str(path)], stats=STATS)
    assert path.read_text() == exposition(STATS)
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["sched.prom"]
    flux_sched(["stats", "--prometheus", "-o", str(tmp_path / "no" / "where")], stats=STATS)
    assert flux_sched.code == 1 and "No such file" in flux_sched.err


# -- subcommands -----------------------------------------------------------------------------------

JOB = {
    "id": 7, "name": "ƒ8", "queue": None, "verdict": "waits",
    "reason": "insufficient resources: needs 4 nodes with 16 cores, 2 free of 16 nodes",
    "unit": "nodes", "needed": 4, "total": 16, "matching": 8, "up": 7, "large_enough": 8, "available": 1,
    "excluded": [{"constraint": "property bigmem", "nodes": 8, "ranks": "0-7"}],
    "behind": [{"name": "ƒ7", "state": "running", "end": NOW + 600}],
    "reservation": {"name": "tuesday", "start": NOW + 9900, "end": NOW + 20000},
    "fits": {"limit": 9900.0, "count": 2},
    "t_estimate": NOW + 86400, "t_estimate_kind": "promised", "t_likely": NOW + 600, "t_p90": NOW + 5400,
}  # fmt: skip


def test_explain_one(flux_sched):
    out = flux_sched(["explain", "ƒ8"], explain={"now": NOW, "made": NOW, "jobs": [JOB]})
    assert flux_sched.asked == [("sched.explain", {"id": 7})]
    assert out.splitlines() == [
        "ƒ8 waits: insufficient resources: needs 4 nodes with 16 cores, 2 free of 16 nodes",
        "  needs 4 nodes; of 16 nodes 8 match, 7 of them are up, 8 are large enough; 1 node free now",
        "  property bigmem excludes 8 nodes: rank 0-7",
        "  behind ƒ7, running, until 09:56:40",
        "  reservation tuesday: 12:31:40 to 15:20:00",
        "  it could start now with a time limit of 2h45m or less",
        "  it could start now with 2 nodes",
        "  starts about 2026-11-26 09:46 (promised)",
        "  likely about 09:56:40, by 11:16:40 in nine cases of ten",
    ]
    stats = {"job-manager.stats-get": {"housekeeping": {"running": {"ƒ7": {}}}}}
    out = flux_sched(["explain", "ƒ8"], explain={"now": NOW, "made": NOW, "jobs": [JOB]}, **stats)
    assert "  behind ƒ7, housekeeping, until 09:56:40" in out.splitlines()


@pytest.mark.parametrize(
    "reason, others",
    [("limit a", ["  and limit b"]), ("too large", ["  and limit a", "  and limit b"])],
)
def test_explain_names_all_rules_that_hold_a_job_back(flux_sched, reason, others):
    rules = [{"reason": "limit a"}, {"reason": "limit b"}]
    job = {**JOB, "reason": reason, "rules": rules}
    out = flux_sched(["explain", "ƒ8"], explain={"now": NOW, "made": NOW, "jobs": [job]})
    assert [line for line in out.splitlines() if "limit " in line and "and" in line] == others


UNKNOWN = OSError(errno.EINVAL, "ƒ8 is not a pending job")


def listed(state, **job):
    """The job list's answer about a job of the caller."""
    return {"job-list.list-id": {"job": {"id": 7, "userid": os.getuid(), "state": state, **job}}}


@pytest.mark.parametrize(
    "around, reason",
    [
        (listed(2, dependencies=["after-start=ƒ7", "x"]), "dependencies: after-start=ƒ7, x"),
        (listed(2, dependencies=["begin-time=1.5"]), "dependencies: begin-time=1970-01-01 00:00"),
        (listed(4, urgency=16), "a plugin of the job manager has not given it a priority"),
        (listed(8, urgency=0), "held: its urgency is 0"),
        (
            {**listed(8, urgency=16), "job-manager.queue-status": {"start": True}},
            "the job manager has not sent it yet: queue-depth, or a restart before flux queue start",
        ),
        (
            {
                **listed(8, urgency=16, queue="debug"),
                "job-manager.queue-status": {"start": False, "stop_reason": "until noon"},
            },
            "queue debug is stopped: until noon",
        ),
    ],
)
def test_a_job_that_the_scheduler_has_not_been_given(flux_sched, around, reason):
    assert flux_sched(["explain", "ƒ8"], explain=UNKNOWN, **around) == f"ƒ8 waits: {reason}\n"
    (job,) = json.loads(flux_sched(["explain", "ƒ8", "--json"], explain=UNKNOWN, **around))["jobs"]
    assert (job["verdict"], job["reason"], job["t_estimate"]) == ("waits", reason, None)


@pytest.mark.parametrize(
    "around, error",
    [
        ({}, "ƒ8 is not a pending job"),
        (listed(16), "ƒ8 is not a pending job: its state is RUN"),
        (listed(64, result=2), "ƒ8 is not a pending job: its state is FAILED"),
        (listed(8, userid=os.getuid() + 1), "ƒ8 is not a pending job"),
        # A user who may ask for the plan has the role admin.
        (
            {**listed(8, userid=os.getuid() + 1, urgency=16), "plan": {}},
            "ƒ8 has not been sent to the scheduler: Function not implemented",
        ),
        (listed(8, urgency=16), "ƒ8 has not been sent to the scheduler: Function not implemented"),
    ],
)
def test_a_job_that_nothing_is_to_be_told_of(flux_sched, monkeypatch, around, error):
    monkeypatch.setattr(Handle, "attr_get", lambda self, name: "-1")
    assert flux_sched(["explain", "ƒ8"], explain=UNKNOWN, **around) == ""
    assert (flux_sched.code, flux_sched.err) == (1, f"flux-sched: ERROR: {error}\n")


def test_no_scheduler_is_said_also_of_a_job_that_waits(flux_sched):
    flux_sched(["explain", "ƒ8"], **listed(8, urgency=16))
    assert "none is loaded" in flux_sched.err


@pytest.mark.parametrize(
    "states, line",
    [
        (None, None),
        ({"depend": 1, "priority": 0, "sched": 1}, "1 pending job not sent to the scheduler yet"),
        ({"depend": 1, "priority": 2, "sched": 3}, "5 pending jobs not sent to the scheduler yet"),
        ({"depend": 0, "priority": 0, "sched": 1}, None),
    ],
)
def test_explain_all_is_a_table_and_counts_the_jobs_that_are_elsewhere(flux_sched, states, line):
    answer = {"now": NOW, "made": NOW, "jobs": [JOB]}
    around = {} if states is None else {"job-list.job-stats": {"job_states": states}}
    out = flux_sched(["explain", "--all"], explain=answer, **around)
    assert flux_sched.asked == [("sched.explain", {"all": True})]
    head, job, *rest = out.splitlines()
    assert head.split() == ["JOBID", "QUEUE", "ESTIMATE", "REASON"]
    assert job.startswith("ƒ8            2026-11-26 09:46  insufficient")
    assert rest == ([f"{line}: flux sched explain JOBID says why"] if line else [])


@pytest.mark.parametrize(
    "argv, text",
    [
        (["explain"], "give either a job id or --all"),
        (["explain", "ƒ8", "--all"], "give either a job id or --all"),
        (["explain", "no!"], "'no!' is not a job id"),
        (["when", "-N4", "-n2"], "flux submit would refuse the job: node count must"),
        (["when", "-x"], "exclusive can only be set with a node count"),
        (["when", "--requires", "a and"], "--requires='a and':"),
        (["windows", "--horizon", "x"], "horizon='x' is invalid"),
        (["top", "--delay", "0"], "delay='0' is invalid"),
    ],
)
def test_bad_options_are_named(flux_sched, argv, text):
    assert flux_sched(argv) == ""
    assert flux_sched.code == 2
    assert flux_sched.err.startswith("flux-sched: ERROR: ") and text in flux_sched.err
    assert flux_sched.asked == []


@pytest.mark.parametrize(
    "error, text",
    [
        (OSError(38, "Function not implemented"), "none is loaded"),
        (OSError(1, "Operation not permitted"), "only the owner of the instance, and users with"),
        (OSError(22, "reservation dat: duration is missing"), "duration is missing"),
    ],
)
def test_requests_that_the_scheduler_refuses(flux_sched, error, text):
    flux_sched(["reservations"], reservations=error)
    assert flux_sched.code == 1 and text in flux_sched.err


def test_when(flux_sched):
    argv = ["when", "-N2", "-n4", "-c2", "-g1", "-t90m", "-q", "debug", "--match"]
    answer = {"now": NOW, "made": NOW, "verdict": "later", "start": NOW + 90, "ranks": "3-4"}
    out = flux_sched(argv, when=answer)
    assert out == "09:48:10, in 1m30s\nranks: 3-4\n"
    ((_, payload),) = flux_sched.asked
    system = payload["jobspec"]["attributes"]["system"]
    assert (system["duration"], system["queue"]) == (5400.0, "debug")
    node = payload["jobspec"]["resources"][0]
    assert (node["type"], node["count"]) == ("node", 2)
    # The answer is made a little after the question.
    soon = dict(answer, verdict="now", start=NOW + 0.04, made=NOW + 0.04)
    assert flux_sched(["when"], when=soon) == "now\n"
    assert flux_sched(["when", "-N2", "sleep", "-N4"], when=soon) == "now\n"
    assert flux_sched.asked[0][1]["jobspec"]["resources"][0]["count"] == 2
    unknown = dict(answer, start=None, reason="waits for a job without a time limit")
    assert flux_sched(["when"], when=unknown).startswith("unknown: waits for")
    odds = {"t_likely": NOW + 30, "t_p90": NOW + 60}
    likely = "likely about 09:47:10, by 09:47:40 in nine cases of ten"
    assert flux_sched(["when"], when={**answer, **odds}).splitlines()[1] == likely
    assert flux_sched(["when"], when={**unknown, **odds}).splitlines()[1] == likely
    assert flux_sched(["when"], when={**soon, **odds}) == "now\n"
    for more in [], ["--json"]:
        never = dict(answer, verdict="never", start=None, reason="too large")
        flux_sched(["when", *more], when=never)
        assert flux_sched.code == 1 and "never: too large" in flux_sched.err


@pytest.mark.parametrize(
    "queue, status, warning",
    [
        ("debug", {"enable": True, "start": True}, None),
        ("debug", {"enable": True, "start": False}, "queue debug is stopped"),
        (None, {"start": False, "stop_reason": "until noon"}, "the queue is stopped: until noon"),
        ("debug", {"enable": False, "disable_reason": "moved", "start": True}, "queue debug takes no jobs: moved"),
    ],
)  # fmt: skip
def test_when_warns_of_a_queue_that_is_stopped_or_disabled(flux_sched, queue, status, warning):
    answer = {"now": NOW, "made": NOW, "verdict": "now", "start": NOW, "ranks": None}
    around = {"when": {**answer, "queue": queue}, "job-manager.queue-status": status}
    out = flux_sched(["when"], **around)
    assert out.splitlines() == ["now"] + ([f"warning: {warning}"] if warning else [])
    warnings = json.loads(flux_sched(["when", "--json"], **around))["warnings"]
    assert warnings == ([warning] if warning else [])


LEVEL = {
    "level": "rack", "groups": 32, "idle_groups": 3, "nodes": 576, "idle_nodes": 18, "waiting": 2,
}  # fmt: skip


def test_windows(flux_sched):
    kinds = [{"kind": "16 cores", "total": 8, "steps": [[5, NOW + 3600], [2, NOW + 8 * 3600]]}]
    kinds.append({"kind": "2 cores", "total": 3, "steps": []})
    answer = {"now": NOW, "until": NOW + 8 * 3600, "kinds": kinds}
    out = flux_sched(["windows"], windows=answer)
    assert flux_sched.asked == [("sched.windows", {"horizon": 8 * 3600.0})]
    lines = [line.split() for line in out.splitlines()]
    assert lines[1] == ["16", "cores", "5", "8", "1h", "10:46:40"]
    assert lines[2] == ["16", "cores", "2", "8", "8h", "or", "more"]
    assert lines[3] == ["2", "cores", "0", "3"] and out.count("free from now on") == 1
    bars = [line for line in out.splitlines() if "=" in line]
    assert bars[0].split()[0] == "2" and bars[0].endswith(">")
    assert bars[1].split()[0] == "5" and bars[1].endswith("|")
    # Those that end with the instance have an end.
    answer = {**answer, "until": NOW + 60, "kinds": [{**kinds[0], "steps": [[2, NOW + 60]]}]}
    out = flux_sched(["windows"], windows=answer)
    assert out.splitlines()[1].split() == ["16", "cores", "2", "8", "1m", "09:47:40"]
    assert out.endswith("|\n")
    assert "LEVEL" not in flux_sched(["windows"], windows={**answer, "levels": []})
    lines = flux_sched(["windows"], windows={**answer, "levels": [LEVEL]}).splitlines()
    assert lines[3] == "LEVEL  FREE GROUPS  OF  FREE NODES IN ONE  JOBS WAITING"
    assert lines[4].split() == ["rack", "3", "32", "18", "2"]
    hidden = {key: value for key, value in LEVEL.items() if key != "waiting"}
    lines = flux_sched(["windows"], windows={**answer, "levels": [hidden]}).splitlines()
    assert lines[4].split() == ["rack", "3", "32", "18"]


def test_top_once(flux_sched):
    def lines(**more):
        return flux_sched(["top", "--once"], stats={**STATS, **more}).splitlines()

    out = lines()
    assert "nodes   5 allocated  2 free  1 down" in out
    assert "3 pending jobs, 1 with a promise" in "\n".join(out) and "ƒA" in "\n".join(out)
    assert not [line for line in out if "wholly free" in line]
    assert json.loads(flux_sched(["top", "--once", "--json"], stats=STATS)) == STATS
    groups = "rack    3 of 32 groups wholly free, at most 18 free nodes in one"
    assert f"{groups}   waiting for one: 2 jobs" in lines(topology=[LEVEL])
    assert groups in lines(topology=[{**LEVEL, "waiting": 0}])
    amount = {"amount": "memory", "in_use": "64G", "total": "960G", "largest": "240G"}
    assert "memory  64G of 960G in use" in lines(amounts=[amount])


@pytest.fixture
def top(monkeypatch):
    """top(handle, delay) -> (pid, terminal, shown): ``flux sched top`` on a terminal, and a function that returns its
    next screen. It has to end by ``q``, with status 0."""
    running = []

    def start(handle, delay):
        monkeypatch.setattr(subcommand.flux, "Flux", lambda: handle)
        for name in ("COLUMNS", "LINES"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TERM", "xterm")
        pid, terminal = pty.fork()
        if pid == 0:
            sys.stdin, sys.stdout = open(0), open(1, "w")  # not those of pytest
            os._exit(cli.main(["top", f"--delay={delay}"]))
        running.append((pid, terminal))

        def shown():
            text = b""
            while not text.endswith(b"q: quit\x1b[K\x1b[J"):
                assert select.select([terminal], [], [], 60)[0], text
                text += os.read(terminal, 65536)
            return text

        return pid, terminal, shown

    yield start
    for pid, terminal in running:
        os.write(terminal, b"q")
        assert os.waitpid(pid, 0)[1] == 0
        os.close(terminal)


def test_top_is_drawn_again_when_the_terminal_has_another_size(top):
    _, terminal, shown = top(Handle(stats=STATS), "1h")
    shown()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 4, 30, 0, 0))
    assert b"more lines" in shown()


class Reloaded(Handle):
    """A scheduler that is gone at the second request; the fourth is interrupted."""

    def get(self):
        if len(self.asked) == 4:
            raise KeyboardInterrupt
        self.answers = {} if len(self.asked) == 2 else {"stats": STATS}
        return super().get()


def test_top_without_a_terminal_waits_for_the_next_scheduler(monkeypatch, capsys):
    handle = Reloaded()
    monkeypatch.setattr(subcommand.flux, "Flux", lambda: handle)
    assert cli.main(["top", "--json", "--delay=0.01s"]) == 130
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [STATS, STATS]


def test_top_waits_for_the_next_scheduler(top):
    _, _, shown = top(Reloaded(), "0.01s")
    assert [b"no scheduler answers" in shown() for _ in range(3)] == [False, True, False]


@pytest.mark.parametrize("how", ["q", "SIGINT", "SIGTERM"])
def test_top_restores_the_terminal_while_the_scheduler_does_not_answer(top, how):
    class Busy(Handle):
        def is_ready(self):
            return False

        def wait_for(self, seconds):
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # as flux-core's bindings do
            time.sleep(seconds)
            os.write(1, b"waited")
            raise TimeoutError

    pid, terminal, _ = top(Busy(), "1s")
    text = b""
    while b"waited" not in text:
        text += os.read(terminal, 65536)
    if how != "q":
        os.kill(pid, getattr(signal, how))
    else:
        os.write(terminal, b"q")
    while b"\x1b[?1049l" not in text:
        text += os.read(terminal, 65536)


def test_check_config(flux_sched, tmp_path):
    path = tmp_path / "conf.d"
    path.mkdir()
    (path / "a.toml").write_text('[limits.a]\nper = "user"\n')
    (path / "b.toml").write_text('[limits.b]\nper = "bank"\n[licenses]\nmatlab = 3\n')
    (path / "notes").write_text("[")
    changes = {"limits": {"new": ["a", "b"], "changed": [], "gone": ["c"]}}
    text = "bank red has 3 of 2 nodes"
    over = [
        {"limit": "b", "text": text, "state": "running", "jobs": ["ƒ2", "ƒ3"]},
        {"limit": "b", "text": "needs 3 nodes", "state": "pending", "jobs": ["ƒ4"]},
        *(
            {"limit": "b", "text": "needs 1", "state": "pending", "jobs": [f"ƒ{i}"]}
            for i in range(12)
        ),
    ]
    answer = {"faults": ["configuration: [limits.a] max is missing"], "doubts": ["?"], "over": over}
    argv = ["check-config", str(path)]
    out = flux_sched(argv, **{"check-config": {**answer, "changes": changes}})
    assert out.splitlines() == [
        "configuration: [limits.a] max is missing",
        "?",
        "[limits] new: a, b",
        "[limits] gone: c",
        "bank red has 3 of 2 nodes: ƒ2, ƒ3 run on",
        "needs 3 nodes: ƒ4 would wait",
        "needs 1: ƒ0, ƒ1, ƒ2, ƒ3, ƒ4, ƒ5, ƒ6, ƒ7 and 4 more would wait",
    ]
    assert flux_sched.code == 1 and flux_sched.err == "flux-sched: ERROR: 1 fault\n"
    nothing = {"faults": [], "doubts": [], "changes": {}}
    assert flux_sched(argv, **{"check-config": nothing}) == "nothing would change\n"
    assert flux_sched.code == 0
    flux_sched(argv)
    assert "no scheduler answers" in flux_sched.err and "[resource]" in flux_sched.err
    (path / "a.toml").write_text("[limits.a\n")
    flux_sched(argv, **{"check-config": nothing})
    assert flux_sched.code == 1 and "a.toml: " in flux_sched.err


def test_check_config_needs_no_scheduler_where_the_configuration_names_nodes(flux_sched, tmp_path):
    (tmp_path / "a.toml").write_text('[topology.rack]\ngroups = {a = "n[0-3]", b = "n[7-9]"}\n')
    nodes = tmp_path / "b.toml"
    nodes.write_text('[[resource.config]]\nhosts = "n[0-7]"\ncores = "0"\n')
    assert flux_sched(["check-config", str(tmp_path)]).splitlines() == [
        "configuration: [topology.rack] groups.b='n[7-9]': n[8-9] not in this instance",
        "[topology] new: rack",
    ]
    assert flux_sched.code == 0
    nodes.write_text("[resource]\npath = '/nowhere/R'\n")
    flux_sched(["check-config", str(tmp_path)])
    said = "resource.path: /nowhere/R: No such file or directory"
    assert (flux_sched.code, flux_sched.err) == (1, f"flux-sched: ERROR: {said}\n")


@pytest.mark.parametrize(
    "modules, line",
    [
        ('sched-backfill.args = ["promise=4", "queue-depth=8"]', None),
        ('alternatives.sched = "sched-other"\nresource.args = ["x"]', None),
        ('sched-backfill.args = ["promse=4"]', "sched-backfill.args: unknown argument 'promse=4': "),
        ('sched-fifo.args = ["queue-depth=-1"]', "sched-fifo.args: queue-depth='-1' is invalid: "),
        ('sched-backfill.args = "promise=4"', "sched-backfill.args='promise=4': expected an array"),
        ('alternatives.sched = "sched-backfil"', "there is no 'sched-backfil': is 'sched-backfill' "),
        ('alternatives.sched = "sched-site"\nsched-site.args = ["x=1"]', "sched-site.args: unknown "),
        ("sched-site.args = []", None),
        ('sched-fault.args = ["x"]', "sched-fault.args: ZeroDivisionError: "),
    ],
)  # fmt: skip
def test_check_config_reads_arguments_of_schedulers(
    flux_sched, tmp_path, monkeypatch, modules, line
):
    (tmp_path / "sched-site.py").write_text(
        "from flux.scheduler.policies.fifo import Fifo\n"
        "class Site(Fifo):\n    pass\n"
        "def mod_main(h, *args):\n    Site(h, *args).run()\n"
    )
    (tmp_path / "sched-fault.py").write_text("1 / 0\n")
    monkeypatch.setenv("FLUX_MODULE_PATH_PREPEND", str(tmp_path))
    path = tmp_path / "system.toml"
    path.write_text(f"[modules]\n{modules}\n")
    nothing = {"faults": [], "doubts": [], "changes": {}}
    out = flux_sched(["check-config", str(path)], **{"check-config": nothing})
    if line is None:
        assert out == "nothing would change\n"
    else:
        assert out.startswith(f"configuration: [modules] {line}")
    assert flux_sched.code == (line is not None)


def test_topology(flux_sched, tmp_path, monkeypatch):
    R = make_R(2, 4)
    answers = {
        "resource.status": {"offline": "", "drain": {"0": {}}},
        "job-list.list": {"jobs": [{"id": 1}]},
        "job-info.lookup": {"R": json.dumps(make_R("1", "1"))},
        "job-manager.stats-get": {"housekeeping": {"running": {}}},
    }
    keys = {"resource.R": R}
    monkeypatch.setattr(topology, "get_key_direct", lambda handle, key, namespace: keys[key])
    out = flux_sched(["topology"], **answers)
    assert out.splitlines()[0] == "n0 (rank 0): 4 cores; down"
    assert "n1 (rank 1): 4 cores; 3 cores free\n  cores 0-3    .a..\n\na ƒ2: 1 core\n" in out
    assert json.loads(flux_sched(["topology", "--json"], **answers))["down"] == "0"
    visits = {"ƒ2": {"allocated": "1", "t_start": NOW}}
    tidied = {**answers, "job-list.list": {"jobs": []}}
    tidied["job-manager.stats-get"] = {"housekeeping": {"running": visits}}
    tidied["job-info.lookup"] = {"R": json.dumps(R)}  # n0 is free again
    out = flux_sched(["topology"], **{**tidied, "resource.status": {}})
    assert "n0 (rank 0): 4 cores; all free" in out
    assert "n1 (rank 1): 4 cores; 0 cores free" in out and "a ƒ2 (housekeeping): 4 cores" in out
    ended = {**answers, "job-info.lookup": OSError(errno.ENOENT, "No such file or directory")}
    assert "a ƒ2" not in flux_sched(["topology", "-r1", "--ascii"], **ended)
    file, picture = tmp_path / "R", tmp_path / "R.svg"
    file.write_text(json.dumps(R))
    assert flux_sched(["topology", str(file), "-o", str(picture)]) == ""
    assert picture.read_text().startswith("<svg")
    file.write_text("{")
    for argv, text, code in (
        ([str(file)], f"{file}: not R: ", 1),
        (["nosuch"], "nosuch: No such file or directory", 1),
        (["-r9"], "ranks 9: R has 0-1", 2),
    ):
        flux_sched(["topology", *argv], **answers)
        assert flux_sched.err.startswith(f"flux-sched: ERROR: {text}") and flux_sched.code == code
    denied = OSError(errno.EPERM, "Operation not permitted")
    flux_sched(["topology"], **{**answers, "resource.status": denied})
    said = "topology: only the owner of the instance may do this"
    assert flux_sched.err == f"flux-sched: ERROR: {said}\n"


def test_plan_as_text_and_picture(flux_sched, tmp_path):
    job = {"name": "ƒ7", "start": NOW - 5, "end": NOW + 600, "nodes": 2, "ranks": "0-1"}
    plan = {"now": NOW, "until": NOW + 3600, "ranks": "0-3", "down": ""}
    plan.update(running=[job], promised=[], reserved=[])
    assert "0-1 aaa" in flux_sched(["plan", "--horizon=1h"], plan=plan)
    path = tmp_path / "plan.svg"
    assert flux_sched(["plan", "-o", str(path)], plan=plan) == ""
    assert path.read_text().startswith("<svg ")
    assert json.loads(flux_sched(["plan", "--json"], plan=plan)) == plan


def test_reserve(flux_sched):
    reserved = {"name": "dat", "nodes": 4, "start": NOW + 3600, "end": NOW + 7200}
    answer = {"now": NOW, "reservation": {**reserved, "every": "1w", "group": "users root"}}
    answer["conflicts"] = [{"name": "ƒ7", "nodes": 1, "end": None}]
    answer["warnings"] = ["queue debug is stopped"]
    argv = ["reserve", "dat", "--start=+1h", "--duration=1h", "--nodes=4", "--users=root,1001"]
    out = flux_sched([*argv, "--every=1w", "--bank=physics"], reserve=answer)
    ((topic, payload),) = flux_sched.asked
    assert topic == "sched.reserve" and payload["dry_run"] is False
    assert payload["reservation"] == {
        "name": "dat", "start": "+1h", "duration": "1h", "zone": "UTC", "at_end": "cancel", "pin": False, "nodes": 4,
        "every": "1w", "users": ["root", "1001"], "banks": ["physics"],
    }  # fmt: skip
    assert out.splitlines() == [
        "dat is reserved: 4 nodes, 2026-11-25T10:46:40+00:00 to 2026-11-25T11:46:40+00:00, every 1w",
        "  jobs of the group that still run at the end are ended then",
        "  in the way: ƒ7 on 1 node, without a known end",
        "  warning: queue debug is stopped",
    ]
    assert "would be reserved" in flux_sched([*argv, "--dry-run"], reserve=answer)


def test_limits(flux_sched):
    none = {"now": NOW, "limits": [], "budgets": [], "licenses": [], "amounts": []}
    text = "no limit, budget, amount or licence to list\n"
    assert flux_sched(["limits"], limits=none) == text
    assert flux_sched(["limits", "-n"], limits=none) == ""
    matlab = {"name": "matlab", "used": 1, "total": 4, "reserved": 0, "waiting": 2}
    out = flux_sched(["limits"], limits={**none, "licenses": [matlab]})
    assert [line.split() for line in out.splitlines()] == [
        ["LICENCE", "USED", "TOTAL", "RESERVED", "WAITING"],
        ["matlab", "1", "4", "0", "2"],
    ]


def test_reservations_and_unreserve(flux_sched):
    one = {"name": "dat", "state": "planned", "start": NOW + 60, "end": NOW + 3660}
    one.update(nodes=4, ranks=None, group="")
    out = flux_sched(["reservations"], reservations={"now": NOW, "reservations": [one]})
    assert out.splitlines()[1].split() == ["dat", "planned", "09:47:40", "1h", "4", "no", "jobs"]
    assert flux_sched(["unreserve", "dat"], unreserve={}) == ""
    assert flux_sched.asked == [("sched.unreserve", {"name": "dat"})]


def test_top_fits_the_window_and_counts_rates():
    class Context:
        time = staticmethod(lambda when, now: subcommand.format_time(when, now, "UTC"))

    view = TopView(Context)
    lines = view.lines(STATS, 40, 8)
    assert len(lines) <= 8 and all(len(line) <= 40 for line in lines)
    later = dict(STATS, now=NOW + 2, started_jobs={"immediate": 17, "backfilled": 2})
    later["stats"] = dict(STATS["stats"], sched_passes=16)
    shown = view.lines(later, 100, 100)
    assert "passes  2.0 per second   5.0 job starts per second   0 errors" in shown
    reloaded = dict(later, now=NOW + 4, started=NOW + 3)
    assert "passes  0 errors" in view.lines(reloaded, 100, 100)


def test_the_bar_has_a_column_for_every_state_there_is():
    assert state_bar({"allocated": 5, "free": 2, "down": 1}, 8) == "[#####x..]"
    assert state_bar({"allocated": 9999, "free": 1, "reserved": 0}, 20) == "[" + "#" * 19 + ".]"
    assert state_bar({"allocated": 0, "free": 10}, 4) == "[....]"
    assert state_bar({"allocated": 0}, 20) == "" and state_bar({"free": 3}, 3) == ""


# -- options of jobs ---------------------------------------------------------------------------------


def jobspec_of(*options):
    parser = argparse.ArgumentParser()
    subcommand.add_job_options(parser)
    return subcommand.jobspec_from_options(parser.parse_args(options))


@pytest.mark.parametrize(
    "options", ["-n4 -c2 -g1 -t 90m", "-N2 -x -n2", "-N2 --cores=8 --gpus-per-node=2"]
)
def test_the_jobspec_is_that_of_flux_submit(options):
    submit = SubmitCmd("flux submit")
    expected = submit.init_jobspec(submit.get_parser().parse_args([*options.split(), "true"]))
    found = jobspec_of(*options.split())
    assert found["resources"] == expected.jobspec["resources"]
    duration = found["attributes"]["system"]["duration"]
    assert duration == expected.jobspec["attributes"]["system"]["duration"]


def test_attributes_are_those_of_flux_submit(tmp_path):
    file = tmp_path / "value.json"
    file.write_text('{"matlab": 2}')
    options = ["--setattr=a.b=1", "--setattr=user.c", f"--setattr=^f={file}", "--requires=x|y"]
    found = jobspec_of(*options)["attributes"]
    assert found["system"]["a"] == {"b": 1} and found["user"] == {"c": 1}
    assert found["system"]["f"] == {"matlab": 2} and "environment" not in found["system"]
    assert found["system"]["constraints"] == {"or": [{"properties": ["x"]}, {"properties": ["y"]}]}


@pytest.mark.parametrize(
    "option, text",
    [("-t=soon", "duration"), ("-nx", "--ntasks"), ("--setattr=^a=/no/file", "No such file")],
)
def test_options_that_flux_submit_refuses(option, text):
    with pytest.raises(ValueError, match=f"flux submit would refuse the job: .*{text}"):
        jobspec_of(option)
