"""``flux simulate tune``: options are chosen on some splits of the trace, and judged on the others."""

import dataclasses
import json
import math

import pytest
from command_runner import flux

from flux.simulate import OptionError, Trace, policy, tune, tuning
from flux.simulate.tuning import text_of


def write_trace(path, users=("ann", "bob"), jobs=300, gap=60.0):
    """Short and long jobs for one node in turns: a policy that examines the short ones first shortens waits."""
    lines = ["id,submit,run,limit,nodes,user"]
    for number in range(jobs):
        run = 20 if number % 2 else 90
        lines.append(f"{number},{number * gap},{run},{run},1,{users[number % len(users)]}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return str(write_trace(tmp_path_factory.mktemp("tune") / "turns.csv"))


#: By the class that comes first in the trace, or not: each splits' first job is run as the first to come.
SHORT_FIRST = "sched-backfill rank=shortest"
LONG_FIRST = "sched-backfill rank=fcfs"


@pytest.fixture(scope="module")
def found(trace):
    busy = Trace(trace, nodes=1, scale_arrivals=0.8)
    return tune(busy, [SHORT_FIRST, LONG_FIRST], splits=6, versions=2)


def test_the_better_is_chosen_and_judged(found):
    assert found.chosen == SHORT_FIRST and found.better
    assert found.tried == [SHORT_FIRST, LONG_FIRST] and found.dropped == {}
    assert (found.splits, found.jobs, found.versions, found.unit) == (6, 50, 2, "node")
    row = found.rows["wait_mean"]
    assert row["chosen"] < row["against"] and row["low"] <= row["change"] <= row["high"] < 0
    # Two of each three splits' versions: 3 splits that judge, 2 versions, 50 jobs of each count.
    assert sum(found.losses[key] for key in ("later", "earlier", "same")) == 300
    assert sum(entry["jobs"] for entry in found.classes.values()) == 300


def test_the_text_of_a_gain(found):
    lines = list(text_of(found, policy.parse(found.tried)))
    assert lines[0] == (
        "6 splits of 50 jobs: 3 choose among 2 candidates by mean wait, 3 judge the one that they chose, each 2 times"
        " with submissions shaken"
    )
    assert f"chosen:  {SHORT_FIRST}" in lines
    (losses,) = [line for line in lines if line.startswith("Losses, in all these runs: ")]
    assert "of 300 jobs start later" in losses and "node hours" in losses
    (users,) = [line for line in lines if line.startswith("Users with the largest losses")]
    assert "ann" in users and "bob" not in users  # ann's jobs are the long ones
    assert "    flux module load sched-backfill rank=shortest" in lines
    assert '    sched-backfill.args = ["rank=shortest"]' in lines


def test_files_are_loaded_by_their_paths(found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rank.py").write_text("def rank(policy, job): return 0\n")
    (tmp_path / "mine.py").write_text("def mod_main(h, *args): pass\n")
    for given, said in (
        ("sched-backfill rank=./rank.py:rank", f"sched-backfill rank={tmp_path}/rank.py:rank"),
        ("./mine.py x=1", f"{tmp_path}/mine.py x=1"),
    ):
        (candidate,) = policy.parse([given])
        better = dataclasses.replace(found, chosen=candidate.name)
        lines = list(text_of(better, [candidate]))
        load = lines.index(f"    flux module load {said}")
        # A configuration names a module by the name under which it is installed.
        assert any("alternatives.sched" in line for line in lines[load:]) == (given[0] != ".")


def test_chance_is_not_taken_for_a_difference(trace):
    """No job ever waits: there is nothing to choose."""
    idle = tune(Trace(trace, nodes=8), [SHORT_FIRST], splits=6)
    assert idle.chosen is None and not idle.better and idle.rows == {}
    assert list(text_of(idle, []))[-1].startswith("No better than sched-backfill: no candidate")


def test_an_interval_that_reaches_zero_is_no_better(found):
    counts = {"splits": 6, "jobs": 100, "versions": 1, "unit": "node"}
    worse = tuning.Tuning("wait_mean", "a", ["b"], {}, "b", **counts)
    worse.losses, worse.classes = found.losses, found.classes
    worse.rows = {name: dict(row, high=0.01) for name, row in found.rows.items()}
    lines = list(text_of(worse, []))
    assert lines[-1].startswith("No better than a: the 95 % interval")
    assert not any("flux module load" in line for line in lines)


def test_splits_that_choose_do_not_judge(trace):
    parts = tuning._Splits(Trace(trace, nodes=1), 6, 3)
    choosing, judging = parts.choosing(), parts.judging()
    assert [case.variant["split"] for case, _ in choosing] == [1, 3, 5]
    assert [case.variant["split"] for case, _ in judging] == [2, 2, 2, 4, 4, 4, 6, 6, 6]
    chose = frozenset().union(*(counted for _, counted in choosing))
    judged = frozenset().union(*(counted for _, counted in judging))
    assert len(chose) == len(judged) == 150 and not chose & judged
    case, counted = judging[0]
    assert len(case.workload.jobs) == 75 and len(counted) == 50
    assert case.workload.jobs[0].submit == 0.0  # times of a split begin with it
    versions = {tuple(job.submit for job in case.workload.jobs) for case, _ in judging[:3]}
    assert len(versions) == 3


def test_a_model_has_workloads_for_splits():
    trace = Trace(model="lublin", estimates="tsafrir", nodes=64, jobs=60)
    parts = tuning._Splits(trace, 6, 3)
    assert parts.versions == 1 and parts.jobs == 60
    cases = [case for case, _ in parts.choosing() + parts.judging()]
    assert len({tuple(job.submit for job in case.workload.jobs) for case in cases}) == 6


def test_the_command_fails_with_a_candidate(trace, tmp_path):
    (tmp_path / "bad.py").write_text("import nowhere\n")
    done = flux(f"tune {trace} --nodes=1 --splits=6 -q --scheduler", tmp_path / "bad.py", code=1)
    assert "no candidate had a lower mean wait" in done.stdout
    assert "bad: failed, and is not a candidate: loader " in done.stderr


def test_a_candidate_that_fails_is_left_out(trace, tmp_path):
    module = tmp_path / "bad.py"
    module.write_text(
        "from flux.scheduler.policies import Fifo\n"
        "class Bad(Fifo):\n    def schedule(self):\n        raise RuntimeError('no')\n"
        "def mod_main(h, *args):\n    Bad(h, *args).run()\n"
    )
    found = tune(Trace(trace, nodes=1, scale_arrivals=0.8), [str(module), SHORT_FIRST], splits=6)
    assert found.chosen == SHORT_FIRST
    ((name, reason),) = found.dropped.items()
    assert name.startswith("bad") and "no" in reason


@pytest.mark.parametrize(
    "more, text",
    [
        ({"figure": "speed"}, "figure 'speed': expected one of wait_mean"),
        *(({"splits": n}, f"splits={n}: expected an integer, 6 or more") for n in (5, None)),
        ({"versions": None}, "versions=None: expected an integer, 1 or more"),
        ({"splits": 7}, "300 jobs in 7 splits are 42 in each: expected 50 or more"),
        ({"against": "sched-backfill promise=1,2"}, "expected one policy"),
        ({"against": SHORT_FIRST}, "rank=shortest.* is the one to compare with"),
    ],
)
def test_bad_options(trace, more, text):
    with pytest.raises(ValueError, match=text):
        tune(Trace(trace, nodes=1), [SHORT_FIRST], **more)


def test_one_value_for_each_option(trace):
    with pytest.raises(OptionError, match="one value for each option"):
        tune(Trace(trace, nodes=[1, 2]), [SHORT_FIRST])


def test_the_command(trace):
    args = ("tune", trace, "--nodes=1", "--scale-arrivals=0.8", "--splits=6", "--seeds=1", "-q")
    text = flux(*args, "--scheduler=sched-backfill rank=shortest").stdout
    better = (
        "Better than sched-backfill: the 95 % interval of the difference in mean wait lies below 0."
    )
    assert better in text
    done = flux(*args, "--scheduler=sched-backfill rank=shortest,area", "--json")
    found = json.loads(done.stdout)
    assert found["chosen"] in found["tried"] and len(found["tried"]) == 2
    assert math.isfinite(found["rows"]["bsld_mean"]["high"])
    assert "give one of TRACE... and --model" in flux("tune", code=2).stderr
    assert "expected 50 or more" in flux("tune", trace, "--splits=60", code=1).stderr
