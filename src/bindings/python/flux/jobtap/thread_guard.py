# SPDX-License-Identifier: LGPL-3.0-or-later
"""Keeps Python code from blocking the job manager's thread: no waiting for the job manager itself,
no long waits for other services, no reactor, no signal handlers.

Used only in the job manager of a real Flux, where all Python code belongs to plugins, which may
create handles of their own.
"""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Callable
from typing import Any

import flux.constants
import flux.core.handle
import flux.future
import flux.rpc
import flux.util
import flux.wrapper
from _flux._core import ffi, lib
from flux.jobtap import child_processes, plugin_handle, process_guard

#: the job manager's thread
_thread: list[int | None] = [None]
#: topic of the request being waited for; empty if unknown
_topic = [""]
#: Prefixes of C functions that wait for their future. ("flux_future_get" is a full name: others
#: with this prefix do not wait.)
_WAITING = (
    "flux_rpc_get", "flux_kvs_lookup_get", "flux_kvs_commit_get_", "flux_kvs_getroot_get_", "flux_job_submit_get_id",
    "flux_job_wait_get_", "flux_job_result_get", "flux_job_event_watch_get", "flux_event_publish_get_seq",
)  # fmt: skip


def set_job_manager_thread() -> None:
    """Mark the calling thread as the job manager's."""
    _thread[0] = threading.get_ident()


def _in_job_manager() -> bool:
    return threading.get_ident() == _thread[0]


def _limit_waiting() -> None:
    """Limit the time that C functions wait for a future in the job manager's thread; functions that
    wait for a message do not wait there.

    The bindings wrap each C function at its first use, and call many of them without a future's
    Python method (for example in `flux.kvs.get`).
    """
    wrap = flux.wrapper.Wrapper.check_wrap

    def wait(future: Any, seconds: float) -> None:
        if lib.flux_future_is_ready(future):
            return
        if lib.flux_future_wait_for(future, seconds) < 0 and ffi.errno == errno.ETIMEDOUT:
            raise plugin_handle.no_answer(_topic[0], seconds)

    def limited(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(future: Any, *args: Any) -> Any:
            if _in_job_manager():
                wait(future, plugin_handle.MAX_WAIT)
            return function(future, *args)

        return call

    def wait_for(future: Any, timeout: float) -> Any:
        if _in_job_manager():
            wait(future, plugin_handle.wait_limit(timeout))
        return lib.flux_future_wait_for(future, timeout)

    def recv(handle: Any, match: Any, flags: int) -> Any:
        if _in_job_manager() and not flags & flux.constants.FLUX_O_NONBLOCK:
            raise OSError(
                errno.EDEADLK,
                "recv: the job manager does nothing while a plugin waits for a message: use"
                " msg_watcher_create",
            )
        return lib.flux_recv(handle, match, flags)

    def check_wrap(self: Any, function: Any, name: str) -> Any:
        wrapper = wrap(self, function, name)
        name = getattr(function, "__name__", name)
        if name == "flux_future_wait_for":
            wrapper.fun = wait_for
        elif name == "flux_recv":
            wrapper.fun = recv
        elif name == "flux_future_get" or name.startswith(_WAITING):
            wrapper.fun = limited(function)
        return wrapper

    flux.wrapper.Wrapper.check_wrap = check_wrap


def _refuse_to_block(report: Callable[[BaseException], None]) -> None:
    """Let every handle refuse to wait for the job manager, or to run a reactor, in the job
    manager's thread. An exception that left a callback is passed to `report`, instead of ending the
    reactor."""
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

    def checked(self: Any, wait: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not _in_job_manager():
            return wait(self, *args, **kwargs)
        topic = getattr(self, "rpc_topic", None) or ""
        if not self.is_ready():
            plugin_handle.refuse_to_wait(topic)
        former, _topic[0] = _topic[0], topic
        try:
            return wait(self, *args, **kwargs)
        finally:
            _topic[0] = former

    def checked_get_str(self: Any) -> Any:
        return checked(self, get_str)

    def checked_wait_for(self: Any, *args: Any, **kwargs: Any) -> Any:
        return checked(self, wait_for, *args, **kwargs)

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
    """The process, for `process_guard`: all Python code in it belongs to plugins."""

    @staticmethod
    def is_running_plugin() -> bool:
        return True


class InertSignalModule:
    """Replaces module `signal` in flux.util, whose functions handle Ctrl-C while they wait.
    Handlers are forbidden in the job manager, and there is no Ctrl-C."""

    SIGINT, SIG_DFL = signal.SIGINT, signal.SIG_DFL
    getsignal = staticmethod(signal.getsignal)

    @staticmethod
    def signal(signum: int, handler: Any) -> None:
        return None


_plugin_process = PluginProcess()  # process_guard references it weakly


def install(report: Callable[[BaseException], None]) -> None:
    """Install all guards in this process, and `child_processes.Popen`. `report` is called with an
    exception that left a callback of unknown origin."""
    _refuse_to_block(report)
    _limit_waiting()
    process_guard.install(_plugin_process)
    child_processes.install()
    flux.util.signal = InertSignalModule
