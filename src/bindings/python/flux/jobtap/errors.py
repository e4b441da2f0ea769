# SPDX-License-Identifier: LGPL-3.0-or-later
"""The exceptions of plugins, and their texts for users and for the log."""

from __future__ import annotations

import os
import traceback
from typing import Any


class JobtapError(Exception):
    """A callback failed. The text is shown to the user, if one waits for an answer
    (`Plugin.error`)."""


class Rejected(JobtapError):
    """A callback rejected the job (`Plugin.reject_job`). The text is the error of the
    submission."""


#: The text for an R given to a job whose resources the scheduler allocates.
R_WITHOUT_BYPASS = (
    "R without the flag alloc-bypass: the scheduler will be asked for the job too."
    ' Call job_set_flag(CURRENT_JOB, "alloc-bypass") in job.validate'
)

#: The text for annotations of another type.
BAD_ANNOTATIONS = "annotations: expected an object"

#: The text of the error for a call from another thread.
WRONG_THREAD = (
    "only the job manager's own thread may do that: another thread can write to a pipe, whose"
    " other end p.handle.fd_watcher_create watches"
)

#: Exceptions caught around a plugin's code: all, including those of sys.exit() and Ctrl-C, since
#: the job manager has to go on.
FAILURES = (BaseException,)

#: Topics whose callbacks can refuse. Callbacks for topics defined by plugins can too.
_CAN_FAIL = ("job.create", "job.validate", "conf.update", "plugin.query")
_CAN_FAIL_BELOW = ("job.dependency.", "job.update.")


def can_fail(topic: str) -> bool:
    """Whether a callback for `topic` can refuse. For other topics a failure is only logged."""
    return topic in _CAN_FAIL or topic.startswith(_CAN_FAIL_BELOW) or not topic.startswith("job.")


def refusal(topic: str, name: str) -> str:
    """Return the text of a refusal by plugin `name` that has no text of its own."""
    by = f"by job-manager plugin '{name}'"
    if topic == "conf.update":
        return f"configuration rejected {by}"
    if topic.startswith("job.update."):
        return f"update rejected {by}"
    if topic.startswith("job."):
        return f"rejected {by}"
    return f"{topic} of job-manager plugin '{name}' failed"


def describe(exc: BaseException, where: str | None = None) -> str:
    """Return an exception as one line: its text and, unless it was raised for users, its type and
    source line: the last line of the traceback in the plugin's file (`where`)."""
    if isinstance(exc, SyntaxError):
        line = f", line {exc.lineno}" if exc.lineno else ""
        return f"{type(exc).__name__}: {exc.msg} ({os.path.basename(exc.filename or '?')}{line})"
    text = str(exc)
    if isinstance(exc, OSError) and exc.strerror and exc.filename is None:
        text = exc.strerror
    if isinstance(exc, (JobtapError, OSError)):
        return text
    text = " ".join(text.split())
    text = f"{type(exc).__name__}: {text}" if text else type(exc).__name__
    own = _frames_in(where, exc)
    return text + _at(own[-1]) if own else text


def _frames_in(where: str | None, exc: BaseException) -> list[traceback.FrameSummary]:
    return [one for one in traceback.extract_tb(exc.__traceback__) if one.filename == where]


def _at(frame: traceback.FrameSummary) -> str:
    return f" ({os.path.basename(frame.filename)}:{frame.lineno} in {frame.name})"


def describe_for_log(exc: BaseException, where: str | None, callback: Any = None) -> str:
    """Return an exception as one line for the log: as `describe`, but always with a line of the
    plugin, if there is one. If the exception concerns the callback's return value, the traceback
    has no line of it, and its first line is shown."""
    text = describe(exc, where)
    own = _frames_in(where, exc)
    code = getattr(callback, "__code__", None)
    if own:
        place = _at(own[-1])
    elif code is not None:
        line = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
        place = f" ({line} in {code.co_name})"
    else:
        return text
    return text if text.endswith(place) or isinstance(exc, SyntaxError) else text + place


def brief(exc: BaseException) -> str:
    """Return the text of an exception for users: without source line, and with its type only if the
    text alone is too short."""
    text = describe(exc) if isinstance(exc, (JobtapError, OSError)) else str(exc)
    if not text or isinstance(exc, (KeyError, AttributeError, IndexError, SystemExit)):
        text = f"{type(exc).__name__}: {text}" if text else type(exc).__name__
    return text


def trace(exc: BaseException) -> str:
    """Return the traceback of an exception as text."""
    return "".join(traceback.format_tb(exc.__traceback__)).rstrip() or "no traceback"
