# SPDX-License-Identifier: LGPL-3.0-or-later
"""Eventlog lines (RFC 18) as text or JSON, and the times of log lines."""

import time

from flux_engine.formats.jsontext import encoder

compact = encoder(ensure_ascii=False)

#: how the time of a line can be shown
TIME_FORMS = ("raw", "iso", "offset", "human")


class Clock:
    """Timestamps of successive lines in one of `TIME_FORMS`.

    ``offset`` counts from the first line. ``human`` is the date when the minute changes, and otherwise the time since
    the line that had the date.
    """

    def __init__(self, form="raw"):
        self.form = form
        self._zero = None
        self._minute = None

    def stamp(self, timestamp):
        """The time of the next line, seconds since the epoch, as text."""
        if self.form == "raw":
            return f"{timestamp:.6f}"
        if self.form == "iso":
            whole = int(timestamp)
            # Microseconds are cut, not rounded.
            micro = int((timestamp - whole) * 1e6)
            return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{micro:06}Z"
        if self._zero is None:
            self._zero = timestamp
        if self.form == "offset":
            return f"{timestamp - self._zero:.6f}"
        minute = int(timestamp // 60)
        if minute != self._minute:
            self._minute, self._zero = minute, timestamp
            return time.strftime("[%b%d %H:%M]", time.localtime(timestamp))
        return f"[{timestamp - self._zero:+11.6f}]"


class EventFormatter:
    """Formats the events of one log, in order.

    Args:
        form: ``text`` or ``json``
        time_form: one of `TIME_FORMS`
    """

    def __init__(self, form="text", time_form="raw"):
        self.form = form
        self.clock = Clock(time_form)

    def start(self, event):
        """Make event the one that offsets count from."""
        if self.clock.form in ("offset", "human"):
            self.clock.stamp(event["timestamp"])

    def format(self, event):
        """The line of an event, a dict of RFC 18."""
        context = event.get("context") or {}
        if self.form == "json":
            return compact({k: v for k, v in event.items() if k != "context" or context})
        words = [self.clock.stamp(event["timestamp"]), event["name"]]
        return " ".join(words + [f"{key}={compact(value)}" for key, value in context.items()])
