# SPDX-License-Identifier: LGPL-3.0-or-later
"""Step functions of time, such as the number of free units.

This is the definition, with two lists; ``_flux_plan/timeline.c`` has the same functions, and is
used if built.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class CountTimeline:
    """A step function of time.  Each method examines O(steps).

    Args:
        start (float): first moment, seconds since the epoch
        value (int): its value from then on
    """

    __slots__ = ("starts", "values")

    def __init__(self, start: float, value: int) -> None:
        self.starts = [start]
        self.values = [value]

    def copy(self) -> Self:
        """Return an independent copy."""
        new = type(self)(0.0, 0)
        new.starts, new.values = self.starts[:], self.values[:]
        return new

    def _place(self, time: float) -> int:
        """Return the index of the step at a time; before the first step, 0."""
        return max(0, bisect_right(self.starts, time) - 1)

    # -- changes ------------------------------------------------------------

    def add(self, start: float, end: float, delta: int) -> None:
        """Add ``delta`` from ``start`` (at the earliest the first step) to before ``end``."""
        if end <= max(start, self.starts[0]):
            return
        first = self._step_from(max(start, self.starts[0]))
        last = self._step_from(end) if end < inf else len(self.starts)
        for place in range(first, last):
            self.values[place] += delta
        self._join(last)
        self._join(first)

    def _step_from(self, time: float) -> int:
        """Return the index of the step that begins at a time; split a step if needed."""
        place = self._place(time)
        if self.starts[place] == time:
            return place
        self.starts.insert(place + 1, time)
        self.values.insert(place + 1, self.values[place])
        return place + 1

    def _join(self, place: int) -> None:
        """Drop a step with the value of the one before."""
        if 0 < place < len(self.starts) and self.values[place - 1] == self.values[place]:
            del self.starts[place], self.values[place]

    def forget(self, time: float) -> None:
        """Drop the steps that are over at a time."""
        place = self._place(time)
        del self.starts[:place], self.values[:place]

    # -- questions ----------------------------------------------------------

    def least(self, start: float, end: float) -> int:
        """Return the least value from ``start`` to before ``end``, which is later."""
        first = self._place(start)
        return min(self.values[first : bisect_left(self.starts, end, first + 1)])

    def below(self, value: int, start: float) -> float:
        """Return the first moment, from ``start`` on, at which the value is less than ``value``;
        infinity if there is none."""
        for place in range(self._place(start), len(self.starts)):
            if self.values[place] < value:
                return max(start, self.starts[place])
        return inf

    def first(self, value: int, length: float, start: float, limit: float = inf) -> float:
        """Return the first moment from which the value is at least ``value`` for a time.

        Args:
            value (int): least value
            length (float): seconds
            start (float): earliest moment
            limit (float): values from then on suffice, and the result is earlier

        Returns:
            float: the moment; infinity if there is none
        """
        since = None
        first = self._place(start)
        for place in range(first, len(self.starts)):
            time = start if place == first else self.starts[place]
            if time >= limit or (since is not None and since + length <= time):
                break
            if self.values[place] < value:
                since = None
            elif since is None:
                since = time
        return inf if since is None else since
