"""Watchers; they are made by the methods of a handle (``h.timer_watcher_create(...)``)."""

from flux_embedded.kernel.watchers import (
    CheckWatcher,
    FDWatcher,
    IdleWatcher,
    PrepareWatcher,
    SignalWatcher,
    TimerWatcher,
    Watcher,
)

__all__ = [
    "CheckWatcher",
    "FDWatcher",
    "IdleWatcher",
    "PrepareWatcher",
    "SignalWatcher",
    "TimerWatcher",
    "Watcher",
]
