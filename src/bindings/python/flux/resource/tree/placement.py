"""Which nodes a TreePool takes: best fit over a ``RankIndex``.

Nodes are tried by fewest free cores, then fewest free GPUs, then rank; the order is that of the
index before anything is placed. Whether slots fit on a node follows from its counts alone, since
the coarsest group is the whole node; only containers need a look at the node itself. Where in the
node slots go is ``node.py``.
"""

from array import array
from bisect import bisect_left

from flux.resource.pool.inventory import select
from flux.resource.pool.masks import members, popcount, runs, take
from flux.resource.pool.placement import Placement
from flux.resource.tree.rooms import BoxIndex, rooms_of


class Kinds:
    """The node types of a pool: ``(mask of ranks, NodeType)``, no rank in two."""

    __slots__ = ("pairs", "_number")

    def __init__(self, pairs):
        self.pairs = tuple(pairs)
        self._number = None

    def of(self, rank):
        """NodeType of a rank."""
        pairs = self.pairs
        if len(pairs) == 1:
            return pairs[0][1]
        number = self._number
        if number is None:
            # Two bytes a rank: the position in `pairs`, of which there are seldom many.
            number = array("H" if len(pairs) < 1 << 16 else "L", [0])
            number *= max(mask.bit_length() for mask, _ in pairs)
            for at, (mask, _) in enumerate(pairs):
                for low, count in runs(mask):
                    number[low : low + count] = array(number.typecode, [at]) * count
            self._number = number
        return pairs[number[rank]][1]

    def least_box(self, shape):
        """Fewest cores that a container has of which a slot of a shape is made."""
        level = shape.container_level
        return min((node.least_box(level) for _, node in self.pairs), default=1)

    def split(self, ranks):
        """The pairs for just these ranks (a mask), the empty ones left out."""
        return [(mask & ranks, node) for mask, node in self.pairs if mask & ranks]


def fitting(index, cores, gpus, ranks):
    """Yield masks of the ranks with at least so much free, fewest first."""
    base = index.inventory.key_base
    keys = index.keys
    for at in range(bisect_left(keys, cores * base + gpus), len(keys)):
        if keys[at] % base >= gpus:
            mask = index.groups[keys[at]] & ranks
            if mask:
                yield mask


class TreePlacement(Placement):
    """Best fit over nodes, by topology within.

    Args:
        kinds (Kinds): the node types of the pool.
    """

    best_fit = True

    def __init__(self, kinds):
        self.kinds = kinds

    def place(self, index, shape, eligible):
        if shape.container_level is None:
            return super().place(index, shape, eligible)
        if shape.node_count is None:
            return self._place_boxes(index, shape, eligible)
        return self._boxes_on_nodes(index, shape, eligible)

    def pick(self, index, ranks, slots, shape, into):
        wanted = (shape.slot_size, shape.gpu_per_slot, slots)
        idle = ranks & index.idle
        busy = ranks ^ idle
        partial = index.partial
        for mask, node in self.kinds.pairs:
            some = mask & idle
            if some:
                units = node.slots(node.units, wanted)
                into[units] = into.get(units, 0) | some
            some = mask & busy
            if some:
                for rank in members(some):
                    units = node.slots(partial[rank], wanted)
                    into[units] = into.get(units, 0) | 1 << rank

    def pick_one(self, index, rank, shape):
        node = self.kinds.of(rank)
        return node.slots(index.free(rank), (shape.slot_size, shape.gpu_per_slot, 1))

    # -- containers ---------------------------------------------------------

    def box_rooms(self, index, shape, eligible):
        """Nodes that can hold slots of whole containers, in the order of the policy.

        Yields ``(slots that a node can hold, mask of ranks)``.
        """
        if type(index) is BoxIndex:
            rooms = index.rooms(shape, self.kinds)
        else:
            rooms = rooms_of(index, shape, self.kinds, index.inventory.ranks)
        if shape.exclusive:
            eligible &= index.idle
        able = 0
        for mask in rooms.values():
            able |= mask
        able &= eligible
        for mask in fitting(index, self.kinds.least_box(shape), 0, able):
            parts = [(room, mask & some) for room, some in rooms.items() if mask & some]
            if len(parts) == 1:
                yield parts[0]
            else:
                for rank in members(mask):
                    for room, some in parts:
                        if some >> rank & 1:
                            yield room, 1 << rank
            able ^= mask
            if not able:
                break

    def _place_boxes(self, index, shape, eligible):
        """Containers anywhere: node after node, until there are enough."""
        count = shape.slot_count
        rooms = []
        have = 0
        for room, mask in self.box_rooms(index, shape, eligible):
            rooms.append((room, mask))
            have += room * popcount(mask)
            if count.max is not None and have >= count.max:
                break
        wanted = count.floor(have)
        if wanted is None:
            return None
        left = wanted
        chosen = {}
        for room, mask in rooms:
            have = popcount(mask)
            if have * room > left:
                full, rest = divmod(left, room)
                filled = take(mask, full) if full else 0
                self._take_boxes(index, shape, filled, room, chosen)
                if rest:
                    mask ^= filled
                    self._take_boxes(index, shape, mask & -mask, rest, chosen)
                left = 0
            else:
                self._take_boxes(index, shape, mask, room, chosen)
                left -= have * room
            if not left:
                break
        return select(chosen), wanted

    def _boxes_on_nodes(self, index, shape, eligible):
        """The same number of containers on each of so many nodes."""
        least = shape.slot_count.min
        count = shape.node_count
        rooms = []
        have = 0
        for room, mask in self.box_rooms(index, shape, eligible):
            if room < least:
                continue
            rooms.append((room, mask))
            have += popcount(mask)
            if shape.slot_count.fixed and count.max is not None and have >= count.max:
                break
        nodes = count.floor(have)
        if nodes is None:
            return None
        slots = least
        if not shape.slot_count.fixed:
            slots = _slots_each(rooms, nodes, shape.slot_count)
        chosen = {}
        left = nodes
        for room, mask in rooms:
            if room < slots:
                continue
            have = popcount(mask)
            if have > left:
                mask = take(mask, left)
                have = left
            self._take_boxes(index, shape, mask, slots, chosen)
            left -= have
            if not left:
                break
        return select(chosen), shape.slots_given(nodes, slots)

    def _take_boxes(self, index, shape, ranks, count, into):
        kinds = self.kinds
        idle = ranks & index.idle
        for mask, node in kinds.split(idle):
            units = node.units if shape.exclusive else node.boxes(node.units, shape, count)[1]
            into[units] = into.get(units, 0) | mask
        for rank in members(ranks ^ idle):
            units = kinds.of(rank).boxes(index.partial[rank], shape, count)[1]
            into[units] = into.get(units, 0) | 1 << rank


def _slots_each(rooms, nodes, count):
    """The most slots, of those asked for, that so many of the nodes have room for."""
    for room, mask in sorted(rooms, reverse=True):
        nodes -= popcount(mask)
        if nodes <= 0:
            return count.floor(room)
    return None
