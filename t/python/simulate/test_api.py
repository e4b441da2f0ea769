"""The API for notebooks: flux.simulate."""

import concurrent.futures
import datetime
import heapq
import json
import math
import multiprocessing
import os
import re
import sys
import types

import pytest
from command_runner import FLUX, TOP, first_scheduler, flux_here
from shared import run

from flux.resource import InsufficientResources
from flux.scheduler import Scheduler
from flux.scheduler.testing import make_R
from flux.simulate import OptionError, Runs, Trace, simulate, tune
from flux.simulate.results import reading
from flux.simulate.results.files import taken
from flux.simulate.workload.text import digest


@pytest.fixture(autouse=True)
def without_pandas(monkeypatch):
    """Whether it is installed here or not."""
    monkeypatch.setitem(sys.modules, "pandas", None)


#: A job of a table in memory.
ROW = {"submit": 0, "run": 5, "nodes": 1}


def simulate_here(_):
    return simulate(Trace("sample", jobs=5), ["sched-fifo"])[0].failed


def test_workers_that_may_have_no_child_processes():
    fork = multiprocessing.get_context("fork")
    with fork.Pool(1) as pool, pytest.raises(ValueError, match="ProcessPoolExecutor"):
        pool.map(simulate_here, [1])
    with concurrent.futures.ProcessPoolExecutor(1, fork) as pool:
        assert list(pool.map(simulate_here, [1])) == [None]


@pytest.fixture(scope="module")
def runs():
    return simulate(Trace("sample", jobs=120), ["sched-fifo", "sched-backfill reservations=1,4"])


def test_tables(runs):
    assert isinstance(runs, Runs) and runs[1].number == 2 and runs[1].failed is None
    row = runs[1].jobs[5]
    assert row["end"] - row["start"] == row["run"] and row["state"] in ("completed", "timeout")
    (one, other) = runs.differences("wait_mean")
    with pytest.raises(OptionError, match="figure 'jain_wait': these runs have bsld_mean, "):
        runs.differences("jain_wait")
    assert one["difference"] == runs[1].figures["wait_mean"] - runs[0].figures["wait_mean"]
    assert math.isnan(one["interval"]) and one["verdict"] == "one run"
    assert other["policy"] == "sched-backfill reservations=4"
    page = (TOP / "doc/guide/comparing.rst").read_text()
    assert [key for key in runs[1].figures if f"``{key}``" not in page] == []
    later = runs[1:]
    assert isinstance(later, Runs) and list(later) == [runs[1], runs[2]]
    (only,) = later.differences()
    assert only["policy"] == "sched-backfill reservations=4" and only["runs"] == 1
    assert only["difference"] == runs[2].figures["wait_mean"] - runs[1].figures["wait_mean"]
    assert len(later.figures) == 2 and runs[1:2].differences() == []


def test_the_jobs_of_a_run_are_a_trace(runs):
    (again,) = simulate(Trace(runs[1].jobs, nodes=128), "sched-backfill reservations=1")
    assert [row["start"] for row in again.jobs] == [row["start"] for row in runs[1].jobs]
    assert [row["job"] for row in again.jobs] == [str(row["job"]) for row in runs[1].jobs]


def test_data_frames_where_pandas_is_installed(runs, monkeypatch):
    class DataFrame:
        def __init__(self, data):
            self.data = data

    pandas = types.ModuleType("pandas")
    pandas.DataFrame = DataFrame
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    for table in (runs[0].jobs, runs.figures, runs.differences()):
        assert isinstance(table, DataFrame) and isinstance(table.data[0], dict)


def test_seeds_and_sweeps():
    trace = Trace("sample", jobs=40, nodes=[128, 256], scale_arrivals=[1.0, 0.5])
    found = simulate(trace, "sched-fifo", seeds=2)
    assert len(found) == 8
    assert [one.variant for one in found[::2]] == [
        {"nodes": 128, "scale_arrivals": 1.0}, {"nodes": 128, "scale_arrivals": 0.5},
        {"nodes": 256, "scale_arrivals": 1.0}, {"nodes": 256, "scale_arrivals": 0.5},
    ]  # fmt: skip
    assert [one.seed for one in found[:2]] == [1, 2]
    assert found[0].figures != found[1].figures
    first, last = found.figures[0], found.figures[-1]
    assert (first["nodes"], last["nodes"], last["seed"]) == (128, 256, 2)


