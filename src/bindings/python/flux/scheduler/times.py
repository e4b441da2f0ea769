# SPDX-License-Identifier: LGPL-3.0-or-later
"""Durations, wall-clock times and their recurrence, as users write and read them.

"Tuesdays at eight, for four hours" is a time of day in a zone: it stays eight o'clock across
changes to and from summer time. So a repetition by days or weeks keeps the wall-clock start and the
zone's name, from which each occurrence is computed. The duration is elapsed time, in seconds.

Two corner cases follow iCalendar (RFC 5545): a start skipped by the clock (02:30 in the night that
it jumps to 03:00) is interpreted with the offset before the jump, as 03:30; of a start that occurs
twice, the first counts.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ms|s|m|h|d|w)?")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_TIME_OF_DAY = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")

#: The latest valid time: the end of the year 9998, in seconds since the epoch.
LATEST = 253370764799.0

_TIME_FORMS = (
    "expected 'now', '+DURATION' (+2h), [DAY] HH:MM with a day such as 'tomorrow' or 'tuesday', "
    "or a date such as 2026-12-01T08:00"
)


def parse_duration(text: str, what: str = "duration") -> float:
    """Return the seconds of a duration such as ``90``, ``1.5h`` or ``1w``, as in RFC 23, or in
    weeks: a number with a unit, ms, s (default), m, h, d or w. Raises ValueError, naming it `what`,
    if it is not a duration, not finite, or not positive."""
    match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    seconds = float(match.group(1)) * _UNITS[match.group(2) or "s"] if match else 0.0
    if not 0 < seconds <= LATEST:
        raise ValueError(f"{what}={text!r} is invalid: expected a length of time such as 90m or 4h")
    return seconds


def seconds_of(value: object) -> float | None:
    """Return a duration of 0 or more, given in seconds or as text such as ``4h``; None if it is
    neither."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if 0 <= value <= LATEST else None
    if value in ("0", "0s"):
        return 0.0
    try:
        return parse_duration(value)  # type: ignore[arg-type]
    except ValueError:
        return None


def duration_text(seconds: float, most: int | None = None) -> str:
    """Format a duration as users do: ``1h``, ``1h30m``, ``5s``, ``0.5s``. `most`: maximum number of
    units, rounded down; None: all."""
    if most is not None and 0 < seconds < 1:
        return f"{seconds:.1f}s"
    parts: list[str] = []
    left = seconds
    for size, unit, following in ((86400, "d", 3600), (3600, "h", 60), (60, "m", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count:.0f}{unit}")
        if most is not None and parts and (len(parts) == most or left < following):
            return "".join(parts)
    if most is not None:
        left = int(left)
    return "".join(parts) + (f"{left:g}s" if left or not parts else "")


def local_zone_name() -> str:
    """Return the IANA name of this machine's time zone, or "UTC" if unknown.

    Tried in order: TZ, if it has a name; /etc/localtime, a link to a zone file; /etc/timezone.
    """
    candidates = [os.environ.get("TZ", "").lstrip(":")]
    try:
        candidates.append(os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2])
    except OSError:
        pass
    try:
        with open("/etc/timezone", encoding="ascii") as stream:
            candidates.append(stream.read().strip())
    except (OSError, ValueError):
        pass
    for name in candidates:
        try:
            zone_named(name)
        except ValueError:
            continue
        return name
    return "UTC"


