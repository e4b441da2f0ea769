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
        """The scheduler has answered ``sched.alloc``."""

    def end_job(self, jobid: int) -> None:
        """The scheduler has raised a fatal exception on a job."""


class VirtualTime:
    """Calls functions in the order of their times.

    Args:
        now (float): the time at first, seconds since the epoch

    Attributes:
        now (float): the time, seconds since the epoch
    """

    def __init__(self, now: float) -> None:
        self.now = now
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], Any]]] = []

    def call_at(self, when: float, function: Callable[[], Any]) -> None:
        """Have a function called at a time; of equal times the first one asked for goes first."""
        heapq.heappush(self._due, (max(when, self.now), next(self._numbers), function))

    def next_time(self) -> float:
        """The time of the next call, infinite if there is none."""
        return self._due[0][0] if self._due else math.inf

    def step(self) -> None:
        """Make the next call, at its time."""
        self.now, _, function = heapq.heappop(self._due)
        function()


class VirtualTimer:
    """A timer watcher, with the methods of flux-core's that the library uses."""

    def __init__(self, handle: VirtualHandle, callback: Callable[..., Any], args: Any) -> None:
        self._handle = handle
        self._callback = callback
        self._args = args
        self._setting = 0  # a call that was asked for by another setting is not made

    def reset(self, after: float = 0.0, repeat: float = 0.0) -> None:
        """Have the callback called once, after `seconds`."""
        self._setting += 1
        setting, time = self._setting, self._handle.time
        time.call_at(time.now + after, lambda: self._fire(setting))

    def stop(self) -> None:
        """Do not make the call."""
        self._setting += 1

    def _fire(self, setting: int) -> None:
        if setting == self._setting:
            self._callback(self._handle, self, 0, self._args)


class VirtualFuture:
    """The future of a request that was answered at once.

    Args:
        time (VirtualTime): when callbacks are called
        error (int): an errno; 0: the request succeeded
    """

    def __init__(self, time: VirtualTime, error: int = 0) -> None:
        self._time = time
        self._error = error

    def then(self, callback: Callable[..., Any], *args: Any) -> VirtualFuture:
        """Have ``callback(future, *args)`` called."""
        self._time.call_at(self._time.now, lambda: callback(self, *args))
        return self

    def get(self) -> dict[str, Any]:
        """Return an empty answer.

        Raises:
            OSError: the request failed
        """
        if self._error:
            raise OSError(self._error, os.strerror(self._error))
        return {}

    def wait_for(self, seconds: float) -> VirtualFuture:
        """Return at once."""
        return self


class VirtualHandle:
    """The class that the handle of a forked scheduler is set to.

    The object has to stay the same, since the policy, its rules and a site's own code hold it.
    """

    time: VirtualTime
    observer: Observer
    handle: Any

    def take_over(self, time: VirtualTime, observer: Observer, handle: Any) -> None:
        """Begin, right after the class was set; `handle` is the bindings', with the module's debug flags."""
        self.time = time
        self.observer = observer
        self.handle = handle

    # -- time --------------------------------------------------------------------------------------

    def get_reactor(self) -> None:
        """There is none."""

    def reactor_now(self, reactor: Any = None) -> float:
        """Seconds since the epoch."""
        return self.time.now

    def stopwatch(self) -> float:
        """Code takes no time here."""
        return self.time.now

    def reactor_stop(self, reactor: Any = None) -> None:
        """The scheduler wants to end, which the play does by itself."""

    reactor_stop_error = reactor_stop

    def timer_watcher_create(
        self, after: float, callback: Callable[..., Any], repeat: float = 0.0, args: Any = None
    ) -> VirtualTimer:
        """Return a timer that does not run yet."""
        return VirtualTimer(self, callback, args)

    # -- messages ----------------------------------------------------------------------------------

    def log(self, level: int, text: str) -> None:
        """Log nothing: an error in a copy occurs in the original in its time."""

    def respond_object(self, msg: Any, answer: dict[str, Any]) -> None:
        """Take an answer."""
        self.respond(msg, answer)

    def respond(self, msg: Any, answer: Any = None) -> None:
        """Take an answer; only those to ``sched.alloc`` are objects here."""
        if isinstance(answer, dict) and "type" in answer:
            self.observer.answered(answer)

    def respond_error(self, msg: Any, errnum: int, errmsg: str | None = None) -> None:
        """Take an error."""

    def rpc(
        self, topic: str, payload: Any = None, nodeid: int = 0, flags: int = 0
    ) -> VirtualFuture:
        """Send a request: the job manager obeys, other services are not there."""
        if not topic.startswith("job-manager."):
            return VirtualFuture(self.time, errno.ENOSYS)
        if topic == "job-manager.raise" and payload["severity"] == 0:
            self.observer.end_job(payload["id"])
        return VirtualFuture(self.time)
