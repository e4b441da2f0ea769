"""``flux_future_t``: results to come; and ``flux_rpc``, whose future is a request's answer.

A future may be fulfilled any number of times: a further result is queued until `reset` removes the current one.
There are two ways to get a result.  With ``then`` the reactor calls a continuation.  ``get`` and ``wait_for`` wait for it;
nothing else of the caller runs meanwhile.  So that the parts of a future can be fulfilled during such a wait, its
``init`` callback gets its handle from ``flux_future_get_flux``: during a wait that is a clone, whose reactor is running.
"""

import errno
import os

from _flux import handle as _handle
from _flux.cdata import NULL, weak
from _flux.ffi import pointer_to
from _flux.function import failure, function, functions
from flux_engine.kernel import future as kernel_future
from flux_engine.kernel.handle import Flux


class Future(kernel_future.Future):
    """A future.

    Args:
        init: ``init(future, arg)``, called at the first use: once for waiting, once for ``then``
        arg: argument of `init`; held weakly

    Attributes:
        handle (Flux): the handle it belongs to, or None
        task (Task): its reactor calls the continuation; or None
        refs (int): references; with the last one it ends
        result (tuple): (value, errnum, error text) once it is fulfilled, else None
    """

    # Most futures never need most of these: they become instance attributes when they are set.
    handle = None
    task = None
    refs = 1
    _init = None
    _init_arg = None
    _posted = False
    _started = 0
    _timeout = -1.0
    _timer = None
    _now = None
    _waited_for = False

    def __init__(self, init=None, arg=None):
        if init is not None:
            self._init = init
            self._init_arg = arg

    def set_flux(self, h):
        former, self.handle = self.handle, h
        if h is not None:
            h.refs += 1
            if self.task is None:
                self.task = h.task
        if former is not None:
            _handle.flux_close(former)

    # -- results -------------------------------------------------------------------------------------------

    def fulfill(self, value=None):
        self.settle((value, 0, None))

    def fulfill_error(self, errnum, text=None):
        self.settle((None, errnum, text))

    def _ready(self):
        if self._sleepers:
            self._wake()
        if self._now is not None:
            self._now.task.post(self._now.task.reactor_stop)
        if self._callback is not None:
            self._post()

    def reset(self):
        """Remove the result; a queued one takes its place."""
        super().reset()
        if self._callback is not None:
            self._arm_timer()
        if self.result is not None:
            self._ready()

    def value(self):
        """The result, when there is one; OSError if it is an error."""
        value, number, _ = self.result
        if number:
            raise failure(number)
        return value

    def error_string(self):
        """The text of an error, or None."""
        if self.result is None or not self.result[1]:
            return None
        return self.result[2] or os.strerror(self.result[1])

    # -- waiting -------------------------------------------------------------------------------------------

    def wait_for(self, timeout):
        """Wait until there is a result, `timeout` seconds at most (negative: without end); EDEADLK if there can be none."""
        if self.result is not None:
            return
        if timeout == 0.0:
            raise failure(errno.ETIMEDOUT)
        self._wait(timeout)

    def _wait(self, timeout):
        """Call `init`, and run a reactor for the operations it started."""
        asked = timeout
        if self.handle is not None:
            timeout = self.handle.about_to_wait(self, timeout)
        self._waited_for = True
        started, self._started = self._started, self._started | _NOW
        try:
            if self._init is not None and not started & _NOW:
                self._call_init()
            if self.result is None:
                self._run_now(timeout, asked)
        finally:
            self._waited_for = False
        if self.result is None:
            raise failure(errno.EDEADLK)

    def _run_now(self, timeout, asked):
        if self._now is None and asked < 0:
            return  # nothing was started, so nothing can come
        task = self.now().task
        expired = []
        call = None
        if timeout > 0:
            task.callbacks += 1  # the timer is something to wait for
            call = task.kernel.call_later(
                timeout, lambda: (expired.append(True), task.post(task.reactor_stop))
            )
        try:
            while self.result is None and not expired:
                task.reactor_run()
                if not task.is_awaiting():
                    break
        finally:
            if call is not None:
                call.cancel()
                task.callbacks -= 1
        if self.result is None and expired:
            if self.handle is not None:
                self.handle.waited_in_vain(self, asked)
            raise failure(errno.ETIMEDOUT)

    def now(self):
        """The handle for `init` during a wait."""
        if self._now is None:
            self._now = Flux(self.handle.task.clone())
        return self._now

    def current_flux(self):
        """The handle for new operations: the clone during a wait, else its own."""
        if self.handle is None:
            raise failure(errno.EINVAL)
        return self.now() if self._waited_for else self.handle

    def current_task(self):
        """The task whose reactor runs for it."""
        if self._waited_for and self.handle is not None:
            return self.now().task
        if self.task is None:
            raise failure(errno.EINVAL)
        return self.task

    # -- continuations -------------------------------------------------------------------------------------

    def then(self, timeout, continuation, arg):
        """Let the reactor call ``continuation(future, arg)`` for each result."""
        if self.task is None:
            raise failure(errno.EINVAL)
        self._callback = (continuation, arg)
        self._timeout = timeout
        if self.result is not None:
            self._post()
        self._arm_timer()
        if self._init is not None and not self._started & _THEN:
            self._started |= _THEN
            self._call_init()

    def _call_init(self):
        arg = self._init_arg()
        if arg is not None:
            self._init(self, arg)

    def _arm_timer(self):
        self._stop_timer()
        if self._timeout >= 0:
            self._timer = self.task.kernel.call_later(self._timeout, self._expired)
            self.task.callbacks += 1

    def _stop_timer(self):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.task.callbacks -= 1

    def _expired(self):
        self._timer = None
        self.task.callbacks -= 1
        self.fulfill_error(errno.ETIMEDOUT)

    def _post(self):
        if not self._posted:
            self._posted = True
            self.task.post(self._call)

    def _call(self):
        self._posted = False
        if self.result is None or self._callback is None:
            return
        self._stop_timer()
        continuation, arg = self._callback
        given = arg()
        if given is not None:
            continuation(self, given)

    def end(self):
        """The last reference is gone: stop its timer and its callbacks."""
        self._stop_timer()
        self._callback = None
        if self._now is not None:
            self._now.task.close()
            self._now = None
        if self.handle is not None:
            h, self.handle = self.handle, None
            _handle.flux_close(h)


