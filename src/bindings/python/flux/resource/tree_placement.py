"""Where in a node slots go: the placement rules of TreePool on bit masks.

All functions take a `NodeType` and the free cores and GPUs of one node as masks, and give
`(slots, cores, gpus)`: how many slots were placed, at most as many as wanted, and on what. They
depend on their arguments only, so that nodes in the same state share one answer.
"""

from .masks import popcount, take


def place_slots(node, cores, gpus, slot_cores, slot_gpus, wanted):
    """Place slots of `slot_cores` (at least 1) cores and `slot_gpus` GPUs (protocols of RFC 49)."""
    if slot_gpus:
        return _beside_gpus(node, cores, gpus, slot_cores, slot_gpus, wanted)
    return _cores_only(node, cores, slot_cores, wanted)


def _beside_gpus(node, cores, gpus, slot_cores, slot_gpus, wanted):
    """First fit: each level from the finest, each group in the order of the topology."""
    left = wanted
    free_cores, free_gpus = cores, gpus
    for level in node.levels:
        for group_cores, group_gpus in level:
            mine = free_gpus & group_gpus
            if not mine:
                continue
            near = free_cores & group_cores
            count = min(left, popcount(near) // slot_cores, popcount(mine) // slot_gpus)
            if count:
                free_cores ^= take(near, count * slot_cores)
                free_gpus ^= take(mine, count * slot_gpus)
                left -= count
                if not left:
                    return wanted, cores ^ free_cores, gpus ^ free_gpus
    return wanted - left, cores ^ free_cores, gpus ^ free_gpus


def _cores_only(node, cores, slot_cores, wanted):
    """Best fit: the finest level that holds a slot, its groups by fewest free cores.

    What that level cannot hold goes to the next coarser one.
    """
    left = wanted
    free = cores
    for level in node.levels:
        groups = []
        for position, (group_cores, _) in enumerate(level):
            near = popcount(free & group_cores)
            if near >= slot_cores:
                groups.append((near, position, group_cores))
        groups.sort()
        for _, _, group_cores in groups:
            near = free & group_cores  # groups may overlap: look again
            count = min(left, popcount(near) // slot_cores)
            if count:
                free ^= take(near, count * slot_cores)
                left -= count
                if not left:
                    return wanted, cores ^ free, 0
    return wanted - left, cores ^ free, 0


def place_containers(node, cores, gpus, name, each, slot_cores, slot_gpus, wanted):
    """Place slots of `each` whole containers called `name`, in the order of the topology.

    A container is free when all its cores and GPUs are. `slot_cores` and `slot_gpus` are the least
    that one must have.
    """
    free_cores, free_gpus = cores, gpus
    slots = 0
    slot = []
    for box_cores, box_gpus in node.containers(name):
        if slots == wanted:
            break
        if box_cores & ~free_cores or box_gpus & ~free_gpus:
            continue
        if popcount(box_cores) < slot_cores or popcount(box_gpus) < slot_gpus:
            continue
        free_cores ^= box_cores
        free_gpus ^= box_gpus
        slot.append((box_cores, box_gpus))
        if len(slot) == each:
            slots += 1
            slot = []
    for box_cores, box_gpus in slot:  # not enough of them for one more slot
        free_cores |= box_cores
        free_gpus |= box_gpus
    return slots, cores ^ free_cores, gpus ^ free_gpus
