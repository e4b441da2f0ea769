# SPDX-License-Identifier: LGPL-3.0-or-later
"""Both engines start every job at the same time, and bear a module's mistakes."""

import csv
import json
import random
import types

import pytest
from command_runner import first_scheduler
from shared import seeds

from flux.scheduler import testing
from flux.simulate import Trace, checking, policy, study
from flux.simulate.job import Job, Shape, jobspec, max_wait
from flux.simulate.machine import Machine, uniform
from flux.simulate.results.files import write_jobs
from flux.simulate.results.outcome import REJECTED
from flux.simulate.results.reading import Row
from flux.simulate.run import Settings, simulate
from flux.simulate.script import Script
from flux.simulate.workload.build import Workload
from flux.simulate.workload.record import Notes, OptionError
from flux_engine.resource.sources import from_config

NODES, CORES, GPUS = 6, 4, 1
ENGINES = ["lean", "instance"]
#: The last two are too large and too wide.
SHAPES = [
    Shape(0, 1), Shape(0, 3), Shape(0, 2, 2), Shape(0, 1, 1, 1), Shape(1, 1, 4, 0, True), Shape(2, 1, 3), Shape(3, 2),
    Shape(6, 1, 4, 0, True), Shape(7, 1), Shape(0, 1, 5),
]  # fmt: skip


def workload(jobs, machine=None, unit="core"):
    machine = machine or uniform(NODES, CORES, GPUS)
    return Workload(jobs, machine, unit, 0.0, Notes(), "test")


def some_jobs(seed, count=60):
    """Jobs with many equal times, of no length, over their limit, and without one."""
    chance = random.Random(seed)
    jobs, now = [], 0.0
    for number in range(count):
        now += chance.choice((0, 0, 0, 1, 5, 10, 30))
        shape = chance.choice(SHAPES)
        run = chance.choice((0, 1, 5, 10, 10, 20, 40, 100))
        limit = chance.choice((0, 10, 20, 60, 100)) if chance.random() < 0.9 else 0
        size = max(shape.nodes, 1) * shape.slots * shape.cores
        urgency = chance.choice((16, 16, 16, 16, 20, 8))
        jobs.append(Job(str(number), now, run, limit, shape, size, urgency=urgency))
    return workload(jobs)


def simulate_policy(work, text, **settings):
    (one,) = policy.parse([text])
    outcome, summary = simulate(work, one, Settings(**settings))
    return outcome, summary


def rows_of(outcome, directory):
    """The jobs of an outcome, as `flux simulate check` reads them from its file."""
    write_jobs(outcome, directory / "jobs.csv")
    with open(directory / "jobs.csv", newline="") as stream:
        return [Row(values) for values in csv.DictReader(stream)]


def columns(outcome):
    found = (outcome.start, outcome.end, outcome.promise)
    return [[None if value != value else value for value in column] for column in found]


def by_both(work, text, **settings):
    """The outcome of each engine; both have to be the same."""
    found = [simulate_policy(work, text, engine=one, **settings)[0] for one in ENGINES]
    assert columns(found[0]) == columns(found[1])
    return found


def one_node(*jobs):
    """A workload of jobs of one node, (submit, run, limit), for a machine of one."""
    found = [Job(str(at), *times, Shape(1, 1), 1) for at, times in enumerate(jobs, 1)]
    return workload(found, uniform(1), "node")


POLICIES = [
    "sched-fifo", "sched-fifo queue-depth=2", "sched-simple", "sched-backfill", "sched-backfill reservations=4",
    "sched-backfill reservations=unlimited",
]  # fmt: skip


@pytest.mark.parametrize("text", POLICIES)
@pytest.mark.parametrize("seed", seeds(1, 4))
@pytest.mark.parametrize("follows", [0.0, 0.3])
def test_engines_agree(seed, text, follows):
    work, chance = some_jobs(seed), random.Random(seed)
    for index, job in enumerate(work.jobs):
        if index and chance.random() < follows:
            job.after = chance.randrange(index), chance.choice((None, 0.0, 5.0, 10.0))
    lean, whole = by_both(work, text)
    assert list(lean.how) == list(whole.how)
    assert lean.allocated == whole.allocated


