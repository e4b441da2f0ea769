"""The format of messages on the instance's UNIX socket.

A frame is a 4 byte length in network order, then that many bytes: one line of JSON,
``[type, topic, matchtag, flags, errnum, nodeid, userid, rolemask]``, a newline, and the payload as
it is; a message without payload has no newline either. The protocol is private: both ends belong
to this project and are of one version.
"""

import json
import selectors
import struct

from flux_engine.kernel.message import Message
from flux_engine.kernel.routing import Endpoint

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
