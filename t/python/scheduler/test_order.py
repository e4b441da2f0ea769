# SPDX-License-Identifier: LGPL-3.0-or-later
"""Order by queue: queues with nodes of their own never hold up each other; others by priority."""

import pytest
from peers import R, Rig, jobspec

STRICT = pytest.mark.parametrize("module", ["sched-fifo", "sched-simple"])


def make(module, *args, cls=Rig, estimates=True, **keys):
    properties = {"a": "0-3", "b": "4-7", "ab": "0-7", "wide": "2-5"}
    rig = cls(R(8, 4, properties=properties), estimates=estimates)
    rig.load(module, *args, **keys)
    return rig


def whole(count, queue=None, duration=0):
    constraints = None if queue is None else {"properties": [queue]}
    return jobspec(1, nodes=count, exclusive=True, duration=duration, constraints=constraints)


def fill(rig, queue, first=1):
    """A job on all of a queue's four nodes and one that waits behind it."""
    rig.alloc(first, whole(4, queue, 1000))
    rig.alloc(first + 1, whole(4, queue, 1000))


@STRICT
def test_queues_that_share_nodes_go_by_priority(module):
    rig = make(module, "order=queue")
    fill(rig, "a")
    rig.alloc(3, whole(1, "wide", 10), priority=16)  # behind 2, with which it shares nodes
    rig.alloc(4, whole(1, "b", 10))  # behind 3, with which it shares nodes
    assert rig.started() == [1]
    rig.alloc(5, whole(1, "wide", 10), priority=20)
    assert rig.started() == [1, 5]


@STRICT
def test_a_limited_depth_must_not_hide_a_queue(module):
    assert make(module).manager.ready_request == {"mode": "limited", "limit": 8}
    assert make(module, "order=queue").manager.ready_request == {"mode": "unlimited"}
    depth = make(module, "order=queue", "queue-depth=3").manager.ready_request
    assert depth == {"mode": "limited", "limit": 3}


@STRICT
def test_questions_know_the_order(module):
    rig = make(module, "order=queue")
    begin = rig.now
    rig.arrive({1: whole(4, "a", 1000), 2: whole(4, "a")}, wait=2)

    def when(queue):
        answer = rig.answer("when", jobspec=whole(2, queue, 60))
        return answer["verdict"], answer["start"]

    assert when("b") == ("now", rig.now)
    assert when("a") == ("unknown", None)
    assert when(None) == ("later", begin + 1000)  # on what job 2 leaves, when that has started
    (kind,) = rig.answer("windows", horizon=3600)["kinds"]
    assert kind["steps"] == [[4, rig.now + 3600]] and kind["total"] == 8
    rig.alloc(3, whole(8, "ab", 10))
    (kind,) = rig.answer("windows", horizon=3600)["kinds"]
    assert kind["steps"] == []
    assert begin < rig.now
