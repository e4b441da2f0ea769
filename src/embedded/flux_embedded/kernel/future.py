"""Futures: answers that have not come yet."""

import errno
import os
from collections import deque

from greenlet import getcurrent

from flux_embedded.formats.jsontext import loads
from flux_embedded.kernel import message


class Future:
    """An answer to come whose value does not matter: ``get()`` is None, or raises.

    Attributes:
        sleepers (list): greenlets blocked in `get`
    """

    __module__ = "flux.future"

    #: `stop` was called.
    stopped = False

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

    def wait_for(self, timeout=-1.0):
        """Wait at most `timeout` seconds, without end if it is negative; returns the future.

        Raises:
            TimeoutError: nothing came
            ValueError: timeout is no number
        """
        if not isinstance(timeout, (int, float)):
            raise message.InvalidArguments(f"timeout must be a number, not {timeout!r}")
        if not self.is_ready():
            self._start()
        if timeout >= 0 and not self.is_ready():
            expired = []

            def expire():
                expired.append(True)
                self._wake()

            kernel = self.task.kernel
            entry = kernel.call_later(timeout, expire)
            try:
                while not self.is_ready() and not expired:
                    self._sleep()
            finally:
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

    def get_reactor(self):
        return self.get_flux().get_reactor()

    def incref(self):
        """Keep it alive for somebody else: here whoever refers to it does."""

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
            raise ValueError("Callback cannot be None")
        if self._callback is not None:
            raise FileExistsError(errno.EEXIST, "then callback already exists for this future")
        self._set_callback((callback, args, kwargs))
        self._start()
        if timeout >= 0 and not self.is_ready():
            self._timeout = self.task.kernel.call_later(timeout, self._expire)
        for _ in range(self._backlog()):
            self.task.post(self._call)
        return self

    def stop(self):
        """No more callbacks."""
        self.stopped = True
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
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
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


RPC_NORESPONSE = 1
RPC_STREAMING = 2


class RPC(Future):
    """A request and its responses.

    Args:
        flux_handle (Flux): handle to send the request with
        topic, payload, nodeid, flags: as for `Flux.rpc`
    """

    __module__ = "flux.rpc"

    #: False for requests whose answer carries nothing (``Future.get()`` is None then).
    has_value = True

    _current = None
    _waiting = ()
    _waited = False

    def wait_for(self, timeout=-1.0):
        self._waited = True
        return super().wait_for(timeout)

    def then(self, callback, *args, timeout=-1.0, **kwargs):
        super().then(callback, *args, timeout=timeout, **kwargs)
        if self._waited and not self.is_ready():
            # Whoever has waited in vain cannot be called back any more: with a real Flux the
            # response has its receiver, and this request fails for it.
            failure = message.Message(message.RESPONSE, "", os.strerror(errno.EEXIST))
            failure.errnum = errno.EEXIST
            self.arrive(failure)
        return self

    def __init__(self, flux_handle, topic, payload=None, nodeid=message.NODEID_ANY, flags=0):
        topic = message.topic_text(topic)
        text = message.payload_text(payload)
        message.unsigned("nodeid", nodeid)
        if flags & ~(RPC_NORESPONSE | RPC_STREAMING):
            raise OSError(errno.EINVAL, message.strerror(errno.EINVAL))
        flux_handle.send_request(self, topic, text, None, nodeid, flags)

    def expect(self, handle, matchtag, streaming=False):
        """The request is under way; called by the handle."""
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
        self._timed_out = self._waited = False

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

    __module__ = "flux.future"
    has_value = False


# What a script sees is a plain future, as it does with the bindings of a real Flux.
PlainRPC.__name__ = PlainRPC.__qualname__ = "Future"


def unsent(future_class):
    """A future of the class, for `Flux.send_request`."""
    return future_class.__new__(future_class)
