# SPDX-License-Identifier: LGPL-3.0-or-later
"""Sets of non-negative integers as text (RFC 22), kept as intervals.

A set is a flat ascending list of *bounds* ``[lo0, hi0, lo1, hi1, ...]``, each
pair a run of members ``lo <= i < hi``, with a gap of at least one between
runs.  Its size depends on the number of runs, not on the number of members,
and an id is a member when an odd number of bounds are at or below it.
"""

#: the greatest id
MAX_ID = 4294967295


def decode(text):
    """Return the bounds of an idset string, in brackets or not; ``""`` is the empty set. ValueError: it is not an idset."""
    # Imported here: `flux.resource` imports the bindings, which import this file.
    from flux.resource.pool.masks import intervals

    bounds = []
    for low, high in intervals(text):
        if bounds and bounds[-1] == low:
            bounds[-1] = high + 1
        else:
            bounds += (low, high + 1)
    return bounds


def encode(bounds, brackets=False, ranges=True):
    """Return the canonical text of a set: in brackets, if asked, where it has several members; with or without ranges."""
    if ranges:
        it = iter(bounds)
        text = ",".join([str(lo) if hi == lo + 1 else f"{lo}-{hi - 1}" for lo, hi in zip(it, it)])
    else:
        text = ",".join(map(str, members(bounds)))
    if brackets and ("," in text or "-" in text):
        return f"[{text}]"
    return text


def from_ids(ids):
    """Return the bounds of an iterable of ids, in any order."""
    bounds = []
    for i in sorted(set(ids)):
        if bounds and bounds[-1] == i:
            bounds[-1] = i + 1
        else:
            bounds += (i, i + 1)
    return bounds


def ids(text):
    """Return the members of an idset string as a list of int."""
    return list(members(decode(text)))


def text(ids):
    """Return an iterable of ids, in any order, as an idset string."""
    return encode(from_ids(ids))


def count(bounds):
    """Return the number of members."""
    return sum(bounds[1::2]) - sum(bounds[::2])


def members(bounds):
    """Yield the members in ascending order."""
    it = iter(bounds)
    for lo, hi in zip(it, it):
        yield from range(lo, hi)


def combine(a, b, keep):
    """Merge two sets in one sweep over their bounds.

    Args:
        keep (tuple): whether the result includes ids in neither (no), only in a, only in b, in both: UNION, INTERSECT
            or DIFFERENCE
    """
    if not a or not b or a[-1] <= b[0] or b[-1] <= a[0]:
        return _apart(a, b, keep)
    result = []
    i = j = 0
    na, nb = len(a), len(b)
    inside = False
    while i < na or j < nb:
        if j >= nb or (i < na and a[i] < b[j]):
            at = a[i]
            i += 1
        else:
            at = b[j]
            j += 1
            if i < na and a[i] == at:
                i += 1
        if keep[(i & 1) + 2 * (j & 1)] != inside:
            inside = not inside
            result.append(at)
    return result


def _apart(a, b, keep):
    """`combine` for sets that do not overlap: one ends at or before the start of the other."""
    parts = ([*a] if keep[1] else [], [*b] if keep[2] else [])
    first, second = parts if not b or (a and a[0] < b[0]) else parts[::-1]
    if first and second and first[-1] == second[0]:
        return first[:-1] + second[1:]
    return first + second


UNION = (False, True, True, True)
INTERSECT = (False, False, False, True)
DIFFERENCE = (False, True, False, False)


def union(a, b):
    return combine(a, b, UNION)


def intersect(a, b):
    return combine(a, b, INTERSECT)


def difference(a, b):
    return combine(a, b, DIFFERENCE)
