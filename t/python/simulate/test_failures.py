"""A policy that failed is not mistaken for a good one: its exit status, its table, its reason."""

import json
import re

import pytest
import test_engines
from command_runner import first_scheduler, flux

from flux.simulate import simulate
from flux_engine.kernel.message import OWNER

BROKEN = {
    "raises": ("if self.passes > 5: raise KeyError('my own mistake')", "my own mistake"),
    "ends": (
        "if self.passes > 5: self.handle.reactor_stop(0); return",
        r"the scheduler ended after [\d.]+ s, with jobs left",
    ),
    "waits": ("return", "50 of 50 jobs never started: job 1, 2, 3, ..."),
}


POLICY = """
from flux.scheduler import Scheduler

class Mine(Scheduler):
    def schedule(self):
        while self._queue:
            job = self._queue.pop(0)
            STEP

def mod_main(h, *args):
    Mine(h, *args).run()
"""


@pytest.mark.parametrize("engine", ["lean", "instance"])
def test_a_policy_that_refuses_a_job_that_fits_fails(tmp_path, engine):
    step = "if self._queue and self.passes in (3, 5): self._queue.pop(0).request.deny('no')"
    (tmp_path / "denies.py").write_text(counting(step))
    done = flux(f"sample --jobs=20 --engine={engine} --scheduler", tmp_path / "denies.py", code=1)
    text = r"2 of 20 jobs were refused although the machine has room for them: job \d+: no"
    assert re.search(text, done.stderr)


def test_a_traceback_does_not_begin_with_a_lookup_of_the_engine(tmp_path):
    (tmp_path / "raises.py").write_text(
        "from flux.scheduler.policies.backfill import Backfill\n"
        "class Mine(Backfill):\n    def order(self, job): return None\n"
        "def mod_main(h, *args): Mine(h, *args).run()\n"
    )
    done = flux("sample --jobs=5 --scheduler", tmp_path / "raises.py", code=1)
    assert "order() returned None" in done.stderr and "KeyError" not in done.stderr


def test_jobs_that_do_not_fit_may_be_refused(tmp_path):
    """They did not end: the makespan is that of the others."""
    (tmp_path / "jobs.csv").write_text("id,submit,run,limit,nodes\n1,0,5,9,2\n2,60,5,9,9\n")
    done = flux(tmp_path / "jobs.csv", "--nodes=4", "-o", tmp_path / "out")
    assert "sched-backfill: 1 job was refused; job 2: unsatisfiable request: need 9 " in done.stdout
    summary = json.loads((tmp_path / "out" / "sched-backfill" / "summary.json").read_text())
    assert summary["figures"]["makespan"] == 5.0


@pytest.mark.parametrize("engine", ["lean", "instance"])
def test_a_job_that_its_user_holds_is_no_failure(tmp_path, engine):
    (tmp_path / "jobs.csv").write_text("submit,run,limit,nodes,urgency\n0,5,9,2,16\n0,5,9,2,0\n")
    done = flux(tmp_path / "jobs.csv", f"--engine={engine}")
    assert "sched-backfill: 1 job never started" in done.stdout


def test_jobs_that_a_limit_keeps_waiting(tmp_path):
    """Those behind them start, also under sched-fifo, which is sent eight jobs at a time otherwise."""
    rows = [f"{number},0,5,9,{3 if number < 10 else 1},7" for number in range(1, 12)]
    (tmp_path / "jobs.csv").write_text("id,submit,run,limit,nodes,user\n" + "\n".join(rows) + "\n")
    (tmp_path / "site.toml").write_text('[limits.u]\nper = "user"\nmax = {nodes = 2}\n')
    call = (tmp_path / "jobs.csv", f"--conf={tmp_path / 'site.toml'}", "--scheduler=sched-fifo")
    done = flux(*call, code=1)
    assert "9 of 11 jobs never started: job 1, 2, 3, ..." in done.stderr
    assert "deny = true refuses jobs over a limit" in done.stderr
    (tmp_path / "site.toml").write_text('[limits.u]\nper="user"\nmax={nodes=2}\ndeny=true\n')
    assert "9 jobs were refused" in flux(*call).stdout


