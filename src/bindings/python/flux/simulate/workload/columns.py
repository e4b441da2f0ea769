# SPDX-License-Identifier: LGPL-3.0-or-later
"""Tables with a header: ``sacct -P``, flux-fiction's CSV, Batsim's jobs.csv, and plain ones.

Columns are found by name, in any order. Their names mean the same in all of these formats, so one
reader serves all. Of several columns for one quantity the most exact counts.
"""

import csv
import datetime
import math
import re
from difflib import get_close_matches

from flux.simulate.job import Job
from flux.simulate.workload.text import is_number, lines
from flux_engine.formats import fsd

#: Words for "has not happened" and "none".
NOTHING = {"", "unknown", "none", "n/a", "null", "-1"}
UNLIMITED = {"unlimited", "partition_limit", "infinite", "inf"}

_SIZE = re.compile(r"([0-9.]+)([KMGTP]?)")
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}

#: State of Slurm or Batsim -> status in SWF.
STATUSES = {
    "COMPLETED": 1, "COMPLETED_SUCCESSFULLY": 1,
    "FAILED": 0, "TIMEOUT": 0, "NODE_FAIL": 0, "BOOT_FAIL": 0, "OUT_OF_MEMORY": 0, "DEADLINE": 0, "PREEMPTED": 0,
    "COMPLETED_FAILED": 0, "COMPLETED_WALLTIME_REACHED": 0,
    "CANCELLED": 5, "CANCELED": 5, "COMPLETED_KILLED": 5,
}  # fmt: skip

#: What is read of a job -> its columns, the one that counts first.
COLUMNS = {
    "id": ("jobidraw", "jobid", "job_id", "id", "job"), "queue": ("partition", "queue"),
    "user": ("user", "uid"), "group": ("account", "bank", "group"), "urgency": ("urgency",),
    "submit": ("t_submit", "submit", "submission_time"), "eligible": ("eligible",),
    "start": ("start", "starting_time"), "state": ("state", "final_state"),
    "run": ("elapsed_s", "elapsedraw", "run", "execution_time", "elapsed"),
    "minutes": ("timelimitraw",), "limit": ("timelimit", "limit", "requested_time"),
    "nodes": ("nnodes", "nodes"), "gpus": ("ngpus", "gpus"),
    "cores": ("ncpus", "alloccpus", "cores", "requested_number_of_resources",
              "requested_number_of_processors", "reqcpus"),
    "asked": ("reqtres",), "given": ("alloctres",),
}  # fmt: skip
KNOWN = {name for names in COLUMNS.values() for name in names}

#: Required in a table of jobs: one column of each group.
NEEDED = (
    ("submit", COLUMNS["submit"] + COLUMNS["eligible"]),
    ("run time", COLUMNS["run"]),
    ("size", COLUMNS["nodes"] + COLUMNS["cores"] + COLUMNS["asked"] + COLUMNS["given"]),
)


def missing(header):
    """Return the groups of `NEEDED` without a column in a header (a list of names)."""
    names = {name.strip().lower() for name in header}
    return [(what, group) for what, group in NEEDED if not names.intersection(group)]


def missing_text(groups):
    """Return the error text for missing columns."""
    texts = (f"no column for the {what} (any of {', '.join(group)})" for what, group in groups)
    return "; ".join(texts) + ": is this the header line?"


def split_header(text):
    """Return the names in a header, and their delimiter."""
    delimiter = "|" if "|" in text else "," if "," in text else "\t" if "\t" in text else ","
    return next(csv.reader([text], delimiter=delimiter), []), delimiter


def seconds(text):
    """Parse a duration: ``[DD-]HH:MM:SS[.f]``, ``D:HH:MM:SS``, ``MM:SS``, seconds, or an FSD
    (``1h``, ``1.5d``). Raises ValueError if the text is not a duration."""
    days, dash, rest = ("", "", text) if is_number(text) else text.rpartition("-")  # 1e-05
    parts = rest.split(":")
    try:
        if text[-1:] in ("s", "m", "h", "d"):
            return float(fsd.parse(text))
        if dash and not days.isdigit() or len(parts) > 4:
            raise ValueError
        values = [float(part) for part in parts]
        if not all(0 <= value < math.inf for value in values):
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r} is not a duration") from None
    if dash:
        # After days the first field is hours, even if it is the only one.
        values = [float(days), *(values + [0.0, 0.0])[:3]]
    total = 0.0
    for value, unit in zip(reversed(values), (1, 60, 3600, 86400)):
        total += value * unit
    return total


