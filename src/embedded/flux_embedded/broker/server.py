# SPDX-License-Identifier: LGPL-3.0-or-later
"""The socket of the instance: outside programs are endpoints of the kernel like all others."""

import contextlib
import errno
import os
import selectors
import socket
import struct
import time
from syslog import LOG_ERR

from flux_engine.kernel import message
from flux_engine.kernel.link import Connection, pack

#: A client with more unread bytes than this is disconnected.
MAX_BACKLOG = 1 << 28


class Client(Connection):
    """A program connected to the socket of a SocketServer."""

    def __init__(self, kernel, sock, server):
        super().__init__(kernel, f"client-{sock.fileno()}", sock)
        self.server = server
        self.backlog = bytearray()  # bytes not sent yet
        self._events = selectors.EVENT_READ
        # Requests to services this client holds: by the tag they went out with, or by topic.
        self.asked = {}
        self.asked_untagged = {}
        self._tag = 0
        sock.setblocking(False)
        kernel.endpoints[self.uuid] = self

    # -- to the client -------------------------------------------------------------------------

    def receive(self, msg):
        tag = msg.matchtag
        if msg.type == message.REQUEST and not msg.noresponse:
            if tag:
                # The tags of different senders may be equal.
                tag = self._tag = self._tag + 1
                self.asked[tag] = msg
            else:
                self.asked_untagged[msg.topic] = msg
        try:
            frame = pack(msg, tag)
        except (TypeError, ValueError) as exc:
            # A sender inside may pass any object; one that JSON cannot represent fails this message only.
            self.server.ctx.log(LOG_ERR, f"{msg.topic}: the payload cannot be sent: {exc}")
            if msg.type != message.RESPONSE:
                return
            frame = pack(
                msg.error_response(errno.EIO, f"{msg.topic}: the payload cannot be sent: {exc}"),
                tag,
            )
        self.backlog += frame
        if len(self.backlog) == len(frame):
            self.flush()
        if len(self.backlog) > MAX_BACKLOG and not self.closed:
            text = f"{self.name} does not read its responses: disconnected"
            self.server.ctx.log(LOG_ERR, text)
            self.lost()

    def flush(self):
        """Send as many bytes as the client accepts now."""
        try:
            del self.backlog[: self.sock.send(self.backlog)]
        except BlockingIOError:
            pass
        except OSError:
            self.lost()
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.backlog else 0)
        if events != self._events:
            self._events = events
            self.kernel.modify_fd(self.sock.fileno(), events, self.ready)

    # -- from the client -----------------------------------------------------------------------

    def ready(self, fd, events):
        if events & selectors.EVENT_WRITE:
            self.flush()
        if events & selectors.EVENT_READ and not self.closed:
            super().ready(fd, events)

    def talks_nonsense(self, exc):
        self.server.ctx.log(LOG_ERR, f"{self.name}: {exc}: disconnected")

    def take(self, msg):
        """Check a message from the client and route it."""
        if msg.type == message.RESPONSE and self._answer(msg):
            return
        if msg.type != message.REQUEST:
            self.server.ctx.log(
                LOG_ERR,
                f"{self.name}: sent a message of type {msg.type}, only requests are taken: ignored",
            )
            return
        msg.sender = self
        self.kernel.request(msg)

    def _answer(self, msg):
        """Take a response of a service this client holds; returns whether it was requested."""
        waiting = self.asked if msg.matchtag else self.asked_untagged
        key = msg.matchtag or msg.topic
        request = waiting.get(key)
        if request is None:
            return False
        if msg.matchtag and (msg.errnum or not request.flags & message.FLAG_STREAMING):
            del waiting[key]
        msg.matchtag = request.matchtag
        if not msg.errnum and not msg.has_object:
            msg = request.error_response(
                errno.EPROTO, f"{msg.topic}: the answer is not a JSON object"
            )
        self.kernel.respond(request, msg, self)
        return True

    def lost(self):
        """Close the connection, and notify the services that it used."""
        if self.closed:
            return
        self.kernel.remove_fd(self.sock.fileno())
        self.sock.close()
        self.server.clients.discard(self)
        self.kernel.close(self)


class SocketServer:
    """Listens on a UNIX socket at `path`, of about 100 bytes at most, for programs of the instance owner; `clients` are connected."""

    def __init__(self, ctx, path):
        self.ctx = ctx
        self.path = path
        self.clients = set()
        self.sock = socket.socket(socket.AF_UNIX)
        mask = os.umask(0o177)
        try:
            self.sock.bind(path)
        except OSError as exc:
            self.sock.close()
            hint = (
                "is TMPDIR too long?"
                if exc.errno is None
                else "does an instance run there, or did one end badly?"
            )
            raise OSError(exc.errno, f"{path}: {exc.strerror or exc}: {hint}") from None
        finally:
            os.umask(mask)
        self.sock.listen(128)
        self.sock.setblocking(False)
        ctx.kernel.add_fd(self.sock.fileno(), selectors.EVENT_READ, self._accept)

    def _accept(self, fd, events):
        while True:
            try:
                sock, _ = self.sock.accept()
            except BlockingIOError:
                return
            except OSError as exc:
                self.ctx.log(LOG_ERR, f"accept: {exc.strerror}")
                return
            if peer_uid(sock) != message.OWNER:
                # The directory's mode keeps other users out already; this is a second check.
                self.ctx.log(LOG_ERR, f"refused a connection of user {peer_uid(sock)}")
                sock.close()
                continue
            self.clients.add(Client(self.ctx.kernel, sock, self))

    def drain(self, seconds):
        """Wait at most `seconds` (of real time) until clients have read all messages sent to them."""
        until = time.monotonic() + seconds
        while any(client.backlog for client in self.clients) and time.monotonic() < until:
            for client in list(self.clients):
                if client.backlog:
                    client.flush()
            time.sleep(0.01)

    def close(self):
        """Stop listening, disconnect the clients, remove the socket."""
        self.ctx.kernel.remove_fd(self.sock.fileno())
        self.sock.close()
        for client in list(self.clients):
            client.lost()
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def peer_uid(sock):
    """Return the user id of the process at the other end of a UNIX socket."""
    return struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
