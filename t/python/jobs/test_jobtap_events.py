# SPDX-License-Identifier: LGPL-3.0-or-later
"""The event processing model of jobtap: synchronous for idle jobs, queued for busy ones, never recursive."""

import sys

from flux.jobtap import CURRENT_JOB

DEPEND, PRIORITY, SCHED, RUN, INACTIVE = 2, 4, 8, 16, 64


def gate(p):
    """Hold every job with dependency ``gate``."""
    p.add_handler(
        "job.dependency.gate", lambda p, topic, args: p.dependency_add(CURRENT_JOB, "gate")
    )


def gated(inst):
    return inst.submit(dependencies=[{"scheme": "gate", "value": ""}])


def test_idle_job_is_processed_before_the_call_returns(inst, p):
    gate(p)
    id = gated(inst)
    calls = []
    for state in ("priority", "sched"):
        called = lambda p, topic, args: calls.append((topic, args["state"]))
        p.add_handler(f"job.state.{state}", called)
    p.dependency_remove(id, "gate")
    assert calls == [("job.state.priority", PRIORITY), ("job.state.sched", SCHED)]
    assert p.job_lookup(id)["state"] == SCHED


def test_another_job_is_processed_within_a_callback(inst, p):
    gate(p)
    first = gated(inst)
    states = []

    def new(p, topic, args):
        p.dependency_remove(first, "gate")
        states.append(p.job_lookup(first)["state"])

    p.add_handler("job.state.depend", new)
    inst.submit()
    assert states == [SCHED]


def test_state_is_stable_within_a_callback(inst, p):
    """Events for the current job wait until the callback has returned."""
    gate(p)
    seen = []

    def depend(p, topic, args):
        p.dependency_remove(CURRENT_JOB, "gate")
        p.event_post(CURRENT_JOB, "debug.one")
        seen.append(p.job_lookup(CURRENT_JOB)["state"])
        seen.append(p.job_event_posted(CURRENT_JOB, "debug.one"))

    p.add_handler("job.state.depend", depend)
    id = gated(inst)
    assert seen == [DEPEND, True]
    names = "submit dependency-add validate dependency-remove debug.one depend priority"
    assert inst.events(id) == names.split()


def test_callbacks_of_queued_events_come_after_the_running_one(inst, p):
    order = []

    def priority(p, topic, args):
        order.append("priority begins")
        p.event_post(CURRENT_JOB, "debug.x")
        order.append("priority ends")

    p.add_handler("job.new", lambda p, topic, args: p.job_subscribe(CURRENT_JOB))
    p.add_handler("job.state.priority", priority)
    p.add_handler("job.event.debug.x", lambda p, topic, args: order.append("event"))
    p.add_handler("job.state.sched", lambda p, topic, args: order.append("sched"))
    inst.submit()
    assert order == ["priority begins", "priority ends", "event", "sched"]


def test_an_event_chain_does_not_recurse(inst, p):
    """Each event posts the next: the stack stays where it is."""
    depths = []

    def event(p, topic, args):
        frame, depth = sys._getframe(), 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1
        depths.append(depth)
        if len(depths) < 5000:
            p.event_post(CURRENT_JOB, "debug.next")

    p.add_handler("job.event.debug.next", event)
    id = inst.submit()
    p.job_subscribe(id)
    p.event_post(id, "debug.next")
    assert len(depths) == 5000 and max(depths) == min(depths)


def test_failure_runs_down_a_chain_of_dependencies(inst):
    first = previous = inst.submit(urgency=0)
    chain = []
    for _ in range(1500):
        previous = inst.submit(dependencies=[{"scheme": "afterok", "value": str(previous)}])
        chain.append(previous)
    inst.cancel(first)
    assert {inst.state(id) for id in chain} == {INACTIVE}
    assert inst.events(chain[-1])[-2:] == ["exception", "clean"]
