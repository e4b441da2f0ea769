# SPDX-License-Identifier: LGPL-3.0-or-later
"""Caches of findings about requests, bounded in bytes together.

A table that is looked into by a request's shape, or by what users write into a jobspec, keeps that
alive: a bound on the number of entries is none on memory. All such tables are `Remembered`, and the
sizes of new shapes are added up in one place. When that is too much, all of them are emptied, so
that what stays is what pending jobs keep themselves.
"""

from __future__ import annotations

from typing import Any, TypeVar
from weakref import ref

#: Bytes that requests may keep, roughly, before all tables are emptied: some thousand ordinary ones.
#: Jobs come in series, so that larger tables find little more.
MAX_BYTES = 1 << 21

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(dict[Key, Value]):
    """A dict of which nothing may be left when the next request comes."""

    __slots__ = ("__weakref__",)

    def __init__(self, *args: dict[Key, Value]) -> None:
        super().__init__(*args)
        _tables.append(ref(self))
        if len(_tables) > 2 * _alive:
            _drop_dead()

    def copy(self) -> Remembered[Key, Value]:
        return Remembered(self)


# Plans make and drop tables all the time: a set of weak references would call back for each.
_tables: list[ref[Remembered[Any, Any]]] = []
_alive = 500  # of them at least, when that was looked at last
_kept = 0


def _drop_dead() -> None:
    global _alive
    _tables[:] = [one for one in _tables if one() is not None]
    _alive = max(500, len(_tables))


def count_kept(size: int) -> None:
    """Something was made, or has lost its job, that tables may keep.

    Args:
        size (int): bytes that it takes, roughly
    """
    global _kept
    _kept += size


def make_room() -> None:
    """Empty all tables, if they may keep more than `MAX_BYTES`.

    To be called where requests come in or passes begin, and not while a plan relies on an entry that
    it has just made.
    """
    global _kept
    if _kept > MAX_BYTES:
        _kept = 0
        for one in _tables:
            table = one()
            if table is not None:
                table.clear()