def _nothing():
    """Posted to have a reactor look whether it still waits for something."""


_NOW, _THEN = 1, 2

pointer_to("flux_future_t *", Future)


class RPCFuture(Future):
    """The responses to a request; the kernel's task hands them over. It has no `matchtag` (0) if it wants none."""

    _holds = None
    _in_vain = False

    def expect(self, h, matchtag, streaming=False):
        """The request is under way; called by the handle."""
        self.handle = h
        h.refs += 1
        self._sender = self.task = h.task
        self.matchtag = matchtag
        self.streaming = streaming
        if not matchtag:
            self.result = (None, 0, None)

    def arrive(self, msg):
        """Take a response; called by the hub."""
        if msg.errnum or not self.streaming:
            self._close()
        if msg.errnum:
            self.settle((None, msg.errnum, msg.payload_str))
        else:
            self.settle((msg, 0, None))

    def _close(self):
        """No response is expected any more, and the reactor does not wait for one."""
        self.streaming = False
        if self.matchtag:
            self._sender.futures.pop(self.matchtag, None)
        self._release()

    def _release(self):
        if self._holds is not None:
            task, self._holds = self._holds, None
            task.callbacks -= 1
            if task.runs_dry and not task.callbacks:
                # If the collector has found the future, the reactor may be waiting for it.
                task.kernel.call_soon(lambda: task.post(_nothing))

    def then(self, timeout, continuation, arg):
        super().then(timeout, continuation, arg)
        if self._holds is None and self.matchtag in self._sender.futures:
            self._holds = self.task
            self._holds.callbacks += 1
        if self._in_vain and self.result is None:
            # With a real Flux an earlier wait has become the response's receiver, and there cannot be two.
            self._close()
            self.fulfill_error(errno.EEXIST)

    def reset(self):
        self._in_vain = False
        super().reset()

    def _wait(self, timeout):
        """Block the calling greenlet; the hub delivers the response."""
        limit = self.handle.about_to_wait(self, timeout)
        try:
            kernel_future.Future.wait_for(self, limit)
        except TimeoutError:
            self._in_vain = True
            self.handle.waited_in_vain(self, timeout)
            raise failure(errno.ETIMEDOUT) from None

    def end(self):
        self._close()
        super().end()

    def response(self):
        """The response, a Message; waits for it. OSError if it is an error, or the request wanted none (EINVAL)."""
        if self.result is None:
            self._wait(-1.0)
        msg, number, _ = self.result
        if number:
            raise failure(number)
        if msg is None:
            raise failure(errno.EINVAL)
        return msg

    def body(self):
        """The response's payload, an object that is not to be changed; OSError if it is an error, or there is none (EPROTO)."""
        msg = self.response()
        body = msg.body
        if not isinstance(body, dict):
            raise failure(errno.EPROTO)
        return body

    def field(self, name, kind):
        """A field of the payload; OSError (EPROTO) if it is missing or of another type."""
        value = self.body().get(name)
        if not isinstance(value, kind):
            raise failure(errno.EPROTO)
        return value


def send(h, topic, obj, flags=0, cls=RPCFuture):
    """Send a request whose payload is an object; returns its future."""
    return h.send_request(cls(), topic, None, obj, flags=flags)


