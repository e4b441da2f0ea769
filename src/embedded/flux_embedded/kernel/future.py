"""Futures: answers that have not come yet."""

import errno
from collections import deque

from greenlet import getcurrent

from flux_embedded.formats.jsontext import dumps, loads
from flux_embedded.kernel import message
from flux_embedded.kernel.current import current_handle


class Future:
    """An answer to come whose value does not matter: ``get()`` is None, or raises.

    Attributes:
        sleepers (list): greenlets blocked in `get`
    """

    # Most futures of a busy instance never need these: they become instance attributes when set.
    sleepers = ()
    _callback = None
    _timeout = None
    _timed_out = False

    def __init__(self, handle):
        self.handle = handle
        self.task = handle.task

    # -- what subclasses say -------------------------------------------------------------------

    def is_ready(self):
        """Whether `get` would return (or raise) at once."""
        return self._timed_out or self._has_result()

    def _has_result(self):
        raise NotImplementedError

    def error_found(self):
        """(errnum, text) of a failure, or None."""
        raise NotImplementedError

    def _value(self):
        return None

    # -- what callers use ------------------------------------------------------------------------

    def get(self):
        """Wait for the answer and return it. May be called again: the same answer.

        Raises:
            OSError: the request failed
        """
        self.settle()
        return self._value()

    def settle(self):
        """Wait for the answer; raises like `get`, but does not look at the payload."""
        if not self.is_ready():
            self._start()
            while not self.is_ready():
                self._sleep()
        self._check()

    def wait_for(self, timeout):
        """Wait at most `timeout` seconds; returns the future.

        Raises:
            TimeoutError: nothing came
        """
        self._start()
        if timeout is not None and timeout >= 0 and not self.is_ready():
            expired = []

            def expire():
                expired.append(True)
                self._wake()

            kernel = self.task.kernel
            entry = kernel.call_later(timeout, expire)
            while not self.is_ready() and not expired:
                self._sleep()
            entry[2] = None
            if not self.is_ready():
                raise TimeoutError(errno.ETIMEDOUT, message.strerror(errno.ETIMEDOUT))
        while not self.is_ready():
            self._sleep()
        return self

    def error_string(self):
        """The peer's error text; None on success or when it sent none."""
        error = self.error_found()
        return error[1] if error else None

    def get_flux(self):
        return self.handle

    def then(self, callback, *args, timeout=-1.0, **kwargs):
        """Have ``callback(future, *args, **kwargs)`` called by the reactor; returns the future.

        Args:
            timeout (float): seconds after which it is called even if nothing came; `get` then
                raises TimeoutError. Negative: never.

        Raises:
            ValueError: callback is None
            FileExistsError: an earlier `then` is outstanding
        """
        if callback is None:
            raise ValueError("then: the callback is None")
        if self._callback is not None:
            raise FileExistsError(errno.EEXIST, "then: a callback is outstanding for this future")
        self._set_callback((callback, args, kwargs))
        self._start()
        if timeout >= 0 and not self.is_ready():
            self._timeout = self.task.kernel.call_later(timeout, self._expire)
        for _ in range(self._backlog()):
            self.task.post(self._call)
        return self

    def stop(self):
        """No more callbacks."""
        self._set_callback(None)
        self._cancel_timeout()

    # -- inner workings ------------------------------------------------------------------------

    def _set_callback(self, callback):
        self.task.callbacks += (callback is not None) - (self._callback is not None)
        self._callback = callback

    def _start(self):
        """Called when somebody first takes an interest."""

    def _backlog(self):
        """How many answers arrived before there was a callback to tell."""
        return 1 if self.is_ready() else 0

    def _once(self):
        """Whether the callback is used up after one call."""
        return True

    def _check(self):
        if self._timed_out and not self._has_result():
            raise TimeoutError(errno.ETIMEDOUT, message.strerror(errno.ETIMEDOUT))
        error = self.error_found()
        if error is not None:
            raise OSError(error[0], error[1] or message.strerror(error[0]))

    def _call(self):
        if self._callback is None or not self.is_ready():
            return
        callback, args, kwargs = self._callback
        if self._once():
            self._set_callback(None)
        callback(self, *args, **kwargs)

    def _fulfilled(self):
        """Something arrived: wake who waits for it."""
        if self._timeout is not None:
            self._cancel_timeout()
        if self.sleepers:
            self._wake()
        if self._callback is not None:
            self.task.post(self._call)

    def _wake(self):
        sleepers, self.sleepers = self.sleepers, ()
        for sleeper in sleepers:
            self.task.kernel.resume(sleeper)

    def _sleep(self):
        """Block the calling greenlet until something arrives, or the time is up."""
        self.sleepers = [*self.sleepers, getcurrent()]
        self.task.kernel.switch_to_hub()

    def _expire(self):
        self._timeout = None
        self._timed_out = True
        self._fulfilled()

    def _cancel_timeout(self):
        if self._timeout is not None:
            self._timeout[2] = None
            self._timeout = None


