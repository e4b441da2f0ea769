# SPDX-License-Identifier: LGPL-3.0-or-later
"""What a plugin has running: timers and other watchers, futures. All of it ends with the plugin, and what its
callbacks raise is logged and ends only them.

`plugin_handle_class` and `plugin_rpc_class` lay that over the host's own classes; both hosts use them.
"""

from __future__ import annotations

import errno
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from threading import get_ident
from typing import Any, NoReturn

from flux.jobtap.errors import FAILURES

#: Services that the job manager itself answers, or needs an answer of its own for.
_ANSWERED_BY_JOB_MANAGER = ("job-manager.", "job-ingest.")
_METHODS_THAT_NEED_JOB_MANAGER = ("resource.sched-status", "sched.resource-status")

#: A plugin may post this many events to one job before the job comes to rest, and this many that send it back to
#: PRIORITY: whoever posts more does so without end.
MAX_POSTS_PER_TURN, MAX_RETURNS_PER_TURN = 10000, 100
EVENTS_BACK_TO_PRIORITY = ("urgency", "jobspec-update", "flux-restart")


def endless_posting(name: str, event: str, id: int) -> OSError:
    """The error for plugin `name`, which goes on posting to job `id`."""
    return OSError(
        errno.ELOOP,
        f"{name} has posted {event} to job {id} again and again from its own callbacks, without"
        " letting it come to rest",
    )


WRONG_THREAD = (
    "only the job manager's own thread may do that: from another, write to a pipe that"
    " p.handle.fd_watcher_create watches"
)


def waits_for_job_manager(topic: str) -> bool:
    """Whether an answer to `topic` can only come when the job manager is free to give one."""
    return topic.startswith(_ANSWERED_BY_JOB_MANAGER) or topic in _METHODS_THAT_NEED_JOB_MANAGER


class PluginResources:
    """What the plugin `name` has running.

    Args:
        report: ``report(where, exc)`` logs what a callback raised
        enter: ``enter()`` gives a context manager in which its callbacks run
    """

    def __init__(
        self,
        name: str,
        report: Callable[[str, BaseException], Any],
        enter: Callable[[], Any] = nullcontext,
    ) -> None:
        self.name = name
        self._report = report
        self._enter = enter
        self._watchers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._futures: weakref.WeakSet[Any] = weakref.WeakSet()
        self._thread = get_ident()
        self.ended = False

    def check(self) -> None:
        """Raise OSError if the plugin was removed (EINVAL), or this is another thread than the job manager's (EPERM)."""
        if self.ended:
            raise OSError(errno.EINVAL, f"plugin {self.name} was removed")
        if get_ident() != self._thread:
            raise OSError(errno.EPERM, f"{self.name}: {WRONG_THREAD}")

    def guarded(
        self, callback: Callable[..., Any] | None, where: str
    ) -> Callable[..., None] | None:
        """`callback`, which is silent once the plugin is removed, and whose failures are logged."""
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
        """Take in a watcher; returns it."""
        self._watchers.add(watcher)
        return watcher

    def add_future(self, future: Any) -> Any:
        """Take in a future; returns it."""
        self._futures.add(future)
        return future

    def end(self, drop_future: Callable[[Any], Any]) -> None:
        """The plugin goes: destroy its watchers, and its futures by ``drop_future(future)``."""
        self.ended = True
        for watcher in list(self._watchers):
            watcher.destroy()
        self._watchers.clear()
        for future in list(self._futures):
            drop_future(future)


def refuse_to_wait(topic: str) -> None:
    """Raise OSError EDEADLK if waiting for `topic` inside the job manager would never end."""
    if waits_for_job_manager(topic):
        raise OSError(
            errno.EDEADLK,
            f"{topic}: the job manager cannot answer while a plugin waits for it: use then()",
        )