class Missing:
    """Like pandas.NA: a comparison with it is neither true nor false."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


def test_a_table_in_memory():
    day = datetime.datetime(2024, 1, 1)
    hour = datetime.timedelta(hours=1)
    rows = [
        {"submit": day, "run": hour, "limit": 2 * hour, "nodes": 4.0, "user": "a, b"},
        {"submit": day + hour, "run": hour, "limit": math.nan, "nodes": 2.0, "user": None},
        {"submit": day + hour, "run": hour, "limit": Missing(), "nodes": 2.0},
        {"submit": day + hour, "run": hour, "limit": math.inf, "nodes": 2.0},
    ]
    frame = types.SimpleNamespace(columns=list(rows[0]), to_dict=lambda how: {"records": rows}[how])
    for table in (rows, frame):
        trace = Trace(table, nodes=4)
        names = "submit", "run", "limit", "size", "user"
        found = [[getattr(job, name) for name in names] for job in trace.workload().jobs]
        assert found == [[0, 3600, 7200, 4, "a, b"], *[[3600, 3600, 0, 2, None]] * 3]
    assert simulate(rows, "sched-fifo")[0].figures["started"] == 4
    (path,) = trace.files
    assert os.path.exists(path)
    del trace
    assert not os.path.exists(path), "it is there for as long as its trace"


def test_a_misleading_workload_is_a_warning():
    with pytest.warns(UserWarning, match="the offered load is "):
        simulate(Trace("sample", jobs=60, scale_arrivals=0.1), "sched-fifo")


class ByNumber(Scheduler):
    """A policy that a notebook defines: first come, first served."""

    def schedule(self):
        while self._queue:
            job = self._queue[0]
            try:
                alloc = self.resources.alloc(job.jobid, job.resource_request)
            except InsufficientResources:
                return
            job.request.success(alloc)
            heapq.heappop(self._queue)


class Raises(ByNumber):
    def schedule(self):
        raise ValueError("no way")


def test_a_class_is_a_policy(tmp_path):
    trace, policies = Trace("sample", jobs=60), [ByNumber, "sched-fifo", Raises]
    with pytest.warns(UserWarning, match=r"^Raises: failed: .*"):
        mine, fifo, bad = simulate(trace, policies, output=str(tmp_path / "out"))
    assert mine.policy == "ByNumber" and mine.figures == fifo.figures
    assert "ValueError: no way" in bad.failed and "test_api.py" in bad.failed
    made_of = json.loads((tmp_path / "out" / "ByNumber" / "provenance.json").read_text())
    assert made_of["scheduler"]["sha256"] == digest(__file__)


def test_paths_are_files(tmp_path):
    (tmp_path / "my, sched.py").write_text(first_scheduler())
    (tmp_path / "R.json").write_text(json.dumps(make_R(2)))
    (tmp_path / "conf.toml").write_text("[resource]\nexclude = '1'\n")
    trace = Trace([ROW, {**ROW, "submit": 5}], R=tmp_path / "R.json", config=tmp_path / "conf.toml")
    (run,) = simulate(trace, tmp_path / "my, sched.py")
    assert (run.failed, run.workload.units, run.figures["utilization"]) == (None, 2, 1.0)


def test_from_another_thread():
    """Only the main one is told of signals."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        runs = pool.submit(simulate, Trace("sample", jobs=20), "sched-fifo").result()
    assert runs[0].figures["started"] == 20


def test_a_policy_that_fails_is_in_the_runs(tmp_path):
    (tmp_path / "waits.py").write_text(first_scheduler("return"))
    with pytest.warns(UserWarning, match="^waits: failed: 20 of 20 jobs never started"):
        found = simulate(Trace("sample", jobs=20), ["sched-fifo", str(tmp_path / "waits.py")])
    assert found[0].failed is None and "20 of 20 jobs never started" in found[1].failed
    assert math.isnan(found[1].figures["wait_mean"]) and found[1].figures["started"] == 0
    assert found.differences()[0]["verdict"] == "failed"


def test_files_and_a_report(runs, tmp_path):
    runs.report(str(tmp_path / "report.html"))
    text = (tmp_path / "report.html").read_text()
    assert "Jobs that wait longer, and shorter" in text
    simulate(Trace("sample", jobs=20), "sched-fifo", output=str(tmp_path / "out"))
    assert "no rule broken" in flux_here("check", tmp_path / "out").stdout
    with pytest.raises(OSError, match="No space left|Is a directory"):
        runs.report(str(tmp_path))


