# SPDX-License-Identifier: LGPL-3.0-or-later
"""A mask of ranks for every moment: the union of what was added over time spans."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

INFINITY = float("inf")

#: Fewer than in a CountTimeline: each segment of a block that is cut costs an operation on a mask
#: as long as the cluster.
SEGMENTS_PER_BLOCK = 24


class _Block:
    """Consecutive segments: starts, their masks, and a mask added to all of them."""

    __slots__ = ("starts", "masks", "every", "union")

    def __init__(self, starts: list[float], masks: list[int], every: int = 0) -> None:
        self.starts = starts
        self.masks = masks
        self.every = every
        self.union = every
        for mask in masks:
            self.union |= mask

    def copy(self) -> _Block:
        new = _Block.__new__(_Block)
        new.starts = self.starts[:]
        new.masks = self.masks[:]
        new.every = self.every
        new.union = self.union
        return new


class MaskTimeline:
    """Union of masks added for time spans; the spans are half open.

    They are kept in blocks of segments, so that a span over much of a long plan costs one step for
    each block in it, and one for each segment of the blocks at its ends.
    """

    __slots__ = ("blocks", "heads")

    def __init__(self) -> None:
        self.blocks = [_Block([-INFINITY], [0])]
        self.heads = [-INFINITY]

    def copy(self) -> Self:
        """An independent one with the same masks. O(segments): no mask is copied."""
        new = type(self)()
        new.blocks = [block.copy() for block in self.blocks]
        new.heads = self.heads[:]
        return new

    def _cut(self, time: float) -> tuple[int, int]:
        """Make a segment start at a time; returns its block and place in it."""
        at = bisect_right(self.heads, time) - 1
        block = self.blocks[at]
        place = bisect_right(block.starts, time) - 1
        if block.starts[place] == time:
            return at, place
        place += 1
        block.starts.insert(place, time)
        block.masks.insert(place, block.masks[place - 1])
        if len(block.starts) > SEGMENTS_PER_BLOCK:
            half = len(block.starts) // 2
            upper = _Block(block.starts[half:], block.masks[half:], block.every)
            self.blocks[at] = _Block(block.starts[:half], block.masks[:half], block.every)
            self.blocks.insert(at + 1, upper)
            self.heads.insert(at + 1, upper.starts[0])
            if place >= half:
                return at + 1, place - half
        return at, place

    def add(self, start: float, end: float, mask: int) -> None:
        """Add a mask for the span from ``start`` to before ``end``."""
        if end != INFINITY:
            self._cut(end)
        first, place = self._cut(start)
        last, stop = len(self.blocks), 0
        if end != INFINITY:
            last = bisect_right(self.heads, end) - 1
            stop = bisect_left(self.blocks[last].starts, end)
        if first == last:
            self._add_part(first, place, stop, mask)
            return
        if place:
            self._add_part(first, place, None, mask)
            first += 1
        for block in self.blocks[first:last]:
            block.every |= mask
            block.union |= mask
        if stop:
            self._add_part(last, 0, stop, mask)

    def _add_part(self, at: int, place: int, stop: int | None, mask: int) -> None:
        block = self.blocks[at]
        masks = block.masks
        for number in range(place, len(masks) if stop is None else stop):
            masks[number] |= mask
        block.union |= mask

    def remove(self, start: float, end: float, mask: int) -> None:
        """Take a mask out of the span from ``start`` to before ``end``.

        A rank that was added twice is out of it after that: it has to be added again.
        """
        if end != INFINITY:
            self._cut(end)
        first, _ = self._cut(start)
        last = bisect_left(self.heads, end) if end != INFINITY else len(self.blocks)
        keep = ~mask
        for block in self.blocks[first:last]:
            if block.every & mask:
                block.masks = [one | block.every for one in block.masks]
                block.every = 0
            stop = bisect_left(block.starts, end)
            for place in range(bisect_left(block.starts, start), stop):
                block.masks[place] &= keep
            block.union = block.every
            for one in block.masks:
                block.union |= one

    def union(self, start: float, end: float) -> int:
        """Union of the masks at all moments from ``start`` to before ``end``."""
        heads = self.heads
        first = bisect_right(heads, start) - 1
        last = bisect_left(heads, end) - 1
        block = self.blocks[first]
        place = bisect_right(block.starts, start) - 1
        if first == last:
            mask = block.every
            for one in block.masks[place : bisect_left(block.starts, end)]:
                mask |= one
            return mask
        mask = block.every
        for one in block.masks[place:]:
            mask |= one
        for block in self.blocks[first + 1 : last]:
            mask |= block.union
        block = self.blocks[last]
        mask |= block.every
        for one in block.masks[: bisect_left(block.starts, end)]:
            mask |= one
        return mask


class SortedTimes:
    """Ascending distinct times."""

    __slots__ = ("times",)

    def __init__(self) -> None:
        self.times: list[float] = []

    def copy(self) -> Self:
        """An independent one with the same times."""
        new = type(self)()
        new.times = self.times[:]
        return new

    def add(self, time: float) -> None:
        at = bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:
            self.times.insert(at, time)

    def after(self, time: float) -> float:
        """The first time later than ``time``; infinity if there is none."""
        at = bisect_right(self.times, time)
        return self.times[at] if at < len(self.times) else INFINITY
