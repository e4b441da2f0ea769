# SPDX-License-Identifier: LGPL-3.0-or-later
"""Projections: a forked scheduler that is played forward (`flux.scheduler.projection`).

That answers are exact is shown by ``test_answers.py`` and ``t/bench/answers``; here: the child processes, and the permitted actions of a
site's policy in them.
"""

import math
import os
import signal
import time

import pytest
from peers import R, Rig, Simulation, jobspec, part_of, ruled, whole

from flux.scheduler.admission import AdmissionRule, Deferral
from flux.scheduler.policies import Backfill, Fifo
from flux.scheduler.projection import fork
from flux.scheduler.projection.fork import ProjectionFailed, Projections


class Caller:
    private = False

    def __init__(self, userid=0):
        self.userid = userid

    @property
    def sees_all(self):
        return self.userid == 0

    def may_see(self, userid):
        return True


def full(policy=Fifo, nodes=2, *args):
    """A machine that one job fills for 100 s."""
    rig = Rig(R(nodes, 4), policy, "queue-depth=unlimited", *args)
    rig.arrive(1, jobspec(1, nodes=nodes, exclusive=True, duration=100))
    return rig


def small(duration=10, **keys):
    return jobspec(1, duration=duration, **keys)


def finish_all(asked):
    """Yield (key, answer) of projections by key as they are answered; the parent does not wait by itself."""
    deadline = time.monotonic() + 300
    asked = dict(asked)
    while asked:
        for key, steps in list(asked.items()):
            try:
                next(steps)
            except StopIteration as end:
                del asked[key]
                yield key, end.value
        assert time.monotonic() < deadline, "no answer in 300 s"
        time.sleep(0.002)


def finish(steps):
    """The answer of a projection."""
    ((_, answer),) = finish_all({None: steps})
    return answer


# -- the copy --------------------------------------------------------------------------------------


def test_a_rule_of_a_site_is_asked_as_time_goes_on():
    class NotBefore(AdmissionRule):
        name = "late"

        def check(self, job):
            return None if self.host.now() >= opens else Deferral("the shop opens late", opens)

    rig = Rig(R(1, 4), ruled(Backfill, NotBefore))
    opens = rig.now + 500
    rig.arrive(1, small(), wait=2)
    assert rig.shown(1)["t_estimate"] == opens
    answer = rig.answer("when", jobspec=small())
    assert (answer["verdict"], answer["start"]) == ("later", opens)
    assert answer["reason"] == "the shop opens late"


def test_events_in_the_copy_are_not_seen_outside(monkeypatch):
    forked, fork_once = [], os.fork
    monkeypatch.setattr(os, "fork", lambda: forked.append(fork_once()) or forked[-1])
    rig = full(Backfill)
    rig.arrive(2, jobspec(1, nodes=2, exclusive=True, duration=100))
    before = len(rig.received), dict(rig.kvs.values), len(rig.instance.log)
    events = rig.sched._passes.events
    for _ in range(3):
        rig.answer("when", jobspec=small())
    assert (len(rig.received) - 3, dict(rig.kvs.values), len(rig.instance.log)) == before
    assert rig.sched._passes.events == events and rig.started() == [1]
    assert len(forked) >= 3
    for pid in forked:  # in virtual time, none is left to be reaped
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_a_promise_that_will_not_be_kept_is_no_expected_start():
    """Job 3 goes ahead of job 2 once job 1 has ended: its user is no longer over the soft limit."""
    limits = {"user": {"per": "user", "max": {"nodes": 3}, "soft": True}}
    rig = Rig(R(4, 4), Backfill, "candidates=shortest", config={"limits": limits})
    rig.alloc(1, jobspec(1, nodes=3, exclusive=True, duration=100), userid=1001)
    rig.alloc(2, jobspec(1, nodes=4, exclusive=True, duration=100), userid=1002)
    rig.arrive(3, jobspec(1, nodes=1, exclusive=True), userid=1001, wait=10)
    assert rig.estimate(3) == (100, "planned")
    assert rig.estimate(2) is None


def test_a_newcomer_has_the_default_urgency_unless_priorities_are_no_urgencies():
    rig = full()
    rig.alloc(2, jobspec(8, duration=1000), priority=10)
    begun = rig.success(1)["R"]["execution"]["starttime"]
    assert rig.answer("when", jobspec=small())["start"] == begun + 100
    assert rig.answer("when", jobspec=small(), priority=9)["start"] == begun + 1100
    rig.alloc(3, jobspec(8, duration=1000), priority=5)
    rig.prioritize((2, 4294967295))  # it is expedited
    assert rig.answer("when", jobspec=small())["start"] == begun + 1100
    rig.cancel(3)
    rig.prioritize((2, 50000))
    assert rig.answer("when", jobspec=small())["start"] == begun + 1100
    assert rig.answer("when", jobspec=small(), priority=50001)["start"] == begun + 100
    errnum, answer = rig.ask("sched.when", {"jobspec": small(), "priority": -1})
    assert errnum and answer == "priority=-1 is invalid: expected 0 to 4294967295"


