# SPDX-License-Identifier: LGPL-3.0-or-later
"""Caches of results about requests, with a common limit in bytes.

A table keyed by the shape of a request, or by text from a jobspec, keeps its keys alive, so a limit
on the number of its entries does not limit memory. All such tables are `Remembered`, and the sizes
of new shapes are added up in one place. Beyond the limit all tables are emptied; pending jobs keep
their own shapes.
"""

from __future__ import annotations

from typing import Any, TypeVar
from weakref import ref

#: Bytes that requests may keep, roughly, before all tables are emptied: a few thousand ordinary
#: requests. Jobs come in series, so larger tables gain little.
MAX_BYTES = 1 << 21

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(dict[Key, Value]):
    """A dict that may be emptied whenever a request arrives."""

    __slots__ = ("__weakref__",)

    def __init__(self, *args: dict[Key, Value]) -> None:
        super().__init__(*args)
        _tables.append(ref(self))
        if len(_tables) > 2 * _alive:
            _drop_dead()

    def copy(self) -> Remembered[Key, Value]:
        return Remembered(self)


# Plans make and drop tables all the time; a set of weak references would call back for each.
_tables: list[ref[Remembered[Any, Any]]] = []
_alive = 500  # a lower bound, as of the last look
_kept = 0


def _drop_dead() -> None:
    global _alive
    _tables[:] = [one for one in _tables if one() is not None]
    _alive = max(500, len(_tables))


def count_kept(size: int) -> None:
    """Count bytes of something new that tables may keep.

    Args:
        size (int): its size in bytes, roughly
    """
    global _kept
    _kept += size


#: shapes of jobs that have left since the tables were emptied
_left: Remembered[Any, None] = Remembered()


def count_left(shape: Any) -> None:
    """Count the bytes of a shape whose job has left, once until the tables are emptied: from now on
    only tables may keep it."""
    size = shape.kept_bytes
    if shape not in _left:
        _left[shape] = None
        count_kept(size)


def make_room() -> None:
    """Empty all tables, if they may keep more than `MAX_BYTES`.

    To be called where requests arrive or passes begin, not while a plan relies on an entry that it
    just made.
    """
    global _kept
    if _kept > MAX_BYTES:
        _kept = 0
        for one in _tables:
            table = one()
            if table is not None:
                table.clear()
