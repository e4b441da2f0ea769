# SPDX-License-Identifier: LGPL-3.0-or-later
"""The handle of a plugin, whose watchers and futures end with it; exceptions in their callbacks are only logged. And
limits on waiting and posting events in a callback."""

from __future__ import annotations

import errno
import functools
import inspect
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from threading import get_ident
from typing import Any, NoReturn

import flux.constants
import flux.core.handle
import flux.future
import flux.rpc
from _flux._core import ffi as core_ffi
from _flux._core import lib as core_lib
from flux.jobtap.errors import FAILURES, WRONG_THREAD

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
