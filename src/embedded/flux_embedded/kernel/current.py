"""Whose code is running: the task of this greenlet, and its handle."""

import errno

from greenlet import getcurrent

#: The handle of a task that lives in no greenlet of its own (an outside program, a test).
_default = []


def inside_handle():
    """The handle of the module or service whose greenlet this is, or None."""
    task = getattr(getcurrent(), "task", None)
    return task.handle if task is not None else None


def set_default(handle):
    """`handle` is the program's, unless it has one."""
    if not _default:
        _default.append(handle)


def current_handle():
    """The handle of the task that runs now.

    Raises:
        OSError: there is none: this is an outside program that has not opened a handle
    """
    handle = inside_handle() or (_default[0] if _default else None)
    if handle is None:
        raise OSError(errno.ENOTCONN, "there is no handle here yet: open one with flux.Flux()")
    return handle
