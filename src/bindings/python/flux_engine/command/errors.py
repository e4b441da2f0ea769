# SPDX-License-Identifier: LGPL-3.0-or-later
"""How a command reports failure: ``flux-NAME: ERROR: text`` on stderr, and its exit status."""

import os
import sys


class CommandError(Exception):
    """Ends a command: text for stderr, and the exit status."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


def error_text(exc):
    """The text of an OSError without its number: the peer's own message if it sent one."""
    if isinstance(exc, OSError) and exc.errno:
        text = exc.strerror or os.strerror(exc.errno)
        return f"{text}: {exc.filename!r}" if exc.filename else text
    return str(exc)


def wait_each(command, requests):
    """Wait for the answers to requests, (description of the action, future) of each, and report errors; returns the status."""
    code = 0
    for tried, future in requests:
        try:
            future.get()
        except OSError as exc:
            warn(f"{command}: ERROR: {tried}: {error_text(exc)}")
            code = 1
    return code


def warn(text):
    """Print a line to stderr, after flushing stdout."""
    sys.stdout.flush()
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
