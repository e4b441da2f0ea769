# SPDX-License-Identifier: LGPL-3.0-or-later
"""A child process watched by the reactor."""

import os
import subprocess

from flux_engine.kernel.watchers import POLLIN, FDWatcher

CHUNK = 65536
#: seconds that output may stay open after the process itself ended (held by a child of its own)
LINGER = 1.0
POLL_INTERVAL = 0.05


class Process:
    """A process in a session of its own.

    Args:
        service (Service): its reactor watches the process
        argv, env, cwd: see subprocess.Popen
        on_output: ``on_output(stream, data)``, stream "stdout" or "stderr", data bytes; b"" at the end of the
            stream
        on_exit: ``on_exit(wait_status)``, after the end of both streams
        stdin: a file object, or None for /dev/null

    Raises:
        OSError: it cannot be started
    """

    def __init__(self, service, argv, env, cwd, on_output, on_exit, stdin=None):
        self.service = service
        self.on_output = on_output
        self.on_exit = on_exit
        self.status = None
        self._popen = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=stdin if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self._popen.pid
        self._streams = {}
        for name, pipe in (("stdout", self._popen.stdout), ("stderr", self._popen.stderr)):
            os.set_blocking(pipe.fileno(), False)
            self._watch(name, pipe)
        self._linger = None
        self._watch_exit()

    def _watch(self, name, pipe):
        watcher = self._when_ready(pipe.fileno(), lambda *args: self._read(name))
        self._streams[name] = (pipe, watcher)

    def _when_ready(self, fd, callback):
        return FDWatcher(self.service.task, callback, fd, POLLIN).start()

    def _watch_exit(self):
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            # No pidfd here: poll.
            self._pidfd = None
            self._exit_watcher = self.service.timer(POLL_INTERVAL, self._reap, POLL_INTERVAL)
        else:
            self._exit_watcher = self._when_ready(self._pidfd, lambda *args: self._reap())

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

    def _reap(self):
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return
        self._exit_watcher.destroy()
        if self._pidfd is not None:
            os.close(self._pidfd)
        self._popen.returncode = os.waitstatus_to_exitcode(status)
        self.status = status
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
            try:
                os.killpg(self.pid, signum)
            except ProcessLookupError:
                pass

    def abandon(self):
        """Kill it and wait; no callbacks."""
        self.on_exit = None
        self.on_output = lambda name, data: None
        for name in list(self._streams):
            self._close(name)
        if self.status is None:
            self._exit_watcher.destroy()
            self.kill(9)
            os.waitpid(self.pid, 0)
            if self._pidfd is not None:
                os.close(self._pidfd)
            self.status = 9
