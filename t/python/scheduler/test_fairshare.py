# SPDX-License-Identifier: LGPL-3.0-or-later
"""Fair share: ``[fairshare]``, and the use that it counts."""

import math

import pytest
from each_policy import POLICIES, TABLE, under
from peers import R, Rig, jobspec
from test_history import JobList

from flux.scheduler.host import NO_TIMER
from flux.scheduler.policies import Backfill, Fifo
from flux.scheduler.site_policy.fairshare import read_entry

HOUR = 3600.0


def load(policy=Fifo, args=("queue-depth=unlimited",), rig=None, **table):
    rig = rig or Rig(R(4, 4))
    table = {"half-life": "1h", "period": "1m", **table}
    rig.load(policy, *args, config={"fairshare": table})
    return rig


def submit(rig, users, bank=None, slots=16, **keys):
    """A job of each user, one after the other: user ids by job id."""
    spec = jobspec(slots, duration=1000, **({"bank": bank} if bank else {}))
    for jobid, userid in users.items():
        rig.arrive(jobid, spec, userid=userid, **keys)


def order(rig):
    return [job.jobid for job in rig.sched.pending_jobs()]


def used(rig):
    """Core-hours by bank and user."""
    answer = rig.answer("shares")
    return {(one["bank"], one["user"]): one["used"] for one in answer["shares"] if one["user"]}


# -- the table -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key, value, fault",
    [
        ("half-life", "x", "half-life='x': expected a length of time"),
        ("half-life", 0, "half-life=0: expected more than 0 seconds"),
        ("period", "0s", "period='0s': expected more than 0 seconds"),
        ("weights", {"cores": -1}, "weights.cores=-1: expected a number, 0 or more"),
        ("weights", {"core": 1}, "weights.core: unknown key"),
        ("weights", {"cores": 0}, "expected a table such as"),
        ("weights", 5, "weights=5: expected a table"),
        ("banks", {"a": "x"}, "banks.a='x': expected a number, 0 or more"),
        ("banks", [], r"banks=\[\]: expected a table"),
        ("users", {"nobody-of-that-name": 1}, "there is no user 'nobody-of-that-name'"),
        ("halflife", "1h", "unknown key: expected half-life, period, weights, banks or users"),
    ],
)
def test_faults_of_the_table(key, value, fault):
    with pytest.raises(ValueError, match=fault):
        read_entry(key, value)


def test_an_empty_table_is_doubted():
    rig = Rig(R(1, 1), Fifo, config={"fairshare": {}})
    assert rig.logged(4) == ["configuration: [fairshare] is empty, and so switches nothing on"]
    assert rig.answer("shares")["half_life"] is None


# -- the order -------------------------------------------------------------------------------------


@under(*TABLE)
def test_who_has_used_least_goes_first(policy, args):
    rig = load(policy, args)
    submit(rig, {1: 500})
    submit(rig, {2: 500, 3: 500, 4: 600, 5: 600})
    rig.wait(120)
    assert order(rig) == [4, 5, 2, 3]
    started = [1]
    for _ in range(4):
        rig.free(started[-1], after=100)
        started = rig.started()
    rig.check()
    assert sorted(started) == [1, 2, 3, 4, 5]
    if policy is Fifo:
        assert started[:2] == [1, 4]
    assert not rig.logged(3)


def test_a_promised_job_that_its_share_puts_first_is_promised_anew():
    """User 2 has used more when both jobs are promised a start, and less after two minutes."""
    rig = load(Backfill, ("promise=2",))
    submit(rig, {1: 2}, slots=4)
    rig.free(1, after=100)
    submit(rig, {2: 1}, slots=4)
    submit(rig, {3: 1})
    rig.arrive(4, jobspec(4, duration=2000), userid=2)
    assert order(rig) == [3, 4]
    assert rig.started(after=200) == [1, 2, 4], (
        "nodes are idle, and the second job is the first now"
    )


