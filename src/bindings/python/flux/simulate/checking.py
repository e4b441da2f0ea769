# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux simulate check``: rules that the schedule of any scheduler must keep; the first violation is reported."""

import bisect
import collections
import heapq
import json
import math
import os

from flux.resource.allocations import Allocations
from flux.simulate.results import reading
from flux.simulate.results.files import busy_steps
from flux.simulate.results.outcome import units_of
from flux.simulate.results.reading import GRAIN
from flux.simulate.site_check import broken, misplaced
from flux.simulate.workload.text import counted
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser
from flux_engine.formats import eventlog, idset, jobid, rset, states
from flux_engine.resource.inventory import Inventory

#: Modules that start jobs in order.
ORDERLY = ("sched-fifo", "sched-simple")

#: Event -> events that must precede it.
BEFORE = {
    "validate": ("submit",), "depend": ("submit",), "priority": ("depend",), "alloc": ("priority",),
    "start": ("alloc",), "release": ("alloc",), "free": ("alloc",),
}  # fmt: skip
ONCE = {"submit", "validate", "depend", "alloc", "start", "finish", "free", "clean"}
KEYS = {
    "submit": ("userid", "urgency", "flags"),
    "priority": ("priority",),
    "exception": ("type", "severity"),
    "finish": ("status",),
    "release": ("ranks", "final"),
    "urgency": ("urgency",),
}


class Violation(Exception):
    """A violated rule. The text names the job, the time and the fault."""


def check_main(argv):
    """Run the command. Return the exit code: 1 if a rule is violated."""
    parser = Parser(prog="flux-simulate check", description="Check a schedule against the rules")
    parser.option("directories=DIR", "results", nargs="*")
    parser.option("--live", "the jobs of the running instance")
    options = parser.parse_args(argv)
    if bool(options.directories) == options.live:
        raise CommandError("give directories, or --live", 2)
    where = ""
    try:
        if options.live:
            from flux.simulate.live import jobs_of_instance

            count = check_instance(*jobs_of_instance())
            print(f"{counted(count, 'job')} of the instance: no rule broken")
        for result in reading.find(options.directories):
            where = f"{result.directory}: "
            count, started = check_result(result), result.summary["figures"]["started"]
            failure = result.summary.get("failed")
            if failure:
                raise Violation(f"failed after {started:,} of {count:,} starts: {failure}")
            more = "" if started == count else f", {started:,} of them started"
            print(f"{where}{counted(count, 'job')}{more}: no rule broken")
    except Violation as exc:
        print(f"broken: {where}{exc}")
        return 1
    return 0


#: Columns of a row that must be finite numbers.
NUMBERS = (
    "submit", "start", "end", "run", "wait", "turnaround", "limit", "profile", "promise", "stretch",
)  # fmt: skip

#: Final states of jobs that ended by themselves or at their limits.
RAN = ("COMPLETED_SUCCESSFULLY", "COMPLETED_WALLTIME_REACHED")


