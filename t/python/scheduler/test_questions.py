# SPDX-License-Identifier: LGPL-3.0-or-later
"""Answering a little at a time: turns, order, failures, and long lists."""

import gc
import json
import weakref
from functools import partial
from types import SimpleNamespace

import pytest
from peers import Client, R, Rig

from flux.scheduler.query import answering as module
from flux.scheduler.query.answering import Answering


class Handle:
    """A reactor whose turns a test takes; a timer fires once for each time it is armed."""

    def __init__(self, log=None):
        self.armed = 0
        self.log = log

    def respond(self, msg, answer):
        self.log.append(answer)

    def timer_watcher_create(self, after, callback):
        self.callback = callback
        return self

    def reset(self, after=None):
        assert after >= 0.0
        self.after = after
        self.armed += 1

    def stop(self):
        self.armed = 0

    def turn(self):
        assert self.armed == 1
        self.armed = 0
        self.callback(self, self, 0, None)


class Stopwatch:
    """A step takes a third of a slice."""

    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time

    def step(self):
        self.time += module.ANSWER_SECONDS_PER_TURN / 3


def answering_of(handle, stopwatch, serve):
    """For requests without limits."""
    config = SimpleNamespace(get=dict)
    own = {"handle": handle, "stopwatch": stopwatch}
    host = SimpleNamespace(config=config, has_virtual_time=False, **own)
    return Answering(host, SimpleNamespace(limits=None, serve=serve))


def question(stopwatch, log, name, steps, error=None):
    for number in range(steps):
        stopwatch.step()
        log.append((name, number))
        yield
    if error is not None:
        raise error
    return {"name": name}


@pytest.fixture
def work():
    stopwatch, log = Stopwatch(), []
    handle = Handle(log)
    answering = answering_of(handle, stopwatch, partial(serve, log))

    def ask(name, steps, error=None, userid=0):
        answering.begin(question(stopwatch, log, name, steps, error), Message(userid, 1))

    return handle, log, ask


def serve(log, msg, function):
    try:
        function()
    except (TypeError, ValueError) as exc:
        log.append(exc)


def test_no_more_than_a_slice_in_a_turn_however_many_ask(work):
    handle, log, ask = work
    for name in "abc":
        ask(name, 4)
    handle.turn()
    assert len(log) == 3  # of the first; the others have not begun
    while handle.armed:
        before = len([one for one in log if isinstance(one, tuple)])
        handle.turn()
        assert len([one for one in log if isinstance(one, tuple)]) - before <= 3
    assert [one for one in log if isinstance(one, str)] == [f'{{"name": "{n}"}}' for n in "abc"]


def test_one_that_rests_stops_no_other_of_its_user(work):
    handle, log, ask = work

    def rests(after):
        log.append(("rests", after))
        yield after
        return {"name": "rested"}

    answering = handle.callback.__self__
    for _ in range(2):
        answering.begin(rests(1e9), Message(0, 1))
    ask("a", 1)
    handle.turn()
    assert log == [("rests", 1e9), ("rests", 1e9), ("a", 0), '{"name": "a"}']
    assert handle.after > 1e8
    ask("b", 1)
    assert handle.after == 0.0
    handle.turn()
    assert log[-1] == '{"name": "b"}'


def test_one_that_fails_stops_no_other(work):
    handle, log, ask = work
    error = ValueError("no such job")
    ask("a", 3)
    ask("b", 1, error)
    ask("c", 1)
    while handle.armed:
        handle.turn()
    assert log[-4:] == [("b", 0), error, ("c", 0), '{"name": "c"}']


def test_an_answer_that_cannot_be_encoded_is_a_failure(work):
    handle, log, ask = work

    def odd():
        yield
        return {"what": object()}

    answering_of(handle, lambda: 0.0, partial(serve, log)).begin(odd(), Message(0, 1))
    handle.turn()
    assert isinstance(log[-1], TypeError)


def test_users_take_turns(work):
    handle, log, ask = work
    for name in "abc":
        ask(name, 4, userid=1)
    ask("d", 4, userid=2)
    while handle.armed:
        handle.turn()
    done = [json.loads(one)["name"] for one in log if isinstance(one, str)]
    assert done == ["a", "d", "b", "c"]


class Message:
    topic = "sched.when"
    payload = None

    def __init__(self, userid, rolemask, payload_size=0):
        self.userid, self.rolemask, self._payload_size = userid, rolemask, payload_size

    @property
    def payload_size(self):
        return self._payload_size


def test_so_many_are_open_and_no_more():
    handle, stopwatch, log = Handle(), Stopwatch(), []
    answering = answering_of(handle, stopwatch, lambda msg, serve: None)

    def ask(userid, rolemask=2, size=0):
        answering.answer(
            Message(userid, rolemask, size),
            lambda payload, caller: question(stopwatch, log, caller.userid, 4),
        )

    for _ in range(module.MAX_OPEN_OF_GUEST):
        ask(9999)
    with pytest.raises(BlockingIOError, match="of yours are not answered yet"):
        ask(9999)
    for number in range(module.MAX_OPEN_OF_GUESTS - module.MAX_OPEN_OF_GUEST):
        ask(10000 + number)
    with pytest.raises(BlockingIOError, match="too many questions are"):
        ask(9998)
    for _ in range(module.MAX_OPEN - module.MAX_OPEN_OF_GUESTS):
        ask(0, 1)
    with pytest.raises(BlockingIOError, match="too many questions are"):
        ask(0, 1)
    while handle.armed:
        handle.turn()
    # They are kept as they came, so large ones count for more.
    for _ in range(4):
        ask(9999, size=8 * module.BYTES_OF_ONE)
    with pytest.raises(BlockingIOError, match="of yours are not answered yet"):
        ask(9999)


def test_nothing_holds_a_question_that_was_refused():
    """Its payload may be large, and the collector of cycles runs late."""
    handle, refused = Handle(), []

    def refuse(payload, caller):
        raise ValueError("too many")
        yield

    def serve(msg, function):
        try:
            function()
        except ValueError as exc:
            refused.append(str(exc))

    answering = answering_of(handle, lambda: 0.0, serve)
    msg = Message(9999, 2)
    here = weakref.ref(msg)
    gc.disable()
    try:
        answering.answer(msg, refuse)
        del msg
        handle.turn()
        handle.turn()
        assert refused == ["too many"] and here() is None
    finally:
        gc.enable()


def test_questions_of_a_client_that_has_disconnected_are_forgotten():
    rig = Rig(R(4, 4), "sched-backfill")
    first, second = Client(9999), Client(9999)
    for client in (first, second, first):
        rig.client = client
        rig.send("sched.windows", {})
    rig.client = first
    rig.send("sched.disconnect", None, respond=False)
    rig.settle()
    assert [topic for topic, _, _ in rig.received] == ["sched.windows"]
