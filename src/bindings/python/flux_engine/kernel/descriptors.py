"""File descriptors and signals that the loop waits for."""

import selectors
import signal
import socket


class Descriptors:
    """A selector whose entries are callbacks."""

    def __init__(self):
        self._selector = selectors.DefaultSelector()
        self._files = {}  # fd -> (events, callback) of files, which are always ready and cannot be waited for
        self._signals = {}
        self._wakeup = None

    def __bool__(self):
        return bool(self._files or self._selector.get_map())

    def add(self, fd, events, callback):
        """Call ``callback(fd, events)`` when `fd` is ready (selectors.EVENT_*)."""
        try:
            self._selector.register(fd, events, callback)
        except PermissionError:
            self._files[fd] = (events, callback)

    def modify(self, fd, events, callback):
        if fd in self._files:
            self._files[fd] = (events, callback)
        else:
            self._selector.modify(fd, events, callback)

    def remove(self, fd):
        if self._files.pop(fd, None) is None:
            self._selector.unregister(fd)

    def select(self, timeout):
        """Wait for at most `timeout` seconds (None: for ever); returns [(callback, fd, events)]."""
        found = self._selector.select(0 if self._files else timeout)
        ready = [(key.data, key.fd, mask) for key, mask in found]
        return ready + [(callback, fd, events) for fd, (events, callback) in self._files.items()]

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
