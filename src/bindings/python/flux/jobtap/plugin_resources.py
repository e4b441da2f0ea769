# SPDX-License-Identifier: LGPL-3.0-or-later
"""The watchers and futures of a plugin, which end with it; exceptions in their callbacks are only
logged. And limits on waiting and posting events in a callback."""

from __future__ import annotations

import errno
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from threading import get_ident
from typing import Any

from flux.jobtap.errors import FAILURES

#: Services answered by the job manager itself, and methods of others that call it before they
#: answer.
_ANSWERED_BY_JOB_MANAGER = ("job-manager.", "job-ingest.")
_METHODS_THAT_NEED_JOB_MANAGER = ("resource.sched-status", "sched.resource-status")

#: Seconds that a plugin waits for an answer inside a callback by default (see
#: ``wait_for(seconds)``). The job manager is blocked meanwhile, and the service may in turn wait
#: for the job manager.
MAX_WAIT = 1.0

#: Maximum number of events that a plugin may post to one job in one turn of the job manager's
#: reactor, and of rare ones. Each event may call the plugin again: if each call posted one, the
#: turn would never end.
MAX_POSTS_PER_TURN, MAX_RARE_POSTS_PER_TURN = 10000, 100
#: Events that are rare in a job: those that return it to PRIORITY, and exceptions.
RARE_EVENTS = ("urgency", "jobspec-update", "flux-restart", "exception")


class PostCounts:
    """Counts the events that a plugin posts to each job in a turn: the job manager handles an
    event, and all events posted in response, before its reactor turns again.
    """

    def __init__(self) -> None:
        self._turn: Any = None
        self._counts: dict[int, list[int]] = {}  # job -> [events, rare events] in this turn

    def count(self, turn: Any, name: str, event: str, id: int) -> None:
        """Count an event that a plugin posts in a turn. Raises OSError (ELOOP) if the maximum is
        exceeded: the plugin seems to post without end."""
        if turn != self._turn:
            self._turn = turn
            self._counts.clear()
        counts = self._counts.setdefault(id, [0, 0])
        counts[0] += 1
        counts[1] += event in RARE_EVENTS
        if counts[0] > MAX_POSTS_PER_TURN or counts[1] > MAX_RARE_POSTS_PER_TURN:
            raise OSError(
                errno.ELOOP,
                f"{name} has posted {event} to job {id} again and again from its own callbacks,"
                " without letting it come to rest",
            )


#: The text of the error for a call from another thread.
WRONG_THREAD = (
    "only the job manager's own thread may do that: another thread can write to a pipe, whose"
    " other end p.handle.fd_watcher_create watches"
)


class NoAnswer(TimeoutError):
    """A plugin waited in vain inside a callback."""

    def __setattr__(self, name: str, value: Any) -> None:
        # The bindings would overwrite the text with the future's error text, which is None.
        if name != "strerror" or value is not None:
            super().__setattr__(name, value)


def no_answer(topic: str, seconds: float) -> OSError:
    """Return the error for a plugin that waited in vain inside a callback; `topic` is empty if
    unknown."""
    unit = "second" if seconds == 1 else "seconds"
    return NoAnswer(
        errno.ETIMEDOUT,
        f"{topic + ': ' if topic else ''}no answer within {seconds:g} {unit}, in which the job"
        " manager did nothing else: use then(callback) instead of get(), or name a time with"
        " wait_for(seconds)",
    )


class PluginResources:
    """The watchers and futures of one plugin."""

    def __init__(
        self,
        name: str,
        report: Callable[[str, BaseException], Any],
        enter: Callable[[], Any] = nullcontext,
    ) -> None:
        self.name = name
        self._report = report  # ``report(where, exc)`` logs a callback's exception
        self._enter = enter  # ``enter()`` returns a context manager for the call of a callback
        self._watchers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._futures: weakref.WeakSet[Any] = weakref.WeakSet()
        self._thread = get_ident()
        self.ended = False  # whether the plugin was removed

    def check(self) -> None:
        """Check that the plugin may make a call now. Raises OSError (EINVAL) if it was removed,
        (EPERM) if this is not the job manager's thread."""
        if self.ended:
            raise OSError(errno.EINVAL, f"plugin {self.name} was removed")
        if get_ident() != self._thread:
            raise OSError(errno.EPERM, f"{self.name}: {WRONG_THREAD}")

    def guarded(
        self, callback: Callable[..., Any] | None, where: str
    ) -> Callable[..., None] | None:
        """Wrap a callback: its exceptions are logged with its purpose (`where`), and it is not
        called after the plugin's removal."""
        if callback is None:
            return None

        def call(*args: Any, **kwargs: Any) -> None:
            if self.ended:
                return
            try:
                with self._enter():
                    callback(*args, **kwargs)
            except FAILURES as exc:
                self._report(where, exc)

        return call

    def add_watcher(self, watcher: Any) -> Any:
        """Register a watcher to end with the plugin. Return the watcher."""
        self._watchers.add(watcher)
        return watcher

    def add_future(self, future: Any) -> Any:
        """Register a future to end with the plugin. Return the future."""
        self._futures.add(future)
        return future

    def end(self, drop_future: Callable[[Any], Any]) -> None:
        """Destroy all watchers and, with ``drop_future(future)``, futures: the plugin is
        removed."""
        self.ended = True
        for watcher in list(self._watchers):
            watcher.destroy()
        self._watchers.clear()
        for future in list(self._futures):
            drop_future(future)


def refuse_to_wait(topic: str) -> None:
    """Raise OSError (EDEADLK) if the job manager would wait for itself for this answer."""
    if topic.startswith(_ANSWERED_BY_JOB_MANAGER) or topic in _METHODS_THAT_NEED_JOB_MANAGER:
        raise OSError(
            errno.EDEADLK,
            f"{topic}: the job manager cannot answer while a plugin waits for it: use"
            " then(callback)",
        )


def wait_limit(timeout: float) -> float:
    """Return the seconds that `wait_for` waits inside a callback; a negative argument means no
    limit given."""
    return MAX_WAIT if timeout < 0 else timeout
