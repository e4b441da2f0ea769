# SPDX-License-Identifier: LGPL-3.0-or-later
"""When jobs are likely to start: run times that are drawn, calibration by hand-computed cases, and answers to users.

How right it is on recorded jobs is in ``doc/evidence``.
"""

import json
import math

import pytest
from peers import R, Rig, jobspec

from flux.scheduler import odds_service
from flux.scheduler.policies import Backfill, Fifo
from flux.scheduler.projection import fork
from flux.scheduler.projection import odds as odds_module
from flux.scheduler.projection.fork import Projections
from flux.scheduler.projection.odds import Calibration, Draws, Played, RunShares
from flux.scheduler.projection.player import SECONDS_PER_STEP
from flux.scheduler.requests import RunningJob

# -- run times that are drawn ----------------------------------------------------------------------


def learnt(*jobs):
    """Shares of (userid, limit, run) of jobs."""
    shares = RunShares()
    for job in jobs:
        shares.learn(*job)
    return shares


def drawn(shares, userid=1, limit=100.0, elapsed=0.0):
    """All run times that plays draw for jobs of a user."""
    jobs = [RunningJob(jobid, userid, 1, limit, 0.0, limit) for jobid in range(5)]
    plays = [Draws(shares, play) for play in range(200)]
    return {round(play.run_of(job, elapsed), 6) for job in jobs for play in plays}


OWN = [(1, 200.0, 20.0), (1, 50.0, 25.0), (1, 100.0, 80.0), (1, 10.0, 99.0)] * 2  # .1, .5, .8, 1
OTHERS = [(2, 100.0, 30.0)] * 8


@pytest.mark.parametrize(
    "jobs, asked, found",
    [
        (OWN + OTHERS, {}, {10, 50, 80, 100}),
        (OWN + OTHERS, {"limit": 1000.0}, {100, 500, 800, 1000}),
        # Of a running job those that ran for longer than it has.
        (OWN + OTHERS, {"elapsed": 50.0}, {80, 100}),
        (OWN + OTHERS, {"elapsed": 79.9}, {80, 100}),
        (OWN[:4] + OTHERS, {}, {10, 50, 80, 100, 30}),  # too few of the user's own
        (OWN + OTHERS, {"userid": 2}, {30}),
        (OWN + OTHERS, {"userid": 2, "elapsed": 40.0}, {50, 80, 100}),  # none of its own did
        (OWN + OTHERS, {"userid": 3}, {10, 50, 80, 100, 30}),
        (OTHERS, {"elapsed": 40.0}, {100}),  # none of all: the limit
        ([], {}, {100}),
        # Jobs without a limit are like others without one.
        (OWN + [(1, math.inf, 7.0)] * 8, {"limit": math.inf}, {7}),
        (OWN + [(1, math.inf, 7.0)] * 8, {}, {10, 50, 80, 100}),
        (OWN, {"limit": math.inf}, {math.inf}),
    ],
)
def test_run_times_are_drawn_from_jobs_like_it(jobs, asked, found):
    assert drawn(learnt(*jobs), **asked) == found


def test_the_same_play_draws_the_same_whatever_else_is_asked():
    shares = learnt(*[(1, 100.0, float(run)) for run in range(60)])
    jobs = [RunningJob(jobid, 1, 1, 100.0, 0.0, 100.0) for jobid in range(30)]
    first, again, other = Draws(shares, 1), Draws(shares, 1), Draws(shares, 2)
    forth = [first.run_of(job, 0.0) for job in jobs]
    back = [again.run_of(job, 0.0) for job in reversed(jobs)]
    assert forth == back[::-1]
    assert forth != [other.run_of(job, 0.0) for job in jobs]


@pytest.mark.parametrize(
    "limit, run", [(100.0, math.nan), (100.0, -1.0), (100.0, math.inf), (0.0, 1.0)]
)
def test_invalid_times_are_not_learnt(limit, run):
    assert RunShares().stored() == learnt((1, limit, run)).stored()


def test_memory_is_bounded_and_keeps_the_users_whose_jobs_ended_last(monkeypatch):
    monkeypatch.setattr(odds_module, "MAX_USERS", 3)
    shares = RunShares()
    for userid in (1, 2, 3, 1, 4):
        for _ in range(1000):
            shares.learn(userid, 100.0, 50.0)
    stored = shares.stored()
    assert [userid for userid, _, _ in stored] == [3, 1, 4]
    assert {len(known) for _, _, known in stored} == {odds_module.JOBS_PER_USER}
    assert len(next(shares.representative(9, True))) == odds_module.JOBS_OF_ALL


# -- calibration -----------------------------------------------------------------------------------


