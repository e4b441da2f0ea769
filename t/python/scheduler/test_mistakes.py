# SPDX-License-Identifier: LGPL-3.0-or-later
"""Mistakes of a policy's author are reported: cases beside the table of test_mistakes_everywhere.py."""

import re
from pathlib import Path

import pytest
from peers import loaded

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

    monkeypatch.setattr(watchdog, "LONGEST_TURN", 0.1)
    instance = loaded(Steps)
    instance.submit(nodes=1)
    instance.run_until_idle()


@pytest.mark.parametrize(
    "name, value, meant",
    [
        *[(name, lambda self: None, "schedule()") for name in ("shedule", "schedul")],
        ("forcast", lambda self: None, "forecast()"),
        ("prioritise", lambda self: None, "prioritize()"),
        ("resource_updated", lambda self: None, "resource_update()"),
        ("ressource_update", lambda self: None, "resource_update()"),
        *[(name, lambda self: None, None) for name in ("_start", "allocate", "_shedule")],
        ("queue_dept", "bank", "queue_depth"),
        ("keep_attribute", ("bank",), "keep_attributes"),
        ("predicts", ("bank",), "predict"),
        ("mine", ("bank",), None),
    ],
)
def test_a_misspelled_override_or_attribute(name, value, meant):
    instance = FakeInstance(check_errors=False)
    base = Scheduler if callable(value) else Backfill
    instance.load(type("Misspelled", (base,), {name: value}))
    expected = [] if meant is None else [f"is {meant} meant"]
    assert [re.search("is [^ ]+ meant", text)[0] for text in instance.errors] == expected
    assert all(text.startswith(f"Misspelled.{name}") for text in instance.errors)


RULES_MISTAKES = {
    "attribute = ('bank',)": r"Mine.attribute is never used: is attributes meant",
    "change_requests = True": r"Mine.change_requests is never used: is changes_requests meant",
    "attributes = ('system.bank',)": r"attributes=\('system.bank',\): expected names below system, without dots",
    "attributes = (7,)": r"attributes=\(7,\): expected names",
    "def alloc(self, job, attributes): return False": r"alloc\(\) returned False: expected nothing, or a ValueError",
    "def check(self, job): return Deferral(lambda: 'late')": r"admission rule Mine: check\(\) returned Deferral.* expected a Deferral, with a text for its reason",
    "def check(self, job): return Deferral('late')": r"check\(\) gives no time, and the rule never calls readmit\(\)",
    "def check(self, job): return Deferral('late', float('nan'))": r"check\(\) returned Deferral.* expected .* a finite number or None for `until`",
    "def check(self, job): return Deferral('late', 3600)": r"check\(\) returned until=3600, a past time",
    "def stats(self): return {'seen': 7}": r"stats\(\) returned \{'seen': 7\}: expected a dict of lists",
    "def stats(self): return {'seen': (one for one in [{7}])}": r"stats\(\) returned .* expected a dict of lists",
    "def free(self, jobid, R, final): self.host.readmit('late')": r"TypeError: readmit\('late'\): expected the rule itself",
    "def config_changed(self, config): pass": r"config_changed\(\) is not called any more: a TableRule has configure",
    "def taken_back(self, jobid): pass": r"taken_back\(\) is not called any more: the pool offers what check\(\) lets start",
    "def second_look(self, job, pool, jobid): pass": r"second_look\(\) is not called any more: check\(\) is",
    "def ready(self): pass": r"ready\(\) is not called any more: a TableRule has it",
}  # fmt: skip


def mine(directory, base, member):
    """A file with a rule of a site, and its path."""
    path = directory / "mine.py"
    path.write_text(
        f"from flux.scheduler.admission import Deferral, {base}\nclass Mine({base}):\n    {member}\n"
    )
    return path


@pytest.mark.parametrize("member", RULES_MISTAKES)
def test_a_mistake_in_a_rule(member, tmp_path):
    path = mine(tmp_path, "AdmissionRule", member)
    instance = loaded("sched-fifo", f"rule={path}:Mine", check_errors=False)
    instance.submit(duration=10)
    instance.advance(20)
    instance.request("sched.stats", {})
    assert re.search(RULES_MISTAKES[member], "\n".join(text for _, text in instance.log))


def test_a_former_method_of_a_rule_is_not_called(tmp_path):
    member = "def second_look(self, job, pool, held): return Deferral('late')"
    path = mine(tmp_path, "AdmissionRule", member)
    instance = loaded("sched-fifo", f"rule={path}:Mine", check_errors=False)
    job = instance.submit(duration=10)
    instance.run_until_idle()
    assert job.state == "running"


def test_a_method_of_the_librarys_kind_of_rule_is_called(tmp_path):
    path = mine(tmp_path, "GivingRule", "def allocate(self, job, plan): return None")
    instance = loaded("sched-fifo", f"rule={path}:Mine")
    assert [text for level, text in instance.log if level <= 4] == []


def test_the_note_of_a_job_denied_for_a_rules_mistake_names_the_rule(tmp_path):
    path = mine(tmp_path, "AdmissionRule", "def check(self, job): return 7")
    instance = loaded("sched-fifo", f"rule={path}:Mine", check_errors=False)
    job = instance.submit()
    instance.run_until_idle()
    assert job.note.startswith("admission rule Mine: check() returned 7: expected a Deferral")


def test_a_list_of_statistics_may_be_a_generator(tmp_path):
    path = mine(tmp_path, "AdmissionRule", "def stats(self): return {'seen': (one for one in [7])}")
    instance = loaded("sched-fifo", f"rule={path}:Mine")
    assert instance.request("sched.stats", {})["seen"] == [7]


class CallsItsMethod(Scheduler):
    def schedule(self):
        self.shedule()

    def shedule(self):
        pass


class RequiresWhatIsAlwaysGiven(Backfill):
    def predicted(self, job):
        return job.resource_request.duration / 2

    def free(self, jobid, R, final):
        super().free(jobid, R, final)

    def why(self, job, facts):
        return super().why(job, facts)


class UsesGenerators(Fifo):
    def schedule(self):
        for _ in self.start_in_order():
            list(self.start_in_order())
            yield from self.start_in_order()


class VariableNamedAsAGenerator(Backfill):
    def forecast(self):
        reasons = "none"
        self.log.info(reasons)
        return super().forecast()


class HelperOfANameThatItsBaseLacks(Scheduler):
    def start(self):
        pass


@pytest.mark.parametrize(
    "policy",
    [CallsItsMethod, RequiresWhatIsAlwaysGiven, UsesGenerators, VariableNamedAsAGenerator, HelperOfANameThatItsBaseLacks],
)  # fmt: skip
def test_no_mistake(policy):
    instance = loaded(policy)
    instance.submit(nodes=1, duration=60)
    instance.advance(100)
    assert not [text for level, text in instance.log if level <= 4]


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


def test_overridable_names_exist_and_are_documented():
    page = (Path(__file__).resolve().parents[3] / "doc" / "guide" / "overriding.rst").read_text()
    known = {name for base in Backfill.__mro__ for name in vars(base)}
    assert OVERRIDABLE <= known
    assert {name for name in OVERRIDABLE if f"``{name}" not in page} == set()


def test_a_latest_start_that_is_not_asked_for():
    kind = type("Latest", (Backfill,), {"latest_start": lambda self, job: job.t_submit + 60})
    for args, said in [
        ((), ["Latest.latest_start() is not called: it needs promise=all"]),
        (("promise=all",), []),
    ]:
        instance = loaded(kind, *args)
        assert [text for level, text in instance.log if level <= 4] == said
