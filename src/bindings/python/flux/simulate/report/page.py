# SPDX-License-Identifier: LGPL-3.0-or-later
"""The report as a page, readable without network and scripts."""

import itertools
import os
from html import escape

from flux.scheduler.command.new_file import replace_file
from flux.simulate.report import charts
from flux.simulate.report.svg import rules, style
from flux.simulate.results import table
from flux.simulate.trace import variant_text

#: Seconds added to waits before shading, so that short waits look alike.
WAIT_FLOOR = 60.0


def scrolled(head, rows, css=""):
    """Return a table that scrolls on a narrow page; head and rows are markup."""
    css = f' class="{css}"' if css else ""
    return (
        f'<div class="scroll" tabindex="0"><table{css}><tr>{head}</tr>{"".join(rows)}</table></div>'
    )


def listed(lines, css):
    """Return lines of text as a list."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="{css}">{items}</ul>' if items else ""


def _row(name, cells, css=""):
    """Return a row of texts; `name` is its head."""
    css = f' class="{css}"' if css else ""
    body = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row"{css}>{escape(name)}</th>{body}</tr>'


def _head(names):
    return "".join(f"<th>{escape(name)}</th>" for name in names)


def main_table(summaries, columns=table.COLUMNS):
    """Return the main table, with a row per policy."""
    head, *texts = table.main_rows(summaries, columns)
    places = itertools.count()
    styles = ["" if summary.get("failed") else style(next(places)) for summary in summaries]
    rows = [_row(name, cells, css) for (name, *cells), css in zip(texts, styles)]
    return scrolled(_head(["", *head]), rows)


def plain(lines):
    """Return the lines of a terminal table, preformatted."""
    return f'<div class="scroll" tabindex="0"><pre>{escape(chr(10).join(lines))}</pre></div>'


def failures(summaries):
    """Return the errors of failed policies, with tracebacks."""
    return "".join(
        f'<p class="failed">{escape(summary["policy"])}: failed</p>'
        f'<div class="scroll"><pre>{escape(summary["failed"])}</pre></div>'
        for summary in summaries
        if summary.get("failed")
    )


def matrix(pictures, names, kind, figure):
    """Return a table group (`metrics.groups`) x policy of the mean ``wait`` or ``bsld``, shaded by the ratio to the best of
    the row."""
    tables = [picture["groups"].get(kind, {}) for picture in pictures]
    groups = list(dict.fromkeys(name for one in tables for name in one))
    write = table.plain if figure == "bsld" else table.duration
    floor = 0.0 if figure == "bsld" else WAIT_FLOOR
    rows = []
    for group in groups:
        entries = [one.get(group) for one in tables]
        best = min(entry[figure] for entry in entries if entry)
        count = next(entry["jobs"] for entry in entries if entry)
        cells = []
        for entry in entries:
            value = entry[figure] if entry else None
            dark = charts.shade(value, best, floor)
            more = f"90 % waited up to {table.duration(entry['wait_p90'])}" if entry else "-"
            cells.append(f'<td style="--shade:{dark:.2f}" title="{more}">{write(value)}</td>')
        head = f'<th scope="row">{escape(group)}</th><td>{count:,}</td>'
        rows.append(f"<tr>{head}{''.join(cells)}</tr>")
    return scrolled(_head(["", "jobs", *names]), rows, "matrix")


def shares(pictures, names, figures):
    """Return each user's share of the area and, per policy, of all waits, with the index of fairness."""
    by_policy = [picture["groups"].get("user", {}) for picture in pictures]
    rows = []
    for user in dict.fromkeys(name for one in by_policy for name in one):
        entries = [one.get(user) for one in by_policy]
        area = table.percent(next(entry["area"] for entry in entries if entry))
        waited = [table.percent(entry["waited"]) if entry else "-" for entry in entries]
        rows.append(_row(user, [area, *waited]))
    for title, key in (("Jain's index, waits", "jain_wait"), ("slowdowns", "jain_bsld")):
        rows.append(_row(title, ["", *(table.plain(one.get(key)) for one in figures)]))
    return scrolled(_head(["", "area", *(f"waits: {name}" for name in names)]), rows)


