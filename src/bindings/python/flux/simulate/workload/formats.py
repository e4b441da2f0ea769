# SPDX-License-Identifier: LGPL-3.0-or-later
"""Selection of a trace's reader."""

import csv
import json
import os
import re
import zlib

from flux.simulate.workload import batsim, columns, fluxlog, swf
from flux.simulate.workload.record import OptionError
from flux.simulate.workload.text import DAMAGED, is_number, lines, open_bytes, read_text

#: Maximum time in seconds: larger values are errors, or mean "no limit".
LONGEST = 1000 * 366 * 86400.0

#: Maximum number of nodes or cores of a job: the cores of its nodes are then counted in 64 bits.
LARGEST = 1 << 36

FORMATS = ("auto", "swf", "sacct", "flux", "accounting", "batsim", "csv")
READERS = {
    "swf": swf.read, "sacct": columns.read, "csv": columns.read, "batsim": batsim.read, "accounting": fluxlog.read_accounting,
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
        words = text.split(None, swf.FIELDS)
        # A line with a few columns missing still counts as SWF; the reader reports it.
        if text[0] == ";" or len(words) >= swf.FIELDS - 3 and all(map(is_number, words[:15])):
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
