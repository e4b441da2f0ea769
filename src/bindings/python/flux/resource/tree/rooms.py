"""How many whole containers each node has free, kept beside what is free.

Counts of free cores do not tell whether a socket is free, so the ranks with room for containers are
remembered by room, for each kind of container that is asked for. What jobs took or gave back since
is looked at again when the next such request comes.
"""

from flux.resource.pool.inventory import selected_ranks
from flux.resource.pool.masks import members
from flux.resource.pool.rankindex import RankIndex

#: Kinds of container request that one index remembers.
KINDS_LIMIT = 8


class BoxIndex(RankIndex):
    """A RankIndex that knows which ranks have room for containers."""

    __slots__ = ("boxes",)

    def __init__(self, inventory):
        super().__init__(inventory)
        #: what a slot asks for -> [{slots that fit: mask of ranks}, ranks to look at again, shape]
        self.boxes = {}

    def copy(self):
        new = super().copy()
        new.boxes = {key: [rooms.copy(), *rest] for key, (rooms, *rest) in self.boxes.items()}
        return new

    def take(self, selection):
        super().take(selection)
        if self.boxes:
            self._touched(selected_ranks(selection))

    def give(self, selection):
        super().give(selection)
        if self.boxes:
            self._touched(selected_ranks(selection))

    def drop(self, ranks, inventory):
        super().drop(ranks, inventory)
        self.boxes = {}

    def _touched(self, ranks):
        for entry in self.boxes.values():
            entry[1] |= ranks

    def rooms(self, shape, kinds):
        """{slots of containers that fit, at least 1: mask of the ranks with such room}."""
        key = (
            shape.container_level,
            shape.containers_per_slot,
            shape.slot_size,
            shape.gpu_per_slot,
        )
        entry = self.boxes.get(key)
        if entry is None:
            if len(self.boxes) >= KINDS_LIMIT:
                self.boxes.clear()
            entry = self.boxes[key] = [{}, self.inventory.ranks, shape]
        rooms, stale, _ = entry
        if stale:
            for room, mask in list(rooms.items()):
                rooms[room] = mask & ~stale
            for room, mask in rooms_of(self, shape, kinds, stale).items():
                rooms[room] = rooms.get(room, 0) | mask
            entry[1] = 0
        return rooms

    def check_boxes(self, kinds):
        """What is remembered of ranks that were not touched is true; else an AssertionError."""
        for rooms, stale, shape in self.boxes.values():
            known = self.inventory.ranks & ~stale
            kept = {room: mask & known for room, mask in rooms.items() if mask & known}
            assert kept == rooms_of(self, shape, kinds, known), f"containers: {kept}"


def rooms_of(index, shape, kinds, ranks):
    """``BoxIndex.rooms()`` of some ranks (a mask), found out by looking at them."""
    rooms = {}
    idle = ranks & index.idle
    partial = index.partial
    for mask, node in kinds.pairs:
        some = mask & idle
        if some:
            room = node.box_room(node.units, shape)
            if room:
                rooms[room] = rooms.get(room, 0) | some
        found = {}
        for rank in members(mask & (ranks ^ idle)):
            free = partial[rank]
            if free:
                room = node.box_room(free, shape)
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
