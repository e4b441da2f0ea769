# SPDX-License-Identifier: LGPL-3.0-or-later
"""The compiled part of plans answers as the Python that it stands for."""

import itertools
import math
import random

import pytest
from planned_queue import PlannedQueue
from pool_model import Ask, R_of
from shared import seeds

from flux.resource import InsufficientResources, ResourcePool
from flux.resource.plan import compiled
from flux.resource.plan.count_timeline import CountTimeline

NOW = 1_700_000_000.0


def a_span(rng, begin):
    start = begin + rng.randrange(120) / 2
    return start, rng.choice([start + 0.5, start + rng.randrange(1, 200) / 2, math.inf])


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_a_timeline_gives_the_same_answers(built, seed):
    rng = random.Random(seed)
    begin = NOW
    gains = [(NOW + time, 1) for time in sorted(rng.sample(range(1, 90), 30))]
    lines = [kind.rising(NOW, 5, gains) for kind in (CountTimeline, compiled.CompiledTimeline)]

    def ask(name, *args, until=math.inf):
        expected, answer = (getattr(line, name)(*args) for line in lines)
        if until == math.inf or min(expected, answer) < until:  # what comes then need not be found
            assert answer == expected, (name, args)

    for _ in range(300):
        if rng.random() < 0.05:
            begin = max(begin, NOW + rng.randrange(30) / 2)
            for line in lines:
                line.forget(begin)
        start, end = a_span(rng, lines[0].begin)
        delta = rng.choice([-3, -1, 1, 2])
        for line in lines:
            line.add(start, end, delta)
        if rng.random() < 0.1:
            old, lines = lines, [line.copy() for line in lines]
            for line in old:  # the copies are independent
                line.add(NOW + 100, math.inf, 7)
        ask("steps")
        ask("__len__")
        assert lines[0].begin == lines[1].begin
        start, end = a_span(rng, lines[0].begin)
        value, length = rng.randrange(-8, 14), rng.choice([0.5, 3.0, 20.0, math.inf])
        for time in (start, start - 0.25, lines[0].begin - 10):
            ask("after", time)
            ask("since", value, time)
        ask("least", start, end)
        ask("least", -math.inf, math.inf)
        ask("extremes", start, end)
        ask("below", value, start)
        for limit, until in itertools.product((math.inf, start + 9, start - 1), (math.inf, end)):
            ask("first", value, length, start, limit, until, until=until)
    assert len(lines[0]) > 20


def a_timeline(kind):
    line = kind(10.0, 4)
    line.add(20.0, 30.0, -2)
    line.add(40.0, math.inf, 1)
    return line


@pytest.mark.parametrize(
    "method, args, answer",
    [
        ("steps", (), [(10, 4), (20, 2), (30, 4), (40, 5)]),
        ("after", (5,), 10), ("after", (20,), 30), ("after", (40,), math.inf),
        ("least", (10, 20), 4), ("least", (10, 20.5), 2), ("least", (30, 40), 4), ("least", (-math.inf, math.inf), 2),
        ("extremes", (20, 40), (2, 4)), ("extremes", (35, math.inf), (4, 5)), ("extremes", (20, 30), (2, 2)),
        ("below", (3, 10), 20), ("below", (3, 25), 25), ("below", (3, 30), math.inf), ("below", (4, 10), 20),
        ("since", (4, 40), 30), ("since", (2, 40), -math.inf), ("since", (5, 40), 40), ("since", (4, 20), -math.inf),
        ("first", (4, 10, 10), 10), ("first", (4, 11, 10), 30), ("first", (4, 10, 15), 30), ("first", (5, math.inf, 0), 40),
        ("first", (6, 1, 10), math.inf), ("first", (4, 11, 10, 20), 10), ("first", (5, 1, 10, 40), math.inf),
        ("first", (4, 11, 10, math.inf, 31), 30),
    ],
)  # fmt: skip
def test_what_a_timeline_answers(way, method, args, answer):
    line = a_timeline(CountTimeline if way == "interpreted" else compiled.CompiledTimeline)
    assert getattr(line, method)(*args) == answer


def test_what_changes_a_timeline(way):
    kind = CountTimeline if way == "interpreted" else compiled.CompiledTimeline
    line = a_timeline(kind)
    copy = line.copy()
    line.add(20.0, 30.0, 2)  # steps of one value are one
    assert line.steps() == [(10, 4), (40, 5)]
    line.forget(40.0)
    assert line.steps() == [(40, 5)] and line.begin == 40
    copy.forget(39.0)
    assert copy.steps() == [(30, 4), (40, 5)] and len(copy) == 2
    assert kind.rising(10.0, 4, [(20.0, 1), (20.0, 2)]).steps() == [(10, 4), (20, 7)]


