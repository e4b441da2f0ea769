# SPDX-License-Identifier: LGPL-3.0-or-later
"""Names of properties (RFC 20)."""

from flux.resource.pool.constraint import ILLEGAL_IN_PROPERTIES


def check_property(name):
    """Check the name of a property (RFC 20).

    Raises:
        ValueError: not a valid property name
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"property {name!r}: a name may not be empty")
    for char in name:
        if char in ILLEGAL_IN_PROPERTIES:
            raise ValueError(f"invalid character '{char}' in property \"{name}\"")
