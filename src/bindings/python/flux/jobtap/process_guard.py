# SPDX-License-Identifier: LGPL-3.0-or-later
"""Keeps plugins from handling signals of the job manager's process, and from ending or forking it.

`install` replaces functions of `os` and `signal` once for the whole interpreter. They raise an
error while a plugin runs, and otherwise work as before. `end_child` ends a child process that
a plugin has forked, where it would go on as a second job manager.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
import weakref
from collections.abc import Callable
from typing import Any

_FORBIDDEN = (
    (signal, "signal"),
    (signal, "set_wakeup_fd"),
    (signal, "setitimer"),
    (signal, "alarm"),
    (os, "_exit"),
    (os, "abort"),
    (os, "execv"),
    (os, "execve"),
)
_hosts: weakref.WeakSet[Any] = weakref.WeakSet()
_job_manager = os.getpid()


def install(host: Any) -> None:
    """Make the functions refuse whenever ``host.is_running_plugin()`` is true.

    They only do so in this process: a child process that a plugin has forked may call all of them.

    Args:
        host: it is referred to weakly, and forgotten when it is gone
    """
    global _job_manager
    if not _hosts:
        home = _job_manager = os.getpid()
        for module, name in _FORBIDDEN:
            function = getattr(module, name)
            if not hasattr(function, "guards"):
                setattr(module, name, _guarded(function, f"{module.__name__}.{name}", home))
    _hosts.add(host)


def _guarded(function: Callable[..., Any], what: str, home: int) -> Callable[..., Any]:
    def refuse_plugins(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() == home and any(host.is_running_plugin() for host in _hosts):
            raise OSError(errno.EPERM, f"{what}: a plugin may not do that inside the job manager")
        return function(*args, **kwargs)

    refuse_plugins.__doc__ = function.__doc__
    refuse_plugins.__name__ = function.__name__
    vars(refuse_plugins)["guards"] = what
    return refuse_plugins


def end_child() -> None:
    """End this process if it is a child that a plugin has forked: with status 1 and the traceback of the
    exception that is being handled, or with 0. Called wherever a plugin's code is over, since the child
    has the job manager's memory, its sockets and its reactor."""
    if os.getpid() == _job_manager:
        return
    failed = sys.exc_info()[1] is not None
    if failed:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # closed, or none
    os._exit(1 if failed else 0)
