# SPDX-License-Identifier: LGPL-3.0-or-later
"""Event logs (RFC 18): one JSON object a line."""

import json
from json.encoder import encode_basestring_ascii as _quote

from flux_engine.formats import form
from flux_engine.formats.jsontext import dumps

_EVENT = {"timestamp": float, "name": str, "context?": dict}


def encode(timestamp, name, context=None):
    """Return one event as a line of an eventlog, newline included; an empty context is left out."""
    if context:
        return f'{{"timestamp":{timestamp!r},"name":{_quote(name)},"context":{dumps(context)}}}\n'
    return f'{{"timestamp":{timestamp!r},"name":{_quote(name)}}}\n'


def parse_event(line):
    """Return the event of one line as a dict. ValueError: it is not an event of RFC 18."""
    try:
        event = json.loads(line)
    except RecursionError:
        raise ValueError("an event is nested too deeply") from None
    form.check(event, _EVENT, "an event")
    return event


def parse(text):
    """Return the events of a whole eventlog as a list of dict. ValueError: it is not one."""
    if not text:
        return []
    if text[-1] != "\n":
        raise ValueError("eventlog: last line does not end")
    return [parse_event(line) for line in text[:-1].split("\n")]


def split(text):
    """Return the lines of an eventlog, each with its newline, unparsed."""
    return [line + "\n" for line in text.split("\n")[:-1]]