def calibrated(*misses):
    """One that has learnt misses, of a user each. All odds have a width of 1000 s."""
    calibration = Calibration()
    for userid, miss in enumerate(misses):
        played = Played(5000.0, 5000.0 + 1000.0 - odds_module.LEAST_WIDTH_S)
        calibration.learn(userid, 0.0, played, 5000.0 + 1000.0 * miss)
    return calibration


@pytest.mark.parametrize(
    "misses, limits, likely, safe",
    [
        # 2000 and the miss of rank ceil(share (n + 1)) times 1000; up to nine the others are taken to be 2.
        ([], None, 2000, 4000),
        ([], 9000.0, 2000, 4000),
        ([], 3000.0, 2000, 3000),  # the start by limits comes before
        ([], 1900.0, 2000, 2000),  # the nine-of-ten time is never the first of the two
        ([0.5], None, 2500, 4000),  # rank 1 of 1; rank 9 of 9, of which eight are 2
        ([-1, 0.1], 2200.0, 2100, 2200),  # rank 2
        ([1, 2, 3, 4, 5, 6, 7, 8], 3000.0, 7000, 10000),  # rank 5; 8 is the largest of nine
        ([9, 8, 7, 6, 5, 4, 3, 2, 1], 3000.0, 7000, 11000),  # rank 5; rank 9
        ([0.1 * n for n in range(19)], None, 2900, 3700),  # rank 10 of 19; rank 18
        ([-0.1 * n for n in range(19)], None, 1100, 1900),
    ],
)
def test_misses_move_the_answers(misses, limits, likely, safe):
    told = calibrated(*misses).corrected(Played(2000.0, 2400.0), limits)
    assert (told.likely, told.safe) == (pytest.approx(likely), pytest.approx(safe))


def test_old_misses_are_forgotten():
    calibration = Calibration()
    for hour in range(odds_module.MAX_MISSES + 5):
        calibration.learn(1, hour * odds_module.BURST_S, Played(0.0, 0.0), 0.0)
    stored = calibration.stored()
    assert len(calibration) == len(stored) == odds_module.MAX_MISSES and stored[0][1] == 5


@pytest.mark.parametrize(
    "starts, found",
    [
        (range(1, 21), (10, 18)),
        (range(20, 0, -1), (10, 18)),
        ([*range(1, 19), math.inf, math.inf], (10, 18)),
        ([*range(1, 18), math.inf, math.inf, math.inf], None),
        (range(1, 11), (5, 9)),  # time was short
        (range(1, 10), None),
    ],
)
def test_results_of_plays(starts, found):
    assert Played.from_starts(list(starts)) == found


# -- answers to users ------------------------------------------------------------------------------

SPEC = jobspec(1, nodes=1, exclusive=True, duration=100)


def busy(policy=Fifo, *args, shares=(50.0,) * 8, userid=7, **keys):
    """One node, on which job 1 runs, of 100 s, whose user's jobs took such run times of 100 s before."""
    rig = Rig(R(1, 4), policy, "queue-depth=unlimited", *args, **keys)
    for run in shares:
        rig.sched.odds.shares.learn(userid, 100.0, run)
    rig.alloc(1, SPEC, userid=userid)
    rig.begun = rig.success(1)["R"]["execution"]["starttime"]
    return rig


@pytest.mark.parametrize("policy", ["sched-fifo", "sched-simple", "sched-backfill"])
def test_when_says_the_likely_start_beside_the_latest(policy):
    rig = busy(policy)
    rig.alloc(2, SPEC, userid=7)
    answer = rig.answer("when", jobspec=SPEC)
    assert answer["start"] == answer["t_p90"] == rig.begun + 200  # no miss is known yet
    assert answer["t_likely"] == rig.begun + 100
    # One that starts at once is certain to.
    rig.cancel(2)
    rig.free(1)
    answer = rig.answer("when", jobspec=SPEC)
    assert answer["verdict"] == "now"
    assert answer["t_likely"] == answer["t_p90"] == answer["start"]


def test_behind_a_job_without_a_limit_a_start_may_be_likely():
    rig = Rig(R(1, 4), Fifo)
    for _ in range(odds_module.LEAST_JOBS):
        rig.sched.odds.shares.learn(0, math.inf, 40.0)
    rig.alloc(1, jobspec(4))
    begun = rig.success(1)["R"]["execution"]["starttime"]
    answer = rig.answer("when", jobspec=jobspec(1, duration=10))
    assert (answer["verdict"], answer["start"]) == ("unknown", None)
    assert answer["reason"] == "a job without a time limit is in the way"
    assert answer["t_likely"] == begun + 40
    assert answer["t_p90"] == begun + 40 + odds_module.UNKNOWN_MISS * odds_module.LEAST_WIDTH_S


