# SPDX-License-Identifier: LGPL-3.0-or-later
"""Placement of a request by an index: the choice of ranks, and of slots on each; and counts of the
nodes or slots with room.

A ``Placement`` returns a selection for a shape, from a ``RankIndex`` and a mask of eligible ranks,
and changes nothing. It works on groups of ranks with the same numbers of free cores and GPUs. A
policy on the units *within* a rank overrides ``pick()`` and ``pick_single_slot()``; one for which
counts do not tell how many slots fit, ``candidates()``; one that prefers full ranks to empty ones
sets ``best_fit``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from math import inf
from typing import Any

from flux.resource.pool.contract import PoolContract
from flux.resource.pool.groups import Groups, Rooms, choose_nodes, packed
from flux.resource.pool.inventory import Counts, Selection, pairs, select, selected_ranks
from flux.resource.pool.masks import idset_text, lowest, popcount, quote, ranks_in, take
from flux.resource.pool.state import RankIndex, enough
from flux.resource.pool.view import PoolWithView
from flux.resource.request import Remembered, Shape
from flux.resource.ResourceCount import MAX_COUNT, ResourceCount


def slots_on(free: Counts, shape: Shape) -> int:
    """Return the slots of a shape that fit in free cores, GPUs and steps of amounts of a node."""
    if shape.slot_size:
        slots = free[0] // shape.slot_size
        if shape.gpu_per_slot:
            slots = min(slots, free[1] // shape.gpu_per_slot)
    else:
        slots = free[1] // shape.gpu_per_slot if shape.gpu_per_slot else 1
    return min(slots, slots_by_amounts(free, shape)) if shape.slot_amounts else slots


def slots_by_amounts(free: Counts, shape: Shape) -> int:
    """Return the slots of a shape for which the amounts of a node suffice."""
    slots = MAX_COUNT
    for have, each, once in zip(free[2:], shape.slot_amounts, shape.node_amounts):
        if have < once:
            return 0
        if each:
            slots = min(slots, (have - once) // each)
    return slots


def with_amounts(
    index: RankIndex, shape: Shape, placed: tuple[Selection, int] | None
) -> tuple[Selection, int] | None:
    """Return a placement with the job's amounts: all of a whole node, else the lowest steps."""
    inventory = index.inventory
    whole = shape.exclusive and shape.node_count is not None
    if placed is None or not inventory.amounts or not (whole or shape.slot_amounts):
        return placed
    chosen: dict[int, int] = {}
    for mask, units in pairs(placed[0]):
        if whole:
            steps: tuple[int, ...] = tuple([one.kind.most for one in inventory.amounts])
        else:
            slots = shape.slot_count.min
            if not (shape.node_count is not None and shape.slot_count.fixed):
                cores, gpus = inventory.cores_and_gpus(units)
                if shape.slot_size:
                    slots = cores // shape.slot_size
                else:
                    slots = gpus // shape.gpu_per_slot if shape.gpu_per_slot else 1
            steps = tuple(
                [o + slots * each for o, each in zip(shape.node_amounts, shape.slot_amounts)]
            )
        for free, ranks in index.states(mask):
            taken = units | inventory.take_amounts(free, steps)
            chosen[taken] = chosen.get(taken, 0) | ranks
    return select(chosen), placed[1]


def check_placed(
    what: str, placed: Any, index: RankIndex, shape: Shape, eligible: int
) -> tuple[Selection, int]:
    """Return the choice of a site's code, ``(selection, nslots)``. Raises ValueError, with the name of
    the code (`what`), if it is malformed, not free, not eligible or less than requested."""
    try:
        selection, nslots = placed
        chosen = list(pairs(selection))
        fits = len(selection) == 2 * len(chosen) and bool(chosen)
        fits = fits and all(mask > 0 and units > 0 for mask, units in chosen)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(f"{what}: expected (selection, nslots), got {quote(placed)}")
    if not isinstance(nslots, int) or nslots < 1:
        raise ValueError(f"{what}: expected a number of slots, 1 or more, got {quote(nslots)}")
    ranks = selected_ranks(selection)
    if ranks & ~eligible:
        raise ValueError(f"{what}: rank {idset_text(ranks & ~eligible)} is not up or not eligible")
    if sum([popcount(mask) for mask, _ in chosen]) > popcount(ranks):
        raise ValueError(f"{what}: a rank is chosen twice")
    if not index.is_free(selection):
        raise ValueError(f"{what}: the units chosen on rank {idset_text(ranks)} are not all free")
    least = 1 if shape.node_count is None else shape.node_count.min
    if popcount(ranks) < least or nslots < shape.nslots:
        raise ValueError(
            f"{what}: {popcount(ranks)} nodes, {nslots} slots: the job asks for at least {least} and"
            f" {shape.nslots}"
        )
    return selection, nslots


