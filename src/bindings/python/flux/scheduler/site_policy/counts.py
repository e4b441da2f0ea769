# SPDX-License-Identifier: LGPL-3.0-or-later
"""Amounts of what is limited: nodes, cores, GPUs, jobs; and the names of users."""

from __future__ import annotations

import pwd
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from flux.resource.ResourcePool import ResourcePool


class Amount(NamedTuple):
    """So much of each thing that can be limited.

    Attributes:
        nodes, cores, gpus, jobs (int): how many
    """

    nodes: int = 0
    cores: int = 0
    gpus: int = 0
    jobs: int = 0

    def plus(self, other: Amount) -> Amount:
        """The sum of both."""
        return Amount(*[one + two for one, two in zip(self, other)])


#: What is counted, in the order in which it is checked.
DIMENSIONS = Amount._fields


_names: dict[int, str] = {}


def user_name(userid: int | None) -> str:
    """The name of a user; the number where there is none. Looked up once."""
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


def least_of(request: Any, pool: ResourcePool, ranks: int) -> Amount:
    """What a request takes at least, whatever the pool offers; of nodes 0 where it may share them
    with other jobs.

    Args:
        request: as the pool has parsed it
        pool (ResourcePool): where it is to be satisfied
        ranks (int): mask of the ranks that it could use
    """
    cores, gpus = getattr(request, "ncores", 0), getattr(request, "ngpus", 0)
    shape = getattr(request, "shape", None)
    if shape is None or not shape.exclusive or shape.node_count is None:
        return Amount(0, cores, gpus, 1)
    nodes = shape.node_count.min
    kinds = [kind for kind in pool.node_kinds() if kind[2] & ranks]
    # It gets all there is on its nodes.
    cores = max(cores, nodes * min([kind[0] for kind in kinds], default=0))
    gpus = max(gpus, nodes * min([kind[1] for kind in kinds], default=0))
    return Amount(nodes, cores, gpus, 1)