class Schedule:
    """A result, with the rules as methods: each is a generator of violations (texts).

    Attributes:
        calm (bool): whether only jobs and the scheduler took part: no script, no failures, no
            running instance
    """

    def __init__(self, result):
        self.result = result
        self.rows = result.rows()
        self.options = result.provenance.get("options", {})
        self.calm = not any(self.options.get(key) for key in ("script", "live", "failures"))

    def held(self):
        """Return (job, start, end or None, bounds of its units, size or 0 if unknown) of all jobs
        that ran, including jobs of no trace."""
        ran = (row for row in self.rows if row.start is not None)
        held = [(row.id, row.start, row.end, row.units(), row.size) for row in ran]
        others = self.result.summary.get("others") or {}
        return held + [(id, *span, units_of(units), 0) for id, (*span, units) in others.items()]

    # -- each job by itself -------------------------------------------------------------------------------------

    def jobs(self):
        """The columns of a job are numbers, and its times are in order."""
        for row in self.rows:
            for text in self._columns(row):
                yield f"job {row.id}{text}"

    def _columns(self, row):
        for name in NUMBERS:
            value = getattr(row, name)
            # The stretch of a job without run time is infinite if it waited.
            known = value is None or math.isfinite(value)
            if not known and (name != "stretch" or value != value):
                yield f": its {name} is {value}, not a number"
        try:
            row.units()
        except ValueError as exc:
            yield f": allocated_resources: {exc}"
        start, end, limit = row.start, row.end, row.limit
        if start is None:
            return
        if start < row.submit - GRAIN:
            yield f" started at {start:g} s, before it was submitted at {row.submit:g} s"
        if end is not None and end < start:
            yield f" ended at {end:g} s, before it started at {start:g} s"
        if not self.calm:
            return
        # With a limited queue-depth the job manager holds some jobs back.
        module, *args = self.result.name.split()
        depth = ["unlimited" if module == "sched-backfill" or "order=queue" in args else "8"]
        depth += [arg.partition("=")[2] for arg in args if arg.startswith("queue-depth=")]
        may_wait = row.max_wait if depth[-1] == "unlimited" else None
        if may_wait is not None and start > row.submit + may_wait + GRAIN:
            yield f" started after {start - row.submit:g} s, and may wait {may_wait:g} s"
        if row.deadline is not None and limit and start + limit > row.deadline + GRAIN:
            yield f" started at {start:g} s with a limit of {limit:g} s, and was to end by {row.deadline:g} s"
        if end is not None and limit and end > start + limit + GRAIN:
            yield f" ran {end - start:g} s with a limit of {limit:g} s"

    def sums(self):
        """The record of a job is consistent."""
        for row in self.rows:
            for text in self._sums(row):
                yield f"job {row.id}{text}"

    def _sums(self, row):
        if row.start is None:
            if row.state in RAN or row.allocated or row.run is not None or row.wait is not None:
                yield " has no start, and units, a run time or a final state as if it had"
            return
        due = {"wait": row.start - row.submit}
        if row.end is not None:
            due.update(run=row.end - row.start, turnaround=row.end - row.submit)
        for name, value in due.items():
            written = getattr(row, name)
            if written is None or abs(written - value) > GRAIN:
                said = "nothing" if written is None else f"{written:g} s"
                what = "run time" if name == "run" else name
                yield f": its {what} is {value:g} s, and {said} is written"
        if row.end is None:
            if row.state:
                yield f" is {row.state}, and has no end"
            return
        if not row.state:
            yield " ended, and has no final state"
        if row.run > 0 and row.stretch is not None:
            stretch = row.turnaround / row.run
            if abs(row.stretch - stretch) > GRAIN * max(1.0, row.stretch):
                yield f": its stretch is {stretch:g}, not {row.stretch:g}"
        if (row.success == "1") != (row.state == "COMPLETED_SUCCESSFULLY"):
            yield f": its success is {row.success!r}, its final state {row.state}"
        if self.calm and row.profile is not None and row.state in RAN:
            # Times are floats since the epoch: their resolution is about a microsecond.
            profile, limit = row.profile, row.limit or math.inf
            if abs(row.run - min(profile, limit)) > GRAIN:
                more = f" and a limit of {limit:g} s" if row.limit else ""
                yield f" ran {row.run:g} s, with a run time of {profile:g} s{more}"
            if (profile > limit) != (row.state == "COMPLETED_WALLTIME_REACHED"):
                yield f" is {row.state}, with a run time of {profile:g} s"

    # -- jobs together ------------------------------------------------------------------------------------------

    def units(self):
        """A unit exists, and is held by one job at a time."""
        units, busy, ends = self.result.units, {}, []
        for job, start, end, bounds, size in sorted(
            self.held(), key=lambda row: (row[1], row[2] is None, row[2] or 0)
        ):
            while ends and ends[0][0] <= start + GRAIN:
                _, gone = heapq.heappop(ends)
                for unit in idset.members(gone):
                    busy.pop(unit, None)
            if size and idset.count(bounds) != size:
                yield f"job {job} of size {size} has {idset.count(bounds)} units"
            for unit in idset.members(bounds):
                if unit >= units:
                    yield f"job {job} is on unit {unit}, of a machine with {units}"
                if unit in busy:
                    yield f"unit {unit} is held by job {busy[unit]} and given to job {job} at {start:g} s"
                if end is None or end > start + GRAIN:
                    busy[unit] = job
            if end is not None and end > start + GRAIN:
                heapq.heappush(ends, (end, bounds))

    def available(self):
        """No job starts on a unit that is down, drained or removed."""
        history = self.result.summary.get("available") or ()
        changes = [(when, units_of(text)) for when, text in history]
        times = [when for when, _ in changes]
        for row in self.rows if changes else ():
            if row.start is None:
                continue
            # A start may precede or follow a change at the same instant, so the state before it
            # counts too.
            first = max(0, bisect.bisect_left(times, row.start - GRAIN) - 1)
            last = bisect.bisect_right(times, row.start + GRAIN)
            bad = [idset.difference(row.units(), up) for _, up in changes[first:last]]
            if bad and all(bad):
                yield f"job {row.id} started at {row.start:g} s on units {idset.encode(bad[-1])}, which could not be used then"

    def order(self):
        """A scheduler without backfill starts jobs in order, if it is that of submission."""
        name, *args = self.result.name.split()
        is_other = any(map(self.result.provenance.get, ("tables", "reordered")))
        if name not in ORDERLY or "order=queue" in args or is_other or not self.calm:
            return
        before = None
        # Of jobs submitted at one time, those that follow others may come last.
        began = [row for row in self.rows if row.start is not None]
        for row in sorted(began, key=lambda row: (row.submit, row.start)):
            if before is not None and row.start < before.start - GRAIN:
                former = f"job {before.id}, which came before it and started at {before.start:g} s"
                yield f"job {row.id} started at {row.start:g} s, ahead of {former}"
            before = row

    def promises(self):
        """A promise is kept, if no job goes first by its priority or share. A latest start is void
        if a rule keeps the job waiting."""
        provenance, args = self.result.provenance, self.result.name.split()
        is_latest = "promise=all" in args or "profile=short-waits" in args
        may_be_late = provenance.get("precedence") or (is_latest and provenance.get("tables"))
        is_checked = self.calm and not self.options.get("forecast") and not may_be_late
        for row in self.rows if is_checked else ():
            if None not in (row.promise, row.start) and row.start > row.promise + GRAIN:
                yield f"job {row.id} was promised a start at {row.promise:g} s and started at {row.start:g} s"

    def preempted(self):
        """A preempting job starts on the units of the job that it preempted."""
        by_id = {row.id: row for row in self.rows}
        for row in self.rows:
            if row.preempted_for is None or not self.calm:
                continue
            name = f"job {row.id} was ended for job {row.preempted_for}"
            taker = by_id.get(row.preempted_for)
            if taker is None or taker.start is None:
                yield f"{name}, which did not start"
            elif taker.start < row.end - GRAIN:
                yield f"{name}, which had started at {taker.start:g} s"
            elif not idset.intersect(row.units(), taker.units()):
                yield f"{name}, which started elsewhere"

    def placement(self):
        """Placements are as required, or preferred."""
        provenance = self.result.provenance
        topology = provenance.get("topology")
        if not topology or not self.calm:
            return
        machine = provenance["machine"]
        cores = machine["cores"] // machine["nodes"] if machine["unit"] == "core" else None
        alike = machine.get("cores_per_node") and not provenance.get("queues_constrain")
        for row in self.rows:
            wrong = misplaced(row, topology, cores, bool(alike) and not row.constraints)
            if wrong is not None:
                yield f"job {row.id}: {wrong}"

    def tables(self):
        """The site's tables are kept."""
        tables = self.result.provenance.get("tables")
        if tables:
            machine = self.result.provenance["machine"]
            found = broken(self.rows, tables, machine["unit"], machine.get("cores_per_node") or 0)
            if found is not None:
                yield found

    # -- files against each other ---------------------------------------------------------------------------------

    def number_of_jobs(self):
        """Each job is present exactly once."""
        rows, jobs = self.rows, self.result.provenance.get("jobs")
        if jobs is not None and len(rows) != jobs:
            yield f"{len(rows):,} jobs are written, of {jobs:,} there were"
        for id, count in collections.Counter(row.id for row in rows).items():
            if count > 1:
                yield f"job {id} is there {count} times"
        began = sum(row.start is not None for row in rows)
        said = self.result.summary.get("figures", {}).get("started")
        if said is not None and began != said:
            yield f"{began:,} jobs started, and its summary says {said:,}"

    def totals(self):
        """schedule.json agrees with jobs.csv."""
        totals = self.result.totals()
        if totals is None:
            return
        waits = [row.start - row.submit for row in self.rows if None not in (row.start, row.end)]
        states_of = collections.Counter(row.state for row in self.rows)
        due = {
            "nb_computing_machines": self.result.units,
            "nb_jobs": len(self.rows),
            "nb_jobs_finished": len(waits),
            "nb_jobs_rejected": states_of["REJECTED"],
            "nb_jobs_success": states_of["COMPLETED_SUCCESSFULLY"],
            "mean_waiting_time": math.fsum(waits) / len(waits) if waits else 0,
            "max_waiting_time": max(waits, default=0),
        }
        for name, value in due.items():
            written = totals.get(name)
            if not isinstance(written, (int, float)) or abs(written - value) > 1e-3:
                yield f"schedule.json: {name} is {written}, and {value:g} by its jobs"

    def machine_states(self):
        """machine_states.csv agrees with jobs.csv."""
        steps = self.result.machine_states()
        if steps is None:
            return
        uses = []
        for _, start, end, bounds, _ in self.held():
            size = idset.count(bounds)
            uses.append((max(start, 0.0), size))
            if end is not None:
                uses.append((end, -size))
        due = dict(busy_steps(sorted(uses)))
        units = self.result.units
        for when, idle, computing in steps:
            if idle + computing != units:
                text = f"{idle} idle and {computing} computing at {when:g} s, of {units} units"
                yield f"machine_states.csv: {text}"
        written = {when: computing for when, _, computing in steps}
        for when in sorted({*written, *due}):
            if written.get(when) != due.get(when):
                says, jobs = (
                    "nothing" if count is None else f"{count} units in use"
                    for count in (written.get(when), due.get(when))
                )
                yield f"machine_states.csv says {says} at {when:g} s, and jobs.csv {jobs}"

    #: Rules, in the order of checks.
    RULES = (
        jobs, units, available, order, promises, preempted, placement, tables, sums, number_of_jobs, totals, machine_states,
    )  # fmt: skip


