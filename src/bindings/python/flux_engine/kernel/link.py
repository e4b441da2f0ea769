"""The instance's UNIX socket: the format of messages, and an outside program's end.

A frame is a 4 byte length in network order, then that many bytes: one line of JSON,
``[type, topic, matchtag, flags, errnum, nodeid, userid, rolemask]``, a newline, and the payload as
it is; a message without payload has no newline either. The protocol is private: both ends belong
to this project and are of one version.

`connect` gives the program a kernel of its own with one task, the program itself, and a link that
carries to the broker every request that no service here answers. Futures, watchers and the
reactor are thus the same code outside as inside.
"""

import errno
import json
import os
import selectors
import socket
import struct
import sys

from flux_engine.kernel import message
from flux_engine.kernel.handle import Flux
from flux_engine.kernel.kernel import Kernel
from flux_engine.kernel.message import Message
from flux_engine.kernel.routing import Endpoint
from flux_engine.kernel.task import Task

#: A length beyond this means that the peer does not speak this protocol.
MAX_FRAME = 1 << 30

_length = struct.Struct("!I")


def pack(msg, matchtag=None):
    """The frame of a message; `matchtag` replaces the message's own if given."""
    tag = msg.matchtag if matchtag is None else matchtag
    fields = [msg.type, msg.topic, tag, msg.flags, msg.errnum, msg.nodeid, msg.userid, msg.rolemask]
    data = json.dumps(fields, separators=(",", ":"))
    text = msg.payload_str
    if text is not None:
        data = f"{data}\n{text}"
    try:
        raw = data.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # JSON can name half a surrogate pair, UTF-8 cannot
        raw = data.encode("utf-8", "replace")
    return _length.pack(len(raw)) + raw


class Unpacker:
    """Collects bytes and yields messages.

    Raises (from `feed`):
        ValueError: the bytes are not of this protocol
    """

    def __init__(self):
        self._buffer = bytearray()

    def feed(self, data):
        """Return the list of messages that are complete with `data`."""
        buffer = self._buffer
        buffer += data
        messages = []
        start = 0
        while len(buffer) - start >= 4:
            (size,) = _length.unpack_from(buffer, start)
            if size > MAX_FRAME:
                raise ValueError(f"a frame of {size} bytes: this is not the instance's protocol")
            if len(buffer) - start - 4 < size:
                break
            messages.append(_message(bytes(buffer[start + 4 : start + 4 + size])))
            start += 4 + size
        del buffer[:start]
        return messages


def _message(raw):
    header, newline, payload = raw.partition(b"\n")
    try:
        kind, topic, tag, flags, errnum, nodeid, userid, rolemask = json.loads(header)
    except (TypeError, ValueError) as exc:
        raise ValueError(f"bad message header: {header[:80]!r}") from exc
    numbers = (kind, tag, flags, errnum, nodeid, userid, rolemask)
    if not isinstance(topic, str) or any(type(number) is not int for number in numbers):
        raise ValueError(f"bad message header: {header[:80]!r}")
    msg = Message(kind, topic, payload.decode("utf-8", "surrogateescape") if newline else None)
    msg.matchtag, msg.flags, msg.errnum = tag, flags, errnum
    msg.nodeid, msg.userid, msg.rolemask = nodeid, userid, rolemask
    return msg


class Connection(Endpoint):
    """The endpoint for the peer at the other end of a socket."""

    def __init__(self, kernel, name, sock):
        super().__init__(kernel, name)
        self.sock = sock
        self._unpacker = Unpacker()
        kernel.add_fd(sock.fileno(), selectors.EVENT_READ, self.ready)

    def ready(self, fd, events):
        """Read the bytes that have arrived; called by the loop."""
        messages = ()
        try:
            data = self.sock.recv(1 << 18)
            messages = self._unpacker.feed(data)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        except (ValueError, RecursionError) as exc:
            data = b""
            self.talks_nonsense(exc)
        for msg in messages:
            self.take(msg)
        if not data:
            self.lost()

    def talks_nonsense(self, exc):
        """Called before the peer is disconnected for a breach of this protocol."""

    def take(self, msg):
        """Take a message from the peer."""
        raise NotImplementedError

    def lost(self):
        """Called when the connection has ended."""
        raise NotImplementedError


#: The socket of a system instance: named in the error when FLUX_URI is not set.
SYSTEM_SOCKET = "/run/flux/local"


def connect(url=None):
    """Open a handle on the instance at `url` (default: FLUX_URI).

    Args:
        url (str): ``local://PATH``

    Raises:
        OSError: no instance answers there; the text names the socket
    """
    if url is None:
        url = os.environ.get("FLUX_URI") or f"local://{SYSTEM_SOCKET}"
    scheme, found, path = url.partition("://")
    if scheme != "local" or not found:
        raise OSError(errno.ENOENT, f"Unable to find connector name '{scheme}'")
    credentials = {}
    # A client may claim another user id, so that the permissions of guests can be tested.
    for name, base in (("userid", 10), ("rolemask", 0)):
        variable = f"FLUX_HANDLE_{name.upper()}"
        text = os.environ.get(variable)
        if text is None:
            continue
        try:
            credentials[name] = int(text, base)
        except ValueError:
            reason = f"{variable}={text!r} is invalid: expected a number"
            raise OSError(errno.EINVAL, reason) from None
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)
    except FileNotFoundError:
        raise OSError(errno.ENOENT, f"broker socket {path} was not found") from None
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise OSError(exc.errno or errno.EINVAL, f"broker socket {path}: {reason}") from None
    kernel = Kernel()
    task = Task(kernel, f"client-{os.getpid()}", **credentials)
    task.log_name = os.path.basename(sys.executable)
    kernel.uplink = Link(kernel, sock)
    return Flux(task)


class Link(Connection):
    """Carries requests to the broker, and its messages back."""

    def __init__(self, kernel, sock):
        super().__init__(kernel, "broker", sock)
        self._askers = {}

    def fileno(self):
        return self.sock.fileno()

    def receive(self, msg):
        if self.closed:
            if msg.type == message.REQUEST and not msg.noresponse:
                answer = msg.error_response(errno.EPIPE, os.strerror(errno.EPIPE))
                self.kernel.send(msg.sender, answer)
            return
        if msg.type == message.REQUEST and msg.matchtag and not msg.noresponse:
            self._askers[msg.matchtag] = msg
        try:
            self.sock.sendall(pack(msg))
        except OSError:
            self.lost()

    def take(self, msg):
        if msg.type == message.RESPONSE:
            self._answer(msg)
            return
        msg.sender = self
        for endpoint in list(self.kernel.endpoints.values()):
            self.kernel.send(endpoint, msg)

    def _answer(self, msg):
        asked = self._askers.get(msg.matchtag)
        if asked is None:
            return
        if msg.errnum or not asked.flags & message.FLAG_STREAMING:
            del self._askers[msg.matchtag]
        self.kernel.send(asked.sender, msg)

    def close(self):
        if not self.closed:
            self.kernel.remove_fd(self.sock.fileno())
        self.sock.close()
        self.closed = True

    def lost(self):
        """Fail the open requests: the connection to the instance is lost."""
        if self.closed:
            return
        kernel = self.kernel
        self.close()
        for asked in self._askers.values():
            kernel.send(
                asked.sender, asked.error_response(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            )
        self._askers.clear()