def test_jobs_that_ask_for_gpus_of_a_machine_without(tmp_path):
    (tmp_path / "jobs.csv").write_text("submit,run,limit,cores,gpus\n0,5,9,2,1\n")
    done = flux(tmp_path / "jobs.csv")
    assert "WARNING: jobs ask for GPUs, and the machine has none: " in done.stderr
    done = flux(tmp_path / "jobs.csv", "--nodes=1", "--cores-per-node=2", "--gpus-per-node=1")
    assert "the machine has none" not in done.stderr and "refused" not in done.stdout


def test_jobs_that_a_plugin_refuses_are_told_with_its_reason(tmp_path):
    refuse = "lambda p, topic, args: p.reject_job('no account')"
    text = f"def plugin_init(p):\n    p.add_handler('job.validate', {refuse})\n"
    (tmp_path / "account.py").write_text(text)
    done = flux("sample", "--jobs=3", "--jobtap", tmp_path / "account.py")
    assert "sched-backfill: 3 jobs were refused; job 1: no account" in done.stdout


@pytest.mark.parametrize("engine", ["lean", "instance"])
def test_a_policy_that_gives_less_than_was_asked_for_fails(tmp_path, engine):
    step = """
            from flux.scheduler.testing import jobspec
            one = self._parser.parse(jobspec(nodes=1, duration=60))
            job.request.success(self.resources.alloc(job.jobid, one))"""
    (tmp_path / "small.py").write_text(POLICY.replace("STEP", step))
    (tmp_path / "jobs.csv").write_text("id,submit,run,limit,nodes\n1,0,5,9,1\n2,0,5,9,3\n")
    call = f"jobs.csv --nodes=8 --engine={engine} --scheduler ./small.py"
    done = flux(call, cwd=tmp_path, code=1)
    assert "small: failed: job 2 was given 1 of 3 nodes" in done.stderr


def counting(step):
    """The guide's first scheduler, which counts its passes, and does something at the begin of each."""
    return first_scheduler("self.passes += 1\n" + step, "    passes = 0")


