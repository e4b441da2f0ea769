"""An outside program's end of the socket.

`connect` gives the program a kernel of its own with one task, the program itself, and a link that
carries to the broker every request nothing here answers. Futures, watchers and the reactor are
thus the same code outside as inside.
"""

import errno
import os
import selectors
import socket

from flux_embedded.kernel import current, message
from flux_embedded.kernel.endpoint import Endpoint
from flux_embedded.kernel.handle import Flux
from flux_embedded.kernel.kernel import Kernel
from flux_embedded.kernel.message import Message
from flux_embedded.kernel.task import Task
from flux_embedded.kernel.wire import Unpacker, pack

#: Where a system instance would listen: named in the error when FLUX_URI is not set.
SYSTEM_SOCKET = "/run/flux/local"


def open_handle(url=None, flags=0):
    """Return the handle of this task, or connect to the instance that FLUX_URI names.

    Args:
        url (str): ``local://PATH``; default: the environment's FLUX_URI
        flags (int): accepted for the sake of the signature

    Raises:
        OSError: no instance answers there
    """
    inside = current.inside_handle()
    if inside is not None and url is None:
        return inside
    handle = connect(url)
    current.set_default(handle)
    return handle


def connect(url=None):
    """Open a handle on the instance at `url` (default: FLUX_URI).

    Raises:
        OSError: no instance answers there; the text names the socket
    """
    url = url or os.environ.get("FLUX_URI") or f"local://{SYSTEM_SOCKET}"
    path = url[len("local://") :] if url.startswith("local://") else None
    if path is None:
        scheme = url.partition(":")[0]
        raise OSError(
            errno.ENOENT, f"Unable to connect to Flux: Unable to find connector name '{scheme}'"
        )
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)
    except FileNotFoundError:
        raise OSError(
            errno.ENOENT, f"Unable to connect to Flux: broker socket {path} was not found"
        ) from None
    except OSError as exc:
        number = exc.errno or errno.EINVAL
        reason = exc.strerror or str(exc)
        raise OSError(
            number, f"Unable to connect to Flux: broker socket {path}: {reason}"
        ) from None
    kernel = Kernel()
    credentials = {}
    # A client may pose as somebody else, so that what guests may do can be tested.
    if "FLUX_HANDLE_USERID" in os.environ:
        credentials["userid"] = int(os.environ["FLUX_HANDLE_USERID"], 0)
    if "FLUX_HANDLE_ROLEMASK" in os.environ:
        credentials["rolemask"] = int(os.environ["FLUX_HANDLE_ROLEMASK"], 0)
    task = Task(kernel, f"client-{os.getpid()}", **credentials)
    kernel.uplink = Link(kernel, sock)
    return Flux(task)


class Link(Endpoint):
    """Takes requests to the broker and brings back what it sends."""

    def __init__(self, kernel, sock):
        super().__init__(kernel, "broker")
        self._sock = sock
        self._unpacker = Unpacker()
        self._askers = {}
        self._tag = 0
        kernel.add_fd(sock.fileno(), selectors.EVENT_READ, self._readable)

    def receive(self, msg):
        # A response is to a request the broker sent here, for a service that this program registered.
        tag = msg.matchtag if msg.type == message.RESPONSE else 0
        if msg.type == message.REQUEST and msg.matchtag and not msg.flags & message.FLAG_NORESPONSE:
            self._tag += 1
            tag = self._tag
            self._askers[tag] = msg
        try:
            self._sock.sendall(pack(msg, tag))
        except OSError:
            self._lost()

    def _readable(self, fd, events):
        try:
            data = self._sock.recv(1 << 18)
            messages = self._unpacker.feed(data) if data else []
        except (OSError, ValueError):
            data, messages = b"", []
        if not data:
            self._lost()
        for msg in messages:
            if msg.type == message.RESPONSE:
                self._answer(msg)
            else:
                msg.sender = self
                for endpoint in list(self.kernel.endpoints.values()):
                    self.kernel.send(endpoint, msg)

    def _answer(self, msg):
        asked = self._askers.get(msg.matchtag)
        if asked is None:
            return
        if msg.errnum or not asked.flags & message.FLAG_STREAMING:
            del self._askers[msg.matchtag]
        msg.matchtag = asked.matchtag
        self.kernel.send(asked.sender, msg)

    def _lost(self):
        """The instance is gone: whoever waits for it learns so."""
        kernel = self.kernel
        if kernel.uplink is not self:
            return
        kernel.remove_fd(self._sock.fileno())
        self._sock.close()
        kernel.uplink = _Gone(kernel)
        for asked in self._askers.values():
            kernel.send(
                asked.sender, asked.error_response(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            )
        self._askers.clear()


class _Gone(Endpoint):
    """In the link's place once the instance has gone."""

    def __init__(self, kernel):
        super().__init__(kernel, "broker")

    def receive(self, msg):
        self.kernel.respond(msg, Message.error_response(msg, errno.EPIPE, os.strerror(errno.EPIPE)))
