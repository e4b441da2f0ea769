# SPDX-License-Identifier: LGPL-3.0-or-later
"""How times, lengths of time and tables are written for a terminal."""

import math
import os
import re
import unicodedata
from typing import Iterable, List, Optional, Sequence

from flux.scheduler.reservations.times import iso_time

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))


def format_duration(seconds: Optional[float]) -> str:
    """A length of time in at most two units, ``2h45m``; None and infinity are ``no end``.

    It is rounded down: a limit of that length fits.
    """
    if seconds is None or math.isinf(seconds):
        return "no end"
    left = max(0.0, seconds)
    if left < 1:
        return "0s" if left == 0 else f"{left:.1f}s"
    words: List[str] = []
    for i, (size, unit) in enumerate(_UNITS):
        number = int(left // size)
        if number or words:
            if number:
                words.append(f"{number}{unit}")
            left -= number * size
            following = _UNITS[i + 1] if i + 1 < len(_UNITS) else None
            if len(words) == 2 or following is None or (words and left < following[0]):
                break
    return "".join(words)


def format_time(when: Optional[float], now: float, zone: str) -> str:
    """A point in time: the time of day if it is today, else the date as well; None is ``unknown``."""
    text = iso_time(when, zone)
    if text is None or when is None:
        return "unknown"
    today = iso_time(now, zone) or ""
    if text[:10] == today[:10]:
        return text[11:19]
    return text[:16].replace("T", " ")


def plural(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def display_width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def printable(text: object) -> str:
    """A text from outside without control characters, for a terminal."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", str(text))


def format_table(
    head: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()
) -> List[str]:
    """Lines of a table, columns two spaces apart.

    Args:
        head: the names of the columns
        rows: a value for each column; None is empty
        right: names of the columns that line up on the right
    """
    cells = [
        list(head),
        *([printable("" if v is None else v) for v in row] for row in rows),
    ]
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
    """Columns of the terminal; 80 off one, or what COLUMNS says."""
    try:
        return max(20, int(os.environ["COLUMNS"]))
    except (KeyError, ValueError):
        pass
    try:
        return max(20, os.get_terminal_size().columns)
    except OSError:
        return 80
