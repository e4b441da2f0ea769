"""The kernel: one queue of messages, one list of timers, one loop.

Everything that happens in an instance is a delivery from `Kernel.ready`, a timer, a readable file
descriptor or an idle watcher, and they are taken in one fixed order. With a virtual clock and no
outside clients, the same input therefore gives the same run, message by message.

The loop runs in a greenlet of its own, the *hub*. Builtin services and broker modules run in
theirs (see `task`), so that a blocking ``get()`` is no more than a switch to the hub.
"""

import heapq
import itertools
import time
from threading import get_ident

from greenlet import getcurrent, greenlet

from flux_engine.kernel.clock import RealClock
from flux_engine.kernel.descriptors import Descriptors
from flux_engine.kernel.routing import Router

#: While messages are moving, file descriptors are only looked at every so many turns.
TURNS_BETWEEN_POLLS = 8

#: A virtual clock goes no further, whatever users ask for: the end of the year 9999.
END_OF_TIME = 253402300799.0

#: What the operating system is asked to wait at once; it takes no number however large.
LONGEST_WAIT = 86400.0


class Kernel(Router):
    """Moves messages between endpoints, and time.

    Args:
        clock: a RealClock (default) or VirtualClock
        size (int): number of broker ranks of the instance, for requests that name one

    Attributes:
        running (Task): the task that has the processor now, or None
        turns (int): turns of the loop so far
        waiting (bool): the loop waits for something to happen
        module_handle: class of the handles of modules, if they are to have one of their own
        intercept: None, or ``intercept(endpoint, msg)`` called before each delivery; what it
            returns true for is not delivered (traces, fault runs)
    """

    def __init__(self, clock=None, size=1):
        super().__init__(size)
        self.clock = clock or RealClock()
        self.serial = itertools.count(1)
        #: for matchtags: an outside program's tasks share one connection, on which they are told apart by these
        self.tags = itertools.count(1)
        self.running = None
        self.intercept = None
        self.turns = 0
        self.waiting = False
        self.module_handle = None
        self.time = self.clock.now()
        self._timers = []
        self._timer_seq = itertools.count()
        # Insertion order is firing order.
        self.prepare_watchers = {}
        self.check_watchers = {}
        self.idle_watchers = {}
        self._descriptors = Descriptors()
        #: ``add_fd(fd, events, callback)`` and the rest: see `Descriptors`
        self.add_fd = self._descriptors.add
        self.modify_fd = self._descriptors.modify
        self.remove_fd = self._descriptors.remove
        self.add_signal = self._descriptors.add_signal
        self._hub = None
        self._thread = None
        self._until = None
        self._runner = None

    # -- time ----------------------------------------------------------------------------------

    def now(self):
        """Seconds since the epoch, as the loop last saw them."""
        return self.time

    def add_timer(self, deadline, watcher):
        """Call ``watcher.expired(entry)`` at `deadline`; set the entry's last item to None to cancel."""
        entry = [deadline, next(self._timer_seq), watcher]
        heapq.heappush(self._timers, entry)
        return entry

    def call_at(self, deadline, function):
        """Call ``function()`` in the hub at `deadline`; returns the entry (see `add_timer`)."""
        return self.add_timer(deadline, _Call(function))

    def call_later(self, seconds, function):
        """Call ``function()`` in the hub after `seconds`; returns the entry (see `add_timer`)."""
        return self.call_at(self.time + seconds, function)

    # -- running -------------------------------------------------------------------------------

    def run(self, until=None):
        """Run the loop until `stop`, or until ``until()`` is true after some turn.

        Raises:
            RuntimeError: nothing is left that could ever make another turn
        """
        if until is not None and until():
            return
        self._until = until
        self._runner = getcurrent()
        try:
            self.switch_to_hub()
        finally:
            self._runner = None
            self._until = None

    def run_until_idle(self):
        """Run everything that can run without time passing."""
        self.run(until=self._is_idle)

    def stop(self):
        """Make `run` return after the current turn; nothing happens when nobody is in it."""
        if self._runner is not None:
            self._until = _always

    def dispose(self):
        """Give back the descriptors and end the loop's greenlet: this kernel does not run again."""
        hub, self._hub = self._hub, None
        if (
            hub is not None
            and not hub.dead
            and hub is not getcurrent()
            and self._thread == get_ident()
        ):
            # Nobody would collect it: a suspended greenlet keeps what its frames refer to.
            hub.throw()
        self._descriptors.close()

    def _is_idle(self):
        return not self.ready and not self.idle_watchers and not self._due()

    def _due(self):
        timers = self._timers
        while timers and timers[0][2] is None:
            heapq.heappop(timers)
        return bool(timers) and timers[0][0] <= self.time

    @property
    def hub(self):
        """The greenlet the loop runs in. What escapes it is raised in the program's first greenlet."""
        hub = self._hub
        # An outside program may have made its handle in another thread, where that loop has to stay.
        moved = self.uplink is not None and self._thread != get_ident()
        if hub is None or hub.dead or moved:
            self._thread = get_ident()
            root = getcurrent()
            while root.parent is not None:
                root = root.parent
            self._hub = greenlet(self._loop, parent=root)
        return self._hub

    def switch_to_hub(self):
        """Give the processor to the loop; returns when somebody switches back."""
        hub = self._hub
        if hub is None or hub.dead or self.uplink is not None:
            hub = self.hub
        if getcurrent() is hub:
            raise RuntimeError("the loop itself may not block: use then() instead of get()")
        running, self.running = self.running, None
        try:
            return hub.switch()
        finally:
            self.running = running

    def resume(self, sleeper):
        """Let `sleeper` (a greenlet) go on, in its turn."""
        self.call_soon(sleeper.switch)

    def call_soon(self, function):
        """Call ``function()`` in the hub, after what is under way now."""
        self.ready.append((_CALL, function))

    def _loop(self):
        ready = self.ready
        polled = 0
        clock = self.clock
        while True:
            self.turns += 1
            # A reactor may begin anywhere in a turn; its idle watchers wait for the next one.
            idle = list(self.idle_watchers)
            for watcher in list(self.prepare_watchers):
                watcher.fire()
            # Between messages a look at the descriptors is a system call that seldom finds anything.
            if not ready or self.turns - polled >= TURNS_BETWEEN_POLLS:
                polled = self.turns
                self._poll()
            if not clock.virtual:
                self.time = clock.now()
            for watcher in list(self.check_watchers):
                watcher.fire()
            timers = self._timers
            if timers and timers[0][0] <= self.time:
                self._expire()
            for _ in range(len(ready)):
                endpoint, msg = ready.popleft()
                if endpoint is _CALL:
                    msg()
                elif self.intercept is None or not self.intercept(endpoint, msg):
                    if not endpoint.closed:
                        endpoint.receive(msg)
                    else:
                        self.undeliverable(msg)
            for watcher in idle:
                watcher.fire()
            if self._until is not None and self._until():
                self._until = None
                self._runner.switch()

    def _expire(self):
        timers = self._timers
        # Timers that these start are for the next turn, or a timer of 0 s could hold the loop.
        due = []
        while timers and timers[0][0] <= self.time:
            due.append(heapq.heappop(timers))
        for entry in due:
            if entry[2] is not None:
                entry[2].expired(entry)

    def _poll(self):
        timers = self._timers
        while timers and timers[0][2] is None:
            heapq.heappop(timers)
        if self.ready or self.idle_watchers or (timers and timers[0][0] <= self.time):
            self._select(0)
            return
        if self.clock.virtual:
            # Clients first: time only moves when nobody has anything to say.
            if self._select(0) or self.ready:
                return
            if timers and timers[0][0] <= END_OF_TIME:
                self.clock.advance_to(timers[0][0])
                self.time = self.clock.now()
                return
            timeout = None
        else:
            timeout = (
                min(max(0.0, timers[0][0] - self.clock.now()), LONGEST_WAIT) if timers else None
            )
        if timeout is None and not self._descriptors:
            self._deadlock()
            return  # somebody caught it and has brought work
        self._select(timeout)

    def _select(self, timeout):
        if timeout is not None and not self._descriptors:
            if timeout > 0:
                self.waiting = True
                time.sleep(timeout)
                self.waiting = False
            return False
        self.waiting = True
        events = self._descriptors.select(timeout)
        self.waiting = False
        if not self.clock.virtual:
            self.time = self.clock.now()
        for callback, fd, mask in events:
            callback(fd, mask)
        return bool(events)

    def _deadlock(self):
        text = "nothing is left to wait for: no message, timer or descriptor can ever come"
        sleeper = self._runner or self._hub.parent
        self._runner = None
        sleeper.throw(RuntimeError(text))


class _Call:
    """A function in the place of a timer watcher."""

    __slots__ = ("function",)

    def __init__(self, function):
        self.function = function

    def expired(self, entry):
        entry[2] = None
        self.function()


def _always():
    return True


#: In place of an endpoint: the "message" is a function to call.
_CALL = object()
