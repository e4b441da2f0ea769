"""The resource eventlog as it grows (RFC 44)."""

from collections import deque

from flux.constants import FLUX_RPC_NORESPONSE, FLUX_RPC_STREAMING

__all__ = ["ResourceEvent", "ResourceJournalConsumer"]


class ResourceEvent(dict):
    """One event, a dict with the keys of RFC 18.

    Attributes:
        R (dict): with ``resource-define``, the inventory, else None
    """

    def __init__(self, event, R=None):
        super().__init__(event)
        self.setdefault("context", {})
        self.R = R

    @property
    def timestamp(self):
        """Seconds since the epoch."""
        return self["timestamp"]

    @property
    def name(self):
        return self["name"]

    @property
    def context(self):
        return self["context"]

    def is_empty(self):
        """True for the marker between history and new events."""
        return self["name"] == "sentinel"


class ResourceJournalConsumer:
    """Reads the resource journal: its history first, then each event as it comes.

    Args:
        h (Flux): handle
        since (float): leave out events up to this time
        include_sentinel (bool): give an event with ``is_empty()`` true after the history
    """

    def __init__(self, h, since=0.0, include_sentinel=False):
        self._handle = h
        self._since = since
        self._sentinel = include_sentinel
        self._rpc = None
        self._events = deque()

    def start(self):
        """Begin; returns self."""
        if self._rpc is not None:
            raise RuntimeError("the journal consumer was started before")
        self._rpc = self._handle.rpc("resource.journal", flags=FLUX_RPC_STREAMING)
        return self

    def _take(self, payload):
        if not payload["events"] and self._sentinel:
            self._events.append(ResourceEvent({"timestamp": 0.0, "name": "sentinel"}))
        for event in payload["events"]:
            if event["timestamp"] > self._since:
                R = payload.get("R") if event["name"] == "resource-define" else None
                self._events.append(ResourceEvent(event, R))

    def poll(self, timeout=-1.0):
        """Return the next event, a ResourceEvent.

        Args:
            timeout (float): wait at most so many seconds; negative: as long as it takes

        Raises:
            TimeoutError: nothing came
            OSError: the journal ended (ENODATA)
        """
        if self._rpc is None:
            raise RuntimeError("the journal consumer was not started")
        while not self._events:
            if timeout >= 0:
                self._rpc.wait_for(timeout)
            payload = self._rpc.get()
            self._rpc.reset()
            self._take(payload)
        return self._events.popleft()

    def set_callback(self, callback, *args, **kwargs):
        """Have ``callback(event, *args, **kwargs)`` called by the reactor for each event; None at the end."""

        def arrived(rpc):
            try:
                self._take(rpc.get())
                rpc.reset()
            except OSError:
                callback(None, *args, **kwargs)
                return
            while self._events:
                callback(self._events.popleft(), *args, **kwargs)

        self._rpc.then(arrived)

    def stop(self):
        """Ask the service to end the journal."""
        payload = {"matchtag": self._rpc.matchtag}
        self._handle.rpc("resource.journal-cancel", payload, flags=FLUX_RPC_NORESPONSE)
