# SPDX-License-Identifier: LGPL-3.0-or-later
"""Reports code that does not return to its reactor."""

import signal
import threading

#: Seconds that a turn of a reactor may take.
LONGEST_TURN = 5.0

SIGNALS = {signal.ITIMER_PROF: signal.SIGPROF, signal.ITIMER_REAL: signal.SIGALRM}


class Watchdog:
    """A context manager that reports turns that take too long.

    It uses a signal, so it has no effect outside the main thread, or in a program with its own handler of that signal.

    Args:
        turn: ``turn()`` returns a value that differs in each turn, or None while the reactor waits
        report: ``report(frame, seconds)`` is called with the running frame, after each period of such a turn; an exception
            it raises is raised in the running code
        timer: ``signal.ITIMER_PROF``, processor time, so that neither a debugger nor a busy machine triggers it; or
            ``ITIMER_REAL``, which includes the time that code sleeps
        period (float): seconds; default: LONGEST_TURN
    """

    def __init__(self, turn, report, timer=signal.ITIMER_PROF, period=None):
        self._turn = turn
        self._report = report
        self._timer = timer
        self._period = period or LONGEST_TURN
        self._seen = None
        self._periods = 0
        self._is_on = False

    def __enter__(self):
        self._seen, self._periods = self._turn(), 0
        number = SIGNALS[self._timer]
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(number) == signal.SIG_DFL
        ):
            signal.signal(number, self._look)
            signal.setitimer(self._timer, self._period, self._period)
            self._is_on = True
        return self

    def __exit__(self, *exc):
        if self._is_on:
            signal.setitimer(self._timer, 0)
            signal.signal(SIGNALS[self._timer], signal.SIG_DFL)
            self._is_on = False

    def _look(self, signum, frame):
        turn = self._turn()
        if turn is None or turn != self._seen:
            # A turn that began since is examined at the next signal.
            self._seen, self._periods = turn, 0
            return
        self._periods += 1
        self._report(frame, self._periods * self._period)


def place(frame, path=None):
    """Return the place of a frame, ``FILE:LINE (FUNCTION)``, or of its innermost caller in the file `path`, if there is one."""
    own = frame
    while own is not None and own.f_code.co_filename != path:
        own = own.f_back
    found = own or frame
    return f"{found.f_code.co_filename}:{found.f_lineno} ({found.f_code.co_name})"
