# SPDX-License-Identifier: LGPL-3.0-or-later
"""Sets of non-negative integers as text (RFC 22), kept as intervals.

A set is a flat ascending list of *bounds* ``[lo0, hi0, lo1, hi1, ...]``, each
pair a run of members ``lo <= i < hi``, with a gap of at least one between
runs.  Its size depends on the number of runs, not on the number of members,
and an id is a member when an odd number of bounds are at or below it.
"""

from bisect import bisect_left, bisect_right

from flux.resource.pool.masks import intervals

#: the greatest id
MAX_ID = 4294967295


def decode(text):
    """Return the bounds of an idset string, in brackets or not; ``""`` is the empty set. ValueError: it is not an idset."""
    return join((low, high + 1) for low, high in intervals(text))


def join(runs):
    """Return the bounds of ascending runs, (low, high) with ``low <= i < high``, of which some may be adjacent."""
    bounds = []
    for low, high in runs:
        if bounds and bounds[-1] == low:
            bounds[-1] = high
        else:
            bounds += (low, high)
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
    return join((i, i + 1) for i in sorted(set(ids)))


def ids(text):
    """Return the members of an idset string as a list of int."""
    return list(members(decode(text)))


def text(ids):
    """Return an iterable of ids, in any order, as an idset string."""
    return encode(from_ids(ids))


def count(bounds):
    return sum(bounds[1::2]) - sum(bounds[::2])


def members(bounds):
    it = iter(bounds)
    for lo, hi in zip(it, it):
        yield from range(lo, hi)


def union(a, b):
    """Return the bounds of the ids in `a` or `b`."""
    return _with(a, b, False)


def difference(a, b):
    """Return the bounds of the ids in `a` and not in `b`."""
    return _with(a, b, True)


def intersect(a, b):
    """Return the bounds of the ids in both."""
    return difference(a, difference(a, b))


def _with(bounds, runs, absent):
    """Return `bounds` after all ids of `runs` have been added or, if `absent`, removed."""
    found, at = [], 0
    it = iter(runs)
    for lo, hi in zip(it, it):
        # At an odd place the id lies in a run, or ends one.
        first = bisect_left(bounds, lo, at)
        found += bounds[at:first]
        at = bisect_right(bounds, hi, first)
        found += [lo] * (first % 2 == absent) + [hi] * (at % 2 == absent)
    found += bounds[at:]
    return found
