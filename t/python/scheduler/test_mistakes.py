# SPDX-License-Identifier: LGPL-3.0-or-later
"""What the author of a policy gets wrong is said: what there is to it besides the table of test_mistakes_everywhere.py."""

from pathlib import Path

import pytest

from flux.scheduler import Scheduler
from flux.scheduler.misspelled import OVERRIDABLE
from flux.scheduler.policies import Backfill, Fifo
from flux.scheduler.testing import FakeInstance, SchedulerErrors
from flux_engine.kernel import watchdog


def test_many_short_turns_are_no_endless_loop(monkeypatch):
    class Steps(Scheduler):
        def schedule(self):
            for _ in range(40):
                for _ in range(100000):
                    pass
                yield

    monkeypatch.setattr(watchdog, "LONGEST_TURN", 0.02)
    instance = FakeInstance()
    instance.load(Steps)
    instance.submit(nodes=1)
    instance.run_until_idle()


@pytest.mark.parametrize(
    "name, meant",
    [("shedule", "schedule"), ("schedul", "schedule"), ("_start", None), ("forcast", "forecast"), ("prioritise", "prioritize"), ("resource_updated", None),
     ("ressource_update", "resource_update"), ("allocate", None), ("_shedule", None)],
)  # fmt: skip
def test_a_misspelled_override(name, meant):
    instance = FakeInstance()
    policy = type("Misspelled", (Scheduler,), {name: lambda self: None})
    if meant is None:
        instance.load(policy)
    else:
        with pytest.raises(SchedulerErrors, match=rf"Misspelled\.{name}\(\).*is {meant}\(\) meant"):
            instance.load(policy)


def test_a_method_that_is_called_is_not_misspelled():
    class Mine(Scheduler):
        def schedule(self):
            self.shedule()

        def shedule(self):
            pass

    FakeInstance().load(Mine)


def test_a_generator_that_is_used_is_not_dropped():
    class Mine(Fifo):
        def schedule(self):
            for _ in self.start_in_order():
                list(self.start_in_order())
                yield from self.start_in_order()

    FakeInstance().load(Mine)


@pytest.mark.parametrize("name", ["pending", "running", "facts", "history"])
def test_a_name_of_the_library_that_is_assigned_to(name):
    class Mine(Backfill):
        def __init__(self, h, *args):
            super().__init__(h, *args)
            self.mine = self.wait = self.promise = 1

    FakeInstance().load(Mine)
    namespace = {}
    exec(f"def seen(self):\n    self.{name} = 5", namespace)
    Mine.seen = namespace["seen"]
    with pytest.raises(SchedulerErrors, match=rf"Mine\.{name} takes the place of \w+\.{name}"):
        FakeInstance().load(Mine)


def test_what_may_be_overridden_is_there_and_documented():
    page = (Path(__file__).resolve().parents[3] / "doc" / "guide" / "overriding.rst").read_text()
    known = {name for base in Backfill.__mro__ for name in vars(base)}
    assert OVERRIDABLE <= known
    assert {name for name in OVERRIDABLE if f"``{name}" not in page} == set()
