"""Time, as the host tells it.

The bindings have no documented way to ask for the time of the reactor, and a scheduler must not
ask the operating system for it: in an emulated instance that time stands still or runs. These two
functions are all the library knows about it.
"""

import time


def loop_now(handle):
    """Seconds since the epoch, as the reactor of `handle` last saw them."""
    return handle.reactor_now(handle.get_reactor())


def stopwatch(handle):
    """Return a function that gives seconds from an arbitrary start, to time a piece of code with.

    A host whose time is not the machine's brings its own, so that how fast this machine is does
    not change what an emulated instance decides.
    """
    # Asked of the class: a handle may look unknown names up elsewhere, with other exceptions.
    if hasattr(type(handle), "stopwatch"):
        return handle.stopwatch
    return time.perf_counter
