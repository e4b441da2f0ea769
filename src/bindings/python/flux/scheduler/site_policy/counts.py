# SPDX-License-Identifier: LGPL-3.0-or-later
"""Amounts of limited quantities: nodes, cores, GPUs, jobs; and the names of users."""

from __future__ import annotations

import pwd
from typing import NamedTuple


class Amount(NamedTuple):
    """A number of each quantity that can be limited.

    Attributes:
        nodes, cores, gpus, jobs (int): the numbers
    """

    nodes: int = 0
    cores: int = 0
    gpus: int = 0
    jobs: int = 0

    def plus(self, other: Amount) -> Amount:
        """The sum of both."""
        return Amount(*[one + two for one, two in zip(self, other)])


#: The counted quantities, in the order in which they are checked.
DIMENSIONS = Amount._fields


_names: dict[int, str] = {}


def user_name(userid: int | None) -> str:
    """The name of a user; the number if there is none. Looked up once."""
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
    """The id of a user, from the name or the number.

    Raises:
        ValueError: there is no such user
    """
    if name.isascii() and name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ValueError(f"there is no user {name!r}") from None