@pytest.mark.parametrize("left, likely", [(3000, 1000), (1001, None), (900, None)])
def test_no_start_is_likely_after_the_instance_has_ended(left, likely):
    rig = Rig(R(1, 4), Fifo)
    for _ in range(odds_module.LEAST_JOBS):
        rig.sched.odds.shares.learn(0, math.inf, 1000.0)
    rig.resource.update(expiration=rig.now + left)
    rig.alloc(1, jobspec(4))
    begun = rig.success(1)["R"]["execution"]["starttime"]
    answer = rig.answer("when", jobspec=jobspec(1))
    assert answer["reason"] == "the instance ends before it could start"
    assert answer["t_likely"] == (likely and begun + likely)
    rig.alloc(2, jobspec(4))
    assert rig.explain(2)["t_likely"] == answer["t_likely"]


def test_explain_shows_the_played_times_and_their_correction_until_they_have_passed():
    rig = busy()
    rig.alloc(2, SPEC, userid=7)
    line = rig.answer("explain", all=True)["jobs"][0]
    assert line["t_likely"] is line["t_p90"] is None  # no user has asked about it
    likely = rig.begun + 50
    odds = {"t_likely": likely, "t_p90": likely, "t_limits": rig.begun + 100, "misses": 0}
    for seen in (rig.explain(2), rig.answer("explain", all=True)["jobs"][0]):
        assert (seen["t_likely"], seen["t_p90"]) == (likely, rig.begun + 100)
        assert seen.get("odds", odds) == odds
    rig.wait(55)
    for seen in (rig.explain(2), rig.answer("explain", all=True)["jobs"][0]):
        assert (seen["t_likely"], seen["t_p90"]) == (rig.now, rig.begun + 100)


def test_the_first_answer_is_compared_with_the_start():
    rig = busy()
    rig.alloc(2, SPEC, userid=7)
    rig.explain(2)
    rig.wait(70)
    rig.explain(2)  # by now it is another answer
    rig.free(1)
    start = rig.success(2)["R"]["execution"]["starttime"]
    ((userid, _, miss),) = rig.sched.odds.calibration.stored()
    assert (userid, miss) == (7, round((start - rig.begun - 50) / odds_module.LEAST_WIDTH_S, 3))
    # A job that leaves without a start says nothing.
    rig.alloc(3, SPEC, userid=8)
    rig.explain(3)
    rig.cancel(3, wait=0)
    assert len(rig.sched.odds.calibration) == 1


def test_a_promise_is_kept_so_odds_are_not_beyond_it():
    rig = busy(Backfill)
    rig.alloc(2, SPEC, userid=7)
    assert rig.shown(2)["t_estimate_kind"] == "promised"
    for userid in range(9):  # they started long after they were said to
        rig.sched.odds.calibration.learn(
            userid, 0.0, Played(0.0, 0.0), 100 * odds_module.LEAST_WIDTH_S
        )
    job = rig.explain(2)
    assert job["t_likely"] == job["t_p90"] == job["t_estimate"] == rig.begun + 100
    assert job["odds"]["t_p90"] == rig.begun + 50


def test_pending_jobs_are_told():
    rig = busy(Fifo, "odds-depth=2")
    rig.arrive((2, 3, 4), SPEC, userid=7, wait=30)
    told = [rig.shown(jobid).get("t_likely") for jobid in (2, 3, 4)]
    assert told == [rig.begun + 50, rig.begun + 100, None]
    assert rig.shown(2)["t_p90"] == rig.begun + 100
    # One that is not among the first any more is not told old odds for ever.
    rig.prioritize((4, 31))
    rig.wait(30)
    assert rig.shown(4)["t_likely"] is not None
    assert rig.shown(3).get("t_likely") is None


@pytest.mark.parametrize("args", [(), ("odds-depth=0",)])
def test_where_time_is_virtual_they_are_told_only_if_that_was_asked_for(args):
    rig = busy(Fifo, *args)
    rig.arrive(2, SPEC, userid=7, wait=30)
    assert "t_likely" not in rig.shown(2) and "t_estimate" in rig.shown(2)


def test_off_nothing_is_learnt_kept_or_answered():
    rig = busy("sched-fifo", "odds-depth=0")
    rig.alloc(2, SPEC, userid=7)
    answer = rig.answer("when", jobspec=SPEC)
    assert answer["start"] == rig.begun + 200 and answer["t_likely"] is answer["t_p90"] is None
    assert "odds" not in rig.explain(2)
    before = rig.sched.odds.shares.stored()
    rig.free(1, wait=0)
    assert rig.sched.odds.shares.stored() == before
    rig.unload()
    assert odds_service.KEY not in rig.kvs.values


# -- over a reload ---------------------------------------------------------------------------------


