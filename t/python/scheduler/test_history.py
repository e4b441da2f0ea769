"""Run times of jobs that have ended: the predictions made of them, and the records kept."""

import errno
import json
import math

import pytest
from peers import R, Rig, jobspec

from flux.scheduler.history import MAX_CLASSES_OF_USER, RunTimes, user_only
from flux.scheduler.policies import Backfill
from flux.scheduler.testing.services import FakeService


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
    for _ in range(2):  # of another user
        history.learn(2, 4, 100.0, 99.0)
    for run in (math.nan, math.inf, -1.0, -math.inf):  # these are invalid
        history.learn(1, 4, 100.0, run)
    assert history.predict(1, 4, 100.0) == 7.0 and history.predict(3, 4, 100.0) is None


def test_memory_is_bounded_and_keeps_the_classes_used_last():
    history = RunTimes(user_only, most=3)
    for userid in range(10):
        history.learn(userid, 1, 10.0, 1.0)
        history.learn(userid, 1, 10.0, 1.0)
    assert len(history) == 3
    assert history.predict(9, 1, 10.0) == 1.0
    assert history.predict(6, 1, 10.0) is None


def stored_and_restored(history, into):
    into.restore(json.loads(json.dumps(list(history.stored()))))
    return into


def test_run_times_learnt_since_count_more_than_restored_ones():
    history, again = RunTimes(), RunTimes()
    for run in (10.0, 20.0):
        history.learn(1, 4, 100.0, run)
    for run in (70.0, 80.0):
        again.learn(1, 4, 100.0, run)
    assert stored_and_restored(history, again).predict(1, 4, 100.0) == 75.0


def test_a_user_of_many_classes_has_only_his_own_forgotten():
    history = RunTimes(most=MAX_CLASSES_OF_USER + 100)
    for run in (10.0, 20.0):
        history.learn(1, 4, 100.0, run)
    for limit in range(3 * MAX_CLASSES_OF_USER):  # each job with another limit
        history.learn(2, 1, 1000.0 + limit, 5.0)
    assert history.predict(1, 4, 100.0) == 15.0
    assert history.predict(2, 1, 7.0) == 5.0  # by the widest class
    assert len(history) == MAX_CLASSES_OF_USER + 3
    # After a restart it is still known whose a class is.
    history = stored_and_restored(history, RunTimes(most=MAX_CLASSES_OF_USER + 100))
    for limit in range(3 * MAX_CLASSES_OF_USER):
        history.learn(2, 1, 9000.0 + limit, 5.0)
    assert history.predict(1, 4, 100.0) == 15.0


@pytest.mark.parametrize("stored", [None, 1, [1], [[1, 2]], [[[1], ["x"], 0]], [[[[]], [1.0], 0]]])
def test_an_unreadable_value_is_refused(stored):
    with pytest.raises(ValueError):
        RunTimes().restore(stored)


# -- over reloads ----------------------------------------------------------------------------------

KEY = "checkpoint.sched-history"
SPEC = jobspec(1, nodes=1, cores=4, duration=100)
PREDICTING = ("sched-backfill", "rank=shortest", "predict=class")


class JobList(FakeService):
    """``job-list``: inactive jobs, as a test says."""

    def __init__(self, instance):
        functions = {"list": self.list_jobs, "list-id": lambda asked: {"job": self.of(asked["id"])}}
        super().__init__(instance, "job-list", {})
        self.serve(functions)
        self.jobs = []
        self.asked = []

    def add(self, jobid, run, userid=7, cleanup=50.0, result=1, **more):
        end = self.instance.now()
        job = {"id": jobid, "userid": userid, "ncores": 4, "duration": 100.0, "result": result}
        job.update(t_run=end - run, t_cleanup=end, t_inactive=end + cleanup)
        job.update(more)
        self.jobs.append(job)

    def of(self, jobid):
        for job in self.jobs:
            if job["id"] == jobid:
                return job
        raise OSError(errno.ENOENT, "unknown job")

    def list_jobs(self, asked):
        self.asked.append(asked)
        found = [job for job in self.jobs if job["t_inactive"] > asked["since"]]
        return {"jobs": found[::-1][: asked["max_entries"]]}


