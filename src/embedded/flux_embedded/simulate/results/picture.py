# SPDX-License-Identifier: LGPL-3.0-or-later
"""What a report draws of one result, thinned out so that a report of ten policies stays small."""

from flux_embedded.simulate.results import metrics

#: Most jobs in a Gantt chart that can still be told apart.
GANTT_JOBS = 500
#: Most points in the chart of promises.
POINTS = 1500


def picture_data(outcome):
    """Series and samples of an outcome, as JSON can hold them."""
    sweep = metrics.Sweep(outcome)
    return {
        "waits": [round(wait, 3) for wait in metrics.distribution(outcome)],
        "times": [round(when, 1) for when in sweep.times],
        "busy": [round(units, 3) for units in sweep.busy],
        "queued": [round(area, 1) for area in sweep.queued],
        "end": outcome.last,
        "units": outcome.workload.units,
        "gantt": gantt(outcome),
        "promises": promises(outcome),
    }


def gantt(outcome, around=None):
    """The jobs of a window around the busiest wait, at most `GANTT_JOBS`.

    Returns:
        dict: ``jobs`` [[id, submit, start, end, size, limit, user, queue, allocated, backfilled, how]], ``left_out`` how
        many others there are, ``begin`` and ``end``
    """
    started = sorted(outcome.started(), key=lambda index: outcome.start[index])
    if not started:
        return {"jobs": [], "left_out": 0, "begin": 0.0, "end": 1.0}
    count = min(GANTT_JOBS, len(started))
    first = 0
    if len(started) > count:
        # Where jobs wait the longest is where policies differ.
        waits = [outcome.start[i] - outcome.submit[i] for i in started]
        total = best = sum(waits[:count])
        for place in range(len(started) - count):
            total += waits[place + count] - waits[place]
            if total > best:
                best, first = total, place + 1
    chosen = started[first : first + count]
    rows = []
    for index in chosen:
        job = outcome.workload.jobs[index]
        end = outcome.end[index]
        rows.append(
            [
                job.id,
                round(outcome.submit[index], 3),
                round(outcome.start[index], 3),
                round(end if end == end else outcome.last, 3),
                outcome.size[index],
                job.limit,
                job.user,
                job.queue,
                outcome.allocated[index],
                outcome.told_backfilled[index],
                outcome.how[index],
            ]
        )
    return {
        "jobs": rows,
        "left_out": len(started) - count,
        "begin": min(row[2] for row in rows),
        "end": max(row[3] for row in rows),
    }


def promises(outcome):
    """[[first promise, start]] of jobs that had one, thinned out evenly."""
    found = [
        [round(outcome.promise[i], 1), round(outcome.start[i], 1)]
        for i in outcome.started()
        if outcome.promise[i] == outcome.promise[i]
    ]
    stride = max(1, -(-len(found) // POINTS))
    return found[::stride]
