# SPDX-License-Identifier: LGPL-3.0-or-later
"""Jobs that may not wait for ever: max-wait, deadline, early."""

import pytest
from each_policy import TABLE, under
from peers import R, Rig, jobspec

from flux.scheduler.policies import Backfill, Fifo
from flux.scheduler.times import duration_text
from flux.scheduler.wait_limits import WITHDRAWN_REMEMBERED, time_text

POLICIES = under(*TABLE)


def load(policy, args=(), nodes=4, **keys):
    return Rig(R(nodes, 4, **keys), policy, *args)


def whole(count, duration=1000, **keys):
    attributes = {name.replace("_", "-"): value for name, value in keys.items()}
    return jobspec(1, nodes=count, duration=duration, exclusive=True, **attributes)


def rule(rig):
    return rig.sched.wait_limits


def denials(rig):
    """Ids of the jobs that were denied, in order."""
    return [p["id"] for t, e, p in rig.received if t == "sched.alloc" and p["type"] == 2]


def answered(rig, jobid):
    """How often a job was given resources or denied."""
    return len(rig.answers(jobid, 0, 2))


@POLICIES
def test_a_job_that_has_waited_for_as_long_as_it_may_is_denied(policy, args):
    rig = load(policy, args)
    rig.arrive({1: whole(4), 2: whole(4, max_wait=5), 3: whole(4)}, wait=4.9)
    assert rig.started() == [1] and not answered(rig, 2)
    rig.wait(0.2)
    assert rig.denied(2).startswith("max-wait: not started within 5s")
    # Those behind it go on.
    rig.free(1)
    assert rig.started() == [1, 3]
    assert [answered(rig, jobid) for jobid in (1, 2, 3)] == [1, 1, 1]


@POLICIES
def test_one_that_may_not_wait_is_decided_by_the_first_full_pass(policy, args):
    rig = load(policy, args)
    rig.arrive({1: whole(2, max_wait=0), 2: whole(4, max_wait=0), 3: whole(2, max_wait=0)})
    # In strict order it is behind a job that cannot start, and that is why it cannot.
    strict = policy is not Backfill
    assert rig.started() == ([1] if strict else [1, 3])
    assert rig.denied(2).startswith("max-wait: it could not start at once")
    if strict:
        assert rig.denied(3).startswith("max-wait: it could not start at once")
    rig.alloc(4, whole(2, max_wait="0s"))
    assert (4 in rig.started()) == strict
    assert not rule(rig).engaged


@POLICIES
def test_a_deadline_is_over_when_the_job_cannot_end_in_time_any_more(policy, args):
    rig = load(policy, args)
    rig.arrive({1: whole(4), 2: whole(4, duration=100, deadline=rig.now + 150)}, wait=49.9)
    assert not answered(rig, 2)
    rig.wait(0.2)
    assert rig.denied(2).startswith("deadline: not started by ")
    rig.alloc(3, whole(4, duration=100, deadline=rig.now + 99))
    assert rig.denied(3).startswith("deadline: not started by ")


def test_the_shorter_of_both_counts():
    rig = load(Fifo)
    rig.alloc({1: whole(4), 2: whole(4, duration=10, max_wait=50, deadline=rig.now + 30)})
    rig.arrive(3, whole(4, duration=10, max_wait=10, deadline=rig.now + 30), wait=10.1)
    assert rig.denied(3).startswith("max-wait: ") and not answered(rig, 2)
    rig.wait(10)
    assert rig.denied(2).startswith("deadline: ")