def test_the_learnt_is_there_after_a_reload():
    rig = busy("sched-fifo")
    rig.alloc(2, SPEC, userid=7)
    rig.explain(2)
    rig.free(1, after=80, wait=0)
    kept = list(rig.sched.odds.text())
    rig.reload("sched-fifo")
    assert list(rig.sched.odds.text()) == kept
    stored = json.loads("".join(kept))
    ((userid, hour, miss),) = stored["misses"]
    assert (userid, hour) == (7, rig.begun // odds_module.BURST_S)
    assert miss == pytest.approx(30 / odds_module.LEAST_WIDTH_S, abs=2e-3)
    assert stored["shares"] == [[7, True, [0.5] * 8 + [pytest.approx(0.8, abs=0.01)]]]


def test_the_memory_is_bounded():
    odds = busy("sched-fifo").sched.odds
    for userid in range(odds_module.MAX_USERS + 100):
        for job in range(odds_module.JOBS_PER_USER + 10):
            odds.shares.learn(userid, 3.0, 1.0 + job / 100)
    for hour in range(odds_module.MAX_MISSES + 100):
        odds.calibration.learn(1 << 30, hour * odds_module.BURST_S, Played(0.0, 1.0), 1e6)
    parts = list(odds.text())
    assert sum(map(len, parts)) < 600_000 and max(map(len, parts)) < 50_000


# -- costs -----------------------------------------------------------------------------------------


@pytest.fixture
def plays(monkeypatch):
    """The questions that children were asked, and the steps that each may make."""
    made = []
    ask = Projections.ask

    def noted(self, method, odds=False, **arguments):
        made.append((method, odds))
        answer = yield from ask(self, method, odds, **arguments)
        made.append(answer)
        return answer

    monkeypatch.setattr(Projections, "ask", noted)
    return made


@pytest.mark.parametrize(
    "outdate",
    [
        lambda rig: rig.wait(odds_service.FRESH_S + 1),
        lambda rig: rig.resource.update(down="0"),
        lambda rig: rig.reconfigure({"limits": {"a": {"per": "user", "max": {"jobs": 9}}}}),
    ],
    ids=["a minute", "a node that goes down", "a table"],
)
def test_a_question_costs_so_many_plays_and_the_same_again_none(plays, outdate):
    rig = busy()
    rig.alloc(2, SPEC, userid=7)
    rig.explain(2)
    (question, answer) = [one for one in plays if one != ("estimates", False)][-2:]
    assert question == ("estimates", True) and len(answer["plays"]) == odds_module.PLAYS
    before = len(plays)
    rig.explain(2)
    rig.answer("explain", all=True)
    assert len(plays) == before
    outdate(rig)
    before = plays.count(("estimates", True))
    rig.explain(2)
    assert plays.count(("estimates", True)) == before + 1


def test_users_are_told_in_rounds(plays):
    rig = busy(Fifo, "odds-depth=64")
    for jobid in range(2, 26):
        rig.arrive(jobid, SPEC, userid=7, wait=1)
    rounds = plays.count(("estimates", True))
    assert 1 < rounds <= 1 + 24 // odds_service.ROUND_INTERVAL_S


def test_a_play_makes_so_many_steps_at_most(monkeypatch, plays):
    monkeypatch.setattr("flux.scheduler.projection.player.DRAWN_PLAY_SECONDS", 0.1)
    rig = busy(estimates=False)
    rig.alloc(range(2, 300), SPEC, userid=7)
    answer = rig.answer("when", jobspec=SPEC)
    assert answer["start"] is not None and answer["t_likely"] is answer["t_p90"] is None
    # The job does not start in any: three are enough to know that there are no odds.
    assert plays[-1]["plays"] == [[]] * 3
    assert plays[-1]["took"] <= 2.0 + 3 * (0.1 + 64 * SECONDS_PER_STEP)
    # Where it does not start by limits in the time of a play, none with drawn run times is made.
    monkeypatch.setattr("flux.scheduler.projection.player.PLAY_SECONDS", 0.1)
    for answer in (rig.answer("when", jobspec=SPEC), rig.explain(299)):
        assert answer["t_likely"] is None and plays[-1]["plays"] == []


def test_a_question_makes_fewer_plays_when_time_is_short(monkeypatch, plays):
    rig = busy()
    rig.arrive(2, SPEC, userid=7)
    for seconds, made in ((0.0, odds_module.LEAST_PLAYS), (1e9, odds_module.PLAYS)):
        monkeypatch.setattr(fork, "ODDS_SECONDS", seconds)
        answer = rig.answer("when", jobspec=SPEC)
        assert len(plays[-1]["plays"]) == made and answer["t_likely"] == rig.begun + 100
