# SPDX-License-Identifier: LGPL-3.0-or-later
"""The functions a jobtap plugin can call, one by one, and loading, listing, removing plugins."""

import errno
import sys
import textwrap

import pytest
from in_process import refused

from flux.jobtap import CURRENT_JOB, JobtapError
from flux_engine.kernel.message import OWNER

DEPEND, PRIORITY, SCHED, RUN, CLEANUP, INACTIVE = 2, 4, 8, 16, 32, 64


def running(inst):
    """A job in RUN."""
    inst.load_sched(auto=True)
    return inst.submit(run_duration=100)


def test_attributes(add):
    p = add(key="value")
    assert (p.name, p.path, p.args) == ("mine.py", "/nowhere/mine.py", {"key": "value"})
    assert p.handle.get_rank() == 0 and p.get_flux() is p.handle


def test_add_handler(inst, p):
    calls = []
    p.add_handler("job.*", lambda p, topic, args: calls.append(("glob", topic)))
    p.add_handler("job.new", lambda p, topic, args: calls.append(("exact", topic)))
    inst.submit()
    # The first that was registered, whether it names the topic or not.
    assert ("glob", "job.new") in calls and ("exact", "job.new") not in calls
    p.add_handler("job.*", None)
    calls.clear()
    inst.submit()
    assert calls == [("exact", "job.new")]
    p.add_handler("job.state.*", None)  # there is none: no error
    with pytest.raises(TypeError):
        p.add_handler("job.new", 3)


def test_dependency_twice_in_one_callback(inst, p):
    def depend(p, topic, args):
        for name in "xxyy":
            p.dependency_add(CURRENT_JOB, name)
        p.dependency_remove(CURRENT_JOB, "y")
        refused(errno.EEXIST, p.dependency_add, CURRENT_JOB, "y")
        done.append(args["id"])

    done = []
    p.add_handler("job.state.depend", depend)
    id = inst.submit()
    assert done == [id] and inst.events(id).count("dependency-add") == 2


def test_reprioritize_job(inst, p, sched):
    id = inst.submit()
    p.reprioritize_job(id, 99)
    inst.run()
    assert inst.jm.jobs.active[id].priority == 99
    assert inst.sched.of("prioritize") == [{"jobs": [[id, 99]]}]
    p.reprioritize_job(id, 99)
    assert inst.events(id).count("priority") == 2  # no change, no event
    for bad in (-2, 1 << 32, 1.5, "x", True):
        refused(errno.EINVAL, p.reprioritize_job, id, bad)
    inst.urgency(id, 0)
    p.reprioritize_job(id, 5)
    assert inst.jm.jobs.active[id].priority == 0  # held
    inst.cancel(id)
    refused(errno.ENOENT, p.reprioritize_job, id, 5)


def test_raise_exception(inst, p):
    id = inst.submit()
    p.raise_exception(id, "warning", 4, "look out")
    assert inst.state(id) == SCHED
    p.raise_exception(id, "policy", 0, "no")
    inst.run()
    assert inst.state(id) == INACTIVE
    context = {"type": "policy", "severity": 0, "note": "no", "userid": OWNER}
    assert inst.eventlog(id)[-2]["context"] == context
    refused(errno.EINVAL, p.raise_exception, inst.submit(), "x", 8)
    refused(errno.EINVAL, p.raise_exception, inst.submit(), "two words", 0)


@pytest.mark.parametrize(
    "topic", ["job.create", "job.validate", "job.new", "job.state.depend", "job.state.sched"]
)
def test_fatal_exception_in_a_callback(inst, p, topic, sched):
    p.add_handler(topic, lambda p, topic, args: p.raise_exception(CURRENT_JOB, "policy", 0, "no"))
    id = inst.submit()
    assert inst.state(id) == INACTIVE
    names = inst.events(id)
    assert names.index("validate") < names.index("exception") and names[-1] == "clean"
    assert len(inst.sched.of("alloc")) == len(inst.sched.of("cancel"))


def test_job_subscribe(inst, p):
    seen = []
    p.add_handler("job.event.*", lambda p, topic, args: seen.append(args["entry"]["name"]))
    p.add_handler("job.new", lambda p, topic, args: p.job_subscribe(CURRENT_JOB))
    id = inst.submit()
    assert seen == ["validate", "depend", "priority"]
    p.job_unsubscribe(id)
    inst.cancel(id)
    assert seen == ["validate", "depend", "priority"]
    refused(errno.ENOENT, p.job_subscribe, id)  # inactive
    p.job_unsubscribe(1234)  # as in C, that is no error


