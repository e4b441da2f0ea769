# SPDX-License-Identifier: LGPL-3.0-or-later
"""Start, end and allocation of each job, in columns: a million jobs take a few hundred
megabytes."""

from array import array
from functools import cached_property, lru_cache
from itertools import compress
from math import inf
from operator import attrgetter, eq, sub

from flux.resource.pool.masks import parse_idset, popcount
from flux.simulate.engine import Observer
from flux.simulate.job import Shape, in_microseconds
from flux_engine.formats import idset, states
from flux_engine.formats.jobspec import count_resources

NEVER = float("nan")
#: In addition to the results of `states`: refused by the scheduler; not ended.
REJECTED, UNFINISHED = 16, 0
#: Preempted by the scheduler.
PREEMPTED = 32

#: Kinds of events in `Outcome.events`: a job ends, is withdrawn, is submitted, starts.
END, WITHDRAWAL, SUBMISSION, START = range(4)

#: Lower bound of run times in the bounded slowdown, in seconds.
TAU = 10.0

#: Batsim's final states.
FINAL = {
    states.COMPLETED: "COMPLETED_SUCCESSFULLY",
    states.FAILED: "COMPLETED_FAILED",
    states.CANCELED: "COMPLETED_KILLED",
    states.TIMEOUT: "COMPLETED_WALLTIME_REACHED",
    REJECTED: "REJECTED",
    PREEMPTED: "COMPLETED_KILLED",
}


