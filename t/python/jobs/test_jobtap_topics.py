# SPDX-License-Identifier: LGPL-3.0-or-later
"""jobtap callback topics: when each is called, with what, and what becomes of its answer."""

import textwrap

import pytest
from jobs_instance import ALL

from flux.scheduler.testing import make_R
from flux_engine.kernel.message import OWNER

DEPEND, PRIORITY, SCHED, RUN, CLEANUP, INACTIVE = 2, 4, 8, 16, 32, 64


@pytest.fixture
def load(inst, tmp_path):
    """load(source, name="test.py", **args) -> the Plugin; `log` and CURRENT_JOB are in the plugin's namespace."""

    def load(source, name="test.py", **args):
        path = tmp_path / name
        path.write_text("from flux.jobtap import CURRENT_JOB\nlog = []\n" + textwrap.dedent(source))
        inst.rpc("job-manager.jobtap", {"load": str(path), "conf": args})
        plugin = inst.jm.jobtap.plugins[-1]
        plugin.log = (
            plugin.handlers.callbacks[0].__globals__["log"] if plugin.handlers.callbacks else None
        )
        return plugin

    return load


RECORD = """
def plugin_init(p):
    for topic in p.args["topics"]:
        p.add_handler(topic, record)

def record(p, topic, args):
    log.append((topic, dict(args)))
"""


def topics(plugin):
    return [topic for topic, _ in plugin.log]


def test_whole_life_in_order(inst, load):
    plugin = load(RECORD, topics=["job.*"])
    inst.load_sched(auto=lambda body: make_R())
    inst.submit(run_duration=1)
    inst.advance(1)
    assert topics(plugin) == [
        "job.create", "job.validate", "job.new", "job.state.depend", "job.state.priority", "job.state.sched",
        "job.state.run", "job.state.cleanup", "job.state.inactive", "job.inactive-add", "job.destroy",
    ]  # fmt: skip


def test_args(inst, load):
    plugin = load(RECORD, topics=["job.*"])
    inst.load_sched(auto=lambda body: {**make_R(), "scheduling": {"secret": 1}})
    id = inst.submit(run_duration=1, urgency=20, environment={"A": "b"})
    inst.cancel(id, note="enough")
    args = dict(plugin.log)
    new = args["job.new"]
    assert new["id"] == id and new["urgency"] == 20 and new["userid"] == OWNER
    assert (
        new["state"] == 1
        and new["priority"] == -1
        and new["t_submit"] == inst.jm.jobs.find(id).t_submit
    )
    assert "environment" not in new["jobspec"]["attributes"]["system"]
    assert "R" not in new and "end_event" not in new
    run = args["job.state.run"]
    assert (run["state"], run["prev_state"], run["priority"]) == (RUN, SCHED, 20)
    assert run["R"] == make_R() and run["entry"]["name"] == "alloc"
    cleanup = args["job.state.cleanup"]
    assert (
        cleanup["end_event"]["name"] == "exception"
        and cleanup["end_event"]["context"]["note"] == "enough"
    )


def test_state_callback_comes_after_the_event_and_before_the_action(inst, load):
    """The callback of job.state.sched runs before the alloc request is made."""
    plugin = load(
        """
        def plugin_init(p):
            p.add_handler("job.state.sched", sched)
        def sched(p, topic, args):
            log.append((p.job_event_posted(CURRENT_JOB, "priority"), len(p._host.service.sched.pending), p._host.service.sched.queued))
        """
    )
    inst.load_sched()
    inst.submit()
    assert plugin.log == [(True, 0, 0)]
    assert len(inst.sched.of("alloc")) == 1


@pytest.mark.parametrize("topic", ["job.create", "job.validate"])
def test_rejection(inst, load, topic):
    plugin = load(
        """
        def plugin_init(p):
            p.add_handler(p.args["topic"], check)
            p.add_handler("job.new", lambda p, topic, args: log.append(topic))
            p.add_handler("job.destroy", lambda p, topic, args: log.append(topic))
        def check(p, topic, args):
            if args["jobspec"]["attributes"]["system"]["duration"] == 0:
                p.reject_job("a time limit is required")
        """,
        topic=topic,
    )
    with pytest.raises(OSError, match="a time limit is required") as caught:
        inst.submit()
    assert caught.value.errno == 22
    assert plugin.log == ["job.destroy"]
    assert not any(inst.ctx.kvs.find("job").values()) or not inst.jm.jobs.active
    assert inst.rpc("job-list.list", ALL)["jobs"] == []
    assert inst.submit(duration=60)


