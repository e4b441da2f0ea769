"""Futures: results of requests."""

import errno
import os
from collections import deque

from flux_engine.kernel.message import RESPONSE, Message, error_of

RPC_NORESPONSE = 1
RPC_STREAMING = 2

#: The result of a request that wants no response: there is nothing to wait for.
_NONE_WANTED = Message(RESPONSE, "")


class Future:
    """A result to come, or several, one after the other.

    Args:
        handle (Flux): its task waits for the future, or has it in its reactor

    Attributes:
        result: the value of `get`, or the message it is made from; None until there is one
        streaming (bool): whether another result may come after this one
    """

    # Most futures of a busy instance never need these: they become instance attributes when set.
    streaming = False
    _sleepers = ()
    _callback = None
    result = None
    _waiting = ()

    def __init__(self, handle):
        self.handle = handle
        self.task = handle.task

    def settle(self, result):
        """Enter a result, anything but None."""
        if self.result is None:
            self.result = result
        else:
            if not self._waiting:
                self._waiting = deque()
            self._waiting.append(result)
        self._ready()

    def _ready(self):
        """There is a result: wake the waiting tasks and schedule the callback."""
        if self._sleepers:
            self._wake()
        if self._callback is not None:
            self.task.post(self._call)

    def is_ready(self):
        """Whether `get` would return (or raise) at once."""
        return self.result is not None

    def get(self):
        """Wait for the result and return it. May be called again: the same result."""
        if self.result is None:
            self.wait_for()
        return self.result

    def wait_for(self, timeout=-1.0):
        """Wait at most `timeout` seconds (negative: without limit) and return the future. TimeoutError: there is no result yet."""
        kernel = self.task.kernel
        expired, call = [], None
        if timeout >= 0 and self.result is None:
            call = kernel.call_later(timeout, lambda: (expired.append(True), self._wake()))
        try:
            while self.result is None:
                if expired:
                    raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
                self._sleepers = [*self._sleepers, kernel.sleeper()]
                kernel.switch_to_hub()
        finally:
            if call is not None:
                call.cancel()
        return self

    def then(self, callback, *args, **kwargs):
        """Let the reactor call ``callback(future, *args, **kwargs)`` for each result; returns the future."""
        self._callback = (callback, args, kwargs)
        self.task.callbacks += 1
        for _ in range((self.result is not None) + len(self._waiting)):
            self.task.post(self._call)
        return self

    def reset(self):
        """Done with this result of a stream: `get` waits for the next."""
        self.result = self._waiting.popleft() if self._waiting else None

    def stop(self):
        """No more callbacks."""
        if self._callback is not None:
            self._callback = None
            self.task.callbacks -= 1

    def _call(self):
        if self._callback is None or self.result is None:
            return
        callback, args, kwargs = self._callback
        if not self.streaming and not self._waiting:
            self.stop()
        callback(self, *args, **kwargs)

    def _wake(self):
        sleepers, self._sleepers = self._sleepers, ()
        for sleeper in sleepers:
            self.task.kernel.resume(sleeper)


class RPC(Future):
    """A request and its responses; the results are messages. The handle sends it (`Flux.send_request`)."""

    def __init__(self):
        """The request is set by `expect`."""

    def expect(self, handle, matchtag, streaming=False):
        """The request is under way; called by the handle."""
        self.handle = handle
        self.task = handle.task
        self.matchtag = matchtag
        if streaming:
            self.streaming = True
        if not matchtag:
            self.result = _NONE_WANTED

    def arrive(self, msg):
        """Take a response; called by the hub."""
        if msg.errnum or not self.streaming:
            self.task.futures.pop(self.matchtag, None)
            self.streaming = False
        self.settle(msg)

    def response(self):
        """Wait for the response and return the message. OSError: the request failed."""
        if self.result is None:
            self.wait_for()
        if self.result.errnum:
            raise error_of(self.result)
        return self.result

    def get(self):
        """Wait for the response and return its payload, parsed anew; None if it has none. Raises as `response`."""
        msg = self.response()
        return msg.payload if msg.has_payload else None

    @property
    def body(self):
        """The payload as a shared object, for builtin services: read only. Waits and raises like `get`."""
        return self.response().body

    def stop(self):
        """No more callbacks; further responses are dropped."""
        super().stop()
        self.task.futures.pop(self.matchtag, None)
