# SPDX-License-Identifier: LGPL-3.0-or-later
"""The files of one policy's result: jobs.csv, schedule.json, machine_states.csv, eventlogs, SWF; and
the output directory of a call."""

import contextlib
import csv
import fcntl
import json
import math
import os
import shutil
from array import array
from itertools import chain

from flux.scheduler.command.new_file import new_file, replace_file
from flux.simulate.job import jobspec, max_wait, placement, system_of
from flux.simulate.results import reading
from flux.simulate.results.metrics import mean
from flux.simulate.results.outcome import FINAL, PREEMPTED, REJECTED, count_units
from flux.simulate.workload.record import SWF_STATUS
from flux.simulate.workload.text import is_number
from flux_engine.formats import eventlog, states
from flux_engine.kernel.message import OWNER

COLUMNS = (
    "job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources",
    "requested_time", "success", "final_state", "starting_time", "execution_time", "finish_time",
    "waiting_time", "turnaround_time", "stretch", "allocated_resources", "consumed_energy",
    "metadata", "queue", "user", "backfilled", "first_promise",
)  # fmt: skip


def number(value):
    """Format a number in its shortest form, rounded to microseconds; "" for NaN."""
    if not value % 1:
        return str(int(value))
    if 1e-4 <= value < 1e9:  # the text of round() by one conversion, not three
        return f"{value:.6f}".rstrip("0").rstrip(".")
    value = round(value, 6)
    return "" if value != value else repr(value) if value % 1 else str(int(value))


def cell(text):
    """Escape a name of a trace for CSV, so that spreadsheets do not evaluate it (CWE-1236)."""
    return "'" + text if text[:1] in ("=", "+", "-", "@") and not is_number(text) else text


