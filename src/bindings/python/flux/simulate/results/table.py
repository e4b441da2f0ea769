# SPDX-License-Identifier: LGPL-3.0-or-later
"""Figures as text for a terminal."""

import math

from flux.simulate.results.metrics import class_names, span_text
from flux.simulate.results.statistics import interval, paired, verdict
from flux.simulate.trace import case_text, variant_text
from flux.simulate.workload.text import counted


def duration(seconds):
    """Format seconds for a column: ``1.5h``."""
    return "-" if seconds is None or seconds != seconds else span_text(seconds, "dhms")


def plain(value):
    """Format a number with three digits."""
    if value is None or value != value:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def percent(value):
    """Format a share as a percentage."""
    return "-" if value is None or value != value else f"{100 * value:.1f}%"


def _started(summary):
    """Return the number of started jobs, and of all jobs if it differs."""
    started, jobs = summary["figures"]["started"], summary["figures"]["jobs"]
    return f"{started:,}" if started == jobs else f"{started:,}/{jobs:,}"


def _broken(summary):
    made = summary["figures"]["promised"]
    return f"{summary['figures']['promises_broken']}/{made}" if made else "-"


def _rate(summary):
    return "-" if summary.get("failed") else plain(summary["jobs_per_second"])


def _figure(heading, key, write):
    return heading, lambda summary: write(summary["figures"].get(key))


#: (heading, ``text(summary)``)
COLUMNS = (
    ("started", _started),
    _figure("wait mean", "wait_mean", duration),
    _figure("median", "wait_median", duration),
    _figure("p90", "wait_p90", duration),
    _figure("max", "wait_max", duration),
    _figure("bsld mean", "bsld_mean", plain),
    _figure("median", "bsld_median", plain),
    _figure("p90", "bsld_p90", plain),
    _figure("util", "utilization", percent),
    _figure("lost", "loss_of_capacity", percent),
    _figure("ooo", "out_of_order", percent),
    ("broken", _broken),
    ("jobs/s", _rate),
)

#: Additional figures of the report.
MORE_COLUMNS = (
    _figure("wait p95", "wait_p95", duration),
    _figure("p99", "wait_p99", duration),
    _figure("by area", "wait_weighted", duration),
    _figure("bsld p95", "bsld_p95", plain),
    _figure("p99", "bsld_p99", plain),
    _figure("response by area", "response_weighted", duration),
    _figure("makespan", "makespan", duration),
    _figure("timeouts", "timeouts", plain),
    _figure("refused", "rejected", plain),
    _figure("fair wait", "jain_wait", plain),
    _figure("fair bsld", "jain_bsld", plain),
)

MORE_LEGEND = (
    "p95, p99: interpolated like p90; by area: mean weighted by size times run time, so that a policy that"
    " helps many small jobs at the cost of few large ones does not look better than it is; makespan: to the"
    " end of the last job; fair wait, fair bsld: Jain's index of the users' means, 1 if all are equal, 1/n if one of n users has all"
)

LEGEND = (
    "#: number of the policy, for --diff; started: jobs, of those there are; wait: mean, median, 90 % and"
    " longest; bsld: bounded slowdown (tau 10 s); p90: by linear interpolation between the two nearest"
    " jobs; util: utilization to the last submission; lost: capacity idle while a job waited that was no"
    " larger; ooo: started before an earlier job of its queue; broken: promises of those made; jobs/s:"
    " simulated per second of processor time"
)


def label(summary):
    """Return a policy's name, with a warning if its figures are not comparable."""
    for key in ("failed", "interrupted"):
        if summary.get(key):
            return f"{summary['policy']} ({key})"
    refused = summary["figures"].get("rejected")
    if refused:
        # Refusing jobs with long waits shortens the mean.
        return f"{summary['policy']} ({refused:,} refused)"
    return summary["policy"]


def number_of(summaries):
    """Return the number of each policy: that in the original call, if known and unique."""
    numbers = [summary.get("number") for summary in summaries]
    if None in numbers or len(set(numbers)) < len(numbers):
        return list(range(1, len(summaries) + 1))
    return numbers


def lines(rows):
    """Align rows of texts in columns: the first to the left, the others to the right."""
    first, *others = (max(map(len, column)) for column in zip(*rows))
    return [
        "  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]).rstrip() for row in rows
    ]


def main_rows(summaries, columns=COLUMNS):
    """Return the headings of the main table, but that of the policy, and a row of texts for each policy."""
    rows = [["#", *(heading for heading, _ in columns)]]
    for number, summary in zip(number_of(summaries), summaries):
        rows.append([label(summary), str(number), *(text(summary) for _, text in columns)])
    return rows