@pytest.mark.parametrize("think, due, starts", [(0.0, 10, [0, 20, 10]), (10.0, 20, [0, 30, 20])])
def test_engines_agree_on_a_job_that_follows_another_and_one_that_is_due_then(think, due, starts):
    """A job that arrives as the first one ends brings up the one that is due, in the second case."""
    shape = Shape(1, 1)
    jobs = [Job(f"{number}", due * (number == 2), 10, 20, shape, 1) for number in range(3)]
    jobs[1].after = 0, think
    if think:
        jobs.insert(2, Job("between", 10.0, 5, 5, shape, 1))
    lean, _ = by_both(workload(jobs, uniform(1), "node"), "sched-fifo")
    assert [start for start, job in zip(lean.start, jobs) if job.id != "between"] == starts


def test_engines_agree_on_jobs_that_wait_for_the_calendar():
    budget = {"per": "instance", "period": "month", "zone": "UTC", "max": {"node-hours": 1}}
    work = one_node(*[(0.0, 100, 3600)] * 3)
    lean, _ = by_both(work, "sched-fifo", config={"budgets": {"b": budget}})
    assert lean.start[2] > 30 * 86400


def impatient_jobs(seed):
    """Of these some say for how long they may wait."""
    work, chance = some_jobs(seed), random.Random(seed)
    for job in work.jobs:
        job.extra = {"jobspec": jobspec(job)}
        if chance.random() < 0.5:
            limit = chance.choice((0, 5, 20, "1m", 1000))
            job.extra["jobspec"]["attributes"]["system"]["max-wait"] = limit
    return work


