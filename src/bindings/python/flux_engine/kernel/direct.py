"""A reactor whose services answer at once, and the base of such services.

In an instance each service is a task of its own, and a message waits for its turn. Here a request to a service is a function
call. A scheduler sees the same handle, messages and timers.
"""

import errno

from flux_engine.kernel import message
from flux_engine.kernel.reactor import Reactor
from flux_engine.kernel.routing import Endpoint


class DirectReactor(Reactor):
    """Hands each message to its receiver when it is sent; arguments as for `Reactor`."""

    def request(self, msg):
        name = msg.topic.partition(".")[0]
        if name in self.services:
            self.services[name].receive(msg)
        else:
            text = f"No service matching {msg.topic} is registered"
            self.respond(msg, msg.error_response(errno.ENOSYS, text))

    def respond(self, msg, answer, responder=None):
        if not msg.flags & message.FLAG_NORESPONSE:
            msg.sender.receive(answer)

    def sleeper(self):
        """Return None: a waiting caller polls for its answer."""

    def resume(self, sleeper):
        """Nothing to resume: no caller sleeps."""

    def switch_to_hub(self):
        """A caller waits for an answer: do one thing elsewhere, and advance the time if needed."""
        raise NotImplementedError


class Peer(Endpoint):
    """A service that answers each request at once.

    Attributes:
        methods (dict): the part of a topic after the name and the dot -> function of the message. It answers, or raises
            OSError, which becomes the answer
    """

    name = ""

    def __init__(self, kernel):
        super().__init__(kernel, self.name)
        self.methods = {}
        kernel.add_service(self.name, self)

    def receive(self, msg):
        if msg.type != message.REQUEST:
            self.answered(msg)
            return
        method = self.methods.get(msg.topic.partition(".")[2])
        if method is None:
            self.respond_error(msg, errno.ENOSYS, f"Unknown service method '{msg.topic}'")
            return
        try:
            method(msg)
        except OSError as exc:
            self.respond_error(msg, exc.errno or errno.EINVAL, exc.strerror)

    def serve(self, functions):
        """Answer methods by functions (a dict): each takes the payload of a request, None for none, and returns that of
        the response."""
        self.methods.update({method: self._serving(one) for method, one in functions.items()})

    def _serving(self, function):
        return lambda msg: self.respond(msg, function(msg.payload if msg.has_payload else None))

    def answered(self, msg):
        """Called with each response."""

    def send_message(self, msg):
        msg.sender = self
        self.kernel.request(msg)


class Names(Peer):
    """``service``: the service of each name.

    Attributes:
        taken (tuple): names of services held by others
    """

    name = "service"

    def __init__(self, kernel):
        super().__init__(kernel)
        self.taken = ()
        self.methods = {"add": self._add, "remove": self._remove}

    def _add(self, msg):
        name = msg.body["service"]
        if name in self.taken or name in self.kernel.services:
            raise OSError(errno.EEXIST, f"could not register service {name}: File exists")
        self.kernel.add_service(name, msg.sender)
        self.respond(msg)

    def _remove(self, msg):
        self.kernel.remove_service(msg.body["service"], msg.sender)
        self.respond(msg)
