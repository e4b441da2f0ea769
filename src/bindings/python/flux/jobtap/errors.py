# SPDX-License-Identifier: LGPL-3.0-or-later
"""What plugins raise, and how it is told to people."""

from __future__ import annotations

import os
import traceback


class JobtapError(Exception):
    """A callback failed; the text is for the user where there is one (`Plugin.error`)."""


class Rejected(JobtapError):
    """A callback rejects the job (`Plugin.reject_job`); the text is the submission's error."""


#: Whatever leaves a plugin's code ends that code and nothing else, sys.exit() and KeyboardInterrupt included.
FAILURES = (BaseException,)

#: Topics whose callback can refuse what it is asked about. Topics of a plugin's own can fail too.
_CAN_FAIL = ("job.create", "job.validate", "conf.update", "plugin.query")
_CAN_FAIL_BELOW = ("job.dependency.", "job.update.")


def can_fail(topic: str) -> bool:
    """Whether a callback for `topic` can refuse; elsewhere a failure is only logged."""
    return topic in _CAN_FAIL or topic.startswith(_CAN_FAIL_BELOW) or not topic.startswith("job.")


def refusal(topic: str, name: str) -> str:
    """The text of a refusal that came without one."""
    by = f"by job-manager plugin '{name}'"
    if topic == "conf.update":
        return f"configuration rejected {by}"
    if topic.startswith("job.update."):
        return f"update rejected {by}"
    if topic.startswith("job."):
        return f"rejected {by}"
    return f"{topic} of job-manager plugin '{name}' failed"


def describe(exc: BaseException, where: str | None = None) -> str:
    """One line on an exception: its text, with type, file and line unless it was raised for users.

    Args:
        where (str): path of the plugin; the line is the last one in this file, else the last of all
    """
    if isinstance(exc, SyntaxError):
        line = f", line {exc.lineno}" if exc.lineno else ""
        return f"{type(exc).__name__}: {exc.msg} ({os.path.basename(exc.filename or '?')}{line})"
    text = str(exc)
    if isinstance(exc, OSError) and exc.strerror and exc.filename is None:
        text = exc.strerror
    if isinstance(exc, (JobtapError, OSError)):
        return text
    text = f"{type(exc).__name__}: {text}" if text else type(exc).__name__
    frames = traceback.extract_tb(exc.__traceback__)
    own = [frame for frame in frames if frame.filename == where]
    if own or frames:
        frame = (own or frames)[-1]
        text += f" ({os.path.basename(frame.filename)}:{frame.lineno} in {frame.name})"
    return text


def brief(exc: BaseException) -> str:
    """An exception's text for a user: without the place, and the type only where the text says little without it."""
    text = describe(exc) if isinstance(exc, (JobtapError, OSError)) else str(exc)
    if not text or isinstance(exc, (KeyError, AttributeError, IndexError)):
        text = f"{type(exc).__name__}: {text}" if text else type(exc).__name__
    return text


def trace(exc: BaseException) -> str:
    """The traceback, for debugging; a remark if there is none."""
    return "".join(traceback.format_tb(exc.__traceback__)).rstrip() or "no traceback"
