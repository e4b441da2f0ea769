# SPDX-License-Identifier: LGPL-3.0-or-later
"""No plugin holds up the job manager or its jobs for good: waiting is limited, prologs and epilogs are closed, and
posting without end is refused."""

import errno

import pytest
from in_process import refused

from flux.jobtap import CURRENT_JOB
from flux.jobtap.perilogs import MAX_OPEN
from flux.jobtap.plugin_handle import MAX_POSTS_PER_TURN, MAX_WAIT
from flux.scheduler.testing import jobspec
from flux_engine.kernel.service import Service, request

CLEANUP, INACTIVE = 32, 64


class Silent(Service):
    """A service that never answers."""

    name = "silent"

    @request("ask", guest=True, later=True)
    def _ask(self, msg):
        self.asked = msg


@pytest.fixture
def silent(inst):
    Silent(inst.ctx).start()
    inst.run()


def running(inst, **kwargs):
    """A job that comes to RUN; its id."""
    if inst.sched is None:
        inst.load_sched(auto=True)
    id = inst.submit(run_duration=1, **kwargs)
    inst.run()
    return id


PERILOGS = pytest.mark.parametrize(
    "topic, kind", [("job.state.run", "prolog"), ("job.state.cleanup", "epilog")]
)


def functions(p, kind):
    """The functions that start and finish a prolog or an epilog."""
    return getattr(p, f"{kind}_start"), getattr(p, f"{kind}_finish")


def exceptions(inst, id):
    return [event["context"] for event in inst.eventlog(id) if event["name"] == "exception"]


# -- waiting -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how, seconds", [("get", MAX_WAIT), ("get_str", MAX_WAIT), ("wait_for", 3)]
)
def test_waiting_in_a_callback_ends(inst, p, silent, how, seconds):
    refused = []

    def wait(p, topic, args):
        future = p.handle.rpc("silent.ask", {})
        try:
            getattr(future, how)(*([seconds] if how == "wait_for" else []))
        except OSError as exc:
            refused.append((exc.errno, exc.strerror))

    p.add_handler("job.state.depend", wait)
    body = {"jobspec": jobspec(), "urgency": 16, "flags": 0}
    future = inst.handle.rpc("job-ingest.submit", body)
    inst.advance(seconds + 1)
    assert future.is_ready() and future.get()["id"]
    ((number, text),) = refused
    assert number == errno.ETIMEDOUT
    assert f"silent.ask: no answer within {seconds:g} second" in text
    assert "then(callback)" in text and "wait_for(seconds)" in text


# -- prologs and epilogs ---------------------------------------------------------------------------------


@PERILOGS
@pytest.mark.parametrize("same_name", [False, True])
def test_removal_finishes_all_that_are_open(inst, p, topic, kind, same_name):
    start, finish = functions(p, kind)

    def begin(p, topic, args):
        start("over")
        finish(CURRENT_JOB, "over", 0)
        for i in range(200):
            start("one" if same_name else f"number {i}")

    p.add_handler(topic, begin)
    ids = [running(inst) for _ in range(3)]
    inst.advance(5)
    assert all(inst.state(id) != INACTIVE for id in ids) and inst.sched.of("free") == []
    inst.jobtap(remove="mine.py")
    inst.advance(5)
    for id in ids:
        assert inst.state(id) == INACTIVE and inst.events(id).count("free") == 1
        log = [event for event in inst.eventlog(id) if event["name"] == f"{kind}-finish"]
        assert [event["context"]["status"] for event in log] == [0] + [256] * 200
        (exception,) = exceptions(inst, id)
        severity = 0 if kind == "prolog" else 1
        assert (exception["type"], exception["severity"]) == (kind, severity)
        assert "mine.py" in exception["note"]
    text = f"plugin mine.py was removed: 600 {kind}s of its jobs finished"
    assert any(text in line for line in inst.logged())


