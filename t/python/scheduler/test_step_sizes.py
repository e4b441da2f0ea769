# SPDX-License-Identifier: LGPL-3.0-or-later
"""No reactor turn of a scheduler that ranks jobs does more the more jobs are pending.

What a turn does is counted in function calls, which are the same on every machine.
"""

import gc
import sys

import pytest
from peers import R, Rig, jobspec

NODES = 64


class CallMeter:
    """Counts the function calls of each callback of the scheduler.

    Args:
        rig (Rig): with its module loaded

    Attributes:
        most (int): calls of the callback that made most of them, since `reset`
    """

    def __init__(self, rig):
        self.most = self._calls = 0
        reactor, task = rig.reactor, rig.instance.handle.task
        task.dispatch, task.interrupt = (
            self._counting(task.dispatch),
            self._counting(task.interrupt),
        )
        reactor.request, reactor.respond = _uncounted(reactor.request), _uncounted(reactor.respond)

    def reset(self):
        self.most = 0

    def _counting(self, function):
        def count(frame, event, arg):
            if event in ("call", "c_call"):
                self._calls += 1

        def call(*item):
            self._calls = 0
            gc.disable()  # finalizers of what earlier tests left are not the scheduler's
            sys.setprofile(count)
            try:
                function(*item)
            finally:
                sys.setprofile(None)
                gc.enable()
                self.most = max(self.most, self._calls)

        return call


def _uncounted(function):
    """What peers do is not the scheduler's."""

    def call(*args):
        profile = sys.getprofile()
        sys.setprofile(None)
        try:
            return function(*args)
        finally:
            sys.setprofile(profile)

    return call


def whole(nodes, duration):
    return jobspec(1, nodes=nodes, cores=4, duration=duration)


def come_back(rig):
    rig.resource.update(down="7")
    rig.settle()
    rig.resource.update(up="7")


def extend(rig):
    rig.expire(1, rig.now + 30000)


def end_one(rig):
    rig.free(1)


def submit(rig):
    rig.alloc(999999, whole(2, 500))


def submit_urgent(rig):
    rig.alloc(999999, whole(NODES, 7000), priority=31)


def submit_urgent_that_fits(rig):
    rig.alloc(999999, whole(1, 90000), priority=31)


def fill(rig, pending):
    """Jobs of one node that leave one free, and `pending` jobs of different shapes that wait, one
    in three of a lower priority."""
    for jobid in range(1, NODES):
        rig.alloc(jobid, whole(1, 10000 + jobid))
    rig.settle()
    for jobid in range(NODES, NODES + pending):
        priority = 16 - jobid % 3 // 2
        rig.alloc(jobid, whole(2 + jobid % 37, 600 * (1 + jobid % 11)), priority=priority)
    rig.settle()


@pytest.mark.parametrize(
    "args",
    [
        ["rank=expansion", "predict=class"],
        ["rank=wfp3", "candidates=shortest"],
        ["rank=shortest", "promise=unlimited"],
        ["profile=short-waits", "within=0"],
        ["profile=short-waits"],
    ],
    ids=" ".join,
)
def test_no_turn_does_more_the_more_jobs_are_pending(args):
    most = {}
    for pending in (300, 1200):
        rig = Rig(R(NODES, 4), "sched-backfill", "reason-depth=0", *args, estimates=False)
        meter = CallMeter(rig)
        fill(rig, pending)
        rig.wait(2)
        for event in (submit, submit_urgent_that_fits, submit_urgent, extend, end_one, come_back):
            meter.reset()
            event(rig)
            rig.settle()
            most[pending, event.__name__] = meter.most
            if event.__name__.startswith("submit"):
                rig.cancel(999999)
                rig.settle()
    grown = {
        event: (most[300, event], most[1200, event])
        for pending, event in most
        if pending == 300 and most[1200, event] > 1.3 * most[300, event] + 300
    }
    assert grown == {}, most


def test_no_turn_does_more_the_more_promises_are_bound_to_ranks():
    """Also not the first after a quiet time, which may spend all the effort that was saved."""
    most = {}  # calls of the longest turn after each end
    for promises in (100, 400):
        rig = Rig(
            R(200, 16), "sched-backfill", "reason-depth=0", "promise=unlimited", estimates=False
        )
        meter = CallMeter(rig)
        for jobid in range(1, 201):
            rig.alloc(jobid, jobspec(1, cores=9, nodes=1, duration=5000 + 7 * jobid))
        rig.settle()
        for jobid in range(1000, 1000 + promises):
            spec = jobspec(
                1, cores=8 + jobid % 9, nodes=6 + jobid % 37, duration=600 * (1 + jobid % 11)
            )
            rig.alloc(jobid, spec)
        rig.settle()
        plan = rig.sched.planning.current()
        assert len(plan.promises()) == promises and not plan.is_counted
        turns = []
        for jobid in (1, 2, 150):
            meter.reset()
            rig.free(jobid)
            rig.settle()
            turns.append(meter.most)
        most[promises] = turns
    # Some milliseconds; one search with all the effort that was saved would be 35,000 calls, and the
    # looks at a row of 400 promises 40,000.
    assert max(most[100] + most[400]) < 22_000, most
