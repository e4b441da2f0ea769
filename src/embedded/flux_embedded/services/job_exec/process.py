# SPDX-License-Identifier: LGPL-3.0-or-later
"""A child process watched by the reactor."""

import contextlib
import os
import resource
import selectors
import signal
import subprocess

from flux_engine.kernel.watchers import POLLIN, FDWatcher

CHUNK = 65536
#: seconds that output may stay open after the process itself ended (held by a child of its own)
LINGER = 1.0


def watch_exit(kernel, process, callback):
    """Call ``callback()`` in the loop of `kernel` once `process` (a Popen) has ended; returns a function that ends the watch."""
    try:
        fd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # an old Linux: check at each SIGCHLD

        def look(signum=None):
            if watched and process.poll() is not None:
                watched.pop()()
                callback()

        watched = [kernel.add_signal(signal.SIGCHLD, look)]
        kernel.call_later(0, look)
        return lambda: watched and watched.pop()()

    def stop():
        kernel.remove_fd(fd)
        os.close(fd)

    def ready(fd, events):
        stop()
        callback()

    kernel.add_fd(fd, selectors.EVENT_READ, ready)
    return stop


class Process:
    """A process in a session of its own.

    Args:
        service (Service): its reactor watches the process
        argv, env, cwd: see subprocess.Popen
        on_output: ``on_output(stream, data)``, stream "stdout" or "stderr", data bytes; b"" at the end of the
            stream
        on_exit: ``on_exit(wait_status)``, after the end of both streams
        stdin (str): path of a file, or None for /dev/null
        limits: resource limits, [(resource, (soft, hard))]

    Raises:
        OSError: it cannot be started
    """

    def __init__(self, service, argv, env, cwd, on_output, on_exit, stdin=None, limits=()):
        self.service = service
        self.on_output = on_output
        self.on_exit = on_exit
        self.status = None
        limit = (lambda: [resource.setrlimit(*one) for one in limits]) if limits else None
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
        with open(stdin or os.devnull, "rb") as given:
            self._popen = subprocess.Popen(
                argv, env=env, cwd=cwd, stdin=given, preexec_fn=limit, **how
            )
        self.pid = self._popen.pid
        self._streams = {}
        for name, pipe in (("stdout", self._popen.stdout), ("stderr", self._popen.stderr)):
            os.set_blocking(pipe.fileno(), False)
            self._watch(name, pipe)
        self._linger = None
        self._unwatch = watch_exit(service.kernel, self._popen, self._exited)

    def _watch(self, name, pipe):
        read = lambda *args: self._read(name)
        watcher = FDWatcher(self.service, read, pipe.fileno(), POLLIN).start()
        self._streams[name] = (pipe, watcher)

    # -- output and end ------------------------------------------------------------------------------

    def _read(self, name):
        pipe, watcher = self._streams[name]
        try:
            data = os.read(pipe.fileno(), CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(name)
        self.on_output(name, data)
        if not data:
            self._check_done()

    def _close(self, name):
        pipe, watcher = self._streams.pop(name)
        watcher.destroy()
        pipe.close()

    def _exited(self):
        self._unwatch = None
        self.service.post(self._reap)

    def _reap(self):
        if self.status is not None:
            return  # it was abandoned
        code = self._popen.wait()
        self.status = -code if code < 0 else code << 8
        if self._streams:
            self._linger = self.service.timer(LINGER, self._give_up)
        self._check_done()

    def _give_up(self):
        self._linger = None
        for name in list(self._streams):
            self._close(name)
            self.on_output(name, b"")
        self._check_done()

    def _check_done(self):
        if self.status is not None and not self._streams and self.on_exit is not None:
            if self._linger is not None:
                self._linger.destroy()
                self._linger = None
            on_exit, self.on_exit = self.on_exit, None
            on_exit(self.status)

    def kill(self, signum):
        """Signal the process and its group."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signum)

    def abandon(self):
        """Kill it and wait; no callbacks."""
        self.on_exit = None
        self.on_output = lambda name, data: None
        for name in list(self._streams):
            self._close(name)
        if self.status is None:
            if self._unwatch is not None:
                self._unwatch()
            self.kill(9)
            self._popen.wait()
            self.status = 9
