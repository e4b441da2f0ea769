# SPDX-License-Identifier: LGPL-3.0-or-later
"""Constraints of a job query (RFC 43), compiled to a function of a job."""

import errno
import functools
import operator

from flux_embedded.services.job_list.entry import TIMES
from flux_engine.formats import hostlist, idset, rset, states

ANY_USER = 0xFFFFFFFF
EVERY_STATE = 127
STATE_MASKS = {"new": states.NEW, "n": states.NEW, **states.MASKS}
COMPARISONS = ((">=", operator.ge), ("<=", operator.le), (">", operator.gt), ("<", operator.lt))
MAX_DEPTH = 64


def compile_constraint(constraint, parents):
    """Compile a constraint object.

    Args:
        constraint (dict): the constraint
        parents (dict): name of a virtual queue -> that of its parent: who asks for the parent's jobs gets those of both

    Returns:
        (predicate of an `Entry`, mask of the states that can match)

    Raises:
        OSError: EPROTO, with what is wrong
    """
    return _object(constraint, parents, 0)


def _object(constraint, parents, depth):
    if not isinstance(constraint, dict):
        raise _invalid("constraint must be JSON object")
    if len(constraint) > 1:
        raise _invalid("constraint must only contain 1 element")
    if depth > MAX_DEPTH:
        raise _invalid("nested too deeply")
    parts = [_operator(name, values, parents, depth) for name, values in constraint.items()]
    return _and(parts)


def _operator(name, values, parents, depth):
    if not isinstance(values, list):
        raise _invalid(f"operator {name} values not an array")
    if name in ("and", "or", "not"):
        parts = [_object(value, parents, depth + 1) for value in values]
        return {"and": _and, "or": _or, "not": _not}[name](parts)
    if name in TIMES:
        return _time(name, values)
    if name == "queue":
        return _queue(values, parents)
    function = _LEAVES.get(name)
    if function is None:
        raise _invalid(f"unknown constraint operator: {name}")
    return function(values)


def _and(parts):
    mask = EVERY_STATE
    for _, part in parts:
        mask &= part
    tests = [test for test, _ in parts]
    if len(tests) == 1:
        return tests[0], mask
    return (lambda job: all(test(job) for test in tests)), mask


def _or(parts):
    mask = 0
    for _, part in parts:
        mask |= part
    tests = [test for test, _ in parts]
    # Without anything to choose from, all match: that is how RFC 31 has it.
    if not tests:
        return (lambda job: True), EVERY_STATE
    return (lambda job: any(test(job) for test in tests)), mask


def _not(parts):
    test, _ = _and(parts)
    return (lambda job: not test(job)), EVERY_STATE


def _userid(values):
    wanted = set()
    for value in values:
        if type(value) is not int:
            raise _invalid("userid value must be an integer")
        wanted.add(value)
    if ANY_USER in wanted:
        return (lambda job: True), EVERY_STATE
    return (lambda job: job.userid in wanted), EVERY_STATE


def _texts(what, values):
    for value in values:
        if not isinstance(value, str):
            raise _invalid(f"{what} value must be a string")
    return set(values)


def _name(values):
    wanted = _texts("name", values)
    return (lambda job: job.name in wanted), EVERY_STATE


def _queue(values, parents):
    wanted = _texts("queue", values)
    wanted.update([child for child, parent in parents.items() if parent in wanted])
    return (lambda job: job.queue_name in wanted), EVERY_STATE


def _mask_of(kind, values, names):
    mask = 0
    known = functools.reduce(operator.or_, names.values())
    for value in values:
        if type(value) is int:
            if value & ~known:
                raise _invalid(f"invalid {kind} value '{value:X}h' specified")
            mask |= value
        elif not isinstance(value, str):
            raise _invalid(f"{kind} value invalid type")
        elif value.lower() in names:
            mask |= names[value.lower()]
        else:
            raise _invalid(f"invalid {kind} value '{value}' specified")
    return mask


def _states(values):
    mask = _mask_of("states", values, STATE_MASKS)
    return (lambda job: bool(job.state & mask)), mask


def _results(values):
    mask = _mask_of("results", values, states.RESULT_MASKS)
    return (lambda job: job.state == states.INACTIVE and bool(job.result & mask)), states.INACTIVE


def _hostlist(values):
    wanted = set()
    for value in values:
        if not isinstance(value, str):
            raise _invalid("host value must be a string")
        try:
            wanted.update(hostlist.decode(value))
        except ValueError:
            raise _invalid("host value not in valid Hostlist format") from None
    test = lambda job: job.R is not None and not wanted.isdisjoint(rset.hosts(job.R))  # noqa: E731
    return test, states.RUNNING | states.INACTIVE


def _ranks(values):
    wanted = set()
    for value in values:
        if not isinstance(value, str):
            raise _invalid("ranks value must be a string")
        try:
            wanted.update(idset.members(idset.decode(value)))
        except ValueError:
            raise _invalid(f"ranks value '{value}': error parsing range '{value}'") from None
    test = lambda job: job.R is not None and not wanted.isdisjoint(rset.ranks(job.R))  # noqa: E731
    return test, states.RUNNING | states.INACTIVE


def _time(name, values):
    if not values:
        raise _invalid("timestamp value not specified")
    if not isinstance(values[0], str):
        raise _invalid(f"{name} value must be a string")
    text = values[0]
    for sign, compare in COMPARISONS:
        if text.startswith(sign):
            try:
                limit = float(text[len(sign) :])
            except ValueError:
                break
            if limit < 0:
                raise _invalid("timestamp value must be >= 0.0")
            key = TIMES[name]
            test = lambda job: key in job.times and compare(job.times[key], limit)  # noqa: E731
            return test, EVERY_STATE
    else:
        raise _invalid("timestamp comparison operator not specified")
    raise _invalid("Invalid timestamp value specified")


def _invalid(text):
    return OSError(errno.EPROTO, f"invalid payload: constraint object invalid: {text}")


_LEAVES = {
    "userid": _userid,
    "name": _name,
    "states": _states,
    "results": _results,
    "hostlist": _hostlist,
    "ranks": _ranks,
}
