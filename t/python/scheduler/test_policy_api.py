# SPDX-License-Identifier: LGPL-3.0-or-later
"""Methods that policies may call by doc/guide/overriding, except those tested in other files."""

import json
import re
from pathlib import Path

import pytest
from peers import loaded

from flux.scheduler import import_beside
from flux.scheduler.misspelled import OVERRIDABLE
from flux.scheduler.policies import Backfill
from flux.scheduler.testing import FakeInstance

DOC = Path(__file__).resolve().parents[3] / "doc"


def in_bank(instance, bank, **keys):
    return instance.submit(bank=bank, queue="batch", **keys)


def test_every_name_that_it_may_call_is_there():
    page = (DOC / "guide" / "overriding.rst").read_text(encoding="utf-8")
    calls = page[page.index("What it may call") :]
    names = re.findall(r"^   \* - (.*)$", calls, re.M)
    instance = FakeInstance()
    policy = instance.load(Backfill)
    _, job = instance.submit(nodes=1), instance.submit(nodes=1)
    instance.run_until_idle()
    pending = policy.pending(job.id)
    found = 0
    for text in " ".join(names).split("``")[1::2]:
        first = text.partition("(")[0]
        where = pending if first.startswith("job.") else policy
        for part in first.removeprefix("self.").removeprefix("job.").split("."):
            assert hasattr(where, part), text
            where = getattr(where, part)
        found += 1
    assert found >= 40
    bases = [base for base in Backfill.__mro__ if base.__module__.startswith("flux.scheduler")]
    public = {name for base in bases for name in vars(base) if name[0] != "_"}
    # The number of names that an author neither calls nor defines.
    assert len([name for name in public - OVERRIDABLE if f"``{name}" not in page]) <= 20


def test_jobs_have_their_banks_and_queues_also_when_they_run_and_after_a_reload():
    class Mine(Backfill):
        keep_attributes = ("bank", "queue")

    instance = FakeInstance(nodes=1)
    policy = instance.load(Mine)
    first, second = (in_bank(instance, bank, nodes=1, duration=50) for bank in ("a", "b"))
    instance.run_until_idle()
    pending = policy.pending(second.id)
    assert (pending.bank, pending.queue) == ("b", "batch")
    assert pending.attributes.get("bank") == "b"
    for _ in range(2):
        running = policy.running[first.id]
        assert (running.bank, running.queue) == ("a", "batch")
        instance.unload()
        policy = instance.load(Mine)
        instance.run_until_idle()


def test_state_of_a_policy_is_kept_over_a_reload():
    banks = str(DOC / "examples" / "banks.py")
    instance = loaded(banks, nodes=1)
    for bank in ("a", "a", "b", None):
        job = in_bank(instance, bank, nodes=1, duration=10)
        instance.advance(20)
        assert job.state == "inactive", bank
    instance.unload()
    policy = instance.load(banks)
    assert policy.started == {"a": 2, "b": 1, "": 1}
    blocker = in_bank(instance, "c", nodes=1, duration=10)
    instance.run_until_idle()
    often, seldom = in_bank(instance, "a", nodes=1), in_bank(instance, "b", nodes=1)
    instance.advance(15)
    assert [job.state for job in (blocker, often, seldom)] == ["inactive", "pending", "running"]
    assert json.loads(instance.kvs.values["checkpoint.sched-banks"])["a"] == 2


def test_a_checkpoint_that_would_not_be_loaded_is_refused():
    class Twice(Backfill):
        def __init__(self, h, *args):
            super().__init__(h, *args)
            for _ in range(2):
                self.checkpoint("mine", lambda: 1, lambda value: None)

    class Late(Backfill):
        def ended(self, job, run, result):
            self.checkpoint("mine", lambda: 1, lambda value: None)

    with pytest.raises(RuntimeError, match="checkpoint.sched-mine: there is a checkpoint"):
        FakeInstance().load(Twice)
    instance = loaded(Late, check_errors=False)
    instance.submit(duration=10)
    instance.advance(20)
    (text,) = instance.errors
    said = "checkpoint.sched-mine: stored values have been loaded: make it in __init__()"
    assert text.endswith(said)


@pytest.mark.parametrize("tells", [True, False])
def test_state_that_changes_without_a_word_is_told(tells):
    class Mine(Backfill):
        def __init__(self, h, *args):
            super().__init__(h, *args)
            self.seen = []
            self.stored = self.checkpoint("mine", lambda: self.seen, self.seen.extend)

        def ended(self, job, run, result):
            self.seen.append(run)
            if tells:
                self.stored.changed()

    instance = FakeInstance(check_errors=False)
    for _ in range(2):
        policy = instance.load(Mine)
        instance.submit(duration=10)
        instance.advance(20)
        instance.unload()
    told = ["checkpoint.sched-mine is not stored: call changed() after a change"]
    assert (policy.seen, instance.errors) == (([10, 10], []) if tells else ([10], told * 2))


@pytest.mark.parametrize(
    "how, why", [("hold", "the KVS does not answer"), ("failing", "disk on fire")]
)
def test_state_that_is_not_stored_at_the_end_is_told(how, why):
    class Mine(Backfill):
        def __init__(self, h, *args):
            super().__init__(h, *args)
            self.stored = self.checkpoint("mine", lambda: 1, lambda value: None)

    instance = FakeInstance(check_errors=False)
    policy = instance.load(Mine)
    policy.stored.changed()
    if how == "hold":
        instance.kvs.hold()
    else:
        instance.kvs.failing = True
    instance.unload()
    assert instance.errors == [f"checkpoint.sched-mine: the last changes may be lost: {why}"]


def test_a_policy_may_import_a_file_beside_it(tmp_path):
    (tmp_path / "helper.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Level:\n    value: int = 7\n"
    )
    (tmp_path / "mine.py").write_text(
        "from flux.scheduler import import_beside\nfrom flux.scheduler.policies import Fifo\n"
        "helper = import_beside(__file__, 'helper')\n"
        "class Mine(Fifo):\n    level = helper.Level().value\n"
        "def mod_main(h, *args): Mine(h, *args).run()\n"
    )
    assert FakeInstance().load(str(tmp_path / "mine.py")).level == 7
    with pytest.raises(ImportError, match="absent.py: no such file"):
        import_beside(str(tmp_path / "mine.py"), "absent")
