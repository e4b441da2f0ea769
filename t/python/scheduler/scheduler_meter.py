# SPDX-License-Identifier: LGPL-3.0-or-later
"""Processor time, or anything else that grows, of a scheduler in a `peers.Rig`: for t/bench and test_step_sizes.py.

That of its thread: the clock of the process advances in steps of 4 ms while a timer of processor time, as the
watchdog's, is set.
"""

import time


class RealClock:
    """The time of the machine, for a rig: the run time of the scheduler's code counts."""

    virtual = False
    now = staticmethod(time.time)

    @staticmethod
    def advance_to(when):
        time.sleep(max(0.0, when - time.time()))


class SchedulerMeter:
    """Processor time, or what `clock` returns, in the callbacks of a rig's scheduler, without that of its peers: `spent`
    since `reset`, and in the `longest`."""

    def __init__(self, rig, clock=time.thread_time):
        self._clock = clock
        self.spent = self.longest = 0.0
        self._of_peers = 0.0
        self._in_peer = False
        reactor, task = rig.reactor, rig.instance.handle.task
        task.dispatch, task.interrupt = self._timed(task.dispatch), self._timed(task.interrupt)
        reactor.request, reactor.respond = (
            self._as_peer(reactor.request),
            self._as_peer(reactor.respond),
        )

    def reset(self):
        self.spent = self.longest = 0.0

    def _timed(self, function):
        def call(*args):
            self._of_peers = 0.0
            began = self._clock()
            function(*args)
            took = self._clock() - began - self._of_peers
            self.spent += took
            self.longest = max(self.longest, took)

        return call

    def _as_peer(self, function):
        def call(*args):
            if self._in_peer:
                return function(*args)
            self._in_peer = True
            began = self._clock()
            try:
                return function(*args)
            finally:
                self._of_peers += self._clock() - began
                self._in_peer = False

        return call
