"""The kernel: one queue of messages, one list of timers, one loop.

Everything that happens in an instance is a delivery from `Kernel.ready`, a timer, a readable file
descriptor or an idle watcher, and they are taken in one fixed order. With a virtual clock and no
outside clients, the same input therefore gives the same run, message by message.

The loop runs in a greenlet of its own, the *hub*. Builtin services and broker modules run in
theirs (see `task`), so that a blocking ``get()`` is no more than a switch to the hub.
"""

import errno
import heapq
import itertools
import os
import selectors
import signal
import socket
import time
import uuid
from collections import deque

from greenlet import getcurrent, greenlet

from flux_embedded.kernel import message
from flux_embedded.kernel.clock import RealClock
from flux_embedded.kernel.message import Message

#: While messages are moving, file descriptors are only looked at every so many turns.
TURNS_BETWEEN_POLLS = 8


class Endpoint:
    """Anything that sends and receives messages: a service, a module, a client of the socket.

    Attributes:
        name (str): for logs and error texts
        uuid (str): the sender identity
        userid, rolemask (int): what its requests are stamped with
        used (set): services it has ever addressed; each gets a disconnect notice when it goes
        unanswered (dict): requests with a matchtag it received and still owes an answer
    """

    def __init__(self, kernel, name, userid=message.OWNER, rolemask=message.OWNER_ROLES):
        self.kernel = kernel
        self.name = name
        self.uuid = str(uuid.UUID(int=next(kernel.serial)))
        self.userid = userid
        self.rolemask = rolemask
        self.used = set()
        self.unanswered = {}
        self.closed = False

    def receive(self, msg):
        """Take one message; called by the hub, in the order the messages were sent."""
        raise NotImplementedError


