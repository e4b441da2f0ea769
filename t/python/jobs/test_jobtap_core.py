# SPDX-License-Identifier: LGPL-3.0-or-later
"""A plugin and the job manager: answers that are taken or refused, and calls that are not allowed, as in flux-core."""

import errno
import threading

import pytest
from in_process import raises

from flux.jobtap import CURRENT_JOB
from flux.scheduler.testing import make_R

DEPEND, PRIORITY, SCHED, RUN, CLEANUP, INACTIVE = 2, 4, 8, 16, 32, 64


@pytest.mark.parametrize("answer", [-1, -7, False])
def test_a_negative_answer_refuses(inst, p, answer):
    p.add_handler("job.validate", lambda p, topic, args: answer)
    with pytest.raises(OSError, match="rejected by job-manager plugin 'mine.py'"):
        inst.submit()
    p.add_handler("job.validate", None)
    id = inst.submit()
    p.add_handler("job.update.attributes.system.x", lambda p, topic, args: answer)
    with pytest.raises(OSError, match="update rejected by job-manager plugin 'mine.py'"):
        inst.update(id, x=1)
    p.add_handler("conf.update", lambda p, topic, args: answer)
    with pytest.raises(OSError, match="configuration rejected by job-manager plugin 'mine.py'"):
        inst.rpc("config.load", {"config": {}})
    p.add_handler("job.state.*", lambda p, topic, args: answer)
    inst.load_sched(auto=True)
    id = inst.submit(run_duration=1)
    inst.advance(2)
    assert inst.state(id) == INACTIVE  # this event cannot be refused


@pytest.mark.parametrize(
    "name, context, number",
    [
        ("submit", {"userid": 1, "urgency": 16, "flags": 0}, errno.EINVAL),
        ("invalidate", None, errno.EINVAL),
        ("memo", None, errno.EPROTO),
        ("exception", None, errno.EPROTO),
        ("exception", {"type": "x"}, errno.EPROTO),
        ("priority", {"priority": "x"}, errno.EPROTO),
        ("finish", {"status": None}, errno.EPROTO),
        ("jobspec-update", {}, errno.EPROTO),
        ("prolog-start", {"description": 3}, errno.EPROTO),
        ("jobspec-update", {"attributes.system": 5}, errno.EINVAL),
        ("jobspec-update", {"resources": 1}, errno.EINVAL),
        ("urgency", {"urgency": 99, "userid": 0}, errno.EINVAL),
        ("priority", {"priority": -7}, errno.EINVAL),
        ("priority", {"priority": 1 << 33}, errno.EINVAL),
        ("exception", {"type": "x", "severity": 8, "note": ""}, errno.EINVAL),
        ("set-flags", {"flags": ["nosuch"]}, errno.EINVAL),
        ("alloc", {}, errno.EINVAL),
        ("two words", None, errno.EINVAL),
        ("x", {"y": "\ud800"}, errno.EINVAL),
        ("x", {"y": "\0"}, errno.EINVAL),
        ("x", {"y": 1 << 64}, errno.EINVAL),
        # by which resources would be lost
        ("free", None, errno.EINVAL),
        ("clean", None, errno.EINVAL),
        ("start", None, errno.EINVAL),
        ("release", {"ranks": "all", "final": True}, errno.EINVAL),
        ("validate", None, errno.EINVAL),
        ("resource-update", {"expiration": 5.5}, errno.EINVAL),
        ("dependency-add", {"description": "x"}, errno.EINVAL),
        ("dependency-remove", {"description": "x"}, errno.EINVAL),
        ("prolog-start", {"description": "x"}, errno.EINVAL),
        ("epilog-finish", {"description": "x", "status": 0}, errno.EINVAL),
        ("exception", {"type": "scheduler-restart", "severity": 0, "note": ""}, errno.EINVAL),
    ],
)
def test_an_event_that_would_leave_a_job_in_limbo_is_refused(inst, p, name, context, number):
    id = inst.submit()
    before = inst.events(id)
    with raises(number):
        p.event_post(id, name, context)
    assert inst.events(id) == before
    inst.load_sched(auto=True)
    inst.cancel(id)
    assert inst.state(id) == INACTIVE


@pytest.mark.parametrize(
    "updates", [{"resources": 1}, {"version": 2}, {"attributes.system": 5}, 5, {"x": 1}]
)
def test_updates_in_an_answer_are_checked(inst, p, updates):
    p.add_handler(
        "job.update.attributes.system.x",
        lambda p, topic, args: {"updates": updates, "validated": True},
    )
    id = inst.submit()
    with pytest.raises(OSError, match="mine.py: job.update.attributes.system.x: update"):
        inst.update(id, x=1)
    assert "jobspec-update" not in inst.events(id)


def test_annotations_are_an_event_for_subscribers(inst, p):
    seen = []
    p.add_handler("job.new", lambda p, topic, args: p.job_subscribe(CURRENT_JOB))
    p.add_handler(
        "job.event.annotations", lambda p, topic, args: seen.append(args["entry"]["context"])
    )
    p.add_handler("job.state.priority", lambda p, topic, args: {"annotations": {"x": 1}})
    inst.submit()
    assert seen == [{"annotations": {"x": 1}}]


def test_job_update_has_the_updates_and_the_new_jobspec(inst, p):
    seen = []
    p.add_handler("job.update", lambda p, topic, args: seen.append(args))
    id = inst.submit()
    p.jobspec_update_id(id, {"attributes.system.x": 1})
    assert [args["updates"] for args in seen] == [{"attributes.system.x": 1}]
    assert seen[0]["jobspec"]["attributes"]["system"]["x"] == 1