def run_job(rig, jobid, run, cleanup=0):
    """Run a job of user 7, whose resources come back some seconds after its end."""
    rig.arrive(jobid, SPEC, userid=7, wait=run)
    if "job-list" in rig.instance.services:
        rig.instance.services["job-list"].add(jobid, run, cleanup=cleanup)
    rig.free(jobid, after=cleanup, wait=0)


def predicted(rig):
    return rig.sched.history.predict(7, 4, 100.0)


@pytest.fixture
def listed():
    """A scheduler that predicts, where there is a job-list."""
    rig = Rig(R(4, 4))
    rig.list = rig.instance.services["job-list"] = JobList(rig.instance)
    return rig


def test_the_learnt_is_there_after_a_reload():
    rig = Rig(R(4, 4), *PREDICTING)
    run_job(rig, 1, 20)
    run_job(rig, 2, 40)
    rig.unload()
    assert json.loads(rig.kvs_value(KEY))["version"] == 1
    rig.load(*PREDICTING)
    assert predicted(rig) == pytest.approx(30)
    rig.unload()
    # Classes by another function are others.
    rig.load("sched-backfill", "rank=shortest", "predict=last2")
    assert predicted(rig) is None


def test_it_is_saved_rarely():
    rig = Rig(R(4, 4), *PREDICTING)
    for jobid in range(1, 41):
        run_job(rig, jobid, 60)
    commits = [key for commit in rig.kvs.commits for key, _ in commit["changes"] if key == KEY]
    assert len(commits) == 40 * 60 // 600
    history = rig.sched.history
    rig.instance.handle.close()  # it dies
    assert len(json.loads(rig.kvs_value(KEY))["classes"]) == len(history) == 3


def test_cleanup_is_not_run_time(listed):
    results = []

    class Watching(Backfill):
        def ended(self, job, run, result):
            super().ended(job, run, result)
            results.append((job.jobid, round(run), result))

    listed.load(Watching, "rank=shortest", "predict=class")
    run_job(listed, 1, 20, cleanup=60)
    run_job(listed, 2, 30, cleanup=500)
    assert results == [(1, 20, "completed"), (2, 30, "completed")]
    assert predicted(listed) == pytest.approx(25)
    # One that job-list does not know of, or knows nothing of.
    listed.arrive(3, SPEC, userid=7, wait=40)
    listed.free(3, wait=0)
    listed.list.jobs.append({"id": 4})
    listed.arrive(4, SPEC, userid=7, wait=150)
    listed.free(4, wait=0)
    assert results[2:] == [(3, 40, None), (4, 100, "timeout")]


def test_the_first_load_learns_of_jobs_that_ended_before(listed):
    for jobid, run in enumerate((90.0, 10.0, 30.0), 1):
        listed.list.add(jobid, run, t_inactive=listed.now + jobid)
    listed.list.jobs.append({"id": 9, "userid": 7, "t_inactive": listed.now + 9})  # never ran
    listed.load(*PREDICTING)
    assert predicted(listed) == pytest.approx(20)


def test_jobs_that_end_while_no_scheduler_is_loaded_or_after_a_crash(listed):
    listed.load(*PREDICTING)
    run_job(listed, 1, 20)
    listed.wait(700)
    run_job(listed, 2, 40)  # saved
    run_job(listed, 3, 50)  # not yet
    saved = json.loads(listed.kvs_value(KEY))
    listed.unload()
    listed.store(KEY, saved)
    listed.wait(10)
    listed.list.add(4, 70.0, cleanup=0)
    listed.load(*PREDICTING)
    assert listed.list.asked[-1]["since"] == saved["through"] > 0
    assert predicted(listed) == pytest.approx(60)


@pytest.mark.parametrize("what", ["float('nan')", "-5", "'x'", "1e99"])
def test_a_prediction_that_is_none_is_compared_as_it_was_used(tmp_path, what):
    (tmp_path / "site.py").write_text(f"def f(scheduler, job):\n    return {what}\n")
    rig = Rig(R(4, 4), "sched-backfill", "rank=shortest", f"predict={tmp_path / 'site.py'}:f")
    run_job(rig, 1, 50)
    figures = rig.sched.stats_get()["predictions"]
    assert figures["jobs"] == (what != "'x'")
    assert figures["accuracy"] == pytest.approx(0.5 if figures["jobs"] else 0, abs=0.01)
