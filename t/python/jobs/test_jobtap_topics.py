# SPDX-License-Identifier: LGPL-3.0-or-later
"""jobtap callback topics: when each is called, its arguments, and the effect of its answer."""

import errno

import pytest
from in_process import refused
from jobs_instance import ALL

from flux.jobtap import CURRENT_JOB
from flux.scheduler.testing import make_R
from flux_engine.kernel.message import OWNER

DEPEND, PRIORITY, SCHED, RUN, CLEANUP, INACTIVE = 2, 4, 8, 16, 32, 64


@pytest.fixture
def record(add):
    """record(topic...) -> the calls, (topic, args), of a plugin that is loaded then."""

    def record(*topics):
        calls = []

        def init(p):
            for topic in topics:
                p.add_handler(topic, lambda p, topic, args: calls.append((topic, dict(args))))

        add(init, "records.py")
        return calls

    return record


def topics(calls):
    return [topic for topic, _ in calls]


def test_whole_life_in_order(inst, record, auto):
    calls = record("job.*")
    inst.submit(run_duration=1)
    inst.advance(1)
    assert topics(calls) == [
        "job.create", "job.validate", "job.new", "job.state.depend", "job.state.priority", "job.state.sched",
        "job.state.run", "job.state.cleanup", "job.state.inactive", "job.inactive-add", "job.destroy",
    ]  # fmt: skip


def test_args(inst, record):
    calls = record("job.*")
    inst.load_sched(auto=lambda body: {**make_R(), "scheduling": {"secret": 1}})
    id = inst.submit(run_duration=1, urgency=20, environment={"A": "b"})
    inst.cancel(id, note="enough")
    args = dict(calls)
    new, run, cleanup = args["job.new"], args["job.state.run"], args["job.state.cleanup"]
    assert (new["id"], new["urgency"], new["userid"]) == (id, 20, OWNER)
    t_submit = inst.jm.jobs.find(id).t_submit
    assert (new["state"], new["priority"], new["t_submit"]) == (1, -1, t_submit)
    assert "environment" not in new["jobspec"]["attributes"]["system"]
    assert "R" not in new and "end_event" not in new
    assert (run["state"], run["prev_state"], run["priority"]) == (RUN, SCHED, 20)
    assert run["R"] == make_R() and run["entry"]["name"] == "alloc"
    assert cleanup["end_event"]["name"] == "exception"
    assert cleanup["end_event"]["context"]["note"] == "enough"


@pytest.mark.parametrize("topic", ["job.create", "job.validate"])
def test_rejection(inst, p, record, topic):
    def check(p, topic, args):
        if args["jobspec"]["attributes"]["system"]["duration"] == 0:
            p.reject_job("a time limit is required")

    p.add_handler(topic, check)
    calls = record("job.new", "job.destroy")
    assert "a time limit is required" in refused(errno.EINVAL, inst.submit)
    assert topics(calls) == ["job.destroy"]
    assert inst.ctx.kvs.find("job") == {"0000": {"0000": {"0000": {}}}}
    assert not inst.jm.jobs.active
    assert inst.rpc("job-list.list", ALL)["jobs"] == []
    assert inst.submit(duration=60)


def test_load_announces_active_jobs(inst, record):
    inst.load_sched(auto=True)
    running, done = inst.submit(run_duration=100), inst.submit(run_duration=1)
    inst.advance(2)
    inst.sched.auto = None
    pending = inst.submit()
    calls = record("job.create", "job.new")
    assert [(topic, args["id"]) for topic, args in calls] == [
        ("job.create", running), ("job.new", running), ("job.create", pending), ("job.new", pending),
    ]  # fmt: skip
    assert done in inst.jm.jobs.inactive


def test_load_sort_order(inst, add):
    inst.load_sched(auto=True)
    running = inst.submit(run_duration=100)
    inst.sched.auto = None
    inst.submit()
    inst.submit(dependencies=[{"scheme": "afterany", "value": str(running)}])
    inst.jobtap(remove=".priority-default")
    inst.submit()

    def in_order(order):
        seen = []

        def init(p):
            p.set_load_sort_order(order)
            p.add_handler("job.new", lambda p, topic, args: seen.append(args["state"]))

        add(init, f"{order}.py")
        return seen

    assert in_order("state") == [DEPEND, PRIORITY, SCHED, RUN]
    assert in_order("-state") == [RUN, SCHED, PRIORITY, DEPEND]
    assert "expected 'state', '-state' or 'none'" in refused(errno.EINVAL, in_order, "up")