def test_a_play_ends_when_there_is_no_time_left(monkeypatch):
    monkeypatch.setattr("flux.scheduler.projection.player.PLAY_SECONDS", 0.1)
    rig = Rig(R(1, 4), Fifo, "queue-depth=unlimited", estimates=False)
    rig.alloc(range(1, 300), jobspec(4, duration=10))
    answer = rig.answer("when", jobspec=small())
    assert answer["verdict"] == "unknown" and 0 < answer["unplanned"] < 298
    assert answer["reason"] == "it does not start in the time that was played"


def test_an_answer_tells_that_jobs_beyond_the_queue_depth_are_left_out():
    rig = Rig(R(1, 4), Fifo, "queue-depth=2")
    rig.alloc([1, 2], jobspec(4, duration=10))
    assert "warnings" not in rig.answer("when", jobspec=small())
    rig.alloc(3, jobspec(4, duration=10))
    assert rig.answer("when", jobspec=small())["warnings"] == [
        "jobs beyond queue-depth=2 are left out"
    ]


def test_a_job_for_nodes_that_are_down_is_told_so_however_long_the_play():
    rig = Rig(R(2, 4), Backfill, config={"fairshare": {"period": "1m"}})
    rig.resource.update(down="1")
    answer = rig.answer("when", jobspec=jobspec(1, nodes=2, exclusive=True, duration=100))
    assert answer["verdict"] == "unknown"
    assert answer["reason"].endswith("1 free of 2 nodes (1 down)")


@pytest.mark.parametrize("endless", [False, True])
def test_a_job_that_never_starts_costs_few_steps_however_short_the_periods_of_fair_share(
    monkeypatch, endless
):
    monkeypatch.setattr("flux.scheduler.projection.player.PLAY_SECONDS", 0.05)
    rig = Rig(R(2, 4), Backfill, config={"fairshare": {"period": "1m"}}, estimates=False)
    rig.arrive(1, jobspec(4, duration=0 if endless else 30), userid=1001, wait=600)
    rig.resource.update(down="1")
    for jobid in (2, 3):
        rig.alloc(jobid, jobspec(8, duration=10), userid=1000 + jobid)
    answer = rig.answer("when", jobspec=jobspec(8, duration=10))
    # all that would happen was played
    assert (answer["verdict"], answer["unplanned"]) == ("unknown", 0)


# -- children --------------------------------------------------------------------------------------


def newcomer(projections, userid=0, spec=None):
    """The steps of a query, which has been asked."""
    spec = small() if spec is None else spec
    steps = projections.ask("newcomer", jobspec=spec, caller=Caller(userid), priority=None)
    next(steps)
    return steps


@pytest.fixture
def release(monkeypatch):
    """Children wait until this is called."""
    reads, writes = os.pipe()
    play = fork._play

    def held(*args):
        os.read(reads, 1)
        play(*args)

    monkeypatch.setattr(fork, "_play", held)
    yield lambda: os.write(writes, b"x" * 100)
    os.close(reads)
    os.close(writes)


def test_questions_that_come_while_a_child_works_share_the_next(release):
    projections = Projections(full().sched, waits=False)
    asked = [newcomer(projections) for _ in range(6)]
    release()
    answers = [finish(steps) for steps in asked]
    assert projections.count == 2
    # None of them sees the job of another.
    assert {answer["start"] for answer in answers} == {answers[0]["start"]}


@pytest.mark.parametrize("option", ["QUERIES_PER_CHILD", "ODDS_PER_CHILD"])
def test_guests_take_turns_and_come_last(monkeypatch, release, option):
    monkeypatch.setattr(fork, option, 2)
    rig = full()
    projections = Projections(rig.sched, waits=False)
    asked = {}
    for user, number in ((0, 0), (7, 0), (7, 1), (7, 2), (8, 0), (0, 1)):
        if option == "ODDS_PER_CHILD":
            steps = projections.ask("estimates", True, Caller(user), most=1)
            next(steps)
        else:
            steps = newcomer(projections, user)
        asked[user, number] = steps
    release()
    answered = [key for key, _ in finish_all(asked)]
    # Two queries of one child may be answered in the same turn, in either order.
    assert answered[0] == (0, 0)
    assert set(answered[1:3]) == {(0, 1), (7, 0)} and set(answered[3:5]) == {(8, 0), (7, 1)}


def test_of_many_questions_of_a_guest_some_have_odds(monkeypatch):
    monkeypatch.setattr(fork, "ODDS_PER_CHILD", 1)
    projections = Projections(full().sched, waits=False)
    asked = []
    for user in (7, 7, 7, 8, 0):
        asked.append(projections.ask("estimates", True, Caller(user), most=1))
        next(asked[-1])
    # The first is being answered.
    assert [one.odds for one in projections._waiting] == [True, False, True, True]
    assert ["plays" in finish(steps) for steps in asked] == [True, True, False, True, True]


