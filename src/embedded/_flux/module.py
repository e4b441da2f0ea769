"""The handle of a broker module: one of the bindings, on the kernel's own.

In the embedded instance modules are greenlets of one process.  State that the bindings keep for each thread is kept for
each greenlet here: whether it is in a reactor, and the exception that left one of its callbacks.
"""

from greenlet import getcurrent

import flux.core.handle
import flux.future
from flux_engine.kernel.task import inside_handle


class _PerGreenlet:
    """Replaces ``flux.core.handle.Flux.tls``, a `threading.local`."""

    @property
    def __dict__(self):
        state = getcurrent().__dict__
        if "bindings" not in state:
            # A module counts as being in its reactor from the start: the bindings then leave SIGINT, which is the instance's, alone.
            depth = 0 if inside_handle() is None else 1
            state["bindings"] = {"reactor_depth": depth, "exception": None}
        return state["bindings"]

    def __getattr__(self, name):
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self.__dict__[name] = value


def prepare():
    """Make the bindings keep their state for each greenlet; called before several greenlets use them in this process."""
    if not isinstance(flux.core.handle.Flux.tls, _PerGreenlet):
        flux.core.handle.Flux.tls = _PerGreenlet()


class VirtualTimeFlux(flux.core.handle.Flux):
    """A handle in an instance whose time is virtual."""

    def stopwatch(self):
        """Seconds from an arbitrary start, to time a piece of code with.

        Code takes no time there, so that decisions in the instance do not depend on the speed of the machine.
        """
        return self.handle.kernel.time


# The type has the name of a plain handle.
VirtualTimeFlux.__name__ = "Flux"


def module_handle(h):
    """The bindings' handle on the kernel's handle of a module."""
    prepare()
    cls = VirtualTimeFlux if h.kernel.clock.virtual else flux.core.handle.Flux
    h.refs += 1
    return cls(handle=h)


def forget_futures(task):
    """A task has ended: drop the futures that its module still waited for.

    The bindings keep each future that has a callback from being collected until its last answer, in a dict of their module. A
    module of a real broker takes that dict with it when its process ends; here it would keep the whole instance.
    """
    kept = flux.future._THEN_HANDLES  # noqa: SLF001 (there is no other way)
    for future in [future for future in kept if future.pimpl.handle.task is task]:
        del kept[future]
