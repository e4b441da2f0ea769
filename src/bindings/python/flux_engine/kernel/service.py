"""The base class of the builtin services.

    class Echo(Service):
        name = "echo"

        @request("say")                     # topic echo.say
        def say(self, msg):
            return {"text": msg.body["text"]}

A handler returns the payload of the answer, or None for an answer without one. An OSError that it raises is the answer; any other
exception is logged with its traceback and answered EIO, and the service continues.
"""

import contextlib
import errno
import traceback
from syslog import LOG_DEBUG, LOG_ERR

from flux_engine.kernel import message
from flux_engine.kernel.handle import RPC_NORESPONSE, RPC_STREAMING, Flux
from flux_engine.kernel.message import Malformed, Message, check_form
from flux_engine.kernel.task import GUEST_REFUSED, Task
from flux_engine.kernel.watchers import MessageWatcher, TimerWatcher


@contextlib.contextmanager
def refusing():
    """Turn a ValueError in the block into an OSError EINVAL, the answer to a bad request."""
    try:
        yield
    except ValueError as exc:
        raise OSError(errno.EINVAL, str(exc)) from None


def request(method, guest=False, streaming=False, form=None, later=False):
    """Mark a method as the handler of ``SERVICE.method``.

    Args:
        method (str): the part of the topic after the service name
        guest (bool): users other than the instance owner may call it
        streaming (bool): a request without the streaming flag is answered EPROTO (RFC 6)
        form (dict): the form of the payload, see `formats.form`; without one a payload that is not an
            object counts as none. ``object``: any payload, JSON or not; the method itself checks it
        later (bool): the method answers by itself, with `Service.respond`, as it does if `streaming`
    """

    def mark(function):
        function.__dict__.setdefault("_requests", []).append(
            (method, guest, streaming, form, later)
        )
        return function

    return mark


