# SPDX-License-Identifier: LGPL-3.0-or-later
"""`subprocess.Popen` for plugins inside a broker, with the right exit status.

The broker's reactor calls ``waitpid()`` for every child of its process. It often reaps a plugin's
child before Python does, and `subprocess` then reports 0. So the command is started by a small
helper process (child_process_helper.py): the broker may reap the helper, which reports the
command's status through a pipe.
"""

from __future__ import annotations

import inspect
import os
import select
import subprocess
import sys
from typing import Any

HELPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child_process_helper.py")
_signature = inspect.signature(subprocess.Popen.__init__)


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen` that works inside a broker. Signals go to the helper, which forwards
    them."""

    #: read end of the status pipe, or None once it is exhausted
    _status: int | None = None
    #: bytes read from it and not yet parsed
    _text = b""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        arguments = dict(_signature.bind(self, *args, **kwargs).arguments)
        arguments.pop("self")
        arguments.update(arguments.pop("kwargs", {}))
        command = arguments["args"]
        read, write = os.pipe()
        arguments["args"] = [
            sys.executable,
            "-I",
            "-S",
            HELPER,
            str(write),
            *self._command(arguments),
        ]
        arguments["pass_fds"] = (*arguments.get("pass_fds", ()), write)
        try:
            super().__init__(**arguments)
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self.args = command
        self._status = read
        while b"\n" not in self._text and self._read():
            pass
        started, _, self._text = self._text.partition(b"\n")
        if started.startswith(b"E"):
            number = int(started[1:])
            self._ended(127)
            for stream in (self.stdin, self.stdout, self.stderr):
                if stream is not None:
                    stream.close()
            raise OSError(number, os.strerror(number), os.fsdecode(self._name(command)))

    @staticmethod
    def _name(command: Any) -> Any:
        return command if isinstance(command, (str, bytes, os.PathLike)) else command[0]

    @staticmethod
    def _command(arguments: dict[str, Any]) -> list[Any]:
        """Return the program to run, its argv[0] and its further arguments."""
        args, program = arguments["args"], arguments.pop("executable", None)
        args = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args)
        if arguments.pop("shell", False):
            args = [program or "/bin/sh", "-c", *args]
        return [program or args[0], *args]

    def _read(self) -> bool:
        assert self._status is not None
        text = os.read(self._status, 64)
        self._text += text
        return bool(text)

    def _ended(self, returncode: int) -> None:
        self.returncode = returncode
        if self._status is not None:
            os.close(self._status)
        self._status = None
        try:
            os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            pass  # the broker has reaped it

    def _internal_poll(self, _deadstate: Any = None) -> Any:
        return self.poll()

    def poll(self) -> int | None:
        """Return the exit status of the command, or None while it runs."""
        while self.returncode is None and self._status is not None:
            if not select.select([self._status], [], [], 0)[0]:
                return None
            self._take()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the command has ended, `timeout` seconds at most, and return its exit status.
        Raises subprocess.TimeoutExpired if the command is still running."""
        while self.returncode is None and self._status is not None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._take()
        return self.returncode

    def _take(self) -> None:
        # The status may have been read together with the line that reports the start of the
        # command. Then only end of file is left in the pipe.
        more = self._read()
        if b"\n" in self._text:
            self._ended(os.waitstatus_to_exitcode(int(self._text)))
        elif not more:
            self._ended(-9)  # the helper was killed, and the command with it


def install() -> None:
    """Replace `subprocess.Popen` for the whole interpreter."""
    subprocess.Popen = Popen  # type: ignore[misc]