def moment(text):
    """Parse a time to seconds since the epoch: such seconds, or a date and time, in UTC by default.
    Raises ValueError if the text is not a time."""
    if is_number(text):
        if not math.isfinite(float(text)):
            raise ValueError(f"{text!r} is not a time")
        return float(text)
    text = text.replace("Z", "+00:00").replace(" ", "T", 1)
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time") from None
    return (when if when.tzinfo else when.replace(tzinfo=datetime.timezone.utc)).timestamp()


def amount(text):
    """Parse a number of 0 or more, perhaps with a unit (``1.5K``). Raises ValueError if the text is
    none."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a count")
    return float(match.group(1)) * _UNITS[match.group(2)]


def whole(text):
    """Parse a count, rounded up; see `amount`."""
    return math.ceil(amount(text))


def tres(text):
    """Return the counts in a list of trackable resources such as ``cpu=8,gres/gpu:a100=2,node=1``.

    GPUs with and without a type are the same GPUs.
    """
    counts = {}
    typed = 0
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name in ("cpu", "node", "gres/gpu"):
            counts[name] = whole(value)
        elif name.startswith("gres/gpu:"):
            typed += whole(value)
    if typed:
        counts.setdefault("gres/gpu", typed)
    return counts


class _Row(dict):
    """A row, by lower-case column names."""

    def first(self, what):
        """Return the first non-empty value among the columns of `what`, or None."""
        for name in COLUMNS[what]:
            value = self.get(name, "").strip()
            if value.lower() not in NOTHING:
                return value
        return None


def read(source):
    """Yield the jobs of a table. Raises TraceError if there is no header, or a row does not match
    it."""
    names = delimiter = None
    for number, line in lines(source):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if names is None:
            header, delimiter = split_header(line)
            names = [name.strip().lower() for name in header]
            groups = missing(names)
            if groups:
                raise source.error(number, missing_text(groups))
            source.has_statuses = not set(COLUMNS["state"]).isdisjoint(names)
            ignored = [name for name in names if name not in KNOWN]
            if ignored:
                source.notes.fact(f"columns not read: {', '.join(ignored)}")
            for name in ignored:
                for meant in get_close_matches(name, KNOWN, 1, 0.85):
                    source.notes.warn(f"the column {name} is not read: is {meant} meant?")
            continue
        values = next(csv.reader([line], delimiter=delimiter))
        if len(values) != len(names):
            if len(values) == len(names) + 1 and not values[-1]:
                values.pop()  # sacct -p
            else:
                raise source.error(number, f"{len(values)} fields under {len(names)} columns")
        try:
            record = _record(source, number, _Row(zip(names, values)))
        except ValueError as exc:
            raise source.error(number, str(exc)) from None
        if record is not None:
            yield record
    if names is None:
        raise source.error(0, "empty: no header line")


def _record(source, number, row):
    notes = source.notes
    name = row.first("id")
    label = row.get("jobid") or row.get("jobidraw", "")
    if "." in label and label.split(".")[0].replace("_", "").isdigit() and "state" in row:
        notes.count("lines about job steps left out", number)
        return None
    if "+" in label:
        notes.count("jobs come from heterogeneous ones: components start independently", number)
    if "[" in label:
        notes.count("entries for the rest of a job array, which never ran, left out", number)
        return None
    state = (row.first("state") or "").upper()
    if state.startswith(("PENDING", "RUNNING", "REJECTED")):
        notes.count(f"jobs left out: {state.split()[0].lower()}", number)
        return None
    status = STATUSES.get(state.split()[0].rstrip("+"), -1) if state else -1
    if source.has_statuses and source.leaves_out(status, number):
        return None
    run = row.first("run")
    run = None if run is None else seconds(run)
    if run is None or (state.startswith("CANCELLED") and not run):
        cancelled = "cancelled before they ran" if state.startswith("CANCELLED") else "no run time"
        notes.count(f"jobs left out: {cancelled}", number)
        return None
    submit = _submit(source, row, notes, number)
    if submit is None:
        notes.count("jobs left out: no time of submission", number)
        return None
    limit = _limit(row, notes, number)
    request = _size(row, notes, number)
    if not any(request[:2]):
        notes.count("jobs left out: no size", number)
        return None
    wait = None
    start = row.first("start")
    if start is not None:
        wait = max(0.0, moment(start) - submit)
    urgency = amount(row.first("urgency") or "16")
    if urgency % 1:
        raise ValueError(f"urgency {urgency}: expected a whole number")
    queue = (row.first("queue") or "").split(",")[0] or None
    user, group = row.first("user"), row.first("group")
    return Job(
        name or str(number), submit, run, limit, user=user, group=group, queue=queue, urgency=int(urgency),
        status=status, request=request, wait=wait,
    )  # fmt: skip


def _one_kind(source, column, text):
    """Parse a time of a column in which all times must be of one kind. Raises ValueError if it
    differs in kind from earlier ones."""
    value = moment(text)
    rest = text.replace("Z", "+00:00")[10:]
    kind = "dates with a zone" if "+" in rest or "-" in rest else "dates without a zone"
    kind = "seconds" if is_number(text) else kind
    former = source.kinds.setdefault(column, kind)
    if kind != former:
        said = f"times of the column {column} above are {former}: mixed kinds have no order"
        raise ValueError(f"{text!r}: {said}")
    return value


def _submit(source, row, notes, number):
    """Return when the job became eligible, or was submitted if that is not known."""
    submit = row.first("submit")
    eligible = row.first("eligible")
    if submit is not None and ":" in submit and "+" not in submit and not submit.endswith("Z"):
        notes.fact("times without a zone are taken as UTC")
    submit = None if submit is None else _one_kind(source, "submit", submit)
    if eligible is not None:
        eligible = _one_kind(source, "eligible", eligible)
        if submit is not None and eligible > submit:
            text = "jobs could not have started when they were submitted (held, dependent)"
            notes.count(f"{text}: they come in when they could", number)
            return eligible
    return submit if submit is not None else eligible


def _limit(row, notes, number):
    text = row.first("minutes")
    if text is not None and text.lower() not in UNLIMITED:
        if not is_number(text) or not 0 <= float(text) < math.inf:
            raise ValueError(f"{text!r} is not a number of minutes")
        return float(text) * 60
    text = text or row.first("limit")
    if text is None:
        return None
    if text.lower() in UNLIMITED:
        notes.count("jobs have no limit of their own", number)
        return None
    return seconds(text) or None


def _size(row, notes, number):
    asked = tres(row.first("asked") or "")
    given = tres(row.first("given") or "")
    nodes_text = row.first("nodes")
    nodes = whole(nodes_text) if nodes_text is not None else asked.get("node") or given.get("node")
    cores, gpus = row.first("cores"), row.first("gpus")
    if any(text is not None and amount(text) % 1 for text in (nodes_text, cores, gpus)):
        notes.count("jobs have a size that is not whole: rounded up", number)
    cores = whole(cores) if cores is not None else asked.get("cpu") or given.get("cpu")
    gpus = whole(gpus) if gpus is not None else asked.get("gres/gpu") or given.get("gres/gpu") or 0
    if nodes and cores is not None and cores < nodes:
        notes.count("jobs have fewer cores than nodes: they get one core a node", number)
        cores = nodes
    elif nodes and cores and cores % nodes:
        notes.count("jobs have cores that do not divide by their nodes: rounded up", number)
    if nodes and gpus % nodes:
        notes.count("jobs have GPUs that do not divide by their nodes: rounded up", number)
    return nodes, cores, gpus
