# SPDX-License-Identifier: LGPL-3.0-or-later
"""Readers of traces: their selection; the Standard Workload Format, version 2.2, as found in practice; Batsim's workload
JSON."""

import csv
import json
import math
import os
import re
import zlib

from flux.simulate.job import Job
from flux.simulate.workload import columns, fluxlog
from flux.simulate.workload.record import OptionError
from flux.simulate.workload.text import DAMAGED, is_number, lines, open_bytes, read_text

#: Number of fields of a line in the Standard Workload Format.
FIELDS = 18
NAMES = (
    "job number", "submit time", "wait time", "run time", "allocated processors", "average CPU time",
    "used memory", "requested processors", "requested time", "requested memory", "status", "user", "group",
    "executable", "queue", "partition", "preceding job", "think time",
)  # fmt: skip
_HEADER = re.compile(r";\s*([A-Za-z]+)\s*:\s*(.*)")
_INTEGER = re.compile(r"\s*(-?\d+)")

#: Statuses of the parts of a preempted job, which has a summary line too.
_PARTS = (2, 3, 4)


def read_swf(source):
    """Yield the jobs of an SWF file.

    The size is the requested one, else the allocated one; the limit is the requested time. The
    header sets start, procs, nodes and queues of the source. Raises TraceError.
    """
    notes = source.notes
    source.has_statuses = True
    for number, line in lines(source):
        text = line.strip()
        if not text:
            continue
        if text[0] == ";":
            _swf_header(source, text)
            continue
        words = text.split(None, FIELDS)
        if len(words) < FIELDS:
            last = f"columns {len(words) + 1} to {FIELDS} ({', '.join(NAMES[len(words) :])}) are missing"
            if len(words) == FIELDS - 1:
                last = f"column {FIELDS} ({NAMES[-1]}) is missing"
            text = f"{len(words)} columns: a record of this format has {FIELDS} or more; {last}, if it is"
            text += " the last that are (-1 stands for a value that is not known)"
            raise source.error(number, text)
        if len(words) > FIELDS:
            notes.count(f"lines have more than {FIELDS} columns: the rest is ignored", number)
        try:
            values = list(map(float, words[:FIELDS]))
        except ValueError:
            wrong = next(column for column, word in enumerate(words, 1) if not is_number(word))
            text = f"column {wrong} is {words[wrong - 1][:40]!r}, not a number"
            raise source.error(number, text) from None
        if not math.isfinite(sum(values)):
            for column, (word, value) in enumerate(zip(words, values), 1):
                if not math.isfinite(value):
                    raise source.error(number, f"column {column} is {word}, not a number")
        record = _swf_record(source, number, words, values)
        if record is not None:
            yield record


def _swf_header(source, text):
    match = _HEADER.match(text)
    if match is None:
        return
    name, value = match.group(1).lower(), match.group(2)
    if name == "queue":
        number, _, rest = value.strip().partition(" ")
        if number.isdigit() and rest.strip():
            source.queues[number] = rest.split("(")[0].split()[0]
        return
    found = _INTEGER.match(value)
    if found is None:
        return
    if name == "unixstarttime":
        source.start = float(found.group(1))
    elif name == "maxprocs":
        source.procs = max(0, int(found.group(1))) or None
    elif name == "maxnodes":
        source.nodes = max(0, int(found.group(1))) or None


def _swf_record(source, number, words, values):
    notes = source.notes
    submit, wait, run, allocated = values[1:5]
    requested, limit, memory, status = values[7:11]
    status = int(status)
    if status in _PARTS:
        notes.count("lines about parts of preempted jobs left out", number)
        return None
    if source.leaves_out(status, number):
        return None
    if submit < 0:
        text = f"the job is submitted at {words[1]}: a time before the log began"
        raise source.error(number, text)
    size = requested if requested > 0 else allocated
    if run < 0 or size <= 0:
        what = "run time" if run < 0 else "size"
        if status == 5:
            what = f"{what} (cancelled before they ran)"
        notes.count(f"jobs left out: no {what}", number)
        return None
    if size != int(size):
        notes.count("jobs have a number of processors that is not whole: rounded up", number)
    if requested > 0 and allocated > 0 and requested != allocated:
        notes.count("jobs were given another number of processors than they asked for", number)
    after = None
    if values[16] > 0:
        after = (str(int(values[16])), values[17] if values[17] >= 0 else None)
    extra = {"memory": math.ceil(memory)} if memory > 0 else None
    wait = wait if wait >= 0 else None
    user = words[11] if values[11] >= 0 else None
    group = words[12] if values[12] >= 0 else None
    queue = None if values[14] < 0 else str(int(values[14]))
    queue = source.queues.get(queue, queue)
    limit = limit if limit > 0 else None
    return Job(
        words[0], submit + source.start, run, limit, user=user, group=group, queue=queue, extra=extra, after=after,
        status=status, request=(None, math.ceil(size), 0), wait=wait,
    )  # fmt: skip