def test_answer_of_the_wrong_type_is_reported(inst, load):
    load(
        """
        def plugin_init(p):
            p.add_handler("job.state.priority", lambda p, topic, args: "five")
        """
    )
    id = inst.submit()
    assert inst.state(id) == SCHED  # the default priority is in force
    assert any("expected None, an integer or a dict, got str" in text for text in inst.logged())


# -- jobs that exist when a plugin loads ------------------------------------------------------------


def test_load_announces_active_jobs(inst, load):
    inst.load_sched(auto=lambda body: make_R())
    running, done = inst.submit(run_duration=100), inst.submit(run_duration=1)
    inst.advance(2)
    inst.sched.auto = None
    pending = inst.submit()
    plugin = load(RECORD, topics=["job.create", "job.new"])
    assert [(topic, args["id"]) for topic, args in plugin.log] == [
        ("job.create", running), ("job.new", running), ("job.create", pending), ("job.new", pending),
    ]  # fmt: skip
    assert done in inst.jm.jobs.inactive


SORTED = """
def plugin_init(p):
    p.set_load_sort_order(p.args.get("order"))
    p.add_handler("job.new", lambda p, topic, args: log.append(args["state"]))
"""


def test_load_sort_order(inst, load):
    inst.load_sched(auto=lambda body: make_R())
    running = inst.submit(run_duration=100)
    inst.sched.auto = None
    inst.submit()
    inst.submit(dependencies=[{"scheme": "afterany", "value": str(running)}])
    inst.rpc("job-manager.jobtap", {"remove": ".priority-default"})
    inst.submit()
    assert load(SORTED, order="state").log == [DEPEND, PRIORITY, SCHED, RUN]
    assert load(SORTED, "minus.py", order="-state").log == [RUN, SCHED, PRIORITY, DEPEND]
    with pytest.raises(OSError, match="expected 'state', '-state' or 'none'"):
        load(SORTED, "bad.py", order="up")


# -- dependencies -----------------------------------------------------------------------------------------


def test_dependency_scheme(inst, load):
    plugin = load(
        """
        def plugin_init(p):
            p.add_handler("job.dependency.gate", gate)
        def gate(p, topic, args):
            if args["dependency"]["value"] == "bad":
                p.reject_job("gate: bad value")
            p.dependency_add(CURRENT_JOB, "gate=" + args["dependency"]["value"])
        """
    )
    id = inst.submit(
        dependencies=[{"scheme": "gate", "value": "a"}, {"scheme": "gate", "value": "b"}]
    )
    assert inst.events(id) == ["submit", "dependency-add", "dependency-add", "validate"]
    plugin.dependency_remove(id, "gate=a")
    assert inst.state(id) == DEPEND
    plugin.dependency_remove(id, "gate=b")
    assert inst.state(id) == SCHED
    with pytest.raises(OSError, match="gate: bad value"):
        inst.submit(dependencies=[{"scheme": "gate", "value": "bad"}])


def test_unknown_scheme_is_rejected(inst):
    with pytest.raises(OSError, match='dependency scheme "nosuch" not supported'):
        inst.submit(dependencies=[{"scheme": "nosuch", "value": "x"}])


# -- priority ---------------------------------------------------------------------------------------------


def test_last_loaded_priority_plugin_wins(inst, load):
    source = """
        def plugin_init(p):
            p.add_handler("job.state.priority", lambda p, topic, args: {"priority": p.args["value"]})
        """
    load(source, "one.py", value=1)
    load(source, "two.py", value=2)
    assert inst.jm.jobs.active[inst.submit()].priority == 2


def test_hold_and_expedite_bypass_the_plugin(inst, load):
    load(
        """
        def plugin_init(p):
            p.add_handler("job.state.priority", lambda p, topic, args: {"priority": 77})
        """
    )
    assert inst.jm.jobs.active[inst.submit(urgency=0)].priority == 0
    assert inst.jm.jobs.active[inst.submit(urgency=31)].priority == 4294967295


UNAVAIL = """
ready = set()
def plugin_init(p):
    p.add_handler("job.state.priority", priority)
    p.add_handler("job.priority.get", priority)
def priority(p, topic, args):
    log.append(topic)
    if args["id"] not in ready:
        return p.priority_unavail()
    return {"priority": args["urgency"] + 100}
"""


def test_priority_unavail(inst, load):
    plugin = load(UNAVAIL)
    id = inst.submit()
    assert inst.state(id) == PRIORITY
    plugin.reprioritize_job(id, 55)
    assert (inst.state(id), inst.jm.jobs.active[id].priority) == (SCHED, 55)


