"""Features of a site's machine: dependencies of a trace, node failures, fair share, sweeps."""

import json
import math
import re
import time

import pytest
import test_engines
from command_runner import TOP, first_scheduler, flux, flux_here, rows
from test_readers import notes, row, swf, workload

from flux.simulate import simulate
from flux.simulate.job import Job, Shape
from flux.simulate.machine import uniform
from flux.simulate.results.files import write_trace
from flux.simulate.script import Outages
from flux.simulate.trace import Trace
from flux.simulate.workload.record import OptionError

FAIRSHARE = TOP / "src" / "jobtap" / "examples" / "priority-fairshare.py"


# -- jobs that follow others -----------------------------------------------------------------------------------


def chain():
    """One node; b comes 7 s after the end of a, c with the end of b but not before 100, d after no job."""
    work = test_engines.one_node((0.0, 10, 50), (1.0, 5, 50), (100.0, 5, 50), (3.0, 20, 50))
    work.jobs[1].after, work.jobs[2].after = (0, 7.0), (1, None)
    return work


@pytest.mark.parametrize("engine", ["lean", "instance"])
def test_followers_come_in_when_the_other_job_is_over(engine):
    outcome, summary = test_engines.simulate_policy(chain(), "sched-fifo", engine=engine)
    # a runs 0-10, d 10-30; b comes in at 17 and waits for d; c comes in at its own time.
    assert list(outcome.submit) == [0.0, 17.0, 100.0, 3.0]
    assert list(outcome.start) == [0.0, 30.0, 100.0, 10.0]
    assert summary["failed"] is None and summary["figures"]["out_of_order"] == 0


def test_dependencies_of_a_trace(tmp_path):
    def after(number, former, think):
        return [*row(number, submit=number)[:16], former, think]

    followers = (
        after(2, 1, 30),
        after(3, 99, 5),
        after(4, 5, 5),
        row(5, submit=5),
        after(6, 5, -1),
    )
    text = swf(row(1), *followers)
    work = workload(tmp_path, text, dependencies=True)
    assert [job.after for job in work.jobs] == [None, (0, 30.0), None, None, None, (4, None)]
    assert "2 jobs come in when the job they follow is over" in notes(work)
    assert "2 jobs follow a job that is not there before them" in notes(work)
    write_trace(work, tmp_path / "saved.swf")
    again = Trace(str(tmp_path / "saved.swf"), dependencies=True).workload()
    assert [job.after for job in again.jobs] == [job.after for job in work.jobs]
    plain = workload(tmp_path, text)
    assert {job.after for job in plain.jobs} == {None}
    text = "4 jobs follow another job: they do not wait for it (--dependencies)"
    assert text in notes(plain)
    (warning,) = workload(tmp_path, swf(row()), dependencies=True).notes.warnings
    assert "--dependencies changes nothing" in warning


def test_check_knows_no_order_of_jobs_that_come_in_at_one_instant(tmp_path):
    """2 comes in when 1 has ended, after 3, though all are submitted at 0."""
    lines = [row(1, run=0, size=1), [*row(2, size=2)[:16], 1, 0], row(3, size=1)]
    (tmp_path / "trace.swf").write_text(swf(*lines))
    call = [tmp_path / "trace.swf", "--nodes=2", "--dependencies", "--scheduler=sched-fifo"]
    flux(*call, "-o", tmp_path / "out")
    table = rows(tmp_path / "out" / "sched-fifo")
    assert [line["starting_time"] for line in table[::2]] == ["0"] * 2
    assert "no rule broken" in flux_here("check", tmp_path / "out").stdout


def test_a_saved_trace_has_the_statuses(tmp_path):
    work = workload(tmp_path, swf(*(row(n + 9, status=of) for n, of in enumerate((1, 0, 5, -1)))))
    write_trace(work, tmp_path / "saved.swf")
    kept = Trace(str(tmp_path / "saved.swf"), status=(1, -1)).workload()
    assert [job.id for job in kept.jobs] == ["1", "4"]


# -- nodes that fail -------------------------------------------------------------------------------------------


def test_nodes_fail_and_come_back(tmp_path):
    call = ["sample", "--jobs=200", "--scheduler=sched-backfill", "-q"]
    failures = "--failures=mtbf=2d,repair=2h"
    for name, option in (("one", failures), ("same", failures), ("other", f"{failures},seed=2")):
        flux(*call, option, "-o", tmp_path / name)
        # No job starts on a node that is down.
        assert "no rule broken" in flux_here("check", tmp_path / name).stdout
    names = ("one", "same", "other")
    one, same, other = (rows(tmp_path / name / "sched-backfill") for name in names)
    failed = [line for line in one if line["final_state"] == "COMPLETED_FAILED"]
    assert one == same != other and 10 < len(failed) < 300
    summary = json.loads((tmp_path / "one" / "sched-backfill" / "summary.json").read_text())
    # Of 128 nodes a share of 2 h / (2 d + 2 h) is down at a time.
    spans = zip(summary["available"], summary["available"][1:])
    down = sum((b[0] - a[0]) * (128 - units(a[1])) for a, b in spans)
    whole = summary["available"][-1][0] * 128
    assert down / whole == pytest.approx(2 / 50, rel=0.3)


