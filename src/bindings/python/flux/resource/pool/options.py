# SPDX-License-Identifier: LGPL-3.0-or-later
"""Options of R version 1 pools: cores kept from jobs, and cores that come with a GPU."""

from __future__ import annotations

from typing import Any

from flux.resource.pool.inventory import Entry
from flux.resource.pool.masks import idset_text, popcount, quote, to_mask
from flux.resource.request import Shape

#: Limit of core numbers.
CORE_LIMIT = 1 << 16

#: In place of a number in `cores_per_gpu`, a node's cores divided by its GPUs.
SHARE = "share"


def without_system_cores(entries: list[Entry], value: Any) -> tuple[list[Entry], int]:
    """Return entries of R without the cores kept for the system.

    Args:
        entries (list): those of R
        value: idset of these cores on each node; None: none

    Returns:
        the remaining entries, and a mask of the system's cores

    Raises:
        ValueError: it is not an idset, or leaves a rank without cores
    """
    if value is None:
        return entries, 0
    try:
        kept = to_mask(value, CORE_LIMIT)
    except (TypeError, ValueError) as exc:
        raise ValueError(
            f"system_cores={quote(value)}: expected core ids, such as 0 or 0-1: {exc}"
        ) from None
    left = [(ranks, cores & ~kept, gpus) for ranks, cores, gpus in entries]
    for (ranks, cores, _), (_, before, _) in zip(left, entries):
        if before and not cores:
            raise ValueError(
                f"system_cores={quote(value)}: no core is left on rank {idset_text(ranks)}"
            )
    return left, kept


def cores_per_gpu(entries: list[Entry], value: Any) -> int:
    """Return the minimum number of cores that come with a GPU.

    Args:
        entries (list): those of the pool
        value: a number, as text too; `SHARE`: the cores per GPU of the node with the fewest; None:
            0

    Raises:
        ValueError: it is none of these, or too large for some node
    """
    shares = [(popcount(cores) // popcount(gpus), ranks) for ranks, cores, gpus in entries if gpus]
    if value is None:
        return 0
    if value == SHARE:
        return min(shares, default=(0, 0))[0]
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if type(value) is not int or value < 1:
        raise ValueError(
            f"cores_per_gpu={quote(value)}: expected a number, 1 or more, or {SHARE!r}"
        )
    for share, ranks in shares:
        if share < value:
            raise ValueError(
                f"cores_per_gpu={value}: rank {idset_text(ranks)} has {share} cores for each GPU"
            )
    return value


def with_cores_of_gpus(shape: Shape, each: int) -> Shape:
    """Return a shape whose slots have at least `each` cores per GPU; unchanged if it takes whole
    nodes or containers, or no GPU."""
    least = shape.gpu_per_slot * each
    if shape.slot_size >= least or shape.exclusive or shape.container_level is not None:
        return shape
    return shape.replace(slot_size=least)
