# SPDX-License-Identifier: LGPL-3.0-or-later
"""Data of the pictures of one result, thinned out so that a report of ten policies stays small."""

import math

from flux.simulate.results import metrics
from flux.simulate.results.outcome import units_of

#: Most jobs of a Gantt chart that are bars of their own; the others are merged into a shade.
GANTT_JOBS = 500
#: Most kept promises in their chart; broken ones are all there.
POINTS = 1500
#: Cells of the shade of a Gantt chart's window, and of the view of the whole run: columns, rows.
SHADE = (180, 64)
WHOLE = (240, 48)
#: Bins in which submissions are counted.
BINS = 120


def picture_data(outcome):
    """Series and samples of an outcome, as JSON can hold them."""
    sweep = metrics.Sweep(outcome)
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
    """When jobs came: jobs and area (unit seconds of run time) submitted in each of `BINS` equal spans."""
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
    """The span that Gantt charts show, the same for all policies: (begin, end) in seconds, or None for all.

    It lies around the moment at which most work has been submitted that a perfect machine could not
    have done yet, and is as long as it takes `GANTT_JOBS` jobs to come in.
    """
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
    # Jobs of an array all come in one second, and run for hours.
    longest = max(job.seconds for job in jobs[first : first + GANTT_JOBS])
    return begin, max(end, begin + min(longest, 86400.0), begin + 1)


def gantt(outcome):
    """All jobs that ran in the `window`.

    Returns:
        dict: ``begin``, ``end``; ``jobs``, those with the largest areas in it: [[id, submit, start, end, size, limit, user,
        queue, allocated, backfilled, how]]; ``merged``, how many others there are; ``merged_share``, their share of the
        used area; ``shade``, where they are: a text of digits for each row of cells
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
    """How much of each part of the machine was in use when, over the whole run: rows of cells, and their end."""
    end = max(outcome.last, 1.0)
    cells = Cells(outcome.workload.units, 0.0, end, *WHOLE)
    for index in outcome.started():
        stop = outcome.end[index]
        cells.add(outcome.start[index], stop if stop == stop else end, outcome.allocated[index])
    return {"end": end, "shade": cells.texts()}


class Cells:
    """Units by time, as cells that are used to some share.

    Args:
        units (int): of the machine
        begin, end (float): of the time
        columns, rows (int): cells, at most one row a unit
    """

    def __init__(self, units, begin, end, columns, rows):
        self.begin, self.step = begin, (end - begin) / columns
        self.columns, self.rows = columns, min(rows, units)
        self.height = units / self.rows
        # Of each row by how much the share changes from column to column; two more, for ends.
        self._changes = [[0.0] * (columns + 2) for _ in range(self.rows)]

    def add(self, start, end, allocated):
        """A job held units (an interval set) from start to end."""
        first = min(max((start - self.begin) / self.step, 0.0), self.columns)
        last = min(max((end - self.begin) / self.step, 0.0), self.columns)
        if not last > first:
            return
        bounds = units_of(allocated)
        for low, high in zip(bounds[::2], bounds[1::2]):
            for row in range(int(low / self.height), self.rows):
                top, bottom = row * self.height, (row + 1) * self.height
                if top >= high:
                    break
                share = (min(high, bottom) - max(low, top)) / self.height
                self._span(self._changes[row], first, last, share)

    @staticmethod
    def _span(changes, first, last, share):
        """Add `share` from first to last, columns of which the outer ones may be parts."""
        for at, sign in ((first, share), (last, -share)):
            column = int(at)
            part = at - column
            changes[column] += sign * (1 - part)
            changes[column + 1] += sign * part

    def texts(self):
        """A text for each row: a digit for each cell, 0 (not in use) to 9 (all of it)."""
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
    """[[first promise, start]] of jobs that had one: all that were broken, and a sample of the others, evenly."""
    broken, kept = [], []
    for index in outcome.started():
        promise, start = outcome.promise[index], outcome.start[index]
        if promise == promise:
            some = broken if start > promise + metrics.LATE else kept
            some.append([round(promise, 1), round(start, 1)])
    stride = max(1, -(-len(kept) // POINTS))
    return broken + kept[::stride]


def promised(outcome):
    """How good promises were: how many there were, and by how much jobs started earlier, seconds."""
    early = sorted(
        outcome.promise[i] - outcome.start[i]
        for i in outcome.started()
        if outcome.promise[i] == outcome.promise[i]
    )
    return {
        "made": len(early),
        "broken": sum(1 for value in early if value < -metrics.LATE),
        "exact": sum(1 for value in early if abs(value) <= 60),
        "median": metrics.quantile(early, 0.5),
        "p90": metrics.quantile(early, 0.9),
        "max": early[-1] if early else math.nan,
    }
