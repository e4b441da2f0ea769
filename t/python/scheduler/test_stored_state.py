# SPDX-License-Identifier: LGPL-3.0-or-later
"""A damaged checkpoint costs a scheduler its stored state, and nothing else."""

import json
from types import SimpleNamespace

import pytest

from flux.scheduler.site_policy.preemption import state
from flux.scheduler.site_policy.preemption.rule import PreemptionRule
from flux.scheduler.site_policy.preemption.state import read_class
from flux.scheduler.testing import FakeInstance
from flux.scheduler.testing.handle import FakeHandle

DEEP = "[" * 100_000 + "]" * 100_000
DAMAGED = [
    *(DEEP, "5", '"text"', "null", "[]", "{}", '{"version": 1}'),
    '{"version": 1, "classes": 5, "by": 5, "through": {}}',
    '{"version": 1, "latest": 5}',
    '{"version": 1, "shares": 5, "misses": []}',
    '{"version": 1, "shares": [["x", true, [1]]], "misses": []}',
    '{"version": 1, "shares": [[1, true, [NaN]]], "misses": []}',
    '{"version": 1, "shares": [], "misses": [[1, 2]]}',
    '{"version": 1, "shares": [], "misses": [[1, 2, NaN]]}',
    '{"version": 1, "latest": [[1, "x"], 7]}',
    '{"version": 1, "preemptions": 5}',
    '{"version": 1, "preemptions": [5]}',
    '{"version": 1, "preemptions": [], "borrowers": [[]]}',
    '{"version": 1, "latest": [[1, NaN]]}',
    '{"version": 1, "through": 1, "used": [[["", 1], NaN]]}',
    '{"version": 1, "through": 1, "used": [[["", []], 1]]}',
    '{"version": 1, "through": 1, "used": [[5, 1]]}',
    '{"version": 1, "through": 1, "used": [[[], 1], [["all"], 1]]}',
]
TABLES = {
    "preemption": {"low": {"queues": ["low"], "rank": 0}},
    "queues": {"low": {}, "high": {}},
    "fairshare": {"half-life": "1d"},
    "budgets": {"all": {"per": "user", "period": "day", "max": {"core-hours": 1000}}},
}


@pytest.mark.parametrize(
    "key", ["history", "odds", "promises", "preemptions", "fairshare", "budgets"]
)
@pytest.mark.parametrize("text", DAMAGED, ids=lambda text: text[:40])
def test_a_damaged_value_costs_the_stored_state(key, text):
    instance = FakeInstance(nodes=2, config=TABLES, check_errors=False)
    instance.kvs.values[f"checkpoint.sched-{key}"] = text
    instance.load("sched-backfill", "promise=all", "predict=class")
    job = instance.submit(nodes=1, duration=10)
    instance.advance(5)
    assert job.state == "running"
    told = [line for line in instance.errors if f"checkpoint.sched-{key}" in line]
    assert len(told) == len(instance.errors) <= 1, instance.errors
    if told:
        assert "cannot be read" in told[0] and "\n" not in told[0]


@pytest.mark.parametrize(
    "text",
    [DEEP, "7", '{"version": 2, "reservations": []}']
    + [f'{{"version": 1, "reservations": {value}}}' for value in ("5", "[5]")],
)
def test_damaged_reservations_keep_it_from_loading_and_it_says_how_to_go_on(text):
    """Without them jobs would start on reserved resources."""
    instance = FakeInstance(nodes=2, check_errors=False)
    instance.kvs.values["checkpoint.sched-reservations"] = text
    said = r"unlink checkpoint.sched-reservations` removes it; .* `flux start --recovery`"
    with pytest.raises(Exception, match=said):
        instance.load("sched-backfill")


@pytest.mark.parametrize("key", ["history", "odds", "promises", "fairshare", "budgets"])
def test_a_value_of_a_newer_scheduler_is_one_line_and_is_not_overwritten(key):
    instance = FakeInstance(nodes=2, config=TABLES, check_errors=False)
    key = f"checkpoint.sched-{key}"
    newer = instance.kvs.values[key] = '{"version": 99, "latest": []}'
    instance.load("sched-backfill", "promise=all", "predict=class")
    assert instance.errors == [
        f"{key} in the KVS is of version 99, of a newer scheduler: it is not read; "
        f"`flux kvs unlink {key}` removes it"
    ]
    for _ in range(3):
        instance.submit(nodes=2, duration=400)
    instance.advance(1000)
    instance.unload()
    assert instance.kvs.values[key] == newer


def test_preemptions_are_stored_as_by_the_version_before():
    """So that they last over an upgrade and a rollback; those in promised time by their victims."""
    victim = {"id": 7, "class": "low", "nodes": 1, "start": 100.0, "userid": 5}
    times = {"decided": 200.0, "deadline": 210.0, "expected": 211.0}
    preemption = {"taker": 8, "queue": "high", "userid": 5, "ranks": "0-1"}
    lent = {**victim, "id": 3, "taker": 9, "queue": "high", "until": 300.0, "warned": True}
    stored = {"version": 1, "preemptions": [{**preemption, **times, "victims": [victim]}]}
    stored["borrowers"] = [lent]
    instance = FakeInstance(nodes=2)
    instance.kvs.values[state.KEY] = json.dumps(stored)
    kept = []
    host = SimpleNamespace(
        handle=FakeHandle(instance, "sched-fifo"),
        store=lambda key, text, stored: kept.append(text),
        queue_names=None,
        admission=SimpleNamespace(engage=lambda *args: None),
        placeholders=None,
        tell_of_passes=lambda *args: None,
    )
    rule = PreemptionRule(host, errors=None)
    rule.configure({"low": read_class("low", {"queues": ["low"]})})
    assert [one.in_promise for one in rule._active.values()] == [False, True]
    rule.shared.store()
    assert json.loads(kept[0]) == stored
