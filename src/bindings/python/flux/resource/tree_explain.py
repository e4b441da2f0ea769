"""Why a request for containers does not fit, in numbers and in a sentence for its user."""

from flux.resource.masks import popcount
from flux.resource.tree_policy import box_rooms


def _needed(shape):
    """(least number, unit) of what is counted."""
    if shape.node_count is not None:
        return shape.node_count.min, "nodes"
    return shape.slot_count.min, "slots"


def _count(index, shape, ranks, kinds):
    """(nodes that have room, of those slots or nodes that can be had)."""
    least = 1 if shape.node_count is None else shape.slot_count.min
    nodes = have = 0
    for room, mask in box_rooms(index, shape, ranks, kinds):
        if room >= least:
            count = popcount(mask)
            nodes += count
            have += count * room
    return nodes, nodes if shape.node_count is not None else have


def _text(shape):
    """`exclusive 'numa' container(s)`, with what each slot or node needs of them."""
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


def no_boxes(inventory, shape, ranks, kinds):
    """Sentence for a request that an empty pool could not satisfy."""
    needed = _needed(shape)[0]
    have = _count(inventory.unused(), shape, ranks, kinds)[1]
    each, what = _text(shape)
    if shape.node_count is not None:
        need = f"{needed} node(s) with {each} {what} each"
    elif each > 1:
        need = f"{needed} slot(s) of {each} {what}"
    else:
        need = f"{needed} {what}"
    return f"unsatisfiable request: need {need}, only {have} available"


def explain_boxes(pool, shape):
    """`ResourcePool.explain()` for a request for containers."""
    inventory, index, kinds = pool._inventory, pool._index, pool._kinds
    match = inventory.matching(shape.match)
    up = pool.eligible(shape.match)
    needed, unit = _needed(shape)
    large = _count(inventory.unused(), shape, match, kinds)[0]
    large_up = _count(inventory.unused(), shape, up, kinds)[0]
    free, have = _count(index, shape, up, kinds)
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
    answer["reason"] = pool._infeasible(shape) or _reason(shape, answer, large_up)
    return answer


def _reason(shape, answer, large_up):
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
