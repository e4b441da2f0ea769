"""``flux_t``: opening and closing a handle.

A ``flux_t *`` is the kernel's own handle (`flux_engine.kernel.handle.Flux`).  It is counted, as in C: its opener has one
reference, each future made with it another; a client's connection is closed with the last.
"""

import errno
import sys

from _flux import ffi as _ffi
from _flux.function import failure, function, functions
from flux_engine.kernel.clock import VirtualClock
from flux_engine.kernel.handle import Flux
from flux_engine.kernel.kernel import Kernel
from flux_engine.kernel.message import Message
from flux_engine.kernel.task import Task, inside_handle

_ffi.pointer_to("flux_t *", Flux)
_ffi.pointer_to("flux_msg_t *", Message)
_ffi.pointer_to("flux_reactor_t *", Task)


@function
def flux_open_ex(uri, flags, error):
    """flux_t *flux_open_ex (opt const char *uri, int flags, opt flux_error_t *error)"""
    try:
        return _open(uri, flags)
    except OSError as exc:
        if error is not None:
            error[0].write(exc.strerror)
        raise failure(exc.errno) from None


class LoopKernel(Kernel):
    """The kernel behind ``loop://``: requests go back to the handle that sends them, as with the connector of flux-core."""

    def request(self, msg):
        self.send(msg.sender, msg)


#: Valid flags for opening a handle, FLUX_O_TRACE and the rest. They have no effect here.
OPEN_FLAGS = 0x7F


def _open(uri, flags):
    if uri == "loop://":
        return Flux(Task(LoopKernel(VirtualClock()), "loop"))
    h = inside_handle() if uri is None else None
    if h is not None:
        # A plugin has a handle of the bindings.
        h = h.handle
        h.refs += 1
        return h
    if flags & ~OPEN_FLAGS:
        raise OSError(errno.EINVAL, "invalid flags specified")
    # Imported here: a module has its handle, and needs no socket code.
    from flux_engine.kernel.link import connect

    return connect(uri)


@function
def flux_close(h):
    """void flux_close (opt flux_t *h)"""
    if h is None:
        return
    h.refs -= 1
    # During Python's shutdown, modules needed here may be gone; the system closes the socket.
    if h.refs == 0 and not sys.is_finalizing():
        h.disconnect()


@function
def flux_incref(h):
    """flux_t *flux_incref (flux_t *h)"""
    h.refs += 1
    return h


functions(
    {
        "flux_t *flux_open (opt const char *uri, int flags)": _open,
        "flux_reactor_t *flux_get_reactor (flux_t *h)": lambda h: h.task,
    }
)