@pytest.mark.parametrize(
    "text, said",
    [
        ("def mod_main(h, *args):\nreturn\n", "IndentationError: expected an indented block"),
        ("x = 1\n", "no mod_main() or BrokerModule subclass found"),
        ("import nowhere\n", "ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_the_reason_says_why_a_file_does_not_load(tmp_path, text, said):
    (tmp_path / "mine.py").write_text(text)
    (run,) = simulate("sample", tmp_path / "mine.py")
    assert "exited with exit code 1\n" in run.failed and said in run.failed


@pytest.mark.parametrize("engine", ["lean", "instance"])
@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_a_policy_that_fails(tmp_path, kind, engine):
    step, said = BROKEN[kind]
    (tmp_path / f"{kind}.py").write_text(counting(step))
    policies = f"--scheduler ./{kind}.py --scheduler=sched-fifo"
    done = flux(f"sample --jobs=50 --engine={engine} {policies} -q -o out", cwd=tmp_path, code=1)
    table = [line.split() for line in done.stdout.splitlines()]
    (row,) = [line for line in table if line[:2] == [kind, "(failed)"]]
    assert re.fullmatch(r"\d+/50", row[3]) and set(row[4:]) == {"-"}
    (good,) = [line for line in table if line[:1] == ["sched-fifo"]]
    assert good[2] == "50"
    assert re.search(rf"flux-simulate: {kind}: failed: ", done.stderr)
    assert re.search(said, done.stderr)
    assert "flux_embedded" not in done.stderr  # none of our internals in its traceback
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"{kind} (failed)" in page and f"Allocations: {kind}" not in page


@pytest.mark.parametrize("engine", ["lean", "instance"])
def test_a_module_that_does_not_load(tmp_path, engine):
    (tmp_path / "torn.py").write_text("x = 1\nimport no_such_thing\n")
    done = flux(f"sample --jobs=9 --engine={engine} --scheduler", tmp_path / "torn.py", code=1)
    trace = done.stderr[done.stderr.index("flux-simulate: torn: failed") :].splitlines()
    assert len(trace) < 8
    assert re.search(r'File ".*/torn.py", line 2', done.stderr)
    assert done.stderr.count("No module named 'no_such_thing'") == 1


def test_the_output_of_a_module_is_not_lost(tmp_path):
    step = "self.passes == 1 and print('a word', file=__import__('sys').stderr)"
    (tmp_path / "talks.py").write_text(counting(step))
    done = flux("sample", "--jobs=9", f"--scheduler={tmp_path / 'talks.py'}", "-q")
    assert done.stderr == "a word\n"


def test_json_names_the_failure(tmp_path):
    (tmp_path / "waits.py").write_text(first_scheduler("return"))
    done = flux("sample --jobs=50 --json -q --scheduler", tmp_path / "waits.py", code=1)
    (one,) = json.loads(done.stdout)
    assert one["figures"]["started"] == 0 and one["figures"]["wait_mean"] is None
    assert "never started" in one["failed"] and one["classes"] == {}


def test_a_failed_result_is_run_again_and_has_no_mean_over_seeds(tmp_path):
    (tmp_path / "waits.py").write_text(first_scheduler("return"))
    call = ["sample", "--jobs=20", f"--scheduler={tmp_path / 'waits.py'}", "-o", tmp_path / "out"]
    flux(*call, code=1)
    assert "0 of 1 results are there already" in flux(*call, "--resume", code=1).stdout
    call = call[:3] + ["--scheduler=sched-fifo", "--seeds=2", "-q"]
    assert re.search(r"waits \(failed\) +2 +- +- +-", flux(*call, code=1).stdout)


QUEUES = "[queues.day]\nrequires = []\n[queues.night]\nrequires = []\n"


@pytest.mark.parametrize("engine", ["lean", "instance"])
def test_jobs_for_a_queue_that_is_not_configured(tmp_path, engine):
    (tmp_path / "conf.toml").write_text(QUEUES)
    jobs = ["submit,run,limit,nodes,queue", "0,5,9,1,day", "1,5,9,1,noon", "2,5,9,1,"]
    (tmp_path / "jobs.csv").write_text("\n".join(jobs))
    call = [tmp_path / "jobs.csv", "--conf", tmp_path / "conf.toml", f"--engine={engine}", "-q"]
    done = flux(*call, code=1)
    assert "2 of 3 jobs are for queues that are not configured" in done.stderr
    assert "1 for 'noon', 1 that name none" in done.stderr
    assert "[queues] has day, night" in done.stderr
    default = '[policy.jobspec.defaults.system]\nqueue = "day"\n'
    (tmp_path / "conf.toml").write_text(QUEUES.replace("night", "noon") + default)
    assert re.search(r"sched-backfill +1 +3 ", flux(*call).stdout)


WHO = """
from flux.scheduler import Scheduler

class Mine(Scheduler):
    def alloc(self, request, jobid, priority, userid, t_submit, jobspec):
        request.deny(f"{userid} {jobspec['attributes']['system'].get('bank')}")

def mod_main(h, *args):
    Mine(h, *args).run()
"""


@pytest.mark.parametrize("engine", ["lean", "instance"])
def test_users_and_groups_reach_the_scheduler(tmp_path, engine):
    path = tmp_path / "who.py"
    path.write_text(WHO)
    work = test_engines.one_node(*((float(i), 5, 9) for i in range(6)))
    users, groups = ("7", "ann", "bob", "ann", None, "0"), ("3", None, "physics", None, None, None)
    for job, user, group in zip(work.jobs, users, groups):
        job.user, job.group = user, group
    outcome, _ = test_engines.simulate_policy(work, str(path), engine=engine)
    ids = (7, 100001, 100002, 100001, OWNER, 100003)
    said = [f"{user} {group}" for user, group in zip(ids, groups)]
    assert [outcome.notes[i] for i in range(6)] == said


@pytest.mark.parametrize(
    "users, said",
    [
        ("", "the trace names no users"),
        ("ann", "all jobs are of one user (ann)"),
        ("ann bob", "2 users"),
    ],
)
def test_it_says_how_many_users_there_are(tmp_path, users, said):
    lines = [f"{i},{i},5,9,1,{user}" for i, user in enumerate(users.split(" "))]
    (tmp_path / "jobs.csv").write_text("id,submit,run,limit,nodes,user\n" + "\n".join(lines) + "\n")
    assert said in flux(tmp_path / "jobs.csv").stdout
