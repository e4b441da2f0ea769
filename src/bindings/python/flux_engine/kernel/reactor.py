"""Time, timers, and the order of events in a turn.

With a virtual clock the same input gives the same run, message by message: a turn handles due timers first, then the
messages sent before the turn began, in the order in which they were sent.

Nothing here needs greenlets: `kernel` adds them, for tasks that block; in a `direct` reactor no task has to.
"""

import heapq
import itertools

from flux_engine.kernel.clock import RealClock
from flux_engine.kernel.routing import Router

#: Turns at one moment after which a scheduler is assumed never to finish. A pass over 10,000 jobs that yields after
#: each takes 10,000 turns.
MAX_TURNS_AT_ONE_TIME = 1_000_000


class Reactor(Router):
    """Calls due timers and delivers messages, turn by turn.

    Args:
        clock: a RealClock (default) or VirtualClock
        size (int): number of broker ranks of the instance, for requests that name one

    Attributes:
        time (float): seconds since the epoch, as it was last seen
        running (Task): the task that has the processor now, or None
        turns (int): turns so far
        module_handle: class of the handles of modules, if not the default
        intercept: None, or ``intercept(endpoint, msg)`` called before each delivery; a message
            for which it returns true is not delivered (traces, fault runs)
    """

    def __init__(self, clock=None, size=1):
        super().__init__(size)
        self.clock = clock or RealClock()
        self.time = self.clock.now()
        self.serial = itertools.count(1)
        #: for matchtags: they tell apart the tasks of an outside program, which share one connection
        self.tags = itertools.count(1)
        self.running = None
        self.intercept = None
        self.turns = 0
        self.module_handle = None
        self._timers = []
        self._added = 0  # number of timers so far
        self._expired_at, self._expiries = None, 0
        #: kind -> watchers; insertion order is firing order
        self.loop_watchers = {"prepare": {}, "check": {}, "idle": {}}
        self.idle_watchers = self.loop_watchers["idle"]

    # -- time ----------------------------------------------------------------------------------

    def now(self):
        """Seconds since the epoch, as the reactor last saw them."""
        return self.time

    def set_time(self, when):
        """Let a virtual clock go to `when`, seconds since the epoch."""
        self.time = self.clock.advance_to(when)

    def add_timer(self, deadline, watcher):
        """Call ``watcher.expired(entry)`` at `deadline`; set the entry's last item to None to cancel."""
        self._added += 1
        entry = [deadline, self._added, watcher]
        heapq.heappush(self._timers, entry)
        return entry

    def call_at(self, deadline, function):
        """Call ``function()`` at `deadline`, outside of any task; returns the `Call`, which can be cancelled."""
        call = Call(function)
        call.entry = self.add_timer(deadline, call)
        return call

    def call_later(self, seconds, function):
        """Call ``function()`` after `seconds`: see `call_at`."""
        return self.call_at(self.time + seconds, function)

    def call_soon(self, function):
        """Call ``function()`` after the messages that are queued now."""
        self.ready.append((CALL, function))

    def next_timer(self):
        """Time of the next timer, seconds since the epoch; None if there is none."""
        timers = self._timers
        while timers and timers[0][2] is None:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def _due(self):
        when = self.next_timer()
        return when is not None and when <= self.time

    def expire(self):
        """Call the timers that are due. Raises as `count_turn`."""
        self.count_turn()
        self._expire()

    def count_turn(self):
        """Count a turn that called functions without waiting. RuntimeError: there were too many without time passing."""
        if self.time != self._expired_at:
            self._expired_at, self._expiries = self.time, 0
        self._expiries += 1
        if self._expiries > MAX_TURNS_AT_ONE_TIME:
            raise restless()

    def _expire(self):
        timers, now, last = self._timers, self.time, self._added
        # Timers that these start are for the next turn, or a timer of 0 s could hold the loop.
        while timers and timers[0][0] <= now and timers[0][1] <= last:
            entry = heapq.heappop(timers)
            if entry[2] is not None:
                entry[2].expired(entry)

    # -- turns ---------------------------------------------------------------------------------

    def turn(self):
        self.turns += 1
        # A reactor may begin anywhere in a turn; its idle watchers wait for the next one.
        idle = list(self.idle_watchers)
        for watcher in list(self.loop_watchers["prepare"]):
            watcher.fire()
        self._poll()
        for watcher in list(self.loop_watchers["check"]):
            watcher.fire()
        timers, ready = self._timers, self.ready
        if timers and timers[0][0] <= self.time:
            self.expire()
        for _ in range(len(ready)):
            endpoint, msg = ready.popleft()
            if endpoint is CALL:
                msg()
            elif self.intercept is None or not self.intercept(endpoint, msg):
                if not endpoint.closed:
                    endpoint.receive(msg)
                else:
                    self.undeliverable(msg)
        for watcher in idle:
            watcher.fire()

    def _poll(self):
        """Poll external input."""

    def is_idle(self):
        """Whether nothing can happen before time passes."""
        return not self.ready and not self.idle_watchers and not self._due()


def restless():
    """Return the error for a scheduler that keeps the reactor busy without time passing."""
    return RuntimeError(
        f"the scheduler does not come to rest: {MAX_TURNS_AT_ONE_TIME} turns of the reactor at one time"
    )


class Call:
    """A function in the place of a timer watcher; see `Reactor.call_at`."""

    __slots__ = ("entry", "function")

    def __init__(self, function):
        self.function = function

    @property
    def when(self):
        """Time of the call, seconds since the epoch."""
        return self.entry[0]

    def cancel(self):
        """Do not call it."""
        self.entry[2] = None

    def expired(self, entry):
        entry[2] = None
        self.function()


#: In place of an endpoint in `Router.ready`: the "message" is a function to call.
CALL = object()
