# SPDX-License-Identifier: LGPL-3.0-or-later
"""Figures of an outcome; doc/guide/comparing.rst defines them."""

import bisect
import math
from array import array
from collections import defaultdict
from operator import attrgetter

from flux.simulate.results.outcome import END, PREEMPTED, REJECTED, START, SUBMISSION
from flux_engine.formats import states

#: Upper bounds of the classes of size (units) and of run time (seconds), and their names.
SIZE_BOUNDS, SIZES = (1, 8, 32), ("1", "2-8", "9-32", "33+")
RUN_BOUNDS, RUNS = (3600, 8 * 3600), ("< 1 h", "1-8 h", "> 8 h")

#: A start later than promised by more than this breaks the promise, in seconds.
LATE = 1e-3

#: Maximum number of users listed in a report; the others are one group.
USERS = 10
#: Number of classes of size, and of run time, in a report, with about equal numbers of jobs.
PARTS = 4

#: Number of points of a distribution, and of a series over time, in a report.
QUANTILES = 200
STEPS = 300


def quantile(ordered, share):
    """Return the quantile of the sorted list `ordered`, interpolated; `share` is 0 to 1. NaN if
    empty."""
    if not ordered:
        return math.nan
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def is_broken(promise, start):
    """Whether a start breaks a promise; times in seconds."""
    return start > promise + LATE


def mean(values):
    return math.fsum(values) / len(values) if values else math.nan


