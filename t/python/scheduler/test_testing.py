# SPDX-License-Identifier: LGPL-3.0-or-later
"""flux.scheduler.testing: a fake instance as the author of a policy uses it."""

import errno
import heapq

import pytest
from peers import Guide, loaded

from flux.scheduler import Scheduler
from flux.scheduler.testing import FakeInstance, SchedulerErrors, jobspec, make_R


@pytest.fixture
def instance():
    """Four nodes of one core under the shortest policy."""
    return loaded(Guide, nodes=4)


# -- loading ---------------------------------------------------------------------------------------


def test_a_file_with_one_class_alone_needs_no_mod_main(tmp_path):
    path = tmp_path / "my-sched.py"
    path.write_text("import flux.scheduler\nclass Mine(flux.scheduler.Scheduler): pass\n")
    assert FakeInstance().load(path).name == "my-sched"
    path.write_text("from flux.scheduler import Scheduler\nclass Mine(Scheduler): pass")
    with pytest.raises(ValueError, match=r"my-sched.py: .*\(Scheduler, Mine\); define mod_main"):
        FakeInstance().load(path)


@pytest.mark.parametrize("name", ["no-such-scheduler", "./no-such-file.py"])
def test_a_missing_module_cannot_be_loaded(name):
    with pytest.raises(FileNotFoundError):
        FakeInstance().load(name)


def test_there_is_one_scheduler_at_a_time(instance):
    with pytest.raises(RuntimeError, match="unload"):
        instance.load(Guide)


# -- jobs ------------------------------------------------------------------------------------------


def test_jobs_run_for_their_time_limit_and_free_their_resources():
    instance = loaded(Guide, nodes=4, cores=8)
    first = instance.submit(nodes=4, cores=8, duration=600)
    second = instance.submit(slots=3, cores=2, duration=60, runtime=10)
    assert first.state == second.state == "pending"
    instance.run_until_idle()
    assert instance.running() == [first] and instance.pending() == [second]
    assert (first.ranks, first.hosts, first.t_start) == ("0-3", "n[0-3]", instance.start_time)
    assert first.expiration == first.t_start + 600
    assert (second.ranks, second.hosts, second.t_start) == (None, None, None)
    instance.advance(599.5)
    assert instance.running() == [first]
    instance.advance(0.5)
    assert (first.state, first.result, first.t_end) == ("inactive", "completed", instance.now())
    assert instance.running() == [second]
    assert second.R["execution"]["R_lite"][0]["children"] == {"core": "0-5"}
    instance.advance(10)
    assert second.t_end == second.t_start + 10
    assert instance.scheduler.resources.copy_allocated().dumps() == ""


def test_a_job_without_a_limit_runs_until_it_is_ended(instance):
    job = instance.submit()
    instance.advance(1e6)
    assert job.state == "running" and job.expiration == 0
    job.end()
    instance.run_until_idle()
    assert job.result == "completed"
    assert instance.scheduler.resources.copy_allocated().dumps() == ""
    with pytest.raises(ValueError, match="job 1 is inactive"):
        job.end()


@pytest.mark.parametrize("value", [-1, float("nan"), "60"])
def test_what_is_no_number_of_seconds_is_refused(instance, value):
    for call in (
        lambda: instance.submit(duration=value),
        lambda: instance.submit(runtime=value),
        lambda: instance.advance(value),
    ):
        with pytest.raises(ValueError, match="expected seconds, 0 or more"):
            call()
    assert not instance.jobs and instance.now() == instance.start_time


def test_a_job_that_can_never_run_says_why(instance):
    job = instance.submit(nodes=5)
    instance.run_until_idle()
    assert (job.state, job.result) == ("inactive", "failed")
    assert "need 5 node(s)" in job.note and job.note in repr(job)


def test_part_of_a_job_comes_back_first():
    freed = []

    class Noting(Guide):
        def free(self, jobid, R, final=False):
            freed.append((R.dumps(), final))
            super().free(jobid, R, final=final)

    instance = loaded(Noting, nodes=4)
    job = instance.submit(nodes=4)
    instance.run_until_idle()
    job.release("1-2")
    next_job = instance.submit(nodes=1)
    instance.run_until_idle()
    assert next_job.ranks == "1"
    with pytest.raises(ValueError, match="rank 7"):
        job.release("7")
    job.end()
    instance.run_until_idle()
    assert freed == [("rank[1-2]/core0", False), ("rank[0,3]/core0", True)]


def test_a_scheduler_may_refuse_to_move_an_end():
    class Strict(Guide):
        def expiration(self, msg, jobid, expiration):
            self.handle.respond_error(msg, errno.EPERM, "no")

    instance = loaded(Strict)
    job = instance.submit(duration=100)
    instance.run_until_idle()
    with pytest.raises(PermissionError, match="no"):
        job.set_expiration(0)
    assert job.expiration == job.t_start + 100