def test_a_share_does_not_void_a_latest_start():
    rig = load(Backfill, ("promise=all", "within=1m"))
    begin = rig.now
    submit(rig, {1: 500, 2: 500})
    rig.wait(120)
    submit(rig, {3: 600, 4: 600})
    rig.wait(120)
    assert order(rig) == [3, 4, 2]
    latest = [round(rig.shown(jobid)["t_latest"] - begin) for jobid in (2, 3, 4)]
    assert latest == [1000, 2000, 3000]
    submit(rig, {5: 500}, priority=17)
    rig.wait(120)
    latest = [round(rig.shown(jobid)["t_latest"] - begin) for jobid in (5, 2, 3, 4)]
    assert latest == [1000, 4000, 2000, 3000]


def test_shares_of_users_and_weights_of_resources():
    rig = load(weights={"nodes": 1}, users={"500": 4, "600": 1, "700": 0})
    submit(rig, {1: 500}, slots=12)
    submit(rig, {2: 600}, slots=4)
    rig.wait(600)
    submit(rig, {3: 700, 4: 600, 5: 500})
    # 3 nodes by 4 shares, 1 node by 1; a user without shares is last.
    assert order(rig) == [5, 4, 3]
    hours = used(rig)
    assert hours["", "500"] == pytest.approx(3 * hours["", "600"])


def test_the_queue_is_sorted_again_only_if_the_order_has_changed(monkeypatch):
    rig = load()
    submit(rig, {1: 500, 2: 500, 3: 600})
    sorts = []
    reorder = rig.sched.reorder
    monkeypatch.setattr(rig.sched, "reorder", lambda: (sorts.append(rig.now), reorder()))
    rig.wait(3600)
    assert order(rig) == [3, 2] and len(sorts) == 1
    # Without pending jobs there is no work either.
    rig.cancel(2)
    rig.cancel(3, wait=120)
    assert rig.sched._site_policy.rule(type(rig.sched.admission.rules[1]))._timer is NO_TIMER


@POLICIES
def test_a_user_that_comes_is_placed_by_the_use_of_now_however_long_the_period(policy, args):
    rig = load(policy, args, period="1h")
    submit(rig, {1: 500})
    rig.wait(100)
    submit(rig, {2: 500, 3: 600})
    rig.wait(2)
    assert order(rig) == [3, 2]


def test_a_user_that_no_job_of_waited_is_placed_by_the_use_of_now():
    rig = load(period="1h")
    submit(rig, {1: 500}, slots=12)
    rig.wait(100)
    rig.alloc({2: jobspec(4), 3: jobspec(4)}, userid=500)
    rig.arrive(4, jobspec(4), userid=600)
    assert rig.started() == [1, 4]


def test_an_order_of_the_schedulers_own_counts_instead():
    class Own(Fifo):
        def order(self, job):
            return job.userid

    rig = load(Own)
    submit(rig, {1: 500, 2: 600, 3: 500})
    rig.wait(120)
    assert order(rig) == [3, 2]
    (line,) = rig.logged(4)
    assert "has an order() of its own: shares do not change it" in line
    assert used(rig)["", "500"] > 0


@POLICIES
def test_the_order_changes_at_the_end_of_a_period_however_long_it_has_stayed_the_same(policy, args):
    """The use of a running job reaches that of an earlier one after some hours."""
    rig = load(policy, args, **{"half-life": "100d"})
    submit(rig, {1: 500}, slots=4)
    rig.wait(3600 * 5 - 30)
    rig.expire(1, rig.now)
    rig.free(1)
    rig.arrive(2, jobspec(4), userid=600)
    submit(rig, {3: 500, 4: 600})
    assert order(rig) == [4, 3]
    begun = rig.now
    while order(rig) == [4, 3]:
        rig.wait(60)
    assert 5 * 3600 - 60 <= rig.now - begun <= 5 * 3600 + 90


@POLICIES
def test_it_comes_and_goes_with_its_table(policy, args):
    rig = Rig(R(4, 4), policy, *args)
    for jobid, userid in ((1, 500), (2, 500), (3, 600), (4, 600)):
        rig.info.jobspecs[jobid] = jobspec(16, duration=1000)
        submit(rig, {jobid: userid})
    rig.wait(100)
    rig.reconfigure({"fairshare": {"period": "1m"}})
    assert order(rig) == [3, 4, 2], "what runs counts from its start"
    assert used(rig)["", "500"] == pytest.approx(16 * 100 / HOUR, rel=0.1)
    rig.reconfigure({"fairshare": {"period": "1m", "half-life": "1s"}})
    assert order(rig) == [3, 4, 2]
    rig.reconfigure({})
    assert order(rig) == [2, 3, 4]
    assert rig.answer("shares")["shares"] == []
    rig.check()
    assert not rig.logged(3)


