# SPDX-License-Identifier: LGPL-3.0-or-later
"""Data of the charts of one result, thinned to keep a report of ten policies small."""

import math

from flux.simulate.job import in_microseconds
from flux.simulate.results import metrics
from flux.simulate.results.outcome import runs_of

#: Maximum number of jobs with their own bar in a Gantt chart; the others are merged into a shade.
GANTT_JOBS = 500
#: Maximum number of kept promises in the chart; broken ones are all shown.
POINTS = 1500
#: (columns, rows) of the shade of a Gantt chart's window, and of the overview.
SHADE = (180, 64)
WHOLE = (240, 48)
#: Number of bins for submissions.
BINS = 120


def picture_data(outcome):
    """Return series and samples of an outcome, fit for JSON."""
    sweep = metrics.sweep_of(outcome)
    waits, slowdowns = metrics.distributions(outcome)
    return {
        "waits": _rounded(waits),
        "slowdowns": _rounded(slowdowns),
        "times": [round(when, 1) for when in sweep.times],
        "busy": _rounded(sweep.busy),
        "queued": [round(area, 1) for area in sweep.queued],
        "waiting": _rounded(sweep.waiting),
        "end": outcome.last,
        "units": outcome.workload.units,
        "unit": outcome.workload.unit,
        "gantt": gantt(outcome),
        "whole": whole_run(outcome),
        "promises": promises(outcome),
        "promised": promised(outcome),
        "groups": metrics.groups(outcome),
        "workload": workload(outcome.workload),
    }


def _rounded(values):
    return [round(value, 3) for value in values]


def workload(work):
    """Return jobs and area (unit seconds of run time) submitted in each of `BINS` equal
    intervals."""
    last = work.jobs[-1].submit if work.jobs else 0.0
    step = last / BINS or 1.0
    jobs, area = [0] * BINS, [0.0] * BINS
    for job in work.jobs:
        place = min(int(job.submit / step), BINS - 1)
        jobs[place] += 1
        area[place] += job.size * job.seconds
    return {"step": step, "jobs": jobs, "area": _rounded(area)}


# -- allocations ---------------------------------------------------------------------------------------------


