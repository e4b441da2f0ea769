"""Endpoints, the routing of messages to them (RFC 3, 6), and the closing of an endpoint (RFC 5)."""

import errno
import os
from collections import deque

from flux_engine.kernel import message
from flux_engine.kernel.message import Message


class Endpoint:
    """Anything that sends and receives messages: a service, a module, a client of the socket.

    Attributes:
        name (str): for logs and error texts
        uuid (str): the sender identity
        userid, rolemask (int): credentials of its requests
        used (set): services it has ever addressed; each gets a disconnect notice when it goes
        unanswered (dict): requests with a matchtag it received and still owes an answer
    """

    def __init__(self, kernel, name, userid=message.OWNER, rolemask=message.OWNER_ROLES):
        self.kernel = kernel
        self.name = name
        self.uuid = f"00000000-0000-0000-0000-{next(kernel.serial):012x}"
        self.userid = userid
        self.rolemask = rolemask
        self.used = set()
        self.unanswered = {}
        self.closed = False

    def receive(self, msg):
        """Take one message; called by the hub, in the order the messages were sent."""
        raise NotImplementedError

    def respond(self, msg, obj=None):
        """Answer a request with an object, which is not copied: do not change it afterwards."""
        self.kernel.respond(msg, msg.response(None, obj), self)

    def respond_error(self, msg, errnum, text=None):
        """Answer a request with an error: a POSIX errno, and a line of text."""
        self.kernel.respond(msg, msg.error_response(errnum, text or os.strerror(errnum)), self)


class Router:
    """The services of an instance, and the queue of undelivered messages.

    Args:
        size (int): number of broker ranks of the instance, for requests that name one

    Attributes:
        ready (deque): (endpoint, message) in the order of delivery
        services (dict): name -> the endpoint that holds it
        endpoints (dict): uuid -> endpoint, of those that are tasks
        uplink (Endpoint): receiver of requests that no service here answers (an outside program's
            link to its broker), or None
    """

    def __init__(self, size=1):
        self.size = size
        self.ready = deque()
        self.services = {}
        self.endpoints = {}
        self.uplink = None

    def add_service(self, name, endpoint):
        """Register `endpoint` as the holder of service `name`. FileExistsError: another endpoint is (RFC 5)."""
        if name in self.services:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self.services[name] = endpoint

    def remove_service(self, name, endpoint):
        """Undo `add_service`. FileNotFoundError: `endpoint` does not hold `name`."""
        if self.services.get(name) is not endpoint:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        del self.services[name]

    def send(self, endpoint, msg):
        self.ready.append((endpoint, msg))

    def request(self, msg):
        """Route a request, whose sender is set, to the service its topic names (RFC 3)."""
        name = msg.topic.partition(".")[0]
        sender = msg.sender
        endpoint = self.services.get(name)
        if endpoint is None:
            if self.uplink is not None:
                # At once: a program may end after this without running its loop.
                self.uplink.receive(msg)
            else:
                self._refuse(msg, errno.ENOSYS, f"No service matching {msg.topic} is registered")
            return
        if msg.nodeid != message.NODEID_ANY:
            upstream = msg.flags & message.FLAG_UPSTREAM
            if upstream or msg.nodeid >= self.size:
                # One process plays every rank, so "the next one upstream" has no service either.
                number = errno.ENOSYS if upstream else errno.EHOSTUNREACH
                self._refuse(msg, number, os.strerror(number))
                return
        sender.used.add(name)
        # Untagged requests (RFC 27) need no answer: no future can be waiting for one.
        if msg.matchtag:
            endpoint.unanswered[id(msg)] = msg
        self.ready.append((endpoint, msg))

    def respond(self, msg, answer, responder=None):
        """Send `answer` to the sender of request `msg`."""
        if msg.flags & message.FLAG_NORESPONSE:
            return
        if responder is not None and (answer.errnum or not msg.flags & message.FLAG_STREAMING):
            responder.unanswered.pop(id(msg), None)
        if msg.sender is self.uplink:
            msg.sender.receive(answer)
        else:
            self.ready.append((msg.sender, answer))

    def _refuse(self, msg, errnum, text):
        if not msg.flags & message.FLAG_NORESPONSE:
            self.ready.append((msg.sender, msg.error_response(errnum, text)))

    def undeliverable(self, msg):
        """`msg` did not reach an endpoint that has closed: refuse it if `close` has not."""
        if msg.type == message.REQUEST and not msg.matchtag:
            self._refuse(msg, errno.ENOSYS, f"No service matching {msg.topic} is registered")

    def close(self, endpoint):
        """Close `endpoint`: notify its peers, fail the requests it has not answered."""
        if endpoint.closed:
            return
        endpoint.closed = True
        for name in [name for name, holder in self.services.items() if holder is endpoint]:
            del self.services[name]
        self.endpoints.pop(endpoint.uuid, None)
        for msg in list(endpoint.unanswered.values()):
            self._refuse(msg, errno.EHOSTUNREACH, "module disconnect")
        endpoint.unanswered.clear()
        for name in sorted(endpoint.used):
            holder = self.services.get(name)
            if holder is not None:
                notice = Message(
                    message.REQUEST, f"{name}.disconnect", flags=message.FLAG_NORESPONSE
                )
                notice.sender = endpoint
                notice.userid, notice.rolemask = endpoint.userid, endpoint.rolemask
                self.ready.append((holder, notice))
