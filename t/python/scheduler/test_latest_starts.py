"""sched-backfill with promise=all: every job has a latest start; events that make it void."""

import json

import pytest
from peers import R, Rig, loaded, ruled, whole

from flux.scheduler.admission import AdmissionRule, Deferral
from flux.scheduler.policies import Backfill, latest_starts

HOUR = 3600


def rig_with(*args, nodes=4):
    return Rig(R(nodes, 4), "sched-backfill", "promise=all", *args)


def stats(rig):
    """Counts of latest starts, of a rig or a fake instance."""
    scheduler = rig.sched if isinstance(rig, Rig) else rig.scheduler
    return scheduler.stats_get()["latest_starts"]


@pytest.fixture
def rig():
    """Four nodes; job 1 has three of them for 100 s, job 2 wants four for 50 s within an hour."""
    rig = rig_with("within=1h")
    rig.begin = rig.now
    rig.arrive(1, whole(3, 100))
    rig.arrive(2, whole(4, 50))
    return rig


def test_a_running_job_that_is_given_more_time_makes_promises_void(rig):
    rig.expire(1, rig.begin + 2 * HOUR)
    assert rig.shown(2)["t_latest"] == rig.begin + 2 * HOUR
    assert stats(rig)["void"] == {"extended": 1}
    rig.expire(1, rig.begin + 2 * HOUR + 1000)
    rig.free(1, after=2 * HOUR + 500)
    assert rig.started() == [1, 2]
    assert stats(rig)["void"] == {"extended": 2}
    assert stats(rig)["kept"] == 2 and stats(rig)["violated"] == 0


def test_a_late_start_delays_later_jobs_which_are_told_at_once():
    rig = rig_with("within=0")
    begin = rig.now
    rig.alloc({1: whole(2, 100), 2: whole(4, 300), 3: whole(4, 50)})
    assert [rig.shown(jobid)["t_latest"] - begin for jobid in (2, 3)] == [100, 400]
    rig.free(1, after=150)
    assert rig.started() == [1, 2]
    assert rig.shown(3)["t_latest"] - begin == 450
    rig.free(2, after=300)
    assert rig.started() == [1, 2, 3]
    assert stats(rig)["void"] == {"late": 2} and stats(rig)["violated"] == 0


def test_a_job_that_a_rule_defers_or_whose_nodes_are_down_is_told_that_it_has_no_latest_start():
    rig = rig_with("within=0")
    rig.arrive({1: whole(4, 100), 2: whole(4, 50)})
    rig.resource.update(down="0")
    assert "t_latest" not in rig.shown(2)
    assert stats(rig)["void"] == {"resources": 1}
    rig.resource.update(up="0")
    assert rig.shown(2)["t_latest"] == rig.sched.running[1].end

    class NotYet(AdmissionRule):
        name = "not-yet"
        no = None

        def check(self, job):
            return None if self.no is None else Deferral(self.no)

    rig = Rig(R(4, 4), ruled(Backfill, NotYet), "promise=all", "within=1h")
    rig.alloc({1: whole(4, 100), 2: whole(4, 50)})
    assert "t_latest" in rig.shown(2)
    rig.rule("not-yet").no = "not today"
    rig.free(1)
    assert "t_latest" not in rig.shown(2)
    assert stats(rig)["void"] == {"deferred": 1} and stats(rig)["violated"] == 0


@pytest.mark.parametrize("args", [["promise=all"], ["rank=shortest"], ["candidates=shortest"]])
def test_a_job_that_can_never_run_is_denied(args):
    """When it comes, and when its nodes leave; it never fits, so that it is never tried."""
    rig = Rig(R(4, 4), "sched-backfill", *args)
    rig.arrive({1: whole(3, 100), 2: whole(5, 100), 3: whole(4, 100), 4: whole(4, 200)})
    rig.alloc(5, whole(5, 100))
    assert rig.denied(2) and rig.denied(5)
    assert rig.answers(3, 2) == rig.answers(4, 2) == []
    rig.resource.update(shrink="3")
    assert rig.denied(3) and rig.denied(4)
    assert rig.started() == [1]


