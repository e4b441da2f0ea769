# SPDX-License-Identifier: LGPL-3.0-or-later
"""``flux simulate check``: the rules that a schedule must keep, whoever made it.

- no unit is held by two jobs at a time, none is held that the machine does not have
- no job starts on what is down or drained then
- a job starts after it was submitted and ends by its limit; and not later than it may wait, if the scheduler was sent all jobs,
  nor so late that it cannot end by its deadline
- a scheduler that does not backfill starts the jobs of a queue in order
- a promise is kept
- where a job was ended to make way for another, that one starts on its units
- no limit of the configuration is exceeded, no licence oversold, and no stranger is on a claimed node
- a job that requires nodes of one rack has them, and one that prefers them has them or has waited as long as it said
- what is written of a job adds up: its times, its run time and its profile, its size and its units
- the totals of a result are those of its jobs, and none of them is missing
- eventlogs follow RFC 21, and R is a resource set as RFC 20 has it, on ranks that were up

The first violation is told in words.
"""

import bisect
import collections
import heapq
import json
import math
import os

from flux.simulate.placement_check import misplaced
from flux.simulate.results import reading
from flux.simulate.results.files import busy_changes
from flux.simulate.results.outcome import units_of
from flux.simulate.results.reading import GRAIN
from flux.simulate.site_check import broken
from flux_engine.command.errors import CommandError
from flux_engine.command.options import Parser
from flux_engine.formats import eventlog, idset, rset, states

#: Rules that follow from the module alone.
ORDERLY = ("sched-fifo", "sched-simple")

#: Event -> the events that must have come before it.
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
    """A rule that was broken; the text says which job, when and what."""


def check_main(argv):
    """Run the command; returns the exit code: 1 if a rule was broken."""
    parser = Parser(prog="flux-simulate check", description="Check a schedule against the rules")
    parser.add_argument("directories", nargs="*", metavar="DIR", help="results")
    parser.add_argument("--live", action="store_true", help="the jobs of the running instance")
    options = parser.parse_args(argv)
    if bool(options.directories) == options.live:
        raise CommandError("give directories, or --live", 2)
    try:
        if options.live:
            from flux.simulate.live import jobs_of_instance

            count = check_instance(*jobs_of_instance())
            print(f"{count:,} jobs of the instance: no rule broken")
            return 0
        for result in reading.find(options.directories):
            count = check_result(result)
            print(f"{result.directory}: {count:,} jobs: no rule broken")
    except Violation as exc:
        print(f"broken: {exc}")
        return 1
    except ValueError as exc:
        raise CommandError(str(exc)) from None
    return 0


def check_result(result):
    """Check the result of a simulation.

    Returns:
        int: number of jobs

    Raises:
        Violation: the first rule that was broken
        ResultError: it cannot be read
    """
    rows = result.rows()
    options = result.provenance.get("options", {})
    calm = not any(options.get(key) for key in ("script", "live", "failures"))
    for row in rows:
        _check_numbers(result, row)
        _check_times(result, row, calm)
    others = result.summary.get("others") or {}
    held = [
        (row.id, row.start, row.end, _units(result, row), row.size)
        for row in rows
        if row.start is not None
    ]
    held += [(id, start, end, units_of(units), 0) for id, (start, end, units) in others.items()]
    _check_units(held, result.units, result.name)
    if result.summary.get("available"):
        _check_available(result, rows)
    module = result.name.split()[0]
    if module in ORDERLY and calm:
        _check_order(result, rows)
    if calm:
        for row in rows:
            if row.promise is not None and row.start is not None and not options.get("forecast"):
                if row.start > row.promise + GRAIN:
                    raise Violation(
                        f"{result.name}: job {row.id} was promised a start at {row.promise:g} s and started at {row.start:g} s"
                    )
    if calm:
        _check_preempted(result, rows)
        _check_placement(result, rows)
    _check_tables(result, rows)
    for row in rows:
        _check_sums(result, row, calm)
    _check_number_of_jobs(result, rows)
    _check_totals(result, rows, held)
    directory = os.path.join(result.directory, "eventlogs")
    if os.path.isdir(directory):
        _check_eventlogs(directory)
    return len(rows)


def _check_tables(result, rows):
    tables = result.provenance.get("tables")
    if tables:
        machine = result.provenance["machine"]
        found = broken(rows, tables, machine["unit"], machine.get("cores_per_node") or 0)
        if found is not None:
            raise Violation(f"{result.name}: {found}")


