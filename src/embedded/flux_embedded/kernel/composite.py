"""Futures that stand for something else than one request."""

import errno
import os
from collections import deque

from flux_embedded.formats.jsontext import dumps, loads
from flux_embedded.kernel.future import Future
from flux_embedded.kernel.handle import Flux
from flux_embedded.kernel.message import strerror


class FutureExt(Future):
    """A future that its maker fulfills.

    Args:
        init_cb: ``init_cb(future, *args, **kwargs)``, called when somebody first takes an interest.
            What it starts belongs on ``future.get_flux()``: that handle's reactor runs while somebody
            waits in `get`, and no other.
        flux_handle: the handle to run on; `set_flux` gives one later
    """

    __module__ = "flux.future"

    _inner = None
    _runs_dry = True
    _was_reset = False

    def __init__(self, init_cb=None, *args, flux_handle=None, **kwargs):
        self.handle = self.task = None
        if flux_handle is not None:
            self.set_flux(flux_handle)
        self._init = (init_cb, args, kwargs) if init_cb is not None else None
        self._results = deque()

    def set_flux(self, flux_handle):
        """Run on this handle."""
        super().__init__(flux_handle)

    def get_flux(self):
        return self._inner or self.handle

    def fulfill(self, result=None):
        """Succeed with `result`, anything JSON can hold; again: once more after the next `reset`."""
        self._settle((dumps(result), None))

    def fulfill_error(self, errnum=errno.ENOENT, errstr=None):
        """Fail with a POSIX errno and a text."""
        self._settle((None, (errnum, errstr or os.strerror(errnum))))

    def _settle(self, result):
        self._results.append(result)
        self._fulfilled()

    def reset(self):
        if self._results:
            self._results.popleft()
        self._timed_out = False
        self._was_reset = True

    def _set_callback(self, callback):
        # It does not hold the reactor: whoever is to fulfill the future does that.
        self._callback = callback

    def _call(self):
        if self._callback is None or not self.is_ready():
            return
        callback, args, kwargs = self._callback
        self._was_reset = False
        callback(self, *args, **kwargs)
        if not self._was_reset:
            self._callback = None
        elif self.is_ready():
            self.task.post(self._call)

    def then(self, callback, *args, timeout=-1.0, **kwargs):
        if self.task is None and callback is not None:
            raise OSError(errno.EINVAL, strerror(errno.EINVAL))
        super().then(callback, *args, timeout=timeout, **kwargs)
        if self._timeout is not None:
            self.task.callbacks += 1  # until then the reactor has something to wait for
        return self

    def _cancel_timeout(self):
        if self._timeout is not None:
            self.task.callbacks -= 1
        super()._cancel_timeout()

    def _expire(self):
        self.task.callbacks -= 1
        super()._expire()

    def wait_for(self, timeout=-1.0):
        self._runs_dry = timeout < 0
        return super().wait_for(timeout)

    def _start(self):
        if self._init is None:
            return
        (init_cb, args, kwargs), self._init = self._init, None
        if self._callback is None:
            if self.task is not None:
                self._inner = Flux(self.task.clone())
            init_cb(self, *args, **kwargs)
            return
        try:
            init_cb(self, *args, **kwargs)
        except Exception as exc:
            failure = exc

            def fail():
                raise failure

            # From `then` nobody expects it: it leaves the reactor.
            self.task.post(fail)

    def _sleep(self):
        if self.task is None:
            raise OSError(errno.EDEADLK, strerror(errno.EDEADLK))
        if self._inner is None:
            super()._sleep()
            return
        task = self._inner.task
        task.runs_dry = self._runs_dry
        task.reactor_run()
        if self.is_ready():
            if not task.is_awaiting():
                self._inner = None
                task.close()
        elif task.runs_dry and not task.is_awaiting():
            raise OSError(errno.EDEADLK, strerror(errno.EDEADLK))

    def _wake(self):
        super()._wake()
        if self._inner is not None:
            self._inner.task.post(self._inner.reactor_stop)

    def _fulfilled(self):
        super()._fulfilled()
        if self._inner is not None:
            self._wake()

    def _has_result(self):
        return bool(self._results)

    def error_found(self):
        return self._results[0][1] if self._results else None

    def _value(self):
        return loads(self._results[0][0])


class WaitAllFuture(Future):
    """Ready when all `children` are; fails with the first failure among them, in their order."""

    __module__ = "flux.future"

    def __init__(self, children=None):
        self.children = [] if children is None else children
        self.handle = self.task = None
        self._watched = 0

    def get_flux(self):
        return self.children[0].get_flux() if self.children else None

    def push(self, child, name=None):
        """Add a child; its name is accepted for the sake of the signature."""
        self.children.append(child)
        if self._callback is not None:
            self._start()

    def then(self, callback, *args, timeout=-1.0, **kwargs):
        if not self.children:
            raise OSError(errno.EINVAL, strerror(errno.EINVAL))
        super().__init__(self.get_flux())
        return super().then(callback, *args, timeout=timeout, **kwargs)

    def wait_for(self, timeout=-1.0):
        # Children are fulfilled through the reactor, which does not run while we block: wait for
        # each directly instead.
        for child in self.children:
            kernel = child.get_flux().kernel
            deadline = kernel.time + timeout
            child.wait_for(timeout)
            if timeout >= 0:
                timeout = max(deadline - kernel.time, 0)
        return self

    def get(self):
        self.wait_for()
        self._check()

    def _start(self):
        for child in self.children[self._watched :]:
            child.then(self._child_done)
        self._watched = len(self.children)

    def _child_done(self, child):
        if self._has_result():
            self._fulfilled()

    def _has_result(self):
        return all(child.is_ready() for child in self.children)

    def error_found(self):
        for child in self.children:
            error = child.error_found()
            if error is not None:
                return error[0], os.strerror(error[0])
        return None
