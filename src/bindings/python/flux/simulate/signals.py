# SPDX-License-Identifier: LGPL-3.0-or-later
"""Handlers of SIGINT and SIGTERM during runs."""

import contextlib
import signal
import threading


@contextlib.contextmanager
def ending(interrupt):
    """Let SIGINT call ``interrupt(signum, frame)`` and SIGTERM end this process. No effect outside
    the main thread, which alone gets signals."""

    def terminate(signum, frame):
        raise SystemExit(128 + signum)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGINT, interrupt), signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former[0])
        signal.signal(signal.SIGTERM, former[1])
