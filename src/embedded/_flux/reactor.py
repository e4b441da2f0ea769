"""Reactors, watchers and message handlers.

A ``flux_reactor_t *`` is a task of the kernel: what a task's reactor runs is what arrives for it.
"""

import errno
import signal

from _flux import handle as _handle  # noqa: F401  (its pointers)
from _flux.cdata import weak
from _flux.ffi import pointer_to
from _flux.function import failure, function, functions
from flux_embedded.kernel import watchers

pointer_to("flux_watcher_t *", watchers.Watcher)


@function("int flux_reactor_run (flux_reactor_t *r, int flags)")
def flux_reactor_run(r, flags):
    if _is_service(r):
        text = "reactor_run: the job manager's reactor is running already"
        raise OSError(errno.EDEADLK, text)
    return r.reactor_run(flags)


def _is_service(r):
    """Whether it is the reactor of a builtin service, in which only plugins use the bindings: it runs, and goes on."""
    return getattr(r, "service", None) is not None


@function("void flux_reactor_stop (flux_reactor_t *r)")
def flux_reactor_stop(r):
    if not _is_service(r):
        r.reactor_stop(0)


@function("void flux_reactor_stop_error (flux_reactor_t *r)")
def flux_reactor_stop_error(r):
    if not _is_service(r):
        r.reactor_stop(-1)
        return
    # The bindings stop the reactor because of an exception, which it would raise when it has ended.
    from flux.core.handle import Flux

    exception = Flux.set_exception(None)
    if exception is not None:
        r.service.report(exception)


functions({"double flux_reactor_now (flux_reactor_t *r)": lambda r: r.kernel.time})


# -- watchers ----------------------------------------------------------------------------------------------


class _Owner:
    """What a watcher of the kernel takes as its handle: whose reactor it belongs to."""

    __slots__ = ("task",)

    def __init__(self, task):
        self.task = task


def _calling(r, cb, arg):
    """A callback in the form of the kernel's watchers."""
    arg = weak(arg)

    def call(owner, watcher, revents, args):
        given = arg()
        if given is not None:
            cb(r, watcher, revents, given)

    return call


@function(
    "flux_watcher_t *flux_timer_watcher_create (flux_reactor_t *r, double after, double repeat, flux_watcher_f cb, void *arg)"
)
def flux_timer_watcher_create(r, after, repeat, cb, arg):
    if after < 0 or repeat < 0:
        raise failure(errno.EINVAL)
    return watchers.TimerWatcher(_Owner(r), after, _calling(r, cb, arg), repeat)


@function("void flux_timer_watcher_reset (flux_watcher_t *w, double after, double repeat)")
def flux_timer_watcher_reset(w, after, repeat):
    if isinstance(w, watchers.TimerWatcher):
        w.set_times(after, repeat)


def _loop_watcher(cls):
    """The function that makes a watcher of what happens in each turn of the loop."""
    return lambda r, cb, arg: cls(_Owner(r), None if cb is None else _calling(r, cb, arg))


functions(
    {
        f"flux_watcher_t *flux_{cls.kind}_watcher_create (flux_reactor_t *r, flux_watcher_f cb, void *arg)": _loop_watcher(cls)
        for cls in (watchers.PrepareWatcher, watchers.CheckWatcher, watchers.IdleWatcher)
    },
    null="arg",
)  # fmt: skip


@function(
    "flux_watcher_t *flux_fd_watcher_create (flux_reactor_t *r, int fd, int events, flux_watcher_f cb, void *arg)"
)
def flux_fd_watcher_create(r, fd, events, cb, arg):
    arg = weak(arg)

    def call(owner, watcher, fd, revents, args):
        given = arg()
        if given is not None:
            cb(r, watcher, revents, given)

    return watchers.FDWatcher(_Owner(r), fd, call, events)


@function("int flux_fd_watcher_get_fd (flux_watcher_t *w)")
def flux_fd_watcher_get_fd(w):
    if not isinstance(w, watchers.FDWatcher):
        raise failure(errno.EINVAL)
    return w.fd_int


@function(
    "flux_watcher_t *flux_signal_watcher_create (flux_reactor_t *r, int signum, flux_watcher_f cb, void *arg)"
)
def flux_signal_watcher_create(r, signum, cb, arg):
    arg = weak(arg)

    def call(owner, watcher, signum, args):
        given = arg()
        if given is not None:
            cb(r, watcher, 0, given)

    return SignalWatcher(_Owner(r), signum, call)


@function("int flux_signal_watcher_get_signum (flux_watcher_t *w)")
def flux_signal_watcher_get_signum(w):
    if not isinstance(w, watchers.SignalWatcher):
        raise failure(errno.EINVAL)
    return w.signal_int


class SignalWatcher(watchers.SignalWatcher):
    """A signal watcher; in a module none for SIGINT.

    The bindings make one for each run of a reactor, so that Ctrl-C ends a program.  A module of the embedded instance
    is no process of its own, and the signal is the instance's.
    """

    def __init__(self, owner, signum, callback):
        # The bindings look at the number themselves, when they have made the watcher.
        valid = signum if 1 <= signum < signal.NSIG else signal.SIGUSR1
        super().__init__(owner, valid, callback)
        self._mute = not owner.task.runs_dry and signum == signal.SIGINT

    def _arm(self):
        if not self._mute:
            super()._arm()

    def _disarm(self):
        if not self._mute:
            super()._disarm()


functions(
    {
        "void flux_watcher_start (flux_watcher_t *w)": watchers.Watcher.start,
        "void flux_watcher_stop (flux_watcher_t *w)": watchers.Watcher.stop,
        "void flux_watcher_ref (flux_watcher_t *w)": watchers.Watcher.ref,
        "void flux_watcher_unref (flux_watcher_t *w)": watchers.Watcher.unref,
        "void flux_watcher_destroy (flux_watcher_t *w)": watchers.Watcher.destroy,
        "bool flux_watcher_is_active (flux_watcher_t *w)": lambda w: w.active,
    }
)


# -- message handlers --------------------------------------------------------------------------------------


class MessageHandler(watchers.MessageWatcher):
    """A ``flux_msg_handler_t``."""

    def __init__(self, h, match, cb, arg):
        super().__init__(h, cb, match.typemask, match.topic_glob or "*", weak(arg), match.matchtag)

    def call(self, msg):
        given = self.args()
        if given is not None:
            self.callback(self.flux_handle, self, msg, given)


pointer_to("flux_msg_handler_t *", MessageHandler)


@function(
    "flux_msg_handler_t *flux_msg_handler_create (flux_t *h, struct flux_match match, flux_msg_handler_f cb, void *arg)"
)
def flux_msg_handler_create(h, match, cb, arg):
    if cb is None:
        raise failure(errno.EINVAL)
    return MessageHandler(h, match, cb, arg)


def _allow(handler, rolemask):
    handler.rolemask |= rolemask


functions(
    {
        "void flux_msg_handler_start (flux_msg_handler_t *mh)": MessageHandler.start,
        "void flux_msg_handler_stop (flux_msg_handler_t *mh)": MessageHandler.stop,
        "void flux_msg_handler_destroy (flux_msg_handler_t *mh)": MessageHandler.destroy,
        "void flux_msg_handler_allow_rolemask (flux_msg_handler_t *mh, uint32_t rolemask)": _allow,
    }
)
