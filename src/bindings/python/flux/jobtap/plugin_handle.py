# SPDX-License-Identifier: LGPL-3.0-or-later
"""The handle of a plugin: its watchers and futures end with the plugin."""

from __future__ import annotations

import errno
import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import flux.constants
import flux.core.handle
import flux.future
import flux.rpc
from _flux._core import ffi as core_ffi
from _flux._core import lib as core_lib


class PluginRPC(flux.rpc.RPC):
    """An RPC sent by a plugin. The host limits waiting for its answer."""

    topic = ""
    plugin_resources: Any = None

    def then(self, callback: Callable[..., Any] | None, *args: Any, **kwargs: Any) -> Any:
        self.plugin_resources.check()
        guarded = self.plugin_resources.guarded(callback, f"response to {self.topic}")
        return super().then(guarded, *args, **kwargs)

    def get_str(self) -> Any:
        self.plugin_resources.check()
        return super().get_str()

    def wait_for(self, timeout: float = -1.0) -> Any:
        self.plugin_resources.check()
        return super().wait_for(timeout)


def _checked(name: str) -> Callable[..., Any]:
    """A method of the handle, for a plugin that was not removed, in the job manager's thread."""
    method = getattr(flux.core.handle.Flux, name)

    @functools.wraps(method)
    def call(self: PluginHandle, *args: Any, **kwargs: Any) -> Any:
        self.plugin_resources.check()
        return method(self, *args, **kwargs)

    return call


def _guarded(name: str, where: str) -> Callable[..., Any]:
    """A method that makes a watcher, for one whose callback is `PluginResources.guarded` (`where`)."""
    make = _checked(name)
    signature = inspect.signature(make)

    def create(self: PluginHandle, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs)
        callback = given.arguments.get("callback")
        given.arguments["callback"] = self.plugin_resources.guarded(callback, where)
        return self.plugin_resources.add_watcher(make(*given.args, **given.kwargs))

    return create


class PluginHandle(flux.core.handle.Flux):
    """The job manager's handle (a ``flux_t`` at address `pointer`), for one plugin; `resources` own
    its watchers and futures."""

    _handle: Any

    def __init__(self, pointer: Any, resources: Any) -> None:
        super().__init__(handle=core_ffi.cast("flux_t *", pointer))
        self.incref()
        self.plugin_resources = resources

    log = _checked("log")
    respond = _checked("respond")
    msg_watcher_create = _guarded("msg_watcher_create", "message")
    idle_watcher_create = _guarded("idle_watcher_create", "idle watcher")
    prepare_watcher_create = _guarded("prepare_watcher_create", "prepare watcher")
    check_watcher_create = _guarded("check_watcher_create", "check watcher")
    fd_watcher_create = _guarded("fd_watcher_create", "file descriptor")
    _timer = _guarded("timer_watcher_create", "timer")

    def rpc(
        self,
        topic: str,
        payload: Any = None,
        nodeid: int = flux.constants.FLUX_NODEID_ANY,
        flags: int = 0,
    ) -> Any:
        self.plugin_resources.check()
        future = PluginRPC(self, topic, payload, nodeid, flags)
        future.topic, future.plugin_resources = topic, self.plugin_resources
        return self.plugin_resources.add_future(future)

    def timer_watcher_create(
        self,
        after: float,
        callback: Callable[..., Any] | None,
        repeat: float = 0.0,
        args: Any = None,
    ) -> Any:
        def call(handle: Any, watcher: Any, revents: Any, args: Any) -> None:
            try:
                if callback is not None:
                    callback(handle, watcher, revents, args)
            finally:
                # The bindings keep every watcher forever. One that has expired and was not
                # restarted is released.
                if not repeat and watcher.handle and not is_active(watcher):
                    self.del_watcher(watcher)

        return self._timer(after, call, repeat, args)

    def signal_watcher_create(
        self, signum: Any, callback: Callable[..., Any] | None, args: Any = None
    ) -> NoReturn:
        raise OSError(errno.EPERM, "a plugin may not handle signals")

    def reactor_run(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise OSError(errno.EDEADLK, "reactor_run: the job manager's reactor is running already")

    def reactor_stop(self, *args: Any) -> NoReturn:
        raise OSError(errno.EPERM, "reactor_stop: it would end the job manager")

    def reactor_stop_error(self, *args: Any) -> NoReturn:
        raise OSError(errno.EPERM, "reactor_stop_error: it would end the job manager")

    def drop(self) -> None:
        """Release the reference to the job manager's handle."""
        if self._handle is not None:
            core_lib.flux_decref(self._handle)
            self._handle = None


def is_active(watcher: Any) -> bool:
    """Whether a watcher is started."""
    return core_lib.flux_watcher_is_active(watcher.handle)


def drop_future(future: Any) -> None:
    """Destroy a future now, even if the plugin still refers to it."""
    future.stop()
    flux.future._THEN_HANDLES.pop(future, None)  # noqa: SLF001  the bindings have no other way
    if future.pimpl is not None:
        future.pimpl.handle = None  # which destroys it
