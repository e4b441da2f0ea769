"""Child processes of plugins inside a broker.

The broker's reactor waits for any child of the process, so the exit status of a plugin's is often gone before Python can
ask for it; subprocess then says 0. Here a small helper process stands between: it is the one that the broker may take
from us, and it reports its own child's status through a pipe.
"""

import inspect
import os
import select
import subprocess
import sys

HELPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child_helper.py")
_signature = inspect.signature(subprocess.Popen.__init__)


class Popen(subprocess.Popen):
    """`subprocess.Popen` with the right exit status. Signals go to the helper, which passes them on."""

    _status = None  # the pipe's end that the status comes from
    _text = b""

    def __init__(self, *args, **kwargs):
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
    def _name(command):
        return command if isinstance(command, (str, bytes, os.PathLike)) else command[0]

    @staticmethod
    def _command(given):
        """[program, name it is called by, arguments ...] of the child."""
        args, program = given["args"], given.pop("executable", None)
        args = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args)
        if given.pop("shell", False):
            args = [program or "/bin/sh", "-c", *args]
        return [program or args[0], *args]

    def _read(self):
        text = os.read(self._status, 64)
        self._text += text
        return bool(text)

    def _ended(self, returncode):
        self.returncode = returncode
        os.close(self._status)
        self._status = None
        try:
            os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            pass  # the broker has done it

    def _internal_poll(self, _deadstate=None):
        return self.poll()

    def poll(self):
        """The exit status, or None while the child runs."""
        while self.returncode is None and self._status is not None:
            if not select.select([self._status], [], [], 0)[0]:
                return None
            self._take()
        return self.returncode

    def wait(self, timeout=None):
        """Wait for the end of the child; returns its exit status.

        Raises:
            subprocess.TimeoutExpired: it runs on
        """
        while self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self._take()
        return self.returncode

    def _take(self):
        # The status may have come with the word that the child has started: then the rest of the pipe is its end.
        more = self._read()
        if b"\n" in self._text:
            self._ended(os.waitstatus_to_exitcode(int(self._text)))
        elif not more:
            self._ended(-9)  # the helper was killed, and its child with it


def install():
    """Make it the Popen of the whole interpreter."""
    subprocess.Popen = Popen
