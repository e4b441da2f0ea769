# SPDX-License-Identifier: LGPL-3.0-or-later
"""Checks of the arguments that plugins pass to the job manager: job ids, events, priorities, flags,
jobspec updates.

The values go into eventlogs and messages, so they must be JSON that C code accepts too, and no
event may leave a job in a state that the job manager cannot handle. A bad value raises OSError
(EINVAL), with a text that names the argument (parameter `what`).
"""

from __future__ import annotations

import errno
import json
from math import isfinite
from typing import Any

from flux_engine.formats.form import NAMES
from flux_engine.formats.states import PRIORITY_MAX, URGENCY_MAX

#: The job of the running callback, in place of a job id.
CURRENT_JOB = -1
#: An unknown priority.
PRIORITY_UNAVAIL = -1

#: CURRENT_JOB in C (FLUX_JOBTAP_CURRENT_JOB), never a job id.
C_CURRENT_JOB = 0xFFFFFFFFFFFFFFFF

FLAGS = ("waitable", "debug", "alloc-bypass")

#: Events that change the job -> required keys of their context, and types of the values (RFC 21).
_REQUIRED_CONTEXT: dict[str, dict[str, tuple[type, ...]]] = {
    "set-flags": {"flags": (list,)},
    "resource-update": {"expiration": (int, float)},
    "dependency-add": {"description": (str,)},
    "dependency-remove": {"description": (str,)},
    "priority": {"priority": (int,)},
    "urgency": {"urgency": (int,), "userid": (int,)},
    "prolog-start": {"description": (str,)},
    "prolog-finish": {"description": (str,), "status": (int,)},
    "epilog-start": {"description": (str,)},
    "epilog-finish": {"description": (str,), "status": (int,)},
    "finish": {"status": (int,)},
    "release": {"ranks": (str,), "final": (bool,)},
    "exception": {"type": (str,), "severity": (int,), "note": (str,)},
    "memo": {},
    "jobspec-update": {},
}
#: Events that begin or withdraw a job: reserved for the job manager.
_NOT_POSTED = ("submit", "invalidate")
#: Events in which the job manager records other services' reports. A job wrongly marked as ended,
#: or as holding no resources, would hold them forever; after a wrong ``alloc`` the job manager of a
#: real Flux sends no job to the scheduler any more.
_NOT_POSTED_BY_PLUGINS = ("validate", "alloc", "start", "release", "free", "clean")
#: Events with their own methods, which count open prologs and epilogs, and know open dependencies.
_BY_METHOD = (
    "dependency-add", "dependency-remove", "prolog-start", "prolog-finish", "epilog-start", "epilog-finish",
)  # fmt: skip
#: Exception type with which the job manager reports that a scheduler could not take over a job's
#: resources. It does not free them then.
_RESERVED_EXCEPTION = "scheduler-restart"


def _invalid(text: str) -> OSError:
    return OSError(errno.EINVAL, text)


def job_id(value: Any) -> int:
    """Check a job id; CURRENT_JOB is allowed."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value in (CURRENT_JOB, C_CURRENT_JOB):
            return CURRENT_JOB
        if 0 <= value < C_CURRENT_JOB:
            return int(value)
    raise _invalid(f"{value!r} is not a job id")


def plain(value: Any, what: str) -> Any:
    """Copy a value through JSON: the plugin cannot change it later. Integers of more than 64 bits,
    lone surrogates and NUL are bad values: C cannot represent them."""
    try:
        text = json.dumps(value, allow_nan=False)
        copy = json.loads(text)
        if "\\u" in text or len(text) > 18:
            _check_leaves(copy)
        return copy
    except (TypeError, ValueError, RecursionError) as exc:
        raise _invalid(f"{what}: {exc}") from None


def _check_leaves(value: Any) -> None:
    """Raise ValueError for values that Python's JSON accepts but C does not."""
    kind = type(value)
    if kind is str:
        _check_text(value)
    elif kind is int:
        if not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{value} does not fit into 64 bits")
    elif kind is dict:
        for key, inner in value.items():
            _check_text(key)
            _check_leaves(inner)
    elif kind is list:
        for inner in value:
            _check_leaves(inner)


def _check_text(value: str) -> None:
    value.encode()  # a lone surrogate raises UnicodeEncodeError, a ValueError
    if "\0" in value:
        raise ValueError("a string with a NUL character")


def text(value: Any, what: str) -> str:
    """Check a string that is passed to C."""
    if type(value) is not str:
        raise _invalid(f"{what}={value!r}: expected a string")
    try:
        _check_text(value)
    except ValueError as exc:
        raise _invalid(f"{what}: {exc}") from None
    return str(value)


def word(value: Any, what: str) -> str:
    """Check a string that must be non-empty and without white space; see `text`."""
    checked = text(value, what)
    if not checked or any(c.isspace() for c in checked):
        raise _invalid(f"{what}={value!r}: expected one word")
    return checked


def severity(value: Any) -> int:
    """Check the severity of an exception, 0 to 7."""
    if type(value) is not int or not 0 <= value <= 7:
        raise _invalid(f"severity={value!r}: expected 0 to 7")
    return value


def exception_type(value: Any, what: str) -> str:
    """Check the type of an exception: one word, not reserved to the job manager."""
    if word(value, what) == _RESERVED_EXCEPTION:
        raise _invalid(f"{what}={value!r}: reserved to the job manager")
    return str(value)


def wait_status(value: Any, what: str) -> int:
    """Check the wait status of a prolog or an epilog: 32 bits."""
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        raise _invalid(f"{what}={value!r}: expected an integer")
    return value


