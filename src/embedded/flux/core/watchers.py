"""Watchers; they are made by the methods of a handle (``h.timer_watcher_create(...)``)."""

from flux_embedded.kernel.watchers import (
    FDWatcher,
    MessageWatcher,
    SignalWatcher,
    TimerWatcher,
    Watcher,
)

__all__ = ["FDWatcher", "MessageWatcher", "SignalWatcher", "TimerWatcher", "Watcher"]
