# SPDX-License-Identifier: LGPL-3.0-or-later
"""The attributes of a job (RFC 43), from the job manager's record of it; and constraints of a query, as `flux.job.JobList`
makes them, compiled to a function of a job."""

import errno
import os

from flux_engine.formats import hostlist, idset, rset, states
from flux_engine.formats.dotted import lookup_path
from flux_engine.formats.form import check, quote
from flux_engine.formats.jobspec import count_resources, count_tasks, walk
from flux_engine.formats.states import CLEANUP, INACTIVE
from flux_engine.kernel.message import ANY_USER


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


def _expiration(job):
    return float(job.R["execution"].get("expiration", 0.0)) if job.R else None


def _at_end(get):
    return lambda job: get(job) if job.state == INACTIVE else None


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
    "nodelist": lambda job: hostlist.encode(rset.hosts(job.R)) if job.R else None,
    "success": _at_end(lambda job: job.result == states.COMPLETED),
    "exception_occurred": _at_end(lambda job: job.exception is not None),
    "exception_type": _exception_key("type"),
    "exception_severity": _exception_key("severity"),
    "exception_note": _exception_key("note"),
    "result": _at_end(lambda job: job.result),
    "expiration": _expiration,
    "annotations": lambda job: job.annotations or None,
    "waitstatus": lambda job: job.status if job.state >= CLEANUP else None,
    "dependencies": _dependencies,
}


STATE_MASKS = {"new": states.NEW, "n": states.NEW, **states.MASKS}
MAX_DEPTH = 64


def compile_constraint(constraint, parents):
    """Compile a constraint object to a predicate of a `Job`; OSError (EPROTO) has its error.

    `parents` has the parent of each virtual queue: a query for the parent matches the jobs of both.
    """
    try:
        return _object(constraint, parents, 0)
    except ValueError as exc:
        raise OSError(errno.EPROTO, f"invalid constraint: {exc}") from None


def _object(constraint, parents, depth):
    check(constraint, dict, "a constraint")
    if len(constraint) > 1:
        raise ValueError("a constraint has one operator")
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    tests = [_operator(name, values, parents, depth) for name, values in constraint.items()]
    return lambda job: all(test(job) for test in tests)


def _operator(name, values, parents, depth):
    check(values, list, name)
    if name in ("and", "or"):
        tests = [_object(value, parents, depth + 1) for value in values]
        if name == "and" or not tests:  # an empty list matches all (RFC 31)
            return lambda job: all(test(job) for test in tests)
        return lambda job: any(test(job) for test in tests)
    if name == "queue":
        return _queue(values, parents)
    function = _LEAVES.get(name)
    if function is None:
        raise ValueError(f"unknown operator {quote(name)}")
    return function(values)


def _userid(values):
    check(values, [int], "userid")
    wanted = set(values)
    return lambda job: ANY_USER in wanted or job.userid in wanted


def _name(values):
    check(values, [str], "name")
    return lambda job: name_of(job) in values


def _queue(values, parents):
    check(values, [str], "queue")
    wanted = {*values, *(child for child, parent in parents.items() if parent in values)}
    return lambda job: job.queue_name in wanted


def _held(name, read, of_R):
    """Return a compiler of an operator on a job's resources: `read` lists the resources in a value, `of_R` those in R."""

    def compiled(values):
        check(values, [str], name)
        wanted = {one for text in values for one in read(text)}
        return lambda job: job.R is not None and not wanted.isdisjoint(of_R(job.R))

    return compiled


def _mask_of(values, names):
    """Return the bit mask of states or results, given as numbers or names."""
    mask = 0
    for value in values:
        number = names.get(value.lower()) if isinstance(value, str) else value
        if type(number) is not int:
            raise ValueError(f"{quote(value)}: expected one of {', '.join(names)}")
        mask |= number
    return mask


def _states(values):
    mask = _mask_of(values, STATE_MASKS)
    return lambda job: bool(job.state & mask)


def _results(values):
    mask = _mask_of(values, states.RESULT_MASKS)
    return lambda job: job.state == states.INACTIVE and bool(job.result & mask)


_LEAVES = {
    "userid": _userid,
    "name": _name,
    "states": _states,
    "results": _results,
    "ranks": _held("ranks", idset.ids, rset.ranks),
    "hostlist": _held("hostlist", hostlist.decode, rset.hosts),
}
