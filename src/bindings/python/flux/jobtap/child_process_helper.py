# SPDX-License-Identifier: LGPL-3.0-or-later
"""Helper process of `child_processes.Popen`: it runs a command, forwards signals to it, and reports
its status.

    python child_process_helper.py FD PROGRAM NAME [ARGUMENT ...]

writes lines to file descriptor FD: ``S`` when the command has started, then its wait status; or
``E`` and an errno if it could not be started.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGALRM")


def main() -> None:
    report, program, args = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    os.set_inheritable(report, False)
    libc = ctypes.CDLL(None)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    read, write = os.pipe()
    waiting: list[int] = []
    child: list[int] = []

    def pass_on(signum: int, frame: object) -> None:
        if child:
            os.kill(child[0], signum)
        else:
            waiting.append(signum)

    for name in PASSED_ON:
        if signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), pass_on)
    # A broker's threads block signals, and child processes inherit the mask.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    pid = os.fork()
    if pid == 0:
        try:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.execvp(program, args)
        except OSError as exc:
            os.write(write, b"%d" % (exc.errno or 0))
        os._exit(127)
    child.append(pid)
    os.close(write)
    error = os.read(read, 16)
    if error:
        os.write(report, b"E%s\n" % error)
        return
    os.write(report, b"S\n")
    for signum in waiting:
        os.kill(pid, signum)
    # Close the copies of the command's output pipes: their reader must see end of file when the
    # command ends, while this process still runs.
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.closerange(3, report)
    os.closerange(report + 1, 1024)
    os.write(report, b"%d\n" % os.waitpid(pid, 0)[1])


main()