def test_dependency_scheme(inst, p):
    def gate(p, topic, args):
        if args["dependency"]["value"] == "bad":
            p.reject_job("gate: bad value")
        p.dependency_add(CURRENT_JOB, "gate=" + args["dependency"]["value"])

    def needs(scheme, *values):
        return {"dependencies": [{"scheme": scheme, "value": value} for value in values]}

    p.add_handler("job.dependency.gate", gate)
    id = inst.submit(**needs("gate", "a", "b"))
    assert inst.events(id) == ["submit", "dependency-add", "dependency-add", "validate"]
    p.dependency_remove(id, "gate=a")
    assert inst.state(id) == DEPEND
    p.dependency_remove(id, "gate=b")
    assert inst.state(id) == SCHED
    assert "gate: bad value" in refused(errno.EINVAL, inst.submit, **needs("gate", "bad"))
    text = 'dependency scheme "nosuch" not supported'
    assert text in refused(errno.EINVAL, inst.submit, **needs("nosuch", "x"))


def test_priority_of_the_last_plugin_unless_held_or_expedited(inst, p, add):
    p.add_handler("job.state.priority", lambda p, topic, args: {"priority": 1})
    last = add(name="two.py")
    last.add_handler("job.state.priority", lambda p, topic, args: {"priority": 2})
    for urgency, priority in ((16, 2), (0, 0), (31, 4294967295)):
        assert inst.jm.jobs.active[inst.submit(urgency=urgency)].priority == priority


@pytest.fixture
def ready(p):
    """The jobs to which a plugin gives a priority; `ready.asked` has the topics of its calls."""

    class Ready(set):
        asked = []

    def priority(p, topic, args):
        ready.asked.append(topic)
        if args["id"] not in ready:
            return p.priority_unavail()
        return {"priority": args["urgency"] + 100}

    ready = Ready()
    p.add_handler("job.state.priority", priority)
    p.add_handler("job.priority.get", priority)
    return ready


def test_priority_unavail_and_get(inst, p, ready):
    one, two = inst.submit(), inst.submit()
    assert inst.state(one) == PRIORITY
    ready.add(one)
    p.reprioritize_all()
    inst.run()
    assert (inst.state(one), inst.jm.jobs.active[one].priority) == (SCHED, 116)
    assert inst.state(two) == PRIORITY
    assert "job.priority.get" in ready.asked
    ready.discard(one)
    p.reprioritize_all()  # unavailable in SCHED: logged, ignored
    inst.run()
    assert inst.jm.jobs.active[one].priority == 116
    assert any("priority unavailable for a job in SCHED state" in text for text in inst.logged())
    p.reprioritize_job(two, 55)
    assert (inst.state(two), inst.jm.jobs.active[two].priority) == (SCHED, 55)


def force_R(p, R):
    """Jobs pass the scheduler by, with R."""
    p.add_handler("job.validate", lambda p, t, args: p.job_set_flag(CURRENT_JOB, "alloc-bypass"))
    p.add_handler("job.state.sched", lambda p, topic, args: {"R": R})


def test_R_forced_in_state_sched(inst, p):
    force_R(p, make_R())
    inst.load_sched()
    id = inst.submit(run_duration=1)
    assert inst.state(id) == RUN
    assert inst.rpc("job-info.lookup", {"id": id, "keys": ["R"], "flags": 1})["R"] == make_R()
    inst.unload_sched()
    inst.load_sched()
    assert inst.sched.hello == []  # the scheduler knows nothing of it
    inst.advance(1)
    assert inst.events(id)[-2:] == ["free", "clean"]
    assert inst.sched.seen == []


@pytest.mark.parametrize(
    "R", [3, {}, {"execution": 1}, {"execution": {"R_lite": [{"rank": "x"}], "nodelist": []}}]
)
def test_a_forced_R_that_is_none(inst, p, R):
    force_R(p, R)
    assert inst.events(inst.submit(run_duration=1))[-2:] == ["exception", "clean"]