@pytest.mark.parametrize(
    "keys, text",
    [
        *[({"max_wait": value}, f"max-wait={value!r}: expected a length of time") for value in ("soon", -1, True, float("nan"), float("inf"))],
        *[({"max_wait": value}, ": expected a length of time") for value in (10**400, {"x": 1})],
        ({"deadline": "tomorrow"}, "deadline='tomorrow' is invalid"),
        ({"deadline": 0}, "deadline=0 is invalid"),
        ({"deadline": 2e9, "duration": 0}, "deadline: the job needs a time limit"),
        ({"early": True}, "early: there is neither"),
        ({"max_wait": 5, "early": "yes"}, "early='yes': expected true or false"),
    ],
)  # fmt: skip
def test_an_unreadable_wait_is_denied_with_its_reason(keys, text):
    rig = load(Backfill)
    rig.alloc({1: whole(1, **keys), 2: whole(1)})
    assert text in rig.denied(1) and rig.started() == [2]
    assert not rule(rig).engaged and not rig.logged(3)


def test_explain_and_the_sentence_have_the_start_that_was_expected():
    rig = load(Backfill)
    rig.alloc({1: whole(4, duration=7200), 2: whole(4, max_wait=3600)})
    begin = rig.now
    assert rig.explain(2)["latest_start"] == pytest.approx(begin + 3600, abs=1)
    rig.wait(3601)
    about = time_text(begin + 7200, rig.now)
    assert rig.denied(2) == f"max-wait: not started within 1h (first start about {about})"


def test_by_a_promise_that_is_too_late_it_is_denied_early():
    rig = load(Backfill, ("promises=1",))
    rig.alloc(1, whole(4, duration=100))
    rig.alloc(2, whole(4, max_wait=50, early=True))  # is promised a start in 100 s
    rig.alloc(3, whole(4, max_wait=50))  # so would this be, but it did not ask for that
    rig.alloc(4, whole(4, max_wait=50, early=True))  # an estimate only: it is promised nothing yet
    rig.wait(0.1)
    assert rig.denied(2).startswith("max-wait: not started within 50s (it is promised ")
    rig.wait(10)
    assert denials(rig) == [2]
    rig.free(1)
    assert rig.started() == [1, 3]
    rig.wait(1)
    assert denials(rig) == [2, 4]  # now it is promised one, behind job 3


def test_the_clock_stands_while_the_request_is_withdrawn():
    rig = load(Fifo, ("queue-depth=unlimited",))
    rig.arrive({1: whole(4), 2: whole(4, max_wait=50)}, wait=30)
    rig.cancel(2, wait=1000)
    rig.arrive(2, whole(4, max_wait=50), wait=19)
    assert denials(rig) == []
    rig.wait(2)
    assert denials(rig) == [2]


def test_of_withdrawn_requests_not_too_many_are_remembered():
    rig = load(Fifo, ("queue-depth=unlimited",))
    rig.arrive(1, whole(4))
    withdrawn = rule(rig)._withdrawn
    withdrawn.update(dict.fromkeys(range(10, WITHDRAWN_REMEMBERED + 15), 1.0))
    rig.arrive(2, whole(4, max_wait=50))
    rig.cancel(2, wait=0)
    assert len(withdrawn) == WITHDRAWN_REMEMBERED and 2 in withdrawn


def test_little_is_kept_of_started_jobs():
    rig = load(Fifo)
    for jobid in range(1, 301):
        rig.arrive(jobid, whole(4, max_wait=86400))
        rig.free(jobid, wait=0)
    assert len(rig.started()) == 300
    one = rule(rig)
    assert len(one._jobs) <= 65 and not one._withdrawn
    rig.wait(2 * 86400)
    assert denials(rig) == [] and not one._jobs


@pytest.mark.parametrize(
    "seconds, text",
    [(0.5, "0.5s"), (5, "5s"), (60, "1m"), (3600, "1h"), (5400, "1h30m"), (90061, "1d1h1m1s")],
)
def test_duration_text(seconds, text):
    assert duration_text(seconds) == text


def test_one_that_may_not_wait_is_not_decided_by_a_pass_that_has_not_seen_it():
    rig = load(Backfill, ())
    rig.alloc(1, whole(2, max_wait=0))
    while rig.sched.pending(1) is None:
        rig.turn()
    rule(rig).pass_completed(rule(rig).host.events_seen - 1)
    assert denials(rig) == []
    assert rig.started() == [1]
