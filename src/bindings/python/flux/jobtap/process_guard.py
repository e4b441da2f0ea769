# SPDX-License-Identifier: LGPL-3.0-or-later
"""Keeps plugins from handling signals of the job manager's process, and from ending it.

`install` replaces functions of `os` and `signal` once for the whole interpreter. They raise an
error while a plugin runs, and otherwise do what they always did.
"""

from __future__ import annotations

import errno
import os
import signal
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


def install(host: Any) -> None:
    """Have the functions refuse whenever ``host.is_running_plugin()`` is true.

    They only do so in this process: a child process that a plugin has forked may call all of them.

    Args:
        host: it is referred to weakly, and forgotten when it is gone
    """
    if not _hosts:
        home = os.getpid()
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
