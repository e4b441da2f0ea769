"""Reading a journal: the past of an eventlog first, then each event as it comes."""

import errno
from abc import ABC, abstractmethod
from collections import deque

from flux.constants import FLUX_RPC_NORESPONSE, FLUX_RPC_STREAMING
from flux.eventlog import EventLogEvent

__all__ = ["JournalConsumerBase", "JournalEventBase"]


class JournalEventBase(EventLogEvent):
    """An event of a journal."""

    def is_empty(self):
        """True for the marker between the past and new events."""
        return self.name == "sentinel"


class JournalConsumerBase(ABC):
    """Reads a journal; a subclass knows what the responses hold.

    Args:
        h (Flux): handle
        topic (str): the request that opens the journal
        cancel_topic (str): the request that ends it
        full (bool): with the past
        since (float): leave out events up to this time, in seconds since the epoch
        include_sentinel (bool): give an event with ``is_empty()`` true after the past
    """

    def __init__(self, h, topic, cancel_topic=None, full=True, since=0.0, include_sentinel=False):
        self.handle = h
        self.topic = topic
        self.cancel_topic = cancel_topic or f"{topic}-cancel"
        self.full = full
        self.since = since
        self.include_sentinel = include_sentinel
        self.rpc = None
        self._backlog = []  # the past, until its end is there; None then
        self._events = deque()

    @property
    def request_payload(self):
        """Payload of the request that opens the journal."""
        return None

    @abstractmethod
    def process_response(self, resp):
        """Return the events of one response (list of JournalEventBase)."""

    @abstractmethod
    def create_sentinel(self):
        """Return the event that marks the end of the past."""

    def start(self):
        """Open the journal; returns self.

        Raises:
            RuntimeError: it is open
        """
        if self.rpc is not None:
            raise RuntimeError("start() may only be called once")
        self.rpc = self.handle.rpc(self.topic, self.request_payload, flags=FLUX_RPC_STREAMING)
        return self

    def stop(self):
        """Ask for the end of the journal: `poll` returns None then, or raises TimeoutError."""
        payload = {"matchtag": self.rpc.matchtag}
        self.handle.rpc(self.cancel_topic, payload, flags=FLUX_RPC_NORESPONSE)

    def _take(self, resp):
        events = [event for event in self.process_response(resp) if event.timestamp > self.since]
        if self._backlog is None:
            self._events.extend(events)
            return
        if resp["events"]:
            if self.full:
                self._backlog.extend(events)
            return
        self._events.extend(sorted(self._backlog, key=lambda event: event.timestamp))
        self._backlog = None
        if self.include_sentinel:
            self._events.append(self.create_sentinel())

    def poll(self, timeout=-1.0):
        """Return the next event, or None when the journal has ended.

        Args:
            timeout (float): wait at most so many seconds; negative: as long as it takes

        Raises:
            RuntimeError: the journal was not opened
            TimeoutError: nothing came
        """
        if self.rpc is None:
            raise RuntimeError("poll() called before start()")
        while not self._events:
            if timeout >= 0:
                self.rpc.wait_for(timeout)
            try:
                resp = self.rpc.get()
            except OSError as exc:
                if exc.errno == errno.ENODATA:
                    return None
                raise
            self.rpc.reset()
            self._take(resp)
        return self._events.popleft()

    def set_callback(self, callback, *args, **kwargs):
        """Have the reactor call ``callback(event, *args, **kwargs)`` for each event; None at the end."""

        def arrived(rpc):
            try:
                self._take(rpc.get())
                rpc.reset()
            except OSError:
                callback(None, *args, **kwargs)
                return
            while self._events:
                callback(self._events.popleft(), *args, **kwargs)

        self.rpc.then(arrived)