class Placement:
    """Placement by counts: worst fit, lowest ids first (the policy of ``Rv1Pool``)."""

    #: Whether ranks with the fewest free cores, then the fewest free GPUs, are tried first; else
    #: with the most.
    best_fit = False

    #: Whether the result of `place` is checked, as it is for the classes of sites.
    is_checked = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.is_checked = not cls.__module__.startswith("flux.")

    def place(self, index: RankIndex, shape: Shape, eligible: int) -> tuple[Selection, int] | None:
        """Find resources for a request; ties go to the lowest rank.

        O(groups of the index) operations on masks, and O(1) for each rank taken in part.

        Args:
            index (RankIndex): free units.
            shape (Shape): shape of the request.
            eligible (int): mask of usable ranks.

        Returns:
            ``(selection, nslots)``, or None if it does not fit.
        """
        if shape.node_count is not None:
            return self._place_nodes(index, shape, shape.node_count, eligible)
        if shape.slot_count.max == 1:
            return self._place_one(index, shape, eligible)
        return self._place_slots(index, shape, eligible)

    def pick(
        self, index: RankIndex, ranks: int, slots: int, shape: Shape, into: dict[int, int]
    ) -> None:
        """Choose the units of some slots on each of some ranks.

        Args:
            index (RankIndex): free units.
            ranks (int): mask of ranks, all with room for the slots.
            slots (int): slots on each.
            into (dict): units to mask of ranks; receives the choice.
        """
        index.pick_lowest(ranks, slots * shape.slot_size, slots * shape.gpu_per_slot, into)

    def pick_single_slot(self, index: RankIndex, rank: int, shape: Shape) -> int:
        """Return the units of one slot on one rank that has room for it."""
        inventory = index.inventory
        free = index.free(rank)
        units = take(free & inventory.core_mask, shape.slot_size)
        if shape.gpu_per_slot:
            units |= take(inventory.gpus(free), shape.gpu_per_slot) << inventory.shift
        return units

    def _place_one(
        self, index: RankIndex, shape: Shape, eligible: int
    ) -> tuple[Selection, int] | None:
        gpus = shape.gpu_per_slot
        inventory = index.inventory
        base = inventory.key_base
        keys = index.keys
        first = bisect_left(keys, shape.slot_size * base)
        if first == len(keys):
            return None
        groups = index.groups
        order = range(first, len(keys)) if self.best_fit else range(len(keys) - 1, first - 1, -1)
        for at in order:
            key = keys[at]
            if inventory.amounts:
                fits = enough(inventory.counts(key), shape.need)
            else:
                fits = not gpus or key % base >= gpus
            if fits:
                mask = groups[key] & eligible
                if mask:
                    rank = lowest(mask)
                    return (rank, self.pick_single_slot(index, rank, shape)), 1
        return None

    def candidates(
        self, index: RankIndex, shape: Shape, eligible: int
    ) -> Iterable[tuple[int, int]]:
        """Yield ``(slots that fit on a rank, mask of ranks)``, in the order of the policy, for the
        ranks with room for a slot, or for a node's share.

        O(groups of the index).
        """
        if shape.exclusive:
            eligible &= index.idle
        for free, mask in index.fitting(shape.need, eligible, self.best_fit):
            yield slots_on(free, shape), mask

    def _enough(
        self, index: RankIndex, shape: Shape, eligible: int, most: int | None
    ) -> tuple[list[tuple[int, int, int]], int]:
        """Return the first candidates with the number of nodes, or of slots if the shape is of
        slots, on each, until there are `most` (None: all candidates); and the sum."""
        found = []
        have = 0
        for slots, mask in self.candidates(index, shape, eligible):
            number = popcount(mask)
            if shape.node_count is None:
                number *= slots
            found.append((slots, mask, number))
            have += number
            if most is not None and have >= most:
                break
        return found, have

    def _place_slots(
        self, index: RankIndex, shape: Shape, eligible: int
    ) -> tuple[Selection, int] | None:
        """Place slots anywhere, filling node after node."""
        count = shape.slot_count
        found, have = self._enough(index, shape, eligible, count.max)
        wanted = count.min if count.fixed else count.floor(have)
        if wanted is None or wanted > have:
            return None
        left = wanted
        chosen: dict[int, int] = {}
        for slots, mask, room in found:
            if room > left:
                full, rest = divmod(left, slots)
                filled = take(mask, full)
                if filled:
                    self.pick(index, filled, slots, shape, chosen)
                if rest:
                    self.pick(index, take(mask ^ filled, 1), rest, shape, chosen)
                break
            self.pick(index, mask, slots, shape, chosen)
            left -= room
            if not left:
                break
        return select(chosen), wanted

    def _place_nodes(
        self, index: RankIndex, shape: Shape, count: ResourceCount, eligible: int
    ) -> tuple[Selection, int] | None:
        """Place nodes with the same number of slots on each."""
        most = count.max if shape.slot_count.fixed else None
        found, have = self._enough(index, shape, eligible, most)
        nodes = count.min if count.fixed else count.floor(have)
        if nodes is None or nodes > have:
            return None
        each = shape.slot_count.min
        if not shape.slot_count.fixed:
            each = slots_each(found, nodes, shape.slot_count)
        left = nodes
        chosen: dict[int, int] = {}
        for slots, mask, number in found:
            if slots < each:
                continue
            if number > left:
                mask = take(mask, left)
                number = left
            if shape.exclusive:
                for units, ranks in index.inventory.kinds.items():
                    if ranks & mask:
                        chosen[units] = chosen.get(units, 0) | ranks & mask
            else:
                self.pick(index, mask, each, shape, chosen)
            left -= number
            if not left:
                break
        return select(chosen), shape.slots_given(nodes, each)