def zone_named(name: str) -> tzinfo:
    """Return the time zone of an IANA name such as ``Europe/Berlin``. Raises ValueError if there is
    no such zone, or this Python has no zone files at all."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"time zone {name!r} is invalid: expected a name such as Europe/Berlin")
    try:  # imported here: it reads where Python's files are, and few schedulers need a zone
        from zoneinfo import ZoneInfo
    except ImportError:  # pragma: no cover - Python can be built without it
        text = f"time zone {name!r}: this Python was built without the module zoneinfo"
        raise ValueError(text) from None
    try:
        return ZoneInfo(name)
    except Exception:  # zoneinfo raises several types, including OSError and UnicodeError
        try:
            ZoneInfo("Europe/London")
        except Exception:
            hint = "this machine has no time zone files (package tzdata)"
        else:
            hint = "expected a name such as Europe/Berlin or UTC"
        raise ValueError(f"time zone {name!r} is not known: {hint}") from None


def iso_time(when: float | None, zone: str = "UTC") -> str | None:
    """Format a time (seconds since the epoch) as ISO 8601 with its offset; None remains None."""
    if when is None or not math.isfinite(when):
        return None
    return datetime.fromtimestamp(min(when, LATEST), zone_named(zone)).isoformat(timespec="seconds")


def parse_time(text: object, now: float, zone: str = "UTC") -> float:
    """Return the seconds since the epoch of a time as written by an administrator: ``now``;
    ``+2h``, relative to now; ``08:00``, the next such time; ``tomorrow 08:00`` or ``tuesday
    08:00``, on that day; ``2026-12-01`` or ``2026-12-01T08:00``, optionally with seconds and with
    an offset or Z; or a number. `zone`: of times without an offset. Raises ValueError if it is none
    of these, or after the year 9998."""
    when = _parse_time(text, now, zone)
    if not math.isfinite(when) or not -LATEST <= when <= LATEST:
        raise ValueError(f"start={text!r} is invalid: it lies beyond the year 9998")
    return when


def _parse_time(text: object, now: float, zone: str) -> float:
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return float(text)
    wrong = ValueError(f"start={text!r} is invalid: {_TIME_FORMS}")
    if not isinstance(text, str) or not text.strip():
        raise wrong
    word = text.strip().lower()
    if word == "now":
        return now
    if word.startswith("+"):
        try:
            return now + parse_duration(word[1:])
        except ValueError:
            raise wrong from None
    if re.fullmatch(r"@?[0-9]{9,}(\.[0-9]+)?", word):
        return float(word.lstrip("@"))
    today = datetime.fromtimestamp(now, zone_named(zone))
    *day, clock = word.split()
    time_of_day = _TIME_OF_DAY.fullmatch(clock)
    try:
        if time_of_day and len(day) <= 1 and (not day or not day[0][:1].isdigit()):
            hour, minute, second = (int(part or 0) for part in time_of_day.groups())
            start = today.replace(hour=hour, minute=minute, second=second, microsecond=0, fold=0)
            return _on_day(start, day[0] if day else None, now, wrong)
        # Python before 3.11 does not parse Z.
        start = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip()))
        if start.tzinfo is None:
            start = start.replace(tzinfo=zone_named(zone))
        return start.timestamp()
    except (ValueError, OverflowError) as exc:
        raise (exc if str(exc).startswith("time zone") else wrong) from None


def _on_day(start: datetime, day: str | None, now: float, wrong: ValueError) -> float:
    """Move `start`, a time today, to the day named `day`; None: to the next such time."""
    if day is None:
        ahead = 0 if start.timestamp() >= now else 1
    elif day == "today":
        ahead = 0
    elif day == "tomorrow":
        ahead = 1
    else:
        named = [i for i, name in enumerate(_WEEKDAYS) if len(day) >= 3 and name.startswith(day)]
        if not named:
            raise wrong
        ahead = (named[0] - start.weekday()) % 7
        if ahead == 0 and start.timestamp() < now:
            ahead = 7
    return (start + timedelta(days=ahead)).timestamp()


@dataclass(unsafe_hash=True)
class Recurrence:
    """The starts of an event that occurs once or repeatedly; immutable.

    Days and weeks are counted on the wall clock of a zone; shorter units are elapsed time. Raises
    ValueError if `every` or `zone` is invalid, or `every` is less than a minute.
    """

    start: float  # first start, seconds since the epoch
    every: str | None = None  # interval: ``"1w"``, ``"2d"``, ``"6h"``; None: it occurs once
    zone: str = "UTC"  # IANA name of the zone of the wall clock
    _seconds: float = field(default=0.0, init=False, compare=False)
    #: the first start, if days are counted
    _wall: datetime | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        zone = zone_named(self.zone)
        if self.every is None:
            return
        self._seconds = parse_duration(self.every, "every")
        if self._seconds < 60:
            raise ValueError(
                f"every={self.every!r} is invalid: expected a minute or more, such as 1w"
            )
        if self.every.strip()[-1] in "dw":
            if self._seconds % 86400:
                raise ValueError(f"every={self.every!r} is invalid: expected whole days or weeks")
            self._wall = datetime.fromtimestamp(self.start, zone)

    def begin(self, index: int) -> float:
        """Return the start of an occurrence, counted from 0; infinity after the year 9998."""
        if index == 0 or self.every is None:
            return self.start if index == 0 else math.inf
        if self._wall is None:
            return self.start + index * self._seconds
        try:
            # Adding days to an aware datetime keeps the wall clock; fold=0 is the first of two
            # equal times and, in a gap, the offset before the jump.
            later = timedelta(seconds=index * self._seconds)
            return (self._wall.replace(fold=0) + later).timestamp()
        except OverflowError:
            return math.inf

    def next_end_after(self, when: float, duration: float) -> tuple[int, float] | None:
        """Return index and start of the first occurrence that is not over at `when`, or None after
        the last.  O(1)"""
        if self.every is None:
            return (0, self.start) if self.start + duration > when else None
        # Clock changes move a start by hours at most: begin the search a little earlier.
        slack = 1 + math.ceil(172800 / self._seconds) if self._wall is not None else 1
        slack = min(slack, 4)
        index = max(0, math.floor((when - duration - self.start) / self._seconds) - slack)
        while True:
            begin = self.begin(index)
            if begin == math.inf:
                return None
            if begin + duration > when:
                return index, begin
            index += 1