def test_aux(inst, p, add):
    other = add(name="other.py")
    freed = []
    id = inst.submit()
    p.job_aux_set(id, "k", 1, freed.append)
    other.job_aux_set(id, "k", 2)
    assert (p.job_aux_get(id, "k"), other.job_aux_get(id, "k")) == (1, 2)
    assert p.job_aux_get(id, "nosuch") is None and p.job_aux_get(id, "nosuch", 7) == 7
    p.job_aux_set(id, "k", 3, freed.append)
    assert freed == [1]
    p.job_aux_delete(id, "k")
    assert freed == [1, 3] and p.job_aux_get(id, "k") is None and other.job_aux_get(id, "k") == 2
    value = object()
    p.job_aux_set(id, "v", value, freed.append)
    p.job_aux_delete_value(id, value)
    assert freed[2] is value


def test_aux_ends_with_the_job_or_the_plugin(inst, p):
    freed, seen = [], []
    own = lambda p, topic, args: seen.append(p.job_aux_get(CURRENT_JOB, "k"))
    p.add_handler("job.state.inactive", own)
    id = inst.submit()
    p.job_aux_set(id, "k", 1, freed.append)
    inst.cancel(id)
    assert seen == [1] and freed == [1]
    assert p.job_aux_get(id, "k") is None
    refused(errno.ENOENT, p.job_aux_set, id, "k", 1)
    p.job_aux_set(inst.submit(), "k", 2, freed.append)
    inst.jobtap(remove="mine.py")
    assert freed == [1, 2]


def test_jobspec_update_id(inst, p, sched):
    id = inst.submit()
    p.jobspec_update_id(id, {"attributes.system.x.y": 5})
    inst.run()
    assert inst.sched.methods_seen() == ["alloc", "prioritize", "cancel", "alloc"]
    assert inst.sched.of("alloc")[1]["jobspec"]["attributes"]["system"]["x"] == {"y": 5}
    seen = []

    def priority(p, topic, args):
        refused(errno.EINVAL, p.jobspec_update_id, args["id"], {"attributes.system.x": 1})
        seen.append(topic)

    p.add_handler("job.state.priority", priority)
    inst.urgency(id, 20)
    assert seen == ["job.state.priority"]


def test_jobspec_update_limits(inst, p):
    pending = inst.submit()
    for updates in (
        {}, {"version": 2}, {"attributes..x": 1}, {"attributes.system": 5}, {"resources": 1}, {"tasks": []},
        {"attributes.system.duration": "1h"}, {"attributes.system.queue": 3}, {"attributes": {}},
        {"attributes.system": {"duration": -1}},
    ):  # fmt: skip
        refused(errno.EINVAL, p.jobspec_update_id, pending, updates)
    text = "update of system.x not supported: expected attributes.system.KEY"
    assert text in refused(errno.EINVAL, p.jobspec_update_id, pending, {"system.x": 1})
    assert inst.events(pending).count("jobspec-update") == 0
    inst.cancel(pending)
    refused(errno.EINVAL, p.jobspec_update_id, running(inst), {"attributes.system.x": 1})


def test_prolog_and_epilog(inst, p):
    p.add_handler("job.state.run", lambda p, topic, args: p.prolog_start("one"))
    p.add_handler("job.state.cleanup", lambda p, topic, args: p.epilog_start("two"))
    id = running(inst)
    p.prolog_start("another", id)
    assert inst.events(id)[-2:] == ["prolog-start", "prolog-start"]
    p.prolog_finish(id, "one", 0)
    inst.run()
    assert "start" not in inst.events(id)
    p.prolog_finish(id, "another", 1)
    inst.run()
    assert inst.events(id)[-1] == "start"
    refused(errno.EINVAL, p.prolog_start, "late", id)
    refused(errno.EINVAL, p.epilog_start, "early", id)
    refused(errno.EINVAL, p.epilog_finish, id, "never began", 0)
    inst.cancel(id)
    assert inst.events(id)[-2:] == ["finish", "release"] and inst.sched.of("free") == []
    p.epilog_finish(id, "two", 256)
    inst.run()
    assert inst.events(id)[-3:] == ["epilog-finish", "free", "clean"]
    assert len(inst.sched.of("free")) == 1