@pytest.mark.parametrize(
    "args, kind", [(["candidates=shortest"], "promised"), (["rank=shortest"], "planned")]
)
def test_a_head_by_a_rank_that_changes_is_promised_nothing(args, kind):
    rig = Rig(R(4, 4), "sched-backfill", *args)
    rig.arrive(1, whole(3, 100))
    rig.alloc({2: whole(4, 50), 3: whole(1, 5000)})
    assert rig.shown(2)["t_estimate"] == rig.sched.running[1].end
    assert rig.shown(2)["t_estimate_kind"] == kind


def test_a_profile_stands_for_arguments_and_others_count_more():
    rig = Rig(R(4, 4), "sched-backfill", "within=2h", "profile=short-waits")
    policy = rig.sched
    assert policy.promises_all and policy.within == 2 * HOUR and policy.predict == "class"
    assert policy.ranks.has_candidates is False


def test_questions_know_ranks_and_latest_starts():
    rig = Rig(R(4, 4), "sched-backfill", "profile=short-waits", "within=1h")
    begin = rig.now
    rig.arrive(1, whole(3, 100))
    rig.arrive(2, whole(4, 50))
    rig.arrive(3, whole(1, 5000), wait=2)
    job = rig.explain(2)
    assert job["t_latest"] == begin + HOUR
    assert job["expected_run"] == 50
    assert -2 < job["rank"] < -1
    assert job["reason"].startswith("insufficient resources")
    assert rig.explain(3)["reason"] == "it would keep another job from its latest start"
    answer = rig.answer("when", jobspec=whole(4, 50))
    assert answer["t_latest"] == pytest.approx(begin + HOUR + 5050, abs=5)
    numbers = {"made": 3, "restored": 0, "kept": 1, "violated": 0, "mean_spare": HOUR}
    assert rig.answer("stats")["stats"]["latest_starts"] == {**numbers, "void": {}}
    # An estimate is no later than the promised start.
    assert rig.shown(2)["t_estimate"] == begin + 100


# -- over a reload ---------------------------------------------------------------------------------

KEY = "checkpoint.sched-promises"


def reload(instance, *args):
    instance.unload()
    instance.load("sched-backfill", "promise=all", *args)
    instance.run_until_idle()


def latest(*jobs):
    return [job.annotations["sched"]["t_latest"] for job in jobs]


@pytest.fixture
def promised():
    """Promises that would be others if they were made at once: the job that was promised the first place has gone."""
    instance = loaded("sched-backfill", "promise=all", "within=0", nodes=4, cores=1)
    instance.submit(nodes=4, duration=1000)
    instance.run_until_idle()
    first = instance.submit(nodes=4, duration=100)
    instance.jobs_promised = jobs = [
        instance.submit(nodes=1, duration=10000),
        instance.submit(nodes=4, duration=50),
    ]
    instance.run_until_idle()
    first.cancel()
    instance.run_until_idle()
    jobs.append(instance.submit(nodes=4, duration=100))
    instance.run_until_idle()
    begin = instance.start_time
    assert latest(*jobs) == [begin + 1100, begin + 11100, begin + 1000]
    return instance


@pytest.mark.parametrize(
    "jobs",
    [
        # (nodes, ranks, duration); the fourth was bound last, and starts before the third
        [(1, "1-2", 300), (2, "0,2", 200), (2, "1-2", 100), (1, "0-2", 200)],
        # in queue order the second is bound to the rank of the fifth, which is entered first then
        [(2, "0-2", 200), (2, "0-2", 300), (1, "0-1", 100), (1, "2", 200), (1, "1-2", 200)],
    ],
)
def test_a_reload_binds_promises_so_that_all_are_kept(jobs):
    instance = loaded("sched-backfill", "promise=all", "within=0", nodes=3)
    for nodes, ranks, duration in jobs:
        instance.submit(nodes, duration=duration, exclusive=True, constraints={"ranks": [ranks]})
        instance.run_until_idle()
    before = latest(*instance.pending())
    reload(instance, "within=0")
    assert latest(*instance.pending()) == before
    assert stats(instance)["void"] == {}