def _check_placement(result, rows):
    topology = result.provenance.get("topology")
    if topology:
        machine = result.provenance["machine"]
        cores = machine["cores"] // machine["nodes"] if machine["unit"] == "core" else None
        alike = machine.get("cores_per_node") and not result.provenance.get("queues_constrain")
        for row in rows:
            wrong = misplaced(row, topology, cores, bool(alike) and not row.constraints)
            if wrong is not None:
                raise Violation(f"{result.name}: job {row.id}: {wrong}")


def _units(result, row):
    try:
        return units_of(row.allocated)
    except ValueError as exc:
        raise Violation(f"{result.name}: job {row.id}: allocated_resources: {exc}") from None


#: Numbers of a row that there may not be.
NUMBERS = (
    "submit", "start", "end", "run", "wait", "turnaround", "limit", "profile", "promise", "stretch",
)  # fmt: skip


def _check_numbers(result, row):
    for name in NUMBERS:
        value = getattr(row, name)
        # A stretch is infinite where a job of no length waited.
        if value is not None and not math.isfinite(value) and (name != "stretch" or value != value):
            raise Violation(f"{result.name}: job {row.id}: its {name} is {value}, not a number")


#: What is written of a job that ran, and what is not of one that did not.
RAN = ("COMPLETED_SUCCESSFULLY", "COMPLETED_WALLTIME_REACHED")


def _check_sums(result, row, calm):
    """What is written of a job adds up."""
    name = f"{result.name}: job {row.id}"
    if row.start is None:
        if row.state in RAN or row.allocated or row.run is not None or row.wait is not None:
            raise Violation(
                f"{name} has no start, and units, a run time or a final state as if it had"
            )
        return

    def same(what, written, value):
        if written is None or abs(written - value) > GRAIN:
            said = "nothing" if written is None else f"{written:g} s"
            raise Violation(f"{name}: its {what} is {value:g} s, and {said} is written")

    same("wait", row.wait, row.start - row.submit)
    if row.end is None:
        if row.state:
            raise Violation(f"{name} is {row.state}, and has no end")
        return
    if not row.state:
        raise Violation(f"{name} ended, and has no final state")
    same("run time", row.run, row.end - row.start)
    same("turnaround", row.turnaround, row.end - row.submit)
    if row.run > 0 and row.stretch is not None:
        if abs(row.stretch - row.turnaround / row.run) > GRAIN * max(1.0, row.stretch):
            raise Violation(
                f"{name}: its stretch is {row.turnaround / row.run:g}, not {row.stretch:g}"
            )
    if (row.success == "1") != (row.state == "COMPLETED_SUCCESSFULLY"):
        raise Violation(f"{name}: its success is {row.success!r}, its final state {row.state}")
    if calm and row.profile is not None and row.state in RAN:
        # Of a real number of seconds since the epoch, a microsecond is the finest that is left.
        due = min(row.profile, row.limit) if row.limit else row.profile
        if abs(row.run - due) > GRAIN:
            limit = f" and a limit of {row.limit:g} s" if row.limit else ""
            raise Violation(
                f"{name} ran {row.run:g} s, with a run time of {row.profile:g} s{limit}"
            )
        over = bool(row.limit) and row.profile > row.limit
        if over != (row.state == "COMPLETED_WALLTIME_REACHED"):
            raise Violation(f"{name} is {row.state}, with a run time of {row.profile:g} s")


def _check_number_of_jobs(result, rows):
    jobs = result.provenance.get("jobs")
    if jobs is not None and len(rows) != jobs:
        raise Violation(f"{result.name}: {len(rows):,} jobs are written, of {jobs:,} there were")
    ids = collections.Counter(row.id for row in rows)
    twice = next((id for id, count in ids.items() if count > 1), None)
    if twice is not None:
        raise Violation(f"{result.name}: job {twice} is there {ids[twice]} times")
    began = sum(row.start is not None for row in rows)
    said = result.summary.get("figures", {}).get("started")
    if said is not None and began != said:
        raise Violation(f"{result.name}: {began:,} jobs started, and its summary says {said:,}")