def priority(value: Any) -> int:
    """Check a priority; PRIORITY_UNAVAIL is allowed."""
    if not is_priority(value):
        raise _invalid(f"{value!r} is not a priority")
    return int(value)


def is_priority(value: Any) -> bool:
    """Whether a value is a priority, or PRIORITY_UNAVAIL."""
    return type(value) is int and PRIORITY_UNAVAIL <= value <= PRIORITY_MAX


def flag(value: Any) -> str:
    """Check the name of a job flag."""
    if value not in FLAGS:
        raise _invalid(f"job_set_flag: {value!r}: expected one of {', '.join(FLAGS)}")
    return str(value)


def updates(value: Any, what: str) -> dict[str, Any]:
    """Check the updates of a jobspec-update event (RFC 21). Return a copy: dotted path -> new
    value."""
    value = plain(value, what)
    if type(value) is not dict or not value:
        raise _invalid(f"{what}: updates must be an object with at least one key")
    for path, new in value.items():
        _check_update(path, new)
    return value


def _check_update(path: str, new: Any) -> None:
    parts = path.split(".")
    if path in ("resources", "tasks"):
        if not (isinstance(new, list) and new and all(type(item) is dict for item in new)):
            raise _invalid(f"update of {path}: expected an array of objects")
        if path == "resources" and not all(
            type(item.get("type")) is str and type(item.get("count")) in (int, dict, str)
            for item in new
        ):
            raise _invalid("update of resources: each must have a type and a count")
        return
    if len(parts) < 2 or parts[0] != "attributes" or "" in parts:
        raise _invalid(f"update of {path} not supported: expected attributes.system.KEY")
    if len(parts) == 2 and type(new) is not dict:
        raise _invalid(f"update of {path}: expected an object")
    if parts[1] == "system":
        system = new if len(parts) == 2 else {parts[2]: new} if len(parts) == 3 else {}
        _check_system(system, path)


def _check_system(system: dict[str, Any], path: str) -> None:
    duration, queue = system.get("duration", 0), system.get("queue", "")
    if type(duration) not in (int, float) or not (duration >= 0 and isfinite(duration)):
        raise _invalid(f"update of {path}: duration={duration!r}: expected seconds")
    if type(queue) is not str:
        raise _invalid(f"update of {path}: queue={queue!r}: expected the name of a queue")
    for key, kind in (("constraints", dict), ("dependencies", list)):
        if key in system and system[key] is not None and type(system[key]) is not kind:
            raise _invalid(f"update of {path}: {key} must be {NAMES[kind]}")


def plugin_event(name: Any, context: Any) -> dict[str, Any] | None:
    """Check an event to be posted by a plugin; see `event`. Those reserved for the job manager could
    leave resources allocated forever."""
    checked = event(name, context)
    if name in _NOT_POSTED_BY_PLUGINS:
        raise _invalid(f"event {name}: only the job manager posts it")
    if name in _BY_METHOD:
        raise _invalid(f"event {name}: use {name.replace('-', '_')}()")
    if name == "exception" and checked is not None:
        exception_type(checked["type"], "event exception: type")
    return checked


def resource_update(has_R: bool, expiration: float, now: float) -> None:
    """Check a ``resource-update`` event of a job. Without R the job manager of a real Flux would
    drop the job's other events; an end in the past crashes the execution system of 0.88."""
    if not has_R:
        raise _invalid("event resource-update: the job has no R")
    if 0 < expiration <= now:
        raise _invalid(f"event resource-update: expiration {expiration} is in the past")


def event(name: Any, context: Any) -> dict[str, Any] | None:
    """Check an event to be posted. Return a copy of its context, or None if that is empty. A context
    without a key required by RFC 21 raises OSError (EPROTO)."""
    if type(name) is not str or not name:
        raise _invalid("event_post: the event has no name")
    word(name, "event_post: name")
    if name in _NOT_POSTED:
        raise _invalid(f"event {name}: only the job manager posts it")
    context = plain(context, f"event {name}") if context else None
    if context is not None and type(context) is not dict:
        raise _invalid(f"event {name}: the context must be an object")
    form = _REQUIRED_CONTEXT.get(name)
    if form is None:
        return context
    if not context:
        raise OSError(errno.EPROTO, f"event {name}: it needs a context")
    for key, kinds in form.items():
        if key not in context:
            raise OSError(errno.EPROTO, f"event {name}: {key!r} is missing")
        if type(context[key]) not in kinds:
            wanted = " or ".join(NAMES[kind] for kind in kinds)
            raise OSError(errno.EPROTO, f"event {name}: {key!r} must be {wanted}")
    _check_values(name, context)
    return context


def _check_values(name: str, context: dict[str, Any]) -> None:
    if name == "urgency" and not 0 <= context["urgency"] <= URGENCY_MAX:
        raise _invalid(f"event urgency: {context['urgency']}: expected 0 to {URGENCY_MAX}")
    if name == "priority" and not 0 <= context["priority"] <= PRIORITY_MAX:
        raise _invalid(f"event priority: {context['priority']} is not a priority")
    if name == "exception":
        severity(context["severity"])
        word(context["type"], "event exception: type")
    if name == "set-flags" and not all(one in FLAGS for one in context["flags"]):
        raise _invalid(f"event set-flags: {context['flags']!r}: expected {', '.join(FLAGS)}")
    if name == "jobspec-update":
        updates(context, "event jobspec-update")
    if name == "resource-update" and not context["expiration"] >= 0:
        raise _invalid("event resource-update: expiration must not be negative")