def scale():
    """Return the key to the shades of a matrix."""
    cells = "".join(
        f'<td style="--shade:{charts.shade(times, 1.0):.2f}">{text}</td>'
        for times, text in ((1.0, "best"), (1.5, "1.5 times"), (2.0, "2 times"), (3.0, "3 times"),
                            (charts.WORST, f"{charts.WORST:g} times or more"))
    )  # fmt: skip
    return f'<table class="matrix scale"><tr>{cells}</tr></table>'


def accuracy(pictures, names):
    """Return the accuracy of each policy's promises."""
    rows = []
    for name, picture in zip(names, pictures):
        one = picture["promised"]
        if not one["made"]:
            continue
        shown = len(picture["promises"])
        cells = [f"{one['made']:,}", f"{one['broken']:,}", f"{one['exact']:,}"]
        cells += [table.duration(one[key]) for key in ("median", "p90", "max")]
        cells.append(f"{shown:,}, among them all {one['broken']:,} broken ones")
        rows.append(_row(name, cells))
    head = ["", "promised", "broken", "within 1 min", "earlier by: median", "p90", "max", "dots"]
    return scrolled(_head(head), rows)


def losers(found, names, units_name):
    """Return the losses of each policy against the first, from `losses.losses`."""
    rows = []
    for name, one in zip(names[1:], found):
        hours = 3600.0
        cells = [
            f"{one['later']:,}", f"{one['lost'] / hours:,.0f}", table.duration(one["worst"]), f"{one['earlier']:,}",
            f"{one['won'] / hours:,.0f}", f"{one['same']:,}",
            ", ".join(f"{user} ({lost / hours:,.0f})" for user, lost in one["users"]) or "-",
        ]  # fmt: skip
        rows.append(_row(name, cells))
    head = [
        f"against {names[0]}", "jobs later", f"{units_name} hours lost", "most", "jobs earlier", f"{units_name} hours won", "same",
        f"users with the largest losses ({units_name} hours)",
    ]  # fmt: skip
    return scrolled(_head(head), rows)


def provenance_table(records):
    """Return the provenance of the results: command, files with digests, versions."""
    lines = []
    for record in records:
        lines += [(key, record[key]) for key in ("command", "engine") if record.get(key)]
        files = [(one["path"], one) for one in record.get("files", ())]
        if record.get("scheduler"):
            one = record["scheduler"]
            files.append((" ".join([one["path"], *one["args"]]), one))
        lines += [(name, f"SHA-256 {one['sha256']}") for name, one in files]
        versions = record.get("versions") or {}
        lines += [(f"version of {name}", version) for name, version in versions.items()]
    rows = [_row(key, [value]) for key, value in dict.fromkeys(lines)]
    title = "<summary>Provenance</summary>"
    return f"<details>{title}{scrolled('', rows)}</details>" if rows else ""


_HERE = os.path.dirname(os.path.abspath(__file__))


def asset(name):
    """Return the text of a file beside this one."""
    with open(os.path.join(_HERE, name), encoding="utf-8") as stream:
        return stream.read()


def write_report(path, *about):
    """Write the `page` to a file. Raises OSError."""
    replace_file(path, page(*about))


