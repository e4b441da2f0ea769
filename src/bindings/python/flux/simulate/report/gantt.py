# SPDX-License-Identifier: LGPL-3.0-or-later
"""Allocations over time: bars in a window, and a shaded overview of the whole run."""

import itertools
from html import escape

from flux.simulate.report import svg
from flux.simulate.results import metrics
from flux.simulate.results.outcome import runs_of
from flux_engine.formats import states

HEIGHT = 360
#: Shades of a cell, from 1 (little of it in use) to 9 (all).
LEVELS = "123456789"
#: Smallest bar, in pixels, that is outlined if its job was backfilled.
OUTLINED = (6, 4)


def shade_paths(texts, begin, end, x, y):
    """Return the rows of `results.picture.Cells` as one SVG path per shade, between two times of the scale x, and over all of
    the scale y."""
    paths = {level: [] for level in LEVELS}
    for row, text in enumerate(texts):
        step = (end - begin) / len(text)
        top, bottom = (svg.short(y(at * y.high / len(texts))) for at in (row, row + 1))
        place = 0
        for level, run in itertools.groupby(text):
            first, place = place, place + len(list(run))
            if level in paths:
                left, right = (svg.short(x(begin + at * step)) for at in (first, place))
                paths[level].append(f"M{left} {top}H{right}V{bottom}H{left}z")
    some = ((level, "".join(cells)) for level, cells in paths.items() if cells)
    return "".join(f'<path class="shade g{level}" d="{cells}"/>' for level, cells in some)


def gantt(picture, number, end=None):
    """Draw allocations over time in a window (`end`: of the time axis, if not the picture's); the page's script adds
    zooming."""
    chart = picture["gantt"]
    units, begin = picture["units"], chart["begin"]
    end = max(chart["end"] if end is None else end, begin + 1)
    bottom = HEIGHT - svg.BOTTOM
    x = svg.Time(begin, end)
    y = svg.Linear(0, units, svg.TOP, bottom)
    wide, high = svg.WIDTH - svg.RIGHT - svg.LEFT, bottom - svg.TOP
    bars = [shade_paths(chart.get("shade") or [], begin, chart["end"], x, y)]
    labels = []
    for place, row in enumerate(chart["jobs"]):
        bar, label = _bar(place, row, x, y)
        bars.append(bar)
        labels.append(label)
    y_ticks = [(value, f"{value:g}") for value in y.ticks(4) if value < units]
    body = svg.axes(x, y, [], y_ticks, svg.SINCE, picture.get("unit", "unit"))
    ticks = "".join(
        f'<path class="grid" d="M{svg.short(x(value))} {svg.TOP}V{bottom}"/>'
        + svg.text(x(value), bottom + 16, text, "middle")
        for value, text in x.labelled()
    )
    plot = (
        f'<svg class="plot" x="{svg.LEFT}" y="{svg.TOP}" width="{wide}" height="{high}" '
        f'viewBox="{svg.LEFT} {svg.TOP} {wide} {high}" preserveAspectRatio="none">{"".join(bars)}</svg>'
    )
    extra = f' class="gantt" data-begin="{begin}" data-end="{end}"'
    body += f'<g class="ticks">{ticks}</g>{plot}<g class="ids">{"".join(labels)}</g>'
    return svg.frame(svg.WIDTH, HEIGHT, f"Gantt chart {number + 1}", body, extra)


def _bar(place, row, x, y):
    id, submit, start, end, size, limit, user, queue, allocated, backfilled, how = row
    left, right = max(x(start), x.first), min(x(end), x.last)
    width = max(right - left, 0.3)
    spans = list(runs_of(allocated))
    at, wide = svg.short(left), svg.short(width)
    path = [f"M{at} {svg.short(y(a))}h{wide}V{svg.short(y(b))}h-{wide}z" for a, b in spans]
    low, high = max(spans, key=lambda span: span[1] - span[0], default=(0, 0))
    span = metrics.span_text
    times = f"started {svg.moment_text(start)} after {span(start - submit)}"
    others = [f"user {user}"] if user else []
    others += [f"queue {queue}"] if queue else []
    others += ["went ahead of others"] if backfilled else []
    details = [
        f"job {id}, size {size}",
        f"submitted {svg.moment_text(submit)}, {times}",
        f"ran {span(end - start)} of {span(limit) if limit else 'no limit'}",
        f"on {allocated}" if allocated and len(allocated) < 60 else "",
        ", ".join(others),
    ]
    details[2] += ", ended at its limit" if how == states.TIMEOUT else ""
    words = escape("\n".join(filter(None, details)))
    tall = y(high) - y(low)
    # An outline would fill a bar of a few pixels.
    is_outlined = backfilled and width >= OUTLINED[0] and tall >= OUTLINED[1]
    css = f"job f{place % 6}" + (" backfilled" if is_outlined else "")
    bar = f'<path class="{css}" d="{"".join(path)}"><title>{words}</title></path>'
    label = ""
    if width > 7 * len(str(id)) + 4 and tall > 11:
        middle = (y(low) + y(high)) / 2 + 4
        label = svg.text(left + width / 2, middle, id, "middle")
    return bar, label


def whole_run(picture, end, marked=None):
    """Draw the utilization by part of the machine over the whole run; `marked` (begin, end) is
    outlined."""
    height = 150
    bottom = height - svg.BOTTOM
    units = picture["units"]
    x = svg.Time(0, max(end, 1.0))
    y = svg.Linear(0, units, svg.TOP, bottom)
    y_ticks = [(value, f"{value:g}") for value in y.ticks(2) if value < units]
    body = svg.axes(x, y, x.labelled(), y_ticks, svg.SINCE, picture.get("unit", "unit"))
    body += shade_paths(picture["whole"]["shade"], 0.0, picture["whole"]["end"], x, y)
    if marked:
        left, right = svg.short(x(marked[0])), svg.short(x(min(marked[1], x.high)))
        body += f'<path class="zero" d="M{left} {svg.TOP}H{right}V{bottom}H{left}z"/>'
    return svg.frame(svg.WIDTH, height, "The machine over the whole run", body)
