# SPDX-License-Identifier: LGPL-3.0-or-later
"""Constraints of a jobspec (RFC 31): checked once, evaluated as rank masks.

``parse_constraint()`` turns a constraint into nested tuples. These are hashable, so that an
inventory can remember the ranks that meet a constraint: for a queue full of jobs with the same one,
it is evaluated once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flux.resource.pool.hosts import name_pieces
from flux.resource.pool.masks import clip_idset, intervals, quote

if TYPE_CHECKING:
    from flux.resource.pool.inventory import Inventory

#: ``(operator, values)``; the values of and/or/not are such terms, those of the others text.
Terms = tuple[str, tuple[Any, ...]]

#: Levels of and/or/not in each other. More is an error rather than a deep recursion.
MAX_DEPTH = 128
#: Characters a property name must not contain (RFC 20).
ILLEGAL_IN_PROPERTIES = frozenset("!&'\"^`|()")


def parse_constraint(constraint: Any) -> Terms | None:
    """Check a constraint and return it as nested tuples, or None for no constraint.

    Args:
        constraint: parsed JSON: an object ``{operator: [values...]}`` or None.

    Raises:
        ValueError: not a constraint; the text names the operator and value.
    """
    if constraint is None:
        return None
    terms = _parse(constraint, 0)
    return terms if terms != ("and", ()) else None


def _parse(constraint: Any, depth: int) -> Terms:
    if not isinstance(constraint, dict):
        raise ValueError(f"constraint must be an object, got {quote(constraint)}")
    if depth > MAX_DEPTH:
        raise ValueError(f"constraint is nested more than {MAX_DEPTH} levels deep")
    unknown = [name for name in constraint if name not in _PARSERS]
    if unknown:
        raise ValueError(f"unknown constraint operator(s): {quote(unknown)}")
    terms = []
    for name, values in constraint.items():
        if name == "ranks" and isinstance(values, str):
            values = [values]
        if not isinstance(values, (list, tuple)):
            raise ValueError(f"'{name}' operand must be a list, got {type(values).__name__}")
        terms.append(_PARSERS[name](name, values, depth))
    return terms[0] if len(terms) == 1 else ("and", tuple(terms))


def _parse_terms(name: str, values: Sequence[Any], depth: int) -> Terms:
    return (name, tuple([_parse(value, depth + 1) for value in values]))


def _parse_properties(name: str, values: Sequence[Any], depth: int) -> Terms:
    for value in values:
        if not isinstance(value, str):
            raise ValueError(f"property constraint must be a string, got {type(value).__name__}")
        plain = value[1:] if value[:1] == "^" else value
        if not plain or not ILLEGAL_IN_PROPERTIES.isdisjoint(plain):
            raise ValueError(f"property constraint {quote(value)} is not a property name")
    return (name, tuple(values))


def _parse_hostlists(name: str, values: Sequence[Any], depth: int) -> Terms:
    for value in values:
        name_pieces(value)
    return (name, tuple(values))


def _parse_ranks(name: str, values: Sequence[Any], depth: int) -> Terms:
    for value in values:
        intervals(value)
    return (name, tuple(values))


_PARSERS = {
    "and": _parse_terms,
    "or": _parse_terms,
    "not": _parse_terms,
    "properties": _parse_properties,
    "hostlist": _parse_hostlists,
    "ranks": _parse_ranks,
}


def matching_ranks(terms: Terms, inventory: Inventory) -> int:
    """Mask of the ranks of an inventory that meet a constraint.

    ``or`` of nothing is false, as it is in the schedulers of flux-core, although RFC 31 leaves room
    for an evaluator that says true. ``not`` of nothing is false as well.
    """
    name, values = terms
    everything = inventory.ranks
    if name == "properties":
        mask = everything
        properties = inventory.properties
        for value in values:
            if value[0] == "^":
                mask &= ~properties.get(value[1:], 0)
            else:
                mask &= properties.get(value, 0)
        return mask
    mask = 0
    if name == "hostlist":
        for value in values:
            mask |= inventory.hosts.find(value)
    elif name == "ranks":
        for value in values:
            mask |= clip_idset(value, everything.bit_length())
    elif name == "or":
        for value in values:
            mask |= matching_ranks(value, inventory)
    else:
        mask = everything
        for value in values:
            mask &= matching_ranks(value, inventory)
        if name == "not":
            mask = everything & ~mask
    return mask & everything