@pytest.mark.parametrize("bad", [object(), float("nan"), {1, 2}, b"x"])
def test_values_outside_json_are_refused(inst, p, bad):
    """It would break the eventlog, or the services that send it on."""
    id = inst.submit()
    for function, *args in (
        (p.event_post, "debug.x", {"value": bad}),
        (p.event_post, "debug.x", [bad]),
        (p.jobspec_update_id, {"attributes.system.x": bad}),
        (p.raise_exception, bad, 1, "x"),
        (p.raise_exception, "x", bad, "x"),
        (p.raise_exception, "x", 1, bad),
    ):
        refused(errno.EINVAL, function, id, *args)
    p.add_handler("job.state.depend", lambda p, topic, args: {"annotations": {"x": bad}})
    p.add_handler("job.state.priority", lambda p, topic, args: {"annotations": {"x": 1}})
    p.add_handler("job.state.run", lambda p, topic, args: p.prolog_start(bad))
    p.add_handler("job.dependency.x", lambda p, topic, args: p.dependency_add(CURRENT_JOB, bad))
    refused(errno.EINVAL, inst.submit, dependencies=[{"scheme": "x", "value": "y"}])
    inst.load_sched(auto=True)
    other = inst.submit(run_duration=1)
    inst.advance(1)
    assert inst.events(other)[-1] == "clean" and inst.jm.jobs.find(other).annotations == {"x": 1}
    p.add_handler("plugin.query", lambda p, topic, args: {"x": bad})
    refused(errno.EIO, inst.rpc, "job-manager.jobtap-query", {"name": p.name})


def test_call(inst, p, add):
    other = add(name="other.py")
    other.add_handler("custom.topic", lambda p, t, args: {"answer": args.get("x", args.get("id"))})
    id = inst.submit()
    assert p.call(id, "custom.topic") == {"answer": id}
    assert p.call(id, "custom.topic", {"x": 3}) == {"answer": 3}
    assert p.call(id, "nobody.cares") == {}
    refused(errno.EINVAL, p.call, id, "job.mine")
    found = []
    own = lambda p, topic, args: found.append(p.call(CURRENT_JOB, "custom.topic", args))
    p.add_handler("job.state.depend", own)
    assert found == [] and inst.submit() == found[0]["answer"]
    other.add_handler("custom.fails", lambda p, topic, args: p.error("no"))
    with pytest.raises(JobtapError, match="no"):
        p.call(id, "custom.fails")
    other.add_handler("custom.refuses", lambda p, topic, args: -1)
    with pytest.raises(JobtapError, match="custom.refuses of job-manager plugin 'other.py' failed"):
        p.call(id, "custom.refuses")


def test_service_register(inst, p):
    p.service_register("query", lambda p, msg: p.handle.respond(msg, {"got": msg.payload["x"]}))
    p.service_register_ex("admin", 1, lambda p, msg: p.handle.respond(msg, {}))
    p.service_register("broken", lambda p, msg: 1 / 0)
    p.service_register("exits", lambda p, msg: sys.exit(3))
    p.service_register("returns", lambda p, msg: {"got": 1})
    assert inst.rpc("job-manager.mine.query", {"x": 1}) == {"got": 1}
    assert inst.rpc("job-manager.mine.admin", {}) == {}
    for topic, text in (
        ("broken", "division by zero"),
        ("exits", ""),
        ("returns", "answers by p.handle.respond(msg, payload), not by returning dict"),
    ):
        assert text in refused(errno.EIO, inst.rpc, f"job-manager.mine.{topic}", {})
    refused(errno.EEXIST, p.service_register, "query", print)
    inst.as_user(1234)
    assert inst.rpc("job-manager.mine.query", {"x": 2}) == {"got": 2}
    refused(errno.EPERM, inst.rpc, "job-manager.mine.admin", {})
    inst.as_user()
    p.set_name("myplugin")
    p.service_register("query", lambda p, msg: p.handle.respond(msg, {}))
    assert inst.rpc("job-manager.myplugin.query") == {}
    assert "mine.py" in inst.jobtap()
    refused(errno.EINVAL, p.set_name, "a.b")
    inst.jobtap(remove="mine.py")
    refused(errno.ENOSYS, inst.rpc, "job-manager.mine.query", {"x": 1})


BUILTINS = [
    ".priority-default", ".limit-job-size", ".limit-duration", ".dependency-after",
    ".begin-time", ".validate-duration", ".update-duration", ".update-queue",
]  # fmt: skip


@pytest.fixture
def write(tmp_path):
    def write(name, source):
        (tmp_path / name).write_text(textwrap.dedent(source))
        return str(tmp_path / name)

    return write


MINIMAL = """
def plugin_init(p):
    pass
"""


def test_load_list_remove(inst, write):
    assert inst.jobtap() == BUILTINS
    inst.jobtap(load=write("a.py", MINIMAL), conf={"x": 1})
    assert inst.jobtap() == [*BUILTINS, "a.py"]
    assert inst.jm.jobtap.plugins[-1].args == {"x": 1}
    assert "a.py already loaded" in refused(errno.EEXIST, inst.jobtap, load=write("a.py", MINIMAL))
    inst.jobtap(load=write("b.py", MINIMAL), remove="a.py")
    assert inst.jobtap()[-1] == "b.py"
    assert "Failed to find plugin to remove" in refused(errno.ENOENT, inst.jobtap, remove="a.py")
    inst.jobtap(load=write("c.py", MINIMAL), remove="all")
    assert inst.jobtap() == [*BUILTINS, "c.py"]
    # The name of a compiled plugin finds the Python file.
    inst.jobtap(load="alloc-check.so")
    assert inst.jobtap()[-1] == "alloc-check.so"
    assert "alloc-check.so already loaded" in refused(
        errno.EEXIST, inst.jobtap, load="alloc-check.so"
    )


