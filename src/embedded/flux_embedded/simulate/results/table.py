"""Figures as text for a terminal."""

import math

from flux_embedded.simulate.results.metrics import RUNS, SIZES
from flux_embedded.simulate.results.statistics import interval, paired, verdict


def duration(seconds):
    """Seconds as a person writes them: three digits, the largest unit that fits."""
    if seconds is None or seconds != seconds:
        return "-"
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if abs(seconds) >= unit:
            return (
                f"{seconds / unit:.3g}{name}"
                if abs(seconds) < 1000 * unit
                else f"{seconds / unit:.0f}{name}"
            )
    return f"{seconds:.3g}s"


def plain(value):
    """A number with three digits."""
    if value is None or value != value:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def percent(value):
    """A share in per cent."""
    return "-" if value is None or value != value else f"{100 * value:.1f}%"


#: heading, key of a figure, how it is written
FIGURES = (
    ("wait mean", "wait_mean", duration),
    ("median", "wait_median", duration),
    ("p90", "wait_p90", duration),
    ("max", "wait_max", duration),
    ("bsld mean", "bsld_mean", plain),
    ("median", "bsld_median", plain),
    ("p90", "bsld_p90", plain),
    ("util", "utilization", percent),
    ("lost", "loss_of_capacity", percent),
    ("ooo", "out_of_order", percent),
    ("broken", None, None),
    ("jobs/s", None, None),
)

LEGEND = (
    "wait: mean, median, 90 % and longest; bsld: bounded slowdown (tau 10 s); util: utilization to the last"
    " submission; lost: capacity idle while a job waited that was no larger; ooo: started before a job that"
    " came earlier; broken: promises of those made; jobs/s: simulated per second of processor time"
)


def lines(rows, align="<"):
    """Rows of texts as columns; the first column is aligned left, the others right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [text.rjust(width) for text, width in zip(row[1:], widths[1:])]
        ).rstrip()
        for row in rows
    ]


def main_table(summaries):
    """The table: a line a policy."""
    rows = [["policy", *(heading for heading, _, _ in FIGURES)]]
    for summary in summaries:
        figures = summary["figures"]
        row = [summary["policy"]]
        for heading, key, write in FIGURES:
            if key is not None:
                row.append(write(figures[key]))
            elif heading == "broken":
                made = figures["promised"]
                row.append(f"{figures['promises_broken']}/{made}" if made else "-")
            else:
                row.append(plain(summary["jobs_per_second"]))
        rows.append(row)
    return lines(rows)


def class_names(summaries):
    """The classes of any of the results, by size and run time, then the queues."""
    known = {name for summary in summaries for name in summary["classes"]}
    order = [f"{size} x {length}" for _, size in SIZES for _, length in RUNS]
    return [name for name in order if name in known] + sorted(known.difference(order))


def class_table(summaries, figure="bsld"):
    """The matrix class x policy of a mean."""
    names = class_names(summaries)
    write = plain if figure == "bsld" else duration
    rows = [["class", "jobs", *(summary["policy"] for summary in summaries)]]
    for name in names:
        row = [name]
        entries = [summary["classes"].get(name) for summary in summaries]
        row.append(f"{next(entry['jobs'] for entry in entries if entry):,}")
        row += [write(entry[figure]) if entry else "-" for entry in entries]
        rows.append(row)
    return lines(rows)


def remarks(summaries):
    """What a reader of the table must know besides."""
    found = []
    for summary in summaries:
        figures, name = summary["figures"], summary["policy"]
        if summary.get("interrupted"):
            found.append(
                f"{name}: interrupted: the figures are of the jobs that had started by then"
            )
        if figures["rejected"]:
            found.append(f"{name}: {figures['rejected']:,} jobs were refused by the scheduler")
        if figures["never_started"]:
            found.append(f"{name}: {figures['never_started']:,} jobs never started")
        if summary.get("log_lines"):
            first = summary["log"][0]["text"].splitlines()[0]
            found.append(
                f"{name}: {summary['log_lines']:,} warnings in its log, the first: {first}"
            )
    return found


def _values(summaries, key):
    return [
        math.nan if (value := summary["figures"][key]) is None else value for summary in summaries
    ]


def seeds_table(groups):
    """Means over seeds with 95 % intervals, and each policy against the first, paired by seed.

    Args:
        groups (list): (policy, [summary of each seed])
    """
    keys = (
        ("wait mean", "wait_mean", duration),
        ("bsld mean", "bsld_mean", plain),
        ("util", "utilization", percent),
    )
    rows = [["policy", "seeds", *(heading for heading, _, _ in keys)]]
    for name, summaries in groups:
        row = [name, str(len(summaries))]
        for _, key, write in keys:
            middle, width = interval(_values(summaries, key))
            row.append(f"{write(middle)} ± {write(width)}")
        rows.append(row)
    text = lines(rows)
    if len(groups) < 2:
        return text
    base, reference = groups[0]
    rows = [[f"against {base}", *(heading for heading, _, _ in keys)]]
    for name, summaries in groups[1:]:
        row = [name]
        for _, key, write in keys:
            first, second = _values(reference, key), _values(summaries, key)
            middle, width = paired(first, second)
            said = verdict(first, second)
            value = f"{'+' if middle > 0 else ''}{write(middle)} ± {write(width)}"
            row.append(said if said == "no difference" else value)
        rows.append(row)
    return [*text, "", "Differences, paired by seed, with 95 % intervals:", *lines(rows)]
