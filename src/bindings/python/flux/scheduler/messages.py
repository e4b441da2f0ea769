# SPDX-License-Identifier: LGPL-3.0-or-later
"""Reading and validating messages (RFC 27), and answering requests.

A function that reads takes a message and raises an exception that names its fault: usually a
ValueError, but nothing is assumed about peers' messages. `Responder` answers a request with the
error, which does not propagate.
"""

from __future__ import annotations

import errno
import json
import re
from typing import Any, Callable

from flux.brokermod import request_handler
from flux.scheduler.attributes import printable
from flux.scheduler.host import Host, payload_size
from flux.scheduler.pools import Unread, id_of_unread_payload

#: Types of the responses to sched.alloc.
SUCCESS, ANNOTATE, DENY, CANCEL = range(4)

#: Largest job id and priority.
ID_MAX = (1 << 64) - 1
PRIORITY_MAX = (1 << 32) - 1
#: Largest userid, used for an unknown user.
USERID_MAX = (1 << 32) - 1

#: Bits of a request's rolemask (RFC 12).
ROLE_OWNER, ROLE_ADMIN = 1, 8


def sees_all(msg: Any) -> bool:
    """Whether the sender of a request may see others' jobs: the instance owner, and users with the
    role admin (``access.roles.admin``, flux-core 0.88), who may not change more than other
    guests."""
    return bool(msg.rolemask & (ROLE_OWNER | ROLE_ADMIN))


def object_of(msg: Any, limits: SizeLimits | None = None) -> dict[str, Any]:
    """Return the payload of a message, an object; {} if there is none. Raises ValueError if it is
    no object, RecursionError if it is nested too deeply for the parser, TooLarge if it exceeds
    `limits`."""
    try:
        payload = msg.payload if limits is None else json.loads(limits.check(msg))
    except TypeError:
        payload = {}  # no payload
    if type(payload) is not dict:
        raise ValueError(f"{msg.topic}: payload must be an object")
    return payload


def jobid_of(payload: dict[str, Any]) -> int:
    jobid = payload["id"] if "id" in payload else None
    if type(jobid) is int and 0 <= jobid <= ID_MAX:
        return jobid
    raise _no_integer("id", ID_MAX, jobid)


def submission_of(payload: dict[str, Any], now: Callable[[], float]) -> tuple[int, int, float, Any]:
    """Return a job's priority, userid, time of submission and jobspec in ``sched.alloc``. Raises
    ValueError if the priority is invalid. An invalid userid is `USERID_MAX` (unknown), an invalid
    time ``now()``."""
    if type(payload.get("jobspec")) is bytes:  # from a host that shares its objects
        return payload["priority"], payload["userid"], payload["t_submit"], payload["jobspec"]
    priority, userid = payload.get("priority"), payload.get("userid", 0)
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        raise _no_integer("priority", PRIORITY_MAX, priority)
    if type(userid) is not int or not 0 <= userid <= USERID_MAX:
        userid = USERID_MAX
    t_submit = _time_of(payload.get("t_submit"))
    return priority, userid, now() if t_submit is None else t_submit, payload.get("jobspec")


def _time_of(value: Any) -> float | None:
    """Return a time in seconds since the epoch; None if `value` is not a finite number."""
    is_time = type(value) in (int, float) and -_LATEST < value < _LATEST
    return float(value) if is_time else None


#: Later than any time; NaN and infinity fail the comparison.
_LATEST = 1e15


def read_hello(entry: Any, now: float) -> tuple[dict[str, Any], list[str]]:
    """Return a job that holds resources, from a response to ``sched-hello``, and the names of its
    faulty keys. Only the id is needed to find its allocation, and ValueError is raised without one;
    other faulty keys get defaults, the time of submission `now`: the job is not to blame."""
    if not isinstance(entry, dict):
        raise ValueError(f"expected an object, got {entry!r}")
    jobid_of(entry)
    checked = {
        **entry,
        "priority": entry.get("priority"),
        "userid": entry.get("userid"),
        "t_submit": _time_of(entry.get("t_submit")),
    }
    wrong = []
    for key, largest, usual in (("priority", PRIORITY_MAX, 16), ("userid", USERID_MAX, USERID_MAX)):
        if type(checked[key]) is not int or not 0 <= checked[key] <= largest:
            checked[key] = usual
            wrong.append(key)
    if checked["t_submit"] is None:
        checked["t_submit"] = now
        wrong.append("t_submit")
    return checked, wrong


def _no_integer(key: str, largest: int, value: Any) -> ValueError:
    return ValueError(f"{key}: expected an integer from 0 to {largest}, got {value!r}")


class TooLarge(ValueError):
    """A message exceeds the limit on its size."""


#: A string, or a separator of values outside strings.
_VALUE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|,', re.DOTALL)


class SizeLimits:
    """Limits on the size of a message. Larger ones are refused before they are parsed: that would
    block the scheduler, and take many times their size in memory."""

    def __init__(self, most_bytes: int, most_values: int) -> None:
        self.most_bytes = most_bytes  # maximum size of the payload
        #: maximum number of values in it: elements of arrays, and members of objects
        self.most_values = most_values

    def check_bytes(self, msg: Any) -> None:
        """Check the number of bytes.  O(1). Raises TooLarge if the message has too many bytes."""
        size = payload_size(msg)
        if size > self.most_bytes:
            raise TooLarge(
                f"{size} bytes are more than the scheduler reads: {self.most_bytes}"
                " (see jobspec-bytes=)"
            )

    def check(self, msg: Any) -> Any:
        """Check the numbers of bytes and values, and return the payload's text, or None.
        Microseconds for an ordinary message. Raises TooLarge if the message is too large."""
        self.check_bytes(msg)
        text = msg.payload_str
        if text is None or text.count(",") < self.most_values:
            return text
        values = 1
        for found in _VALUE.finditer(text):
            values += text[found.start()] == ","
            if values > self.most_values:
                raise TooLarge(
                    f"more values than the scheduler reads: {self.most_values} (see jobspec-values=)"
                )
        return text