def test_priority_get(inst, load):
    plugin = load(UNAVAIL)
    ready = plugin.handlers.callbacks[0].__globals__["ready"]
    one, two = inst.submit(), inst.submit()
    ready.add(one)
    plugin.reprioritize_all()
    inst.run()
    assert (inst.state(one), inst.jm.jobs.active[one].priority) == (SCHED, 116)
    assert inst.state(two) == PRIORITY
    assert "job.priority.get" in plugin.log
    ready.discard(one)
    plugin.reprioritize_all()  # unavailable in SCHED: logged, ignored
    inst.run()
    assert inst.jm.jobs.active[one].priority == 116
    assert any("priority unavailable for a job in SCHED state" in text for text in inst.logged())


# -- R forced, annotations ----------------------------------------------------------------------------------


def test_R_forced_in_state_sched(inst, load):
    load(
        """
        R = {"version": 1, "execution": {"R_lite": [{"rank": "0", "children": {"core": "0"}}],
             "starttime": 0.0, "expiration": 0.0, "nodelist": ["n0"]}}
        def plugin_init(p):
            p.add_handler("job.validate", lambda p, topic, args: p.job_set_flag(CURRENT_JOB, "alloc-bypass"))
            p.add_handler("job.state.sched", lambda p, topic, args: {"R": R})
        """
    )
    inst.load_sched()
    id = inst.submit(run_duration=1)
    assert inst.state(id) == RUN
    assert inst.rpc("job-info.lookup", {"id": id, "keys": ["R"], "flags": 1})["R"]["execution"][
        "nodelist"
    ] == ["n0"]
    inst.unload_sched()
    inst.load_sched()
    assert inst.sched.hello == []  # the scheduler knows nothing of it
    inst.advance(1)
    assert inst.events(id)[-2:] == ["free", "clean"]
    assert inst.sched.seen == []


@pytest.mark.parametrize(
    "R", [3, {}, {"execution": 1}, {"execution": {"R_lite": [{"rank": "x"}], "nodelist": []}}]
)
def test_a_forced_R_that_is_none(inst, load, R):
    load(
        """
        def plugin_init(p):
            p.add_handler("job.validate", lambda p, topic, args: p.job_set_flag(CURRENT_JOB, "alloc-bypass"))
            p.add_handler("job.state.sched", lambda p, topic, args: {"R": p.args["R"]})
        """,
        R=R,
    )
    id = inst.submit(run_duration=1)
    assert inst.events(id)[-2:] == ["exception", "clean"]


def test_annotations_from_a_callback(inst, load):
    load(
        """
        def plugin_init(p):
            p.add_handler("job.state.sched", lambda p, topic, args: {"annotations": {"test": "value"}})
            p.add_handler("job.state.run", lambda p, topic, args: {"annotations": {"test": "late"}})
        """
    )
    inst.load_sched()
    id = inst.submit(run_duration=1)
    assert inst.rpc("job-list.list-id", {"id": id, "attrs": ["all"]})["job"]["annotations"] == {
        "test": "value"
    }
    inst.sched.allocate(id)
    inst.run()
    assert inst.jm.jobs.active[id].annotations == {"test": "value"}  # only while the job is pending


# -- job.event.*, inactive jobs -----------------------------------------------------------------------------


def test_event_callbacks_by_subscription(inst, load):
    plugin = load(RECORD, topics=["job.event.*"])
    inst.load_sched(auto=lambda body: make_R())
    one = inst.submit(run_duration=1)
    inst.submit(run_duration=1)
    assert plugin.log == []
    plugin.job_subscribe(one)
    inst.rpc("job-manager.raise", {"id": one, "type": "x", "severity": 3})
    inst.advance(1)
    assert topics(plugin) == [
        f"job.event.{name}" for name in ("exception", "finish", "release", "free", "clean")
    ]
    assert {args["id"] for _, args in plugin.log} == {one}
    assert plugin.log[1][1]["entry"]["context"] == {"status": 0}
    assert inst.jm.jobs.inactive[one].subscribers is None


def test_inactive_add_and_remove(inst, load):
    plugin = load(RECORD, topics=["job.inactive-*", "job.destroy"])
    id = inst.submit()
    inst.cancel(id)
    assert topics(plugin) == ["job.inactive-add", "job.destroy"]
    limits = {"age_limit": -1.0, "num_limit": 0, "batch": 50, "force": True}
    assert inst.rpc("job-manager.purge", limits) == {"count": 1}
    assert topics(plugin)[-1] == "job.inactive-remove"
    assert inst.rpc("job-list.list", ALL)["jobs"] == []