@pytest.mark.parametrize(
    "text",
    [
        "sched-fifo queue-depth=unlimited", "sched-fifo order=queue", "sched-simple queue-depth=unlimited",
        "sched-backfill", "sched-backfill reservations=unlimited",
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", seeds(1, 3))
def test_no_job_starts_after_it_may_wait(seed, text, tmp_path):
    work = impatient_jobs(seed)
    outcome, _ = simulate_policy(work, text)
    rows = rows_of(outcome, tmp_path)
    schedule = checking.Schedule(types.SimpleNamespace(name=text, rows=lambda: rows, provenance={}))
    assert not list(schedule.jobs())
    given_up = 0
    for job, row in zip(work.jobs, rows):
        assert row.max_wait == max_wait(job)
        given_up += row.state == "REJECTED" and row.max_wait is not None
        if row.start is not None and row.max_wait is not None:
            row.start = row.end = row.submit + row.max_wait + 0.1
            said = [one for one in schedule.jobs() if one.startswith(f"job {row.id} ")]
            assert any("may wait" in one for one in said)
    assert given_up > 5
    assert any("not started within" in note for note in outcome.notes.values())
    whole, _ = simulate_policy(work, text, engine="instance")
    started = [start for start in whole.start if start == start]
    assert sum(row.start is not None for row in rows) == len(started)


def module(tmp_path, text):
    path = tmp_path / "mine.py"
    path.write_text(text)
    return str(path)


def test_a_module_that_cannot_start_says_why():
    with pytest.raises(ValueError, match="no-such-argument"):
        simulate_policy(one_node((0.0, 10, 20)), "sched-fifo no-such-argument=1")


def test_a_module_that_waits_for_no_answer_is_told(tmp_path):
    text = "def mod_main(h):\n    h.service_register('mine2').get()\n    h.rpc('mine2.ask').get()\n"
    with pytest.raises(RuntimeError, match="waits for an answer"):
        simulate_policy(one_node((0.0, 10, 20)), module(tmp_path, text))


def test_timers_of_a_module_let_time_pass(tmp_path):
    text = first_scheduler(
        "if self.now() % 100: return",
        "    def __init__(self, h, *args):\n"
        "        super().__init__(h, *args)\n"
        "        self.timer = h.timer_watcher_create(1.0, self.tick, repeat=1.0)\n"
        "        self.timer.start()\n"
        "    def tick(self, *args):\n"
        "        self.start_schedule()\n",
    )
    work = one_node((7.0, 10, 20), (101.0, 10, 20))
    outcome, _ = simulate_policy(work, module(tmp_path, text))
    assert list(outcome.start) == [100.0, 200.0]


WAITS = """
from flux.scheduler.policies.fifo import Fifo

class Waits(Fifo):
    def alloc(self, *args):
        super().alloc(*args)
        try:
            self.handle.rpc("mine.nothing").wait_for(20)
        except TimeoutError:
            pass

def mod_main(h, *args):
    Waits(h, *args).run()
"""


def test_a_pass_that_an_unloaded_module_requested_is_not_made(tmp_path):
    """It may be requested when the reactor has already been stopped: here during a wait."""
    (tmp_path / "script").write_text("10s reload\n")
    script = Script(str(tmp_path / "script"))
    work = one_node((0.0, 100, 200))
    outcome, summary = simulate_policy(work, module(tmp_path, WAITS), script=script)
    assert list(outcome.start) == [40.0]
    assert summary["log"] == []  # no answer by the first


QUEUES = {
    "resource": {
        "config": [
            {"hosts": "n[0-3]", "cores": "0-3", "properties": ["batch"]},
            {"hosts": "n[4-5]", "cores": "0-3", "gpus": "0-1", "properties": ["debug"]},
        ]
    },
    "queues": {
        "batch": {"requires": ["batch"]},
        "debug": {"requires": ["debug"]},
        "quick": {"parent": "debug"},
    },
}


@pytest.mark.parametrize("text", ["sched-fifo", "sched-backfill reservations=unlimited"])
def test_queues_with_nodes_of_their_own(text):
    chance = random.Random(3)
    jobs = []
    for number in range(40):
        queue = chance.choice(("batch", "debug", "quick"))
        nodes = chance.randint(1, 4 if queue == "batch" else 2)
        seconds = chance.choice((5, 10, 30))
        shape = Shape(nodes, 1, 4, 0, True)
        jobs.append(Job(str(number), number // 3 * 2.0, seconds, 30, shape, nodes, queue=queue))
    work = workload(jobs, Machine(from_config(QUEUES)), "node")
    lean, _ = by_both(work, text, config=QUEUES)
    assert len(lean.started()) == 40
    for job, units in zip(jobs, lean.allocated):
        first = int(units.replace("-", " ").split()[0])
        assert (first < 4) == (job.queue == "batch")


def test_queues_of_the_trace_alone():
    """Without queues in the configuration rules see those of the trace."""
    names = ["batch", "batch", "debug", "debug"]
    jobs = [Job(str(at), 0, 10, 10, Shape(1, 1), 1, queue=name) for at, name in enumerate(names)]
    limits = {"limits": {"one": {"per": "queue", "max": {"nodes": 1}}}}
    lean, _ = by_both(workload(jobs, uniform(NODES), "node"), "sched-fifo", config=limits)
    assert list(lean.start) == [0, 10, 0, 10]


PLUGIN = """
def plugin_init(p):
    p.add_handler("job.validate", validate)
    p.add_handler("job.state.priority", priority)

def validate(p, topic, args):
    if args["jobspec"]["attributes"]["system"]["duration"] == 0:
        p.reject_job("a time limit is required")

def priority(p, topic, args):
    return {"priority": int(args["jobspec"]["attributes"]["system"]["duration"])}
"""


def test_jobtap_plugins(tmp_path):
    path = tmp_path / "limits.py"
    path.write_text(PLUGIN)
    work = one_node(*((min(i, 1.0), 10, limit) for i, limit in enumerate((10, 10, 30, 20, 0))))
    plugins = {"engine": "instance", "jobtap": [str(path)]}
    outcome, _ = simulate_policy(work, "sched-fifo", **plugins)
    assert list(outcome.start)[:4] == [0.0, 30.0, 10.0, 20.0]
    assert outcome.how[4] == REJECTED and "time limit is required" in outcome.notes[4]


@pytest.mark.parametrize("engine", ENGINES)
def test_jobs_with_jobspecs_of_their_own(tmp_path, engine):
    """They may be given other resources than in their recorded run, and depend on nothing any more."""
    events = ["submit", "depend", "priority", "alloc", "start", "finish"]
    waits = {"dependencies": [{"scheme": "afterany", "value": "f1"}]}
    spec = testing.jobspec(slots=2, duration=60, **waits)
    for number, begun in ((1, 0), (2, 10)):
        directory = tmp_path / f"{number}"
        directory.mkdir()
        with open(directory / "eventlog", "w") as stream:
            for event in events:
                when = begun + 50.0 * (event == "finish")
                stream.write(json.dumps({"timestamp": when, "name": event}) + "\n")
        (directory / "jobspec").write_text(json.dumps(spec))
        (directory / "R").write_text(json.dumps(testing.make_R(cores=2)))
    trace = Trace(str(tmp_path), nodes=4, cores_per_node=2)
    (run,) = study.simulate(trace, "sched-fifo", engine=engine)
    assert run.failed is None and run.figures["started"] == 2


def test_bindings_that_are_too_old_for_an_instance(monkeypatch):
    monkeypatch.delattr("flux.queue.QueueConf")
    text = r"bindings in .*/flux are too old .*FLUX_SCHEDULER_BINDINGS"
    with pytest.raises(OptionError, match=text):
        Settings(engine="instance")