def page(summaries, title, notes=(), losses=(), provenance=()):
    """Return the report as text, from summaries of `run.simulate` with ``picture``, results of `losses.losses` for each
    policy but the first, and of `run.provenance_of`."""
    variants = table.by_variant(summaries)
    _, first = variants[0]
    # The notes are those of the first workload.
    said = [f"WARNING: {text}" for text in table.warnings(summaries)]
    said += [line for line in notes if not line.startswith("WARNING: ")]
    parts = [f"<h1>{escape(title)}</h1>", listed(said, "notes")]
    count = max(len(table.by_policy(some)) for _, some in variants)
    if len(variants) > 1:
        parts.append(_sweep(variants))
    for variant, some in variants:
        where = f": {variant_text(variant)}" if len(variants) > 1 else ""
        parts.append(_figures(some, where))
    if len(variants) > 1:
        text = f"Charts show the first workload: {variant_text(variants[0][0])}."
        parts.append(f'<p class="notes">{escape(text)}</p>')
    parts.append(_pictures(first, losses))
    parts.append(provenance_table(provenance))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{asset('page.css')}{rules(count)}</style></head><body><main>"
        f'{"".join(parts)}</main><div id="details" hidden></div><script>{asset("page.js")}</script>'
        "</body></html>\n"
    )


_WAITS = "The higher a line, the more jobs had started after that wait."
_BANDS = " Bands are the 95 % intervals of the mean, quantile by quantile, {}."
_SLOWDOWNS = "Bounded slowdown: max(1, (wait + run) / max(run, 10 s)). The higher a line, the more jobs had no more."
_TIME = "The backlog: size times limit of the waiting jobs, in days of the whole machine; below, their number."
_WORKLOAD = "Submitted jobs: their number, and their load, size times run time relative to the capacity of the machine. Above the line at 1 the backlog grows."
_PROMISES = (
    "Each dot is a job that was promised a latest start. Below the line, in red, the promise was broken: all of"
    " these are drawn, and a sample of the others."
)
_LOSERS = "Job by job, against the first policy. Hours are waits times sizes; longer waits of some jobs and shorter ones of others do not cancel out."
_FAIRNESS = (
    "Each user's share of the total area, the largest first, and of the total wait. Below, Jain's index of the"
    " users' mean waits and mean bounded slowdowns: 1 if all are equal, 1/n if one of n users has all."
)
_WHOLE = "The darker the shade, the more of these units were in use; from the first submission to the last end of a job under any policy."
_GANTT = (
    "Each bar is a job on its units, with a dashed outline if it was backfilled. Point at one for its details."
    " With scripts on: Ctrl and the wheel, or the buttons, zoom; dragging moves; a double click shows all."
)


def _section(title, body, caption=""):
    caption = f"<p class='caption'>{escape(caption)}</p>" if caption else ""
    return f"<section><h2>{escape(title)}</h2><figure>{body}</figure>{caption}</section>"


def _chart(chart):
    return f'<div class="scroll chart" tabindex="0">{chart}</div>'


def _has_seeds(summaries):
    return any(summary.get("seed") is not None for summary in summaries)


def _figures(summaries, where):
    """Return the tables of one variant."""
    found = table.remarks(summaries, with_failures=False) + table.logged(summaries)
    remarks = listed(found, "remarks")
    remarks += failures(summaries)
    if _has_seeds(summaries):
        body = plain(table.seeds_table(table.by_policy(summaries)))
        caption = f"± is half the width of the 95 % interval, {table.spread_of(summaries)}."
        return _section(f"Figures over the seeds{where}", body + remarks, caption)
    text = main_table(summaries) + main_table(summaries, table.MORE_COLUMNS)
    return _section(f"Figures{where}", text + remarks, f"{table.LEGEND}; {table.MORE_LEGEND}.")


def _sweep(variants):
    """Return curves along the varied option."""
    names = [name for name, _ in table.by_policy(variants[0][1])]
    groups = [dict(table.by_policy(some)) for _, some in variants]
    texts = [variant_text(variant) for variant, _ in variants]
    body = []
    for title, key, write in table.SWEPT_FIGURES:
        rows = [[_whole_values(some.get(name, ()), key) for some in groups] for name in names]
        body.append(_chart(charts.sweep(texts, rows, title, write)))
    spread = table.spread_of([summary for _, some in variants for summary in some])
    caption = f"Whiskers are 95 % intervals, where there are several seeds: {spread}."
    return _section("Along the sweep", charts.legend(names) + "".join(body), caption)


