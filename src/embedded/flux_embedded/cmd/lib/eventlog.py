"""Eventlog lines (RFC 18) as text or JSON."""

import json

from flux_embedded.cmd.lib.times import Clock
from flux_embedded.formats.jsontext import encoder

compact = encoder(ensure_ascii=False)

#: how the time of an event can be shown
TIME_FORMS = ("raw", "iso", "offset", "human")


def parse(text):
    """The events of an eventlog, one JSON object a line."""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def context_text(context):
    """``key=value`` pairs; strings quoted, nested values as JSON."""
    return " ".join(f"{key}={compact(value)}" for key, value in context.items())


#: what is colored how: SGR codes of ECMA-48
_COLORS = {"time": "32", "date": "1;32", "name": "33", "exception": "1;31", "key": "34"}
_NUMBER, _VALUE = "37", "35"


class EventFormatter:
    """Formats the events of one log, in order.

    Args:
        form: ``text`` or ``json``.
        time_form: ``raw``, ``iso``, ``offset`` or ``human``.
        colored: with colors for a terminal.
        width: of the time, where it is an offset.
    """

    def __init__(self, form="text", time_form="raw", colored=False, width=0):
        self.form = form
        self.clock = Clock(time_form)
        self.colored = colored
        self.width = width

    def start(self, event):
        """Make event the one that offsets count from."""
        if self.clock.form in ("offset", "human"):
            self.clock.stamp(event["timestamp"])
        return event

    def _paint(self, code, text):
        return f"\033[{code}m{text}\033[0m" if self.colored else text

    def format(self, event):
        """The line of an event, a dict of RFC 18."""
        context = event.get("context") or {}
        if self.form == "json":
            return compact({k: v for k, v in event.items() if k != "context" or context})
        stamp, name = self.clock.stamp(event["timestamp"]), event["name"]
        dated = self.clock.form == "human" and stamp[-4] == ":"
        if self.clock.form == "offset":
            stamp = stamp.rjust(self.width)
        words = [
            self._paint(_COLORS["date" if dated else "time"], stamp),
            self._paint(_COLORS["exception" if name == "exception" else "name"], name),
        ]
        for key, value in context.items():
            code = _NUMBER if type(value) in (int, float) else _VALUE
            words.append(f"{self._paint(_COLORS['key'], key)}={self._paint(code, compact(value))}")
        return " ".join(words)
