# SPDX-License-Identifier: LGPL-3.0-or-later
"""A number for every moment, such as how many units are free: a step function of time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

#: A search passes over a whole block where its extremes tell enough, and a change of a span looks
#: at the single steps of the blocks at its ends: smaller blocks make searches longer, larger ones
#: changes.
STEPS_PER_BLOCK = 48


class _Block:
    """Consecutive steps: when each begins, what is free then, and a number added to all of them.

    ``least`` and ``most`` are the extremes, with ``plus`` counted in, unless ``changed``: then
    ``measure()`` finds them again. A block is changed many times in a row, mostly, before a search
    asks for them.
    """

    __slots__ = ("starts", "values", "plus", "least", "most", "changed")

    def __init__(self, starts: list[float], values: list[int], plus: int = 0) -> None:
        self.starts = starts
        self.values = values
        self.plus = plus
        self.measure()

    def measure(self) -> None:
        self.least = min(self.values) + self.plus
        self.most = max(self.values) + self.plus
        self.changed = False


class CountTimeline:
    """A step function of time.

    The steps are kept in blocks that know their extremes. To change a span, to find the least value
    in a span or the first span with enough takes a look at each block in between, and at the steps
    of a few of them.

    Args:
        start (float): its first moment, seconds since the epoch
        value (int): its value from then on
    """

    __slots__ = ("blocks", "heads")

    def __init__(self, start: float, value: int) -> None:
        self.blocks = [_Block([start], [value])]
        self.heads = [start]

    @classmethod
    def rising(cls, start: float, value: int, gains: Iterable[tuple[float, int]]) -> Self:
        """One that rises.

        Args:
            gains: ascending ``(time, gain)``, all after ``start``
        """
        starts, values = [start], [value]
        for time, gain in gains:
            value += gain
            if time == starts[-1]:
                values[-1] = value
            else:
                starts.append(time)
                values.append(value)
        self = cls.__new__(cls)
        self.blocks = [
            _Block(starts[at : at + STEPS_PER_BLOCK], values[at : at + STEPS_PER_BLOCK])
            for at in range(0, len(starts), STEPS_PER_BLOCK)
        ]
        self.heads = [block.starts[0] for block in self.blocks]
        return self

    def copy(self) -> Self:
        """An independent one with the same values."""
        new = type(self).__new__(type(self))
        new.blocks = [_Block(block.starts[:], block.values[:], block.plus) for block in self.blocks]
        new.heads = self.heads[:]
        return new

    def __len__(self) -> int:
        return sum([len(block.starts) for block in self.blocks])

    @property
    def begin(self) -> float:
        """When the first step begins."""
        return self.heads[0]

    def steps(self) -> list[tuple[float, int]]:
        """List of ``(start, value)``."""
        return [
            (start, value + block.plus)
            for block in self.blocks
            for start, value in zip(block.starts, block.values)
        ]

    def at(self, time: float) -> int:
        """The value at a moment; before the first, that of the first."""
        block = self.blocks[max(0, bisect_right(self.heads, time) - 1)]
        return block.values[max(0, bisect_right(block.starts, time) - 1)] + block.plus

    def forget(self, time: float) -> None:
        """Drop the steps that are over at a time; what was before it no longer matters."""
        heads = self.heads
        at = bisect_right(heads, time) - 1
        if at > 0:
            del self.blocks[:at], heads[:at]
        block = self.blocks[0]
        place = bisect_right(block.starts, time) - 1
        if place > 0:
            del block.starts[:place], block.values[:place]
            heads[0] = block.starts[0]
            block.changed = True

    # -- changes ------------------------------------------------------------

    def add(self, start: float, end: float, delta: int) -> None:
        """Add a number to the span from ``start``, not before the first step, to before ``end``."""
        at = bisect_right(self.heads, start) - 1
        block = self.blocks[at]
        starts = block.starts
        if end < starts[-1] and start > starts[0] and len(starts) < STEPS_PER_BLOCK - 1:
            # Most spans are within a block, and no other has to be looked at.
            values = block.values
            last = bisect_left(starts, end)
            if starts[last] != end:
                starts.insert(last, end)
                values.insert(last, values[last - 1])
            first = bisect_left(starts, start, 0, last)
            if starts[first] != start:
                starts.insert(first, start)
                values.insert(first, values[first - 1])
                last += 1
            for place in range(first, last):
                values[place] += delta
            if values[last] == values[last - 1]:
                del starts[last], values[last]
            if values[first] == values[first - 1]:
                del starts[first], values[first]
            block.changed = True
            return
        first = self._cut(start)
        last = self._cut(end) if end != inf else len(self.blocks) - 1
        for at in range(first, last + 1):
            block = self.blocks[at]
            starts = block.starts
            if start <= starts[0] and (at < last or end == inf):
                block.plus += delta
                block.least += delta
                block.most += delta
                continue
            values = block.values
            for place in range(bisect_left(starts, start), bisect_left(starts, end)):
                values[place] += delta
            block.changed = True
        if end != inf:
            self._join(end)
        self._join(start)

    def _cut(self, time: float) -> int:
        """Make a step begin at a time; returns the place of its block."""
        at = bisect_right(self.heads, time) - 1
        block = self.blocks[at]
        starts = block.starts
        place = bisect_right(starts, time) - 1
        if starts[place] == time:
            return at
        starts.insert(place + 1, time)
        block.values.insert(place + 1, block.values[place])
        if len(starts) <= STEPS_PER_BLOCK:
            return at
        half = len(starts) // 2
        self.blocks[at : at + 1] = (
            _Block(starts[:half], block.values[:half], block.plus),
            _Block(starts[half:], block.values[half:], block.plus),
        )
        self.heads.insert(at + 1, starts[half])
        return at + (time >= starts[half])

    def _join(self, time: float) -> None:
        """Drop the step that begins at a time if it has the value of the one before."""
        at = bisect_right(self.heads, time) - 1
        block = self.blocks[at]
        place = bisect_left(block.starts, time)
        if place:
            if block.values[place - 1] == block.values[place]:
                del block.starts[place], block.values[place]
        elif at:
            before = self.blocks[at - 1]
            if before.values[-1] + before.plus == block.values[0] + block.plus:
                del block.starts[0], block.values[0]
                if block.starts:
                    self.heads[at] = block.starts[0]
                    block.changed = True
                else:
                    del self.blocks[at], self.heads[at]

    # -- questions ----------------------------------------------------------

    def after(self, time: float) -> float:
        """The first moment after a time at which a step begins; infinity if there is none."""
        at = bisect_right(self.heads, time) - 1
        if at < 0:
            return self.heads[0]
        starts = self.blocks[at].starts
        place = bisect_right(starts, time)
        if place < len(starts):
            return starts[place]
        return self.heads[at + 1] if at + 1 < len(self.heads) else inf

    def least(self, start: float, end: float) -> int:
        """The least value from ``start`` to before ``end``, which is later."""
        heads = self.heads
        at = bisect_right(heads, start)
        if at:
            at -= 1
        last = bisect_left(heads, end) - 1
        block = self.blocks[at]
        place = bisect_right(block.starts, start)
        if place:
            place -= 1
        if at >= last:
            stop = bisect_left(block.starts, end, place + 1)
            return min(block.values[place:stop]) + block.plus
        least = min(block.values[place:]) + block.plus
        for block in self.blocks[at + 1 : last]:
            if block.changed:
                block.measure()
            if block.least < least:
                least = block.least
        block = self.blocks[last]
        return min(least, min(block.values[: bisect_left(block.starts, end)]) + block.plus)

    def extremes(self, start: float, end: float) -> tuple[int, int]:
        """The least and the greatest value from ``start``, not before the first step, to before
        ``end``, which is later."""
        heads = self.heads
        at = bisect_right(heads, start) - 1
        last = bisect_left(heads, end, at) - 1
        block = self.blocks[at]
        place = bisect_right(block.starts, start) - 1
        if at == last:
            values = block.values[place : bisect_left(block.starts, end, place)]
            return min(values) + block.plus, max(values) + block.plus
        values = block.values[place:]
        least, most = min(values) + block.plus, max(values) + block.plus
        for block in self.blocks[at + 1 : last]:
            if block.changed:
                block.measure()
            least, most = min(least, block.least), max(most, block.most)
        block = self.blocks[last]
        values = block.values[: bisect_left(block.starts, end)]
        return min(least, min(values) + block.plus), max(most, max(values) + block.plus)

    def before(self, time: float) -> int:
        """The value just before a moment, which is after the first."""
        block = self.blocks[bisect_left(self.heads, time) - 1]
        return block.values[bisect_left(block.starts, time) - 1] + block.plus

    def since(self, value: int, time: float) -> float:
        """From when on it is at least ``value`` up to just before a time: minus infinity, if from the
        first step on, or nothing comes before it; that time, if it is less there. O(blocks)."""
        heads, blocks = self.heads, self.blocks
        at = bisect_left(heads, time) - 1
        if at < 0:
            return -inf
        block = blocks[at]
        starts, values = block.starts, block.values
        wanted = value - block.plus
        # Most runs are short: the steps of the first block are looked at without its extremes.
        for place in range(bisect_left(starts, time) - 1, -1, -1):
            if values[place] < wanted:
                return time
            time = starts[place]
        while at:
            at -= 1
            block = blocks[at]
            if block.changed:
                block.measure()
            if block.least >= value:
                time = heads[at]
                continue
            starts, values = block.starts, block.values
            wanted = value - block.plus
            for place in range(len(values) - 1, -1, -1):
                if values[place] < wanted:
                    return time
                time = starts[place]
        return -inf

    def below(self, value: int, start: float) -> float:
        """The first moment, not before a time, at which it is less than ``value``; infinity if there
        is none. O(blocks)."""
        blocks = self.blocks
        begin = max(0, bisect_right(self.heads, start) - 1)
        block = blocks[begin]
        first = max(0, bisect_right(block.starts, start) - 1)
        # As in since().
        wanted = value - block.plus
        for place in range(first, len(block.values)):
            if block.values[place] < wanted:
                return max(start, block.starts[place])
        for block in blocks[begin + 1 :]:
            if block.changed:
                block.measure()
            if block.least < value:
                wanted = value - block.plus
                for place, free in enumerate(block.values):
                    if free < wanted:
                        return block.starts[place]
        return inf

    def first(
        self,
        value: int,
        length: float,
        start: float,
        limit: float = inf,
        until: float = inf,
    ) -> float:
        """The first moment from which on it is at least ``value`` for a time.

        Args:
            value (int): the least value
            length (float): for so many seconds
            start (float): not before this
            limit (float): what comes from then on counts as enough, and the answer is before it
            until (float): a moment from then on need not be found

        Returns:
            float: the moment; infinity if there is none
        """
        if start >= limit:
            return inf
        heads, blocks = self.heads, self.blocks
        begin = max(0, bisect_right(heads, start) - 1)
        block = blocks[begin]
        skip = max(0, bisect_right(block.starts, start) - 1)
        # The step that ``start`` is in counts from ``start`` on, not from where it begins.
        since = start if block.values[skip] + block.plus >= value else None
        skip += 1
        for at in range(begin, len(heads)):
            block = blocks[at]
            head = heads[at]
            if since is None:
                if head >= limit or head >= until:
                    break
            elif head >= limit or head - since >= length:
                break
            if block.changed:
                block.measure()
            if block.least >= value:
                if since is None:
                    since = head
            elif block.most < value:
                since = None
            else:
                wanted = value - block.plus
                if skip:
                    steps = zip(block.starts[skip:], block.values[skip:])
                else:
                    steps = zip(block.starts, block.values)
                for time, free in steps:
                    if free >= wanted:
                        if since is None:
                            since = time
                    elif since is not None:
                        if time - since >= length or time >= limit:
                            return since if since < limit else inf
                        since = None
            skip = 0
        if since is None or since >= limit:
            return inf
        return since