@pytest.mark.parametrize(
    "source, text",
    [
        ("x = 1", "no function plugin_init"),
        ("def plugin_init(p): raise ValueError('bad luck')", "bad luck"),
        ("def plugin_init(p): raise SystemExit(3)", "SystemExit: 3"),
        ("import nosuchmodule", "ModuleNotFoundError"),
        ("def plugin_init(p:", "SyntaxError"),
        ("def plugin_init(p): raise ValueError('two\\n lines')", "ValueError: two lines (bad.py:1 in"),
        ("def plugin_init(p): p.handle.fd_watcher_create(0, 1, print)", "wrapped C function: Name: "),
    ],
)  # fmt: skip
def test_plugin_that_cannot_be_loaded(inst, write, source, text):
    assert text in refused(errno.EINVAL, inst.jobtap, load=write("bad.py", source))
    assert inst.jobtap() == BUILTINS
    assert inst.submit()


@pytest.mark.parametrize(
    "body, text", [({}, "Protocol error"), ({"name": "x"}, "x: plugin not found")]
)
def test_query_refusals(inst, body, text):
    assert refused(errno.EINVAL, inst.rpc, "job-manager.jobtap-query", body) == text


def test_plugins_from_the_configuration(inst, write):
    entry = {"load": write("a.py", MINIMAL), "conf": {"x": 1}, "remove": ".priority-default"}
    configure = inst.jm.jobtap.configure_plugins
    configure({"job-manager": {"plugins": [entry]}})
    assert inst.jobtap() == [*BUILTINS[1:], "a.py"]
    assert inst.jm.jobtap.plugins[-1].args == {"x": 1}
    # One that fails is logged.
    bad = [{"load": write("b.py", MINIMAL)}, {"load": write("c.py", "x = (")}]
    text = "[job-manager.plugins][1]: c.py: SyntaxError: "
    assert refused(errno.EINVAL, configure, {"job-manager": {"plugins": bad}}).startswith(text)
    inst.run()
    assert any(entry.text.startswith(text) for entry in inst.ctx.ring.entries())


def test_exit_callback(inst, add):
    gone = []
    exit = lambda p, topic, args: gone.append(1)
    add(lambda p: p.add_handler("plugin.exit", exit), "a.py")
    inst.jobtap(remove="a.py")
    assert gone == [1]


@pytest.mark.parametrize(
    "topic, text",
    [
        ("job.valdate", "no callback has this topic: did you mean job.validate?"),
        ("job.state.running", "no callback has this topic: did you mean job.state.run?"),
        ("job.state.x*", "no callback has this topic: did you mean job.state.run?"),
        ("config.update", "no callback has this topic: did you mean conf.update?"),
        ("validate", "no callback has this topic: did you mean job.validate?"),
        ("job.update.duration", "updates have no key duration: did you mean attributes.system.duration?"),
        *((topic, None) for topic in ("job.*", "*", "job.state.[rs]*", "job.event.mine", "job.dep*", "job.update")),
        *((topic, None) for topic in ("job.update.attributes.system.x", "job.update.attr*", "site.update", "plugin.*")),
    ],
)  # fmt: skip
def test_a_topic_that_is_never_called_is_told(inst, p, topic, text):
    p.add_handler(topic, print)
    inst.advance(0)
    line = f"jobtap: mine.py: add_handler: {topic}: {text}"
    assert [one for one in inst.logged() if "add_handler" in one] == ([line] if text else [])


def test_none_in_place_of_a_callback_is_told(inst, p):
    for callback in (print, None, None):
        assert not inst.logged()
        p.add_handler("job.validate", callback)
        inst.advance(0)
    assert any("job.validate: expected a function, got None" in one for one in inst.logged())


def test_mistakes_in_answers(inst, p):
    p.add_handler("job.state.sched", lambda p, topic, args: {"anotations": {"a": 1}})
    p.add_handler("job.validate", lambda p, topic, args: {"errmsg": "no"})
    text = "answer: 'errmsg': not one of priority, annotations, R"
    assert text in refused(errno.EINVAL, inst.submit)
    p.add_handler("job.validate", None)
    inst.submit()
    assert any("answer: 'anotations': did you mean annotations?" in one for one in inst.logged())
    p.add_handler("job.state.priority", lambda p, topic, args: 77)
    assert inst.jm.jobs.active[inst.submit()].priority == 16
    assert any("expected {'priority': 77}, got 77" in one for one in inst.logged())
