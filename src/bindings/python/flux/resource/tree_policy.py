"""Which nodes a TreePool takes: best fit over a `RankIndex`.

Nodes are tried by fewest free cores, then fewest free GPUs, then rank; the order is that of the
index before anything is placed. Whether slots fit on a node follows from its counts alone, since
the coarsest group is the whole node; only containers need a look at the node itself. Where in the
node slots go is `tree_placement.py`.
"""

from bisect import bisect_left

from flux.resource.inventory import select
from flux.resource.masks import lowest, members, popcount, take
from flux.resource.placement import slots_on


class Kinds:
    """The node types of a pool: `(mask of ranks, NodeType)`, no rank in two."""

    __slots__ = ("pairs", "_of")

    def __init__(self, pairs):
        self.pairs = tuple(pairs)
        self._of = None

    def of(self, rank):
        """NodeType of a rank."""
        pairs = self.pairs
        if len(pairs) == 1:
            return pairs[0][1]
        of = self._of
        if of is None:
            of = self._of = [None] * max(mask.bit_length() for mask, _ in pairs)
            for mask, node in pairs:
                for one in members(mask):
                    of[one] = node
        return of[rank]

    def split(self, ranks):
        """The pairs for just these ranks (a mask), the empty ones left out."""
        return [(mask & ranks, node) for mask, node in self.pairs if mask & ranks]


def place(index, shape, eligible, kinds):
    """Find resources for a shape; arguments and answer are those of `Rv1Pool.place()`."""
    if shape.container_level is not None:
        return _place_boxes(index, shape, eligible, kinds)
    if shape.node_count is not None:
        return _place_nodes(index, shape, eligible, kinds)
    if shape.slot_count.max == 1:
        return _place_one(index, shape, eligible, kinds)
    return _place_slots(index, shape, eligible, kinds)