def _check_totals(result, rows, held):
    """schedule.json and machine_states.csv say what jobs.csv says."""
    totals = result.totals()
    if totals is not None:
        ends = [row for row in rows if row.start is not None and row.end is not None]
        states_of = [row.state for row in rows]
        due = {
            "nb_computing_machines": result.units,
            "nb_jobs": len(rows),
            "nb_jobs_finished": len(ends),
            "nb_jobs_rejected": states_of.count("REJECTED"),
            "nb_jobs_success": states_of.count("COMPLETED_SUCCESSFULLY"),
            "mean_waiting_time": math.fsum(r.start - r.submit for r in ends) / len(ends)
            if ends
            else 0,
            "max_waiting_time": max((r.start - r.submit for r in ends), default=0),
        }
        for name, value in due.items():
            written = totals.get(name)
            if not isinstance(written, (int, float)) or abs(written - value) > 1e-3:
                raise Violation(
                    f"{result.name}: schedule.json: {name} is {written}, and {value:g} by its jobs"
                )
    steps = result.machine_states()
    if steps is None:
        return
    changes = busy_changes(
        (max(start, 0.0), math.nan if end is None else end, idset.count(bounds))
        for _, start, end, bounds, _ in held
    )
    busy, due = 0, {0.0: 0}
    for when in sorted(changes):
        if changes[when]:
            busy += changes[when]
            due[when] = busy
    written = {when: computing for when, _, computing in steps}
    for when, idle, computing in steps:
        if idle + computing != result.units:
            raise Violation(
                f"{result.name}: machine_states.csv: {idle} idle and {computing} computing at {when:g} s,"
                f" of {result.units} units"
            )
    for when in sorted({*written, *due}):
        if written.get(when) != due.get(when):
            raise Violation(
                f"{result.name}: machine_states.csv says {_units_text(written.get(when))} at {when:g} s,"
                f" and jobs.csv {_units_text(due.get(when))}"
            )


def _units_text(count):
    return "nothing" if count is None else f"{count} units in use"


def _check_times(result, row, calm):
    name = f"{result.name}: job {row.id}"
    if row.start is None:
        return
    if row.start < row.submit - GRAIN:
        raise Violation(
            f"{name} started at {row.start:g} s, before it was submitted at {row.submit:g} s"
        )
    may_wait = row.max_wait if calm and _is_sent_all(result.name) else None
    if may_wait is not None and row.start > row.submit + may_wait + GRAIN:
        raise Violation(
            f"{name} started after {row.start - row.submit:g} s, and may wait {may_wait:g} s"
        )
    if calm and row.deadline is not None and row.limit:
        if row.start + row.limit > row.deadline + GRAIN:
            raise Violation(
                f"{name} started at {row.start:g} s with a limit of {row.limit:g} s, and was to end by {row.deadline:g} s"
            )
    if row.end is not None:
        if row.end < row.start:
            raise Violation(f"{name} ended at {row.end:g} s, before it started at {row.start:g} s")
        if row.limit and calm and row.end > row.start + row.limit + GRAIN:
            raise Violation(f"{name} ran {row.end - row.start:g} s with a limit of {row.limit:g} s")


def _is_sent_all(name):
    """Whether a scheduler hears of a job when it is submitted: with a limited queue-depth the job manager keeps some back."""
    module, *args = name.split()
    depth = ["unlimited" if module == "sched-backfill" or "order=queue" in args else "8"]
    depth += [arg.partition("=")[2] for arg in args if arg.startswith("queue-depth=")]
    return depth[-1] == "unlimited"


def _check_units(held, units, name):
    """Check that no unit is held twice.

    Args:
        held (list): (job, start, end or None, bounds of its units, size or 0: not known)
        units (int): how many there are
        name (str): for the text

    Raises:
        Violation: a unit is, or is not there
    """
    busy = {}
    ends = []
    for job, start, end, bounds, size in sorted(
        held, key=lambda row: (row[1], row[2] is None, row[2] or 0)
    ):
        while ends and ends[0][0] <= start + GRAIN:
            _, gone = heapq.heappop(ends)
            for unit in idset.members(gone):
                busy.pop(unit, None)
        if size and idset.count(bounds) != size:
            raise Violation(f"{name}: job {job} of size {size} has {idset.count(bounds)} units")
        for unit in idset.members(bounds):
            if unit >= units:
                raise Violation(f"{name}: job {job} is on unit {unit}, of a machine with {units}")
            if unit in busy:
                raise Violation(
                    f"{name}: unit {unit} is held by job {busy[unit]} and given to job {job} at {start:g} s"
                )
            if end is None or end > start + GRAIN:
                busy[unit] = job
        if end is not None and end > start + GRAIN:
            heapq.heappush(ends, (end, bounds))


