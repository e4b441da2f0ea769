"""Worst-fit placement of a request on an index: the policy of ``Rv1Pool``.

``place()`` looks at a ``RankIndex``, a shape and a mask of eligible ranks and
answers with a selection, changing nothing.  It is what an implementation with
another policy replaces; see ``Rv1Pool``.
"""

from flux.resource.inventory import select
from flux.resource.masks import lowest, popcount, take


def place(index, shape, eligible):
    """Find resources for a request: most free cores, then GPUs, then lowest rank.

    Args:
        index (RankIndex): what is free.
        shape (Shape): what is asked for.
        eligible (int): mask of the ranks that may be used.

    Returns:
        ``(selection, nslots)``, or None if it does not fit.
    """
    if shape.node_count is not None:
        return _place_nodes(index, shape, eligible)
    count = shape.slot_count
    if count.max == 1:
        return _place_one(index, shape, eligible)
    return _place_slots(index, shape, eligible)


def _place_one(index, shape, eligible):
    cores = shape.slot_size
    gpus = shape.gpu_per_slot
    inventory = index.inventory
    base = inventory.key_base
    least = cores * base + gpus
    groups = index.groups
    for key in reversed(index.keys):
        if key < least:
            return None
        mask = groups[key] & eligible
        if mask and (not gpus or key % base >= gpus):
            rank = lowest(mask)
            free = index.free(rank)
            units = take(free & inventory.core_mask, cores)
            if gpus:
                units |= take(free >> inventory.shift, gpus) << inventory.shift
            return (rank, units), 1
    return None


def slots_on(cores, gpus, shape):
    """Slots of a shape that fit in so many cores and GPUs of a node."""
    if not shape.slot_size:
        return 1
    slots = cores // shape.slot_size
    if shape.gpu_per_slot:
        slots = min(slots, gpus // shape.gpu_per_slot)
    return slots


def _place_slots(index, shape, eligible):
    """Slots anywhere: node after node is filled."""
    count = shape.slot_count
    found = index.fitting(shape.slot_size, shape.gpu_per_slot, eligible)
    wanted = count.max
    if not (count.simple and wanted is not None and wanted == count.min):
        total = sum([popcount(mask) * slots_on(c, g, shape) for c, g, mask in found])
        wanted = count.floor(total)
        if wanted is None:
            return None
    left = wanted
    chosen = {}
    for cores, gpus, mask in found:
        each = slots_on(cores, gpus, shape)
        full, rest = divmod(left, each)
        have = popcount(mask)
        if have > full:
            filled = take(mask, full)
            if rest:
                last = (mask ^ filled) & -(mask ^ filled)
                index.pick(last, rest * shape.slot_size, rest * shape.gpu_per_slot, chosen)
            left = 0
        else:
            filled = mask
            left -= have * each
        if filled:
            index.pick(filled, each * shape.slot_size, each * shape.gpu_per_slot, chosen)
        if not left:
            return select(chosen), wanted
    return None


def _place_nodes(index, shape, eligible):
    """So many nodes, the same number of slots on each."""
    if shape.exclusive:
        eligible &= index.idle
    slots = shape.slot_count.min
    found = index.fitting(shape.node_cores, shape.node_gpus, eligible)
    nodes = _node_count(found, shape.node_count)
    if nodes is None:
        return None
    if not shape.slot_count.fixed:
        slots = _slots_each(found, nodes, shape)
        found = index.fitting(slots * shape.slot_size, slots * shape.gpu_per_slot, eligible)
    chosen = {}
    left = nodes
    for _, _, mask in found:
        have = popcount(mask)
        if have > left:
            mask = take(mask, left)
            have = left
        if shape.exclusive:
            for units, ranks in index.inventory.kinds.items():
                if ranks & mask:
                    chosen[units] = chosen.get(units, 0) | ranks & mask
        else:
            index.pick(mask, slots * shape.slot_size, slots * shape.gpu_per_slot, chosen)
        left -= have
        if not left:
            break
    return select(chosen), shape.slots_given(nodes, slots)


def _node_count(found, count):
    if count.fixed:
        left = count.min
        for _, _, mask in found:
            left -= popcount(mask)
            if left <= 0:
                return count.min
        return None
    return count.floor(sum([popcount(mask) for _, _, mask in found]))


def _slots_each(found, nodes, shape):
    """The most slots that so many of the nodes have room for."""
    room = sorted([(slots_on(c, g, shape), popcount(mask)) for c, g, mask in found], reverse=True)
    for slots, have in room:
        nodes -= have
        if nodes <= 0:
            break
    return shape.slot_count.floor(slots)
