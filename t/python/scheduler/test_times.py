# SPDX-License-Identifier: LGPL-3.0-or-later
"""Durations, wall-clock times and their recurrence."""

import math
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux.scheduler.times import (
    Recurrence,
    iso_time,
    local_zone_name,
    parse_duration,
    parse_time,
    zone_named,
)

BERLIN = "Europe/Berlin"


def at(text):
    return datetime.fromisoformat(text).timestamp()


#: a Wednesday
NOW = at("2026-11-25T12:00:00+01:00")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("now", NOW),
        ("+2h", NOW + 7200),
        ("+1w", NOW + 7 * 86400),
        ("1795184365", 1795184365),
        ("@1795184365.5", 1795184365.5),
        (1795184365, 1795184365),
        ("2026-12-01T08:00", at("2026-12-01T08:00:00+01:00")),
        ("2026-12-01 08:00:30", at("2026-12-01T08:00:30+01:00")),
        ("2026-07-01T08:00", at("2026-07-01T08:00:00+02:00")),
        ("2026-12-01T08:00Z", at("2026-12-01T08:00:00+00:00")),
        ("2026-12-01T08:00-05:00", at("2026-12-01T08:00:00-05:00")),
        ("2026-12-01", at("2026-12-01T00:00:00+01:00")),
        ("13:00", at("2026-11-25T13:00:00+01:00")),
        ("8:30", at("2026-11-26T08:30:00+01:00")),
        ("today 08:00", at("2026-11-25T08:00:00+01:00")),
        ("tomorrow 08:00", at("2026-11-26T08:00:00+01:00")),
        ("Tuesday 08:00", at("2026-12-01T08:00:00+01:00")),
        ("tue 08:00", at("2026-12-01T08:00:00+01:00")),
        ("wed 11:00", at("2026-12-02T11:00:00+01:00")),
        ("wed 13:00", at("2026-11-25T13:00:00+01:00")),
    ],
)
def test_valid_times(text, expected):
    assert parse_time(text, NOW, BERLIN) == expected


@pytest.mark.parametrize(
    "text",
    ["", "soon", "+", "+x", "25:00", "2026-13-01", "2026-02-30T08:00", "tu 08:00", "3 08:00"]
    + [None, True, [], math.nan, math.inf, "1e400", "99999999999999", "+99999999w", "08:00 tue"],
)
def test_invalid_times_are_named(text):
    with pytest.raises(ValueError, match="start=.* is invalid: "):
        parse_time(text, NOW, BERLIN)


@pytest.mark.parametrize("text", ["", "0", "-1h", "1x", "h", "1h30m", "nan", "inf", None, 3])
def test_lengths_of_time_that_are_none(text):
    with pytest.raises(ValueError, match="duration=.* is invalid: expected a length of time"):
        parse_duration(text)


def test_zones():
    with pytest.raises(ValueError, match="'Mars/Olympus' is not known: expected a name"):
        zone_named("Mars/Olympus")
    for name in ("", "../etc/passwd", "/etc/localtime", "a\0b", None, 3):
        with pytest.raises(ValueError, match="time zone"):
            zone_named(name)
    zone_named(local_zone_name())


def test_local_zone_is_that_of_TZ(monkeypatch):
    monkeypatch.setenv("TZ", BERLIN)
    assert local_zone_name() == BERLIN
    monkeypatch.setenv("TZ", "CET-1CEST")
    assert local_zone_name() != "CET-1CEST"


def test_text_of_a_time():
    assert iso_time(NOW, BERLIN) == "2026-11-25T12:00:00+01:00"
    assert iso_time(None) is None
    assert iso_time(math.inf) is None


@pytest.mark.parametrize(
    "every, start, following",
    [
        # Summer time ends on 25 October.
        ("1w", "2026-10-20T08:00:00+02:00", ["2026-10-27T08:00:00+01:00"]),
        ("12h", "2026-10-24T20:00:00+02:00", ["2026-10-25T07:00:00+01:00"]),
        # A start that comes twice is the first; one that the clock skips is an hour later.
        ("1d", "2026-10-24T02:30:00+02:00", ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
        ("1d", "2027-03-27T02:30:00+01:00", ["2027-03-28T03:30:00+02:00", "2027-03-29T02:30:00+02:00"]),
    ],
)  # fmt: skip
def test_days_and_weeks_go_by_the_clock_on_the_wall_and_hours_do_not(every, start, following):
    found = Recurrence(at(start), every, BERLIN)
    for number, text in enumerate(following, 1):
        assert iso_time(found.begin(number), BERLIN) == text


@pytest.mark.parametrize("every", ["1.5d", "30s", "x", "0", ""])
def test_repetitions_that_make_no_sense(every):
    with pytest.raises(ValueError, match="every="):
        Recurrence(NOW, every, BERLIN)


@given(
    every=st.sampled_from([None, "1h", "90m", "1d", "2d", "1w", "4w"]),
    duration=st.floats(60, 86400 * 3),
    days=st.integers(-10, 2000),
    seconds=st.integers(0, 86399),
)
def test_the_next_window_is_the_first_that_is_not_over(every, duration, days, seconds):
    """Against trying all indexes from the first one on."""
    recurrence = Recurrence(NOW, every, BERLIN)
    when = NOW + days * 86400 + seconds
    found = recurrence.next_end_after(when, duration)
    if found is None:
        assert every is None and NOW + duration <= when
        return
    index, begin = found
    assert begin == recurrence.begin(index)
    assert begin + duration > when
    assert index == 0 or recurrence.begin(index - 1) + duration <= when


def test_there_is_an_end_of_time():
    weekly = Recurrence(NOW, "1w", BERLIN)
    assert weekly.begin(10**6) == math.inf
    assert weekly.next_end_after(datetime(9999, 1, 1, tzinfo=timezone.utc).timestamp(), 60)