def units(text):
    parts = [part.split("-") for part in text.split()]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in parts)


def test_failures_end_with_the_jobs(tmp_path):
    jobs = [Job("1", 0.0, 100, 200, Shape(2, 1), 2), Job("2", 5000.0, 10, 20, Shape(1, 1), 1)]
    work = test_engines.workload(jobs, uniform(2), "node")
    failures = "mtbf=1h,repair=1m"
    outcome, _ = test_engines.simulate_policy(work, "sched-fifo", failures=f"{failures},seed=3")
    assert outcome.last < 10000
    # Nor do they go on for jobs that the scheduler never starts.
    (tmp_path / "waits.py").write_text(first_scheduler("return"))
    outcome, _ = test_engines.simulate_policy(work, str(tmp_path / "waits.py"), failures=failures)
    assert math.isnan(outcome.start[0])


@pytest.mark.parametrize(
    "text",
    [
        "", "mtbf=1d", "mtbf=1d,repair=0", "mtbf=x,repair=1h", "mtbf=1d,repair=1h,night=1",
        "mtbf=1d,repair=1h,seed=x",
    ],
)  # fmt: skip
def test_failures_that_cannot_be(text):
    with pytest.raises(OptionError, match="expected mtbf=TIME,repair=TIME"):
        Outages.parse(text)


# -- fair share ------------------------------------------------------------------------------------------------


def test_fair_share_of_the_users_of_a_trace(tmp_path):
    """ann has used the machine for hours; bob, who comes later, goes first."""
    lines = ["id,submit,run,limit,nodes,user"]
    lines += [f"a{n},{n},3600,3600,1,1001" for n in range(6)]
    lines += [f"b{n},{7300 + n},3600,3600,1,1002" for n in range(2)]
    (tmp_path / "jobs.csv").write_text("\n".join(lines) + "\n")
    call = [tmp_path / "jobs.csv", "--scheduler=sched-fifo", "-q", "--nodes=1"]
    plugin = "priority-fairshare.py half-life=604800 period=60"  # found by name, as flux jobtap load does

    def order(name, *more):
        flux(*call, *more, "-o", tmp_path / name)
        table = rows(tmp_path / name / "sched-fifo")
        table.sort(key=lambda line: float(line["starting_time"]))
        return [line["job_id"] for line in table]

    assert order("plain") == ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1"]
    fair = order("fair", "--jobtap", plugin)
    assert fair[:3] == ["a0", "a1", "a2"] and set(fair[3:5]) == {"b0", "b1"}
    # The user with nearly all shares has used less than their part.
    (tmp_path / "shares.json").write_text('{"1001": 100, "1002": 1}')
    owner = order("owner", "--jobtap", f"{plugin} shares={tmp_path / 'shares.json'}")
    assert owner.index("b1") > owner.index("a4")
    # The scheduler's own, in the engine that has no plugins.
    conf = tmp_path / "conf.toml"
    conf.write_text('[fairshare]\nhalf-life = "7d"\n')
    assert order("table", "--conf", conf) == fair
    conf.write_text('[fairshare]\nusers = {"1001" = 100}\n')
    assert order("shares", "--conf", conf).index("b1") > owner.index("a4")


def test_parts_of_a_configuration_that_do_not_apply_are_told():
    given = {"modules": {"sched-backfill": {"args": []}}, "policy": {"limits": {"duration": "1h"}}}
    assert Trace("sample", jobs=9, config=given).workload().notes.warnings == [
        "modules.sched-backfill.args of the configuration: arguments are those of --scheduler alone",
        "policy.limits of the configuration: only --engine=instance refuses jobs by them",
    ]


def test_the_calendar_is_that_of_no_machine(monkeypatch, tmp_path):
    budget = {"per": "instance", "period": "day", "max": {"node-hours": 1}}
    rows = [{"submit": 0, "run": 3600, "limit": 3600, "nodes": 1} for _ in range(2)]
    trace = Trace(rows, config={"budgets": {"b": budget}})
    try:
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        (run,) = simulate(trace, "sched-fifo", output=str(tmp_path / "out"))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [job["start"] for job in run.jobs] == [0, 86400]
    assert "no rule broken" in flux_here("check", tmp_path / "out").stdout


