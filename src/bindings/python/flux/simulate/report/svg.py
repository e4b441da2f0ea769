# SPDX-License-Identifier: LGPL-3.0-or-later
"""Charts as SVG text: scales, axes and marks. Colours are CSS classes of the page."""

import math
from html import escape

WIDTH, HEIGHT = 900, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 40

#: Title of the time axes.
SINCE = "time since the first submission"
#: Possible steps of a time axis, in seconds.
_TIME_STEPS = (
    1, 5, 15, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 5 * 86400,
    10 * 86400, 30 * 86400, 60 * 86400, 120 * 86400, 365 * 86400,
)  # fmt: skip


def short(value):
    """Format a coordinate with as few digits as possible."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def moment_text(seconds):
    """Format seconds since the start of the workload as day and time of day."""
    sign = "-" if seconds < 0 else ""
    days, rest = divmod(round(abs(seconds)), 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    clock = f"{hours:02d}:{minutes:02d}" + (f":{rest:02d}" if rest else "")
    return f"{sign}{days} d {clock}"


class Linear:
    """A scale from [low, high] to pixels [first, last], by default the width of a chart."""

    def __init__(self, low, high, first=LEFT, last=WIDTH - RIGHT):
        if not high > low:
            high = low + 1
        self.low, self.high, self.first, self.last = low, high, first, last

    def __call__(self, value):
        share = (value - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)

    def ticks(self, count=5):
        """Return round values within the scale."""
        raw = (self.high - self.low) / count
        power = 10 ** math.floor(math.log10(raw))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
        value = math.ceil(self.low / step) * step
        found = []
        while value <= self.high + step * 1e-9:
            found.append(0.0 if abs(value) < step / 1e6 else value)
            value += step
        return found


class Time(Linear):
    """A scale of seconds with ticks at hours and days."""

    def ticks(self, count=7):
        raw = (self.high - self.low) / count
        step = next((step for step in _TIME_STEPS if step >= raw), None)
        if step is None:
            step = math.ceil(raw / (365 * 86400)) * 365 * 86400
        first = math.ceil(self.low / step) * step
        return [first + i * step for i in range(int((self.high - first) // step) + 1)]

    def labelled(self):
        """Return (value, text) of each tick."""
        return [(value, self.text(value)) for value in self.ticks()]

    def text(self, value):
        """Return the label of a tick."""
        whole = not value % 86400
        if self.high - self.low >= 2 * 86400 or whole:
            return f"{value / 86400:g} d" if whole else f"{value / 86400:.2f} d"
        return moment_text(value)


class Log:
    """A logarithmic scale from [low, high]; smaller values are drawn at low."""

    def __init__(self, low, high, first=LEFT, last=WIDTH - RIGHT):
        self.low, self.high = low, max(high, low * 10)
        self._scale = Linear(math.log10(low), math.log10(self.high), first, last)

    def __call__(self, value):
        return self._scale(math.log10(max(value, self.low)))

    def ticks(self):
        """Return familiar durations within the scale."""
        known = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400)
        return [value for value in known if self.low <= value <= self.high]


def frame(width, height, label, body, extra=""):
    """Return an SVG element; `label` is for screen readers."""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label, quote=True)}"{extra}>'
        f"{body}</svg>"
    )


def text(x, y, words, anchor="start", css="", extra=""):
    """Return a text element."""
    css = f' class="{css}"' if css else ""
    return f'<text x="{short(x)}" y="{short(y)}" text-anchor="{anchor}"{css}{extra}>{escape(str(words))}</text>'


def axes(x, y, x_ticks, y_ticks, x_title="", y_title=""):
    """Return grid lines with labels; ticks are (value, text)."""
    top, bottom = sorted((y.first, y.last))
    right = WIDTH - RIGHT
    parts = []
    for value, label in y_ticks:
        at = y(value)
        parts.append(f'<path class="grid" d="M{LEFT} {short(at)}H{right}"/>')
        parts.append(text(LEFT - 6, at + 4, label, "end"))
    for value, label in x_ticks:
        at = x(value)
        parts.append(f'<path class="grid" d="M{short(at)} {short(top)}V{short(bottom)}"/>')
        parts.append(text(at, bottom + 16, label, "middle"))
    if x_title:
        parts.append(text((LEFT + right) / 2, bottom + 33, x_title, "middle", "title"))
    if y_title:
        middle = (top + bottom) / 2
        turned = f' transform="rotate(-90 14 {short(middle)})"'
        parts.append(text(14, middle, y_title, "middle", "title", turned))
    return "".join(parts)


def joined(points):
    """Return points as the text of a path."""
    return "M" + " ".join(f"{short(x)} {short(y)}" for x, y in points)


def line(points, css):
    """Return a polyline as a path."""
    return f'<path class="line {css}" d="{joined(points)}"/>' if points else ""


def level(x, y):
    """Return the next part of a line that keeps its value up to the point, as the text of a path."""
    return f"H{short(x)}V{short(y)}"


#: The colours that are easiest to distinguish, on light and on dark pages; further ones are
#: computed.
PALETTE = (
    ("#0b62a8", "#6cb4f0"), ("#c95a00", "#f5a25c"), ("#00795a", "#4fcaa6"), ("#8a3f8c", "#cf94d1"),
    ("#6f6500", "#d3c64e"), ("#b0224a", "#f4819f"), ("#2c8fb5", "#7fd0ee"), ("#55585c", "#b5bac0"),
)  # fmt: skip
DASHES = ("none", "7 3", "2 2.5", "10 3 2 3", "14 4", "5 2 1 2 1 2", "1 3")
#: Step in degrees between further hues: no two are equal.
GOLDEN_ANGLE = 137.508


def style(number):
    """Return the CSS class of the n-th policy, from 0."""
    return f"c{number}"


def colours(number):
    """Return (on light, on dark) for the n-th policy."""
    if number < len(PALETTE):
        return PALETTE[number]
    hue = (number * GOLDEN_ANGLE + 20) % 360
    return f"hsl({hue:.0f} 75% 33%)", f"hsl({hue:.0f} 75% 70%)"


def dash(number):
    """Return the dashes of its line; together with the colour they are unique."""
    return DASHES[(number + number // len(PALETTE)) % len(DASHES)]


def rules(count):
    """Return the style sheet for a number of policies."""
    light = "".join(f"--c{n}:{colours(n)[0]};" for n in range(count))
    dark = "".join(f"--c{n}:{colours(n)[1]};" for n in range(count))
    each = "".join(
        f".c{n}{{stroke:var(--c{n});stroke-dasharray:{dash(n)}}}"
        f".area.c{n},.band.c{n}{{fill:var(--c{n})}}th.c{n}{{color:var(--c{n})}}\n"
        for n in range(count)
    )
    return f":root{{{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{each}"
