# SPDX-License-Identifier: LGPL-3.0-or-later
"""What the author of a policy gets wrong is said: what there is to it besides the table of test_mistakes_everywhere.py."""

from pathlib import Path

import pytest

from flux.scheduler import Scheduler
from flux.scheduler.misspelled import OVERRIDABLE
from flux.scheduler.policies import Backfill
from flux.scheduler.testing import FakeInstance, SchedulerErrors, make_R
from flux_engine.kernel import watchdog


class Gives(Scheduler):
    """Answers the first of its queue with what `answer` gives."""

    answer = None

    def schedule(self):
        if self._queue:
            job = self._queue.pop(0)
            self.answer(job)


def loaded(answer=None, nodes=2, **members):
    instance = FakeInstance(nodes=nodes, cores=2)
    instance.load(type("Mistaken", (Gives,), {"answer": answer, **members}))
    return instance


def errors_of(instance):
    with pytest.raises(SchedulerErrors) as raised:
        instance.run_until_idle()
    return str(raised.value)


def R_on(rank, cores="0-1"):
    R = make_R(1, 2)
    R["execution"]["R_lite"] = [{"rank": f"{rank}", "children": {"core": cores}}]
    return R


def test_a_rank_that_is_down():
    instance = loaded(lambda self, job: job.request.success(R_on(1)))
    instance.mark_down("1")
    instance.run_until_idle()
    instance.submit(1)
    assert "rank 1 is down" in errors_of(instance)
    instance.jobs[1].end()
    instance.mark_up("1")
    instance.run_until_idle()
    instance.submit(1)
    instance.run_until_idle()
    instance.jobs[2].end()
    instance.remove_ranks("1")
    instance.run_until_idle()
    instance.submit(1)
    assert "the instance has no rank 1" in errors_of(instance)


def test_many_short_turns_are_no_endless_loop(monkeypatch):
    def schedule(self):
        for _ in range(40):
            for _ in range(100000):
                pass
            yield

    monkeypatch.setattr(watchdog, "LONGEST_TURN", 0.02)
    loaded(schedule=schedule).run_until_idle()


def test_a_wrong_yield_is_told_with_its_line():
    def schedule(self):
        yield "text"

    instance = loaded(schedule=schedule)
    instance.submit(1)
    assert 'in schedule\n    yield "text"' in errors_of(instance)


@pytest.mark.parametrize(
    "name, meant",
    [("shedule", "schedule"), ("forcast", "forecast"), ("prioritise", "prioritize"), ("resource_updated", None),
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


def _waits(self, job):
    return None


@pytest.mark.parametrize("name", ["pending", "give_up", "readmit", "reasons"])
def test_a_name_of_the_library_that_is_not_to_be_overridden(name):
    policy = type("Mine", (Backfill,), {name: _waits})
    with pytest.raises(
        SchedulerErrors, match=rf"Mine\.{name} takes the place of \w+\.{name}, which"
    ):
        FakeInstance().load(policy)


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
