"""How many whole containers each node has free, kept beside what is free.

Counts of free cores do not tell whether a socket is free, so the ranks with room for containers are
remembered by room, for each kind of container that is asked for. What jobs took or gave back since
is looked at again when the next such request comes.
"""

from __future__ import annotations

from typing import Any

from flux.resource.pool.inventory import selected_ranks
from flux.resource.pool.masks import members
from flux.resource.pool.rankindex import RankIndex

#: Requests for containers that one index remembers.
REQUESTS_LIMIT = 8


class ContainerIndex(RankIndex):
    """A RankIndex that knows which ranks have room for containers."""

    __slots__ = ("asked",)

    def __init__(self, inventory):
        super().__init__(inventory)
        #: what a slot asks for -> [{slots that fit: mask of ranks}, ranks to look at again, shape]
        self.asked = {}

    def copy(self):
        new = super().copy()
        new.asked = {wanted: [rooms.copy(), *rest] for wanted, (rooms, *rest) in self.asked.items()}
        return new

    def take(self, selection):
        super().take(selection)
        if self.asked:
            self._touched(selected_ranks(selection))

    def give(self, selection):
        super().give(selection)
        if self.asked:
            self._touched(selected_ranks(selection))

    def drop(self, ranks, inventory):
        super().drop(ranks, inventory)
        self.asked = {}

    def _touched(self, ranks):
        for entry in self.asked.values():
            entry[1] |= ranks

    def rooms(self, shape, types):
        """{slots of containers that fit, at least 1: mask of the ranks with such room}."""
        wanted = (
            shape.container_level,
            shape.containers_per_slot,
            shape.slot_size,
            shape.gpu_per_slot,
        )
        entry = self.asked.get(wanted)
        if entry is None:
            if len(self.asked) >= REQUESTS_LIMIT:
                self.asked.clear()
            entry = self.asked[wanted] = [{}, self.inventory.ranks, shape]
        rooms, stale, _ = entry
        if stale:
            for room, mask in list(rooms.items()):
                rooms[room] = mask & ~stale
            for room, mask in rooms_of(self, shape, types, stale).items():
                rooms[room] = rooms.get(room, 0) | mask
            entry[1] = 0
        return rooms

    def check_rooms(self, types: Any) -> None:
        """What is remembered of ranks that were not touched is true; else an AssertionError."""
        for rooms, stale, shape in self.asked.values():
            known = self.inventory.ranks & ~stale
            kept = {room: mask & known for room, mask in rooms.items() if mask & known}
            assert kept == rooms_of(self, shape, types, known), f"containers: {kept}"


def rooms_of(index, shape, types, ranks):
    """``ContainerIndex.rooms()`` of some ranks (a mask), found out by looking at them."""
    rooms = {}
    idle = ranks & index.idle
    partial = index.partial
    for mask, node in types.pairs:
        some = mask & idle
        if some:
            room = node.container_room(node.units, shape)
            if room:
                rooms[room] = rooms.get(room, 0) | some
        found = {}
        for rank in members(mask & (ranks ^ idle)):
            free = partial[rank]
            if free:
                room = node.container_room(free, shape)
                if room:
                    found.setdefault(room, []).append(rank)
        for room, some in found.items():
            rooms[room] = rooms.get(room, 0) | _mask(some)
    return rooms


def _mask(ranks):
    """Mask of a list of ranks: made in bytes, since each step on a mask costs all its length."""
    bits = bytearray(max(ranks) // 8 + 1)
    for rank in ranks:
        bits[rank >> 3] |= 1 << (rank & 7)
    return int.from_bytes(bits, "little")
