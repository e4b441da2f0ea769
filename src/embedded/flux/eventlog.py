"""Events of eventlogs (RFC 18)."""

import json
import sys

from flux_embedded.cmd.lib.eventlog import compact
from flux_embedded.cmd.lib.times import Clock
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


#: what is colored how: SGR codes of ECMA-48
_COLORS = {"time": "32", "date": "1;32", "name": "33", "exception": "1;31", "key": "34"}
_NUMBER, _VALUE = "37", "35"


class EventLogFormatter:
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
        self._json = format == "json"
        self._clock = Clock("human" if timestamp_format == "reltime" else timestamp_format)
        self._colored = color == "always" or (color == "auto" and sys.stdout.isatty())

    def _paint(self, code, text):
        return f"\033[{code}m{text}\033[0m" if self._colored else text

    def format(self, event):
        """The line of an event, an EventLogEvent or a dict of RFC 18."""
        context = event.get("context") or {}
        if self._json:
            return compact({k: v for k, v in event.items() if k != "context" or context})
        stamp = self._clock.stamp(event["timestamp"])
        dated = self._clock.form == "human" and stamp[-4] == ":"
        if self._clock.form == "offset":
            stamp = stamp.rjust(15)
        name = event["name"]
        words = [
            self._paint(_COLORS["date" if dated else "time"], stamp),
            self._paint(_COLORS["exception" if name == "exception" else "name"], name),
        ]
        for key, value in context.items():
            code = _NUMBER if type(value) in (int, float) else _VALUE
            words.append(f"{self._paint(_COLORS['key'], key)}={self._paint(code, compact(value))}")
        return " ".join(words)
