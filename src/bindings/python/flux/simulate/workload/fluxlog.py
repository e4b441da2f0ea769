# SPDX-License-Identifier: LGPL-3.0-or-later
"""Flux's own records of jobs: job-list, eventlogs, and flux-accounting's table."""

import json
import math
import os

from flux.simulate.job import Job
from flux.simulate.workload.record import SWF_STATUS
from flux.simulate.workload.text import read_text
from flux_engine.formats import jobid, rset, states
from flux_engine.formats.jobspec import count_resources

#: Result of a job in a list, by number or by name -> status in SWF.
STATUSES = {**SWF_STATUS, **{states.RESULT_NAMES[one]: SWF_STATUS[one] for one in SWF_STATUS}}


def read_list(source):
    """Yield the jobs of ``flux jobs --json`` or of a job-list answer, as one object or one per line. Raises TraceError.

    They lack the jobs' requests, so allocations are used instead.
    """
    source.has_statuses = True
    for position, job in enumerate(_objects(source)):
        if not isinstance(job, dict):
            raise source.error(0, f"jobs[{position}] is not an object")
        some = job.get("jobs")
        for one in some if isinstance(some, list) else [job]:
            record = _listed(source, one)
            if record is not None:
                yield record


def _objects(source):
    """Return the JSON objects of a file: one document, or one per line."""
    text = read_text(source)
    try:
        document = json.loads(text)
    except ValueError:
        pass
    else:
        return document if isinstance(document, list) else [document]
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except ValueError as exc:
                raise source.error(number, f"not JSON: {exc}") from None
    return found


def _time(source, job, *names):
    for name in names:
        value = job.get(name) or 0
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            raise source.error(0, f"job {job.get('id')}: {name} is {value!r}")
        if value:
            return float(value)
    return None


def _listed(source, job):
    notes = source.notes
    submitted = _time(source, job, "t_submit")
    submit = _time(source, job, "t_sched", "t_priority", "t_depend", "t_submit")
    start, end = _time(source, job, "t_run"), _time(source, job, "t_cleanup", "t_inactive")
    if submit is None:
        raise source.error(0, f"job {job.get('id')}: no t_submit: is this a list of jobs?")
    if start is None:
        notes.count("jobs left out: they never ran")
        return None
    if end is None:
        notes.count("jobs left out: they have not ended")
        return None
    status = STATUSES.get(job.get("result"), -1)
    if source.leaves_out(status):
        return None
    notes.fact("a list of jobs has no requests: their allocations are taken for them")
    if submitted is not None and submit > submitted + 1:
        notes.count("jobs waited for dependencies or a priority first: they come in after that")
    nodes, cores = job.get("nnodes"), job.get("ncores")
    if not nodes and not cores:
        notes.count("jobs left out: no size")
        return None
    times = submit, max(0.0, end - start), _time(source, job, "duration")
    return Job(
        str(job.get("id")), *times, user=str(job.get("username") or job.get("userid") or "") or None,
        group=job.get("bank"), queue=job.get("queue"), urgency=job.get("urgency", 16), status=status,
        request=(nodes or None, cores or None, job.get("ngpus") or 0), wait=max(0.0, start - submit),
    )  # fmt: skip


# -- eventlogs ----------------------------------------------------------------------------------------------


def read_eventlogs(source):
    """Yield the jobs of a directory or ``flux dump`` archive with ``.../eventlog``, ``jobspec`` and
    ``R`` per job; ``resource/R`` is the machine. Raises TraceError if there are none, or one is damaged."""
    found = 0
    source.has_statuses = True
    for name, texts in _job_files(source):
        found += 1
        record = _logged(source, name, texts)
        if record is not None:
            yield record
    if not found:
        raise source.error(0, "no eventlog in it")


#: Directories of the KVS with eventlogs of another kind: of a job's shell, and of services.
NOT_JOBS = frozenset(("guest", "admin", "resource"))
#: Key of the machine's resource set, as a path.
MACHINE = "resource/R"


def _job_files(source):
    wanted = ("eventlog", "jobspec", "R")
    if os.path.isdir(source.path):
        path = os.path.join(source.path, MACHINE)
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as stream:
                source.R = _json(source, "", MACHINE, stream.read())
        for directory, subdirectories, files in os.walk(source.path):
            subdirectories[:] = sorted(set(subdirectories) - NOT_JOBS)
            if "eventlog" in files:
                texts = {}
                for name in set(wanted).intersection(files):
                    with open(os.path.join(directory, name), encoding="utf-8") as stream:
                        texts[name] = stream.read()
                yield os.path.relpath(directory, source.path), texts
        return
    import tarfile

    jobs = {}
    try:
        with tarfile.open(source.path) as archive:
            for member in archive:
                directory, _, name = member.name.rpartition("/")
                if member.name == MACHINE and member.isfile():
                    source.R = _json(source, "", MACHINE, archive.extractfile(member).read())
                if NOT_JOBS.intersection(directory.split("/")):
                    continue
                if name in wanted and "job" in directory and member.isfile():
                    data = archive.extractfile(member).read()
                    jobs.setdefault(directory, {})[name] = data.decode("utf-8", "replace")
    except (tarfile.TarError, OSError, EOFError) as exc:
        raise source.error(0, f"not an archive of flux dump: {exc}") from None
    for name, texts in jobs.items():
        if "eventlog" in texts:
            yield name, texts