def slots_each(rooms: list[tuple[int, int, int]], nodes: int, count: ResourceCount) -> int:
    """Return the largest number of slots that a count accepts and some nodes have room for.

    `rooms` has ``(slots that fit on each, mask of ranks, number of ranks)``, with enough ranks, all with
    room for the least number accepted; `nodes` ranks are wanted.
    """
    most = count.min
    for room, _, number in sorted(rooms, reverse=True):
        nodes -= number
        if nodes <= 0:
            most = count.floor(room) or most
            break
    return most


WORST_FIT = Placement()


class PlacingPool(PoolContract):
    """The operations of a pool that place requests, by a ``Placement``.

    Attributes:
        packing (tuple): levels of groups by which requests are packed; see `pack_by()`
        placement (Placement): the policy, for ``place_shape()``.
    """

    placement: Placement = WORST_FIT
    packing: tuple[Groups, ...] = ()

    def place_shape(
        self, index: RankIndex, shape: Shape, eligible: int
    ) -> tuple[Selection, int] | None:
        """Find resources for a shape on an index; see ``Placement.place()``.

        The index may be the pool's own, that of an empty pool (to check feasibility) or of a future
        time (to plan). The result must therefore depend on the arguments only, and nothing may be
        changed.

        Returns:
            ``(selection, nslots)``, or None if it does not fit.
        """
        if self.packing or shape.within is not None:
            eligible = self.in_groups(index, shape, eligible)
            if not eligible:
                return None
        placement = self.placement
        placed = placement.place(index, shape, eligible)
        if placement.is_checked and placed is not None:
            what = f"{type(placement).__name__}.place()"
            placed = check_placed(what, placed, index, shape, eligible)
        return with_amounts(index, shape, placed) if index.inventory.amounts else placed

    def pack_by(self, levels: Iterable[Groups]) -> None:
        """Place requests from now on in the minimum number of groups of ranks, the fullest first,
        so that whole groups stay free. No request is refused for that.

        A placement costs a mask and a count per group.

        Args:
            levels: groups such as racks and blocks, the largest first; empty: no packing
        """
        self.packing = tuple(levels)

    def choose_nodes(self, ranks: int, count: int, idle: int, beside: int = 0) -> int:
        """Return a mask of `count` nodes by the rule of `pack_by()`, fewer if `ranks` (a mask) has fewer: in
        the minimum number of groups, of these in the fullest; the lowest ranks if that is equal.

        O(groups). Nothing is allocated.

        Args:
            idle (int): mask of ranks that count as idle: wholly idle groups are taken last.
            beside (int): mask of ranks whose groups come first.
        """
        return choose_nodes(self.packing, idle, ranks, count, beside)

    def rooms(self, index: RankIndex, shape: Shape, eligible: int) -> Rooms:
        """Return the ranks by the number of slots of a shape that fit; for a shape in nodes, the
        ranks with room for a node's share, as 1.

        O(different counts of free cores and GPUs).
        """
        rooms = list(self.placement.candidates(index, shape, eligible))
        return rooms if shape.node_count is None else [(1, ranks_in(rooms))] if rooms else []

    def in_groups(self, index: RankIndex, shape: Shape, eligible: int) -> int:
        """Return the eligible ranks on which a shape is to be placed, to be in groups or to keep
        whole groups free; 0: none.  O(groups)."""
        rooms = self.rooms(index, shape, eligible)
        if not rooms:
            return 0
        count = shape.node_count or shape.slot_count
        if shape.within is None:
            if shape.node_count is not None and not shape.slot_count.fixed:
                return eligible  # it might get more slots on other nodes
            return eligible & (packed(self.packing, index.idle, count, rooms) or -1)
        return eligible & shape.within.choose(rooms, count, index.idle)

    def place_request(
        self, request: Any, index: RankIndex, eligible: int
    ) -> tuple[Selection, int] | None:
        """Find resources for a request, as ``place_shape()`` does for its shape.

        Override this if the result depends on more than the shape, such as attributes of the
        jobspec.
        """
        return self.place_shape(index, request.shape, eligible)


