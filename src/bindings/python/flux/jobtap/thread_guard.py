# SPDX-License-Identifier: LGPL-3.0-or-later
"""Keeps Python code in the job manager's thread from blocking it: no waiting for the job manager
itself, no reactor, no signal handlers.

Used in the job manager of a real Flux only. There all Python code is plugins, and they may create
handles of their own.
"""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Callable
from typing import Any

import flux.core.handle
import flux.future
import flux.rpc
import flux.util
from flux.jobtap import child_processes, plugin_resources, process_guard

#: the thread that the job manager runs in
_thread: list[int | None] = [None]


def set_job_manager_thread() -> None:
    """Note that the calling thread is the job manager's."""
    _thread[0] = threading.get_ident()


def _in_job_manager() -> bool:
    return threading.get_ident() == _thread[0]


def _refuse_to_block(report: Callable[[BaseException], None]) -> None:
    """Have every handle refuse to wait for the job manager, or to run a reactor, in the job
    manager's thread.

    Args:
        report: called with an exception that has left a callback, instead of ending the reactor
            with it
    """
    get_str, wait_for, init = (
        flux.rpc.RPC.get_str,
        flux.future.Future.wait_for,
        flux.rpc.RPC.__init__,
    )
    handle = flux.core.handle.Flux
    run = handle.reactor_run

    def remember(self: Any, flux_handle: Any, topic: str, *args: Any, **kwargs: Any) -> None:
        init(self, flux_handle, topic, *args, **kwargs)
        self.rpc_topic = topic

    def check(self: Any) -> None:
        if _in_job_manager() and not self.is_ready():
            plugin_resources.refuse_to_wait(getattr(self, "rpc_topic", None) or "")

    def checked_get_str(self: Any) -> Any:
        check(self)
        return get_str(self)

    def checked_wait_for(self: Any, *args: Any, **kwargs: Any) -> Any:
        check(self)
        return wait_for(self, *args, **kwargs)

    def checked_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _in_job_manager():
            raise OSError(
                errno.EDEADLK, "reactor_run: the job manager's reactor is running already"
            )
        return run(self, *args, **kwargs)

    def log_exception(cls: Any, exc: BaseException) -> Any:
        if exc is None or not _in_job_manager():
            return set_exception(cls, exc)
        report(exc)
        return None

    def ignore_stop(self: Any, *args: Any) -> Any:
        if not _in_job_manager():
            return self.flux_reactor_stop_error(self.get_reactor())
        return None

    set_exception = handle.set_exception.__func__
    flux.rpc.RPC.__init__ = remember
    flux.rpc.RPC.get_str = checked_get_str
    flux.future.Future.wait_for = checked_wait_for
    handle.reactor_run = checked_run
    handle.set_exception = classmethod(log_exception)
    handle.reactor_stop_error = ignore_stop


class PluginProcess:
    """The process as `process_guard` sees it: all Python code in it belongs to plugins."""

    @staticmethod
    def is_running_plugin() -> bool:
        return True


class InertSignalModule:
    """Stands for the module `signal` in flux.util, whose functions set a handler for Ctrl-C while
    they wait. Inside the job manager no handler may be set, and nobody types Ctrl-C."""

    SIGINT, SIG_DFL = signal.SIGINT, signal.SIG_DFL
    getsignal = staticmethod(signal.getsignal)

    @staticmethod
    def signal(signum: int, handler: Any) -> None:
        return None


_plugin_process = PluginProcess()  # process_guard refers to it weakly


def install(report: Callable[[BaseException], None]) -> None:
    """Install all guards in this process, and `child_processes.Popen`.

    Args:
        report: called with an exception that has left a callback of unknown origin
    """
    _refuse_to_block(report)
    process_guard.install(_plugin_process)
    child_processes.install()
    flux.util.signal = InertSignalModule
