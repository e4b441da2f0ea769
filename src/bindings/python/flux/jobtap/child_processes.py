# SPDX-License-Identifier: LGPL-3.0-or-later
"""Child processes of plugins inside a broker.

The broker's reactor waits for any child of the process, so the exit status of a plugin's is often gone before Python can
ask for it; subprocess then says 0. Here a small helper process stands between: it is the one that the broker may take
from us, and it reports its own child's status through a pipe.
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
    """`subprocess.Popen` with the right exit status. Signals go to the helper, which passes them on."""

    _status: int | None = None  # the pipe's end that the status comes from
    _text = b""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = dict(_signature.bind(self, *args, **kwargs).arguments)
        given.pop("self")
        given.update(given.pop("kwargs", {}))
        command = given["args"]
        read, write = os.pipe()
        given["args"] = [sys.executable, "-I", "-S", HELPER, str(write), *self._command(given)]
        given["pass_fds"] = (*given.get("pass_fds", ()), write)
        try:
            super().__init__(**given)
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
    def _command(given: dict[str, Any]) -> list[Any]:
        """[program, name it is called by, arguments ...] of the child."""
        args, program = given["args"], given.pop("executable", None)
        args = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args)
        if given.pop("shell", False):
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
            pass  # the broker has done it

    def _internal_poll(self, _deadstate: Any = None) -> Any:
        return self.poll()

    def poll(self) -> int | None:
        """The exit status, or None while the child runs."""
        while self.returncode is None and self._status is not None:
            if not select.select([self._status], [], [], 0)[0]:
                return None
            self._take()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the child; returns its exit status.

        Raises:
            subprocess.TimeoutExpired: it runs on
        """
        while self.returncode is None and self._status is not None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._take()
        return self.returncode

    def _take(self) -> None:
        # The status may have come with the word that the child has started: then the rest of the pipe is its end.
        more = self._read()
        if b"\n" in self._text:
            self._ended(os.waitstatus_to_exitcode(int(self._text)))
        elif not more:
            self._ended(-9)  # the helper was killed, and its child with it


def install() -> None:
    """Make it the Popen of the whole interpreter."""
    subprocess.Popen = Popen  # type: ignore[misc]
