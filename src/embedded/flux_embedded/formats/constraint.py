# SPDX-License-Identifier: LGPL-3.0-or-later
"""Constraints as objects (RFC 31): checking them, and which ranks they match."""

from flux_embedded.formats import hostlist, idset
from flux_embedded.formats.quote import quote

MAX_DEPTH = 64
#: Characters a property name must not contain (RFC 20).
ILLEGAL = frozenset("!&'\"^`|()")
_LOGIC = ("and", "or", "not")
_LEAVES = ("properties", "hostlist", "ranks")


def validate(constraint, depth=0):
    """Check the form of a constraint.

    Raises:
        ValueError: what is wrong with it.
    """
    if not isinstance(constraint, dict):
        raise ValueError("constraint must be an object")
    if depth > MAX_DEPTH:
        raise ValueError("constraint is nested too deeply")
    unknown = [op for op in constraint if op not in _LOGIC and op not in _LEAVES]
    if unknown:
        raise ValueError(f"unknown constraint operator(s): {quote(unknown)}")
    for op, values in constraint.items():
        if not isinstance(values, list):
            raise ValueError(f"constraint {op}: values must be an array")
        if op in _LOGIC:
            for value in values:
                validate(value, depth + 1)
            continue
        for value in values:
            if not isinstance(value, str):
                raise ValueError(f"constraint {op}: {quote(value)} is not a string")
            if op == "properties":
                _check_property(value)
            elif op == "ranks":
                idset.decode(value)
            else:
                hostlist.decode(value)


def _check_property(value):
    name = value[1:] if value[:1] == "^" else value
    if not name or not ILLEGAL.isdisjoint(name):
        raise ValueError(f"constraint properties: {quote(value)} is not a property name")


def check_property(name):
    """Check the name of a property (RFC 20).

    Raises:
        ValueError: it cannot be one
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"property {name!r}: a name may not be empty")
    for char in name:
        if char in ILLEGAL:
            raise ValueError(f"invalid character '{char}' in property \"{name}\"")


def hosts(constraint):
    """Yield every host name the ``hostlist`` terms of a valid constraint name."""
    for op, values in constraint.items():
        for value in values:
            if op == "hostlist":
                yield from hostlist.decode(value)
            elif op in _LOGIC:
                yield from hosts(value)


def match(constraint, every, properties, host_ranks):
    """Return the ranks a constraint matches.

    Args:
        constraint (dict): a valid constraint.
        every (list): bounds of all ranks (see formats.idset).
        properties (dict): bounds of the ranks of each property.
        host_ranks (callable): host name to an iterable of ranks.

    Returns:
        list: bounds of the matching ranks.
    """
    result = every
    for op, values in constraint.items():
        if op == "and":
            term = every
            for value in values:
                one = match(value, every, properties, host_ranks)
                term = idset.intersect(term, one)
        elif op == "or":
            term = [] if values else every
            for value in values:
                one = match(value, every, properties, host_ranks)
                term = idset.union(term, one)
        elif op == "not":
            term = every
            for value in values:
                one = match(value, every, properties, host_ranks)
                term = idset.intersect(term, one)
            term = idset.difference(every, term)
        elif op == "properties":
            term = every
            for value in values:
                if value[0] == "^":
                    have = properties.get(value[1:], ())
                    term = idset.difference(term, have)
                else:
                    have = properties.get(value, ())
                    term = idset.intersect(term, have)
        elif op == "hostlist":
            found = set()
            for value in values:
                for host in hostlist.decode(value):
                    found.update(host_ranks(host))
            term = idset.from_ids(found)
        else:
            term = []
            for value in values:
                term = idset.union(term, idset.decode(value))
        result = idset.intersect(result, term)
    return result