class Rows(PlannedQueue):
    """A queue whose promises move in rows, as in a pass of sched-backfill.

    Each job wants nodes of one half of the pool: these are counted apart.
    """

    def __init__(self, nodes):
        self.now = NOW
        ranks = {rank: (set(range(2)), set()) for rank in range(nodes)}
        halves = {"fast": set(range(nodes // 2)), "slow": set(range(nodes // 2, nodes))}
        pool = ResourcePool(R_of(ranks, properties=halves))
        pool.clock = lambda: self.now
        super().__init__(pool, pool.plan())
        self.told = []

    def submit(self, nodes, duration, where):
        ask = Ask(([nodes], nodes), ([1], 1), 2, 0, False, float(duration))
        spec = ask.jobspec()
        spec["attributes"]["system"]["constraints"] = {"properties": [where]}
        self.enter(spec)

    def hold(self, jobid):
        self.plan.cancel(jobid)
        self.plan.hold(jobid, self.requests[jobid])

    def advance(self, most):
        waiting = sorted(self.plan.promises())
        while waiting:
            count, moved, first = self.plan.advance_in_turn(waiting[:most])
            starts = [self.plan.start_of(waiting[place]) for place in moved]
            assert first == min(starts, default=math.inf)
            self.told.append((count, moved, starts))
            is_due = first <= self.now
            del waiting[: count - is_due]
            if waiting and (is_due or count < most):
                self.look_at(waiting.pop(0))

    def look_at(self, jobid):
        try:
            when = self.plan.advance(jobid)
            self.told.append(when)
            if when <= self.now and self.start(jobid):
                self.told.append(jobid)
        except InsufficientResources:
            self.told.append("broken")
            self.plan.cancel(jobid)


def a_history(seed):
    """What the plan of a queue answers in a random history."""
    rng = random.Random(seed)
    queue = Rows(24)
    held = None

    def submit():
        duration = 0 if rng.random() < 0.01 else rng.choice([5, 10.5, 20, 33, 60, 90])
        queue.submit(rng.choice([1, 1, 2, 3, 5, 8, 11]), duration, rng.choice(["fast", "slow"]))

    for _ in range(150):
        submit()
    for step in range(200):
        queue.now += rng.choice([0, 0.5, 1, 3])
        promised, running, what = list(queue.plan.promises()), queue.running(), rng.random()
        if what < 0.6 and running:
            queue.pool.free(rng.choice(running))
        elif what < 0.7 and promised:
            for jobid in rng.sample(promised, min(len(promised), 5)):
                queue.plan.cancel(jobid)
        elif what < 0.73 and running:
            jobid = rng.choice(running)
            queue.pool.update_expiration(jobid, queue.pool.job_end(jobid) + 7)
        elif what < 0.76 and promised and held is None:
            held = promised[-1]
            queue.hold(held)
        elif what < 0.8 and held is not None:
            queue.plan.cancel(held)
            held = None
        elif what < 0.83 and step > 60:
            queue.now -= 2  # the clock is set back
        elif what < 0.87:
            queue.plan = queue.plan.copy()
        else:
            submit()
        for jobid in queue.running():
            if queue.pool.job_end(jobid) <= queue.now:
                queue.pool.free(jobid)
        queue.advance(rng.choice([1, 7, 1000]))
        assert queue.plan.is_counted
        queue.told.append(list(queue.plan.promises().items()))  # also in which order
        queue.told.append(queue.plan.stale())
    return queue.told


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_promises_move_alike(built, monkeypatch, seed):
    told = a_history(seed)
    assert sum(len(one[1]) for one in told if isinstance(one, tuple)) > 100  # moves
    monkeypatch.setattr(compiled, "lib", None)
    for answer, expected in itertools.zip_longest(told, a_history(seed)):
        assert answer == expected


def test_jobs_without_a_promise(way):
    """A row ends before the first of them."""
    queue = Rows(4)
    assert queue.plan.advance_in_turn([7]) == (0, [], math.inf)
    queue.submit(2, 50, "fast")
    queue.submit(2, 50, "fast")
    queue.submit(1, 50, "fast")
    assert queue.plan.advance_in_turn([2, 7, 3]) == (1, [], math.inf)


def test_it_goes_on_where_it_was_not_built(interpreted):
    plan = Rows(4).plan
    assert not compiled.is_built()
    assert not any(
        isinstance(one, compiled.CompiledMoves) for one in vars(plan._strategies.current).values()
    )


def test_no_memory(built, monkeypatch):
    """What C cannot do for lack of memory is an exception."""

    class NoMemory:
        def __getattr__(self, name):
            real = getattr(lib, name)
            if name in ("timeline_create", "timeline_rising", "timeline_copy", "promises_create"):
                return lambda *args: compiled.ffi.NULL
            if name.endswith(("_add", "_put", "_opened", "_advance", "_add_line")):
                return lambda *args: -1
            return real

    lib = compiled.lib
    line = compiled.CompiledTimeline(NOW, 3)
    monkeypatch.setattr(compiled, "lib", NoMemory())
    with pytest.raises(MemoryError):
        compiled.CompiledTimeline(NOW, 3)
    with pytest.raises(MemoryError):
        compiled.CompiledTimeline.rising(NOW, 3, [(NOW + 1, 1)])
    with pytest.raises(MemoryError):
        line.copy()
    with pytest.raises(MemoryError):
        line.add(NOW, NOW + 1, 1)
    with pytest.raises(MemoryError):
        compiled.CompiledMoves({}, {})
