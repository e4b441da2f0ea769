"""What plugins hand over, checked at the door: it goes into eventlogs and messages, so it must be JSON."""

import errno
import json

from flux_embedded.kernel.service import check_form

#: Events that have an effect on the job, and what their context must have (RFC 21).
_FORMS = {
    "set-flags": {"flags": list},
    "jobspec-update": {},
    "resource-update": {"expiration": float},
    "dependency-add": {"description": str},
    "dependency-remove": {"description": str},
    "priority": {"priority": int},
    "urgency": {"urgency": int, "userid": int},
    "prolog-start": {"description": str},
    "prolog-finish": {"description": str, "status": int},
    "epilog-start": {"description": str},
    "epilog-finish": {"description": str, "status": int},
    "finish": {"status": int},
    "release": {"ranks": str, "final": bool},
    "exception": {"type": str, "severity": int, "note": str},
}


def plain(value, what):
    """`value` as JSON has it: a copy that its giver cannot change later.

    Raises:
        OSError: EINVAL, JSON cannot hold it
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as exc:
        raise OSError(errno.EINVAL, f"{what}: {exc}") from None


def text(value, what):
    """`value`, a string.

    Raises:
        OSError: EINVAL, it is none
    """
    if type(value) is not str:
        raise OSError(errno.EINVAL, f"{what}={value!r}: expected a string")
    return value


def severity(value):
    """Check the severity of an exception.

    Raises:
        OSError: EINVAL
    """
    if type(value) is not int or not 0 <= value <= 7:
        raise OSError(errno.EINVAL, f"severity={value!r}: expected 0 to 7")


def context_of(name, context):
    """The context of an event `name` to be posted; None for an empty one.

    Raises:
        OSError: EINVAL, it is no JSON object; EPROTO, the event needs another context
    """
    context = plain(context, f"event {name}") if context else None
    if context is not None and type(context) is not dict:
        raise OSError(errno.EINVAL, f"event {name}: the context must be an object")
    form = _FORMS.get(name)
    if form is not None:
        if not context:
            raise OSError(errno.EPROTO, f"event {name}: it needs a context")
        check_form(context, form, f"event {name}")
    return context
