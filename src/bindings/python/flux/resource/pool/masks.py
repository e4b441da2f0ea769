# SPDX-License-Identifier: LGPL-3.0-or-later
"""Sets of small integers as bit masks, and their idset text (RFC 22).

The pool keeps every set (the ranks of a group, the cores of a node) as one Python integer with a
bit per member: set algebra then takes one machine operation for 30 members, and makes no containers
for the garbage collector. This module converts masks to text and back, fast enough for every
allocation; ``flux.idset``, which wraps a C library, is slower.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from reprlib import Repr
from typing import Any

#: Ranks from this on are refused in R: a mask is as long as its highest member, so one rank with a
#: huge number would cost memory in every set of ranks.
RANK_LIMIT = 1 << 20
#: The same for core and GPU ids of a node.
UNIT_LIMIT = 1 << 16
#: Ids in an idset are 32-bit numbers (RFC 22).
ID_LIMIT = 1 << 32

#: Idset texts that were read or written, with their masks: the text of an allocation, which the
#: pool writes, is read by the job manager, by the pool and by others. Long texts are not kept.
_known: dict[str, int] = {}
MAX_KNOWN = 4096
KEPT_TEXT = 512

_ITEM = "(?:0|[1-9][0-9]{0,9})(?:-(?:0|[1-9][0-9]{0,9}))?"
_IDSET = re.compile(rf"(?:{_ITEM}(?:,{_ITEM})*)?")
_BOUNDS = re.compile("([0-9]+)(?:-([0-9]+))?")

try:
    popcount = int.bit_count  # novm: Python 3.10
except AttributeError:  # pragma: no cover - Python 3.9

    def popcount(mask: int) -> int:  # type: ignore[misc]
        """Return the number of members of a mask."""
        return bin(mask).count("1")


def lowest(mask: int) -> int:
    """Return the index of the lowest member of a non-empty mask."""
    return (mask & -mask).bit_length() - 1


def intervals(text: Any) -> list[tuple[int, int]]:
    """Decode idset text into ascending ``(low, high)`` pairs. Raises ValueError if it is not a
    string, or not an idset (RFC 22: ascending, no overlap, no leading zeros, ids below 2^32)."""
    if not isinstance(text, str):
        raise ValueError(f"idset must be a string, not {type(text).__name__}")
    inner = text
    if inner[:1] == "[" and inner[-1:] == "]" and len(inner) > 1:
        inner = inner[1:-1]
    if _IDSET.fullmatch(inner) is None:
        raise ValueError(f"invalid idset {quote(text)}")
    result = []
    last = -1
    for first, final in _BOUNDS.findall(inner):
        low = int(first)
        high = int(final) if final else low
        if not last < low <= high:
            raise ValueError(f"invalid idset {quote(text)}")
        result.append((low, high))
        last = high
    if last >= ID_LIMIT:
        raise ValueError(f"invalid idset {quote(text)}")
    return result


_REPR = Repr()
_REPR.maxstring = _REPR.maxother = 60
_REPR.maxlong = 24


def quote(value: Any) -> str:
    """Return the ``repr()`` of an outside value for a message, bounded in length and depth."""
    try:
        return _REPR.repr(value)
    except ValueError:  # an integer too long for str()
        return f"a number of {value.bit_length()} bits"


def _parse(text: str, limit: int) -> int:
    pairs = intervals(text)
    if pairs and pairs[-1][1] >= limit:
        raise ValueError(f"idset {quote(text)}: ids must be below {limit}")
    return _join(pairs)


def _join(pairs: list[tuple[int, int]]) -> int:
    if len(pairs) > 64:
        # Each addition to a mask costs its whole length: join halves, which are shorter.
        half = len(pairs) // 2
        base = pairs[half][0]
        upper = _join([(low - base, high - base) for low, high in pairs[half:]])
        return _join(pairs[:half]) | upper << base
    mask = 0
    for low, high in pairs:
        mask |= ((1 << (high - low + 1)) - 1) << low
    return mask


def _keep(text: str, mask: int) -> None:
    if not text[KEPT_TEXT:]:
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known[text] = mask


def parse_idset(text: Any, limit: int = RANK_LIMIT) -> int:
    """Decode idset text into a mask; ``""`` and ``"[]"`` are the empty set. Raises ValueError if it
    is not an idset, or an id is not below `limit`."""
    mask = _known.get(text) if type(text) is str else None
    if mask is None or mask >> limit:
        mask = _parse(text, limit)
        _keep(text, mask)
    return mask


def clip_idset(text: str, limit: int) -> int:
    """Decode idset text into a mask, without ids from ``limit`` on."""
    return _join([(low, min(high, limit - 1)) for low, high in intervals(text) if low < limit])


def _spans_text(mask: int) -> str:
    text = ",".join([f"{low}" if n == 1 else f"{low}-{low + n - 1}" for low, n in runs(mask)])
    _keep(text, mask)
    return text


_short_text = lru_cache(maxsize=8192)(_spans_text)
#: R has the text of an allocation twice, of its ranks and of its hosts, and at the end of the job it is compared.
_long_text = lru_cache(maxsize=256)(_spans_text)


def idset_text(mask: int) -> str:
    """Return a mask as idset text: ascending, runs as ``lo-hi``, no brackets."""
    if mask < 0x10000000000000000:
        return _short_text(mask)
    rest = mask >> lowest(mask)
    if rest & (rest + 1) == 0 or rest.bit_length() < 128:
        return _short_text(mask)
    return _long_text(mask)


def bracketed(mask: int) -> str:
    """Return idset text, in brackets unless it is a single id (``3``, ``[0-1,4]``)."""
    text = idset_text(mask)
    return text if text.isdigit() else f"[{text}]"


@lru_cache(maxsize=64)
def runs(mask: int) -> tuple[tuple[int, int], ...]:
    """Return the runs ``(low, count)`` of consecutive members, ascending."""
    first = mask & -mask
    if (mask + first) & mask == 0 and mask:
        low = first.bit_length() - 1
        return ((low, mask.bit_length() - low),)
    result = []
    bits = bin(mask)[:1:-1]
    find = bits.find
    low = find("1")
    while low >= 0:
        high = find("0", low)
        if high < 0:
            high = len(bits)
        result.append((low, high - low))
        low = find("1", high)
    return tuple(result)


def members(mask: int) -> list[int]:
    """Return a list of the members of a mask, ascending."""
    result: list[int] = []
    for low, count in runs(mask):
        result.extend(range(low, low + count))
    return result


def ranks_in(rooms: Iterable[tuple[int, int]]) -> int:
    """Return a mask of all ranks in pairs of a number of slots and a mask of ranks."""
    ranks = 0
    for _, mask in rooms:
        ranks |= mask
    return ranks


def mask_of(ids: list[int]) -> int:
    """Return a mask of an ascending list of members."""
    if not ids:
        return 0
    low = ids[0]
    span = ids[-1] - low + 1
    if span == len(ids):
        return ((1 << span) - 1) << low
    if len(ids) < 8:
        return sum([1 << one for one in ids])
    digits = bytearray(b"0" * span)
    high = ids[-1]
    for one in ids:
        digits[high - one] = 49
    return int(digits, 2) << low


def _lowest_members(mask: int, count: int) -> int:
    """Return the ``count`` lowest members: a run, or found by halving, with counts of parts of the
    mask."""
    if not count:
        return 0
    run = ((1 << count) - 1) << (mask & -mask).bit_length() - 1
    if run & ~mask == 0:
        return run
    low, high = count, mask.bit_length()
    while True:
        middle = (low + high) // 2
        lowest_ones = mask & ((1 << middle) - 1)
        excess = popcount(lowest_ones) - count
        if not excess:
            return lowest_ones
        if excess < 0:  # each member is a bit
            low = middle - excess
        else:
            high = middle - excess


_take_short = lru_cache(maxsize=16384)(_lowest_members)


def take(mask: int, count: int) -> int:
    """Return a mask of the ``count`` lowest members; there must be as many."""
    if count == 1:
        return mask & -mask
    if mask < 0x10000000000000000:
        return _take_short(mask, count)
    return _lowest_members(mask, count)


def to_mask(ids: Any, limit: int = RANK_LIMIT) -> int:
    """Return a mask of ranks given as idset text, ``IDset``, number or iterable.

    Members from ``limit`` on are left out. Raises ValueError if it is not an idset, or not a set of
    non-negative integers.
    """
    if isinstance(ids, str):
        return clip_idset(ids, limit)
    if isinstance(ids, int) and not isinstance(ids, bool):
        ids = (ids,)
    encode = getattr(ids, "encode", None)
    if encode is not None:
        return clip_idset(str(encode()), limit)
    mask = 0
    try:
        for one in ids:
            if isinstance(one, bool) or not isinstance(one, int) or one < 0:
                raise ValueError(f"invalid rank {quote(one)}")
            if one < limit:
                mask |= 1 << one
    except TypeError:
        raise ValueError(f"invalid ranks {quote(ids)}") from None
    return mask
