"""Why a request for containers does not fit, in numbers and in a sentence for its user."""

from flux.resource.pool.explain import left_out
from flux.resource.pool.masks import popcount


def _needed(shape):
    """(least number, unit) of what is counted."""
    if shape.node_count is not None:
        return shape.node_count.min, "nodes"
    return shape.slot_count.min, "slots"


def _least(shape):
    """Slots that a node must have room for to be of use."""
    return 1 if shape.node_count is None else shape.slot_count.min


def able(placement, index, shape, ranks):
    """Mask of the ranks that have room for one slot, or for one node's share."""
    mask = 0
    for room, some in placement.box_rooms(index, shape, ranks):
        if room >= _least(shape):
            mask |= some
    return mask


def _available(placement, index, shape, ranks):
    """(nodes that have room, those slots or nodes that can be had)."""
    nodes = slots = 0
    for room, some in placement.box_rooms(index, shape, ranks):
        if room >= _least(shape):
            nodes += popcount(some)
            slots += popcount(some) * room
    return nodes, slots if shape.node_count is None else nodes


def _text(shape):
    """``exclusive 'numa' container(s)``, with what each slot or node needs of them."""
    each = shape.containers_per_slot
    if shape.node_count is not None:
        each *= shape.slot_count.min
    least = [
        f"{number} {noun}"
        for number, noun in ((shape.slot_size, "core(s)"), (shape.gpu_per_slot, "GPU(s)"))
        if number
    ]
    text = f"exclusive '{shape.container_level}' container(s)"
    return each, text + (f" of at least {' and '.join(least)}" if least else "")


def no_boxes(placement, inventory, shape, ranks):
    """Sentence for a request that an empty pool could not satisfy."""
    needed = _needed(shape)[0]
    nodes, have = _available(placement, inventory.unused(), shape, ranks)
    each, what = _text(shape)
    if shape.node_count is not None:
        need = f"{needed} node(s) with {each} {what} each"
    elif each > 1:
        need = f"{needed} slot(s) of {each} {what}"
    else:
        need = f"{needed} {what}"
    few = "too few such containers"
    why = left_out(inventory, ranks, popcount(ranks) - nodes, f"has {few}", f"have {few}")
    return f"unsatisfiable request: need {need}, only {have} available{why}"


def explain_boxes(pool, shape):
    """``ResourcePool.explain()`` for a request for containers."""
    inventory, placement = pool._inventory, pool.placement
    match = inventory.matching(shape.match)
    up = pool.eligible(shape.match)
    needed, unit = _needed(shape)
    large = able(placement, inventory.unused(), shape, match)
    large_up = popcount(large & up)
    large = popcount(large)
    free, have = _available(placement, pool._index, shape, up)
    answer = {
        "total": popcount(inventory.ranks),
        "matching": popcount(match),
        "large_enough": large,
        "up": popcount(up),
        "free": free,
        "available": have,
        "needed": needed,
        "unit": unit,
    }
    answer["reason"] = pool.verdict(shape) or _reason(shape, answer, large_up)
    return answer


def _reason(shape, answer, large_up):
    if answer["available"] >= answer["needed"]:
        return ""
    each, what = _text(shape)
    noun = answer["unit"] if answer["needed"] != 1 else answer["unit"][:-1]
    notes = []
    for number, word in (
        (answer["matching"] - answer["large_enough"], "without"),
        (answer["large_enough"] - large_up, "down"),
        (large_up - answer["free"], "busy"),
    ):
        if number:
            notes.append(f"{number} {word}")
    total = answer["matching"]
    text = (
        f"insufficient resources: needs {answer['needed']} {noun} with {each} {what},"
        f" {answer['available']} free on {answer['free']} of {total} node{'' if total == 1 else 's'}"
    )
    if shape.match is not None:
        text += " matching constraint"
    return text + (f" ({', '.join(notes)})" if notes else "")