def write_jobs(outcome, path):
    """Write ``jobs.csv``: Batsim's columns and some of our own, in order of submission."""
    workload = outcome.workload
    name = cell(workload.name)
    with new_file(path, newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        columns = outcome.how, outcome.submit, outcome.start, outcome.end, outcome.size
        for index, (job, how, submit, start, end, size) in enumerate(zip(workload.jobs, *columns)):
            ran = start == start
            ended = ran and end == end
            run = end - start if ended else (-1.0 if ran else math.nan)
            turnaround = end - submit if ended else math.nan
            writer.writerow(
                (
                    cell(job.id),
                    name,
                    f"delay:{number(job.run)}",
                    number(submit),
                    size,
                    number(job.limit) if job.limit else -1,
                    int(how == states.COMPLETED) if how else "",
                    FINAL.get(how, ""),
                    number(start),
                    number(run),
                    number(end) if ended else "",
                    number(start - submit) if ran else "",
                    number(turnaround),
                    _stretch(turnaround, run) if ended else "",
                    outcome.allocated[index] or "",
                    -1,
                    _metadata(outcome, index),
                    cell(job.queue or ""),
                    cell(job.user or ""),
                    outcome.told_backfilled[index],
                    number(outcome.promise[index]),
                )
            )


#: Exception types of jobs that ended by an exception other than ``exec``.
_EXCEPTIONS = {states.TIMEOUT: "timeout", states.CANCELED: "cancel", PREEMPTED: "preempt"}


def _metadata(outcome, index):
    """Return the cell ``metadata``: reason of a refusal or end, preempting job, maximum wait,
    placement, and the attributes that the site's tables count by."""
    job = outcome.workload.jobs[index]
    asked = system_of(job)
    if not (asked or job.group is not None or index in outcome.notes):
        return ""
    deadline, wanted = asked.get("deadline"), placement(job)
    found = {
        "bank": job.group if asked.get("bank") is None else asked["bank"],
        "licenses": asked.get("licenses"),
        "deadline": deadline - outcome.epoch if type(deadline) in (int, float) else None,
        "note": outcome.notes.get(index) or None,
        "preempted_for": outcome.preempted_for.get(index),
        "max_wait": max_wait(job),
        "placement": wanted,
        "constraints": asked.get("constraints") if wanted else None,
    }
    found = {key: value for key, value in found.items() if value is not None}
    return json.dumps(found) if found else ""


def _stretch(turnaround, run):
    if run > 0:
        return number(turnaround / run)
    return "inf" if turnaround > 0 else 1


#: Totals of Batsim that are always 0 here.
UNUSED = (
    "nb_grouped_switches", "nb_machine_switches", "time_sleeping", "time_switching_off", "time_switching_on", "time_unavailable",
)  # fmt: skip


def write_schedule(outcome, path):
    """Write ``schedule.json``: Batsim's totals."""
    workload = outcome.workload
    jobs = workload.jobs
    ended = array("q", (i for i in outcome.started() if outcome.end[i] == outcome.end[i]))
    waits = array("d", (outcome.start[i] - outcome.submit[i] for i in ended))
    turnarounds = array("d", (outcome.end[i] - outcome.submit[i] for i in ended))
    runs = map(outcome.end.__getitem__, ended), map(outcome.start.__getitem__, ended)
    slowdowns = array(
        "d", (held / (end - start) for end, start, held in zip(*runs, turnarounds) if end > start)
    )
    span = outcome.last
    seconds = outcome.columns[1]
    computing = math.fsum(outcome.size[i] * seconds[i] for i in outcome.started())
    computing += math.fsum(
        count_units(units) * (min(end or span, span) - max(start, 0.0))
        for start, end, units in outcome.others.values()
    )
    how = outcome.how
    success = how.count(states.COMPLETED)
    figures = {
        **dict.fromkeys(UNUSED, 0),
        "batsim_version": "",
        "consumed_joules": -1,
        "makespan": span,
        "nb_computing_machines": workload.units,
        "nb_jobs": len(jobs),
        "nb_jobs_finished": len(ended),
        "nb_jobs_killed": sum(map(how.count, (states.TIMEOUT, states.CANCELED, PREEMPTED))),
        "nb_jobs_rejected": how.count(REJECTED),
        "nb_jobs_success": success,
        "success_rate": success / len(jobs) if jobs else 0,
        "time_computing": computing,
        "time_idle": workload.units * span - computing,
    }
    columns = {"slowdown": slowdowns, "turnaround_time": turnarounds, "waiting_time": waits}
    for name, values in columns.items():
        figures[f"max_{name}"] = max(values, default=0)
        figures[f"mean_{name}"] = mean(values) if values else 0
    write_json(figures, path)


def write_machine_states(outcome, path):
    """Write ``machine_states.csv``: units idle and in use, a row per change."""
    units = outcome.workload.units
    with new_file(path) as stream:
        stream.write("time,nb_sleeping,nb_switching_on,nb_switching_off,nb_idle,nb_computing\n")
        for when, busy in busy_steps(outcome.uses()):
            stream.write(f"{number(when)},0,0,0,{units - busy},{busy}\n")


def busy_steps(uses):
    """Yield (time, units in use from then on) for 0 and each change, from (time, units more than before) in order of
    time."""
    busy, told, at = 0, None, 0.0
    for when, more in chain(uses, [(math.inf, 0)]):
        if when != at and busy != told:
            yield at, busy
            told = busy
        at = when
        busy += more


def write_json(value, path):
    """Write a JSON object with sorted keys, atomically."""
    replace_file(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def write_swf(outcome, path):
    """Write the schedule as a trace in the Standard Workload Format."""
    workload = outcome.workload
    runs = outcome.columns[1]

    def record(index, job):
        submit, start, size = outcome.submit[index], outcome.start[index], outcome.size[index]
        status = SWF_STATUS.get(outcome.how[index], 5)
        if start != start:
            return submit, outcome.end[index] - submit, -1, -1, size, status
        return submit, start - submit, runs[index], size, size, status

    header = [
        ("Note", "written by flux simulate"),
        ("UnixStartTime", int(workload.epoch)),
        ("MaxJobs", len(workload.jobs)),
    ]
    _write_swf(workload, path, header, record)


def write_trace(workload, path):
    """Write the jobs of a workload, as yet unscheduled, in the Standard Workload Format."""
    header = [
        ("Computer", workload.machine),
        ("Installation", f"none: {workload.name}"),
        ("Conversion", "flux simulate"),
        ("MaxJobs", len(workload.jobs)),
        ("MaxRecords", len(workload.jobs)),
        ("UnixStartTime", int(workload.epoch)),
    ]
    _write_swf(
        workload,
        path,
        header,
        lambda index, job: (job.submit, -1, job.run, -1, job.size, job.status),
    )


def _write_swf(workload, path, header, record):
    """Write jobs in the Standard Workload Format: ``record(index, job)`` returns submission, wait, run time, allocated and
    requested size, and status; -1 or NaN: unknown."""
    queues = dict.fromkeys(job.queue for job in workload.jobs if job.queue)
    queues = {name: code for code, name in enumerate(queues, 1)}
    users, groups = {}, {}
    header += [("MaxNodes", workload.machine.nodes), ("MaxProcs", workload.units)]
    header += [("Queue", f"{code} {name}") for name, code in queues.items()]
    with new_file(path) as stream:
        stream.write("; Version: 2.2\n")
        stream.writelines(f"; {key}: {value}\n" for key, value in header)
        for index, job in enumerate(workload.jobs):
            submit, wait, run, allocated, requested, status = record(index, job)
            fields = [index + 1, submit, wait, run, allocated, -1, -1, requested, job.limit or -1]
            fields += [-1, status, _code(users, job.user), _code(groups, job.group), -1]
            before, think = job.after or (-2, None)
            fields += [queues.get(job.queue, -1), -1, before + 1, -1 if think is None else think]
            stream.write(" ".join(number(float(value)) or "-1" for value in fields) + "\n")


def _code(codes, name):
    """Return the number that stands for a name in a trace; -1 for None."""
    return -1 if name is None else codes.setdefault(name, len(codes) + 1)


def write_eventlogs(outcome, directory):
    """Write a directory per job, with its eventlog (RFC 18, 21), jobspec and R."""
    base = outcome.epoch
    for index, job in enumerate(outcome.workload.jobs):
        own = os.path.join(directory, str(index + 1))
        os.makedirs(own, exist_ok=True)
        with new_file(os.path.join(own, "eventlog")) as stream:
            for when, name, context in events_of(outcome, index):
                stream.write(eventlog.encode(base + when, name, context))
        with new_file(os.path.join(own, "jobspec")) as stream:
            json.dump(jobspec(job), stream)
        if outcome.R is not None and outcome.R[index] is not None:
            with new_file(os.path.join(own, "R")) as stream:
                json.dump(outcome.R[index], stream)


def events_of(outcome, index):
    """Return the events of a job: (seconds since the start of the workload, name, context or
    None)."""
    job = outcome.workload.jobs[index]
    submit, start, end = outcome.submit[index], outcome.start[index], outcome.end[index]
    how = outcome.how[index]
    userid = outcome.workload.userids.get(job.user, OWNER)
    events = [
        (submit, "submit", {"userid": userid, "urgency": job.urgency, "flags": 0, "version": 1}),
        (submit, "validate", None),
        (submit, "depend", None),
        (submit, "priority", {"priority": job.urgency}),
    ]
    ended = end == end
    if start == start:
        events += [(start, "alloc", None), (start, "start", None)]
        if ended:
            if how in (states.TIMEOUT, states.CANCELED, states.FAILED, PREEMPTED):
                kind = _EXCEPTIONS.get(how, "exec")
                note = "resource allocation expired" if how == states.TIMEOUT else ""
                note = note or outcome.notes.get(index, "")
                context = {"type": kind, "severity": 0, "userid": 0, "note": note}
                events.append((end, "exception", context))
            status = 0 if how == states.COMPLETED else 36608
            events += [
                (end, "finish", {"status": status}),
                (end, "release", {"ranks": "all", "final": True}),
                (end, "free", None),
                (end, "clean", None),
            ]
    elif ended:
        kind = "alloc" if how == REJECTED else "cancel"
        context = {"type": kind, "severity": 0, "userid": 0, "note": outcome.notes.get(index, "")}
        events += [(end, "exception", context), (end, "clean", None)]
    return events


#: Files of a result, without its directory of eventlogs.
FILES = (
    "summary.json", "provenance.json", "jobs.csv", "schedule.json", "machine_states.csv", "schedule.swf",
)  # fmt: skip


@contextlib.contextmanager
def naming_errors():
    """Turn an OSError into a ValueError with the file's name in its text."""
    try:
        yield
    except OSError as exc:
        raise ValueError(f"{exc.filename}: {exc.strerror}") from None


@contextlib.contextmanager
def taken(base):
    """Make an output directory, and lock it for the ``with`` block. Raises ValueError if it is no
    directory, or another call writes to it; OSError if it cannot be made."""
    if os.path.exists(base) and not os.path.isdir(base):
        raise ValueError(f"{base}: it is not a directory")
    os.makedirs(base, exist_ok=True)
    lock = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ValueError(f"{base}: another call is writing its results there") from None
    except OSError:
        pass  # a file system without locks
    try:
        yield
    finally:
        os.close(lock)


def refuse(base, results, remedy):
    """Raise ValueError if there are results (their directories) of an earlier call below `base`,
    which would be mistaken for results of this one."""
    if results:
        names = [os.path.basename(one) for one in results[:3]] + ["..."] * (len(results) > 3)
        raise ValueError(
            f"{base} has results of an earlier call ({', '.join(names)}): give another directory, {remedy}"
        )


def remove(base, results):
    """Remove the files of results (their directories), each directory unless files of others are in
    it, and the report below `base`. Raises OSError."""
    for directory in results:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(os.path.join(directory, "eventlogs"))
        _remove(os.path.join(directory, name) for name in FILES)
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    if results:
        _remove([os.path.join(base, "report.html")])


def _remove(paths):
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def make_room(base, tasks):
    """Remove the results that `tasks` make again. Raises OSError, and ValueError if there are
    results of other policies or workloads."""
    ours = {os.path.abspath(task.directory) for task in tasks}
    there = list(reading.directories(base))
    refuse(base, [one for one in there if os.path.abspath(one) not in ours], "or remove these")
    remove(base, there)