def window(work):
    """Return the time window of Gantt charts, the same for all policies, or None for the whole run: the submissions of
    `GANTT_JOBS` jobs around the largest backlog on an ideal machine."""
    jobs = work.jobs
    if len(jobs) <= GANTT_JOBS:
        return None
    backlog = most = former = 0.0
    peak = 0
    for index, job in enumerate(jobs):
        backlog = max(0.0, backlog - (job.submit - former) * work.units)
        former = job.submit
        backlog += job.size * job.seconds
        if backlog > most:
            most, peak = backlog, index
    first = min(max(0, peak - GANTT_JOBS // 2), len(jobs) - GANTT_JOBS)
    begin, end = jobs[first].submit, jobs[first + GANTT_JOBS - 1].submit
    # The jobs of an array are submitted within a second, and may run for hours.
    longest = max(job.seconds for job in jobs[first : first + GANTT_JOBS])
    return begin, max(end, begin + min(longest, 86400.0), begin + 1)


def gantt(outcome):
    """Return the jobs that ran in the `window`.

    Returns:
        dict: ``begin``, ``end``; ``jobs``, those with the largest areas in it, as rows; ``merged``, the number of the
            others; ``merged_share``, their share of the used area; ``shade``, their `Cells.texts`
    """
    span = window(outcome.workload)
    begin, end = span or (0.0, max(outcome.last, 1.0))
    found = []
    for index in outcome.started():
        start, stop = outcome.start[index], outcome.end[index]
        stop = stop if stop == stop else outcome.last
        if start < end and (stop > begin or stop == start >= begin):
            area = (min(stop, end) - max(start, begin)) * outcome.size[index]
            found.append((-area, index, start, stop))
    found.sort()
    kept, merged = found[:GANTT_JOBS], found[GANTT_JOBS:]
    rows = []
    for _, index, start, stop in sorted(kept, key=lambda one: (one[2], one[1])):
        job = outcome.workload.jobs[index]
        times = [round(when, 3) for when in (outcome.submit[index], start, stop)]
        held = [outcome.allocated[index], outcome.told_backfilled[index], outcome.how[index]]
        rows.append([job.id, *times, outcome.size[index], job.limit, job.user, job.queue, *held])
    used = -math.fsum(area for area, *_ in found)
    cells = Cells(outcome.workload.units, begin, end, *SHADE)
    for _, index, start, stop in merged:
        cells.add(start, stop, outcome.allocated[index])
    return {
        "begin": begin,
        "end": end,
        "is_whole": span is None,
        "jobs": rows,
        "merged": len(merged),
        "merged_share": -math.fsum(area for area, *_ in merged) / used if used else 0.0,
        "shade": cells.texts() if merged else [],
    }


def whole_run(outcome):
    """Return the utilization of the machine's parts over the whole run: rows of cells, and the
    end."""
    end = max(outcome.last, 1.0)
    cells = Cells(outcome.workload.units, 0.0, end, *WHOLE)
    for index in outcome.started():
        stop = outcome.end[index]
        cells.add(outcome.start[index], stop if stop == stop else end, outcome.allocated[index])
    return {"end": end, "shade": cells.texts()}


class Cells:
    """Used share of cells of a grid, units by time; there is at most one row per unit."""

    def __init__(self, units, begin, end, columns, rows):
        self.begin, self.step = begin, (end - begin) / columns
        self.columns, self.rows = columns, min(rows, units)
        self.height = units / self.rows
        # per row, the change of the share from column to column; two more for the ends
        self._changes = [[0.0] * (columns + 2) for _ in range(self.rows)]

    def add(self, start, end, allocated):
        """Add a job that held units (an interval set) from start to end."""
        first = min(max((start - self.begin) / self.step, 0.0), self.columns)
        last = min(max((end - self.begin) / self.step, 0.0), self.columns)
        if not last > first:
            return
        # Both may be fractions of a column.
        begin, stop = int(first), int(last)
        after_begin, after_stop = first - begin, last - stop
        up, down = 1 - after_begin, 1 - after_stop
        height = self.height
        for low, high in runs_of(allocated):
            for row in range(int(low / height), self.rows):
                top, bottom = row * height, (row + 1) * height
                if top >= high:
                    break
                share = ((high if high < bottom else bottom) - (low if low > top else top)) / height
                changes = self._changes[row]
                changes[begin] += share * up
                changes[begin + 1] += share * after_begin
                changes[stop] -= share * down
                changes[stop + 1] -= share * after_stop

    def texts(self):
        """Return a text per row: a digit per cell, from 0 (unused) to 9 (all)."""
        found = []
        for changes in self._changes:
            share, digits = 0.0, []
            for change in changes[: self.columns]:
                share += change
                digits.append("0" if share < 1e-6 else str(max(1, min(9, round(share * 9)))))
            found.append("".join(digits))
        return found


# -- promises --------------------------------------------------------------------------------------------------


def promises(outcome):
    """Return [[first promise, start]] of jobs with promises: all broken ones, and an even sample of
    the others."""
    broken, kept = [], []
    for index in outcome.started():
        promise, start = outcome.promise[index], outcome.start[index]
        if promise == promise:
            some = broken if metrics.is_broken(promise, start) else kept
            some.append([in_microseconds(promise), start])
    stride = max(1, -(-len(kept) // POINTS))
    return broken + kept[::stride]


def promised(outcome):
    """Return the number of promises and by how much jobs started earlier, in seconds."""
    columns = zip(outcome.promise, outcome.start)
    known = [
        (promise, start) for promise, start in columns if promise == promise and start == start
    ]
    early = sorted(promise - start for promise, start in known)
    return {
        "made": len(early),
        "broken": sum(metrics.is_broken(*one) for one in known),
        "exact": sum(1 for value in early if abs(value) <= 60),
        "median": metrics.quantile(early, 0.5),
        "p90": metrics.quantile(early, 0.9),
        "max": early[-1] if early else math.nan,
    }