def fitting(index, cores, gpus, ranks):
    """Groups with at least so much free: `(free cores, free GPUs, rank mask)`, fewest first."""
    base = index.inventory.key_base
    groups = index.groups
    keys = index.keys
    found = []
    for key in keys[bisect_left(keys, cores * base + gpus) :]:
        free_gpus = key % base
        if free_gpus >= gpus:
            mask = groups[key] & ranks
            if mask:
                found.append((key // base, free_gpus, mask))
    return found


def _place_one(index, shape, eligible, kinds):
    cores = shape.slot_size
    gpus = shape.gpu_per_slot
    base = index.inventory.key_base
    groups = index.groups
    keys = index.keys
    for at in range(bisect_left(keys, cores * base + gpus), len(keys)):
        key = keys[at]
        mask = groups[key] & eligible
        if mask and (not gpus or key % base >= gpus):
            rank = lowest(mask)
            return (rank, kinds.of(rank).slots(index.free(rank), cores, gpus, 1)), 1
    return None


def _pick(index, kinds, ranks, cores, gpus, count, into):
    """Place `count` slots on each of a mask of ranks that have room; adds to `into`."""
    idle = ranks & index.idle
    if idle:
        for mask, node in kinds.split(idle):
            units = node.slots(node.units, cores, gpus, count)
            into[units] = into.get(units, 0) | mask
    for rank in members(ranks ^ idle):
        units = kinds.of(rank).slots(index.partial[rank], cores, gpus, count)
        into[units] = into.get(units, 0) | 1 << rank


def _place_slots(index, shape, eligible, kinds):
    """Slots anywhere: node after node is filled."""
    count = shape.slot_count
    cores, gpus = shape.slot_size, shape.gpu_per_slot
    found = fitting(index, cores, gpus, eligible)
    wanted = count.max
    if not (count.simple and wanted is not None and wanted == count.min):
        wanted = count.floor(sum([popcount(m) * slots_on(c, g, shape) for c, g, m in found]))
        if wanted is None:
            return None
    left = wanted
    chosen = {}
    for free_cores, free_gpus, mask in found:
        each = slots_on(free_cores, free_gpus, shape)
        full, rest = divmod(left, each)
        have = popcount(mask)
        if have <= full:
            left -= have * each
            _pick(index, kinds, mask, cores, gpus, each, chosen)
        else:
            filled = take(mask, full) if full else 0
            _pick(index, kinds, filled, cores, gpus, each, chosen)
            if rest:
                mask ^= filled
                _pick(index, kinds, mask & -mask, cores, gpus, rest, chosen)
            left = 0
        if not left:
            return select(chosen), wanted
    return None


def _place_nodes(index, shape, eligible, kinds):
    """So many nodes, the same number of slots on each."""
    if shape.exclusive:
        eligible &= index.idle
    slots = shape.slot_count.min
    cores, gpus = shape.slot_size, shape.gpu_per_slot
    found = fitting(index, shape.node_cores, shape.node_gpus, eligible)
    rooms = [(slots_on(c, g, shape), mask) for c, g, mask in found]
    nodes = _node_count(rooms, shape.node_count)
    if nodes is None:
        return None
    if not shape.slot_count.fixed:
        slots = _slots_each(rooms, nodes, shape.slot_count)
        rooms = [(room, mask) for room, mask in rooms if room >= slots]
    chosen = {}
    left = nodes
    for _, mask in rooms:
        have = popcount(mask)
        if have > left:
            mask = take(mask, left)
            have = left
        if shape.exclusive:
            for ranks, node in kinds.split(mask):
                chosen[node.units] = chosen.get(node.units, 0) | ranks
        else:
            _pick(index, kinds, mask, cores, gpus, slots, chosen)
        left -= have
        if not left:
            break
    return select(chosen), shape.slots_given(nodes, slots)


def _node_count(rooms, count):
    """How many nodes to take of those that have room, or None if they are too few."""
    if not count.fixed:
        return count.floor(sum([popcount(mask) for _, mask in rooms]))
    left = count.min
    for _, mask in rooms:
        left -= popcount(mask)
        if left <= 0:
            return count.min
    return None


def _slots_each(rooms, nodes, count):
    """The most slots, of those asked for, that so many of the nodes have room for."""
    room = 0
    for room, mask in sorted(rooms, reverse=True):
        nodes -= popcount(mask)
        if nodes <= 0:
            break
    return count.floor(room)


# -- containers -------------------------------------------------------------


def box_rooms(index, shape, eligible, kinds):
    """Nodes that can hold slots of whole containers: yields `(slots, rank mask)` in order."""
    least = [node.least_box(shape) for _, node in kinds.pairs]
    least = [pair for pair in least if pair is not None]
    if not least:
        return
    cores = min(pair[0] for pair in least)
    gpus = min(pair[1] for pair in least)
    for _, _, mask in fitting(index, cores, gpus, eligible):
        busy = mask & ~index.idle
        types = kinds.split(mask ^ busy)
        if not busy and len(types) == 1:
            room = types[0][1].box_room(types[0][1].units, shape)
            if room:
                yield room, mask
            continue
        for rank in members(mask):
            room = kinds.of(rank).box_room(index.free(rank), shape)
            if room:
                yield room, 1 << rank


def _place_boxes(index, shape, eligible, kinds):
    if shape.node_count is not None:
        return _boxes_on_nodes(index, shape, eligible, kinds)
    count = shape.slot_count
    rooms = []
    have = 0
    enough = count.max
    for room, mask in box_rooms(index, shape, eligible, kinds):
        rooms.append((room, mask))
        have += room * popcount(mask)
        if enough is not None and have >= enough:
            break
    wanted = count.floor(have)
    if wanted is None:
        return None
    left = wanted
    chosen = {}
    for room, mask in rooms:
        full, rest = divmod(left, room)
        have = popcount(mask)
        if have <= full:
            left -= have * room
            _take_boxes(index, shape, kinds, mask, room, chosen)
        else:
            filled = take(mask, full) if full else 0
            _take_boxes(index, shape, kinds, filled, room, chosen)
            if rest:
                mask ^= filled
                _take_boxes(index, shape, kinds, mask & -mask, rest, chosen)
            left = 0
        if not left:
            break
    return select(chosen), wanted


def _boxes_on_nodes(index, shape, eligible, kinds):
    least = shape.slot_count.min
    count = shape.node_count
    rooms = []
    have = 0
    for room, mask in box_rooms(index, shape, eligible, kinds):
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
        _take_boxes(index, shape, kinds, mask, slots, chosen)
        left -= have
        if not left:
            break
    return select(chosen), shape.slots_given(nodes, slots)


def _take_boxes(index, shape, kinds, ranks, count, into):
    idle = ranks & index.idle
    for mask, node in kinds.split(idle):
        units = node.boxes(node.units, shape, count)[1]
        into[units] = into.get(units, 0) | mask
    for rank in members(ranks ^ idle):
        units = kinds.of(rank).boxes(index.partial[rank], shape, count)[1]
        into[units] = into.get(units, 0) | 1 << rank