def ask(h, topic, obj):
    """Send a request, wait for its response and return its payload; OSError if it fails."""
    future = send(h, topic, obj)
    try:
        return future.response().body
    finally:
        flux_future_destroy(future)


def succeed(h, topic, obj):
    """Send a request and wait for its response; OSError if it fails."""
    ask(h, topic, obj)


# -- futures -----------------------------------------------------------------------------------------------


@function
def flux_future_destroy(f):
    """void flux_future_destroy (opt flux_future_t *f)"""
    if f is not None:
        f.refs -= 1
        if f.refs == 0:
            f.end()


@function
def flux_future_incref(f):
    """void flux_future_incref (flux_future_t *f)"""
    f.refs += 1


@function
def flux_future_then(f, timeout, cb, arg):
    """int flux_future_then (flux_future_t *f, double timeout, flux_continuation_f cb, opt void *arg)"""
    if cb is None:
        raise failure(errno.EINVAL)
    f.then(timeout, cb, weak(arg))


@function
def flux_future_get(f):
    """int flux_future_get (flux_future_t *f, out opt const void **result)"""
    f.wait_for(-1.0)
    return f.value()


functions(
    {
        "flux_future_t *flux_future_create (flux_future_init_f init, opt void *arg)":
            lambda init, arg: Future(init, weak(arg)),
        "const char *flux_future_error_string (opt flux_future_t *f)": lambda f: f and f.error_string(),
        "int flux_future_wait_for (flux_future_t *f, double timeout)": lambda f, timeout: f.wait_for(timeout),
        "bool flux_future_is_ready (flux_future_t *f)": lambda f: f.result is not None,
        "void flux_future_reset (flux_future_t *f)": lambda f: f.reset(),
        "flux_t *flux_future_get_flux (flux_future_t *f)": lambda f: f.current_flux(),
        "flux_reactor_t *flux_future_get_reactor (flux_future_t *f)": lambda f: f.current_task(),
        "void flux_future_set_flux (flux_future_t *f, opt flux_t *h)": lambda f, h: f.set_flux(h),
        "void flux_future_fulfill (flux_future_t *f, opt void *result, flux_free_f free)":
            lambda f, result, free: f.fulfill(result),
        "void flux_future_fulfill_error (flux_future_t *f, int errnum, opt const char *text)":
            lambda f, errnum, text: f.fulfill_error(errnum, text),
    }
)  # fmt: skip


# -- futures made of others --------------------------------------------------------------------------------


class Composite(Future):
    """A future that is ready when all its children are; with an error if one of them has one."""

    def __init__(self):
        super().__init__(_watch_children, lambda: NULL)
        self.children = {}

    def child_ready(self, child, arg):
        number = 0
        for child in self.children.values():
            if child.result is None:
                return
            number = child.result[1] or number
        if number:
            self.fulfill_error(number)
        else:
            self.fulfill()

    def end(self):
        children, self.children = self.children, {}
        for child in children.values():
            flux_future_destroy(child)
        super().end()


pointer_to("flux_future_t *", Composite, RPCFuture)


def _watch_children(f, arg):
    """Have the reactor that waits for `f` call `child_ready`."""
    if not f.children:
        f.fulfill()
    for child in f.children.values():
        h = f.current_flux()
        if not isinstance(child, RPCFuture):
            child.set_flux(h)
        child.task = h.task
        child.then(-1.0, f.child_ready, lambda: NULL)


@function
def flux_future_push(cf, name, f):
    """int flux_future_push (flux_future_t *cf, opt const char *name, flux_future_t *f)"""
    if not isinstance(cf, Composite):
        raise failure(errno.EINVAL)
    name = str(len(cf.children)) if name is None else name
    if name in cf.children:
        raise failure(errno.EEXIST)
    cf.children[name] = f


functions({"flux_future_t *flux_future_wait_all_create (void)": Composite})


# -- rpc ---------------------------------------------------------------------------------------------------

RPC_FLAGS = 1 | 2


@function
def flux_rpc(h, topic, s, nodeid, flags):
    """flux_future_t *flux_rpc (flux_t *h, const char *topic, opt const char *s, uint32_t nodeid, int flags)"""
    if flags & ~RPC_FLAGS:
        raise failure(errno.EINVAL)
    return h.send_request(RPCFuture(), topic, s, None, nodeid, flags)


def rpc(f):
    """Return `f` if it is the future of a request, else raise OSError (EINVAL)."""
    if not isinstance(f, RPCFuture):
        raise failure(errno.EINVAL)
    return f


functions(
    {
        "int flux_rpc_get (flux_future_t *f, out opt const char **s)": lambda f: rpc(f).response().payload_str,
        "uint32_t flux_rpc_get_matchtag (flux_future_t *f)": lambda f: rpc(f).matchtag,
    }
)  # fmt: skip
