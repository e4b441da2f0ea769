# SPDX-License-Identifier: LGPL-3.0-or-later
"""What no plugin may do: take over signals, or end the process it is a guest in.

`install` replaces the functions once for the whole interpreter; they refuse while a host says that a plugin runs, and
otherwise do what they always did.
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
    """Have the functions refuse whenever ``host.is_running_plugin()`` is true, in this process.

    A child that a plugin forks may do all of it.
    """
    if not _hosts:
        home = os.getpid()
        for module, name in _FORBIDDEN:
            function = getattr(module, name)
            if not hasattr(function, "guards"):
                setattr(module, name, _guarded(function, f"{module.__name__}.{name}", home))
    _hosts.add(host)


def _guarded(function: Callable[..., Any], what: str, home: int) -> Callable[..., Any]:
    def refuse_guests(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() == home and any(host.is_running_plugin() for host in _hosts):
            raise OSError(errno.EPERM, f"{what}: a plugin may not do that inside the job manager")
        return function(*args, **kwargs)

    refuse_guests.__doc__ = function.__doc__
    refuse_guests.__name__ = function.__name__
    vars(refuse_guests)["guards"] = what
    return refuse_guests
