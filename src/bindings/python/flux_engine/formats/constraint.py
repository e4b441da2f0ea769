# SPDX-License-Identifier: LGPL-3.0-or-later
"""Constraints as objects (RFC 31): whether they have the form."""

from flux_engine.formats import hostlist, idset
from flux_engine.formats.quote import quote

MAX_DEPTH = 128
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
                for _ in hostlist.ranges(value):  # not decoded: it may name any number of hosts
                    pass


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
