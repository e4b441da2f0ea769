# SPDX-License-Identifier: LGPL-3.0-or-later
"""The attributes of a job (RFC 43), from the job manager's record of it."""

import os

from flux_engine.formats import hostlist, idset, rset, states
from flux_engine.formats.dotted import lookup_path
from flux_engine.formats.jobspec import count_resources, count_tasks, walk
from flux_engine.formats.states import CLEANUP, INACTIVE


def attributes(job, names):
    """Return {name: value} of the job's attributes among `names`, and its id."""
    found = {"id": job.id}
    for name in names:
        getter = GETTERS.get(name)
        if getter is not None:
            value = getter(job)
            if value is not None:
                found[name] = value
    return found


def name_of(job):
    """Return the job's name, by default that of its command."""
    name = lookup_path(job.jobspec, "attributes.system.job.name")
    if name and isinstance(name, str):
        return name
    try:
        command = job.jobspec["tasks"][0]["command"]
        return os.path.basename(command if isinstance(command, str) else command[0])
    except (KeyError, IndexError, TypeError):
        return None  # possible only if the validator was disabled


def _size(job):
    """(ntasks, nnodes, ncores), each None while unknown."""
    try:
        asked = count_resources(job.jobspec["resources"])
        nodes, cores, nslots = asked["node"], asked["core"], asked["slot"]
        per = lookup_path(job.jobspec, "attributes.system.shell.options.per-resource")
        is_per_core = per and per["type"] == "core"
        if job.R is not None:
            nodes, cores, _ = rset.count(job.R)
        elif not nslots:
            # an invalid request has no size
            return None, None, None
        elif (is_per_core and nodes) or any(
            one.get("exclusive") for one, _ in walk(job.jobspec["resources"])
        ):
            cores = 0  # whole nodes: their numbers of cores are in R
        if per:
            ntasks = (cores if is_per_core else nodes) * per.get("count", 1)
        else:
            ntasks = count_tasks(job.jobspec, nslots)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return None, None, None
    return ntasks or None, nodes or None, cores or None


def _system(key):
    return lambda job: job.jobspec["attributes"]["system"].get(key)


def _time(key):
    return lambda job: job.times.get(key)


def _duration(job):
    value = _system("duration")(job)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _exception_key(key):
    return _at_end(lambda job: job.exception and job.exception[key])


def _ranks(job):
    return idset.encode(idset.from_ids(rset.ranks(job.R)), brackets=True) if job.R else None


def _nodelist(job):
    return hostlist.encode(rset.hosts(job.R)) if job.R else None


def _expiration(job):
    return float(job.R["execution"].get("expiration", 0.0)) if job.R else None


def _at_end(get):
    return lambda job: get(job) if job.state == INACTIVE else None


def _wait_status(job):
    return job.status if job.state >= CLEANUP else None


def _dependencies(job):
    waits_for = [text for text, is_open in (job.dependencies or {}).items() if is_open]
    return waits_for or None


GETTERS = {
    "userid": lambda job: job.userid,
    "urgency": lambda job: job.urgency,
    "priority": lambda job: job.priority if job.priority >= 0 else None,
    "t_submit": lambda job: job.t_submit,
    "t_depend": _time(states.DEPEND),
    "t_priority": _time(states.PRIORITY),
    "t_sched": _time(states.SCHED),
    "t_run": _time(states.RUN),
    "t_cleanup": _time(states.CLEANUP),
    "t_inactive": _time(states.INACTIVE),
    "state": lambda job: job.state,
    "name": name_of,
    "cwd": _system("cwd"),
    "queue": _system("queue"),
    "project": _system("project"),
    "bank": _system("bank"),
    "ntasks": lambda job: _size(job)[0],
    "ncores": lambda job: _size(job)[2],
    "duration": _duration,
    "nnodes": lambda job: _size(job)[1],
    "ranks": _ranks,
    "nodelist": _nodelist,
    "success": _at_end(lambda job: job.result == states.COMPLETED),
    "exception_occurred": _at_end(lambda job: job.exception is not None),
    "exception_type": _exception_key("type"),
    "exception_severity": _exception_key("severity"),
    "exception_note": _exception_key("note"),
    "result": _at_end(lambda job: job.result),
    "expiration": _expiration,
    "annotations": lambda job: job.annotations or None,
    "waitstatus": _wait_status,
    "dependencies": _dependencies,
}