class RPC(Future):
    """The responses to one request."""

    #: False for requests whose answer carries nothing (``Future.get()`` is None then).
    has_value = True

    _current = None
    _waiting = ()

    def __init__(self, handle, matchtag, streaming=False):
        self.handle = handle
        self.task = handle.task
        self.matchtag = matchtag
        self.streaming = streaming

    def arrive(self, msg):
        """Take a response; called by the hub."""
        if msg.errnum or not self.streaming:
            self.task.futures.pop(self.matchtag, None)
            self.streaming = False
        if self._current is None:
            self._current = msg
        else:
            if not self._waiting:
                self._waiting = deque()
            self._waiting.append(msg)
        self._fulfilled()

    def reset(self):
        """Done with this response of a stream: `get` waits for the next."""
        self._current = self._waiting.popleft() if self._waiting else None
        self._timed_out = False

    def get_str(self):
        """The payload as text (None for none); waits and raises like `get`."""
        self.settle()
        return self._current.payload_str if self._current is not None else None

    @property
    def body(self):
        """The payload as a shared object, for builtin services: read only. Waits like `get`."""
        self.settle()
        return self._current.body if self._current is not None else None

    def stop(self):
        super().stop()
        self.task.futures.pop(self.matchtag, None)

    def _has_result(self):
        # Nothing answers a request without matchtag, so there is nothing to wait for.
        return self._current is not None or self.matchtag == 0

    def error_found(self):
        if self.matchtag == 0:
            # No response was asked for.
            return errno.EINVAL, None
        msg = self._current
        return (msg.errnum, msg.payload_str) if msg is not None and msg.errnum else None

    def _value(self):
        if self._current is None or not self.has_value:
            return None
        text = self._current.payload_str
        return None if text is None else loads(text)

    def _backlog(self):
        if self.matchtag == 0:
            return 1
        return (self._current is not None) + len(self._waiting)

    def _once(self):
        return not self.streaming and not self._waiting


class PlainRPC(RPC):
    """An RPC whose answer is only success or failure."""

    has_value = False


class FutureExt(Future):
    """A future that its maker fulfills.

    Args:
        init_cb: ``init_cb(future, *args)``, called when somebody first takes an interest
        flux_handle: the handle to run on; default: that of the running task
    """

    def __init__(self, init_cb=None, *args, flux_handle=None):
        if flux_handle is None:
            flux_handle = current_handle()
        super().__init__(flux_handle)
        self._init = (init_cb, args) if init_cb is not None else None
        self._result = None

    def fulfill(self, result=None):
        """Succeed with `result`, anything JSON can hold."""
        self._settle((dumps(result), None))

    def fulfill_error(self, errnum=errno.EINVAL, errstr=None):
        """Fail with a POSIX errno and a text."""
        self._settle((None, (errnum, errstr)))

    def _settle(self, result):
        if self._result is None:
            self._result = result
            self._fulfilled()

    def reset(self):
        self._result = None
        self._timed_out = False

    def _start(self):
        if self._init is not None:
            (init_cb, args), self._init = self._init, None
            init_cb(self, *args)

    def _has_result(self):
        return self._result is not None

    def error_found(self):
        return self._result[1] if self._result is not None else None

    def _value(self):
        return loads(self._result[0])


class WaitAllFuture(Future):
    """Ready when all `children` are; fails with the first failure among them, in their order."""

    def __init__(self, children=()):
        children = list(children)
        super().__init__(children[0].handle if children else current_handle())
        self.children = children
        self._watched = 0

    def push(self, future):
        """Add a child."""
        self.children.append(future)
        self._start()

    def _start(self):
        for child in self.children[self._watched :]:
            child.then(self._child_done)
        self._watched = len(self.children)

    def _child_done(self, child):
        if self._has_result():
            self._fulfilled()

    def get(self):
        # Children are fulfilled through the reactor, which does not run while we block: wait for
        # each directly instead.
        for child in self.children:
            child.wait_for(-1)
        self._check()

    def _has_result(self):
        return all(child.is_ready() for child in self.children)

    def error_found(self):
        for child in self.children:
            error = child.error_found()
            if error is not None:
                return error
        return None
