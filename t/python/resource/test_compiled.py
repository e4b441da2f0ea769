# SPDX-License-Identifier: LGPL-3.0-or-later
"""The compiled part of plans answers as the Python that it stands for."""

import itertools
import math
import random

import pytest
from planned_queue import NOW, PlannedQueue, a_history
from shared import seeds

from flux.resource.plan import compiled
from flux.resource.plan.timeline import CountTimeline


def a_span(rng, begin):
    start = begin + rng.randrange(120) / 2
    return start, rng.choice([start + 0.5, start + rng.randrange(1, 200) / 2, math.inf])


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_a_timeline_gives_the_same_answers(built, seed):
    rng = random.Random(seed)
    begin = NOW
    gains = [(NOW + time, 1) for time in sorted(rng.sample(range(1, 90), 30))]
    lines = [kind(NOW, 5) for kind in (CountTimeline, compiled.CompiledTimeline)]
    for line, (time, gain) in itertools.product(lines, gains):
        line.add(time, math.inf, gain)

    def ask(name, *args):
        expected, answer = (getattr(line, name)(*args) for line in lines)
        assert answer == expected, (name, args)

    for _ in range(300):
        if rng.random() < 0.05:
            begin = max(begin, NOW + rng.randrange(30) / 2)
            for line in lines:
                line.forget(begin)
        start, end = a_span(rng, begin)
        delta = rng.choice([-3, -1, 1, 2])
        for line in lines:
            line.add(start, end, delta)
        if rng.random() < 0.1:
            old, lines = lines, [line.copy() for line in lines]
            for line in old:  # the copies are independent
                line.add(NOW + 100, math.inf, 7)
        for time in lines[0].starts:
            ask("least", time, time)
            ask("least", time - 0.25, time)
        start, end = a_span(rng, begin)
        value, length = rng.randrange(-8, 14), rng.choice([0.5, 3.0, 20.0, math.inf])
        ask("least", start, end)
        ask("least", -math.inf, math.inf)
        ask("below", value, start)
        for limit in (math.inf, start + 9, start - 1):
            ask("first", value, length, start, limit)
    assert len(lines[0].starts) > 20


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_promises_move_alike(built, monkeypatch, seed):
    told = a_history(seed)
    assert sum(len(one[1]) for one in told if isinstance(one, tuple)) > 100  # moves
    monkeypatch.setattr(compiled, "lib", None)
    for answer, expected in itertools.zip_longest(told, a_history(seed)):
        assert answer == expected


def test_jobs_without_a_promise(way):
    """A row ends before the first of them."""
    queue = PlannedQueue(4)
    assert queue.plan.advance_in_turn([7]) == (0, [], math.inf)
    queue.submit(2, 50, "fast")
    queue.submit(2, 50, "fast")
    queue.submit(1, 50, "fast")
    assert queue.plan.advance_in_turn([2, 7, 3]) == (1, [], math.inf)


def test_it_goes_on_where_it_was_not_built(interpreted):
    plan = PlannedQueue(4).plan
    assert not compiled.is_built()
    assert not any(isinstance(one, compiled.CompiledMoves) for one in vars(plan._current).values())


def test_no_memory(built, monkeypatch):
    """A call into C that lacks memory raises an exception."""

    class NoMemory:
        def __getattr__(self, name):
            real = getattr(lib, name)
            if name.endswith(("_create", "_copy", "_add_line")):
                return lambda *args: compiled.ffi.NULL
            if name.endswith(("_add", "_put", "_opened", "_advance")):
                return lambda *args: -1
            return real

    lib = compiled.lib
    line = compiled.CompiledTimeline(NOW, 3)
    monkeypatch.setattr(compiled, "lib", NoMemory())
    with pytest.raises(MemoryError):
        compiled.CompiledTimeline(NOW, 3)
    with pytest.raises(MemoryError):
        line.copy()
    with pytest.raises(MemoryError):
        line.add(NOW, NOW + 1, 1)
    with pytest.raises(MemoryError):
        compiled.CompiledMoves({}, {})