@pytest.mark.parametrize("crash", [False, True])
def test_latest_starts_are_kept_over_a_reload_and_after_a_crash(promised, crash):
    before = latest(*promised.jobs_promised)
    if crash:
        promised.advance(61)
        promised.scheduler.finish = lambda: None
    reload(promised, "within=0")
    assert latest(*promised.jobs_promised) == before
    found = stats(promised)
    assert (found["restored"], found["made"], found["void"]) == (3, 0, {})
    reload(promised, "within=0")  # the jobs of a restored promise are stored as well
    assert latest(*promised.jobs_promised) == before
    promised.advance(20000)
    assert [job.t_start for job in promised.jobs_promised] <= before
    assert stats(promised)["violated"] == 0


@pytest.mark.parametrize("happens", ["a reload", "an end", "a cancellation"])
@pytest.mark.parametrize(
    "args", [("promise=all",), ("rank=fcfs", "promise=2"), ("rank=area",), ("candidates=shortest",)]
)
def test_windows_end_where_a_head_is_to_start_that_no_pass_has_looked_for(args, happens):
    """No pending job fits after that, so no pass goes through the queue."""
    instance = loaded("sched-backfill", *args, nodes=4, cores=1)
    instance.submit(nodes=2, duration=1000)
    longest = instance.submit(nodes=1, duration=4000)
    instance.run_until_idle()
    first = instance.submit(nodes=4, duration=100)
    instance.submit(nodes=4, duration=100)
    instance.run_until_idle()
    free, length = 1, 4000
    if happens == "a reload":
        instance.unload()
        instance.load("sched-backfill", *args)
    elif happens == "an end":
        longest.end()
        free, length = 2, 1000
    else:
        first.cancel()
    instance.run_until_idle()
    (kind,) = instance.request("sched.windows", {})["kinds"]
    assert kind["steps"] == [[free, instance.start_time + length]]
    if args != ("rank=area",):  # by which it may go first
        long, short = (instance.submit(nodes=1, duration=length + more) for more in (100, -100))
        instance.run_until_idle()
        assert (long.t_start, short.t_start) == (None, instance.now())


def test_one_that_has_passed_is_void_though_it_can_start_now():
    instance = loaded("sched-backfill", "promise=all", "within=0", nodes=4, cores=1)
    running = instance.submit(nodes=4, duration=1000)
    job = instance.submit(nodes=4, duration=100)
    instance.run_until_idle()
    instance.unload()
    instance.advance(1001)
    assert running.state == "inactive"
    instance.load("sched-backfill", "promise=all", "within=0")
    instance.run_until_idle()
    assert job.state == "running"
    found = stats(instance)
    assert (found["void"], found["kept"], found["violated"]) == ({"unloaded": 1}, 0, 0)


def test_one_that_needs_a_node_that_has_gone_is_void(promised):
    promised.unload()
    promised.mark_down("3")
    promised.load("sched-backfill", "promise=all", "within=0")
    promised.run_until_idle()
    assert stats(promised)["void"] == {"unloaded": 2} and stats(promised)["violated"] == 0


def waiting_for(rig, count):
    """Jobs 5 and 6 were promised four nodes; `count` jobs are said to come."""
    rig.store(KEY, {"version": 1, "latest": [[5, rig.now], [6, rig.now + 5000]]})
    ready = rig.manager.methods["sched-ready"]

    def counting(msg):
        respond = rig.manager.respond
        rig.manager.respond = lambda msg, payload=None: respond(msg, {"count": count})
        ready(msg)
        del rig.manager.respond

    rig.manager.methods["sched-ready"] = counting
    rig.load("sched-backfill", "promise=all", "within=0", "rank=shortest")
    rig.arrive(1, whole(4, 1))