def read_batsim(source):
    """Yield the jobs of a workload with delay profiles, the only ones with a known run time; ``nb_res`` sets the `procs` of the source. Raises TraceError if
    the file is not such a workload."""
    text = read_text(source)
    try:
        document = json.loads(text)
    except ValueError as exc:
        raise source.error(getattr(exc, "lineno", 0), f"not JSON: {exc}") from None
    jobs, profiles = document.get("jobs"), document.get("profiles")
    if not isinstance(jobs, list) or not isinstance(profiles, dict):
        raise source.error(0, "no Batsim workload: it has a list of jobs and a table of profiles")
    if isinstance(document.get("nb_res"), int):
        source.procs = source.nodes = document["nb_res"]
    for position, job in enumerate(jobs):
        where = f"jobs[{position}]"
        try:
            record = _batsim_record(source, job, profiles)
        except (KeyError, TypeError, ValueError) as exc:
            what = f"no {exc.args[0]!r}" if isinstance(exc, KeyError) else exc
            raise source.error(0, f"{where}: {what}") from None
        if record is not None:
            yield record


def _batsim_record(source, job, profiles):
    name = str(job["id"])
    profile = profiles.get(job["profile"])
    if profile is None:
        raise ValueError(f"profile {job['profile']!r} is not there")
    kind = str(profile.get("type", "")).lower()
    if kind not in ("delay", "delayprofile"):
        text = f"profile of type {profile.get('type')}, whose run time is not known"
        source.notes.count(f"jobs left out: {text}")
        return None
    submit, run, size = float(job["subtime"]), float(profile["delay"]), float(job["res"])
    limit = job.get("walltime")
    limit = None if limit is None or float(limit) < 0 else float(limit)
    if limit is not None and math.isnan(limit):
        raise ValueError(f"walltime {limit}: expected seconds")
    if not (math.isfinite(submit) and math.isfinite(run)) or submit < 0 or run < 0:
        raise ValueError(f"subtime {submit} and delay {run}: expected seconds, 0 or more")
    if not math.isfinite(size):
        raise ValueError(f"res {size}: expected a number of hosts")
    if size <= 0:
        source.notes.count("jobs left out: no size")
        return None
    if size != int(size):
        source.notes.count("jobs have a size that is not whole: rounded up")
    # A resource of Batsim is a host.
    return Job(name, submit, run, limit or None, request=(math.ceil(size), None, 0))


#: Maximum time in seconds: larger values are errors, or mean "no limit".
LONGEST = 1000 * 366 * 86400.0

#: Maximum number of nodes or cores of a job: the cores of its nodes are then counted in 64 bits.
LARGEST = 1 << 36

FORMATS = ("auto", "swf", "sacct", "flux", "accounting", "batsim", "csv")
READERS = {
    "swf": read_swf, "sacct": columns.read, "csv": columns.read, "batsim": read_batsim, "accounting": fluxlog.read_accounting,
}  # fmt: skip


def reader(source, form="auto"):
    """Return the jobs of a trace, as an iterator of `Job`; `form` is a name in `FORMATS`. Raises
    OptionError if it is not, TraceError if the format is unknown or the file cannot be read."""
    if form not in FORMATS:
        raise OptionError(f"format {form!r}: expected one of {', '.join(FORMATS)}")
    if not os.path.exists(source.path):
        raise source.error(0, "there is no such file")
    if not (os.path.isfile(source.path) or os.path.isdir(source.path)):
        raise source.error(0, "neither a file nor a directory: a trace is read more than once")
    if os.path.isfile(source.path) and not os.path.getsize(source.path):
        raise source.error(0, "none of the formats known: the file is empty")
    return _checked(source, form)