def plugin_rpc_class(base: Any) -> Any:
    """A class of RPC futures for plugins, on top of the host's."""

    class PluginRPC(base):  # type: ignore[misc]
        """An RPC of a plugin: `get` raises OSError EDEADLK where the answer could never come."""

        topic = ""
        plugin_resources: Any = None

        def then(self, callback: Callable[..., Any] | None, *args: Any, **kwargs: Any) -> Any:
            self.plugin_resources.check()
            where = f"response to {self.topic}"
            return super().then(self.plugin_resources.guarded(callback, where), *args, **kwargs)

        def _check_wait(self) -> None:
            self.plugin_resources.check()
            if not self.is_ready():
                refuse_to_wait(self.topic)

        def get(self) -> Any:
            self._check_wait()
            return super().get()

        def get_str(self) -> Any:
            self._check_wait()
            return super().get_str()

        def wait_for(self, *args: Any, **kwargs: Any) -> Any:
            self._check_wait()
            return super().wait_for(*args, **kwargs)

    return PluginRPC


def plugin_handle_class(base: Any) -> Any:
    """A class of handles for plugins, on top of the host's ``flux.Flux``.

    Instances need an attribute ``plugin_resources``.
    """

    class PluginHandle(base):  # type: ignore[misc]
        """The job manager's handle as one plugin sees it."""

        plugin_resources: Any = None

        def _own(
            self,
            create: Any,
            where: str,
            callback: Callable[..., Any] | None,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            self.plugin_resources.check()
            guarded = self.plugin_resources.guarded(callback, where)
            return self.plugin_resources.add_watcher(create(guarded, *args, **kwargs))

        def log(self, level: int, text: str) -> Any:
            self.plugin_resources.check()
            return super().log(level, text)

        def respond(self, msg: Any, payload: Any = None) -> Any:
            self.plugin_resources.check()
            return super().respond(msg, payload)

        def timer_watcher_create(
            self,
            after: float,
            callback: Callable[..., Any] | None,
            repeat: float = 0.0,
            args: Any = None,
        ) -> Any:
            make = super().timer_watcher_create
            return self._own(lambda call: make(after, call, repeat, args), "timer", callback)

        def msg_watcher_create(
            self, callback: Callable[..., Any] | None, *args: Any, **kwargs: Any
        ) -> Any:
            return self._own(super().msg_watcher_create, "message", callback, *args, **kwargs)

        def idle_watcher_create(
            self, callback: Callable[..., Any] | None = None, args: Any = None
        ) -> Any:
            return self._own(super().idle_watcher_create, "idle watcher", callback, args)

        def prepare_watcher_create(
            self, callback: Callable[..., Any] | None = None, args: Any = None
        ) -> Any:
            return self._own(super().prepare_watcher_create, "prepare watcher", callback, args)

        def check_watcher_create(
            self, callback: Callable[..., Any] | None = None, args: Any = None
        ) -> Any:
            return self._own(super().check_watcher_create, "check watcher", callback, args)

        def fd_watcher_create(
            self, fd: Any, callback: Callable[..., Any] | None, events: Any = None, args: Any = None
        ) -> Any:
            make = super().fd_watcher_create
            return self._own(lambda call: make(fd, call, events, args), "file descriptor", callback)

        def signal_watcher_create(
            self, signum: Any, callback: Callable[..., Any] | None, args: Any = None
        ) -> NoReturn:
            raise OSError(errno.EPERM, "a plugin may not handle signals")

        def reactor_run(self, *args: Any, **kwargs: Any) -> NoReturn:
            raise OSError(
                errno.EDEADLK, "reactor_run: the job manager's reactor is running already"
            )

        def reactor_stop(self, *args: Any) -> NoReturn:
            raise OSError(errno.EPERM, "reactor_stop: it would end the job manager")

        def reactor_stop_error(self, *args: Any) -> NoReturn:
            raise OSError(errno.EPERM, "reactor_stop_error: it would end the job manager")

    return PluginHandle
