# SPDX-License-Identifier: LGPL-3.0-or-later
"""Constraints as objects (RFC 31): whether they have the form."""

#: Characters a property name must not contain (RFC 20).
ILLEGAL = frozenset("!&'\"^`|()")


def validate(constraint):
    """Check the form of a constraint, as the pools do.

    Raises:
        ValueError: what is wrong with it.
    """
    # Not before there is a job: it takes the bindings, which themselves stand on this package.
    from flux.resource.pool.constraint import parse_constraint

    parse_constraint(constraint)


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