def test_a_rerun_replaces_its_files_and_mixes_with_no_others(tmp_path):
    out = tmp_path / "out"

    def files():
        return {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}

    def run(schedulers):
        return simulate(Trace("sample", jobs=20), schedulers, output=out)

    flux_here("sample --jobs=20 --scheduler=sched-fifo --eventlogs --swf -q -o", out)
    assert {"report.html", "sched-fifo/eventlogs/1/R", "sched-fifo/schedule.swf"} < files()
    (out / "sched-fifo" / "mine.txt").write_text("not ours")
    run("sched-fifo")
    names = "jobs.csv", "schedule.json", "machine_states.csv", "provenance.json", "summary.json"
    assert files() == {"sched-fifo/mine.txt", *(f"sched-fifo/{name}" for name in names)}
    run(["sched-fifo", "sched-simple"])  # more of them
    there = files()
    text = r"earlier call \(sched-simple\): give another directory, or"
    with pytest.raises(ValueError, match=text):
        run("sched-fifo")
    assert files() == there
    # A result that --resume makes anew keeps nothing of the old one.
    flux_here("sample --jobs=30 --scheduler=sched-simple --eventlogs -q --force -o", out)
    flux_here("sample --jobs=30 --scheduler=sched-simple -q --resume -o", out)
    new = {f"sched-simple/{name}" for name in names}
    assert files() == {"sched-fifo/mine.txt", "report.html", *new}
    another = pytest.raises(ValueError, match="another call is")
    with taken(tmp_path / "other"), another:
        simulate(Trace("sample", jobs=20), "sched-fifo", output=tmp_path / "other")


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: Trace(), "give files of a trace, or a model"),
        (lambda: Trace("sample", model="lublin"), "give files of a trace, or a model"),
        (lambda: Trace("sample", nodes=[1, 1]), "nodes: expected values, each of them once"),
        (lambda: Trace("sample", format="bogus").workload(), "format 'bogus'"),
        (lambda: simulate("sample", "no-such"), "no-such: module not found"),
        (lambda: Trace([ROW], status=(1,)).workload(), "status: list has no statuses"),
        (lambda: Trace(3), "a trace of type int: expected a file, a DataFrame, or a list of dicts"),
        (lambda: Trace([]), "a trace without jobs"),
        (lambda: simulate("sample", int), "int: expected a class derived from flux.scheduler"),
        (lambda: simulate("sample", ByNumber, engine="instance"), "a whole instance loads files"),
        (lambda: simulate("sample", ByNumber, parallel="flux"), "cannot be sent to another node"),
        (lambda: simulate("sample", engine="fast"), "engine 'fast'"),
        (lambda: simulate("sample", engine="lean", jobtap=["x.py"]), "need a whole instance"),
        (lambda: simulate("sample", engine="instance", grain="event-end"), "grain needs the lean"),
        (lambda: simulate("sample", grain="pass"), "grain 'pass'"),
        (lambda: simulate("sample", odds=0), "odds=0: expected an integer, 1 or more"),
        (lambda: simulate("sample", seeds=-1), "seeds=-1: expected an integer, 1 or more"),
        (lambda: simulate("sample", parallel=-1), "parallel=-1: expected an integer, 1 or more"),
        (lambda: simulate("sample", []), "no scheduler to run"),
        (lambda: tune("sample", []), "no scheduler to run"),
        (lambda: tune("sample", versions=0), "versions=0: expected an integer, 1 or more"),
        (lambda: simulate("sample", [print]), "a scheduler of type builtin_function_or_method"),
        (lambda: Trace("sample", jobs=-1).workload(), "jobs=-1: expected an integer, 1 or more"),
        (lambda: Trace("sample", nodes="4").workload(), "nodes='4': expected an integer"),
        (lambda: Trace("sample", cores_per_node=0).workload(), "cores_per_node=0"),
        (lambda: Trace("sample", unit="cpu").workload(), "unit 'cpu': expected node or core"),
        (lambda: Trace("sample", limits=2).workload(), "limits '2': expected trace, run or xF"),
        (lambda: Trace("sample", estimates=None).workload(), "estimates 'None': expected none"),
        (lambda: Trace("sample", scale_arrivals="1").workload(), "scale-arrivals '1': expected a"),
        (lambda: Trace("sample", window=0).workload(), "window '0': it ends before it begins"),
        (lambda: Trace("sample", shake="1").workload(), "shake '1': expected seconds"),
        (lambda: Trace(types.SimpleNamespace(to_dict=dict)), "a trace of type SimpleNamespace"),
        (lambda: Trace("sample", seed=None), "seed=None: expected an integer"),
        (lambda: Trace("sample", status=1), "status=1: expected a list of SWF statuses"),
        (lambda: Trace("sample", status=["1"]), "status=['1']: expected a list of SWF statuses"),
        (lambda: Trace("sample", config=5), "config=5: expected a dict, or a file"),
        (lambda: Trace(model=5).workload(), "model '5': expected lublin"),
        (lambda: simulate("sample", 5), "a scheduler of type int: expected a name"),
        (lambda: simulate("sample", failures=5), "failures 5: expected mtbf=TIME"),
    ],
)
def test_wrong_options(make, said):
    with pytest.raises(OptionError, match=re.escape(said)):
        make()


