"""A listener: an endpoint with watchers and futures, whose code handles one item at a time."""

import errno
import fnmatch
import sys
from collections import deque

from flux_engine.kernel import message
from flux_engine.kernel.defaults import METHODS
from flux_engine.kernel.message import Message
from flux_engine.kernel.routing import Endpoint

GUEST_REFUSED = "Request requires owner credentials"

#: Maximum number of topics whose watchers are remembered.
MAX_TOPICS = 1000


class Listener(Endpoint):
    """An endpoint with watchers and futures.

    Args:
        kernel (Reactor): the kernel it belongs to
        name (str): module or service name

    Attributes:
        last_message (float): time of the latest message it received
        log_name (str): its name in the log
        inbox (deque): unhandled items: messages, and functions to call
        callbacks (int): futures whose callback is outstanding
        matching (dict): (type, topic) of messages received -> the watchers for it, the newest first
    """

    def __init__(self, kernel, name, **credentials):
        super().__init__(kernel, name, **credentials)
        self.log_name = name
        self.inbox = deque()
        self.futures = {}
        self.watchers = set()
        self.callbacks = 0
        self.aux = {}
        self.last_message = kernel.time
        self.matching = {}
        self._message_watchers = []
        kernel.endpoints[self.uuid] = self

    def close(self):
        """Leave the instance: watchers stop, peers are told, pending requests fail."""
        for watcher in list(self.watchers):
            watcher.stop()
        self.futures.clear()
        self.kernel.close(self)
        for item in self.inbox:
            if isinstance(item, Message):
                self.kernel.undeliverable(item)
        self.inbox.clear()

    # -- receiving -----------------------------------------------------------------------------

    def receive(self, msg):
        self.last_message = self.kernel.time
        if msg.type == message.RESPONSE and msg.matchtag:
            future = self.futures.get(msg.matchtag)
            if future is not None:
                future.arrive(msg)
            return
        self.post(msg)

    def post(self, item):
        """Queue `item` to be handled: a message, or a function to call."""
        self.inbox.append(item)

    def interrupt(self, function, *args):
        """Queue a call of a function: a watcher is due."""
        self.post(lambda: function(*args))

    def dispatch(self, item):
        """Handle one item from the inbox."""
        if not isinstance(item, Message):
            self.guard(item)
        elif item.type == message.REQUEST:
            self._dispatch_request(item)
        else:
            for watcher in self._matching(item):
                self.guard(watcher.call, item)
                if item.type == message.RESPONSE:
                    break

    def guard(self, function, *args):
        """Call a callback; like the C reactor, let nothing but ordinary exceptions out."""
        try:
            function(*args)
        except SystemExit as exc:  # it cannot end the process, as with the real bindings
            print(f"{self.name}: SystemExit {exc.code} in a callback ignored", file=sys.stderr)

    def _dispatch_request(self, msg):
        watchers = self._matching(msg)
        if not watchers:
            self._dispatch_default(msg)
        elif not watchers[0].allows(msg):
            self.respond_error(msg, errno.EPERM, GUEST_REFUSED)
        else:
            self.guard(watchers[0].call, msg)

    def _dispatch_default(self, msg):
        """Answer a request that any module answers, or refuse an unknown one."""
        service, _, method = msg.topic.partition(".")
        if service != self.name or method not in METHODS:
            self.respond_error(msg, errno.ENOSYS, f"Unknown service method '{msg.topic}'")
            return
        function, guest = METHODS[method]
        if not guest and msg.is_guest:
            self.respond_error(msg, errno.EPERM, GUEST_REFUSED)
            return
        try:
            answer = function(self, msg)
        except OSError as exc:
            self.respond_error(msg, exc.errno, exc.strerror)
        else:
            self.respond(msg, answer)

    # -- message watchers, the newest first ------------------------------------------------------

    def add_message_watcher(self, watcher):
        self._message_watchers.insert(0, watcher)
        self.matching.clear()

    def remove_message_watcher(self, watcher):
        self._message_watchers.remove(watcher)
        self.matching.clear()

    def _matching(self, msg):
        key = msg.type, msg.topic
        found = self.matching.get(key)
        if found is None:
            if len(self.matching) > MAX_TOPICS:
                self.matching.clear()
            found = self.matching[key] = [
                watcher
                for watcher in self._message_watchers
                if watcher.type_mask & msg.type
                and fnmatch.fnmatchcase(msg.topic, watcher.topic_glob)
            ]
        return found
