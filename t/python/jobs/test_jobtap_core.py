# SPDX-License-Identifier: LGPL-3.0-or-later
"""A plugin and the job manager: answers that are taken or refused, and calls that are not allowed, as in flux-core."""

import errno
import threading

import pytest
from in_process import refused

from flux.jobtap import CURRENT_JOB
from flux.scheduler.testing import make_R

DEPEND, PRIORITY, SCHED, RUN, CLEANUP, INACTIVE = 2, 4, 8, 16, 32, 64


@pytest.mark.parametrize("answer", [-1, -7, False])
def test_a_negative_answer_refuses(inst, p, answer):
    p.add_handler("job.validate", lambda p, topic, args: answer)
    by_plugin = "rejected by job-manager plugin 'mine.py'"
    assert by_plugin in refused(errno.EINVAL, inst.submit)
    p.add_handler("job.validate", None)
    id = inst.submit()
    p.add_handler("job.update.attributes.system.x", lambda p, topic, args: answer)
    assert f"update {by_plugin}" in refused(errno.EINVAL, inst.update, id, x=1)
    p.add_handler("conf.update", lambda p, topic, args: answer)
    text = refused(errno.EINVAL, inst.rpc, "config.load", {"config": {}})
    assert f"configuration {by_plugin}" in text
    p.add_handler("job.state.*", lambda p, topic, args: answer)
    inst.load_sched(auto=True)
    id = inst.submit(run_duration=1)
    inst.advance(2)
    assert inst.state(id) == INACTIVE  # this event cannot be refused


#: (event, context, errno) that would leave a job in limbo
LIMBO = [
    ("memo", None, errno.EPROTO),
    ("exception", None, errno.EPROTO),
    ("exception", {"type": "x"}, errno.EPROTO),
    ("priority", {"priority": "x"}, errno.EPROTO),
    ("finish", {"status": None}, errno.EPROTO),
    ("jobspec-update", {}, errno.EPROTO),
    ("prolog-start", {"description": 3}, errno.EPROTO),
    ("submit", {"userid": 1, "urgency": 16, "flags": 0}, errno.EINVAL),
    ("invalidate", None, errno.EINVAL),
    ("jobspec-update", {"attributes.system": 5}, errno.EINVAL),
    ("jobspec-update", {"resources": 1}, errno.EINVAL),
    ("urgency", {"urgency": 99, "userid": 0}, errno.EINVAL),
    ("priority", {"priority": -7}, errno.EINVAL),
    ("priority", {"priority": 1 << 33}, errno.EINVAL),
    ("exception", {"type": "x", "severity": 8, "note": ""}, errno.EINVAL),
    ("set-flags", {"flags": ["nosuch"]}, errno.EINVAL),
    ("alloc", {}, errno.EINVAL),
    ("two words", None, errno.EINVAL),
    *(("x", {"y": value}, errno.EINVAL) for value in ("\ud800", "\0", 1 << 64)),
    # by which resources would be lost
    *((name, None, errno.EINVAL) for name in ("free", "clean", "start", "validate")),
    ("release", {"ranks": "all", "final": True}, errno.EINVAL),
    ("resource-update", {"expiration": 5.5}, errno.EINVAL),
    ("dependency-add", {"description": "x"}, errno.EINVAL),
    ("dependency-remove", {"description": "x"}, errno.EINVAL),
    ("prolog-start", {"description": "x"}, errno.EINVAL),
    ("epilog-finish", {"description": "x", "status": 0}, errno.EINVAL),
    ("exception", {"type": "scheduler-restart", "severity": 0, "note": ""}, errno.EINVAL),
]


@pytest.mark.parametrize("name, context, number", LIMBO)
def test_an_event_that_would_leave_a_job_in_limbo_is_refused(inst, p, name, context, number):
    id = inst.submit()
    before = inst.events(id)
    refused(number, p.event_post, id, name, context)
    assert inst.events(id) == before
    inst.load_sched(auto=True)
    inst.cancel(id)
    assert inst.state(id) == INACTIVE


@pytest.mark.parametrize(
    "updates", [{"resources": 1}, {"version": 2}, {"attributes.system": 5}, 5, {"x": 1}]
)
def test_updates_in_an_answer_are_checked(inst, p, updates):
    answer = {"updates": updates, "validated": True}
    p.add_handler("job.update.attributes.system.x", lambda p, topic, args: answer)
    id = inst.submit()
    text = "mine.py: job.update.attributes.system.x: update"
    assert text in refused(errno.EINVAL, inst.update, id, x=1)
    assert "jobspec-update" not in inst.events(id)


