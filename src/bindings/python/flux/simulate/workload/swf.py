# SPDX-License-Identifier: LGPL-3.0-or-later
"""The Standard Workload Format, version 2.2, as found in practice."""

import math
import re

from flux.simulate.job import Job
from flux.simulate.workload.text import is_number, lines

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


def read(source):
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
            _header(source, text)
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
        record = _record(source, number, words, values)
        if record is not None:
            yield record


def _header(source, text):
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


def _record(source, number, words, values):
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
