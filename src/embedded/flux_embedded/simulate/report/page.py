# SPDX-License-Identifier: LGPL-3.0-or-later
"""The report as a page: it needs no network, and no script to be read."""

import os
from html import escape

from flux_embedded.simulate.report import charts
from flux_embedded.simulate.results import table
from flux_embedded.simulate.results.files import naming
from flux_embedded.simulate.results.picture import GANTT_JOBS

_HERE = os.path.dirname(os.path.abspath(__file__))


def _asset(name):
    with open(os.path.join(_HERE, name), encoding="utf-8") as stream:
        return stream.read()


def write_report(path, summaries, title="", notes=()):
    """Write the page about some results.

    Args:
        path (str): the file
        summaries (list of dict): of `run.simulate`, with their ``picture``
        title (str): the workload
        notes (list of str): what was made of the trace
    """
    temporary = f"{path}.new"
    with naming(path):
        with open(temporary, "w", encoding="utf-8") as stream:
            stream.write(page(summaries, title, notes))
        os.replace(temporary, path)


def page(summaries, title="", notes=()):
    """The page as text."""
    whole = [summary for summary in summaries if not summary.get("failed")]
    names = [summary["policy"] for summary in whole]
    pictures = [summary["picture"] for summary in whole]
    key = charts.legend(names)
    parts = [
        f"<h1>{escape(title)}</h1>",
        _list(notes, "notes"),
        _section("The table", _table(summaries), table.LEGEND + "."),
        _section("How long jobs waited", key + charts.waits(pictures), _WAITS),
        _section("The machine over time", key + charts.over_time(pictures), _TIME),
        _section("By class", _matrix(summaries), _MATRIX),
    ]
    promised = charts.promises(pictures)
    if promised is not None:
        parts.append(_section("Promises and starts", key + promised, _PROMISES))
    for number, (name, picture) in enumerate(zip(names, pictures)):
        chart = picture["gantt"]
        if not chart["jobs"]:
            continue
        caption = _GANTT
        if chart["left_out"]:
            caption = (
                f"{len(chart['jobs']):,} of {len(chart['jobs']) + chart['left_out']:,} jobs, those around the longest"
                f" waits: beyond {GANTT_JOBS} jobs such a chart cannot be read. {_GANTT}"
            )
        parts.append(_section(f"Who was where: {name}", charts.gantt(picture, number), caption))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_asset('page.css')}</style></head><body><main>"
        f'{"".join(parts)}</main><div id="details" hidden></div><script>{_asset("page.js")}</script>'
        "</body></html>\n"
    )


_WAITS = "The higher a line, the more jobs had started after that wait."
_TIME = "What waits is the size of each waiting job times its limit, in days of the whole machine."
_MATRIX = "Mean bounded slowdown of the jobs of a size and run time; darker is worse in the row."
_PROMISES = (
    "Each dot is a job that was told when it would start. Below the line, the promise was broken."
)
_GANTT = (
    "Each bar is a job on the units it held, dashed where it went ahead of others. Point at one for its details;"
    " with scripts on, the wheel zooms, dragging moves, a double click shows all."
)


def _section(title, body, caption=""):
    caption = f"<p class='caption'>{escape(caption)}</p>" if caption else ""
    return f"<section><h2>{escape(title)}</h2><figure>{body}</figure>{caption}</section>"


def _list(lines, css):
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="{css}">{items}</ul>' if items else ""


def _table(summaries):
    head = "".join(f"<th>{escape(heading)}</th>" for heading, _ in table.COLUMNS)
    rows = []
    numbers = table.number_of(summaries)
    for place, (number, summary) in enumerate(zip(numbers, summaries)):
        name = escape(table.label(summary))
        cells = [f'<th scope="row" class="{charts.style(place)}">{name}</th><td>{number}</td>']
        cells += [f"<td>{escape(text(summary))}</td>" for _, text in table.COLUMNS]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    remarks = _list(table.remarks(summaries), "remarks")
    return (
        f'<div class="scroll"><table><tr><th></th><th>#</th>{head}</tr>{"".join(rows)}</table></div>'
        f"{remarks}"
    )


def _matrix(summaries):
    names = table.class_names(summaries)
    head = "".join(f"<th>{escape(summary['policy'])}</th>" for summary in summaries)
    rows = []
    for name in names:
        entries = [summary["classes"].get(name) for summary in summaries]
        values = [entry["bsld"] for entry in entries if entry]
        low, high = min(values), max(values)
        cells = []
        for entry in entries:
            value = entry["bsld"] if entry else None
            dark = charts.shade(value, low, high)
            cells.append(
                f'<td style="--shade:{dark:.2f}" title="mean wait {table.duration(entry["wait"]) if entry else "-"}">{table.plain(value)}</td>'
            )
        count = next(entry["jobs"] for entry in entries if entry)
        rows.append(
            f'<tr><th scope="row">{escape(name)}</th><td>{count:,}</td>{"".join(cells)}</tr>'
        )
    return f'<div class="scroll"><table class="matrix"><tr><th></th><th>jobs</th>{head}</tr>{"".join(rows)}</table></div>'