class Service(Task):
    """A builtin service, which is a task: its `methods` answer requests.

    Args:
        ctx: the broker's context: ``ctx.kernel``, ``ctx.attrs``, ``ctx.config``, the contents of a real
            module's welcome message
        args (tuple of str): module arguments

    Attributes:
        h (Flux): its handle
        methods (dict): topic -> (handler, guests allowed, streaming only, form of the payload, function that answers or None)
    """

    name = ""
    is_service = True

    def __init__(self, ctx, *args):
        super().__init__(ctx.kernel, self.name, self._serve)
        self.ctx = ctx
        self.args = args
        self.h = Flux(self)
        self.methods = {}
        self._kept = []
        self.serve(self)

    def serve(self, part, respond=None):
        """Answer requests by the methods of `part` that are marked with `request`; ``respond(msg, obj)`` sends the answers."""
        for cls in reversed(type(part).__mro__):
            for attribute, function in vars(cls).items():
                for method, *how in getattr(function, "_requests", ()):
                    self.add_method(method, getattr(part, attribute), *how, respond=respond)

    def keep(self):
        """Return a new list for open requests, from which the requests of disconnected senders are removed."""
        self._kept.append([])
        return self._kept[-1]

    @request("disconnect", guest=True)
    def disconnect(self, msg):
        """Drop the open requests of a sender that has disconnected."""
        for requests in self._kept:
            requests[:] = [kept for kept in requests if kept.sender is not msg.sender]

    def configure(self, config):
        """Check and take a new configuration; OSError (EINVAL) if it is wrong."""

    @request("config-reload")
    def reload_config(self, msg):
        self.configure(msg.body or {})

    def add_method(
        self, method, function, guest=False, streaming=False, form=None, later=False, respond=None
    ):
        """Handle ``NAME.method`` by ``function(msg)``; arguments as for `request` and `serve`."""
        respond = None if later or streaming else respond or self.respond
        self.methods[f"{self.name}.{method}"] = (function, guest, streaming, form, respond)

    def start(self):
        """Register the service's name and start answering. FileExistsError: the name is taken."""
        self.kernel.add_service(self.name, self)
        super().start()

    def _serve(self):
        self.begin()
        self.reactor_run()

    def shut_down(self):
        try:
            self.stop()
        finally:
            super().shut_down()

    def begin(self):
        """Called in the service's own greenlet before it answers anything; may block."""

    def stop(self):
        """Called when the service is unloaded; its task is closed afterwards."""

    # -- handling requests -----------------------------------------------------------------------

    def _dispatch_request(self, msg):
        entry = self.methods.get(msg.topic)
        if entry is None:
            super()._dispatch_request(msg)
            return
        function, guest, streaming, form, respond = entry
        if not guest and not msg.rolemask & message.ROLE_OWNER:
            self.respond_error(msg, errno.EPERM, GUEST_REFUSED)
        elif streaming and not msg.flags & message.FLAG_STREAMING:
            self.respond_error(msg, errno.EPROTO)
        else:
            self.guard(self._handle, msg, function, form, respond)

    def _handle(self, msg, function, form, respond):
        """Handle a request whose payload has the form that its method accepts. Malformed: it has not."""
        try:
            if form is None:
                if not isinstance(msg.body, dict):
                    msg.set_text(None)
            elif form is not object:
                check_form(msg.body, form, msg.topic)
        except (ValueError, RecursionError) as exc:
            raise Malformed(f"{msg.topic}: {exc}") from None
        answer = function(msg)
        if respond is not None:
            respond(msg, answer)

    def guard(self, function, *args):
        try:
            function(*args)
        except Exception as exc:  # one bad request must not cost the instance a service
            self._failed(exc, args[0] if args and isinstance(args[0], Message) else None)

    def _failed(self, exc, msg):
        """Log an exception of a handler (`msg`: of a request, which it answers; None: of a watcher)."""
        if isinstance(exc, OSError):
            number, text = exc.errno or errno.EIO, exc.strerror or str(exc)
        else:
            number, text = errno.EIO, f"{type(exc).__name__}: {exc}"
            self.report(exc)
        if isinstance(exc, Malformed):
            self.log(LOG_DEBUG, exc.detail)
        if msg is None:
            self.log(LOG_ERR, f"{self.name}: {text}")
        elif msg.type == message.REQUEST:
            self.respond_error(msg, number, text)

    # -- shorthand -------------------------------------------------------------------------------

    def is_allowed(self, future, msg, why=""):
        """Whether another service, queried by `future`, allows the request `msg`, or does not exist. A refusal is
        forwarded as the answer to `msg`, with the prefix `why`."""
        try:
            future.get()
        except OSError as exc:
            if exc.errno not in message.NO_SERVICE:
                self.respond_error(msg, exc.errno, f"{why}{exc.strerror}")
                return False
        return True

    def rpc(self, topic, obj=None, streaming=False):
        """Request; `obj` is not copied, so do not change it afterwards."""
        return self.h.rpc_object(topic, obj, RPC_STREAMING if streaming else 0)

    def notify(self, topic, obj=None):
        """A request that wants no response."""
        self.h.rpc_object(topic, obj, RPC_NORESPONSE)

    def publish(self, topic, obj=None):
        self.notify("event.publish", {"topic": topic, "payload": obj or {}})

    def subscribe(self, topic, method):
        """Call ``method(msg)`` for events whose topic begins with `topic`."""
        self.notify("event.subscribe", {"topic": topic})
        MessageWatcher(
            self, lambda h, watcher, msg, args: method(msg), message.EVENT, topic + "*"
        ).start()

    def log(self, level, text):
        self.notify("log.append", {"level": level, "name": self.name, "text": text})

    def report(self, exception):
        """Log the traceback of an exception that has left a callback."""
        lines = traceback.format_exception(type(exception), exception, exception.__traceback__)
        self.log(LOG_ERR, "".join(lines).rstrip())

    def defer(self, function):
        """Call ``function()`` after the messages queued now, to do costly work once for all events of a turn."""
        self.kernel.call_soon(lambda: self.post(function))

    def timer(self, after, callback):
        """Call ``callback()`` after `after` seconds; returns the started watcher."""
        return TimerWatcher(self, lambda *event: callback(), after).start()
