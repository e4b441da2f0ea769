# SPDX-License-Identifier: LGPL-3.0-or-later
"""The free units of ranks, indexed for placement.

The state has four parts, all of integers:

``idle``
    mask of the wholly free ranks;
``partial``
    list of the free units of each partly free rank; 0 for all other ranks, idle or without free
    units;
``groups``
    key to mask of the ranks with these numbers of free cores and GPUs (and steps of amounts), idle
    ranks included, those with nothing free left out. A key is ``cores * inventory.key_base + gpus``
    if no amounts are counted (``Inventory.key()``);
``keys``
    the keys of ``groups``, ascending: worst fit reads it from the end, best fit from the start.

So "the ranks of a set with at least four free cores, fewest first" takes one AND per group, whole
nodes are taken and given back without examining each, and ``copy()`` copies two lists and a small
dict of integers.

``inventory.py`` explains units, selections and inventories. The index does not know which ranks are
up or meet a constraint: callers pass masks of the ranks in question.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flux.resource.pool.masks import mask_of, members, runs, take

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.pool.inventory import Counts, Inventory, Selection

#: Masks of free units, one object for all ranks in the same state: on a large cluster, a few
#: objects instead of one per rank.
_shared: dict[int, int] = {}
MAX_SHARED_MASKS = 1 << 16


def _share(units: int) -> int:
    """Return the mask as an object shared by all ranks in this state."""
    if len(_shared) >= MAX_SHARED_MASKS:
        _shared.clear()
    return _shared.setdefault(units, units)


def enough(have: Counts, need: Counts) -> bool:
    """Return whether `have` is at least `need` in each count; counts missing in either are not
    compared."""
    for there, least in zip(have, need):
        if there < least:
            return False
    return True


def unused(inventory: Inventory) -> RankIndex:
    """Return the read-only index of an inventory with all units free. O(1) the second time."""
    found: RankIndex | None = inventory.unused
    if found is None:
        found = inventory.unused = RankIndex(inventory)
    return found


class RankIndex:
    """Free units of the ranks of an inventory, initially all."""

    __slots__ = ("inventory", "idle", "partial", "groups", "keys")

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.idle = inventory.ranks
        self.partial: list[int] = [0] * inventory.ranks.bit_length()
        self.groups: dict[int, int] = {}
        for units, mask in inventory.kinds.items():
            key = inventory.keys[units]
            self.groups[key] = self.groups.get(key, 0) | mask
        self.keys = sorted(self.groups)

    def copy(self) -> Self:
        """Return an independent index in the same state. O(ranks), a copy of one list."""
        new = type(self).__new__(type(self))
        new.inventory = self.inventory
        new.idle = self.idle
        new.partial = self.partial[:]
        new.groups = self.groups.copy()
        new.keys = self.keys[:]
        return new

    def free(self, rank: int) -> int:
        """Return the free units of a rank of the inventory. O(1)."""
        return self.partial[rank] or (self.inventory.full[rank] if self.idle >> rank & 1 else 0)

    def is_free(self, selection: Selection) -> bool:
        """Return whether all units of a selection are free; its ranks are in the inventory.

        O(kinds of rank) for idle ranks, O(1) for each other rank.
        """
        for ranks, units in zip(selection[::2], selection[1::2]):
            if ranks >= 0:
                if units & ~self.free(ranks):
                    return False
                continue
            mask = ~ranks
            idle = mask & self.idle
            for kind, kind_mask in self.inventory.kinds.items():
                if units & ~kind and idle & kind_mask:
                    return False
            partial = self.partial
            for rank in members(mask ^ idle):
                if units & ~partial[rank]:
                    return False
        return True

    def take(self, selection: Selection) -> None:
        """Mark the units of a selection, all free so far, as taken.

        O(1) for a single rank; for several, O(kinds of rank) for idle ones, and O(1) for each other
        rank.
        """
        for ranks, units in zip(selection[::2], selection[1::2]):
            if ranks >= 0:
                self._take_one(ranks, units)
            else:
                self._take_many(~ranks, units)

    def _take_one(self, rank: int, units: int) -> None:
        partial = self.partial
        key = self.inventory.key
        bit = 1 << rank
        free = partial[rank]
        if not free:
            free = self.inventory.full[rank]
            self.idle ^= bit
        left = free ^ units
        partial[rank] = left = _share(left)
        if left:
            self._move(bit, key(free), key(left))
        else:
            self._leave(bit, key(free))

    def _take_many(self, mask: int, units: int) -> None:
        inventory = self.inventory
        idle = mask & self.idle
        if idle:
            self.idle ^= idle
            for kind, kind_mask in inventory.kinds.items():
                part = idle & kind_mask
                if not part:
                    continue
                left = kind ^ units
                if left:
                    for low, count in runs(part):
                        self.partial[low : low + count] = [left] * count
                    self._move(part, inventory.keys[kind], inventory.key(left))
                else:
                    self._leave(part, inventory.keys[kind])
        for free, ranks in self._states(mask ^ idle) if mask != idle else ():
            left = _share(free ^ units)
            for rank in ranks:
                self.partial[rank] = left
            if left:
                self._move(mask_of(ranks), inventory.key(free), inventory.key(left))
            else:
                self._leave(mask_of(ranks), inventory.key(free))

    def states(self, mask: int) -> Iterator[tuple[int, int]]:
        """Yield ``(units, mask)``: some ranks (a mask), divided by their free units. O(kinds of
        rank) for idle ones, O(1) for each other rank."""
        for kind, ranks in self.inventory.kinds.items():
            if ranks & mask & self.idle:
                yield kind, ranks & mask & self.idle
        rest = mask & ~self.idle
        for free, some in self._states(rest) if rest else ():
            yield free, mask_of(some)

    def _states(self, mask: int) -> Any:
        """Return pairs of free units and ranks, for a mask of ranks without idle ones."""
        states: dict[int, list[int]] = {}
        partial = self.partial
        for rank in members(mask):
            free = partial[rank]
            if free in states:
                states[free].append(rank)
            else:
                states[free] = [rank]
        return states.items()

    def release(self, selection: Selection) -> None:
        """Mark the units of a selection, all taken so far, as free.

        O(1) for a single rank, and for any number of wholly taken ones; O(1) for each other rank.
        """
        for ranks, units in zip(selection[::2], selection[1::2]):
            if ranks >= 0:
                self._give_one(ranks, units)
            else:
                self._give_many(~ranks, units)

    def _give_one(self, rank: int, units: int) -> None:
        inventory = self.inventory
        bit = 1 << rank
        free = self.partial[rank]
        more = free | units
        if more == inventory.full[rank]:
            self.idle |= bit
            self.partial[rank] = 0
        else:
            self.partial[rank] = _share(more)
        if free:
            self._move(bit, inventory.key(free), inventory.key(more))
        else:
            self._enter(bit, inventory.key(more))

    def _give_many(self, mask: int, units: int) -> None:
        inventory = self.inventory
        kind_mask = inventory.kinds.get(units, 0)
        whole = mask & kind_mask
        if whole:
            # These had nothing free, so all of their units were taken.
            self.idle |= whole
            self._enter(whole, inventory.keys[units])
        full = inventory.full
        for free, ranks in self._states(mask ^ whole) if mask != whole else ():
            more = _share(free | units)
            done = [rank for rank in ranks if full[rank] == more]
            if done:
                self.idle |= mask_of(done)
            for rank in ranks:
                self.partial[rank] = more
            for rank in done:
                self.partial[rank] = 0
            if free:
                self._move(mask_of(ranks), inventory.key(free), inventory.key(more))
            else:
                self._enter(mask_of(ranks), inventory.key(more))

    def _move(self, mask: int, old: int, new: int) -> None:
        if old != new:
            self._leave(mask, old)
            self._enter(mask, new)

    def _leave(self, mask: int, key: int) -> None:
        rest = self.groups[key] ^ mask
        if rest:
            self.groups[key] = rest
        else:
            del self.groups[key]
            del self.keys[bisect_left(self.keys, key)]

    def _enter(self, mask: int, key: int) -> None:
        if key in self.groups:
            self.groups[key] |= mask
        else:
            self.groups[key] = mask
            insort(self.keys, key)

    def drop(self, ranks: int, inventory: Inventory) -> None:
        """Drop a mask of ranks; ``inventory`` is the one without them."""
        self.inventory = inventory
        self.idle &= ~ranks
        for low, count in runs(ranks):
            self.partial[low : low + count] = [0] * count
        for key in self.keys[:]:
            gone = self.groups[key] & ranks
            if gone:
                self._leave(gone, key)

    def fitting(
        self, need: Counts, ranks: int, best_fit: bool = False
    ) -> Iterator[tuple[Counts, int]]:
        """Yield the groups that can hold a request, most free first.

        O(groups), one per different counts of free units.

        Args:
            need (tuple): minimum numbers of free cores, GPUs and steps of each amount; these may be
                left out.
            ranks (int): mask of the ranks to examine.
            best_fit (bool): fewest free first instead.

        Yields:
            ``(counts of free units, mask of ranks)``, no mask empty.
        """
        inventory, groups = self.inventory, self.groups
        base, gpus, plain = inventory.key_base, need[1], not inventory.amounts
        keys = self.keys[bisect_left(self.keys, need[0] * base) :]
        for key in keys if best_fit else keys[::-1]:
            mask = groups[key] & ranks
            if mask:
                free = (key // base, key % base) if plain else inventory.counts(key)
                if free[1] >= gpus and (plain or enough(free, need)):
                    yield free, mask

    def having(self, need: Counts, ranks: int) -> int:
        """Return which of some ranks (a mask) have enough free. O(groups); see `fitting()`."""
        found = 0
        for _, mask in self.fitting(need, ranks):
            found |= mask
        return found

    def pick_lowest(self, ranks: int, cores: int, gpus: int, into: dict[int, int]) -> None:
        """Choose the lowest free ids on each of a mask of ranks that have enough.

        Args:
            into (dict): units to mask of ranks; receives the choice.
        """
        inventory = self.inventory
        core_mask = inventory.core_mask
        shift = inventory.shift
        for free, same in self.states(ranks):
            units = take(free & core_mask, cores)
            if gpus:
                units |= take(inventory.gpus(free), gpus) << shift
            into[units] = into.get(units, 0) | same

    def check(self) -> None:
        """Check every invariant of the index; raise AssertionError for the first broken one."""
        inventory = self.inventory
        groups: dict[int, int] = {}
        for rank in members(inventory.ranks):
            units = self.partial[rank]
            if self.idle >> rank & 1:
                assert not units, f"rank {rank} is idle and partial"
                units = inventory.full[rank]
            else:
                assert units != inventory.full[rank], f"rank {rank} is free but not idle"
                assert not units & ~inventory.full[rank], (
                    f"rank {rank}: units that it does not have"
                )
            if units:
                key = inventory.key(units)
                groups[key] = groups.get(key, 0) | 1 << rank
        assert not self.idle & ~inventory.ranks, "idle ranks that are not there"
        for rank, units in enumerate(self.partial):
            assert not units or inventory.ranks >> rank & 1, f"rank {rank} is not there"
        assert self.groups == groups, f"groups {self.groups!r}, expected {groups!r}"
        assert self.keys == sorted(groups), f"keys {self.keys!r}, expected {sorted(groups)!r}"