def read_alloc(
    msg: Any, limits: SizeLimits | None, packed: bool = False
) -> tuple[int, dict[str, Any]]:
    """Return the job id and the payload of ``sched.alloc``, already parsed if `limits` is None; if
    `packed`, with the jobspec as the host has it, which may be marshalled. Without an id there is
    no job to answer.

    A payload that is nested too deeply for the parser, or too large, still yields its id, with
    `Unread` in place of the jobspec, so that the job is denied.
    """
    if packed:
        return msg.body["id"], msg.body
    try:
        payload = object_of(msg, limits)
    except (RecursionError, TooLarge) as exc:
        reason = str(exc) if isinstance(exc, TooLarge) else "jobspec is nested too deeply"
        payload = {"id": id_of_unread_payload(msg.payload_str)}
        payload.update(priority=0, jobspec=Unread(reason))
    return jobid_of(payload), payload


def read_priorities(msg: Any) -> list[list[int]]:
    """Return the [job id, priority] pairs of ``sched.prioritize``."""
    entries = object_of(msg)["jobs"]
    if not isinstance(entries, list):
        raise ValueError("jobs: expected an array")
    for entry in entries:
        jobid, priority = entry
        if type(jobid) is not int or type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
            raise ValueError(f"jobs: expected [id, priority], got {entry!r}")
    return entries


def read_free(msg: Any) -> tuple[int, dict[str, Any], bool]:
    """Return the job id, R and whether it is the final free, from ``sched.free``."""
    payload = object_of(msg)
    jobid, R = jobid_of(payload), payload.get("R")
    if type(R) is not dict:
        raise ValueError(f"R: expected an object, got {type(R).__name__!r}")
    return jobid, R, bool(payload.get("final", False))


def read_jobspec(msg: Any, limits: SizeLimits | None) -> Any:
    """Return the jobspec of ``feasibility.check``."""
    payload = object_of(msg, limits)
    if "jobspec" not in payload:
        raise ValueError("jobspec: missing")
    return payload["jobspec"]


def read_expiration(msg: Any) -> tuple[int, float]:
    """Return the job id and the new end of ``sched.expiration``."""
    payload = object_of(msg)
    jobid = jobid_of(payload)
    expiration = payload.get("expiration")
    if isinstance(expiration, bool) or not isinstance(expiration, (int, float)):
        raise ValueError(f"expiration: expected a number, got {expiration!r}")
    if not 0 <= expiration < float("inf"):
        raise ValueError(f"invalid expiration {expiration!r}")
    return jobid, expiration


def served_by(
    topic: str,
    answer: Callable[[Any, Any], Any],
    prefix: bool = False,
    guests: bool = False,
    sees_all: bool = False,
) -> Callable[[Any, Any], None]:
    """Return the handler of a request, as a method of a scheduler: ``answer(scheduler, msg)`` sends
    the answer, an exception is answered too, and does not propagate. With `prefix` the module's
    name precedes the topic. All guests may send it (`guests`), or those who see all
    (`sees_all`)."""

    @request_handler(topic, prefix=prefix, allow_guest=guests or sees_all)
    def handle(self: Any, msg: Any) -> None:
        responder: Responder = self._responder
        responder.serve(msg, lambda: answer(self, msg), for_all=not sees_all)

    return handle


class Responder:
    """Serves requests."""

    def __init__(self, host: Host, limits: SizeLimits | None) -> None:
        self._handle, self._errors = host.handle, host.errors
        self.limits = limits  # limits on messages; None: they are already checked

    def serve(self, msg: Any, serve: Callable[[], Any], for_all: bool = True) -> None:
        """Call `serve`; if it raises, answer `msg` with an error. Unless it is `for_all`, callers
        that may not see all are refused, as in flux-core."""
        if not (for_all or sees_all(msg)):
            self.refuse(msg, "Request requires owner credentials", errno.EPERM)
            return
        try:
            serve()
        except ValueError as exc:  # the caller's mistake
            self.refuse(msg, str(exc))
        except BlockingIOError as exc:  # too many queries at once
            self.refuse(msg, str(exc.strerror), errno.EAGAIN)
        except NotImplementedError as exc:  # a pool without a view
            self.refuse(msg, f"the pool of this scheduler has no {exc}")
        except RecursionError:  # also the caller's mistake
            self.refuse(msg, f"{msg.topic}: the payload is nested too deeply")
        except (Exception, SystemExit) as exc:
            self._errors.report(msg.topic, trace=True)
            # Its text may contain anything, and guests learn nothing of other users.
            shown = sees_all(msg)
            self.refuse(
                msg, f"{type(exc).__name__}: {exc}" if shown else "the scheduler has failed"
            )

    def refuse(self, msg: Any, text: str, errnum: int = errno.EINVAL) -> None:
        try:
            self._handle.respond_error(msg, errnum, printable(text))
        except Exception as exc:
            self._errors.report(f"{msg.topic}: cannot answer: {exc}")


def error_note(error: BaseException) -> str:
    """Return the note of a job that is denied for an exception in the scheduler."""
    return f"scheduler error: {type(error).__name__}: {error}"
