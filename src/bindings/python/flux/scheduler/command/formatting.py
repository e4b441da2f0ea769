# SPDX-License-Identifier: LGPL-3.0-or-later
"""Durations, times and tables as text for a terminal."""

from __future__ import annotations

import math
import shutil
import unicodedata
from collections.abc import Iterable, Sequence

from flux.scheduler.attributes import printable
from flux.scheduler.times import duration_text, iso_time


def format_duration(seconds: float | None) -> str:
    """Format a duration in at most two units: ``2h45m``.

    Rounded down, so that a job with the printed time limit fits into the duration; None and infinity
    give ``no end``.
    """
    if seconds is None or math.isinf(seconds):
        return "no end"
    return duration_text(max(0.0, seconds), 2)


def format_time(when: float | None, now: float, zone: str) -> str:
    """Format a time (seconds since the epoch) in a time zone: only the time of day if it is today,
    else date and time. None gives ``unknown``."""
    text = iso_time(when, zone)
    if text is None or when is None:
        return "unknown"
    today = iso_time(now, zone) or ""
    if text[:10] == today[:10]:
        return text[11:19]
    return text[:16].replace("T", " ")


def display_width(text: str) -> int:
    """Return the number of columns of a text on a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def format_table(
    head: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()
) -> list[str]:
    """Return the lines of a table, the header first, with two spaces between columns. None gives an
    empty cell; `right` has the names of right-aligned columns."""
    cells = [list(head)]
    cells += [[printable("" if value is None else value) for value in row] for row in rows]
    widths = [max(display_width(row[i]) for row in cells) for i in range(len(head))]
    lines = []
    for row in cells:
        parts = []
        for name, cell, width in zip(head, row, widths):
            space = " " * (width - display_width(cell))
            parts.append(space + cell if name in right else cell + space)
        lines.append("  ".join(parts).rstrip())
    return lines


def terminal_width() -> int:
    """Return the width of the terminal: COLUMNS, or that of the terminal; 80 if the output is not a
    terminal."""
    return max(20, shutil.get_terminal_size().columns)