@pytest.mark.parametrize("how", ["all came", "as many came", "time is over"])
def test_no_job_starts_before_the_promised_ones_have_come(how):
    rig = Rig(R(4, 4))
    waiting_for(rig, 3)
    assert rig.started() == []
    if how == "time is over":
        assert rig.started(after=4) == []
        assert rig.started(after=2) == [1]
        return
    rig.alloc(5, whole(4, 50))
    assert rig.started() == []
    # Job 6 may have been canceled meanwhile, but then another one has come.
    rig.alloc(6 if how == "all came" else 7, whole(4, 50))
    assert rig.started() == [5]


@pytest.mark.parametrize("restart", [False, True])
def test_a_stop_of_the_queue_takes_no_promise(rig, restart):
    """`flux queue stop` withdraws all requests, and an instance that shuts down stops its queues."""
    rig.alloc(3, whole(4, 50), t_submit=rig.begin)
    assert [rig.shown(jobid)["t_latest"] - rig.begin for jobid in (2, 3)] == [HOUR, HOUR + 50]
    rig.cancel(2)
    rig.cancel(3, wait=0)
    if restart:
        rig.reload("sched-backfill", "promise=all", "within=1h")
    # Made anew, in this order, the promises would be exchanged.
    for jobid in (3, 2):
        rig.arrive(jobid, whole(4, 50), t_submit=rig.begin)
    assert [rig.shown(jobid)["t_latest"] - rig.begin for jobid in (2, 3)] == [HOUR, HOUR + 50]
    assert (stats(rig)["restored"], stats(rig)["void"]) == (2, {})


def test_resources_of_a_withdrawn_job_may_be_promised_to_others_and_it_is_told(rig):
    rig.cancel(2)
    rig.arrive(3, whole(4, 50), t_submit=rig.begin)
    rig.alloc(2, whole(4, 50), t_submit=rig.begin)
    assert [rig.shown(jobid)["t_latest"] - rig.begin for jobid in (2, 3)] == [HOUR + 50, HOUR]
    assert stats(rig)["void"] == {"unloaded": 1}
    assert any("ƒ3:" in line and "stopped queue" in line for line in rig.logged(6))


def test_latest_starts_of_canceled_jobs_are_kept_for_the_last_of_them(rig, monkeypatch):
    monkeypatch.setattr(latest_starts, "WITHDRAWN_MAX", 1)
    rig.arrive(3, whole(4, 50), t_submit=rig.begin)
    rig.cancel(2)
    rig.cancel(3, wait=0)
    rig.unload()
    assert [jobid for jobid, _ in json.loads(rig.kvs_value(KEY))["latest"]] == [3]


def test_latest_starts_are_written_once_a_minute(rig):
    for jobid in range(3, 43):
        rig.arrive(jobid, whole(4, 50), wait=3)
    written = [commit for commit in rig.kvs.commits if commit["changes"][0][0] == KEY]
    assert len(written) == 1 + 120 // 60


def test_a_question_between_the_steps_of_a_pass_changes_no_start(monkeypatch):
    """Asked about one of two heads: the other's nodes are kept for both by the rest of the pass."""
    rig = Rig(R(8, 4, properties={"a": "0-3", "b": "4-7"}), "sched-backfill", "promise=all")

    for jobid, queue in ((1, "a"), (2, "b")):
        rig.alloc(jobid, whole(3, 1000, constraints={"properties": [queue]}))
    rig.alloc(3, whole(1, 10, constraints={"properties": ["a"]}))
    rig.alloc(4, whole(1, 10, constraints={"properties": ["b"]}))
    for jobid, queue in ((5, "a"), (6, "b")):
        rig.alloc(jobid, whole(4, 100, constraints={"properties": [queue]}))
    limits = [3000] * 600 + [2000]  # all too long to go before job 5
    for jobid, limit in enumerate(limits, 7):
        rig.alloc(jobid, whole(1, limit, constraints={"properties": ["a"]}))
    rig.settle()
    decision = rig.sched.decision
    plan_of_heads, asked = decision.plan_of_heads, []

    def in_pass(heads):
        if not asked:
            asked.append(rig.send("sched.explain", {"id": 5}))
        return plan_of_heads(heads)

    monkeypatch.setattr(decision, "plan_of_heads", in_pass)
    rig.free(3)
    assert rig.started() == [1, 2, 3, 4] and asked
