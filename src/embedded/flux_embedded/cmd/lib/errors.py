"""How a command reports failure.

flux-core has two kinds of commands with two styles of message, and scripts look at both:
``flux-job: text`` (written in C) and ``flux-jobs: ERROR: text`` (written in Python).
"""

import os
import sys


class CommandError(Exception):
    """Ends a command: text for stderr, and the exit code."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


class UsageError(CommandError):
    """Wrong usage; the text is printed as it stands."""


class NoInstance(Exception):
    """No instance answers.

    Attributes:
        reason: the errno's description.
    """

    def __init__(self, text, reason):
        super().__init__(text)
        self.reason = reason


def error_text(exc):
    """The text of an OSError without its errno: the peer's own words where it sent any."""
    if isinstance(exc, OSError):
        if exc.strerror:
            return exc.strerror
        if exc.errno:
            return os.strerror(exc.errno)
    return str(exc)


def errno_text(exc):
    """``[Errno N] text``, the way Python prints an OSError."""
    if isinstance(exc, OSError) and exc.errno is not None:
        return f"[Errno {exc.errno}] {error_text(exc)}"
    return str(exc)


def strerror(exc):
    """The errno's own description, whatever text the peer sent."""
    if isinstance(exc, OSError) and exc.errno:
        return os.strerror(exc.errno)
    return str(exc)


def warn(text):
    """One line on stderr, after whatever stdout still holds."""
    sys.stdout.flush()
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
