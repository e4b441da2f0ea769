# SPDX-License-Identifier: LGPL-3.0-or-later
"""Limited quantities: nodes, cores, GPUs, jobs; and names of users."""

from __future__ import annotations

import pwd
from typing import NamedTuple


class Amount(NamedTuple):
    """A number of each limited quantity.

    Attributes:
        nodes, cores, gpus, jobs (int): the numbers
    """

    nodes: int = 0
    cores: int = 0
    gpus: int = 0
    jobs: int = 0

    def plus(self, other: Amount) -> Amount:
        """Return the sum of both."""
        return Amount(*[one + two for one, two in zip(self, other)])


#: Limited quantities, in the order of checks.
DIMENSIONS = Amount._fields


_names: dict[int, str] = {}


def user_name(userid: int | None) -> str:
    """Return the name of a user, or the number if there is none. Cached."""
    if userid is None:
        return "nobody"
    name = _names.get(userid)
    if name is None:
        try:
            name = pwd.getpwuid(userid).pw_name
        except (KeyError, OverflowError):
            name = str(userid)
        _names[userid] = name
    return name


def user_id(name: str) -> int:
    """Return the user id for a name or number. Raises ValueError if there is no such user."""
    if name.isascii() and name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ValueError(f"there is no user {name!r}") from None
