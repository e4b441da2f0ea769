"""The handle: sending, answering and waiting, for code that runs on a task.

Services use it among themselves, with messages that carry objects; flux-core's bindings are built on it (`_flux`
calls it a ``flux_t *``); and the lean engine of ``flux simulate`` gives it to a scheduler directly, since a handle of the
bindings costs several times as much for each message. For that scheduler it has the methods of the bindings' ``flux.Flux``
that `flux.scheduler` and the bindings' BrokerModule call, with the same names and arguments, and no others.
"""

import errno
import os
import time

from flux_engine.formats.dotted import lookup_path
from flux_engine.kernel import message, watchers
from flux_engine.kernel.future import RPC, RPC_NORESPONSE, RPC_STREAMING
from flux_engine.kernel.message import Message, payload_text


class Flux:
    """A handle on the task `task`."""

    #: Number of references, as the C API counts them (`_flux.handle`): the kernel has the first.
    refs = 1
    #: Class of a request's future.
    future_class = RPC

    def __init__(self, task):
        self.task = task
        self.kernel = task.kernel
        task.handle = self

    # -- requests ------------------------------------------------------------------------------

    def rpc(self, topic, payload=None, nodeid=message.NODEID_ANY, flags=0):
        """Send a request, with a payload as for `payload_text`; returns its future at once."""
        return self.send_request(
            self.future_class(), topic, payload_text(payload), None, nodeid, flags
        )

    def rpc_object(self, topic, obj=None, flags=0):
        """`rpc` for builtin services: the object itself goes along, to be read only."""
        return self.send_request(self.future_class(), topic, None, obj, flags=flags)

    def send_request(self, future, topic, text, obj, nodeid=message.NODEID_ANY, flags=0):
        """Send a request, as text or as an object, whose answer is for `future`; return the future."""
        task = self.task
        if task.closed:
            raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
        msg = self._request(topic, text, obj)
        msg.nodeid = nodeid
        if flags & RPC_NORESPONSE:
            msg.flags = message.FLAG_NORESPONSE
            future.expect(self, 0)
        else:
            if flags & RPC_STREAMING:
                msg.flags = message.FLAG_STREAMING
            tag = msg.matchtag = next(self.kernel.tags)
            future.expect(self, tag, bool(flags & RPC_STREAMING))
            task.futures[tag] = future
        self.kernel.request(msg)
        return future

    def send_untagged(self, topic, obj):
        """Send a request with matchtag 0: its responses come to a response watcher (RFC 27)."""
        self.kernel.request(self._request(topic, None, obj))

    def forward(self, msg):
        """Send a request message made by another sender."""
        copy = self._request(msg.topic, msg.payload_str, None)
        copy.matchtag, copy.flags, copy.nodeid = msg.matchtag, msg.flags, msg.nodeid
        self.kernel.request(copy)

    def _request(self, topic, text, obj):
        task = self.task
        msg = Message(message.REQUEST, topic, text, obj)
        msg.sender = task
        msg.userid = task.userid
        msg.rolemask = task.rolemask
        return msg

    # -- responses -----------------------------------------------------------------------------

    def respond(self, msg, payload=None):
        """Answer a request; any number of times for a streaming one."""
        self.kernel.respond(msg, msg.response(payload_text(payload)), self.task)

    def respond_error(self, msg, errnum, errmsg=None):
        """Answer with an error: a POSIX errno and a line of text."""
        answer = msg.error_response(errnum, errmsg or os.strerror(errnum))
        self.kernel.respond(msg, answer, self.task)

    # -- services, events ------------------------------------------------------------------------

    def service_register(self, name):
        """Become the holder of service `name`; returns a future that fails with EEXIST if taken."""
        return self.rpc_object("service.add", {"service": name})

    def event_subscribe(self, topic):
        """Receive every event whose topic begins with `topic`; waits for the broker's answer."""
        self.rpc_object("event.subscribe", {"topic": topic}).get()

    # -- watchers: callbacks have the bindings' arguments -----------------------------------------

    def msg_watcher_create(
        self, callback, type_mask=15, topic_glob="*", args=None, match_tag=0, rolemask=None
    ):
        """A watcher that calls ``callback(handle, watcher, msg, args)``."""
        return watchers.MessageWatcher(
            self.task, callback, type_mask, topic_glob, rolemask or 0, self, args
        )

    def timer_watcher_create(self, after, callback, repeat=0.0, args=None):
        """A watcher that calls ``callback(handle, watcher, revents, args)``; times are seconds."""
        return watchers.TimerWatcher(self.task, callback, after, repeat, self, args)

    # -- the reactor ---------------------------------------------------------------------------

    def reactor_run(self, reactor=None, flags=0):
        """Handle messages, timers and other events until stopped. Raises the exceptions of callbacks, except SystemExit."""
        return self.task.reactor_run(flags)

    def reactor_stop(self, reactor=None):
        self.task.reactor_stop(0)

    def reactor_stop_error(self, reactor=None):
        self.task.reactor_stop(-1)

    def get_reactor(self):
        return self.kernel

    def reactor_now(self, reactor=None):
        """Seconds since the epoch, as the loop last saw them."""
        return self.kernel.time

    def stopwatch(self):
        """Seconds from an arbitrary start, to time code with; none pass under the virtual clock, so that decisions in the
        instance do not depend on the speed of the machine."""
        return self.kernel.time if self.kernel.clock.virtual else time.perf_counter()

    # -- the broker ------------------------------------------------------------------------------

    def log(self, level, text):
        """Log `text` at a syslog `level` (0..7)."""
        entry = {"level": level, "name": self.task.log_name, "text": text}
        self.rpc_object("log.append", entry, RPC_NORESPONSE)

    def attr_get(self, name):
        """A broker attribute; FileNotFoundError if there is none of that name."""
        return self.rpc_object("attr.get", {"name": name}).body["value"]

    def conf_get(self, key=None, default=None, update=False):
        """The configuration, or the value of a dotted `key`, or `default`; kept in the task, `update` fetches it again."""
        conf = self.task.aux.get("conf")
        if conf is None or update:
            conf = self.task.aux["conf"] = self.rpc_object("config.get").get()
        return conf if key is None else lookup_path(conf, key, default)

    # -- under the bindings ------------------------------------------------------------------------

    @property
    def handle(self):
        """Itself: the attribute `handle` of a handle of the bindings."""
        return self

    def about_to_wait(self, future, timeout):
        """Called before a task waits for an answer (seconds; negative: without end); may raise. Returns the seconds to wait."""
        return timeout

    def waited_in_vain(self, future, timeout):
        """Called at the timeout, with the same arguments; may raise an error in place of TimeoutError."""

    def disconnect(self):
        """Close it: the connection of an outside program ends; requests to the task fail from now on."""
        self.task.close()
        if self.kernel.uplink is not None:
            self.kernel.uplink.close()
            self.kernel.dispose()
