# SPDX-License-Identifier: LGPL-3.0-or-later
"""The tables of states: complete, and nothing happens that they do not have."""

import types
from pathlib import Path
from xml.etree import ElementTree

import pytest
from peers import R, Rig, jobspec

from flux.scheduler.policies import Backfill
from flux.scheduler.queue import PendingQueue
from flux.scheduler.requests import AllocRequest, Requests
from flux.scheduler.states import JOB, REQUEST, WINDOW, IllegalMove, StateTable

TABLES = pytest.mark.parametrize("table", [REQUEST, JOB, WINDOW], ids=lambda table: table.name)


@TABLES
def test_a_table_is_complete(table):
    states = set(table.moves)
    assert set(table.notes) == states and table.initial in states
    reached = {table.initial}
    for _ in states:
        reached |= {after for state in reached for after in table.moves[state].values()}
    assert reached == states, "each state can be reached, and none is missing"


@TABLES
def test_only_what_the_table_has_happens(table):
    events = {event for moves in table.moves.values() for event in moves}
    for state, moves in table.moves.items():
        for event in events:
            assert table.allows(state, event) == (event in moves)
            if event in moves:
                assert table.after(state, event) == moves[event]
            else:
                with pytest.raises(IllegalMove) as caught:
                    table.after(state, event)
                assert str(caught.value) == f"{table.name}: {event} while {state}"


def test_an_unknown_state_or_event():
    table = StateTable("lamp", "off", {"off": {"press": "on"}, "on": {}}, {"off": "", "on": ""})
    assert table.after("off", "press") == "on"
    for state, event in (("off", "pull"), ("broken", "press")):
        assert not table.allows(state, event)
        with pytest.raises(IllegalMove):
            table.after(state, event)


class Message:
    payload = {"id": 7}


class Answers:
    """A scheduler as far as a request needs one."""

    def __init__(self, raises=False):
        self.raises = raises
        self.sent = []

    def __getattr__(self, name):
        def send(msg, *args):
            if self.raises:
                raise OSError("gone")
            self.sent.append(name)

        return send


@pytest.mark.parametrize("first", ["success", "deny", "cancel"])
@pytest.mark.parametrize("second", ["success", "deny", "cancel"])
def test_a_request_is_answered_once(first, second):
    scheduler = Answers()
    request = AllocRequest(scheduler, Message())

    def answer(how):
        getattr(request, how)(*([{}] if how == "success" else []))

    answer(first)
    state = request.state
    with pytest.raises(IllegalMove, match=f"job 7: {second} of a request that is {state}"):
        answer(second)
    assert request.state == state and len(scheduler.sent) == 1
    request.annotate({"sched": {"x": 1}})
    assert len(scheduler.sent) == 1, "ignored: a forecast may come late"


def test_only_a_success_can_fail():
    request = AllocRequest(Answers(), Message())
    with pytest.raises(IllegalMove, match="request: fail while open"):
        request.fail()
    request.success({})
    request.fail()
    assert request.state == "denied"


def test_a_job_that_runs_is_not_queued():
    requests = Requests(PendingQueue())
    requests.move(7, "hello")
    assert requests.state_of(7) == "running" and requests.running == 1
    for event in ("hello", "request", "defer", "readmit", "success", "deny", "cancel"):
        with pytest.raises(IllegalMove):
            requests.move(7, event)
    requests.move(7, "free")
    requests.move(7, "final free")
    assert requests.state_of(7) == "unknown" and requests.running == 0
    requests.open(types.SimpleNamespace(), Message(), 7)
    assert requests.state_of(7) == "queued"
    requests._check()


def test_the_states_of_a_job_as_the_scheduler_sees_them():
    rig = Rig(R(1, 2), Backfill)
    requests = rig.sched._requests
    rig.alloc(1, jobspec(2))
    rig.alloc(2, jobspec(1))
    rig.alloc(3, jobspec(3))
    rig.alloc(4, jobspec(1))
    rig.settle()
    seen = {jobid: requests.state_of(jobid) for jobid in (1, 2, 3, 4)}
    assert seen == {1: "running", 2: "queued", 3: "unknown", 4: "queued"}
    rig.cancel(4)
    rig.free(1)
    rig.settle()
    seen = {jobid: requests.state_of(jobid) for jobid in (1, 2, 3, 4)}
    assert seen == {1: "unknown", 2: "running", 3: "unknown", 4: "unknown"}
    requests._check()


@TABLES
def test_the_picture_shows_all_states_and_moves(table, monkeypatch):
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3] / "doc" / "_ext"))
    from state_tables import moves_between, picture, table_text

    drawn = ElementTree.fromstring(picture(table))
    texts = [one.text for one in drawn.iter() if one.tag.endswith("text")]
    between = moves_between(table)
    assert sorted(texts) == sorted([*table.moves, *map(", ".join, between.values())])
    arrows = [one for one in drawn.iter() if "marker-end" in one.attrib]
    assert len(arrows) == len(between)
    text = "\n".join(table_text(table))
    for state, events in table.moves.items():
        assert f"**{state}**" in text and table.notes[state] in text
        for event, after in events.items():
            assert f"*{event}*: {after}" in text
