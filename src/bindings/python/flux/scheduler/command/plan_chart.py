# SPDX-License-Identifier: LGPL-3.0-or-later
"""A scheduler's plan as a chart: time from left to right, ranks from top to bottom.

`Chart` draws an answer of the service ``sched.plan`` as text for a terminal, or as an SVG picture.
Ranks with the same bars share a row. A promise or reservation of a number of nodes whose ranks are
not chosen yet has its own row at the bottom.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from html import escape
from typing import Any, NamedTuple

from flux.idset import IDset
from flux.scheduler.times import zone_named

#: Characters for jobs in the text, assigned in order of starts.
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

#: Other characters in the text, for cells: free, reserved, down, with several jobs; and for the end of
#: a job beyond the horizon.
FREE, RESERVED, DOWN, MANY, BEYOND = ".", "#", "x", "*", ">"

#: Possible steps of the time axis, seconds.
_TICK_SECONDS = (60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)

#: Kind of bar -> its colour in a picture, and the colour of its text.
_COLOURS_OF_KINDS = {
    "running": ("#3b76b5", "#ffffff"),
    "promised": ("#e3a13b", "#1d1d1d"),
    "reserved": ("#8b5fa8", "#ffffff"),
    "down": ("#8a8a8a", "#ffffff"),
}


class Bar(NamedTuple):
    """An occupation of ranks for some time.

    Attributes:
        start, end (float): seconds since the epoch; infinity for an unknown end
    """

    kind: str  # ``running``, ``promised``, ``reserved`` or ``down``
    label: str  # the name of the job or reservation
    start: float
    end: float
    nodes: int  # number of ranks


class Row(NamedTuple):
    """Ranks with the same bars, or a bar whose ranks are not chosen yet."""

    name: str  # the ranks, an idset; ``any N`` if not chosen
    bars: tuple[Bar, ...]  # of `Bar`


class Chart:
    """Running jobs, promises and reservations by ranks, from now to a horizon.

    Args:
        plan (dict): the answer of ``sched.plan``: ``now``, ``until`` (seconds since the epoch),
            ``ranks`` (idset), ``down`` (idset), and the lists ``running``, ``promised`` and
            ``reserved`` of objects with ``name``, ``start``, ``end`` (None: unknown), ``nodes``,
            and ``ranks`` (None: not chosen yet)
        zone (str): IANA name of the time zone for printed times
    """

    def __init__(self, plan: dict[str, Any], zone: str = "UTC") -> None:
        self.now = float(plan["now"])
        self.until = max(float(plan["until"]), self.now + 60)
        self.zone = zone_named(zone)
        self._letters: dict[str, str] = {}
        self.rows = list(self._rows(plan))

    def _rows(self, plan: dict[str, Any]) -> Iterable[Row]:
        by_rank: dict[int, list[Bar]] = {rank: [] for rank in IDset(plan["ranks"])}
        floating = []
        found = []
        for kind in ("running", "promised", "reserved"):
            for entry in plan.get(kind, ()):
                end = float("inf") if entry["end"] is None else float(entry["end"])
                start = max(self.now, float(entry["start"]))
                if start < self.until and end > self.now:
                    bar = Bar(kind, entry["name"], start, end, entry.get("nodes") or 0)
                    found.append((bar, entry.get("ranks")))
        found.sort(key=lambda one: (one[0].start, one[0].label))
        for bar, ranks in found:
            if bar.kind != "reserved":
                self._letter(bar.label)
            if ranks is None:
                floating.append(bar)
                continue
            for rank in IDset(ranks):
                if rank in by_rank:
                    by_rank[rank].append(bar)
        down = Bar("down", "down", self.now, float("inf"), 0)
        for rank in IDset(plan.get("down") or ""):
            if rank in by_rank:
                by_rank[rank].insert(0, down)
        alike: dict[tuple[Bar, ...], IDset] = {}
        for rank, bars in by_rank.items():
            alike.setdefault(tuple(bars), IDset()).set(rank)
        for same, together in sorted(alike.items(), key=lambda one: one[1].first()):
            yield Row(together.encode(), same)
        for bar in floating:
            yield Row(f"any {bar.nodes}", (bar,))

    def _letter(self, label: str) -> str:
        if label not in self._letters:
            index = len(self._letters)
            self._letters[label] = LETTERS[index] if index < len(LETTERS) else MANY
        return self._letters[label]

    # -- text --------------------------------------------------------------------------------------

    def text(self, width: int = 80) -> str:
        """Draw the chart as text of at most `width` columns.

        Each column is a time span. A bar covers the columns of its start and its end, so none is
        too short to be visible.
        """
        names = max([len(row.name) for row in self.rows] + [5])
        names = min(names, max(5, width // 3))
        columns = max(10, width - names - 2)
        lines = [" " * (names + 1) + line for line in self._axis(columns)]
        for row in self.rows:
            name = row.name if len(row.name) <= names else row.name[: names - 1] + "+"
            lines.append(f"{name:>{names}} {self._line(row, columns)}")
        lines.append("")
        lines += self._legend(width)
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def _column(self, when: float, columns: int) -> float:
        return (when - self.now) / (self.until - self.now) * columns

    def _line(self, row: Row, columns: int) -> str:
        cells = [FREE] * columns
        for bar in row.bars:
            first = max(0, int(self._column(bar.start, columns)))
            last = columns
            if bar.end < self.until:
                last = max(first + 1, -int(-self._column(bar.end, columns) // 1))
            mark = self._mark(bar)
            for column in range(first, min(last, columns)):
                cell = cells[column]
                cells[column] = mark if cell in (FREE, mark, RESERVED) else MANY
            if bar.end > self.until and bar.kind in ("running", "promised"):
                cells[-1] = BEYOND
        return "".join(cells)

    def _mark(self, bar: Bar) -> str:
        return {"down": DOWN, "reserved": RESERVED}.get(bar.kind) or self._letters[bar.label]

    def _ticks(self, room: float) -> list[tuple[float, str]]:
        """Return at most `room` round times for the axis, with their texts."""
        span = self.until - self.now
        step = next((step for step in _TICK_SECONDS if span / step <= room), span)
        start = datetime.fromtimestamp(self.now, self.zone)
        offset = start.utcoffset()
        shift = offset.total_seconds() if offset is not None else 0.0
        form = "%d %b" if step >= 86400 else "%a %H:%M" if span > 86400 else "%H:%M"
        when = (self.now + shift) // step * step + step - shift
        ticks = []
        while when < self.until:
            ticks.append((when, datetime.fromtimestamp(when, self.zone).strftime(form)))
            when += step
        return ticks

    def _axis(self, columns: int) -> list[str]:
        marks = ["|"] + ["-"] * (columns - 1)
        texts = ["n", "o", "w"] + [" "] * (columns - 3)
        for when, text in self._ticks(columns / 12):
            column = int(self._column(when, columns))
            marks[column] = "+"
            end = column + len(text)
            if end <= columns and set(texts[column - 1 : end]) <= {" "}:
                texts[column:end] = text
        return ["".join(texts), "".join(marks)]

    def _legend(self, width: int) -> list[str]:
        bars = {bar for row in self.rows for bar in row.bars}
        entries = [f"{FREE} free"]
        entries += [f"{DOWN} down"] if any(bar.kind == "down" for bar in bars) else []
        reserved = sorted({bar.label for bar in bars if bar.kind == "reserved"})
        entries += [f"{RESERVED} reserved ({', '.join(reserved)})"] if reserved else []
        entries += [f"{BEYOND} goes on", f"{MANY} more than one"]
        lines = _filled("", entries, width)
        for kind in ("running", "promised"):
            labels = {bar.label for bar in bars if bar.kind == kind}
            letters = ((one, label) for label, one in self._letters.items() if label in labels)
            entries = [f"{letter} {label}" for letter, label in letters if letter != MANY]
            lines += _filled(f"{kind + ':':9} ", entries, width) if entries else []
        return lines

    # -- picture -----------------------------------------------------------------------------------

    def svg(self) -> str:
        """Draw the chart as an SVG document for light and dark pages. Hovering shows a bar's
        name."""
        width, left, top, height = 960, 110, 28, 22
        across = width - left - 10
        bottom = top + height * len(self.rows)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + 34}" '
            f'viewBox="0 0 {width} {bottom + 34}" role="img" font-family="sans-serif" '
            'font-size="12">',
            "<title>Running jobs, promises and reservations</title>",
            "<style>text{fill:#1d1d1d}.grid{stroke:#cccccc}.paper{fill:#ffffff}"
            "@media(prefers-color-scheme:dark){text{fill:#eeeeee}.grid{stroke:#555555}"
            ".paper{fill:#1d1d1d}}</style>",
            f'<rect class="paper" width="{width}" height="{bottom + 34}"/>',
        ]
        for when, text in [(self.now, "now"), *self._ticks(across / 90)]:
            x = left + self._column(when, across)
            ends = f'x1="{x:.1f}" y1="{top - 6}" x2="{x:.1f}" y2="{bottom}"'
            parts.append(f'<line class="grid" {ends}/>')
            parts.append(f'<text x="{x:.1f}" y="{top - 10}">{escape(text)}</text>')
        for i, row in enumerate(self.rows):
            y = top + i * height
            name = row.name if len(row.name) <= 15 else row.name[:14] + "+"
            parts.append(
                f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(name)}'
                f"<title>{escape(row.name)}</title></text>"
            )
            parts += [self._box(bar, left, across, y, height) for bar in row.bars]
        x = left
        for kind, (colour, _) in _COLOURS_OF_KINDS.items():
            box = f'x="{x}" y="{bottom + 12}" width="12" height="12" fill="{colour}"'
            parts += [f"<rect {box}/>", f'<text x="{x + 17}" y="{bottom + 22}">{kind}</text>']
            x += 95
        parts.append("</svg>")
        return "\n".join(parts) + "\n"

    def _box(self, bar: Bar, left: int, across: int, y: int, height: int) -> str:
        colour, ink = _COLOURS_OF_KINDS[bar.kind]
        x1 = left + self._column(bar.start, across)
        x2 = left + self._column(min(bar.end, self.until), across)
        wide = max(1.5, x2 - x1)
        what = escape(f"{bar.label}: {bar.kind}, {self._span(bar)}")
        box = (
            f'<g><rect x="{x1:.1f}" y="{y + 2}" width="{wide:.1f}" height="{height - 4}" rx="2" '
            f'fill="{colour}"><title>{what}</title></rect>'
        )
        if wide > 7 * len(bar.label) + 6:
            box += (
                f'<text x="{x1 + 4:.1f}" y="{y + 15}" style="fill:{ink}" pointer-events="none">'
                f"{escape(bar.label)}</text>"
            )
        return box + "</g>"

    def _span(self, bar: Bar) -> str:
        def clock(when: float) -> str:
            return datetime.fromtimestamp(when, self.zone).strftime("%Y-%m-%d %H:%M:%S")

        end = "without a known end" if bar.end == float("inf") else clock(bar.end)
        return f"{clock(bar.start)} to {end}"


def _filled(head: str, entries: list[str], width: int) -> list[str]:
    """Lay out entries in lines of at most `width` columns, the first with the prefix `head`, to
    which the others are indented; a wider entry has its own line."""
    lines = [head + entries[0]]
    for entry in entries[1:]:
        if len(lines[-1]) + 3 + len(entry) > width:
            lines.append(" " * len(head) + entry)
        else:
            lines[-1] += "   " + entry
    return lines
