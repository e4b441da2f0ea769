"""An outside program's end of the socket.

`connect` gives the program a kernel of its own with one task, the program itself, and a link that
carries to the broker every request that no service here answers. Futures, watchers and the
reactor are thus the same code outside as inside.
"""

import errno
import os
import socket
import sys

from flux_engine.kernel import message
from flux_engine.kernel.handle import Flux
from flux_engine.kernel.kernel import Kernel
from flux_engine.kernel.task import Task
from flux_engine.kernel.wire import Connection, pack

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
