"""Watchers: what a reactor calls back for.

They keep the habits of the real ones, odd as some are: a stopped timer goes on with what was left
of it, ``reset()`` of a running timer does nothing, and a one-shot that fired and is started again
fires at once.
"""

import errno
import selectors
import signal

from flux_embedded.kernel import message

POLLIN, POLLOUT, POLLERR = 1, 2, 4


class Watcher:
    """What all watchers share.

    Args:
        handle (Flux): passed to the callback; its task is whose reactor makes the call
        callback: see the subclass for the signature
        args: passed to the callback as it is
    """

    #: Whether `reactor_run` counts it among the active ones when it is stopped.
    counted = True

    @property
    def holds_reactor(self):
        """Whether `reactor_run` goes on for its sake."""
        return self.counted

    def __init__(self, handle, callback, args=None):
        self.flux_handle = handle
        self.task = handle.task
        self.callback = callback
        self.args = args
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
        self.stop()

    def is_active(self):
        return self.active

    def ref(self):
        self.counted = True
        return self

    def unref(self):
        self.counted = False
        return self

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        self.stop()
        return False

    def _arm(self):
        raise NotImplementedError

    def _disarm(self):
        raise NotImplementedError


class TimerWatcher(Watcher):
    """``callback(handle, watcher, revents, args)`` after `after` seconds, then every `repeat`."""

    def __init__(self, handle, after, callback, repeat=0.0, args=None):
        super().__init__(handle, callback, args)
        self.after = after
        self.repeat = repeat
        self._left, self._every = float(after), float(repeat)
        if self._left < 0 or self._every < 0:
            raise OSError(errno.EINVAL, message.strerror(errno.EINVAL))
        self._entry = None

    def _arm(self):
        kernel = self.task.kernel
        self._entry = kernel.add_timer(kernel.time + max(self._left, 0.0), self)

    def _disarm(self):
        self._left = self._entry[0] - self.task.kernel.time
        self._entry[2] = None
        self._entry = None

    def set_times(self, after, repeat):
        """Have the next `start` wait for `after` seconds; no effect on a running timer."""
        if not self.active:
            self._left = after
            self._every = repeat

    def reset(self, after=None, repeat=None):
        """Arm a timer that is not running for the full delay; no effect on a running one."""
        self.set_times(
            float(self.after if after is None else after),
            float(self.repeat if repeat is None else repeat),
        )
        self.start()

    def expired(self, entry):
        """The deadline has come; called by the hub."""
        self.task.post(lambda: self._fire(entry))

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
        self.callback(self.flux_handle, self, 0, self.args)


class LoopWatcher(Watcher):
    """Called once a turn of the loop: ``callback(handle, watcher, revents, args)``.

    Attributes:
        kind (str): "prepare", "check" or "idle"
    """

    kind = ""

    def __init__(self, handle, callback=None, args=None):
        super().__init__(handle, callback, args)
        self._list = getattr(self.task.kernel, f"{self.kind}_watchers")
        self._posted = False

    def _arm(self):
        self._list[self] = None

    def _disarm(self):
        self._list.pop(self, None)

    def fire(self):
        """Called by the hub."""
        if self.callback is not None and self.active and not self._posted:
            self._posted = True
            self.task.post(self._fire)

    def _fire(self):
        self._posted = False
        if self.active:
            self.callback(self.flux_handle, self, 0, self.args)


class PrepareWatcher(LoopWatcher):
    """Fires before the loop waits."""

    kind = "prepare"


class CheckWatcher(LoopWatcher):
    """Fires when the loop has waited."""

    kind = "check"


class IdleWatcher(LoopWatcher):
    """Keeps the loop from waiting, and fires at the end of each turn."""

    kind = "idle"


class FDWatcher(Watcher):
    """``callback(handle, watcher, fd, revents, args)`` while `fd` is ready."""

    def __init__(self, handle, fd, callback, events=None, args=None):
        super().__init__(handle, callback, args)
        if not isinstance(fd, int):
            raise message.InvalidArguments(f"fd must be an integer, not {fd!r}")
        self.fd_int = fd
        self.events = POLLIN | POLLOUT | POLLERR if events is None else events
        self._posted = False

    def _arm(self):
        wanted = 0
        if self.events & POLLIN:
            wanted |= selectors.EVENT_READ
        if self.events & POLLOUT:
            wanted |= selectors.EVENT_WRITE
        self.task.kernel.add_fd(self.fd_int, wanted or selectors.EVENT_READ, self._readable)

    def _disarm(self):
        self.task.kernel.remove_fd(self.fd_int)

    def _readable(self, fd, mask):
        if not self._posted:
            self._posted = True
            revents = (POLLIN if mask & selectors.EVENT_READ else 0) | (
                POLLOUT if mask & selectors.EVENT_WRITE else 0
            )
            self.task.post(lambda: self._fire(revents))

    def _fire(self, revents):
        self._posted = False
        if self.active:
            self.callback(self.flux_handle, self, self.fd_int, revents, self.args)


class SignalWatcher(Watcher):
    """``callback(handle, watcher, signum, args)`` for each signal."""

    def __init__(self, handle, signum, callback, args=None):
        super().__init__(handle, callback, args)
        if not isinstance(signum, int):
            raise message.InvalidArguments(f"signum must be an integer, not {signum!r}")
        if not 1 <= signum < signal.NSIG:
            raise OSError(errno.EINVAL, "invalid signal number")
        self.signal_int = int(signum)
        self._undo = None

    def _arm(self):
        self._undo = self.task.kernel.add_signal(
            self.signal_int, lambda signum: self.task.post(self._fire)
        )

    def _disarm(self):
        self._undo()

    def _fire(self):
        if self.active:
            self.callback(self.flux_handle, self, self.signal_int, self.args)


class MessageWatcher(Watcher):
    """``callback(handle, watcher, msg, args)`` for messages that match.

    Args:
        type_mask (int): FLUX_MSGTYPE_* bits
        topic_glob (str): glob(7) pattern of topics
        match_tag (int): for responses, the only matchtag wanted; 0 for those without
        rolemask (int): roles besides the owner whose requests are let in; None or 0: the owner only
    """

    __module__ = "flux.message"

    counted = False
    holds_reactor = True

    def __init__(
        self, handle, callback, type_mask, topic_glob="*", args=None, match_tag=0, rolemask=None
    ):
        super().__init__(handle, callback, args)
        if not isinstance(type_mask, int):
            raise TypeError("an integer is required")
        self.type_mask = type_mask
        self.topic_glob = topic_glob or "*"
        self.match_tag = match_tag
        self.rolemask = rolemask or 0
        self.started = 0

    def start(self):
        super().start()

    def stop(self):
        super().stop()

    def _arm(self):
        self.started = next(self.task.kernel.serial)
        self.task.add_message_watcher(self)

    def _disarm(self):
        self.task.remove_message_watcher(self)

    def allows(self, msg):
        """Whether the sender's role may make this request (RFC 12)."""
        return bool(msg.rolemask & (message.ROLE_OWNER | self.rolemask))

    def call(self, msg):
        self.callback(self.flux_handle, self, msg, self.args)


# As scripts see them.
for _class in Watcher, TimerWatcher, PrepareWatcher, CheckWatcher, IdleWatcher, FDWatcher:
    _class.__module__ = "flux.core.watchers"
SignalWatcher.__module__ = "flux.core.watchers"
