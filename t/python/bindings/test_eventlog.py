# SPDX-License-Identifier: LGPL-3.0-or-later
"""Event logs (RFC 18)."""

import json

import pytest

from flux.job import EventLogEvent
from flux_embedded.formats import eventlog


def test_lines_parse_alone_and_an_empty_context_is_left_out():
    text = (
        eventlog.encode(1.25, "a")
        + eventlog.encode(2, "b", {})
        + eventlog.encode(3.5, "c", {"k": "l\n\u0192"})
    )
    lines = eventlog.split(text)
    assert "".join(lines) == text
    assert [json.loads(line) for line in lines] == [
        {"timestamp": 1.25, "name": "a"},
        {"timestamp": 2, "name": "b"},
        {"timestamp": 3.5, "name": "c", "context": {"k": "l\n\u0192"}},
    ]
    assert eventlog.parse(text) == [json.loads(line) for line in lines]
    assert eventlog.parse("") == eventlog.split("") == []


def test_time_survives():
    for timestamp in (1795182984.585224, 1e-9, 1795182984.5852241, 12):
        assert eventlog.parse(eventlog.encode(timestamp, "x"))[0]["timestamp"] == timestamp


@pytest.mark.parametrize(
    "line",
    [
        "", "x", "[]", "{}", '{"timestamp":0,"name":"a"}', '{"timestamp":-1,"name":"a"}', '{"timestamp":true,"name":"a"}',
        '{"timestamp":"1","name":"a"}', '{"timestamp":1}', '{"timestamp":1,"name":2}', '{"timestamp":NaN,"name":"a"}',
        '{"timestamp":1,"name":"a","context":[]}', '{"timestamp":Infinity,"name":"a"}', "[" * 100000,
    ],
)  # fmt: skip
def test_what_is_not_an_event(line):
    with pytest.raises(ValueError):
        eventlog.parse_event(line)


def test_a_log_ends_with_a_newline():
    with pytest.raises(ValueError, match="does not end"):
        eventlog.parse('{"timestamp":1,"name":"a"}')


def test_event_of_a_job():
    event = EventLogEvent('{"timestamp":1.5,"name":"exception","context":{"severity":0}}\n')
    assert (event.timestamp, event.name, event.context) == (1.5, "exception", {"severity": 0})
    assert str(event) == "1.50000: exception {'severity': 0}"
    assert str(EventLogEvent({"timestamp": 1.0, "name": "a"})) == "1.00000: a {}"
