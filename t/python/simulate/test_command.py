# SPDX-License-Identifier: LGPL-3.0-or-later
"""The command: its output and files, refused arguments, an interrupt, and a second call that resumes."""

import csv
import fcntl
import json
import math
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command_runner import FLUX, flux, flux_here, rows, write_rows

from flux.resource.plan import compiled
from flux.simulate.trace import Trace
from flux.simulate.workload.formats import reader
from flux.simulate.workload.record import Source
from flux_engine.command.errors import call
from flux_engine.formats import rset


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Three policies on the start of the sample, with everything that can be written."""
    directory = tmp_path_factory.mktemp("results")
    policies = "--scheduler=sched-fifo '--scheduler=sched-backfill reservations=1,unlimited'"
    done = flux(f"sample --jobs=300 {policies} --eventlogs --swf --diff=2,3 -o", directory)
    return directory, done


def test_notes_and_the_table(results):
    directory, done = results
    lines = done.stdout.splitlines()
    assert any("1,700 jobs left out: after the first 300" in line for line in lines)
    assert any(line.startswith("300 jobs over") for line in lines)
    # Notes about the trace precede the runs, and so the table.
    table = next(i for i, line in enumerate(lines) if line.startswith("policy"))
    assert table > next(i for i, line in enumerate(lines) if "left out" in line)
    names = [line.split("  ")[0] for line in lines[table + 1 : table + 4]]
    assert names == ["sched-fifo", *(f"sched-backfill reservations={n}" for n in (1, "unlimited"))]
    assert "jobs start at different times; the first:" in done.stdout
    assert "p90: by linear interpolation" in done.stdout.replace("\n", " ")
    assert all(json.loads(line)["policy"] for line in done.stderr.splitlines())


def test_it_says_that_the_compiled_part_is_missing(monkeypatch):
    monkeypatch.setattr(compiled, "lib", None)
    done = flux("sample", "--jobs=10", "--scheduler=sched-backfill")
    assert done.stdout.count(compiled.NOT_BUILT) == 1


def test_jobs_csv_as_evalys_reads_it(results):
    directory = results[0] / "sched-backfill_reservations-1"
    table = rows(directory)
    assert len(table) == 300
    machine = json.loads((directory / "provenance.json").read_text())["machine"]
    for row in table:
        submit, start = float(row["submission_time"]), float(row["starting_time"])
        run, end = float(row["execution_time"]), float(row["finish_time"])
        assert float(row["waiting_time"]) == pytest.approx(start - submit)
        assert end == pytest.approx(start + run)
        assert float(row["turnaround_time"]) == pytest.approx(end - submit)
        parts = [part.split("-") for part in row["allocated_resources"].split(" ")]
        count = sum(int(part[-1]) - int(part[0]) + 1 for part in parts)
        assert count == int(row["requested_number_of_resources"])
        assert int(parts[-1][-1]) <= machine["last_unit"] == 127
        assert row["final_state"] in ("COMPLETED_SUCCESSFULLY", "COMPLETED_WALLTIME_REACHED")
    assert any(row["first_promise"] for row in table)


def test_schedule_and_machine_states(results):
    directory = results[0] / "sched-fifo"
    schedule = json.loads((directory / "schedule.json").read_text())
    table = rows(directory)
    waits = [float(row["waiting_time"]) for row in table]
    assert schedule["nb_jobs"] == schedule["nb_jobs_finished"] == 300
    assert schedule["mean_waiting_time"] == pytest.approx(sum(waits) / 300)
    assert schedule["makespan"] == max(float(row["finish_time"]) for row in table)
    with open(directory / "machine_states.csv", newline="") as stream:
        states = list(csv.DictReader(stream))
    for row in states:
        assert sum(int(value) for key, value in row.items() if key != "time") == 128
    busy = 0.0
    for row, following in zip(states, states[1:]):
        busy += int(row["nb_computing"]) * (float(following["time"]) - float(row["time"]))
    assert busy == pytest.approx(schedule["time_computing"])
    assert states[-1]["nb_computing"] == "0"


def test_eventlogs_and_swf_can_be_read_again(results):
    directory = results[0] / "sched-fifo"
    table = rows(directory)
    again = Trace(str(directory / "eventlogs"), nodes=128).workload()
    assert len(again.jobs) == 300
    seconds = sum(float(row["execution_time"]) for row in table)
    assert sum(job.run for job in again.jobs) == pytest.approx(seconds)
    swf = Trace(str(directory / "schedule.swf")).workload()
    assert swf.machine.nodes == 128
    assert [job.submit for job in swf.jobs] == [float(row["submission_time"]) for row in table]
    waits = [record.wait for record in reader(Source(directory / "schedule.swf"))]
    assert waits == [float(row["waiting_time"]) for row in table]


@pytest.fixture
def broken(results, tmp_path):
    """A copy of a result, to be spoilt, but for its event logs."""
    whole = results[0] / "sched-fifo"
    copy = shutil.copytree(whole, tmp_path / "broken", ignore=shutil.ignore_patterns("eventlogs"))
    (copy / "eventlogs").symlink_to(whole / "eventlogs")
    return copy


SIZE = "requested_number_of_resources"


def beyond(table):
    """A job is on a unit that the machine does not have."""
    row = next(row for row in table if row[SIZE] == "1")
    row["allocated_resources"] = "500"


def longer(table):
    """A job ends a second later, in all columns."""
    row = table[-1]
    for key in ("finish_time", "execution_time", "turnaround_time"):
        row[key] = str(float(row[key]) + 1)
    row["stretch"] = str(float(row["turnaround_time"]) / float(row["execution_time"]))
    row["requested_time"] = "-1"


def blank(table):
    """A job is as if it had never started."""
    row = table[30]
    for key in list(row)[list(row).index("success") : list(row).index("consumed_energy")]:
        row[key] = ""


def wider(table):
    """A job asked for fewer units than it was given."""
    row = next(row for row in table if int(row[SIZE]) > 1)
    row[SIZE] = str(int(row[SIZE]) - 1)


def ahead(table):
    """A job starts when it is submitted."""
    row = table[290]
    row["finish_time"] = str(float(row["submission_time"]) + float(row["execution_time"]))
    row["starting_time"] = row["submission_time"]


def together(table):
    """Two jobs on one unit at a time."""
    one = next(row for row in table if float(row["execution_time"]) > 0)
    other = next(row for row in table if row is not one and row[SIZE] == one[SIZE])
    for key in ("starting_time", "finish_time", "allocated_resources"):
        other[key] = one[key]
    other["submission_time"] = "0"


#: (function of the table, or the number of a row and its changes; the finding)
BREAKS = [
    (beyond, "broken: .*is on unit 500, of a machine with 128"),
    ((7, {"starting_time": "0"}), "before it was submitted"),
    ((9, {"finish_time": "90000000"}), "with a limit of"),
    (together, "is held by job .* and given to job"),
    (ahead, "is held by job|ahead of job"),
    ((50, {"first_promise": "1"}), "was promised a start"),
    (lambda table: table.pop(17), "299 jobs are written, of 300"),
    (lambda table: table.append(dict(table[-1])), "is held by job|301 jobs are written"),
    (longer, "ran .* s, with a run time of"),
    ((20, {"profile": "delay:1"}), "ran .* s, with a run time of 1 s"),
    ((30, {"waiting_time": "1"}), "its wait is .*, and 1 s is written"),
    ((30, {"execution_time": "1"}), "its run time is .*, and 1 s is written"),
    ((30, {"waiting_time": ""}), "its wait is .*, and nothing is written"),
    ((30, {"stretch": "0.5"}), "its stretch is .*, not 0.5"),
    ((30, {"starting_time": ""}), "has no start, and units"),
    (blank, "299 jobs started, and its summary says 300"),
    ((30, {"starting_time": "nan"}), "job 31: its start is nan, not a number"),
    ((30, {"stretch": "NaN"}), "job 31: its stretch is nan, not a number"),
    ((30, {"success": "0"}), "its success is '0'"),
    (wider, "of size .* has .* units"),
]


@pytest.mark.parametrize("change, said", BREAKS)
def test_check_finds(broken, change, said):
    table = rows(broken)
    if isinstance(change, tuple):
        table[change[0]].update(change[1])
    else:
        change(table)
    write_rows(broken, table)
    assert re.search(said, flux_here("check", broken, code=1).stdout)


@pytest.mark.parametrize(
    "name, change",
    [
        ("sched-backfill", {"precedence": True}),
        ("sched-backfill promise=all", {"tables": {"limits": {}, "epoch": 0}}),
    ],
)
def test_promises_that_may_be_broken_are_not_checked(broken, name, change):
    table = rows(broken)
    table[50].update(first_promise="1")
    write_rows(broken, table)
    for file, more in (("summary.json", {"policy": name}), ("provenance.json", change)):
        assert "was promised a start" in flux_here("check", broken, code=1).stdout
        path = broken / file
        path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    assert "no rule broken" in flux_here("check", broken).stdout


@pytest.mark.parametrize(
    "change, said",
    [
        ({"nb_computing_machines": 64}, "nb_computing_machines is 64, and 128 by its jobs"),
        ({"mean_waiting_time": 0}, "mean_waiting_time is 0, and"),
        ({"nb_jobs_success": None}, "nb_jobs_success is None, and"),
    ],
)
def test_check_of_totals(broken, change, said):
    path = broken / "schedule.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert said in flux_here("check", broken, code=1).stdout


@pytest.mark.parametrize(
    "last, said",
    [
        (r"\1,127,1\n", "1 units in use at .*, and jobs.csv 0"),
        ("", "says nothing at .*, and jobs.csv 0 units in use"),
        (r"\1,3,3\n", "3 idle and 3 computing at .*, of 128"),
    ],
)
def test_check_of_machine_states(broken, last, said):
    path = broken / "machine_states.csv"
    path.write_text(re.sub(r"(?m)^(\d+,0,0,0),(\d+),(\d+)\n\Z", last, path.read_text()))
    assert re.search(said, flux_here("check", broken, code=1).stdout)


def test_the_first_job_has_no_run_time(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("submit,run,nodes\n0,0,2\n50,100,1\n")
    flux_here(trace, "--nodes=4", "-q", "-o", tmp_path / "out")
    states = (tmp_path / "out" / "sched-backfill" / "machine_states.csv").read_text()
    assert states.splitlines()[1:] == ["0,0,0,0,4,0", "50,0,0,0,3,1", "150,0,0,0,4,0"]
    flux_here("check", tmp_path / "out")


def test_check_of_eventlogs(broken):
    logs = broken / "eventlogs"
    whole = logs.resolve()
    logs.unlink()
    path = shutil.copytree(whole, logs) / "17" / "eventlog"
    lines = path.read_text().splitlines(True)
    path.write_text("".join(line for line in lines if '"free"' not in line))
    said = f"broken: {broken}: job 17, event 9 (clean): its resources were not freed"
    assert said in flux_here("check", broken, code=1).stdout


def test_compare(results, tmp_path):
    done = flux_here("compare", results[0], "--diff=1,3")
    assert "2: sched-backfill reservations=1  (" in done.stdout  # the number it was run with
    assert "units idle" in done.stdout
    flux("sample", "--jobs=20", "--scheduler=sched-fifo", "-q", "-o", tmp_path)
    done = flux_here("compare", results[0], tmp_path, code=1)
    assert "different workloads" in done.stderr


def test_compare_with_a_result_that_names_no_files(results, broken):
    path = broken / "provenance.json"
    record = json.loads(path.read_text())
    del record["files"]
    path.write_text(json.dumps(record))
    done = flux_here("compare", results[0] / "sched-fifo", broken)
    assert f"note: {broken} and {results[0]}/sched-fifo are of different files" in done.stdout


def test_resume(tmp_path):
    call = "sample --scheduler=sched-fifo --scheduler=sched-simple -o out"
    flux(f"{call} --jobs=20", cwd=tmp_path)

    def there(jobs):
        text = flux(f"{call} --jobs={jobs} --resume", cwd=tmp_path).stdout
        return re.search("(.*) results are there already", text).group(1)

    assert there(20).endswith("2 of 2")
    (tmp_path / "out" / "sched-fifo" / "summary.json").unlink()
    assert there(20).endswith("1 of 2") and there(19).endswith("0 of 2")


def test_a_trace_named_sample_is_recorded(tmp_path):
    flux("--model=lublin --jobs=5 --save-trace=sample", cwd=tmp_path)
    flux("sample --scheduler=sched-fifo -q -o out", cwd=tmp_path)
    record = json.loads((tmp_path / "out" / "sched-fifo" / "provenance.json").read_text())
    assert [one["path"] for one in record["files"]] == [str(tmp_path / "sample")]


def started(*args, stderr=subprocess.PIPE):
    """A process of the command."""
    command = [FLUX, "simulate", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)


def simulating(*args, **more):
    """A process that has begun with 20,000 jobs."""
    child = started("--model=lublin", "--jobs=20000", "--scheduler=sched-backfill", *args, **more)
    line = child.stdout.readline()
    while line and " jobs over " not in line:
        line = child.stdout.readline()
    return child


def test_an_interrupt_gives_the_results_so_far(tmp_path):
    (tmp_path / "script").write_text(f"start 10 run touch {tmp_path / 'into-the-run'}\n")
    script = f"--script={tmp_path / 'script'}"
    child = simulating(script, "-o", tmp_path / "out")
    while not (tmp_path / "into-the-run").exists():
        assert child.poll() is None
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)
    assert child.returncode == 130, out + err
    assert "interrupted: the figures are of the jobs that had started by then" in out
    assert re.search(r"(?m)^sched-backfill \(interrupted\) +1 +[\d,]+/20,000 ", out)
    line = json.loads(err.splitlines()[-1])
    assert line["finished"] is False and line["done"] < 20000
    summary = json.loads((tmp_path / "out" / "sched-backfill" / "summary.json").read_text())
    assert summary["interrupted"] is True
    assert len(rows(tmp_path / "out" / "sched-backfill")) == 20000
    assert (tmp_path / "out" / "report.html").exists()


def test_an_interrupt_during_the_imports_is_no_traceback():
    for wait in range(1, 12):
        child = started("--help")
        time.sleep(wait / 100)
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=60)[1]
        assert ", in main" not in said  # frames before it are Python's own


def test_an_interrupt_in_a_class_body_is_no_traceback():
    """Before Python 3.12 an exception in __set_name__() becomes the cause of another."""

    def interrupted(argv):
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    assert call("simulate", interrupted, []) == 130


def workers_of(child):
    """The ids of its child processes, as soon as there are any."""
    runs = Path(f"/proc/{child.pid}/task/{child.pid}/children")
    while not (workers := runs.read_text().split()):
        time.sleep(0.05)
    return workers


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_no_run_outlives_the_command(signum):
    child = simulating(stderr=subprocess.DEVNULL)
    workers = workers_of(child)
    child.send_signal(signum)
    child.wait(timeout=300)
    child.stdout.close()
    end = time.monotonic() + 300
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < end, "a run goes on"
        time.sleep(0.05)


@pytest.mark.parametrize(
    "args, said",
    [
        ("", "give one of TRACE"),
        ("sample --model=lublin", "give one of TRACE"),
        ("sample --live", "give one of TRACE"),
        ("sample --scheduler=no-such", "--scheduler=no-such: module not found"),
        ("sample --scheduler=sched-fifo --scheduler=sched-fifo", "sched-fifo is there twice"),
        ("sample --output=", "--output: expected a value, not an empty word"),
        ("sample --diff=1,2 -o x", "--diff=1,2: expected two numbers"),
        ("sample --model lublin", "give one of"),
        ("--model=magic", "model 'magic': expected lublin"),
        ("sample --nodes=0", "nodes=0: expected an integer, 1 or more"),
        ("sample --nodes=4,x", "--nodes"),
        ("sample --limits=y2", "limits 'y2': expected trace, run or xF"),
        ("sample --limits=run --estimates=tsafrir", "--estimates: --limits gives every job"),
        ("sample --nodes=8 --R=R.json", "--nodes: the machine is that of --R"),
        ("sample --cores-per-node=8 --conf=conf.toml", "make a machine; conf.toml is another one"),
        ("sample --gpus-per-node=0 --conf=conf.toml", "make a machine; conf.toml is another one"),
        ("sample --R=R.json --conf=conf.toml", "R and the resource.config"),
        ("--live --nodes=8", "--nodes: the machine is that of the running instance"),
        (
            "--live --memory-per-node=8G",
            "--memory-per-node: the machine is that of the running inst",
        ),
        ("--live --odds=2", "--odds: the jobs are those of the running"),
        ("--live --limits=run --seeds=3", "--limits, --seeds: the jobs are those of the running"),
        ("--live --scale-arrivals=0.5", "--scale-arrivals: the jobs are those of the running"),
        ("--model=lublin --format=swf", "--format: jobs of a model come from no file"),
        ("sample --eventlogs --swf", "--eventlogs, --swf: this needs the files of results"),
        ("sample --resume", "--resume: this needs the files of results"),
        ("sample --force --resume -o x", "--force: --resume keeps what --force removes"),
        ("sample --scheduler=sched-fifo --diff=1,1 -o x", "--diff=1,1: expected two numbers, of 1"),
        ("tune sample --nodes=4,8", "nodes: tune takes one value for each option"),
        ("sample --seeds=2 --shake=0", "shake=0: the workloads of all seeds would be the same"),
        ("sample --seeds=2 --diff=1,2 -o x", "--diff: with --seeds there are several"),
        ("sample --save-trace=x --scheduler=sched-fifo", "--scheduler: --save-trace writes"),
        ("sample --jobs=5 --engine=instance --grain=event-end", "needs the lean engine"),
        ("check", "give directories, or --live"),
        ("tune --model=lublin --status=1", "--status: jobs of a model come from no file"),
        ("tune --model=lublin --seeds=3", "--seeds: each split of a model is a workload"),
        ("tune sample --R=R.json --nodes=3", "--nodes: the machine is that of --R"),
        (
            "sample --nodes=1048577",
            "1,048,577 nodes, 1 cores and 0 GPUs a node (as given): more than",
        ),
        (
            "sample --memory-per-node=lots",
            "memory_per_node='lots': expected an amount such as 512M",
        ),
    ],
)
def test_wrong_usage(args, said, tmp_path, monkeypatch):
    (tmp_path / "conf.toml").write_text('[[resource.config]]\nhosts = "n[0-3]"\ncores = "0-3"\n')
    (tmp_path / "R.json").write_text(json.dumps(rset.uniform(["n0"], 4)))
    monkeypatch.chdir(tmp_path)
    assert said in flux_here(args, code=2).stderr


@pytest.mark.parametrize(
    "args, said",
    [
        ("no-such-file", "no-such-file: there is no such file"),
        ("sample --window=4000-5000", "no job is submitted in the window"),
        ("sample --R=no-such.json", "no-such.json: No such file"),
        ("sample --jobs=5 --script=no-such", "no-such: No such file"),
        ("sample --conf=/bin/ls", "/bin/ls: "),
        ("sample --R=R.json", "R.json: no resource set"),
        ("/bin/ls", "/bin/ls:1: binary data"),
        ("sample --save-trace=/dev/full", "/dev/full: No space left"),
        ("compare /nowhere", "/nowhere: no result of flux simulate in it"),
    ],
)
def test_refusals(args, said, tmp_path, monkeypatch):
    (tmp_path / "R.json").write_text("[]")
    monkeypatch.chdir(tmp_path)
    assert said in flux_here(args, code=1).stderr


def test_the_output_may_go_to_somebody_who_stops_reading(tmp_path):
    child = started("sample", "--jobs=100", "--scheduler=sched-fifo", "-o", tmp_path / "out")
    child.stdout.readline()
    child.stdout.close()
    errors = child.stderr.read()
    child.stderr.close()
    child.wait(timeout=300)
    assert child.returncode in (0, 141) and "Traceback" not in errors
    assert (tmp_path / "out" / "report.html").exists()
    assert len(rows(tmp_path / "out" / "sched-fifo")) == 100


def test_the_output_may_be_closed():
    call = f"{FLUX} simulate sample --jobs=5 --scheduler=sched-fifo >&-"
    done = subprocess.run(call, shell=True, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


@pytest.mark.parametrize(
    "name", ["sched-fifo/jobs.csv", "sched-fifo/machine_states.csv", "report.html"]
)
def test_a_file_that_cannot_be_written_is_named(tmp_path, name):
    (tmp_path / "out" / name).mkdir(parents=True)
    call = "sample --jobs=100 --scheduler=sched-fifo --scheduler=sched-simple -o out"
    done = flux(call, cwd=tmp_path, code=1)
    assert re.search(r"(?m)^sched-fifo +1 +100 ", done.stdout)
    assert re.search(rf"not written: .*/{name}.*: Is a directory", done.stderr)
    assert (tmp_path / "out" / "sched-simple" / "summary.json").exists()


def test_two_calls_do_not_mix_their_results(tmp_path):
    lock = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    args = ("sample", "--jobs=20", "--scheduler=sched-fifo", "-q", "-o", tmp_path)
    assert "another call is writing its results there" in flux(*args, code=1).stderr
    os.close(lock)
    flux(*args)


def test_no_planted_link_is_followed(tmp_path):
    """Neither one in place of a file, nor one in place of a file that was written first by name."""
    own = tmp_path / "own"
    own.write_text("mine")
    of_policy = ["summary.json", "schedule.json", "jobs.csv", "machine_states.csv", "schedule.swf"]
    of_job = [f"eventlogs/1/{name}" for name in ("eventlog", "jobspec")]
    names = ["report.html", *(f"sched-fifo/{name}" for name in of_policy + of_job)]
    for name in names:
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(own)
        path.with_name(path.name + ".new").symlink_to(own)
    call = "sample --jobs=20 --scheduler=sched-fifo --swf --eventlogs --force -q -o out"
    flux(call, cwd=tmp_path)
    assert own.read_text() == "mine"
    assert all((tmp_path / "out" / name).is_file() for name in names)
    assert not any((tmp_path / "out" / name).is_symlink() for name in names)


def test_names_of_a_trace_change_no_terminal_and_are_no_formulas(tmp_path):
    odd = "=1+1\x1b[2J\x9bx"
    trace = tmp_path / "trace.csv"
    columns = "id,submit,run,cores,user,queue,account"
    trace.write_text(f"{columns}\n{odd},0,10,1,{odd},{odd},{odd}\n2,5,1,1,a,b,c\n")
    call = (trace, "--nodes=2", "--scheduler=sched-fifo", "--swf", "-o", tmp_path / "out")
    done = flux(*call)
    assert "queue =1+1?[2J?x" in done.stdout
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    texts = [done.stdout, done.stderr, *(path.read_text() for path in files)]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", "".join(texts))
    row = rows(tmp_path / "out" / "sched-fifo")[0]
    assert {row[name] for name in ("job_id", "user", "queue")} == {"'=1+1?[2J?x"}
    trace.write_text(f"id,submit,run,cores\n1,{odd},1,1\n")
    assert "\x1b" not in flux(trace, code=1).stderr


def test_results_of_another_call_are_not_mixed_with_new_ones(tmp_path):
    out = tmp_path / "out"
    call = ["sample", "--jobs=20", "-o", out, "-q"]
    flux(*call, "--scheduler=sched-fifo")
    (out / "mine.txt").write_text("not ours")
    done = flux(*call, "--scheduler=sched-simple", code=1)
    assert "has results of an earlier call (sched-fifo)" in done.stderr and "--force" in done.stderr
    assert not (out / "sched-simple").exists()
    flux(*call, "--scheduler=sched-simple", "--force")
    there = sorted(path.name for path in out.iterdir())
    assert there == ["mine.txt", "report.html", "sched-simple"]
    done = flux(*call[:-1], "--scheduler=sched-fifo", "--resume")
    assert re.search(r"left alone, and in no table here: .*sched-simple", done.stdout)


def test_policies_keep_their_number(tmp_path):
    out = tmp_path / "out"
    names = ["sched-simple", "sched-backfill", "sched-fifo"]
    policies = (f"--scheduler={name}" for name in names)
    done = flux("sample --jobs=60 --diff=2,3 -o", out, *policies)
    compared = flux_here("compare", out, "--diff=2,3").stdout
    for number, name in enumerate(names, 1):
        assert f"{number}: {name}  (" in compared
        for text in (done.stdout, compared):
            assert re.search(rf"(?m)^{name} +{number} +60 ", text)
    for text in (done.stdout, compared):
        assert re.search(r"2: sched-backfill, and 3: sched-fifo: \d+ of 60 jobs start", text)
    said = flux_here("compare", out, "--diff=0,4", code=2).stderr
    assert "expected two numbers, of 1, 2, 3" in said


def test_latest_starts_count_as_promises(tmp_path):
    args = ["sample", "--jobs=150", "--scheduler=sched-backfill promise=all within=1h", "-q"]
    flux(*args, "-o", tmp_path)
    (directory,) = [path.parent for path in tmp_path.glob("**/jobs.csv")]
    told = [(row["first_promise"], row["starting_time"]) for row in rows(directory)]
    assert len(told) == 150
    assert all(float(start) <= float(promise) for promise, start in told)


def test_json_and_help():
    text = flux("--help").stdout
    assert "--scheduler" in text and "compare DIR" in text
    done = flux("sample", "--jobs=50", "--scheduler=sched-fifo", "--json", "-q")
    (one,) = json.loads(done.stdout)
    assert one["figures"]["jobs"] == 50 and math.isfinite(one["figures"]["wait_mean"])


def test_a_run_that_is_killed_is_an_error():
    child = simulating()
    os.kill(int(workers_of(child)[0]), signal.SIGKILL)
    _, err = child.communicate(timeout=300)
    assert child.returncode == 1
    assert "flux-simulate: sched-backfill: the process was ended by SIGKILL" in err


def test_seeds(tmp_path):
    both = ("--scheduler=sched-fifo", "--scheduler=sched-backfill")
    done = flux("sample", "--jobs=30", "--seeds=3", *both, "-o", tmp_path / "out")
    assert "Differences, paired by seed, with 95 % intervals:" in done.stdout
    assert "wait mean ± 95 %" in done.stdout
    shaken = "over versions of one trace, with submissions shaken by up to 30 s"
    assert shaken in done.stdout
    assert shaken in (tmp_path / "out" / "report.html").read_text()
    assert (tmp_path / "out" / "seed-3" / "sched-fifo" / "jobs.csv").exists()
    for more in (["--across"], []):
        twice = flux_here("compare", tmp_path / "out", tmp_path / "out", *more, code=1)
        assert "are of the same policy and seed, which counts once" in twice.stderr
    drawn = flux("--model=lublin", "--jobs=20", "--seeds=2", "--scheduler=sched-fifo", "-q")
    assert "Intervals are over the workloads of the seeds." in drawn.stdout
    same = ("--scheduler=sched-simple", "--scheduler=sched-fifo")
    same = flux("sample", "--jobs=30", "--seeds=3", *same, "-q")
    assert same.stdout.splitlines()[-1].count("no difference") == 3
    alone = "sample --jobs=30 --seeds=1 --scheduler=sched-fifo --scheduler=sched-backfill -q"
    assert re.search(r"sched-backfill +-?[0-9.]+[smhd] ± -", flux(alone).stdout.splitlines()[-1])


SCRIPT = """
# what happens besides
1000     drain 0-63 maintenance
0d 00:30 undrain 0-63
start 5  cancel 5
2h       reload sched-backfill reservations=4
3h       submit nodes=4 run=10m limit=1h urgency=31
3h       down 5
4h       up 5
4h       queue stop
5h       queue start
5h       shrink 127
submit 40 priority 40 31
6h       run sh -c "echo $FLUX_SIMULATE_TIME > $OUT"
"""


def test_script(tmp_path):
    script = tmp_path / "script"
    script.write_text(SCRIPT)
    call = "sample --jobs=100 --scheduler=sched-fifo --script=script -q -o out"
    flux(call, cwd=tmp_path, env={**os.environ, "OUT": str(tmp_path / "ran")})
    table = {row["job_id"]: row for row in rows(tmp_path / "out" / "sched-fifo")}
    assert (tmp_path / "ran").read_text() == "21600\n"
    assert table["5"]["final_state"] == "COMPLETED_KILLED"

    def started_in(begin, end):
        starts = [(float(row["starting_time"] or "nan"), row) for row in table.values()]
        return [row for start, row in starts if begin <= start < end]

    drained = started_in(1000, 1800)
    assert drained and all(int(row["allocated_resources"].split("-")[0]) >= 64 for row in drained)
    assert started_in(14401, 18000) == []
    assert "no rule broken" in flux_here("check", tmp_path / "out").stdout
    path = tmp_path / "out" / "sched-fifo" / "summary.json"
    summary = json.loads(path.read_text())
    assert summary["available"][1] == [1000, "64-127"]
    summary["available"][0][1] = summary["available"][1][1] = "65-127"
    path.write_text(json.dumps(summary))
    said = flux_here("check", tmp_path / "out", code=1).stdout
    assert re.search(r"broken: .* on units .*, which could not be used then", said)


def test_units_that_are_away_are_no_capacity(tmp_path):
    """Drained units count while a job holds them; excluded ones never."""
    trace = ["id,submit,run,nodes", "1,0,100,4", "2,10,100,4", "3,150,50,1", "4,1000,10,1"]
    (tmp_path / "t.csv").write_text("\n".join(trace))
    script = ["50 drain 4-7", "60 drain 0-3", "200 undrain 4-7", "500 undrain 0-3"]
    (tmp_path / "script").write_text("\n".join(script))
    exclude = '[resource]\nexclude = "8-9"\n[[resource.config]]\nhosts = "n[0-9]"\ncores = "0"\n'
    (tmp_path / "conf.toml").write_text(exclude)

    call = "t.csv --conf=conf.toml --scheduler=sched-fifo "
    # 860 unit seconds, over 1,000 s, on 8 nodes
    assert "offered load 0.11" in flux(call, cwd=tmp_path).stdout

    def figures(options):
        return json.loads(flux(call + options, "-q", "--json", cwd=tmp_path).stdout)[0]["figures"]

    for engine in ("lean", "instance"):
        assert figures(f"--engine={engine}")["utilization"] == pytest.approx(850 / 8000)
    found = figures("--script=script")
    # 0-3 are away from the end of the first job on, 4-7 from that of the second
    assert found["utilization"] == pytest.approx(850 / (8000 - 4 * 400 - 4 * 90))
    assert found["wait_max"] == 50 and found["loss_of_capacity"] == 0


@pytest.mark.parametrize(
    "line, said",
    [
        ("soon drain 0", "script:1: 'soon' is neither a time nor submit, start or end"),
        ("5 dance", "script:1: unknown action 'dance'"),
        ("5 drain", "script:1: expected drain RANKS [REASON]"),
        ("5", "script:1: nothing is to be done then"),
        ("start 99999 stop", "script:1: there is no job 99999"),
        ("5 drain 900", "script:1: drain: idset is out of range"),
        ("5 cancel 99", "script:1: cancel: job 99 is not active"),
        ("5 priority 1 77", "script:1: priority: urgency=77: expected 0 to 31"),
        ("5 priority 1 high", "script:1: priority: urgency=high: expected 0 to 31"),
        ("5 submit nodes=x", "script:1: submit: nodes=x: expected 1 or more"),
        ("5 submit cores=0", "script:1: submit: cores=0: expected 1 or more"),
        ("5 submit urgency=32", "script:1: submit: urgency=32: expected 0 to 31"),
        ("5 submit id=7", "script:1: submit: id=7: there is a job with this id in the trace"),
        ("5 run no-such", "script:1: run: no-such: No such file or directory"),
        ("-5 stop", "script:1: '-5': expected a time of 0 s or more"),
        ("nan stop", "script:1: 'nan': expected a time of 0 s or more"),
        ("25:00 stop", "script:1: '25:00' is not a time of day"),
        ("12:60 stop", "script:1: '12:60' is not a time of day"),
        ("1d 24:00 stop", "script:1: '24:00' is not a time of day"),
        ("5 queue stop night", "script:1: queue: there is no queue 'night'"),
    ],
)
def test_script_errors(tmp_path, line, said):
    script = tmp_path / "script"
    script.write_text(line + "\n")
    done = flux(f"sample --jobs=100 --scheduler=sched-fifo --script={script} -q", code=1)
    assert said in done.stderr


def test_a_refused_job_of_a_script_is_warned_of(tmp_path):
    (tmp_path / "script").write_text("5 submit nodes=900\n")
    said = flux("sample --jobs=100 --scheduler=sched-fifo -q --script=script", cwd=tmp_path).stderr
    assert "job script-1 of the script: unsatisfiable request: need 900 " in said


def test_warnings_are_said_with_q_and_kept(tmp_path):
    call = "sample --jobs=60 --scale-arrivals=0.1 --scheduler=sched-fifo -q -o out"
    done = flux(call, cwd=tmp_path)
    assert "WARNING: the offered load is " in done.stderr
    kept = json.loads((tmp_path / "out" / "sched-fifo" / "summary.json").read_text())["warnings"]
    assert [text.split(":")[0][:20] for text in kept] == ["the offered load is "]
    assert f"WARNING: {kept[0]}\n" == flux_here("compare", tmp_path / "out").stderr


def test_a_warning_about_one_workload_of_a_sweep_names_it(tmp_path):
    done = flux("sample --jobs=60 --nodes=64,128 --scheduler=sched-fifo -o out", cwd=tmp_path)
    again = flux_here("compare", tmp_path / "out")
    larger = "WARNING: nodes=64: 3 of 60 jobs request more than the machine has"
    assert larger in done.stderr and larger in again.stderr
    assert larger in (tmp_path / "out" / "report.html").read_text()
    refused = "sched-fifo (nodes=64): 3 jobs were refused; job 34:"
    assert refused in done.stdout and refused in again.stdout
    load = "WARNING: scale-arrivals=0.1: the offered load is "
    assert load in flux("sample --jobs=60 --scale-arrivals=1,0.1 -q").stderr


def test_a_warning_of_a_scheduler_is_said_with_q(tmp_path):
    (tmp_path / "conf.toml").write_text("[limts.user]\nper = 'user'\nmax.nodes = 4\n")
    done = flux("sample --jobs=60 --conf=conf.toml --scheduler=sched-fifo -q -o out", cwd=tmp_path)
    said = "sched-fifo: a warning in its log: configuration: [limts] is not a known table: is [limits] meant?"
    assert f"WARNING: {said}" in done.stderr
    assert f"WARNING: {said}" in flux_here("compare", tmp_path / "out").stderr
