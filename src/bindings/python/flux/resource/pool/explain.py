"""Why a request does not fit, in numbers and in a sentence for its user."""

from flux.resource.pool.masks import popcount
from flux.resource.pool.placement import slots_on


def need_text(shape):
    """What one node or slot of a request needs: ``4 cores and 1 GPUs``."""
    if shape.node_count is not None:
        cores, gpus = shape.node_cores, shape.node_gpus
    else:
        cores, gpus = shape.slot_size, shape.gpu_per_slot
    return "%d cores%s" % (cores, " and %d GPUs" % gpus if gpus else "")


def infeasible(inventory, shape):
    """Sentence for a request that an empty pool could not satisfy.

    It begins as that of flux-core's schedulers does.
    """
    match = inventory.matching(shape.match)
    capacity = cores = gpus = slots = small = 0
    for units, mask in inventory.kinds.items():
        mask &= match
        key = inventory.keys[units]
        own_cores, own_gpus = divmod(key, inventory.key_base)
        ranks = popcount(mask)
        cores += ranks * own_cores
        gpus += ranks * own_gpus
        if shape.node_count is not None:
            fit = own_cores >= shape.node_cores and own_gpus >= shape.node_gpus
        else:
            slots += ranks * (own_cores // shape.slot_size)
            fit = slots_on(own_cores, own_gpus, shape)
        capacity += ranks * fit
        if not fit:
            small += ranks
    if shape.node_count is not None:
        if shape.exclusive:
            text = "need %d exclusive node(s), only %d eligible"
            text %= (shape.node_count.min, capacity)
        else:
            text = "need %d node(s) with %s each, only %d eligible"
            text %= (shape.node_count.min, need_text(shape), capacity)
    elif shape.gpu_per_slot and slots >= shape.slot_count.min:
        text = "need %d slot(s) with %d GPU(s) each, only %d available (total GPUs: %d)"
        text %= (shape.slot_count.min, shape.gpu_per_slot, capacity, gpus)
    else:
        text = "need %d slot(s) of %d core(s), only %d such slot(s) available (total cores: %d)"
        text %= (shape.slot_count.min, shape.slot_size, capacity, cores)
    return "unsatisfiable request: " + text + left_out(inventory, match, small)


def left_out(inventory, match, small, one="is too small", more="are too small"):
    """Why ranks do not count for a request, if there are such.

    ``small`` is how many of those in ``match`` do not, ``one`` and ``more`` what they are.
    """
    total = popcount(inventory.ranks)
    text = ""
    others = total - popcount(match)
    if others:
        verb = "does" if others == 1 else "do"
        text += "; %d of %d nodes %s not match the constraint" % (others, total, verb)
    if small:
        text += "; %d of %d nodes %s" % (small, total, one if small == 1 else more)
    return text


def explain(pool, request):
    """Numbers and reason of a request; see ``ResourcePool.explain()``."""
    shape = request.shape
    inventory, index = pool._inventory, pool._index
    match = inventory.matching(shape.match)
    up = pool.eligible(shape.match)
    by_node = shape.node_count is not None
    if by_node:
        cores, gpus = shape.node_cores, shape.node_gpus
    else:
        cores, gpus = shape.slot_size, shape.gpu_per_slot
    large = 0
    for units, mask in inventory.kinds.items():
        own_cores, own_gpus = divmod(inventory.keys[units], inventory.key_base)
        if own_cores >= cores and own_gpus >= gpus:
            large |= mask & match
    found = list(index.fitting(cores, gpus, up & index.idle if shape.exclusive else up))
    free = sum([popcount(mask) for _, _, mask in found])
    if by_node:
        have = free
        needed = shape.node_count.min
    else:
        have = sum([popcount(mask) * slots_on(c, g, shape) for c, g, mask in found])
        needed = shape.slot_count.min
    answer = {
        "total": popcount(inventory.ranks),
        "matching": popcount(match),
        "large_enough": popcount(large),
        "up": popcount(up),
        "free": free,
        "available": have,
        "needed": needed,
        "unit": "nodes" if by_node else "slots",
    }
    answer["reason"] = _reason(pool, shape, answer, popcount(large & ~up))
    return answer


def _reason(pool, shape, counts, down):
    infeasible_text = pool.verdict(shape)
    if infeasible_text is not None:
        return infeasible_text
    if counts["available"] >= counts["needed"]:
        return ""
    noun = counts["unit"]
    needed = counts["needed"]
    text = "insufficient resources: needs %d %s" % (needed, noun if needed != 1 else noun[:-1])
    if shape.node_count is None:
        each = need_text(shape)
        text += " of %s, %d free" % (each, counts["available"])
        text += " on %d" % counts["free"]
    else:
        text += " (exclusive)" if shape.exclusive else f" with {need_text(shape)}"
        text += ", %d free" % counts["free"]
    total = counts["matching"]
    text += " of %d node%s" % (total, "" if total == 1 else "s")
    if shape.match is not None:
        text += " matching constraint"
    notes = []
    small = counts["matching"] - counts["large_enough"]
    if small:
        notes.append("%d too small" % small)
    if down:
        notes.append("%d down" % down)
    busy = counts["large_enough"] - down - counts["free"]
    if busy > 0:
        notes.append("%d busy" % busy)
    return text + (" ({})".format(", ".join(notes)) if notes else "")
