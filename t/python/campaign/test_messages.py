# SPDX-License-Identifier: LGPL-3.0-or-later
"""t/campaign/messages.py with a few seeds, and with seeds drawn by hypothesis, which shrinks failures: valid and bent
requests to each scheduler."""

import gc
import json
import random

import messages
import payloads
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture(autouse=True)
def no_collection():
    """A finalizer fails where the collector runs it in the middle of a deeply nested payload."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("module", sorted(messages.MODULES))
@settings(
    max_examples=10,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(chance=st.randoms(use_true_random=False))
def test_whatever_is_drawn(module, chance):
    messages.Campaign(chance, module).run(20)


def test_every_topic_of_a_scheduler_is_sent():
    rig = messages.Rig(messages.R(4, 4), "sched-backfill")
    globs = {getattr(watcher, "topic_glob", "") for watcher in rig.sched.handle.watchers}
    served = {topic for topic in globs if topic.startswith(("sched.", "feasibility."))}
    assert len(served) > 15
    assert served - {"sched.disconnect"} - payloads.SCHEMAS.keys() == set()


def test_payloads_are_as_they_should_be_before_they_are_bent():
    """A scheduler accepts all unbent payloads, so that a refusal is due to the bending."""
    chance = random.Random(1)
    rig = messages.Rig(messages.R(4, 4, 1, properties={"a": "0-1"}))
    rig.load("sched-backfill")
    for topic in sorted(set(payloads.SCHEMAS) - {"NAME.no-such-method"}):
        for _ in range(20):
            text = payloads.make(chance, topic)
            rig.send_text(topic.replace("NAME", "sched-backfill"), text and json.dumps(text))
            rig.settle()
    refused = {text for _, errnum, text in rig.received if errnum}
    # The job, key or service they name may not exist, or no longer.
    allowed = (
        "is not a pending job", "no reservation", "unsatisfiable", "last window ended", "exists already",
        "is longer than every", "there is no queue", "there is no table [preemption]",
    )  # fmt: skip
    assert {text for text in refused if not any(part in text for part in allowed)} == set()


@pytest.mark.parametrize("rule", ["ended", "books", "guest", "hang"])
def test_each_rule_finds_its_violation(rule, monkeypatch):
    campaign = messages.Campaign(random.Random(0), "sched-fifo")
    if rule == "ended":
        campaign.rig.sched.stop()
        campaign.rig.settle()
        with pytest.raises(messages.Violation, match="has ended"):
            campaign._check()
    elif rule == "books":
        campaign.rig.sched._requests._states[1] = "queued"
        with pytest.raises(AssertionError, match="1: queued, request open"):
            campaign._check()
    elif rule == "guest":
        states = iter(range(100))
        monkeypatch.setattr(campaign, "_state", lambda: next(states))
        with pytest.raises(messages.Violation, match="of a guest has changed"):
            campaign._guest()
    else:
        stats = iter([{"sched_passes": 0}, {"sched_passes": 10000}])
        monkeypatch.setattr(campaign.rig.sched, "stats_get", lambda: next(stats))
        with pytest.raises(messages.Violation, match="10000 passes in 1 s"):
            campaign._wait(1)