ODDS_LEGEND = (
    "odds: of each N-th job that had to wait (--odds=N), queried on its arrival; jobs: those with an answer that started;"
    " started by: the share that started by the nine-of-ten time as drawn, by that time as told, and by the start if all"
    " run to their limits; off by: median and mean error of the likely start, each beside that of the start by limits;"
    " cost: time of an answer"
)


def odds_table(summaries):
    """Return the accuracy of likely starts, with a line per policy."""
    rows = [
        ["odds", "jobs", "started by: drawn", "told", "limits", "off by: median", "limits", "mean", "limits", "cost"]
    ]  # fmt: skip
    for summary in summaries:
        odds = summary.get("odds") or {}
        name = label(summary)
        if odds.get("error"):
            name += f" ({odds['error']})"
        row = [name, f"{odds.get('known', 0):,}"]
        row += [percent(odds.get(key)) for key in ("played", "told", "limits")]
        for kind in ("median", "mean"):
            row += [duration(odds.get(f"{who}_{kind}")) for who in ("likely", "limits")]
        asked = odds.get("asked")
        row.append(duration(odds["seconds"] / asked) if asked else "-")
        rows.append(row)
    return lines(rows)


def class_table(summaries):
    """Return the matrix class x policy of mean bounded slowdowns."""
    summaries = [summary for summary in summaries if not summary.get("failed")]
    names = class_names({name for summary in summaries for name in summary["classes"]})
    rows = [["class", "jobs", *(summary["policy"] for summary in summaries)]]
    for name in names:
        entries = [summary["classes"].get(name) for summary in summaries]
        jobs = next(entry["jobs"] for entry in entries if entry)
        means = [plain(entry["bsld"]) if entry else "-" for entry in entries]
        rows.append([name, f"{jobs:,}", *means])
    return lines(rows)


def workload_of(summary):
    """Return the name of a run's workload in its study; "" if the study has one."""
    return case_text(variant_text(summary.get("variant") or {}), summary.get("seed"))


def run_of(summary):
    """Return the name of a run: its policy, with its workload if the study has several."""
    workload = workload_of(summary)
    return f"{summary['policy']} ({workload})" if workload else summary["policy"]


def misleading(warned):
    """Return the warnings of workloads, [(name, texts)], as lines, each once. If only some workloads
    have it, their names precede the text."""
    names = {}
    for name, texts in warned:
        for text in texts:
            names.setdefault(text, {})[name] = None
    number = len({name for name, _ in warned})
    return [
        text if len(some) == number else f"{'; '.join(some)}: {text}"
        for text, some in names.items()
    ]


def warnings(summaries):
    """Return the warnings of the workloads of runs, as `misleading`."""
    return misleading([(workload_of(one), one.get("warnings", ())) for one in summaries])


def remarks(summaries, with_failures=True):
    """Return remarks on the table."""
    found = []
    for summary in summaries:
        figures, name = summary["figures"], run_of(summary)
        if summary.get("failed"):
            if not with_failures:
                continue
            found.append(f"{name}: failed, so its figures are left out: {summary['failed']}")
            continue
        if summary.get("interrupted"):
            text = "interrupted: the figures are of the jobs that had started by then"
            found.append(f"{name}: {text}")
        if figures["rejected"]:
            text = f"{name}: {counted(figures['rejected'], 'job was', 'jobs were')} refused"
            others = [
                one["figures"]["rejected"]
                for one in summaries
                if not one.get("failed") and workload_of(one) == workload_of(summary)
            ]
            if min(others) < figures["rejected"]:
                text += " that another started: its figures are those of the jobs that it chose, and compare with no others"
            found.append(text + (f"; {summary['refusal']}" if summary.get("refusal") else ""))
        if figures.get("preempted"):
            found.append(
                f"{name}: {counted(figures['preempted'], 'job was', 'jobs were')} ended to make way for others, with which"
                f" {figures['hours_lost']:,.1f} {summary.get('unit', 'node')}-hours were lost"
            )
        if figures["never_started"]:
            found.append(f"{name}: {counted(figures['never_started'], 'job')} never started")
    return found


def logged(summaries):
    """Return a line for each policy that did not fail and has warnings in its log."""
    found = []
    for summary in summaries:
        if summary.get("log_lines") and not summary.get("failed"):
            count, first = summary["log_lines"], summary["log"][0]["text"].splitlines()[0]
            which = (
                "a warning in its log"
                if count == 1
                else f"{count:,} warnings in its log, the first"
            )
            found.append(f"{run_of(summary)}: {which}: {first}")
    return found


