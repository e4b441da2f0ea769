# SPDX-License-Identifier: LGPL-3.0-or-later
"""The host of a forked scheduler: virtual time, and services that answer at once."""

from __future__ import annotations

import errno
import heapq
import itertools
import math
import os
from typing import Any, Callable, Protocol


class Observer(Protocol):
    """The observer of a scheduler's messages on a `VirtualHandle`."""

    def answered(self, answer: dict[str, Any]) -> None:
        """Called when the scheduler answered ``sched.alloc``."""

    def end_job(self, jobid: int) -> None:
        """Called when the scheduler raised a fatal exception on a job."""


class VirtualTime:
    """Calls functions in order of their times, from `now` (seconds since the epoch) on."""

    def __init__(self, now: float) -> None:
        self.now = now  # initial time, seconds since the epoch
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], Any]]] = []

    def call_at(self, when: float, function: Callable[[], Any]) -> None:
        heapq.heappush(self._due, (max(when, self.now), next(self._numbers), function))

    def next_time(self) -> float:
        """Return the time of the next call; infinite if there is none."""
        return self._due[0][0] if self._due else math.inf

    def step(self) -> None:
        self.now, _, function = heapq.heappop(self._due)
        function()


class VirtualTimer:
    """A timer watcher, with those methods of flux-core's that the library uses."""

    def __init__(self, handle: VirtualHandle, callback: Callable[..., Any], args: Any) -> None:
        self._handle = handle
        self._callback = callback
        self._args = args
        self._setting = 0  # calls of earlier settings are ignored

    def reset(self, after: float = 0.0, repeat: float = 0.0) -> None:
        """Call the callback once, after `after` seconds."""
        self._setting += 1
        setting, time = self._setting, self._handle.time
        time.call_at(time.now + after, lambda: self._fire(setting))

    def stop(self) -> None:
        self._setting += 1

    def _fire(self, setting: int) -> None:
        if setting == self._setting:
            self._callback(self._handle, self, 0, self._args)


class VirtualFuture:
    """The future of a request that is answered at once."""

    def __init__(
        self, time: VirtualTime, error: int = 0, answer: dict[str, Any] | None = None
    ) -> None:
        self._time = time
        self._error = error  # an errno; 0 for success
        self._answer = answer or {}

    def then(self, callback: Callable[..., Any], *args: Any) -> VirtualFuture:
        self._time.call_at(self._time.now, lambda: callback(self, *args))
        return self

    def get(self) -> dict[str, Any]:
        """Return the answer. Raises OSError if the request failed."""
        if self._error:
            raise OSError(self._error, os.strerror(self._error))
        return self._answer


class VirtualHandle:
    """The class assigned to the handle of a forked scheduler.

    The object must remain the same, since the policy, its rules and a site's own code refer to it.
    """

    time: VirtualTime
    observer: Observer
    handle: Any

    def take_over(self, time: VirtualTime, observer: Observer, handle: Any) -> None:
        """Initialize, right after the class was assigned; `handle` is the bindings', with the
        module's debug flags."""
        self.time = time
        self.observer = observer
        self.handle = handle

    # -- time --------------------------------------------------------------------------------------

    def reactor_now(self, reactor: Any = None) -> float:
        return self.time.now

    def stopwatch(self) -> float:
        """Return the virtual time: code takes no time here."""
        return self.time.now

    def reactor_stop(self, reactor: Any = None) -> None:
        """Ignored: the play ends by itself."""

    reactor_stop_error = reactor_stop

    def timer_watcher_create(
        self, after: float, callback: Callable[..., Any], repeat: float = 0.0, args: Any = None
    ) -> VirtualTimer:
        """Return a timer that is not armed."""
        return VirtualTimer(self, callback, args)

    # -- messages ----------------------------------------------------------------------------------

    def log(self, level: int, text: str) -> None:
        """Log nothing: an error in the copy will occur in the original too."""

    def respond(self, msg: Any, answer: Any = None) -> None:
        """Receive an answer; only those to ``sched.alloc`` are objects here."""
        if isinstance(answer, dict) and "type" in answer:
            self.observer.answered(answer)

    respond_object = respond

    def respond_error(self, msg: Any, errnum: int, errmsg: str | None = None) -> None:
        """Ignore an error."""

    def rpc(
        self, topic: str, payload: Any = None, nodeid: int = 0, flags: int = 0
    ) -> VirtualFuture:
        """Answer a request: the job manager accepts all, other services do not exist."""
        if not topic.startswith("job-manager."):
            return VirtualFuture(self.time, errno.ENOSYS)
        if topic == "job-manager.raise" and payload["severity"] == 0:
            self.observer.end_job(payload["id"])
        if topic == "job-manager.getattr":  # no job has ended without a message
            return VirtualFuture(self.time, answer={"eventlog": ""})
        return VirtualFuture(self.time)
