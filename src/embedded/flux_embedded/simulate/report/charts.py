# SPDX-License-Identifier: LGPL-3.0-or-later
"""The charts of a report, each from the picture data of the policies."""

import math
from html import escape

from flux_embedded.formats import idset
from flux_embedded.simulate.report import svg
from flux_embedded.simulate.results.metrics import QUANTILES

#: Number of line styles of the page.
STYLES = 8


def style(number):
    """The class of the n-th policy."""
    return f"c{number % STYLES}"


def legend(names):
    """Names with the marks of their lines."""
    items = []
    for number, name in enumerate(names):
        mark = f'<svg viewBox="0 0 34 10" class="key" aria-hidden="true"><path class="line {style(number)}" d="M1 5H33"/></svg>'
        items.append(f"<li>{mark}{escape(name)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def waits(pictures):
    """The empirical distribution of waits, on a logarithmic axis."""
    longest = max((picture["waits"][-1] for picture in pictures if picture["waits"]), default=10.0)
    x = svg.Log(1.0, max(longest, 10.0) * 1.1, svg.LEFT, svg.WIDTH - svg.RIGHT)
    y = svg.Linear(0, 1, svg.HEIGHT - svg.BOTTOM, svg.TOP)
    body = [
        svg.axes(
            x,
            y,
            [(value, "1 s or none" if value == 1 else svg.span_text(value)) for value in x.ticks()],
            [(share, f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)],
            "wait, logarithmic",
            "share of jobs that waited no longer",
        )
    ]
    for number, picture in enumerate(pictures):
        values = picture["waits"]
        points = [(x(wait), y(i / QUANTILES)) for i, wait in enumerate(values)]
        body.append(svg.line(points, style(number)))
    return svg.frame(svg.WIDTH, svg.HEIGHT, "Distribution of waits", "".join(body))


def over_time(pictures):
    """Utilization, and the area that waits, on one time axis."""
    units = pictures[0]["units"]
    end = max(picture["end"] for picture in pictures) or 1.0
    gap, half = 16, 190
    height = svg.TOP + 2 * half + gap + svg.BOTTOM
    x = svg.Time(0, end, svg.LEFT, svg.WIDTH - svg.RIGHT)
    use = svg.Linear(0, 1, svg.TOP + half, svg.TOP)
    most = max((max(picture["queued"], default=0) for picture in pictures), default=0)
    most = most / (units * 86400) or 1.0
    low = svg.TOP + 2 * half + gap
    queue = svg.Linear(0, most * 1.05, low, svg.TOP + half + gap)
    ticks = x.ticks()
    body = [
        svg.axes(
            x,
            use,
            [(value, "") for value in ticks],
            [(share, f"{share:.0%}") for share in (0, 0.5, 1)],
            "",
            "in use",
            svg.TOP + half,
        ),
        svg.axes(
            x,
            queue,
            [(value, x.text(value)) for value in ticks],
            [(value, f"{value:g}") for value in queue.ticks(4)],
            "time since the first submission",
            "waiting, machine days",
            low,
        ),
    ]
    for number, picture in enumerate(pictures):
        last = x(picture["end"])
        times = [x(when) for when in picture["times"]]
        busy = [(at, use(value / units)) for at, value in zip(times, picture["busy"])]
        queued = [
            (at, queue(value / (units * 86400))) for at, value in zip(times, picture["queued"])
        ]
        body.append(svg.steps(busy, last, style(number)))
        body.append(svg.steps(queued, last, style(number)))
    return svg.frame(svg.WIDTH, height, "Utilization and waiting area over time", "".join(body))


def promises(pictures):
    """How much earlier than first promised jobs started; below zero: a promise broken."""
    shown = [(n, picture["promises"]) for n, picture in enumerate(pictures) if picture["promises"]]
    if not shown:
        return None
    points = [point for _, some in shown for point in some]
    early = [promise - start for promise, start in points]
    x = svg.Time(
        min(point[0] for point in points),
        max(point[0] for point in points),
        svg.LEFT,
        svg.WIDTH - svg.RIGHT,
    )
    high, low = max(max(early), 60.0), min(min(early), 0.0)
    y = svg.Linear(low - (high - low) * 0.03, high * 1.03, svg.HEIGHT - svg.BOTTOM, svg.TOP)
    unit = next((one for one in (86400, 3600, 60) if high >= 2 * one), 1)
    scaled = svg.Linear(y.low / unit, y.high / unit, y.first, y.last)
    names = {86400: "days", 3600: "hours", 60: "minutes", 1: "seconds"}
    body = [
        svg.axes(
            x,
            scaled,
            [(value, x.text(value)) for value in x.ticks()],
            [(value, f"{value:g}") for value in scaled.ticks()],
            "first promised start",
            f"started earlier by, {names[unit]}",
        ),
        f'<path class="zero" d="M{svg.LEFT} {svg.short(y(0))}H{svg.WIDTH - svg.RIGHT}"/>',
    ]
    for number, some in shown:
        for promise, start in some:
            broken = " broken" if start > promise + 1e-3 else ""
            body.append(
                f'<circle class="dot {style(number)}{broken}" cx="{svg.short(x(promise))}" cy="{svg.short(y(promise - start))}" r="2.5"/>'
            )
    return svg.frame(svg.WIDTH, svg.HEIGHT, "Promised against actual starts", "".join(body))


def gantt(picture, number):
    """Who held which units when, of a window; the script of the page lets it be zoomed."""
    chart = picture["gantt"]
    units, begin, end = picture["units"], chart["begin"], chart["end"]
    height = 360
    bottom = height - svg.BOTTOM
    x = svg.Time(begin, max(end, begin + 1), svg.LEFT, svg.WIDTH - svg.RIGHT)
    y = svg.Linear(0, units, svg.TOP, bottom)
    wide, high = svg.WIDTH - svg.RIGHT - svg.LEFT, bottom - svg.TOP
    bars, labels = [], []
    for place, row in enumerate(chart["jobs"]):
        bar, label = _bar(place, row, x, y)
        bars.append(bar)
        labels.append(label)
    y_ticks = [(value, f"{value:g}") for value in y.ticks(4) if value < units]
    body = svg.axes(x, y, [], y_ticks, "time since the first submission", "unit", bottom)
    ticks = "".join(
        f'<path class="grid" d="M{svg.short(x(value))} {svg.TOP}V{bottom}"/>'
        + svg.text(x(value), bottom + 16, x.text(value), "middle")
        for value in x.ticks()
    )
    plot = (
        f'<svg class="plot" x="{svg.LEFT}" y="{svg.TOP}" width="{wide}" height="{high}" '
        f'viewBox="{svg.LEFT} {svg.TOP} {wide} {high}" preserveAspectRatio="none">{"".join(bars)}</svg>'
    )
    extra = f' class="gantt" data-begin="{begin}" data-end="{max(end, begin + 1)}"'
    return svg.frame(
        svg.WIDTH,
        height,
        f"Gantt chart {number + 1}",
        f'{body}<g class="ticks">{ticks}</g>{plot}<g class="ids">{"".join(labels)}</g>',
        extra,
    )


def _bar(place, row, x, y):
    id, submit, start, end, size, limit, user, queue, allocated, backfilled, how = row
    left, right = x(start), x(end)
    width = max(right - left, 0.3)
    path = []
    widest = (0, 0)
    bounds = idset.decode((allocated or "").replace(" ", ","))
    for low, high in zip(bounds[::2], bounds[1::2]):
        above, below = y(low), y(high)
        path.append(
            f"M{svg.short(left)} {svg.short(above)}h{svg.short(width)}V{svg.short(below)}h-{svg.short(width)}z"
        )
        if high - low > widest[1] - widest[0]:
            widest = (low, high)
    limit_text = svg.span_text(limit) if limit else "none"
    details = [
        f"job {id}, size {size}",
        f"submitted {svg.moment_text(submit)}, started {svg.moment_text(start)} after {svg.span_text(start - submit)}",
        f"ran {svg.span_text(end - start)} of {limit_text}"
        + (", ended at its limit" if how == 8 else ""),
        f"on {allocated}" if allocated and len(allocated) < 60 else "",
        ", ".join(
            part
            for part in (
                f"user {user}" if user else "",
                f"queue {queue}" if queue else "",
                "backfilled" if backfilled else "",
            )
            if part
        ),
    ]
    words = escape("\n".join(part for part in details if part))
    css = f"job f{place % 6}" + (" backfilled" if backfilled else "")
    bar = f'<path class="{css}" d="{"".join(path)}"><title>{words}</title></path>'
    label = ""
    if width > 7 * len(str(id)) + 4 and y(widest[1]) - y(widest[0]) > 11:
        middle = (y(widest[0]) + y(widest[1])) / 2 + 4
        label = svg.text(left + width / 2, middle, id, "middle")
    return bar, label


def shade(value, low, high):
    """How dark a cell of the matrix is, 0 to 1, by the logarithm of its value."""
    if value is None or not high > low or low <= 0:
        return 0.0
    return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