#: ``(constraint, need, whether ranks are taken whole, whether nodes are counted)``; shapes with
#: equal kinds are counted together.
RoomKind = tuple[Any, Counts, bool, bool]


def room_kind(shape: Shape) -> RoomKind:
    """Return the kind of nodes or slots of a shape."""
    return shape.match, shape.need, shape.exclusive, shape.node_count is not None


class _Room:
    """Room for the nodes or slots of a kind, as of a generation of the pool."""

    __slots__ = ("shape", "generation", "inventory", "count", "units")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape  # one of the kind
        self.generation = -1
        self.inventory: Any = None
        self.count: float = 0  # of nodes or slots with room; infinity if counts do not decide
        self.units: dict[int, int] = {}  # by key of free counts, those on a rank with these


class RoomCounts:
    """Counts of the free resources of a pool now, in nodes or slots of requests. A request for more
    cannot start, regardless of promises.

    Args:
        pool (PoolWithView): with a view
    """

    def __init__(self, pool: PoolWithView) -> None:
        self._pool = pool
        self._rooms: Remembered[Shape, _Room] = Remembered()
        self._kinds: Remembered[tuple[RoomKind, bool], _Room] = Remembered()
        # by constraint: keys of free counts, with the ranks that have these; of one generation
        self._free: Remembered[Any, list[tuple[int, int, int]]] = Remembered()
        self._free_since = -1

    def count(self, shape: Shape) -> float:
        """Return the number of nodes or slots of a shape with room, in any groups of ranks; infinity
        if counts do not decide placement. O(different counts of free cores and GPUs), the first time
        after a change of the pool."""
        room = self._rooms.get(shape)
        if room is None:
            anywhere = shape if shape.within is None else shape.replace(within=None)
            kind = room_kind(shape), self._pool.countable(anywhere)
            room = self._rooms[shape] = self._kinds.get(kind) or _Room(anywhere)
            self._kinds[kind] = room
        generation = self._pool.generation
        if room.generation != generation:
            room.generation = generation
            room.count = self._units(room) if self._pool.countable(room.shape) else inf
        return room.count

    def _units(self, room: _Room) -> int:
        shape, index = room.shape, self._pool.index
        if room.inventory is not index.inventory:
            room.inventory, room.units = index.inventory, {}
        units_of = room.units
        by_node = shape.node_count is not None
        within = index.idle if by_node and shape.exclusive else -1
        count = 0
        for key, number, mask in self._free_of(shape.match, room.generation):
            units = units_of.get(key)
            if units is None:
                free = index.inventory.counts(key)
                units = enough(free, shape.need) if by_node else slots_on(free, shape)
                units_of[key] = units
            if units:
                if within >= 0:
                    number = popcount(mask & within)
                count += number * units
        return count

    def _free_of(self, match: Any, generation: int) -> list[tuple[int, int, int]]:
        """Return ``(key of free counts, number of ranks, mask of them)`` of the ranks that are up
        and meet a constraint."""
        pool = self._pool
        if self._free_since != generation:
            self._free_since = generation
            self._free.clear()
        free = self._free.get(match)
        if free is None:
            eligible = pool.eligible(match)
            masks = [(key, mask & eligible) for key, mask in pool.index.groups.items()]
            free = self._free[match] = [(key, popcount(mask), mask) for key, mask in masks if mask]
        return free
