# SPDX-License-Identifier: LGPL-3.0-or-later
"""The tables of a report."""

import itertools
from html import escape

from flux.simulate.report import charts
from flux.simulate.report.style import style
from flux.simulate.results import table

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


def main(summaries, columns=table.COLUMNS):
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


def provenance(records):
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