def _whole_values(summaries, key):
    failed = any(summary.get("failed") for summary in summaries)
    return [] if failed else table.values_of(summaries, key)


def _pictures(summaries, losses):
    whole = [summary for summary in summaries if not summary.get("failed")]
    groups = [some for _, some in table.by_policy(whole)]
    if not groups:
        return ""
    names = [some[0]["policy"] for some in groups]
    pictures = [some[0]["picture"] for some in groups]
    # per policy, the pictures of its workloads, if there are several
    several = [[one["picture"] for one in some] for some in groups] if _has_seeds(summaries) else []
    key = charts.legend(names)
    more = _BANDS.format(table.spread_of(whole)) if several else ""
    waits = key + _chart(charts.waits(pictures, several))
    slowdowns = key + _chart(charts.slowdowns(pictures, several))
    parts = [
        _section("The workload", _chart(charts.submissions(pictures[0])), _WORKLOAD),
        _section("Waits", waits, _WAITS + more),
        _section("Slowdown", slowdowns, _SLOWDOWNS + more),
        _section("The machine over time", key + _chart(charts.over_time(pictures, names)), _TIME),
        *_matrices(pictures, names),
    ]
    if any("user" in picture["groups"] for picture in pictures):
        body = shares(pictures, names, [some[0]["figures"] for some in groups])
        parts.append(_section("Fairness among users", body, _FAIRNESS))
    if losses:
        body = losers(losses, names, pictures[0].get("unit", "unit"))
        parts.append(_section("Jobs that wait longer, and shorter", body, _LOSERS))
    promised = charts.promises(pictures)
    if promised is not None:
        body = key + _chart(promised) + accuracy(pictures, names)
        parts.append(_section("Promises and starts", body, _PROMISES))
    return "".join([*parts, *_gantts(pictures, names)])


def _matrices(pictures, names):
    """Yield means by size, run time, queue and user."""
    titles = (
        ("size and run time", "bsld", "By class of size and run time: mean bounded slowdown",
         "Classes are of about equal numbers of jobs."),
        ("size", "wait", "By size: mean wait", ""),
        ("queue", "wait", "By queue: mean wait", ""),
        ("user", "wait", "By user: mean wait", "The users with the largest areas, and all others together."),
    )  # fmt: skip
    for kind, figure, title, caption in titles:
        if any(kind in picture["groups"] for picture in pictures):
            body = matrix(pictures, names, kind, figure) + scale()
            shading = "Shades show the ratio of a mean to the best of its row"
            shading += ", a minute added to both." if figure == "wait" else "."
            yield _section(title, body, f"{caption} {shading}".strip())


def _gantts(pictures, names):
    shown = [(name, picture) for name, picture in zip(names, pictures) if picture["gantt"]["jobs"]]
    end = max((picture["end"] for _, picture in shown), default=0.0)
    for number, (name, picture) in enumerate(shown):
        chart = picture["gantt"]
        marked = None if chart["is_whole"] else (chart["begin"], chart["end"])
        body = _chart(charts.whole_run(picture, end, marked))
        caption = _WHOLE + (" The frame is the window below." if marked else "")
        body += f"<p class='caption'>{escape(caption)}</p>"
        body += _chart(charts.gantt(picture, number, end if chart["is_whole"] else None))
        text = "All jobs"
        if marked:
            text += " that ran in this window, which is the same for all policies"
        if chart["merged"]:
            text += (
                f": the {len(chart['jobs']):,} largest as bars, the other {chart['merged']:,}"
                f" ({100 * chart['merged_share']:.1f} % of the used area) merged into a grey shade"
            )
        yield _section(f"Allocations: {name}", body, f"{text}. {_GANTT}")
