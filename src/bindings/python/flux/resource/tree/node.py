"""Where in a node slots go: the placement rules of TreePool on bit masks.

All functions take a ``Layout`` and the free cores and GPUs of one node as masks, and give
``(slots, cores, gpus)``: how many slots were placed, at most as many as wanted, and on what. They
depend on their arguments only, so that nodes in the same state share one answer: ``NodeType``
remembers them.
"""

from flux.resource.pool.masks import popcount, take
from flux.resource.tree.topology import Layout

#: Answers that one node type remembers.
CACHE_LIMIT = 8192


class NodeType:
    """Nodes with one layout, in the units of a pool's inventory (see inventory.py).

    Args:
        layout (Layout): groups and containers.
        units (int): mask of what such a node has.
        shift (int): first GPU bit of units.
    """

    __slots__ = ("layout", "units", "shift", "core_mask", "_slots", "_boxes")

    def __init__(self, topo, units, shift, where="topo"):
        self.units = units
        self.shift = shift
        self.core_mask = (1 << shift) - 1
        self.layout = Layout(topo, units & self.core_mask, units >> shift, where)
        self._slots = {}
        self._boxes = {}

    def slots(self, free, wanted):
        """Units for slots on a node with room for them.

        free: units that are free on the node; wanted: (cores, GPUs, number of slots).
        """
        key = (free, wanted)
        units = self._slots.get(key)
        if units is None:
            if len(self._slots) >= CACHE_LIMIT:
                self._slots.clear()
            cores, gpus = free & self.core_mask, free >> self.shift
            _, core_mask, gpu_mask = place_slots(self.layout, cores, gpus, *wanted)
            units = self._slots[key] = core_mask | gpu_mask << self.shift
        return units

    def boxes(self, free, shape, count):
        """``(slots, units)`` for at most ``count`` slots of whole containers (a request.Shape)."""
        level, each = shape.container_level, shape.containers_per_slot
        key = (free, level, each, shape.slot_size, shape.gpu_per_slot, count)
        answer = self._boxes.get(key)
        if answer is None:
            if len(self._boxes) >= CACHE_LIMIT:
                self._boxes.clear()
            slots, core_mask, gpu_mask = place_containers(
                self.layout, free & self.core_mask, free >> self.shift,
                level, each, shape.slot_size, shape.gpu_per_slot, count,
            )  # fmt: skip
            answer = self._boxes[key] = (slots, core_mask | gpu_mask << self.shift)
        return answer

    def box_room(self, free, shape):
        """How many slots of whole containers fit on a node with so much free."""
        return self.boxes(free, shape, -1)[0]

    def least_box(self, level):
        """Fewest cores that a container of that name has; 1 if there is none."""
        return min((popcount(cores) for cores, _ in self.layout.containers(level)), default=1)


def place_slots(layout, cores, gpus, slot_cores, slot_gpus, wanted):
    """Place slots of ``slot_cores`` (at least 1) cores and ``slot_gpus`` GPUs (protocols of RFC 49)."""
    if slot_gpus:
        return _beside_gpus(layout, cores, gpus, slot_cores, slot_gpus, wanted)
    return _cores_only(layout, cores, slot_cores, wanted)


def _beside_gpus(layout, cores, gpus, slot_cores, slot_gpus, wanted):
    """First fit: each level from the finest, each group in the order of the topology."""
    left = wanted
    free_cores, free_gpus = cores, gpus
    for groups in layout.levels:
        for group_cores, group_gpus in groups:
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


def _cores_only(layout, cores, slot_cores, wanted):
    """Best fit: the finest level that holds a slot, its groups by fewest free cores.

    What that level cannot hold goes to the next coarser one.
    """
    left = wanted
    free = cores
    for groups in layout.levels:
        while left:
            best = _tightest(groups, free, slot_cores)
            if not best:
                break
            # A group loses a core with each one taken, no other group more: it stays the tightest.
            count = min(left, popcount(best) // slot_cores)
            free ^= take(best, count * slot_cores)
            left -= count
    return wanted - left, cores ^ free, 0


def _tightest(groups, free, slot_cores):
    """Free cores of the group with fewest of them that still hold a slot, the first on ties; or 0."""
    best = 0
    fewest = -1
    for group_cores, _ in groups:
        near = free & group_cores
        count = popcount(near)
        if count >= slot_cores and (count < fewest or fewest < 0):
            best, fewest = near, count
    return best


def place_containers(layout, cores, gpus, name, each, slot_cores, slot_gpus, wanted):
    """Place slots of ``each`` whole containers called ``name``, in the order of the topology.

    A container is free when all its cores and GPUs are. ``slot_cores`` and ``slot_gpus`` are the least
    that one must have. The containers of a slot lie in the finest domain that has enough of them.
    With ``wanted`` negative there is no limit.
    """
    free_cores, free_gpus = cores, gpus
    least = (slot_cores, slot_gpus)
    nests = (layout.containers(name),) if each == 1 else layout.nests(name, each)
    slots = 0
    while slots != wanted:
        taken = _free_boxes(nests, free_cores, free_gpus, each, least)
        if taken is None:
            break
        free_cores ^= taken[0]
        free_gpus ^= taken[1]
        slots += 1
    return slots, cores ^ free_cores, gpus ^ free_gpus


def _free_boxes(nests, cores, gpus, each, least):
    """Cores and GPUs of so many free containers of one nest, or None."""
    for boxes in nests:
        left_cores, left_gpus = cores, gpus
        count = each
        for box_cores, box_gpus in boxes:
            # Those taken already are out of what is left: containers may overlap.
            if box_cores & ~left_cores or box_gpus & ~left_gpus:
                continue
            if popcount(box_cores) < least[0] or popcount(box_gpus) < least[1]:
                continue
            left_cores ^= box_cores
            left_gpus ^= box_gpus
            count -= 1
            if not count:
                return cores ^ left_cores, gpus ^ left_gpus
    return None
