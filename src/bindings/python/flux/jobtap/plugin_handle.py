# SPDX-License-Identifier: LGPL-3.0-or-later
"""The handle of a plugin in the job manager of a real Flux: its watchers and futures end with the
plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flux.constants
import flux.core.handle
import flux.future
import flux.rpc
from _flux._core import ffi as core_ffi
from _flux._core import lib as core_lib
from flux.jobtap import plugin_resources


class PluginRPC(plugin_resources.plugin_rpc_class(flux.rpc.RPC)):
    """An RPC sent by a plugin."""


class PluginHandle(plugin_resources.plugin_handle_class(flux.core.handle.Flux)):
    """The job manager's handle (a ``flux_t`` at address `pointer`), for one plugin; `resources` own
    its watchers and futures."""

    _handle: Any

    def __init__(self, pointer: Any, resources: Any) -> None:
        super().__init__(handle=core_ffi.cast("flux_t *", pointer))
        self.incref()
        self.plugin_resources = resources

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

        return super().timer_watcher_create(after, call, repeat, args)

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
