# SPDX-License-Identifier: LGPL-3.0-or-later
"""Keeps plugins from handling signals of the job manager's process, and from ending or forking it.

`install` replaces functions of `os` and `signal`, once per interpreter. They raise an error while a
plugin runs, and work as usual otherwise. `end_child` ends a child process forked by a plugin, which
would otherwise go on as a second job manager.
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
    (signal, "signal"), (signal, "set_wakeup_fd"), (signal, "setitimer"), (signal, "alarm"), (os, "_exit"),
    (os, "abort"), (os, "execv"), (os, "execve"),
)  # fmt: skip
_hosts: weakref.WeakSet[Any] = weakref.WeakSet()
_job_manager = os.getpid()


def install(host: Any) -> None:
    """Let the functions refuse while ``host.is_running_plugin()`` is true.

    This applies in this process only: a child process forked by a plugin may call them. A child process with a host of
    its own is a job manager itself.

    Args:
        host: weakly referenced
    """
    global _job_manager
    _job_manager = os.getpid()
    for module, name in _FORBIDDEN:
        function = getattr(module, name)
        if not hasattr(function, "guards"):
            setattr(module, name, _guarded(function, f"{module.__name__}.{name}"))
    _hosts.add(host)


def _guarded(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    def refuse_plugins(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() == _job_manager and any(host.is_running_plugin() for host in _hosts):
            raise OSError(errno.EPERM, f"{what}: a plugin may not do that inside the job manager")
        return function(*args, **kwargs)

    refuse_plugins.__doc__ = function.__doc__
    refuse_plugins.__name__ = function.__name__
    vars(refuse_plugins)["guards"] = what
    return refuse_plugins


def end_child() -> None:
    """Exit if this process is a child forked by a plugin: with status 1 and a traceback if an
    exception is being handled, else with 0. Called after each call of plugin code: the child shares
    the job manager's memory, sockets and reactor."""
    if os.getpid() == _job_manager:
        return
    failed = sys.exc_info()[1] is not None
    if failed:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # closed or missing
    os._exit(1 if failed else 0)