def _check_available(result, rows):
    """No job starts on a unit that was down or drained, or had left, then."""
    changes = [(when, units_of(text)) for when, text in result.summary["available"]]
    times = [when for when, _ in changes]
    for row in rows:
        if row.start is None:
            continue
        # At the instant of a change, what was before counts as well: some starts are its cause.
        first = max(0, bisect.bisect_left(times, row.start - GRAIN) - 1)
        last = bisect.bisect_right(times, row.start + GRAIN)
        bad = None
        for _, up in changes[first:last]:
            bad = idset.difference(_units(result, row), up)
            if not bad:
                break
        if bad:
            raise Violation(
                f"{result.name}: job {row.id} started at {row.start:g} s on units {idset.encode(bad)}, which could not be used then"
            )


def _check_preempted(result, rows):
    """No job was ended for another that did not start where it had been."""
    by_id = {row.id: row for row in rows}
    for row in rows:
        if row.preempted_for is None:
            continue
        name = f"{result.name}: job {row.id} was ended for job {row.preempted_for}"
        taker = by_id.get(row.preempted_for)
        if taker is None or taker.start is None:
            raise Violation(f"{name}, which did not start")
        if taker.start < row.end - GRAIN:
            raise Violation(f"{name}, which had started at {taker.start:g} s")
        if not idset.intersect(_units(result, row), _units(result, taker)):
            raise Violation(f"{name}, which started elsewhere")


def _check_order(result, rows):
    before = None
    for row in sorted(rows, key=lambda row: row.submit):
        if row.state == "REJECTED" or row.start is None:
            continue
        if before is not None and row.start < before.start - GRAIN:
            raise Violation(
                f"{result.name}: job {row.id} started at {row.start:g} s, ahead of job {before.id}, which came before it and started at {before.start:g} s"
            )
        before = row


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
    """Check a job's events (dicts) against RFC 18 and 21.

    Returns:
        int: the state they lead to

    Raises:
        Violation: an event that cannot be where it is
    """
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
    return state


def check_R(job, R, inventory=None):
    """Check a job's R against RFC 20, and that it is part of the inventory.

    Args:
        inventory (dict or None): {rank: {kind: set}}

    Returns:
        set: (rank, kind, id) of what it holds

    Raises:
        Violation: it is no R, or has what is not there
    """
    from flux_engine.resource.inventory import Inventory

    try:
        Inventory(R)
    except ValueError as exc:
        raise Violation(f"job {job}: its R: {exc}") from None
    held = set()
    for rank, children in rset.children(R).items():
        for kind, text in children.items():
            for one in idset.ids(text):
                held.add((rank, kind, one))
                if inventory is not None and one not in inventory.get(rank, {}).get(kind, ()):
                    raise Violation(
                        f"job {job} has {kind} {one} of rank {rank}, which the instance has not"
                    )
    return held


def check_instance(inventory, jobs):
    """Check the jobs of an instance.

    Args:
        inventory (dict): R of the instance
        jobs (list): (id, events, R or None)

    Returns:
        int: number of jobs

    Raises:
        Violation: the first rule that was broken
    """
    known = {
        rank: {kind: set(idset.ids(text)) for kind, text in children.items()}
        for rank, children in rset.children(inventory).items()
    }
    spans = []
    for id, events, R in jobs:
        check_eventlog(id, events)
        times = {}
        for event in events:
            times.setdefault(event["name"], event["timestamp"])
        if R is None or "alloc" not in times:
            continue
        # A rank may have left since a job that is over ran on it.
        held = check_R(id, R, None if "free" in times else known)
        spans.append((times["alloc"], times.get("free"), id, held))
    spans.sort(key=lambda span: span[0])
    holder, ends = {}, []
    for number, (start, end, id, held) in enumerate(spans):
        while ends and ends[0][0] <= start:
            _, gone = heapq.heappop(ends)
            for unit in spans[gone][3]:
                if holder.get(unit) == spans[gone][2]:
                    del holder[unit]
        for unit in held:
            if unit in holder:
                rank, kind, one = unit
                raise Violation(
                    f"{kind} {one} of rank {rank} is held by job {holder[unit]} and given to job {id}"
                )
            holder[unit] = id
        if end is not None:
            heapq.heappush(ends, (end, number))
    return len(jobs)
