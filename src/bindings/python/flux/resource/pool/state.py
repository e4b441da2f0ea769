# SPDX-License-Identifier: LGPL-3.0-or-later
"""The state of a pool: free units, jobs with their units and ends, and ranks that are up.

Everything mutable in a pool is here, listed once, and copied by ``copy()``. Nothing is chosen here:
a placement finds a selection for a request, and ``PoolState.enter()`` gives it to the job.

The free units are a ``RankIndex``, made for placement. It has four parts, all of integers:

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
from operator import ge
from typing import TYPE_CHECKING, Any

from flux.resource.pool.inventory import (
    Counts,
    Inventory,
    Selection,
    matching_ranks,
    pairs,
    select,
    selected_ranks,
    totals,
)
from flux.resource.pool.jobid import job_text
from flux.resource.pool.masks import idset_text, mask_of, members, runs, take
from flux.resource.request import Remembered

if TYPE_CHECKING:
    from typing_extensions import Self

#: Number of changes for which the changed job is kept; at most twice as many.
CHANGES_KEPT = 1024

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
    return all(map(ge, have, need))


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
        for mask, units in pairs(selection):
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
        """Take the free units of a selection, and free its taken ones.

        O(1) for a single rank; for several, O(kinds of rank) for idle and for wholly taken ones, and
        O(1) for each other rank.
        """
        inventory, partial = self.inventory, self.partial
        numbers = iter(selection)
        for ranks, units in zip(numbers, numbers):
            if ranks >= 0:
                full = inventory.full[ranks]
                free = partial[ranks] or (full if self.idle >> ranks & 1 else 0)
                partial[ranks] = self._regroup(1 << ranks, free, free ^ units, full)
                continue
            mask = ~ranks
            for full, same in inventory.kinds.items():
                own = mask & same
                idle = own & self.idle
                busy = own ^ idle
                if idle:
                    left = self._regroup(idle, full, full ^ units, full)
                    for low, count in runs(idle) if left else ():
                        partial[low : low + count] = [left] * count
                if busy and units == full:
                    self._regroup(busy, 0, full, full)
                    continue
                for free, some in self._states(busy) if busy else ():
                    left = self._regroup(mask_of(some), free, free ^ units, full)
                    for rank in some:
                        partial[rank] = left

    release = take

    def _regroup(self, mask: int, free: int, left: int, full: int) -> int:
        """Note that some ranks of a kind (`full`) have other units free (`left` instead of `free`);
        return their entry in `partial`."""
        groups, inventory = self.groups, self.inventory
        if free:
            before = inventory.keys[full] if free == full else inventory.key(free)
            rest = groups[before] ^ mask
            if rest:
                groups[before] = rest
            else:
                self._drop_group(before)
        if left:
            after = inventory.keys[full] if left == full else inventory.key(left)
            if after in groups:
                groups[after] |= mask
            else:
                groups[after] = mask
                insort(self.keys, after)
        if free == full:
            self.idle ^= mask
        elif left == full:
            self.idle |= mask
            return 0
        return left and _share(left)

    def _drop_group(self, key: int) -> None:
        del self.groups[key]
        del self.keys[bisect_left(self.keys, key)]

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

    def drop(self, ranks: int, inventory: Inventory) -> None:
        """Drop a mask of ranks; ``inventory`` is the one without them."""
        self.inventory = inventory
        self.idle &= ~ranks
        for low, count in runs(ranks):
            self.partial[low : low + count] = [0] * count
        for key in self.keys[:]:
            self.groups[key] &= ~ranks
            if not self.groups[key]:
                self._drop_group(key)

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
        """Choose the lowest free ids on each of a mask of ranks that have enough, and enter the
        choice into a dict of units to masks of ranks."""
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


class PoolState:
    """The state of a pool. At first, all ranks are up and free.

    Args:
        inventory (Inventory): ranks with their resources.
        index (RankIndex): index of the inventory, of the class that the pool's policy needs.

    Attributes:
        inventory (Inventory): present ranks, with properties; replaced when they change.
        index (RankIndex): free units, on ranks up or not.
        up (int): mask of the ranks that are up.
        gone (int): mask of the removed ranks.
        jobs (dict): job id to ``(end, *selection)``: its end in seconds since the epoch (0:
            unknown), and its units.
        blocked (dict): shapes that did not fit; emptied when ``releases`` grows.
        generation (int): grows with every change.
        releases (int): grows whenever a request that did not fit may fit.
    """

    def __init__(self, inventory: Inventory, index: RankIndex) -> None:
        self.inventory = inventory
        self.index = index
        self.up = inventory.ranks
        self.gone = 0
        self.jobs: dict[int, tuple[Any, ...]] = {}
        self.blocked: Remembered[Any, bool] = Remembered()
        self.generation = 0
        self.releases = 0
        # The job of each change since a generation (None for other changes); None until a plan
        # asks.
        self._changed: list[int | None] | None = None
        self._changed_since = 0

    def copy(self) -> PoolState:
        """Return an independent copy. O(ranks + jobs): copies two lists and three dicts."""
        new = PoolState.__new__(PoolState)
        new.__dict__.update(
            self.__dict__,
            index=self.index.copy(),
            jobs=self.jobs.copy(),
            blocked=self.blocked.copy(),
            _changed=None,
        )
        return new

    # -- answers ------------------------------------------------------------

    def eligible(self, match: Any) -> int:
        """Return a mask of the ranks that are up and meet a parsed constraint; one operation if it
        is known."""
        return self.up if match is None else self.up & self.inventory.matching(match)

    def held(self, jobid: int) -> Selection:
        """Return the units of a job."""
        return self.jobs[jobid][1:]

    def changes_since(self, generation: int) -> dict[int, tuple[Any, ...] | None] | None:
        """See ``ResourcePoolImplementation.changes_since()``."""
        if self._changed is None:
            self._changed, self._changed_since = [], self.generation
        if not self._changed_since <= generation <= self.generation:
            return None
        jobs = self._changed[generation - self._changed_since :]
        return {jobid: self.jobs.get(jobid) for jobid in jobs if jobid is not None}

    def _note_change(self, jobid: int | None) -> None:
        """Increase the generation for a change of a job, or another change (None)."""
        self.generation += 1
        changed = self._changed
        if changed is not None:
            changed.append(jobid)
            if self.generation - self._changed_since > 2 * CHANGES_KEPT:
                del changed[:CHANGES_KEPT]
                self._changed_since += CHANGES_KEPT

    # -- jobs ---------------------------------------------------------------

    def enter(self, jobid: int, end: float, selection: Selection) -> None:
        """Give a free selection to a job, until `end` (seconds since the epoch, 0: unknown)."""
        self.index.take(selection)
        self.jobs[jobid] = (end, *selection)
        self._note_change(jobid)

    def give_back(self, jobid: int, given: Selection, left: Selection | None) -> None:
        """Take back a selection of a job's units, of which it keeps `left`; None if it ended."""
        self.index.release(given)
        if left is None:
            del self.jobs[jobid]
        else:
            self.jobs[jobid] = (self.jobs[jobid][0], *left)
        self.reconsider(jobid)

    def set_end(self, jobid: int, end: float) -> None:
        """Change a job's end."""
        self.jobs[jobid] = (end, *self.jobs[jobid][1:])
        self._note_change(jobid)

    def split(
        self, jobid: int, entries: list[tuple[int, int]], final: bool
    ) -> tuple[Selection, Selection | None]:
        """Divide a job's units into the returned part and the rest.

        Args:
            jobid (int): the job.
            entries (list): ``(rank mask, units)`` returned; removed ranks are ignored.
            final (bool): the job returns all that it holds.

        Raises:
            ValueError: the job does not hold the units in the entries, or would keep some when it
                ends.
        """
        held = self.jobs[jobid][1:]
        kept = totals(held)
        given: dict[int, int] = {}
        strange = 0
        here = ~self.gone | self.inventory.ranks
        for mask, units in entries:
            mask &= here
            for own in list(kept):
                common = kept[own] & mask
                if not common:
                    continue
                if units & ~own:
                    self._mismatch(jobid, select({units: common}), select({own: common}))
                mask ^= common
                kept[own] ^= common
                given[units] = given.get(units, 0) | common
                if own != units:
                    kept[own ^ units] = kept.get(own ^ units, 0) | common
            strange |= mask
        if strange:
            raise ValueError(
                f"free: {job_text(jobid)}: R contains ranks not in job allocation:"
                f" {{{idset_text(strange)}}}"
            )
        left = select(kept)
        if final and left:
            self._mismatch(jobid, select(given), held)
        return select(given), None if final else left

    def _mismatch(self, jobid: int, got: Selection, expected: Selection) -> None:
        dumps = self.inventory.dumps
        raise ValueError(
            f"free: {job_text(jobid)}: R mismatch: got {dumps(got)}, expected {dumps(expected)}"
        )

    # -- reports of the instance --------------------------------------------

    def set_up(self, up: int) -> None:
        """Set the mask of ranks that are up."""
        if up != self.up:
            self.up = up
            self.reconsider()

    def set_property(self, name: str, ranks: int) -> None:
        """Give a property to just these ranks (a mask)."""
        if self.inventory.properties.get(name, 0) != ranks:
            self._replace(self.inventory.with_property(name, ranks))

    def recount(self, inventory: Inventory, index: RankIndex) -> None:
        """Replace the amounts of the ranks, while no job holds anything."""
        self.index = index
        self._replace(inventory)

    def remove(self, ranks: int) -> None:
        """Remove present ranks, with the jobs' units on them; O(jobs)."""
        self.gone |= ranks
        self.up &= ~ranks
        inventory = self.inventory.without(ranks)
        self.index.drop(ranks, inventory)
        for jobid, record in self.jobs.items():
            selection = record[1:]
            if selected_ranks(selection) & ranks:
                left = {units: mask & ~ranks for units, mask in totals(selection).items()}
                self.jobs[jobid] = (record[0], *select(left))
        self._replace(inventory)

    def _replace(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.index.inventory = inventory
        self.reconsider()

    def reconsider(self, jobid: int | None = None) -> None:
        """Note that a job released something, or another change (None): requests that did not fit
        are to be tried again."""
        self._note_change(jobid)
        self.releases += 1
        if self.blocked:
            self.blocked.clear()

    # -- invariants ---------------------------------------------------------

    def check(self) -> None:
        """Check every invariant; raise AssertionError if one is broken. O(ranks + jobs)."""
        inventory, index = self.inventory, self.index
        index.check()
        assert index.inventory is inventory, "the index is of another inventory"
        assert not self.up & ~inventory.ranks, "ranks are up that are not there"
        assert not self.gone & inventory.ranks, "ranks are both there and gone"
        taken: dict[int, int] = {}
        for record in self.jobs.values():
            for mask, units in pairs(record[1:]):
                for rank in members(mask):
                    assert not taken.get(rank, 0) & units, f"rank {rank} given twice"
                    taken[rank] = taken.get(rank, 0) | units
        for rank in members(inventory.ranks):
            assert index.free(rank) ^ taken.pop(rank, 0) == inventory.full[rank], (
                f"rank {rank}: free and held are not all of it"
            )
        assert not taken, f"jobs hold ranks that are not there: {sorted(taken)}"
        for match, mask in inventory.matches.items():
            assert mask == matching_ranks(match, inventory), f"stale constraint {match!r}"

    def text(self) -> str:
        """Return the state as text, a line per job and per rank in parts, for test failures."""
        dumps = self.inventory.dumps
        lines = [f"pool: {dumps(self.inventory.whole())} up: {idset_text(self.up)}"]
        for jobid, record in self.jobs.items():
            lines.append(f"job {jobid}: {dumps(record[1:])} end {record[0]}")
        for rank, units in enumerate(self.index.partial):
            if units:
                lines.append(f"rank {rank}: free units {units:#b}")
        lines.append(f"idle: {idset_text(self.index.idle)}")
        return "\n".join(lines)