class Outcome(Observer):
    """The observer of an engine. Times are seconds since the start of the workload.

    Args:
        epoch (float): start of the workload on the engine's clock
        keep_R (bool): whether to keep the R of each job
        may_get_more (bool): whether jobs may get more units than they request

    Attributes:
        submit, start, end (array): NaN if it did not happen
        how (bytearray): a result of `states`, `REJECTED`, `PREEMPTED` or `UNFINISHED`
        promise (array): the first promised start
        told_backfilled (bytearray): whether the scheduler annotated the job as backfilled
        size (array): size of each job in units: of its request, or of its allocation if it has its
            own jobspec, or may get more
        allocated (list): units of each job, as an interval set separated by blanks
        others (dict): id -> [start, end, units] of jobs of no trace, which ran from the beginning
            or are a script's
        R (list or None): R of each job, if kept
        notes (dict): index -> reason of its refusal or end
        preempted_for (dict): index -> trace id of the preempting job, or None if unknown
        short (dict): index -> the missing part of its allocation, in words
        done (int): number of jobs ended or refused
        last (float): time of the last start or end of a job of the trace
        until (float): time at which the run was interrupted, or infinity
        events (array): in order of time: 4 * index + kind; a number below 0 is ~place in `changes`
        changes (list): (time, units in use more than before) when jobs of no trace start and end
        history (list): (time, bounds of the ranks available from then on)
        sweep (Sweep or None): of `metrics.sweep_of`
    """

    def __init__(self, workload, epoch, keep_R=False, may_get_more=False):
        count = len(workload.jobs)
        self.workload = workload
        self.epoch = epoch
        self.submit = array("d", map(attrgetter("submit"), workload.jobs))
        self.start = array("d", [NEVER]) * count
        self.end = array("d", [NEVER]) * count
        self.promise = array("d", [NEVER]) * count
        self.how = bytearray(count)
        self.told_backfilled = bytearray(count)
        self.size = array("q", map(attrgetter("size"), workload.jobs))
        self.allocated = [None] * count
        self.others = {}
        self.R = [None] * count if keep_R else None
        self._may_get_more = may_get_more
        self.notes = {}
        self.preempted_for = {}
        self.short = {}
        self.done = 0
        self.last = 0.0
        self.until = inf
        self.events = array("q")
        self.changes = []
        self.history = []
        self.sweep = None
        self._unit = _RankUnits() if workload.unit == "node" else _CoreUnits(workload.machine.R)

    def __getstate__(self):
        """Return the columns, for another process, which has the workload."""
        own = {**vars(self), "workload": None, "R": None, "sweep": None, "_unit": None}
        own.pop("columns", None)
        return own

    # -- told by the engine --------------------------------------------------------------------------

    def submitted(self, index, when):
        if self.workload.jobs[index].after is not None:
            self.submit[index] = round(when - self.epoch, 6)
        self.events.append(4 * index + SUBMISSION)

    def began(self, active):
        index = active.index
        if index < 0:
            start, units = round(active.start - self.epoch, 6), self._unit.allocated(active.R)
            self.others[active.job.id] = [start, None, units]
            self._change(max(start, 0.0), count_units(units))
            return
        self.last = self.start[index] = in_microseconds(active.start - self.epoch)
        self.events.append(4 * index + START)
        job = active.job
        self.allocated[index] = self._unit.allocated(active.R)
        short = shortage(job, active.R)
        if short is not None:
            self.short[index] = short
        if self.R is not None:
            self.R[index] = active.R
        if self._may_get_more or (job.extra is not None and "jobspec" in job.extra):
            self.size[index] = count_units(self.allocated[index])
        sched = active.annotations.get("sched") if active.annotations else None
        if type(sched) is dict:
            backfilled = sched.get("selection_type") == "backfilled"
            self.told_backfilled[index] = backfilled or bool(sched.get("backfill"))
            if "t_latest" in sched:
                self.annotated(active)  # promised with its start

    def ended(self, active, how):
        index = active.index
        if index < 0:
            entry = self.others.get(active.job.id)
            if entry is not None:
                entry[1] = round(active.end - self.epoch, 6)
                self._change(entry[1], -count_units(entry[2]))
            return
        self.end[index] = in_microseconds(active.end - self.epoch)
        if self.start[index] == self.start[index]:
            self.last = self.end[index]
            self.events.append(4 * index + END)
        else:
            self.events.append(4 * index + WITHDRAWAL)
        self.how[index] = how
        self.done += 1
        if active.preempted is not None:
            self.how[index] = PREEMPTED
            self.notes[index], self.preempted_for[index] = active.preempted

    def _change(self, when, units):
        self.events.append(~len(self.changes))
        self.changes.append((when, units))

    def rejected(self, active, note):
        self.end[active.index] = round(active.end - self.epoch, 6)
        self.how[active.index] = REJECTED
        self.notes[active.index] = note or ""
        self.done += 1

    def annotated(self, active):
        index = active.index
        if index >= 0 and self.promise[index] != self.promise[index]:
            sched = active.annotations.get("sched")
            if type(sched) is not dict or not ("t_latest" in sched or "t_estimate" in sched):
                return
            when = sched.get("t_latest")
            # only "promised" estimates are promises
            if when is None and sched.get("t_estimate_kind") == "promised":
                when = sched.get("t_estimate")
            if isinstance(when, (int, float)) and when:
                self.promise[index] = when - self.epoch

    def available(self):
        """Return the available units over time: [[seconds, interval set]]."""
        return [[when, self._unit.on(bounds)] for when, bounds in self.history]

    def absences(self):
        """Return [(time, units more than before that are neither available nor in use)], by time."""
        every = (1 << self.workload.units) - 1
        history = [(when, 0, every & ~_mask(units)) for when, units in self.available()]
        if not any(down for _, _, down in history):
            return []
        held = [(self.start[i], self.end[i], self.allocated[i]) for i in self.started()]
        held += self.others.values()
        steps = [
            (when, 1, _mask(units))
            for *times, units in held
            for when in times
            if when is not None and when == when
        ]
        found = []
        down = in_use = away = 0
        for when, is_job, mask in sorted(history + steps):
            if is_job:
                in_use ^= mask  # it starts, or ends
            else:
                down = mask
            before, away = away, popcount(down & ~in_use)
            if away != before:
                found.append((max(when, 0.0), away - before))
        return found

    # -- queries ----------------------------------------------------------------------------

    def uses(self):
        """Yield (time, units in use more than before) of starts and ends, in order of time."""
        for event in self.events:
            kind, index = event & 3, event >> 2
            if event < 0:
                yield self.changes[~event]
            elif kind == START:
                yield self.start[index], self.size[index]
            elif kind == END:
                yield self.end[index], -self.size[index]

    def started(self):
        """Return the indices of jobs that started, in order of submission."""
        return array("q", compress(range(len(self.start)), map(eq, self.start, self.start)))

    def unstarted(self):
        """Return the indices of jobs that were neither started nor refused or cancelled."""
        settled = (REJECTED, states.CANCELED, states.FAILED)
        ends = enumerate(zip(self.start, self.how))
        return [index for index, (start, how) in ends if start != start and how not in settled]

    @cached_property
    def columns(self):
        """Wait, seconds that it held its resources (so far, if it has not ended) and bounded
        slowdown of each job; NaN if it did not start. For use after the run."""
        end = (end if end == end else self.last for end in self.end)
        wait = array("d", map(sub, self.start, self.submit))
        held = array("d", map(sub, end, self.start))
        return wait, held, array("d", map(bounded_slowdown, wait, held))