# -- over reloads ----------------------------------------------------------------------------------


def test_past_use_decays_while_no_scheduler_is_there():
    rig = load()
    rig.list = rig.instance.services["job-list"] = JobList(rig.instance)
    submit(rig, {1: 500, 2: 600}, slots=8)
    rig.free(1, after=600)
    before = used(rig)["", "500"]
    rig.unload()
    rig.wait(600)
    rig.list.add(2, 1200, userid=600, cleanup=0.0, ncores=8)
    rig.wait(HOUR - 600)
    load(rig=rig)
    after = used(rig)
    assert after["", "500"] == pytest.approx(before / 2, rel=0.01)
    exactly = 8 / math.log(2) * (1 - 0.5 ** (1200 / HOUR)) * 0.5 ** (1 - 600 / HOUR)
    assert after["", "600"] == pytest.approx(exactly, rel=0.04)


def test_jobs_that_ended_while_no_scheduler_was_there_count():
    rig = Rig(R(4, 4))
    rig.list = rig.instance.services["job-list"] = JobList(rig.instance)
    load(rig=rig)
    for jobid in (1, 2):
        submit(rig, {jobid: 500 + jobid}, slots=4)
    rig.wait(100)
    rig.will_be_found(2, spec=jobspec(4, duration=1000), userid=502)
    rig.unload()
    rig.wait(300)
    rig.list.add(1, 400, userid=501, cleanup=0.0, ncores=4)
    rig.list.add(2, 400, userid=502, cleanup=0.0, ncores=4)  # in housekeeping still
    load(rig=rig)
    after = used(rig)
    assert after["", "501"] == pytest.approx(4 * 400 / HOUR, rel=0.1)
    assert after["", "502"] == pytest.approx(4 * 400 / HOUR, rel=0.1)
    assert rig.list.asked[0]["since"] > 0


# -- answers ---------------------------------------------------------------------------------------


def test_explain_and_shares_tell_of_it():
    rig = load(Backfill, ())
    submit(rig, {1: 500, 2: 500, 3: 600}, "physics")
    rig.wait(120)
    assert rig.explain(2)["fairshare"] == {"bank": "physics", "user": "500", "place": 2, "of": 2}
    answer = rig.answer("shares")
    bank, first, second = answer["shares"]
    assert bank["user"] is None and bank["part"] == 1.0 and bank["used_part"] == 1.0
    assert (first["user"], first["part"], first["pending"], first["running"]) == ("500", 0.5, 1, 1)
    assert (second["user"], second["used"], second["pending"]) == ("600", 0.0, 1)
    rig.cancel(2, wait=0)  # whose user has no other that waits, and so no place
    job = rig.explain(3)
    assert (job["fairshare"]["place"], job["fairshare"]["of"]) == (1, 1)


def test_the_use_of_a_bank_is_that_of_all_its_users():
    rig = load()
    for jobid, userid, bank, cores in ((1, 500, "two", 5), (2, 600, "two", 4), (3, 700, "one", 6)):
        submit(rig, {jobid: userid}, bank, slots=cores)
    rig.wait(600)
    submit(rig, {4: 800}, "two")
    submit(rig, {5: 800}, "one")
    assert order(rig) == [5, 4]


def test_a_job_that_has_ended_uses_nothing_more():
    rig = load(**{"half-life": "1000d"})
    submit(rig, {1: 500})
    rig.free(1, after=600)
    before = used(rig)["", "500"]
    rig.wait(600)
    assert used(rig)["", "500"] == pytest.approx(before, rel=0.01)


def test_a_guest_is_told_of_banks_and_of_its_own_shares():
    rig = load(Backfill, ())
    submit(rig, {1: 500, 2: 600}, "physics", slots=4)
    rig.client.become(600)
    answer = rig.answer("shares")
    shown = [(one["bank"], one["user"]) for one in answer["shares"]]
    assert shown == [("physics", None), ("physics", "600")]
