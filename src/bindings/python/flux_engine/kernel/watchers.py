"""Watchers: the sources of a reactor's callbacks.

They behave like the real ones, even where that is odd: a stopped timer resumes with its remaining
time, ``reset()`` of a running timer does nothing, and a one-shot that fired and is started again
fires at once.
"""

import selectors

from flux_engine.kernel import message

POLLIN, POLLOUT, POLLERR = 1, 2, 4


class Watcher:
    """Base class of the watchers.

    Args:
        task (Task): its reactor makes the call
        callback: ``callback(handle, watcher, revents, args)``; see the subclass for `revents`
        handle, args: passed to the callback
    """

    #: Whether `reactor_run` counts it among the active ones when it is stopped.
    counted = True

    @property
    def holds_reactor(self):
        """Whether it keeps `reactor_run` running."""
        return self.counted

    def __init__(self, task, callback, handle=None, args=None):
        self.task = task
        self.callback = callback
        self.handle, self.args = handle, args
        self.active = False

    def start(self):
        if not self.active:
            self.active = True
            self.task.watchers.add(self)
            self._arm()
        return self

    def stop(self):
        if self.active:
            self.active = False
            self.task.watchers.discard(self)
            self._disarm()
        return self

    def destroy(self):
        """Stop it for good."""
        self.stop()

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        self.stop()

    def call(self, revents):
        """Make the call, unless the watcher was stopped since it became due."""
        if self.active:
            self.callback(self.handle, self, revents, self.args)

    def _arm(self):
        raise NotImplementedError

    def _disarm(self):
        raise NotImplementedError


class TimerWatcher(Watcher):
    def __init__(self, task, callback, after, repeat=0.0, handle=None, args=None):
        super().__init__(task, callback, handle, args)
        self.after = after
        self.repeat = repeat
        self._left, self._every = float(after), float(repeat)
        self._entry = None

    def _arm(self):
        kernel, left = self.task.kernel, self._left
        self._entry = kernel.add_timer(kernel.time + left if left > 0 else kernel.time, self)

    def _disarm(self):
        self._left = self._entry[0] - self.task.kernel.time
        self._entry[2] = None
        self._entry = None

    def set_times(self, after, repeat):
        """Set the delay of the next `start` to `after` seconds; no effect on a running timer."""
        if not self.active:
            self._left = after
            self._every = repeat

    def reset(self, after=None, repeat=None):
        """Arm a timer that is not running for the full delay; no effect on a running one."""
        if not self.active:
            self._left = float(self.after if after is None else after)
            self._every = float(self.repeat if repeat is None else repeat)
            self.start()

    def expired(self, entry):
        """The deadline has come; called by the hub."""
        self.task.interrupt(self._fire, entry)

    def _fire(self, entry):
        if self._entry is not entry:
            return  # stopped, or started anew, since it expired
        if self._every > 0:
            self._entry = self.task.kernel.add_timer(entry[0] + self._every, self)
        else:
            self.active = False
            self.task.watchers.discard(self)
            self._entry = None
            self._left = 0.0
        self.callback(self.handle, self, 0, self.args)


class LoopWatcher(Watcher):
    """Called once a turn of the loop; without a callback it only counts as a watcher of its kind.

    Args:
        kind (str): "prepare", which fires before the loop waits; "check", when it has waited; or "idle", which keeps it from
            waiting, and fires at the end of each turn
    """

    def __init__(self, kind, task, callback=None, handle=None, args=None):
        super().__init__(task, callback, handle, args)
        self._list = task.kernel.loop_watchers[kind]
        self._posted = False

    def _arm(self):
        self._list[self] = None

    def _disarm(self):
        self._list.pop(self, None)

    def fire(self):
        """Called by the hub."""
        if self.callback is not None and not self._posted:
            self._posted = True
            self.task.interrupt(self._fire)

    def _fire(self):
        self._posted = False
        self.call(0)


class FDWatcher(Watcher):
    """Calls with POLL bits while `fd` is ready."""

    def __init__(self, task, callback, fd, events):
        super().__init__(task, callback)
        self.fd = fd
        self.events = events
        self._posted = False

    def _arm(self):
        wanted = selectors.EVENT_READ if self.events & POLLIN else 0
        wanted |= selectors.EVENT_WRITE if self.events & POLLOUT else 0
        self.task.kernel.add_fd(self.fd, wanted or selectors.EVENT_READ, self._ready)

    def _disarm(self):
        self.task.kernel.remove_fd(self.fd)

    def _ready(self, fd, mask):
        if not self._posted:
            self._posted = True
            revents = POLLIN if mask & selectors.EVENT_READ else 0
            revents |= POLLOUT if mask & selectors.EVENT_WRITE else 0
            self.task.post(lambda: self._fire(revents))

    def _fire(self, revents):
        self._posted = False
        self.call(revents)


class SignalWatcher(Watcher):
    def __init__(self, task, callback, signum):
        super().__init__(task, callback)
        self.signum = signum
        self._undo = None

    def _arm(self):
        self._undo = self.task.kernel.add_signal(
            self.signum, lambda signum: self.task.post(lambda: self.call(0))
        )

    def _disarm(self):
        self._undo()


class MessageWatcher(Watcher):
    """Calls with each message that matches.

    Args:
        type_mask (int): message types, as bits
        topic_glob (str): glob(7) pattern of topics
        rolemask (int): roles besides the owner whose requests are accepted; 0: the owner only
    """

    counted = False
    holds_reactor = True

    def __init__(
        self, task, callback, type_mask, topic_glob="*", rolemask=0, handle=None, args=None
    ):
        super().__init__(task, callback, handle, args)
        self.type_mask = type_mask
        self.topic_glob = topic_glob
        self.rolemask = rolemask

    def _arm(self):
        self.task.add_message_watcher(self)

    def _disarm(self):
        self.task.remove_message_watcher(self)

    def allows(self, msg):
        """Whether the sender's role may make this request (RFC 12)."""
        return bool(msg.rolemask & (message.ROLE_OWNER | self.rolemask))
