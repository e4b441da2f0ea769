"""File descriptors and signals that the loop waits for."""

import selectors
import signal
import socket


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
        """Close them all."""
        if self._wakeup is not None:
            signal.set_wakeup_fd(-1)
            for end in self._wakeup:
                end.close()
            self._wakeup = None
        self._selector.close()