def test_an_error_in_a_table_names_the_table_and_the_row():
    with pytest.raises(ValueError, match="^list, row 1: 'x' is not a time"):
        Trace([ROW, {**ROW, "submit": "x"}]).workload()
    with pytest.raises(ValueError, match="^list: none of the formats known"):
        Trace([{"a": 1}]).workload()


def test_rows_of_a_table_are_named_and_none_is_lost():
    """The id of a job without one is its row; # begins no comment; a row without a size is told."""

    def named(workload):
        return [(job.id, job.user) for job in workload.jobs]

    rows = [{**ROW, "user": "#1"}, {"user": "a\nb", "submit": 1, "run": 5}]
    with pytest.warns(UserWarning, match="rows without a size, which are left out: 1"):
        (run,) = simulate(Trace(rows, nodes=1), "sched-fifo")
    assert named(run.workload) == [("0", "#1")]
    rows[1]["nodes"] = 1
    assert named(Trace(rows).workload()) == [("0", "#1"), ("1", "a b")]
    rows = [{**row, "JobID": 7.0 + number, "user": 5.0} for number, row in enumerate(rows)]
    assert named(Trace(rows).workload()) == [("7", "5"), ("8", "5")]


def test_the_example():
    env = {**os.environ, "PYTHONWARNINGS": "error,ignore::UserWarning"}
    done = run(FLUX, "python", TOP / "doc" / "examples" / "comparing.py", timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "300 jobs on 64 nodes, 64 cores"
    assert [line.split(":")[0] for line in lines[1:4]] == [
        "sched-fifo", "sched-backfill promise=1", "sched-backfill promise=4",
    ]  # fmt: skip
    assert re.search(r"waited [\d.]+ h", lines[4])
    assert re.search(r"promise=4: [+-]\d+ s ± \d+ s: (more|less|no difference)", lines[5])
    assert lines[-1].startswith("{'scale_arrivals': 0.8}: sched-backfill: ")


def test_memory_of_nodes_is_counted(tmp_path):
    """Two jobs of two processors with 3 GiB each: beside each other on a node of 16 GiB, not on one of 8."""
    row = "{id} 0 -1 100 2 -1 -1 2 100 3145728 1 1 1 1 -1 -1 -1 -1\n"
    path = tmp_path / "memory.swf"
    path.write_text(row.format(id=1) + row.format(id=2))
    for memory, second in ((None, 0.0), ("16G", 0.0), ("8G", 100.0)):
        trace = Trace(path, nodes=1, cores_per_node=4, memory_per_node=memory, unit="core")
        figures = simulate(trace, "sched-backfill")[0].figures
        assert figures["makespan"] == 100.0 + second, memory
    whole = Trace(path, nodes=1, cores_per_node=4, memory_per_node="8G", unit="node")
    (warning,) = whole.workload().notes.warnings
    assert warning.startswith("no job that takes part of a node requests memory")
    small = Trace(path, nodes=1, cores_per_node=4, memory_per_node="2G", unit="core")
    assert simulate(small, "sched-backfill")[0].figures["started"] == 0


def test_a_file_in_the_working_directory_is_named_with_it(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    with pytest.raises(OptionError, match=r"not found in search path \(a file here: \./mine\.py\)"):
        simulate("sample", "mine.py")


@pytest.mark.parametrize(
    "text, said",
    [("{}", "'policy' is not in its"), ("[]", "not a JSON object"), ("5", "not a JSON object")],
)
def test_a_summary_that_is_no_object(tmp_path, text, said):
    for name in ("summary.json", "provenance.json"):
        (tmp_path / name).write_text(text)
    with pytest.raises(reading.ResultError, match=said):
        reading.find([str(tmp_path)])
