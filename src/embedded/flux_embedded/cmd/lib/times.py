"""Durations and dates as the commands print them."""

import time

from flux_embedded.formats.fsd import encode as fsd  # noqa: F401  (for the commands)


def fsd_exact(seconds):
    """A duration in Flux Standard Duration with six digits, as the C commands print it."""
    if seconds == float("inf"):
        return "infinity"
    if seconds < 1:
        return f"{seconds * 1000:g}ms" if seconds else "0s"
    for size, divisor, unit in ((60, 1, "s"), (3600, 60, "m"), (86400, 3600, "h")):
        if seconds < size:
            return f"{seconds / divisor:g}{unit}"
    return f"{seconds / 86400:g}d"


def hms(seconds):
    """``H:MM:SS``, with days in front where there are any."""
    minutes, secs = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{hours}:{minutes:02}:{secs:02}"
    if days:
        text = f"{days} day{'s' if days > 1 else ''}, {text}"
    return text


def iso_utc(timestamp):
    """``2026-11-20T14:19:31.330628Z``; microseconds are cut, not rounded."""
    whole = int(timestamp)
    micro = int((timestamp - whole) * 1e6)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{micro:06}Z"


def short_date(timestamp):
    """``Nov20 14:19`` in local time."""
    return time.strftime("%b%d %H:%M", time.localtime(timestamp))


class Clock:
    """Timestamps of successive log lines, in one of the formats raw, iso, offset, human.

    ``offset`` counts from the first line. ``human`` prints the date when the minute changes and
    the time since the line that had the date otherwise.
    """

    def __init__(self, form="raw"):
        self.form = form
        self.zero = None
        self.minute = None

    def stamp(self, timestamp):
        if self.form == "raw":
            return f"{timestamp:.6f}"
        if self.form == "iso":
            return iso_utc(timestamp)
        if self.zero is None:
            self.zero = timestamp
        if self.form == "offset":
            return f"{timestamp - self.zero:.6f}"
        minute = int(timestamp // 60)
        if minute != self.minute:
            self.minute = minute
            self.zero = timestamp
            return f"[{short_date(timestamp)}]"
        return f"[{timestamp - self.zero:+11.6f}]"
