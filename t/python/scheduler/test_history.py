"""Run times of jobs that have ended: what is predicted of them, and what is kept."""

import json
import math

import pytest
from peers import R, Rig, jobspec

from flux.scheduler.history import RunTimes, narrow_to_wide, user_only
from flux.scheduler.policies import Backfill


def test_the_narrowest_class_with_two_run_times_counts():
    history = RunTimes()
    assert history.predict(1, 4, 100.0) is None
    history.learn(1, 4, 100.0, 10.0)
    assert history.predict(1, 4, 100.0) is None
    history.learn(1, 8, 100.0, 30.0)
    assert history.predict(1, 4, 100.0) == 20.0  # of the user and the limit
    history.learn(1, 4, 100.0, 12.0)
    assert history.predict(1, 4, 100.0) == 11.0
    assert history.predict(1, 8, 100.0) == 21.0
    assert history.predict(1, 8, 999.0) == 21.0  # of the user
    history.learn(1, 4, 100.0, 2.0)
    assert history.predict(1, 4, 100.0) == 7.0  # the last two


def test_one_user_does_not_change_what_is_predicted_of_another():
    history = RunTimes()
    history.learn(1, 4, 100.0, 10.0)
    history.learn(1, 4, 100.0, 20.0)
    for _ in range(100):
        history.learn(2, 4, 100.0, 99.0)
    assert history.predict(1, 4, 100.0) == 15.0
    assert history.predict(3, 4, 100.0) is None


@pytest.mark.parametrize("run", [math.nan, math.inf, -1.0, -math.inf])
def test_what_is_no_time_is_not_learnt(run):
    history = RunTimes()
    history.learn(1, 4, 100.0, run)
    assert len(history) == 0


def test_memory_is_bounded_and_keeps_the_classes_used_last():
    history = RunTimes(user_only, most=3)
    for userid in range(10):
        history.learn(userid, 1, 10.0, 1.0)
        history.learn(userid, 1, 10.0, 1.0)
    assert len(history) == 3
    assert history.predict(9, 1, 10.0) == 1.0
    assert history.predict(6, 1, 10.0) is None


def test_classes_of_a_site():
    history = RunTimes(lambda userid, size, limit: [("small" if size < 8 else "large",)])
    history.learn(1, 2, 10.0, 3.0)
    assert history.predict(2, 4, 50.0) is None
    history.learn(2, 4, 10.0, 5.0)
    assert history.predict(3, 4, 50.0) == 4.0


def test_over_a_restart():
    history = RunTimes(narrow_to_wide)
    for run in (1.0, 2.0, 3.0):
        history.learn(1, 4, 100.0, run)
    history.learn(1, 4, math.inf, 7.0)  # of a class that JSON has no word for
    again = RunTimes()
    again.learn(2, 4, 100.0, 50.0)
    again.restore(json.loads(json.dumps(history.to_dict())))
    assert again.predict(1, 4, 100.0) == 2.5
    again.learn(2, 4, 100.0, 60.0)
    assert again.predict(2, 4, 100.0) == 55.0


@pytest.mark.parametrize(
    "stored", [None, [], {}, {"version": 99, "classes": []}, {"version": 1, "classes": [[1]]}]
)
def test_what_cannot_be_read_is_refused(stored):
    with pytest.raises(ValueError):
        RunTimes().restore(stored)


def test_a_scheduler_learns_and_knows_what_runs():
    ended = []

    class Watching(Backfill):
        def ended(self, job, run, result):
            super().ended(job, run, result)
            ended.append((job.jobid, run, result))

    rig = Rig(R(4, 4))
    rig.load(Watching, "predict=last2", "rank=shortest")
    begin = rig.now
    for jobid, run in [(1, 10), (2, 30), (3, 120)]:
        rig.alloc(jobid, jobspec(1, nodes=1, cores=4, duration=100), userid=7)
        rig.settle()
        running = rig.sched.running[jobid]
        assert (running.userid, running.size, running.limit) == (7, 4, 100.0)
        assert running.end == running.start + 100
        rig.wait(run)
        rig.free(jobid)
        rig.settle()
    assert rig.now > begin
    assert rig.sched.running == {}
    # What is beyond the limit is clean-up.
    assert [(jobid, round(run), result) for jobid, run, result in ended] == [
        (1, 10, None),
        (2, 30, None),
        (3, 100, "timeout"),
    ]
    assert rig.sched.history.predict(7, 1, 5.0) == pytest.approx(65, abs=0.5)
    rig.alloc(4, jobspec(1, nodes=1, cores=4, duration=100), userid=7)
    rig.settle()
    assert rig.sched.running[4].predicted == pytest.approx(65, abs=0.5)