def jain(values):
    """Return Jain's index of fairness, (sum x)^2 / (n sum x^2): 1 if all values are equal, 1/n if
    only one is not 0. NaN for fewer than two values. Jain, Chiu, Hawe: "A Quantitative Measure of
    Fairness and Discrimination for Resource Allocation in Shared Computer Systems", 1984."""
    if len(values) < 2:
        return math.nan
    squares = math.fsum(value * value for value in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else 1.0


def _ratio(part, whole):
    """Return part / whole, or NaN if `whole` is 0."""
    return part / whole if whole > 0 else math.nan


def _spread(name, ordered):
    """Return the mean and the percentiles of a sorted column, as figures."""
    shares = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
    found = {f"{name}_{key}": quantile(ordered, share) for key, share in shares.items()}
    return {f"{name}_mean": mean(ordered), **found}


def _ascending(column, indices):
    """Return the jobs' values of a column, sorted; an array, since a list of a million floats takes
    32 MB."""
    return array("d", sorted(map(column.__getitem__, indices)))


def job_figures(outcome, indices):
    """Return the figures of waits and slowdowns of some jobs that started, as {name: number}."""
    wait, run, slowdown = outcome.columns
    waits, slowdowns = _ascending(wait, indices), _ascending(slowdown, indices)
    areas = array("d", (outcome.size[i] * run[i] for i in indices))
    area = math.fsum(areas)
    waited = math.fsum(one * wait[i] for one, i in zip(areas, indices))
    weighted = math.fsum(one * (wait[i] + run[i]) for one, i in zip(areas, indices))
    return {
        **_spread("wait", waits),
        "wait_max": waits[-1] if waits else math.nan,
        **_spread("bsld", slowdowns),
        "response_weighted": _ratio(weighted, area),
        "wait_weighted": _ratio(waited, area),
    }


def figures(outcome):
    """Return the figures of an outcome for the table, as {name: number}."""
    workload = outcome.workload
    jobs = workload.jobs
    started = outcome.started()
    how = outcome.how
    sweep = sweep_of(outcome)
    wait, run, slowdown = outcome.columns
    size = outcome.size
    promised = [i for i in started if outcome.promise[i] == outcome.promise[i]]
    broken = sum(is_broken(outcome.promise[i], outcome.start[i]) for i in promised)
    found = {
        "jobs": len(jobs),
        "started": len(started),
        "rejected": how.count(REJECTED),
        "timeouts": how.count(states.TIMEOUT),
        "killed": sum(how.count(code) for code in (states.CANCELED, states.FAILED, PREEMPTED)),
        "never_started": len(outcome.unstarted()),
        **job_figures(outcome, started),
        "utilization": _ratio(sweep.used, sweep.capacity),
        "loss_of_capacity": _ratio(sweep.lost, sweep.capacity),
        "makespan": outcome.last,
        "out_of_order": _ratio(count_out_of_order(outcome), len(started)),
        "promised": len(promised),
        "promises_broken": broken,
    }
    users = {}
    for index in started:
        if jobs[index].user is not None:
            users.setdefault(jobs[index].user, []).append(index)
    if len(users) > 1:
        found["users"] = len(users)
        for key, column in (("jain_wait", wait), ("jain_bsld", slowdown)):
            found[key] = jain([mean([column[i] for i in indices]) for indices in users.values()])
    if PREEMPTED in how:
        ended = [i for i in started if how[i] == PREEMPTED]
        found["preempted"] = len(ended)
        found["hours_lost"] = math.fsum(size[i] * run[i] for i in ended) / 3600.0
    return found


#: Counts of jobs or users, which are valid for a failed run too.
COUNTS = {
    "jobs", "started", "rejected", "timeouts", "killed", "never_started", "promised",
    "promises_broken", "preempted", "users",
}  # fmt: skip


def count_out_of_order(outcome):
    """Return the number of jobs that started before one of their queue that was submitted earlier
    with at least their urgency."""
    latest = {}
    found = 0
    jobs = outcome.workload.jobs
    # Jobs that follow others are submitted at other times than in the trace.
    order = range(len(jobs))
    if any(map(attrgetter("after"), jobs)):
        order = sorted(order, key=lambda index: outcome.submit[index])
    for index in order:
        start = outcome.start[index]
        if start != start:
            continue
        job = jobs[index]
        table = latest.setdefault(job.queue, {})
        for urgency in table:
            if urgency >= job.urgency and table[urgency] > start:
                found += 1
                break
        if job.urgency not in table or start > table[job.urgency]:
            table[job.urgency] = start
    return found


class Sweep:
    """The machine over time, up to the last submission, or to the interrupt of a run.

    Attributes:
        capacity (float): unit seconds, except while a unit is idle and not available
        used (float): unit seconds in use
        lost (float): unit seconds idle while a waiting job was no larger than the idle part
        times, busy, queued, waiting (list): thinned steps over the whole run: units in use, queued
            area (units times seconds of the limit or run time), and number of waiting jobs
    """

    def __init__(self, outcome):
        workload = outcome.workload
        jobs, units, sizes = workload.jobs, workload.units, outcome.size
        used = lost = 0.0
        horizon = min(jobs[-1].submit, outcome.until) if jobs else 0.0
        times = outcome.end, outcome.end, outcome.submit, outcome.start
        events = outcome.events
        changes = [(when, more, 0) for when, more in outcome.changes]
        if outcome.until < math.inf:
            events = [*events, ~len(changes)]
            changes.append((outcome.until, 0, 0))
        absences = outcome.absences()
        away = math.fsum(more * (horizon - when) for when, more in absences if when < horizon)
        self.capacity = units * horizon - away
        if absences:
            added = range(~len(changes), ~len(changes) - len(absences), -1)
            changes += [(when, 0, more) for when, more in absences]
            events = sorted(
                [*events, *added],
                key=lambda event: changes[~event][0] if event < 0 else times[event & 3][event >> 2],
            )
        if REJECTED in outcome.how:
            refused = outcome.how
            events = (one for one in events if one < 0 or refused[one >> 2] != REJECTED)
        step = max([outcome.last, horizon, *(when for when, _ in outcome.changes)]) / STEPS or 1.0
        self.times, self.busy, self.queued, self.waiting = [], [], [], []
        weights = array("d", [one * (job.limit or job.seconds) for one, job in zip(sizes, jobs)])
        waiting, least = {}, math.inf  # size: number of waiting jobs; the smallest
        busy = area = length = 0
        busy_area = queue_area = length_area = 0.0
        before = bucket = 0.0
        for event in events:
            kind, index = event & 3, event >> 2
            when = times[kind][index] if event >= 0 else changes[~event][0]
            if when > before:
                span = when - before
                work = busy * span
                busy_area += work
                queue_area += area * span
                length_area += length * span
                if before < horizon:
                    if when > horizon:
                        span = horizon - before
                        work = busy * span
                    used += work
                    if least <= units - busy:
                        lost += (units - busy) * span
                before = when
                if when - bucket >= step:
                    self._note(bucket, when, busy_area, queue_area, length_area)
                    bucket, busy_area, queue_area, length_area = when, 0.0, 0.0, 0.0
            if event < 0:
                _, more, fewer = changes[~event]
                busy += more
                units -= fewer
            elif kind == SUBMISSION:
                size = sizes[index]
                waiting[size] = waiting.get(size, 0) + 1
                if size < least:
                    least = size
                area += weights[index]
                length += 1
            elif kind == END:
                busy -= sizes[index]
            else:
                size = sizes[index]
                waiting[size] -= 1
                if not waiting[size]:
                    del waiting[size]
                    if size == least:
                        least = min(waiting, default=math.inf)
                area -= weights[index]
                length -= 1
                if kind == START:
                    busy += size
        if before > bucket:
            self._note(bucket, before, busy_area, queue_area, length_area)
        self.used, self.lost = used, lost

    def _note(self, begin, end, busy_area, queue_area, length_area):
        self.times.append(begin)
        self.busy.append(busy_area / (end - begin))
        self.queued.append(queue_area / (end - begin))
        self.waiting.append(length_area / (end - begin))


def sweep_of(outcome):
    """Return the `Sweep` of an outcome, made once."""
    if outcome.sweep is None:
        outcome.sweep = Sweep(outcome)
    return outcome.sweep


def class_of(size, run):
    """Return the class of a job: names of (size, run time)."""
    return SIZES[bisect.bisect_left(SIZE_BOUNDS, size)], RUNS[bisect.bisect_right(RUN_BOUNDS, run)]


def classes(outcome):
    """Return {class: {jobs, wait, bsld}} with means, for classes of size and run time, and for
    queues."""
    found = Means()
    wait, _, slowdown = outcome.columns
    for index in outcome.started():
        job = outcome.workload.jobs[index]
        size, length = class_of(outcome.size[index], job.seconds)
        found.add(f"{size} x {length}", wait[index], slowdown[index])
        if job.queue is not None:
            found.add(f"queue {job.queue}", wait[index], slowdown[index])
    return found.table(class_names(found), "wait", "bsld")


def class_names(known):
    """Return the classes among the names `known`: by size and run time, then the queues."""
    order = [f"{size} x {length}" for size in SIZES for length in RUNS]
    return [name for name in order if name in known] + sorted(set(known).difference(order))


class Means(dict):
    """The number of jobs, and the sums of two of their figures, by the name of a group."""

    def add(self, name, first, second):
        """Add a job to a group."""
        jobs, one, other = self.get(name, (0, 0.0, 0.0))
        self[name] = jobs + 1, one + first, other + second

    def table(self, names, first, second):
        """Return {name: {jobs, first, second}} with means, in the order of names."""
        known = [(name, *self[name]) for name in names if name in self]
        return {
            name: {"jobs": jobs, first: one / jobs, second: other / jobs}
            for name, jobs, one, other in known
        }


def distributions(outcome):
    """Return quantiles of waits and of bounded slowdowns, at equal steps."""
    started = outcome.started()
    wait, _, slowdown = outcome.columns
    return [
        [quantile(ordered, i / QUANTILES) for i in range(QUANTILES + 1)] if ordered else []
        for ordered in (_ascending(one, started) for one in (wait, slowdown))
    ]


def parts(values, count=PARTS):
    """Return bounds that split values into groups of about equal size: the largest value of each,
    ascending."""
    ordered = sorted(values)
    places = (-(-len(ordered) * part // count) - 1 for part in range(1, count + 1))
    return sorted({ordered[place] for place in places}) if ordered else []


def part_names(bounds, write, step=0):
    """Return names of the groups of `parts`: ``up to 1``, ``1 to 8``, ``> 8``; with the `step` 1 of whole numbers ``2 to
    8``."""
    texts = [write(bound) for bound in bounds]
    names = [f"up to {text}" for text in texts[:1]]
    lows = [write(bound + step) for bound in bounds]
    names += [low if low == high else f"{low} to {high}" for low, high in zip(lows, texts[1:])]
    return [*names[:-1], f"> {texts[-2]}"] if len(texts) > 1 else names


def groups(outcome):
    """Return means of groups of jobs; the groups are the same for all policies.

    Returns:
        dict: {"size and run time", "user", "queue", "size"} -> {group: {jobs, wait, wait_p90, bsld,
            area, waited}}; ``area`` and ``waited`` are shares of the total. Kinds with a single
            group are left out.
    """
    work = outcome.workload
    size_bounds = parts(job.size for job in work.jobs)
    run_bounds = parts(job.seconds for job in work.jobs)
    sizes = part_names(size_bounds, str, 1)
    runs = part_names(run_bounds, span_text)
    areas = {}
    for job in work.jobs:
        if job.user is not None:
            areas[job.user] = areas.get(job.user, 0.0) + job.size * job.seconds
    # the largest first
    users = sorted(areas, key=lambda user: -areas[user])[:USERS]
    found = {"size and run time": {}, "size": {}, "user": {}, "queue": {}}
    for size in sizes:
        found["size"][size] = []
        for run in runs:
            found["size and run time"][f"{size}, {run}"] = []
    alike = defaultdict(list)
    for index in outcome.started():
        job = work.jobs[index]
        size = bisect.bisect_left(size_bounds, job.size)
        alike[size, bisect.bisect_left(run_bounds, job.seconds), job.user, job.queue].append(index)
    for (size, run, user, queue), indices in alike.items():
        user = user if user is None or user in users else "all others"
        names = (f"{sizes[size]}, {runs[run]}", sizes[size], user, queue)
        for kind, name in zip(found, names):
            if name is not None:
                found[kind].setdefault(name, []).extend(indices)
    columns = outcome.columns
    order = [*users, "all others"]
    found["user"] = {name: found["user"][name] for name in order if name in found["user"]}
    found["queue"] = dict(sorted(found["queue"].items()))
    tables = {}
    for kind, table in found.items():
        means = {name: _means(outcome, some, columns) for name, some in table.items() if some}
        if len(means) > 1:
            tables[kind] = means
            for key in ("area", "waited"):
                total = math.fsum(one[key] for one in means.values())
                for one in means.values():
                    one[key] = one[key] / total if total else 0.0
    return tables


def span_text(seconds, names=(" d", " h", " min", " s")):
    """Format seconds with three digits in the largest unit that fits: ``1.5 h``."""
    sizes = (86400, 3600, 60, 1)
    unit, name = next((one for one in zip(sizes, names) if abs(seconds) >= one[0]), (1, names[-1]))
    digits = ".3g" if abs(seconds) < 1000 * unit else ".0f"
    return f"{seconds / unit:{digits}}{name}"


def _means(outcome, indices, columns):
    wait, run, slowdown = columns
    waits = _ascending(wait, indices)
    return {
        "jobs": len(indices),
        "wait": mean(waits),
        "wait_p90": quantile(waits, 0.9),
        "bsld": mean([slowdown[i] for i in indices]),
        "area": math.fsum(outcome.size[i] * run[i] for i in indices),
        "waited": math.fsum(waits),
    }