# -- conf.update, plugin.query ----------------------------------------------------------------------------------

CONF = """
def plugin_init(p):
    p.add_handler("conf.update", conf)
def conf(p, topic, args):
    log.append(args["conf"])
    if args["conf"].get("bad"):
        p.error("bad is not good")
"""


def test_conf_update(inst, load):
    plugin = load(CONF)
    assert plugin.log == [{}]
    inst.rpc("config.load", {"x": {"y": 1}})
    assert plugin.log[-1] == {"x": {"y": 1}}
    with pytest.raises(OSError, match="bad is not good"):
        inst.rpc("config.load", {"bad": True})
    assert inst.rpc("config.get") == {"x": {"y": 1}}


def test_conf_update_fails_the_load(inst, load):
    inst.rpc("config.load", {"bad": True})
    with pytest.raises(OSError, match="bad is not good"):
        load(CONF)
    assert "test.py" not in inst.rpc("job-manager.jobtap", {"query_only": True})["plugins"]


def test_plugin_query(inst, load):
    load(
        """
        def plugin_init(p):
            p.add_handler("plugin.query", lambda p, topic, args: {"data": {"count": 3}})
        """
    )
    answer = inst.rpc("job-manager.jobtap-query", {"name": "test.py"})
    assert answer["data"] == {"count": 3} and answer["path"].endswith("/test.py")
    answer = inst.rpc("job-manager.jobtap-query", {"name": ".update-duration"})
    assert answer == {"name": ".update-duration", "path": "builtin"}


# -- job.update.KEY -----------------------------------------------------------------------------------------------

UPDATE = """
def plugin_init(p):
    p.add_handler("job.update.attributes.system.foo", update)
    p.add_handler("job.validate", validate)
def update(p, topic, args):
    value = args["updates"]["attributes.system.foo"]
    if value == "no":
        p.error("foo may not be no")
    return {"validated": value == "v", "feasibility": value == "f",
            "updates": {"attributes.system.bar": value} if value == "more" else None}
def validate(p, topic, args):
    log.append(args["jobspec"]["attributes"]["system"].get("foo"))
    if log[-1] == "invalid":
        p.reject_job("foo is invalid")
"""


def update(inst, id, **updates):
    return inst.rpc(
        "job-manager.update",
        {"id": id, "updates": {f"attributes.system.{k}": v for k, v in updates.items()}},
    )


def test_update_key(inst, load):
    plugin = load(UPDATE)
    id = inst.submit()
    plugin.log.clear()
    update(inst, id, foo="x")
    assert plugin.log == ["x"]  # it went through validation
    assert inst.eventlog(id)[-2]["context"] == {"attributes.system.foo": "x"}
    update(inst, id, foo="v")
    assert plugin.log == ["x"]  # validated: none needed
    with pytest.raises(OSError, match="foo may not be no"):
        update(inst, id, foo="no")
    with pytest.raises(OSError, match="foo is invalid"):
        update(inst, id, foo="invalid")
    assert inst.jm.jobs.active[id].jobspec["attributes"]["system"]["foo"] == "v"


def test_update_with_further_updates(inst, load):
    load(UPDATE)
    id = inst.submit()
    update(inst, id, foo="more")
    assert inst.eventlog(id)[-2]["context"] == {
        "attributes.system.foo": "more",
        "attributes.system.bar": "more",
    }


def test_update_with_feasibility(inst, load):
    load(UPDATE)
    inst.load_sched()
    id = inst.submit()
    update(inst, id, foo="f")
    assert inst.sched.of("check")[0]["jobspec"]["attributes"]["system"]["foo"] == "f"
    inst.sched.infeasible = "cannot be"
    before = inst.events(id)
    with pytest.raises(OSError, match="cannot be"):
        update(inst, id, foo="f")
    assert inst.events(id) == before


def test_update_mixed_is_validated(inst, load):
    plugin = load(UPDATE)
    id = inst.submit()
    plugin.log.clear()
    update(inst, id, foo="x", duration=10)  # duration says validated, foo does not
    assert plugin.log == ["x"]


def test_update_denied_by_default(inst):
    id = inst.submit()
    with pytest.raises(OSError, match="update of attributes.system.nosuch not supported"):
        update(inst, id, nosuch=1)
    with pytest.raises(OSError, match="unknown job id"):
        update(inst, 1234, duration=1)
    inst.cancel(id)
    with pytest.raises(OSError, match="job is inactive"):
        update(inst, id, duration=1)
