# SPDX-License-Identifier: LGPL-3.0-or-later
"""Budgets: ``[budgets.NAME]``."""

from datetime import datetime, timezone

import pytest
from each_policy import POLICIES, under
from peers import R, Rig, jobspec, loaded, part_of
from test_history import JobList

from flux.scheduler.policies import Backfill, Fifo
from flux.scheduler.site_policy.budgets import period_of, read_budget

HOUR, DAY = 3600.0, 86400.0
BANK = {"per": "bank", "period": "day", "zone": "UTC", "max": {"node-hours": 8}}


def load(policy=Fifo, args=("queue-depth=unlimited",), rig=None, **budgets):
    rig = rig or Rig(R(4, 4))
    rig.wait((2 * HOUR - rig.now % DAY) % DAY)  # the day begins at two o'clock
    rig.load(policy, *args, config={"budgets": budgets or {"bank": BANK}})
    return rig


def submit(rig, jobid, hours, bank="red", nodes=1, userid=0, **keys):
    more = {"duration": hours * HOUR} if hours else {}
    spec = jobspec(1, nodes=nodes, exclusive=True, bank=bank, **more, **keys)
    rig.info.jobspecs[jobid] = spec
    rig.arrive(jobid, spec, userid=userid)


def report(rig, name="bank"):
    answer = rig.answer("limits")["budgets"]
    (found,) = [one for one in answer if (one["budget"], one["whose"]) == (name, "bank red")]
    return found


def check(rig, hours):
    rig.check()
    found = report(rig)
    taken = found["used"]["node-hours"] + found["running"]["node-hours"]
    assert taken == pytest.approx(hours, abs=0.01)
    assert not rig.logged(3)


@pytest.mark.parametrize(
    "change, fault",
    [
        ({"period": "hour"}, "period='hour': expected 'day' or 'week'"),
        ({"max": {}}, "max: expected one of node-hours, core-hours, gpu-hours"),
        ({"max": {"nodes": 1}}, "max.nodes: unknown key"),
        ({"max": {"node-hours": -1}}, "max.node-hours=-1: expected a number, 0 or more"),
        ({"zone": "Nowhere/Land"}, "time zone 'Nowhere/Land' is not known"),
        ({"per": "us"}, "per='us': expected 'user' or"),
        ({"exempt": {"banks": {}}}, "exempt.banks={}: expected a list of names"),
        ({"color": 1}, "color: unknown key"),
    ],
)
def test_faults_of_the_table(change, fault):
    with pytest.raises(ValueError, match=fault):
        read_budget("one", {**BANK, **change})


@pytest.mark.parametrize(
    "period, when, begin, end",
    [
        ("day", "2026-11-24T13:30", "2026-11-24", "2026-11-25"),
        ("week", "2026-11-24T13:30", "2026-11-23", "2026-11-30"),
        ("week", "2026-11-23T00:00", "2026-11-23", "2026-11-30"),
        ("month", "2026-12-31T23:59", "2026-12-01", "2027-01-01"),
        ("month", "2024-02-29T12:00", "2024-02-01", "2024-03-01"),
        ("quarter", "2026-11-24T13:30", "2026-10-01", "2027-01-01"),
        ("quarter", "2026-03-31T23:59", "2026-01-01", "2026-04-01"),
        ("year", "2026-11-24T13:30", "2026-01-01", "2027-01-01"),
    ],
)
def test_periods_of_the_calendar(period, when, begin, end):
    def seconds(text):
        return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()

    assert period_of(period, timezone.utc, seconds(when)) == (seconds(begin), seconds(end))


@POLICIES
def test_a_job_that_could_exceed_it_waits_and_no_job_behind_it(policy, args):
    rig = load(policy, args)
    submit(rig, 1, 5)
    submit(rig, 2, 4)  # 9 of 8
    submit(rig, 3, 3)
    submit(rig, 4, 4, bank="blue")
    assert sorted(rig.started()) == [1, 3, 4]
    text = "bank red has taken 8.0 of 8 node-hours of this day; needs 4.0"
    assert rig.explain(2)["reason"] == f"budget bank: {text}"
    rig.wait(HOUR)
    rig.free(1)  # it gives back four of its five hours
    assert sorted(rig.started()) == [1, 2, 3, 4]
    check(rig, 8)


@under("fifo", "promise-all")
def test_a_job_that_the_next_period_is_too_small_for_holds_up_no_other(policy, args):
    rig = load(policy, args)
    rig.wait(21 * HOUR)
    submit(rig, 1, 7)  # six hours of it after midnight
    submit(rig, 2, 2, nodes=4)
    submit(rig, 3, 8, bank="blue")
    assert rig.started(after=0.9 * HOUR) == [1]
    assert rig.started(after=0.2 * HOUR) == [1, 3]
    assert rig.explain(2)["reason"].startswith(
        "budget bank: bank red has taken 6.0 of 8 node-hours"
    )


@pytest.mark.parametrize("ran", [449.724, 607.185, 756.867])
def test_it_starts_at_that_time_whatever_the_numbers_are_rounded_to(ran):
    """6400 seconds before the end of a day; two core-hours are 1800 seconds of a node."""
    config = {"budgets": {"bank": {**BANK, "max": {"core-hours": 2}}}}
    instance = loaded("sched-fifo", nodes=4, cores=4, config=config, estimates=False)
    keys = {"nodes": 1, "exclusive": True, "bank": "red"}
    instance.submit(duration=1000, runtime=ran, **keys)
    job = instance.submit(duration=DAY, **keys)
    instance.advance(6400)
    assert job.t_start == pytest.approx(instance.start_time + 6400 - (1800 - ran), abs=1)


