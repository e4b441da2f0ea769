# SPDX-License-Identifier: LGPL-3.0-or-later
"""Tells where a scheduler is that does not come back to its reactor."""

from __future__ import annotations

import signal
import threading
import types
from typing import Any, Callable

#: Seconds of processor time that a reactor turn may take.
LONGEST_TURN = 5.0


class EndlessLoop(BaseException):
    """A scheduler has not come back to its reactor. No ``except Exception`` of a policy holds it up."""


class Watchdog:
    """A context manager: while it lasts, a turn that takes too much processor time is reported.

    It counts processor time, so that neither a debugger nor a busy machine sets it off. It uses SIGPROF, and so does nothing
    but in the main thread, and leaves a program alone that uses that signal itself.

    Args:
        turns: ``turns()`` gives a value that is another in each turn
        report: ``report(where, seconds)`` is called with the place where the scheduler is, after LONGEST_TURN and again after
            each further one; what it raises, the scheduler's code raises there
        path (str): a file that is named if any of its code is under way; else the innermost is
    """

    def __init__(
        self,
        turns: Callable[[], int],
        report: Callable[[str, float], None],
        path: str | None = None,
    ) -> None:
        self._turns = turns
        self._report = report
        self._path = path
        self._seen: Any = None
        self._periods = 0
        self._is_on = False

    def __enter__(self) -> Watchdog:
        self._seen, self._periods = self._turns(), 0
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGPROF) == signal.SIG_DFL
        ):
            signal.signal(signal.SIGPROF, self._look)
            signal.setitimer(signal.ITIMER_PROF, LONGEST_TURN, LONGEST_TURN)
            self._is_on = True
        return self

    def __exit__(self, *exc: Any) -> None:
        if self._is_on:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            self._is_on = False

    def _look(self, signum: int, frame: types.FrameType | None) -> None:
        turns = self._turns()
        if turns != self._seen:
            # This turn began since: it has until the next time.
            self._seen, self._periods = turns, 0
            return
        self._periods += 1
        self._report(self._place(frame), self._periods * LONGEST_TURN)

    def _place(self, frame: types.FrameType | None) -> str:
        own = frame
        while own is not None and own.f_code.co_filename != self._path:
            own = own.f_back
        found = own or frame
        if found is None:
            return "an unknown place"
        return f"{found.f_code.co_filename}:{found.f_lineno} ({found.f_code.co_name})"