def test_answers_in_sched_and_new(inst, p, sched):
    """A priority is taken from any answer, R in sched only, and of a job with the flag alloc-bypass."""
    p.add_handler("job.state.sched", lambda p, topic, args: {"priority": 42, "R": make_R()})
    id = inst.submit()
    inst.run()
    assert inst.state(id) == SCHED and len(inst.sched.of("alloc")) == 1
    assert inst.jm.jobs.active[id].priority == 42
    assert any("R without the flag alloc-bypass" in text for text in inst.logged())
    p.add_handler("job.state.sched", None)
    p.add_handler("job.new", lambda p, topic, args: {"R": make_R()})
    assert inst.jm.jobs.active[inst.submit()].R is None
    assert any("job.new: R may only be set in job.state.sched" in text for text in inst.logged())


@pytest.mark.parametrize("topic", ["job.create", "job.validate", "job.event.depend"])
def test_an_answer_without_effect_is_logged(inst, p, topic):
    p.add_handler("job.new", lambda p, topic, args: p.job_subscribe(CURRENT_JOB))
    answer = {"annotations": {"x": 1}, "priority": "high"}
    p.add_handler(topic, lambda p, topic, args: answer)
    job = inst.jm.jobs.active[inst.submit()]
    assert job.annotations == {} and job.priority == 16
    assert "exception" not in inst.events(job.id)
    assert any(f"{topic}: annotations, priority: without effect" in one for one in inst.logged())


def test_dependencies_of_a_job_past_DEPEND_are_refused(inst, p):
    id, gone = inst.submit(), inst.submit()
    inst.cancel(gone)
    for job in (id, gone):
        for change in (p.dependency_add, p.dependency_remove):
            text = refused(errno.EINVAL, change, job, "x")
            assert text == "dependencies belong to DEPEND state"


def test_a_callback_that_changes_its_arguments_fails(inst, p):
    def change(p, topic, args):
        args["urgency"] = 5

    p.add_handler("job.new", change)
    inst.submit()
    p.add_handler("conf.update", change)
    refused(errno.EINVAL, inst.rpc, "config.load", {"config": {}})
    for topic in ("job.new", "conf.update"):
        told = f"{topic}: TypeError: the arguments of a callback cannot be changed"
        assert any(told in one for one in inst.logged())


def test_nothing_is_left_of_a_removed_plugin(inst, p):
    fired = []
    id = inst.submit()
    p.job_subscribe(id)
    p.service_register("hello", lambda p, msg: p.handle.respond(msg, {}))
    p.handle.timer_watcher_create(1.0, lambda *args: fired.append("timer"), repeat=1.0).start()
    future = p.handle.rpc("config.get")
    future.then(lambda f: fired.append("future"))
    handle = p.handle
    inst.jobtap(remove="mine.py")
    inst.advance(5)
    assert fired == []
    for call, *args in (
        (p.event_post, id, "x"),
        (p.add_handler, "job.new", print),
        (p.reprioritize_all,),
        (p.service_register, "again", print),
        (handle.rpc, "config.get"),
        (handle.timer_watcher_create, 0, print),
        (future.get,),
    ):
        assert "plugin mine.py was removed" in refused(errno.EINVAL, call, *args)
    assert not inst.jm.jobs.active[id].subscribers


def test_waiting_for_the_job_manager_is_refused(inst, p):
    done = []

    def check(p, topic, args):
        import flux

        for handle in (p.handle, flux.Flux()):
            refused(errno.EDEADLK, handle.rpc("job-manager.getinfo").get)
            refused(errno.EDEADLK, handle.rpc("job-manager.getinfo").wait_for, 5)
            refused(errno.EDEADLK, handle.reactor_run)
        p.handle.rpc("config.get").get()
        done.append(topic)

    p.add_handler("job.validate", check)
    inst.submit()
    assert done == ["job.validate"]


def test_a_file_that_others_can_write_is_not_run(inst, tmp_path):
    path = tmp_path / "open.py"
    path.write_text("def plugin_init(p):\n    pass\n")
    path.chmod(0o666)
    assert "others can write it" in refused(errno.EPERM, inst.jobtap, load=str(path))
    path.chmod(0o644)
    inst.jobtap(load=str(path))


def test_other_threads_are_refused(inst, p):
    errors = []

    def attempt(call, args):
        try:
            call(*args)
        except OSError as exc:
            errors.append((exc.errno, "only the job manager's own thread" in exc.strerror))

    calls = [
        (p.reprioritize_all,),
        (p.handle.rpc, "config.get"),
        (p.handle.timer_watcher_create, 1.0, print),
        (p.handle.log, 6, "x"),
    ]
    for call, *args in calls:
        thread = threading.Thread(target=attempt, args=(call, args))
        thread.start()
        thread.join()
    assert errors == [(errno.EPERM, True)] * len(calls)