def test_estimates_and_reasons_are_seen_as_users_see_them():
    instance = loaded("sched-backfill", nodes=4, cores=8)
    wide = instance.submit(nodes=3, cores=8, duration=3600)
    whole = instance.submit(nodes=4, cores=8, duration=600)
    short = instance.submit(nodes=1, cores=8, duration=600)
    instance.advance(1)
    assert instance.running() == [wide, short]
    assert whole.t_estimate == wide.t_start + 3600
    assert whole.reason_pending.startswith("insufficient resources")
    assert whole.annotations["sched"]["t_estimate_kind"] == "promised"
    assert short.t_estimate is None and short.reason_pending is None
    assert instance.report().splitlines()[0] == "ƒ2: running on n[0-2] since 0 s"
    assert instance.report().splitlines()[1].startswith("ƒ3: pending: starts at 3600 s, insuff")
    instance.advance(3600)
    assert whole.t_start == wide.t_start + 3600
    assert whole.t_estimate is None and whole.reason_pending is None


# -- reloads ---------------------------------------------------------------------------------------


def test_a_job_whose_resources_cannot_be_taken_over_fails(instance):
    job = instance.submit(nodes=4)
    instance.run_until_idle()
    instance.unload()
    instance.remove_ranks("2")
    instance.check_errors = False
    instance.load("sched-fifo")
    assert (job.result, job.note) == ("failed", "failed to reallocate R for running job")
    assert instance.scheduler.resources.copy_allocated().dumps() == ""


@pytest.mark.parametrize("change", ["mark_down", "mark_up", "remove_ranks"])
def test_a_rank_that_is_not_there_is_an_error(instance, change):
    with pytest.raises(ValueError, match="idset is out of range"):
        getattr(instance, change)("3-4")


def test_a_job_on_a_rank_that_is_down_is_an_error(instance):
    instance.mark_down("2")
    instance.run_until_idle()
    instance.scheduler.resources.mark_up("2")  # it forgets that
    instance.submit(nodes=4)
    with pytest.raises(SchedulerErrors, match="job ƒ2: rank 2 is down"):
        instance.run_until_idle()


def test_a_scheduler_that_stops_itself_is_gone():
    class Stopping(Guide):
        def resource_update(self):
            self.stop()

    instance = loaded(Stopping, nodes=2)
    job = instance.submit(nodes=2)
    instance.mark_down("0")
    instance.run_until_idle()
    assert not instance.is_loaded and job.state == "pending"
    with pytest.raises(OSError) as caught:
        instance.request("sched.quiescent")
    assert caught.value.errno == errno.ENOSYS


def test_waiting_for_an_answer_that_never_comes_is_an_error():
    class Deaf(Guide):
        def schedule(self):
            self.handle.service_register("mine").get()
            self.handle.rpc("mine.ask").get()

    instance = loaded(Deaf)
    instance.submit()
    with pytest.raises(SchedulerErrors, match="waits for an answer that will never come"):
        instance.run_until_idle()


# -- services for a policy -------------------------------------------------------------------------


def test_a_service_of_the_test_answers_the_policy():
    class Asking(Scheduler):
        def schedule(self):
            while self._queue:
                job = heapq.heappop(self._queue)
                if self.handle.rpc("oracle.may-run", {"id": job.jobid}).get()["answer"]:
                    job.request.success(self.resources.alloc(job.jobid, job.resource_request))
                else:
                    job.request.deny("the oracle says no")

    def may_run(payload):
        if payload["id"] == 3:
            raise OSError(errno.EIO, "out of sight")
        return {"answer": payload["id"] == 1}

    instance = FakeInstance(cores=4)
    instance.add_service("oracle", {"may-run": may_run})
    instance.load(Asking)
    jobs = [instance.submit(), instance.submit()]
    instance.run_until_idle()
    assert [job.state for job in jobs] == ["running", "inactive"]
    assert jobs[1].note == "the oracle says no"
    instance.submit()
    with pytest.raises(SchedulerErrors, match="out of sight"):
        instance.run_until_idle()


def test_configuration_and_attributes_are_those_of_the_instance():
    class Reading(Guide):
        def __init__(self, h, *args):
            super().__init__(h, *args)
            self.limit = h.conf_get("sched-mine.limit", 3)
            self.rank = h.attr_get("rank")

    assert FakeInstance(config={"sched-mine": {"limit": 7}}).load(Reading).limit == 7
    scheduler = FakeInstance().load(Reading)
    assert (scheduler.limit, scheduler.rank) == (3, "0")


def test_an_event_reaches_a_policy_that_has_subscribed():
    from flux.brokermod import event_handler

    heard = []

    class Listening(Guide):
        @event_handler("site.power", prefix=False)
        def power(self, msg):
            heard.append(msg.payload)

    instance = loaded(Listening)
    instance.publish("site.power", {"watts": 7})
    instance.publish("site.weather", {})
    instance.run_until_idle()
    assert heard == [{"watts": 7}]


def test_dicts_of_the_builders_are_passed_by_name(instance):
    with pytest.raises(TypeError, match="passed as R="):
        FakeInstance(make_R(4))
    with pytest.raises(TypeError, match="passed as jobspec="):
        instance.submit(jobspec(4))


def test_two_runs_of_one_test_are_the_same():
    def run():
        instance = loaded("sched-backfill", "reservations=3", nodes=8, cores=4)
        for number in range(12):
            instance.submit(nodes=1 + number * 7 % 8, cores=4, duration=100 + number * 37 % 500)
            instance.advance(number % 5)
        instance.advance(5000)
        return instance.report(), instance.log

    assert run() == run()