def check_result(result):
    """Check the result of a simulation. Return the number of jobs checked. Raises Violation, or
    ResultError if the result cannot be read."""
    schedule = Schedule(result)
    for rule in schedule.RULES:
        for text in rule(schedule):
            raise Violation(text)
    directory = os.path.join(result.directory, "eventlogs")
    if os.path.isdir(directory):
        _check_eventlogs(directory)
    return len(schedule.rows)


def _check_eventlogs(directory):
    for name in sorted(os.listdir(directory), key=lambda text: (len(text), text)):
        own = os.path.join(directory, name)
        with open(os.path.join(own, "eventlog"), encoding="utf-8") as stream:
            try:
                events = eventlog.parse(stream.read())
            except ValueError as exc:
                raise Violation(f"job {name}: its eventlog: {exc}") from None
        check_eventlog(name, events)
        path = os.path.join(own, "R")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as stream:
                check_R(name, json.load(stream))


def check_eventlog(job, events):
    """Check a job's events (dicts) against RFC 18 and 21. Raises Violation if one is out of order."""
    seen, former, state = set(), 0.0, 0
    for number, event in enumerate(events, 1):
        name, when = event["name"], event["timestamp"]
        context = event.get("context") or {}
        where = f"job {job}, event {number} ({name})"
        if when < former:
            raise Violation(f"{where}: its time is before that of the event above it")
        former = when
        if (number == 1) != (name == "submit"):
            raise Violation(f"{where}: the first event is submit, and no other is")
        if name in ONCE and name in seen:
            raise Violation(f"{where}: it is there a second time")
        missing = [key for key in KEYS.get(name, ()) if key not in context]
        if missing:
            raise Violation(f"{where}: its context has no {missing[0]!r}")
        absent = [one for one in BEFORE.get(name, ()) if one not in seen]
        if absent:
            raise Violation(f"{where}: there was no {absent[0]} before it")
        if state == states.INACTIVE:
            raise Violation(f"{where}: the job was inactive")
        if name == "free" and state != states.CLEANUP:
            raise Violation(f"{where}: the job had not ended")
        if name == "clean" and "alloc" in seen and "free" not in seen:
            raise Violation(f"{where}: its resources were not freed")
        state = states.next_state(state, name, context)
        seen.add(name)