class Kernel:
    """Moves messages between endpoints, and time.

    Args:
        clock: a RealClock (default) or VirtualClock
        size (int): number of broker ranks of the instance, for requests that name one

    Attributes:
        running (Task): the task that has the processor now, or None
        turns (int): turns of the loop so far
        uplink (Endpoint): where requests go that no service here answers (an outside program's
            link to its broker), or None
        intercept: None, or ``intercept(endpoint, msg)`` called before each delivery; what it
            returns true for is not delivered (traces, fault runs)
    """

    def __init__(self, clock=None, size=1):
        self.clock = clock or RealClock()
        self.size = size
        self.serial = itertools.count(1)
        self.ready = deque()
        self.services = {}
        self.endpoints = {}
        self.running = None
        self.uplink = None
        self.intercept = None
        self.turns = 0
        self.time = self.clock.now()
        self._timers = []
        self._timer_seq = itertools.count()
        # Insertion order is firing order.
        self.prepare_watchers = {}
        self.check_watchers = {}
        self.idle_watchers = {}
        self._selector = selectors.DefaultSelector()
        self._signals = {}
        self._wakeup = None
        self._hub = None
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

    def call_later(self, seconds, function):
        """Call ``function()`` in the hub after `seconds`; returns the entry (see `add_timer`)."""
        return self.add_timer(self.time + seconds, _Call(function))

    # -- services and messages -------------------------------------------------------------------

    def add_service(self, name, endpoint):
        """Register `endpoint` as the holder of service `name`.

        Raises:
            FileExistsError: somebody holds it (RFC 5)
        """
        if name in self.services:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self.services[name] = endpoint

    def remove_service(self, name, endpoint):
        """Undo `add_service`.

        Raises:
            FileNotFoundError: `endpoint` does not hold `name`
        """
        if self.services.get(name) is not endpoint:
            raise FileNotFoundError(errno.ENOENT, f"{name} is not registered")
        del self.services[name]

    def send(self, endpoint, msg):
        """Queue `msg` for `endpoint`."""
        self.ready.append((endpoint, msg))

    def request(self, msg):
        """Route a request, whose sender is set, to the service its topic names (RFC 3)."""
        name = msg.topic.partition(".")[0]
        sender = msg.sender
        endpoint = self.services.get(name)
        if endpoint is None:
            if self.uplink is not None:
                self.ready.append((self.uplink, msg))
            else:
                self._refuse(msg, errno.ENOSYS, f"No service matching {msg.topic} is registered")
            return
        if msg.nodeid != message.NODEID_ANY:
            upstream = msg.flags & message.FLAG_UPSTREAM
            if upstream or msg.nodeid >= self.size:
                # One process plays every rank, so "the next one upstream" has no service either.
                number = errno.ENOSYS if upstream else errno.EHOSTUNREACH
                self._refuse(msg, number, os.strerror(number))
                return
        sender.used.add(name)
        # Untagged requests (RFC 27) need no answer: nobody could be waiting for one.
        if msg.matchtag:
            endpoint.unanswered[id(msg)] = msg
        self.ready.append((endpoint, msg))

    def respond(self, msg, answer, responder=None):
        """Send `answer` to whoever sent request `msg`."""
        if msg.flags & message.FLAG_NORESPONSE:
            return
        if responder is not None and (answer.errnum or not msg.flags & message.FLAG_STREAMING):
            responder.unanswered.pop(id(msg), None)
        self.ready.append((msg.sender, answer))

    def _refuse(self, msg, errnum, text):
        if not msg.flags & message.FLAG_NORESPONSE:
            self.ready.append((msg.sender, msg.error_response(errnum, text)))

    def undeliverable(self, msg):
        """`msg` never reached an endpoint that has closed: answer what `close` has not."""
        if msg.type == message.REQUEST and not msg.matchtag:
            self._refuse(msg, errno.ENOSYS, f"No service matching {msg.topic} is registered")

    def close(self, endpoint):
        """`endpoint` goes away: tell its peers, fail what it leaves unanswered."""
        if endpoint.closed:
            return
        endpoint.closed = True
        for name in [name for name, holder in self.services.items() if holder is endpoint]:
            del self.services[name]
        self.endpoints.pop(endpoint.uuid, None)
        for msg in list(endpoint.unanswered.values()):
            self._refuse(msg, errno.EHOSTUNREACH, "module disconnect")
        endpoint.unanswered.clear()
        for name in sorted(endpoint.used):
            holder = self.services.get(name)
            if holder is not None:
                notice = Message(message.REQUEST, f"{name}.disconnect", flags=message.FLAG_NORESPONSE)
                notice.sender = endpoint
                notice.userid, notice.rolemask = endpoint.userid, endpoint.rolemask
                self.ready.append((holder, notice))

    # -- file descriptors and signals ------------------------------------------------------------

    def add_fd(self, fd, events, callback):
        """Call ``callback(fd, events)`` in the hub when `fd` is ready (selectors.EVENT_*)."""
        self._selector.register(fd, events, callback)

    def modify_fd(self, fd, events, callback):
        self._selector.modify(fd, events, callback)

    def remove_fd(self, fd):
        self._selector.unregister(fd)

    def add_signal(self, signum, callback):
        """Call ``callback(signum)`` in the hub for each `signum`; returns a function that undoes it."""
        if self._wakeup is None:
            reader, writer = socket.socketpair()
            reader.setblocking(False)
            writer.setblocking(False)
            self._wakeup = (reader, writer)
            signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            self.add_fd(reader.fileno(), selectors.EVENT_READ, self._signalled)
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
        if hub is not None and not hub.dead:
            # Nobody would collect it: a suspended greenlet keeps what its frames refer to.
            hub.throw()
        if self._wakeup is not None:
            signal.set_wakeup_fd(-1)
            for end in self._wakeup:
                end.close()
            self._wakeup = None
        self._selector.close()

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
        if self._hub is None or self._hub.dead:
            root = getcurrent()
            while root.parent is not None:
                root = root.parent
            self._hub = greenlet(self._loop, parent=root)
        return self._hub

    def switch_to_hub(self):
        """Give the processor to the loop; returns when somebody switches back."""
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
        self.ready.append((_RESUME, sleeper))

    def _loop(self):
        ready = self.ready
        polled = 0
        clock = self.clock
        while True:
            self.turns += 1
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
                if endpoint is _RESUME:
                    msg.switch()
                elif self.intercept is None or not self.intercept(endpoint, msg):
                    if not endpoint.closed:
                        endpoint.receive(msg)
                    else:
                        self.undeliverable(msg)
            for watcher in list(self.idle_watchers):
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
            if timers:
                self.clock.advance_to(timers[0][0])
                self.time = self.clock.now()
                return
            timeout = None
        else:
            timeout = max(0.0, timers[0][0] - self.clock.now()) if timers else None
        if timeout is None and not self._selector.get_map():
            self._deadlock()
            return  # somebody caught it and has brought work
        self._select(timeout)

    def _select(self, timeout):
        if timeout is not None and not self._selector.get_map():
            if timeout > 0:
                time.sleep(timeout)
            return False
        events = self._selector.select(timeout)
        if not self.clock.virtual:
            self.time = self.clock.now()
        for key, mask in events:
            key.data(key.fd, mask)
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


#: In place of an endpoint: the "message" is a greenlet to switch to.
_RESUME = object()
