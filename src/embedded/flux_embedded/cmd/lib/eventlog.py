"""Eventlog lines (RFC 18) as text or JSON."""

import json

from flux_embedded.cmd.lib.times import Clock

compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def parse(text):
    """The events of an eventlog, one JSON object a line."""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def context_text(context):
    """``key=value`` pairs; strings quoted, nested values as JSON."""
    return " ".join(f"{key}={compact(value)}" for key, value in context.items())


class EventFormatter:
    """Formats the events of one log, in order.

    Args:
        form: ``text`` or ``json``.
        time_form: ``raw``, ``iso``, ``offset`` or ``human``.
    """

    def __init__(self, form="text", time_form="raw"):
        self.form = form
        self.clock = Clock(time_form)

    def start(self, event):
        """Make event the one that offsets count from."""
        if self.clock.form in ("offset", "human"):
            self.clock.stamp(event["timestamp"])
        return event

    def format(self, event):
        if self.form == "json":
            return compact(event)
        text = f"{self.clock.stamp(event['timestamp'])} {event['name']}"
        context = event.get("context")
        return f"{text} {context_text(context)}" if context else text
