# SPDX-License-Identifier: LGPL-3.0-or-later
"""Constraints of a jobspec (RFC 31): checked once, evaluated as rank masks.

``parse_constraint()`` turns a constraint into nested tuples. These are hashable, so that an
inventory evaluates a constraint once for a whole queue of jobs with it.
"""

from __future__ import annotations

from typing import Any

from flux.resource.pool.hosts import look_ups
from flux.resource.pool.masks import intervals, quote


class Terms(tuple[str, Any]):
    """``(operator, values)``; the values of and/or/not are such tuples, others are text; that of
    ``mask`` (`also_on`) is a mask of ranks.

    A whole constraint keeps its last match as long as it lives, with a pending job, even after
    tables were emptied.

    Attributes:
        found: an inventory and the mask of its matching ranks; or None
    """

    found: tuple[object, int] | None = None


#: Maximum depth of and/or/not; deeper ones are an error rather than a deep recursion.
MAX_DEPTH = 128
#: Maximum number of terms of a constraint (values, ranges of names in hostlists, and text by
#: length). More are an error: guests may query any constraint, and each term costs microseconds.
MAX_TERMS = 10000
#: Characters that count as one term: an idset may have many ranges, each cheap.
TERM_CHARACTERS = 64
#: The operators, and those whose values are constraints.
OPERATORS = frozenset(("and", "or", "not", "properties", "hostlist", "ranks"))
LOGIC = frozenset(("and", "or", "not"))
#: Characters a property name must not contain (RFC 20).
ILLEGAL_IN_PROPERTIES = frozenset("!&'\"^`|()")


def parse_constraint(constraint: Any, added: bool = False) -> Terms | None:
    """Return a constraint as nested tuples, checked; None for no constraint.

    Args:
        constraint: parsed JSON: an object ``{operator: [values...]}`` or None.
        added: whether a checked user's constraint may have been extended, which doubles the limits

    Raises:
        ValueError: it is not a constraint, or too large; the text names the operator and value.
    """
    if constraint is None:
        return None
    terms = Terms(_Reader(2 if added else 1).read(constraint, 0))
    return terms if terms != ("and", ()) else None


def also_on(terms: Terms | None, ranks: int) -> Terms:
    """Return a constraint, limited to some ranks (a mask)."""
    only = ("mask", ranks)
    return Terms(only if terms is None else ("and", (terms[:], only)))


class _Reader:
    """Reads one constraint, and counts the cost of its evaluation."""

    def __init__(self, times: int) -> None:
        self._left = times * MAX_TERMS
        self._depth = times * MAX_DEPTH

    def _count(self, terms: int) -> None:
        self._left -= terms
        if self._left < 0:
            raise ValueError(f"constraint of more than {MAX_TERMS} terms")

    def read(self, constraint: Any, depth: int) -> tuple[str, tuple[Any, ...]]:
        """Return a constraint, or a part of one, as terms."""
        if not isinstance(constraint, dict):
            raise ValueError(f"constraint must be an object, got {quote(constraint)}")
        if depth > self._depth:
            raise ValueError(f"constraint is nested more than {MAX_DEPTH} levels deep")
        unknown = [name for name in constraint if name not in OPERATORS]
        if unknown:
            raise ValueError(f"unknown constraint operator(s): {quote(unknown)}")
        terms = []
        for name, values in constraint.items():
            if name == "ranks" and isinstance(values, str):
                values = [values]
            if not isinstance(values, (list, tuple)):
                raise ValueError(f"'{name}' operand must be a list, got {type(values).__name__}")
            self._count(1 + len(values))
            if name in LOGIC:
                parts = [self.read(value, depth + 1) for value in values]
            else:
                parts = [self._value(name, value) for value in values]
            terms.append((name, tuple(parts)))
        return terms[0] if len(terms) == 1 else ("and", tuple(terms))

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            self._count(len(value) // TERM_CHARACTERS)
        if name == "hostlist":
            for names in look_ups(value):
                self._count(names)
        elif name == "ranks":
            intervals(value)
        elif not isinstance(value, str):
            raise ValueError(f"property constraint must be a string, got {type(value).__name__}")
        else:
            plain = value[1:] if value[:1] == "^" else value
            if not plain or not ILLEGAL_IN_PROPERTIES.isdisjoint(plain):
                raise ValueError(f"property constraint {quote(value)} is not a property name")
        return value
