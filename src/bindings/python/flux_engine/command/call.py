# SPDX-License-Identifier: LGPL-3.0-or-later
"""Calling a command: its exit status, and error messages on stderr."""

import os
import sys

from flux_engine.command.errors import CommandError, error_text, warn


def prepare_streams():
    """Let stdout and stderr accept file names that are not UTF-8."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
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
    except (CommandError, OSError, ValueError) as exc:
        warn(f"flux-{name}: ERROR: {error_text(exc)}")
        return getattr(exc, "code", 1)
