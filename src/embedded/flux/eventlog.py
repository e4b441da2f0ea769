"""Events of eventlogs (RFC 18)."""

from flux_embedded.formats import eventlog as _format

__all__ = ["EventLogEvent"]


class EventLogEvent(dict):
    """One event, a dict with the keys of RFC 18.

    Args:
        event (str or dict): the line or its object
    """

    def __init__(self, event):
        super().__init__(_format.parse_event(event) if isinstance(event, str) else event)
        self.setdefault("context", {})

    @property
    def timestamp(self):
        """Seconds since the epoch."""
        return self["timestamp"]

    @property
    def name(self):
        return self["name"]

    @property
    def context(self):
        """Further data, a dict."""
        return self["context"]

    @property
    def context_string(self):
        """The context as JSON, or an empty string."""
        return _format.dumps(self.context) if self.context else ""

    def __str__(self):
        context = f" {self.context}" if self.context else ""
        return f"{self.timestamp:.5f}: {self.name}{context}"