def test_inactive_add_and_remove(inst, record):
    calls = record("job.inactive-*", "job.destroy")
    inst.cancel(inst.submit())
    assert topics(calls) == ["job.inactive-add", "job.destroy"]
    limits = {"age_limit": -1.0, "num_limit": 0, "batch": 50, "force": True}
    assert inst.rpc("job-manager.purge", limits) == {"count": 1}
    assert topics(calls)[-1] == "job.inactive-remove"
    assert inst.rpc("job-list.list", ALL)["jobs"] == []


@pytest.mark.parametrize("topic", ["job.state.inactive", "job.inactive-add", "job.destroy"])
def test_no_event_follows_clean(inst, p, topic):
    p.add_handler(topic, lambda p, topic, args: {"priority": "high"})
    id = inst.submit()
    inst.cancel(id)
    assert inst.events(id)[-1] == "clean"


def picky(p):
    """A plugin that refuses a configuration that is bad."""
    refuse = lambda p, topic, args: args["conf"].get("bad") and p.error("bad is bad")
    p.add_handler("conf.update", refuse)


def test_conf_update(inst, add, record):
    calls = record("conf.update")
    add(picky)
    assert calls == [("conf.update", {"conf": {}})]
    inst.rpc("config.load", {"x": {"y": 1}})
    assert calls[-1][1]["conf"] == {"x": {"y": 1}}
    assert "bad is bad" in refused(errno.EINVAL, inst.rpc, "config.load", {"bad": True})
    assert inst.rpc("config.get") == {"x": {"y": 1}}


@pytest.mark.parametrize(
    "table",
    [{"bad": True}, {"job-manager": {"housekeeping": {"release-after": "soon"}}}],
    ids=["plugin", "housekeeping"],
)
def test_a_queue_that_a_refused_configuration_lacks_is_disabled_as_before(inst, add, table):
    add(picky)
    inst.rpc("config.load", {"queues": {"batch": {}}})
    closed = {"enable": False, "reason": "full", "all": False, "name": "batch"}
    inst.rpc("job-manager.queue-enable", closed)
    refused(errno.EINVAL, inst.rpc, "config.load", table)
    assert not inst.rpc("job-manager.queue-status", {"name": "batch"})["enable"]


@pytest.mark.parametrize("answer, text", [(None, "'limit'"), ("no", "expected None, an integer")])
def test_conf_update_that_fails_the_load_is_named(inst, add, answer, text):
    def callback(p, topic, args):
        return answer or args["conf"]["limit"]

    with pytest.raises(OSError, match=r"^\[Errno 22\] mine.py: conf.update: .*" + text):
        add(lambda p: p.add_handler("conf.update", callback))
    inst.run()
    (line,) = [line for line in inst.logged() if "conf.update" in line]
    assert line.startswith("jobtap: mine.py: conf.update: ") and line.endswith("in callback)")
    assert "mine.py" not in inst.jobtap()


def test_plugin_query(inst, p):
    p.add_handler("plugin.query", lambda p, topic, args: {"data": {"count": 3}})
    answer = inst.rpc("job-manager.jobtap-query", {"name": p.name})
    assert answer["data"] == {"count": 3} and answer["path"] == p.path
    answer = inst.rpc("job-manager.jobtap-query", {"name": ".update-duration"})
    assert answer == {"name": ".update-duration", "path": "builtin"}


@pytest.fixture
def validated(inst, p):
    """The values of attributes.system.foo that went through validation, of a plugin that may be asked to update it."""
    values = []

    def update(p, topic, args):
        value = args["updates"]["attributes.system.foo"]
        if value == "no":
            p.error("foo may not be no")
        more = {"attributes.system.bar": value} if value == "more" else None
        return {"validated": value == "v", "feasibility": value == "f", "updates": more}

    def validate(p, topic, args):
        value = args["jobspec"]["attributes"]["system"].get("foo")
        if value is not None:
            values.append(value)
        if value == "invalid":
            p.reject_job("foo is invalid")

    p.add_handler("job.update.attributes.system.foo", update)
    p.add_handler("job.validate", validate)
    return values


def test_update_with_feasibility(inst, validated, sched):
    id = inst.submit()
    inst.update(id, foo="f")
    assert inst.sched.of("check")[0]["jobspec"]["attributes"]["system"]["foo"] == "f"
    inst.sched.infeasible = "cannot be"
    before = inst.events(id)
    assert "cannot be" in refused(errno.EOVERFLOW, inst.update, id, foo="f")
    assert inst.events(id) == before
