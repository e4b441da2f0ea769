# SPDX-License-Identifier: LGPL-3.0-or-later
"""Calls a command: exit status, and errors as ``flux-NAME: ERROR: text`` on stderr."""

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


def prepare_streams():
    """Let stdout and stderr accept file names that are not UTF-8; one that is closed takes anything."""
    sys.stdout, sys.stderr = [one or open(os.devnull, "w") for one in (sys.stdout, sys.stderr)]
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="surrogateescape")


def call(name, main, argv):
    """Run ``main(argv)`` as the command ``flux NAME``; returns the exit status.

    Args:
        name (str): the name in messages, after ``flux-``
        main: returns the exit status or None, which is 0; `CommandError`, OSError and ValueError become a line on stderr
        argv (list of str): the words after the command's name
    """
    try:
        code = main(argv)
        sys.stdout.flush()
        return code or 0
    except SystemExit as exc:
        sys.stdout.flush()
        return exc.code or 0
    except BrokenPipeError:
        # the reader of our output is gone; keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except KeyboardInterrupt:
        return 130
    except RuntimeError as exc:
        # An interrupt in a class body, during an import, before Python 3.12.
        if isinstance(exc.__cause__, KeyboardInterrupt):
            return 130
        raise
    except (CommandError, OSError, ValueError) as exc:
        warn(f"flux-{name}: ERROR: {error_text(exc)}")
        return getattr(exc, "code", 1)
