# SPDX-License-Identifier: LGPL-3.0-or-later
"""Constraints of a job query (RFC 43), as `flux.job.JobList` makes them, compiled to a function of a job."""

import errno

from flux_embedded.services.job_list.attributes import name_of
from flux_engine.formats import hostlist, idset, rset, states
from flux_engine.formats.form import check, quote
from flux_engine.kernel.message import ANY_USER

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