def _json(source, name, key, text):
    try:
        return json.loads(text)
    except ValueError as exc:
        raise source.error(0, f"{os.path.join(name, key)}: not JSON: {exc}") from None


def _logged(source, name, texts):
    notes = source.notes
    events = []
    for number, line in enumerate(texts["eventlog"].splitlines(), 1):
        try:
            event = json.loads(line)
            events.append((event["name"], float(event["timestamp"]), event.get("context") or {}))
        except (ValueError, KeyError, TypeError):
            raise source.error(number, f"{name}/eventlog: not an event: {line[:60]!r}") from None
    times, contexts = {}, {}
    for event, when, context in events:
        if event != "exception" or context.get("severity") == 0:
            times.setdefault(event, when)
            contexts.setdefault(event, context)
    submitted = times.get("submit")
    submit = times.get("priority", times.get("depend", submitted))
    start = times.get("start", times.get("alloc"))
    end = times.get("finish", times.get("clean"))
    if submit is None:
        raise source.error(1, f"{name}/eventlog: no submit event")
    if "alloc" not in times:
        notes.count("jobs left out: they never ran")
        return None
    if end is None:
        notes.count("jobs left out: they have not ended")
        return None
    status = states.result(contexts.get("finish", {}).get("status"), contexts.get("exception"))
    if source.leaves_out(SWF_STATUS[status]):
        return None
    if "jobspec" not in texts:
        notes.count("jobs left out: no jobspec")
        return None
    jobspec = _json(source, name, "jobspec", texts["jobspec"])
    R = _json(source, name, "R", texts["R"]) if "R" in texts else None
    context = contexts["submit"]
    wait = max(0.0, times["alloc"] - submit)
    about = str(context.get("userid", "")) or None, context.get("urgency", 16), wait
    run = max(0.0, end - start)
    job = _requested(source, _id_of(name), submit, run, jobspec, R, *about)
    job.status = SWF_STATUS[status]
    return job


def _id_of(directory):
    """Return the id of a job from the name of its directory: of the KVS, four groups of digits, as
    lists of jobs have it; else the last part."""
    parts = directory.split(os.sep)
    try:
        return str(jobid.decode(".".join(parts[-4:]))) if len(parts) >= 4 else parts[-1]
    except ValueError:
        return parts[-1]


def _requested(source, name, submit, run, jobspec, R, user, urgency, wait, bank=None):
    try:
        system = jobspec["attributes"]["system"]
        limit = float(system.get("duration") or 0) or None
        nodes, cores = rset.count(R)[:2] if R is not None else (None, None)
        if cores is None:
            asked = count_resources(jobspec["resources"])
            nodes, cores = asked["node"], asked["core"]
        queue = system.get("queue")
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise source.error(0, f"job {name}: a jobspec or R that is none: {exc!r}") from None
    return Job(
        str(name), submit, run, limit, user=user, group=bank, queue=queue, urgency=urgency, extra={"jobspec": jobspec},
        request=(nodes or None, cores or 1, 0), wait=wait,
    )  # fmt: skip


# -- flux-accounting -----------------------------------------------------------------------------------------


def read_accounting(source):
    """Yield the jobs of flux-accounting's SQLite database. Raises TraceError if the file is not
    such a database."""
    import sqlite3

    try:
        database = sqlite3.connect(f"file:{os.path.abspath(source.path)}?mode=ro", uri=True)
        # Earlier versions have no banks.
        columns = [row[1] for row in database.execute("pragma table_info(jobs)")]
        bank = "bank" if "bank" in columns else "null"
        rows = database.execute(
            f"select id, userid, t_submit, t_run, t_inactive, R, jobspec, {bank} from jobs order by t_submit"
        )
        text = "no jobs that never ran, and no time at which a job became eligible"
        source.notes.fact(f"flux-accounting keeps {text}")
        for name, user, submit, start, end, R, jobspec, bank in rows:
            if not start or not end or end < start:
                source.notes.count("jobs left out: they never ran")
                continue
            try:
                jobspec = json.loads(jobspec)
                R = json.loads(R) if R else None
            except (ValueError, TypeError) as exc:
                raise source.error(0, f"job {name}: jobspec or R is not JSON: {exc}") from None
            wait = max(0.0, start - submit)
            what = name, float(submit), end - start, jobspec, R
            yield _requested(source, *what, str(user), 16, wait, bank or None)
    except sqlite3.Error as exc:
        raise source.error(0, f"not a database of flux-accounting: {exc}") from None
