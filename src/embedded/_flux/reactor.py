"""Reactors, watchers and message handlers.

A ``flux_reactor_t *`` is a task of the kernel: its reactor handles the items that arrive for the task.
"""

import errno
import signal

from _flux import handle as _handle  # noqa: F401  (its pointers)
from _flux.cdata import weak
from _flux.ffi import pointer_to
from _flux.function import failure, function, functions
from flux_engine.kernel import watchers

pointer_to("flux_watcher_t *", watchers.Watcher)


@function
def flux_reactor_run(r, flags):
    """int flux_reactor_run (flux_reactor_t *r, int flags)"""
    if r.is_service:
        text = "reactor_run: the job manager's reactor is running already"
        raise OSError(errno.EDEADLK, text)
    return r.reactor_run(flags)


@function
def flux_reactor_stop(r):
    """void flux_reactor_stop (flux_reactor_t *r)"""
    if not r.is_service:
        r.reactor_stop(0)


@function
def flux_reactor_stop_error(r):
    """void flux_reactor_stop_error (flux_reactor_t *r)"""
    if not r.is_service:
        r.reactor_stop(-1)
        return
    # The bindings stop the reactor because of an exception, to raise it afterwards.
    from flux.core.handle import Flux

    exception = Flux.set_exception(None)
    if exception is not None:
        r.report(exception)


functions({"double flux_reactor_now (flux_reactor_t *r)": lambda r: r.kernel.time})


# -- watchers ----------------------------------------------------------------------------------------------


def _calling(r, cb, arg):
    """A callback of the bindings in the form of the kernel's watchers."""
    arg = weak(arg)

    def call(handle, watcher, revents, args):
        given = arg()
        if given is not None:
            cb(r, watcher, revents, given)

    return None if cb is None else call


@function
def flux_timer_watcher_create(r, after, repeat, cb, arg):
    """flux_watcher_t *flux_timer_watcher_create (flux_reactor_t *r, double after, double repeat, flux_watcher_f cb, void *arg)"""
    if after < 0 or repeat < 0:
        raise failure(errno.EINVAL)
    return watchers.TimerWatcher(r, _calling(r, cb, arg), after, repeat)


def _make_loop_watcher(kind):
    return lambda r, cb, arg: watchers.LoopWatcher(kind, r, _calling(r, cb, arg))


functions(
    {
        f"flux_watcher_t *flux_{kind}_watcher_create (flux_reactor_t *r, flux_watcher_f cb, opt void *arg)":
            _make_loop_watcher(kind)
        for kind in ("prepare", "check", "idle")
    }
)  # fmt: skip


class SignalWatcher(watchers.SignalWatcher):
    """A signal watcher; in a module none for SIGINT.

    The bindings make one for each run of a reactor, so that Ctrl-C ends a program.  A module of the embedded instance
    is not a process of its own, and the signal is the instance's.
    """

    def __init__(self, task, callback, signum):
        # The bindings check the number themselves, after making the watcher.
        valid = signum if 1 <= signum < signal.NSIG else signal.SIGUSR1
        super().__init__(task, callback, valid)
        self._mute = not task.runs_dry and signum == signal.SIGINT

    def _arm(self):
        if not self._mute:
            super()._arm()

    def _disarm(self):
        if not self._mute:
            super()._disarm()


def _of(cls, w):
    """Return the watcher if it is of the class, else raise OSError (EINVAL)."""
    if not isinstance(w, cls):
        raise failure(errno.EINVAL)
    return w


functions(
    {
        "flux_watcher_t *flux_fd_watcher_create (flux_reactor_t *r, int fd, int events, flux_watcher_f cb, void *arg)":
            lambda r, fd, events, cb, arg: watchers.FDWatcher(r, _calling(r, cb, arg), fd, events),
        "flux_watcher_t *flux_signal_watcher_create (flux_reactor_t *r, int signum, flux_watcher_f cb, void *arg)":
            lambda r, signum, cb, arg: SignalWatcher(r, _calling(r, cb, arg), signum),
        "int flux_fd_watcher_get_fd (flux_watcher_t *w)": lambda w: _of(watchers.FDWatcher, w).fd,
        "int flux_signal_watcher_get_signum (flux_watcher_t *w)": lambda w: _of(SignalWatcher, w).signum,
        "void flux_timer_watcher_reset (flux_watcher_t *w, double after, double repeat)":
            lambda w, after, repeat: _of(watchers.TimerWatcher, w).set_times(after, repeat),
        "void flux_watcher_start (flux_watcher_t *w)": watchers.Watcher.start,
        "void flux_watcher_stop (flux_watcher_t *w)": watchers.Watcher.stop,
        "void flux_watcher_destroy (flux_watcher_t *w)": watchers.Watcher.stop,
        "void flux_watcher_ref (flux_watcher_t *w)": lambda w: setattr(w, "counted", True),
        "void flux_watcher_unref (flux_watcher_t *w)": lambda w: setattr(w, "counted", False),
        "bool flux_watcher_is_active (flux_watcher_t *w)": lambda w: w.active,
    }
)  # fmt: skip


# -- message handlers --------------------------------------------------------------------------------------

pointer_to("flux_msg_handler_t *", watchers.MessageWatcher)


@function
def flux_msg_handler_create(h, match, cb, arg):
    """flux_msg_handler_t *flux_msg_handler_create (flux_t *h, struct flux_match match, flux_msg_handler_f cb, void *arg)"""
    if cb is None:
        raise failure(errno.EINVAL)
    call = _calling(h, cb, arg)
    return watchers.MessageWatcher(h.task, call, match.typemask, match.topic_glob or "*")


functions(
    {
        "void flux_msg_handler_start (flux_msg_handler_t *mh)": watchers.Watcher.start,
        "void flux_msg_handler_stop (flux_msg_handler_t *mh)": watchers.Watcher.stop,
        "void flux_msg_handler_destroy (flux_msg_handler_t *mh)": watchers.Watcher.stop,
        "void flux_msg_handler_allow_rolemask (flux_msg_handler_t *mh, uint32_t rolemask)": lambda mh, rolemask: (
            setattr(mh, "rolemask", mh.rolemask | rolemask)
        ),
    }
)