def test_many_questions_that_wait_for_a_child_look_as_often_as_few():
    projections = Projections(full().sched, waits=False)

    projections._next_fork = math.inf  # no child yet
    guests = [newcomer(projections, 1 + number) for number in range(400)]
    pauses = [next(steps) for steps in guests]
    assert sum(1 / pause for pause in pauses) <= 1.001 * fork.POLLING_QUERIES / fork.POLL_S
    owner = projections.ask("newcomer", jobspec=small(), caller=Caller(), priority=None)
    assert next(owner) == fork.POLL_S
    projections._next_fork = 0.0
    # The first that looks has a child made for itself and others, which look for the answers.
    next(guests[0])
    assert next(guests[1]) == fork.POLL_S and next(guests[-1]) == pytest.approx(pauses[-1], rel=0.1)
    projections.stop()


def test_an_answer_waits_for_no_other_of_its_child():
    class Hangs(Fifo):
        def order(self, job):
            if job.userid == 8:
                time.sleep(1000)
            return 0

    projections = Projections(full(Hangs).sched, waits=False)
    asked = [newcomer(projections, user) for user in (0, 7, 8)]
    assert [finish(steps)["denied"] for steps in asked[:2]] == [False, False]
    assert projections._pid
    projections.stop()


def test_a_question_of_a_client_that_has_left_is_not_answered(release):
    projections = Projections(full().sched, waits=False)
    first, left = newcomer(projections), newcomer(projections)
    left.close()
    release()
    assert finish(first)["start"] is not None
    assert projections._waiting == [] and projections.count == 1


class Hangs(Fifo):
    """Its child does not come to an answer."""

    def order(self, job):
        if job.jobid > 1:
            time.sleep(1000)
        return 0


def test_a_child_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(fork, "KILLED_AFTER_S", 0.03)
    rig = full(Hangs)
    for waits in (False, True):
        with pytest.raises(ProjectionFailed) as caught:
            finish(newcomer(Projections(rig.sched, waits)))
        assert str(caught.value) == "the projection was ended, since it took too long"


def test_a_child_that_exits_late_holds_up_no_answer(monkeypatch):
    def play(policy, queries, pipe, niceness):
        fork._answer(policy, 0, queries[0], pipe)
        os.closerange(0, fork.MAX_FD)
        time.sleep(1000)
        os._exit(0)

    monkeypatch.setattr(fork, "_play", play)
    projections = Projections(full().sched, waits=False)
    steps = projections.ask("newcomer", jobspec=small(), caller=Caller(), priority=None)
    assert finish(steps)["denied"] is False
    while projections._pid:  # the end of its answers is read
        projections._go_on()
    (pid,) = projections._exiting
    assert os.waitpid(pid, os.WNOHANG) == (0, 0), "it was waited for"
    os.kill(pid, signal.SIGKILL)
    projections.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_error_in_a_child_is_an_answer():
    projections = Projections(full().sched, waits=True)
    keys = {"jobspec": 5, "caller": Caller(), "priority": None}
    assert finish(projections.ask("newcomer", **keys))["denied"]
    with pytest.raises(ProjectionFailed, match="AttributeError"):
        finish(projections.ask("nothing"))


def test_where_no_process_can_be_forked_the_answer_says_so(monkeypatch):
    def refuse():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    rig = full()
    monkeypatch.setattr(os, "fork", refuse)
    answer = rig.answer("when", jobspec=small())
    assert answer["verdict"] == "unknown"
    assert answer["reason"] == "cannot fork: Resource temporarily unavailable"


def test_a_scheduler_that_ends_leaves_no_child():
    rig = full(Hangs)
    projections = rig.sched._projections
    projections._waits = False
    newcomer(projections)
    pid = projections._pid
    os.kill(pid, signal.SIGSTOP)
    rig.unload()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert projections._pid == 0


@pytest.mark.parametrize("policy", ("sched-fifo", "sched-backfill"))
def test_victims_that_the_job_manager_has_yet_to_tell_of(policy):
    rig = Simulation(R(2, 4), estimates=True)
    rig.manager.methods["getattr"] = lambda msg: None
    table = {"standby": {"rank": 0, "queues": ["standby"], "grace": "5s"}}
    queues = {"batch": {}, "standby": {}}
    rig.load(policy, config={"queues": queues, "preemption": table})
    rig.submit(1, whole(2, 5000, queue="standby"))
    rig.wait(10)
    rig.submit(2, whole(2, 300, queue="batch"))
    rig.wait(5)  # it is being asked since a second after the request
    ((_, start),) = finish(rig.sched._projections.ask("estimates", jobid=2))["starts"]
    assert start == pytest.approx(rig.now + 5, abs=0.1)


@pytest.mark.parametrize("reload", (False, True))
def test_the_rest_of_a_job_that_has_freed_a_part_is_expected_soon(reload):
    rig = Rig(R(2, 4), Fifo)
    rig.arrive(1, whole(2, 5000), wait=10)
    rig.free(1, part_of(rig.success(1)["R"], "0"), final=False)
    if reload:
        rig.will_be_found(1, free="0")
        rig.reload(Fifo)
    assert rig.answer("when", jobspec=whole(2, 10))["start"] == pytest.approx(rig.now, abs=2)
