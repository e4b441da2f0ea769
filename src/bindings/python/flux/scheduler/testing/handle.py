# SPDX-License-Identifier: LGPL-3.0-or-later
"""The scheduler's handle in a fake instance: the engine's handle, with the part of ``flux.Flux``
used by schedulers.

Arguments and errors are the same. Functions of the bindings that take a handle, such as those in
``flux.kvs``, do not accept this one; those used by `flux.scheduler` are methods here
(`flux.scheduler.host`).
"""

from __future__ import annotations

import errno
import importlib
import json
import os
from typing import Any

from flux.scheduler.testing.reactor import SchedulerTask
from flux_engine.kernel.handle import Flux


class FakeTransaction:
    """Changes to the key-value store, as ``flux.kvs.KVSTxn``."""

    def __init__(self, handle: FakeHandle) -> None:
        self._handle = handle
        self._changes: list[list[Any]] = []

    def put(self, key: str, value: Any, raw: bool = False) -> None:
        """Store a JSON value, or a text unchanged if `raw`."""
        self._changes.append([key, value if raw else json.dumps(value)])

    def commit_async(self) -> Any:
        return self._handle.rpc("kvs.commit", {"changes": self._changes})


def _bindings_handle(name: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a ``flux_t`` that leads nowhere (``loop://``), and the objects that must live as long.
    The host's BrokerModule reads the module's name from it, and reports the module's state to it.
    """
    import flux.core.handle

    core = importlib.import_module("_flux._core")
    handle: Any = flux.core.handle.Flux("loop://")
    text = core.ffi.new("char[]", name.encode())
    core.lib.flux_aux_set(handle.handle, b"flux::name", text, core.ffi.NULL)
    return handle.handle, (handle, text)


class FakeHandle(Flux):
    """The handle of a scheduler in a `FakeInstance`."""

    def __init__(self, instance: Any, name: str) -> None:
        super().__init__(SchedulerTask(instance.reactor, name))
        self.instance = instance
        self.watchers = self.task.watchers  # the active watchers
        self.stopped: int | None = None  # None while its reactor runs, then 0, or -1 after an error
        self.in_reactor = False  # whether the scheduler's reactor runs, or has run
        self._bindings, self._kept = _bindings_handle(name)

    @property
    def handle(self) -> Any:
        return self._bindings

    @property
    def closed(self) -> bool:
        return bool(self.task.closed)

    def close(self) -> None:
        """Destroy the watchers: the module is gone."""
        self.task.close()

    # -- the reactor -------------------------------------------------------------------------------

    def reactor_run(self, reactor: Any = None, flags: int = 0) -> int:
        """Return at once: the test turns the reactor, unlike in a real instance, where a module's
        ``run()`` blocks here."""
        self.in_reactor = True
        return 0

    def reactor_stop(self, reactor: Any = None) -> None:
        self._stop(0)

    def reactor_stop_error(self, reactor: Any = None) -> None:
        self._stop(-1)

    def _stop(self, code: int) -> None:
        # Before the reactor runs there is nothing to stop.
        if self.in_reactor and self.stopped is None:
            self.stopped = code
            self.instance.scheduler_stops()

    def scheduler_runs(self, scheduler: Any) -> None:
        """Note the scheduler, which begins to run (`flux.scheduler.host.Host`)."""
        self.instance.scheduler_runs(scheduler)

    def log(self, level: int, text: str) -> None:
        """Log a line at a syslog level, 0 to 7."""
        self.instance.log.append((level, text))

    # -- functions of the bindings that take a handle (flux.scheduler.host) ------------

    def kvs_get(self, key: str) -> Any:
        """Return the value of a key: parsed as JSON if possible, else the text. Raises
        FileNotFoundError if the key does not exist."""
        text = self.instance.kvs.values.get(key)
        if text is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        try:
            return json.loads(text)
        except ValueError:
            return text

    def kvs_transaction(self) -> FakeTransaction:
        return FakeTransaction(self)


class HandleWithoutEstimates(FakeHandle):
    """A handle whose scheduler sends users no estimates and reasons."""

    #: see `flux.scheduler.host.Host`
    wants_forecast = False