def by_variant(summaries):
    """Return [(variant, summaries)] in order; a variant is {option: value} of the varied
    options."""
    groups = {}
    for summary in summaries:
        variant = summary.get("variant") or {}
        groups.setdefault(tuple(variant.items()), []).append(summary)
    return [(dict(variant), some) for variant, some in groups.items()]


def by_policy(summaries):
    """Return [(policy, summaries)], in order of the policies."""
    groups = {}
    for number, summary in zip(number_of(summaries), summaries):
        groups.setdefault((summary.get("number", number), summary["policy"]), []).append(summary)
    return [(name, groups[number, name]) for number, name in groups]


def tables(summaries):
    """Return all tables of some results, as lines of text."""
    found = []
    variants = by_variant(summaries)
    for variant, some in variants:
        if len(variants) > 1:
            found += ["", f"{variant_text(variant)}:"]
        if any(summary.get("seed") is not None for summary in some):
            found += ["", *seeds_table(by_policy(some))]
        else:
            head, *rows = main_rows(some)
            found += ["", *lines([["policy", *head], *rows]), "", *class_table(some)]
    if len(variants) > 1:
        for heading, key, write in SWEPT_FIGURES:
            found += ["", f"{heading}:", *sweep_table(variants, key, write)]
    return found


#: Figures with a table and a curve in a sweep.
SWEPT_FIGURES = (
    ("Mean wait", "wait_mean", duration),
    ("Mean bounded slowdown", "bsld_mean", plain),
    ("Utilization", "utilization", percent),
)


def sweep_table(variants, key, write):
    """Return the matrix variant x policy of a figure, with 95 % intervals if there are several
    seeds."""
    groups = [(variant_text(variant), dict(by_policy(some))) for variant, some in variants]
    names = list(dict.fromkeys(name for _, some in groups for name in some))

    def cell(summaries):
        if summaries is None or any(summary.get("failed") for summary in summaries):
            return "-" if summaries is None else "failed"
        values = values_of(summaries, key)
        return write(values[0]) if len(values) == 1 else _with_interval(*interval(values), write)

    rows = [[text, *(cell(some.get(name)) for name in names)] for text, some in groups]
    return lines([["", *names], *rows])


def _with_interval(middle, width, write):
    return f"{write(middle)} ± {write(width)}"


def values_of(summaries, key):
    """Return a figure of several results; NaN if missing."""
    values = (summary["figures"][key] for summary in summaries)
    return [math.nan if value is None else value for value in values]


def spread_of(summaries):
    """Return, in words, the population that intervals over seeds refer to."""
    shaken = max((summary.get("shaken") or 0.0 for summary in summaries), default=0.0)
    if not shaken:
        return "over the workloads of the seeds"
    return f"over versions of one trace, with submissions shaken by up to {shaken:g} s: other months may differ by more"


def seeds_table(groups):
    """Return means over seeds with 95 % intervals, and each policy against the first, paired by
    seed.

    A policy that failed on a workload has no mean: the failure would leave out its hardest
    workloads. A group is (policy, [summary per seed]).
    """
    headings = ("wait mean", "bsld mean", "util")
    failed = {name for name, some in groups if any(summary.get("failed") for summary in some)}
    rows = [["policy", "seeds", *(f"{heading} ± 95 %" for heading in headings)]]
    rows += [[f"{n} (failed)", str(len(some)), "-", "-", "-"] for n, some in groups if n in failed]
    groups = [group for group in groups if group[0] not in failed]
    for name, summaries in groups:
        figures = ((interval(values_of(summaries, key)), write) for _, key, write in SWEPT_FIGURES)
        means = [_with_interval(*found, write) for found, write in figures]
        rows.append([name, str(len(summaries)), *means])
    text = lines(rows)
    spread = spread_of([summary for _, summaries in groups for summary in summaries])
    text += ["", f"Intervals are {spread}."]
    if len(groups) < 2:
        return text
    base, reference = groups[0]
    rows = [[f"against {base}", *headings]]
    for name, summaries in groups[1:]:
        row = [name]
        for _, key, write in SWEPT_FIGURES:
            first, second = values_of(reference, key), values_of(summaries, key)
            said, (middle, width) = verdict(first, second), paired(first, second)
            value = f"{'+' if middle > 0 else ''}{_with_interval(middle, width, write)}"
            row.append(said if said == "no difference" else value)
        rows.append(row)
    return [*text, "", "Differences, paired by seed, with 95 % intervals:", *lines(rows)]
