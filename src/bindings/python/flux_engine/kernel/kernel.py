"""The kernel: one queue of messages, one list of timers, one loop.

Everything that happens in an instance is a delivery from `Kernel.ready`, a timer, a readable file
descriptor or an idle watcher, and they are taken in one fixed order: see `reactor`.

The loop runs in a greenlet of its own, the *hub*. Builtin services and broker modules run in
theirs (see `task`), so that a blocking ``get()`` is no more than a switch to the hub.
"""

import selectors
import signal
import socket
import time
from threading import get_ident

from greenlet import getcurrent, greenlet

from flux_engine.kernel.reactor import Reactor

#: Turns between polls of the file descriptors while there are messages to deliver.
TURNS_BETWEEN_POLLS = 8

#: The maximum time of a virtual clock: the end of the year 9999.
END_OF_TIME = 253402300799.0

#: The longest single wait in seconds: the operating system does not accept arbitrary numbers.
LONGEST_WAIT = 86400.0


class Kernel(Reactor):
    """Moves messages between endpoints, and time; arguments as for `Reactor`.

    Attributes:
        waiting (bool): the loop waits for something to happen
    """

    def __init__(self, clock=None, size=1):
        super().__init__(clock, size)
        self.waiting = False
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
        self._polled = 0

    def turn_under_way(self):
        """The number of the turn, or None while the loop waits."""
        return None if self.waiting else self.turns

    # -- running -------------------------------------------------------------------------------

    def run(self, until=None):
        """Run the loop until ``until()`` is true after some turn. RuntimeError: nothing is left to happen."""
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
        self.run(until=self.is_idle)

    def dispose(self):
        """Give back the descriptors and end the loop's greenlet: this kernel does not run again."""
        hub, self._hub = self._hub, None
        if (
            hub is not None
            and not hub.dead
            and hub is not getcurrent()
            and self._thread == get_ident()
        ):
            # It would never be collected: a suspended greenlet keeps the objects its frames refer to.
            hub.throw()
        self._descriptors.close()

    @property
    def hub(self):
        """The greenlet of the loop. Exceptions that leave it are raised in the program's first one."""
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
        """Give the processor to the loop; returns when another greenlet switches back."""
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

    def sleeper(self):
        """The argument for a later `resume`: the calling greenlet."""
        return getcurrent()

    def _loop(self):
        while True:
            self.turn()
            if self._until is not None and self._until():
                self._until = None
                self._runner.switch()

    def _poll(self):
        # Between messages, polling the descriptors is a system call that seldom finds anything.
        if not self.ready or self.turns - self._polled >= TURNS_BETWEEN_POLLS:
            self._polled = self.turns
            self._look_outside()
        if not self.clock.virtual:
            self.time = self.clock.now()

    def _look_outside(self):
        self.next_timer()  # drops those that were cancelled
        timers = self._timers
        if self.ready or self.idle_watchers or (timers and timers[0][0] <= self.time):
            self._select(0)
            return
        if self.clock.virtual:
            # Clients first: time advances only when no client has sent anything.
            if self._select(0) or self.ready:
                return
            if timers and timers[0][0] <= END_OF_TIME:
                self.set_time(timers[0][0])
                return
            timeout = None
        else:
            timeout = (
                min(max(0.0, timers[0][0] - self.clock.now()), LONGEST_WAIT) if timers else None
            )
        if timeout is None and not self._descriptors:
            text = "nothing is left to wait for: no message, timer or descriptor can ever come"
            sleeper, self._runner = self._runner or self._hub.parent, None
            sleeper.throw(RuntimeError(text))
            return  # the error was caught, and there is work again
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


class Descriptors:
    """A selector whose entries are callbacks, ``callback(fd, events)`` with bits of `selectors`.

    It polls: that works for files too, which are always ready, and a forked child process shares nothing with it.
    """

    def __init__(self):
        self._selector = selectors.PollSelector()
        #: ``(fd, events, callback)``
        self.add, self.modify = self._selector.register, self._selector.modify
        self.remove = self._selector.unregister
        self._signals = {}
        self._wakeup = None

    def __bool__(self):
        return bool(self._selector.get_map())

    def select(self, timeout):
        """Wait for at most `timeout` seconds (None: for ever); returns [(callback, fd, events)]."""
        return [(key.data, key.fd, mask) for key, mask in self._selector.select(timeout)]

    def add_signal(self, signum, callback):
        """Call ``callback(signum)`` for each `signum`; returns a function that undoes it."""
        if self._wakeup is None:
            reader, writer = socket.socketpair()
            reader.setblocking(False)
            writer.setblocking(False)
            self._wakeup = (reader, writer)
            signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            self.add(reader.fileno(), selectors.EVENT_READ, self._signalled)
        former = signal.signal(signum, lambda number, frame: None)
        self._signals.setdefault(signum, []).append(callback)

        def undo():
            self._signals[signum].remove(callback)
            if not self._signals[signum]:
                signal.signal(signum, former)

        return undo

    def _signalled(self, fd, events):
        for signum in self._wakeup[0].recv(4096):
            for callback in list(self._signals.get(signum, ())):
                callback(signum)

    def close(self):
        if self._wakeup is not None:
            signal.set_wakeup_fd(-1)
            for end in self._wakeup:
                end.close()
            self._wakeup = None
        self._selector.close()