def bounded_slowdown(wait, run):
    """Return max(1, (wait + run) / max(run, TAU))."""
    slowdown = (wait + run) / (run if run > TAU else TAU)
    return slowdown if slowdown > 1.0 else 1.0


@lru_cache(maxsize=4096)
def _count(text):
    return popcount(parse_idset(text))


def shortage(job, R):
    """Return the part of a job's request missing from its allocation (RFC 20), in words, or None.
    Takes some microseconds per entry of R_lite."""
    needed, least, size, gpus, _ = job.shape or Shape(0, 0)
    nodes = slots = cores = 0
    for entry in R["execution"]["R_lite"]:
        have = entry["children"]
        ranks, each = popcount(parse_idset(entry["rank"])), _count(have.get("core", ""))
        fit = each // size
        if gpus:
            fit = min(fit, _count(have.get("gpu", "")) // gpus)
        cores += ranks * each
        slots += ranks * fit
        if fit >= least:
            nodes += ranks
    if job.shape is None:
        asked = count_resources(job.extra["jobspec"]["resources"])
        for what, found in (("node", nodes), ("core", cores)):
            if found < asked[what]:
                return f"{found} of {asked[what]} {what}s"
        return None
    if needed:
        what = "nodes" if least == size == 1 else "nodes with enough on them"
        return f"{nodes} of {needed} {what}" if nodes < needed else None
    return f"{slots} of {least} slots" if slots < least else None


def _mask(units):
    return parse_idset(units.replace(" ", ","))


def units_of(text):
    """Return the bounds of a result's interval set, such as ``0-3 7``; None and ``""`` are the
    empty set."""
    return idset.decode((text or "").replace(" ", ","))


def runs_of(text):
    """Yield the runs (first, last + 1) of an interval set as `Outcome` has it, which needs no check."""
    for run in text.split():
        low, _, high = run.partition("-")
        yield int(low), int(high or low) + 1


def count_units(text):
    """Return the number of units of an interval set."""
    return sum(high - low for low, high in runs_of(text))


class _RankUnits:
    """Allocated units if a unit is a node: ranks."""

    def on(self, bounds):
        """Return all units of some ranks."""
        return idset.encode(bounds).replace(",", " ")

    def allocated(self, R):
        entries = R["execution"]["R_lite"]
        if not entries[1:]:
            return entries[0]["rank"].replace(",", " ")
        bounds = []
        for entry in entries:
            bounds = idset.union(bounds, idset.decode(entry["rank"]))
        return idset.encode(bounds).replace(",", " ")


class _CoreUnits:
    """Allocated units if a unit is a core: cores are numbered across all nodes."""

    def __init__(self, R):
        self._first = {}
        self._place = {}
        count = 0
        for entry in R["execution"]["R_lite"]:
            cores = idset.members(idset.decode(entry["children"]["core"]))
            places = {core: place for place, core in enumerate(cores)}
            self._place.update(dict.fromkeys(idset.members(idset.decode(entry["rank"])), places))
        for rank in sorted(self._place):
            self._first[rank] = count
            count += len(self._place[rank])

    def on(self, bounds):
        """Return all units of some ranks."""
        found = []
        for rank in idset.members(bounds):
            first = self._first[rank]
            found.extend(range(first, first + len(self._place[rank])))
        return idset.text(found).replace(",", " ")

    def allocated(self, R):
        pieces = []
        for entry in R["execution"]["R_lite"]:
            cores = idset.decode(entry["children"].get("core", ""))
            runs = list(zip(cores[::2], cores[1::2]))
            for rank in idset.members(idset.decode(entry["rank"])):
                first, place = self._first[rank], self._place[rank]
                for low, high in runs:
                    # Cores of a node are consecutive, or looked up one by one.
                    if place[high - 1] - place[low] == high - 1 - low:
                        pieces.append((first + place[low], first + place[high - 1] + 1))
                    else:
                        units = [first + place[core] for core in range(low, high)]
                        pieces += [(unit, unit + 1) for unit in units]
        return idset.encode(idset.join(sorted(pieces))).replace(",", " ")
