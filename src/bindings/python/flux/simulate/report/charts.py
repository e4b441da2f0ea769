# SPDX-License-Identifier: LGPL-3.0-or-later
"""The charts of a report, from the picture data of the policies."""

import itertools
import math
from html import escape

from flux.simulate.report import svg
from flux.simulate.results.metrics import QUANTILES, is_broken, span_text
from flux.simulate.results.outcome import runs_of
from flux.simulate.results.statistics import interval
from flux_engine.formats import states

#: Maximum number of policies in one utilization chart; with more, each has its own strip.
TOGETHER = 2
#: Height of a strip, pixels.
STRIP = 46


def legend(names):
    """Return the names with their line styles."""
    items = []
    for number, name in enumerate(names):
        mark = f'<svg viewBox="0 0 34 10" class="key" aria-hidden="true"><path class="line {svg.style(number)}" d="M1 5H33"/></svg>'
        items.append(f"<li>{mark}{escape(name)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


# -- distributions ---------------------------------------------------------------------------------------------


def waits(pictures, several=()):
    """Draw the empirical distribution of waits; `several`: per policy, the pictures of its workloads, for bands."""
    return _distribution(
        pictures, several, "waits", lambda x: [(value, "1 s or none" if value == 1 else span_text(value)) for value in x.ticks()],
        "Distribution of waits", "wait, logarithmic", "share of jobs that waited no longer",
    )  # fmt: skip


def slowdowns(pictures, several=()):
    """Draw the empirical distribution of bounded slowdowns; arguments as for `waits`."""
    return _distribution(
        pictures, several, "slowdowns", lambda x: [(10.0**power, f"{10**power:,}") for power in range(int(math.log10(x.high)) + 1)],
        "Distribution of bounded slowdowns", "bounded slowdown, logarithmic", "share of jobs with no more",
    )  # fmt: skip


def _distribution(pictures, several, key, ticks_of, label, x_title, y_title):
    lines = [picture[key] for picture in pictures]
    most = max((values[-1] for values in lines if values), default=10.0)
    x = svg.Log(1.0, max(most, 10.0) * 1.1)
    y = svg.Linear(0, 1, svg.HEIGHT - svg.BOTTOM, svg.TOP)
    shares = [(share, f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)]
    body = [svg.axes(x, y, ticks_of(x), shares, x_title, y_title)]
    for number, some in enumerate(several):
        body.append(_band([picture[key] for picture in some], x, y, number))
    for number, values in enumerate(lines):
        points = [(x(value), y(i / QUANTILES)) for i, value in enumerate(values)]
        body.append(svg.line(points, svg.style(number)))
    return svg.frame(svg.WIDTH, svg.HEIGHT, label, "".join(body))


def _band(workloads, x, y, number):
    """Draw the 95 % interval of each quantile over several workloads."""
    workloads = [values for values in workloads if values]
    if len(workloads) < 2:
        return ""
    low, high = [], []
    for place, values in enumerate(zip(*workloads)):
        middle, width = interval(values)
        at = y(place / QUANTILES)
        low.append((x(max(middle - width, 0.0)), at))
        high.append((x(middle + width), at))
    return f'<path class="band {svg.style(number)}" d="{svg.joined(low + high[::-1])}z"/>'


# -- over time -------------------------------------------------------------------------------------------------


def over_time(pictures, names=()):
    """Draw utilization, queued area and number of waiting jobs on one time axis."""
    units = pictures[0]["units"]
    x = svg.Time(0, max(picture["end"] for picture in pictures) or 1.0)
    ticks = [(tick, "") for tick in x.ticks()]
    body, top = [], svg.TOP
    if len(pictures) > TOGETHER:
        for number, picture in enumerate(pictures):
            body.append(_strip(picture, number, names[number], x, ticks, top))
            top += STRIP + 18
    else:
        use = svg.Linear(0, 1, top + 170, top)
        share = [(value, f"{value:.0%}") for value in (0, 0.5, 1)]
        body.append(svg.axes(x, use, ticks, share, "", "in use"))
        for number, picture in enumerate(pictures):
            body.append(_line_of(picture, "busy", 1 / units, x, use, number))
        top += 170 + 16
    series = (
        ("queued", 1 / (units * 86400), "waiting, machine days"),
        ("waiting", 1.0, "waiting, jobs"),
    )
    for place, (key, scale, title) in enumerate(series):
        most = max(max(picture.get(key) or [0]) for picture in pictures) * scale or 1.0
        y = svg.Linear(0, most * 1.05, top + 150, top)
        body.append(_panel(x, y, title, 4, place == len(series) - 1))
        for number, picture in enumerate(pictures):
            body.append(_line_of(picture, key, scale, x, y, number))
        top += 150 + 16
    height = top - 16 + svg.BOTTOM
    label = "Utilization, waiting area and waiting jobs over time"
    return svg.frame(svg.WIDTH, height, label, "".join(body))


def _panel(x, y, title, count, is_last):
    """Draw the axes of one of several stacked charts; only the last has time labels."""
    labels = [(tick, x.text(tick) if is_last else "") for tick in x.ticks()]
    y_ticks = [(value, f"{value:g}") for value in y.ticks(count)]
    return svg.axes(x, y, labels, y_ticks, svg.SINCE if is_last else "", title)


def _line_of(picture, key, scale, x, y, number):
    """Draw a line that keeps its value until the next point."""
    values = zip(picture["times"], picture.get(key) or ())
    points = [(x(at), y(value * scale)) for at, value in values]
    if not points:
        return ""
    path = svg.joined(points[:1]) + "".join(svg.level(*point) for point in points[1:])
    return f'<path class="line {svg.style(number)}" d="{path}H{svg.short(x(picture["end"]))}"/>'


def _strip(picture, number, name, x, ticks, top):
    """Draw the utilization of one policy, as an area."""
    y = svg.Linear(0, picture["units"], top + 12 + STRIP, top + 12)
    body = svg.axes(x, y, ticks, [(0, ""), (picture["units"], "100%")])
    body += svg.text(svg.LEFT, top + 8, f"in use: {name}", css="title")
    points = [(x(at), y(value)) for at, value in zip(picture["times"], picture["busy"])]
    if not points:
        return body
    base, (at, first) = svg.short(y(0)), points[0]
    path = f"M{svg.short(at)} {base}V{svg.short(first)}"
    path += "".join(svg.level(*point) for point in points[1:])
    path += f"H{svg.short(x(picture['end']))}V{base}z"
    return f'{body}<path class="area {svg.style(number)}" d="{path}"/>'


def submissions(picture):
    """Draw the submitted jobs and area over time: the workload itself."""
    work, units = picture["workload"], picture["units"]
    step, count = work["step"], len(work["jobs"])
    x = svg.Time(0, step * count)
    body, top = [], svg.TOP
    series = (("jobs", 86400 / step, "jobs a day"), ("area", 1 / (units * step), "load"))
    for place, (key, scale, title) in enumerate(series):
        values = [value * scale for value in work[key]]
        y = svg.Linear(0, (max(values) or 1.0) * 1.05, top + 110, top)
        body.append(_panel(x, y, title, 3, place == len(series) - 1))
        base = svg.short(y(0))
        bars = "".join(
            f"M{svg.short(x(i * step))} {base}V{svg.short(y(value))}H{svg.short(x((i + 1) * step))}V{base}z"
            for i, value in enumerate(values)
            if value
        )
        body.append(f'<path class="bars" d="{bars}"/>')
        if key == "area" and y.high > 1:
            body.append(_across(y(1)))
        top += 110 + 16
    return svg.frame(svg.WIDTH, top - 16 + svg.BOTTOM, "Submissions over time", "".join(body))


def _across(y):
    return f'<path class="zero" d="M{svg.LEFT} {svg.short(y)}H{svg.WIDTH - svg.RIGHT}"/>'


# -- promises --------------------------------------------------------------------------------------------------


def promises(pictures):
    """Draw by how much jobs started before their first promise; negative: a broken promise."""
    shown = [(n, picture["promises"]) for n, picture in enumerate(pictures) if picture["promises"]]
    if not shown:
        return None
    points = [point for _, some in shown for point in some]
    early = [promise - start for promise, start in points]
    promised = [promise for promise, _ in points]
    x = svg.Time(min(promised), max(promised))
    high, low = max(max(early), 60.0), min(min(early), 0.0)
    y = svg.Linear(low - (high - low) * 0.03, high * 1.03, svg.HEIGHT - svg.BOTTOM, svg.TOP)
    unit = next((one for one in (86400, 3600, 60) if high >= 2 * one), 1)
    scaled = svg.Linear(y.low / unit, y.high / unit, y.first, y.last)
    names = {86400: "days", 3600: "hours", 60: "minutes", 1: "seconds"}
    y_ticks = [(value, f"{value:g}") for value in scaled.ticks()]
    title, y_title = "latest start that was promised", f"started earlier by, {names[unit]}"
    body = [svg.axes(x, scaled, x.labelled(), y_ticks, title, y_title), _across(y(0))]
    dots = [(is_broken(*point), n, *point) for n, some in shown for point in some]
    # Broken promises are drawn last, above the others.
    for broken, number, promise, start in sorted(dots, key=lambda dot: dot[0]):
        css = svg.style(number) + (" broken" if broken else "")
        place = f'cx="{svg.short(x(promise))}" cy="{svg.short(y(promise - start))}"'
        body.append(f'<circle class="dot {css}" {place} r="2.5"/>')
    return svg.frame(svg.WIDTH, svg.HEIGHT, "Promised against actual starts", "".join(body))


# -- sweeps ----------------------------------------------------------------------------------------------------


def sweep(variants, values, title, write):
    """Draw a figure along a sweep, with 95 % intervals, from the values per policy, variant and workload; ``write(value)``
    returns the label of a tick."""
    height = 240
    step = (svg.WIDTH - svg.RIGHT - svg.LEFT) / len(variants)
    middles = [[interval(some) for some in row] for row in values]
    known = [one for row in middles for one in row if one[0] == one[0]]
    tops = [middle + (width if width == width else 0.0) for middle, width in known]
    y = svg.Linear(0, (max(tops, default=1.0) or 1.0) * 1.05, height - svg.BOTTOM, svg.TOP)
    at = [svg.LEFT + step * (place + 0.5) for place in range(len(variants))]
    x = svg.Linear(0, len(variants))
    ticks = [(place + 0.5, name) for place, name in enumerate(variants)]
    body = [svg.axes(x, y, ticks, [(value, write(value)) for value in y.ticks(4)], "", title)]
    for number, row in enumerate(middles):
        points = [(a, y(middle)) for a, (middle, _) in zip(at, row) if middle == middle]
        body.append(svg.line(points, svg.style(number)))
        shift = (number - (len(middles) - 1) / 2) * 3
        for a, (middle, width) in zip(at, row):
            if middle == middle and width == width:
                low, high = svg.short(y(max(middle - width, 0.0))), svg.short(y(middle + width))
                path = f"M{svg.short(a + shift)} {low}V{high}"
                body.append(f'<path class="whisker {svg.style(number)}" d="{path}"/>')
    return svg.frame(svg.WIDTH, height, f"{title} along the sweep", "".join(body))


#: Ratio to the best of its row at which a cell has the darkest shade.
WORST = 4.0


def shade(value, best, floor=0.0):
    """Return the shade of a matrix cell, logarithmic: 0 for the best of its row, 1 for `WORST` times that or more; `floor`
    is added to both, so that a wait of 1 s is not infinitely many times a wait of 0."""
    if value is None or best is None or value != value or best + floor <= 0:
        return 0.0
    ratio = (value + floor) / (best + floor)
    return min(1.0, max(0.0, math.log(ratio) / math.log(WORST)))


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
    span = span_text
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