@pytest.mark.parametrize("engine", ["lean", "instance"])
def test_tables_name_the_users_of_the_trace(engine, tmp_path):
    """Their ids are those of its jobs, also of one that this machine knows by another."""
    jobs = [f"{number},0,10,10,1,{user}" for number, user in enumerate(["root", "ada", "bob"] * 2)]
    trace = tmp_path / "jobs.csv"
    trace.write_text("\n".join(["id,submit,run,limit,nodes,user", *jobs, ""]))
    limit = {"per": "user", "users": ["root", "ada"], "max": {"jobs": 1}}
    limits = {"one": limit, "two": {**limit, "users": "bob", "exempt": {"users": ["bob", "gone"]}}}
    tables = {"limits": limits, "fairshare": {"half-life": "1d", "users": {"bob": 2, "ada": 1}}}
    (run,) = simulate(Trace(str(trace), nodes=6, config=tables), "sched-fifo", engine=engine)
    assert run.failed is None
    assert [job["start"] for job in run.jobs] == [0, 0, 0, 10, 10, 0]
    said = "users in the tables without a job in the trace: gone"
    assert said in run.workload.notes.facts


@pytest.mark.parametrize(
    "text, said",
    [
        ("./nowhere.py", "nowhere.py: there is no such file"),
        ("nowhere.py", "failed: "),
        ("", "jobtap: expected a file"),
        (f"{FAIRSHARE} half-life", "'half-life': expected KEY=VALUE"),
        (f"{FAIRSHARE} night=1", "expected shares=FILE or one of half-life"),
        (f"{FAIRSHARE} shares=/nowhere", "/nowhere"),
    ],
)
def test_plugins_that_do_not_load(text, said):
    code = 2 if "expected KEY" in said or not text else 1
    done = flux("sample --jobs=5 --jobtap", text, code=code)
    assert said in done.stderr


# -- sweeps ----------------------------------------------------------------------------------------------------


def test_a_sweep(tmp_path):
    call = ["sample", "--jobs=60", "--scheduler=sched-fifo", "--scheduler=sched-backfill", "-q"]
    out = tmp_path / "out"
    done = flux(*call, "--scale-arrivals=1,0.5", "--limits=run,x3", "-o", out)
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == [
        "limits-run_scale-arrivals-0.5", "limits-run_scale-arrivals-1.0", "limits-x3_scale-arrivals-0.5",
        "limits-x3_scale-arrivals-1.0",
    ]  # fmt: skip
    assert "limits=x3 scale-arrivals=0.5:" in done.stdout
    table = done.stdout[done.stdout.index("Mean wait:") :].splitlines()
    assert table[1].split() == ["sched-fifo", "sched-backfill"]
    assert [line.split()[:2] for line in table[2:6]] == [
        ["limits=run", "scale-arrivals=1.0"], ["limits=run", "scale-arrivals=0.5"],
        ["limits=x3", "scale-arrivals=1.0"], ["limits=x3", "scale-arrivals=0.5"],
    ]  # fmt: skip
    one = flux(*call, "--scale-arrivals=0.5", "--limits=run").stdout
    (alone,) = re.findall(r"(?m)^sched-fifo +1 +60 +(\S+)", one)
    assert table[3].split()[2] == alone
    assert "along the sweep" in (out / "report.html").read_text()
    assert flux_here("check", out).stdout.count("no rule broken") == 8
    assert done.stdout[: -len(str(out)) - 20].strip() in flux_here("compare", out).stdout
    seeds = flux(*call, "--nodes=128,256", "--seeds=2").stdout
    assert re.search(r"nodes=256 +\S+ ± \S+ +\S+ ± \S+", seeds)


@pytest.mark.parametrize("options", ["--scale-arrivals=1,0.8", "--seeds=2"])
def test_part_of_a_sweep_is_another_workload(tmp_path, options):
    for name, more in (("one", ""), ("several", options)):
        flux(f"sample --jobs=20 --scheduler=sched-fifo -q {more} -o", tmp_path / name)
    both = tmp_path / "one", tmp_path / "several"
    said = flux_here("compare", *both, code=1).stderr
    assert "are not of one sweep, nor both of seeds" in said
    flux_here("compare", "--across", *both)


def test_compare_across_workloads(tmp_path):
    for name, jobs in (("small", 30), ("large", 60)):
        policies = "--scheduler=sched-fifo --scheduler=sched-backfill"
        flux(f"sample --jobs={jobs} {policies} -q -o", tmp_path / name)
    both = [tmp_path / "small", tmp_path / "large"]
    said = flux_here("compare", *both, code=1).stderr
    assert "different workloads (--across compares them)" in said
    text = flux_here("compare", "--across", *both, "-o", tmp_path / "report.html").stdout
    assert "workload=small:" in text and "workload=large:" in text
    assert re.search(r"(?m)^workload=large +\S+ +\S+$", text)
    assert "along the sweep" in (tmp_path / "report.html").read_text()


def test_values_of_a_sweep_are_checked():
    for option in ("--nodes=4,4", "--scale-arrivals=1,x", "--limits=run,run"):
        flux("sample", option, code=2)
    done = flux("sample", "--nodes=1,2", "--save-trace=x", code=2)
    assert "one value for each option" in done.stderr
