"""Events of eventlogs (RFC 18)."""

import json
import sys

from flux_embedded.cmd.lib.eventlog import EventFormatter
from flux_embedded.formats.jsontext import loads

__all__ = ["EventLogEvent", "EventLogFormatter"]


class EventLogEvent(dict):
    """One event, a dict with the keys of RFC 18.

    Args:
        event (str or dict): the line or its object
    """

    def __init__(self, event):
        super().__init__(loads(event) if isinstance(event, str) else event)
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
        if not self.context:
            return ""
        return json.dumps(self.context, ensure_ascii=False, separators=(",", ":"), sort_keys=True)

    def __str__(self):
        return f"{self.timestamp:.5f}: {self.name} {self.context}"


class EventLogFormatter(EventFormatter):
    """Formats the events of one log, in order, as ``flux job eventlog`` does.

    Args:
        format (str): ``text`` or ``json``
        timestamp_format (str): ``raw``, ``iso``, ``offset``, ``human`` (also ``reltime``)
        color (str): ``always``, ``never``, or ``auto``: if standard output is a terminal

    Raises:
        ValueError: another value
    """

    def __init__(self, format="text", timestamp_format="raw", color="auto"):
        if format not in ("text", "json"):
            raise ValueError(f"Invalid entry_fmt: {format}")
        if timestamp_format not in ("raw", "iso", "offset", "human", "reltime"):
            raise ValueError(f"Invalid timestamp_fmt: {timestamp_format}")
        if color not in ("always", "never", "auto"):
            raise ValueError(f"Invalid color: {color}")
        colored = color == "always" or (color == "auto" and sys.stdout.isatty())
        times = "human" if timestamp_format == "reltime" else timestamp_format
        super().__init__(format, times, colored, width=15)
