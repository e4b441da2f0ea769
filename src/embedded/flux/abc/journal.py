"""Reading a journal: the past of an eventlog first, then each event as it comes."""

import contextlib
import errno
import time
from abc import ABC, abstractmethod
from collections import deque

from flux.constants import FLUX_RPC_NORESPONSE, FLUX_RPC_STREAMING
from flux.eventlog import EventLogEvent

__all__ = ["JournalConsumerBase", "JournalEventBase"]


class JournalEventBase(EventLogEvent):
    """An event of a journal; without a name it is the marker between the past and new events."""

    def __init__(self, event):
        super().__init__(event)
        self.setdefault("timestamp", time.time())

    def is_empty(self):
        """True for the marker."""
        return "name" not in self

    def __str__(self):
        if self.is_empty():
            return f"{self.timestamp:.5f} End of historical data stream"
        return f"{self.timestamp:.5f} {self.name} {self.context_string}"


class JournalConsumerBase(ABC):
    """Reads a journal; a subclass knows what the responses hold.

    Args:
        flux_handle (Flux): handle
        topic (str): the request that opens the journal
        cancel_topic (str): the request that ends it
        full (bool): with the past
        since (float): leave out events up to this time, in seconds since the epoch
        include_sentinel (bool): give `SENTINEL_EVENT` after the past
    """

    SENTINEL_EVENT = JournalEventBase({})

    def __init__(
        self,
        flux_handle,
        topic,
        cancel_topic=None,
        full=True,
        since=0.0,
        include_sentinel=False,
    ):
        self.handle = flux_handle
        self.topic = topic
        self.cancel_topic = cancel_topic or f"{topic}-cancel"
        self.full = full
        self.since = since
        self.include_sentinel = include_sentinel
        self.rpc = None
        #: events that nobody has had yet; until the past is complete, all there is of it
        self.backlog = deque()
        self.processing_inactive = full
        self._callback = None

    @property
    def request_payload(self):
        """Payload of the request that opens the journal."""
        return {}

    @abstractmethod
    def process_response(self, resp):
        """Return what `create_event` needs to know of a response, a dict of its keyword arguments."""

    @abstractmethod
    def create_event(self, entry, **kwargs):
        """Return the event for one of a response's ``events``."""

    def is_empty_response(self, resp):
        """Whether a response says that the past is complete."""
        return not resp["events"]

    def start(self):
        """Open the journal, or open it again; returns self."""
        self.rpc = self.handle.rpc(self.topic, self.request_payload, 0, FLUX_RPC_STREAMING)
        self._set_then()
        return self

    def stop(self):
        """Ask for the end of the journal: `poll` returns None as the last event."""
        payload = {"matchtag": self.rpc.matchtag}
        self.handle.rpc(self.cancel_topic, payload, 0, FLUX_RPC_NORESPONSE)

    def _take(self):
        """Take the response that is there."""
        try:
            resp = self.rpc.get()
        except OSError as exc:
            if exc.errno != errno.ENODATA or self.processing_inactive:
                raise
            self.backlog.append(None)
        else:
            if self.processing_inactive and self.is_empty_response(resp):
                self.processing_inactive = False
                self.backlog = deque(sorted(self.backlog, key=lambda event: event.timestamp))
                if self.include_sentinel:
                    self.backlog.append(self.SENTINEL_EVENT)
            else:
                known = self.process_response(resp)
                events = (self.create_event(entry, **known) for entry in resp["events"])
                self.backlog.extend(event for event in events if event.timestamp > self.since)
        self.rpc.reset()

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
        while self.processing_inactive or not self.backlog:
            self.rpc.wait_for(timeout)
            self._take()
        return self.backlog.popleft()

    def set_callback(self, event_cb, *args, **kwargs):
        """Have the reactor call ``event_cb(event, *args, **kwargs)`` for each event; returns self.

        After the last one the reactor has nothing left to wait for.
        """
        self._callback = (event_cb, args, kwargs) if event_cb is not None else None
        self._set_then()
        return self

    def _set_then(self):
        if self.rpc is not None and self._callback is not None:
            with contextlib.suppress(FileExistsError):  # another callback came before
                self.rpc.then(self._arrived)

    def _arrived(self, rpc):
        try:
            self._take()
        except OSError:
            rpc.reset()  # the journal is over; as on a real Flux nobody is told
            return
        # Nor of its end: that is for `poll`.
        while self.backlog and self.backlog[0] is not None and not self.processing_inactive:
            callback, args, kwargs = self._callback
            callback(self.backlog.popleft(), *args, **kwargs)