def test_more_time_for_a_running_job_counts():
    rig = load()
    submit(rig, 1, 2)
    rig.expire(1, rig.now + 6 * HOUR)
    check(rig, 6)
    submit(rig, 2, 3)
    assert rig.started() == [1]
    rig.expire(1, rig.now + 5 * HOUR)
    assert rig.started() == [1, 2]


def test_a_job_that_ends_with_its_window_is_charged_until_then():
    rig = load()
    rig.reserve("demo", 0, HOUR, nodes=1, banks=["red"], at_end="cancel")
    submit(rig, 1, 6, reservation="demo")
    check(rig, 1)
    submit(rig, 2, 6)
    assert rig.started() == [1, 2]
    check(rig, 7)


def test_shared_nodes_are_counted_as_the_pool_gives_them():
    """Four tasks: on how many nodes they will be is known when the pool has chosen."""
    rig = load(bank={**BANK, "max": {"node-hours": 3, "core-hours": 100}})
    spec = jobspec(3, cores=3, bank="red", duration=2 * HOUR)
    rig.alloc(1, spec)
    assert rig.started() == []
    assert rig.explain(1)["reason"].endswith("needs 6.0")
    rig.alloc(2, jobspec(1, bank="red", duration=HOUR))
    assert rig.started() == [2]
    check(rig, 1)


@POLICIES
def test_a_range_takes_no_more_than_is_left(policy, args):
    rig = load(policy, args)
    submit(rig, 1, hours=3, nodes="1-4")
    assert rig.ranks(1) == {0, 1}
    check(rig, hours=6)
    submit(rig, 2, hours=1, nodes="2-4", bank="blue")
    assert rig.ranks(2) == {2, 3}


def test_parts_that_come_back_early_are_not_counted_any_more():
    rig = load()
    submit(rig, 1, 4, nodes=2)
    rig.free(1, part_of(rig.success(1)["R"], "0"), final=False, after=HOUR)
    check(rig, 5)


@pytest.mark.parametrize("waiting, kind", [(1, "promised"), (3, "planned")])
def test_a_promise_is_one_only_if_the_budget_will_let_the_job_start(waiting, kind):
    rig = load(Backfill, (), bank={**BANK, "max": {"node-hours": 20}})
    submit(rig, 1, 1, nodes=4, bank="blue")
    for jobid in range(2, 2 + waiting):
        submit(rig, jobid, 2, nodes=4)
    rig.wait(5)
    assert rig.shown(2)["t_estimate_kind"] == kind


def test_it_goes_on_over_a_reload():
    rig = Rig(R(4, 4))
    rig.list = rig.instance.services["job-list"] = JobList(rig.instance)
    load(rig=rig)
    submit(rig, 1, 3)
    submit(rig, 2, 4)
    submit(rig, 3, 1)
    rig.free(3, after=HOUR)
    check(rig, 8)
    rig.will_be_found(1)
    rig.unload()
    rig.wait(HOUR)
    # The second has ended meanwhile, after two of its four hours.
    rig.list.add(2, 2 * HOUR, userid=0, bank="red", cleanup=0.0, nnodes=1)
    rig.load(Fifo, "queue-depth=unlimited")
    check(rig, 1 + 2 + 3)
    submit(rig, 4, 3)
    submit(rig, 5, 2)
    assert rig.started()[-1] == 5


def test_past_use_is_listed_after_a_reload_though_no_job_is_there():
    rig = load()
    submit(rig, 1, 3)
    rig.free(1, after=HOUR, wait=0)
    rig.reload(Fifo, "queue-depth=unlimited")
    check(rig, 1)
    rig.reconfigure({"budgets": {"bank": {**BANK, "per": "user"}}})
    assert rig.answer("limits")["budgets"] == [], "a bank is taken for a user"


def test_without_jobs_it_asks_for_no_time():
    """Under a virtual clock an instance without jobs would run through all periods there are."""
    rig = load()
    submit(rig, 1, 3)
    rig.free(1, after=HOUR, wait=2 * DAY)
    assert not rig.sched._host.timers._due
    assert rig.answer("limits")["budgets"] == [], "it is another day"
    submit(rig, 2, 8)
    assert rig.started() == [1, 2]
    check(rig, 8)


def test_a_budget_that_comes_later_counts_running_jobs():
    rig = load()
    rig.reconfigure({})
    submit(rig, 1, 4)
    submit(rig, 2, 8)
    assert rig.started() == [1, 2]
    rig.wait(HOUR)
    rig.reconfigure({"budgets": {"bank": BANK}})
    check(rig, 12)
    submit(rig, 3, 1)
    assert rig.started() == [1, 2]
    rig.reconfigure({"budgets": {"bank": {**BANK, "exempt": {"banks": ["red"]}}}})
    assert rig.started() == [1, 2, 3]


def test_answers():
    rig = load(Backfill, (), bank={**BANK, "max": {"node-hours": 8, "gpu-hours": 1}})
    submit(rig, 1, 8, userid=500)
    submit(rig, 2, 8, userid=500)
    rig.wait(5)
    job = rig.explain(2)
    assert job["rules"][0]["rule"] == "budget"
    budget = job["budget"]
    assert (budget["whose"], budget["what"], budget["max"]) == ("bank red", "node-hours", 8)
    assert budget["t_again"] % DAY == 0 and budget["needs"] == pytest.approx(8)
    assert report(rig)["waiting"] == 1
    rig.client.become(600)
    assert rig.answer("limits")["budgets"] == []
