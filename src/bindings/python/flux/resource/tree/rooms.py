"""How many whole containers each node has free, kept beside what is free.

Counts of free cores do not tell whether a socket is free, so the ranks with room for containers are
remembered by room, for each kind of container that is asked for. What jobs took or gave back since
is looked at again when the next such request comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flux.resource.pool.inventory import selected_ranks
from flux.resource.pool.masks import mask_of, members
from flux.resource.pool.rankindex import RankIndex

if TYPE_CHECKING:
    from typing_extensions import Self

    from flux.resource.pool.inventory import Inventory, Selection
    from flux.resource.request import Shape
    from flux.resource.tree.node import NodeTypes

#: Requests for containers that one index remembers.
REQUESTS_LIMIT = 8


class _Rooms:
    """What is remembered of one kind of containers.

    Attributes:
        rooms (dict): number of slots that fit, at least 1, to mask of the ranks with such room.
        stale (int): mask of the ranks that are to be looked at again.
        shape (Shape): a shape that asks for them.
    """

    __slots__ = ("rooms", "stale", "shape")

    def __init__(self, rooms: dict[int, int], stale: int, shape: Shape) -> None:
        self.rooms = rooms
        self.stale = stale
        self.shape = shape

    def copy(self) -> _Rooms:
        return _Rooms(self.rooms.copy(), self.stale, self.shape)


class ContainerIndex(RankIndex):
    """A RankIndex that knows which ranks have room for containers."""

    __slots__ = ("asked",)

    def __init__(self, inventory: Inventory) -> None:
        super().__init__(inventory)
        #: by what a slot asks for
        self.asked: dict[tuple[Any, ...], _Rooms] = {}

    def copy(self) -> Self:
        new = super().copy()
        new.asked = {wanted: one.copy() for wanted, one in self.asked.items()}
        return new

    def take(self, selection: Selection) -> None:
        super().take(selection)
        if self.asked:
            self._touched(selected_ranks(selection))

    def give(self, selection: Selection) -> None:
        super().give(selection)
        if self.asked:
            self._touched(selected_ranks(selection))

    def drop(self, ranks: int, inventory: Inventory) -> None:
        super().drop(ranks, inventory)
        self.asked = {}

    def _touched(self, ranks: int) -> None:
        for one in self.asked.values():
            one.stale |= ranks

    def rooms(self, shape: Shape, types: NodeTypes) -> dict[int, int]:
        """{slots of containers that fit, at least 1: mask of the ranks with such room}."""
        wanted = (
            shape.container_level,
            shape.containers_per_slot,
            shape.slot_size,
            shape.gpu_per_slot,
        )
        one = self.asked.get(wanted)
        if one is None:
            if len(self.asked) >= REQUESTS_LIMIT:
                self.asked.clear()
            one = self.asked[wanted] = _Rooms({}, self.inventory.ranks, shape)
        rooms, stale = one.rooms, one.stale
        if stale:
            for room, mask in list(rooms.items()):
                rooms[room] = mask & ~stale
            for room, mask in rooms_of(self, shape, types, stale).items():
                rooms[room] = rooms.get(room, 0) | mask
            one.stale = 0
        return rooms

    def check_rooms(self, types: NodeTypes) -> None:
        """What is remembered of ranks that were not touched is true; else an AssertionError."""
        for one in self.asked.values():
            known = self.inventory.ranks & ~one.stale
            kept = {room: mask & known for room, mask in one.rooms.items() if mask & known}
            assert kept == rooms_of(self, one.shape, types, known), f"containers: {kept}"


def rooms_of(index: RankIndex, shape: Shape, types: NodeTypes, ranks: int) -> dict[int, int]:
    """``ContainerIndex.rooms()`` of some ranks (a mask), found out by looking at them."""
    rooms: dict[int, int] = {}
    idle = ranks & index.idle
    partial = index.partial
    for mask, node in types.pairs:
        some = mask & idle
        if some:
            room = node.container_room(node.units, shape)
            if room:
                rooms[room] = rooms.get(room, 0) | some
        found: dict[int, list[int]] = {}
        for rank in members(mask & (ranks ^ idle)):
            free = partial[rank]
            if free:
                room = node.container_room(free, shape)
                if room:
                    found.setdefault(room, []).append(rank)
        for room, ranks_found in found.items():
            rooms[room] = rooms.get(room, 0) | mask_of(ranks_found)
    return rooms
