"""A command's connection to the instance.

The public handle (``flux.Flux``) works from outside too, but brings the whole kernel along; a
command waits for answers and watches a stream or two, and starts twice as fast with this.
"""

import errno
import json
import os
import select
import socket
import time
from collections import deque

from flux_embedded.cmd.lib.errors import CommandError, NoInstance
from flux_embedded.kernel import message
from flux_embedded.kernel.wire import Unpacker, pack

ENODATA = errno.ENODATA


class Call:
    """One request and its responses.

    A response is handed to `get` or to the callback of `then`, in order of arrival.
    """

    __slots__ = ("client", "tag", "topic", "streaming", "responses", "callback")

    def __init__(self, client, tag, topic, streaming):
        self.client = client
        self.tag = tag
        self.topic = topic
        self.streaming = streaming
        self.responses = deque()
        self.callback = None

    def get(self, timeout=None):
        """The next response's payload.

        Args:
            timeout: seconds to wait at most.

        Raises:
            OSError: the request failed, or the stream ended (ENODATA)
            TimeoutError: nothing came in time
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.responses:
            left = None if deadline is None else max(0, deadline - time.monotonic())
            if not self.client.poll(left) and left == 0 and not self.responses:
                raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        return _payload(self.responses.popleft())

    def then(self, callback):
        """Have ``callback(payload, error)`` called for each response while the client runs.

        error is None or an OSError.
        """
        self.callback = callback
        while self.responses:
            self._deliver(self.responses.popleft())
        return self

    def take(self, msg):
        if self.callback is None:
            self.responses.append(msg)
        else:
            self._deliver(msg)

    def _deliver(self, msg):
        try:
            payload = _payload(msg)
        except OSError as exc:
            self.callback(None, exc)
        else:
            self.callback(payload, None)

    def __iter__(self):
        """The payloads of a stream up to its end."""
        while True:
            try:
                yield self.get()
            except OSError as exc:
                if exc.errno == ENODATA:
                    return
                raise


def _payload(msg):
    text = msg.payload_str
    if msg.errnum:
        raise OSError(msg.errnum, text or os.strerror(msg.errnum))
    return json.loads(text) if text else None


class Client:
    """A connected socket with the requests that are under way."""

    def __init__(self, sock):
        self._sock = sock
        self._unpacker = Unpacker()
        self._calls = {}
        self._tag = 0
        self._timers = []
        self._fds = {}
        self._stopped = False
        self._credentials = {
            name: int(os.environ[variable], 0)
            for name, variable in (
                ("userid", "FLUX_HANDLE_USERID"),
                ("rolemask", "FLUX_HANDLE_ROLEMASK"),
            )
            if variable in os.environ
        }
        self.on_event = None

    # -- requests

    def send(self, topic, payload=None, nodeid=message.NODEID_ANY, streaming=False):
        """Send a request and return its :class:`Call`. Any number may be under way."""
        text = None if payload is None else message.encode(payload)
        msg = message.Message(message.REQUEST, topic, text)
        self._tag += 1
        msg.matchtag = self._tag
        msg.nodeid = nodeid
        if streaming:
            msg.flags = message.FLAG_STREAMING
        for name, value in self._credentials.items():
            setattr(msg, name, value)
        call = Call(self, self._tag, topic, streaming)
        self._calls[self._tag] = call
        self._write(pack(msg))
        return call

    def stream(self, topic, payload=None):
        """Send a streaming request."""
        return self.send(topic, payload, streaming=True)

    def rpc(self, topic, payload=None, nodeid=message.NODEID_ANY):
        """Send a request, wait, return the payload of its response.

        Raises:
            OSError: it failed
        """
        return self.send(topic, payload, nodeid).get()

    def _write(self, data):
        # The broker answers while we still send: read in between, or both ends fill up and wait.
        view = memoryview(data)
        while view:
            try:
                view = view[self._sock.send(view, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                ready, _, _ = select.select([self._sock], [self._sock], [])
                if ready:
                    self._read()
            except OSError as exc:
                raise OSError(exc.errno, f"lost connection to Flux: {exc.strerror}") from None

    # -- the loop

    def poll(self, timeout=None):
        """Wait for one round of input; True if there was any."""
        ready, _, _ = select.select([self._sock, *self._fds], [], [], timeout)
        for fd in ready:
            if fd is self._sock:
                self._read()
            elif fd in self._fds:
                self._fds[fd]()
        return bool(ready)

    def _read(self):
        data = self._sock.recv(1 << 18)
        if not data:
            raise OSError(errno.ECONNRESET, "lost connection to Flux")
        for msg in self._unpacker.feed(data):
            if msg.type == message.EVENT:
                if self.on_event:
                    self.on_event(msg)
                continue
            call = self._calls.get(msg.matchtag)
            if call is None:
                continue
            if msg.errnum or not call.streaming:
                del self._calls[msg.matchtag]
            call.take(msg)

    def watch_fd(self, fd, callback):
        """Call callback when fd is readable; None ends it."""
        if callback is None:
            self._fds.pop(fd, None)
        else:
            self._fds[fd] = callback

    def timer(self, after, callback):
        """Call callback once, after so many seconds, while :meth:`run` runs."""
        self._timers.append((time.monotonic() + after, callback))
        self._timers.sort(key=lambda timer: timer[0])

    def run(self):
        """Hand out responses until :meth:`stop`."""
        self._stopped = False
        while not self._stopped:
            timeout = None
            if self._timers:
                timeout = max(0, self._timers[0][0] - time.monotonic())
            self.poll(timeout)
            while self._timers and self._timers[0][0] <= time.monotonic() and not self._stopped:
                self._timers.pop(0)[1]()

    def stop(self):
        self._stopped = True


def connect(uri=None):
    """Connect to the instance that FLUX_URI names.

    Raises:
        NoInstance: nobody answers there
    """
    uri = uri or os.environ.get("FLUX_URI") or "local:///run/flux/local"
    scheme, _, path = uri.partition("://")
    if scheme != "local" or not path:
        raise CommandError(f"FLUX_URI={uri!r}: expected local://PATH")
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)
    except FileNotFoundError as exc:
        raise NoInstance(f"broker socket {path} was not found", exc.strerror) from None
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise NoInstance(f"broker socket {path}: {reason}", reason) from None
    return Client(sock)


def rank_of(client, word):
    """The broker rank that a number or a host name stands for; None if it is neither."""
    if word.isdigit():
        return int(word)
    from flux_embedded.formats import hostlist

    hosts = hostlist.decode(client.rpc("attr.get", {"name": "hostlist"})["value"])
    return hosts.index(word) if word in hosts else None
