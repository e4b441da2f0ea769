"""Random histories under promise=all: no promise is broken but for its stated causes."""

import random

import pytest
from command_runner import flux, rows
from golden_schedules import TOP, Starts
from shared import seeds

from flux.scheduler.policies.ranks import RANKS
from flux.simulate.engine.lean import LeanEngine
from flux.simulate.job import Job, Shape
from flux.simulate.machine import uniform

MODULE = str(TOP / "src" / "modules" / "sched-backfill" / "sched-backfill.py")

#: Conversions of a trace's units: (function from a number to a machine, function from a number to a
#: shape).
UNITS = {
    "nodes of one core": (uniform, lambda size: Shape(size, 1)),
    "exclusive nodes": (lambda n: uniform(n, 4, 1), lambda size: Shape(size, 1, exclusive=True)),
    "all cores of nodes": (lambda n: uniform(n, 4), lambda size: Shape(size, 2, 2)),
    "slots of all cores": (lambda n: uniform(n, 4), lambda size: Shape(0, size, 4)),
    "cores": (lambda n: uniform(n // 8, 8), lambda size: Shape(0, size, 1)),
    "cores of one node": (lambda n: uniform(1, n), lambda size: Shape(0, size, 1)),
    "slots on nodes of one core": (uniform, lambda size: Shape(0, size, 1)),
}


class History(Starts):
    """What happens in one random history; ``check()`` says whether promises were kept."""

    def __init__(self, seed):
        super().__init__()
        chance = self.chance = random.Random(seed)
        self.disturbed = chance.random() < 0.6
        self.priorities = chance.random() < 0.3
        procs = chance.choice([8, 16, 24])
        machine, shape = UNITS[chance.choice(sorted(UNITS))]
        jobs, time = [], 0
        for id in range(1, chance.choice([20, 40, 80]) + 1):
            time += chance.choice([0, 0, 1, 5, chance.randint(0, 60)])
            limit = chance.choice([1, 10, 60, chance.randint(1, 300)])
            run = chance.choice([0, limit, limit, chance.randint(0, limit)])
            size = chance.choice([1, 1, 2, procs // 4, procs // 2, procs])
            urgency = chance.choice([8, 16, 16, 24]) if self.priorities else 16
            user = str(chance.randint(1, 3))
            jobs.append(Job(id, time, run, limit, shape(size), size, user=user, urgency=urgency))
        self.actions = []
        self.running = {}
        if self.disturbed:
            for _ in range(chance.randint(1, 6)):
                when = chance.randint(0, time + 300)
                self.actions.append((when, chance.choice([self.extend, self.drain])))
        self.args = [
            "promise=all",
            f"rank={chance.choice(sorted(RANKS))}",
            f"predict={chance.choice(['limits', 'class', 'last2'])}",
            f"within={chance.choice([0, 10, 100, 1000])}",
            *chance.choice([[], [], ["candidates=shortest"], ["order=strict"]]),
        ]
        grain = chance.choice(["batch", "batch", "event-end", "event-submit"])
        self.engine = LeanEngine(
            machine(procs),
            jobs,
            MODULE,
            self.args,
            self,
            epoch=0.0,
            grain=grain,
            actions=self.actions,
        )
        self.jobs = jobs

    def began(self, active):
        super().began(active)
        self.running[active.job.id] = active

    def ended(self, active, how):
        self.running.pop(active.job.id, None)

    def extend(self, engine):
        if self.running:
            active = self.running[self.chance.choice(sorted(self.running))]
            if active.job.limit:
                engine.extend(active, self.chance.choice([1, 50, 500]))

    def drain(self, engine):
        rank = str(self.chance.randrange(engine.machine.nodes))
        engine.resource.down(engine.resource.ranks_of(rank))
        engine.at(
            engine.now + self.chance.choice([1, 100]),
            lambda engine: engine.resource.up(engine.resource.ranks_of(rank)),
        )

    def check(self):
        self.engine.run()
        assert not self.engine.log.lines, self.engine.log.lines[:2]
        assert set(self.start) == {job.id for job in self.jobs}
        starts = {id: when for id, when in self.start.items() if when is not None}
        assert set(self.latest) == set(starts)
        late = {id for id, when in starts.items() if when > self.latest[id]}
        if not self.disturbed:
            assert not late, late


def plays(seed):
    history = History(seed)
    try:
        history.check()
    except AssertionError as exc:
        raise AssertionError(f"seed {seed}: {' '.join(history.args)}: {exc}") from exc


@pytest.mark.parametrize("block", seeds(3, 50))
def test_no_promise_is_broken_without_a_cause(block):
    for seed in range(block * 10, block * 10 + 10):
        plays(seed)


def test_the_table_counts_latest_starts_as_promises(tmp_path):
    args = ["sample", "--jobs=150", "--scheduler=sched-backfill promise=all within=1h", "-q"]
    flux(*args, "-o", tmp_path)
    (directory,) = [path.parent for path in tmp_path.glob("**/jobs.csv")]
    told = [(row["first_promise"], row["starting_time"]) for row in rows(directory)]
    assert len(told) == 150
    assert all(float(start) <= float(promise) for promise, start in told)
