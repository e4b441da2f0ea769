# SPDX-License-Identifier: LGPL-3.0-or-later
"""Constraints as objects (RFC 31): checks of their form."""

#: Characters a property name must not contain (RFC 20).
ILLEGAL = frozenset("!&'\"^`|()")


def validate(constraint):
    """Check the form of a constraint, as the pools do.

    Raises:
        ValueError: the constraint is malformed; the text says how.
    """
    # Imported at the first job only: it imports the bindings, which are built on this package.
    from flux.resource.pool.constraint import parse_constraint

    parse_constraint(constraint)


def check_property(name):
    """Check the name of a property (RFC 20).

    Raises:
        ValueError: not a valid property name
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"property {name!r}: a name may not be empty")
    for char in name:
        if char in ILLEGAL:
            raise ValueError(f"invalid character '{char}' in property \"{name}\"")