#: Exceptions of a reader that is given a file of another format.
SURPRISES = (
    AttributeError, TypeError, KeyError, IndexError, OverflowError, RecursionError, UnicodeDecodeError,
    csv.Error,
)  # fmt: skip


def _checked(source, form):
    count = 0
    kind = form
    try:
        if form == "auto":
            kind = detect(source)
            source.notes.fact(f"{os.path.basename(source.path)}: read as {kind}")
        read = READERS.get(kind)
        if read is None:  # Flux's own
            is_many = os.path.isdir(source.path) or _is_archive(source.path)
            read = fluxlog.read_eventlogs if is_many else fluxlog.read_list
        for job in read(source):
            count += 1
            _check(source, job)
            yield job
    except SURPRISES as exc:
        raise source.error(0, f"not a trace of the format {kind}: {exc!r}") from None
    if not count and not source.notes.has_counted:
        raise source.error(0, "there is no job in it: nothing but a header or comments")


def _check(source, job):
    """Raise TraceError if a job's values are not plausible; drop such a limit."""
    for name, count in zip(("nodes", "cores", "GPUs"), job.request):
        if type(count or 0) is not int or (count or 0) < 0:
            raise source.error(0, f"job {job.id}: {name} {count!r}: expected a count")
        if (count or 0) > LARGEST:
            raise source.error(0, f"job {job.id}: its size is more than any machine has")
    if type(job.urgency) is not int or not 0 <= job.urgency <= 31:
        raise source.error(0, f"job {job.id}: urgency {job.urgency!r}: 0 to 31 is possible")
    for name in (job.queue, job.group):
        if not isinstance(name or "", str):
            raise source.error(0, f"job {job.id}: {name!r}: expected the name of a queue or bank")
    for name in ("submit", "run"):
        if getattr(job, name) > LONGEST:
            text = f"its {name} time of {getattr(job, name):g} s is more than a thousand years"
            raise source.error(0, f"job {job.id}: {text}")
    if job.limit and job.limit > LONGEST:
        source.notes.count("jobs have a limit of more than a thousand years: they get none")
        job.limit = None


def _is_archive(path):
    try:
        import tarfile

        return tarfile.is_tarfile(path)
    except (EOFError, zlib.error):
        return False  # the first block is damaged, which the reader of its lines reports


def detect(source):
    """Detect the format of a trace from its content. Raises TraceError if the format is unknown."""
    if os.path.isdir(source.path):
        return "flux"
    try:
        with open_bytes(source.path) as stream:
            head = stream.read(16)
    except (OSError, EOFError, *DAMAGED):
        head = b""
    if head == b"SQLite format 3\0":
        return "accounting"
    if head and _is_archive(source.path):
        return "flux"
    for _, line in lines(source):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if text[0] in "{[":
            try:
                document = json.loads(read_text(source))
            except ValueError:
                return "flux"  # one object per line
            is_batsim = isinstance(document, dict) and "profiles" in document
            return "batsim" if is_batsim else "flux"
        words = text.split(None, FIELDS)
        # A line with a few columns missing still counts as SWF; the reader reports it.
        if text[0] == ";" or len(words) >= FIELDS - 3 and all(map(is_number, words[:15])):
            return "swf"
        header, delimiter = columns.split_header(text)
        missing = columns.missing(header)
        if not missing:
            return "sacct" if delimiter == "|" else "csv"
        if len(missing) < len(columns.NEEDED):
            raise source.error(1, columns.missing_text(missing))
        if len(columns.missing(re.split(r"[\s;]+", text))) < len(columns.NEEDED):
            text = "columns are separated by neither commas, bars nor tabs: sacct -P writes bars"
            raise source.error(1, text)
        break
    text = f"none of the formats known ({', '.join(FORMATS[1:])}): give it with --format"
    raise source.error(1, text)
