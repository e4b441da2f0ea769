# SPDX-License-Identifier: LGPL-3.0-or-later
"""Maps of tasks to nodes (RFC 34).

A map is here a list with the task ids of each node.  Written, it is a list of blocks ``[first node, nodes, tasks a node,
repeat]``, in an object ``{"version": 1, "map": ...}`` or by itself; as PMI has it, ``(vector,(first, nodes, tasks),...)``;
or ``0-1;2-3``, the idset of each node.
"""

import itertools
import json
import re

from flux_engine.formats import idset

_PMI = re.compile(r"\(\s*vector((?:\s*,\s*\(\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\))+)\s*\)")


def decode(value):
    """The task ids of each node.

    Args:
        value: text in one of the forms, or what JSON makes of it

    Raises:
        ValueError: it is no map
    """
    if isinstance(value, str):
        text = value.strip()
        match = _PMI.fullmatch(text)
        if match:
            numbers = [int(word) for word in re.findall(r"\d+", match.group(1))]
            value = [[*numbers[n : n + 3], 1] for n in range(0, len(numbers), 3)]
        elif text.startswith(("[", "{")):
            value = json.loads(text)
        else:
            return [_ids(part) for part in text.split(";")]
    blocks = value.get("map") if isinstance(value, dict) else value
    nodes, task = [], 0
    for block in blocks if isinstance(blocks, list) else [None]:
        good = isinstance(block, list) and len(block) == 4
        if not good or any(type(number) is not int or number < 0 for number in block):
            raise ValueError("a block of a taskmap is four numbers")
        first, count, tasks, repeat = block
        nodes += [[] for _ in range(first + count - len(nodes))]
        for _, node in itertools.product(range(repeat), range(first, first + count)):
            nodes[node] += range(task, task + tasks)
            task += tasks
    return nodes


def _ids(text):
    try:
        return idset.ids(text)
    except ValueError:
        raise ValueError(f"error parsing range '{text}'") from None


def encode(nodes):
    """The blocks of a map."""
    where = sorted((task, node) for node, tasks in enumerate(nodes) for task in tasks)
    blocks = []
    for node, run in itertools.groupby(where, key=lambda pair: pair[1]):
        tasks = len(list(run))
        last = blocks[-1] if blocks else None
        if last and last[0] + last[1] == node and last[2:] == [tasks, 1]:
            last[1] += 1
        else:
            blocks.append([node, 1, tasks, 1])
        while len(blocks) > 1 and blocks[-1][:3] == blocks[-2][:3]:
            blocks[-2][3] += blocks.pop()[3]
    return blocks


def block(shares):
    """The map that fills one node after the other; shares: how many tasks each gets."""
    ends = list(itertools.accumulate(shares))
    return [list(range(end - share, end)) for end, share in zip(ends, shares)]


def cyclic(shares, stride=1):
    """The map that goes round the nodes, with stride tasks at a time."""
    nodes, left, task = [[] for _ in shares], list(shares), 0
    while any(left):
        for node, room in enumerate(left):
            take = min(room, stride)
            nodes[node] += range(task, task + take)
            left[node] -= take
            task += take
    return nodes
