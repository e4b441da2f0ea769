# SPDX-License-Identifier: LGPL-3.0-or-later
"""Consecutive ends of running jobs: a part of a ``RunningProfile``.

What ranks come to have free at these ends is summed up by key (see ``pool/rank_index.py``). So a
search for ranks with room takes a look at a few keys of each block, and at single ends in one block
only.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from itertools import count

#: Ends in a new block; with twice as many it is divided. A change of the pool costs a look at the
#: ends of the blocks that it has a part in, a search a look at each block.
ENDS_PER_BLOCK = 64

#: ``(end in seconds since the epoch, job id)``
End = tuple[float, int]
#: ``(mask of ranks, key)``: what these have free from an end on.
Move = tuple[int, int]

_stamps = count()


class EndBlock:
    """Some ends, in order.

    Attributes:
        ends (list): ``(end, job id)``, ascending
        reached (dict): key to mask of the ranks that come to have so much free at one of these ends
        stamp (int): another one after each change, which no other block has
        owner (object): of the profile that may change it; others share it
    """

    __slots__ = ("ends", "reached", "stamp", "owner", "_steps", "_sums")

    def __init__(self, owner: object, ends: list[End], reached: dict[int, int]) -> None:
        self.ends = ends
        self.reached = reached
        self.owner = owner
        self._changed()

    def _changed(self) -> None:
        """What was worked out from it does not hold any more."""
        self.stamp = next(_stamps)
        self._steps: tuple[list[float], list[list[Move]]] | None = None
        self._sums: tuple[int, list[tuple[int, int]]] | None = None

    def copy(self, owner: object) -> EndBlock:
        """The same block, for another profile to change."""
        return EndBlock(owner, self.ends[:], self.reached.copy())

    def flip(self, key: int, ranks: int) -> None:
        """A mask of ranks comes to have so much free here, or no longer does."""
        left = self.reached.get(key, 0) ^ ranks
        if left:
            self.reached[key] = left
        else:
            del self.reached[key]
        self._changed()

    def add(self, end: End) -> None:
        """Enter an end."""
        insort(self.ends, end)
        self._changed()

    def remove(self, end: End) -> None:
        """Take out an end."""
        del self.ends[bisect_left(self.ends, end)]
        self._changed()

    def steps(self, moves_of: Callable[[End], list[Move]]) -> tuple[list[float], list[list[Move]]]:
        """The different times of the ends, and what changes at each. O(1) until it changes.

        Args:
            moves_of: gives what changes at one end
        """
        steps = self._steps
        if steps is None:
            times: list[float] = []
            moves: list[list[Move]] = []
            for end in self.ends:
                if not times or times[-1] != end[0]:
                    times.append(end[0])
                    moves.append([])
                moves[-1] += moves_of(end)
            steps = self._steps = times, moves
        return steps

    def sums(self, ranks: int, gain_of: Callable[[End], tuple[int, int]]) -> list[tuple[int, int]]:
        """Cores and GPUs that come free with the first ends, for each number of them from 0 on. O(1)
        until it changes, for one mask of ranks.

        Args:
            ranks (int): mask of the ranks that count
            gain_of: gives what comes free on these at one end
        """
        if self._sums is None or self._sums[0] != ranks:
            cores = gpus = 0
            sums = [(0, 0)]
            for end in self.ends:
                more_cores, more_gpus = gain_of(end)
                cores += more_cores
                gpus += more_gpus
                sums.append((cores, gpus))
            self._sums = ranks, sums
        return self._sums[1]