def check_R(job, R):
    """Check a job's R against RFC 20. Raises Violation."""
    try:
        Inventory(R)
    except ValueError as exc:
        raise Violation(f"job {job}: its R: {exc}") from None


def check_instance(inventory, jobs):
    """Check the jobs of an instance, (id, events, R or None) each; `inventory` is R of the instance.
    Return the number of jobs checked. Raises Violation."""
    changes = []
    for number, (id, events, R) in enumerate(jobs):
        check_eventlog(jobid.f58(id), events)
        times = {}
        for event in events:
            times.setdefault(event["name"], event["timestamp"])
        if R is not None and "alloc" in times:
            check_R(jobid.f58(id), R)
            changes.append((times["alloc"], True, number))
            if "free" in times:
                changes.append((times["free"], False, number))
    # Ranks may have been removed since an ended job ran on them.
    known = [(R, ()) for _, _, R in jobs if R is not None]
    ever, now = Allocations(rset.union([(inventory, ()), *known])), Allocations(inventory)
    ended = {number for _, began, number in changes if not began}
    for _, began, number in sorted(changes):
        id, _, R = jobs[number]
        if not began:
            ever.give_back(id)
            continue
        wrong = ever.take(id, R) or (None if number in ended else now.take(id, R))
        if wrong is not None:
            raise Violation(f"job {jobid.f58(id)}: {wrong}")
    return len(jobs)