@PERILOGS
def test_a_perilog_of_a_callback_ends_if_it_raises(inst, p, topic, kind):
    start, finish = functions(p, kind)

    def begin(p, topic, args):
        start("kept")
        finish(CURRENT_JOB, "kept", 0)
        start("one")
        start("two")
        raise ValueError("in between")

    p.add_handler(topic, begin)
    id = running(inst)
    inst.advance(5)
    assert inst.state(id) == INACTIVE
    finished = [e["context"] for e in inst.eventlog(id) if e["name"] == f"{kind}-finish"]
    found = [(context["description"], context["status"]) for context in finished]
    assert found == [("kept", 0), ("one", 256), ("two", 256)]
    (exception,) = exceptions(inst, id)
    assert exception["type"] == kind and exception["severity"] == (0 if kind == "prolog" else 1)
    assert exception["note"] == f"mine.py: {topic} failed during {kind} 'one'"
    assert any(f"mine.py: {topic} failed: 2 {kind}s of its jobs" in text for text in inst.logged())


def test_a_prolog_of_a_timer_ends_if_it_raises(inst, p):
    def fire(h, watcher, revents, id):
        p.prolog_start("late", id)
        raise ValueError("in between")

    p.add_handler("job.state.run", lambda p, t, a: p.prolog_start("first"))
    id = running(inst)
    p.handle.timer_watcher_create(0.5, fire, args=id).start()
    inst.advance(1)
    assert inst.events(id)[-3:] == ["prolog-start", "exception", "prolog-finish"]


def test_a_job_has_no_more_of_them_than_can_be_counted(inst, p):
    done = []

    def start(p, topic, args):
        for _ in range(MAX_OPEN):
            p.prolog_start("many")
        refused(errno.EOVERFLOW, p.prolog_start, "many")
        done.append(topic)

    p.add_handler("job.state.run", start)
    id = running(inst)
    assert done == ["job.state.run"]
    assert inst.events(id).count("prolog-start") == MAX_OPEN
    inst.jobtap(remove="mine.py")
    inst.advance(5)
    assert inst.state(id) == INACTIVE


@pytest.mark.parametrize("status", ["0", 1.0, None, True, 1 << 31])
def test_if_removed_is_a_wait_status(inst, p, status):
    text = refused(errno.EINVAL, p.prolog_start, "x", inst.submit(), if_removed=status)
    assert text.startswith("prolog_start: if_removed=") and ": expected an integer" in text


# -- events ----------------------------------------------------------------------------------------------


def test_events_without_end(inst, p):
    p.add_handler("job.event.debug.x", lambda p, t, a: p.event_post(CURRENT_JOB, "debug.x"))
    id = inst.submit()
    p.job_subscribe(id)
    p.event_post(id, "debug.x")
    assert inst.events(id).count("debug.x") == 1 + MAX_POSTS_PER_TURN
    assert any("mine.py has posted debug.x to job" in text for text in inst.logged())


@pytest.mark.parametrize("severity", [0, 3])
def test_exceptions_without_end(inst, p, severity):
    """A callback that answers each exception by another one."""
    p.add_handler("job.new", lambda p, t, a: p.job_subscribe(CURRENT_JOB))
    for topic in ("job.state.run", "job.state.cleanup", "job.event.exception"):
        p.add_handler(topic, lambda p, t, a: p.raise_exception(CURRENT_JOB, "policy", severity, t))
    id = running(inst)
    inst.advance(5)
    assert inst.state(id) == INACTIVE
    assert 100 <= inst.events(id).count("exception") <= 220
    assert any("mine.py has posted exception to job" in text for text in inst.logged())


@PERILOGS
def test_finishing_another_than_the_open_one_is_refused(inst, p, topic, kind):
    """A job does not go on early because one of two was finished twice, or under another name."""
    start, finish = functions(p, kind)
    p.add_handler(topic, lambda p, topic, args: [start("one"), start("two")] and None)
    id = running(inst)
    inst.advance(5)
    finish(id, "one", 0)
    for wrong in ("one", "twoo"):
        text = refused(errno.EINVAL, finish, id, wrong, 0)
        assert f"'{wrong}' is not open, only 'two' of job {id}" in text
    assert inst.events(id)[-1] == f"{kind}-finish"
    finish(id, "two", 0)
    inst.advance(5)
    assert inst.state(id) == INACTIVE