def test_R_without_the_flag_alloc_bypass_is_not_taken(inst, p, sched):
    p.add_handler("job.state.sched", lambda p, topic, args: {"R": make_R()})
    id = inst.submit()
    inst.run()
    assert inst.state(id) == SCHED and len(inst.sched.of("alloc")) == 1
    assert any("R without the flag alloc-bypass" in text for text in inst.logged())


def test_a_priority_is_taken_from_any_answer_and_R_only_in_sched(inst, p):
    p.add_handler("job.state.sched", lambda p, topic, args: {"priority": 42})
    assert inst.jm.jobs.active[inst.submit()].priority == 42
    p.add_handler("job.state.sched", None)
    p.add_handler("job.new", lambda p, topic, args: {"R": make_R()})
    id = inst.submit()
    assert inst.jm.jobs.active[id].R is None
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
    id = inst.submit()
    gone = inst.submit()
    inst.cancel(gone)
    for job in (id, gone):
        for change in (p.dependency_add, p.dependency_remove):
            with raises(errno.EINVAL, "dependencies belong to DEPEND state"):
                change(job, "x")


def test_a_callback_that_changes_its_arguments_fails(inst, p):
    def change(p, topic, args):
        args["urgency"] = 5

    p.add_handler("job.new", change)
    inst.submit()
    p.add_handler("conf.update", change)
    with raises(errno.EINVAL):
        inst.rpc("config.load", {"config": {}})
    for topic in ("job.new", "conf.update"):
        told = f"{topic}: TypeError: the arguments of a callback cannot be changed"
        assert any(told in one for one in inst.logged())


def test_an_invalid_priority_holds_the_job_until_a_plugin_is_loaded(inst, p, add):
    p.add_handler("job.state.priority", lambda p, topic, args: {"priority": "foo"})
    id = inst.submit()
    assert inst.state(id) == PRIORITY
    event = inst.eventlog(id)[-1]
    assert event["name"] == "exception" and event["context"]["type"] == "job.state.priority"
    assert event["context"]["severity"] == 4
    # As in flux-core: neither another urgency nor the removal makes it go on, but any plugin's load.
    inst.jobtap(remove="mine.py")
    inst.urgency(id, 17)
    assert inst.state(id) == PRIORITY
    add(name="other.py")
    assert inst.state(id) == SCHED


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
    for attempt in (
        lambda: p.event_post(id, "x"),
        lambda: p.add_handler("job.new", print),
        lambda: p.reprioritize_all(),
        lambda: p.service_register("again", print),
        lambda: handle.rpc("config.get"),
        lambda: handle.timer_watcher_create(0, print),
        lambda: future.get(),
    ):
        with pytest.raises(OSError, match="plugin mine.py was removed"):
            attempt()
    assert not inst.jm.jobs.active[id].subscribers


def test_the_arguments_of_a_callback_are_read_only(inst, p):
    kept = []

    def check(p, topic, args):
        kept.append(args)
        jobspec = args["jobspec"]
        for attempt in (
            lambda: args.__setitem__("id", 1),
            lambda: jobspec.__setitem__("x", 1),
            lambda: jobspec["attributes"]["system"].update(x=1),
            lambda: jobspec["attributes"]["system"].pop("duration"),
            lambda: jobspec["resources"].append(1),
            lambda: jobspec["resources"][0]["with"][0].__setitem__("count", 9),
        ):
            with pytest.raises((TypeError, AttributeError)):
                attempt()

    p.add_handler("job.validate", check)
    p.add_handler("job.state.depend", check)
    id = inst.submit()
    inst.cancel(id)
    assert [args["id"] for args in kept] == [id, id]
    assert [args["state"] for args in kept] == [1, DEPEND]


def test_waiting_for_the_job_manager_is_refused(inst, p):
    errors = []

    def check(p, topic, args):
        import flux

        for handle in (p.handle, flux.Flux()):
            for wait in (
                lambda h: h.rpc("job-manager.getinfo").get(),
                lambda h: h.rpc("job-manager.getinfo").wait_for(5),
                lambda h: h.reactor_run(),
            ):
                with pytest.raises(OSError) as caught:
                    wait(handle)
                errors.append(caught.value.errno)
        p.handle.rpc("config.get").get()

    p.add_handler("job.validate", check)
    inst.submit()
    assert errors == [errno.EDEADLK] * 6


def test_a_file_that_others_can_write_is_not_run(inst, tmp_path):
    path = tmp_path / "open.py"
    path.write_text("def plugin_init(p):\n    pass\n")
    path.chmod(0o666)
    with pytest.raises(OSError, match="others can write it"):
        inst.jobtap(load=str(path))
    path.chmod(0o644)
    inst.jobtap(load=str(path))


def test_other_threads_are_refused(inst, p):
    errors = []

    def attempt(call):
        try:
            call()
        except OSError as exc:
            errors.append((exc.errno, "only the job manager's own thread" in exc.strerror))

    calls = [
        lambda: p.reprioritize_all(),
        lambda: p.handle.rpc("config.get"),
        lambda: p.handle.timer_watcher_create(1.0, print),
        lambda: p.handle.log(6, "x"),
    ]
    for call in calls:
        thread = threading.Thread(target=attempt, args=(call,))
        thread.start()
        thread.join()
    assert errors == [(errno.EPERM, True)] * len(calls)
